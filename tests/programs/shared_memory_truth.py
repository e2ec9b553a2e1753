"""What ranks of one machine do in its memory, under mpirun: flags in many rounds, all-reduces of many shapes."""

import os
import random
import time

import torch
from mpi4py import MPI

from mpcourse.collectives.fast import shared_buffer
from mpcourse.collectives.fast.shared_flags import SharedFlags

comm = MPI.COMM_WORLD
rank, p = comm.rank, comm.size
LENGTHS = [1, 7, 300, 0, 64, 500]
ROUNDS = 6


def flags():
    """Ranks that come late, in turns: nobody's row is overwritten before all have read it."""
    told, draw = SharedFlags(comm, 16), random.Random(rank)
    for i in range(1000):
        if draw.random() < 0.02:
            time.sleep(0.001)
        told.write(f"{rank} {i}".ljust(16).encode())
        while not told.complete:
            os.sched_yield()  # where ranks are more than cores, it may be the other's turn
        assert [row.decode().rstrip() for row in told.read()] == [f"{r} {i}" for r in range(p)]


def values_of(of, row, dtype):
    """Return what rank `of` brings in round `row`: numbers in their own memory, some of them not side by side."""
    torch.manual_seed(100 * of + row)
    values = [torch.randn(n, dtype=dtype) for n in LENGTHS]
    values[2] = torch.randn(20, 15, dtype=dtype).T
    return values


def flat(values):
    return torch.cat([value.reshape(-1) for value in values])


def sums(dtype):
    row, found = shared_buffer.SharedBuffer(comm, LENGTHS, dtype), []
    for i in range(ROUNDS):
        wanted = sum(flat(values_of(r, i, dtype)) for r in range(p)) / p
        own = values_of(rank, i, dtype)
        away = LENGTHS if (i + rank) % 3 == 0 else LENGTHS[:2] if (i + rank) % 3 == 1 else []
        row.buffer.copy_(flat(own))  # some, or all, are already in their places
        own[len(away) :] = row.buffer.split(LENGTHS)[len(away) :]
        row.buffer[: sum(away)] = 7
        kept = [value.clone() for value in own[: len(away)]]
        row.start(own, 1 / p)
        if away != LENGTHS[:2]:  # what is in its place is not copied, and so not scaled yet
            assert row._flags[rank][shared_buffer.UNSCALED] == (not away)
        row.wait()
        torch.testing.assert_close(row.buffer, wanted)
        found += row.buffer.view(torch.uint8).tolist()
        assert row.bad is None
        time.sleep(0.002 * ((i + rank) % p == 0))  # the others may begin the next sum
        assert all(map(torch.equal, own, kept))  # what is not in the row stays as it is
    everybodys = comm.allgather(found)
    assert everybodys == [found] * p


def not_finite():
    row = shared_buffer.SharedBuffer(comm, LENGTHS, torch.float32)
    for who in range(p):
        for place in (0, 7, 400, sum(LENGTHS) - 1):
            own = flat(values_of(rank, 0, torch.float32))
            if rank == who:
                own[place] = float("inf") if place else float("nan")
            if (rank + place) % 2:
                own = row.buffer.copy_(own)
            row.start(list(own.split(LENGTHS)), 1 / p)
            row.wait()
            time.sleep(0.002 * (rank == p - 1))  # the others have begun the next sum
            assert row.bad == (who, place), (row.bad, who, place)


shared_buffer.BLOCK = 50  # so that blocks hold several values, and values lie in several blocks
torch.set_num_threads(1)
flags()
sums(torch.float32)
sums(torch.float64)
not_finite()
print(*comm.gather("equal") or [], end="", flush=True)
