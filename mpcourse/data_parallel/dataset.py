"""Which rank trains on which examples."""

from collections.abc import Iterator, Sequence, Sized
from typing import Any

import numpy as np
from torch.utils.data import Dataset, Sampler, Subset

from mpcourse.common.comm import Comm

SHARDS = ("exact", "repeat", "drop")


def scatter_indices(comm: Comm, n: int, shuffle: bool = False, seed: int = 0, shards: str = "exact") -> np.ndarray:
    """Return this rank's share of the examples 0 to n - 1; int64, (share,). All ranks call it with equal arguments.

    comm: mpi4py's communicator, or a virtual rank's; all its ranks call this, with equal arguments.
    n: examples, 0 or more.
    shuffle: shares are runs of an order drawn with `seed`. False: runs of the examples in their order.
    seed: of the order, the same on all ranks.
    shards: "exact": every example once, so that lengths may differ by one, and be 0 where n is less than the number of
    ranks; "repeat": equal lengths, reached by giving some examples to two ranks; "drop": equal lengths, the last few
    examples go to no rank.
    Raises ValueError, on every rank, for arguments that differ between ranks or make no sense.
    """
    settings = comm.allgather((n, shuffle, seed, shards))
    if len(set(settings)) > 1:
        names = ("n", "shuffle", "seed", "shards")
        at = next(i for i in range(4) if len({one[i] for one in settings}) > 1)
        raise ValueError(f"ranks were given different {names[at]}: {[one[at] for one in settings]}")
    return share_of(n, comm.rank, comm.size, shuffle, seed, shards)


def share_of(n: int, rank: int, size: int, shuffle: bool = False, seed: int = 0, shards: str = "exact") -> np.ndarray:
    """Return one rank's share of the examples 0 to n - 1; int64, (share,). Any process may call it.

    n: examples, 0 or more.
    rank: the rank whose share is returned, 0 to size - 1.
    size: ranks.
    shuffle: shares are runs of an order drawn with `seed`. False: runs of the examples in their order.
    seed: of the order.
    shards: "exact": every example once; "repeat": equal lengths, some examples twice; "drop": equal lengths, the last
    few examples go to no rank.
    Raises ValueError for a negative n or another `shards`.
    """
    if n < 0 or shards not in SHARDS:
        raise ValueError(f"n={n} and shards={shards!r}: n is 0 or more, shards one of {', '.join(SHARDS)}")
    order = np.random.default_rng(seed).permutation(n) if shuffle else np.arange(n)
    if shards == "repeat" and n:
        order = np.resize(order, -(-n // size) * size)  # continues with the first examples
    elif shards == "drop":
        order = order[: n // size * size]
    return order[len(order) * rank // size : len(order) * (rank + 1) // size].astype(np.int64)


def scatter_dataset(
    dataset: Any, comm: Comm, root: int = 0, shuffle: bool = False, seed: int = 0, shards: str = "exact"
) -> Any:
    """Return this rank's share of a data set. All ranks of `comm` call it.

    dataset: anything with a length and items. Either every rank has it, and its share is a torch Subset of it; or all
    ranks except `root` give None, and root sends each rank its examples, in a list.
    comm: mpi4py's communicator, or a virtual rank's; all its ranks call this.
    root: the rank that has the data set where others give None.
    shuffle: shares are runs of an order drawn with `seed`. False: runs of the examples in their order.
    seed: of the order, the same on all ranks.
    shards: "exact": every example once; "repeat": equal lengths, some examples twice; "drop": equal lengths, the last
    few examples go to no rank.
    Raises ValueError, on every rank, where ranks have data sets of different lengths, or arguments that differ between
    ranks or make no sense.
    """
    lengths = comm.allgather(None if dataset is None else len(dataset))
    if not 0 <= root < comm.size or lengths[root] is None:
        raise ValueError(f"root={root}, which has no data set: ranks have {lengths} examples")
    n = lengths[root]
    if any(own not in (None, n) for own in lengths):
        raise ValueError(f"ranks have data sets of different lengths: {lengths}")
    own = scatter_indices(comm, n, shuffle, seed, shards)
    if None not in lengths:
        return Subset(dataset, own.tolist())
    shares = [share_of(n, r, comm.size, shuffle, seed, shards) for r in range(comm.size)]
    return comm.scatter([[dataset[i] for i in each] for each in shares] if comm.rank == root else None, root=root)


class ShardSampler(Sampler[int]):
    """This rank's examples, for a DataLoader: each epoch in another order, drawn anew over all ranks.

    dataset: anything with a length.
    rank: the rank whose examples they are, 0 to size - 1.
    size: number of ranks.
    shuffle: each epoch has an order of its own. False: examples keep their order.
    seed: of the orders, the same on all ranks.
    shards: "exact": every example once, so that lengths may differ by one; "repeat": equal lengths, some examples
    twice, so that all ranks make equally many steps; "drop": equal lengths, the last few examples go to no rank.
    used: number of this epoch's examples that were trained on. Set it before each snapshot that holds the sampler: a
    DataLoader fetches ahead, so the sampler cannot know.

    Call `set_epoch` before each epoch, on all ranks, or every epoch is the first. Give the DataLoader a `generator` of
    its own: otherwise each new DataLoader draws from torch's random numbers, and a run that is resumed within an epoch
    makes one more.
    Raises ValueError where `rank` is no rank.
    """

    def __init__(
        self, dataset: Sized | Dataset | Sequence, rank: int, size: int, shuffle: bool = True, seed: int = 0,
        shards: str = "repeat",
    ) -> None:  # fmt: skip
        if not 0 <= rank < size:
            raise ValueError(f"rank {rank} of {size}: there are ranks 0 to {size - 1}")
        self.n, self.rank, self.size = len(dataset), rank, size  # type: ignore[arg-type]
        self.shuffle, self.seed, self.shards = shuffle, seed, shards
        self.epoch = self.skipped = self.used = 0
        self._resumes = False

    def set_epoch(self, epoch: int, skip: int = 0) -> None:
        """Begin an epoch, which has an order of its own. All ranks call it, before they make an iterator.

        epoch: its number.
        skip: number of this epoch's examples that were used before, in a run that is resumed. In the epoch of a loaded
        state, the examples that the state counts are skipped.
        """
        if not (self._resumes and epoch == self.epoch):
            self.epoch, self.skipped = epoch, skip
        self.used, self._resumes = self.skipped, False

    def state_dict(self) -> dict[str, Any]:
        """Return the sampler's position, and a description of its examples, for `load_state_dict`."""
        return {"epoch": self.epoch, "used": self.used, "of": self._of()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue where another sampler was.

        state_dict: what its `state_dict` returned.
        Raises ValueError if that sampler has other examples, or another order.
        """
        theirs, own = state_dict["of"], self._of()
        if other := [name for name in own if own[name] != theirs[name]]:
            differences = ", ".join(f"{name}={theirs[name]!r}" for name in other)
            raise ValueError(
                f"the state comes from a sampler with {differences}, and this one has {[own[name] for name in other]}"
            )
        self.epoch, self.skipped = state_dict["epoch"], state_dict["used"]
        self.used, self._resumes = self.skipped, True

    def _of(self) -> dict[str, Any]:
        names = ("n", "rank", "size", "shuffle", "seed", "shards")
        return {name: getattr(self, name) for name in names}

    def __iter__(self) -> Iterator[int]:
        # The seeds of consecutive epochs of one run must not be those of another run.
        seed = int(np.random.SeedSequence([self.seed, self.epoch]).generate_state(1)[0])
        own = share_of(self.n, self.rank, self.size, self.shuffle, seed, self.shards)
        return iter(own[self.skipped :].tolist())

    def __len__(self) -> int:
        return max(0, len(share_of(self.n, self.rank, self.size, False, 0, self.shards)) - self.skipped)
