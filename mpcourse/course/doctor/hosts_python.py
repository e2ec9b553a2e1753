"""The next three stages of a host: PATH in a shell without a terminal, versions, and paths, each as they are here."""

import re
import sys
from pathlib import Path

from mpcourse.common import launch
from mpcourse.common.errors import UserError
from mpcourse.course.doctor.finding import Finding, fatal
from mpcourse.course.doctor.hosts_login import DEADLINE, Host
from mpcourse.course.doctor.mpi import named
from mpcourse.course.doctor.subprocesses import Unanswered, ask

Facts = dict[str, str]
VERSIONS = ("Python", "torch", "mpi4py", "MPI", "mpirun")
PATHS = {"environment": "the virtual environment", "course": "the course"}

# MPI's library tells its version before MPI_Init, so nothing is started that could hang.
PROGRAM = """
import importlib.metadata, importlib.util, json, pathlib, platform, subprocess, sys
def version(name):
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "none"
def library():
    try:
        import mpi4py
        mpi4py.rc.initialize = False
        from mpi4py import MPI
        return MPI.Get_library_version()
    except Exception:
        return ""
def mpirun():
    try:
        done = subprocess.run([%r, "--version"], capture_output=True, text=True, timeout=5, stdin=subprocess.DEVNULL)
        return done.stdout + done.stderr
    except Exception:
        return ""
course = importlib.util.find_spec("mpcourse")
print(json.dumps({
    "Python": platform.python_version(), "torch": version("torch"), "mpi4py": version("mpi4py"),
    "MPI": library(), "mpirun": mpirun(), "environment": sys.prefix,
    "course": str(pathlib.Path(course.origin).parents[1]) if course else "none",
}))
"""

LOOK = 'printf "<%s><%s>" "$(command -v python)" "$(command -v mpirun)"; test -x "$0" && test -x "$1" && echo "<here>"'


def facts_here(topic: str) -> tuple[Finding, Facts | None]:
    """Return this machine's facts, with which others are compared; no facts where ranks cannot run on it."""
    try:
        facts = _facts(ask(PROGRAM % launch.mpirun().path, DEADLINE))
    except (UserError, Unanswered) as error:
        return fatal(topic, str(error), "first `mpcourse doctor`, which looks at this machine alone"), None
    value = ", ".join(f"{name} {facts[name]}" for name in VERSIONS)
    if "none" in facts.values():
        return fatal(topic, value, "first `mpcourse doctor`, which looks at this machine alone"), None
    return Finding(topic, value), facts


def path_of_shell(host: Host, here: Facts) -> Finding:
    """Find the `python` and `mpirun` of a command that comes by ssh: its shell reads other files than a terminal's."""
    topic = f"{host.name}: PATH"
    python, mpirun = sys.executable, launch.mpirun().path
    done = host.run(["sh", "-c", LOOK, python, mpirun], DEADLINE)
    seen = re.search(r"<([^<>]*)><([^<>]*)>", done.output)
    if not seen:
        return fatal(topic, f"the shell there does not answer: {done.reason}", f"`ssh {host.name} true` in a terminal")
    if (Path(seen[1]).parent, seen[2]) == (Path(python).parent, mpirun):
        host.python, host.mpirun = python, mpirun
        return Finding(topic, "python and mpirun are those of here")
    by_ssh = f"by ssh, python is {seen[1] or 'not found'}, mpirun {seen[2] or 'not found'}"
    folders = ":".join(dict.fromkeys(str(Path(one).parent) for one in (python, mpirun)))
    cure = (
        f"put `PATH={folders}:$PATH` at the top of ~/.bashrc there, above the line that ends it for shells without a "
        "terminal"
    )
    if "<here>" in done.output:
        host.python, host.mpirun = python, mpirun
        return Finding(topic, f"{by_ssh}; but those of here exist there, too", "note", f"type full paths, or {cure}")
    if seen[1]:
        host.python, host.mpirun = seen[1], seen[2]
        return Finding(topic, f"{by_ssh}; those of here do not exist there", "note", "see `versions` and `path`")
    advice = f"have the course at the same path on all hosts: {_same_path(here)}; then {cure}"
    return fatal(topic, f"{by_ssh}; nor does {python} exist there", advice)


def versions(host: Host, here: Facts) -> Finding:
    """Whether Python, torch, mpi4py and MPI are those of here."""
    topic = f"{host.name}: versions"
    answer = host.way.ask(host.name, host.python, PROGRAM % host.mpirun, DEADLINE)
    host.facts = there = _facts(answer)
    apart = {name: f"{name} {there[name]}, here {here[name]}" for name in VERSIONS if there[name] != here[name]}
    advice = (
        f"`ssh {host.name} 'cd {there['course']} && make setup'` installs the versions of constraints.txt; "
        "with the same MPI=... on all hosts"
    )
    if there["course"] == "none":
        advice = f"that Python has no course: {_same_path(here)}"
    if any(_release(name, there[name]) != _release(name, here[name]) for name in apart):
        return fatal(topic, "; ".join(apart.values()), advice)
    if apart:
        return Finding(topic, "; ".join(apart.values()), "note", f"this may do; else {advice}")
    return Finding(topic, "Python, torch, mpi4py, MPI and mpirun are those of here")


def path(host: Host, here: Facts) -> Finding:
    """Whether the course and its environment lie where they do here: mpirun starts the same path on every host."""
    topic = f"{host.name}: path"
    there = host.facts
    apart = [f"{text} is {there[name]}, here {here[name]}" for name, text in PATHS.items() if there[name] != here[name]]
    if apart:
        return fatal(topic, "; ".join(apart), f"mpirun starts the same path on every host: {_same_path(here)}")
    return Finding(topic, "the course and its environment lie where they do here")


def _same_path(here: Facts) -> str:
    return f"share {here['course']} (NFS), or clone the course to that path there and `make setup`"


def _facts(answer: Facts) -> Facts:
    """Return the answer of PROGRAM, with MPI's names and versions instead of what it prints about itself."""
    versions = {name: named(*launch.identify(answer[name])) if answer[name] else "none" for name in ("MPI", "mpirun")}
    return answer | versions


def _release(name: str, version: str) -> str:
    """Return the part of a version that must not differ: not Python's third number, nor what torch was built for."""
    return {"Python": ".".join(version.split(".")[:2]), "torch": version.split("+")[0]}.get(name, version)
