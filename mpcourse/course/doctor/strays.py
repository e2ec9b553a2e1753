"""MPI processes that a killed notebook kernel or terminal left behind: they wait for each other at full speed."""

import os
import subprocess
import time

import psutil

from mpcourse.common.launch import SIZE_VARIABLES
from mpcourse.course.doctor.finding import Finding

# Open MPI's mpirun becomes prterun (5) or orterun (4); hydra_pmi_proxy is MPICH's, and the parent of its ranks.
LAUNCHERS = {"mpirun", "mpiexec", "mpiexec.hydra", "hydra_pmi_proxy", "prterun", "orterun", "prted", "orted"}


def strays() -> Finding:
    """Find every process of this user that belongs to an MPI run whose starter is gone."""
    strays = leftover()
    if not strays:
        return Finding("strays", "none")
    pids = " ".join(str(one.pid) for one in strays)
    value = f"{len(strays)} left of a dead run: " + "; ".join(_described(one) for one in strays)
    return Finding("strays", value, "problem", f"`kill {pids}` (unless you left them running on purpose)")


def leftover() -> list[psutil.Process]:
    """Return orphaned launchers and ranks of this user, with all their descendants."""
    adopters = {1, _adopter()}
    own = {os.getpid(), *(one.pid for one in psutil.Process().parents())}
    strays: dict[int, psutil.Process] = {}
    for one in psutil.process_iter():
        try:
            if one.pid not in own and one.ppid() in adopters and _ours(one) and _orphan(one) and _of_mpi(one):
                strays.update({each.pid: each for each in (one, *one.children(recursive=True))})
        except (psutil.Error, OSError):  # it ended meanwhile
            pass
    return [one for pid, one in sorted(strays.items()) if pid not in own]


def _adopter() -> int:
    # Orphans go to process 1, or to a nearer "subreaper" such as `systemd --user`. Nothing tells which: make an orphan.
    made = subprocess.run(["sh", "-c", "sleep 9 >&- 2>&- & echo $!"], capture_output=True, text=True, timeout=5)
    orphan = psutil.Process(int(made.stdout))
    try:
        return orphan.ppid()
    finally:
        orphan.kill()


def _ours(one: psutil.Process) -> bool:
    return one.uids().real == os.getuid() and one.status() != psutil.STATUS_ZOMBIE


def _orphan(one: psutil.Process) -> bool:
    # What process 1 started itself (a container's shell, say) shares its session; an orphan brought its own.
    return os.getsid(one.pid) != os.getsid(one.ppid())


def _of_mpi(one: psutil.Process) -> bool:
    command = one.cmdline()
    if one.name() in LAUNCHERS or (command and os.path.basename(command[0]) in LAUNCHERS):
        return True
    # A rank. One rank alone is no proof: a scheduler's interactive shell says so too, and so does all that it starts.
    environment = one.environ()
    return any(environment.get(name, "1") not in ("", "1") for name in SIZE_VARIABLES)


def _described(one: psutil.Process) -> str:
    try:
        age = max(time.time() - one.create_time(), 0.01)
        spent = sum(one.cpu_times()[:2])
        command = " ".join(one.cmdline()) or one.name()
    except psutil.Error:
        return f"{one.pid} (just ended)"
    command = command if len(command) <= 60 else command[:57] + "..."
    old = f"{age:.0f} s" if age < 120 else f"{age / 60:.0f} min" if age < 7200 else f"{age / 3600:.0f} h"
    return f"{one.pid} ({old} old, {100 * spent / age:.0f}% CPU) {command}"
