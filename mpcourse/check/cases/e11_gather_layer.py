"""What e11_gather_layer is asked: values of one process, whole weights during calls alone, and few bytes."""

import dataclasses
import functools
import traceback
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from mpcourse.check.answer import Answer
from mpcourse.check.cases.on_bytes import Sent, counting
from mpcourse.check.cases.on_chunks import nan_in_new_memory
from mpcourse.check.cases.on_gathered import LAYERS, LONG, RATE, STEPS, Layer, batch, shapes, shard_of, trained, weights
from mpcourse.check.cases.on_kept_weights import whole_weights
from mpcourse.check.cases.on_models import SIZES, Finding, Program, on_real, on_virtual, one_line
from mpcourse.check.cases.on_ranks import pickles, turned
from mpcourse.check.explain import explanation_of
from mpcourse.check.status_page import HasStatusPage
from mpcourse.check.wrong import Wrong, first_difference, short

if TYPE_CHECKING:
    from mpcourse.check.traced_mpi import TracedComm

NAME = "GatheredLinear"
SLACK = 256  # bytes that ranks may send besides
_ANEW = (
    "Weights change with every step, and each layer has its own: gather in every call, and keep in ctx alone what "
    "backward needs."
)


class Facts(NamedTuple):
    """Of one layer on one rank. kept: where whole weights are after forward, and after backward. sent: as known."""

    y: Any
    of_x: np.ndarray | None
    of_shard: np.ndarray | None
    storage: int
    kept: tuple[str, str]
    sent: tuple[Sent, Sent] | None


def check(answer: Answer, comm: "TracedComm") -> None:
    """On real ranks, every one of which must call this."""
    for ranks in (comm, turned(comm)):
        for layer in (LAYERS[1], LAYERS[2], LAYERS[3]):
            on_real(answer, ranks, _program(layer), functools.partial(_judge, layer))
        on_real(answer, ranks, _training(), _judge_training)


def check_virtually(answer: Answer, comm: HasStatusPage) -> None:
    """On virtual ranks; one process calls this."""
    for layer in LAYERS:
        for size in SIZES:
            asked = f"output and gradients as of one process, on {size} rank{'s' * (size > 1)}, with {layer.what}"
            stumbled = (asked, layer.why) if layer.why else None
            on_virtual(answer, comm, size, _program(layer), functools.partial(_judge, layer), stumbled)
    for size in SIZES:
        stumbled = (f"a network of three layers to be trained as by one process, on {size} ranks", _ANEW)
        on_virtual(answer, comm, size, _training(), _judge_training, stumbled)
    for layer in (LONG, dataclasses.replace(LONG, dtype=torch.float32)):
        for size in SIZES[:-1]:
            ran = on_virtual(answer, comm, size, _program(layer, True), functools.partial(_judge, layer))
            if finding := _judge_memory(ran.results) or _judge_bytes(layer, ran.results, pickles(ran)):
                raise ran.wrong(finding.rank, finding.asked, finding.got, finding.why)


# -- programs of ranks --


def _apply(own: ModuleType, *args: Any) -> torch.Tensor:
    """What GatheredLinear.apply returns; Wrong where it is no tensor with a backward."""
    function = getattr(own, NAME)
    if not isinstance(function, type) or not issubclass(function, torch.autograd.Function):
        why = "Keep the line of the class: it makes apply, which calls forward and notes backward."
        raise Wrong(f"{NAME} to be a torch.autograd.Function", short(function), why)
    y = function.apply(*args)
    if not isinstance(y, torch.Tensor):
        raise Wrong("forward to return y, a tensor", short(y), "Nothing came back: is x times the weight returned?")
    return y


def _backward(own: ModuleType, y: torch.Tensor, grad: torch.Tensor) -> None:
    try:
        y.backward(grad)
    except (RuntimeError, TypeError) as error:
        if any(frame.filename == own.__file__ for frame in traceback.extract_tb(error.__traceback__)):
            raise
        why = (
            "backward returns one value for each argument of forward but ctx: of x's shape, of the shard's, (chunk,), "
            "and None for comm and shape."
        )
        raise Wrong("gradients of x and of the shard from backward, in their shapes", one_line(error), why) from None


def _program(layer: Layer, counts: bool = False) -> Program:
    """counts: what is sent, by virtual ranks, which meet after each call: until then messages may be under way."""

    def program(own: Answer, comm: Any) -> Facts:
        ranks = comm.Split(0, -comm.rank) if layer.turned else comm
        x, shard = layer.x(ranks.rank), layer.shard(ranks.rank, ranks.size)
        before = x.detach().clone(), shard.detach().clone()
        whole = layer.n * layer.dtype.itemsize

        def calls(ranks: Any) -> Facts:
            sent = counting(comm) if counts else None
            y = _apply(own.module, x, shard, ranks, layer.shape)
            forward = _met(ranks, sent)
            values = y.detach().numpy().copy()
            if tuple(y.shape) != (len(x), layer.shape[0]):
                return Facts(values, None, None, 0, ("", ""), None)
            kept = whole_weights(own.module, ranks, y, whole)
            sent = counting(comm) if counts else None
            _backward(own.module, y, layer.grad(ranks.rank))
            backward = _met(ranks, sent)
            del y
            after = whole_weights(own.module, ranks, None, whole)
            if not torch.equal(x.detach(), before[0]) or not torch.equal(shard.detach(), before[1]):
                raise Wrong("x and shard to be as they were", "other values", "Work on copies: both are the caller's.")
            gx, gs = (None if t.grad is None else t.grad for t in (x, shard))
            return Facts(
                values,
                None if gx is None else gx.numpy().copy(),
                None if gs is None else gs.numpy().copy(),
                0 if gs is None else gs.untyped_storage().nbytes(),
                (kept, after),
                (forward, backward) if forward and backward else None,
            )

        with nan_in_new_memory(layer.n, ranks.size, layer.dtype):
            return own.run(calls, f"{NAME}.apply and backward", ranks)

    return program


def _met(comm: Any, sent: Callable[[], Sent] | None) -> Sent | None:
    """What was sent until all ranks have come here."""
    if sent is None:
        return None
    comm.Barrier()
    found = sent()
    return found._replace(calls=found.calls[:-1])


def _training() -> Program:
    """Three layers with tanh between them, trained for some steps; the shards after each step."""

    def program(own: Answer, comm: Any) -> list[list[np.ndarray]]:
        def calls(comm: Any) -> list[list[np.ndarray]]:
            found = []
            shards = [shard_of(weight, comm.rank, comm.size) for weight in weights()]
            for step in range(STEPS):
                x, target = batch(comm.rank, step)
                for i, (shard, shape) in enumerate(zip(shards, shapes(), strict=True)):
                    y = _apply(own.module, torch.tanh(x) if i else x, shard, comm, shape)
                    x = y
                _backward(own.module, ((y - target) ** 2).sum(), torch.ones((), dtype=y.dtype))
                with torch.no_grad():
                    for shard in shards:
                        shard -= RATE * (0 if shard.grad is None else shard.grad)
                        shard.grad = None
                found.append([shard.detach().numpy().copy() for shard in shards])
            return found

        return own.run(calls, f"{NAME} in a network", comm)

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
    return None


def _why(layer: Layer, name: str, got: list[Any], want: list[np.ndarray], wrong: Any) -> str:
    def same(rows: Sequence[np.ndarray], would: Sequence[np.ndarray]) -> bool:
        pairs = [(a, b) for a, b in zip(rows, would, strict=True) if a is not None]
        return all(a.shape == b.shape and np.allclose(a, b, 1e-5, 1e-6) for a, b in pairs)

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


def _judge_training(results: Sequence[list[list[np.ndarray]]]) -> Finding | None:
    size = len(results)
    for step, held in enumerate(trained(size)):
        for i, weight in enumerate(held):
            for rank, found in enumerate(results):
                n = weight.numel()
                chunk = -(-n // size)
                keep = max(0, min(n, (rank + 1) * chunk) - rank * chunk)
                want = weight.reshape(-1).numpy()[rank * chunk :][:keep]
                what = f"the shard of layer {i} after step {step} on rank {rank} of {size}"
                if difference := first_difference(found[step][i][:keep], want, what, 1e-10, 1e-10):
                    return Finding(rank, *difference, _ANEW)
    return None


def _judge_memory(results: Sequence[Facts]) -> Finding | None:
    for rank, facts in enumerate(results):
        for when, where in zip(("forward", "backward"), facts.kept, strict=True):
            if where:
                asked = f"no whole weight in memory on rank {rank} once {when} has returned"
                why = (
                    "The whole weight is kept, so that with many layers all of them are in memory at once. Keep the "
                    "shard, and gather again in backward."
                )
                return Finding(rank, asked, f"one, or more than that, in {where}", why)
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
            return Finding(rank, asked, f"{sent.nbytes} bytes{by}", _why_bytes(when, sent, want, once, pickled))
    return None


def _why_bytes(when: str, sent: Sent, want: int, once: int, pickled: bool) -> str:
    if sent.pickled > SLACK or (pickled and want < sent.nbytes < 1.1 * want + 4 * SLACK):
        return "Methods with a small letter pickle, which copies and adds to what is sent: use those for arrays."
    if sent.nbytes < want:
        return "Too little for a gather and a reduce-scatter. Does backward have the weight from forward?"
    if when == "backward" and any("llreduce" in name for name in sent.calls):
        return (
            "An all-reduce gives all ranks the whole gradient, and each needs only its chunk: a reduce-scatter sends "
            "half as much."
        )
    if when == "forward" and sent.nbytes > 1.9 * once:
        return "Each rank sends its shard to each other rank once: an all-gather."
    return "Backward needs one gather and one reduce-scatter: to another rank goes a chunk, and each once."
