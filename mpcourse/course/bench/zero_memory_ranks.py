"""What `mpcourse bench zero` runs on each rank for memory: some steps of one side, in a process that does no more.

Prints, on rank 0, one line of JSON.
"""

import gc
import re
from pathlib import Path

import torch
from mpi4py import MPI

from mpcourse.course.bench.over_ranks import rank_main
from mpcourse.course.bench.zero import ZeroCase
from mpcourse.course.bench.zero_sides import batch_of, comm, made, train

PROCESS = Path("/proc/self")


def _measure(fields: list) -> dict:
    case = ZeroCase(*fields)
    # Libraries that a first step loads and buffers of MPI and gloo are nobody's share: a small model goes first.
    small = [*case.widths[:2], *case.widths[-2:]]
    _train(case, small)
    gc.collect()
    comm.Barrier()
    (PROCESS / "clear_refs").write_text("5")  # from here on the peak counts anew
    before = _memory("VmRSS")
    side, after = _train(case, list(case.widths)), _memory("VmRSS")
    nbytes_of = {"held": after - before, "peak": _memory("VmHWM") - before}
    del side
    return {key: comm.allreduce(nbytes, op=MPI.MAX) for key, nbytes in nbytes_of.items()}


def _train(case: ZeroCase, widths: list[int]) -> object:
    """What there is after some steps."""
    x, y = batch_of(widths, case.batch, torch.float32)
    side = made(case.side, widths, torch.float32)
    train(side, x, y, case.steps)
    return side


def _memory(name: str) -> int:
    """Bytes of this process: VmRSS, what it has, or VmHWM, what it had at most."""
    line = re.search(rf"^{name}:\s+(\d+) kB", (PROCESS / "status").read_text(), re.MULTILINE)
    assert line is not None, name
    return 1024 * int(line[1])


if __name__ == "__main__":
    rank_main(_measure)
