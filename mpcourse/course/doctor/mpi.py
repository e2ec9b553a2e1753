"""The two halves of an MPI installation: the library behind mpi4py, and the launcher `mpirun`."""

import os
import shlex
import shutil
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from mpcourse.common import launch
from mpcourse.common.errors import SETUP, UserError
from mpcourse.course.doctor.finding import Finding, fatal, shown
from mpcourse.course.doctor.subprocesses import Unanswered, run

# The library tells its version before MPI_Init, so nothing is started that could hang. Never in this process: in a
# notebook's kernel, importing MPI would make the kernel a rank.
MPI4PY_PROGRAM = """
import json, mpi4py
mpi4py.rc.initialize = False
from mpi4py import MPI
print(json.dumps({"version": mpi4py.__version__, "library": MPI.Get_library_version()}))
"""

REINSTALL = (
    "on a cluster, with its mpicc on PATH: `pip install --no-binary=mpi4py --no-cache-dir --force-reinstall mpi4py`"
)


def named(implementation: str, version: str) -> str:
    """Return the name for people: "MPICH 5.0.2"."""
    return f"{implementation} {version}".strip()


def library(answer: "Future[dict[str, Any]]") -> tuple[str, str]:
    """Return name and version of the MPI behind mpi4py."""
    return launch.identify(answer.result()["library"])


def mpi4py(answer: "Future[dict[str, Any]]") -> Finding:
    """Find mpi4py's version and the MPI library that it loads."""
    try:
        version, behind = answer.result()["version"], named(*library(answer))
    except Unanswered as error:
        return fatal("mpi4py", f"cannot be imported: {error}", f"{SETUP}; {REINSTALL}")
    advice = "`mpirun -np 2 python -m mpi4py program.py`: so an exception on one rank ends all of them"
    return Finding("mpi4py", f"{version}, using {behind}", advice=advice)


def mpirun(search: "Future[launch.Mpirun]") -> Finding:
    """Find the launcher that the course uses, and whether the shell's `mpirun` is the same one."""
    try:
        launcher = search.result()
    except UserError as error:
        value, _, advice = str(error).rpartition(": ")
        return fatal("mpirun", value, advice)
    value = f"{named(launcher.implementation, launcher.version)}, {shown(launcher.path)}"
    typed = shutil.which("mpirun")
    if typed is None or os.path.realpath(typed) != os.path.realpath(launcher.path):
        other = f"in this shell `mpirun` is {typed or 'not found'}"
        advice = f"for commands that you type: `export PATH={shlex.quote(str(Path(launcher.path).parent))}:$PATH`"
        return Finding("mpirun", f"{value}; {other}", "note", advice)
    return Finding("mpirun", value)


def mpirun_of(implementation: str) -> str | None:
    """Return the path of an mpirun of this MPI, beside this Python or on PATH, or None where there is none."""
    for folder in launch.rank_environment()["PATH"].split(os.pathsep):
        path = shutil.which("mpirun", path=folder)
        if path and launch.identify(run([path, "--version"], seconds=10).output)[0] == implementation:
            return path
    return None


def root(launcher: launch.Mpirun) -> Finding:
    """Whether we are root, whom Open MPI refuses."""
    if os.geteuid() != 0:
        return Finding("root", "an ordinary user")
    names = ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM")
    if launcher.implementation != "Open MPI":
        return Finding("root", f"running as root, which {launcher.implementation} allows")
    if all(os.environ.get(name) == "1" for name in names):
        return Finding("root", "running as root, allowed by OMPI_ALLOW_RUN_AS_ROOT")
    advice = f"`export {names[0]}=1 {names[1]}=1` for the commands that you type; `mpcourse` sets both itself"
    return Finding("root", "running as root, which Open MPI refuses", "note", advice)
