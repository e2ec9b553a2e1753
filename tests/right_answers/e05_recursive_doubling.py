"""Unusual right answers to e05_recursive_doubling. What a cell holds is told in tests/answers.py."""

# %% any_source_with_tags
# on: real ranks
# thinks: ANY_SOURCE is safe here, as the tag of the round leaves only one sender.
from mpi4py import MPI


def recursive_doubling_allreduce(comm, x):
    rank, p = comm.Get_rank(), comm.Get_size()
    q = 1
    while q * 2 <= p:
        q *= 2
    got = np.empty_like(x)
    if rank >= q:
        comm.Send(x, dest=rank - q)
        comm.Recv(x, source=rank - q)
        return
    if rank + q < p:
        comm.Recv(got, source=rank + q)
        x += got
    distance = 1
    while distance < q:
        comm.Sendrecv(x, dest=rank ^ distance, sendtag=distance, recvbuf=got, source=MPI.ANY_SOURCE, recvtag=distance)
        x += got
        distance *= 2
    if rank + q < p:
        comm.Send(x, dest=rank + q)


# %% contiguous_work_array
# thinks: Works on a contiguous copy, so that x may also be a view with steps such as y[::2].
def recursive_doubling_allreduce(comm, x):
    rank, p = comm.Get_rank(), comm.Get_size()
    work = np.array(x, copy=True, order="C")
    got = np.empty_like(work)
    q = 1
    while q << 1 <= p:
        q <<= 1
    if rank >= q:
        comm.Send(work, dest=rank - q)
        comm.Recv(work, source=rank - q)
    else:
        helps = rank + q < p
        if helps:
            comm.Recv(got, source=rank + q)
            work += got
        for partner in (rank ^ 1 << k for k in range(q.bit_length() - 1)):
            comm.Sendrecv(work, dest=partner, recvbuf=got, source=partner)
            work += got
        if helps:
            comm.Send(work, dest=rank + q)
    np.copyto(x, work)


# %% extras_mirrored
# thinks: The last rank gives to rank 0, the last but one to rank 1, and so on.
def recursive_doubling_allreduce(comm, x):
    rank, p = comm.Get_rank(), comm.Get_size()
    q = 1
    while q * 2 <= p:
        q *= 2
    got = np.empty_like(x)
    mirror = p - 1 - rank
    if rank >= q:
        comm.Send(x, dest=mirror)
        comm.Recv(x, source=mirror)
        return
    if mirror >= q:
        comm.Recv(got, source=mirror)
        x += got
    d = 1
    while d < q:
        comm.Sendrecv(x, dest=rank ^ d, recvbuf=got, source=rank ^ d)
        x += got
        d *= 2
    if mirror >= q:
        comm.Send(x, dest=mirror)


# %% halving_order
# thinks: The farthest partner first; the sum, the messages and their sizes are the same.
def recursive_doubling_allreduce(comm, x):
    rank, p = comm.Get_rank(), comm.Get_size()
    q = 1
    while q * 2 <= p:
        q *= 2
    got = np.empty_like(x)
    if rank >= q:
        comm.Send(x, dest=rank - q)
        comm.Recv(x, source=rank - q)
        return
    if rank + q < p:
        comm.Recv(got, source=rank + q)
        x += got
    distance = q // 2
    while distance >= 1:
        partner = rank ^ distance
        comm.Sendrecv(x, dest=partner, recvbuf=got, source=partner)
        x += got
        distance //= 2
    if rank + q < p:
        comm.Send(x, dest=rank + q)


# %% lower_sends_first
# thinks: Of each pair the lower rank sends first and the higher one receives first, so no Send waits for a Send.
def recursive_doubling_allreduce(comm, x):
    rank, p = comm.Get_rank(), comm.Get_size()
    q = 1
    while q * 2 <= p:
        q *= 2
    got = np.empty_like(x)
    if rank >= q:
        comm.Send(x, dest=rank - q)
        comm.Recv(x, source=rank - q)
        return
    if rank + q < p:
        comm.Recv(got, source=rank + q)
        x += got
    distance = 1
    while distance < q:
        partner = rank ^ distance
        if rank < partner:
            comm.Send(x, dest=partner)
            comm.Recv(got, source=partner)
        else:
            comm.Recv(got, source=partner)
            comm.Send(x, dest=partner)
        x += got
        distance *= 2
    if rank + q < p:
        comm.Send(x, dest=rank + q)


# %% mpich_fold
# on: real ranks
# thinks: MPICH's way: of the first 2r ranks the even ones give to the odd ones, and all who stay are numbered anew.
def recursive_doubling_allreduce(comm, x):
    rank, p = comm.Get_rank(), comm.Get_size()
    q = 1
    while 2 * q <= p:
        q *= 2
    r = p - q
    got = np.empty_like(x)
    if rank < 2 * r:
        if rank % 2 == 0:
            comm.Send(x, dest=rank + 1)
            comm.Recv(x, source=rank + 1)
            return
        comm.Recv(got, source=rank - 1)
        x += got
        new = rank // 2
    else:
        new = rank - r
    mask = 1
    while mask < q:
        other = new ^ mask
        partner = 2 * other + 1 if other < r else other + r
        comm.Sendrecv(x, dest=partner, recvbuf=got, source=partner)
        x += got
        mask *= 2
    if rank < 2 * r:
        comm.Send(x, dest=rank - 1)


# %% partner_mirrored_in_block
# thinks: Rank ^ 1, rank ^ 3, rank ^ 7, ...: each time a rank of the other half of the block.
def recursive_doubling_allreduce(comm, x):
    rank, p = comm.Get_rank(), comm.Get_size()
    q = 1
    while q * 2 <= p:
        q *= 2
    got = np.empty_like(x)
    if rank >= q:
        comm.Send(x, dest=rank - q)
        comm.Recv(x, source=rank - q)
        return
    if rank + q < p:
        comm.Recv(got, source=rank + q)
        x += got
    partner = rank
    distance = 1
    while distance < q:
        partner = partner ^ distance
        comm.Sendrecv(x, dest=partner, recvbuf=got, source=partner)
        x += got
        distance *= 2
    if rank + q < p:
        comm.Send(x, dest=rank + q)


# %% proc_null
# thinks: Every rank calls Send and Recv, and those without an extra rank talk to MPI.PROC_NULL, which sends nothing.
from mpi4py import MPI


def recursive_doubling_allreduce(comm, x):
    rank, p = comm.Get_rank(), comm.Get_size()
    q = 1 << (p.bit_length() - 1)
    if rank >= q:
        comm.Send(x, dest=rank - q)
        comm.Recv(x, source=rank - q)
        return
    extra = rank + q if rank + q < p else MPI.PROC_NULL
    got = np.zeros_like(x)  # stays zero where there is nobody
    comm.Recv(got, source=extra)
    x += got
    d = 1
    while d < q:
        comm.Sendrecv(x, dest=rank ^ d, recvbuf=got, source=rank ^ d)
        x += got
        d *= 2
    comm.Send(x, dest=extra)


# %% raw_bytes
# on: real ranks
# thinks: Bytes are sent, so any dtype goes through, and what comes is read as x's dtype; as many bytes as x has.
def recursive_doubling_allreduce(comm, x):
    rank, p = comm.Get_rank(), comm.Get_size()
    q = 1 << (p.bit_length() - 1)
    got = np.empty_like(x)
    out, into = x.view(np.uint8), got.view(np.uint8)
    if rank >= q:
        comm.Send(out, dest=rank - q)
        comm.Recv(out, source=rank - q)
        return
    if rank + q < p:
        comm.Recv(into, source=rank + q)
        x += got
    distance = 1
    while distance < q:
        comm.Sendrecv(out, dest=rank ^ distance, recvbuf=into, source=rank ^ distance)
        x += got
        distance *= 2
    if rank + q < p:
        comm.Send(out, dest=rank + q)


# %% receives_posted_ahead
# thinks: All receives are posted at the start, each into a buffer of its own and from a rank of its own.
def recursive_doubling_allreduce(comm, x):
    rank, p = comm.Get_rank(), comm.Get_size()
    q = 1
    while q * 2 <= p:
        q *= 2
    got = np.empty_like(x)
    if rank >= q:
        comm.Send(x, dest=rank - q)
        comm.Recv(x, source=rank - q)
        return
    if rank + q < p:
        comm.Recv(got, source=rank + q)
        x += got
    distances = [2**k for k in range(q.bit_length() - 1)]
    buffers = [np.empty_like(x) for _ in distances]
    requests = [comm.Irecv(b, source=rank ^ d) for b, d in zip(buffers, distances)]
    for d, b, request in zip(distances, buffers, requests):
        comm.Send(x, dest=rank ^ d)
        request.Wait()
        x += b
    if rank + q < p:
        comm.Send(x, dest=rank + q)


# %% recursion
# thinks: The rounds as a recursion: first sum within the half, then exchange with the other half.
def add_over(comm, x, got, rank, size):
    """Sum x over the aligned block of size ranks that rank is in."""
    if size == 1:
        return
    half = size // 2
    add_over(comm, x, got, rank, half)
    comm.Sendrecv(x, dest=rank ^ half, recvbuf=got, source=rank ^ half)
    x += got


def recursive_doubling_allreduce(comm, x):
    rank, p = comm.Get_rank(), comm.Get_size()
    q = 1
    while q * 2 <= p:
        q *= 2
    got = np.empty_like(x)
    if rank >= q:
        comm.Send(x, dest=rank - q)
        comm.Recv(x, source=rank - q)
        return
    if rank + q < p:
        comm.Recv(got, source=rank + q)
        x += got
    add_over(comm, x, got, rank, q)
    if rank + q < p:
        comm.Send(x, dest=rank + q)


# %% separate_sum
# thinks: The sum grows in an array of its own and is written to x at the end.
def recursive_doubling_allreduce(comm, x):
    rank, p = comm.Get_rank(), comm.Get_size()
    q = 1 << (p.bit_length() - 1)
    total = x.copy()
    got = np.empty_like(total)
    if rank < q:
        if rank + q < p:
            comm.Recv(got, source=rank + q)
            total = total + got
        distance = 1
        while distance < q:
            comm.Sendrecv(total, dest=rank ^ distance, recvbuf=got, source=rank ^ distance)
            total = total + got
            distance *= 2
        if rank + q < p:
            comm.Send(total, dest=rank + q)
    else:
        comm.Send(total, dest=rank - q)
        comm.Recv(total, source=rank - q)
    x[...] = total


# %% skips_empty
# thinks: An empty x is the same length on all ranks, so all return at once and no empty messages go out.
def recursive_doubling_allreduce(comm, x):
    if x.size == 0 or comm.Get_size() == 1:
        return
    rank, p = comm.Get_rank(), comm.Get_size()
    q = 1
    while q * 2 <= p:
        q *= 2
    got = np.empty_like(x)
    if rank >= q:
        comm.Send(x, dest=rank - q)
        comm.Recv(x, source=rank - q)
        return
    if rank + q < p:
        comm.Recv(got, source=rank + q)
        x += got
    distance = 1
    while distance < q:
        partner = rank ^ distance
        comm.Sendrecv(x, dest=partner, recvbuf=got, source=partner)
        x += got
        distance *= 2
    if rank + q < p:
        comm.Send(x, dest=rank + q)


# %% split_core
# on: real ranks
# thinks: The q ranks get a communicator of their own with Split, and no rank takes part in it that is too many.
def recursive_doubling_allreduce(comm, x):
    rank, p = comm.Get_rank(), comm.Get_size()
    q = 1 << (p.bit_length() - 1)
    core = comm.Split(0 if rank < q else 1, rank)
    if rank >= q:
        comm.Send(x, dest=rank - q)
        comm.Recv(x, source=rank - q)
    else:
        got = np.empty_like(x)
        if rank + q < p:
            comm.Recv(got, source=rank + q)
            x += got
        me, distance = core.Get_rank(), 1
        while distance < q:
            core.Sendrecv(x, dest=me ^ distance, recvbuf=got, source=me ^ distance)
            x += got
            distance *= 2
        if rank + q < p:
            comm.Send(x, dest=rank + q)
    core.Free()


# %% ssend_by_bit
# thinks: Synchronous sends, and the bit of this round says who sends first.
def recursive_doubling_allreduce(comm, x):
    rank, p = comm.Get_rank(), comm.Get_size()
    q = 1
    while q * 2 <= p:
        q *= 2
    got = np.empty_like(x)
    if rank >= q:
        comm.Send(x, dest=rank - q)
        comm.Recv(x, source=rank - q)
        return
    if rank + q < p:
        comm.Recv(got, source=rank + q)
        x += got
    distance = 1
    while distance < q:
        partner = rank ^ distance
        if rank & distance:
            comm.Ssend(x, dest=partner)
            comm.Recv(got, source=partner)
        else:
            comm.Recv(got, source=partner)
            comm.Ssend(x, dest=partner)
        x += got
        distance *= 2
    if rank + q < p:
        comm.Send(x, dest=rank + q)


# %% waitall
# thinks: The same with MPI.Request.Waitall.
from mpi4py import MPI


def recursive_doubling_allreduce(comm, x):
    rank, p = comm.Get_rank(), comm.Get_size()
    q = 1
    while q * 2 <= p:
        q *= 2
    got = np.empty_like(x)
    if rank >= q:
        comm.Send(x, dest=rank - q)
        comm.Recv(x, source=rank - q)
        return
    if rank + q < p:
        comm.Recv(got, source=rank + q)
        x += got
    distance = 1
    while distance < q:
        partner = rank ^ distance
        MPI.Request.Waitall([comm.Isend(x, dest=partner), comm.Irecv(got, source=partner)])
        x += got
        distance *= 2
    if rank + q < p:
        comm.Send(x, dest=rank + q)
