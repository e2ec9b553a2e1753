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
from mpcourse.course.check.facts.tensors import SECOND, Lanes, Result, backward, close, equals, gradients, lanes, placed
from mpcourse.course.check.rules import demand, rules, tests
from mpcourse.course.check.status_page import HasStatusPage
from mpcourse.course.check.wrong import Wrong, short
from mpcourse.virtual import Box, virtual_gpus

Tensor = torch.Tensor


def check(answer: Answer, comm: HasStatusPage) -> None:
    """Check the answer; every rank may call this, and ranks exchange nothing."""
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
    place = property(lambda self: ("first", "second")[self.dim])
    named = property(
        lambda self: [(i, key, p) for i, part in enumerate(self.parts) for key, p in part.named_parameters()]
    )

    other_parts = property(lambda self: self.parts is None or len(self.parts) != self.n)
    hidden = property(lambda self: {id(p) for _, _, p in self.named} - {*map(id, self.made.parameters())})
    frozen = property(lambda self: next((f"{key} of part {i}" for i, key, p in self.named if not p.requires_grad), ""))
    numbers = property(lambda self: sum(p.numel() for p in self.made.parameters()))
    asked_numbers = property(lambda self: sum(p.numel() for p in self.whole.parameters()))
    other_numbers = property(lambda self: self.numbers != self.asked_numbers)
    too_few = property(lambda self: self.numbers < self.asked_numbers)
    whole_kept = property(lambda self: self.numbers >= self.asked_numbers + self.whole.weight.numel())
    shown = property(lambda self: "no self.parts" if self.parts is None else f"{len(self.parts)} parts")

    def weights(self) -> list["Share"]:
        """Return each part's weight, beside what it has to be."""
        asked = zip(self.parts, self.whole.weight.chunk(self.n, self.dim), self.devices, strict=True)
        what = f"{self.name}: the weight of part"
        return [Share(part.weight, w, f"{what} {i}", device, layer=self) for i, (part, w, device) in enumerate(asked)]

    def biases(self) -> list["Share"]:
        """Return each part's share of the bias, where that is cut."""
        asked = enumerate(zip(self.parts, self.whole.bias.chunk(self.n), strict=True))
        what = f"{self.name}: the bias of part"
        return [
            Share(p.bias, b, f"{what} {i}", layer=self) for i, (p, b) in asked if self.dim == 0 and p.bias is not None
        ]

    def gradients(self) -> list[Result]:
        """Return the gradient of each part's weight."""
        whole = self.whole.weight.grad
        assert whole is not None
        asked = enumerate(zip(self.parts, whole.chunk(self.n, self.dim), strict=True))
        return [Result(p.weight.grad, g, f"the gradient of part {i} of the {self.place} layer") for i, (p, g) in asked]


class Share(Result):
    """A part's share of the weight of `layer`, or of its bias."""

    n = property(lambda self: self.layer.n)
    dim = property(lambda self: self.layer.dim)
    shape = property(lambda self: self.got.shape)
    whole_shape = property(lambda self: self.layer.whole.weight.shape)
    not_cut = property(lambda self: self.shape == self.whole_shape != self.want.shape)
    another_dimension = property(lambda self: self.shape[1 - self.dim] != self.whole_shape[1 - self.dim])
    share_of_others = property(lambda self: self.reshaped and self.shape[self.dim] * self.n == self.other_size)
    first_share = property(lambda self: close(self.got, self.layer.whole.bias.chunk(self.n)[0]))

    # What sentences show.

    cut = property(lambda self: ("outputs", "inputs")[self.dim])
    others = property(lambda self: ("inputs", "outputs")[self.dim])
    size = property(lambda self: self.whole_shape[self.dim])
    other_size = property(lambda self: self.whole_shape[1 - self.dim])
    share = property(lambda self: self.size // self.n)


@dataclass(frozen=True)
class Call:
    """What a layer returned, and what it copied. changed: whether the list that it was given is another one now."""

    xs: Any
    devices: list[str]
    copies: Lanes
    changed: bool = False

    n = property(lambda self: len(self.devices))
    no_list = property(lambda self: not isinstance(self.xs, list | tuple) or len(self.xs) != self.n)
    nothing = property(lambda self: self.xs is None)
    generator = property(lambda self: hasattr(self.xs, "__next__"))
    one_device = property(lambda self: self.n == 1)
    shown = property(lambda self: short(self.xs))
    most = property(lambda self: self.n - 1)
    too_many_copies = property(lambda self: len(self.copies) > self.most)
    of_results = property(lambda self: any(not lane.startswith(self.devices[0]) for lane in self.copies))
    through_cpu = property(lambda self: any("cpu" in lane for lane in self.copies))
    out_again = property(lambda self: any(lane.startswith(self.devices[0]) for lane in self.copies))


class Hidden(Result):
    """What the column layer made on a device. bias: its share."""

    no_bias = property(lambda self: close(self.got, self.want - self.bias))
    activation = property(lambda self: close(self.got, self.want.relu()) or close(self.got, self.want.tanh()))


class Sum(Result):
    """What the row layer made of `inner`. whole: the layer that it was cut from."""

    mistake = property(lambda self: explanation_of(self.got, _wrong_sums(self.want, self.whole, self.inner), close))


def _layers(answer: Answer, box: Box, sizes: tuple[int, int, int, int], unusual: bool = False) -> None:
    """Check two layers of these sizes.

    unusual: layers of doubles that are on a GPU already, with biases of zeros, and a batch of one.
    """
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
        demand(WEIGHTS, *layers[-1].weights())
        demand(BIASES, *layers[-1].biases())
        demand(TRAINED, layers[-1])
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
    call = Call(xs, devices, lanes(box))
    demand(LIST, call)
    shares = zip(xs, hidden.chunk(call.n, 1), devices, first.bias.detach().chunk(call.n), strict=True)
    demand(SHARES, *[Hidden(x, h, f"the result of part {i}", d, bias=b) for i, (x, h, d, b) in enumerate(shares)])
    demand(COLUMN_COPIES, call)
    box.reset()
    inner = [t.tanh() for t in xs]
    given = list(inner)
    out = answer.run(row.made, "RowParallelLinear's forward", given, changes=(given,))
    changed = len(given) != len(inner) or any(a is not b for a, b in zip(given, inner, strict=True))
    call = Call(out, devices, lanes(box), changed)
    demand(LIST_KEPT, call)
    demand(SUM, Sum(out, want, "the sum", devices[0], whole=second, inner=inner))
    demand(ROW_COPIES, call)
    probe = torch.randn_like(want)
    want.backward(probe)
    backward(answer, out, probe, "the result", "Every tensor that crosses goes through copy(x, device).")
    demand(X_GRADIENT, Result(x.grad, plain.grad, "the gradient of x"))
    for layer in (column, row):
        demand(NUMBERS, layer)
        demand(GRADIENTS, *layer.gradients())


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


LAYER = tests(
    other_parts=(
        "{name} to have one part a device, {n} in all",
        "{shown}",
        "There is a part for each device of the list, however many these are.",
    ),
    hidden=(
        "{name}'s parts among its parameters",
        "none of them",
        "A plain list hides modules: .parameters() does not find them, and the optimizer never sees them. Use "
        "nn.ModuleList.",
    ),
)
ON_ITS_DEVICE = "Part i lives on devices[i], from the start: linear_on(devices[i], ...)."
ITS_TYPE = "A copy has the type of what it is a copy of: nn.Linear(...) makes float32, whatever is copied into it."
WHYS_WEIGHT = rules(
    not_cut="The weight is not cut: each part has all of it. Part i gets the i-th of {n} shares.",
    another_dimension="torch keeps W as (outputs, inputs): by {cut} is a cut of dimension {dim}.",
    share_of_others="That is a share of the {others}. Here the {cut} are shared out, {size} over {n}.",
    reshaped="A share is {size} / {n} = {share} {cut}, from i * {share} on. A slice's end is not in it.",
    otherwise="Part i has the i-th share, in order.",
)
ITS_BIAS = "Part i has the i-th share of the bias, too: the numbers of the very outputs that it computes."
WHYS_BIAS = rules(
    reshaped="By outputs the bias is cut too: each output has one number of it.",
    first_share=f"That is the first share of the bias, which belongs to part 0. {ITS_BIAS}",
    otherwise=ITS_BIAS,
)
WEIGHTS = [*placed(ON_ITS_DEVICE), *equals(WHYS_WEIGHT, dtype=ITS_TYPE)]
BIASES = equals(WHYS_BIAS)
TRAINED = tests(
    frozen=(
        "{name}: the {frozen} to be trained",
        "requires_grad is False",
        "With requires_grad False it is not trained. Parts are trained as the whole layer would be.",
    )
)
MEMORY = tests(
    shares_memory=(
        "the layer that {name} was made from to stay as it is in training",
        "it changes",
        "Where the layer is on that device already, .to copies nothing. A part's weight is a copy: clone().",
    )
)
WHYS_LIST = rules(
    nothing="Nothing came back: is the result returned?",
    generator="A generator has no length, and is empty once it was gone through. In square brackets it is a list.",
    one_device="For one device it is a list, too: of one tensor.",
    otherwise="Each device keeps its own share: nothing is put together between the two layers.",
)
LIST = tests(no_list=("a list of {n} tensors, one a device", "{shown}", WHYS_LIST))
SQUEEZED = "A batch of one is a batch: its dimension stays. squeeze() removes it."
WHYS_SHARE = rules(
    squeezed=SQUEEZED,
    no_bias="The bias is missing: each part adds its own share of it.",
    activation="There is an activation function in it. The layer computes what linear computes, and no more.",
)
WHYS_COLUMN_COPIES = rules(
    of_results=(
        "Some of these copies carry results: they are put together and given out again. Nothing is exchanged between "
        "the two layers, for part i of the second needs just what part i of the first computes."
    ),
    otherwise="x goes once to each device where it is not already.",
)
SHARES = [*placed("Each part computes on its own device, and stays there."), *equals(WHYS_SHARE, computed=True)]
COLUMN_COPIES = tests(too_many_copies=("{most} copies, of x to each other device", "{copies}", WHYS_COLUMN_COPIES))
WHYS_SUM = rules(
    squeezed=SQUEEZED,
    reshaped="Each part has a piece of every output: they are added, not concatenated.",
    mistake="{mistake}",
    otherwise="The result is the sum of what all parts compute, each from its own share of the inputs.",
)
ONE_WAY = "Each part computes on its own device, and its result goes to devices[0], once, to be added there."
WHYS_ROW_COPIES = rules(
    through_cpu=f"By way of the CPU it crosses two links. {ONE_WAY}",
    out_again=(
        f"From devices[0], which collects, something is sent out again: each part has its input already. {ONE_WAY}"
    ),
    otherwise=ONE_WAY,
)
LIST_KEPT = tests(
    changed=(
        "the list xs to stay as it is",
        "it holds something else after the call",
        "The list is the caller's, who may need it again: put results into a list of your own.",
    )
)
SUM = [*placed("The parts' results meet on devices[0]."), *equals(WHYS_SUM, computed=True)]
ROW_COPIES = tests(
    too_many_copies=("{most} copies, of the results of the parts on other devices", "{copies}", WHYS_ROW_COPIES)
)
CUT = "The chain of gradients is cut: every crossing is a copy(x, device), without detach, .data or no_grad."
X_GRADIENT = gradients(f"It is the sum over all devices. {CUT}", CUT)
GRADIENTS = gradients(CUT, CUT)
WHYS_NUMBERS = rules(
    too_few="A bias is missing. It is a parameter though its numbers are 0: training moves it.",
    whole_kept="The whole layer is kept beside its parts. Each device has its part alone: that saves memory.",
    otherwise="One bias, spread over the parts, is several: each is trained by the whole gradient.",
)
NUMBERS = tests(
    other_numbers=(
        "{asked_numbers} numbers in the parameters of the {place} layer, as in the whole one",
        "{numbers}",
        WHYS_NUMBERS,
    )
)
