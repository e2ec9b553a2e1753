"""A process that has imported what ranks need, and forks each of them: a few hundredths of a second instead of three.

python -P -m mpcourse.course.forkserver.server SOCKET MODULE...

It imports the modules, and listens at SOCKET until its standard input is closed. A client (client.py, or `Forks.start`)
says what process it wants, hands over its open files, and learns how the process ended. When the client that asked has
gone, the process is killed. No process runs any code of the one before it.

Nothing that a process starts escapes. Each is a "child subreaper": in whatever session or group its descendants hide,
one that loses its parent becomes its child. When it has ended itself they become the server's children, which the
server has not forked; it kills such ones.
"""

import contextlib
import marshal
import os
import select
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from mpcourse.course.forkserver.descent import children, end_with, subreaper
from mpcourse.course.forkserver.prepared import import_all, share
from mpcourse.course.forkserver.process import Wanted


@dataclass
class Process:
    """A process that lives, or whose end has not been noted yet. connection: to the client that asked for it."""

    group: str
    connection: socket.socket
    wanted: bool = True


@dataclass
class Server:
    """listener: accepts requests. processes: those it has forked, by id. waiting: who waits for the end of a group.

    path: the socket, which it removes at its end.
    """

    listener: socket.socket
    path: str
    processes: dict[int, Process] = field(default_factory=dict)
    waiting: list[tuple[str, socket.socket]] = field(default_factory=list)
    ended: list[socket.socket] = field(default_factory=list)  # know how their process ended, and are not closed yet
    sources: dict[str, int] = field(default_factory=lambda: sources())  # as they were when they were imported

    def serve(self) -> Wanted | None:
        """Serve until there is no more to do, then return None; in each forked process, return what it is to be."""
        woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        while True:
            asking = {process.connection: pid for pid, process in self.processes.items() if process.wanted}
            files = list[Any]([0, woken, self.listener, *asking, *self.ended])
            ready, _, _ = select.select(files, [], [])
            if woken in ready:
                os.read(woken, 4096)
            for connection in ready:
                if connection in asking:  # they say nothing more: it was closed
                    _kill(asking[connection])
                    self.processes[asking[connection]].wanted = False
                elif connection in self.ended:
                    self.ended.remove(connection)
                    connection.close()
            self.reap()
            if 0 in ready:  # closed: the process that started this server is gone
                self.end()
                remove(self.path)
                return None
            if self.listener in ready and (wanted := self.accept()):
                return wanted

    def accept(self) -> Wanted | None:
        """Answer one request; in the process that it forks, return what that is to be, else None."""
        connection, _ = self.listener.accept()
        try:
            asked, files = receive(connection)
        except (OSError, ValueError, EOFError, TypeError):
            connection.close()  # it was killed while it spoke
            return None
        if asked.get("whether_current"):
            with contextlib.suppress(OSError):  # who asked may have gone
                connection.sendall(str(int(self.sources == sources())).encode())
            connection.close()
            return None
        if group := asked.get("wait_for"):
            self.waiting.append((group, connection))
            self.reap()
            return None
        me, pid = os.getpid(), os.fork()
        if pid:
            self.processes[pid] = Process(asked["group"], connection)
            for file in files:
                os.close(file)
            return None
        end_with(me)
        os.setsid()  # a signal to the terminal's group, or the server's, is none of its own
        subreaper()
        signal.set_wakeup_fd(-1)
        return Wanted(asked, files)

    def reap(self) -> None:
        """Report how processes have ended, kill what they have left, and notify clients that wait for a group's end."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if not pid:
                break
            if process := self.processes.pop(pid, None):
                try:
                    process.connection.sendall(str(status).encode())
                    process.connection.shutdown(socket.SHUT_WR)
                except OSError:
                    pass  # it was killed because its client has gone
                self.ended.append(process.connection)
        orphans = set(children(os.getpid())) - set(self.processes)
        for orphan in orphans:
            _kill(orphan)
        groups = {process.group for process in self.processes.values()}
        for group, connection in list(self.waiting):
            if group not in groups and not orphans:
                self.waiting.remove((group, connection))
                connection.close()

    def end(self) -> None:
        """Kill all that descends from this process, and wait for it."""
        while left := children(os.getpid()):
            for pid in left:
                _kill(pid)
            try:
                os.waitpid(-1, 0)  # what that one leaves is this process's child when this returns
            except ChildProcessError:
                return


def sources() -> dict[str, int]:
    """Return when each file of the course that this process has imported was last changed; 0: it is gone."""
    modified = {}
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "mpcourse" and (file := getattr(module, "__file__", None)):
            try:
                modified[file] = os.stat(file).st_mtime_ns
            except OSError:
                modified[file] = 0
    return modified


def receive(connection: socket.socket) -> tuple[dict, list[int]]:
    """Receive a request, and the files that came with it.

    Raises ValueError where it breaks off, and what socket and marshal raise for other faults.
    """
    first, files, _, _ = socket.recv_fds(connection, 8, 253, socket.MSG_CMSG_CLOEXEC)
    length, text = int.from_bytes(first, "big"), b""
    while len(text) < length:
        if not (part := connection.recv(length - len(text))):
            raise ValueError("the request broke off")
        text += part
    return marshal.loads(text), list(files)


@contextlib.contextmanager
def ended_when_unwanted(path: str) -> Iterator[None]:
    """End this process if its standard input is closed within this context: imports take seconds.

    The thread that waits for that has ended when the context has, for no thread survives a fork.
    """
    reading, writing = os.pipe()

    def wait() -> None:
        if reading not in select.select([0, reading], [], [])[0]:
            remove(path)
            os._exit(0)

    thread = threading.Thread(target=wait)
    thread.start()
    try:
        yield
    finally:  # or a process whose import failed would wait for its thread
        os.close(writing)
        thread.join()
        os.close(reading)


def remove(path: str) -> None:
    """Remove the socket, and its folder where nothing else is in it."""
    with contextlib.suppress(OSError):
        os.unlink(path)
        os.rmdir(os.path.dirname(path))


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def main() -> None:
    """Import the modules and serve; in each forked process, become the process that was asked for."""
    path, *modules = sys.argv[1:]
    subreaper()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(path + ".new")
    listener.listen(64)
    os.rename(path + ".new", path)  # who comes from now on waits until the modules are there
    with ended_when_unwanted(path):
        import_all(modules)
    share()
    wanted = Server(listener, path).serve()
    if wanted is not None:
        wanted.run()
    os._exit(0)  # at once: to take apart all that was imported takes a tenth of a second


if __name__ == "__main__":
    main()
