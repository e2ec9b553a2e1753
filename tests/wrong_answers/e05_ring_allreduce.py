"""Wrong answers to e05_ring_allreduce. What a cell holds is told in tests/answers.py."""

# %% adds_in_both
# says: A part that was in the sum came in again:
# thinks: Both phases are the same loop, so I run it twice as long and add each time.
def ring_allreduce(comm, x):
    rank, size = comm.Get_rank(), comm.Get_size()
    chunks = np.array_split(x, size)
    for step in range(2 * (size - 1)):
        mine = chunks[(rank - step - 1) % size]
        buf = np.empty_like(mine)
        comm.Sendrecv(chunks[(rank - step) % size], dest=(rank + 1) % size, recvbuf=buf, source=(rank - 1) % size)
        mine += buf


# %% allgather_second_phase
# says: By hand means all of it:
# thinks: Only the adding must be by hand, the second phase is an Allgather.
def ring_allreduce(comm, x):
    rank, size = comm.Get_rank(), comm.Get_size()
    right, left = (rank + 1) % size, (rank - 1) % size
    chunks = np.array_split(x, size)
    for step in range(size - 1):
        out = chunks[(rank - step) % size]
        mine = chunks[(rank - step - 1) % size]
        buf = np.empty_like(mine)
        comm.Sendrecv(out, dest=right, recvbuf=buf, source=left)
        mine += buf
    parts = comm.allgather(chunks[(rank + 1) % size])
    for r, part in enumerate(parts):
        chunks[(r + 1) % size][:] = part


# %% allreduce
# says: comm.Allreduce and its like do it for you
# thinks: MPI has this built in.
from mpi4py import MPI


def ring_allreduce(comm, x):
    comm.Allreduce(MPI.IN_PLACE, x, op=MPI.SUM)


# %% buffer_sent_size
# says: A receive needs room for all that was sent, which may be longer than what this rank sends
# thinks: What I receive is as long as what I send.
def ring_allreduce(comm, x):
    rank, size = comm.Get_rank(), comm.Get_size()
    right, left = (rank + 1) % size, (rank - 1) % size
    chunks = np.array_split(x, size)
    for step in range(size - 1):
        out = chunks[(rank - step) % size]
        mine = chunks[(rank - step - 1) % size]
        buf = np.empty_like(out)
        comm.Sendrecv(out, dest=right, recvbuf=buf, source=left)
        mine += buf
    for step in range(0, size - 1):
        done = chunks[(rank - step + 1) % size]
        into = chunks[(rank - step) % size]
        comm.Sendrecv(done, dest=right, recvbuf=into, source=left)


# %% ceil_too_few_chunks
# says: IndexError: list index out of range
# thinks: Cutting x in pieces of ceil(n / p) always gives p pieces.
def ring_allreduce(comm, x):
    rank, size = comm.Get_rank(), comm.Get_size()
    right, left = (rank + 1) % size, (rank - 1) % size
    c = max(1, -(-len(x) // size))
    chunks = [x[i : i + c] for i in range(0, len(x), c)]
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


# %% chain_running_sum
# says: They send one after the other:
# thinks: Rank 0 starts, each rank adds itself and passes the running sum on, then the total goes round.
def ring_allreduce(comm, x):
    rank, size = comm.Get_rank(), comm.Get_size()
    if size == 1:
        return
    if rank > 0:
        buf = np.empty_like(x)
        comm.Recv(buf, source=rank - 1)
        x += buf
    comm.Send(x, dest=(rank + 1) % size) if rank < size - 1 else None
    if rank == size - 1:
        comm.Send(x, dest=0)
    else:
        comm.Recv(x, source=(rank - 1) % size)
        if rank + 1 < size - 1:
            comm.Send(x, dest=rank + 1)


# %% chunk_index_no_modulo
# says: IndexError: list index out of range
# thinks: Python wraps an index round at both ends.
def ring_allreduce(comm, x):
    rank, size = comm.Get_rank(), comm.Get_size()
    right, left = (rank + 1) % size, (rank - 1) % size
    chunks = np.array_split(x, size)
    for step in range(size - 1):
        out = chunks[rank - step]
        mine = chunks[rank - step - 1]
        buf = np.empty_like(mine)
        comm.Sendrecv(out, dest=right, recvbuf=buf, source=left)
        mine += buf
    for step in range(0, size - 1):
        done = chunks[rank - step + 1]
        into = chunks[rank - step]
        comm.Sendrecv(done, dest=right, recvbuf=into, source=left)


# %% comm_world
# says: It speaks of MPI.COMM_WORLD:
# on: real ranks
# thinks: There is only one communicator.
from mpi4py import MPI


def ring_allreduce(comm, x):
    comm = MPI.COMM_WORLD
    rank, size = comm.Get_rank(), comm.Get_size()
    right, left = (rank + 1) % size, (rank - 1) % size
    chunks = np.array_split(x, size)
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


# %% different_edges
# says: A receive needs room for all that was sent, which may be longer than what this rank sends
# thinks: It does not matter how I cut for receiving, as long as it is p pieces.
def ring_allreduce(comm, x):
    p, r, n = comm.size, comm.rank, len(x)
    nxt, prv = (r + 1) % p, (r - 1) % p
    edge = [i * n // p for i in range(p + 1)]

    def chunk_in(i):
        return np.array_split(x, p)[i % p]

    def chunk(i):
        i = i % p
        return x[edge[i] : edge[i + 1]]

    for s in range(p - 1):
        mine = chunk_in(r - s - 1)
        tmp = np.zeros(len(mine), dtype=x.dtype)
        req = comm.Isend(chunk(r - s), dest=nxt)
        comm.Recv(tmp, source=prv)
        req.Wait()
        mine += tmp
    for s in range(p - 1):
        req = comm.Isend(chunk(r + 1 - s), dest=nxt)
        comm.Recv(chunk_in(r - s), source=prv)
        req.Wait()


# %% direct_to_owner
# says: In the ring each rank sends to one neighbour, always the same, and receives from the other
# thinks: Each chunk can go straight to the rank that owns it, that is as many messages and bytes.
def ring_allreduce(comm, x):
    rank, size = comm.Get_rank(), comm.Get_size()
    chunks = np.array_split(x, size)
    buf = np.empty_like(chunks[rank])
    total = chunks[rank].copy()
    for d in range(1, size):
        to, frm = (rank + d) % size, (rank - d) % size
        comm.Sendrecv(chunks[to], dest=to, recvbuf=buf, source=frm)
        total += buf
    chunks[rank][:] = total
    for d in range(1, size):
        to, frm = (rank + d) % size, (rank - d) % size
        comm.Sendrecv(chunks[rank], dest=to, recvbuf=chunks[frm], source=frm)


# %% few_steps_phase1
# says: In the end no x holds a sum of two ranks
# thinks: My own chunk is already in, so p - 2 additions are enough.
def ring_allreduce(comm, x):
    p, r, n = comm.size, comm.rank, len(x)
    nxt, prv = (r + 1) % p, (r - 1) % p
    edge = [i * n // p for i in range(p + 1)]

    def chunk(i):
        i = i % p
        return x[edge[i] : edge[i + 1]]

    for s in range(p - 2):
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


# %% few_steps_phase2
# says: Some ranks are missing:
# thinks: range(1, p - 1) runs p - 1 times.
def ring_allreduce(comm, x):
    rank, size = comm.Get_rank(), comm.Get_size()
    right, left = (rank + 1) % size, (rank - 1) % size
    chunks = np.array_split(x, size)
    for step in range(size - 1):
        out = chunks[(rank - step) % size]
        mine = chunks[(rank - step - 1) % size]
        buf = np.empty_like(mine)
        comm.Sendrecv(out, dest=right, recvbuf=buf, source=left)
        mine += buf
    for step in range(1, size - 1):
        done = chunks[(rank - step + 2) % size]
        into = chunks[(rank - step + 1) % size]
        comm.Sendrecv(done, dest=right, recvbuf=into, source=left)


# %% float32_work
# says: Numbers travel in x's own dtype
# thinks: Working in float32 halves the bytes and loses nothing that matters.
def ring_allreduce(comm, x):
    rank, size = comm.Get_rank(), comm.Get_size()
    right, left = (rank + 1) % size, (rank - 1) % size
    chunks = np.array_split(x.astype(np.float32), size)
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
    x[:] = np.concatenate(chunks)


# %% float64_work
# says: Each message is one chunk, of numbers of x's own dtype
# thinks: Float64 holds every number that any dtype can hold.
def ring_allreduce(comm, x):
    rank, size = comm.Get_rank(), comm.Get_size()
    right, left = (rank + 1) % size, (rank - 1) % size
    chunks = np.array_split(x.astype(np.float64), size)
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
    x[:] = np.concatenate(chunks).astype(x.dtype)


# %% float_buffer
# says: Take the buffer of the array's own dtype:
# thinks: np.empty(n) takes the type of what is received.
def ring_allreduce(comm, x):
    rank, size = comm.Get_rank(), comm.Get_size()
    right, left = (rank + 1) % size, (rank - 1) % size
    chunks = np.array_split(x, size)
    for step in range(size - 1):
        out = chunks[(rank - step) % size]
        mine = chunks[(rank - step - 1) % size]
        buf = np.empty(len(mine))
        comm.Sendrecv(out, dest=right, recvbuf=buf, source=left)
        mine += buf
    for step in range(0, size - 1):
        done = chunks[(rank - step + 1) % size]
        into = chunks[(rank - step) % size]
        comm.Sendrecv(done, dest=right, recvbuf=into, source=left)


# %% full_array_round
# says: All of x goes round
# thinks: The whole array goes round the ring and everybody adds what passes by.
def ring_allreduce(comm, x):
    rank, size = comm.Get_rank(), comm.Get_size()
    send = x.copy()
    recv = np.empty_like(x)
    for _ in range(size - 1):
        comm.Sendrecv(send, dest=(rank + 1) % size, recvbuf=recv, source=(rank - 1) % size)
        x += recv
        send, recv = recv, send


# %% gather_and_bcast
# says: In the ring each rank sends to one neighbour, always the same, and receives from the other
# thinks: Rank 0 collects everything, adds and sends it to all.
def ring_allreduce(comm, x):
    rank, size = comm.Get_rank(), comm.Get_size()
    if rank == 0:
        buf = np.empty_like(x)
        for r in range(1, size):
            comm.Recv(buf, source=r)
            x += buf
        for r in range(1, size):
            comm.Send(x, dest=r)
    else:
        comm.Send(x, dest=0)
        comm.Recv(x, source=0)


# %% global_buffer_first_dtype
# says: rank 0 raised numpy._core._exceptions._UFuncOutputCastingErr
# on: real ranks
# thinks: The receive buffer can be made once, at the first call, for all calls.
BUF = None


def ring_allreduce(comm, x):
    global BUF
    if BUF is None:
        BUF = np.empty(len(x), dtype=x.dtype)
    p, r, n = comm.size, comm.rank, len(x)
    nxt, prv = (r + 1) % p, (r - 1) % p
    edge = [i * n // p for i in range(p + 1)]

    def chunk(i):
        i = i % p
        return x[edge[i] : edge[i + 1]]

    for s in range(p - 1):
        mine = chunk(r - s - 1)
        tmp = BUF[: len(mine)]
        req = comm.Isend(chunk(r - s), dest=nxt)
        comm.Recv(tmp, source=prv)
        req.Wait()
        mine += tmp
    for s in range(p - 1):
        req = comm.Isend(chunk(r + 1 - s), dest=nxt)
        comm.Recv(chunk(r - s), source=prv)
        req.Wait()


# %% int_buffer
# says: Take the buffer of the array's own dtype:
# thinks: Zeros like the counts in the examples: int64 for all.
def ring_allreduce(comm, x):
    p, r, n = comm.size, comm.rank, len(x)
    nxt, prv = (r + 1) % p, (r - 1) % p
    edge = [i * n // p for i in range(p + 1)]

    def chunk(i):
        i = i % p
        return x[edge[i] : edge[i + 1]]

    for s in range(p - 1):
        mine = chunk(r - s - 1)
        tmp = np.zeros(len(mine), dtype=int)
        req = comm.Isend(chunk(r - s), dest=nxt)
        comm.Recv(tmp, source=prv)
        req.Wait()
        mine += tmp
    for s in range(p - 1):
        req = comm.Isend(chunk(r + 1 - s), dest=nxt)
        comm.Recv(chunk(r - s), source=prv)
        req.Wait()


# %% irecv_read_early
# says: In the end no x holds a sum of two ranks
# thinks: After Irecv the numbers are there.
def ring_allreduce(comm, x):
    rank, size = comm.Get_rank(), comm.Get_size()
    right, left = (rank + 1) % size, (rank - 1) % size
    chunks = np.array_split(x, size)
    for step in range(size - 1):
        out = chunks[(rank - step) % size]
        mine = chunks[(rank - step - 1) % size]
        buf = np.zeros_like(mine)
        req = comm.Irecv(buf, source=left)
        comm.Send(out, dest=right)
        mine += buf
        req.Wait()
    for step in range(0, size - 1):
        done = chunks[(rank - step + 1) % size]
        into = chunks[(rank - step) % size]
        comm.Sendrecv(done, dest=right, recvbuf=into, source=left)


# %% isend_never_waited
# says: From its beginning to its Wait a request has its buffer for itself
# thinks: If the Recv is through, the Isend is too, so no Wait is needed.
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
        mine += tmp
    for s in range(p - 1):
        req = comm.Isend(chunk(r + 1 - s), dest=nxt)
        comm.Recv(chunk(r - s), source=prv)


# %% isend_then_zeroed
# says: From its beginning to its Wait a request has its buffer for itself
# thinks: Isend has taken the numbers along, so what I sent can be cleared at once.
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
        chunk(r - s)[:] = 0
        comm.Recv(tmp, source=prv)
        req.Wait()
        mine += tmp
    for s in range(p - 1):
        req = comm.Isend(chunk(r + 1 - s), dest=nxt)
        comm.Recv(chunk(r - s), source=prv)
        req.Wait()


# %% line_not_circle
# says: no message came to rank 0
# thinks: The last rank has no right neighbour.
from mpi4py import MPI


def ring_allreduce(comm, x):
    rank, size = comm.Get_rank(), comm.Get_size()
    right = rank + 1 if rank + 1 < size else MPI.PROC_NULL
    left = rank - 1 if rank > 0 else MPI.PROC_NULL
    chunks = np.array_split(x, size)
    for step in range(size - 1):
        out = chunks[(rank - step) % size]
        mine = chunks[(rank - step - 1) % size]
        buf = np.zeros_like(mine)
        comm.Sendrecv(out, dest=right, recvbuf=buf, source=left)
        mine += buf
    for step in range(0, size - 1):
        done = chunks[(rank - step + 1) % size]
        into = chunks[(rank - step) % size]
        comm.Sendrecv(done, dest=right, recvbuf=into, source=left)


# %% linspace_float
# says: Bounds are integers
# thinks: Linspace gives edges that can be used for slicing as they are.
def ring_allreduce(comm, x):
    p, r, n = comm.size, comm.rank, len(x)
    nxt, prv = (r + 1) % p, (r - 1) % p
    edge = np.linspace(0, n, p + 1)

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


# %% lowercase_sendrecv
# says: Lower-case methods pickle:
# thinks: sendrecv and Sendrecv are the same, and the small one needs no buffer.
def ring_allreduce(comm, x):
    rank, size = comm.Get_rank(), comm.Get_size()
    right, left = (rank + 1) % size, (rank - 1) % size
    chunks = np.array_split(x, size)
    for step in range(size - 1):
        out = chunks[(rank - step) % size]
        mine = chunks[(rank - step - 1) % size]
        buf = comm.sendrecv(out, dest=right, source=left)
        mine += buf
    for step in range(0, size - 1):
        done = chunks[(rank - step + 1) % size]
        into = chunks[(rank - step) % size]
        into[:] = comm.sendrecv(done, dest=right, source=left)


# %% many_steps_phase1
# says: One message a step:
# thinks: There are p ranks, so it takes p steps to go round.
def ring_allreduce(comm, x):
    rank, size = comm.Get_rank(), comm.Get_size()
    right, left = (rank + 1) % size, (rank - 1) % size
    chunks = np.array_split(x, size)
    for step in range(size):
        out = chunks[(rank - step) % size]
        mine = chunks[(rank - step - 1) % size]
        buf = np.empty_like(mine)
        comm.Sendrecv(out, dest=right, recvbuf=buf, source=left)
        mine += buf
    for step in range(0, size - 1):
        done = chunks[(rank - step + 1) % size]
        into = chunks[(rank - step) % size]
        comm.Sendrecv(done, dest=right, recvbuf=into, source=left)


# %% many_steps_phase2
# says: One message a step:
# thinks: One more step in the second phase does no harm, it only copies.
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
    for s in range(p):
        req = comm.Isend(chunk(r + 1 - s), dest=nxt)
        comm.Recv(chunk(r - s), source=prv)
        req.Wait()


# %% max_instead_of_sum
# says: What arrived was put in the place of x
# thinks: All-reduce takes the bigger of the two.
def ring_allreduce(comm, x):
    rank, size = comm.Get_rank(), comm.Get_size()
    right, left = (rank + 1) % size, (rank - 1) % size
    chunks = np.array_split(x, size)
    for step in range(size - 1):
        out = chunks[(rank - step) % size]
        mine = chunks[(rank - step - 1) % size]
        buf = np.empty_like(mine)
        comm.Sendrecv(out, dest=right, recvbuf=buf, source=left)
        np.maximum(mine, buf, out=mine)
    for step in range(0, size - 1):
        done = chunks[(rank - step + 1) % size]
        into = chunks[(rank - step) % size]
        comm.Sendrecv(done, dest=right, recvbuf=into, source=left)


# %% mean
# says: That is the mean:
# thinks: An all-reduce of gradients is the mean.
def ring_allreduce(comm, x):
    rank, size = comm.Get_rank(), comm.Get_size()
    right, left = (rank + 1) % size, (rank - 1) % size
    chunks = np.array_split(x, size)
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
    x /= size


# %% mine_equals_mine_plus
# says: In the end no x holds a sum of two ranks
# thinks: Mine is a view, so mine = mine + buf goes into x.
def ring_allreduce(comm, x):
    rank, size = comm.Get_rank(), comm.Get_size()
    right, left = (rank + 1) % size, (rank - 1) % size
    chunks = np.array_split(x, size)
    for step in range(size - 1):
        out = chunks[(rank - step) % size]
        mine = chunks[(rank - step - 1) % size]
        buf = np.empty_like(mine)
        comm.Sendrecv(out, dest=right, recvbuf=buf, source=left)
        mine = mine + buf
    for step in range(0, size - 1):
        done = chunks[(rank - step + 1) % size]
        into = chunks[(rank - step) % size]
        comm.Sendrecv(done, dest=right, recvbuf=into, source=left)


# %% no_all_gather
# says: Some ranks are missing:
# thinks: After p - 1 steps every chunk has been added up, so we are done.
def ring_allreduce(comm, x):
    rank, size = comm.Get_rank(), comm.Get_size()
    right, left = (rank + 1) % size, (rank - 1) % size
    chunks = np.array_split(x, size)
    for step in range(size - 1):
        out = chunks[(rank - step) % size]
        mine = chunks[(rank - step - 1) % size]
        buf = np.empty_like(mine)
        comm.Sendrecv(out, dest=right, recvbuf=buf, source=left)
        mine += buf


# %% no_modulo_neighbour
# says: but there are ranks 0 to 2
# thinks: MPI wraps ranks round by itself.
def ring_allreduce(comm, x):
    rank, size = comm.Get_rank(), comm.Get_size()
    right, left = rank + 1, rank - 1
    chunks = np.array_split(x, size)
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


# %% not_in_place
# says: x = x + y makes a new array
# thinks: x = ... changes the caller's array.
def ring_allreduce(comm, x):
    rank, size = comm.Get_rank(), comm.Get_size()
    right, left = (rank + 1) % size, (rank - 1) % size
    chunks = np.array_split(x.copy(), size)
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
    x = np.concatenate(chunks)


# %% np_split
# says: np.array_split cuts unevenly
# thinks: np.split cuts into p parts whatever the length.
def ring_allreduce(comm, x):
    rank, size = comm.Get_rank(), comm.Get_size()
    right, left = (rank + 1) % size, (rank - 1) % size
    chunks = np.split(x, size)
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


# %% number_by_number
# says: One message a step:
# thinks: Chunks means single numbers: each goes round on its own.
def ring_allreduce(comm, x):
    rank, size = comm.Get_rank(), comm.Get_size()
    right, left = (rank + 1) % size, (rank - 1) % size
    for i in range(len(x)):
        passing = x[i : i + 1].copy()
        for _ in range(size - 1):
            got = np.empty_like(passing)
            comm.Sendrecv(passing, dest=right, recvbuf=got, source=left)
            x[i : i + 1] += got
            passing = got


# %% one_rank_doubles
# says: A part that was in the sum came in again:
# thinks: At least one step is always needed.
def ring_allreduce(comm, x):
    rank, size = comm.Get_rank(), comm.Get_size()
    right, left = (rank + 1) % size, (rank - 1) % size
    chunks = np.array_split(x, size)
    for step in range(max(1, size - 1)):
        out = chunks[(rank - step) % size]
        mine = chunks[(rank - step - 1) % size]
        buf = np.empty_like(mine)
        comm.Sendrecv(out, dest=right, recvbuf=buf, source=left)
        mine += buf
    for step in range(0, size - 1):
        done = chunks[(rank - step + 1) % size]
        into = chunks[(rank - step) % size]
        comm.Sendrecv(done, dest=right, recvbuf=into, source=left)


# %% owner_keeps_wider_sum
# says: rounded as float32 rounds
# thinks: Adding in longdouble and rounding only when I send makes it more exact; the owner rounds last.
def ring_allreduce(comm, x):
    rank, size = comm.Get_rank(), comm.Get_size()
    right, left = (rank + 1) % size, (rank - 1) % size
    chunks = np.array_split(x, size)
    for step in range(size - 1):
        mine = chunks[(rank - step - 1) % size]
        buf = np.empty_like(mine)
        comm.Sendrecv(chunks[(rank - step) % size], dest=right, recvbuf=buf, source=left)
        exact = mine.astype(np.longdouble) + buf
        mine[:] = exact
    for step in range(size - 1):
        done = chunks[(rank - step + 1) % size]
        if step == 0:
            done = exact.astype(np.float32).astype(x.dtype)
        comm.Sendrecv(done, dest=right, recvbuf=chunks[(rank - step) % size], source=left)


# %% phase2_starts_at_own
# says: In the end no x holds a sum of two ranks
# thinks: After the first phase rank r holds chunk r complete, so the second phase starts with chunk r.
def ring_allreduce(comm, x):
    rank, size = comm.Get_rank(), comm.Get_size()
    right, left = (rank + 1) % size, (rank - 1) % size
    chunks = np.array_split(x, size)
    for step in range(size - 1):
        out = chunks[(rank - step) % size]
        mine = chunks[(rank - step - 1) % size]
        buf = np.empty_like(mine)
        comm.Sendrecv(out, dest=right, recvbuf=buf, source=left)
        mine += buf
    for step in range(0, size - 1):
        done = chunks[(rank - step) % size]
        into = chunks[(rank - step - 1) % size]
        comm.Sendrecv(done, dest=right, recvbuf=into, source=left)


# %% placeholder_left
# says: There is code in ring_allreduce, but the raise is still there
# thinks: An unfinished answer can be checked as it is.
def ring_allreduce(comm, x):
    rank, size = comm.Get_rank(), comm.Get_size()
    if size == 1:
        return
    raise NotImplementedError("e05_ring_allreduce: p - 1 steps that add up, p - 1 steps that copy; each passes one chunk to the next rank")


# %% rank0_sends_first
# says: They send one after the other:
# thinks: It is enough that rank 0 sends first and all others receive first.
def ring_allreduce(comm, x):
    rank, size = comm.Get_rank(), comm.Get_size()
    right, left = (rank + 1) % size, (rank - 1) % size
    chunks = np.array_split(x, size)
    for step in range(size - 1):
        out = chunks[(rank - step) % size]
        mine = chunks[(rank - step - 1) % size]
        buf = np.empty_like(mine)
        if rank == 0:
            comm.Send(out, dest=right)
            comm.Recv(buf, source=left)
        else:
            comm.Recv(buf, source=left)
            comm.Send(out, dest=right)
        mine += buf
    for step in range(0, size - 1):
        done = chunks[(rank - step + 1) % size]
        into = chunks[(rank - step) % size]
        if rank == 0:
            comm.Send(done, dest=right)
            comm.Recv(into, source=left)
        else:
            comm.Recv(into, source=left)
            comm.Send(done, dest=right)


# %% rank_zero_only
# says: Rank 0 has the sum;
# thinks: The sum is needed on rank 0, as with reduce.
def ring_allreduce(comm, x):
    rank, size = comm.Get_rank(), comm.Get_size()
    if rank < size - 1:
        buf = np.empty_like(x)
        comm.Recv(buf, source=rank + 1)
        x += buf
    if rank > 0:
        comm.Send(x, dest=rank - 1)


# %% recv_before_send
# says: Each of them receives before it sends
# thinks: Receive first so that the neighbour's Send can go through.
def ring_allreduce(comm, x):
    rank, size = comm.Get_rank(), comm.Get_size()
    right, left = (rank + 1) % size, (rank - 1) % size
    chunks = np.array_split(x, size)
    for step in range(size - 1):
        out = chunks[(rank - step) % size]
        mine = chunks[(rank - step - 1) % size]
        buf = np.empty_like(mine)
        comm.Recv(buf, source=left)
        comm.Send(out, dest=right)
        mine += buf
    for step in range(0, size - 1):
        done = chunks[(rank - step + 1) % size]
        into = chunks[(rank - step) % size]
        comm.Recv(into, source=left)
        comm.Send(done, dest=right)


# %% recv_index_phase1
# says: In the end no x holds a sum of two ranks
# thinks: The chunk that arrives has the number of the one that I just sent.
def ring_allreduce(comm, x):
    rank, size = comm.Get_rank(), comm.Get_size()
    right, left = (rank + 1) % size, (rank - 1) % size
    chunks = np.array_split(x, size)
    for step in range(size - 1):
        out = chunks[(rank - step) % size]
        mine = chunks[(rank - step) % size]
        buf = np.empty_like(mine)
        comm.Sendrecv(out, dest=right, recvbuf=buf, source=left)
        mine += buf
    for step in range(0, size - 1):
        done = chunks[(rank - step + 1) % size]
        into = chunks[(rank - step) % size]
        comm.Sendrecv(done, dest=right, recvbuf=into, source=left)


# %% rest_forgotten
# says: The last numbers are in no chunk:
# thinks: n // p numbers per chunk, p chunks, that is all of x.
def ring_allreduce(comm, x):
    rank, size = comm.Get_rank(), comm.Get_size()
    right, left = (rank + 1) % size, (rank - 1) % size
    c = len(x) // size
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


# %% rest_summed_nowhere
# says: Fewer numbers than ranks:
# thinks: The few numbers that are left over can stay as they are if there are fewer numbers than ranks.
def ring_allreduce(comm, x):
    rank, size = comm.Get_rank(), comm.Get_size()
    right, left = (rank + 1) % size, (rank - 1) % size
    if len(x) < size:
        return
    chunks = np.array_split(x, size)
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


# %% returns_sum
# says: The sum was returned, and x is as it was:
# thinks: A function hands back its result.
def ring_allreduce(comm, x):
    rank, size = comm.Get_rank(), comm.Get_size()
    right, left = (rank + 1) % size, (rank - 1) % size
    chunks = np.array_split(x.copy(), size)
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
    return np.concatenate(chunks)


# %% same_buffer_posted_ahead
# says: From its beginning to its Wait a request has its buffer for itself
# thinks: I can post all receives first, into one buffer.
def ring_allreduce(comm, x):
    p, r = comm.size, comm.rank
    right, left = (r + 1) % p, (r - 1) % p
    chunks = np.array_split(x, p)
    buf = np.empty_like(chunks[0])
    sizes = [len(chunks[(r - s - 1) % p]) for s in range(p - 1)]
    reqs = [comm.Irecv(buf[:k], source=left) for k in sizes]
    for s in range(p - 1):
        send = comm.Isend(chunks[(r - s) % p], dest=right)
        reqs[s].Wait()
        send.Wait()
        chunks[(r - s - 1) % p] += buf[: sizes[s]]
    for s in range(p - 1):
        comm.Sendrecv(chunks[(r + 1 - s) % p], dest=right, recvbuf=chunks[(r - s) % p], source=left)


# %% send_before_recv
# says: Each of them sends first, and no send is sure to end before its receive begins:
# thinks: Send returns at once, MPI keeps the message until it is wanted.
def ring_allreduce(comm, x):
    rank, size = comm.Get_rank(), comm.Get_size()
    right, left = (rank + 1) % size, (rank - 1) % size
    chunks = np.array_split(x, size)
    for step in range(size - 1):
        out = chunks[(rank - step) % size]
        mine = chunks[(rank - step - 1) % size]
        buf = np.empty_like(mine)
        comm.Send(out, dest=right)
        comm.Recv(buf, source=left)
        mine += buf
    for step in range(0, size - 1):
        done = chunks[(rank - step + 1) % size]
        into = chunks[(rank - step) % size]
        comm.Send(done, dest=right)
        comm.Recv(into, source=left)


# %% sends_original_chunks
# says: Some ranks are missing:
# thinks: The values to be sent must be those from the start, else something is counted twice.
def ring_allreduce(comm, x):
    rank, size = comm.Get_rank(), comm.Get_size()
    right, left = (rank + 1) % size, (rank - 1) % size
    chunks = np.array_split(x, size)
    start = [c.copy() for c in chunks]
    for step in range(size - 1):
        out = start[(rank - step) % size]
        mine = chunks[(rank - step - 1) % size]
        buf = np.empty_like(mine)
        comm.Sendrecv(out, dest=right, recvbuf=buf, source=left)
        mine += buf
    for step in range(0, size - 1):
        done = chunks[(rank - step + 1) % size]
        into = chunks[(rank - step) % size]
        comm.Sendrecv(done, dest=right, recvbuf=into, source=left)


# %% split_of_copy
# says: Was the sum written into a copy of x
# thinks: I must not disturb the caller's x while I send it, so I cut a copy.
def ring_allreduce(comm, x):
    rank, size = comm.Get_rank(), comm.Get_size()
    right, left = (rank + 1) % size, (rank - 1) % size
    chunks = np.array_split(np.array(x), size)
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


# %% strided_chunks
# says: this array is not contiguous
# thinks: Chunk i may be x[i::p], MPI sends any numpy view.
def ring_allreduce(comm, x):
    rank, size = comm.Get_rank(), comm.Get_size()
    right, left = (rank + 1) % size, (rank - 1) % size
    chunks = [x[i::size] for i in range(size)]
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


# %% sum_function
# says: That adds up the numbers of x, too
# thinks: The sum over all ranks is one number.
def ring_allreduce(comm, x):
    rank, size = comm.Get_rank(), comm.Get_size()
    total = np.array([x.sum()])
    out = total.copy()
    for _ in range(size - 1):
        comm.Sendrecv_replace(out, dest=(rank + 1) % size, source=(rank - 1) % size)
        total += out
    x[:] = total


# %% swap_with_right
# says: All of them have sent, each to a rank that waits for another one
# thinks: My neighbour is one rank, I send to it and receive from it.
def ring_allreduce(comm, x):
    rank, size = comm.Get_rank(), comm.Get_size()
    right, left = (rank + 1) % size, (rank + 1) % size
    chunks = np.array_split(x, size)
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


# %% tag_is_rank
# says: a receive takes its own tag only
# thinks: The tag names the rank, and both sides use their own.
def ring_allreduce(comm, x):
    rank, size = comm.Get_rank(), comm.Get_size()
    right, left = (rank + 1) % size, (rank - 1) % size
    chunks = np.array_split(x, size)
    for step in range(size - 1):
        out = chunks[(rank - step) % size]
        mine = chunks[(rank - step - 1) % size]
        buf = np.empty_like(mine)
        comm.Sendrecv(out, dest=right, sendtag=rank, recvbuf=buf, source=left, recvtag=rank)
        mine += buf
    for step in range(0, size - 1):
        done = chunks[(rank - step + 1) % size]
        into = chunks[(rank - step) % size]
        comm.Sendrecv(done, dest=right, recvbuf=into, source=left)


# %% tags_step_mismatch
# says: a receive takes its own tag only
# thinks: The message that I receive in step s was sent in step s - 1, so the tags differ by one.
def ring_allreduce(comm, x):
    rank, size = comm.Get_rank(), comm.Get_size()
    right, left = (rank + 1) % size, (rank - 1) % size
    chunks = np.array_split(x, size)
    for step in range(size - 1):
        out = chunks[(rank - step) % size]
        mine = chunks[(rank - step - 1) % size]
        buf = np.empty_like(mine)
        comm.Sendrecv(out, dest=right, sendtag=step, recvbuf=buf, source=left, recvtag=step - 1 if step else 0)
        mine += buf
    for step in range(0, size - 1):
        done = chunks[(rank - step + 1) % size]
        into = chunks[(rank - step) % size]
        comm.Sendrecv(done, dest=right, recvbuf=into, source=left)


# %% taking_turns
# says: They send one after the other:
# thinks: To avoid a deadlock the ranks send one after another within a step.
def ring_allreduce(comm, x):
    rank, size = comm.Get_rank(), comm.Get_size()
    chunks = np.array_split(x, size)

    def one_step(out, into):
        for turn in range(size):
            if rank == turn:
                comm.Send(out, dest=(rank + 1) % size)
            elif rank == (turn + 1) % size:
                comm.Recv(into, source=turn)
            comm.Barrier()

    for step in range(size - 1):
        mine = chunks[(rank - step - 1) % size]
        buf = np.empty_like(mine)
        one_step(chunks[(rank - step) % size], buf)
        mine += buf
    for step in range(size - 1):
        one_step(chunks[(rank - step + 1) % size], chunks[(rank - step) % size])


# %% while_not_counted
# says: An endless loop
# thinks: The loop ends when all chunks are through.
def ring_allreduce(comm, x):
    rank, size = comm.Get_rank(), comm.Get_size()
    right, left = (rank + 1) % size, (rank - 1) % size
    chunks = np.array_split(x, size)
    for step in range(size - 1):
        out = chunks[(rank - step) % size]
        mine = chunks[(rank - step - 1) % size]
        buf = np.empty_like(mine)
        comm.Sendrecv(out, dest=right, recvbuf=buf, source=left)
        mine += buf
    step = 0
    while step < size - 1:
        done = chunks[(rank - step + 1) % size]
        into = chunks[(rank - step) % size]
        comm.Sendrecv(done, dest=right, recvbuf=into, source=left)


# %% whole_buffer_added
# says: ValueError: operands could not be broadcast together with shapes (4,) (5,) (4,)
# thinks: The buffer may be longer than the chunk, numpy adds what fits.
def ring_allreduce(comm, x):
    p, r, n = comm.size, comm.rank, len(x)
    nxt, prv = (r + 1) % p, (r - 1) % p
    edge = [i * n // p for i in range(p + 1)]

    def chunk(i):
        i = i % p
        return x[edge[i] : edge[i + 1]]

    for s in range(p - 1):
        mine = chunk(r - s - 1)
        tmp = np.zeros(n // p + 1, dtype=x.dtype)
        req = comm.Isend(chunk(r - s), dest=nxt)
        comm.Recv(tmp, source=prv)
        req.Wait()
        mine += tmp
    for s in range(p - 1):
        req = comm.Isend(chunk(r + 1 - s), dest=nxt)
        comm.Recv(chunk(r - s), source=prv)
        req.Wait()


# %% whole_message_chunk_used
# says: All of x goes round
# thinks: The message may be the whole x, as long as only the chunk is added.
def ring_allreduce(comm, x):
    rank, size = comm.Get_rank(), comm.Get_size()
    right, left = (rank + 1) % size, (rank - 1) % size
    chunks = np.array_split(x, size)
    for step in range(size - 1):
        c = (rank - step - 1) % size
        buf = np.empty_like(x)
        comm.Sendrecv(x, dest=right, recvbuf=buf, source=left)
        chunks[c] += np.array_split(buf, size)[c]
    for step in range(0, size - 1):
        done = chunks[(rank - step + 1) % size]
        into = chunks[(rank - step) % size]
        comm.Sendrecv(done, dest=right, recvbuf=into, source=left)


# %% world_rank
# says: It speaks of MPI.COMM_WORLD
# on: real ranks
# thinks: The rank is the one in the world, the messages go over comm.
from mpi4py import MPI


def ring_allreduce(comm, x):
    rank, size = MPI.COMM_WORLD.Get_rank(), MPI.COMM_WORLD.Get_size()
    right, left = (rank + 1) % size, (rank - 1) % size
    chunks = np.array_split(x, size)
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


# %% library_ring
# says: mpcourse.collectives
# thinks: The library has what is asked already.
from mpcourse.collectives import ring_allreduce as r
def ring_allreduce(comm, x):
    r(comm, x)


# %% buffers_kept_by_length
# says: Earlier calls have left something
# on: real ranks
# thinks: The chunks of an array of a length are cut once.
import numpy as np
known = {}


def ring_allreduce(comm, x):
    p, rank = comm.size, comm.rank
    key = len(x), x.dtype.str
    chunks = known.setdefault(key, np.array_split(x, p))
    right, left = (rank + 1) % p, (rank - 1) % p
    for s in range(p - 1):
        into = chunks[(rank - s - 1) % p]
        buffer = np.empty_like(into)
        comm.Sendrecv(chunks[(rank - s) % p], right, recvbuf=buffer, source=left)
        into += buffer
    for s in range(p - 1):
        comm.Sendrecv(chunks[(rank + 1 - s) % p], right, recvbuf=chunks[(rank - s) % p], source=left)


# %% mean_step_by_step
# says: was something else than sums added?
# thinks: Gradients are averaged, so each step takes the mean of what it has and what arrives.
def ring_allreduce(comm, x):
    p, rank = comm.size, comm.rank
    chunks = np.array_split(x, p)
    landing = np.empty_like(chunks[0])
    right, left = (rank + 1) % p, (rank - 1) % p
    for step in range(p - 1):
        mine, theirs = chunks[(rank - step) % p], chunks[(rank - step - 1) % p]
        comm.Sendrecv(mine, right, recvbuf=landing[: len(theirs)], source=left)
        theirs[:] = (theirs + landing[: len(theirs)]) / 2
    for step in range(p - 1):
        mine, theirs = chunks[(rank + 1 - step) % p], chunks[(rank - step) % p]
        comm.Sendrecv(mine, right, recvbuf=theirs, source=left)


# %% first_chunk_takes_the_rest
# says: Chunks are about equally long
# thinks: One number is enough for a chunk, and the first one takes all that is left.
def ring_allreduce(comm, x):
    p, rank = comm.size, comm.rank
    first = max(len(x) - (p - 1), 0)
    ends = [min(first + i, len(x)) for i in range(p)]
    chunks = np.split(x, ends[:-1])
    landing = np.empty_like(x)
    right, left = (rank + 1) % p, (rank - 1) % p
    for step in range(p - 1):
        mine, theirs = chunks[(rank - step) % p], chunks[(rank - step - 1) % p]
        comm.Sendrecv(mine, right, recvbuf=landing[: len(theirs)], source=left)
        theirs += landing[: len(theirs)]
    for step in range(p - 1):
        mine, theirs = chunks[(rank + 1 - step) % p], chunks[(rank - step) % p]
        comm.Sendrecv(mine, right, recvbuf=theirs, source=left)
