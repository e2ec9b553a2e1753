"""Wrong answers to e05_recursive_doubling. What a cell holds is told in tests/answers.py."""

# %% all_pairs
# says: No rank sends more than the others:
# thinks: Every rank has to exchange with every other one, in q - 1 rounds rank ^ 1, rank ^ 2, rank ^ 3, ... of its
#   own x.
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
    mine = x.copy()
    for k in range(1, q):
        comm.Sendrecv(mine, dest=rank ^ k, recvbuf=got, source=rank ^ k)
        x += got
    if rank + q < p:
        comm.Send(x, dest=rank + q)


# %% any_source
# says: Each number has its place:
# thinks: In each round only one message can arrive, so it need not be said from whom.
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
        comm.Sendrecv(x, dest=rank ^ distance, recvbuf=got, source=MPI.ANY_SOURCE)
        x += got
        distance *= 2
    if rank + q < p:
        comm.Send(x, dest=rank + q)


# %% barrier_on_some_ranks
# says: Barrier is a collective call:
# thinks: a Barrier after each round keeps the q ranks in step.
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
        comm.Sendrecv(x, dest=partner, recvbuf=got, source=partner)
        x += got
        distance *= 2
        comm.Barrier()
    if rank + q < p:
        comm.Send(x, dest=rank + q)


# %% both_neighbours
# says: Some ranks are in the sum more than once
# thinks: In each round you exchange with the rank d to the left and the rank d to the right.
def recursive_doubling_allreduce(comm, x):
    rank, p = comm.Get_rank(), comm.Get_size()
    left_got = np.empty_like(x)
    right_got = np.empty_like(x)
    d = 1
    while d < p:
        left, right = (rank - d) % p, (rank + d) % p
        comm.Sendrecv(x, dest=right, recvbuf=left_got, source=left)
        comm.Sendrecv(x, dest=left, recvbuf=right_got, source=right)
        x += left_got
        x += right_got
        d *= 2


# %% both_receive_first
# says: Each of them receives before it sends
# thinks: A rank must be ready to receive before anybody sends.
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
        comm.Recv(got, source=partner)
        comm.Send(x, dest=partner)
        x += got
        distance *= 2
    if rank + q < p:
        comm.Send(x, dest=rank + q)


# %% both_send_first
# says: Each of them sends first, and no send is sure to end before its receive begins:
# thinks: Send returns as soon as MPI has a copy, so both may send first and then receive.
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
        comm.Send(x, dest=partner)
        comm.Recv(got, source=partner)
        x += got
        distance *= 2
    if rank + q < p:
        comm.Send(x, dest=rank + q)


# %% buffer_kept_by_length
# says: rank 0 raised numpy._core._exceptions._UFuncOutputCastingErr
# on: real ranks
# thinks: A buffer of the right length can be kept for the next call.
_buffers = {}


def recursive_doubling_allreduce(comm, x):
    rank, p = comm.Get_rank(), comm.Get_size()
    q = 1
    while q * 2 <= p:
        q *= 2
    if len(x) not in _buffers:
        _buffers[len(x)] = np.empty_like(x)
    got = _buffers[len(x)]
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


# %% circle_any_p
# says: Some ranks are in the sum more than once
# thinks: On a circle of p ranks the doubling works for any p, so nobody is too many.
def recursive_doubling_allreduce(comm, x):
    rank, p = comm.Get_rank(), comm.Get_size()
    got = np.empty_like(x)
    distance = 1
    while distance < p:
        ahead = (rank + distance) % p
        behind = (rank - distance) % p
        comm.Sendrecv(x, dest=ahead, recvbuf=got, source=behind)
        x += got
        distance *= 2


# %% comm_allreduce
# says: comm.Allreduce and its like do it for you
# thinks: MPI has this built in, and uses recursive doubling itself.
from mpi4py import MPI


def recursive_doubling_allreduce(comm, x):
    comm.Allreduce(MPI.IN_PLACE, x, op=MPI.SUM)


# %% comm_world
# says: It speaks of MPI.COMM_WORLD:
# on: real ranks
# thinks: The communicator is always MPI.COMM_WORLD.
from mpi4py import MPI


def recursive_doubling_allreduce(comm, x):
    comm = MPI.COMM_WORLD
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


# %% distance_forgotten_endless
# says: An endless loop, or far too many steps
# thinks: The while loop moves on by itself.
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
        comm.Sendrecv(x, dest=partner, recvbuf=got, source=partner)
        x += got
    if rank + q < p:
        comm.Send(x, dest=rank + q)


# %% distance_plus_one
# says: Some ranks are in the sum more than once
# thinks: The next round goes one further: distance 1, 2, 3, ...
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
        comm.Sendrecv(x, dest=partner, recvbuf=got, source=partner)
        x += got
        distance += 1
    if rank + q < p:
        comm.Send(x, dest=rank + q)


# %% extra_adds_sum_to_own
# says: Some ranks are in the sum more than once
# thinks: Every rank adds what it receives, also the rank too many at the end.
def recursive_doubling_allreduce(comm, x):
    rank, p = comm.Get_rank(), comm.Get_size()
    q = 1
    while q * 2 <= p:
        q *= 2
    got = np.empty_like(x)
    if rank >= q:
        comm.Send(x, dest=rank - q)
        comm.Recv(got, source=rank - q)
        x += got
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


# %% extra_off_by_one
# says: Sendrecv: dest=3, but there are ranks 0 to 2
# thinks: Rank > q says that this is one of the ranks too many.
def recursive_doubling_allreduce(comm, x):
    rank, p = comm.Get_rank(), comm.Get_size()
    q = 1
    while q * 2 <= p:
        q *= 2
    got = np.empty_like(x)
    if rank > q:
        comm.Send(x, dest=rank - q)
        comm.Recv(x, source=rank - q)
        return
    if 0 < rank and rank + q < p:
        comm.Recv(got, source=rank + q)
        x += got
    distance = 1
    while distance < q:
        partner = rank ^ distance
        comm.Sendrecv(x, dest=partner, recvbuf=got, source=partner)
        x += got
        distance *= 2
    if 0 < rank and rank + q < p:
        comm.Send(x, dest=rank + q)


# %% extras_added_twice
# says: Some ranks are in the sum more than once
# thinks: At the end the rank too many and its helper exchange and add once more, as in any other round.
def recursive_doubling_allreduce(comm, x):
    rank, p = comm.Get_rank(), comm.Get_size()
    q = 1
    while q * 2 <= p:
        q *= 2
    got = np.empty_like(x)
    if rank >= q:
        comm.Send(x, dest=rank - q)
    elif rank + q < p:
        comm.Recv(got, source=rank + q)
        x += got
    if rank < q:
        d = 1
        while d < q:
            comm.Sendrecv(x, dest=rank ^ d, recvbuf=got, source=rank ^ d)
            x += got
            d *= 2
    other = rank ^ q
    if other < p:
        comm.Sendrecv(x, dest=other, recvbuf=got, source=other)
        x += got


# %% extras_never_added
# says: Some ranks are missing
# thinks: The ranks too many only need to be given the sum at the end.
def recursive_doubling_allreduce(comm, x):
    rank, p = comm.Get_rank(), comm.Get_size()
    q = 1
    while q * 2 <= p:
        q *= 2
    got = np.empty_like(x)
    if rank >= q:
        comm.Recv(x, source=rank - q)
        return
    distance = 1
    while distance < q:
        partner = rank ^ distance
        comm.Sendrecv(x, dest=partner, recvbuf=got, source=partner)
        x += got
        distance *= 2
    if rank + q < p:
        comm.Send(x, dest=rank + q)


# %% extras_never_get_sum
# says: Ranks 0, 1 have the sum;
# thinks: Once the ranks too many have given their x away they are done.
def recursive_doubling_allreduce(comm, x):
    rank, p = comm.Get_rank(), comm.Get_size()
    q = 1
    while q * 2 <= p:
        q *= 2
    got = np.empty_like(x)
    if rank >= q:
        comm.Send(x, dest=rank - q)
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


# %% float_buffer
# says: Take the buffer of the array's own dtype:
# thinks: np.empty(len(x)) is a buffer like x.
def recursive_doubling_allreduce(comm, x):
    rank, p = comm.Get_rank(), comm.Get_size()
    q = 1
    while q * 2 <= p:
        q *= 2
    got = np.empty(len(x))
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


# %% gives_back_before_rounds
# says: Ranks 0, 1 have the sum;
# thinks: The helper answers the rank too many as soon as it has added its x.
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
        comm.Send(x, dest=rank + q)
    distance = 1
    while distance < q:
        partner = rank ^ distance
        comm.Sendrecv(x, dest=partner, recvbuf=got, source=partner)
        x += got
        distance *= 2


# %% hard_coded_2_4
# says: Each of q ranks exchanges in each of log2(q) rounds, where q is the largest power of two n
# thinks: The check runs 1, 2, 3, 4 and 7 ranks, so q is 1, 2 or 4.
def recursive_doubling_allreduce(comm, x):
    rank, p = comm.Get_rank(), comm.Get_size()
    q = 4 if p >= 4 else 2 if p >= 2 else 1
    got = np.empty_like(x)
    if rank >= q:
        comm.Send(x, dest=rank - q)
        comm.Recv(x, source=rank - q)
        return
    if rank + q < p:
        comm.Recv(got, source=rank + q)
        x += got
    for distance in (1, 2):
        if distance < q:
            comm.Sendrecv(x, dest=rank ^ distance, recvbuf=got, source=rank ^ distance)
            x += got
    if rank + q < p:
        comm.Send(x, dest=rank + q)


# %% helper_off_by_one
# says: Recv: source=2, but there are ranks 0 to 1
# thinks: Rank + q <= p says that my extra rank exists.
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
    if rank + q <= p:
        comm.Recv(got, source=rank + q)
        x += got
    distance = 1
    while distance < q:
        partner = rank ^ distance
        comm.Sendrecv(x, dest=partner, recvbuf=got, source=partner)
        x += got
        distance *= 2
    if rank + q <= p:
        comm.Send(x, dest=rank + q)


# %% int32_buffer
# says: Take the buffer of the array's own dtype:
# thinks: If x holds integers they are 32 bits wide.
def recursive_doubling_allreduce(comm, x):
    rank, p = comm.Get_rank(), comm.Get_size()
    q = 1
    while q * 2 <= p:
        q *= 2
    got = np.empty(len(x), dtype=np.int32 if x.dtype.kind == 'i' else x.dtype)
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


# %% int8_wire
# says: Each number has its place:
# thinks: Small integers are sent faster as int8.
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
        small = x.astype(np.int8) if x.dtype.kind == "i" else x
        came = np.empty_like(small)
        comm.Sendrecv(small, dest=partner, recvbuf=came, source=partner)
        x += came
        distance *= 2
    if rank + q < p:
        comm.Send(x, dest=rank + q)


# %% irecv_read_before_wait
# says: What an Irecv brings is there when its Wait has returned
# thinks: Irecv has filled got once our own send is over.
def recursive_doubling_allreduce(comm, x):
    rank, p = comm.Get_rank(), comm.Get_size()
    q = 1
    while q * 2 <= p:
        q *= 2
    got = np.zeros_like(x)
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
        coming = comm.Irecv(got, source=partner)
        comm.Send(x, dest=partner)
        x += got
        coming.Wait()
        distance *= 2
    if rank + q < p:
        comm.Send(x, dest=rank + q)


# %% isend_wait_after_add
# says: From its beginning to its Wait a request has its buffer for itself
# thinks: Wait only has to come before the next round.
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
        sent = comm.Isend(x, dest=partner)
        comm.Recv(got, source=partner)
        x += got
        sent.Wait()
        distance *= 2
    if rank + q < p:
        comm.Send(x, dest=rank + q)


# %% low_extras_not_renumbered
# says: Sendrecv: dest=3, but there are ranks 0 to 2
# thinks: The first p - q ranks can step out and the others still find each other with rank ^ distance.
def recursive_doubling_allreduce(comm, x):
    rank, p = comm.Get_rank(), comm.Get_size()
    q = 1
    while q * 2 <= p:
        q *= 2
    got = np.empty_like(x)
    extra = p - q
    if rank < extra:
        comm.Send(x, dest=rank + extra)
        comm.Recv(x, source=rank + extra)
        return
    if rank < 2 * extra:
        comm.Recv(got, source=rank - extra)
        x += got
    distance = 1
    while distance < q:
        partner = rank ^ distance
        comm.Sendrecv(x, dest=partner, recvbuf=got, source=partner)
        x += got
        distance *= 2
    if rank < 2 * extra:
        comm.Send(x, dest=rank - extra)


# %% lower_case_sendrecv
# says: Lower-case methods pickle:
# thinks: comm.sendrecv is the easy form of comm.Sendrecv.
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
        x += comm.sendrecv(x, dest=partner, source=partner)
        distance *= 2
    if rank + q < p:
        comm.Send(x, dest=rank + q)


# %% mean
# says: That is the mean:
# thinks: All-reduce averages, as for gradients.
def recursive_doubling_allreduce(comm, x):
    p = comm.Get_size()
    rank = comm.Get_rank()
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
    x[:] = x / p
    if rank + q < p:
        comm.Send(x, dest=rank + q)


# %% not_in_place
# says: x = x + y makes a new array
# thinks: x = x + got changes the caller's x.
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
        comm.Sendrecv(x, dest=partner, recvbuf=got, source=partner)
        x = x + got
        distance *= 2
    if rank + q < p:
        comm.Send(x, dest=rank + q)


# %% one_round_too_few
# says: no message came to rank 0
# thinks: For q ranks the last distance is q / 2, so stop when distance reaches it.
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
    while distance < q // 2:
        partner = rank ^ distance
        comm.Sendrecv(x, dest=partner, recvbuf=got, source=partner)
        x += got
        distance *= 2
    if rank + q < p:
        comm.Send(x, dest=rank + q)


# %% one_round_too_many_mod
# says: Some ranks are in the sum more than once
# thinks: log2(q) + 1 rounds, and % q keeps the partner inside the group.
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
    for k in range(q.bit_length()):
        partner = (rank ^ (1 << k)) % q
        comm.Sendrecv(x, dest=partner, recvbuf=got, source=partner)
        x += got
    if rank + q < p:
        comm.Send(x, dest=rank + q)


# %% one_way
# says: Rank 0 has the sum;
# thinks: In each pair the higher rank gives its sum to the lower one.
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
        if rank > partner:
            comm.Send(x, dest=partner)
        else:
            comm.Recv(got, source=partner)
            x += got
        distance *= 2
    if rank + q < p:
        comm.Send(x, dest=rank + q)


# %% only_one_extra
# says: Sendrecv: dest=7, but there are ranks 0 to 6
# thinks: No power of two just means that the number of ranks is odd, so the last rank is the one too many.
def recursive_doubling_allreduce(comm, x):
    rank, p = comm.Get_rank(), comm.Get_size()
    if p == 1:
        return
    q = p - p % 2
    got = np.empty_like(x)
    if rank == q:
        comm.Send(x, dest=0)
        comm.Recv(x, source=0)
        return
    if rank == 0 and p != q:
        comm.Recv(got, source=q)
        x += got
    d = 1
    while d < q:
        comm.Sendrecv(x, dest=rank ^ d, recvbuf=got, source=rank ^ d)
        x += got
        d *= 2
    if rank == 0 and p != q:
        comm.Send(x, dest=q)


# %% overwrites_instead_of_adding
# says: What arrived was put in the place of x
# thinks: After the exchange x is what was received.
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
        comm.Sendrecv(x, dest=partner, recvbuf=got, source=partner)
        x[:] = got
        distance *= 2
    if rank + q < p:
        comm.Send(x, dest=rank + q)


# %% own_added_last
# says: Rounding depends on the order of additions:
# thinks: Keeping the others' sum apart and adding my own x last gives the same sum on all ranks.
def recursive_doubling_allreduce(comm, x):
    rank, p = comm.Get_rank(), comm.Get_size()
    q = 1 << (p.bit_length() - 1)
    got = np.empty_like(x)
    if rank >= q:
        comm.Send(x, dest=rank - q)
        comm.Recv(x, source=rank - q)
        return
    if rank + q < p:
        comm.Recv(got, source=rank + q)
        x += got
    others = np.zeros_like(x)
    d = 1
    while d < q:
        comm.Sendrecv(x + others, dest=rank ^ d, recvbuf=got, source=rank ^ d)
        others += got
        d *= 2
    x += others
    if rank + q < p:
        comm.Send(x, dest=rank + q)


# %% partner_clipped
# says: Rank 1 waits for a message from rank 2, which has returned without sending it
# thinks: Ranks without a partner can exchange with the last rank instead.
def recursive_doubling_allreduce(comm, x):
    rank, p = comm.Get_rank(), comm.Get_size()
    got = np.empty_like(x)
    distance = 1
    while distance < p:
        partner = min(rank ^ distance, p - 1)
        if partner != rank:
            comm.Sendrecv(x, dest=partner, recvbuf=got, source=partner)
            x += got
        distance *= 2


# %% partner_modulo
# says: Rank 1 waits for a message from rank 0, which has returned without sending it
# thinks: A partner past the end wraps round to the start with % p, as in the ring.
def recursive_doubling_allreduce(comm, x):
    rank, p = comm.Get_rank(), comm.Get_size()
    got = np.empty_like(x)
    distance = 1
    while distance < p:
        partner = (rank ^ distance) % p
        comm.Sendrecv(x, dest=partner, recvbuf=got, source=partner)
        x += got
        distance *= 2


# %% plus_modulo_same_partner
# says: All of them have sent, each to a rank that waits for another one
# thinks: The partner at distance d is the rank d further on, (rank + d) % q.
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
        partner = (rank + distance) % q
        comm.Sendrecv(x, dest=partner, recvbuf=got, source=partner)
        x += got
        distance *= 2
    if rank + q < p:
        comm.Send(x, dest=rank + q)


# %% power_operator
# says: Some ranks are in the sum more than once
# thinks: Rank ^ distance is written rank ** distance in Python.
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
        partner = rank ** distance
        comm.Sendrecv(x, dest=partner, recvbuf=got, source=partner)
        x += got
        distance *= 2
    if rank + q < p:
        comm.Send(x, dest=rank + q)


# %% q_log2_float
# says: TypeError: Recv: source is a rank, an integer, not np.float64(2.0)
# thinks: 2 ** np.log2(p) // 1 is q, a float does no harm.
def recursive_doubling_allreduce(comm, x):
    rank, p = comm.Get_rank(), comm.Get_size()
    q = 2 ** (np.log2(p) // 1)
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


# %% q_rounded_log2
# says: Sendrecv: dest=3, but there are ranks 0 to 2
# thinks: round(log2(p)) makes the whole number that is needed.
def recursive_doubling_allreduce(comm, x):
    rank, p = comm.Get_rank(), comm.Get_size()
    q = 2 ** round(np.log2(p))
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


# %% q_strictly_below
# says: Each of q ranks exchanges in each of log2(q) rounds, where q is the largest power of two n
# thinks: q is the largest power of two below p.
def recursive_doubling_allreduce(comm, x):
    rank, p = comm.Get_rank(), comm.Get_size()
    q = 1
    while q * 2 < p:
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


# %% receives_into_x
# says: From its beginning to its Wait a request has its buffer for itself
# thinks: Sendrecv adds what comes in to recvbuf, so x can be both buffers.
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
        comm.Sendrecv(x, dest=partner, recvbuf=x, source=partner)
        distance *= 2
    if rank + q < p:
        comm.Send(x, dest=rank + q)


# %% returns_only
# says: The sum was returned, and x is as it was:
# thinks: The caller takes the sum from the return value.
def recursive_doubling_allreduce(comm, x):
    rank, p = comm.Get_rank(), comm.Get_size()
    q = 1
    while q * 2 <= p:
        q *= 2
    total = x.copy()
    got = np.empty_like(x)
    if rank >= q:
        comm.Send(total, dest=rank - q)
        comm.Recv(total, source=rank - q)
        return total
    if rank + q < p:
        comm.Recv(got, source=rank + q)
        total += got
    distance = 1
    while distance < q:
        comm.Sendrecv(total, dest=rank ^ distance, recvbuf=got, source=rank ^ distance)
        total += got
        distance *= 2
    if rank + q < p:
        comm.Send(total, dest=rank + q)
    return total


# %% ring
# says: In round k each rank exchanges with one other, whose number differs by 2^k:
# thinks: Passing all of x round the ring p - 1 times is the all-reduce for short arrays.
def recursive_doubling_allreduce(comm, x):
    rank, p = comm.Get_rank(), comm.Get_size()
    going = x.copy()
    got = np.empty_like(x)
    for _ in range(p - 1):
        comm.Sendrecv(going, dest=(rank + 1) % p, recvbuf=got, source=(rank - 1) % p)
        x += got
        going, got = got, going


# %% rounds_till_p
# says: Sendrecv: dest=3, but there are ranks 0 to 2
# thinks: The rounds go on while distance < p.
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
    while distance < p:
        partner = rank ^ distance
        comm.Sendrecv(x, dest=partner, recvbuf=got, source=partner)
        x += got
        distance *= 2
    if rank + q < p:
        comm.Send(x, dest=rank + q)


# %% send_ahead_receive_behind
# says: Rounding depends on the order of additions:
# thinks: send d ranks ahead and receive from d ranks behind, which after k rounds also covers 2^k ranks.
def recursive_doubling_allreduce(comm, x):
    rank, p = comm.Get_rank(), comm.Get_size()
    q = 1 << (p.bit_length() - 1)
    got = np.empty_like(x)
    if rank >= q:
        comm.Send(x, dest=rank - q)
        comm.Recv(x, source=rank - q)
        return
    if rank + q < p:
        comm.Recv(got, source=rank + q)
        x += got
    d = 1
    while d < q:
        comm.Sendrecv(x, dest=(rank + d) % q, recvbuf=got, source=(rank - d) % q)
        x += got
        d *= 2
    if rank + q < p:
        comm.Send(x, dest=rank + q)


# %% sends_half
# says: Some ranks are missing
# thinks: Each round only exchanges half of x, as in the ring where pieces go round.
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
        half = len(x) // 2
        part = slice(0, half) if rank < partner else slice(half, None)
        other = slice(half, None) if rank < partner else slice(0, half)
        comm.Sendrecv(x[part].copy(), dest=partner, recvbuf=got[other], source=partner)
        x[other] += got[other]
        distance *= 2
    if rank + q < p:
        comm.Send(x, dest=rank + q)


# %% sends_own_x_each_round
# says: Some ranks are missing
# thinks: Each round sends the x that this rank came with.
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
    mine = x.copy()
    distance = 1
    while distance < q:
        partner = rank ^ distance
        comm.Sendrecv(mine, dest=partner, recvbuf=got, source=partner)
        x += got
        distance *= 2
    if rank + q < p:
        comm.Send(x, dest=rank + q)


# %% skip_missing_partner
# says: Ranks 0, 2 have the sum;
# thinks: Where rank ^ distance does not exist there is nobody to exchange with, so that round can just be left out.
def recursive_doubling_allreduce(comm, x):
    rank, p = comm.Get_rank(), comm.Get_size()
    got = np.empty_like(x)
    distance = 1
    while distance < p:
        partner = rank ^ distance
        if partner < p:
            comm.Sendrecv(x, dest=partner, recvbuf=got, source=partner)
            x += got
        distance *= 2


# %% skips_zeros
# says: Rank 1 waits for a message from rank 0, which has returned without sending it
# thinks: An x of zeros adds nothing, so that rank has nothing to do.
def recursive_doubling_allreduce(comm, x):
    if not x.any():
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


# %% tags_do_not_match
# says: a receive takes its own tag only
# thinks: A tag says who sent it, and both sides use their own rank.
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
        comm.Sendrecv(x, dest=partner, sendtag=rank, recvbuf=got, source=partner, recvtag=rank)
        x += got
        distance *= 2
    if rank + q < p:
        comm.Send(x, dest=rank + q)


# %% tree_reduce_broadcast
# says: Each of q ranks exchanges in each of log2(q) rounds, where q is the largest power of two n
# thinks: log2(p) steps means a tree: reduce to rank 0, then broadcast down the tree.
def recursive_doubling_allreduce(comm, x):
    rank, p = comm.Get_rank(), comm.Get_size()
    got = np.empty_like(x)
    d = 1
    while d < p:
        if rank % (2 * d) == d:
            comm.Send(x, dest=rank - d)
            break
        if rank + d < p:
            comm.Recv(got, source=rank + d)
            x += got
        d *= 2
    d = 1
    while d < p:
        d *= 2
    while d > 1:
        d //= 2
        if rank % (2 * d) == 0 and rank + d < p:
            comm.Send(x, dest=rank + d)
        elif rank % (2 * d) == d:
            comm.Recv(x, source=rank - d)


# %% type_of_first_element
# says: An empty array has no first number
# thinks: type(x[0]) is the type of the array.
def recursive_doubling_allreduce(comm, x):
    rank, p = comm.Get_rank(), comm.Get_size()
    q = 1
    while q * 2 <= p:
        q *= 2
    got = np.empty(len(x), dtype=type(x[0]))
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


# %% world_rank
# says: Rank 0 sends to itself
# on: real ranks
# thinks: My rank is the rank in the world, whatever communicator is given.
from mpi4py import MPI


def recursive_doubling_allreduce(comm, x):
    rank, p = MPI.COMM_WORLD.Get_rank(), comm.Get_size()
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


# %% xor_of_round_number
# says: Some ranks are in the sum more than once
# thinks: The partner in round k is rank ^ k.
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
    rounds = q.bit_length() - 1
    for k in range(1, rounds + 1):
        partner = rank ^ k
        comm.Sendrecv(x, dest=partner, recvbuf=got, source=partner)
        x += got
    if rank + q < p:
        comm.Send(x, dest=rank + q)


# %% xor_the_values
# says: TypeError: ufunc 'bitwise_xor' not supported for the input types, and the inputs could not
# thinks: The exchange is a xor, so the values are put together with ^ as well.
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
        comm.Sendrecv(x, dest=partner, recvbuf=got, source=partner)
        x ^= got
        distance *= 2
    if rank + q < p:
        comm.Send(x, dest=rank + q)


# %% float32_on_the_way
# says: Each message is all that its rank has added up so far, as numbers of x's dtype
# thinks: Messages in float32 take half the time, and the sum is made in x's own dtype.
def recursive_doubling_allreduce(comm, x):
    q = 1
    while 2 * q <= comm.size:
        q *= 2
    landing = np.empty(x.shape, dtype=np.float32)
    if comm.rank >= q:
        comm.Send(x.astype(np.float32), comm.rank - q)
        comm.Recv(landing, comm.rank - q)
        x[:] = landing
        return
    partner = comm.rank + q
    if partner < comm.size:
        comm.Recv(landing, partner)
        x += landing.astype(x.dtype)
    distance = 1
    while distance < q:
        other = comm.rank ^ distance
        comm.Sendrecv(x.astype(np.float32), other, recvbuf=landing, source=other)
        x += landing.astype(x.dtype)
        distance *= 2
    if partner < comm.size:
        comm.Send(x.astype(np.float32), partner)


# %% rounds_what_it_adds
# says: rounded as float32 rounds
# thinks: What I add to a double may be a float, the double keeps its digits.
def recursive_doubling_allreduce(comm, x):
    rank, p = comm.Get_rank(), comm.Get_size()
    q = 1 << (p.bit_length() - 1)
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
        comm.Sendrecv(x, dest=rank ^ distance, recvbuf=got, source=rank ^ distance)
        x[:] = (x + got).astype(np.float32)
        distance *= 2
    if rank + q < p:
        comm.Send(x, dest=rank + q)


# %% short_arrays_need_no_sum
# says: Fewer numbers than ranks: short arrays, too
# thinks: An array shorter than the number of ranks cannot be shared out, so nothing is to be done.
def recursive_doubling_allreduce(comm, x):
    rank, p = comm.Get_rank(), comm.Get_size()
    if len(x) < p:
        return
    q = 1 << (p.bit_length() - 1)
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
        comm.Sendrecv(x, dest=rank ^ distance, recvbuf=got, source=rank ^ distance)
        x += got
        distance *= 2
    if rank + q < p:
        comm.Send(x, dest=rank + q)
