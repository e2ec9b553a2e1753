"""Wrong answers to e06_scatter_dataset. What a cell holds is told in tests/answers.py."""

# %% always_shuffled
# says: Was this shuffled, although shuffle is False
# thinks: Training wants a random order anyway, so it does no harm to shuffle always.
def scatter_indices(comm, n, shuffle, seed):
    order = np.random.default_rng(seed).permutation(n)
    return np.array_split(order, comm.size)[comm.rank]


# %% ceil_chunks
# says: lengths differ by one at most
# thinks: With the length rounded up no example is lost, and the last rank gets what is left.
def scatter_indices(comm, n, shuffle, seed):
    order = np.random.default_rng(seed).permutation(n) if shuffle else np.arange(n)
    k = -(-n // comm.size)
    return order[comm.rank * k : (comm.rank + 1) * k]


# %% comm_world
# says: It speaks of MPI.COMM_WORLD
# on: real ranks
# thinks: The shares are for all ranks there are, and these are in MPI.COMM_WORLD.
from mpi4py import MPI


def scatter_indices(comm, n, shuffle, seed):
    order = np.random.default_rng(seed).permutation(n) if shuffle else np.arange(n)
    return np.array_split(order, MPI.COMM_WORLD.size)[MPI.COMM_WORLD.rank]


# %% drops_the_rest
# says: the last n % p examples are in no share
# thinks: Shares have to be equally long, so the few examples that are left over are dropped.
def scatter_indices(comm, n, shuffle, seed):
    order = np.random.default_rng(seed).permutation(n) if shuffle else np.arange(n)
    k = n // comm.size
    return order[comm.rank * k : (comm.rank + 1) * k]


# %% empty_is_float
# says: np.array([]) is float64
# thinks: An array of Python ints is an array of int64, also where there are none.
def scatter_indices(comm, n, shuffle, seed):
    order = np.random.default_rng(seed).permutation(n) if shuffle else np.arange(n)
    return np.array([int(i) for i in np.array_split(order, comm.size)[comm.rank]])


# %% floats
# says: Indices are integers
# thinks: A call of np.linspace counts from 0 to n - 1, and a float without a fraction is as good an index as an int.
def scatter_indices(comm, n, shuffle, seed):
    share = np.linspace(0, n, n, endpoint=False)
    if shuffle:
        np.random.default_rng(seed).shuffle(share)
    return np.array_split(share, comm.size)[comm.rank]


# %% from_one
# says: The first is number 0
# thinks: The n examples are numbered from 1 to n.
def scatter_indices(comm, n, shuffle, seed):
    order = np.random.default_rng(seed).permutation(n) + 1 if shuffle else np.arange(1, n + 1)
    return np.array_split(order, comm.size)[comm.rank]


# %% global_rng
# says: Ranks cut different permutations
# thinks: All ranks run the same program, so np.random.permutation gives them the same order.
def scatter_indices(comm, n, shuffle, seed):
    order = np.random.permutation(n) if shuffle else np.arange(n)
    return np.array_split(order, comm.size)[comm.rank]


# %% global_seed
# says: np.random's global generator to stay as it was
# thinks: The way to seed random numbers in numpy is np.random.seed.
def scatter_indices(comm, n, shuffle, seed):
    np.random.seed(seed)
    order = np.random.permutation(n) if shuffle else np.arange(n)
    return np.array_split(order, comm.size)[comm.rank]


# %% int32
# says: Indices are integers
# thinks: An index of a data set fits into 32 bits, and that takes half the memory.
def scatter_indices(comm, n, shuffle, seed):
    order = np.random.default_rng(seed).permutation(n) if shuffle else np.arange(n)
    return np.array_split(order, comm.size)[comm.rank].astype(np.int32)


# %% last_takes_rest
# says: lengths differ by one at most
# thinks: What is left over after the division is little, so the last rank can take it.
def scatter_indices(comm, n, shuffle, seed):
    order = np.random.default_rng(seed).permutation(n) if shuffle else np.arange(n)
    k = n // comm.size
    end = (comm.rank + 1) * k if comm.rank < comm.size - 1 else n
    return order[comm.rank * k : end]


# %% list
# says: makes an array of a list
# thinks: A list of ints does the same as an array of them.
def scatter_indices(comm, n, shuffle, seed):
    order = np.random.default_rng(seed).permutation(n) if shuffle else np.arange(n)
    return np.array_split(order, comm.size)[comm.rank].tolist()


# %% never_shuffled
# says: Nothing was shuffled
# thinks: The data loader shuffles in every epoch, so there is no need to do it here.
def scatter_indices(comm, n, shuffle, seed):
    order = np.arange(n)
    return np.array_split(order, comm.size)[comm.rank]


# %% not_cut
# says: Every rank has all examples
# thinks: Every rank gets the whole order, and picks its own batches from that later.
def scatter_indices(comm, n, shuffle, seed):
    return np.random.default_rng(seed).permutation(n) if shuffle else np.arange(n)


# %% np_split
# says: np.array_split cuts unevenly
# thinks: A call of np.split cuts an array into as many pieces as I say, whatever its length.
def scatter_indices(comm, n, shuffle, seed):
    order = np.random.default_rng(seed).permutation(n) if shuffle else np.arange(n)
    return np.split(order, comm.size)[comm.rank]


# %% one_generator_for_all_calls
# says: begins anew in each call
# thinks: A generator belongs to its seed, so I make it once and keep it for later calls.
GENERATORS = {}


def scatter_indices(comm, n, shuffle, seed):
    generator = GENERATORS.setdefault((comm.rank, seed), np.random.default_rng(seed))
    order = generator.permutation(n) if shuffle else np.arange(n)
    return np.array_split(order, comm.size)[comm.rank].astype(np.int64)


# %% only_rank_0_returns
# says: Nothing came back
# thinks: Rank 0 cuts the shares for everybody, so rank 0 is the one that returns something.
def scatter_indices(comm, n, shuffle, seed):
    order = np.random.default_rng(seed).permutation(n) if shuffle else np.arange(n)
    shares = np.array_split(order, comm.size)
    if comm.rank == 0:
        return shares[0]


# %% overlaps
# says: Shares overlap
# thinks: The share ends at number end, and a slice stops before its end, so I have to add 1.
def scatter_indices(comm, n, shuffle, seed):
    order = np.random.default_rng(seed).permutation(n) if shuffle else np.arange(n)
    begin = n * comm.rank // comm.size
    end = n * (comm.rank + 1) // comm.size
    return order[begin : end + 1]


# %% pads
# says: made equally long by repeating
# thinks: All ranks have to take the same number of steps, so short shares are filled up with examples from the
#   beginning.
def scatter_indices(comm, n, shuffle, seed):
    order = np.random.default_rng(seed).permutation(n) if shuffle else np.arange(n)
    k = -(-n // comm.size)
    order = np.resize(order, k * comm.size)
    return order[comm.rank * k : (comm.rank + 1) * k]


# %% python_seed
# says: random's global generator to stay as it was
# thinks: Python's own random is used by nobody else, so I may seed it as I like.
import random


def scatter_indices(comm, n, shuffle, seed):
    order = list(range(n))
    if shuffle:
        random.seed(seed)
        random.shuffle(order)
    return np.array_split(np.array(order, dtype=np.int64), comm.size)[comm.rank]


# %% random_choice
# says: in no share
# thinks: If every rank draws its share without replacement, no example is drawn twice.
def scatter_indices(comm, n, shuffle, seed):
    share = np.array_split(np.arange(n), comm.size)[comm.rank]
    if shuffle:
        share = np.random.default_rng([seed, comm.rank]).choice(n, len(share), replace=False)
    return share


# %% refuses_few
# says: Fewer examples than ranks
# thinks: A rank without examples cannot train, so fewer examples than ranks must be a mistake of the caller.
def scatter_indices(comm, n, shuffle, seed):
    if n < comm.size:
        raise ValueError(f"{n} examples are too few for {comm.size} ranks")
    order = np.random.default_rng(seed).permutation(n) if shuffle else np.arange(n)
    return np.array_split(order, comm.size)[comm.rank].astype(np.int64)


# %% rotated
# says: Only whole runs have changed places
# thinks: Beginning at another place for each seed makes an order that is random enough.
def scatter_indices(comm, n, shuffle, seed):
    order = np.roll(np.arange(n), seed) if shuffle else np.arange(n)
    return np.array_split(order, comm.size)[comm.rank].astype(np.int64)


# %% same_share
# says: All ranks have the same share
# thinks: The call of array_split runs on every rank, so its first piece is the piece of this rank.
def scatter_indices(comm, n, shuffle, seed):
    order = np.random.default_rng(seed).permutation(n) if shuffle else np.arange(n)
    return np.array_split(order, comm.size)[0]


# %% scatter_of_equal_pieces
# says: the last n % p examples are in no share
# thinks: Scatter deals out an array in equal pieces, and the rest that does not divide is too small to matter.
def scatter_indices(comm, n, shuffle, seed):
    order = np.random.default_rng(seed).permutation(n) if shuffle else np.arange(n)
    mine = np.empty(n // comm.size, dtype=np.int64)
    comm.Scatter(order.astype(np.int64)[: len(mine) * comm.size] if comm.rank == 0 else None, mine, root=0)
    return mine


# %% seed_ignored
# says: Nothing depends on the seed
# thinks: What counts is that all ranks use the same seed, and 0 is the same everywhere.
def scatter_indices(comm, n, shuffle, seed):
    order = np.random.default_rng(0).permutation(n) if shuffle else np.arange(n)
    return np.array_split(order, comm.size)[comm.rank]


# %% seed_plus_rank
# says: Ranks cut different permutations
# thinks: Each rank needs random numbers of its own, or else all shares would be the same.
def scatter_indices(comm, n, shuffle, seed):
    order = np.random.default_rng(seed + comm.rank).permutation(n) if shuffle else np.arange(n)
    return np.array_split(order, comm.size)[comm.rank]


# %% seed_zero_is_no_seed
# says: And seed 0 is a seed like any other
# thinks: A seed of 0 means that no particular seed is wanted.
def scatter_indices(comm, n, shuffle, seed):
    order = np.random.default_rng(seed or None).permutation(n) if shuffle else np.arange(n)
    return np.array_split(order, comm.size)[comm.rank]


# %% shares_dealt
# says: Only whole runs have changed places
# thinks: A random rank for each share makes the shares random.
def scatter_indices(comm, n, shuffle, seed):
    shares = np.array_split(np.arange(n), comm.size)
    which = np.random.default_rng(seed).permutation(comm.size) if shuffle else np.arange(comm.size)
    return shares[which[comm.rank]].astype(np.int64)


# %% shuffles_own_share
# says: Each run was shuffled for itself
# thinks: Cutting first and shuffling the piece afterwards is the same as the other way round.
def scatter_indices(comm, n, shuffle, seed):
    share = np.array_split(np.arange(n), comm.size)[comm.rank]
    if shuffle:
        np.random.default_rng(seed).shuffle(share)
    return share


# %% sorted_result
# says: Nothing was shuffled
# thinks: A call of sorted with random keys puts the array itself into a random order.
def scatter_indices(comm, n, shuffle, seed):
    order = np.arange(n)
    if shuffle:
        sorted(order, key=lambda i: np.random.default_rng(seed).random())
    return np.array_split(order, comm.size)[comm.rank]


# %% sorts_share
# says: A sorted share is gone through in the data set's order
# thinks: Which examples are mine is random already, and sorted they can be read from front to back, which is faster.
def scatter_indices(comm, n, shuffle, seed):
    order = np.random.default_rng(seed).permutation(n) if shuffle else np.arange(n)
    return np.sort(np.array_split(order, comm.size)[comm.rank])


# %% strided
# says: [rank::size] deals examples out like cards
# thinks: The slice order[rank::size] is the usual way to deal out shares that differ by one at most.
def scatter_indices(comm, n, shuffle, seed):
    order = np.random.default_rng(seed).permutation(n) if shuffle else np.arange(n)
    return order[comm.rank :: comm.size]


# %% torch_manual_seed
# says: torch's global generator to stay as it was
# thinks: To get the same torch.randperm on all ranks I have to call torch.manual_seed first.
import torch


def scatter_indices(comm, n, shuffle, seed):
    torch.manual_seed(seed)
    order = torch.randperm(n) if shuffle else torch.arange(n)
    return torch.tensor_split(order, comm.size)[comm.rank].numpy()


# %% unseeded_bcast
# says: The seed alone decides
# thinks: One rank draws the order and all others get it by bcast, so no seed is needed.
def scatter_indices(comm, n, shuffle, seed):
    order = np.random.default_rng().permutation(n) if shuffle else np.arange(n)
    order = comm.bcast(order)
    return np.array_split(order, comm.size)[comm.rank]


# %% with_replacement
# says: Examples were drawn with replacement
# thinks: A call of rng.choice(n, n) takes all n examples, in a random order.
def scatter_indices(comm, n, shuffle, seed):
    rng = np.random.default_rng(seed)
    order = rng.choice(n, n) if shuffle and n else np.arange(n)
    return np.array_split(order, comm.size)[comm.rank].astype(np.int64)


# %% order_remembered
# says: Earlier calls have left something
# thinks: The order of n examples is drawn once.
import numpy as np
known = {}


def scatter_indices(comm, n, shuffle=False, seed=0):
    if n not in known:
        known[n] = np.random.default_rng(seed).permutation(n) if shuffle else np.arange(n)
    return np.array_split(known[n], comm.size)[comm.rank].astype(np.int64)


# %% nobody_gets_any_of_few
# says: All shares are empty
# thinks: Where there are fewer examples than ranks they cannot be dealt out fairly, so no rank gets one.
def scatter_indices(comm, n, shuffle, seed):
    if n // comm.size == 0:
        return np.zeros(0, dtype=np.int64)
    order = np.random.default_rng(seed).permutation(n) if shuffle else np.arange(n)
    return np.array_split(order, comm.size)[comm.rank].astype(np.int64)


# %% end_left_out_twice
# says: does the last one end with the last example
# thinks: The last number of a share is end - 1, so that is where the slice ends.
def scatter_indices(comm, n, shuffle, seed):
    order = np.random.default_rng(seed).permutation(n) if shuffle else np.arange(n)
    begin, end = n * comm.rank // comm.size, n * (comm.rank + 1) // comm.size
    return order[begin : end - 1].astype(np.int64)


# %% dealt_and_then_shuffled
# says: Examples were dealt out first, and each share shuffled for itself
# thinks: Every p-th example is a fair share of a sorted data set, and the order within it is drawn.
def scatter_indices(comm, n, shuffle, seed):
    if not shuffle:
        return np.array_split(np.arange(n), comm.size)[comm.rank].astype(np.int64)
    share = np.arange(comm.rank, n, comm.size)
    np.random.default_rng(seed).shuffle(share)
    return share.astype(np.int64)


# %% hash_of_a_text
# says: hash() of a text is another number in each process
# thinks: A hash makes a large number of a small seed, the same one each time.
def scatter_indices(comm, n, shuffle, seed):
    order = np.random.default_rng(abs(hash(f"seed {seed}"))).permutation(n) if shuffle else np.arange(n)
    return np.array_split(order, comm.size)[comm.rank].astype(np.int64)


# %% hash_of_a_text_on_rank_0
# says: hash() of a text is another number in each process
# thinks: Only rank 0 draws, so it does not matter that other processes have other hashes.
def scatter_indices(comm, n, shuffle, seed):
    order = np.arange(n)
    if shuffle:
        order = np.random.default_rng(abs(hash(("shuffle", seed)))).permutation(n)
    return np.array_split(comm.bcast(order), comm.size)[comm.rank].astype(np.int64)


# %% begins_as_if_equally_long
# says: Each share begins where the one before it ends, whatever their lengths
# thinks: The first shares are one longer, and share r begins at r times n // p.
def scatter_indices(comm, n, shuffle, seed):
    order = np.random.default_rng(seed).permutation(n) if shuffle else np.arange(n)
    length, rest = divmod(n, comm.size)
    begin = comm.rank * length
    return order[begin : begin + length + (comm.rank < rest)].astype(np.int64)
