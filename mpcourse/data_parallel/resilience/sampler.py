"""Which examples come next, on any number of ranks, also after a restart."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from torch.utils.data import Sampler

from mpcourse.data_parallel.dataset import share_of


class StepSampler(Sampler[list[int]]):
    """This rank's examples of each step, for a DataLoader's `batch_sampler`, so that a job can go on with other ranks.

    n: examples of the data set, 1 or more.
    batch: examples of a step, of all ranks together, 1 or more.
    rank: this rank, 0 to size - 1.
    size: number of ranks.
    seed: of the orders, the same on all ranks.
    trained: steps of the whole job that were trained. Set it before each checkpoint: a DataLoader fetches ahead, so the
    sampler cannot know.

    The examples of a step depend on the seed and on the number of the step alone. The ranks share them in runs that
    differ in length by one at most. In each epoch, every example comes once, and the last step has what is left. So the
    place in the data is one number, the same on all ranks, and any number of ranks can continue from it.

    An iterator begins with step `trained` and ends with the epoch. A rank whose share is empty gets an empty list.
    Raises ValueError for sizes that make no sense.
    """

    def __init__(self, n: int, batch: int, rank: int, size: int, seed: int = 0) -> None:
        if n < 1 or batch < 1 or not 0 <= rank < size:
            raise ValueError(f"n={n}, batch={batch}, rank {rank} of {size}: there is an example, and ranks from 0 on")
        self.n, self.batch, self.rank, self.size, self.seed = n, batch, rank, size, seed
        self.trained = 0

    @property
    def steps(self) -> int:
        """Steps of an epoch."""
        return -(-self.n // self.batch)

    @property
    def epoch(self) -> int:
        """The epoch to which step `trained` belongs."""
        return self.trained // self.steps

    def of_all(self, step: int) -> list[int]:
        """Return the examples of a step, of all ranks together.

        step: 0 or more, counted from the begin of the job.
        """
        epoch, place = divmod(step, self.steps)
        order = np.random.default_rng([self.seed, epoch]).permutation(self.n)
        return order[place * self.batch : (place + 1) * self.batch].tolist()

    def __iter__(self) -> Iterator[list[int]]:
        for step in range(self.trained, (self.epoch + 1) * self.steps):
            every = self.of_all(step)
            yield [every[i] for i in share_of(len(every), self.rank, self.size)]

    def __len__(self) -> int:
        return self.steps - self.trained % self.steps

    def state_dict(self) -> dict[str, Any]:
        """Return the place in the data, the same on all ranks."""
        return {"trained": self.trained, "n": self.n, "batch": self.batch, "seed": self.seed}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue where another sampler was, with this one's number of ranks.

        state_dict: what `state_dict` of any rank returned.
        Raises ValueError if that sampler had other examples, another batch or another seed.
        """
        own = self.state_dict()
        if other := [name for name in ("n", "batch", "seed") if state_dict[name] != own[name]]:
            raise ValueError(
                f"the place is that of another order: {', '.join(f'{name}={state_dict[name]}' for name in other)}, and "
                f"here {', '.join(f'{name}={own[name]}' for name in other)}"
            )
        self.trained = state_dict["trained"]
