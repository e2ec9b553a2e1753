"""Layers of e11_gather_layer: what each rank is given, what one process makes of it, and what mistakes would."""

import functools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from mpcourse.check.cases.on_chunks import chunks_of

STEPS, RATE, WIDTHS = 3, 0.1, (4, 5, 5, 3)  # of the network that is trained
GARBAGE = 1e3  # what padding holds
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
        return torch.randn(self.shape, generator=torch.Generator().manual_seed(7), dtype=self.dtype)

    def shard(self, rank: int, size: int) -> torch.Tensor:
        return shard_of(self.weight(), rank, size)

    def x(self, rank: int) -> torch.Tensor:
        draw = torch.Generator().manual_seed(20 + rank)
        x = torch.randn((self.examples[rank], self.shape[1]), generator=draw, dtype=self.dtype)
        return (x.t().contiguous().t() if self.columns else x).requires_grad_(self.needs[rank])

    def grad(self, rank: int) -> torch.Tensor:
        """The gradient of y; of a sum it is one number in memory, expanded."""
        if self.summed:
            return torch.ones((), dtype=self.dtype).expand(self.examples[rank], self.shape[0])
        draw = torch.Generator().manual_seed(50 + rank)
        return torch.randn((self.examples[rank], self.shape[0]), generator=draw, dtype=self.dtype)

    def outputs(self, size: int) -> Rows:
        return [(self.x(rank) @ self.weight().t()).detach().numpy() for rank in range(size)]

    def of_x(self, size: int) -> Rows:
        return [(self.grad(rank) @ self.weight()).numpy() for rank in range(size)]

    def of_weight(self, size: int) -> Rows:
        """Each rank's own gradient of the whole weight, in one row."""
        return [(self.grad(rank).t() @ self.x(rank).detach()).reshape(-1).numpy() for rank in range(size)]

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
            "Divided by the number of all examples: the mean is over ranks, whatever a rank's own loss is.",
            [row * size / max(1, examples) for row in right],
        )


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
        why="Ranks have different numbers of examples. What they send each other, weights and gradients, is as long.",
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
        "an x that is not contiguous",
        (3, 4),
        columns=True,
        why="x or grad need not be contiguous, so neither is their product: .reshape(-1) copies where it has to.",
    ),
    Layer(
        "the sum of y as the loss",
        summed=True,
        why="The gradient of a sum is one number in memory, expanded to y's shape: it is not contiguous.",
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


def shapes() -> list[tuple[int, int]]:
    return [(out, width) for width, out in zip(WIDTHS, WIDTHS[1:], strict=False)]


def weights() -> list[torch.Tensor]:
    draw = torch.Generator().manual_seed(3)
    return [torch.randn(shape, generator=draw, dtype=torch.float64) / 2 for shape in shapes()]


def batch(rank: int, step: int) -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(10 * step + rank)
    return tuple(torch.randn((2, w), generator=draw, dtype=torch.float64) for w in (WIDTHS[0], WIDTHS[-1]))  # type: ignore[return-value]


@functools.cache
def trained(size: int) -> list[list[torch.Tensor]]:
    """Of one process: the weights after each step."""
    held, found = [w.requires_grad_() for w in weights()], []
    for step in range(STEPS):
        for rank in range(size):
            x, target = batch(rank, step)
            for i, weight in enumerate(held):
                x = (torch.tanh(x) if i else x) @ weight.t()
            (((x - target) ** 2).sum() / size).backward()
        with torch.no_grad():
            for weight in held:
                assert weight.grad is not None
                weight -= RATE * weight.grad
                weight.grad = None
        found.append([weight.detach().clone() for weight in held])
    return found
