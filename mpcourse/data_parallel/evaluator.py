"""Results of all ranks combined: weighted by their counts, because shards need not be equal."""

from collections.abc import Mapping

import torch

from mpcourse.collectives import naive_allreduce
from mpcourse.data_parallel.communicator import Communicator


def evaluate(communicator: Communicator, correct: float, count: int) -> float:
    """Return the share of correct answers among all ranks' examples. All ranks call it.

    communicator: its ranks all call this.
    correct: correct answers among this rank's examples.
    count: examples of this rank, 0 or more.

    The result is the sum of `correct` over the sum of `count`. A mean of the ranks' shares would be another number
    wherever counts differ.
    Raises ValueError, on every rank, where no rank has any example.
    """
    return _means(communicator, {"correct": correct}, count)["correct"]


def weighted_mean(communicator: Communicator, means: Mapping[str, float], count: int) -> dict[str, float]:
    """Return means over all ranks' examples, from each rank's means. All ranks call it, and get the same bits.

    communicator: its ranks all call this.
    means: by name, the same names on all ranks with examples; a rank without examples may give {}.
    count: examples of this rank, 0 or more.
    Raises ValueError, on every rank, for different names, or where no rank has any example.
    """
    return _means(communicator, {name: value * count if count else 0.0 for name, value in means.items()}, count)


def _means(communicator: Communicator, sums: Mapping[str, float], count: int) -> dict[str, float]:
    communicator.exchange("evaluates")
    by_rank = communicator.comm.allgather((sorted(sums), count))
    for rank, (_, examples) in enumerate(by_rank):
        if examples < 0:
            raise ValueError(f"rank {rank} has {examples} examples: a count is 0 or more")
    total = sum(examples for _, examples in by_rank)
    if not total:
        raise ValueError("no rank has any example to evaluate")
    first = next(rank for rank, (_, examples) in enumerate(by_rank) if examples)
    names = by_rank[first][0]
    for rank, (theirs, examples) in enumerate(by_rank):
        if examples and theirs != names:
            raise ValueError(
                f"rank {rank} evaluates {_named(theirs)}, and rank {first} evaluates {_named(names)}: all ranks with "
                "examples need the same names"
            )
    row = torch.tensor([float(sums[name]) if count else 0.0 for name in names], dtype=torch.float64)
    naive_allreduce(communicator.comm, row)
    return {name: value / total for name, value in zip(names, row.tolist(), strict=True)}


def _named(names: list[str]) -> str:
    return ", ".join(map(repr, names)) or "nothing"
