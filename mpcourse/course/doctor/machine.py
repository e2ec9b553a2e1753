"""What the course needs before any MPI: Python, torch, cores, threads, memory."""

import math
import os
import platform
import sys
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import psutil

from mpcourse.common.errors import SETUP, WHEEL
from mpcourse.course.doctor import cgroup
from mpcourse.course.doctor.finding import Finding, fatal, shown
from mpcourse.course.doctor.subprocesses import Unanswered

OLDEST_PYTHON = (3, 11)
RANK_BYTES = 250e6  # resident memory of a rank that has imported torch

TORCH_PROGRAM = """
import json, torch
gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
if torch.backends.mps.is_available():
    gpus.append("mps")
build = "CPU"
if torch.version.cuda:
    build = "CUDA " + torch.version.cuda
if torch.version.hip:
    build = "ROCm " + torch.version.hip
facts = {"version": torch.__version__, "build": build, "gpus": gpus, "threads": torch.get_num_threads()}
print(json.dumps(facts))
"""


def python() -> Finding:
    """Find the interpreter that runs this, and whether it lives in a virtual environment."""
    inside = sys.prefix != sys.base_prefix or Path(sys.prefix, "conda-meta").is_dir()
    value = f"{platform.python_version()}, {shown(sys.executable)}"
    if sys.version_info[:2] < OLDEST_PYTHON:
        return fatal("Python", value, "the course needs 3.11 or newer: `make setup PYTHON=python3.11`")
    if not inside:
        make = "`python3 -m venv .venv`" if WHEEL else SETUP
        advice = f"{make}, then `source .venv/bin/activate`: an environment of its own keeps its versions"
        return Finding("Python", f"{value}, not in a virtual environment", "note", advice)
    return Finding("Python", f"{value}, in a virtual environment")


def torch(answer: "Future[dict[str, Any]]") -> Finding:
    """Find torch's version, what it was built for, and the GPUs it sees (the course needs none)."""
    try:
        facts = answer.result()
    except Unanswered as error:
        return fatal("torch", f"cannot be imported: {error}", SETUP)
    gpus = ", ".join(facts["gpus"]) or "no GPU (none is needed)"
    return Finding("torch", f"{facts['version']}, built for {facts['build']}; {gpus}")


def usable_cores() -> int:
    """Count the cores this process may use: all it is bound to, or fewer where a container's quota allows fewer."""
    bound = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else psutil.cpu_count() or 1
    quota = cgroup.cpu_quota()
    return bound if quota is None else max(1, min(bound, math.floor(quota)))


def cores(answer: "Future[dict[str, Any]]") -> Finding:
    """Find the cores this process may use, of all the machine has, and the threads that torch would use here."""
    usable = usable_cores()
    value = f"{usable} usable of {psutil.cpu_count()}"
    if not answer.exception():
        value += f"; torch threads in this shell: {answer.result()['threads']}"
    if usable == 1:
        advice = "ranks take turns: all exercises run, but no run with more ranks is faster; in a container, `--cpus=2`"
        return Finding("CPU cores", value, "note", advice)
    return Finding("CPU cores", value)


def threads() -> Finding:
    """Compare OMP_NUM_THREADS, the threads that torch uses in each rank, with the cores that two ranks share."""
    usable, asked = usable_cores(), os.environ.get("OMP_NUM_THREADS", "")
    cure = (
        "`export OMP_NUM_THREADS=1`, in a notebook `%env OMP_NUM_THREADS=1`: threads of each rank's torch; "
        "`mpcourse` sets 1 for the ranks that it starts"
    )
    if not asked:
        if usable == 1:
            return Finding("threads", "OMP_NUM_THREADS is not set; one core, so one thread a rank")
        value = f"OMP_NUM_THREADS is not set: ranks that you start use all {usable} cores each"
        return Finding("threads", value, advice=cure)
    first = asked.split(",")[0].strip()  # a list gives the threads at each level of nesting
    if not first.isdigit() or int(first) < 1:
        return Finding("threads", f"OMP_NUM_THREADS={asked} is not a number of threads", "problem", cure)
    value = f"OMP_NUM_THREADS={asked}: 2 ranks use {2 * int(first)} of {usable} cores"
    if int(first) > max(1, usable // 2):
        return Finding("threads", value, "note", cure)
    return Finding("threads", value)


def memory() -> Finding:
    """Find the memory that is still free, and for how many ranks with torch it is enough."""
    left = cgroup.memory_left()
    available = psutil.virtual_memory().available
    available = available if left is None else min(available, left)
    value = f"{available / 1e9:.1f} GB available: {max(0, available) // RANK_BYTES:.0f} ranks with torch"
    if available < 1e9:
        advice = "end other programs (`top` lists them), or start fewer ranks"
        return Finding("memory", value, "problem", advice)
    return Finding("memory", value)
