"""Unusual right answers to e00_hello. What a cell holds is told in tests/answers.py."""

# %% allgather_then_none
# thinks: allgather, and the other ranks drop the list.
def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    greetings = comm.allgather(f"rank {comm.rank} of {comm.size}")
    if comm.rank == 0:
        return greetings
    return None


# %% alltoall
# thinks: alltoall with an empty parcel for everyone but rank 0.
def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    parcels = [None] * comm.size
    parcels[0] = f"rank {comm.rank} of {comm.size}"
    got = comm.alltoall(parcels)
    return got if comm.rank == 0 else None


# %% any_source_then_sorted
# thinks: Receives (rank, greeting) pairs in any order and sorts them by rank.
def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    pair = (comm.rank, f"rank {comm.rank} of {comm.size}")
    if comm.rank != 0:
        comm.send(pair, dest=0)
        return None
    pairs = [pair] + [comm.recv() for _ in range(comm.size - 1)]
    return [greeting for _, greeting in sorted(pairs)]


# %% any_source_with_status
# thinks: Receives in any order and places each greeting by the status's source.
from mpi4py import MPI


def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    greetings = [None] * comm.size
    if comm.rank != 0:
        comm.send(f"rank {comm.rank} of {comm.size}", dest=0)
        return None
    greetings[0] = f"rank {comm.rank} of {comm.size}"
    status = MPI.Status()
    for _ in range(comm.size - 1):
        greeting = comm.recv(source=MPI.ANY_SOURCE, tag=MPI.ANY_TAG, status=status)
        greetings[status.Get_source()] = greeting
    return greetings


# %% bcast_from_each
# thinks: One bcast per rank, each with another root.
def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    greetings = [
        comm.bcast(f"rank {comm.rank} of {comm.size}" if comm.rank == r else None, root=r) for r in range(comm.size)
    ]
    return greetings if comm.rank == 0 else None


# %% binary_tree_recursion
# thinks: A recursive tree: halves of the ranks are collected by their first rank.
def collect(comm, first, end):
    if end - first == 1:
        return [f"rank {comm.rank} of {comm.size}"] if comm.rank == first else None
    middle = (first + end) // 2
    if comm.rank >= middle:
        part = collect(comm, middle, end)
        if comm.rank == middle:
            comm.send(part, dest=first)
        return None
    part = collect(comm, first, middle)
    return part + comm.recv(source=middle) if comm.rank == first else None


def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    return collect(comm, 0, comm.size) if comm.size > 0 else None


# %% buffers_send_recv
# thinks: Upper-case Send and Recv of a bytearray, with the length from Probe.
from mpi4py import MPI


def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    text = bytearray(f"rank {comm.rank} of {comm.size}", "ascii")
    if comm.rank != 0:
        comm.Send([text, MPI.CHAR], dest=0)
        return None
    greetings = [text.decode()]
    for r in range(1, comm.size):
        status = MPI.Status()
        comm.Probe(source=r, status=status)
        room = bytearray(status.Get_count(MPI.CHAR))
        comm.Recv([room, MPI.CHAR], source=r)
        greetings.append(room.decode())
    return greetings


# %% comm_dup
# thinks: Works on a duplicate of the communicator and frees it.
def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    private = comm.Dup()
    try:
        return private.gather("rank {} of {}".format(private.rank, private.size), root=0)
    finally:
        private.Free()


# %% comm_split
# thinks: Works on a Split that keeps all ranks in their order.
def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    same = comm.Split(color=0, key=comm.rank)
    greetings = same.gather(f"rank {same.rank} of {same.size}")
    same.Free()
    return greetings


# %% gather_at_last_then_forward
# thinks: Gathers on the last rank, which sends the list on to rank 0.
def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    last = comm.size - 1
    greetings = comm.gather(f"rank {comm.rank} of {comm.size}", root=last)
    if last == 0:
        return greetings
    if comm.rank == last:
        comm.send(greetings, dest=0)
    return comm.recv(source=last) if comm.rank == 0 else None


# %% gather_fixed_width
# thinks: Gather of a fixed-width numpy row of bytes.
import numpy as np


def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    row = np.zeros(64, dtype=np.uint8)
    text = f"rank {comm.rank} of {comm.size}".encode()
    row[: len(text)] = list(text)
    rows = np.zeros((comm.size, 64), dtype=np.uint8) if comm.rank == 0 else None
    comm.Gather(row, rows, root=0)
    if rows is None:
        return None
    return [bytes(r).rstrip(b"\0").decode() for r in rows]


# %% gatherv_of_bytes
# thinks: Gather of the lengths, then Gatherv of the bytes.
import numpy as np
from mpi4py import MPI


def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    mine = np.frombuffer(f"rank {comm.rank} of {comm.size}".encode(), dtype=np.uint8)
    lengths = np.zeros(comm.size, dtype=np.int32)
    comm.Gather(np.array([mine.size], dtype=np.int32), lengths, root=0)
    text = np.zeros(int(lengths.sum()), dtype=np.uint8)
    comm.Gatherv(mine, [text, lengths, MPI.BYTE] if comm.rank == 0 else None, root=0)
    if comm.rank != 0:
        return None
    ends = np.cumsum(lengths)
    return [bytes(text[end - n : end]).decode() for n, end in zip(lengths, ends)]


# %% growing_list_down_the_chain
# thinks: Each rank puts its greeting in front of the list it gets and hands it down.
def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    later = comm.recv(source=comm.rank + 1) if comm.rank + 1 < comm.size else []
    greetings = [f"rank {comm.rank} of {comm.size}", *later]
    if comm.rank == 0:
        return greetings
    comm.send(greetings, dest=comm.rank - 1)


# %% helper_function
# thinks: The text and the collecting are in helpers; Get_rank() and Get_size().
def greeting_of(comm):
    return "rank %d of %d" % (comm.Get_rank(), comm.Get_size())


def collect(comm, thing, at=0):
    return comm.gather(thing, at)


def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    return collect(comm, greeting_of(comm))


# %% isend_irecv_with_waits
# thinks: isend and irecv on every rank, rank 0 also to itself, all waited for.
from mpi4py import MPI


def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    sent = comm.isend(f"rank {comm.rank} of {comm.size}", dest=0)
    if comm.rank != 0:
        sent.wait()
        return None
    greetings = MPI.Request.waitall([comm.irecv(source=r) for r in range(comm.size)])
    sent.wait()
    return list(greetings)


# %% last_rank_comes_late
# thinks: One rank comes late.
import time


def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    if comm.rank == comm.size - 1:
        time.sleep(0.3)
    return comm.gather(f"rank {comm.rank} of {comm.size}", root=0)


# %% matched_probe
# thinks: Probes for any message and receives the one that was matched.
from mpi4py import MPI


def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    if comm.rank != 0:
        comm.send(f"rank {comm.rank} of {comm.size}", dest=0)
        return None
    greetings = {0: f"rank {comm.rank} of {comm.size}"}
    while len(greetings) < comm.size:
        status = MPI.Status()
        message = comm.mprobe(status=status)
        greetings[status.source] = message.recv()
    return [greetings[r] for r in sorted(greetings)]


# %% numbers_travel
# thinks: The numbers travel as messages, and rank 0 writes the text from what it got.
def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    pairs = comm.gather((comm.rank, comm.size), root=0)
    return pairs and [f"rank {rank} of {size}" for rank, size in pairs]


# %% one_sided_put
# thinks: One-sided: every rank puts its bytes in a window of rank 0.
import numpy as np
from mpi4py import MPI


def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    width = 64
    room = np.zeros(width * comm.size if comm.rank == 0 else 0, dtype=np.uint8)
    window = MPI.Win.Create(room, disp_unit=1, comm=comm)
    row = np.zeros(width, dtype=np.uint8)
    text = f"rank {comm.rank} of {comm.size}".encode()
    row[: len(text)] = list(text)
    window.Fence()
    window.Put(row, 0, target=comm.rank * width)
    window.Fence()
    window.Free()
    if comm.rank != 0:
        return None
    return [bytes(r).rstrip(b"\0").decode() for r in room.reshape(comm.size, width)]


# %% p2p_in_rank_order
# thinks: Blocking send and recv, rank by rank.
def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    greeting = f"rank {comm.rank} of {comm.size}"
    if comm.rank > 0:
        comm.send(greeting, dest=0, tag=7)
        return None
    return [greeting] + [comm.recv(source=r, tag=7) for r in range(1, comm.size)]


# %% p2p_last_rank_first
# thinks: Receives from the last rank first and turns the list round.
def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    if comm.rank:
        comm.send(f"rank {comm.rank} of {comm.size}", 0)
    else:
        greetings = []
        for r in range(comm.size - 1, 0, -1):
            greetings.append(comm.recv(source=r))
        greetings.append(f"rank {comm.rank} of {comm.size}")
        greetings.reverse()
        return greetings


# %% prints_as_well
# thinks: Prints on every rank, and has barriers that it does not need.
def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    greeting = f"rank {comm.rank} of {comm.size}"
    print(greeting, flush=True)
    comm.Barrier()
    greetings = comm.gather(greeting)
    comm.Barrier()
    if comm.rank == 0:
        print(greetings, flush=True)
    return greetings


# %% sendrecv_round_the_ring
# thinks: sendrecv round the ring, size - 1 times; every rank then has all, and the others return None.
def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    greetings = [None] * comm.size
    here = comm.rank
    greetings[here] = f"rank {comm.rank} of {comm.size}"
    for _ in range(comm.size - 1):
        greetings[(here - 1) % comm.size] = comm.sendrecv(greetings[here], dest=right, source=left)
        here = (here - 1) % comm.size
    return greetings if comm.rank == 0 else None


# %% sendrecv_with_itself
# thinks: Rank 0 also sends to itself, with sendrecv.
def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    greeting = f"rank {comm.rank} of {comm.size}"
    if comm.rank != 0:
        comm.send(greeting, dest=0)
        return None
    greetings = [comm.sendrecv(greeting, dest=0, source=0)]
    for r in range(1, comm.size):
        greetings.append(comm.recv(source=r))
    return greetings


# %% sends_when_asked
# thinks: Each rank waits for rank 0's word before it sends.
def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    if comm.rank != 0:
        comm.recv(source=0, tag=1)
        comm.send(f"rank {comm.rank} of {comm.size}", dest=0, tag=2)
        return None
    greetings = [f"rank {comm.rank} of {comm.size}"]
    for r in range(1, comm.size):
        comm.send(None, dest=r, tag=1)
        greetings.append(comm.recv(source=r, tag=2))
    return greetings


# %% ssend
# thinks: Synchronous sends.
def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    greeting = f"rank {comm.rank} of {comm.size}"
    if comm.rank != 0:
        return comm.ssend(greeting, dest=0)
    greetings = [greeting]
    for r in range(1, comm.size):
        greetings.append(comm.recv(source=r))
    return greetings


# %% tuple
# thinks: A tuple is as good as a list.
def greet(comm):
    got = comm.gather(f"rank {comm.rank} of {comm.size}", root=0)
    return tuple(got) if comm.rank == 0 else None


# %% by_allgather_numbers
# thinks: I gather numbers, and write the text on rank 0.
def greet(comm):
    got = comm.gather(comm.rank, root=0)
    if comm.rank == 0:
        return [f"rank {r} of {comm.size}" for r in got]


# %% reduce_lists
# thinks: lists add up in the order of ranks.
def greet(comm):
    return comm.reduce([f"rank {comm.rank} of {comm.size}"], root=0)
