"""Stands where a Python process was to be started, and lets a fork server start it.

python -I -S client.py SOCKET ARGUMENTS...

Only modules written in C are imported at once: the names without underscores, and json, import enum and re, which takes
as long as all the rest of this program, a hundredth of a second. The process that is forked gets this one's
environment, working directory and open files under their numbers, so whatever a launcher left here for a rank reaches
it. This process ends as that one does, by status or by signal; if it is ended itself, the other is ended, too.
"""

import _socket
import marshal
import os
import sys

PATIENCE = 1.0  # seconds for the launcher to answer
MAX_FILES = 250  # of one message; the kernel's own limit is 253


def request(connection: _socket.socket, arguments: list[str]) -> None:
    """Send what the process is to be: its arguments, environment, folder and open files."""
    files = sorted(int(name) for name in os.listdir("/proc/self/fd"))
    files = [file for file in files if file != connection.fileno() and _is_open(file)][:MAX_FILES]
    asked = {
        "arguments": arguments,
        "environment": {**os.environ, "MPCOURSE_LAUNCHED": str(os.getpid())},
        "folder": os.getcwd(),
        "files": files,
        "cores": sorted(os.sched_getaffinity(0)),
        "group": os.environ.get("MPCOURSE_CHECK", ""),
    }
    text = marshal.dumps(asked)
    rights = b"".join(file.to_bytes(4, sys.byteorder) for file in files)
    connection.sendmsg([len(text).to_bytes(8, "big")], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, rights)])
    connection.sendall(text)
    for file in files:  # theirs from now on: a pipe that they close is to be closed
        if file > 2 and str(file) != os.environ.get("PMI_FD"):
            os.close(file)


def _is_open(file: int) -> bool:
    try:
        os.fstat(file)
    except OSError:  # the folder's own, which was listed
        return False
    return True


def take_leave() -> None:
    """Tell MPICH's launcher, in the name of the process that has ended, that it is done with MPI.

    MPI says so itself when an interpreter ends as usual, but forked ones end at once, and the launcher would take that
    for a crash. The words are those of PMI's wire protocol, version 1.
    """
    import select

    try:
        launcher = int(os.environ["PMI_FD"])
        os.write(launcher, b"cmd=finalize\n")
        if select.select([launcher], [], [], PATIENCE)[0]:
            os.read(launcher, 4096)
    except (KeyError, ValueError, OSError):
        pass  # another launcher, or MPI has said so


def main() -> None:
    """Have the server run a process, and end with its exit status."""
    connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    answer = b""
    try:
        connection.connect(sys.argv[1])
        request(connection, sys.argv[2:])
        while part := connection.recv(16):
            answer += part
    except OSError as error:
        said = f": {error}"
    else:
        said = ""
    if not answer:  # the server, or what it forked for this process, was killed
        sys.stderr.write(f"mpcourse: the fork server at {sys.argv[1]} is gone{said}\n")
        os._exit(1)
    status = int(answer)
    if os.WIFSIGNALED(status):
        import resource
        import signal

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.signal(os.WTERMSIG(status), signal.SIG_DFL) if os.WTERMSIG(status) not in (9, 19) else None
        os.kill(os.getpid(), os.WTERMSIG(status))
    if not status:
        take_leave()
    os._exit(os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    main()
