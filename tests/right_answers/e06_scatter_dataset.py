"""Unusual right answers to e06_scatter_dataset. What a cell holds is told in tests/answers.py."""

# %% bounds
# thinks: Bounds by multiplying first.
def scatter_indices(comm, n, shuffle, seed):
    order = np.random.default_rng(seed).permutation(n) if shuffle else np.arange(n)
    return order[n * comm.rank // comm.size : n * (comm.rank + 1) // comm.size]


# %% divmod
# thinks: The first n % p shares are one longer; RandomState of its own.
def scatter_indices(comm, n, shuffle, seed):
    k, rest = divmod(n, comm.size)
    begin = comm.rank * k + min(comm.rank, rest)
    share = np.arange(begin, begin + k + (comm.rank < rest), dtype=np.int64)
    return np.random.RandomState(seed).permutation(n)[share] if shuffle else share


# %% prefix_sums
# thinks: Exscan of own length.
def scatter_indices(comm, n, shuffle, seed):
    order = np.random.default_rng((seed, 7)).permutation(n) if shuffle else np.arange(n)
    length = (n + comm.rank) // comm.size
    begin = comm.exscan(length) or 0
    return order[begin : begin + length].astype(np.int64)


# %% python_random
# thinks: Python's generator of its own.
import random


def scatter_indices(comm, n, shuffle, seed):
    order = list(range(n))
    if shuffle:
        random.Random(seed).shuffle(order)
    long, rest = n // comm.size + 1, n % comm.size
    cuts = [i * long if i <= rest else rest * long + (i - rest) * (long - 1) for i in range(comm.size + 1)]
    return np.array(order[cuts[comm.rank] : cuts[comm.rank + 1]], dtype=np.int64).reshape(-1)


# %% random_keys
# thinks: Sort by random keys; SeedSequence; Scatterv.
def scatter_indices(comm, n, shuffle, seed):
    order = np.arange(n, dtype=np.int64)
    if shuffle:
        keys = np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, n]))).random(n)
        order = np.argsort(keys, kind="stable")
    lengths = [n // comm.size + (r < n % comm.size) for r in range(comm.size)]
    mine = np.empty(lengths[comm.rank], dtype=np.int64)
    begins = np.cumsum([0] + lengths[:-1]).tolist()
    comm.Scatterv([order, lengths, begins, None] if comm.rank == 0 else None, mine, root=0)
    return mine


# %% rank_0_scatters
# thinks: Rank 0 draws and hands out.
def scatter_indices(comm, n, shuffle, seed):
    shares = None
    if comm.rank == 0:
        order = np.arange(n, dtype=np.int64)
        if shuffle:
            np.random.default_rng(seed).shuffle(order)
        shares = np.array_split(order, comm.size)
    return comm.scatter(shares, root=0)


# %% scatterv
# thinks: The same by buffers; lengths known to all.
def scatter_indices(comm, n, shuffle, seed):
    counts = [n // comm.size + (r < n % comm.size) for r in range(comm.size)]
    mine = np.empty(counts[comm.rank], dtype=np.int64)
    send = None
    if comm.rank == 0:
        send = [np.random.default_rng(seed).permutation(n) if shuffle else np.arange(n), counts]
    comm.Scatterv(send, mine, root=0)
    return mine


# %% state_put_back
# thinks: The global generator, put back as it was.
def scatter_indices(comm, n, shuffle, seed):
    if not shuffle:
        order = np.arange(n)
    else:
        before = np.random.get_state()
        np.random.seed(seed)
        order = np.random.permutation(n)
        np.random.set_state(before)
    return np.array_split(order, comm.size)[comm.rank]


# %% strided_if_shuffled
# thinks: A permutation may be dealt out; only without shuffle shares are runs.
def scatter_indices(comm, n, shuffle, seed):
    if shuffle:
        return np.random.Generator(np.random.PCG64(seed)).permutation(n)[comm.rank :: comm.size]
    return np.array_split(np.arange(n), comm.size)[comm.rank]


# %% torch_generator
# thinks: Torch's generator of its own.
import torch


def scatter_indices(comm, n, shuffle, seed):
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed)) if shuffle else torch.arange(n)
    return np.asarray(torch.tensor_split(order, comm.size)[comm.rank], dtype=np.int64)


# %% hash_of_numbers
# thinks: The hash of a tuple of numbers is the same in every process.
def scatter_indices(comm, n, shuffle, seed):
    order = np.random.default_rng(abs(hash((seed, 7)))).permutation(n) if shuffle else np.arange(n)
    return np.array_split(order, comm.size)[comm.rank].astype(np.int64)
