"""What MPI runs that were killed leave behind: processes that wait for each other at full speed, and shared memory."""

import os

import psutil

from mpcourse.common import shared_memory
from mpcourse.common.launch import SIZE_VARIABLES
from mpcourse.course.doctor.finding import Finding

# Open MPI's mpirun becomes prterun (5) or orterun (4); hydra_pmi_proxy is MPICH's, and the parent of its ranks.
LAUNCHERS = {"mpirun", "mpiexec", "mpiexec.hydra", "hydra_pmi_proxy", "prterun", "orterun", "prted", "orted"}
LITTLE = 50e6  # bytes; a container's shared memory is 64 MB by default


def processes() -> Finding:
    """Find launchers and ranks of this user that lost the process that started them."""
    left = orphans()
    if not left:
        return Finding("processes", "none left by killed runs")
    value = f"{len(left)} left by killed runs: " + "; ".join(f"{pid} {command}" for pid, command in left.items())
    return Finding("processes", value, "note", f"kill {' '.join(map(str, left))}", "unless you still want them")


def orphans() -> dict[int, str]:
    """Return process ids and command lines of MPI processes whose parent is the system.

    A launcher that is killed by a plain `kill` ends its ranks, so ranks below it are not in the list.
    """
    found, systems = {}, adopters()
    for one in psutil.process_iter(["ppid", "uids", "status", "name", "cmdline", "environ"]):
        its = one.info  # what this user may not see of a process is None
        mine = its["uids"] and its["uids"].real == os.getuid() and its["status"] != psutil.STATUS_ZOMBIE
        if mine and its["ppid"] in systems and _is_mpi(its["name"], its["cmdline"] or [], its["environ"] or {}):
            found[one.pid] = " ".join(its["cmdline"] or [its["name"]])[:60]
    return found


def adopters() -> set[int]:
    """Return the processes that become the parent of orphans: the first one and, on desktops, `systemd --user`."""
    return {1, *(one.pid for one in psutil.process_iter(["name"]) if one.info["name"] == "systemd")}


def _is_mpi(name: str, command: list[str], environment: dict[str, str]) -> bool:
    if name in LAUNCHERS or (command and os.path.basename(command[0]) in LAUNCHERS):
        return True
    # One rank is no proof: under a scheduler, an interactive shell counts as a run of one rank.
    return any(environment.get(size, "1") not in ("", "1") for size in SIZE_VARIABLES)


def shared_memory_left() -> Finding:
    """Find shared memory of this user's killed runs: it stays taken until it is removed."""
    left = shared_memory.abandoned()
    taken = sum(left.values())
    value = f"{taken / 1e6:.0f} MB left by killed runs"
    if taken < LITTLE:
        return Finding("shared memory", value)
    command = 'python -c "from mpcourse.common.shared_memory import tidy; tidy()"'
    return Finding("shared memory", value, "note", command, "it spares runs that are alive")
