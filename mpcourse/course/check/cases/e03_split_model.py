"""What e03_split_model is asked: stages on devices, against the whole model, over some steps of training."""

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch._dynamo  # what torch.optim imports at its first use, which takes seconds: here, before the clock starts
from torch import nn

from mpcourse.course.check.answer import Answer
from mpcourse.course.check.facts.calls import one_by_one
from mpcourse.course.check.facts.tensors import SECOND, backward, close, copies_text, equal, is_on, lanes
from mpcourse.course.check.status_page import HasStatusPage
from mpcourse.course.check.wrong import Wrong, short
from mpcourse.virtual import Box, virtual_gpus

Tensor = torch.Tensor
INSIDE = (
    "Some of its layers have layers inside. What stands in the model is one layer, whatever is in it: take "
    "model[i], or list(model), not model.modules(), and do not unpack it."
)
CUT = "Each crossing is copy(x, device): without detach, .data, torch.no_grad or a new tensor."

ROUNDED = "That is right to three or four digits. Is a tensor made float16 on its way? A copy rounds nothing."


def check(answer: Answer, comm: HasStatusPage) -> None:
    """Every rank may call this; ranks do not talk."""
    with virtual_gpus(4) as box:
        cases: list[tuple[Callable[[], nn.Sequential], list[int], list[str]]] = [
            (_mlp, [2, 3], ["vgpu:0", "vgpu:1"]),
            (_mlp, [1, 1, 3], ["vgpu:2", "vgpu:0", "vgpu:3"]),
            (_normed, [3, 1, 1, 1], ["vgpu:3", "vgpu:2", "vgpu:1", "vgpu:0"]),
            (_mlp, [5], ["vgpu:1"]),
            (_mlp, [2, 2, 1], ["vgpu:0", "vgpu:1", "vgpu:0"]),
            (_nested, [1, 2, 1], ["vgpu:1", "vgpu:3", "vgpu:0"]),
            (_nested, [2, 2], ["vgpu:2", "vgpu:1"]),
            (_shared, [2, 2, 1], ["vgpu:1", "vgpu:0", "vgpu:2"]),
            (_tuned, [2, 3, 1], ["vgpu:0", "vgpu:2", "vgpu:1"]),
            (_words, [1, 2], ["vgpu:0", "vgpu:1"]),
        ]
        one_by_one(answer, [partial(_train, box=box, make=make, sizes=s, devices=d) for make, s, d in cases])


def _mlp() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))


def _normed() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 3))


def _tuned() -> nn.Sequential:
    """A model to be fine-tuned: the first layer is frozen, and batch norm in evaluation mode."""
    model = _normed().eval()
    model[0].requires_grad_(False)
    return model


def _words() -> nn.Sequential:
    """A model of doubles, for integers: numbers of words."""
    return nn.Sequential(nn.Embedding(9, 4), nn.Linear(4, 6), nn.Linear(6, 3)).double()


class Skip(nn.Module):
    """A layer that has layers inside, and is more than one after the other."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(width, width), nn.Tanh())

    def forward(self, x: Tensor) -> Tensor:
        return x + self.inner(x)


def _nested() -> nn.Sequential:
    """Four layers, three of which have layers inside."""
    first, last = nn.Sequential(nn.Linear(4, 6), nn.Tanh()), nn.Sequential(nn.Tanh(), nn.Linear(6, 3))
    return nn.Sequential(first, Skip(6), nn.Linear(6, 6), last)


def _shared() -> nn.Sequential:
    """One Tanh, in two places: it has no parameters, so it may be in two stages."""
    tanh = nn.Tanh()
    return nn.Sequential(nn.Linear(4, 6), tanh, nn.Linear(6, 5), tanh, nn.Linear(5, 3))


def _train(answer: Answer, box: Box, make: Callable[[], nn.Sequential], sizes: list[int], devices: list[str]) -> None:
    model = make()
    whole, layers = copy.deepcopy(model), list(model)  # the answer may take them out of `model`
    own = list(model.parameters())
    parts = answer.call("split", model, list(sizes), list(devices))
    _places(parts, own, layers, sizes, devices)
    _as_they_were(layers, list(whole))
    one = torch.optim.SGD(whole.parameters(), lr=0.1)
    other = torch.optim.SGD(parts.parameters(), lr=0.1)
    for step in range(3):
        values = torch.randint(9, (5,)) if make is _words else torch.randn(5, 4)
        x = values.to(devices[0])
        box.reset()
        try:
            out = answer.run(parts, "the split model", x, changes=(x,))
        except StopIteration:
            why = "A stage may have no parameters at all, as an nn.Tanh: take its device from the list."
            raise Wrong("the split model to run", "StopIteration", why) from None
        except RuntimeError as error:
            if make is _words and x.dtype == torch.int64:
                why = "Here x has integers, for an nn.Embedding, and the layers have doubles: each stays what it is."
                raise Wrong("the split model to run", str(error).splitlines()[0], why) from None
            if step == 0 and _inside(layers):
                raise Wrong("the split model to run", str(error), INSIDE) from None
            if "shapes cannot be multiplied" not in str(error):
                raise
            why = "Each stage gets what the stage before it returned; only the first gets the input."
            raise Wrong("the split model to run", str(error), why) from None
        copies = lanes(box)
        _as_they_were(layers, list(whole))
        if x.requires_grad:
            why = "x is the caller's own, and data: nobody asked for its gradient."
            raise Wrong("x as it was", "x.requires_grad is True after the call", why)
        want = whole(values)
        is_on(out, devices[-1], "the output", "The output stays where the last stage computes it.")
        when = "the output" if step == 0 else f"the output after {step} steps of training"
        if out.shape != want.shape:
            why = "Do all layers run, each once, in their order?"
            raise Wrong(f"{when} of shape {tuple(want.shape)}", f"{tuple(out.shape)}", why)
        why = "Do all layers run, each once, in their order?"
        if step > 0:
            why = SECOND if _agree(own, whole) else f"The training differs. {CUT}"
        elif inside := _inside(layers):
            why = f"{why} {inside}"
        if out.dtype != want.dtype:
            why = (
                "A tensor keeps its type from layer to layer: is it turned into another one at the cut, or the layers?"
            )
            raise Wrong(f"{when} of {want.dtype}", f"{out.dtype}", why)
        equal(out, want, when, ROUNDED if _rounded(out, want) else why, 1e-4, 1e-5)
        cuts = [f"{a} -> {b}" for a, b in zip(devices, devices[1:], strict=False) if a != b]
        if copies != cuts:
            raise Wrong(copies_text(cuts), copies_text(copies), "A tensor crosses each cut once; parameters never do.")
        one.zero_grad()
        other.zero_grad()
        probe = torch.randn_like(want)
        want.backward(probe)
        backward(answer, out, probe, "the output", CUT)
        for i, (p, q) in enumerate(zip(own, whole.parameters(), strict=True)):
            if not q.requires_grad:
                continue
            if p.grad is None:
                raise Wrong(f"a gradient for parameter {i} of the model", "None", CUT)
            assert q.grad is not None
            why = ROUNDED if _rounded(p.grad, q.grad) else CUT
            equal(p.grad, q.grad, f"the gradient of parameter {i}", why, 1e-4, 1e-5)
        one.step()
        other.step()


def _rounded(got: Tensor, want: Tensor) -> bool:
    """Whether `got` is `want` but for what rounding to half precision changes."""
    want = want.detach()
    off = (got.detach().cpu() - want).abs().max() if got.shape == want.shape else torch.tensor(0.0)
    return 0 < float(off) <= 2e-3 * float(want.abs().max())


def _agree(own: list[nn.Parameter], whole: nn.Module) -> bool:
    return all(close(p, q.detach()) for p, q in zip(own, whole.parameters(), strict=True))


def _as_they_were(layers: list[nn.Module], before: list[nn.Module]) -> None:
    """Raise Wrong where layers are in another mode, or trained in another way, than they were."""
    modes = {True: "training", False: "evaluation"}
    for i, (layer, other) in enumerate(zip(layers, before, strict=True)):
        for module, was in zip(layer.modules(), other.modules(), strict=True):
            if module.training != was.training:
                why = "train() and eval() change what batch norm and dropout compute: the caller says which it is."
                asked = f"layer {i} in {modes[was.training]} mode, as it came"
                raise Wrong(asked, f"in {modes[module.training]} mode", why)
        for (name, p), q in zip(layer.named_parameters(), other.parameters(), strict=True):
            if p.requires_grad != q.requires_grad:
                why = "requires_grad_() freezes a layer, or thaws it, so that training is another. It is only to move."
                asked = f"layer {i}'s {name} with requires_grad {q.requires_grad}, as it came"
                raise Wrong(asked, f"requires_grad is {p.requires_grad}", why)


def _places(parts: Any, own: list[nn.Parameter], model: list[nn.Module], sizes: list[int], devices: list[str]) -> None:
    """The model's own parameters, all of them, on the devices of their stages."""
    if not isinstance(parts, nn.Module):
        why = "Nothing came back: is it returned?" if parts is None else "Return SplitModel(stages, devices)."
        raise Wrong("split to return a module", short(parts), why)
    held = [id(p) for p in parts.parameters()]
    if not held:
        why = "A plain list hides modules: .parameters() finds none, and nothing is trained. Use nn.ModuleList."
        raise Wrong("the parameters of all stages", "none", why)
    if not set(held) & {id(p) for p in own}:
        why = "The layers are moved, not copied: an optimizer that holds the model's parameters goes on training."
        raise Wrong("the model's own parameters", "others", why)
    if missing := [i for i, p in enumerate(own) if id(p) not in held]:
        there = f"{len(own) - len(missing)} of them"
        if missing[-1] == len(own) - 1:
            there += ": the last layers are in no stage"
        why = "sizes sum to the number of layers: each layer is in one stage."
        raise Wrong(f"all {len(own)} parameters of the model", there, f"{why} {_inside(model)}".rstrip())
    start = 0
    for i, (size, device) in enumerate(zip(sizes, devices, strict=True)):
        for layer in range(start, start + size):
            for name, p in model[layer].named_parameters():
                why = f"Stage {i} has {size} of the layers, from layer {start} on, and lives on devices[{i}]."
                if p.device.type == "cpu":
                    why = "Stages move when the model is split: split returns with each of them on its device."
                elif inside := _inside(model):
                    why = f"{why} {inside}"
                elif len(set(model)) < len(model):
                    why = "One module stands in two places. model.children() names it once, list(model) twice."
                is_on(p, device, f"layer {layer}'s {name}, of stage {i},", why)
            for name, b in model[layer].named_buffers():
                is_on(b, device, f"layer {layer}'s {name}, of stage {i},", "module.to(device) moves buffers too.")
        start += size


def _inside(layers: list[nn.Module]) -> str:
    return INSIDE if any(isinstance(layer, Skip) for layer in layers) else ""
