"""Files: which rank writes, reads, renames and removes which file of a folder; slow files; and jobs that are killed."""

import builtins
import contextlib
import io
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import torch

from mpcourse.course.check.facts.messages import is_virtual


class Killed(BaseException):
    """The job is killed, and does nothing more to its files."""


class Event(NamedTuple):
    """What a rank does to a file: "open" and "close" to write it, "read", "rename" to `to`, "remove"."""

    rank: int
    kind: str
    name: str
    to: str = ""


class Files:
    """What ranks do to the files of a folder while `watched` runs. Other files are not noted.

    delays: seconds of virtual time that a rank needs to open a file and to close it, by rank. Other ranks go on
    meanwhile.
    killed_at: the job is killed at this change of a file, the first is 0; None: it is not killed. A file that is
    being closed then is only half written.
    """

    def __init__(self, folder: Path, delays: Sequence[float] = (), killed_at: int | None = None) -> None:
        self.folder, self.delays, self.killed_at = folder, delays, killed_at
        self.events: list[Event] = []
        self.changes, self.dead = 0, False
        self._mine = threading.local()  # each virtual rank is a thread
        self._open, self._save = builtins.open, torch.save

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Watch what ranks do, which call `on_rank` first."""
        new = {(os, name): self._moving(getattr(os, name)) for name in ("replace", "rename", "link")}
        new |= {(os, name): self._removing(getattr(os, name)) for name in ("remove", "unlink")}
        new |= {(builtins, "open"): self.open, (io, "open"): self.open, (torch, "save"): self.save}
        with contextlib.ExitStack() as stack:
            for (module, name), function in new.items():
                stack.enter_context(mock.patch.object(module, name, function))
            yield

    def on_rank(self, comm: Any) -> None:
        """Note what this thread does as done by this rank."""
        self._mine.comm = comm

    def open(self, file: Any, mode: str = "r", *args: Any, **options: Any) -> Any:
        """Open a file as Python does."""
        name = self._name(file)
        if name is None:
            return self._open(file, mode, *args, **options)
        if not set(mode) & set("wax+"):
            self._pause()
            self._note("read", name)
            return self._open(file, mode, *args, **options)
        opened = self._open(file, mode, *args, **options)
        self._note("open", name)
        self._pause()
        self._change()
        return _Written(self, opened, name)

    def save(self, what: Any, file: Any, *args: Any, **options: Any) -> None:
        """Save as torch.save does. It opens files in C++, where this module would not see it."""
        if self._name(file) is None:
            self._save(what, file, *args, **options)
            return
        with self.open(file, "wb") as opened:
            self._save(what, opened, *args, **options)

    def _moving(self, function: Callable) -> Callable:
        def moving(source: Any, target: Any, **options: Any) -> None:
            if (name := self._name(source)) is not None:
                self._change()
                self._note("rename", name, self._name(target) or "")
            function(source, target, **options)

        return moving

    def _removing(self, function: Callable) -> Callable:
        def removing(file: Any, **options: Any) -> None:
            if (name := self._name(file)) is not None:
                self._change()
                self._note("remove", name)
            function(file, **options)

        return removing

    def _name(self, file: Any) -> str | None:
        """Return the file's name in the folder, if this is a rank's file."""
        if not hasattr(self._mine, "comm") or not isinstance(file, str | os.PathLike):
            return None
        path = os.path.abspath(os.fspath(file))
        return os.path.relpath(path, self.folder) if path.startswith(f"{self.folder}{os.sep}") else None

    def _note(self, kind: str, name: str, to: str = "") -> None:
        if hasattr(self._mine, "comm"):  # else a file is closed that no variable holds
            self.events.append(Event(self._mine.comm.rank, kind, name, to))

    def _pause(self) -> None:
        comm = self._mine.comm
        if is_virtual(comm) and self.delays:
            comm.compute(self.delays[comm.rank])
            comm.world.begin(comm.me)  # now ranks go on whose time is earlier

    def _change(self, opened: Any = None) -> None:
        """Count a change, and kill the job there. opened: the file that is being closed."""
        self.changes += 1
        if self.killed_at is not None and self.changes > self.killed_at and not self.dead:
            self.dead = True
            if opened is not None:
                opened.flush()
                os.truncate(opened.fileno(), os.fstat(opened.fileno()).st_size // 2)
                opened.close()
        if self.dead:
            raise Killed


class _Written:
    """A file that a rank writes."""

    def __init__(self, files: Files, file: Any, name: str) -> None:
        self._files, self._file, self._name = files, file, name

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> "_Written":
        return self

    def __exit__(self, *args: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file, which takes time, and at which the job may be killed."""
        if not self._file.closed:
            self._files._pause()
            self._files._change(self._file)
            self._file.close()
            self._files._note("close", self._name)

    def __del__(self) -> None:
        if not self._file.closed:
            self._file.close()
            self._files._note("close", self._name)
