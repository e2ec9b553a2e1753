"""The decisive test: start two real ranks, ask who they are, and time a message."""

import json
import shlex
import sys
import tempfile
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mpcourse.common import launch
from mpcourse.common.errors import SETUP_MPICH
from mpcourse.course.doctor import mpi
from mpcourse.course.doctor.finding import Finding, fatal
from mpcourse.course.doctor.subprocesses import CompletedCommand, run

DEADLINE = 20.0  # seconds; a healthy start takes 1 to 2
RANKS = Path(__file__).with_name("ranks.py")

STAGES = (
    "1. `mpirun -np 2 hostname`; if it hangs, a firewall is in the way or this machine's name does not resolve: "
    "`echo 127.0.0.1 $(hostname) | sudo tee -a /etc/hosts`. 2. `mpirun -np 2 python -m mpi4py.bench helloworld`; if "
    f"only this hangs, MPI waits for a network: unplug the VPN, then {SETUP_MPICH}"
)


@dataclass(frozen=True)
class Start:
    """What became of `mpirun -np 2`: how it ended, every rank's (rank, size), and rank 0's round trip.

    round_trip: latency in seconds, bandwidth in bytes/s, and whether MPI is CUDA-aware.
    """

    run: CompletedCommand
    ranks: list[tuple[int, int]]
    round_trip: list[float] | None


def start() -> Start:
    """Start two ranks as the course does."""
    with tempfile.TemporaryDirectory() as name:
        command = [sys.executable, "-P", str(RANKS), name]
        done = run(launch.mpirun_command(2, command), DEADLINE, launch.rank_environment())
        folder = Path(name)
        ranks = sorted(tuple(json.loads(one.read_text())) for one in folder.glob("*.rank"))
        measured = folder / "round_trip"
        return Start(done, ranks, json.loads(measured.read_text()) if measured.exists() else None)


def match(started: Start, launcher: launch.Mpirun, answer: "Future[dict[str, Any]]") -> Finding:
    """Find whether mpirun and mpi4py belong to the same MPI: what counts is what the ranks say."""
    library = mpi.library(answer)
    both = f"mpirun is {mpi.named(launcher.implementation, launcher.version)}, mpi4py uses {mpi.named(*library)}"
    if started.ranks == [(0, 2), (1, 2)]:
        return Finding("match", f"{both}: the ranks say 0 of 2 and 1 of 2")
    if started.run.status is None:
        return fatal("match", f"{len(started.ranks)} of 2 ranks answered within {DEADLINE:g} s; {both}", STAGES)
    if started.ranks and all(each == (0, 1) for each in started.ranks):
        return fatal("match", f'every rank says "0 of 1": {both}', _cure(library[0]))
    said = ", ".join(f'"{rank} of {size}"' for rank, size in started.ranks) or "nothing"
    value = f"2 ranks were asked for, they said {said} (exit status {started.run.status}): {started.run.reason}"
    if launcher.implementation != library[0]:
        return fatal("match", f"{both}; {value}", _cure(library[0]))
    return fatal("match", value, STAGES)


def _cure(library: str) -> str:
    other = mpi.mpirun_of(library)
    use = f"`export MPCOURSE_MPIRUN={shlex.quote(other)}`" if other else f"put {library}'s mpirun first on PATH"
    return f"{use}; or install both of one kind: {SETUP_MPICH}; {mpi.REINSTALL}"


def round_trip(started: Start) -> Finding:
    """Report latency and bandwidth between two ranks of this machine."""
    if started.round_trip:
        latency, bandwidth = started.round_trip[0] * 1e6, started.round_trip[1] / 1e9
        value = f"{latency:.{0 if latency >= 10 else 1}f} us each way (8 bytes), {bandwidth:.1f} GB/s (4 MB)"
        if started.round_trip[2]:
            value += "; CUDA-aware: MPI reads GPUs' memory"
        if latency > 100:
            advice = "about 1 us is usual: ranks wait for a core; end strays and busy programs (`top`) and look again"
            return Finding("round trip", value, "note", advice)
        return Finding("round trip", value)
    if started.ranks != [(0, 2), (1, 2)]:
        return Finding("round trip", "not measured: no two ranks were started", "problem", "first mend `match`")
    if started.run.status is None:
        return fatal("round trip", f"two ranks started, but no message came back within {DEADLINE:g} s", STAGES)
    return fatal("round trip", f"failed (exit status {started.run.status}): {started.run.reason}", STAGES)
