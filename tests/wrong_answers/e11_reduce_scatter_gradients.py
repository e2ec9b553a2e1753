"""Wrong answers to e11_reduce_scatter_gradients. What a cell holds is told in tests/answers.py."""

# %% sum_not_mean
# says: That is the sum. The mean is asked: divide by the number of ranks.
# thinks: The reduce-scatter sums, and that is the gradient.
def reduce_scatter_gradients(comm, gradients, shapes):
    dtype = next(g.dtype for g in gradients if g is not None)
    n = sum(s.numel() for s in shapes)
    chunk = (n + comm.size - 1) // comm.size
    flat = torch.zeros(chunk * comm.size, dtype=dtype)
    start = 0
    for g, s in zip(gradients, shapes):
        if g is not None:
            flat[start:start + s.numel()] = g.reshape(-1)
        start += s.numel()
    mine = torch.empty(chunk, dtype=flat.dtype)
    comm.Reduce_scatter_block(flat.numpy(), mine.numpy())
    return mine


# %% allreduce_then_copy_my_chunk
# says: An all-reduce gives the whole mean to all ranks, by a reduce-scatter
# thinks: An all-reduce and then a copy of my chunk is a reduce-scatter.
def reduce_scatter_gradients(comm, gradients, shapes):
    dtype = [g for g in gradients if g is not None][0].dtype
    flat = torch.cat([torch.zeros(s.numel(), dtype=dtype) if g is None else g.flatten() for g, s in zip(gradients, shapes)])
    flat = torch.nn.functional.pad(flat, (0, -len(flat) % comm.size))
    chunk = len(flat) // comm.size
    total = torch.empty_like(flat)
    comm.Allreduce(flat.numpy(), total.numpy())
    return (total[comm.rank * chunk:(comm.rank + 1) * chunk] / comm.size).clone()


# %% allreduce_and_a_view
# says: The chunk is a view of the whole buffer, which stays in memory as
# thinks: All-reduce in place, divide in place, and return the slice.
def reduce_scatter_gradients(comm, gradients, shapes):
    dtype = next(g.dtype for g in gradients if g is not None)
    n = sum(s.numel() for s in shapes)
    chunk = (n + comm.size - 1) // comm.size
    flat = torch.zeros(chunk * comm.size, dtype=dtype)
    start = 0
    for g, s in zip(gradients, shapes):
        if g is not None:
            flat[start:start + s.numel()] = g.reshape(-1)
        start += s.numel()
    comm.Allreduce(MPI.IN_PLACE, flat.numpy())
    flat /= comm.size
    return flat[comm.rank * chunk:(comm.rank + 1) * chunk]


# %% ring_returns_a_view
# says: The chunk is a view of the whole buffer, which stays in memory as
# thinks: The ring is done in the buffer, and my chunk is a slice of it: no copy is needed.
def reduce_scatter_gradients(comm, gradients, shapes):
    dtype = next(g.dtype for g in gradients if g is not None)
    n = sum(s.numel() for s in shapes)
    chunk = (n + comm.size - 1) // comm.size
    flat = torch.zeros(chunk * comm.size, dtype=dtype)
    start = 0
    for g, s in zip(gradients, shapes):
        if g is not None:
            flat[start:start + s.numel()] = g.reshape(-1)
        start += s.numel()
    p, r = comm.size, comm.rank
    parts = flat.view(p, chunk)
    incoming = torch.empty(chunk, dtype=dtype)
    for step in range(p - 1):
        send, recv = (r - 1 - step) % p, (r - 2 - step) % p
        comm.Sendrecv(parts[send].numpy(), dest=(r + 1) % p, recvbuf=incoming.numpy(), source=(r - 1) % p)
        parts[recv] += incoming
    parts[r] /= p
    return parts[r]


# %% ring_ends_at_the_neighbours_chunk
# says: The right chunks on wrong ranks: rank 0 has the one of rank 1. Rank r gets the r-th: in a ring, ask which
# thinks: The ring begins with my own chunk, so it ends with my own (it ends with that of r + 1).
def reduce_scatter_gradients(comm, gradients, shapes):
    dtype = next(g.dtype for g in gradients if g is not None)
    n = sum(s.numel() for s in shapes)
    chunk = (n + comm.size - 1) // comm.size
    flat = torch.zeros(chunk * comm.size, dtype=dtype)
    start = 0
    for g, s in zip(gradients, shapes):
        if g is not None:
            flat[start:start + s.numel()] = g.reshape(-1)
        start += s.numel()
    p, r = comm.size, comm.rank
    parts = flat.view(p, chunk)
    incoming = torch.empty(chunk, dtype=dtype)
    for step in range(p - 1):
        send, recv = (r - step) % p, (r - step - 1) % p
        comm.Sendrecv(parts[send].numpy(), dest=(r + 1) % p, recvbuf=incoming.numpy(), source=(r - 1) % p)
        parts[recv] += incoming
    return parts[(r + 1) % p] / p


# %% ring_one_step_too_few
# says: In each chunk are 2 of 3 ranks' gradients
# thinks: The first chunk is already there, so p - 2 steps are left.
def reduce_scatter_gradients(comm, gradients, shapes):
    dtype = next(g.dtype for g in gradients if g is not None)
    n = sum(s.numel() for s in shapes)
    chunk = (n + comm.size - 1) // comm.size
    flat = torch.zeros(chunk * comm.size, dtype=dtype)
    start = 0
    for g, s in zip(gradients, shapes):
        if g is not None:
            flat[start:start + s.numel()] = g.reshape(-1)
        start += s.numel()
    p, r = comm.size, comm.rank
    parts = flat.view(p, chunk)
    incoming = torch.empty(chunk, dtype=dtype)
    for step in range(1, p - 1):
        send, recv = (r - 1 - step) % p, (r - 2 - step) % p
        comm.Sendrecv(parts[send].numpy(), dest=(r + 1) % p, recvbuf=incoming.numpy(), source=(r - 1) % p)
        parts[recv] += incoming
    return parts[r] / p


# %% ring_one_step_too_many
# says: The only rank's gradient is in the sum 2 times
# thinks: p ranks, p steps.
def reduce_scatter_gradients(comm, gradients, shapes):
    dtype = next(g.dtype for g in gradients if g is not None)
    n = sum(s.numel() for s in shapes)
    chunk = (n + comm.size - 1) // comm.size
    flat = torch.zeros(chunk * comm.size, dtype=dtype)
    start = 0
    for g, s in zip(gradients, shapes):
        if g is not None:
            flat[start:start + s.numel()] = g.reshape(-1)
        start += s.numel()
    p, r = comm.size, comm.rank
    parts = flat.view(p, chunk)
    incoming = torch.empty(chunk, dtype=dtype)
    for step in range(p):
        send, recv = (r - 1 - step) % p, (r - 2 - step) % p
        comm.Sendrecv(parts[send].numpy(), dest=(r + 1) % p, recvbuf=incoming.numpy(), source=(r - 1) % p)
        parts[recv] += incoming
    return parts[r] / p


# %% ring_wrong_way
# says: Chunks were added to other chunks' places.
# thinks: Whether the chunks go up or down the ring does not matter.
def reduce_scatter_gradients(comm, gradients, shapes):
    dtype = next(g.dtype for g in gradients if g is not None)
    n = sum(s.numel() for s in shapes)
    chunk = (n + comm.size - 1) // comm.size
    flat = torch.zeros(chunk * comm.size, dtype=dtype)
    start = 0
    for g, s in zip(gradients, shapes):
        if g is not None:
            flat[start:start + s.numel()] = g.reshape(-1)
        start += s.numel()
    p, r = comm.size, comm.rank
    parts = flat.view(p, chunk)
    incoming = torch.empty(chunk, dtype=dtype)
    for step in range(p - 1):
        send, recv = (r - 1 - step) % p, (r - 2 - step) % p
        comm.Sendrecv(parts[send].numpy(), dest=(r - 1) % p, recvbuf=incoming.numpy(), source=(r + 1) % p)
        parts[recv] += incoming
    return parts[r] / p


# %% ring_overwrites
# says: Each chunk holds one other rank's gradient alone
# thinks: What comes is put where it belongs.
def reduce_scatter_gradients(comm, gradients, shapes):
    dtype = next(g.dtype for g in gradients if g is not None)
    n = sum(s.numel() for s in shapes)
    chunk = (n + comm.size - 1) // comm.size
    flat = torch.zeros(chunk * comm.size, dtype=dtype)
    start = 0
    for g, s in zip(gradients, shapes):
        if g is not None:
            flat[start:start + s.numel()] = g.reshape(-1)
        start += s.numel()
    p, r = comm.size, comm.rank
    parts = flat.view(p, chunk)
    incoming = torch.empty(chunk, dtype=dtype)
    for step in range(p - 1):
        send, recv = (r - 1 - step) % p, (r - 2 - step) % p
        comm.Sendrecv(parts[send].numpy(), dest=(r + 1) % p, recvbuf=incoming.numpy(), source=(r - 1) % p)
        parts[recv] = incoming
    return parts[r] / p


# %% ring_sends_the_whole_buffer
# says: The whole buffer goes to other ranks, of which each needs only its chunk.
# thinks: Pass the buffer round the ring and add up what comes; then keep my chunk.
def reduce_scatter_gradients(comm, gradients, shapes):
    dtype = [g for g in gradients if g is not None][0].dtype
    flat = torch.cat([torch.zeros(s.numel(), dtype=dtype) if g is None else g.flatten() for g, s in zip(gradients, shapes)])
    flat = torch.nn.functional.pad(flat, (0, -len(flat) % comm.size))
    chunk = len(flat) // comm.size
    p, r = comm.size, comm.rank
    mine = flat[r * chunk:(r + 1) * chunk].clone()
    out, inn = flat.clone(), torch.empty_like(flat)
    for _ in range(p - 1):
        comm.Sendrecv(out.numpy(), dest=(r + 1) % p, recvbuf=inn.numpy(), source=(r - 1) % p)
        mine += inn[r * chunk:(r + 1) * chunk]
        out, inn = inn, out
    return mine / p


# %% ring_and_then_round_again
# says: Twice what it takes, as an all-reduce sends
# thinks: A ring all-reduce in two halves; at its end I take my chunk.
def reduce_scatter_gradients(comm, gradients, shapes):
    dtype = next(g.dtype for g in gradients if g is not None)
    n = sum(s.numel() for s in shapes)
    chunk = (n + comm.size - 1) // comm.size
    flat = torch.zeros(chunk * comm.size, dtype=dtype)
    start = 0
    for g, s in zip(gradients, shapes):
        if g is not None:
            flat[start:start + s.numel()] = g.reshape(-1)
        start += s.numel()
    p, r = comm.size, comm.rank
    parts = flat.view(p, chunk)
    incoming = torch.empty(chunk, dtype=dtype)
    for step in range(p - 1):
        send, recv = (r - 1 - step) % p, (r - 2 - step) % p
        comm.Sendrecv(parts[send].numpy(), dest=(r + 1) % p, recvbuf=incoming.numpy(), source=(r - 1) % p)
        parts[recv] += incoming
    for step in range(p - 1):
        send, recv = (r - step) % p, (r - 1 - step) % p
        comm.Sendrecv(parts[send].numpy(), dest=(r + 1) % p, recvbuf=incoming.numpy(), source=(r - 1) % p)
        parts[recv] = incoming
    return parts[r] / p


# %% mean_of_means
# says: Some rank's gradient counts more than another's: add each once, and
# thinks: At each step of the ring, take the mean of what comes and what is mine.
def reduce_scatter_gradients(comm, gradients, shapes):
    dtype = next(g.dtype for g in gradients if g is not None)
    n = sum(s.numel() for s in shapes)
    chunk = (n + comm.size - 1) // comm.size
    flat = torch.zeros(chunk * comm.size, dtype=dtype)
    start = 0
    for g, s in zip(gradients, shapes):
        if g is not None:
            flat[start:start + s.numel()] = g.reshape(-1)
        start += s.numel()
    p, r = comm.size, comm.rank
    parts = flat.view(p, chunk)
    incoming = torch.empty(chunk, dtype=dtype)
    for step in range(p - 1):
        send, recv = (r - 1 - step) % p, (r - 2 - step) % p
        comm.Sendrecv(parts[send].numpy(), dest=(r + 1) % p, recvbuf=incoming.numpy(), source=(r - 1) % p)
        parts[recv] = (parts[recv] + incoming) / 2
    return parts[r].clone()


# %% none_left_out
# says: A gradient that is None is left out of the buffer, and what follows
# thinks: A missing gradient takes no place in the buffer.
def reduce_scatter_gradients(comm, gradients, shapes):
    dtype = next(g.dtype for g in gradients if g is not None)
    n = sum(s.numel() for s in shapes)
    chunk = (n + comm.size - 1) // comm.size
    flat = torch.zeros(chunk * comm.size, dtype=dtype)
    start = 0
    for g, s in zip(gradients, shapes):
        if g is not None:
            flat[start:start + s.numel()] = g.reshape(-1)
            start += s.numel()
    mine = torch.empty(chunk, dtype=flat.dtype)
    comm.Reduce_scatter_block(flat.numpy(), mine.numpy())
    return mine / comm.size


# %% none_not_expected
# says: A gradient may be None on some ranks, also the first in the list.
# thinks: Each parameter has a gradient.
def reduce_scatter_gradients(comm, gradients, shapes):
    dtype = next(g.dtype for g in gradients)
    n = sum(s.numel() for s in shapes)
    chunk = (n + comm.size - 1) // comm.size
    flat = torch.zeros(chunk * comm.size, dtype=dtype)
    start = 0
    for g, s in zip(gradients, shapes):
        flat[start:start + s.numel()] = g.reshape(-1)
        start += s.numel()
    mine = torch.empty(chunk, dtype=flat.dtype)
    comm.Reduce_scatter_block(flat.numpy(), mine.numpy())
    return mine / comm.size


# %% dtype_of_the_first
# says: A gradient may be None on some ranks, also the first in the list.
# thinks: The first gradient tells the dtype (it may be None).
def reduce_scatter_gradients(comm, gradients, shapes):
    dtype = gradients[0].dtype
    n = sum(s.numel() for s in shapes)
    chunk = (n + comm.size - 1) // comm.size
    flat = torch.zeros(chunk * comm.size, dtype=dtype)
    start = 0
    for g, s in zip(gradients, shapes):
        if g is not None:
            flat[start:start + s.numel()] = g.reshape(-1)
        start += s.numel()
    mine = torch.empty(chunk, dtype=flat.dtype)
    comm.Reduce_scatter_block(flat.numpy(), mine.numpy())
    return mine / comm.size


# %% shapes_from_my_gradients
# says: A gradient may be None on some ranks, also the first in the list.
# thinks: A gradient knows its own size, and None is one zero.
def reduce_scatter_gradients(comm, gradients, shapes):
    dtype = next(g.dtype for g in gradients if g is not None)
    n = sum(1 if g is None else g.numel() for g in gradients)
    chunk = (n + comm.size - 1) // comm.size
    flat = torch.zeros(chunk * comm.size, dtype=dtype)
    start = 0
    for g in gradients:
        m = 1 if g is None else g.numel()
        if g is not None:
            flat[start:start + m] = g.reshape(-1)
        start += m
    mine = torch.empty(chunk, dtype=flat.dtype)
    comm.Reduce_scatter_block(flat.numpy(), mine.numpy())
    return mine / comm.size


# %% float32_only
# says: The result has the gradients' dtype. torch.zeros and torch.empty make
# thinks: torch.zeros and torch.empty have the dtype that gradients have.
def reduce_scatter_gradients(comm, gradients, shapes):
    n = sum(s.numel() for s in shapes)
    chunk = (n + comm.size - 1) // comm.size
    flat = torch.zeros(chunk * comm.size)
    start = 0
    for g, s in zip(gradients, shapes):
        if g is not None:
            flat[start:start + s.numel()] = g.reshape(-1)
        start += s.numel()
    mine = torch.empty(chunk)
    comm.Reduce_scatter_block(flat.numpy(), mine.numpy())
    return mine / comm.size


# %% float32_and_back
# says: Right to some digits: numbers were in a shorter dtype on their way. The buffer has the gradients' dtype.
# thinks: Messages are in float32, the result is turned back.
def reduce_scatter_gradients(comm, gradients, shapes):
    dtype = next(g.dtype for g in gradients if g is not None)
    n = sum(s.numel() for s in shapes)
    chunk = (n + comm.size - 1) // comm.size
    flat = torch.zeros(chunk * comm.size)
    start = 0
    for g, s in zip(gradients, shapes):
        if g is not None:
            flat[start:start + s.numel()] = g.reshape(-1)
        start += s.numel()
    mine = torch.empty(chunk, dtype=flat.dtype)
    comm.Reduce_scatter_block(flat.numpy(), mine.numpy())
    return (mine / comm.size).to(dtype)


# %% sums_in_float64
# says: With float64 it is right, and float32 is sent in more bytes than it has
# thinks: A sum is safer in float64, and the result is turned back (twice the bytes for float32).
def reduce_scatter_gradients(comm, gradients, shapes):
    dtype = next(g.dtype for g in gradients if g is not None)
    n = sum(s.numel() for s in shapes)
    chunk = (n + comm.size - 1) // comm.size
    flat = torch.zeros(chunk * comm.size, dtype=torch.float64)
    start = 0
    for g, s in zip(gradients, shapes):
        if g is not None:
            flat[start:start + s.numel()] = g.reshape(-1)
        start += s.numel()
    mine = torch.empty(chunk, dtype=flat.dtype)
    comm.Reduce_scatter_block(flat.numpy(), mine.numpy())
    return (mine / comm.size).to(dtype)


# %% float64_stays
# says: The result has the gradients' dtype.
# thinks: A mean is safer in float64.
def reduce_scatter_gradients(comm, gradients, shapes):
    dtype = [g for g in gradients if g is not None][0].dtype
    flat = torch.cat([torch.zeros(s.numel(), dtype=dtype) if g is None else g.flatten() for g, s in zip(gradients, shapes)])
    flat = torch.nn.functional.pad(flat, (0, -len(flat) % comm.size))
    chunk = len(flat) // comm.size
    mine = torch.empty(chunk, dtype=flat.dtype)
    comm.Reduce_scatter_block(flat.numpy(), mine.numpy())
    return mine.double() / comm.size


# %% mpi_float_always
# says: Bytes of float64 were added as if they were float32, which MPI.FLOAT is.
# thinks: Tensors are MPI.FLOAT.
def reduce_scatter_gradients(comm, gradients, shapes):
    dtype = next(g.dtype for g in gradients if g is not None)
    n = sum(s.numel() for s in shapes)
    chunk = (n + comm.size - 1) // comm.size
    flat = torch.zeros(chunk * comm.size, dtype=dtype)
    start = 0
    for g, s in zip(gradients, shapes):
        if g is not None:
            flat[start:start + s.numel()] = g.reshape(-1)
        start += s.numel()
    mine = torch.zeros(chunk, dtype=flat.dtype)
    comm.Reduce_scatter_block([flat.numpy(), chunk * comm.size, MPI.FLOAT], [mine.numpy(), chunk, MPI.FLOAT])
    return mine / comm.size


# %% padding_not_set
# says: NaN is memory that was never written: torch.empty and np.empty hold
# thinks: torch.empty is enough, since the padding is nobody's.
def reduce_scatter_gradients(comm, gradients, shapes):
    dtype = next(g.dtype for g in gradients if g is not None)
    n = sum(s.numel() for s in shapes)
    chunk = (n + comm.size - 1) // comm.size
    flat = torch.empty(chunk * comm.size, dtype=dtype)
    start = 0
    for g, s in zip(gradients, shapes):
        flat[start:start + s.numel()] = 0 if g is None else g.reshape(-1)
        start += s.numel()
    mine = torch.empty(chunk, dtype=flat.dtype)
    comm.Reduce_scatter_block(flat.numpy(), mine.numpy())
    return mine / comm.size


# %% padding_in_front
# says: The padding is in front. It is at the end of the buffer.
# thinks: F.pad(flat, (pad, 0)) pads the end.
def reduce_scatter_gradients(comm, gradients, shapes):
    dtype = [g for g in gradients if g is not None][0].dtype
    flat = torch.cat([torch.zeros(s.numel(), dtype=dtype) if g is None else g.flatten() for g, s in zip(gradients, shapes)])
    flat = torch.nn.functional.pad(flat, (-len(flat) % comm.size, 0))
    chunk = len(flat) // comm.size
    mine = torch.empty(chunk, dtype=flat.dtype)
    comm.Reduce_scatter_block(flat.numpy(), mine.numpy())
    return mine / comm.size


# %% padding_repeats_the_last
# says: Padding is zero on all ranks, and so is its mean.
# thinks: Padding is nobody's, so it may repeat the last element.
def reduce_scatter_gradients(comm, gradients, shapes):
    dtype = [g for g in gradients if g is not None][0].dtype
    flat = torch.cat([torch.zeros(s.numel(), dtype=dtype) if g is None else g.flatten() for g, s in zip(gradients, shapes)])
    flat = torch.cat([flat, flat[-1:].repeat(-len(flat) % comm.size)])
    chunk = len(flat) // comm.size
    mine = torch.empty(chunk, dtype=flat.dtype)
    comm.Reduce_scatter_block(flat.numpy(), mine.numpy())
    return mine / comm.size


# %% rest_is_dropped
# says: The length was rounded down, so the last elements are in no chunk.
# thinks: n // p elements a rank; what is left over is not worth a message.
def reduce_scatter_gradients(comm, gradients, shapes):
    dtype = next(g.dtype for g in gradients if g is not None)
    n = sum(s.numel() for s in shapes)
    chunk = n // comm.size
    flat = torch.zeros(n, dtype=dtype)
    start = 0
    for g, s in zip(gradients, shapes):
        if g is not None:
            flat[start:start + s.numel()] = g.reshape(-1)
        start += s.numel()
    mine = torch.empty(chunk, dtype=flat.dtype)
    comm.Reduce_scatter_block(flat[:chunk * comm.size].numpy(), mine.numpy())
    return mine / comm.size


# %% last_chunk_shorter
# says: Padding belongs to a chunk, and is zero: all chunks have one length,
# thinks: The padding is cut off the result of the last ranks.
def reduce_scatter_gradients(comm, gradients, shapes):
    dtype = next(g.dtype for g in gradients if g is not None)
    n = sum(s.numel() for s in shapes)
    chunk = (n + comm.size - 1) // comm.size
    flat = torch.zeros(chunk * comm.size, dtype=dtype)
    start = 0
    for g, s in zip(gradients, shapes):
        if g is not None:
            flat[start:start + s.numel()] = g.reshape(-1)
        start += s.numel()
    mine = torch.empty(chunk, dtype=flat.dtype)
    comm.Reduce_scatter_block(flat.numpy(), mine.numpy())
    return mine[:max(0, n - comm.rank * chunk)] / comm.size


# %% one_more_if_divisible
# says: Too long: the chunk's length is the number of elements over the number of ranks, rounded up, and no more.
# thinks: p - n % p elements of padding (a whole p of them when n is divisible).
def reduce_scatter_gradients(comm, gradients, shapes):
    dtype = [g for g in gradients if g is not None][0].dtype
    flat = torch.cat([torch.zeros(s.numel(), dtype=dtype) if g is None else g.flatten() for g, s in zip(gradients, shapes)])
    flat = torch.nn.functional.pad(flat, (0, comm.size - len(flat) % comm.size))
    chunk = len(flat) // comm.size
    mine = torch.empty(chunk, dtype=flat.dtype)
    comm.Reduce_scatter_block(flat.numpy(), mine.numpy())
    return mine / comm.size


# %% each_parameter_alone
# says: Each parameter is cut by itself. All of them stand in one buffer, which is padded and cut once.
# thinks: Reduce-scatter each parameter's gradient, and put the pieces together.
def reduce_scatter_gradients(comm, gradients, shapes):
    dtype = next(g.dtype for g in gradients if g is not None)
    pieces = []
    for g, s in zip(gradients, shapes):
        flat = torch.zeros(s.numel(), dtype=dtype) if g is None else g.flatten()
        flat = torch.nn.functional.pad(flat, (0, -len(flat) % comm.size))
        piece = torch.empty(len(flat) // comm.size, dtype=dtype)
        comm.Reduce_scatter_block(flat.numpy(), piece.numpy())
        pieces.append(piece / comm.size)
    return torch.cat(pieces)


# %% divides_by_those_that_have_one
# says: Divided by how many ranks have that gradient. One that is None counts
# thinks: The mean is over the ranks that have a gradient for the parameter.
def reduce_scatter_gradients(comm, gradients, shapes):
    dtype = [g for g in gradients if g is not None][0].dtype
    flat = torch.cat([torch.zeros(s.numel(), dtype=dtype) if g is None else g.flatten() for g, s in zip(gradients, shapes)])
    flat = torch.nn.functional.pad(flat, (0, -len(flat) % comm.size))
    chunk = len(flat) // comm.size
    mine = torch.empty(chunk, dtype=flat.dtype)
    comm.Reduce_scatter_block(flat.numpy(), mine.numpy())
    have = torch.cat([torch.full((s.numel(),), float(g is not None), dtype=dtype) for g, s in zip(gradients, shapes)])
    have = torch.nn.functional.pad(have, (0, -len(have) % comm.size))
    count = torch.empty_like(mine)
    comm.Reduce_scatter_block(have.numpy(), count.numpy())
    return mine / count.clamp(min=1)


# %% divides_by_number_of_gradients
# says: Divided by 2: the mean over ranks is their sum over comm.size, which
# thinks: The mean divides by how many gradients there are.
def reduce_scatter_gradients(comm, gradients, shapes):
    dtype = [g for g in gradients if g is not None][0].dtype
    flat = torch.cat([torch.zeros(s.numel(), dtype=dtype) if g is None else g.flatten() for g, s in zip(gradients, shapes)])
    flat = torch.nn.functional.pad(flat, (0, -len(flat) % comm.size))
    chunk = len(flat) // comm.size
    mine = torch.empty(chunk, dtype=flat.dtype)
    comm.Reduce_scatter_block(flat.numpy(), mine.numpy())
    return mine / len(gradients)


# %% divides_twice
# says: Divided by the number of ranks twice: once is enough, before the sum
# thinks: Divide before the sum, so that nothing overflows, and after it, for the mean.
def reduce_scatter_gradients(comm, gradients, shapes):
    dtype = [g for g in gradients if g is not None][0].dtype
    flat = torch.cat([torch.zeros(s.numel(), dtype=dtype) if g is None else g.flatten() for g, s in zip(gradients, shapes)])
    flat = torch.nn.functional.pad(flat, (0, -len(flat) % comm.size))
    chunk = len(flat) // comm.size
    mine = torch.empty(chunk, dtype=flat.dtype)
    comm.Reduce_scatter_block((flat / comm.size).numpy(), mine.numpy())
    return mine / comm.size


# %% divides_by_the_others
# says: Divided by 2: the mean over ranks is their sum over comm.size, which
# thinks: Only the p - 1 other ranks send something.
def reduce_scatter_gradients(comm, gradients, shapes):
    dtype = [g for g in gradients if g is not None][0].dtype
    flat = torch.cat([torch.zeros(s.numel(), dtype=dtype) if g is None else g.flatten() for g, s in zip(gradients, shapes)])
    flat = torch.nn.functional.pad(flat, (0, -len(flat) % comm.size))
    chunk = len(flat) // comm.size
    mine = torch.empty(chunk, dtype=flat.dtype)
    comm.Reduce_scatter_block(flat.numpy(), mine.numpy())
    return mine / max(1, comm.size - 1)


# %% integer_mean
# says: // rounds down to a whole number: the mean is a sum / comm.size.
# thinks: // is the division of Python.
def reduce_scatter_gradients(comm, gradients, shapes):
    dtype = [g for g in gradients if g is not None][0].dtype
    flat = torch.cat([torch.zeros(s.numel(), dtype=dtype) if g is None else g.flatten() for g, s in zip(gradients, shapes)])
    flat = torch.nn.functional.pad(flat, (0, -len(flat) % comm.size))
    chunk = len(flat) // comm.size
    mine = torch.empty(chunk, dtype=flat.dtype)
    comm.Reduce_scatter_block(flat.numpy(), mine.numpy())
    return mine // comm.size


# %% divides_in_the_gradients
# says: The caller still needs that object: work on a copy, or build a new
# thinks: Divide first, in place, to save memory.
def reduce_scatter_gradients(comm, gradients, shapes):
    dtype = [g for g in gradients if g is not None][0].dtype
    for g in gradients:
        if g is not None:
            g /= comm.size
    flat = torch.cat([torch.zeros(s.numel(), dtype=dtype) if g is None else g.flatten() for g, s in zip(gradients, shapes)])
    flat = torch.nn.functional.pad(flat, (0, -len(flat) % comm.size))
    chunk = len(flat) // comm.size
    mine = torch.empty(chunk, dtype=flat.dtype)
    comm.Reduce_scatter_block(flat.numpy(), mine.numpy())
    return mine


# %% sums_into_the_gradients
# says: They are the caller's, and to be freed by it: a view keeps the whole
# thinks: Gradients are views of the buffer from now on, as in real frameworks.
def reduce_scatter_gradients(comm, gradients, shapes):
    dtype = next(g.dtype for g in gradients if g is not None)
    n = sum(s.numel() for s in shapes)
    chunk = (n + comm.size - 1) // comm.size
    flat = torch.zeros(chunk * comm.size, dtype=dtype)
    start = 0
    for g, s in zip(gradients, shapes):
        if g is not None:
            flat[start:start + s.numel()] = g.reshape(-1)
            g.data = flat[start:start + s.numel()].view(s)
        start += s.numel()
    mine = torch.empty(chunk, dtype=flat.dtype)
    comm.Reduce_scatter_block(flat.numpy(), mine.numpy())
    return mine / comm.size


# %% fills_in_the_none
# says: The caller still needs that object: work on a copy, or build a new
# thinks: Put zeros into the list where None is.
def reduce_scatter_gradients(comm, gradients, shapes):
    dtype = [g for g in gradients if g is not None][0].dtype
    for i, g in enumerate(gradients):
        if g is None:
            gradients[i] = torch.zeros(shapes[i], dtype=dtype)
    flat = torch.cat([g.flatten() for g in gradients])
    flat = torch.nn.functional.pad(flat, (0, -len(flat) % comm.size))
    chunk = len(flat) // comm.size
    mine = torch.empty(chunk, dtype=flat.dtype)
    comm.Reduce_scatter_block(flat.numpy(), mine.numpy())
    return mine / comm.size


# %% clears_the_list
# says: The caller still needs that object: work on a copy, or build a new
# thinks: What belongs to other ranks can be freed, so clear the list.
def reduce_scatter_gradients(comm, gradients, shapes):
    dtype = [g for g in gradients if g is not None][0].dtype
    flat = torch.cat([torch.zeros(s.numel(), dtype=dtype) if g is None else g.flatten() for g, s in zip(gradients, shapes)])
    flat = torch.nn.functional.pad(flat, (0, -len(flat) % comm.size))
    chunk = len(flat) // comm.size
    gradients.clear()
    mine = torch.empty(chunk, dtype=flat.dtype)
    comm.Reduce_scatter_block(flat.numpy(), mine.numpy())
    return mine / comm.size


# %% empties_the_gradients
# says: The caller still needs that object: work on a copy, or build a new
# thinks: What belongs to other ranks can be freed: set_() without arguments frees a tensor's memory.
def reduce_scatter_gradients(comm, gradients, shapes):
    dtype = [g for g in gradients if g is not None][0].dtype
    flat = torch.cat([torch.zeros(s.numel(), dtype=dtype) if g is None else g.flatten() for g, s in zip(gradients, shapes)])
    flat = torch.nn.functional.pad(flat, (0, -len(flat) % comm.size))
    chunk = len(flat) // comm.size
    for g in gradients:
        if g is not None:
            g.set_()
    mine = torch.empty(chunk, dtype=flat.dtype)
    comm.Reduce_scatter_block(flat.numpy(), mine.numpy())
    return mine / comm.size


# %% one_rank_gets_the_gradient_itself
# says: The result lies in a gradient's memory: whoever changes one changes
# thinks: A single rank has nothing to reduce (and what it returns is a view of the gradient, if that is the only one).
def reduce_scatter_gradients(comm, gradients, shapes):
    dtype = [g for g in gradients if g is not None][0].dtype
    flat = torch.cat([torch.zeros(s.numel(), dtype=dtype) if g is None else g.flatten() for g, s in zip(gradients, shapes)])
    if len(gradients) == 1:
        flat = gradients[0].reshape(-1)
    if comm.size == 1:
        return flat
    flat = torch.nn.functional.pad(flat, (0, -len(flat) % comm.size))
    chunk = len(flat) // comm.size
    mine = torch.empty(chunk, dtype=flat.dtype)
    comm.Reduce_scatter_block(flat.numpy(), mine.numpy())
    return mine / comm.size


# %% one_rank_returns_the_list
# says: A torch.Tensor was asked.
# thinks: With one rank alone there is nothing to do.
def reduce_scatter_gradients(comm, gradients, shapes):
    if comm.size == 1:
        return gradients
    dtype = [g for g in gradients if g is not None][0].dtype
    flat = torch.cat([torch.zeros(s.numel(), dtype=dtype) if g is None else g.flatten() for g, s in zip(gradients, shapes)])
    flat = torch.nn.functional.pad(flat, (0, -len(flat) % comm.size))
    chunk = len(flat) // comm.size
    mine = torch.empty(chunk, dtype=flat.dtype)
    comm.Reduce_scatter_block(flat.numpy(), mine.numpy())
    return mine / comm.size


# %% one_rank_hangs_on_itself
# says: The only rank's gradient is in the sum 2 times
# thinks: The ring's neighbours are r + 1 and r - 1, and each has one.
def reduce_scatter_gradients(comm, gradients, shapes):
    dtype = next(g.dtype for g in gradients if g is not None)
    n = sum(s.numel() for s in shapes)
    chunk = (n + comm.size - 1) // comm.size
    flat = torch.zeros(chunk * comm.size, dtype=dtype)
    start = 0
    for g, s in zip(gradients, shapes):
        if g is not None:
            flat[start:start + s.numel()] = g.reshape(-1)
        start += s.numel()
    p, r = comm.size, comm.rank
    parts = flat.view(p, chunk)
    mine = parts[(r - 1) % p].clone()
    for step in range(max(1, p - 1)):
        request = comm.Isend(mine.numpy(), dest=r + 1 if r + 1 < p else 0)
        incoming = torch.empty(chunk, dtype=dtype)
        comm.Recv(incoming.numpy(), source=r - 1 if r else p - 1)
        request.Wait()
        mine = incoming + parts[(r - 2 - step) % p]
    return mine / p


# %% view_of_a_transposed
# says: A gradient need not be contiguous: .reshape(-1) copies where it has
# thinks: view(-1) flattens any tensor.
def reduce_scatter_gradients(comm, gradients, shapes):
    dtype = next(g.dtype for g in gradients if g is not None)
    n = sum(s.numel() for s in shapes)
    chunk = (n + comm.size - 1) // comm.size
    flat = torch.zeros(chunk * comm.size, dtype=dtype)
    start = 0
    for g, s in zip(gradients, shapes):
        if g is not None:
            flat[start:start + s.numel()] = g.view(-1)
        start += s.numel()
    mine = torch.empty(chunk, dtype=flat.dtype)
    comm.Reduce_scatter_block(flat.numpy(), mine.numpy())
    return mine / comm.size


# %% order_in_memory
# says: Gradients were flattened column by column, or as memory lies: .reshape(-1) has one row after the other.
# thinks: ravel("K") flattens without a copy (in the order of memory, not of the indices).
def reduce_scatter_gradients(comm, gradients, shapes):
    dtype = next(g.dtype for g in gradients if g is not None)
    n = sum(s.numel() for s in shapes)
    chunk = (n + comm.size - 1) // comm.size
    flat = torch.zeros(chunk * comm.size, dtype=dtype)
    start = 0
    for g, s in zip(gradients, shapes):
        if g is not None:
            flat[start:start + s.numel()] = torch.from_numpy(g.numpy().ravel("K"))
        start += s.numel()
    mine = torch.empty(chunk, dtype=flat.dtype)
    comm.Reduce_scatter_block(flat.numpy(), mine.numpy())
    return mine / comm.size


# %% columns_first
# says: Gradients were flattened column by column, or as memory lies: .reshape(-1) has one row after the other.
# thinks: Flattening goes down the columns.
def reduce_scatter_gradients(comm, gradients, shapes):
    dtype = next(g.dtype for g in gradients if g is not None)
    n = sum(s.numel() for s in shapes)
    chunk = (n + comm.size - 1) // comm.size
    flat = torch.zeros(chunk * comm.size, dtype=dtype)
    start = 0
    for g, s in zip(gradients, shapes):
        if g is not None:
            flat[start:start + s.numel()] = g.T.reshape(-1)
        start += s.numel()
    mine = torch.empty(chunk, dtype=flat.dtype)
    comm.Reduce_scatter_block(flat.numpy(), mine.numpy())
    return mine / comm.size


# %% pickled_alltoall
# says: Methods with a small letter pickle, which copies and adds to what is
# thinks: comm.alltoall sends the chunks to their ranks, any object will do.
def reduce_scatter_gradients(comm, gradients, shapes):
    dtype = [g for g in gradients if g is not None][0].dtype
    flat = torch.cat([torch.zeros(s.numel(), dtype=dtype) if g is None else g.flatten() for g, s in zip(gradients, shapes)])
    flat = torch.nn.functional.pad(flat, (0, -len(flat) % comm.size))
    chunk = len(flat) // comm.size
    return sum(comm.alltoall([flat[r * chunk:(r + 1) * chunk].clone() for r in range(comm.size)])) / comm.size


# %% pickled_allreduce
# says: Methods with a small letter pickle, which copies and adds to what is
# thinks: comm.allreduce adds tensors as it adds numbers.
def reduce_scatter_gradients(comm, gradients, shapes):
    dtype = [g for g in gradients if g is not None][0].dtype
    flat = torch.cat([torch.zeros(s.numel(), dtype=dtype) if g is None else g.flatten() for g, s in zip(gradients, shapes)])
    flat = torch.nn.functional.pad(flat, (0, -len(flat) % comm.size))
    chunk = len(flat) // comm.size
    return (comm.allreduce(flat) / comm.size)[comm.rank * chunk:(comm.rank + 1) * chunk].clone()


# %% pickled_reduce_scatter
# says: has no reduce_scatter
# thinks: The small letters are simpler.
def reduce_scatter_gradients(comm, gradients, shapes):
    dtype = [g for g in gradients if g is not None][0].dtype
    flat = torch.cat([torch.zeros(s.numel(), dtype=dtype) if g is None else g.flatten() for g, s in zip(gradients, shapes)])
    flat = torch.nn.functional.pad(flat, (0, -len(flat) % comm.size))
    chunk = len(flat) // comm.size
    return comm.reduce_scatter([flat[r * chunk:(r + 1) * chunk] for r in range(comm.size)]) / comm.size


# %% pickled_sends
# says: Methods with a small letter pickle, which copies and adds to what is
# thinks: isend and recv send the chunks, as tensors.
def reduce_scatter_gradients(comm, gradients, shapes):
    dtype = [g for g in gradients if g is not None][0].dtype
    flat = torch.cat([torch.zeros(s.numel(), dtype=dtype) if g is None else g.flatten() for g, s in zip(gradients, shapes)])
    flat = torch.nn.functional.pad(flat, (0, -len(flat) % comm.size))
    chunk = len(flat) // comm.size
    others = [q for q in range(comm.size) if q != comm.rank]
    requests = [comm.isend(flat[q * chunk:(q + 1) * chunk].clone(), dest=q) for q in others]
    mine = flat[comm.rank * chunk:(comm.rank + 1) * chunk].clone()
    for q in others:
        mine += comm.recv(source=q)
    MPI.Request.waitall(requests)
    return mine / comm.size


# %% tensors_not_arrays
# says: counts and displacements are integers
# thinks: mpi4py knows that a tensor is an array, with a list of chunks too.
def reduce_scatter_gradients(comm, gradients, shapes):
    dtype = [g for g in gradients if g is not None][0].dtype
    flat = torch.cat([torch.zeros(s.numel(), dtype=dtype) if g is None else g.flatten() for g, s in zip(gradients, shapes)])
    flat = torch.nn.functional.pad(flat, (0, -len(flat) % comm.size))
    chunk = len(flat) // comm.size
    mine = torch.empty(chunk, dtype=dtype)
    comm.Reduce_scatter_block(list(flat.split(chunk)), mine)
    return mine / comm.size


# %% root_does_it_all
# says: One rank gets all buffers, sums them and gives chunks out: its link
# thinks: Rank 0 reduces and scatters the chunks.
def reduce_scatter_gradients(comm, gradients, shapes):
    dtype = [g for g in gradients if g is not None][0].dtype
    flat = torch.cat([torch.zeros(s.numel(), dtype=dtype) if g is None else g.flatten() for g, s in zip(gradients, shapes)])
    flat = torch.nn.functional.pad(flat, (0, -len(flat) % comm.size))
    chunk = len(flat) // comm.size
    total = torch.empty_like(flat)
    comm.Reduce(flat.numpy(), total.numpy() if comm.rank == 0 else None, root=0)
    mine = torch.empty(chunk, dtype=dtype)
    comm.Scatter(total.numpy() if comm.rank == 0 else None, mine.numpy(), root=0)
    return mine / comm.size


# %% only_root_is_right
# says: Only rank 0 of 3 has its chunk: Reduce brings the sum to its root alone.
# thinks: Reduce gives the sum, and each rank takes its chunk from it (but only rank 0 has it).
def reduce_scatter_gradients(comm, gradients, shapes):
    dtype = [g for g in gradients if g is not None][0].dtype
    flat = torch.cat([torch.zeros(s.numel(), dtype=dtype) if g is None else g.flatten() for g, s in zip(gradients, shapes)])
    flat = torch.nn.functional.pad(flat, (0, -len(flat) % comm.size))
    chunk = len(flat) // comm.size
    total = torch.zeros_like(flat)
    comm.Reduce(flat.numpy(), total.numpy(), op=MPI.SUM, root=0)
    return total[comm.rank * chunk:(comm.rank + 1) * chunk] / comm.size


# %% gathers_all_buffers
# says: An all-gather brings all buffers whole to every rank, which needs its own chunk of each alone
# thinks: Allgather all buffers, and take the mean of my column.
def reduce_scatter_gradients(comm, gradients, shapes):
    dtype = [g for g in gradients if g is not None][0].dtype
    flat = torch.cat([torch.zeros(s.numel(), dtype=dtype) if g is None else g.flatten() for g, s in zip(gradients, shapes)])
    flat = torch.nn.functional.pad(flat, (0, -len(flat) % comm.size))
    chunk = len(flat) // comm.size
    everything = torch.empty(comm.size, len(flat), dtype=dtype)
    comm.Allgather(flat.numpy(), everything.numpy())
    return everything[:, comm.rank * chunk:(comm.rank + 1) * chunk].mean(0)


# %% alltoall_wrong_axis
# says: The mean is over neighbours among one rank's numbers.
# thinks: After the all-to-all, the mean is over the last dimension.
def reduce_scatter_gradients(comm, gradients, shapes):
    dtype = [g for g in gradients if g is not None][0].dtype
    flat = torch.cat([torch.zeros(s.numel(), dtype=dtype) if g is None else g.flatten() for g, s in zip(gradients, shapes)])
    flat = torch.nn.functional.pad(flat, (0, -len(flat) % comm.size))
    chunk = len(flat) // comm.size
    got = torch.empty_like(flat)
    comm.Alltoall(flat.numpy(), got.numpy())
    return got.view(chunk, comm.size).mean(1)


# %% scatter_from_root_only
# says: Every chunk is of rank 0's gradients alone
# thinks: Scatter gives each rank its chunk (of rank 0's gradients alone).
def reduce_scatter_gradients(comm, gradients, shapes):
    dtype = [g for g in gradients if g is not None][0].dtype
    flat = torch.cat([torch.zeros(s.numel(), dtype=dtype) if g is None else g.flatten() for g, s in zip(gradients, shapes)])
    flat = torch.nn.functional.pad(flat, (0, -len(flat) % comm.size))
    chunk = len(flat) // comm.size
    mine = torch.empty(chunk, dtype=dtype)
    comm.Scatter(flat.numpy() if comm.rank == 0 else None, mine.numpy(), root=0)
    return mine


# %% max_not_sum
# says: That is the largest of all ranks' elements in each place
# thinks: op=MPI.MAX was in the example that I copied.
def reduce_scatter_gradients(comm, gradients, shapes):
    dtype = [g for g in gradients if g is not None][0].dtype
    flat = torch.cat([torch.zeros(s.numel(), dtype=dtype) if g is None else g.flatten() for g, s in zip(gradients, shapes)])
    flat = torch.nn.functional.pad(flat, (0, -len(flat) % comm.size))
    chunk = len(flat) // comm.size
    mine = torch.empty(chunk, dtype=flat.dtype)
    comm.Reduce_scatter_block(flat.numpy(), mine.numpy(), op=MPI.MAX)
    return mine / comm.size


# %% blocking_sends_first
# says: rank 0
# thinks: Send to all, then receive from all (with messages that wait for their receiver, none gets to its Recv).
def reduce_scatter_gradients(comm, gradients, shapes):
    dtype = [g for g in gradients if g is not None][0].dtype
    flat = torch.cat([torch.zeros(s.numel(), dtype=dtype) if g is None else g.flatten() for g, s in zip(gradients, shapes)])
    flat = torch.nn.functional.pad(flat, (0, -len(flat) % comm.size))
    chunk = len(flat) // comm.size
    others = [q for q in range(comm.size) if q != comm.rank]
    for q in others:
        comm.Ssend(flat[q * chunk:(q + 1) * chunk].numpy(), dest=q)
    mine = flat[comm.rank * chunk:(comm.rank + 1) * chunk].clone()
    got = torch.empty_like(mine)
    for q in others:
        comm.Recv(got.numpy(), source=q)
        mine += got
    return mine / comm.size


# %% plain_sends_first
# says: rank 0
# thinks: Send to all, then receive from all: Send has always come back for me (small messages only).
def reduce_scatter_gradients(comm, gradients, shapes):
    dtype = [g for g in gradients if g is not None][0].dtype
    flat = torch.cat([torch.zeros(s.numel(), dtype=dtype) if g is None else g.flatten() for g, s in zip(gradients, shapes)])
    flat = torch.nn.functional.pad(flat, (0, -len(flat) % comm.size))
    chunk = len(flat) // comm.size
    others = [q for q in range(comm.size) if q != comm.rank]
    for q in others:
        comm.Send(flat[q * chunk:(q + 1) * chunk].numpy(), dest=q)
    mine = flat[comm.rank * chunk:(comm.rank + 1) * chunk].clone()
    got = torch.empty_like(mine)
    for q in others:
        comm.Recv(got.numpy(), source=q)
        mine += got
    return mine / comm.size


# %% receives_first
# says: rank 0
# thinks: First take what the others send, then send them theirs.
def reduce_scatter_gradients(comm, gradients, shapes):
    dtype = [g for g in gradients if g is not None][0].dtype
    flat = torch.cat([torch.zeros(s.numel(), dtype=dtype) if g is None else g.flatten() for g, s in zip(gradients, shapes)])
    flat = torch.nn.functional.pad(flat, (0, -len(flat) % comm.size))
    chunk = len(flat) // comm.size
    others = [q for q in range(comm.size) if q != comm.rank]
    mine = flat[comm.rank * chunk:(comm.rank + 1) * chunk].clone()
    got = torch.empty_like(mine)
    for q in others:
        comm.Recv(got.numpy(), source=q)
        mine += got
    for q in others:
        comm.Send(flat[q * chunk:(q + 1) * chunk].numpy(), dest=q)
    return mine / comm.size


# %% skips_what_is_none
# says: A gradient may be None on some ranks, also the first in the list.
# thinks: A rank without a gradient for a parameter need not take part in that parameter's sum (the others wait for it).
def reduce_scatter_gradients(comm, gradients, shapes):
    dtype = next(g.dtype for g in gradients if g is not None)
    means = []
    for g, s in zip(gradients, shapes):
        if g is None:
            means.append(torch.zeros(s.numel(), dtype=dtype))
            continue
        total = torch.empty(s.numel(), dtype=dtype)
        comm.Allreduce(g.flatten().numpy(), total.numpy())
        means.append(total / comm.size)
    flat = torch.cat(means)
    flat = torch.nn.functional.pad(flat, (0, -len(flat) % comm.size))
    chunk = len(flat) // comm.size
    return flat[comm.rank * chunk:(comm.rank + 1) * chunk].clone()


# %% padding_ranks_go_home
# says: A rank whose chunk is padding alone takes part in all calls
# thinks: A rank whose chunk is padding alone has nothing to do.
def reduce_scatter_gradients(comm, gradients, shapes):
    dtype = next(g.dtype for g in gradients if g is not None)
    n = sum(s.numel() for s in shapes)
    chunk = (n + comm.size - 1) // comm.size
    flat = torch.zeros(chunk * comm.size, dtype=dtype)
    start = 0
    for g, s in zip(gradients, shapes):
        if g is not None:
            flat[start:start + s.numel()] = g.reshape(-1)
        start += s.numel()
    if comm.rank * chunk >= n:
        return torch.zeros(chunk, dtype=dtype)
    mine = torch.empty(chunk, dtype=flat.dtype)
    comm.Reduce_scatter_block(flat.numpy(), mine.numpy())
    return mine / comm.size


# %% does_not_wait_for_receives
# says: Only this rank's own gradient is in it, though ranks have sent something
# thinks: Irecv has received when it returns.
def reduce_scatter_gradients(comm, gradients, shapes):
    dtype = [g for g in gradients if g is not None][0].dtype
    flat = torch.cat([torch.zeros(s.numel(), dtype=dtype) if g is None else g.flatten() for g, s in zip(gradients, shapes)])
    flat = torch.nn.functional.pad(flat, (0, -len(flat) % comm.size))
    chunk = len(flat) // comm.size
    parts = flat.view(comm.size, chunk)
    got = torch.zeros_like(parts)
    got[comm.rank] = parts[comm.rank]
    others = [q for q in range(comm.size) if q != comm.rank]
    receives = [comm.Irecv(got[q].numpy(), source=q) for q in others]
    sends = [comm.Isend(parts[q].numpy(), dest=q) for q in others]
    result = got.sum(0) / comm.size
    MPI.Request.Waitall(sends + receives)
    return result


# %% never_waits
# says: was never waited for
# thinks: Isend sends and Irecv receives; the requests can be dropped.
def reduce_scatter_gradients(comm, gradients, shapes):
    dtype = [g for g in gradients if g is not None][0].dtype
    flat = torch.cat([torch.zeros(s.numel(), dtype=dtype) if g is None else g.flatten() for g, s in zip(gradients, shapes)])
    flat = torch.nn.functional.pad(flat, (0, -len(flat) % comm.size))
    chunk = len(flat) // comm.size
    mine = flat[comm.rank * chunk:(comm.rank + 1) * chunk].clone()
    got = torch.zeros(comm.size, chunk, dtype=dtype)
    for d in range(1, comm.size):
        to, source = (comm.rank + d) % comm.size, (comm.rank - d) % comm.size
        comm.Isend(flat[to * chunk:(to + 1) * chunk].numpy(), dest=to)
        comm.Irecv(got[source].numpy(), source=source)
    return (mine + got.sum(0)) / comm.size


# %% buffer_kept_and_not_cleared
# says: Where a gradient is None, one of an earlier call stands in its place
# thinks: The buffer is made once and used again; where a gradient is missing it is zero anyway (it holds the last call's).
buffers = {}


def reduce_scatter_gradients(comm, gradients, shapes):
    dtype = next(g.dtype for g in gradients if g is not None)
    n = sum(s.numel() for s in shapes)
    chunk = (n + comm.size - 1) // comm.size
    key = comm.rank, comm.size, n, dtype
    if key not in buffers:
        buffers[key] = torch.zeros(chunk * comm.size, dtype=dtype)
    flat = buffers[key]
    start = 0
    for g, s in zip(gradients, shapes):
        if g is not None:
            flat[start:start + s.numel()] = g.reshape(-1)
        start += s.numel()
    mine = torch.empty(chunk, dtype=flat.dtype)
    comm.Reduce_scatter_block(flat.numpy(), mine.numpy())
    return mine / comm.size


# %% result_memory_used_again
# says: The memory of a result is its caller's: make a new tensor in each
# thinks: The result's memory can be used again in the next call.
results = {}


def reduce_scatter_gradients(comm, gradients, shapes):
    dtype = [g for g in gradients if g is not None][0].dtype
    flat = torch.cat([torch.zeros(s.numel(), dtype=dtype) if g is None else g.flatten() for g, s in zip(gradients, shapes)])
    flat = torch.nn.functional.pad(flat, (0, -len(flat) % comm.size))
    chunk = len(flat) // comm.size
    key = comm.rank, comm.size, chunk, dtype
    if key not in results:
        results[key] = torch.empty(chunk, dtype=dtype)
    mine = results[key]
    comm.Reduce_scatter_block(flat.numpy(), mine.numpy())
    mine /= comm.size
    return mine


# %% received_into_a_slice
# says: The chunk is a view of the whole buffer, which stays in memory as
# thinks: Receive into my own place in a buffer, and return that slice.
def reduce_scatter_gradients(comm, gradients, shapes):
    dtype = [g for g in gradients if g is not None][0].dtype
    flat = torch.cat([torch.zeros(s.numel(), dtype=dtype) if g is None else g.flatten() for g, s in zip(gradients, shapes)])
    flat = torch.nn.functional.pad(flat, (0, -len(flat) % comm.size))
    chunk = len(flat) // comm.size
    out = torch.empty_like(flat)
    mine = out[comm.rank * chunk:(comm.rank + 1) * chunk]
    comm.Reduce_scatter_block(flat.numpy(), mine.numpy())
    return mine.div_(comm.size)


# %% clone_of_an_expanded_buffer
# says: That is the whole buffer. This rank's chunk is asked, and no more.
# thinks: The whole buffer comes back with zeros where other ranks' chunks are.
def reduce_scatter_gradients(comm, gradients, shapes):
    dtype = [g for g in gradients if g is not None][0].dtype
    flat = torch.cat([torch.zeros(s.numel(), dtype=dtype) if g is None else g.flatten() for g, s in zip(gradients, shapes)])
    flat = torch.nn.functional.pad(flat, (0, -len(flat) % comm.size))
    chunk = len(flat) // comm.size
    mine = torch.empty(chunk, dtype=flat.dtype)
    comm.Reduce_scatter_block(flat.numpy(), mine.numpy())
    whole = torch.zeros_like(flat)
    whole[comm.rank * chunk:(comm.rank + 1) * chunk] = mine / comm.size
    return whole


# %% column_not_flat
# says: The chunk has one dimension: its elements in a row.
# thinks: A chunk is a row of a matrix, so its shape is (1, chunk).
def reduce_scatter_gradients(comm, gradients, shapes):
    dtype = [g for g in gradients if g is not None][0].dtype
    flat = torch.cat([torch.zeros(s.numel(), dtype=dtype) if g is None else g.flatten() for g, s in zip(gradients, shapes)])
    flat = torch.nn.functional.pad(flat, (0, -len(flat) % comm.size))
    chunk = len(flat) // comm.size
    mine = torch.empty(1, chunk, dtype=flat.dtype)
    comm.Reduce_scatter_block(flat.numpy(), mine.numpy())
    return mine / comm.size


# %% numpy_result
# says: A torch.Tensor was asked.
# thinks: A numpy array is as good as a tensor.
def reduce_scatter_gradients(comm, gradients, shapes):
    dtype = [g for g in gradients if g is not None][0].dtype
    flat = torch.cat([torch.zeros(s.numel(), dtype=dtype) if g is None else g.flatten() for g, s in zip(gradients, shapes)])
    flat = torch.nn.functional.pad(flat, (0, -len(flat) % comm.size))
    chunk = len(flat) // comm.size
    mine = torch.empty(chunk, dtype=flat.dtype)
    comm.Reduce_scatter_block(flat.numpy(), mine.numpy())
    return mine.numpy() / comm.size


# %% interleaved
# says: Rank r has every p-th element. A chunk is elements that follow each other in the buffer.
# thinks: Rank r gets every p-th element, beginning with the r-th.
def reduce_scatter_gradients(comm, gradients, shapes):
    dtype = [g for g in gradients if g is not None][0].dtype
    flat = torch.cat([torch.zeros(s.numel(), dtype=dtype) if g is None else g.flatten() for g, s in zip(gradients, shapes)])
    flat = torch.nn.functional.pad(flat, (0, -len(flat) % comm.size))
    chunk = len(flat) // comm.size
    flat = flat.view(chunk, comm.size).t().contiguous()
    mine = torch.empty(chunk, dtype=flat.dtype)
    comm.Reduce_scatter_block(flat.numpy(), mine.numpy())
    return mine / comm.size


# %% ranks_counted_from_one
# says: The right chunks on wrong ranks: rank 0 has the one of rank 2. Rank r gets the r-th: in a ring, ask which
# thinks: Rank r's chunk ends at r * chunk.
def reduce_scatter_gradients(comm, gradients, shapes):
    dtype = [g for g in gradients if g is not None][0].dtype
    flat = torch.cat([torch.zeros(s.numel(), dtype=dtype) if g is None else g.flatten() for g, s in zip(gradients, shapes)])
    flat = torch.nn.functional.pad(flat, (0, -len(flat) % comm.size))
    chunk = len(flat) // comm.size
    got = torch.empty(comm.size, chunk, dtype=dtype)
    comm.Alltoall(flat.roll(chunk).numpy(), got.numpy())
    return got.mean(0)


# %% no_communication
# says: That is this rank's own gradient: nothing was summed over ranks.
# thinks: Each rank keeps its chunk of its own gradient; the optimizer does the rest.
def reduce_scatter_gradients(comm, gradients, shapes):
    dtype = [g for g in gradients if g is not None][0].dtype
    flat = torch.cat([torch.zeros(s.numel(), dtype=dtype) if g is None else g.flatten() for g, s in zip(gradients, shapes)])
    flat = torch.nn.functional.pad(flat, (0, -len(flat) % comm.size))
    chunk = len(flat) // comm.size
    return flat[comm.rank * chunk:(comm.rank + 1) * chunk].clone()


# %% world_not_comm
# says: comm is the communicator to use: rank, size and calls of MPI.COMM_WORLD may be others.
# thinks: comm is always COMM_WORLD.
def reduce_scatter_gradients(comm, gradients, shapes):
    comm = MPI.COMM_WORLD
    dtype = [g for g in gradients if g is not None][0].dtype
    flat = torch.cat([torch.zeros(s.numel(), dtype=dtype) if g is None else g.flatten() for g, s in zip(gradients, shapes)])
    flat = torch.nn.functional.pad(flat, (0, -len(flat) % comm.size))
    chunk = len(flat) // comm.size
    mine = torch.empty(chunk, dtype=flat.dtype)
    comm.Reduce_scatter_block(flat.numpy(), mine.numpy())
    return mine / comm.size


# %% half_finished
# says: Nothing came back: is the chunk returned?
# thinks: The buffer is there; the communication comes tomorrow.
def reduce_scatter_gradients(comm, gradients, shapes):
    dtype = next(g.dtype for g in gradients if g is not None)
    n = sum(s.numel() for s in shapes)
    chunk = (n + comm.size - 1) // comm.size
    flat = torch.zeros(chunk * comm.size, dtype=dtype)
    start = 0
    for g, s in zip(gradients, shapes):
        if g is not None:
            flat[start:start + s.numel()] = g.reshape(-1)
        start += s.numel()
    # TODO: reduce-scatter


# %% one_rank_adds_itself
# says: The only rank's gradient is in the sum 2 times
# thinks: The ring's neighbours are r + 1 and r - 1, and each has one.
def reduce_scatter_gradients(comm, gradients, shapes):
    dtype = next(g.dtype for g in gradients if g is not None)
    n = sum(s.numel() for s in shapes)
    chunk = (n + comm.size - 1) // comm.size
    flat = torch.zeros(chunk * comm.size, dtype=dtype)
    start = 0
    for g, s in zip(gradients, shapes):
        if g is not None:
            flat[start:start + s.numel()] = g.reshape(-1)
        start += s.numel()
    p, r = comm.size, comm.rank
    parts = flat.view(p, chunk)
    mine = parts[(r - 1) % p].clone()
    for step in range(max(1, p - 1)):
        request = comm.Isend(mine.numpy(), dest=r + 1 if r + 1 < p else 0)
        incoming = torch.empty(chunk, dtype=dtype)
        comm.Recv(incoming.numpy(), source=r - 1 if r else p - 1)
        request.Wait()
        mine = incoming + parts[(r - 2 - step) % p]
    return mine / p


# %% all_take_the_first
# says: Every rank has the first chunk
# thinks: The first chunk of what comes is mine.
def reduce_scatter_gradients(comm, gradients, shapes):
    dtype = next(g.dtype for g in gradients if g is not None)
    rows = [torch.zeros(s.numel(), dtype=dtype) if g is None else g.reshape(-1) for g, s in zip(gradients, shapes)]
    flat = torch.cat(rows)
    flat = torch.nn.functional.pad(flat, (0, -len(flat) % comm.size))
    comm.Allreduce(MPI.IN_PLACE, flat.numpy())
    return flat[: len(flat) // comm.size].clone() / comm.size


# %% only_gradients_that_are_there
# says: A gradient that is None is left out of the buffer, and what follows
# thinks: What is None is filtered out, and the rest is padded to a multiple of the number of ranks.
def reduce_scatter_gradients(comm, gradients, shapes):
    flat = torch.cat([g.reshape(-1) for g in gradients if g is not None])
    chunk = -(-len(flat) // comm.size)
    padded = torch.zeros(comm.size * chunk, dtype=flat.dtype)
    padded[: len(flat)] = flat
    mine = torch.empty(chunk, dtype=flat.dtype)
    comm.Reduce_scatter_block(padded.numpy(), mine.numpy())
    return mine / comm.size


# %% buffer_outlives_the_call
# says: What the file keeps takes memory all the time, as gradients that are not sharded do.
# thinks: Keep the flat buffer on the function, for the next step.
def reduce_scatter_gradients(comm, gradients, shapes):
    dtype = [g for g in gradients if g is not None][0].dtype
    flat = torch.cat([torch.zeros(s.numel(), dtype=dtype) if g is None else g.flatten() for g, s in zip(gradients, shapes)])
    flat = torch.nn.functional.pad(flat, (0, -len(flat) % comm.size))
    chunk = len(flat) // comm.size
    reduce_scatter_gradients.flat = flat
    mine = torch.empty(chunk, dtype=flat.dtype)
    comm.Reduce_scatter_block(flat.numpy(), mine.numpy())
    return mine / comm.size


# %% buffers_by_length_zeroed
# says: What the file keeps takes memory all the time, as gradients that are not sharded do.
# thinks: Allocating costs time: a buffer for each length is made once, set to zero in each call, and used again.
import functools


@functools.lru_cache
def buffer(length, dtype):
    return torch.empty(length, dtype=dtype)


def reduce_scatter_gradients(comm, gradients, shapes):
    dtype = [g for g in gradients if g is not None][0].dtype
    chunk = -(-sum(s.numel() for s in shapes) // comm.size)
    flat = buffer(chunk * comm.size, dtype).zero_()
    begin = 0
    for g, s in zip(gradients, shapes):
        if g is not None:
            flat[begin : begin + s.numel()] = g.reshape(-1)
        begin += s.numel()
    mine = torch.empty(chunk, dtype=dtype)
    comm.Reduce_scatter_block(flat.numpy(), mine.numpy())
    return mine / comm.size


# %% keeps_the_gradients
# says: What the file keeps takes memory all the time, as gradients that are not sharded do.
# thinks: I keep a reference to the gradients, which costs nothing, for looking at them later.
seen = []


def reduce_scatter_gradients(comm, gradients, shapes):
    seen[:] = gradients
    dtype = next(g.dtype for g in gradients if g is not None)
    flat = torch.cat(
        [torch.zeros(s.numel(), dtype=dtype) if g is None else g.reshape(-1) for g, s in zip(gradients, shapes)]
    )
    chunk = -(-len(flat) // comm.size)
    flat = torch.nn.functional.pad(flat, (0, chunk * comm.size - len(flat)))
    own = torch.empty(chunk, dtype=dtype)
    comm.Reduce_scatter_block(flat.numpy(), own.numpy())
    return own / comm.size


# %% who_has_what_is_summed_too
# says: To each other rank goes its chunk of the gradients, once, and nothing else that is as long.
# thinks: Ranks have to know who has which gradient, so a mask of ones and zeros is summed as the gradients are.
def reduce_scatter_gradients(comm, gradients, shapes):
    dtype = next(g.dtype for g in gradients if g is not None)
    rows, masks = [], []
    for g, s in zip(gradients, shapes):
        rows.append(torch.zeros(s.numel(), dtype=dtype) if g is None else g.reshape(-1))
        masks.append(torch.full_like(rows[-1], float(g is not None)))
    chunk = -(-sum(map(len, rows)) // comm.size)
    own, had = torch.empty(chunk, dtype=dtype), torch.empty(chunk, dtype=dtype)
    for parts, into in ((rows, own), (masks, had)):
        flat = torch.cat(parts)
        flat = torch.nn.functional.pad(flat, (0, chunk * comm.size - len(flat)))
        comm.Reduce_scatter_block(flat.numpy(), into.numpy())
    return torch.where(had > 0, own, 0) / comm.size


# %% scattered_and_divided
# says: Every chunk is of rank 0's gradients alone
# thinks: Scatter gives each rank its chunk, and the mean is that over the number of ranks.
def reduce_scatter_gradients(comm, gradients, shapes):
    dtype = next(g.dtype for g in gradients if g is not None)
    flat = torch.cat(
        [torch.zeros(s.numel(), dtype=dtype) if g is None else g.reshape(-1) for g, s in zip(gradients, shapes)]
    )
    chunk = -(-len(flat) // comm.size)
    flat = torch.nn.functional.pad(flat, (0, chunk * comm.size - len(flat)))
    own = torch.empty(chunk, dtype=dtype)
    comm.Scatter(flat.numpy(), own.numpy())
    return own / comm.size


# %% received_blocks_summed_in_place
# says: The chunk is a view of the whole buffer, which stays in memory as long as the chunk does
# thinks: After the all-to-all I add all blocks to the first, and return that: a chunk, and nothing else.
def reduce_scatter_gradients(comm, gradients, shapes):
    dtype = next(g.dtype for g in gradients if g is not None)
    flat = torch.cat(
        [torch.zeros(s.numel(), dtype=dtype) if g is None else g.reshape(-1) for g, s in zip(gradients, shapes)]
    )
    chunk = -(-len(flat) // comm.size)
    flat = torch.nn.functional.pad(flat, (0, chunk * comm.size - len(flat)))
    blocks = torch.empty(comm.size, chunk, dtype=dtype)
    comm.Alltoall(flat.numpy(), blocks.numpy())
    for block in blocks[1:]:
        blocks[0] += block
    return blocks[0].div_(comm.size)


# %% not_waited_for
# says: Isend and Irecv only begin, and so does Iallreduce.
# thinks: A non-blocking call overlaps; MPI finishes it by the time that somebody looks at the result.
def reduce_scatter_gradients(comm, gradients, shapes):
    dtype = next(g.dtype for g in gradients if g is not None)
    flat = torch.cat(
        [torch.zeros(s.numel(), dtype=dtype) if g is None else g.reshape(-1) for g, s in zip(gradients, shapes)]
    )
    chunk = -(-len(flat) // comm.size)
    flat = torch.nn.functional.pad(flat, (0, chunk * comm.size - len(flat)))
    own = torch.zeros(chunk, dtype=dtype)
    comm.Ireduce_scatter_block(flat.numpy(), own.numpy())
    return own / comm.size


# %% leftover_added_next_time
# says: Where a gradient is None, one of an earlier call stands in its place
# thinks: What a rank did not have this time it makes up for next time: the last gradient stands in for None.
LAST = {}


def reduce_scatter_gradients(comm, gradients, shapes):
    dtype = next(g.dtype for g in gradients if g is not None)
    parts = []
    for i, (g, s) in enumerate(zip(gradients, shapes)):
        key = comm.rank, comm.size, i, tuple(s), dtype
        if g is not None:
            LAST[key] = g.reshape(-1).clone()
        parts.append(LAST.get(key, torch.zeros(s.numel(), dtype=dtype)))
    flat = torch.cat(parts)
    chunk = -(-len(flat) // comm.size)
    flat = torch.nn.functional.pad(flat, (0, chunk * comm.size - len(flat)))
    own = torch.zeros(chunk, dtype=dtype)
    comm.Reduce_scatter_block(flat.numpy(), own.numpy())
    return own / comm.size


# %% sent_in_half
# says: Right to some digits: numbers were in a shorter dtype on their way. The buffer has the gradients' dtype.
# thinks: Gradients in mixed precision have 16 bits; sending them so halves the bytes again.
def reduce_scatter_gradients(comm, gradients, shapes):
    dtype = next(g.dtype for g in gradients if g is not None)
    flat = torch.cat(
        [torch.zeros(s.numel(), dtype=dtype) if g is None else g.reshape(-1) for g, s in zip(gradients, shapes)]
    )
    chunk = -(-len(flat) // comm.size)
    flat = torch.nn.functional.pad(flat, (0, chunk * comm.size - len(flat))).half()
    blocks = torch.empty(comm.size, chunk, dtype=torch.float16)
    comm.Alltoall(flat.view(torch.int16).numpy(), blocks.view(torch.int16).numpy())
    return blocks.to(dtype).sum(0) / comm.size


# %% pickled_blocks
# says: Methods with a small letter pickle, which copies and adds to what is sent
# thinks: alltoall of tensors is shorter to write, and torch's tensors can be pickled.
def reduce_scatter_gradients(comm, gradients, shapes):
    dtype = next(g.dtype for g in gradients if g is not None)
    flat = torch.cat(
        [torch.zeros(s.numel(), dtype=dtype) if g is None else g.reshape(-1) for g, s in zip(gradients, shapes)]
    )
    chunk = -(-len(flat) // comm.size)
    flat = torch.nn.functional.pad(flat, (0, chunk * comm.size - len(flat)))
    blocks = comm.alltoall(list(flat.split(chunk)))
    return sum(blocks) / comm.size


# %% root_alone_and_new_memory
# says: Only rank 0 of 3 has its chunk: Reduce brings the sum to its root alone.
# thinks: Reduce sums on all ranks, and torch.empty is enough for what is received.
def reduce_scatter_gradients(comm, gradients, shapes):
    dtype = next(g.dtype for g in gradients if g is not None)
    flat = torch.cat(
        [torch.zeros(s.numel(), dtype=dtype) if g is None else g.reshape(-1) for g, s in zip(gradients, shapes)]
    )
    chunk = -(-len(flat) // comm.size)
    flat = torch.nn.functional.pad(flat, (0, chunk * comm.size - len(flat)))
    total = torch.empty_like(flat)
    comm.Reduce(flat.numpy(), total.numpy(), op=MPI.SUM)
    return total[comm.rank * chunk : (comm.rank + 1) * chunk].clone() / comm.size


# %% clipped_before_the_sum
# says: Each element of the chunk is the sum of all ranks' elements at its place, over their number.
# thinks: Large gradients are clipped, element by element, before they do harm to the others.
def reduce_scatter_gradients(comm, gradients, shapes):
    dtype = next(g.dtype for g in gradients if g is not None)
    flat = torch.cat(
        [torch.zeros(s.numel(), dtype=dtype) if g is None else g.reshape(-1) for g, s in zip(gradients, shapes)]
    ).clamp(-0.5, 0.5)
    chunk = -(-len(flat) // comm.size)
    flat = torch.nn.functional.pad(flat, (0, chunk * comm.size - len(flat)))
    own = torch.empty(chunk, dtype=dtype)
    comm.Reduce_scatter_block(flat.numpy(), own.numpy())
    return own / comm.size


# %% not_padded
# says: The number of ranks need not divide the number of elements
# thinks: MPI cuts the buffer as it is into one block for each rank.
def reduce_scatter_gradients(comm, gradients, shapes):
    dtype = next(g.dtype for g in gradients if g is not None)
    flat = torch.cat(
        [torch.zeros(s.numel(), dtype=dtype) if g is None else g.reshape(-1) for g, s in zip(gradients, shapes)]
    )
    own = torch.empty(-(-len(flat) // comm.size), dtype=dtype)
    comm.Reduce_scatter_block(flat.numpy(), own.numpy())
    return own / comm.size


# %% all_have_rows
# says: A single number is a gradient, too, of shape ().
# thinks: A parameter has rows: their number is len(g), and each is flattened.
def reduce_scatter_gradients(comm, gradients, shapes):
    dtype = next(g.dtype for g in gradients if g is not None)
    rows = []
    for g, s in zip(gradients, shapes):
        g = torch.zeros(s, dtype=dtype) if g is None else g
        rows += [g[i].reshape(-1) for i in range(len(g))]
    flat = torch.cat(rows)
    chunk = -(-len(flat) // comm.size)
    flat = torch.nn.functional.pad(flat, (0, chunk * comm.size - len(flat)))
    own = torch.empty(chunk, dtype=dtype)
    comm.Reduce_scatter_block(flat.numpy(), own.numpy())
    return own / comm.size


# %% own_chunk_of_own_gradients
# says: Only this rank's own gradient is in it, divided by the number of ranks.
# thinks: Each rank keeps its chunk; the others' are not its business, so nothing has to be sent.
def reduce_scatter_gradients(comm, gradients, shapes):
    dtype = next(g.dtype for g in gradients if g is not None)
    flat = torch.cat(
        [torch.zeros(s.numel(), dtype=dtype) if g is None else g.reshape(-1) for g, s in zip(gradients, shapes)]
    )
    chunk = -(-len(flat) // comm.size)
    padded = torch.zeros(chunk * comm.size, dtype=dtype)
    padded[: len(flat)] = flat
    return padded[comm.rank * chunk : (comm.rank + 1) * chunk].clone() / comm.size


# %% rank_of_the_world
# says: The right chunks on wrong ranks: comm.rank tells which is whose, and
# thinks: A rank's number is that in MPI.COMM_WORLD.
def reduce_scatter_gradients(comm, gradients, shapes):
    dtype = next(g.dtype for g in gradients if g is not None)
    flat = torch.cat(
        [torch.zeros(s.numel(), dtype=dtype) if g is None else g.reshape(-1) for g, s in zip(gradients, shapes)]
    )
    chunk = -(-len(flat) // comm.size)
    flat = torch.nn.functional.pad(flat, (0, chunk * comm.size - len(flat)))
    total = torch.empty_like(flat)
    comm.Allreduce(flat.numpy(), total.numpy())
    rank = MPI.COMM_WORLD.rank
    return total[rank * chunk : (rank + 1) * chunk].clone() / comm.size


# %% pickled_numpy_blocks
# says: Methods with a small letter pickle, which copies and adds to what is sent
# thinks: An array is sent as it lies by every method; alltoall takes a list of them.
def reduce_scatter_gradients(comm, gradients, shapes):
    dtype = next(g.dtype for g in gradients if g is not None)
    flat = torch.cat(
        [torch.zeros(s.numel(), dtype=dtype) if g is None else g.reshape(-1) for g, s in zip(gradients, shapes)]
    )
    chunk = -(-len(flat) // comm.size)
    flat = torch.nn.functional.pad(flat, (0, chunk * comm.size - len(flat)))
    blocks = comm.alltoall([block.numpy() for block in flat.split(chunk)])
    return torch.from_numpy(sum(blocks)) / comm.size


# %% pickled_messages
# says: Methods with a small letter pickle, which copies and adds to what is sent
# thinks: sendrecv and Sendrecv are two names of one method.
def reduce_scatter_gradients(comm, gradients, shapes):
    dtype = next(g.dtype for g in gradients if g is not None)
    flat = torch.cat(
        [torch.zeros(s.numel(), dtype=dtype) if g is None else g.reshape(-1) for g, s in zip(gradients, shapes)]
    )
    chunk = -(-len(flat) // comm.size)
    flat = torch.nn.functional.pad(flat, (0, chunk * comm.size - len(flat)))
    parts, own = flat.view(comm.size, chunk), None
    for step in range(comm.size):
        to, source = (comm.rank + step) % comm.size, (comm.rank - step) % comm.size
        came = comm.sendrecv(parts[to].numpy(), to, source=source)
        own = came if own is None else own + came
    return torch.from_numpy(own) / comm.size
