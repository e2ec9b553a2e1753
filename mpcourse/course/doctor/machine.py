"""What ranks need of a machine: Python and its packages, cores, threads."""

import importlib
import json
import os
import platform
import re
import shutil
import sys
from pathlib import Path

import psutil

from mpcourse import __version__
from mpcourse.common import launch
from mpcourse.common.errors import SETUP, SETUP_MPICH
from mpcourse.course.doctor.finding import Finding
from mpcourse.course.doctor.subprocesses import run

CPU_MAX = Path("/sys/fs/cgroup/cpu.max")  # a container's limit: "150000 100000" is 1.5 cores (Linux, cgroup v2)
FACTS = "from mpcourse.course.doctor.machine import facts; import json; print(json.dumps(facts()))"
FACTS_COMMAND = [sys.executable, "-P", "-c", FACTS]  # -P: a torch.py in the current folder is not torch
FACTS_DEADLINE = 60.0  # seconds: the first import of torch from a shared folder may take half a minute
BROKEN = "cannot be imported: "

# What must be the same on all hosts, and what to do where it cannot be imported: (command, advice).
VERSIONS = {
    "Python": ("", ""),
    "mpcourse": ("", ""),
    "torch": (SETUP.strip("`"), ""),
    "mpi4py": (SETUP.strip("`"), ""),
    "MPI": (
        SETUP_MPICH.strip("`"),
        "or build mpi4py against the MPI whose mpicc is on PATH: "
        "`pip install --no-binary=mpi4py --no-cache-dir --force-reinstall mpi4py`",
    ),
}


def facts() -> dict[str, str]:
    """Return VERSIONS, which `python` the PATH finds, and the network interface by which ssh came, if it did.

    Call this in a process of its own: it loads MPI without starting it, and cannot become a rank any more.
    """
    return {
        "Python": platform.python_version(),
        "mpcourse": __version__,
        "torch": _version("torch"),
        "mpi4py": _version("mpi4py"),
        "MPI": _version("mpi4py.MPI"),
        "python": shutil.which("python") or "not found",
        "interface": _interface(os.environ.get("SSH_CONNECTION", "")),
    }


def _version(name: str) -> str:
    try:
        if name != "mpi4py.MPI":
            return importlib.import_module(name).__version__
        importlib.import_module("mpi4py").rc.initialize = False
        return " ".join(launch.identify(importlib.import_module(name).Get_library_version())).strip()
    except Exception as error:  # a broken package raises anything
        return f"{BROKEN}{type(error).__name__}: {error}"


def _interface(connection: str) -> str:
    """Return the interface with the address that ssh connected to; empty where there is none.

    connection: ssh's "client port server port".
    """
    server = [*connection.split(), "", "", ""][2]
    addresses = psutil.net_if_addrs().items()
    return next((name for name, known in addresses if server in {one.address for one in known}), "")


def facts_here() -> dict[str, str]:
    """Return `facts()` of this machine. VERSIONS are all BROKEN where Python cannot even be asked."""
    done = run(FACTS_COMMAND, FACTS_DEADLINE)
    if done.status != 0:
        return dict.fromkeys(VERSIONS, BROKEN + done.reason)
    return json.loads(done.output.splitlines()[-1])


def packages(found: dict[str, str]) -> list[Finding]:
    """Return a Finding for each of VERSIONS."""
    findings = []
    for name, (command, advice) in VERSIONS.items():
        if found[name].startswith(BROKEN):
            findings.append(Finding(name, found[name], "problem", command, advice))
        else:
            findings.append(Finding(name, found[name]))
    return findings


def release(version: str) -> str:
    """Return a version up to its second number: the rest may differ between ranks."""
    return re.sub(r"(\d+\.\d+).*", r"\1", version)


def usable_cores() -> int:
    """Count the cores that this process may use: those it is bound to, or fewer if its container allows fewer."""
    bound = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else psutil.cpu_count() or 1
    quota, period = CPU_MAX.read_text().split() if CPU_MAX.exists() else ("max", "100000")
    return bound if quota == "max" else max(1, min(bound, int(quota) // int(period)))


def cores() -> Finding:
    """Find the cores that this process may use."""
    usable, total = usable_cores(), psutil.cpu_count()
    value = f"{usable} usable of {total}"
    if usable == 1:
        advice = "ranks take turns, so more ranks are not faster; give a container more: `docker run --cpus=2`"
        return Finding("CPU cores", value, "note", advice=advice)
    return Finding("CPU cores", value)


def threads() -> Finding:
    """Compare OMP_NUM_THREADS, the threads of torch in each rank, with the cores that two ranks share."""
    usable, asked = usable_cores(), os.environ.get("OMP_NUM_THREADS", "")
    command = "export OMP_NUM_THREADS=1"
    advice = "for ranks that you start; in a notebook `%env OMP_NUM_THREADS=1`; `mpcourse` sets it for its own ranks"
    if not asked:
        value = f"OMP_NUM_THREADS is not set: each rank that you start uses all {usable} cores"
        return Finding("threads", value, "ok", command, advice)
    value = f"OMP_NUM_THREADS={asked}"
    if asked.isdigit() and int(asked) > max(1, usable // 2):
        return Finding("threads", f"{value}, but two ranks share {usable} cores", "note", command, advice)
    return Finding("threads", value)
