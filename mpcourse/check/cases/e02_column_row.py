"""What e02_column_row is asked: two layers over devices, against the whole ones."""

from functools import partial
from typing import Any

import torch
from torch import nn

from mpcourse.check.answer import Answer
from mpcourse.check.cases.on_calls import one_by_one
from mpcourse.check.cases.on_devices import SECOND, backward, close, equal, is_on, lanes, told
from mpcourse.check.logbook import HasLogbook
from mpcourse.check.wrong import Wrong, short
from mpcourse.virtual import Box, virtual_gpus

Tensor = torch.Tensor


def check(answer: Answer, comm: HasLogbook) -> None:
    """Every rank may call this; ranks do not talk."""
    with virtual_gpus(4) as box:
        sizes = ((2, 6, 8, 5), (4, 3, 8, 8), (1, 4, 4, 4), (3, 9, 9, 9))
        one_by_one(answer, [partial(_layers, box=box, sizes=each) for each in sizes])


def _layers(answer: Answer, box: Box, sizes: tuple[int, int, int, int]) -> None:
    n, n_in, n_hidden, n_out = sizes
    devices = [f"vgpu:{i}" for i in range(n)][::-1]  # the first is not always vgpu:0
    first, second = nn.Linear(n_in, n_hidden), nn.Linear(n_hidden, n_out)
    column = answer.call("ColumnParallelLinear", first, list(devices))
    _parts(column, first, devices, 0, "ColumnParallelLinear")
    row = answer.call("RowParallelLinear", second, list(devices))
    _parts(row, second, devices, 1, "RowParallelLinear")
    _pair(answer, box, column, row, first, second, devices)
    for layer in (column, row, first, second):
        layer.zero_grad()
    try:
        _pair(answer, box, column, row, first, second, devices)
    except Wrong as wrong:
        wrong.why = SECOND
        raise


def _parts(layer: Any, whole: nn.Linear, devices: list[str], dim: int, name: str) -> None:
    """The parts that a layer is made of: how many, where, of which shape."""
    parts = getattr(layer, "parts", None)
    if parts is None or len(parts) != len(devices):
        got = "no self.parts" if parts is None else f"{len(parts)} parts"
        raise Wrong(f"{name} to have one part a device, {len(devices)} in all", got, "")
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
            cut = "torch keeps W as (outputs, inputs): " + (
                "by outputs is a cut of dimension 0." if dim == 0 else "by inputs is a cut of dimension 1."
            )
            raise Wrong(f"{what} of shape {shape}", f"{tuple(part.weight.shape)}", cut)
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
    with torch.no_grad():  # a part that shares memory with the layer it was cut from would change with it
        before = whole.weight.clone()
        parts[0].weight.add_(0)
        for part in parts:
            if part.weight.device.type == "cpu":
                raise Wrong(f"{name}'s parts on {devices}", "the CPU", "")
        equal(whole.weight, before, f"the layer that {name} was made from", "Parts are copies of their own.")


def _pair(
    answer: Answer, box: Box, column: Any, row: Any, first: nn.Linear, second: nn.Linear, devices: list[str]
) -> None:
    values = torch.randn(3, first.in_features)
    x = values.to(devices[0]).requires_grad_()
    plain = values.clone().requires_grad_()
    hidden = first(plain)
    want = second(hidden.tanh())
    n = len(devices)
    box.reset()
    xs = answer.run(column, "ColumnParallelLinear's forward", x, changes=(x,))
    copies = lanes(box)
    if not isinstance(xs, list | tuple) or len(xs) != n:
        why = "Each device keeps its own share: nothing is put together between the two layers."
        raise Wrong(f"a list of {n} tensors, one a device", short(xs), why)
    for i, device in enumerate(devices):
        is_on(xs[i], device, f"the result of part {i}", "Each part computes on its own device, and stays there.")
        share = hidden.chunk(n, 1)[i]
        if xs[i].shape != share.shape:
            raise Wrong(f"part {i}'s result of shape {tuple(share.shape)}", f"{tuple(xs[i].shape)}", "")
        no_bias = close(xs[i], share - first.bias.detach().chunk(n)[i])
        why = "The bias is missing: each part adds its own share of it." if no_bias else ""
        equal(xs[i], share, f"the result of part {i}", why, 1e-4, 1e-5)
    if len(copies) > n - 1:
        why = "x goes once to each device where it is not already."
        if any(not lane.startswith(devices[0]) for lane in copies):
            why = (
                "Some of these copies are of results: they are put together and given out again. Nothing is exchanged "
                "between the two layers, for part i of the second needs just what part i of the first computes."
            )
        raise Wrong(f"{n - 1} copies, of x to each other device", told(copies), why)
    box.reset()
    inner = [t.tanh() for t in xs]
    out = answer.run(row, "RowParallelLinear's forward", inner, changes=(inner,))
    copies = lanes(box)
    is_on(out, devices[0], "the sum", "The parts' results meet on devices[0].")
    if out.shape != want.shape:
        why = "Each part has a piece of every output: they are added, not concatenated."
        raise Wrong(f"a result of shape {tuple(want.shape)}", f"{tuple(out.shape)}", why)
    equal(out, want, "the sum", _why(out, want, second, n, inner), 1e-4, 1e-5)
    if len(copies) > n - 1:
        why = "Each part computes on its own device, and its result goes to devices[0], once, to be added there."
        if any(lane.startswith(devices[0]) for lane in copies):
            why = (
                f"From devices[0], which collects, something is sent out again: each part has its input already. {why}"
            )
        raise Wrong(f"{n - 1} copies, of the results of the parts on other devices", told(copies), why)
    _gradients(answer, column, row, first, second, (out, want), (x, plain))


def _why(out: Tensor, want: Tensor, second: nn.Linear, n: int, inner: list[Tensor]) -> str:
    bias = second.bias.detach()
    if n > 1 and close(out, want + (n - 1) * bias):
        return f"The bias is there {n} times: each part adds it, and the parts are added up. Once is enough."
    if close(out, want - bias):
        return "The bias is missing: one part adds it."
    if n > 1 and close(out, want / n):
        return "The parts are added up, not averaged."
    weights = second.weight.detach().chunk(n, 1)
    for i, (w, h) in enumerate(zip(weights, inner, strict=True)):
        alone = h.detach().cpu() @ w.t()
        if n > 1 and (close(out, alone) or close(out, alone + bias)):
            return f"Only part {i} is in the result: a piece of every output is missing. Add all parts up."
    return "The result is the sum of what all parts compute, each from its own share of the inputs."


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
            raise Wrong(f"{wanted} numbers in the parameters of the {name} layer, as in the whole one", f"{held}", why)
        assert whole.weight.grad is not None
        shares = whole.weight.grad.chunk(len(layer.parts), dim)
        for i, (part, share) in enumerate(zip(layer.parts, shares, strict=True)):
            if part.weight.grad is None:
                raise Wrong(f"a gradient for part {i} of the {name} layer", "None", cut)
            equal(part.weight.grad, share, f"the gradient of part {i} of the {name} layer", cut, 1e-4, 1e-5)
