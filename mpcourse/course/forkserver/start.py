"""Start a fork server, and processes from it; or, where there is none, the same processes one by one."""

import contextlib
import marshal
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from mpcourse.course.forkserver.process import CALL
from mpcourse.course.processes import end_all

CLIENT = Path(__file__).with_name("client.py")
GROUP = "MPCOURSE_CHECK"  # the environment variable that names the group of a process
LAUNCHED = "MPCOURSE_LAUNCHED"  # the one that holds the id of the process which a launcher started in its place
ADDRESS = "MPCOURSE_FORKSERVER"  # the one that says where a server listens which a process may use


class Started(Protocol):
    """A process that was started. `close` ends it, if it has not ended, and all that it has started."""

    def poll(self, seconds: float = 0.0) -> int | None:
        """Return the exit status, as subprocess.Popen has it, or None; waits up to `seconds` for the end."""

    def close(self) -> None: ...


class Starter(Protocol):
    """What starts Python processes: a fork server, or this process itself.

    arguments are Python's own (FILE, -m MODULE, -c CODE), or --call MODULE:FUNCTION, and those of the program.
    """

    def command(self, *arguments: str) -> list[str]:
        """Return a command that runs Python with `arguments`; for a launcher such as mpirun."""

    def start(self, arguments: Sequence[str], environment: Mapping[str, str], folder: Path, output: int) -> Started:
        """Start Python with `arguments`; its standard output and error go to the file descriptor `output`."""

    def end(self, group: str, seconds: float = 10.0) -> None:
        """Wait until those processes have ended whose environment has the variable GROUP with the value `group`.

        They end when the process that asked for them has gone. Raises TimeoutError where they do not.
        """


def offered() -> bool:
    """Whether this system has what a fork server needs; elsewhere processes are started one by one."""
    return sys.platform == "linux"


def python() -> Starter:
    """Return what starts Python processes quickest here.

    It is the server that the environment names, if it listens and no file of the course has been changed since it
    imported them; else Plain.
    """
    path = os.environ.get(ADDRESS)
    if path and offered() and (server := Forks(path)).current():
        return server
    return Plain()


def serving(path: str, modules: Sequence[str]) -> list[str]:
    """Return the command that runs a server which listens at `path`."""
    return [sys.executable, "-P", "-m", "mpcourse.course.forkserver.server", path, *modules]


def begun(server: subprocess.Popen, path: str) -> bool:
    """Whether a server that was started listens at `path`; waits until it does, or has ended."""
    while not os.path.exists(path):
        if server.poll() is not None:
            return False
        time.sleep(0.001)
    return True


def attach(modules: Sequence[str], environment: Mapping[str, str]) -> str:
    """Start a server that ends with this process, whatever program that becomes by os.exec; where it listens."""
    path = str(Path(tempfile.mkdtemp(prefix="mpcourse-fork-")) / "socket")
    lifeline, held = os.pipe()
    os.set_inheritable(held, True)
    subprocess.Popen(serving(path, modules), stdin=lifeline, env=dict(environment), start_new_session=True)
    os.close(lifeline)
    return path


class Forks:
    """Processes forked by the server that listens at `path`."""

    def __init__(self, path: str) -> None:
        self.path = path

    def listening(self) -> str:
        """Return the path, once the server has begun."""
        return self.path

    def command(self, *arguments: str) -> list[str]:
        """Return a command that has the server run Python with `arguments`; for a launcher such as mpirun."""
        return [sys.executable, "-I", "-S", str(CLIENT), self.listening(), *arguments]

    def start(self, arguments: Sequence[str], environment: Mapping[str, str], folder: Path, output: int) -> "Started":
        """Fork a process that runs Python with `arguments`, in `folder`; it writes to the file descriptor `output`."""
        with open(os.devnull) as nothing:
            files = [nothing.fileno(), output, output]
            asked = {
                "arguments": list(arguments), "environment": dict(environment), "folder": str(folder),
                "files": [0, 1, 2], "group": environment.get(GROUP, ""),
            }  # fmt: skip
            return Forked(self._ask(asked, files))

    def end(self, group: str, seconds: float = 10.0) -> None:
        """Wait until those processes have ended whose environment has the variable GROUP with the value `group`.

        They end when the process that asked for them has gone. Raises TimeoutError where one is left after `seconds`.
        """
        try:
            with self._ask({"wait_for": group}) as connection:
                connection.settimeout(seconds)
                connection.recv(1)
        except TimeoutError:
            raise
        except OSError:
            pass  # the server was killed, and with it all that it had forked

    def current(self, seconds: float = 10.0) -> bool:
        """Whether it answers, and no file of the course has been changed since it imported them."""
        with contextlib.suppress(OSError), self._ask({"whether_current": True}) as connection:
            connection.settimeout(seconds)
            return connection.recv(1) == b"1"
        return False

    def _ask(self, asked: dict, files: Sequence[int] = ()) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.connect(self.listening())
        text = marshal.dumps(asked)
        socket.send_fds(connection, [len(text).to_bytes(8, "big")], files)
        connection.sendall(text)
        return connection


class ForkServer(Forks):
    """A server of one's own, which has imported `modules`.

    It ends with this process, or by `close`.

    It starts at once and imports while this process goes on; a client that asks before it is ready waits. If it was
    killed, the next process that is asked for starts another, which listens at the same path: others may know it from
    the environment.

    environment: what the server itself runs in, by which libraries choose their numbers of threads when imported.
    """

    def __init__(self, modules: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        self.modules = list(modules)
        self.environment = dict(os.environ if environment is None else environment) | {GROUP: uuid.uuid4().hex}
        self._folder = Path(tempfile.mkdtemp(prefix="mpcourse-fork-"))
        super().__init__(str(self._folder / "socket"))
        self._start()

    def _start(self) -> None:
        for left in (self.path, self.path + ".new"):  # by one that was killed
            Path(left).unlink(missing_ok=True)
        self._folder.mkdir(exist_ok=True)
        self._process = subprocess.Popen(
            serving(self.path, self.modules),
            stdin=subprocess.PIPE,
            env=self.environment,
            start_new_session=True,  # Ctrl-C is for the program that uses it
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def listening(self) -> str:
        """Return the path, once the server has begun. Raises RuntimeError where it cannot."""
        if self._process.poll() is not None:  # it was killed; processes that it has forked may still live
            end_all(self.environment[GROUP])
            self._start()
        if not begun(self._process, self.path):
            raise RuntimeError("the fork server ended while it started")
        return self.path

    def _ask(self, asked: dict, files: Sequence[int] = ()) -> socket.socket:
        try:
            return super()._ask(asked, files)
        except OSError:  # it was killed in this moment; the next one is asked
            self._process.wait(timeout=5)
            return super()._ask(asked, files)

    def end(self, group: str, seconds: float = 10.0) -> None:
        """Wait until the processes of `group` have ended; where the server itself has ended, end them.

        group: the value of the variable GROUP in their environment. Raises TimeoutError where the server has one left
        after `seconds`.
        """
        if self._process.poll() is None:
            super().end(group, seconds)
        else:
            end_all(self.environment[GROUP])

    def close(self) -> None:
        """End the server, and all that it has forked."""
        assert self._process.stdin
        self._process.stdin.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.returncode:
            end_all(self.environment[GROUP])
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> "ForkServer":
        return self

    def __exit__(self, *args: object) -> None:
        self.close()


class Forked:
    """A process that a fork server has started."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._status: int | None = None

    def poll(self, seconds: float = 0.0) -> int | None:
        """Return the exit status, as subprocess.Popen has it, or None; waits up to `seconds` for the end."""
        if self._status is None:
            self._connection.settimeout(seconds or 0.0001)
            try:
                answer = self._connection.recv(16)
                self._status = os.waitstatus_to_exitcode(int(answer)) if answer else -9  # none: the server was killed
            except TimeoutError:
                pass
            except OSError:
                self._status = -9
        return self._status

    def close(self) -> None:
        """Close the connection; a process that still runs is killed by the server."""
        self._connection.close()


class Plain:
    """Processes that are started one by one, each from nothing."""

    def command(self, *arguments: str) -> list[str]:
        """Return a command that runs Python with `arguments` from nothing; for a launcher such as mpirun."""
        safe = ["-P"] if arguments[0] == "-P" else []
        kind, *rest = arguments[len(safe) :]
        if kind != CALL:
            return [sys.executable, *arguments]
        module, _, function = rest[0].partition(":")
        return [sys.executable, "-P", "-c", f"from {module} import {function}; {function}()", *rest[1:]]

    def start(self, arguments: Sequence[str], environment: Mapping[str, str], folder: Path, output: int) -> "Started":
        """Start Python with `arguments`, in `folder`; it writes to the file descriptor `output`."""
        return _Process(
            subprocess.Popen(
                self.command(*arguments), stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                env=dict(environment), cwd=folder, start_new_session=True,
            )
        )  # fmt: skip

    def end(self, group: str, seconds: float = 10.0) -> None:
        """End the processes whose environment has the variable GROUP with the value `group`, within `seconds`."""
        end_all(group, seconds)


class _Process:
    def __init__(self, process: subprocess.Popen) -> None:
        self._process = process

    def poll(self, seconds: float = 0.0) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._process.wait(seconds)
        return None

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
