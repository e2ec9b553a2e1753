"""What e02_column_row is asked: two layers over devices, against the whole ones."""

from collections.abc import Iterator
from copy import deepcopy
from functools import partial
from typing import Any

import torch
from torch import nn

from mpcourse.course.check.answer import Answer
from mpcourse.course.check.explain import explanation_of
from mpcourse.course.check.facts.calls import one_by_one
from mpcourse.course.check.facts.tensors import SECOND, backward, close, copies_text, equal, is_on, lanes
from mpcourse.course.check.status_page import HasStatusPage
from mpcourse.course.check.wrong import Wrong, short
from mpcourse.virtual import Box, virtual_gpus

Tensor = torch.Tensor


def check(answer: Answer, comm: HasStatusPage) -> None:
    """Every rank may call this; ranks do not talk."""
    with virtual_gpus(4) as box:
        sizes = ((2, 10, 8, 5), (4, 3, 8, 8), (1, 4, 4, 4), (3, 9, 9, 9))
        every = [partial(_layers, box=box, sizes=each) for each in sizes]
        one_by_one(answer, [*every, partial(_layers, box=box, sizes=(2, 4, 6, 8), unusual=True)])


def _layers(answer: Answer, box: Box, sizes: tuple[int, int, int, int], unusual: bool = False) -> None:
    """unusual: layers of doubles that are on a GPU already, with biases of zeros, and a batch of one."""
    n, n_in, n_hidden, n_out = sizes
    devices = [f"vgpu:{i}" for i in range(n)][::-1]  # the first is not always vgpu:0
    first, second = nn.Linear(n_in, n_hidden), nn.Linear(n_hidden, n_out)
    if unusual:
        first, second = (layer.double() for layer in (first, second))
        nn.init.zeros_(first.bias)
        nn.init.zeros_(second.bias)
    made = []
    for name, whole, dim in (("ColumnParallelLinear", first, 0), ("RowParallelLinear", second, 1)):
        given = deepcopy(whole).to(devices[0] if unusual else "cpu")
        made.append(answer.call(name, given, list(devices)))
        _parts(made[-1], whole, devices, dim, name)
        _own_memory(made[-1], given, name)
    column, row = made
    batch = 1 if unusual else 3
    _pair(answer, box, column, row, first, second, devices, batch)
    for layer in (column, row, first, second):
        layer.zero_grad()
    try:
        _pair(answer, box, column, row, first, second, devices, batch)
    except Wrong as wrong:
        wrong.why = SECOND
        raise


def _own_memory(layer: Any, given: nn.Linear, name: str) -> None:
    """A part that shares memory with the layer that it was cut from would change it in training."""
    before = given.weight.detach().clone()
    with torch.no_grad():
        for part in layer.parts:
            start = part.weight.clone()
            part.weight.add_(1.0)
            changed = not torch.equal(given.weight, before)
            part.weight.copy_(start)
            if changed:
                why = (
                    "Where the layer is on that device already, .to copies nothing. A part's weight is a copy: clone()."
                )
                raise Wrong(f"the layer that {name} was made from to stay as it is in training", "it changes", why)


def _parts(layer: Any, whole: nn.Linear, devices: list[str], dim: int, name: str) -> None:
    """The parts that a layer is made of: how many, where, of which shape."""
    parts = getattr(layer, "parts", None)
    if parts is None or len(parts) != len(devices):
        got = "no self.parts" if parts is None else f"{len(parts)} parts"
        why = "There is a part for each device of the list, however many these are."
        raise Wrong(f"{name} to have one part a device, {len(devices)} in all", got, why)
    held = {id(p) for p in layer.parameters()}
    if any(id(p) not in held for part in parts for p in part.parameters()):
        why = "A plain list hides modules: .parameters() does not find them, and the optimizer never sees them. "
        raise Wrong(f"{name}'s parts among its parameters", "none of them", why + "Use nn.ModuleList.")
    n_out, n_in = whole.weight.shape
    shape = (n_out // len(devices), n_in) if dim == 0 else (n_out, n_in // len(devices))
    for i, (part, device) in enumerate(zip(parts, devices, strict=True)):
        what = f"{name}: the weight of part {i}"
        is_on(part.weight, device, what, "Part i lives on devices[i], from the start: linear_on(devices[i], ...).")
        if tuple(part.weight.shape) == (n_out, n_in) != shape:
            why = f"The weight is not cut: each part has all of it. Part i gets the i-th of {len(devices)} shares."
            raise Wrong(f"{what} of shape {shape}", f"{tuple(part.weight.shape)}, that of the whole layer", why)
        if tuple(part.weight.shape) != shape:
            raise Wrong(
                f"{what} of shape {shape}", f"{tuple(part.weight.shape)}", _why_shape(part, whole, len(devices), dim)
            )
        if part.weight.dtype != whole.weight.dtype:
            why = (
                "A copy has the type of what it is a copy of: nn.Linear(...) makes float32, whatever is copied into it."
            )
            raise Wrong(f"{what} of {whole.weight.dtype}", f"{part.weight.dtype}", why)
        if dim == 0 and part.bias is not None and part.bias.shape != shape[:1]:
            why = "By outputs the bias is cut too: each output has one number of it."
            raise Wrong(f"{name}: the bias of part {i} of shape {shape[:1]}", f"{tuple(part.bias.shape)}", why)
        equal(part.weight, whole.weight.chunk(len(devices), dim)[i], what, "Part i has the i-th share, in order.")
        if dim == 0 and part.bias is not None:
            why = "Part i has the i-th share of the bias, too: the numbers of the very outputs that it computes."
            if close(part.bias, whole.bias.chunk(len(devices))[0]):
                why = f"That is the first share of the bias, which belongs to part 0. {why}"
            equal(part.bias, whole.bias.chunk(len(devices))[i], f"{name}: the bias of part {i}", why)
        if frozen := [key for key, p in part.named_parameters() if not p.requires_grad]:
            why = "With requires_grad False nobody trains it. Parts are trained as the whole layer would be."
            raise Wrong(f"{name}: the {frozen[0]} of part {i} to be trained", "requires_grad is False", why)


def _why_shape(part: Any, whole: nn.Linear, n: int, dim: int) -> str:
    got, sizes, words = tuple(part.weight.shape), tuple(whole.weight.shape), ("outputs", "inputs")
    if got[1 - dim] != sizes[1 - dim]:
        return f"torch keeps W as (outputs, inputs): by {words[dim]} is a cut of dimension {dim}."
    if got[dim] == sizes[1 - dim] // n:
        return f"That is a share of the {words[1 - dim]}. Here the {words[dim]} are shared out, {sizes[dim]} over {n}."
    share = sizes[dim] // n
    return f"A share is {sizes[dim]} / {n} = {share} {words[dim]}, from i * {share} on. A slice's end is not in it."


def _why_no_list(xs: Any, n: int) -> str:
    if xs is None:
        return "Nothing came back: is the result returned?"
    if hasattr(xs, "__next__"):
        return "A generator has no length, and is empty once it was gone through. In square brackets it is a list."
    if n == 1:
        return "For one device it is a list, too: of one tensor."
    return "Each device keeps its own share: nothing is put together between the two layers."


def _pair(
    answer: Answer, box: Box, column: Any, row: Any, first: nn.Linear, second: nn.Linear, devices: list[str], batch: int
) -> None:
    values = torch.randn(batch, first.in_features, dtype=first.weight.dtype)
    x = values.to(devices[0]).requires_grad_()
    plain = values.clone().requires_grad_()
    hidden = first(plain)
    want = second(hidden.tanh())
    n = len(devices)
    box.reset()
    xs = answer.run(column, "ColumnParallelLinear's forward", x, changes=(x,))
    copies = lanes(box)
    if not isinstance(xs, list | tuple) or len(xs) != n:
        raise Wrong(f"a list of {n} tensors, one a device", short(xs), _why_no_list(xs, n))
    for i, device in enumerate(devices):
        is_on(xs[i], device, f"the result of part {i}", "Each part computes on its own device, and stays there.")
        share = hidden.chunk(n, 1)[i]
        if xs[i].shape != share.shape:
            why = "A batch of one is a batch: its dimension stays. squeeze() removes it." if batch == 1 else ""
            raise Wrong(f"part {i}'s result of shape {tuple(share.shape)}", f"{tuple(xs[i].shape)}", why)
        why = ""
        if close(xs[i], share - first.bias.detach().chunk(n)[i]):
            why = "The bias is missing: each part adds its own share of it."
        elif close(xs[i], share.relu()) or close(xs[i], share.tanh()):
            why = "There is an activation function in it. The layer computes what linear computes, and no more."
        equal(xs[i], share, f"the result of part {i}", why, 1e-4, 1e-5)
    if len(copies) > n - 1:
        why = "x goes once to each device where it is not already."
        if any(not lane.startswith(devices[0]) for lane in copies):
            why = (
                "Some of these copies are of results: they are put together and given out again. Nothing is exchanged "
                "between the two layers, for part i of the second needs just what part i of the first computes."
            )
        raise Wrong(f"{n - 1} copies, of x to each other device", copies_text(copies), why)
    box.reset()
    inner = [t.tanh() for t in xs]
    before = list(inner)
    out = answer.run(row, "RowParallelLinear's forward", inner, changes=(inner,))
    copies = lanes(box)
    if len(inner) != n or any(now is not then for now, then in zip(inner, before, strict=True)):
        why = "The list is the caller's, who may need it again: put results into a list of your own."
        raise Wrong("the list xs to stay as it is", "it holds something else after the call", why)
    is_on(out, devices[0], "the sum", "The parts' results meet on devices[0].")
    if out.shape != want.shape:
        why = "Each part has a piece of every output: they are added, not concatenated."
        if batch == 1 and out.shape == want.shape[1:]:
            why = "A batch of one is a batch: its dimension stays. squeeze() removes it."
        raise Wrong(f"a result of shape {tuple(want.shape)}", f"{tuple(out.shape)}", why)
    why = explanation_of(out, _wrong_sums(want, second, n, inner), close)
    why = why or "The result is the sum of what all parts compute, each from its own share of the inputs."
    equal(out, want, "the sum", why, 1e-4, 1e-5)
    if len(copies) > n - 1:
        why = "Each part computes on its own device, and its result goes to devices[0], once, to be added there."
        if any("cpu" in lane for lane in copies):
            why = f"By way of the CPU it crosses two links. {why}"
        elif any(lane.startswith(devices[0]) for lane in copies):
            why = (
                f"From devices[0], which collects, something is sent out again: each part has its input already. {why}"
            )
        raise Wrong(f"{n - 1} copies, of the results of the parts on other devices", copies_text(copies), why)
    _gradients(answer, column, row, first, second, (out, want), (x, plain))


def _wrong_sums(want: Tensor, second: nn.Linear, n: int, inner: list[Tensor]) -> Iterator[tuple[str, Tensor]]:
    """(why, result) of the known mistakes."""
    bias = second.bias.detach()
    if n > 1:
        why = f"The bias is there {n} times: each part adds it, and the parts are added up. Once is enough."
        yield why, want + (n - 1) * bias
    yield "The bias is missing: one part adds it.", want - bias
    if n > 1:
        yield "The parts are added up, not averaged.", want / n
        for i, (w, h) in enumerate(zip(second.weight.detach().chunk(n, 1), inner, strict=True)):
            alone = h.detach().cpu() @ w.t()
            why = f"Only part {i} is in the result: a piece of every output is missing. Add all parts up."
            yield why, alone
            yield why, alone + bias


def _gradients(
    answer: Answer,
    column: Any,
    row: Any,
    first: nn.Linear,
    second: nn.Linear,
    results: tuple[Tensor, Tensor],
    inputs: tuple[Tensor, Tensor],
) -> None:
    (out, want), (x, plain) = results, inputs
    probe = torch.randn_like(want)
    want.backward(probe)
    backward(answer, out, probe, "the result", "Every tensor that crosses goes through copy(x, device).")
    cut = "The chain of gradients is cut: every crossing is a copy(x, device), without detach, .data or no_grad."
    if x.grad is None:
        raise Wrong("a gradient for x", "None", cut)
    assert plain.grad is not None
    equal(x.grad, plain.grad, "the gradient of x", f"It is the sum over all devices. {cut}", 1e-4, 1e-5)
    for layer, whole, dim, name in ((column, first, 0, "first"), (row, second, 1, "second")):
        held, wanted = (sum(p.numel() for p in module.parameters()) for module in (layer, whole))
        if held != wanted:
            why = "One bias, spread over the parts, is several: each is trained by the whole gradient."
            if held < wanted:
                why = "A bias is missing. It is a parameter though its numbers are 0: training moves it."
            elif held >= wanted + whole.weight.numel():
                why = "The whole layer is kept beside its parts. Each device has its part alone: that saves memory."
            raise Wrong(f"{wanted} numbers in the parameters of the {name} layer, as in the whole one", f"{held}", why)
        assert whole.weight.grad is not None
        shares = whole.weight.grad.chunk(len(layer.parts), dim)
        for i, (part, share) in enumerate(zip(layer.parts, shares, strict=True)):
            if part.weight.grad is None:
                raise Wrong(f"a gradient for part {i} of the {name} layer", "None", cut)
            equal(part.weight.grad, share, f"the gradient of part {i} of the {name} layer", cut, 1e-4, 1e-5)
