"""Layers of e11_gather_layer: what each rank is given, what one process makes of it, and what mistakes would."""

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from mpcourse.course.check.cases.on_chunks import chunks_of

GARBAGE = 1e3  # what padding holds
BEFORE = 7.0  # what shard.grad holds, as of an earlier micro-batch
Rows = list[np.ndarray]


@dataclass(frozen=True)
class Layer:
    """One layer. examples: by rank. needs: whether x needs a gradient, by rank. summed: the loss is the sum of y.

    why: of an answer that was right until then.
    """

    what: str
    shape: tuple[int, int] = (4, 3)
    examples: tuple[int, ...] = (2, 2, 2, 2)
    needs: tuple[bool, ...] = (True, True, True, True)
    dtype: torch.dtype = torch.float64
    columns: bool = False
    summed: bool = False
    turned: bool = False
    why: str = ""

    @property
    def n(self) -> int:
        return self.shape[0] * self.shape[1]

    def weight(self) -> torch.Tensor:
        return _drawn(7, self.shape, self.dtype)

    def shard(self, rank: int, size: int) -> torch.Tensor:
        return shard_of(self.weight(), rank, size)

    def x(self, rank: int) -> torch.Tensor:
        x = _drawn(20 + rank, (self.examples[rank], self.shape[1]), self.dtype).clone()
        return (x.t().contiguous().t() if self.columns else x).requires_grad_(self.needs[rank])

    def grad(self, rank: int) -> torch.Tensor:
        """The gradient of y; of a sum it is one number in memory, expanded."""
        if self.summed:
            return torch.ones((), dtype=self.dtype).expand(self.examples[rank], self.shape[0])
        grad = _drawn(50 + rank, (self.examples[rank], self.shape[0]), self.dtype).clone()
        return grad.t().contiguous().t() if self.columns else grad

    def outputs(self, size: int) -> Rows:
        return [_of_rank(self, rank).y for rank in range(size)]

    def of_x(self, size: int) -> Rows:
        return [_of_rank(self, rank).of_x for rank in range(size)]

    def of_weight(self, size: int) -> Rows:
        """Each rank's own gradient of the whole weight, in one row."""
        return [_of_rank(self, rank).of_weight for rank in range(size)]

    def of_shard(self, size: int) -> Rows:
        return chunks_of(np.mean(self.of_weight(size), axis=0), size)

    def wrong_outputs(self, size: int) -> Iterator[tuple[str, Rows]]:
        """(why, all ranks' outputs)."""
        chunks = [self.shard(rank, size) for rank in range(size)]

        def with_weight(row: torch.Tensor, shape: tuple[int, int]) -> Rows:
            weight = row[: self.n].view(shape)
            return [(self.x(rank) @ weight.reshape(self.shape).t()).detach().numpy() for rank in range(size)]

        why = "The chunks are in another order: the weight begins with that of rank 0 of comm."
        yield why, with_weight(torch.cat(chunks[::-1]), self.shape)
        why = "The weight is put together column by column: a row of its elements takes the shape (out, in) as it is."
        row = torch.cat(chunks)[: self.n]
        yield why, [(self.x(rank) @ row.view(self.shape[::-1])).detach().numpy() for rank in range(size)]
        why = "Chunks stand in the order in which they came. The r-th place is that of rank r's, on every rank."
        for by in (1, -1):
            orders = [[chunks[(rank + by * k) % size] for k in range(size)] for rank in range(size)]
            yield why, [with_weight(torch.cat(order), self.shape)[rank] for rank, order in enumerate(orders)]

    def wrong_of_x(self, size: int) -> Iterator[tuple[str, Rows]]:
        right = self.of_x(size)
        why = "The gradient of x is this rank's own, of its own examples and loss: no sum and no mean over ranks."
        if len({row.shape for row in right}) == 1:
            yield why, [np.mean(right, axis=0)] * size
            yield why, [np.sum(right, axis=0)] * size
        yield why, [row / size for row in right]

    def wrong_of_shard(self, size: int) -> Iterator[tuple[str, Rows]]:
        own, right = self.of_weight(size), self.of_shard(size)
        mine = [chunks_of(row, size)[rank] for rank, row in enumerate(own)]
        yield (
            "That is the sum over ranks. The gradient of the shard is a chunk of their mean: divide by their number.",
            [row * size for row in right],
        )
        yield (
            "Divided by the number of ranks twice: once is enough, before the sum or after it.",
            [row / size for row in right],
        )
        yield "That is this rank's own gradient: nothing was summed over ranks.", mine
        yield "Only this rank's own gradient is in it, divided by the number of ranks.", [row / size for row in mine]
        for by in range(1, size):
            why = "The right chunks on wrong ranks: rank r of comm gets the r-th."
            yield why, [right[(rank + by) % size] for rank in range(size)]
        yield "The right chunks on wrong ranks: rank r of comm gets the r-th.", right[::-1]
        examples = sum(self.examples[:size])
        yield (
            "Divided by the number of examples: the mean is over ranks, whatever a rank's own loss is.",
            [row * size / max(1, examples) for row in right],
        )
        share = [size * number / max(1, examples) for number in self.examples]
        why = "Weighted by numbers of examples: the mean is over ranks, each of which counts once."
        yield why, chunks_of(np.mean([row * share[rank] for rank, row in enumerate(own)], axis=0), size)
        yield why, [row * share[rank] for rank, row in enumerate(right)]
        why = "What shard.grad held before is in it: autograd adds that itself, and backward returns this call's alone."
        yield why, [row + BEFORE for row in right]
        xs, grads = [self.x(rank).detach() for rank in range(size)], [self.grad(rank) for rank in range(size)]
        pairs = zip(grads, xs, strict=True)
        outer = [torch.outer(g.sum(0), x.sum(0) / max(1, len(x))).reshape(-1).numpy() for g, x in pairs]
        yield (
            "x was averaged over the examples: the gradient is a sum over them, of each one's grad times its own x.",
            chunks_of(np.mean(outer, axis=0), size),
        )
        if len(set(self.examples[:size])) == 1:
            mean = torch.stack(grads).mean(0)
            yield (
                "A mean over ranks was taken of grad alone, and multiplied by this rank's x. The mean is of the "
                "products: each rank's grad belongs to its own x.",
                [chunks_of((mean.t() @ x).reshape(-1).numpy(), size)[rank] for rank, x in enumerate(xs)],
            )


@functools.cache
def _drawn(seed: int, shape: tuple[int, int], dtype: torch.dtype) -> torch.Tensor:
    """Random numbers; nobody changes them."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


class _OfRank(NamedTuple):
    """What one process makes of a rank's examples, which are the same however many ranks there are."""

    y: np.ndarray
    of_x: np.ndarray
    of_weight: np.ndarray


@functools.cache
def _of_rank(layer: Layer, rank: int) -> _OfRank:
    x, grad, weight = layer.x(rank).detach(), layer.grad(rank), layer.weight()
    return _OfRank(*(t.numpy() for t in (x @ weight.t(), grad @ weight, (grad.t() @ x).reshape(-1))))


def shard_of(weight: torch.Tensor, rank: int, size: int) -> torch.Tensor:
    """A rank's chunk of a weight, in memory of its own; padding holds GARBAGE."""
    n = weight.numel()
    chunk = -(-n // size)
    row = torch.cat([weight.reshape(-1), torch.full((chunk * size - n,), GARBAGE, dtype=weight.dtype)])
    return row[rank * chunk : (rank + 1) * chunk].clone().requires_grad_()


LAYERS = (
    Layer("a weight of 12 elements"),
    Layer("a weight of 15 elements", (5, 3), why="p need not divide the elements: what is behind them is padding."),
    Layer(
        "different numbers of examples",
        (3, 5),
        (2, 4, 1, 3),
        why="Ranks have different numbers of examples. What they send each other is weights and gradients, as long on "
        "all of them.",
    ),
    Layer(
        "an x that needs a gradient on some ranks",
        needs=(True, False, True, False),
        why="Whoever leaves out a collective call makes the others wait, or takes part in the wrong one: "
        "ctx.needs_input_grad may differ between ranks. Gather on all of them, and return None where x needs none.",
    ),
    Layer(
        "a rank without examples",
        (4, 3),
        (3, 0, 2, 1),
        why="A rank without examples has gradients of zeros, and takes part in every collective call.",
    ),
    Layer("float32", (5, 3), dtype=torch.float32),
    Layer(
        "an x and a grad that are not contiguous",
        (3, 4),
        columns=True,
        why="x or grad need not be contiguous, so neither is their product: .reshape(-1) copies where it has to.",
    ),
    Layer(
        "the sum of y as the loss",
        summed=True,
    ),
    Layer("a weight of 2 elements", (1, 2)),
    Layer(
        "ranks of a communicator that has them in another order",
        (5, 3),
        turned=True,
        why="comm is the communicator to use: rank, size and calls of MPI.COMM_WORLD may be others.",
    ),
)
LONG = Layer("a weight of 1,920 elements", (48, 40))
