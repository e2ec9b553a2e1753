"""Unusual right answers to e05_ring_allreduce. What a cell holds is told in tests/answers.py."""

# %% ceil_chunks
# thinks: Ceil-size chunks, the last ones short or empty (slices past the end are empty).
def ring_allreduce(comm, x):
    rank, size = comm.Get_rank(), comm.Get_size()
    right, left = (rank + 1) % size, (rank - 1) % size
    c = -(-len(x) // size)
    chunks = [x[i * c : (i + 1) * c] for i in range(size)]
    for step in range(size - 1):
        out = chunks[(rank - step) % size]
        mine = chunks[(rank - step - 1) % size]
        buf = np.empty_like(mine)
        comm.Sendrecv(out, dest=right, recvbuf=buf, source=left)
        mine += buf
    for step in range(0, size - 1):
        done = chunks[(rank - step + 1) % size]
        into = chunks[(rank - step) % size]
        comm.Sendrecv(done, dest=right, recvbuf=into, source=left)


# %% divmod_accumulate
# thinks: Edges from divmod and accumulate, long chunks last.
from itertools import accumulate


def ring_allreduce(comm, x):
    p, r, n = comm.size, comm.rank, len(x)
    nxt, prv = (r + 1) % p, (r - 1) % p
    q, rest = divmod(n, p)
    edge = [0, *accumulate(q + (i >= p - rest) for i in range(p))]

    def chunk(i):
        i = i % p
        return x[edge[i] : edge[i + 1]]

    for s in range(p - 1):
        mine = chunk(r - s - 1)
        tmp = np.zeros(len(mine), dtype=x.dtype)
        req = comm.Isend(chunk(r - s), dest=nxt)
        comm.Recv(tmp, source=prv)
        req.Wait()
        mine += tmp
    for s in range(p - 1):
        req = comm.Isend(chunk(r + 1 - s), dest=nxt)
        comm.Recv(chunk(r - s), source=prv)
        req.Wait()


# %% dtype_spec
# on: real ranks
# thinks: Buffer specs with the MPI type that belongs to x.dtype.
from mpi4py import MPI


def ring_allreduce(comm, x):
    rank, size = comm.Get_rank(), comm.Get_size()
    right, left = (rank + 1) % size, (rank - 1) % size
    kind = MPI._typedict[x.dtype.char]
    chunks = np.array_split(x, size)
    for step in range(size - 1):
        out = chunks[(rank - step) % size]
        mine = chunks[(rank - step - 1) % size]
        buf = np.empty_like(mine)
        comm.Sendrecv([out, len(out), kind], dest=right, recvbuf=[buf, len(buf), kind], source=left)
        mine += buf
    for step in range(0, size - 1):
        done = chunks[(rank - step + 1) % size]
        into = chunks[(rank - step) % size]
        comm.Sendrecv([done, len(done), kind], dest=right, recvbuf=[into, len(into), kind], source=left)


# %% even_odd
# thinks: Even ranks send first, odd ranks receive first: no circle of waiting, also for odd p.
def ring_allreduce(comm, x):
    rank, size = comm.Get_rank(), comm.Get_size()
    right, left = (rank + 1) % size, (rank - 1) % size

    def shift(out, into):
        if rank % 2 == 0:
            comm.Send(out, dest=right)
            comm.Recv(into, source=left)
        else:
            comm.Recv(into, source=left)
            comm.Send(out, dest=right)

    chunks = np.array_split(x, size)
    for step in range(size - 1):
        mine = chunks[(rank - step - 1) % size]
        buf = np.empty_like(mine)
        shift(chunks[(rank - step) % size], buf)
        mine += buf
    for step in range(size - 1):
        shift(chunks[(rank - step + 1) % size], chunks[(rank - step) % size])


# %% generator
# thinks: A generator yields what each step sends, receives, and whether it adds.
def plan(p, r):
    for s in range(p - 1):
        yield (r - s) % p, (r - s - 1) % p, True
    for s in range(p - 1):
        yield (r + 1 - s) % p, (r - s) % p, False


def ring_allreduce(comm, x):
    p, r = comm.size, comm.rank
    cuts = [slice(len(x) * i // p, len(x) * (i + 1) // p) for i in range(p)]
    for out, into, add in plan(p, r):
        got = np.empty(cuts[into].stop - cuts[into].start, dtype=x.dtype)
        comm.Sendrecv(x[cuts[out]], dest=(r + 1) % p, recvbuf=got, source=(r - 1) % p)
        x[cuts[into]] = x[cuts[into]] + got if add else got


# %% irecv_first
# thinks: Irecv, then Send, then Wait.
def ring_allreduce(comm, x):
    rank, size = comm.Get_rank(), comm.Get_size()
    right, left = (rank + 1) % size, (rank - 1) % size
    chunks = np.array_split(x, size)
    for step in range(size - 1):
        out = chunks[(rank - step) % size]
        mine = chunks[(rank - step - 1) % size]
        buf = np.empty_like(mine)
        req = comm.Irecv(buf, source=left)
        comm.Send(out, dest=right)
        req.Wait()
        mine += buf
    for step in range(0, size - 1):
        done = chunks[(rank - step + 1) % size]
        into = chunks[(rank - step) % size]
        req = comm.Irecv(into, source=left)
        comm.Send(done, dest=right)
        req.Wait()


# %% isend_recv_wait
# thinks: Isend, Recv, Wait; floor-division edges.
def ring_allreduce(comm, x):
    p, r, n = comm.size, comm.rank, len(x)
    nxt, prv = (r + 1) % p, (r - 1) % p
    edge = [i * n // p for i in range(p + 1)]

    def chunk(i):
        i = i % p
        return x[edge[i] : edge[i + 1]]

    for s in range(p - 1):
        mine = chunk(r - s - 1)
        tmp = np.zeros(len(mine), dtype=x.dtype)
        req = comm.Isend(chunk(r - s), dest=nxt)
        comm.Recv(tmp, source=prv)
        req.Wait()
        mine += tmp
    for s in range(p - 1):
        req = comm.Isend(chunk(r + 1 - s), dest=nxt)
        comm.Recv(chunk(r - s), source=prv)
        req.Wait()


# %% module_cache
# thinks: A module-level cache of buffers by rank, dtype and length (also safe where ranks are threads).
_cache = {}


def _buffer(rank, n, dtype):
    key = (rank, n, np.dtype(dtype))
    if key not in _cache:
        _cache[key] = np.empty(n, dtype=dtype)
    return _cache[key]


def ring_allreduce(comm, x):
    rank, size = comm.Get_rank(), comm.Get_size()
    right, left = (rank + 1) % size, (rank - 1) % size
    chunks = np.array_split(x, size)
    for step in range(size - 1):
        out = chunks[(rank - step) % size]
        mine = chunks[(rank - step - 1) % size]
        buf = _buffer(rank, len(mine), x.dtype)
        comm.Sendrecv(out, dest=right, recvbuf=buf, source=left)
        mine += buf
    for step in range(0, size - 1):
        done = chunks[(rank - step + 1) % size]
        into = chunks[(rank - step) % size]
        comm.Sendrecv(done, dest=right, recvbuf=into, source=left)


# %% negative_index
# thinks: Starts at chunk rank - 1 and lets Python's negative indices do the modulo.
def ring_allreduce(comm, x):
    rank, size = comm.Get_rank(), comm.Get_size()
    right, left = (rank + 1) % size, (rank - 1) % size
    c = np.array_split(x, size)
    for i in range(rank - 1, rank - size, -1):
        buf = np.empty_like(c[i - 1])
        comm.Sendrecv(c[i], right, recvbuf=buf, source=left)
        c[i - 1] += buf
    for i in range(rank, rank - size + 1, -1):
        comm.Sendrecv(c[i], right, recvbuf=c[i - 1], source=left)


# %% padded_copy
# on: real ranks
# thinks: Works on a zero-padded copy with equal rows, and writes it back.
def ring_allreduce(comm, x):
    rank, size = comm.Get_rank(), comm.Get_size()
    n = len(x)
    c = -(-n // size)
    rows = np.zeros((size, c), dtype=x.dtype)
    rows.reshape(-1)[:n] = x
    buf = np.empty(c, dtype=x.dtype)
    for step in range(size - 1):
        comm.Sendrecv(rows[(rank - step) % size], (rank + 1) % size, recvbuf=buf, source=(rank - 1) % size)
        rows[(rank - step - 1) % size] += buf
    for step in range(size - 1):
        comm.Sendrecv(rows[(rank - step + 1) % size], (rank + 1) % size,
                      recvbuf=rows[(rank - step) % size], source=(rank - 1) % size)
    x[:] = rows.reshape(-1)[:n]


# %% polling_test
# on: real ranks
# thinks: Waits with a loop over Test.
def ring_allreduce(comm, x):
    p, r, n = comm.size, comm.rank, len(x)
    nxt, prv = (r + 1) % p, (r - 1) % p
    edge = [i * n // p for i in range(p + 1)]

    def chunk(i):
        i = i % p
        return x[edge[i] : edge[i + 1]]

    for s in range(p - 1):
        mine = chunk(r - s - 1)
        tmp = np.zeros(len(mine), dtype=x.dtype)
        req = comm.Isend(chunk(r - s), dest=nxt)
        rec = comm.Irecv(tmp, source=prv)
        while not rec.Test():
            pass
        while not req.Test():
            pass
        mine += tmp
    for s in range(p - 1):
        req = comm.Isend(chunk(r + 1 - s), dest=nxt)
        comm.Recv(chunk(r - s), source=prv)
        req.Wait()


# %% preposted_recvs
# thinks: Posts all receives of phase one ahead, each with its own buffer and tag.
def ring_allreduce(comm, x):
    p, r = comm.Get_size(), comm.Get_rank()
    right, left = (r + 1) % p, (r - 1) % p
    chunks = np.array_split(x, p)
    boxes = [np.empty_like(chunks[(r - s - 1) % p]) for s in range(p - 1)]
    recvs = [comm.Irecv(b, source=left, tag=s) for s, b in enumerate(boxes)]
    for s in range(p - 1):
        send = comm.Isend(chunks[(r - s) % p], dest=right, tag=s)
        recvs[s].Wait()
        chunks[(r - s - 1) % p][...] += boxes[s]
        send.Wait()
    recvs = [comm.Irecv(chunks[(r - s) % p], source=left, tag=p + s) for s in range(p - 1)]
    for s in range(p - 1):
        send = comm.Isend(chunks[(r - s + 1) % p], dest=right, tag=p + s)
        recvs[s].Wait()
        send.Wait()


# %% recursion
# thinks: Recursion over the steps.
def ring_allreduce(comm, x):
    p, r = comm.Get_size(), comm.Get_rank()
    chunks = np.array_split(x, p)

    def go(left_over, i):
        if left_over == 0:
            return
        into = chunks[(i - 1) % p]
        adding = left_over >= p
        got = np.empty_like(into)
        comm.Sendrecv(chunks[i % p], (r + 1) % p, recvbuf=got, source=(r - 1) % p)
        into[...] = into + got if adding else got
        go(left_over - 1, i - 1)

    go(2 * (p - 1), r)


# %% sendrecv_replace
# thinks: Sendrecv_replace on a padded travelling buffer of n // p + 1 or less numbers.
def ring_allreduce(comm, x):
    rank, size = comm.Get_rank(), comm.Get_size()
    chunks = np.array_split(x, size)
    box = np.zeros(len(chunks[0]), dtype=x.dtype)  # chunk 0 is never shorter than the others
    where = dict(dest=(rank + 1) % size, source=(rank - 1) % size)
    box[: len(chunks[rank])] = chunks[rank]
    for step in range(1, size):
        comm.Sendrecv_replace(box, **where)
        c = chunks[(rank - step) % size]
        box[: len(c)] += c
    own = chunks[(rank + 1) % size]
    own[:] = box[: len(own)]
    for step in range(size - 1):
        comm.Sendrecv_replace(box, **where)
        c = chunks[(rank - step) % size]
        c[:] = box[: len(c)]


# %% skip_empty
# thinks: An empty chunk is neither sent nor received; both sides know from the same edges.
def ring_allreduce(comm, x):
    p, r, n = comm.size, comm.rank, len(x)
    nxt, prv = (r + 1) % p, (r - 1) % p
    edge = [i * n // p for i in range(p + 1)]

    def chunk(i):
        i = i % p
        return x[edge[i] : edge[i + 1]]

    for s in range(p - 1):
        mine = chunk(r - s - 1)
        tmp = np.zeros(len(mine), dtype=x.dtype)
        out = chunk(r - s)
        req = comm.Isend(out, dest=nxt) if len(out) else None
        if len(tmp):
            comm.Recv(tmp, source=prv)
        if req:
            req.Wait()
        mine += tmp
    for s in range(p - 1):
        out, into = chunk(r + 1 - s), chunk(r - s)
        req = comm.Isend(out, dest=nxt) if len(out) else None
        if len(into):
            comm.Recv(into, source=prv)
        if req:
            req.Wait()


# %% strided_chunks_copied
# thinks: Chunk i is x[i::p], copied into contiguous buffers and written back.
def ring_allreduce(comm, x):
    p, r = comm.Get_size(), comm.Get_rank()
    right, left = (r + 1) % p, (r - 1) % p
    for s in range(2 * (p - 1)):
        mine = x[(r - s - 1) % p :: p]
        got = np.empty(mine.shape, dtype=x.dtype)
        comm.Sendrecv(np.ascontiguousarray(x[(r - s) % p :: p]), right, recvbuf=got, source=left)
        if s < p - 1:
            mine += got
        else:
            mine[:] = got


# %% travelling_sum
# thinks: Phase one leaves x alone: a partial sum travels, each rank adds its own chunk to it.
def ring_allreduce(comm, x):
    p, r = comm.Get_size(), comm.Get_rank()
    right, left = (r + 1) % p, (r - 1) % p
    chunks = np.array_split(x, p)
    partial = chunks[r]
    for s in range(1, p):
        own = chunks[(r - s) % p]
        got = np.empty_like(own)
        comm.Sendrecv(partial, right, recvbuf=got, source=left)
        partial = got + own
    chunks[(r + 1) % p][...] = partial
    for s in range(p - 1):
        comm.Sendrecv(chunks[(r + 1 - s) % p], right, recvbuf=chunks[(r - s) % p], source=left)


# %% waitall
# on: real ranks
# thinks: Irecv and Isend with MPI.Request.Waitall.
from mpi4py import MPI


def ring_allreduce(comm, x):
    rank, size = comm.Get_rank(), comm.Get_size()
    right, left = (rank + 1) % size, (rank - 1) % size
    chunks = np.array_split(x, size)
    for step in range(size - 1):
        out = chunks[(rank - step) % size]
        mine = chunks[(rank - step - 1) % size]
        buf = np.empty_like(mine)
        MPI.Request.Waitall([comm.Irecv(buf, source=left), comm.Isend(out, dest=right)])
        mine += buf
    for step in range(0, size - 1):
        done = chunks[(rank - step + 1) % size]
        into = chunks[(rank - step) % size]
        MPI.Request.Waitall([comm.Irecv(into, source=left), comm.Isend(done, dest=right)])
