"""What e03_split_model is asked: stages on devices, against the whole model, over some steps of training."""

import copy
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch._dynamo  # what torch.optim imports at its first use, which takes seconds: here, before the clock starts
from torch import nn

from mpcourse.course.check.answer import Answer
from mpcourse.course.check.facts.calls import one_by_one
from mpcourse.course.check.facts.tensors import SECOND, Lanes, Result, backward, close, equals, gradients, lanes, placed
from mpcourse.course.check.rules import Test, demand, rules, tests, why_of
from mpcourse.course.check.status_page import HasStatusPage
from mpcourse.course.check.wrong import short
from mpcourse.virtual import Box, virtual_gpus

Tensor = torch.Tensor

# -- inputs --


def check(answer: Answer, comm: HasStatusPage) -> None:
    """Check the answer; every rank may call this, and ranks exchange nothing."""
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
    """Make a model to fine-tune: its first layer is frozen, and its batch norm is in evaluation mode."""
    model = _normed().eval()
    model[0].requires_grad_(False)
    return model


def _words() -> nn.Sequential:
    """Make a model of doubles whose inputs are integers: numbers of words."""
    return nn.Sequential(nn.Embedding(9, 4), nn.Linear(4, 6), nn.Linear(6, 3)).double()


class Skip(nn.Module):
    """A layer that has layers inside, and is more than one after the other."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(width, width), nn.Tanh())

    def forward(self, x: Tensor) -> Tensor:
        return x + self.inner(x)


def _nested() -> nn.Sequential:
    """Make four layers; three have layers inside."""
    first, last = nn.Sequential(nn.Linear(4, 6), nn.Tanh()), nn.Sequential(nn.Tanh(), nn.Linear(6, 3))
    return nn.Sequential(first, Skip(6), nn.Linear(6, 6), last)


def _shared() -> nn.Sequential:
    """Make a model with one Tanh in two places: it has no parameters, so it may be in two stages."""
    tanh = nn.Tanh()
    return nn.Sequential(nn.Linear(4, 6), tanh, nn.Linear(6, 5), tanh, nn.Linear(5, 3))


# -- observation --


@dataclass(frozen=True)
class Split:
    """What split returned. own: the model's parameters. inside: whether some layers have layers inside."""

    parts: Any
    own: Sequence[nn.Parameter]
    inside: bool

    no_module = property(lambda self: not isinstance(self.parts, nn.Module))
    nothing = property(lambda self: self.parts is None)
    shown = property(lambda self: short(self.parts))
    held = property(lambda self: {id(p) for p in self.parts.parameters()})
    no_parameters = property(lambda self: not self.held)
    missing = property(lambda self: [i for i, p in enumerate(self.own) if id(p) not in self.held])
    n = property(lambda self: len(self.own))
    others = property(lambda self: len(self.missing) == self.n)
    there = property(lambda self: self.n - len(self.missing))
    last = property(lambda self: ": the last layers are in no stage" if self.missing[-1] == self.n - 1 else "")


@dataclass(frozen=True)
class State:
    """Whether a layer is in training mode, or a parameter is trained, after a call, and before. mode: which it is."""

    mode: bool
    what: str
    now: bool
    was: bool

    other_mode = property(lambda self: self.mode and self.now != self.was)
    frozen = property(lambda self: self.now != self.was)
    mode_now = property(lambda self: "training" if self.now else "evaluation")
    mode_before = property(lambda self: "training" if self.was else "evaluation")


@dataclass(frozen=True)
class Failed:
    """An error of the split model. words: whether its input has integers. inside: as of Split, in the first call."""

    error: Exception
    words: bool
    inside: bool

    text = property(lambda self: (str(self.error).splitlines() or [type(self.error).__name__])[0])
    stopped = property(lambda self: isinstance(self.error, StopIteration))
    shapes = property(lambda self: "shapes cannot be multiplied" in str(self.error))


def _train(answer: Answer, box: Box, make: Callable[[], nn.Sequential], sizes: list[int], devices: list[str]) -> None:
    model = make()
    whole, layers = copy.deepcopy(model), list(model)  # the answer may take them out of `model`
    own, inside = list(model.parameters()), any(isinstance(layer, Skip) for layer in layers)
    parts = answer.call("split", model, list(sizes), list(devices))
    demand(SPLIT, Split(parts, own, inside))
    demand(PLACES, *_places(layers, sizes, devices, inside))
    demand(STATES, *_states(layers, list(whole)))
    one = torch.optim.SGD(whole.parameters(), lr=0.1)
    other = torch.optim.SGD(parts.parameters(), lr=0.1)
    cuts = Lanes(f"{a} -> {b}" for a, b in itertools.pairwise(devices) if a != b)
    for step in range(3):
        values = torch.randint(9, (5,)) if make is _words else torch.randn(5, 4)
        x = values.to(devices[0])
        box.reset()
        try:
            out = answer.run(parts, "the split model", x, changes=(x,))
        except (StopIteration, RuntimeError) as error:
            demand(FAILED, Failed(error, make is _words, inside and step == 0))
            raise
        copies = lanes(box)
        demand(STATES, *_states(layers, list(whole)))
        want = whole(values)
        alike = all(close(p, q.detach()) for p, q in zip(own, whole.parameters(), strict=True))
        what = f"the output after {step} steps of training" if step else "the output"
        known: dict[str, Any] = {"step": step, "kept_from_a_call": step and alike, "inside": inside}
        known |= {"copies": copies, "cuts": cuts, "other_copies": copies != cuts, "x_trained": x.requires_grad}
        demand(OUTPUT, Result(out, want, what, devices[-1], **known))
        one.zero_grad()
        other.zero_grad()
        probe = torch.randn_like(want)
        want.backward(probe)
        backward(answer, out, probe, "the output", CUT)
        pairs = enumerate(zip(own, whole.parameters(), strict=True))
        demand(
            GRADIENTS,
            *[Result(p.grad, q.grad, f"the gradient of parameter {i}") for i, (p, q) in pairs if q.requires_grad],
        )
        one.step()
        other.step()


def _places(layers: list[nn.Module], sizes: list[int], devices: list[str], inside: bool) -> Iterator[Result]:
    """Yield the parameters and buffers of the model, stage after stage, which has `size` layers from `start` on."""
    start, twice = 0, len(set(layers)) < len(layers)
    for stage, (size, device) in enumerate(zip(sizes, devices, strict=True)):
        about = {"stage": stage, "size": size, "start": start, "inside": inside, "twice": twice}
        for layer in range(start, start + size):
            for name, value in (*layers[layer].named_parameters(), *layers[layer].named_buffers()):
                what = f"layer {layer}'s {name}, of stage {stage},"
                is_buffer, on_cpu = not isinstance(value, nn.Parameter), value.device.type == "cpu"
                yield Result(value, None, what, device, is_buffer=is_buffer, on_cpu=on_cpu, **about)
        start += size


def _states(layers: list[nn.Module], before: list[nn.Module]) -> Iterator[State]:
    """Yield each module's mode, and whether each parameter is trained, beside what they were."""
    for i, (layer, other) in enumerate(zip(layers, before, strict=True)):
        for module, was in zip(layer.modules(), other.modules(), strict=True):
            yield State(True, f"layer {i}", module.training, was.training)
        for (name, p), q in zip(layer.named_parameters(), other.parameters(), strict=True):
            yield State(False, f"layer {i}'s {name}", p.requires_grad, q.requires_grad)


# -- what is said --

INSIDE = (
    "Some of its layers have layers inside. What the model lists is one layer, whatever is in it: take "
    "model[i], or list(model), not model.modules(), and do not unpack it."
)
CUT = "Each crossing is copy(x, device): without detach, .data, torch.no_grad or a new tensor."
EACH_LAYER = "sizes sum to the number of layers: each layer is in one stage."
STAGE = "Stage {stage} has {size} of the layers, from layer {start} on, and lives on devices[{stage}]."
ORDER = "Do all layers run, each once, in their order?"

SPLIT = tests(
    no_module=(
        "split to return a module",
        "{shown}",
        rules(nothing="Nothing came back: is it returned?", otherwise="Return SplitModel(stages, devices)."),
    ),
    no_parameters=(
        "the parameters of all stages",
        "none",
        "A plain list hides modules: .parameters() finds none, and nothing is trained. Use nn.ModuleList.",
    ),
    others=(
        "the model's own parameters",
        "others",
        "The layers are moved, not copied: an optimizer that holds the model's parameters goes on training.",
    ),
    missing=(
        "all {n} parameters of the model",
        "{there} of them{last}",
        rules(inside=f"{EACH_LAYER} {INSIDE}", otherwise=EACH_LAYER),
    ),
)
WHYS_PLACE = rules(
    is_buffer="module.to(device) moves buffers too.",
    on_cpu="Stages move when the model is split: split returns with each of them on its device.",
    inside=f"{STAGE} {INSIDE}",
    twice="One module is in two places. model.children() names it once, list(model) twice.",
    otherwise=STAGE,
)
PLACES = placed(WHYS_PLACE)
STATES = tests(
    other_mode=(
        "{what} in {mode_before} mode, as it came",
        "in {mode_now} mode",
        "train() and eval() change what batch norm and dropout compute: the caller says which it is.",
    ),
    frozen=(
        "{what} with requires_grad {was}, as it came",
        "requires_grad is {now}",
        "requires_grad_() freezes a layer, or thaws it, so that training is another. It is only to move.",
    ),
)
WHYS_FAILED = rules(
    stopped="A stage may have no parameters at all, as an nn.Tanh: take its device from the list.",
    words="Here x has integers, for an nn.Embedding, and the layers have doubles: each stays what it is.",
    inside=INSIDE,
    shapes="Each stage gets what the stage before it returned; only the first gets the input.",
)
FAILED = [Test("a known error", lambda f: why_of(WHYS_FAILED, f), "the split model to run", "{text}", WHYS_FAILED)]
ITS_TYPE = "A tensor keeps its type from layer to layer: is it turned into another one at the cut, or the layers?"
WHYS_OUTPUT = rules(
    reshaped=ORDER,
    kept_from_a_call=SECOND,
    step=f"The training differs. {CUT}",
    inside=f"{ORDER} {INSIDE}",
    otherwise=ORDER,
)
OUTPUT = [
    *tests(
        x_trained=(
            "x as it was",
            "x.requires_grad is True after the call",
            "x is the caller's own, and data: its gradient was not asked for.",
        )
    ),
    *placed("The output stays where the last stage computes it."),
    *equals(WHYS_OUTPUT, computed=True, dtype=ITS_TYPE),
    *tests(other_copies=("{cuts}", "{copies}", "A tensor crosses each cut once; parameters never do.")),
]
GRADIENTS = gradients(CUT, CUT)
