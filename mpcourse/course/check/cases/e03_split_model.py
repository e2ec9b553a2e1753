"""What e03_split_model is asked: stages on devices, against the whole model, over some steps of training."""

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch._dynamo  # what torch.optim imports at its first use, which takes seconds: here, before the clock starts
from torch import nn

from mpcourse.course.check.answer import Answer
from mpcourse.course.check.facts.calls import one_by_one
from mpcourse.course.check.facts.tensors import SECOND, backward, close, copies_text, equals, lanes, placed
from mpcourse.course.check.rules import Rule, Test, always, demand
from mpcourse.course.check.status_page import HasStatusPage
from mpcourse.course.check.wrong import short
from mpcourse.virtual import Box, virtual_gpus

Tensor = torch.Tensor

# -- inputs --


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


# -- observation --


@dataclass(frozen=True)
class Split:
    """What split returned. own: the model's parameters. layers: of the model."""

    parts: Any
    own: Sequence[nn.Parameter]
    layers: Sequence[nn.Module]

    held = property(lambda self: {id(p) for p in self.parts.parameters()})
    missing = property(lambda self: [i for i, p in enumerate(self.own) if id(p) not in self.held])
    inside = property(lambda self: _inside(self.layers))
    n = property(lambda self: len(self.own))
    there = property(lambda self: self.n - len(self.missing))
    last = property(lambda self: ": the last layers are in no stage" if self.missing[-1] == self.n - 1 else "")


@dataclass(frozen=True)
class Placed:
    """A parameter or a buffer of a layer, and the stage that it belongs to."""

    value: Tensor
    name: str
    layer: int
    stage: int
    size: int
    start: int
    device: str
    layers: Sequence[nn.Module]

    is_buffer = property(lambda self: not isinstance(self.value, nn.Parameter))
    on_cpu = property(lambda self: self.value.device.type == "cpu")
    inside = property(lambda self: _inside(self.layers))
    layer_twice = property(lambda self: len(set(self.layers)) < len(self.layers))


@dataclass(frozen=True)
class State:
    """What a layer's mode, or a parameter's requires_grad, is after a call, and was before. mode: which it is."""

    mode: bool
    what: str
    now: bool
    was: bool


@dataclass(frozen=True)
class Output:
    """A call of the split model after some steps of training. cuts: the copies that it needs."""

    out: Any
    want: Tensor
    step: int
    trained_alike: bool
    x_requires_grad: bool
    layers: Sequence[nn.Module]
    devices: list[str]
    copies: list[str]

    last = property(lambda self: self.devices[-1])
    cuts = property(
        lambda self: [f"{a} -> {b}" for a, b in zip(self.devices, self.devices[1:], strict=False) if a != b]
    )
    inside = property(lambda self: _inside(self.layers))
    when = property(lambda self: f"the output after {self.step} steps of training" if self.step else "the output")


@dataclass(frozen=True)
class Failed:
    """An error of the split model. words: whether its input has integers."""

    error: Exception
    step: int
    words: bool
    layers: Sequence[nn.Module]

    text = property(lambda self: (str(self.error).splitlines() or [""])[0])
    inside = property(lambda self: _inside(self.layers))


@dataclass(frozen=True)
class Gradient:
    """The gradient of parameter i, and of the same of the whole model."""

    i: int
    got: Tensor | None
    want: Tensor | None


def _train(answer: Answer, box: Box, make: Callable[[], nn.Sequential], sizes: list[int], devices: list[str]) -> None:
    model = make()
    whole, layers = copy.deepcopy(model), list(model)  # the answer may take them out of `model`
    own = list(model.parameters())
    parts = answer.call("split", model, list(sizes), list(devices))
    demand(SPLIT, Split(parts, own, layers))
    demand(PLACES, *_places(layers, sizes, devices))
    demand(STATES, *_states(layers, list(whole)))
    one = torch.optim.SGD(whole.parameters(), lr=0.1)
    other = torch.optim.SGD(parts.parameters(), lr=0.1)
    for step in range(3):
        values = torch.randint(9, (5,)) if make is _words else torch.randn(5, 4)
        x = values.to(devices[0])
        box.reset()
        try:
            out = answer.run(parts, "the split model", x, changes=(x,))
        except (StopIteration, RuntimeError) as error:
            demand(FAILED, Failed(error, step, make is _words, layers))
            raise
        copies = lanes(box)
        demand(STATES, *_states(layers, list(whole)))
        want = whole(values)
        alike = all(close(p, q.detach()) for p, q in zip(own, whole.parameters(), strict=True))
        demand(OUTPUT, Output(out, want, step, alike, x.requires_grad, layers, devices, copies))
        one.zero_grad()
        other.zero_grad()
        probe = torch.randn_like(want)
        want.backward(probe)
        backward(answer, out, probe, "the output", CUT)
        pairs = enumerate(zip(own, whole.parameters(), strict=True))
        demand(GRADIENTS, *[Gradient(i, p.grad, q.grad) for i, (p, q) in pairs if q.requires_grad])
        one.step()
        other.step()


def _places(layers: list[nn.Module], sizes: list[int], devices: list[str]) -> Iterator[Placed]:
    """Yield the parameters and buffers of the model, stage after stage."""
    start = 0
    for stage, (size, device) in enumerate(zip(sizes, devices, strict=True)):
        for layer in range(start, start + size):
            for name, value in (*layers[layer].named_parameters(), *layers[layer].named_buffers()):
                yield Placed(value, name, layer, stage, size, start, device, layers)
        start += size


def _states(layers: list[nn.Module], before: list[nn.Module]) -> Iterator[State]:
    """Yield each module's mode, and whether each parameter is trained, beside what they were."""
    for i, (layer, other) in enumerate(zip(layers, before, strict=True)):
        for module, was in zip(layer.modules(), other.modules(), strict=True):
            yield State(True, f"layer {i}", module.training, was.training)
        for (name, p), q in zip(layer.named_parameters(), other.parameters(), strict=True):
            yield State(False, f"layer {i}'s {name}", p.requires_grad, q.requires_grad)


def _inside(layers: Sequence[nn.Module]) -> bool:
    """Whether some layers have layers inside."""
    return any(isinstance(layer, Skip) for layer in layers)


# -- what is said --

INSIDE = (
    "Some of its layers have layers inside. What stands in the model is one layer, whatever is in it: take "
    "model[i], or list(model), not model.modules(), and do not unpack it."
)
CUT = "Each crossing is copy(x, device): without detach, .data, torch.no_grad or a new tensor."
EACH_LAYER = "sizes sum to the number of layers: each layer is in one stage."
STAGE = "Stage {stage} has {size} of the layers, from layer {start} on, and lives on devices[{stage}]."
ORDER = "Do all layers run, each once, in their order?"
MODES = {True: "training", False: "evaluation"}

SPLIT = [
    Test(
        "no module",
        lambda f: not isinstance(f.parts, nn.Module),
        "split to return a module",
        lambda f: short(f.parts),
        [
            Rule("None", lambda f: f.parts is None, "Nothing came back: is it returned?"),
            Rule("another type", always, "Return SplitModel(stages, devices)."),
        ],
    ),
    Test(
        "no parameters",
        lambda f: not f.held,
        "the parameters of all stages",
        "none",
        "A plain list hides modules: .parameters() finds none, and nothing is trained. Use nn.ModuleList.",
    ),
    Test(
        "other parameters",
        lambda f: len(f.missing) == f.n,
        "the model's own parameters",
        "others",
        "The layers are moved, not copied: an optimizer that holds the model's parameters goes on training.",
    ),
    Test(
        "some parameters",
        lambda f: f.missing,
        "all {n} parameters of the model",
        "{there} of them{last}",
        [
            Rule("layers inside", lambda f: f.inside, f"{EACH_LAYER} {INSIDE}"),
            Rule("layers left out", always, EACH_LAYER),
        ],
    ),
]
PLACES = placed(
    lambda f: f.value,
    lambda f: f.device,
    "layer {layer}'s {name}, of stage {stage},",
    [
        Rule("buffer", lambda f: f.is_buffer, "module.to(device) moves buffers too."),
        Rule(
            "on the CPU",
            lambda f: f.on_cpu,
            "Stages move when the model is split: split returns with each of them on its device.",
        ),
        Rule("layers inside", lambda f: f.inside, f"{STAGE} {INSIDE}"),
        Rule(
            "layer twice",
            lambda f: f.layer_twice,
            "One module stands in two places. model.children() names it once, list(model) twice.",
        ),
        Rule("another stage", always, STAGE),
    ],
)
STATES = [
    Test(
        "mode",
        lambda f: f.mode and f.now != f.was,
        lambda f: f"{f.what} in {MODES[f.was]} mode, as it came",
        lambda f: f"in {MODES[f.now]} mode",
        "train() and eval() change what batch norm and dropout compute: the caller says which it is.",
    ),
    Test(
        "requires_grad",
        lambda f: f.now != f.was,
        "{what} with requires_grad {was}, as it came",
        "requires_grad is {now}",
        "requires_grad_() freezes a layer, or thaws it, so that training is another. It is only to move.",
    ),
]
FAILED = [
    Test(
        "StopIteration",
        lambda f: isinstance(f.error, StopIteration),
        "the split model to run",
        "StopIteration",
        "A stage may have no parameters at all, as an nn.Tanh: take its device from the list.",
    ),
    Test(
        "integers",
        lambda f: f.words,
        "the split model to run",
        "{text}",
        "Here x has integers, for an nn.Embedding, and the layers have doubles: each stays what it is.",
    ),
    Test("layers inside", lambda f: f.step == 0 and f.inside, "the split model to run", "{error}", INSIDE),
    Test(
        "shapes",
        lambda f: "shapes cannot be multiplied" in str(f.error),
        "the split model to run",
        "{error}",
        "Each stage gets what the stage before it returned; only the first gets the input.",
    ),
]
OUTPUT = [
    Test(
        "x trained",
        lambda f: f.x_requires_grad,
        "x as it was",
        "x.requires_grad is True after the call",
        "x is the caller's own, and data: nobody asked for its gradient.",
    ),
    *placed(lambda f: f.out, lambda f: f.last, "the output", "The output stays where the last stage computes it."),
    Test(
        "shape",
        lambda f: f.out.shape != f.want.shape,
        lambda f: f"{f.when} of shape {tuple(f.want.shape)}",
        lambda f: f"{tuple(f.out.shape)}",
        ORDER,
    ),
    Test(
        "dtype",
        lambda f: f.out.dtype != f.want.dtype,
        lambda f: f"{f.when} of {f.want.dtype}",
        lambda f: f"{f.out.dtype}",
        "A tensor keeps its type from layer to layer: is it turned into another one at the cut, or the layers?",
    ),
    *equals(
        lambda f: f.out,
        lambda f: f.want,
        "{when}",
        [
            Rule("kept from a call", lambda f: f.step and f.trained_alike, SECOND),
            Rule("training", lambda f: f.step, f"The training differs. {CUT}"),
            Rule("layers inside", lambda f: f.inside, f"{ORDER} {INSIDE}"),
            Rule("order", always, ORDER),
        ],
        1e-4,
        1e-5,
    ),
    Test(
        "copies",
        lambda f: f.copies != f.cuts,
        lambda f: copies_text(f.cuts),
        lambda f: copies_text(f.copies),
        "A tensor crosses each cut once; parameters never do.",
    ),
]
GRADIENTS = [
    Test("None", lambda f: f.got is None, "a gradient for parameter {i} of the model", "None", CUT),
    *equals(lambda f: f.got, lambda f: f.want, "the gradient of parameter {i}", CUT, 1e-4, 1e-5),
]
