"""Wrong answers to e05_exchange. What a cell holds is told in tests/answers.py."""

# %% all_recv_first
# says: Each of them receives before it sends
# thinks: If everybody is already listening before anybody talks, no message can get lost.
def exchange(comm, send, recv):
    rank = comm.Get_rank()
    size = comm.Get_size()
    right = (rank + 1) % size
    left = (rank - 1) % size

    # be ready first, then send
    comm.Recv(recv, source=left)
    comm.Send(send, dest=right)


# %% all_send_first
# says: Each of them sends first, and no send is sure to end before its receive begins:
# thinks: Send returns as soon as MPI has the data, so everybody can send first and receive afterwards.
def exchange(comm, send, recv):
    rank = comm.Get_rank()
    size = comm.Get_size()
    right = (rank + 1) % size
    left = (rank - 1) % size

    comm.Send(send, dest=right)
    comm.Recv(recv, source=left)


# %% alltoall_lowercase
# says: Collective calls are for what concerns all ranks
# thinks: alltoall is the call in which everybody sends something to somebody.
def exchange(comm, send, recv):
    rank = comm.Get_rank()
    size = comm.Get_size()
    right = (rank + 1) % size
    left = (rank - 1) % size

    outbox = [None] * size
    outbox[right] = send
    inbox = comm.alltoall(outbox)
    recv[:] = inbox[left]


# %% bare_except_retry
# says: An endless loop
# on: real ranks
# thinks: If sending gets stuck there will be an error, and then I simply try again.
def exchange(comm, send, recv):
    rank = comm.Get_rank()
    size = comm.Get_size()
    right = (rank + 1) % size
    left = (rank - 1) % size

    while True:
        try:
            comm.Send(send, dest=right)
            comm.Recv(recv, source=left)
            break
        except:  # noqa: E722
            continue


# %% barrier_then_send
# says: Each of them sends first, and no send is sure to end before its receive begins:
# thinks: Ranks only block each other because they are not in step, so a barrier fixes it.
def exchange(comm, send, recv):
    rank = comm.Get_rank()
    size = comm.Get_size()
    right = (rank + 1) % size
    left = (rank - 1) % size

    comm.Barrier()  # now all are here together
    comm.Send(send, dest=right)
    comm.Recv(recv, source=left)
    comm.Barrier()


# %% both_neighbours
# says: Each of them sends first, and no send is sure to end before its receive begins:
# thinks: Exchange means giving to both neighbours, and ANY_SOURCE picks the right one of the two that come.
def exchange(comm, send, recv):
    rank = comm.Get_rank()
    size = comm.Get_size()
    right = (rank + 1) % size
    left = (rank - 1) % size

    reqs = [comm.Isend(send, dest=right), comm.Isend(send, dest=left)]
    comm.Recv(recv, source=MPI.ANY_SOURCE)
    MPI.Request.Waitall(reqs)


# %% bsend_no_buffer
# says: Bsend copies into memory that MPI.Attach_buffer was given, and there is none left
# on: real ranks
# thinks: Bsend brings its own buffer.
def exchange(comm, send, recv):
    rank = comm.Get_rank()
    size = comm.Get_size()
    right = (rank + 1) % size
    left = (rank - 1) % size

    comm.Bsend(send, dest=right)
    comm.Recv(recv, source=left)


# %% bytes_as_count
# says: A receive needs room for all that was sent, which may be longer than what this rank sends
# thinks: The count in a buffer spec is in bytes.
def exchange(comm, send, recv):
    rank = comm.Get_rank()
    size = comm.Get_size()
    right = (rank + 1) % size
    left = (rank - 1) % size

    sreq = comm.Isend([send, send.nbytes, MPI.BYTE], dest=right)
    comm.Recv([recv, len(recv), MPI.BYTE], source=left)
    sreq.Wait()


# %% cached_neighbours
# says: left something in `_neighbours`
# on: real ranks
# thinks: The neighbours are always the same, so work them out in the first call and keep them.
_neighbours = None


def exchange(comm, send, recv):
    global _neighbours
    if _neighbours is None:
        rank, size = comm.Get_rank(), comm.Get_size()
        _neighbours = ((rank + 1) % size, (rank - 1) % size)
    right, left = _neighbours
    comm.Sendrecv(send, dest=right, recvbuf=recv, source=left)


# %% cached_scratch
# says: left something in `_scratch`
# on: real ranks
# thinks: Allocating is slow, so keep one scratch buffer from the first call, all arrays are the same size anyway.
import numpy as np


_scratch = {}


def exchange(comm, send, recv):
    rank = comm.Get_rank()
    size = comm.Get_size()
    right = (rank + 1) % size
    left = (rank - 1) % size

    rank = comm.Get_rank()
    if rank not in _scratch:
        _scratch[rank] = np.empty_like(recv)
    buf = _scratch[rank]
    comm.Sendrecv(send, dest=right, recvbuf=buf, source=left)
    recv[:] = buf


# %% casts_float32
# says: The array goes as it is:
# thinks: Gradients travel as float32, that halves the traffic and nobody notices.
import numpy as np


def exchange(comm, send, recv):
    rank = comm.Get_rank()
    size = comm.Get_size()
    right = (rank + 1) % size
    left = (rank - 1) % size

    small = np.empty(len(recv), dtype=np.float32)
    comm.Sendrecv(send.astype(np.float32), dest=right, recvbuf=small, source=left)
    recv[:] = small


# %% direction
# says: Those are rank 1's numbers
# thinks: 'the rank before' is the one to send to.
def exchange(comm, send, recv):
    rank = comm.Get_rank()
    size = comm.Get_size()
    right = (rank + 1) % size
    left = (rank - 1) % size

    comm.Sendrecv(send, dest=left, recvbuf=recv, source=right)


# %% eager_threshold
# says: Each of them sends first, and no send is sure to end before its receive begins:
# thinks: Short arrays are always buffered, so only the long ones need Isend.
def exchange(comm, send, recv):
    rank = comm.Get_rank()
    size = comm.Get_size()
    right = (rank + 1) % size
    left = (rank - 1) % size

    if send.nbytes <= 4096:
        # eager limit, MPI keeps a copy
        comm.Send(send, dest=right)
        comm.Recv(recv, source=left)
    else:
        req = comm.Isend(send, dest=right)
        comm.Recv(recv, source=left)
        req.Wait()


# %% even_odd_alone
# says: Rank 0 sends to itself and waits for it:
# thinks: Even ranks send first and odd ones receive first, which works for every number of ranks.
def exchange(comm, send, recv):
    rank = comm.Get_rank()
    size = comm.Get_size()
    right = (rank + 1) % size
    left = (rank - 1) % size

    if rank % 2 == 0:
        comm.Send(send, dest=right)
        comm.Recv(recv, source=left)
    else:
        comm.Recv(recv, source=left)
        comm.Send(send, dest=right)


# %% even_p_phases
# says: Barrier is a collective call:
# thinks: The even ranks all send in phase one and the odd ones in phase two, with a barrier in between.
def exchange(comm, send, recv):
    rank = comm.Get_rank()
    size = comm.Get_size()
    right = (rank + 1) % size
    left = (rank - 1) % size

    if size == 1:
        recv[:] = send
        return
    if rank % 2 == 0:
        comm.Send(send, dest=right)
        comm.Barrier()
        comm.Recv(recv, source=left)
    else:
        comm.Recv(recv, source=left)
        comm.Barrier()
        comm.Send(send, dest=right)


# %% exit_when_done
# says: The other ranks go on and wait for this one
# thinks: A rank that is done exits, so that nothing hangs.
import sys


def exchange(comm, send, recv):
    rank = comm.Get_rank()
    size = comm.Get_size()
    right = (rank + 1) % size
    left = (rank - 1) % size

    comm.Sendrecv(send, dest=right, recvbuf=recv, source=left)
    if rank != 0:
        sys.exit(0)


# %% free_the_request
# says: Isend and Irecv only begin
# thinks: A request that is not needed any more is cleaned up with Free, which also finishes it.
def exchange(comm, send, recv):
    rank = comm.Get_rank()
    size = comm.Get_size()
    right = (rank + 1) % size
    left = (rank - 1) % size

    req = comm.Isend(send, dest=right)
    comm.Recv(recv, source=left)
    req.Free()


# %% iprobe_before_send
# says: They ask again and again, and nobody goes on to what the others ask for:
# thinks: Look first whether something has come in, and only send when the receiver is known to be there.
def exchange(comm, send, recv):
    rank = comm.Get_rank()
    size = comm.Get_size()
    right = (rank + 1) % size
    left = (rank - 1) % size

    while not comm.Iprobe(source=left):
        pass
    comm.Recv(recv, source=left)
    comm.Send(send, dest=right)


# %% irecv_no_wait
# says: Isend and Irecv only begin
# thinks: Waiting for the send is enough, because when mine has gone out everybody's has.
def exchange(comm, send, recv):
    rank = comm.Get_rank()
    size = comm.Get_size()
    right = (rank + 1) % size
    left = (rank - 1) % size

    rreq = comm.Irecv(recv, source=left)
    sreq = comm.Isend(send, dest=right)
    sreq.Wait()


# %% isend_no_wait
# says: Isend and Irecv only begin
# thinks: Isend is fire and forget, only receiving takes time.
def exchange(comm, send, recv):
    rank = comm.Get_rank()
    size = comm.Get_size()
    right = (rank + 1) % size
    left = (rank - 1) % size

    comm.Isend(send, dest=right)
    comm.Recv(recv, source=left)


# %% length_first
# says: One message a rank does it:
# thinks: The receiver has to be told the length before the array can come.
import numpy as np


def exchange(comm, send, recv):
    rank = comm.Get_rank()
    size = comm.Get_size()
    right = (rank + 1) % size
    left = (rank - 1) % size

    n_out = np.array([len(send)], dtype=np.int64)
    n_in = np.empty(1, dtype=np.int64)
    comm.Sendrecv(n_out, dest=right, sendtag=0, recvbuf=n_in, source=left, recvtag=0)
    comm.Sendrecv(send, dest=right, sendtag=1, recvbuf=recv[: n_in[0]], source=left, recvtag=1)


# %% lowercase_sendrecv
# says: Lower-case methods pickle:
# thinks: sendrecv and Sendrecv are the same, one is only older.
def exchange(comm, send, recv):
    rank = comm.Get_rank()
    size = comm.Get_size()
    right = (rank + 1) % size
    left = (rank - 1) % size

    recv[:] = comm.sendrecv(send, dest=right, source=left)


# %% middle_ranks_idle
# says: Rank 0 sends to rank 1, which has returned without receiving it
# thinks: There is a first rank that starts and a last rank that ends, and that is all that needs deciding.
def exchange(comm, send, recv):
    rank = comm.Get_rank()
    size = comm.Get_size()
    right = (rank + 1) % size
    left = (rank - 1) % size

    if rank == 0:
        comm.Send(send, dest=right)
        comm.Recv(recv, source=left)
    elif rank == size - 1:
        comm.Recv(recv, source=left)
        comm.Send(send, dest=right)


# %% min_len
# says: The beginning is right:
# thinks: Sender and receiver have to agree on a length, so take the shorter one of my two arrays.
def exchange(comm, send, recv):
    rank = comm.Get_rank()
    size = comm.Get_size()
    right = (rank + 1) % size
    left = (rank - 1) % size

    n = min(len(send), len(recv))
    comm.Sendrecv(send[:n], dest=right, recvbuf=recv, source=left)


# %% no_modulo
# says: Sendrecv: dest=2, but there are ranks 0 to 1
# thinks: Rank + 1 is the next rank (MPI knows how many there are).
def exchange(comm, send, recv):
    rank = comm.Get_rank()
    comm.Sendrecv(send, dest=rank + 1, recvbuf=recv, source=rank - 1)


# %% pads_to_max
# says: The array goes as it is:
# thinks: All messages of a step must be equally long, so pad with zeros.
import numpy as np


def exchange(comm, send, recv):
    rank = comm.Get_rank()
    size = comm.Get_size()
    right = (rank + 1) % size
    left = (rank - 1) % size

    longest = comm.allreduce(max(len(send), len(recv)), op=MPI.MAX)
    out = np.zeros(longest, dtype=send.dtype)
    out[: len(send)] = send
    comm.Sendrecv_replace(out, dest=right, source=left)
    recv[:] = out[: len(recv)]


# %% pickle_and_buffer
# says: Use the same case on both sides
# thinks: isend and Recv go together, both take numpy arrays.
def exchange(comm, send, recv):
    rank = comm.Get_rank()
    size = comm.Get_size()
    right = (rank + 1) % size
    left = (rank - 1) % size

    req = comm.isend(send, dest=right)
    comm.Recv(recv, source=left)
    req.wait()


# %% positional_args
# says: an int is no buffer
# thinks: The arguments of Sendrecv come in the order send, dest, recv, source.
def exchange(comm, send, recv):
    rank = comm.Get_rank()
    size = comm.Get_size()
    right = (rank + 1) % size
    left = (rank - 1) % size

    comm.Sendrecv(send, right, recv, left)


# %% print_forever
# says: They ask again and again, and nobody goes on to what the others ask for:
# thinks: A while loop with a print shows me when the message has arrived.
def exchange(comm, send, recv):
    rank = comm.Get_rank()
    size = comm.Get_size()
    right = (rank + 1) % size
    left = (rank - 1) % size

    req = comm.Isend(send, dest=right)
    while not req.Test():
        print("rank", rank, "still sending to", right)
    comm.Recv(recv, source=left)


# %% read_before_wait
# says: Nobody sent that
# thinks: After Irecv the data are in the buffer, and Waitall at the end is for tidiness.
import numpy as np


def exchange(comm, send, recv):
    rank = comm.Get_rank()
    size = comm.Get_size()
    right = (rank + 1) % size
    left = (rank - 1) % size

    incoming = np.zeros_like(recv)
    reqs = [comm.Irecv(incoming, source=left), comm.Isend(send, dest=right)]
    recv[:] = incoming
    MPI.Request.Waitall(reqs)


# %% rebinds_recv
# says: Nothing was written into recv: a name on the left of = makes a new variable
# thinks: Assigning to recv hands the array to the caller.
def exchange(comm, send, recv):
    rank = comm.Get_rank()
    size = comm.Get_size()
    right = (rank + 1) % size
    left = (rank - 1) % size

    recv = comm.sendrecv(send, dest=right, source=left)


# %% recv_as_staging
# says: From its beginning to its Wait a request has its buffer for itself
# thinks: I can put my data into recv and send it from there, it is only overwritten when the new data come.
def exchange(comm, send, recv):
    rank = comm.Get_rank()
    size = comm.Get_size()
    right = (rank + 1) % size
    left = (rank - 1) % size

    n = min(len(send), len(recv))
    recv[:n] = send[:n]
    out = recv if len(send) == len(recv) else send
    sreq = comm.Isend(out, dest=right)
    rreq = comm.Irecv(recv, source=left)
    MPI.Request.Waitall([sreq, rreq])


# %% recv_like_send
# says: A receive needs room for all that was sent, which may be longer than what this rank sends
# thinks: What arrives is as long as what I sent.
import numpy as np


def exchange(comm, send, recv):
    rank = comm.Get_rank()
    size = comm.Get_size()
    right = (rank + 1) % size
    left = (rank - 1) % size

    incoming = np.empty(len(send), dtype=send.dtype)
    comm.Sendrecv(send, dest=right, recvbuf=incoming, source=left)
    recv[:] = incoming


# %% relay_forwards_recv
# says: Those are this rank's own numbers
# thinks: Rank 0 starts and everybody else passes on what arrived.
def exchange(comm, send, recv):
    rank = comm.Get_rank()
    size = comm.Get_size()
    right = (rank + 1) % size
    left = (rank - 1) % size

    if size == 1:
        recv[:] = send
    elif rank == 0:
        comm.Send(send, dest=right)
        comm.Recv(recv, source=left)
    else:
        comm.Recv(recv, source=left)
        comm.Send(recv, dest=right)  # pass it on


# %% replace_changes_send
# says: The caller still needs that object:
# thinks: Sendrecv_replace on send, then copy over: shortest way.
def exchange(comm, send, recv):
    rank = comm.Get_rank()
    size = comm.Get_size()
    right = (rank + 1) % size
    left = (rank - 1) % size

    if len(send) == len(recv):
        comm.Sendrecv_replace(send, dest=right, source=left)
        recv[:] = send
    else:
        comm.Sendrecv(send, dest=right, recvbuf=recv, source=left)


# %% returns_array
# says: Nothing was written into recv: what arrived was returned
# thinks: The caller takes the result from the return value.
import numpy as np


def exchange(comm, send, recv):
    rank = comm.Get_rank()
    size = comm.Get_size()
    right = (rank + 1) % size
    left = (rank - 1) % size

    result = np.empty_like(recv)
    comm.Sendrecv(send, dest=right, recvbuf=result, source=left)
    return result


# %% roll
# says: Those are this rank's own numbers
# thinks: send is the whole ring's array, and np.roll shifts it on by one.
import numpy as np


def exchange(comm, send, recv):
    recv[:] = np.roll(send, 1)


# %% single_rank_returns
# says: Nothing was written into recv: the only rank is the one before itself
# thinks: With one rank there is nobody to exchange with, so there is nothing to do.
def exchange(comm, send, recv):
    rank = comm.Get_rank()
    size = comm.Get_size()
    right = (rank + 1) % size
    left = (rank - 1) % size

    if size == 1:
        return
    reqs = [comm.Irecv(recv, source=left), comm.Isend(send, dest=right)]
    MPI.Request.Waitall(reqs)


# %% skip_empty
# says: Rank 0 waits for a message from rank 1, which has returned without sending it
# thinks: An empty array needs no message and no work.
def exchange(comm, send, recv):
    rank = comm.Get_rank()
    size = comm.Get_size()
    right = (rank + 1) % size
    left = (rank - 1) % size

    if len(send) == 0:
        return
    comm.Sendrecv(send, dest=right, recvbuf=recv, source=left)


# %% sleep_stagger
# says: Each of them sends first, and no send is sure to end before its receive begins:
# thinks: If the ranks start a little after each other, the next one is always ready to receive.
import time


def exchange(comm, send, recv):
    rank = comm.Get_rank()
    size = comm.Get_size()
    right = (rank + 1) % size
    left = (rank - 1) % size

    time.sleep(0.01 * rank)
    comm.Send(send, dest=right)
    comm.Recv(recv, source=left)


# %% source_is_dest
# says: All of them have sent, each to a rank that waits for another one
# thinks: An exchange is a swap, so I receive from the rank I send to.
def exchange(comm, send, recv):
    partner = (comm.Get_rank() + 1) % comm.Get_size()
    comm.Sendrecv(send, dest=partner, recvbuf=recv, source=partner)


# %% tag_own_rank
# says: a receive takes its own tag only
# thinks: The tag of a message is my rank, when sending and when receiving.
def exchange(comm, send, recv):
    rank = comm.Get_rank()
    size = comm.Get_size()
    right = (rank + 1) % size
    left = (rank - 1) % size

    req = comm.Isend(send, dest=right, tag=rank)
    comm.Recv(recv, source=left, tag=rank)
    req.Wait()


# %% tags_differ
# says: a receive takes its own tag only
# thinks: A tag says which operation it is: 1 for sends and 2 for receives.
def exchange(comm, send, recv):
    rank = comm.Get_rank()
    size = comm.Get_size()
    right = (rank + 1) % size
    left = (rank - 1) % size

    comm.Sendrecv(send, dest=right, sendtag=1, recvbuf=recv, source=left, recvtag=2)


# %% test_once
# says: Isend and Irecv only begin
# thinks: Test is the same as Wait, but more polite.
def exchange(comm, send, recv):
    rank = comm.Get_rank()
    size = comm.Get_size()
    right = (rank + 1) % size
    left = (rank - 1) % size

    rreq = comm.Irecv(recv, source=left)
    sreq = comm.Isend(send, dest=right)
    rreq.Test()
    sreq.Test()


# %% through_rank0
# says: Collective calls are for what concerns all ranks
# thinks: Rank 0 has to coordinate: it collects the arrays and deals them out shifted by one.
def exchange(comm, send, recv):
    rank = comm.Get_rank()
    size = comm.Get_size()
    right = (rank + 1) % size
    left = (rank - 1) % size

    arrays = comm.gather(send, root=0)
    if rank == 0:
        arrays = arrays[-1:] + arrays[:-1]
    recv[:] = comm.scatter(arrays, root=0)


# %% truncate_recv_count
# says: A receive needs room for all that was sent, which may be longer than what this rank sends
# thinks: The count of a message is len(send), on both ends.
def exchange(comm, send, recv):
    rank = comm.Get_rank()
    size = comm.Get_size()
    right = (rank + 1) % size
    left = (rank - 1) % size

    n = len(send)
    reqs = [comm.Irecv(recv[:n], source=left), comm.Isend(send[:n], dest=right)]
    MPI.Request.Waitall(reqs)


# %% two_halves
# says: One message a rank does it:
# thinks: A long array should be sent in two pieces so that it fits.
def exchange(comm, send, recv):
    rank = comm.Get_rank()
    size = comm.Get_size()
    right = (rank + 1) % size
    left = (rank - 1) % size

    hs, hr = len(send) // 2, len(recv) // 2
    comm.Sendrecv(send[:hs], dest=right, recvbuf=recv[:hr], source=left)
    comm.Sendrecv(send[hs:], dest=right, recvbuf=recv[hr:], source=left)


# %% two_ranks_only
# says: Those are rank 1's numbers
# thinks: There are two ranks, as in the lesson's ping-pong.
def exchange(comm, send, recv):
    rank = comm.Get_rank()
    other = 1 - rank
    if rank == 0:
        comm.Send(send, dest=other)
        comm.Recv(recv, source=other)
    else:
        comm.Recv(recv, source=other)
        comm.Send(send, dest=other)


# %% wait_too_early
# says: Each of them sends first, and no send is sure to end before its receive begins:
# thinks: Using Isend and Irecv is what prevents the deadlock, wherever the Wait stands.
def exchange(comm, send, recv):
    rank = comm.Get_rank()
    size = comm.Get_size()
    right = (rank + 1) % size
    left = (rank - 1) % size

    req = comm.Isend(send, dest=right)
    req.Wait()
    req = comm.Irecv(recv, source=left)
    req.Wait()


# %% waits_wrong_request
# says: Isend and Irecv only begin
# thinks: Req is both of the requests.
def exchange(comm, send, recv):
    rank = comm.Get_rank()
    size = comm.Get_size()
    right = (rank + 1) % size
    left = (rank - 1) % size

    req = comm.Irecv(recv, source=left)
    req = comm.Isend(send, dest=right)
    req.Wait()
    req.Wait()


# %% world
# says: It speaks of MPI.COMM_WORLD:
# on: real ranks
# thinks: COMM_WORLD is the communicator, the argument is only there for show.
def exchange(comm, send, recv):
    comm = MPI.COMM_WORLD
    rank = comm.Get_rank()
    size = comm.Get_size()
    comm.Sendrecv(send, dest=(rank + 1) % size, recvbuf=recv, source=(rank - 1) % size)


# %% world_rank_at_top
# says: It speaks of MPI.COMM_WORLD
# on: real ranks
# thinks: My rank never changes, so I can ask for it once at the top of the file.
rank = MPI.COMM_WORLD.Get_rank()
size = MPI.COMM_WORLD.Get_size()


def exchange(comm, send, recv):
    comm.Sendrecv(send, dest=(rank + 1) % size, recvbuf=recv, source=(rank - 1) % size)


# %% xor_pairs
# says: Those are rank 1's numbers
# thinks: Pairing ranks by rank ^ 1 is the usual way to exchange without deadlock.
def exchange(comm, send, recv):
    rank = comm.Get_rank()
    partner = rank ^ 1
    if partner >= comm.Get_size():
        recv[: len(send)] = send[: len(recv)]
        return
    comm.Sendrecv(send, dest=partner, recvbuf=recv, source=partner)


# %% buffer_kept
# says: Earlier calls have left something
# on: real ranks
# thinks: One buffer serves all calls.
kept = {}


def exchange(comm, send, recv):
    if "send" not in kept or len(kept["send"]) != len(send):
        kept["send"] = send.copy()
    comm.Sendrecv(kept["send"], (comm.rank + 1) % comm.size, recvbuf=recv, source=(comm.rank - 1) % comm.size)


# %% does_nothing
# says: Nothing was written into recv: receive into recv itself
# thinks: The arrays are handed on by whoever calls this.
def exchange(comm, send, recv):
    pass


# %% into_another_buffer
# says: Nothing was written into recv: receive into recv itself
# thinks: What matters is that the message is received; where it lands is up to me.
import numpy as np


def exchange(comm, send, recv):
    rank, size = comm.Get_rank(), comm.Get_size()
    arrived = np.empty_like(recv)
    comm.Sendrecv(send, dest=(rank + 1) % size, recvbuf=arrived, source=(rank - 1) % size)


# %% read_before_wait_nan
# says: Nobody sent that
# thinks: Irecv has filled the buffer when it returns.
import numpy as np


def exchange(comm, send, recv):
    rank, size = comm.Get_rank(), comm.Get_size()
    arrived = np.full(len(recv), np.nan, recv.dtype)
    request = comm.Irecv(arrived, source=(rank - 1) % size)
    sent = comm.Isend(send, dest=(rank + 1) % size)
    recv[:] = arrived
    MPI.Request.Waitall([request, sent])


# %% long_arrays_as_float32
# says: rounded as float32 rounds
# on: real ranks
# thinks: For long arrays half the bytes matter more than the last digits.
import numpy as np


def exchange(comm, send, recv):
    rank, size = comm.Get_rank(), comm.Get_size()
    dtype = np.float32 if len(send) > 1000 else send.dtype
    arrived = np.empty(len(recv), dtype)
    comm.Sendrecv(send.astype(dtype), dest=(rank + 1) % size, recvbuf=arrived, source=(rank - 1) % size)
    recv[:] = arrived
