"""Two ranks that say who they are and then play ping-pong: `mpirun -np 2 python ranks.py FOLDER`.

Every rank writes its rank and size to a file of FOLDER, for ranks' printed lines can run into each other. Rank 0 then
writes the half round trip, and whether MPI is CUDA-aware. Ping-pong as in the OSU micro-benchmarks: half the time there
and back, median of many.
"""

import json
import os
import random
import statistics
import sys
import time
from pathlib import Path
from typing import Any

SMALL, LARGE = 8, 4_000_000  # bytes


def half_round_trip(comm: Any, size: int, at_most: int, seconds: float) -> float:
    """Measure the median seconds for `size` bytes one way, over at most `at_most` round trips and about `seconds`.

    Ranks 0 and 1 call this; rank 0 has the time, rank 1 gets 0. The first byte of a message says whether it is the
    last, so a slow machine stops early.
    """
    message = bytearray(random.randbytes(size))  # random, so that nothing on the way can compress or share it
    last, peer = False, 1 - comm.rank
    times: list[float] = []
    stop = time.perf_counter() + seconds
    while not last:
        if comm.rank == 0:
            start = time.perf_counter()
            last = len(times) + 1 == at_most or start > stop
            message[0] = last
            comm.Send(message, dest=peer)
            comm.Recv(message, source=peer)
            times.append(time.perf_counter() - start)
        else:
            comm.Recv(message, source=peer)
            last = bool(message[0])
            comm.Send(message, dest=peer)
    # The first tenth warms up: connections are made and pages touched.
    return statistics.median(times[len(times) // 10 :]) / 2 if times else 0.0


def main(folder: Path) -> None:
    """Write this rank's number and, with two ranks, what it measures to `folder`."""
    from mpi4py import MPI

    from mpcourse.common.cuda_aware import cuda_aware

    comm = MPI.COMM_WORLD
    # By process id: under the wrong mpirun every rank is rank 0.
    (folder / f"{os.getpid()}.rank").write_text(json.dumps([comm.rank, comm.size]))
    if comm.size != 2:
        return
    small = half_round_trip(comm, SMALL, at_most=2000, seconds=0.3)
    large = half_round_trip(comm, LARGE, at_most=50, seconds=0.3)
    if comm.rank == 0:
        (folder / "round_trip").write_text(json.dumps([small, LARGE / large, cuda_aware()]))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
