"""Checkpoints: the newest that is whole counts, after a kill, a full disk, or where bits of a file have changed."""

import io
import re
import threading
import zlib
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.utils._pytree import tree_map

from mpcourse.common.files import remove_parts, write_atomically

NAME = re.compile(r"step(\d+)-([0-9a-f]{8})\.pt")


class Loaded(NamedTuple):
    """A checkpoint.

    step: that was given to `save`.
    state: that was given to `save`.
    damaged: newer files that were passed over, because their bits have changed.
    """

    step: int
    state: Any
    damaged: list[Path]


class Checkpoints:
    """A job's checkpoints in one folder. One process writes them, such as rank 0; any process may read them.

    folder: is made where it does not exist.
    keep: generations that stay, 1 or more. With 2, there is an older one if the newest is damaged. Files whose damage
    `load` has found do not count.

    A file is written under another name, and gets its own when all of it is on the disk. So a process that is killed
    while it writes leaves the earlier ones as they were. The name holds a checksum of the contents. (With
    `mpcourse.data_parallel.Checkpointer`, each rank writes a file of its own, and as many ranks continue.)
    Raises ValueError for a `keep` below 1.
    """

    def __init__(self, folder: str | Path, keep: int = 2) -> None:
        if keep < 1:
            raise ValueError(f"keep={keep}: at least one checkpoint must stay")
        self.folder, self.keep = Path(folder), keep
        self.folder.mkdir(parents=True, exist_ok=True)
        self._damaged: set[Path] = set()
        self._writer: threading.Thread | None = None
        self._error: Exception | None = None

    def save(self, step: int, state: Any) -> None:
        """Write a checkpoint, and wait until it is on the disk.

        step: updates so far, 0 or more.
        state: dicts, lists, numbers, texts and tensors, as `torch.load` reads them with weights_only.

        Older generations than `keep` are removed afterwards. Raises OSError where it cannot be written, such as on a
        full disk; then the earlier ones are as they were.
        """
        self.wait()
        self._write(step, state)

    def save_later(self, step: int, state: Any) -> None:
        """Copy the state, and let a thread write it while the job goes on. It waits for the one before.

        step, state: as for `save`.

        The job may change its tensors as soon as this returns. Raises what the writing of the one before has raised.
        """
        self.wait()
        copied = tree_map(lambda x: x.detach().cpu().clone() if isinstance(x, torch.Tensor) else x, state)
        self._writer = threading.Thread(target=self._try, args=(step, copied))
        self._writer.start()

    def wait(self) -> None:
        """Wait until the last checkpoint is on the disk. Raises what its writing has raised, once."""
        if self._writer is not None:
            self._writer.join()
            self._writer = None
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def load(self) -> Loaded | None:
        """Return the newest checkpoint that is whole; None where there is no file.

        Raises ValueError where all files are damaged: a job that began anew would throw away what it has learned.
        """
        damaged: list[Path] = []
        for step, path in reversed(self._files()):
            contents = path.read_bytes()
            if f"{zlib.crc32(contents):08x}" == NAME.fullmatch(path.name)[2]:  # type: ignore[index]
                return Loaded(step, torch.load(io.BytesIO(contents), weights_only=True), damaged)
            damaged.append(path)
            self._damaged.add(path)
        if damaged:
            raise ValueError(f"all checkpoints in {self.folder} are damaged: {', '.join(p.name for p in damaged)}")
        return None

    def _try(self, step: int, state: Any) -> None:
        try:
            self._write(step, state)
        except Exception as error:  # `wait` raises it
            self._error = error

    def _write(self, step: int, state: Any) -> None:
        if step < 0:
            raise ValueError(f"step={step}: a job has made 0 updates or more")
        remove_parts(self.folder, "step*.pt")  # what a killed process has left
        memory = io.BytesIO()
        torch.save(state, memory)
        contents = memory.getvalue()
        new = self.folder / f"step{step:08d}-{zlib.crc32(contents):08x}.pt"
        write_atomically(new, contents, sync=True)
        self._damaged.discard(new)
        whole = [path for at, path in self._files() if path not in self._damaged and (at != step or path == new)]
        for _, path in self._files():
            if path not in whole[-self.keep :]:
                path.unlink()

    def _files(self) -> list[tuple[int, Path]]:
        """Return the files with their steps, the oldest first."""
        found = ((NAME.fullmatch(path.name), path) for path in self.folder.iterdir())
        return sorted((int(match[1]), path) for match, path in found if match)
