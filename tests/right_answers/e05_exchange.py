"""Unusual right answers to e05_exchange. What a cell holds is told in tests/answers.py."""

# %% any_source
# thinks: Irecv takes a message from any source with any tag, which is safe because only the rank before ever sends to
#   this one.
def exchange(comm, send, recv):
    rank = comm.Get_rank()
    size = comm.Get_size()
    right = (rank + 1) % size
    left = (rank - 1) % size

    # only the rank before me ever sends to me
    req = comm.Irecv(recv)
    comm.Send(send, dest=right, tag=rank)
    req.Wait()


# %% as_bytes
# thinks: Both arrays go as views of bytes, which share the arrays' memory and fit any dtype.
import numpy as np


def exchange(comm, send, recv):
    rank = comm.Get_rank()
    size = comm.Get_size()
    right = (rank + 1) % size
    left = (rank - 1) % size

    out, incoming = send.view(np.uint8), recv.view(np.uint8)
    req = comm.Irecv((incoming, MPI.BYTE), source=left)
    comm.Send((out, out.size, MPI.BYTE), dest=right)
    req.Wait()


# %% buffer_specs
# on: real ranks
# thinks: The buffers are given as lists with count and MPI type, and the requests are waited for in reverse order,
#   which may be any.
from mpi4py.util import dtlib


def exchange(comm, send, recv):
    rank = comm.Get_rank()
    size = comm.Get_size()
    right = (rank + 1) % size
    left = (rank - 1) % size

    kind = dtlib.from_numpy_dtype(send.dtype)
    reqs = [
        comm.Isend([send, len(send), kind], dest=right),
        comm.Irecv([recv, (len(recv), 0), kind], source=left),
    ]
    while reqs:
        reqs.pop().Wait()


# %% cache_by_rank_and_size
# thinks: The neighbours are kept between calls, but by rank and size, so that another communicator gets its own.
import functools


@functools.lru_cache(maxsize=None)
def neighbours(rank, size):
    return (rank + 1) % size, (rank + size - 1) % size


def exchange(comm, send, recv):
    right, left = neighbours(comm.Get_rank(), comm.Get_size())
    reqs = {"out": comm.Isend(send, right), "in": comm.Irecv(recv, left)}
    MPI.Request.Waitall(list(reqs.values()))


# %% class_ring
# thinks: The requests are in an object that waits for all of them at the end of its with block, so none is left open.
class Ring:
    """A ring of ranks, with what is under way on it."""

    def __init__(self, comm):
        self.comm, self.pending = comm, []

    def __enter__(self):
        return self

    def __exit__(self, *error):
        while self.pending:
            self.pending.pop(0).Wait()

    def send(self, array):
        self.pending += [self.comm.Isend(array, dest=(self.comm.rank + 1) % self.comm.size)]

    def receive_into(self, array):
        self.pending += [self.comm.Irecv(array, source=(self.comm.rank - 1) % self.comm.size)]


def exchange(comm, send, recv):
    with Ring(comm) as ring:
        ring.receive_into(recv)
        ring.send(send)


# %% dup
# on: real ranks
# thinks: The message goes over a duplicate of comm, which has the same ranks in the same order and is freed
#   afterwards.
def exchange(comm, send, recv):
    rank = comm.Get_rank()
    size = comm.Get_size()
    right = (rank + 1) % size
    left = (rank - 1) % size

    private = comm.Dup()  # so that nobody else's messages get in between
    try:
        private.Sendrecv(send, dest=right, recvbuf=recv, source=left)
    finally:
        private.Free()


# %% even_odd
# thinks: Even ranks send first and odd ones receive first, and where two even ranks meet in an odd circle they wait
#   in a chain that ends.
def exchange(comm, send, recv):
    rank = comm.Get_rank()
    size = comm.Get_size()
    right = (rank + 1) % size
    left = (rank - 1) % size

    if size == 1:
        req = comm.Irecv(recv, source=0)
        comm.Send(send, dest=0)
        req.Wait()
    elif rank % 2 == 0:
        comm.Send(send, dest=right)
        comm.Recv(recv, source=left)
    else:
        comm.Recv(recv, source=left)
        comm.Send(send, dest=right)


# %% isend_irecv_waitall
# thinks: Both calls return at once, so nobody blocks anybody, and one Waitall finishes them together.
def exchange(comm, send, recv):
    rank = comm.Get_rank()
    size = comm.Get_size()
    right = (rank + 1) % size
    left = (rank - 1) % size

    MPI.Request.Waitall([comm.Irecv(recv, source=left), comm.Isend(send, dest=right)])


# %% issend
# thinks: Issend is done only when the receiver has begun, but it does not block, so every rank gets to its Recv.
def exchange(comm, send, recv):
    rank = comm.Get_rank()
    size = comm.Get_size()
    right = (rank + 1) % size
    left = (rank - 1) % size

    sent = comm.Issend(send, dest=right)
    comm.Recv(recv, source=left)
    sent.Wait()


# %% one_breaks_the_cycle
# thinks: All ranks send first but the last, and one rank that listens while it sends is enough to open the circle.
def exchange(comm, send, recv):
    rank = comm.Get_rank()
    size = comm.Get_size()
    right = (rank + 1) % size
    left = (rank - 1) % size

    if rank == size - 1:  # one that listens first is enough (it cannot block when alone)
        req = comm.Irecv(recv, source=left)
        comm.Send(send, dest=right)
        req.Wait()
    else:
        comm.Send(send, dest=right)
        comm.Recv(recv, source=left)


# %% probe
# on: real ranks
# thinks: Probe asks who has sent before anything is received, and that can only be the rank before, whose Isend is
#   under way.
def exchange(comm, send, recv):
    rank = comm.Get_rank()
    size = comm.Get_size()
    right = (rank + 1) % size
    left = (rank - 1) % size

    req = comm.Isend(send, dest=right)
    status = MPI.Status()
    comm.Probe(source=MPI.ANY_SOURCE, tag=MPI.ANY_TAG, status=status)
    comm.Recv(recv, source=status.Get_source(), tag=status.Get_tag())
    req.Wait()


# %% proc_null_two_steps
# thinks: The open chain moves first and the edge that closes the circle second; sends to PROC_NULL do nothing.
def exchange(comm, send, recv):
    rank = comm.Get_rank()
    size = comm.Get_size()
    right = (rank + 1) % size
    left = (rank - 1) % size

    last = size - 1
    # the chain, open at both ends ...
    comm.Sendrecv(
        send, dest=rank + 1 if rank < last else MPI.PROC_NULL,
        recvbuf=recv, source=rank - 1 if rank > 0 else MPI.PROC_NULL,
    )
    # ... and then the edge that closes it
    comm.Sendrecv(
        send, dest=0 if rank == last else MPI.PROC_NULL,
        recvbuf=recv, source=last if rank == 0 else MPI.PROC_NULL,
    )


# %% sendrecv_replace
# thinks: Sendrecv_replace works on a copy so that send keeps its numbers, and only where both lengths are equal.
import numpy as np


def exchange(comm, send, recv):
    rank = comm.Get_rank()
    size = comm.Get_size()
    right = (rank + 1) % size
    left = (rank - 1) % size

    if len(send) == len(recv):
        work = send.copy()  # send must not change
        comm.Sendrecv_replace(work, dest=right, source=left)
        np.copyto(recv, work)
    else:  # my neighbours may take either way: the message is the same
        comm.Sendrecv(send, dest=right, recvbuf=recv, source=left)


# %% split
# thinks: A split with one color and the rank as key has the same ranks in the same order, so it is the same ring.
def exchange(comm, send, recv):
    ring = comm.Split(color=0, key=comm.Get_rank())
    rank, size = ring.Get_rank(), ring.Get_size()
    ring.Sendrecv(send, dest=(rank + 1) % size, recvbuf=recv, source=(rank - 1) % size)
    ring.Free()


# %% views
# thinks: A memoryview of recv and a flat slice of send are the arrays' own memory, so what arrives is in recv.
def exchange(comm, send, recv):
    rank = comm.Get_rank()
    size = comm.Get_size()
    right = (rank + 1) % size
    left = (rank - 1) % size

    incoming = memoryview(recv)
    reqs = []
    reqs.append(comm.Irecv(incoming, source=left))
    reqs.append(comm.Isend(send.ravel()[:], dest=right))
    MPI.Request.waitall(reqs)


# %% waitany_loop
# on: real ranks
# thinks: Each Waitany finishes one request and makes it null, so as many calls as there are requests finish all of
#   them.
def exchange(comm, send, recv):
    rank = comm.Get_rank()
    size = comm.Get_size()
    right = (rank + 1) % size
    left = (rank - 1) % size

    reqs = [comm.Isend(send, dest=right), comm.Irecv(recv, source=left)]
    for _ in reqs:
        MPI.Request.Waitany(reqs)
