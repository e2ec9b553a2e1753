"""What e02_column_row is asked: two layers over devices, against the whole ones."""

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn

from mpcourse.course.check.answer import Answer
from mpcourse.course.check.explain import explanation_of
from mpcourse.course.check.facts.calls import one_by_one
from mpcourse.course.check.facts.tensors import SECOND, backward, close, copies_text, equals, lanes, placed
from mpcourse.course.check.rules import Rule, Test, always, demand
from mpcourse.course.check.status_page import HasStatusPage
from mpcourse.course.check.wrong import Wrong, short
from mpcourse.virtual import Box, virtual_gpus

Tensor = torch.Tensor
TOLERANCES = 1e-4, 1e-5


def check(answer: Answer, comm: HasStatusPage) -> None:
    """Every rank may call this; ranks do not talk."""
    with virtual_gpus(4) as box:
        sizes = ((2, 10, 8, 5), (4, 3, 8, 8), (1, 4, 4, 4), (3, 9, 9, 9))
        every = [partial(_layers, box=box, sizes=each) for each in sizes]
        one_by_one(answer, [*every, partial(_layers, box=box, sizes=(2, 4, 6, 8), unusual=True)])


# -- observation --


@dataclass(frozen=True)
class Layer:
    """A layer of the answer, and the whole one that it was made from. dim: in which its weight is cut.

    shares_memory: whether the whole one changes where a part does.
    """

    name: str
    made: Any
    whole: nn.Linear
    devices: list[str]
    dim: int
    shares_memory: bool = False

    n = property(lambda self: len(self.devices))
    parts = property(lambda self: getattr(self.made, "parts", None))
    hidden = property(lambda self: {*_ids(self.parts)} - {*_ids([self.made])})
    place = property(lambda self: ("first", "second")[self.dim])
    numbers = property(lambda self: sum(p.numel() for p in self.made.parameters()))
    numbers_asked = property(lambda self: sum(p.numel() for p in self.whole.parameters()))

    def each_part(self) -> list["Part"]:
        """Return the parts, as facts."""
        return [Part(self, i, part) for i, part in enumerate(self.parts)]


def _ids(modules: Any) -> Iterator[int]:
    return (id(p) for module in modules for p in module.parameters())


@dataclass(frozen=True)
class Part:
    """Part i of a layer."""

    layer: Layer
    i: int
    part: Any

    name = property(lambda self: self.layer.name)
    n = property(lambda self: self.layer.n)
    dim = property(lambda self: self.layer.dim)
    place = property(lambda self: self.layer.place)
    device = property(lambda self: self.layer.devices[self.i])
    weight = property(lambda self: self.part.weight)
    bias = property(lambda self: self.part.bias)
    cut_bias = property(lambda self: self.dim == 0 and self.bias is not None)
    shape = property(lambda self: tuple(self.weight.shape))
    whole_shape = property(lambda self: tuple(self.layer.whole.weight.shape))
    asked_weight = property(lambda self: self.layer.whole.weight.chunk(self.n, self.dim)[self.i])
    asked_shape = property(lambda self: tuple(self.asked_weight.shape))
    asked_biases = property(lambda self: self.layer.whole.bias.chunk(self.n))
    asked_gradient = property(lambda self: self.layer.whole.weight.grad.chunk(self.n, self.dim)[self.i])
    frozen = property(lambda self: [key for key, p in self.part.named_parameters() if not p.requires_grad])

    # What sentences show.

    what = property(lambda self: f"{self.name}: the weight of part {self.i}")
    cut = property(lambda self: ("outputs", "inputs")[self.dim])
    not_cut = property(lambda self: ("inputs", "outputs")[self.dim])
    size = property(lambda self: self.whole_shape[self.dim])
    share = property(lambda self: self.size // self.n)


@dataclass(frozen=True)
class Column:
    """A call of the column layer. hidden: what the whole one gives. i: of the device that is looked at."""

    xs: Any
    hidden: Tensor
    bias: Tensor
    devices: list[str]
    copies: list[str]
    i: int = 0

    n = property(lambda self: len(self.devices))
    is_list = property(lambda self: isinstance(self.xs, list | tuple) and len(self.xs) == self.n)
    device = property(lambda self: self.devices[self.i])
    got = property(lambda self: self.xs[self.i])
    share = property(lambda self: self.hidden.chunk(self.n, 1)[self.i])
    share_of_bias = property(lambda self: self.bias.chunk(self.n)[self.i])
    batch = property(lambda self: len(self.hidden))
    most = property(lambda self: self.n - 1)
    made = property(lambda self: copies_text(self.copies))


@dataclass(frozen=True)
class Row:
    """A call of the row layer on `inner`. changed: whether that list is another one after the call."""

    out: Any
    want: Tensor
    whole: nn.Linear
    inner: list[Tensor]
    changed: bool
    devices: list[str]
    copies: list[str]

    n = property(lambda self: len(self.devices))
    first = property(lambda self: self.devices[0])
    squeezed = property(lambda self: len(self.want) == 1 and self.out.shape == self.want.shape[1:])
    mistake = property(lambda self: explanation_of(self.out, _wrong_sums(self.want, self.whole, self.inner), close))
    most = property(lambda self: self.n - 1)
    made = property(lambda self: copies_text(self.copies))


@dataclass(frozen=True)
class Input:
    """The gradient of x, and the right one."""

    got: Tensor | None
    want: Tensor | None


def _layers(answer: Answer, box: Box, sizes: tuple[int, int, int, int], unusual: bool = False) -> None:
    """unusual: layers of doubles that are on a GPU already, with biases of zeros, and a batch of one."""
    n, n_in, n_hidden, n_out = sizes
    devices = [f"vgpu:{i}" for i in range(n)][::-1]  # the first is not always vgpu:0
    first, second = nn.Linear(n_in, n_hidden), nn.Linear(n_hidden, n_out)
    if unusual:
        first, second = (layer.double() for layer in (first, second))
        nn.init.zeros_(first.bias)
        nn.init.zeros_(second.bias)
    layers = []
    for name, whole, dim in (("ColumnParallelLinear", first, 0), ("RowParallelLinear", second, 1)):
        given = deepcopy(whole).to(devices[0] if unusual else "cpu")
        made = answer.call(name, given, list(devices))
        layers.append(Layer(name, made, whole, devices, dim))
        demand(LAYER, layers[-1])
        demand(PART, *layers[-1].each_part())
        demand(MEMORY, Layer(name, made, whole, devices, dim, _share_memory(made.parts, given)))
    batch = 1 if unusual else 3
    _pair(answer, box, layers[0], layers[1], batch)
    for layer in layers:
        layer.made.zero_grad()
        layer.whole.zero_grad()
    try:
        _pair(answer, box, layers[0], layers[1], batch)
    except Wrong as wrong:
        wrong.why = SECOND
        raise


def _share_memory(parts: Any, given: nn.Linear) -> bool:
    """Return whether a part shares memory with the layer that it was cut from, which would change it in training."""
    before = given.weight.detach().clone()
    shared = False
    with torch.no_grad():
        for part in parts:
            start = part.weight.clone()
            part.weight.add_(1.0)
            shared |= not torch.equal(given.weight, before)
            part.weight.copy_(start)
    return shared


def _pair(answer: Answer, box: Box, column: Layer, row: Layer, batch: int) -> None:
    devices, first, second = column.devices, column.whole, row.whole
    values = torch.randn(batch, first.in_features, dtype=first.weight.dtype)
    x = values.to(devices[0]).requires_grad_()
    plain = values.clone().requires_grad_()
    hidden = first(plain)
    want = second(hidden.tanh())
    box.reset()
    xs = answer.run(column.made, "ColumnParallelLinear's forward", x, changes=(x,))
    called = [Column(xs, hidden, first.bias.detach(), devices, lanes(box), i) for i in range(len(devices))]
    demand(LIST, called[0])
    demand(SHARE, *called)
    demand(COLUMN_COPIES, called[0])
    box.reset()
    inner = [t.tanh() for t in xs]
    given = list(inner)
    out = answer.run(row.made, "RowParallelLinear's forward", given, changes=(given,))
    changed = len(given) != len(inner) or any(a is not b for a, b in zip(given, inner, strict=True))
    demand(ROW, Row(out, want, second, inner, changed, devices, lanes(box)))
    probe = torch.randn_like(want)
    want.backward(probe)
    backward(answer, out, probe, "the result", "Every tensor that crosses goes through copy(x, device).")
    demand(X_GRADIENT, Input(x.grad, plain.grad))
    for layer in (column, row):
        demand(NUMBERS, layer)
        demand(PART_GRADIENT, *layer.each_part())


# -- what is said --


def _wrong_sums(want: Tensor, second: nn.Linear, inner: list[Tensor]) -> Iterator[tuple[str, Tensor]]:
    """Yield a sentence and the result of each known mistake."""
    n, bias = len(inner), second.bias.detach()
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


LAYER = [
    Test(
        "number of parts",
        lambda f: f.parts is None or len(f.parts) != f.n,
        "{name} to have one part a device, {n} in all",
        lambda f: "no self.parts" if f.parts is None else f"{len(f.parts)} parts",
        "There is a part for each device of the list, however many these are.",
    ),
    Test(
        "hidden parts",
        lambda f: f.hidden,
        "{name}'s parts among its parameters",
        "none of them",
        "A plain list hides modules: .parameters() does not find them, and the optimizer never sees them. Use "
        "nn.ModuleList.",
    ),
]
PART = [
    *placed(
        lambda f: f.weight,
        lambda f: f.device,
        "{what}",
        "Part i lives on devices[i], from the start: linear_on(devices[i], ...).",
    ),
    Test(
        "not cut",
        lambda f: f.shape == f.whole_shape != f.asked_shape,
        "{what} of shape {asked_shape}",
        "{shape}, that of the whole layer",
        "The weight is not cut: each part has all of it. Part i gets the i-th of {n} shares.",
    ),
    Test(
        "shape",
        lambda f: f.shape != f.asked_shape,
        "{what} of shape {asked_shape}",
        "{shape}",
        [
            Rule(
                "another dimension",
                lambda f: f.shape[1 - f.dim] != f.whole_shape[1 - f.dim],
                "torch keeps W as (outputs, inputs): by {cut} is a cut of dimension {dim}.",
            ),
            Rule(
                "share of the others",
                lambda f: f.shape[f.dim] == f.whole_shape[1 - f.dim] // f.n,
                "That is a share of the {not_cut}. Here the {cut} are shared out, {size} over {n}.",
            ),
            Rule(
                "another share",
                always,
                "A share is {size} / {n} = {share} {cut}, from i * {share} on. A slice's end is not in it.",
            ),
        ],
    ),
    Test(
        "dtype",
        lambda f: f.weight.dtype != f.asked_weight.dtype,
        lambda f: f"{f.what} of {f.asked_weight.dtype}",
        lambda f: str(f.weight.dtype),
        "A copy has the type of what it is a copy of: nn.Linear(...) makes float32, whatever is copied into it.",
    ),
    Test(
        "bias not cut",
        lambda f: f.cut_bias and f.bias.shape != f.asked_shape[:1],
        lambda f: f"{f.name}: the bias of part {f.i} of shape {f.asked_shape[:1]}",
        lambda f: f"{tuple(f.bias.shape)}",
        "By outputs the bias is cut too: each output has one number of it.",
    ),
    *equals(lambda f: f.weight, lambda f: f.asked_weight, "{what}", "Part i has the i-th share, in order."),
    *equals(
        lambda f: f.bias if f.cut_bias else f.asked_biases[f.i],
        lambda f: f.asked_biases[f.i],
        "{name}: the bias of part {i}",
        [
            Rule(
                "first share",
                lambda f: close(f.bias, f.asked_biases[0]),
                "That is the first share of the bias, which belongs to part 0. Part i has the i-th share of the bias, "
                "too: the numbers of the very outputs that it computes.",
            ),
            Rule(
                "another share",
                always,
                "Part i has the i-th share of the bias, too: the numbers of the very outputs that it computes.",
            ),
        ],
    ),
    Test(
        "frozen",
        lambda f: f.frozen,
        lambda f: f"{f.name}: the {f.frozen[0]} of part {f.i} to be trained",
        "requires_grad is False",
        "With requires_grad False nobody trains it. Parts are trained as the whole layer would be.",
    ),
]
MEMORY = [
    Test(
        "shared memory",
        lambda f: f.shares_memory,
        "the layer that {name} was made from to stay as it is in training",
        "it changes",
        "Where the layer is on that device already, .to copies nothing. A part's weight is a copy: clone().",
    )
]
LIST = [
    Test(
        "no list",
        lambda f: not f.is_list,
        "a list of {n} tensors, one a device",
        lambda f: short(f.xs),
        [
            Rule("None", lambda f: f.xs is None, "Nothing came back: is the result returned?"),
            Rule(
                "generator",
                lambda f: hasattr(f.xs, "__next__"),
                "A generator has no length, and is empty once it was gone through. In square brackets it is a list.",
            ),
            Rule("one device", lambda f: f.n == 1, "For one device it is a list, too: of one tensor."),
            Rule(
                "put together",
                always,
                "Each device keeps its own share: nothing is put together between the two layers.",
            ),
        ],
    )
]
SQUEEZED = "A batch of one is a batch: its dimension stays. squeeze() removes it."
SHARE = [
    *placed(
        lambda f: f.got,
        lambda f: f.device,
        "the result of part {i}",
        "Each part computes on its own device, and stays there.",
    ),
    Test(
        "shape",
        lambda f: f.got.shape != f.share.shape,
        lambda f: f"part {f.i}'s result of shape {tuple(f.share.shape)}",
        lambda f: f"{tuple(f.got.shape)}",
        [Rule("squeezed", lambda f: f.batch == 1 and f.got.shape == f.share.shape[1:], SQUEEZED)],
    ),
    *equals(
        lambda f: f.got,
        lambda f: f.share,
        "the result of part {i}",
        [
            Rule(
                "no bias",
                lambda f: close(f.got, f.share - f.share_of_bias),
                "The bias is missing: each part adds its own share of it.",
            ),
            Rule(
                "activation function",
                lambda f: close(f.got, f.share.relu()) or close(f.got, f.share.tanh()),
                "There is an activation function in it. The layer computes what linear computes, and no more.",
            ),
        ],
        *TOLERANCES,
    ),
]
COLUMN_COPIES = [
    Test(
        "copies",
        lambda f: len(f.copies) > f.most,
        "{most} copies, of x to each other device",
        "{made}",
        [
            Rule(
                "of results",
                lambda f: any(not lane.startswith(f.devices[0]) for lane in f.copies),
                "Some of these copies are of results: they are put together and given out again. Nothing is exchanged "
                "between the two layers, for part i of the second needs just what part i of the first computes.",
            ),
            Rule("of x", always, "x goes once to each device where it is not already."),
        ],
    )
]
ONE_WAY = "Each part computes on its own device, and its result goes to devices[0], once, to be added there."
ROW = [
    Test(
        "list changed",
        lambda f: f.changed,
        "the list xs to stay as it is",
        "it holds something else after the call",
        "The list is the caller's, who may need it again: put results into a list of your own.",
    ),
    *placed(lambda f: f.out, lambda f: f.first, "the sum", "The parts' results meet on devices[0]."),
    Test(
        "shape",
        lambda f: f.out.shape != f.want.shape,
        lambda f: f"a result of shape {tuple(f.want.shape)}",
        lambda f: f"{tuple(f.out.shape)}",
        [
            Rule("squeezed", lambda f: f.squeezed, SQUEEZED),
            Rule("concatenated", always, "Each part has a piece of every output: they are added, not concatenated."),
        ],
    ),
    *equals(
        lambda f: f.out,
        lambda f: f.want,
        "the sum",
        [
            Rule("a mistake", lambda f: f.mistake, "{mistake}"),
            Rule(
                "another sum",
                always,
                "The result is the sum of what all parts compute, each from its own share of the inputs.",
            ),
        ],
        *TOLERANCES,
    ),
    Test(
        "copies",
        lambda f: len(f.copies) > f.most,
        "{most} copies, of the results of the parts on other devices",
        "{made}",
        [
            Rule(
                "through the CPU",
                lambda f: any("cpu" in lane for lane in f.copies),
                f"By way of the CPU it crosses two links. {ONE_WAY}",
            ),
            Rule(
                "out again",
                lambda f: any(lane.startswith(f.first) for lane in f.copies),
                f"From devices[0], which collects, something is sent out again: each part has its input already. "
                f"{ONE_WAY}",
            ),
            Rule("several", always, ONE_WAY),
        ],
    ),
]
CUT = "The chain of gradients is cut: every crossing is a copy(x, device), without detach, .data or no_grad."
X_GRADIENT = [
    Test("None", lambda f: f.got is None, "a gradient for x", "None", CUT),
    *equals(
        lambda f: f.got,
        lambda f: f.want,
        "the gradient of x",
        f"It is the sum over all devices. {CUT}",
        *TOLERANCES,
    ),
]
NUMBERS = [
    Test(
        "numbers of parameters",
        lambda f: f.numbers != f.numbers_asked,
        "{numbers_asked} numbers in the parameters of the {place} layer, as in the whole one",
        "{numbers}",
        [
            Rule(
                "too few",
                lambda f: f.numbers < f.numbers_asked,
                "A bias is missing. It is a parameter though its numbers are 0: training moves it.",
            ),
            Rule(
                "whole layer kept",
                lambda f: f.numbers >= f.numbers_asked + f.whole.weight.numel(),
                "The whole layer is kept beside its parts. Each device has its part alone: that saves memory.",
            ),
            Rule(
                "several biases",
                always,
                "One bias, spread over the parts, is several: each is trained by the whole gradient.",
            ),
        ],
    )
]
PART_GRADIENT = [
    Test("None", lambda f: f.weight.grad is None, "a gradient for part {i} of the {place} layer", "None", CUT),
    *equals(
        lambda f: f.weight.grad,
        lambda f: f.asked_gradient,
        "the gradient of part {i} of the {place} layer",
        CUT,
        *TOLERANCES,
    ),
]
