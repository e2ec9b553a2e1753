"""A pipeline over MPI ranks against torch's own over gloo: the same stages, schedule and micro-batches in one run."""

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import NamedTuple

from mpcourse.bench.record import Record
from mpcourse.errors import UserError
from mpcourse.launch import mpirun_command, rank_environment

MICROBATCHES = 8
ALIKE = 0.03  # how far the stages' busy times may be apart in a step that is held against the formula for equal costs
SECONDS = 900.0


class Case(NamedTuple):
    """schedule, of stages with `layers` layers of width x width each, on batches of `batch`. steps: of each run."""

    schedule: str
    layers: int
    width: int
    batch: int
    runs: int
    steps: int
    measures_bubble: bool = False

    def __str__(self) -> str:
        return f"{self.schedule}, {self.layers} layers of {self.width} a stage, batch {self.batch}"


def pipeline(runs: int = 5, np: int = 2) -> Iterator[Record]:
    """Steps (forward and backward) of an MLP, one stage a rank, one thread a rank, each rank on one core.

    Small layers show what a message costs, large ones that all time goes into computing. In each pair ours and torch's
    take turns step by step, so that a machine whose speed changes favours none.
    """
    if np < 2:
        raise UserError(f"--np {np}: a pipeline to measure needs 2 ranks or more")
    cases = [
        Case(name, layers, width, batch, runs, steps, bubble)
        for layers, width, batch, steps, bubble in (
            (2, 256, 128, 60, False), (4, 512, 128, 15, False), (16, 512, 2048, 8, True),
        )
        for name in ("gpipe", "1f1b")
    ]  # fmt: skip
    for found in _measured(cases, np):
        case = Case(*found["case"])
        yield from _bubbles(case, found, np) if case.measures_bubble else _speeds(case, found)


def _speeds(case: Case, found: dict) -> Iterator[Record]:
    for side, seconds in found["seconds"].items():
        yield Record(f"{case}: {side}", [case.batch / s for s in seconds], "examples/s")
    small = case.width < 512
    yield Record(f"{case}: ours / torch", found["ratios"], "times", 1.2 if small else None, at_least=True)
    yield Record(f"{case}: gradients differ by", [1e6 * found["difference"]], "millionths", 10)


def _bubbles(case: Case, found: dict, np: int) -> Iterator[Record]:
    formula = (np - 1) / (MICROBATCHES + np - 1)
    bubbles = found["bubbles"]
    yield Record(f"{case}: bubble", [100 * b for b, _, _ in bubbles], "%")
    of_costs = [b / planned for b, planned, _ in bubbles]
    yield Record(f"{case}: bubble / replay of measured F and B", of_costs, "times", 1.15)
    alike = [b / formula for b, _, apart in bubbles if apart <= ALIKE]
    share = f"in the {len(alike)} of {len(bubbles)} steps with stages alike within {100 * ALIKE:g} %"
    if alike:
        yield Record(f"{case}: bubble / (p-1)/(m+p-1) {share}", alike, "times", 1.15)


def _measured(cases: list[Case], np: int) -> list[dict]:
    environment = rank_environment() | {"OMP_NUM_THREADS": "1", "MPCOURSE_BENCH_PIPELINE": json.dumps(cases)}
    # glibc gives large freed blocks back to the system, and then some micro-batches pay for page faults and others do
    # not. All memory is kept instead, for ours and for torch's alike.
    environment |= {"MALLOC_MMAP_THRESHOLD_": str(2**31), "MALLOC_TRIM_THRESHOLD_": str(2**35)}
    # Left alone, gloo looks the host's name up, which fails where no server knows it.
    if sys.platform.startswith("linux"):
        environment.setdefault("GLOO_SOCKET_IFNAME", "lo")
    command = mpirun_command(np, [sys.executable, "-m", "mpi4py", "-m", "mpcourse.bench.pipeline_ranks"])
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=SECONDS, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired:
        raise UserError(f"the ranks did not finish in {SECONDS:g} s: is the machine busy?") from None
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if "Error" in line] or done.stderr.splitlines()
        raise UserError(f"the ranks failed: {lines[-1] if lines else f'status {done.returncode}'}")
    return json.loads(done.stdout)
