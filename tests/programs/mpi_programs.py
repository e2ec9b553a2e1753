"""Programs that run on virtual ranks and under mpirun alike: each takes a communicator and returns what it found.

`mpirun -np 3 python tests/programs/mpi_programs.py` runs all of them and prints, on rank 0, every rank's results;
with the name of another file the PROGRAMS of that one.
"""

import json
import runpy
import sys

import numpy as np
import torch
from mpi4py import MPI


def send_and_recv(comm):
    """Pass a token around; every rank adds its number."""
    token = np.zeros(3)
    if comm.size == 1:
        return token
    left, right = (comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size
    if comm.rank == 0:
        comm.Send(token, right, tag=5)
        comm.Recv(token, left, tag=5)
    else:
        comm.Recv(token, left, tag=5)
        token += comm.rank
        comm.Send(token, right, 5)
    return token


def objects(comm):
    """Lower-case messages carry any object, and a status tells whose it was."""
    if comm.rank:
        comm.send({"from": comm.rank, "data": [1, "two", None]}, dest=0, tag=comm.rank)
        return None
    found = []
    for rank in range(1, comm.size):
        status = MPI.Status()
        found.append((comm.recv(source=rank, tag=MPI.ANY_TAG, status=status), status.Get_source(), status.Get_tag()))
    return found


def nonblocking(comm):
    """Everybody to everybody at once, finished by Waitall."""
    received = np.zeros((comm.size, 2), np.int64)
    sent = np.array([[comm.rank, other] for other in range(comm.size)])
    others = [r for r in range(comm.size) if r != comm.rank]
    requests = [comm.Irecv(received[r], source=r) for r in others]
    requests += [comm.Isend(sent[r], dest=r) for r in others]
    MPI.Request.Waitall(requests)
    return received


def waitany(comm):
    """Receive from single sources, in whatever order that is done."""
    if comm.rank:
        comm.Send(np.full(2, comm.rank, np.int32), 0, tag=7)
        return None
    buffers = [np.zeros(2, np.int32) for _ in range(comm.size)]
    requests = [comm.Irecv(buffers[r], r, 7) for r in range(1, comm.size)]
    done = sorted(MPI.Request.Waitany(requests) for _ in range(comm.size - 1))
    return done, [b.tolist() for b in buffers]


def test_until_done(comm):
    """Polling ends."""
    if comm.size == 1:
        return True
    other = comm.rank ^ 1
    if other >= comm.size:
        return None
    into = np.zeros(1)
    receive = comm.Irecv(into, other)
    send = comm.Isend(np.full(1, float(comm.rank)), other)
    while not receive.Test():
        pass
    send.Wait()
    return into


def any_source(comm):
    """Let a server take what comes; the sum does not depend on the order."""
    if comm.rank:
        for k in range(3):
            comm.send(10 * comm.rank + k, 0, tag=k)
        return None
    status, found = MPI.Status(), []
    for _ in range(3 * (comm.size - 1)):
        value = comm.recv(source=MPI.ANY_SOURCE, tag=MPI.ANY_TAG, status=status)
        found.append((status.Get_source(), status.Get_tag(), value))
    # Of one sender, in the order in which they were sent.
    return [[(t, v) for s, t, v in found if s == rank] for rank in range(1, comm.size)]


def probe(comm):
    """Ask for the length before there is a place for the message."""
    if comm.rank:
        comm.Send(np.arange(comm.rank, dtype=np.float64), 0, tag=3)
        return None
    found = []
    for rank in range(1, comm.size):
        status = MPI.Status()
        comm.Probe(rank, MPI.ANY_TAG, status)
        place = np.empty(status.Get_count(MPI.DOUBLE))
        comm.Recv(place, status.Get_source(), status.Get_tag())
        found.append(place.tolist())
    return found


def iprobe(comm):
    """Nothing is there at first."""
    before = comm.Iprobe(MPI.ANY_SOURCE, 99)
    comm.Barrier()
    if comm.rank:
        comm.send("hello", 0, 4)
        return before
    found = []
    for rank in range(1, comm.size):
        while not comm.iprobe(rank, 4):
            pass
        found.append(comm.recv(None, rank, 4))
    return before, found


def sendrecv(comm):
    """Shift, in all three spellings."""
    left, right = (comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size
    into = np.zeros(2, np.float32)
    comm.Sendrecv(np.full(2, comm.rank, np.float32), right, 1, into, left, 1)
    again = into.copy()
    comm.Sendrecv_replace(again, left, source=right)
    return into, again, comm.sendrecv(f"from {comm.rank}", right, source=left)


def nowhere(comm):
    """PROC_NULL takes and gives nothing: a line has ends."""
    left = comm.rank - 1 if comm.rank else MPI.PROC_NULL
    right = comm.rank + 1 if comm.rank < comm.size - 1 else MPI.PROC_NULL
    into = np.full(1, -1.0)
    comm.Sendrecv(np.full(1, float(comm.rank)), right, recvbuf=into, source=left)
    comm.Send(into, MPI.PROC_NULL)
    return into


def specifications(comm):
    """Use counts, displacements and datatypes as mpi4py takes them."""
    if comm.size == 1:
        return None
    data, place = np.arange(10.0), np.zeros(10)
    if comm.rank == 0:
        comm.Send([data, 4], 1)
        comm.Send([data, (3, 2), MPI.DOUBLE], 1)
        comm.Send([data, MPI.DOUBLE], 1)
        comm.Send(bytearray(b"abc"), 1)
        comm.Send([data, 2, "d"], 1)
    elif comm.rank == 1:
        found = []
        for spec in ([place, 4, MPI.DOUBLE], [place, (3, 5), MPI.DOUBLE], place):
            place[:] = 0
            comm.Recv(spec, 0)
            found.append(place.tolist())
        text = bytearray(3)
        comm.Recv([text, MPI.BYTE], 0)
        place[:] = 0
        comm.Recv(place, 0)  # less than there is room for
        return found, text.decode(), place.tolist()
    return None


def tensors(comm):
    """CPU tensors of torch are buffers, too."""
    x = torch.arange(4, dtype=torch.float64) + comm.rank
    total = torch.empty_like(x)
    comm.Allreduce(x, total)
    comm.Bcast(x, root=comm.size - 1)
    return total.numpy(), x.numpy()


def broadcast_and_reduce(comm):
    x = np.arange(3.0) + comm.rank
    comm.Bcast(x, root=comm.size - 1)
    y = np.array([comm.rank, -comm.rank], np.int64)
    total, most, product = np.zeros_like(y), np.zeros_like(y), np.zeros_like(y)
    comm.Reduce(y, total, MPI.SUM, root=0)
    comm.Allreduce(y, most, op=MPI.MAX)
    comm.Allreduce(y + 1, product, MPI.PROD)
    comm.Allreduce(MPI.IN_PLACE, y, MPI.MIN)
    return x, total if comm.rank == 0 else None, most, product, y


def in_place(comm):
    x = np.full(2, float(comm.rank + 1))
    if comm.rank == 0:
        comm.Reduce(MPI.IN_PLACE, x)
    else:
        comm.Reduce(x, None)
    gathered = np.zeros(comm.size)
    gathered[comm.rank] = comm.rank
    comm.Allgather(MPI.IN_PLACE, gathered)
    return x, gathered


def gather_and_scatter(comm):
    mine = np.array([comm.rank, comm.rank**2], np.int32)
    rows = np.zeros((comm.size, 2), np.int32) if comm.rank == 0 else None
    comm.Gather(mine, rows, root=0)
    back = np.zeros(2, np.int32)
    comm.Scatter(rows, back, root=0)
    all_rows = np.zeros((comm.size, 2), np.int32)
    comm.Allgather(mine, all_rows)
    turned = np.zeros(comm.size, np.int64)
    comm.Alltoall(np.arange(comm.size) * 10 + comm.rank, turned)
    return rows, back, all_rows, turned


def uneven(comm):
    """Use the forms with a count for each rank."""
    p, counts = comm.size, [r + 1 for r in range(comm.size)]
    mine = np.full(comm.rank + 1, float(comm.rank))
    everything = np.zeros(sum(counts))
    comm.Allgatherv(mine, [everything, counts])
    root = np.zeros(sum(counts)) if comm.rank == p - 1 else None
    comm.Gatherv(mine, [root, counts] if comm.rank == p - 1 else None, root=p - 1)
    part = np.zeros(comm.rank + 1)
    comm.Scatterv([everything, counts] if comm.rank == 0 else None, part, root=0)
    sent = np.arange(p, dtype=np.float64)
    into = np.zeros(p)
    comm.Alltoallv([sent, [1] * p], [into, [1] * p])
    return everything, root, part, into


def reduce_scatter(comm):
    x = np.arange(2.0 * comm.size) + comm.rank
    block = np.zeros(2)
    comm.Reduce_scatter_block(x, block)
    part = np.zeros(comm.rank + 1)
    counts = [r + 1 for r in range(comm.size)]
    comm.Reduce_scatter(np.ones(sum(counts)) * comm.rank, part, counts)
    return block, part


def scans(comm):
    x, upto, before = np.array([comm.rank + 1.0]), np.zeros(1), np.zeros(1)
    comm.Scan(x, upto)
    comm.Exscan(x, before)
    return upto, before if comm.rank else None, comm.scan(comm.rank), comm.exscan(comm.rank + 1)


def collective_objects(comm):
    return (
        comm.bcast(["from", comm.rank] if comm.rank == 0 else None),
        comm.gather(comm.rank * "x", root=comm.size - 1),
        comm.scatter([{"for": r} for r in range(comm.size)] if comm.rank == 0 else None),
        comm.allgather((comm.rank, "a")),
        comm.alltoall([f"{comm.rank}->{r}" for r in range(comm.size)]),
        comm.reduce(comm.rank + 1, op=MPI.PROD, root=0),
        comm.allreduce([comm.rank]),
        comm.allreduce(comm.rank, op=max),
        comm.allreduce((comm.rank % 2, comm.rank), op=MPI.MAXLOC),
    )


def nonblocking_collectives(comm):
    """Begun together, finished together."""
    x, total = np.full(3, comm.rank + 1.0), np.zeros(3)
    y = np.arange(2.0) if comm.rank == 0 else np.zeros(2)
    rows = np.zeros(comm.size, np.int64)
    requests = [
        comm.Iallreduce(x, total),
        comm.Ibcast(y, root=0),
        comm.Iallgather(np.array([comm.rank * 3]), rows),
        comm.Ibarrier(),
    ]
    MPI.Request.Waitall(requests)
    return total, y, rows


def split(comm):
    """Communicators of their own, with ranks in the order of the keys."""
    half = comm.Split(comm.rank % 2, key=-comm.rank)
    twin = comm.Dup()
    some = comm.Split(0 if comm.rank == 0 else MPI.UNDEFINED)
    alone = some != MPI.COMM_NULL
    assert MPI.COMM_SELF.size == 1 and MPI.COMM_SELF.allreduce(5) == 5 and MPI.COMM_WORLD.rank == comm.rank
    found = half.rank, half.size, half.allgather(comm.rank), twin.allreduce(1), alone
    if comm.size > 1:  # the same tag in two communicators
        other = (comm.rank + 1) % comm.size
        requests = [comm.isend("world", other, 1), twin.isend("twin", other, 1)]
        found += (twin.recv(None, (comm.rank - 1) % comm.size, 1), comm.recv(None, (comm.rank - 1) % comm.size, 1))
        MPI.Request.waitall(requests)
    return found


def own_operation(comm):
    def weigh(a, b, datatype):
        x, y = np.frombuffer(a, np.float64), np.frombuffer(b, np.float64)
        y[:] = 2 * x * y

    op = MPI.Op.Create(weigh, commute=True)
    total = np.zeros(2)
    comm.Allreduce(np.full(2, 3.0), total, op)
    op.Free()
    return total


def random_numbers(comm):
    """Each rank's are its own, whatever others draw meanwhile."""
    torch.manual_seed(comm.rank)
    np.random.seed(comm.rank)
    first = float(torch.rand(())), float(np.random.rand())
    comm.Barrier()
    return first, float(torch.rand(())), float(np.random.rand())


def no_grad(comm):
    """Grad mode is each rank's own."""
    if comm.rank == 0:
        with torch.no_grad():
            comm.Barrier()
            return torch.is_grad_enabled()
    comm.Barrier()
    return torch.is_grad_enabled()


def backward_with_messages(comm):
    """Send and receive in a hook in the middle of a backward pass."""
    w = torch.full((2,), float(comm.rank + 1), dtype=torch.float64, requires_grad=True)

    def average(grad):
        total = np.zeros(2)
        comm.Allreduce(grad.numpy(), total)
        return torch.from_numpy(total / comm.size)

    w.register_hook(average)
    (w * w).sum().backward()
    return w.grad.numpy()


def copies(comm):
    """Return what is left of a copy of a communicator."""
    copy = comm.Dup()
    told = [copy.rank, copy.allgather(comm.rank)]
    copy.Free()
    return [*told, copy == MPI.COMM_NULL, bool(copy)]


def uneven_pieces(comm):
    """Pieces without counts, of which the first are longer, and pieces at equal distances."""
    counts = [(2 * comm.size + 1) // comm.size + (r < (2 * comm.size + 1) % comm.size) for r in range(comm.size)]
    whole, own = np.zeros(sum(counts)), np.full(counts[comm.rank], comm.rank + 1.0)
    comm.Allgatherv(own, whole)
    part, spread = np.zeros(counts[comm.rank]), np.zeros(3 * comm.size)
    comm.Scatterv(whole + 10 if comm.rank == 0 else None, part)
    comm.Gatherv(np.full(2, comm.rank + 1.0), [spread, (2, 3), MPI.DOUBLE] if comm.rank == 0 else None)
    return whole, part, spread


def scatters_that_do_not_wait(comm):
    """Fill the root's buffer before the call, and read it before the wait."""
    given, into = np.arange(2.0 * comm.size) * (comm.rank + 1), np.zeros(2)
    requests = [comm.Iscatter(given, into, root=comm.size - 1)]
    MPI.Request.Waitall(requests)
    other = np.zeros(2)
    comm.Iscatterv(given if comm.rank == 0 else None, other).Wait()
    return into, other, bool(requests[0])


def logical_reductions(comm):
    """Treat any number but 0 as true, with 0 or 1 as the result."""
    found = []
    for dtype in (np.int64, np.uint8, np.bool_):
        x = np.array([comm.rank, comm.rank % 2, 1, 0]).astype(dtype)
        for op in (MPI.LAND, MPI.LOR, MPI.LXOR):
            y, z = np.zeros(4, dtype), np.zeros(4, dtype)
            comm.Allreduce(x, y, op=op)
            comm.Scan(x, z, op=op)
            found += [y, z if comm.rank else y]  # one part alone is left as it was given by some, as 0 or 1 by others
    return found


def requests_that_are_over(comm):
    """They are false, equal to REQUEST_NULL, and done whoever asks."""
    other, statuses, status = comm.size - 1 - comm.rank, [], MPI.Status()
    requests = [comm.irecv(source=other, tag=4), comm.isend(comm.rank, other, tag=4)]
    before = [bool(q) for q in requests]
    MPI.Request.Waitall(requests, statuses)
    after = [bool(q) for q in requests] + [q == MPI.REQUEST_NULL for q in requests]
    told = [MPI.Request.Waitany(requests) == MPI.UNDEFINED, MPI.Request.Testall(requests), requests[0].Test(status)]
    told += [MPI.Request.testany(requests)[1], MPI.Request.Waitsome(requests), MPI.Request.Testsome(requests)]
    told += [status.source == MPI.ANY_SOURCE, status.tag == MPI.ANY_TAG, status.count]
    null = MPI.Request()
    return before, after, told, len(statuses), statuses[0].source, null == MPI.REQUEST_NULL, bool(null), null.Test()


def nobody(comm):
    """Messages to and from PROC_NULL, and probes of it."""
    status, y = MPI.Status(), np.full(1, 5.0)
    found = []
    for ask in (comm.Iprobe, comm.Probe, comm.iprobe, comm.probe):
        found.append((ask(MPI.PROC_NULL, 3, status), status.source == MPI.PROC_NULL, status.tag == MPI.ANY_TAG))
    comm.Recv(y, MPI.PROC_NULL, status=status)
    return found, y, status.count, status.source == MPI.PROC_NULL


PROGRAMS = [
    value for name, value in list(globals().items()) if callable(value) and getattr(value, "__module__", "") == __name__
]


def plain(value):
    """Return what JSON can hold, the same for both kinds of ranks."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, tuple | list):
        return [plain(v) for v in value]
    return value


if __name__ == "__main__":
    told = {}
    for program in runpy.run_path(sys.argv[1])["PROGRAMS"] if sys.argv[1:] else PROGRAMS:
        rows = MPI.COMM_WORLD.gather(plain(program(MPI.COMM_WORLD)))
        told[program.__name__] = rows
        MPI.COMM_WORLD.Barrier()  # or a rank ahead sends what a receive from any source takes
    if MPI.COMM_WORLD.rank == 0:
        json.dump(told, sys.stdout)
