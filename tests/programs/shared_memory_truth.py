"""What ranks of one machine do in its memory, under mpirun: a board in many rounds, and sums of rows of many shapes."""

import random
import time

import torch
from mpi4py import MPI

from mpcourse.collectives import shared
from mpcourse.collectives.board import Board

comm = MPI.COMM_WORLD
rank, p = comm.rank, comm.size
LENGTHS = [1, 7, 300, 0, 64, 500]
ROUNDS = 6


def board():
    """Ranks that come late, in turns: nobody's row is overwritten before all have read it."""
    told, draw = Board(comm, 16), random.Random(rank)
    for i in range(1000):
        if draw.random() < 0.02:
            time.sleep(0.001)
        told.write(f"{rank} {i}".ljust(16).encode())
        while not told.full:
            pass
        assert [row.decode().rstrip() for row in told.read()] == [f"{r} {i}" for r in range(p)]


def values_of(of, row, dtype):
    """What rank `of` brings in round `row`: numbers in memory of their own, some of them not side by side."""
    torch.manual_seed(100 * of + row)
    values = [torch.randn(n, dtype=dtype) for n in LENGTHS]
    values[2] = torch.randn(20, 15, dtype=dtype).T
    return values


def flat(values):
    return torch.cat([value.reshape(-1) for value in values])


def sums(dtype):
    row, found = shared.SharedRow(comm, LENGTHS, dtype), []
    for i in range(ROUNDS):
        wanted = sum(flat(values_of(r, i, dtype)) for r in range(p)) / p
        own = values_of(rank, i, dtype)
        away = LENGTHS if (i + rank) % 3 == 0 else LENGTHS[:2] if (i + rank) % 3 == 1 else []
        row.row.copy_(flat(own))  # some, or all, are already in their places
        own[len(away) :] = row.row.split(LENGTHS)[len(away) :]
        row.row[: sum(away)] = 7
        kept = [value.clone() for value in own[: len(away)]]
        row.begin(own, 1 / p)
        if away != LENGTHS[:2]:  # what is in its place is not copied, and so not scaled yet
            assert row._flags[rank][shared.RAW] == (not away)
        row.wait()
        torch.testing.assert_close(row.row, wanted)
        found += row.row.view(torch.uint8).tolist()
        assert row.bad is None
        time.sleep(0.002 * ((i + rank) % p == 0))  # the others may begin the next sum
        assert all(map(torch.equal, own, kept))  # what is not in the row stays as it is
    everybodys = comm.allgather(found)
    assert everybodys == [found] * p


def not_finite():
    row = shared.SharedRow(comm, LENGTHS, torch.float32)
    for who in range(p):
        for place in (0, 7, 400, sum(LENGTHS) - 1):
            own = flat(values_of(rank, 0, torch.float32))
            if rank == who:
                own[place] = float("inf") if place else float("nan")
            if (rank + place) % 2:
                own = row.row.copy_(own)
            row.begin(list(own.split(LENGTHS)), 1 / p)
            row.wait()
            time.sleep(0.002 * (rank == p - 1))  # the others have begun the next sum
            assert row.bad == (who, place), (row.bad, who, place)


shared.BLOCK = 50  # so that blocks hold several values, and values lie in several blocks
torch.set_num_threads(1)
board()
sums(torch.float32)
sums(torch.float64)
not_finite()
print(*comm.gather("equal") or [], end="", flush=True)
