"""What e01_memory is asked: the bytes of a training step, against the ledger of a virtual GPU that runs it."""

import copy
import functools
import itertools
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch._dynamo  # what torch.optim imports at its first use, which takes seconds: here, before the clock starts
import torch.nn.functional as F

from mpcourse.course.check.answer import Answer
from mpcourse.course.check.explain import explanation, holds, probed
from mpcourse.course.check.facts.calls import one_by_one
from mpcourse.course.check.rules import Rule, Test, always, demand
from mpcourse.course.check.seeding import drawing
from mpcourse.course.check.status_page import HasStatusPage
from mpcourse.course.check.wrong import first_difference, why_not_finite
from mpcourse.models import mlp
from mpcourse.models.step_memory import Saved, StepMemory
from mpcourse.virtual import virtual_gpus

FIRST = ([784, 1000, 1000, 10], 100)
PROBE = ((9, 7, 5, 4, 3), 6)  # no two widths are alike: mistakes that give one number for the first network differ here
OPTIMIZERS = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.1),
    "momentum": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
    "adam": lambda parameters: torch.optim.Adam(parameters),
}


def check(answer: Answer, comm: HasStatusPage) -> None:
    """Check the answer; every rank may call this, and ranks exchange nothing."""
    draw = drawing()
    networks = [FIRST]
    networks += [([draw.randint(2, 90) for _ in range(length)], draw.randint(2, 40)) for length in (3, 5, 2, 4)]
    networks += [([7, 3], 1)]
    one = functools.partial
    one_by_one(answer, [one(_one, widths=w, batch=b, optimizer=o) for w, b in networks for o in OPTIMIZERS])


def _one(answer: Answer, widths: list[int], batch: int, optimizer: str) -> None:
    got = copy.deepcopy(answer.call("training_bytes", list(widths), batch, optimizer))
    demand(TESTS, Facts(answer, tuple(widths), batch, optimizer, got))


# -- facts --


@functools.cache
def measured(widths: tuple[int, ...], batch: int, optimizer: str) -> StepMemory:
    """Measure what a GPU's memory holds during one step of the network that the task describes."""
    with virtual_gpus(1, dry=True) as box:
        model = mlp(widths).to("vgpu:0")
        opt = OPTIMIZERS[optimizer](model.parameters())
        images, labels = torch.randn(batch, widths[0]), torch.randint(widths[-1], (batch,))
        images, labels = images.to("vgpu:0"), labels.to("vgpu:0")
        loss = F.cross_entropy(model(images), labels)
        block = box.block_of(loss)  # which nothing but this variable holds
        assert block is not None
        held = [
            a for a in box.ledger.live.values() if a.kind in ("inputs", "activations") and a is not block.allocation
        ]
        saved = [Saved(a.shape, a.dtype, a.nbytes) for a in held]
        loss.backward()
        opt.step()
        kinds = box.ledger.kinds(0)
        steps = sum(s["step"].nbytes for s in opt.state.values() if "step" in s)  # torch keeps them on the CPU
        return StepMemory(
            kinds["parameters"], kinds["gradients"], kinds.get("optimizer state", 0) + steps,
            sum(s.nbytes for s in saved), saved,
        )  # fmt: skip


@dataclass(frozen=True)
class Facts:
    """What training_bytes returned for a network."""

    answer: Answer
    widths: tuple[int, ...]
    batch: int
    optimizer: str
    got: Any

    call = property(lambda self: f"training_bytes({[*self.widths]}, {self.batch}, {self.optimizer!r})")
    truth = property(lambda self: measured(self.widths, self.batch, self.optimizer))
    want = property(lambda self: self.truth.as_dict())
    difference = property(lambda self: first_difference(self.got, self.want, self.call))
    is_dict = property(lambda self: isinstance(self.got, Mapping))
    is_first = property(lambda self: ([*self.widths], self.batch) == FIRST)
    value = property(lambda self: self.got[self.key])
    is_number = property(lambda self: isinstance(self.value, int | float) and not isinstance(self.value, bool))

    @functools.cached_property
    def again(self) -> Any:
        """What the same call returns another time."""
        return self.answer.call("training_bytes", [*self.widths], self.batch, self.optimizer)

    @functools.cached_property
    def key(self) -> str | None:
        """The first key under which another number is; None where it is the keys that differ."""
        return next((k for k, n in self.want.items() if k in self.got and first_difference(self.got[k], n, k)), None)

    @functools.cached_property
    def mistake(self) -> str:
        """The first sentence in MISTAKES whose number this is, and on another network, too, if any is."""
        key = self.key or ""
        fitting = _fitting(key, self.widths, self.batch, self.optimizer, self.value)
        tests = [(why, lambda *seen, why=why: why in _fitting(key, *seen)) for why in fitting]
        seen = probed(self.answer, functools.partial(_number, key), [(*PROBE, self.optimizer)])
        return explanation(tests, seen, holds) or "".join(fitting[:1])

    # What sentences show.

    asked = property(lambda self: self.difference[0])
    shown = property(lambda self: self.difference[1])
    not_finite = property(lambda self: why_not_finite(*self.difference))
    rows = property(
        lambda self: ", ".join(f"{tuple(s.shape)} {str(s.dtype).removeprefix('torch.')}" for s in self.truth.saved)
    )


def _number(key: str, answer: Answer, widths: tuple[int, ...], batch: int, optimizer: str) -> float:
    return float(answer.call("training_bytes", [*widths], batch, optimizer)[key])


def _fitting(key: str, widths: tuple[int, ...], batch: int, optimizer: str, value: float) -> list[str]:
    """Return what is said of the mistakes that give this number under `key`, the likelier first."""
    right = measured(widths, batch, optimizer).as_dict()[key]
    tables = [MISTAKES[key]] if key != "optimizer" else [OPTIMIZER_MISTAKES[optimizer]]
    numbers = [row for table in (*tables, _units) for row in table(key, right, widths, batch)]
    return [why for why, n in numbers if n != right and abs(value - n) < 1e-9 * max(1, abs(n))]


# -- what is said --

Rows = Iterator[tuple[str, float]]  # a sentence, and the number that the mistake gives; the likelier first


def _weights_and_biases(key: str, right: int, widths: tuple[int, ...], batch: int) -> Rows:
    layers = list(itertools.pairwise(widths))
    weights = sum(n * m for n, m in layers)
    yield f"Each layer has a bias too: count the biases' {key} as well as the weights'.", 4 * weights
    yield "A layer has a bias for each output, not for each input.", 4 * (weights + sum(widths[:-1]))
    yield "A layer has a bias for each output; the network's input has none.", 4 * (weights + sum(widths))
    yield "A layer has a bias for each output, not one in all.", 4 * (weights + len(layers))
    yield "The last layer has parameters too.", 4 * sum(n * m + m for n, m in layers[:-1])
    yield f"The last layer's bias is missing: it has {key} too.", right - 4 * widths[-1]
    yield f"The first layer's bias is missing: it has {key} too.", right - 4 * widths[1]
    for i, width in enumerate(widths[2:-1], start=2):
        yield f"The bias of layer {i} is missing: it has {key} too.", right - 4 * width
    yield f"Only the last layer's bias is there: the others have {key} too.", right - 4 * sum(widths[1:-1])
    yield f"Only the first layer's bias is there: the others have {key} too.", right - 4 * sum(widths[2:])
    yield f"Only the first and the last layer's bias is there: all have {key}.", right - 4 * sum(widths[2:-1])
    yield f"The first layer's weight is missing: it has {key} too.", right - 4 * widths[0] * widths[1]
    yield f"The last layer's weight is missing: it has {key} too.", right - 4 * widths[-2] * widths[-1]
    yield "That is twice too much: a float32 has 4 bytes, a float64 would have 8.", 2 * right
    yield "That is half of it: a float32 has 4 bytes, a half-precision number 2.", right / 2


def _parameters(key: str, right: int, widths: tuple[int, ...], batch: int) -> Rows:
    yield from _weights_and_biases(key, right, widths, batch)
    yield "The size of the parameters does not depend on the batch: all examples share them.", right * batch
    of_objects = sum(sys.getsizeof(p) for p in mlp(widths).parameters())
    yield (
        "sys.getsizeof of a tensor sees a small Python object, not its numbers: numel() x element_size().",
        of_objects,
    )


def _gradients(key: str, right: int, widths: tuple[int, ...], batch: int) -> Rows:
    yield from _weights_and_biases(key, right, widths, batch)
    yield "After backward every parameter has a .grad of its own size.", 0
    yield "Gradients are summed over the batch: one number for each parameter.", right * batch
    yield "The input has no .grad: it is not trained.", right + 4 * batch * widths[0]
    passing = "Gradients of activations pass by in backward; only what it leaves in .grad is asked for."
    yield passing, right + 4 * batch * sum(widths[1:-1])
    yield passing, right + 4 * batch * sum(widths[1:])


def _sgd(key: str, right: int, widths: tuple[int, ...], batch: int) -> Rows:
    p, steps = _parameter_bytes(widths), 8 * (len(widths) - 1)
    yield "Plain SGD keeps nothing between steps: parameters and gradients have keys of their own.", p
    yield "That is Adam's state. Plain SGD keeps nothing: the number depends on `optimizer`.", 2 * p + steps


def _momentum(key: str, right: int, widths: tuple[int, ...], batch: int) -> Rows:
    p, steps = _parameter_bytes(widths), 8 * (len(widths) - 1)
    yield "Momentum keeps one number for each parameter from one step to the next.", 0
    yield "Momentum keeps one number for each parameter, not one in all.", 4
    yield "Momentum keeps one number for each parameter; the parameters themselves are counted already.", 2 * p
    yield "Momentum counts no steps: only Adam needs their number, to correct its averages.", p + steps
    yield "That is Adam's state. Momentum keeps one number for each parameter.", 2 * p + steps


def _adam(key: str, right: int, widths: tuple[int, ...], batch: int) -> Rows:
    p, steps = _parameter_bytes(widths), 8 * (len(widths) - 1)
    layers = len(widths) - 1
    two = "Adam keeps two numbers for each parameter: an average of the gradient and one of its square"
    count = "Adam also keeps a step count of 4 bytes"
    yield f"{two}. (The name comes in lower case: 'adam'.)", 0
    yield f"{count} for each parameter tensor.", 2 * p
    yield f"{count}, one for each parameter tensor rather than one in all.", 2 * p + 4
    yield f"{count} for each parameter tensor: a weight and a bias are two tensors.", 2 * p + 4 * layers
    yield f"{count} for each parameter tensor: {layers + 1} widths make {layers} layers.", 2 * p + steps + 8
    yield f"{count}, not 8, for each parameter tensor.", 2 * p + 2 * steps
    yield f"{count}, one for each parameter tensor rather than for each number in it.", 3 * p
    for wrong in (p, p + steps, p + 2 * steps, 3 * p + steps):
        yield f"{two}.", wrong


def _activations(key: str, right: int, widths: tuple[int, ...], batch: int) -> Rows:
    p, later_weights = _parameter_bytes(widths), sum(n * m for n, m in itertools.pairwise(widths[1:]))
    classes = widths[-1]
    row = 4 * batch  # bytes of one unit's activations
    inputs, hidden = row * sum(widths[:-1]), row * sum(widths[1:-1])
    # These two equal the right number for the first network, so an answer that makes one of them was right there.
    yield "Are 10 classes hard-coded? The last width is their number.", right - row * (classes - 10)
    yield "Is a batch of 100 hard-coded? Use the batch.", (4 * sum(widths) + 8) * 100 + 4
    yield "Each example has activations of its own: you forgot the batch.", (right - 4) // batch + 4
    yield "Each example has activations of its own: you forgot the batch.", right // batch
    yield (
        "You forgot the batch in the hidden layers: each example has its own activations.",
        right - hidden + hidden // batch,
    )
    yield "You forgot the input: the first layer saves it, for its weight's gradient needs it.", right - row * widths[0]
    yield "You forgot the hidden layers: each one's activations are saved, as the next layer's input.", right - hidden
    yield "You forgot what the loss saves: the log-probabilities, the labels and one 4-byte number.", inputs
    yield (
        "You forgot the labels (8 bytes each) and one 4-byte number, which the loss saves too.",
        inputs + row * classes,
    )
    yield "You forgot the log-probabilities that the loss saves: batch x classes.", inputs + 8 * batch + 4
    yield "You forgot the labels, which the loss saves too: an int64 has 8 bytes.", right - 8 * batch
    yield "Labels have 8 bytes each, not 4: they are int64.", right - 4 * batch
    yield "You forgot the single 4-byte number that the loss saves: the sum of the class weights.", right - 4
    yield "You counted a ReLU's output twice: it is the next layer's input, one tensor, held once.", right + hidden
    yield (
        "Count what the forward pass saves: not each layer's output or its gradient as well.",
        right + hidden + row * classes,
    )
    yield (
        "That counts the output as well: it is not kept, the loss saves its log-probabilities only.",
        right + row * classes,
    )
    yield "A ReLU saves no mask: its output, which is kept anyway, tells where it was positive.", right + hidden // 4
    yield "The loss itself is not saved for backward: its gradient is 1.", right + 4
    yield "The loss saves the log-probabilities of all classes, not only the right one's.", right - row * (classes - 1)
    yield "There is one label for each example, its class number, not a one-hot row.", right + 8 * batch * (classes - 1)
    yield (
        "The single 4-byte number is the sum of the class weights, not a weight for each class.",
        right + 4 * (classes - 1),
    )
    yield "The single 4-byte number is there once, not for each example.", right + 4 * (batch - 1)
    yield (
        "All layers at once are held: backward begins only after the last one.",
        right - inputs + row * max(widths[:-1]),
    )
    yield "The weights that backward needs are parameters, not counted again as activations.", right + 4 * later_weights
    yield "The weights that backward needs are parameters, not counted again as activations.", right + p


def _units(key: str, right: int, widths: tuple[int, ...], batch: int) -> Rows:
    yield "These are numbers, not bytes: a float32 has 4 bytes.", right / 4
    yield "These are bits, not bytes.", right * 8
    for unit, size in (("KiB", 2**10), ("MiB", 2**20), ("kB", 1e3), ("MB", 1e6)):
        yield f"The unit is bytes, not {unit}.", right / size
        yield f"The unit is bytes, not {unit}.", right // size


def _parameter_bytes(widths: tuple[int, ...]) -> int:
    return 4 * sum((n + 1) * m for n, m in itertools.pairwise(widths))


MISTAKES = {"parameters": _parameters, "gradients": _gradients, "activations": _activations}
OPTIMIZER_MISTAKES = {"sgd": _sgd, "momentum": _momentum, "adam": _adam}

WHYS = [
    Rule("NaN or infinity", lambda f: f.not_finite, "{not_finite}"),
    Rule("keys", lambda f: f.key is None, "Use the four keys of the docstring, no more and no less."),
    Rule(
        "None",
        lambda f: f.value is None,
        "There is None under '{key}': it was never filled in, or a function without `return` gave it.",
    ),
    Rule(
        "no number",
        lambda f: not f.is_number,
        "Every value is a number of bytes, an int: not a string, not a tensor.",
    ),
    Rule("a mistake", lambda f: f.mistake, "{mistake}"),
    Rule(
        "float",
        lambda f: f.value == f.want[f.key],
        "Bytes are whole numbers, ints and not floats: divide with // or not at all.",
    ),
    Rule("activations", lambda f: f.key == "activations", "Autograd saved these tensors: {rows}."),
    Rule("another number", always, ""),
]
TESTS = [
    Test(
        "no dict",
        lambda f: not f.is_dict,
        "{asked}",
        "{shown}",
        "Return one dict with these keys. Printing it, or returning the bare numbers, loses the names.",
    ),
    Test(
        "another result again",
        lambda f: f.difference and repr(f.again) != repr(f.got),  # not !=, for NaN differs from itself
        "{asked}",
        "{shown}",
        "The same call gives another result each time: a variable outside the function keeps the earlier one's.",
    ),
    Test("numbers", lambda f: f.difference and f.is_first, "{asked}", "{shown}", WHYS),
    Test(
        "numbers of another network",
        lambda f: f.difference,
        "{asked}",
        "{shown}",
        [
            Rule(name, holds, f"It was right for other networks: what is fixed in it? {why}")
            for name, holds, why in WHYS
        ],
    ),
]
