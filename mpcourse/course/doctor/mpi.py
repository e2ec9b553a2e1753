"""MPI on this machine: the launcher `mpirun`, ranks that it starts, and what Open MPI does not allow by default."""

import os
import shlex
import shutil
from pathlib import Path

from mpcourse.common import launch
from mpcourse.common.errors import SETUP, SETUP_MPICH, UserError
from mpcourse.course.doctor import ranks as program
from mpcourse.course.doctor.finding import Finding
from mpcourse.course.doctor.subprocesses import run

DEADLINE = 20.0  # seconds; a healthy start takes 1 to 2


def mpirun() -> Finding:
    """Find the launcher that the course uses, and whether the shell's `mpirun` is the same one."""
    try:
        launcher = launch.mpirun()
    except UserError as error:
        return Finding("mpirun", str(error), "problem", SETUP.strip("`"))
    value = f"{_name(launcher)}, {launcher.path}"
    typed = shutil.which("mpirun")
    if typed is None or os.path.realpath(typed) != os.path.realpath(launcher.path):
        command = f"export PATH={shlex.quote(str(Path(launcher.path).parent))}:$PATH"
        value = f"{value}; in this shell `mpirun` is {typed or 'not found'}"
        return Finding("mpirun", value, "note", command, "for commands that you type")
    return Finding("mpirun", value)


def ranks(library: str) -> Finding:
    """Start two ranks, which send each other messages.

    library: name and version of the MPI behind mpi4py.
    """
    launcher = launch.mpirun()
    done = run(launch.mpirun_command(2, program.COMMAND), DEADLINE, launch.rank_environment())
    facts = program.read_facts(done.output)
    started = sorted((fact["rank"], fact["size"]) for fact in facts if "rank" in fact)
    if done.status == 0 and started == [(0, 2), (1, 2)]:
        return Finding("ranks", f"0 of 2 and 1 of 2; {program.speed(facts)}")
    said = ", ".join(f"{rank} of {size}" for rank, size in started) or "nothing"
    value = f"mpirun is {_name(launcher)}, mpi4py uses {library}; two ranks said: {said}"
    if not library.startswith(launcher.implementation) or (0, 1) in started:
        advice = "mpirun and mpi4py must be of one MPI; on a cluster, load the module that mpi4py was built with"
        return Finding("ranks", value, "problem", SETUP_MPICH.strip("`"), advice)
    value = f"{value} ({done.reason})"
    if started == [(0, 2), (1, 2)]:
        advice = f"ranks start but no message passes: unplug the VPN, or {SETUP_MPICH}"
        return Finding("ranks", value, "problem", "mpirun -np 2 python -m mpi4py.bench helloworld", advice)
    advice = (
        "if it hangs, a firewall is in the way or this machine's name has no address: "
        "`echo 127.0.0.1 $(hostname) | sudo tee -a /etc/hosts`"
    )
    return Finding("ranks", value, "problem", "mpirun -np 2 hostname", advice)


def restrictions() -> list[Finding]:
    """Say whether mpirun starts more ranks than there are cores, and whether it starts ranks for root."""
    launcher = launch.mpirun()
    old = launcher.version.startswith(("1", "2", "3", "4"))
    slots = "OMPI_MCA_rmaps_base_oversubscribe" if old else "PRTE_MCA_rmaps_default_mapping_policy"
    findings = []
    for topic, what, variables in (
        ("slots", "more ranks than cores", {slots: launch.OVERSUBSCRIBE[slots]}),
        ("root", "ranks of root", launch.ALLOW_ROOT),
    ):
        if topic == "root" and os.geteuid() != 0:
            findings.append(Finding(topic, "you are not root"))
        elif launcher.implementation != "Open MPI" or variables.items() <= os.environ.items():
            findings.append(Finding(topic, f"{launcher.implementation} starts {what}"))
        else:
            command = "export " + " ".join(f"{name}={value}" for name, value in variables.items())
            advice = "for commands that you type; `mpcourse` sets it for its own"
            findings.append(Finding(topic, f"Open MPI refuses {what}", "note", command, advice))
    return findings


def _name(launcher: launch.Mpirun) -> str:
    return f"{launcher.implementation} {launcher.version}".strip()
