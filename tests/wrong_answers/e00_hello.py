"""Wrong answers to e00_hello. What a cell holds is told in tests/answers.py."""

# %% allgather_everywhere
# says: Only rank 0 is asked for the list
# thinks: Collecting means that every rank ends up with the list.
def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    return comm.allgather(f"rank {comm.rank} of {comm.size}")


# %% any_source_order
# says: order of ranks
# thinks: Messages arrive in the order of ranks, so ANY_SOURCE will do.
from mpi4py import MPI


def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    greeting = f"rank {comm.rank} of {comm.size}"
    if comm.rank != 0:
        comm.send(greeting, dest=0)
        return None
    greetings = [greeting]
    for _ in range(comm.size - 1):
        greetings.append(comm.recv(source=MPI.ANY_SOURCE))
    return greetings


# %% barrier_only_on_rank_0
# says: Barrier is a collective call: every rank of the communicator must make it, and rank 1 did not
# thinks: Rank 0 waits for the others at a barrier that only rank 0 needs to call.
def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    greetings = comm.gather(f"rank {comm.rank} of {comm.size}", root=0)
    if comm.rank == 0:
        comm.Barrier()
    return greetings


# %% bcast_instead_of_gather
# says: Every entry is rank 0's
# thinks: bcast brings everyone's object to rank 0.
def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    greetings = []
    for _ in range(comm.size):
        greetings.append(comm.bcast(f"rank {comm.rank} of {comm.size}", root=0))
    return greetings if comm.rank == 0 else None


# %% builds_all_strings_itself
# says: without a message
# thinks: Rank 0 knows the size, so it can write all the greetings itself.
def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    if comm.rank == 0:
        return [f"rank {r} of {comm.size}" for r in range(comm.size)]
    return None


# %% capital_letter
# says: exactly 'rank 0 of
# thinks: The exact text does not matter, so a capital letter is nicer.
def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    return comm.gather(f"Rank {comm.rank} of {comm.size}", root=0)


# %% comm_world_everywhere
# says: use the `comm` it is given
# thinks: The argument is always COMM_WORLD, so one may as well use that.
from mpi4py import MPI


def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    comm = MPI.COMM_WORLD
    return comm.gather(f"rank {comm.rank} of {comm.size}", root=0)


# %% comm_world_gather
# says: use the `comm` it is given
# thinks: Messages always travel through COMM_WORLD; comm is only for asking rank and size.
from mpi4py import MPI


def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    greetings = MPI.COMM_WORLD.gather(f"rank {comm.rank} of {comm.size}", root=0)
    return greetings if comm.rank == 0 else None


# %% comm_world_numbers
# says: use the `comm` it is given
# thinks: Rank and size are those of COMM_WORLD, whatever communicator is passed in.
from mpi4py import MPI


def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    world = MPI.COMM_WORLD
    return comm.gather(f"rank {world.rank} of {world.size}", root=0)


# %% counts_from_one
# says: Ranks count from 0
# thinks: The first rank is number 1.
def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    return comm.gather(f"rank {comm.rank + 1} of {comm.size}", root=0)


# %% dict_by_rank
# says: a list of strings
# thinks: A dict from rank to greeting is as good as a list.
def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    greetings = comm.gather(f"rank {comm.rank} of {comm.size}", root=0)
    return dict(enumerate(greetings)) if comm.rank == 0 else None


# %% empty_list_elsewhere
# says: return None
# thinks: A rank that collects nothing returns an empty list.
def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    greetings = comm.gather(f"rank {comm.rank} of {comm.size}", root=0)
    return greetings if comm.rank == 0 else []


# %% everyone_receives
# says: Rank 1 receives from itself
# thinks: Every rank sends, so every rank has to receive as well.
def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    greeting = f"rank {comm.rank} of {comm.size}"
    if comm.rank != 0:
        comm.send(greeting, dest=0)
    greetings = [greeting] + [comm.recv(source=r) for r in range(comm.size) if r != 0]
    return greetings if comm.rank == 0 else None


# %% exits_on_other_ranks
# says: rank 1 called sys.exit(0)
# thinks: A rank that has sent its greeting is done and ends its process.
import sys


def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    greetings = comm.gather(f"rank {comm.rank} of {comm.size}", root=0)
    if comm.rank != 0:
        sys.exit(0)
    return greetings


# %% finalizes_mpi
# says: MPI.Finalize() was called
# thinks: After the last message one has to close MPI down.
from mpi4py import MPI


def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    greetings = comm.gather(f"rank {comm.rank} of {comm.size}", root=0)
    MPI.Finalize()
    return greetings


# %% get_rank_not_called
# says: Get_rank() and Get_size() with parentheses
# thinks: Get_rank is a number, not a method that must be called.
def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    return comm.gather(f"rank {comm.Get_rank} of {comm.Get_size}", root=0)


# %% global_list_keeps_growing
# says: of an earlier call
# thinks: The function is called only once, so the list may live outside of it.
greetings = []


def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    greeting = f"rank {comm.rank} of {comm.size}"
    if comm.rank != 0:
        comm.send(greeting, dest=0)
        return None
    greetings.append(greeting)
    for r in range(1, comm.size):
        greetings.append(comm.recv(source=r))
    return greetings


# %% hard_coded_size_in_text
# says: The last number is comm.size
# thinks: The text says `of 2`, as in the example.
def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    return comm.gather(f"rank {comm.rank} of 2", root=0)


# %% hard_coded_two_ranks
# says: comm.size may be any
# thinks: There are always two ranks, 0 and 1.
def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    greeting = f"rank {comm.rank} of {comm.size}"
    if comm.rank == 1:
        comm.send(greeting, dest=0)
    if comm.rank == 0:
        return [greeting, comm.recv(source=1)]
    return None


# %% irecv_without_wait
# says: call wait()
# thinks: Irecv returns the message.
def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    greeting = f"rank {comm.rank} of {comm.size}"
    if comm.rank != 0:
        comm.send(greeting, dest=0)
        return None
    return [greeting] + [comm.irecv(source=r) for r in range(1, comm.size)]


# %% joined_string
# says: a list of strings
# thinks: One string with all greetings is a list of greetings.
def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    greetings = comm.gather(f"rank {comm.rank} of {comm.size}", root=0)
    return "\n".join(greetings) if comm.rank == 0 else None


# %% last_rank_forgotten
# says: each of 1 to comm.size - 1 must send
# thinks: range(1, size - 1) runs over all the other ranks.
def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    greeting = f"rank {comm.rank} of {comm.size}"
    if comm.rank == 0:
        return [greeting] + [comm.recv(source=r) for r in range(1, comm.size - 1)]
    comm.send(greeting, dest=0)
    return None


# %% library_not_implemented
# says: raised NotImplementedError at line
# thinks: A codec makes bytes of the greeting. (The class is a pattern, and its method raises the stub's exception.).
import codecs


def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    return comm.gather(codecs.Codec().encode(f"rank {comm.rank} of {comm.size}"))


# %% list_of_lists
# says: a list of strings
# thinks: Gather concatenates lists, so each rank hands in a list of one.
def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    return comm.gather([f"rank {comm.rank} of {comm.size}"], root=0)


# %% list_of_pairs
# says: a list of strings
# thinks: The rank number must travel with the greeting, and stays in the result.
def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    return comm.gather((comm.rank, f"rank {comm.rank} of {comm.size}"), root=0)


# %% misspelt_gather
# says: Did you mean comm.gather?
# thinks: A slip of the finger.
def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    return comm.gathr(f"rank {comm.rank} of {comm.size}")


# %% misspelt_get_rank
# says: Did you mean comm.Get_rank?
# thinks: Python's methods are in lower case.
def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    return comm.gather(f"rank {comm.get_rank()} of {comm.get_size()}")


# %% misspelt_rank
# says: Did you mean comm.rank?
# thinks: Upper-case methods are the fast ones, so it is Rank too.
def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    return comm.gather(f"rank {comm.Rank} of {comm.size}")


# %% newest_first
# says: order of ranks
# thinks: The order in the list does not matter, so each new greeting goes in front.
def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    greeting = f"rank {comm.rank} of {comm.size}"
    if comm.rank != 0:
        comm.send(greeting, dest=0)
        return None
    greetings = [greeting]
    for r in range(1, comm.size):
        greetings.insert(0, comm.recv(source=r))
    return greetings


# %% newline_at_the_end
# says: exactly 'rank 0 of
# thinks: Every line of text ends in a newline.
def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    return comm.gather(f"rank {comm.rank} of {comm.size}\n", root=0)


# %% no_f_string
# says: the f before the string
# thinks: Braces are filled in without the f in front of the string.
def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    return comm.gather("rank {comm.rank} of {comm.size}", root=0)


# %% not_saved
# says: Is it saved?
# thinks: The editor saves by itself.
def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    raise NotImplementedError("e00_hello: return the list of all ranks' greetings on rank 0, and None on the others")


# %% numbers_only
# says: a list of strings
# thinks: Collecting the rank numbers is collecting the greetings.
def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    return comm.gather(comm.rank, root=0)


# %% numpy_strings
# says: the lower-case ones move any object
# thinks: numpy arrays can be sent, whatever is in them.
import numpy as np


def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    greeting = np.array([f"rank {comm.rank} of {comm.size}"])
    greetings = np.empty(comm.size, dtype=greeting.dtype)
    comm.Gather(greeting, greetings, root=0)
    return list(greetings) if comm.rank == 0 else None


# %% of_the_last_rank
# says: comm.size, the number of ranks
# thinks: The number after `of` is the last rank.
def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    return comm.gather(f"rank {comm.rank} of {comm.size - 1}", root=0)


# %% one_rank_too_many
# says: There is no such rank
# thinks: The ranks go from 1 up to and including size.
def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    greeting = f"rank {comm.rank} of {comm.size}"
    if comm.rank == 0:
        return [greeting] + [comm.recv(source=r) for r in range(1, comm.size + 1)]
    comm.send(greeting, dest=0)
    return None


# %% only_rank_0_broadcasts_from_1
# says: Its root is rank 1, for it says root=1
# thinks: bcast fetches what the root has, and only who wants it calls it.
def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    if comm.rank == 0:
        return [f"rank 0 of {comm.size}", comm.bcast(None, root=1)]
    return None


# %% only_rank_0_gathers
# says: gather is a collective call
# thinks: Gather is something that rank 0 does, so only rank 0 calls it.
def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    if comm.rank == 0:
        return comm.gather(f"rank {comm.rank} of {comm.size}", root=0)
    return None


# %% others_gather_on_rank_1
# says: rank 0 did not. Its root is rank 1
# thinks: The root is who sends.
def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    greeting = f"rank {comm.rank} of {comm.size}"
    if comm.rank == 0:
        return [greeting] + [comm.recv(source=r) for r in range(1, comm.size)]
    return comm.gather(greeting, root=1) and None


# %% others_gather_rank_0_waits
# says: Rank 1 called gather, which is collective
# thinks: The other ranks hand in with gather, and rank 0 picks the greetings up with recv.
def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    greeting = f"rank {comm.rank} of {comm.size}"
    if comm.rank != 0:
        return comm.gather(greeting, root=0)
    return [greeting] + [comm.recv(source=r) for r in range(1, comm.size)]


# %% others_leave_before_gather
# says: gather is a collective call
# thinks: A rank that has nothing to return may leave before the gather.
def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    if comm.rank > 0:
        return None
    greetings = comm.gather(f"rank {comm.rank} of {comm.size}", root=0)
    return greetings


# %% own_greeting_elsewhere
# says: return None
# thinks: A rank other than 0 returns its own greeting; rank 0 receives what the others return.
def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    greeting = f"rank {comm.rank} of {comm.size}"
    greetings = comm.gather(greeting, root=0)
    return greetings if comm.rank == 0 else greeting


# %% own_greeting_forgotten
# says: rank 0's own greeting
# thinks: Rank 0 collects from the others and does not greet itself.
def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    if comm.rank == 0:
        return [comm.recv(source=r) for r in range(1, comm.size)]
    comm.send(f"rank {comm.rank} of {comm.size}", dest=0)
    return None


# %% own_greeting_last
# says: order of ranks
# thinks: Rank 0 first receives all the others, and puts its own greeting at the end.
def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    greeting = f"rank {comm.rank} of {comm.size}"
    if comm.rank != 0:
        comm.send(greeting, dest=0)
        return None
    greetings = [comm.recv(source=r) for r in range(1, comm.size)]
    greetings.append(greeting)
    return greetings


# %% own_greeting_only
# says: That is one string. Rank 0 returns the list
# thinks: Each rank returns its greeting, and the launcher makes the list of them.
def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    if comm.rank == 0:
        return f"rank {comm.rank} of {comm.size}"
    comm.send(f"rank {comm.rank} of {comm.size}", dest=0)
    return None


# %% passes_to_the_neighbour
# says: Greetings are missing
# thinks: If everyone hands its greeting to the rank before it, all of them end up at rank 0.
def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    greeting = f"rank {comm.rank} of {comm.size}"
    from_next = comm.recv(source=comm.rank + 1) if comm.rank + 1 < comm.size else None
    if comm.rank > 0:
        comm.send(greeting, dest=comm.rank - 1)
        return None
    return [greeting] if from_next is None else [greeting, from_next]


# %% prints_instead_of_returning
# says: Nothing came back on rank 0
# thinks: Printing the list is giving it back.
def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    greetings = comm.gather(f"rank {comm.rank} of {comm.size}", root=0)
    if comm.rank == 0:
        print(greetings)


# %% raise_left_above
# says: the raise is still there at line {3} of
# thinks: The answer goes below the line that is there, which does no harm.
def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    raise NotImplementedError("e00_hello: return the list of all ranks' greetings on rank 0, and None on the others")
    return comm.gather(f"rank {comm.rank} of {comm.size}")


# %% raise_left_below
# says: the raise is still there at line {4} of
# thinks: The answer goes above the line that is there; a return is not needed.
def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    greetings = comm.gather(f"rank {comm.rank} of {comm.size}")
    raise NotImplementedError("e00_hello: return the list of all ranks' greetings on rank 0, and None on the others")


# %% rank_0_receives_from_itself
# says: receives from itself
# thinks: Rank 0's own greeting also arrives as a message, although it never sends one.
def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    if comm.rank == 0:
        return [comm.recv(source=r) for r in range(comm.size)]
    comm.send(f"rank {comm.rank} of {comm.size}", dest=0)
    return None


# %% rank_0_send_to_itself
# says: sends to itself
# needs: MPICH
# thinks: A blocking send to oneself is safe (it is only as long as MPI buffers small messages).
def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    comm.send(f"rank {comm.rank} of {comm.size}", dest=0)
    if comm.rank == 0:
        return [comm.recv(source=r) for r in range(comm.size)]
    return None


# %% rank_0_ssend_to_itself
# says: sends to itself
# thinks: Ssend to oneself goes through, as one receives right afterwards.
def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    comm.ssend(f"rank {comm.rank} of {comm.size}", dest=0)
    if comm.rank == 0:
        return [comm.recv(source=r) for r in range(comm.size)]
    return None


# %% receive_before_send_on_both_sides
# says: Each of them receives before it sends. One side must send first, or use sendrecv
# thinks: The other side must say that it is ready before one sends, and both sides wait for that.
def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    greeting = f"rank {comm.rank} of {comm.size}"
    if comm.rank != 0:
        comm.recv(source=0)
        comm.send(greeting, dest=0)
        return None
    greetings = [greeting]
    for r in range(1, comm.size):
        greetings.append(comm.recv(source=r))
        comm.send("thank you", dest=r)
    return greetings


# %% reduce_adds_strings
# says: a list of strings
# thinks: reduce with the default sum puts the greetings in a list.
from mpi4py import MPI


def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    return comm.reduce(f"rank {comm.rank} of {comm.size}", op=MPI.SUM, root=0)


# %% returns_are_collected
# says: Ranks share no memory
# thinks: What each rank returns is put together by MPI.
def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    greetings = []
    greetings.append(f"rank {comm.rank} of {comm.size}")
    if comm.rank == 0:
        return greetings
    return None


# %% root_is_own_rank
# says: not who calls. rank 0 names 0, rank 1 names 1.
# thinks: Root is the rank that calls, so every rank names itself.
def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    greetings = comm.gather(f"rank {comm.rank} of {comm.size}", root=comm.rank)
    return greetings if comm.rank == 0 else None


# %% says_hello_too
# says: exactly 'rank 0 of
# thinks: A greeting needs the word hello.
def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    return comm.gather(f"Hello from rank {comm.rank} of {comm.size}", root=0)


# %% scatter_instead_of_gather
# says: Scatter hands out, gather collects
# thinks: scatter and gather are two names for moving one object per rank to the root.
def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    return comm.scatter([f"rank {comm.rank} of {comm.size}"] * comm.size, root=0)


# %% sends_but_builds_them_itself
# says: never received
# thinks: The others have to send, but rank 0 already knows what they say.
def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    if comm.rank == 0:
        return [f"rank {r} of {comm.size}" for r in range(comm.size)]
    comm.send(f"rank {comm.rank} of {comm.size}", dest=0)
    return None


# %% sent_to_everyone
# says: never received
# thinks: A greeting is for all, so it goes to every other rank, whether or not that one receives.
def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    greeting = f"rank {comm.rank} of {comm.size}"
    if comm.rank == 0:
        return [greeting] + [comm.recv(source=r) for r in range(1, comm.size)]
    for r in range(comm.size):
        if r != comm.rank:
            comm.send(greeting, dest=r)
    return None


# %% tags_for_four_ranks
# says: IndexError
# thinks: Four ranks are the most that it is tried with, so four tags will do.
TAGS = [100, 101, 102, 103]


def greet(comm):
    greeting = f"rank {comm.rank} of {comm.size}"
    if comm.rank != 0:
        comm.send(greeting, dest=0, tag=TAGS[comm.rank])
        return None
    return [greeting] + [comm.recv(source=r, tag=TAGS[r]) for r in range(1, comm.size)]


# %% sent_twice
# says: never received
# thinks: To be sure that a message arrives, one sends it twice.
def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    greeting = f"rank {comm.rank} of {comm.size}"
    if comm.rank != 0:
        comm.send(greeting, dest=0)
        comm.send(greeting, dest=0)
        return None
    return [greeting] + [comm.recv(source=r) for r in range(1, comm.size)]


# %% shared_global_list
# says: share no memory
# thinks: A list at the top of the file is one list that all ranks append to.
greetings = []


def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    greetings.append(f"rank {comm.rank} of {comm.size}")
    comm.Barrier()
    if comm.rank == 0:
        return list(greetings)
    return None


# %% tags_do_not_match
# says: Rank 1 sent with tag 1, rank 0 waits for tag 0
# thinks: The tag is a note for the sender; recv finds the message with any tag of its own.
def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    greeting = f"rank {comm.rank} of {comm.size}"
    if comm.rank != 0:
        comm.send(greeting, dest=0, tag=comm.rank)
        return None
    return [greeting] + [comm.recv(source=r, tag=0) for r in range(1, comm.size)]


# %% torch_names
# says: the names that a communicator has
# thinks: The names are those of torch.distributed.
def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    return comm.gather(f"rank {comm.rank} of {comm.world_number}")


# %% upper_case_gather
# says: the lower-case ones move any object
# thinks: Gather and gather are the same method.
def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    return comm.Gather(f"rank {comm.rank} of {comm.size}", root=0)


# %% upper_case_gather_of_a_list
# says: the lower-case ones move any object
# thinks: Gather fills a list.
def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    greetings = [None] * comm.size
    comm.Gather([f"rank {comm.rank} of {comm.size}"], greetings, root=0)
    return greetings if comm.rank == 0 else None


# %% upper_case_send
# says: the lower-case ones move any object
# thinks: Send and send are the same method.
def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    greeting = f"rank {comm.rank} of {comm.size}"
    if comm.rank > 0:
        comm.Send(greeting, dest=0)
        return None
    return [greeting] + [comm.recv(source=r) for r in range(1, comm.size)]


# %% wrong_root_last_rank
# says: gather(root=1) collects on rank 1
# thinks: The last rank collects, because it comes when all others are done.
def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    return comm.gather(f"rank {comm.rank} of {comm.size}", root=comm.size - 1)


# %% wrong_root_one
# says: gather(root=1) collects on rank 1
# thinks: The root is the first rank, and the first rank is number 1.
def greet(comm):
    """Collect one greeting from every rank: a list on rank 0, in the order of ranks; None on the others."""
    return comm.gather(f"rank {comm.rank} of {comm.size}", root=1)


# %% text_order
# says: as text
# thinks: sorted puts greetings into the order of ranks.
def greet(comm):
    got = comm.gather(f"rank {comm.rank} of {comm.size}", root=0)
    return sorted(got) if comm.rank == 0 else None


# %% text_order_received
# says: as text
# thinks: I take them as they come and sort.
def greet(comm):
    from mpi4py import MPI
    if comm.rank:
        comm.send(f"rank {comm.rank} of {comm.size}", 0)
        return None
    got = [f"rank 0 of {comm.size}"] + [comm.recv(source=MPI.ANY_SOURCE) for _ in range(comm.size - 1)]
    got.sort()
    return got


# %% barrier_then_made_up
# says: carries nothing
# thinks: A Barrier is communication.
def greet(comm):
    comm.Barrier()
    if comm.rank == 0:
        return [f"rank {r} of {comm.size}" for r in range(comm.size)]


# %% bcast_then_made_up
# says: Rank 0 made up
# thinks: bcast lets the ranks know.
def greet(comm):
    comm.bcast("hello", root=0)
    if comm.rank == 0:
        return [f"rank {r} of {comm.size}" for r in range(comm.size)]


# %% ibarrier_then_made_up
# says: carries nothing
# thinks: A Barrier is communication.
def greet(comm):
    comm.Ibarrier().Wait()
    if comm.rank == 0:
        return [f"rank {r} of {comm.size}" for r in range(comm.size)]


# %% list_grows_default
# says: Greetings of an earlier call
# thinks: A default argument is made anew in each call.
def greet(comm, found=[]):
    got = comm.gather(f"rank {comm.rank} of {comm.size}", root=0)
    if comm.rank == 0:
        found.extend(got)
        return found


# %% gathers_none_then_made_up
# says: made up
# thinks: gather is what is asked.
def greet(comm):
    comm.gather(None, root=0)
    if comm.rank == 0:
        return [f"rank {r} of {comm.size}" for r in range(comm.size)]


# %% sends_ping_then_made_up
# says: made up
# thinks: a ping is enough
def greet(comm):
    if comm.rank:
        comm.send("ping", 0)
        return None
    for r in range(1, comm.size):
        comm.recv(source=r)
    return [f"rank {r} of {comm.size}" for r in range(comm.size)]


# %% forges_both_ranks
# says: was written by the answer
# thinks: The check believes what stands in its files.
import glob, json, os
def greet(comm):
    here = os.path.dirname(os.readlink("/proc/self/fd/1"))
    for r in range(comm.size):
        open(here + f"/rank{r}.json", "w").write(json.dumps(dict(kind="passed", rank=r)))
    os._exit(0)


# %% sys_exit_in_main_code
# says: what ends the program ends the check, too
# thinks: A program ends with sys.exit().
import sys
def greet(comm):
    return comm.gather(f"rank {comm.rank} of {comm.size}")
sys.exit()


# %% finalizes
# says: mpi4py finalizes
# thinks: What was begun has to be ended.
def greet(comm):
    from mpi4py import MPI
    got = comm.gather(f"rank {comm.rank} of {comm.size}")
    MPI.Finalize()
    return got


# %% main_at_top_level
# says: MPI.Finalize() was called
# thinks: My file is a program, which runs to its end.
def greet(comm):
    return comm.gather(f"rank {comm.rank} of {comm.size}")
from mpi4py import MPI
print(greet(MPI.COMM_WORLD))
MPI.Finalize()


# %% exit_after_send
# says: sys.exit(None)
# thinks: the others are done
import sys
def greet(comm):
    got = comm.gather(f"rank {comm.rank} of {comm.size}")
    if comm.rank:
        sys.exit()
    return got


# %% eleven_bytes
# says: the buffer must have room for it
# thinks: A greeting has eleven characters, so a buffer of eleven bytes takes it.
def greet(comm):
    mine = f"rank {comm.rank} of {comm.size}".encode()
    if comm.rank != 0:
        comm.Send(mine, dest=0)
        return None
    result = [mine.decode()]
    for r in range(1, comm.size):
        buffer = bytearray(11)
        comm.Recv(buffer, source=r)
        result.append(buffer.decode())
    return result


# %% in_order_of_arrival
# says: not in the order of ranks
# thinks: comm.recv() takes the next greeting, and they come in the order of ranks.
import random
import time


def greet(comm):
    mine = f"rank {comm.rank} of {comm.size}"
    if comm.rank != 0:
        time.sleep(random.random() / 20)  # so that not all of them talk at once
        comm.send(mine, dest=0)
        return None
    result = [mine]
    for _ in range(comm.size - 1):
        result.append(comm.recv())
    return result


# %% own_greeting_twice
# says: There are more strings than ranks
# thinks: gather brings what the others send, so rank 0 adds its own.
def greet(comm):
    mine = f"rank {comm.rank} of {comm.size}"
    others = comm.gather(mine, root=0)
    return [mine, *others] if comm.rank == 0 else None


# %% a_word_after_the_number
# says: The text must be exactly
# thinks: It reads better with a noun.
def greet(comm):
    return comm.gather(f"rank {comm.rank} of {comm.size} ranks", root=0)
