"""Ranks that say who they are, pass a message round, and time messages: `mpirun -np 2 python ranks.py`.

Ranks print, because hosts may share no folder. A line is written in one piece and carries a tag, because lines of
several ranks, and of a login shell, can run into each other.
"""

import json
import os
import random
import re
import socket
import statistics
import sys
import time
from typing import Any

from mpcourse.common.launch import launched_rank

TAG = "mpcourse-rank "
COMMAND = [sys.executable, "-P", __file__]
SMALL, LARGE = 8, 4_000_000  # bytes


def read_facts(output: str) -> list[dict[str, Any]]:
    """Return what ranks have written to `output`, in any order."""
    return [json.loads(text) for text in re.findall(rf"{TAG}(\{{.*?\}})", output)]


def write_facts(**facts: object) -> None:
    """Write a line that `read_facts` finds in the output of all ranks."""
    os.write(sys.stdout.fileno(), f"{TAG}{json.dumps(facts)}\n".encode())


def speed(facts: list[dict[str, Any]]) -> str:
    """Return in words what rank 0 measured."""
    (latency, bandwidth), *_ = ((fact["latency"], fact["bandwidth"]) for fact in facts if "latency" in fact)
    return f"{latency * 1e6:.3g} us each way (8 bytes), {bandwidth / 1e9:.2g} GB/s (4 MB)"


def half_round_trip(comm: Any, size: int, at_most: int, seconds: float) -> float:
    """Measure the median time of a message one way, as half of the time there and back.

    comm: ranks 0 and 1 of it call this.
    size: bytes of a message.
    at_most: number of round trips.
    seconds: about how long to measure; a slow machine makes fewer round trips.
    Returns seconds on rank 0, and 0 on rank 1.
    Source: OSU micro-benchmarks, osu_latency.
    """
    message = bytearray(random.randbytes(size))  # random, so that nothing on the way can compress or share it
    last, peer = False, 1 - comm.rank
    times: list[float] = []
    stop = time.perf_counter() + seconds
    while not last:
        if comm.rank == 0:
            start = time.perf_counter()
            last = len(times) + 1 == at_most or start > stop
            message[0] = last  # so rank 1 knows when to stop
            comm.Send(message, dest=peer)
            comm.Recv(message, source=peer)
            times.append(time.perf_counter() - start)
        else:
            comm.Recv(message, source=peer)
            last = bool(message[0])
            comm.Send(message, dest=peer)
    # The first tenth warms up: connections are made and pages touched.
    return statistics.median(times[len(times) // 10 :]) / 2 if times else 0.0


def main() -> None:
    """Write this rank's number and host, pass a message round all ranks, and time messages between ranks 0 and 1."""
    write_facts(launched=launched_rank(), host=socket.gethostname())  # before MPI starts, which may hang
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    rank, size = comm.rank, comm.size
    write_facts(rank=rank, size=size)
    if size == 1:
        return
    if rank == 0:
        comm.send("round", dest=1)
    comm.recv(source=(rank - 1) % size)
    write_facts(received=rank)
    if rank > 0:
        comm.send("round", dest=(rank + 1) % size)
    if rank < 2:
        small = half_round_trip(comm, SMALL, at_most=2000, seconds=0.3)
        large = half_round_trip(comm, LARGE, at_most=50, seconds=0.5)
        if rank == 0:
            write_facts(latency=small, bandwidth=LARGE / large)


if __name__ == "__main__":
    main()
