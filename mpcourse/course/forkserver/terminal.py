"""A fork server that the commands typed in one terminal share: a second `mpcourse check` waits for no import."""

import contextlib
import fcntl
import hashlib
import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from mpcourse.course.forkserver.server import __file__ as SERVER
from mpcourse.course.forkserver.start import Forks, begun, serving

IDLE = 600  # seconds after which a server ends that nobody asks; it holds 0.2 GB of memory
PATIENCE = 60  # seconds for it to import what it has not: torch, over a cluster's network
LONGEST = 100  # bytes of a socket's path; the kernel's own limit is 107


def of_this_terminal(modules: Sequence[str], environment: Mapping[str, str]) -> Forks | None:
    """The server of this terminal, which has imported `modules`, as ForkServer has them.

    It is started where there is none, or where a file of the course has been changed since. It ends with the terminal's
    shell, or when nobody has asked for IDLE seconds. environment: what a server that is started runs in.

    None where no server can outlive this command: the standard input is no terminal, as in CI; this process is the
    terminal's only one; or the system lacks what that takes.
    """
    with contextlib.suppress(OSError), _lifeline() as lifeline, _folder() as folder:
        server = Forks(str(folder / "socket"))
        if server.current(modules, PATIENCE) or _start(server.path, lifeline, modules, environment):
            return server
    return None


@contextlib.contextmanager
def _lifeline() -> Iterator[int]:
    """A file descriptor that can be read once the terminal's shell has ended. Raises OSError where there is none."""
    shell = os.getsid(0)
    if not os.isatty(0) or shell in (0, os.getpid()) or not hasattr(os, "pidfd_open"):
        raise OSError("no terminal")
    lifeline = os.pidfd_open(shell)
    try:
        yield lifeline
    finally:
        os.close(lifeline)


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    """A folder of this terminal, user and course, locked: of two commands one starts the server.

    Raises OSError where it is somebody else's, or can be.
    """
    shell = os.getsid(0)
    began = Path(f"/proc/{shell}/stat").read_text().rpartition(")")[2].split()[19]  # since the machine was started
    course = hashlib.sha256(f"{sys.executable} {SERVER}".encode()).hexdigest()[:8]
    folder = Path(tempfile.gettempdir()) / f"mpcourse-fork-{os.getuid()}-{shell}-{began}-{course}"
    if len(os.fsencode(folder)) > LONGEST - len("/socket.new"):
        raise OSError("too long for a socket")
    folder.mkdir(mode=0o700, exist_ok=True)
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        found = os.fstat(opened)
        if found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o077:
            raise PermissionError(f"{folder} is not this user's alone")
        fcntl.flock(opened, fcntl.LOCK_EX)
        yield folder
    finally:
        os.close(opened)


def _start(path: str, lifeline: int, modules: Sequence[str], environment: Mapping[str, str]) -> bool:
    """Start a server that listens at `path`; whether it does."""
    for left in (path, path + ".new"):  # by one that was killed
        Path(left).unlink(missing_ok=True)
    server = subprocess.Popen(
        serving(path, modules, f"--idle={IDLE}"),
        stdin=lifeline,
        # Not this command's own: who reads from a pipe to its end would wait for the server's.
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=dict(environment),
        start_new_session=True,
    )
    listens = begun(server, path)
    server.returncode = 0  # it goes on without this process, which is not to warn of that
    return listens
