"""What e02_copy is asked: a tensor on another device, its gradient back where the tensor is, and no copy too many."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from mpcourse.course.check.answer import Answer
from mpcourse.course.check.facts.calls import one_by_one
from mpcourse.course.check.facts.tensors import backward, copies_text, equals, lanes, placed
from mpcourse.course.check.rules import Rule, Test, always, demand
from mpcourse.course.check.status_page import HasStatusPage
from mpcourse.course.check.wrong import short
from mpcourse.virtual import Box, virtual_gpus

Tensor = torch.Tensor


def check(answer: Answer, comm: HasStatusPage) -> None:
    """Every rank may call this; ranks do not talk."""
    with virtual_gpus(3) as box:
        checks: list[Callable[[Answer], None]] = [
            partial(_moves, box=box, values=torch.randn(3, 5), source="vgpu:0", target="vgpu:1"),
            partial(_stays, box=box),
            partial(_gradient, box=box, source="vgpu:0", target="vgpu:1"),
            partial(_gradient, box=box, source="vgpu:2", target="vgpu:0"),
            partial(_gradient, box=box, source="vgpu:1", target="cpu"),
            partial(_moves, box=box, values=torch.randn((), dtype=torch.float64), source="vgpu:2", target="vgpu:0"),
            partial(_moves, box=box, values=torch.arange(7), source="vgpu:1", target="vgpu:2"),
            partial(_moves, box=box, values=torch.randn(4, 6).t(), source="cpu", target="vgpu:1"),
        ]
        checks += [partial(_precision, dtype=dtype) for dtype in (torch.float64, torch.bfloat16, torch.complex64)]
        one_by_one(answer, [*checks, _unusual, _two_results, _twice])


# -- observation --


@dataclass(frozen=True)
class Copied:
    """A call copy(x, device). values: the numbers of x. copies: lanes of the call, or of backward."""

    x: Tensor
    y: Any
    device: str | torch.device = ""
    values: Any = None
    source: str = ""
    copies: tuple[str, ...] = ()

    target = property(lambda self: str(self.device))
    lane = property(lambda self: f"{self.source} -> {self.target}")

    # What sentences show.

    call = property(lambda self: f"copy(x on {self.source}, {self.device!r})")
    made = property(lambda self: copies_text(self.copies))


@dataclass(frozen=True)
class Gradient:
    """The gradient that came back to `what`, and the right one. given: the gradient of the result."""

    got: Tensor | None
    want: Tensor
    what: str
    given: Any = None

    dtype = property(lambda self: self.want.dtype)
    shown = property(lambda self: short(self.got.tolist()))


def _moves(answer: Answer, box: Box, values: Tensor, source: str, target: str) -> None:
    x = values.to(source)  # the same twice: who remembers results by their argument is to be found
    for device in (target, torch.device(target)):
        box.reset()
        y = answer.call("copy", x, device, changes=(x,))
        demand(MOVED, Copied(x, y, device, values, source, tuple(lanes(box))))


def _stays(answer: Answer, box: Box) -> None:
    for device in ("vgpu:1", torch.device("vgpu:1")):
        x = torch.ones(3, device="vgpu:1", requires_grad=True)
        box.reset()
        y = answer.call("copy", x, device, changes=(x,))
        demand(STAYED, Copied(x, y, device, None, "vgpu:1", tuple(lanes(box))))


def _gradient(answer: Answer, box: Box, source: str, target: str) -> None:
    layer = torch.nn.Linear(4, 3)
    plain = torch.randn(2, 4, requires_grad=True)
    probe = torch.randn(2, 3)
    (layer(plain) * 2).backward(probe)
    wanted = layer.weight.grad
    assert wanted is not None and plain.grad is not None
    weight = wanted.clone()
    layer.zero_grad()
    layer.to(source)
    x = plain.detach().to(source).requires_grad_()
    h = layer(x)
    y = answer.call("copy", h, target, changes=(h,))
    demand(DIFFERENTIABLE, Copied(h, y, target, None, source))
    z = y * 2
    box.reset()
    backward(answer, z, probe, "the copy", WHYS_BACKWARD)
    weight_grad = layer.weight.grad
    demand(GRADIENTS, Gradient(x.grad, plain.grad, "x"), Gradient(weight_grad, weight, "a weight before the copy"))
    back = tuple(lane for lane in lanes(box) if lane.startswith(f"{target} -> "))
    demand(CAME_BACK, Copied(h, y, source, None, target, back))


def _moved_by_torch(y: Tensor, h: Tensor) -> bool:
    """Whether torch's own copy stands in the graph between `h` and `y`."""
    ways, been = [y.grad_fn], {h.grad_fn}
    while ways:
        node = ways.pop()
        if node is None or node in been:
            continue
        if type(node).__name__ in ("MoveBackward", "CopyBackwards", "ToCopyBackward0"):
            return True
        been.add(node)
        ways += [before for before, _ in node.next_functions]
    return False


def _unusual(answer: Answer) -> None:
    """Gradients of zeros, and those with NaN and infinity in them, come back as others do."""
    for gradient in (torch.zeros(4), torch.tensor([float("nan"), float("inf"), -float("inf"), 1.0])):
        x = torch.ones(4, device="vgpu:0", requires_grad=True)
        y = answer.call("copy", x, "vgpu:1", changes=(x,))
        backward(answer, y, gradient, "the copy", WHYS_BACKWARD)
        demand(UNUSUAL, Gradient(x.grad, gradient, "x", short(gradient.tolist())))


def _two_results(answer: Answer) -> None:
    """What a call has returned stays as it is when there is another call."""
    first, second = torch.arange(3.0, device="vgpu:0"), torch.arange(3.0, 6.0, device="vgpu:0")
    y = answer.call("copy", first, "vgpu:1", changes=(first,))
    answer.call("copy", second, "vgpu:1", changes=(second,))
    demand(TWO_RESULTS, Copied(first, y, values=torch.arange(3.0)))


def _precision(answer: Answer, dtype: torch.dtype) -> None:
    """Gradients of other types than float32 come back with all their digits."""
    x = torch.randn(5, dtype=dtype).to("vgpu:0").requires_grad_()
    gradient = torch.randn(5, dtype=dtype)
    y = answer.call("copy", x, "vgpu:1", changes=(x,))
    backward(answer, y, gradient, f"the copy of a tensor of {dtype}", WHYS_BACKWARD)
    demand(PRECISION, Gradient(x.grad, gradient, "x"))


def _twice(answer: Answer) -> None:
    """Two copies of one tensor, and a copy of a copy: no state of one call may be used by another."""
    x = torch.arange(3.0, device="vgpu:0", requires_grad=True)
    first = answer.call("copy", x, "vgpu:1", changes=(x,))
    first = first * first
    second = answer.call("copy", first, "vgpu:2", changes=(first,))
    third = answer.call("copy", x, "vgpu:2", changes=(x,))
    result = second * second + third * 3
    backward(answer, result, torch.ones(3), "the copies", THREE_COPIES)
    demand(TWICE, Gradient(x.grad, 4 * torch.arange(3.0) ** 3 + 3, "x"))


# -- what is said --

WAY_BACK = (
    "backward gets its gradient on the device of the result, and must move it to where x was: forward sees where that "
    "is, and keeps it in ctx."
)
THREE_COPIES = f"{WAY_BACK} Each call remembers that for itself, in ctx."
WRITTEN = "Is the device written into the code? It is the second argument."
NO_GRADIENT = "backward returns it: the gradient of x comes first."

MOVED = [
    Test(
        "no apply",
        lambda f: isinstance(f.y, torch.autograd.Function),
        "a tensor",
        lambda f: f"an object of the class {type(f.y).__name__}",
        "Copy(x, device) makes an object. Copy.apply(x, device) runs its forward.",
    ),
    *placed(
        lambda f: f.x,
        lambda f: f.source,
        "x itself, after the call,",
        "x stays where it is: its owner still needs it there.",
    ),
    *placed(
        lambda f: f.y,
        lambda f: f.target,
        "{call}",
        [
            Rule(
                "no copy",
                lambda f: not f.copies,
                "x is on another device: vgpu:0 and vgpu:1 differ in their index, and the CPU is a device too.",
            ),
            Rule("another device", always, WRITTEN),
        ],
    ),
    Test(
        "dtype",
        lambda f: f.y.dtype != f.values.dtype,
        lambda f: f"a tensor of {f.values.dtype}",
        lambda f: str(f.y.dtype),
        "A copy keeps the type of its numbers.",
    ),
    *equals(lambda f: f.y, lambda f: f.values, "the copy", "A copy has the numbers of x, unchanged."),
    Test(
        "requires_grad",
        lambda f: f.y.requires_grad,
        "a result that needs no gradient",
        "one that does",
        "x needs none. A result that asks for a gradient by itself starts a graph of its own.",
    ),
    Test(
        "copies",
        lambda f: f.copies != (f.lane,),
        "1 copy: {lane}",
        "{made}",
        [
            Rule(
                "none",
                lambda f: not f.copies,
                "Nothing was copied: that is a result of an earlier call. Each call copies the x that it gets.",
            ),
            Rule("several", always, "Each copy costs the link's time. One is enough, straight from device to device."),
        ],
    ),
]
STAYED = [
    Test(
        "another tensor",
        lambda f: f.y is not f.x,
        "x itself from {call}",
        lambda f: f.made if f.copies else f"another tensor: {short(f.y)}",
        "Where x already is there, nothing needs to be done: return x, and no clone. "
        "Compare devices with devices, torch.device(device) with x.device: one never equals a name.",
    )
]
DIFFERENTIABLE = [
    Test(
        "no graph",
        lambda f: not f.y.requires_grad or f.y.grad_fn is None,
        "a result through which a gradient can come back",
        "a tensor that autograd knows nothing of",
        "Autograd follows Copy.apply(...). detach, .data and torch.no_grad hide the copy from it.",
    ),
    *placed(lambda f: f.y, lambda f: f.target, "{call}", WRITTEN),
    Test(
        "torch's copy",
        lambda f: _moved_by_torch(f.y, f.x),
        "a copy with a backward of yours",
        "x.to(device) outside of Copy",
        "x.to(device) outside of Copy is torch's own copy, with torch's own backward. Here you write both: let "
        "Copy.apply(x, device) get the x that has not moved yet, and move it in Copy.forward.",
    ),
]
WHYS_BACKWARD = [
    Rule(
        "number of gradients",
        lambda f: "returned an incorrect number of gradients" in f.error or "different than None" in f.error,
        "backward returns one value for each argument of forward, in their order: None for the device.",
    ),
    Rule("another device", always, WAY_BACK),
]
GRADIENTS = [
    Test("None", lambda f: f.got is None, "a gradient for {what}", "None", NO_GRADIENT),
    *equals(
        lambda f: f.got,
        lambda f: f.want,
        "the gradient of {what}",
        "The gradient of a copy is the gradient of its result, unchanged.",
    ),
]
CAME_BACK = [Test("copies", lambda f: f.copies != (f.lane,), "1 copy in backward: {lane}", "{made}", WAY_BACK)]
UNUSUAL = [
    Test(
        "None",
        lambda f: f.got is None,
        "the gradient of x where the result's is {given}",
        "None",
        "A gradient of zeros is a gradient: it comes back as any other does.",
    ),
    Test(
        "other numbers",
        lambda f: not torch.allclose(f.got.to("cpu"), f.want, rtol=0, atol=0, equal_nan=True),
        "the gradient of x where the result's is {given}",
        "{shown}",
        "The gradient of a copy is the gradient of its result, unchanged, whatever numbers are in it.",
    ),
]
TWO_RESULTS = equals(
    lambda f: f.y,
    lambda f: f.values,
    "the copy, after another call,",
    "It was that before another tensor was copied: both results are in one memory. Each call makes a new tensor.",
)
PRECISION = [
    Test("None", lambda f: f.got is None, "a gradient for x of {dtype}", "None", NO_GRADIENT),
    *equals(
        lambda f: f.got,
        lambda f: f.want,
        "the gradient of x, of {dtype},",
        [
            Rule(
                "conjugated",
                lambda f: f.want.is_complex() and torch.equal(f.got.to("cpu"), f.want.conj()),
                "It is conjugated. The derivative of a copy is 1, and its conjugate is 1: the gradient goes back as it "
                "is.",
            ),
            Rule(
                "another type",
                always,
                "x is {dtype}, and so is its gradient: backward moves it as it is. Is it turned into another type on "
                "the way?",
            ),
        ],
    ),
]
TWICE = [
    Test("None", lambda f: f.got is None, "a gradient for x, from three copies", "None", THREE_COPIES),
    *equals(lambda f: f.got, lambda f: f.want, "the gradient of x after three copies", THREE_COPIES),
]
