"""What a forked process is to be: a Python with those arguments, environment, folder and open files."""

import atexit
import contextlib
import fcntl
import importlib
import os
import runpy
import signal
import sys
import threading
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mpcourse.course.forkserver.client import take_leave

CALL = "--call"  # with MODULE:FUNCTION, instead of a program: a function of a module that is imported already


@dataclass
class Wanted:
    """A process as a client asks for it.

    asked: "arguments" as Python would take them (FILE, -m MODULE, -c CODE, or --call MODULE:FUNCTION, and what
    follows), "environment", "folder", "files": the numbers which the open files in `files` are to have, and perhaps
    "cores", to which it is bound. Hash values of strings are the server's, and so alike in all that it forks.
    """

    asked: dict[str, Any]
    files: list[int]

    def become(self) -> None:
        """Make this process, just forked, the one that is wanted."""
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        threads = os.environ.get("OMP_NUM_THREADS")
        if cores := self.asked.get("cores"):
            os.sched_setaffinity(0, cores)
        environment = self.asked["environment"]
        for name in set(os.environ) - set(environment):
            del os.environ[name]
        for name, value in environment.items():
            if os.environ.get(name) != value:  # most are the server's: to write all anew takes a millisecond
                os.environ[name] = value
        os.chdir(self.asked["folder"])
        paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        sys.path[:0] = [path for path in paths if path and path not in sys.path]
        take_files(dict(zip(self.asked["files"], self.files, strict=True)))
        buffered = not os.environ.get("PYTHONUNBUFFERED")
        sys.stdout.reconfigure(line_buffering=sys.stdout.isatty(), write_through=not buffered)  # type: ignore[union-attr]
        sys.stderr.reconfigure(line_buffering=True)  # type: ignore[union-attr]
        if "numpy" in sys.modules:  # its numbers come from the system when a process starts; torch's do not
            sys.modules["numpy"].random.seed()
        if "torch" in sys.modules and os.environ.get("OMP_NUM_THREADS") != threads:
            sys.modules["torch"].set_num_threads(int(os.environ.get("OMP_NUM_THREADS") or os.cpu_count() or 1))

    def run(self) -> None:
        """Become the process that is wanted, and run it to its end."""
        self.become()
        ended: BaseException | None = None
        try:
            self._main()()
        except BaseException as error:
            ended = error
        status = status_of(ended) if ended else 0
        threading._shutdown()  # type: ignore[attr-defined]  # as at an interpreter's end: wait for threads
        atexit._run_exitfuncs()
        _leave_mpi(status)
        with contextlib.suppress(ValueError):  # the program has closed it
            sys.stdout.flush()
        if isinstance(ended, KeyboardInterrupt):  # it ends by the signal, as the interpreter does
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)
        # At once: to take apart all that was imported takes a third of a second.
        os._exit(status)

    def _main(self) -> Callable[[], Any]:
        """Return the call that the arguments ask for."""
        arguments = list(self.asked["arguments"])
        safe = arguments[0] == "-P"
        if safe:
            arguments.pop(0)
        kind = arguments[0]
        sys.argv = arguments if kind not in ("-m", "-c", CALL) else arguments[1:]
        if kind == CALL:
            module, _, function = arguments[1].partition(":")
            return getattr(importlib.import_module(module), function)
        if kind == "-c":
            sys.argv[0] = "-c"
            main = sys.modules["__main__"] = types.ModuleType("__main__")
            if not safe:
                sys.path.insert(0, "")
            return lambda: exec(arguments[1], main.__dict__)
        if kind == "-m":
            if not safe:
                sys.path.insert(0, os.getcwd())
            sys.modules.pop(arguments[1], None)  # which the server may have imported; runpy warns of that
            return lambda: runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        if not safe:
            sys.path.insert(0, os.path.dirname(os.path.abspath(kind)))
        return lambda: runpy.run_path(kind, run_name="__main__")


def status_of(error: BaseException) -> int:
    """Return the exit status of a program that ends with this exception, after printing it as Python does."""
    if not isinstance(error, SystemExit):
        return _told(error)
    if error.code is None:
        return 0
    if isinstance(error.code, int):
        return error.code & 0xFF
    print(error.code, file=sys.stderr)
    return 1


def _told(error: BaseException) -> int:
    while error.__traceback__ and error.__traceback__.tb_frame.f_globals.get("__name__") in ("runpy", __name__):
        error.__traceback__ = error.__traceback__.tb_next  # a program that was started from nothing has no caller
    try:
        sys.excepthook(type(error), error, error.__traceback__)
    except SystemExit as asked:
        return status_of(asked)
    except BaseException as another:
        print("Error in sys.excepthook:", file=sys.stderr)
        assert another.__traceback__  # its first frame is this one
        another.__traceback__ = another.__traceback__.tb_next
        sys.__excepthook__(type(another), another, another.__traceback__)
        print("\nOriginal exception was:", file=sys.stderr)
        sys.__excepthook__(type(error), error, error.__traceback__)
    return 1


def _leave_mpi(status: int) -> None:
    """Do in a rank what mpi4py and MPI do at an interpreter's end."""
    MPI = getattr(sys.modules.get("mpi4py"), "MPI", None)
    if MPI is None or not MPI.Is_initialized():
        return
    if not MPI.Is_finalized():
        if status and "mpi4py.run" in sys.modules:  # `python -m mpi4py`, under which a rank that fails ends all
            sys.stdout.flush()
            MPI.COMM_WORLD.Abort(status)
        MPI.Finalize()
    if status:
        take_leave()  # or MPICH's launcher would kill the others, and return 9; of status 0 the client does it


def take_files(files: dict[int, int]) -> None:
    """Give open files their numbers: `files[number]` is the one that becomes `number`. All others are closed."""
    above = max([*files, 2]) + 1
    safe = {number: fcntl.fcntl(file, fcntl.F_DUPFD, above) for number, file in files.items()}
    os.closerange(3, above)
    for number, file in safe.items():
        os.dup2(file, number)
    # Those that came have higher numbers than their copies, where lower ones have become free in the meantime.
    os.closerange(above, max(map(int, os.listdir("/proc/self/fd"))) + 1)
    for number in set(range(3)) - set(files):
        with contextlib.suppress(OSError):
            os.close(number)
