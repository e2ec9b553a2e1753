"""What e11_gather_layer is asked: values of one process, whole weights during calls alone, and few bytes."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from mpcourse.common.words import counted, named
from mpcourse.course.check.answer import Answer
from mpcourse.course.check.cases.on_bytes import Sent, counting
from mpcourse.course.check.cases.on_chunks import nan_in_new_memory
from mpcourse.course.check.cases.on_gathered import BEFORE, LAYERS, LONG, Layer
from mpcourse.course.check.cases.on_gathered_calls import NAME, applied, backward, met, unchanged
from mpcourse.course.check.cases.on_gathered_network import ANEW, network
from mpcourse.course.check.cases.on_gathered_network import judge as judge_network
from mpcourse.course.check.cases.on_kept_arrays import kept_array
from mpcourse.course.check.cases.on_models import SIZES, Finding, Program, on_real, on_virtual
from mpcourse.course.check.explain import explanation_of
from mpcourse.course.check.facts.ranks import pickles, turned
from mpcourse.course.check.status_page import HasStatusPage
from mpcourse.course.check.wrong import first_difference

if TYPE_CHECKING:
    from mpcourse.course.check.traced_mpi import TracedComm

SLACK = 256  # bytes that ranks may send besides
# What may be wrong with a second backward: what came, and why.
OVERWRITTEN = (
    "the first one has other values after the second",
    "The memory of what backward returns is its receiver's: make a new tensor in each call.",
)
ANOTHERS = (
    "the second one is not that of its own forward",
    "Another forward came in between, without a backward, as in evaluation. Keep in ctx what backward needs: each call "
    "has one for itself.",
)


class Facts(NamedTuple):
    """Of one layer on one rank.

    storage: bytes of the memory of shard's gradient. kept: where whole weights are after forward, and after backward.
    of_call: where x is after backward. written: whether shard.grad was. again: what is wrong with a second backward.
    sent: in forward and in backward, as known.
    """

    y: Any
    of_x: np.ndarray | None = None
    of_shard: np.ndarray | None = None
    storage: int = 0
    kept: tuple[str, str] = ("", "")
    of_call: str = ""
    written: bool = False
    again: tuple[str, str] | None = None
    sent: tuple[Sent, Sent] | None = None


def check(answer: Answer, comm: "TracedComm") -> None:
    """On real ranks, every one of which must call this."""
    for ranks in (comm, turned(comm)):
        for layer in (LAYERS[1], LAYERS[2], LAYERS[3]):
            on_real(answer, ranks, _program(layer), functools.partial(_judge, layer))
        on_real(answer, ranks, network(), judge_network)


def check_virtually(answer: Answer, comm: HasStatusPage) -> None:
    """On virtual ranks; one process calls this."""
    for layer in LAYERS:
        for size in SIZES:
            asked = f"output and gradients as of one process, on {counted(size, 'rank')}, with {layer.what}"
            stumbled = (asked, layer.why) if layer.why else None
            on_virtual(answer, comm, size, _program(layer), functools.partial(_judge, layer), stumbled)
    for size in SIZES:
        stumbled = (f"a network of three layers to be trained as by one process, on {size} ranks", ANEW)
        on_virtual(answer, comm, size, network(), judge_network, stumbled)
    for layer in (LONG, dataclasses.replace(LONG, dtype=torch.float32)):
        for size in SIZES[:-1]:
            ran = on_virtual(answer, comm, size, _program(layer, True), functools.partial(_judge, layer))
            if finding := _judge_memory(ran.results) or _judge_bytes(layer, ran.results, pickles(ran)):
                raise ran.wrong(finding.rank, finding.asked, finding.got, finding.why)


# -- programs of ranks --


def _program(layer: Layer, counts: bool = False) -> Program:
    """counts: what is sent, and what is left in memory, by virtual ranks."""

    def program(own: Answer, comm: Any) -> Facts:
        ranks = comm.Split(0, -comm.rank) if layer.turned else comm
        x, shard, grad = layer.x(ranks.rank), layer.shard(ranks.rank, ranks.size), layer.grad(ranks.rank)
        shard.grad = torch.full_like(shard, BEFORE)
        given = [(name, t, t.detach().clone()) for name, t in (("x", x), ("shard", shard), ("grad", grad))]
        whole = layer.n * layer.dtype.itemsize

        def gradients(y: torch.Tensor, grad: torch.Tensor) -> dict[str, torch.Tensor | None]:
            inputs = {name: t for name, t, _ in given[:2] if t.requires_grad}
            got = backward(own.module, lambda: torch.autograd.grad(y, [*inputs.values()], grad, allow_unused=True))
            return {"x": None, **dict(zip(inputs, got, strict=True))}

        def calls(ranks: Any) -> Facts:
            sent = counting(comm) if counts else None
            y = applied(own.module, x, shard, ranks, layer.shape)
            forward = met(ranks, sent)
            values = y.detach().numpy().copy()
            if tuple(y.shape) != (len(x), layer.shape[0]):
                return Facts(values)
            unchanged("forward", given)
            kept = kept_array(own.module, ranks, lambda n: n >= whole, y)
            sent = counting(comm) if counts else None
            found = gradients(y, grad)
            behind = met(ranks, sent)
            del y
            after = kept_array(own.module, ranks, lambda n: n >= whole)
            of_call = kept_array(own.module, ranks, lambda n: n == x.nbytes) if counts else ""
            unchanged("backward", given)
            written = shard.grad is None or not bool((shard.grad == BEFORE).all())
            gx, gs = (
                {name: None if t is None else t.numpy().copy() for name, t in found.items()}[k] for k in ("x", "shard")
            )
            storage = 0 if found["shard"] is None else found["shard"].untyped_storage().nbytes()
            again = None if counts or gs is None else _again(own, ranks, found["shard"], gs, gradients)
            two = (forward, behind) if forward and behind else None
            return Facts(values, gx, gs, storage, (kept, after), of_call, written, again, two)

        def _again(own: Answer, ranks: Any, first: Any, was: np.ndarray, gradients: Any) -> tuple[str, str] | None:
            """What is wrong with a second backward, which a forward without a backward comes before."""
            y = applied(own.module, x, shard, ranks, layer.shape)
            with torch.no_grad():
                applied(own.module, -x.detach(), shard, ranks, layer.shape)
            second = gradients(y, 2 * grad)["shard"]
            if not np.array_equal(first.numpy(), was, equal_nan=True):
                return OVERWRITTEN
            if second is None or not np.allclose(second.numpy(), 2 * was, 1e-4, 1e-4, equal_nan=True):
                return ANOTHERS
            return None

        with nan_in_new_memory(layer.n, ranks.size, layer.dtype):
            return own.run(calls, f"{NAME}.apply and backward", ranks)

    return program


# -- what came of them --


def _judge(layer: Layer, results: Sequence[Facts]) -> Finding | None:
    size = len(results)
    order = range(size)[::-1] if layer.turned else range(size)  # by the number in the communicator
    facts = [results[at] for at in order]
    tolerance = 1e-5 if layer.dtype == torch.float32 else 1e-12
    rows = (
        ("y", [f.y for f in facts], layer.outputs(size), layer.wrong_outputs(size)),
        ("the gradient of x", [f.of_x for f in facts], layer.of_x(size), layer.wrong_of_x(size)),
        ("the gradient of shard", [f.of_shard for f in facts], layer.of_shard(size), layer.wrong_of_shard(size)),
    )
    for number, at in enumerate(order):
        if facts[number].written:
            asked = f"the gradient of shard to be returned on rank {number} of {size}, and shard.grad to be left alone"
            why = (
                "Autograd adds what backward returns to what shard.grad holds, of earlier micro-batches for instance. "
                "Hooks and torch.autograd.grad see what is returned, and nothing else."
            )
            return Finding(at, asked, "shard.grad was written by hand", why)
    for name, got, want, wrong in rows:
        for number, at in enumerate(order):
            what = f"{name} on rank {number} of {size}, with {layer.what}"
            if name == "the gradient of x" and not layer.needs[number]:
                continue
            if got[number] is None:
                return Finding(at, what, "None", "backward returns the gradients of x and of shard, in this order.")
            row = want[number].astype(str(layer.dtype).removeprefix("torch."))
            if difference := first_difference(got[number], row, what, tolerance, tolerance):
                return Finding(at, *difference, _why(layer, name, got, want, wrong))
    for number, at in enumerate(order):
        if again := facts[number].again:
            asked = f"two backwards, each with its own gradient of shard, on rank {number} of {size}, with {layer.what}"
            return Finding(at, asked, *again)
    return None


def _why(layer: Layer, name: str, got: list[Any], want: list[np.ndarray], wrong: Any) -> str:
    def same(rows: Sequence[np.ndarray], would: Sequence[np.ndarray]) -> bool:
        pairs = [(a, b) for a, b in zip(rows, would, strict=True) if a is not None]
        return all(a.shape == b.shape and np.allclose(a, b, 1e-5, 1e-6) for a, b in pairs)

    if any(a is not None and a.shape != b.shape for a, b in zip(got, want, strict=True)) and name == "y":
        return (
            "y has a row for each example of this rank, and a column for each row of the whole weight. It cannot be "
            "put together from parts of other ranks: their examples are others, and a chunk need not be whole rows."
        )
    there = [number for number, (a, b) in enumerate(zip(got, want, strict=True)) if same([a], [b])]
    rest = [a for number, a in enumerate(got) if number not in there]
    if there and rest and all(a is not None and (not a.any() or np.isnan(a).all()) for a in rest):
        who = named(there)
        return f"Of {len(got)} ranks only {who} has it: Gather and Reduce bring something to their root alone."
    if any(row is not None and np.isnan(row).any() for row in got):
        return "NaN is memory that was never written: torch.empty and np.empty hold anything."
    if why := explanation_of(got, wrong, same):
        return why
    if same(got, want):
        return "Right to 6 digits or so: everything has x's dtype, float64 here."
    ends = all(a.shape == b.shape for a, b in zip(got, want, strict=True))
    if name == "the gradient of shard" and ends:
        n = layer.n
        row, right = np.concatenate(got), np.concatenate(want)
        if np.allclose(row[:n], right[:n], 1e-5, 1e-6):
            return "What belongs to padding is no gradient of anything: it is zero."
    return layer.why or {
        "y": "y is x times the transposed weight, which is all shards, one after the other, without the padding.",
        "the gradient of shard": "The transposed grad times x is the weight's: its mean is cut as the weight is.",
    }.get(name, "")


def _judge_memory(results: Sequence[Facts]) -> Finding | None:
    for rank, facts in enumerate(results):
        for when, where in zip(("forward", "backward"), facts.kept, strict=True):
            if where:
                asked = f"nothing as large as the whole weight in memory on rank {rank} once {when} has returned"
                why = (
                    "The whole weight is kept, so that with many layers all of them are in memory at once. Keep the "
                    "shard alone, and gather again in backward."
                )
                if "of the file" in where:
                    why = (
                        "What the file keeps stays in memory between calls, also while other layers compute: make it "
                        "in each call, and let it go when that returns."
                    )
                return Finding(rank, asked, f"something in {where}", why)
        if facts.of_call:
            asked = f"nothing of the call in memory on rank {rank} once backward has returned"
            why = "What ctx keeps is freed with autograd's graph. What the file keeps is not: it grows with every step."
            return Finding(rank, asked, f"x, in {facts.of_call}", why)
        most = facts.of_shard.nbytes if facts.of_shard is not None else 0
        if facts.storage > most:
            why = "The chunk is a view of the whole gradient, which stays in memory with it. Take a copy of the chunk."
            asked = f"a gradient of shard that keeps {most} bytes on rank {rank}"
            return Finding(rank, asked, f"{facts.storage} bytes", why)
    return None


def _judge_bytes(layer: Layer, results: Sequence[Facts], pickled: bool) -> Finding | None:
    size = len(results)
    once = (size - 1) * -(-layer.n // size) * layer.dtype.itemsize
    for rank, facts in enumerate(results):
        assert facts.sent is not None
        for when, sent, want in zip(("forward", "backward"), facts.sent, (once, 2 * once), strict=True):
            if want - SLACK <= sent.nbytes <= want + SLACK and sent.pickled <= SLACK:
                continue
            asked = f"{want} bytes to be sent by rank {rank} of {size} in {when}, {size - 1}/{size} of the weight"
            asked += ", twice" if when == "backward" else ""
            by = f", by {', '.join(sent.calls)}" if sent.calls else ""
            return Finding(rank, asked, f"{sent.nbytes} bytes{by}", _why_bytes(layer, when, sent, want, pickled))
    return None


def _why_bytes(layer: Layer, when: str, sent: Sent, want: int, pickled: bool) -> str:
    if sent.pickled > SLACK or (pickled and want < sent.nbytes < 1.1 * want + 4 * SLACK):
        return "Methods with a small letter pickle, which copies and adds to what is sent: use those for arrays."
    if sent.nbytes < want:
        return "Too little for a gather and a reduce-scatter. Does backward have the weight from forward?"
    if when == "backward" and any("llreduce" in name for name in sent.calls):
        return (
            "An all-reduce gives all ranks the whole gradient, and each needs only its chunk: a reduce-scatter sends "
            "half as much."
        )
    if layer.dtype == torch.float32:
        return "With float64 it is right, and float32 is sent in more bytes than it has: send x's dtype."
    if when == "forward":
        return "Each rank sends its shard to each other rank once: an all-gather."
    return "Backward needs one gather and one reduce-scatter: to another rank goes a chunk, and each once."
