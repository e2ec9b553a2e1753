"""A network of e11_gather_layer's layers, trained: what becomes of shards, and whose weight each call gathers."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from mpcourse.common.words import counted, named
from mpcourse.course.check.answer import Answer
from mpcourse.course.check.cases.on_bytes import Sent, counting
from mpcourse.course.check.cases.on_gathered import shard_of
from mpcourse.course.check.cases.on_gathered_calls import NAME, applied, backward, met
from mpcourse.course.check.cases.on_models import Finding, Program
from mpcourse.course.check.wrong import first_difference

STEPS, RATE, WIDTHS = 3, 0.01, (40, 48, 36, 32)
ANEW = (
    "Weights change with every step, and each layer has its own: gather in every call, and keep in ctx alone what "
    "backward needs."
)


class Call(NamedTuple):
    """Of a layer in a step. when: forward or backward. nbytes: that this rank sent."""

    layer: int
    when: str
    nbytes: int


class Trained(NamedTuple):
    """Of one rank. shards: after each step. calls: in their order, known of virtual ranks."""

    shards: list[list[np.ndarray]]
    calls: list[Call]


def network() -> Program:
    """Three layers with tanh between them, trained for some steps."""

    def program(own: Answer, comm: Any) -> Trained:
        return own.run(lambda comm: _train(own, comm), f"{NAME} in a network", comm)

    return program


def _train(own: Answer, comm: Any) -> Trained:
    found, calls = [], list[Call]()
    counts = hasattr(comm, "world")
    since: list[Callable[[], Sent] | None] = [None]

    def noted(layer: int, when: str) -> None:
        if sent := met(comm, since[0]):
            calls.append(Call(layer, when, sent.nbytes))
        since[0] = counting(comm) if counts else None

    def before(x: torch.Tensor, layer: int) -> torch.Tensor:
        """What a layer is given; its gradient is there once the layer's backward has returned."""
        x.register_hook(lambda _: noted(layer, "backward"))
        return x

    shards = [shard_of(weight, comm.rank, comm.size) for weight in weights()]
    for step in range(STEPS):
        x, target = batch(comm.rank, step)
        since[0] = counting(comm) if counts else None
        for i, (shard, shape) in enumerate(zip(shards, shapes(), strict=True)):
            y = x = applied(own.module, before(torch.tanh(x), i) if i else x, shard, comm, shape)
            noted(i, "forward")
        loss = ((y - target) ** 2).sum()
        backward(own.module, loss.backward)
        noted(0, "backward")
        with torch.no_grad():
            for shard in shards:
                shard -= RATE * (0 if shard.grad is None else shard.grad)
                shard.grad = None
        found.append([shard.detach().numpy().copy() for shard in shards])
    return Trained(found, calls)


def judge(results: Sequence[Trained]) -> Finding | None:
    """Whether all shards are, after each step, those of one process, and each weight is gathered where it is used."""
    size = len(results)
    for step, held in enumerate(trained(size)):
        for i, weight in enumerate(held):
            for rank, found in enumerate(results):
                n = weight.numel()
                chunk = -(-n // size)
                keep = max(0, min(n, (rank + 1) * chunk) - rank * chunk)
                want = weight.reshape(-1).numpy()[rank * chunk :][:keep]
                what = f"the shard of layer {i} after step {step} on rank {rank} of {size}"
                if difference := first_difference(found.shards[step][i][:keep], want, what, 1e-10, 1e-10):
                    return Finding(rank, *difference, ANEW)
    early = (_ahead(rank, size, facts.calls) for rank, facts in enumerate(results))
    return next((finding for finding in early if finding), None)


def _ahead(rank: int, size: int, calls: Sequence[Call]) -> Finding | None:
    """The first call in which weights are gathered that only later ones need, which then gather less."""
    gather = [(size - 1) * -(-out * width // size) * 8 for out, width in shapes()]
    least = min(gather) / 2
    more, excess = 0, list[int]()  # bytes that were sent, up to each call, besides what calls until then need
    for call in calls:
        more += call.nbytes - gather[call.layer] * (2 if call.when == "backward" else 1)
        excess.append(more)
    if size == 1 or abs(more) > least or max(excess, default=0) < least:
        return None
    at = next(i for i, nbytes in enumerate(excess) if nbytes > least)
    sums = [sum(gather[call.layer] for call in calls[at + 1 :][:k]) for k in range(1, 4)]
    k = min(range(1, 4), key=lambda k: abs(sums[k - 1] - excess[at]))
    call, early = calls[at], named([c.layer for c in calls[at + 1 :][:k]], "layer")
    layers = f"{counted(k, 'layer')} ahead"
    asked = f"layer {call.layer}'s weight alone to be gathered in its {call.when}, on rank {rank} of {size}"
    got = f"{call.nbytes} bytes sent, among them what the weight{'s' * (k > 1)} of {early} take{'s' * (k == 1)}"
    why = (
        f"Weights are gathered {layers}, so that {k + 1} whole ones are in memory at once. Here it is one at a time: "
        "each call gathers its own layer's weight, and no other's."
    )
    return Finding(rank, asked, got, f"{why} To hide messages, one layer ahead would do." if k > 1 else why)


def shapes() -> list[tuple[int, int]]:
    return [(out, width) for width, out in zip(WIDTHS, WIDTHS[1:], strict=False)]


def weights() -> list[torch.Tensor]:
    draw = torch.Generator().manual_seed(3)
    return [torch.randn(shape, generator=draw, dtype=torch.float64) / shape[1] ** 0.5 for shape in shapes()]


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
