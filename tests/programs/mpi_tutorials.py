"""Nine programs as tutorials of MPI have them, on virtual ranks and under mpirun: `mpi_programs.py` runs this file."""

import random

import numpy as np
from mpi4py import MPI


def monte_carlo_pi(comm):
    """Each rank throws darts of its own; the hits are counted on rank 0."""
    rng = random.Random(comm.Get_rank())
    hits = sum(rng.random() ** 2 + rng.random() ** 2 <= 1 for _ in range(1000))
    total = comm.reduce(hits, op=MPI.SUM, root=0)
    return 4 * total / (1000 * comm.Get_size()) if comm.Get_rank() == 0 else None


def game_of_life(comm):
    """Exchange edges and corners in two directions, for a torus of cells in blocks on a grid of ranks."""
    size = comm.Get_size()
    down = max(n for n in range(1, size + 1) if size % n == 0 and n * n <= size)
    across = size // down
    i, j = divmod(comm.Get_rank(), across)
    rows, columns = 12 // down, 12 // across
    top, left = i * rows, j * columns
    world = np.random.RandomState(7).randint(0, 2, (12, 12)).astype(np.int8)
    cells = np.zeros((rows + 2, columns + 2), np.int8)
    cells[1:-1, 1:-1] = world[top : top + rows, left : left + columns]
    north, south = ((i - 1) % down * across + j, (i + 1) % down * across + j)
    west, east = (i * across + (j - 1) % across, i * across + (j + 1) % across)
    for _ in range(5):
        comm.Sendrecv(cells[1], north, 0, cells[-1], south, 0)
        comm.Sendrecv(cells[-2], south, 1, cells[0], north, 1)
        column = np.empty(rows + 2, np.int8)
        comm.Sendrecv(cells[:, 1].copy(), west, 2, column, east, 2)
        cells[:, -1] = column
        comm.Sendrecv(np.ascontiguousarray(cells[:, -2]), east, 3, column, west, 3)
        cells[:, 0] = column
        around = sum(np.roll(cells, (i, j), (0, 1)) for i in (-1, 0, 1) for j in (-1, 0, 1) if (i, j) != (0, 0))
        cells[1:-1, 1:-1] = ((around == 3) | ((around == 2) & (cells == 1)))[1:-1, 1:-1]
    blocks = comm.gather(((i, j), cells[1:-1, 1:-1].copy()), root=0)
    return None if blocks is None else [[coords, block.tolist()] for coords, block in blocks]


def matrix_times_vector(comm):
    """By rows, whose results are gathered, and by columns, whose results are summed."""
    rank, size, n = comm.Get_rank(), comm.Get_size(), 10
    share = [n // size + (r < n % size) for r in range(size)]
    begin = sum(share[:rank])
    a, x = np.arange(n * n, dtype="d").reshape(n, n) if rank == 0 else None, np.arange(n, dtype="d")
    rows = np.empty((share[rank], n))
    comm.Scatterv([a, [s * n for s in share], [sum(share[:r]) * n for r in range(size)], MPI.DOUBLE], rows, root=0)
    by_rows = np.empty(n)
    comm.Allgatherv([rows @ x, MPI.DOUBLE], [by_rows, share])
    a = comm.bcast(a, root=0)
    part = a[:, begin : begin + share[rank]] @ x[begin : begin + share[rank]]
    by_columns = np.empty(n)
    comm.Allreduce([part, MPI.DOUBLE], [by_columns, MPI.DOUBLE], op=MPI.SUM)
    pieces = [np.empty(s) for s in share]
    comm.Reduce_scatter([part, MPI.DOUBLE], [pieces[rank], MPI.DOUBLE], recvcounts=share, op=MPI.SUM)
    return by_rows, by_columns, pieces[rank]


def odd_even_sort(comm):
    """Neighbours exchange their parts by turns, and keep the lower and the upper half."""
    rank, size = comm.Get_rank(), comm.Get_size()
    mine = np.sort(np.random.RandomState(rank).randint(0, 100, 8))
    for phase in range(size):
        partner = rank + 1 if (rank + phase) % 2 == 0 else rank - 1
        if not 0 <= partner < size:
            partner = MPI.PROC_NULL
        theirs = np.empty_like(mine)
        comm.Sendrecv(mine, dest=partner, sendtag=phase, recvbuf=theirs, source=partner, recvtag=phase)
        if partner != MPI.PROC_NULL:
            both = np.sort(np.concatenate([mine, theirs]))
            mine = both[:8] if rank < partner else both[8:]
    return comm.gather(mine.tolist(), root=0)


def parallel_prefix(comm):
    """Compute running sums of a vector in parts: by Exscan, and by doubling distances."""
    rank, size = comm.Get_rank(), comm.Get_size()
    mine = np.arange(5) + 5 * rank
    before, total = np.zeros(1, int), np.array([mine.sum()])
    comm.Exscan(total, before, op=MPI.SUM)
    if rank == 0:
        before[0] = 0
    upto, distance = int(total[0]), 1
    while distance < size:
        request = comm.isend(upto, dest=rank + distance, tag=distance) if rank + distance < size else MPI.REQUEST_NULL
        came = comm.recv(source=rank - distance, tag=distance) if rank >= distance else 0
        request.wait()
        upto, distance = upto + came, 2 * distance
    return before + np.cumsum(mine), upto, comm.scan(rank + 1, op=MPI.PROD)


WORK, STOP = 1, 2


def master_and_workers(comm):
    """Whoever is ready gets the next piece of work, until a tag tells it to stop."""
    status = MPI.Status()
    if comm.Get_size() == 1:
        return [[n, n * n] for n in range(20)]
    if comm.Get_rank():
        while True:
            n = comm.recv(source=0, tag=MPI.ANY_TAG, status=status)
            if status.Get_tag() == STOP:
                return None
            comm.send((n, n * n), dest=0, tag=n)
    found, waiting = [], list(range(20))
    working = 0
    for worker in range(1, comm.Get_size()):
        comm.send(waiting.pop(), dest=worker, tag=WORK)
        working += 1
    while working:
        n, square = comm.recv(source=MPI.ANY_SOURCE, tag=MPI.ANY_TAG, status=status)
        assert status.Get_tag() == n
        found.append([n, square])
        if waiting:
            comm.send(waiting.pop(), dest=status.Get_source(), tag=WORK)
        else:
            comm.send(None, dest=status.Get_source(), tag=STOP)
            working -= 1
    return sorted(found)


def transpose(comm):
    """Turn a matrix in rows of blocks into one in columns of blocks."""
    rank, size = comm.Get_rank(), comm.Get_size()
    mine = np.arange(2 * 2 * size, dtype="f").reshape(2, 2 * size) + 100 * rank
    send = np.ascontiguousarray(mine.reshape(2, size, 2).transpose(1, 2, 0))
    received = np.empty_like(send)
    comm.Alltoall([send, MPI.FLOAT], [received, MPI.FLOAT])
    turned = np.ascontiguousarray(received.transpose(1, 0, 2)).reshape(2, 2 * size)
    whole = np.empty((2 * size, 2 * size), "f") if rank == 0 else None
    comm.Gather(turned, whole, root=0)
    return turned, whole


def trapezoids(comm):
    """Rank 0 tells all, in a dictionary, what to integrate; each has a share of the interval."""
    rank, size = comm.Get_rank(), comm.Get_size()
    task = {"a": 0.0, "b": 4.0, "n": 64 * 12} if rank == 0 else None
    task = comm.bcast(task, root=0)
    h, share = (task["b"] - task["a"]) / task["n"], task["n"] // size
    x = task["a"] + rank * share * h + h * np.arange(share + 1)
    mine = np.array(h * ((x[0] ** 2 + x[-1] ** 2) / 2 + (x[1:-1] ** 2).sum()))
    total = np.zeros(1)
    comm.Reduce([mine, MPI.DOUBLE], [total, MPI.DOUBLE], op=MPI.SUM, root=0)
    return round(float(total[0]), 6), comm.gather(round(float(mine), 6), root=0)


def conjugate_gradient(comm):
    """Solve a Poisson equation in rows; scalar products are sums over ranks, the ends of parts go to neighbours."""
    rank, size, n = comm.Get_rank(), comm.Get_size(), 6
    up = rank - 1 if rank else MPI.PROC_NULL
    down = rank + 1 if rank < size - 1 else MPI.PROC_NULL

    def times(p):
        ghosts = np.zeros((2, 1))
        requests = [comm.Irecv(ghosts[0], up, 1), comm.Irecv(ghosts[1], down, 2)]
        requests += [comm.Isend(p[:1].copy(), up, 2), comm.Isend(p[-1:].copy(), down, 1)]
        MPI.Request.Waitall(requests)
        wide = np.concatenate([ghosts[0], p, ghosts[1]])
        return 2 * p - wide[:-2] - wide[2:]

    x, r = np.zeros(n), np.ones(n)
    p, rho = r.copy(), comm.allreduce(r @ r)
    for _ in range(60):
        q = times(p)
        alpha = rho / comm.allreduce(p @ q, op=MPI.SUM)
        x, r = x + alpha * p, r - alpha * q
        rho, old = comm.allreduce(r @ r), rho
        if rho < 1e-18:
            break
        p = r + rho / old * p
    return np.round(x, 9)


PROGRAMS = [monte_carlo_pi, game_of_life, matrix_times_vector, odd_even_sort, parallel_prefix, master_and_workers,
            transpose, trapezoids, conjugate_gradient]  # fmt: skip
