"""Measuring on MPI ranks: how a benchmark starts them, and what each of them does before it measures."""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from mpcourse.common.comm import Comm
from mpcourse.common.errors import UserError
from mpcourse.common.launch import mpirun_command, rank_environment
from mpcourse.course.forkserver import Plain, Starter

SECONDS = 900.0
AWAKE = 0.05  # seconds


def measured(
    module: str,
    cases: Sequence[Any],
    np: int,
    keep_memory: bool = False,
    threads: int = 1,
    before: Sequence[str] = (),
    give_back: bool = False,
    starter: Starter | None = None,
) -> list[Any]:
    """Run `module` on np ranks with `threads` threads each; return what its `rank_main` measured of each case.

    before: what each rank's command begins with. keep_memory: glibc gives large freed blocks back to the system, so
    that some micro-batches pay for page faults and others do not. With it all memory is kept instead, for ours and for
    our peers alike. give_back: instead, each freed block of 16 KiB or more goes back to the system at once, so that a
    process's memory is what it holds. starter: what starts the ranks; None: each starts from nothing, so that neither
    memory nor threads are those of another process.
    """
    environment = rank_environment() | {"OMP_NUM_THREADS": str(threads)}
    if keep_memory:
        environment |= {"MALLOC_MMAP_THRESHOLD_": str(2**31), "MALLOC_TRIM_THRESHOLD_": str(2**35)}
    if give_back:
        environment |= {"MALLOC_MMAP_THRESHOLD_": str(2**14), "MALLOC_TRIM_THRESHOLD_": str(2**14)}
    # Left alone, gloo looks the host's name up, which fails where no server knows it.
    if sys.platform.startswith("linux"):
        environment.setdefault("GLOO_SOCKET_IFNAME", "lo")
    python = (starter or Plain()).command("-m", "mpi4py", "-m", module, json.dumps(cases))
    try:
        done = subprocess.run(
            mpirun_command(np, [*before, *python]),
            env=environment,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        raise UserError(f"the ranks did not finish in {SECONDS:g} s: is the machine busy?") from None
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if "Error" in line] or done.stderr.splitlines()
        raise UserError(f"the ranks failed: {lines[-1] if lines else f'status {done.returncode}'}")
    return json.loads(done.stdout)


def rank_main(measure: Callable[[Any], Any]) -> None:
    """Measure in the module that `measured` runs: one core a rank, with gloo set up; rank 0 prints the results.

    measure: called on all ranks with each case, as JSON has it.
    """
    import torch
    import torch.distributed as dist
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", module="torch.distributed")
    # Where gloo's ranks find each other: no port that another program may have.
    folder = tempfile.TemporaryDirectory(prefix="mpcourse-bench-") if comm.rank == 0 else contextlib.nullcontext("")
    with folder as name:
        meeting = Path(comm.bcast(name)) / "gloo"
        dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=comm.rank, world_size=comm.size)
        pin(comm.rank)  # not before: gloo's threads, which are there by now, lose milliseconds where they are pinned
        try:
            answer(measure)
        finally:
            dist.destroy_process_group()
            comm.Barrier()


def answer(measure: Callable[[Any], Any]) -> None:
    """Measure all cases on this rank, without gloo; rank 0 prints the answers as JSON. All ranks call it.

    The rank stays where it was started, with as many threads as `measured` was asked for.
    """
    from mpi4py import MPI

    measurements = [measure(case) for case in json.loads(sys.argv[1])]
    if MPI.COMM_WORLD.rank == 0:
        print(json.dumps(measurements))


def timed(comm: Comm, call: Callable[[], object], over_gloo: bool = False) -> float:
    """Return the seconds that `call` takes on this rank, from when all ranks were ready; all ranks call this.

    over_gloo: gloo's threads sleep while they wait. MPI's ranks do not: on the same cores they would keep these threads
    from running, so before and after gloo's sums ranks wait for each other by gloo.
    """
    import torch
    import torch.distributed as dist

    def wait() -> None:
        if over_gloo:
            dist.all_reduce(torch.zeros(1))  # dist.barrier asks for an accelerator, and virtual GPUs look like one
        else:
            comm.Barrier()

    wait()
    begin = time.perf_counter()
    call()
    taken = time.perf_counter() - begin
    wait()
    return taken


def take_turns(
    comm: Comm,
    calls: Mapping[str, Callable[[], object]],
    runs: int,
    over_gloo: Collection[str] = (),
    steps: int = 1,
    prepare: Callable[[str], object] = lambda side: None,
) -> dict[str, list[list[float]]]:
    """Time the sides' calls in turns, `steps` of each in a run; the first run is not counted. All ranks call this.

    Returns, by side and run, the seconds of each call on the rank that took longest. over_gloo: the sides that send by
    gloo. prepare: called before each call, and not timed.
    """
    import numpy as np
    from mpi4py import MPI

    seconds: dict[str, list[list[float]]] = {side: [] for side in calls}
    for run in range(runs + 1):
        of_run: dict[str, list[float]] = {side: [] for side in calls}
        for _ in range(steps):
            for side, call in calls.items():
                prepare(side)
                taken = np.array(timed(comm, call, side in over_gloo))
                comm.Allreduce(MPI.IN_PLACE, taken, MPI.MAX)
                of_run[side].append(taken.item())
        if run:
            for side, values in of_run.items():
                seconds[side].append(values)
    return seconds


def timed_block(
    comm: Comm,
    rounds: int,
    prepare: Callable[[], object],
    call: Callable[[], object],
    check: Callable[[], object],
    over_gloo: bool = False,
) -> list[float]:
    """Return the seconds of each of `rounds` calls, until the last rank has done it.

    prepare and check go before and after each call, and are not timed.
    All rounds of a side go in a row, for a rank that waits for MPI disturbs gloo's threads wherever that waiting comes.
    """
    import numpy as np
    from mpi4py import MPI

    taken = np.empty(rounds)
    for i in range(rounds):
        prepare()
        taken[i] = timed(comm, call, over_gloo)
        check()
    comm.Allreduce(MPI.IN_PLACE, taken, MPI.MAX)
    return taken.tolist()


def wake_core() -> None:
    """Keep this rank's core busy for a moment: where it has slept, as among gloo's sums, it is slow for a while."""
    begin = time.perf_counter()
    while time.perf_counter() < begin + AWAKE:
        pass


def pin(rank: int) -> None:
    """Keep this rank on a core of its own, where there are enough: else ranks wait for each other's core."""
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[rank % len(cores)]})
