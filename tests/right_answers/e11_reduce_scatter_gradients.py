"""Right answers to e11_reduce_scatter_gradients. What a cell holds is told in tests/answers.py."""

# %% numpy_and_the_block_collective
# thinks: The whole is done with numpy arrays, and the result's array, of which torch makes a tensor, has chunk elements.
import numpy as np


def reduce_scatter_gradients(comm, gradients, shapes):
    dtype = [g.numpy().dtype for g in gradients if g is not None][0]
    sizes = [int(np.prod(s, dtype=int)) for s in shapes]
    chunk = (sum(sizes) + comm.size - 1) // comm.size
    flat = np.zeros(chunk * comm.size, dtype)
    for end, n, g in zip(np.cumsum(sizes), sizes, gradients):
        if g is not None:
            flat[end - n:end] = g.detach().numpy().ravel()
    mine = np.empty(chunk, dtype)
    comm.Reduce_scatter_block(flat, mine, op=MPI.SUM)
    mine /= comm.size
    return torch.from_numpy(mine)


# %% alltoall_and_mean
# thinks: Everybody gets all ranks' versions of its chunk, which takes as many bytes, and the mean is taken here.
def reduce_scatter_gradients(comm, gradients, shapes):
    dtype = [g for g in gradients if g is not None][0].dtype
    flat = torch.cat([torch.zeros(s.numel(), dtype=dtype) if g is None else g.flatten() for g, s in zip(gradients, shapes)])
    flat = torch.nn.functional.pad(flat, (0, -len(flat) % comm.size))
    chunk = len(flat) // comm.size
    got = torch.empty(comm.size, chunk, dtype=dtype)
    comm.Alltoall(flat.numpy(), got.numpy())
    return got.mean(0)


# %% ring_with_sendrecv
# thinks: p - 1 steps of a ring that begins with the left neighbour's chunk, so that the last sum is my own chunk.
def reduce_scatter_gradients(comm, gradients, shapes):
    p, r = comm.Get_size(), comm.Get_rank()
    like = next(g for g in gradients if g is not None)
    n = sum(s.numel() for s in shapes)
    parts = like.new_zeros(p, -(-n // p))
    flat, start = parts.view(-1), 0
    for g, s in zip(gradients, shapes):
        if g is not None:
            flat[start:start + s.numel()].view(s).copy_(g)
        start += s.numel()
    total = parts[(r - 1) % p].clone()
    incoming = torch.empty_like(total)
    for step in range(p - 1):
        comm.Sendrecv(total.numpy(), dest=(r + 1) % p, recvbuf=incoming.numpy(), source=(r - 1) % p)
        total = incoming + parts[(r - 2 - step) % p]
    return total / p


# %% isend_irecv_to_all
# thinks: Each rank sends each other rank its chunk at once, receives p - 1 chunks, and adds.
def reduce_scatter_gradients(comm, gradients, shapes):
    p, r = comm.size, comm.rank
    dtype = [g for g in gradients if g is not None][0].dtype
    flat = torch.cat([torch.zeros(s.numel(), dtype=dtype) if g is None else g.reshape(-1) for g, s in zip(gradients, shapes)])
    flat = torch.cat([flat, flat.new_zeros(-len(flat) % p)])
    chunk = len(flat) // p
    parts = flat.view(p, chunk)
    others = [q for q in range(p) if q != r]
    got = {q: torch.empty(chunk, dtype=dtype) for q in others}
    waiting = [comm.Irecv(got[q].numpy(), source=q, tag=11) for q in others]
    waiting += [comm.Isend(parts[q].numpy(), dest=q, tag=11) for q in others]
    MPI.Request.Waitall(waiting)
    return (parts[r] + sum(got.values())) / p


# %% recursive_halves
# thinks: With a power of two of ranks, halve the group and the buffer again and again; else exchange in pairs.
def reduce_scatter_gradients(comm, gradients, shapes):
    p, r = comm.size, comm.rank
    dtype = [g for g in gradients if g is not None][0].dtype
    n = sum(s.numel() for s in shapes)
    chunk = (n + p - 1) // p
    flat = torch.zeros(chunk * p, dtype=dtype)
    places = flat[:n].split([s.numel() for s in shapes])
    for place, g in zip(places, gradients):
        if g is not None:
            place += g.flatten()

    def halve(part, low, ranks):
        if ranks == 1:
            return part
        half = ranks // 2
        left, right = part[:half * chunk], part[half * chunk:]
        mine, theirs, partner = (left, right, r + half) if r < low + half else (right, left, r - half)
        got = torch.empty_like(mine)
        comm.Sendrecv(theirs.numpy(), partner, recvbuf=got.numpy(), source=partner)
        return halve(mine + got, low if r < low + half else low + half, half)

    if p & (p - 1) == 0:
        return halve(flat, 0, p) / p
    mine = flat[r * chunk:(r + 1) * chunk].clone()
    got = torch.empty_like(mine)
    for d in range(1, p):
        to, source = (r + d) % p, (r - d) % p
        comm.Sendrecv(flat[to * chunk:(to + 1) * chunk].numpy(), to, recvbuf=got.numpy(), source=source)
        mine += got
    return mine.div_(p)


# %% reduce_scatter_without_padding
# thinks: MPI's Reduce_scatter knows unequal counts, so only what is no padding travels, and the padding is zero already.
def reduce_scatter_gradients(comm, gradients, shapes):
    dtype = next(g.dtype for g in gradients if g is not None)
    flat = torch.cat([torch.zeros(s.numel(), dtype=dtype) if g is None else g.flatten() for g, s in zip(gradients, shapes)])
    n, p = len(flat), comm.size
    chunk = -(-n // p)
    counts = [min(chunk, max(0, n - r * chunk)) for r in range(p)]
    result = torch.zeros(chunk, dtype=dtype)
    comm.Reduce_scatter((flat / p).numpy(), result.numpy()[:counts[comm.rank]], recvcounts=counts)
    return result


# %% a_reduce_for_each_rank
# thinks: p reductions, of each chunk to its owner; a rank sends all chunks but its own.
def reduce_scatter_gradients(comm, gradients, shapes):
    dtype = [g for g in gradients if g is not None][0].dtype
    flat = torch.cat([torch.zeros(s.numel(), dtype=dtype) if g is None else g.flatten() for g, s in zip(gradients, shapes)])
    flat = torch.nn.functional.pad(flat, (0, -len(flat) % comm.size))
    chunk = len(flat) // comm.size
    mine = torch.empty(chunk, dtype=dtype)
    for root in range(comm.size):
        part = flat[root * chunk:(root + 1) * chunk].numpy()
        comm.Reduce(part, mine.numpy() if comm.rank == root else None, op=MPI.SUM, root=root)
    return mine / comm.size


# %% pairs_take_turns
# thinks: Plain Send and Recv; of each pair the lower rank sends first, and pairs come in one order everywhere.
def reduce_scatter_gradients(comm, gradients, shapes):
    dtype = [g for g in gradients if g is not None][0].dtype
    flat = torch.cat([torch.zeros(s.numel(), dtype=dtype) if g is None else g.flatten() for g, s in zip(gradients, shapes)])
    flat = torch.nn.functional.pad(flat, (0, -len(flat) % comm.size))
    chunk = len(flat) // comm.size
    r, parts = comm.rank, flat.view(comm.size, chunk)
    total = parts[r].clone()
    got = torch.empty_like(total)
    for a in range(comm.size):
        for b in range(a + 1, comm.size):
            if r == a:
                comm.Send(parts[b].numpy(), dest=b)
                comm.Recv(got.numpy(), source=b)
            elif r == b:
                comm.Recv(got.numpy(), source=a)
                comm.Send(parts[a].numpy(), dest=a)
            if r in (a, b):
                total += got
    return total / comm.size


# %% a_collective_that_does_not_block
# thinks: Ireduce_scatter_block and Wait are the blocking call in two steps.
def reduce_scatter_gradients(comm, gradients, shapes):
    some = next(filter(lambda g: g is not None, gradients))
    n = sum(map(torch.Size.numel, shapes))
    flat = some.new_zeros(n + -n % comm.size)
    flat[:n] = torch.cat([some.new_zeros(s).flatten() if g is None else g.flatten() for g, s in zip(gradients, shapes)])
    mine = some.new_empty(len(flat) // comm.size)
    comm.Ireduce_scatter_block(flat.numpy(), mine.numpy()).Wait()
    return torch.div(mine, comm.size)


# %% in_place_then_cloned
# thinks: The sum may come to the front of the buffer itself; the clone has memory of its own.
def reduce_scatter_gradients(comm, gradients, shapes):
    dtype = next(g.dtype for g in gradients if g is not None)
    n = sum(s.numel() for s in shapes)
    chunk = -(-n // comm.size)
    flat = torch.zeros(chunk * comm.size, dtype=dtype)
    for place, g in zip(flat[:n].split([s.numel() for s in shapes]), gradients):
        if g is not None:
            place.copy_(g.reshape(-1))
    flat /= comm.size
    comm.Reduce_scatter(MPI.IN_PLACE, flat.numpy(), [chunk] * comm.size)
    return flat[:chunk].clone()


# %% transposed_without_a_copy
# thinks: mpi4py sends an array in columns as its memory lies, so that a transposed view of the buffer is the buffer.
def reduce_scatter_gradients(comm, gradients, shapes):
    dtype = [g for g in gradients if g is not None][0].dtype
    flat = torch.cat([torch.zeros(s.numel(), dtype=dtype) if g is None else g.flatten() for g, s in zip(gradients, shapes)])
    flat = torch.nn.functional.pad(flat, (0, -len(flat) % comm.size))
    chunk = len(flat) // comm.size
    mine = torch.empty(chunk, dtype=flat.dtype)
    comm.Reduce_scatter_block(flat.view(chunk, comm.size).t().numpy(), mine.numpy())
    return mine / comm.size


# %% one_chunk_at_a_time
# thinks: There is no flat buffer: of each gradient the part that lies in a rank's chunk is taken, and reduced there.
def reduce_scatter_gradients(comm, gradients, shapes):
    dtype = next(g.dtype for g in gradients if g is not None)
    chunk = -(-sum(s.numel() for s in shapes) // comm.size)

    def part(owner):
        made = torch.zeros(chunk, dtype=dtype)
        begin = 0
        for g, s in zip(gradients, shapes):
            low, high = max(begin, owner * chunk), min(begin + s.numel(), (owner + 1) * chunk)
            if g is not None and low < high:
                made[low - owner * chunk : high - owner * chunk] = g.reshape(-1)[low - begin : high - begin]
            begin += s.numel()
        return made

    own = torch.empty(chunk, dtype=dtype)
    for owner in range(comm.size):
        comm.Reduce(part(owner).numpy(), own.numpy() if owner == comm.rank else None, op=MPI.SUM, root=owner)
    return own / comm.size


# %% loops_over_elements
# thinks: Plain loops of Python over all elements take a few hundredths of a second, which is no endless loop.
def reduce_scatter_gradients(comm, gradients, shapes):
    dtype = next(g.dtype for g in gradients if g is not None)
    numbers = []
    for g, shape in zip(gradients, shapes):
        if g is None:
            for _ in range(shape.numel()):
                numbers.append(0.0)
        else:
            for x in g.reshape(-1).tolist():
                numbers.append(x)
    while len(numbers) % comm.size:
        numbers.append(0.0)
    flat = torch.tensor(numbers, dtype=dtype)
    own = torch.empty(len(flat) // comm.size, dtype=dtype)
    comm.Reduce_scatter_block(flat.numpy(), own.numpy())
    for i in range(len(own)):
        own[i] /= comm.size
    return own
