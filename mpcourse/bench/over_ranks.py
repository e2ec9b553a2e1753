"""Measuring on MPI ranks: how a benchmark starts them, and what each of them does before it measures."""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from mpcourse.common.comm import Comm
from mpcourse.common.errors import UserError
from mpcourse.common.launch import mpirun_command, rank_environment
from mpcourse.course.forkserver import Plain, Starter, python

CASES = "MPCOURSE_BENCH_CASES"
SECONDS = 900.0
FORKED = "MPCOURSE_BENCH_FORKED"  # set where it is tested that this works, and not how long it takes
AWAKE = 0.05  # seconds
FEW = 3  # steps or sums in a row


def measured(
    module: str,
    cases: Sequence[Any],
    np: int,
    keep_memory: bool = False,
    threads: int = 1,
    before: Sequence[str] = (),
    give_back: bool = False,
) -> list[Any]:
    """Run `module` on np ranks with `threads` threads each; what its `rank_main` measured of each case.

    before: what each rank's command begins with. keep_memory: glibc gives large freed blocks back to the system, so
    that some micro-batches pay for page faults and others do not. With it all memory is kept instead, for ours and for
    our peers alike. give_back: instead, each freed block of 16 KiB or more goes back to the system at once, so that a
    process's memory is what it holds.
    """
    environment = rank_environment() | {"OMP_NUM_THREADS": str(threads), CASES: json.dumps(cases)}
    if keep_memory:
        environment |= {"MALLOC_MMAP_THRESHOLD_": str(2**31), "MALLOC_TRIM_THRESHOLD_": str(2**35)}
    if give_back:
        environment |= {"MALLOC_MMAP_THRESHOLD_": str(2**14), "MALLOC_TRIM_THRESHOLD_": str(2**14)}
    # Left alone, gloo looks the host's name up, which fails where no server knows it.
    if sys.platform.startswith("linux"):
        environment.setdefault("GLOO_SOCKET_IFNAME", "lo")
    command = mpirun_command(np, [*before, *starter().command("-m", "mpi4py", "-m", module)])
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


def tested() -> bool:
    """Whether it is tested that a benchmark works, and not how long it takes: then it may be a small one."""
    return FORKED in os.environ


def starter() -> Starter:
    """Ranks that are measured start from nothing, as a user's do."""
    return python() if tested() else Plain()


def rank_main(measure: Callable[[Any], Any]) -> None:
    """Of the module that `measured` runs: each rank on a core of its own, with gloo set up; rank 0 prints the results.

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

    measurements = [measure(case) for case in json.loads(os.environ[CASES])]
    if MPI.COMM_WORLD.rank == 0:
        print(json.dumps(measurements))


def timed(comm: Comm, side: str, call: Callable[[], object]) -> float:
    """Seconds that `call` takes on this rank, from when all ranks were ready; all ranks call this.

    side: "gloo" is served by threads that sleep. MPI's ranks do not sleep while they wait: on the same cores they would
    keep these threads from running, so among gloo's sums ranks wait for each other by gloo.
    """
    import torch
    import torch.distributed as dist

    def wait() -> None:
        if side == "gloo":
            dist.all_reduce(torch.zeros(1))  # dist.barrier asks for an accelerator, and virtual GPUs look like one
        else:
            comm.Barrier()

    wait()
    begin = time.perf_counter()
    call()
    taken = time.perf_counter() - begin
    wait()
    return taken


def timed_block(
    comm: Comm,
    side: str,
    rounds: int,
    prepare: Callable[[], object],
    call: Callable[[], object],
    check: Callable[[], object],
) -> list[float]:
    """Seconds of each of `rounds` calls, until the last rank has done it.

    prepare and check go before and after each call, and are not timed.
    All rounds of a side in one go, for a rank that waits for MPI disturbs gloo's threads wherever that waiting comes.
    Before gloo's and after them the cores are woken; between two other sides they are awake.
    """
    import numpy as np
    from mpi4py import MPI

    if side == "gloo":
        wake_core()
    taken = np.empty(rounds)
    for i in range(rounds):
        prepare()
        taken[i] = timed(comm, side, call)
        check()
    comm.Allreduce(MPI.IN_PLACE, taken, MPI.MAX)
    if side == "gloo":
        wake_core()
    return taken.tolist()


def in_a_row(count: int) -> int:
    """How many of what is measured come in a row: `count`; where nobody asks how long they take, FEW do."""
    return min(count, FEW) if tested() else count


def wake_core() -> None:
    """Keep this rank's core busy for a moment: where it has slept, as among gloo's sums, it is slow for a while.

    Where nobody asks how long anything takes it may be slow.
    """
    if tested():
        return
    begin = time.perf_counter()
    while time.perf_counter() < begin + AWAKE:
        pass


def pin(rank: int) -> None:
    """Each rank stays on a core of its own, where there are enough: else ranks wait for each other's core."""
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[rank % len(cores)]})
