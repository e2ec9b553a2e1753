"""What e02_copy is asked: a tensor on another device, its gradient back where the tensor is, and no copy too many."""

from collections.abc import Callable
from functools import partial

import torch

from mpcourse.course.check.answer import Answer
from mpcourse.course.check.facts.calls import one_by_one
from mpcourse.course.check.facts.tensors import Lanes, Result, backward, equals, gradients, lanes, placed
from mpcourse.course.check.rules import Rule, always, demand, rules, tests
from mpcourse.course.check.status_page import HasStatusPage
from mpcourse.course.check.wrong import short
from mpcourse.virtual import Box, virtual_gpus

Tensor = torch.Tensor


def check(answer: Answer, comm: HasStatusPage) -> None:
    """Check the answer; every rank may call this, and ranks exchange nothing."""
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
        gradients = [torch.zeros(4), torch.tensor([torch.nan, torch.inf, -torch.inf, 1.0])]
        gradients += [torch.randn(5, dtype=dtype) for dtype in (torch.float64, torch.bfloat16, torch.complex64)]
        checks += [partial(_comes_back, gradient=gradient) for gradient in gradients]
        one_by_one(answer, [*checks, _two_results, _twice])


# -- observation --


class Copied(Result):
    """What copy(x, device) returned for x on `source`. copies: of the call, or of backward."""

    lane = property(lambda self: f"{self.source} -> {self.device}")
    other_copies = property(lambda self: self.copies != [self.lane])
    no_copy = property(lambda self: not self.copies)
    no_apply = property(lambda self: isinstance(self.got, torch.autograd.Function))
    requires_grad = property(lambda self: self.got.requires_grad)
    another_tensor = property(lambda self: self.got is not self.x)
    no_graph = property(lambda self: not self.got.requires_grad or self.got.grad_fn is None)
    by_torch = property(lambda self: _moved_by_torch(self.got, self.x))

    # What sentences show.

    another = property(lambda self: str(self.copies) if self.copies else f"another tensor: {short(self.got)}")
    kind = property(lambda self: type(self.got).__name__)


def _copied(answer: Answer, x: Tensor, device: str | torch.device, values: Tensor, box: Box) -> Copied:
    """Call copy(x, device). values: the numbers of x."""
    source = str(x.device)
    box.reset()
    y = answer.call("copy", x, device, changes=(x,))
    demand(X_STAYS, Result(x, values, "x itself, after the call,", source))
    what = f"copy(x on {source}, {device!r})"
    return Copied(y, values, what, str(device), x=x, source=source, copies=lanes(box))


def _moves(answer: Answer, box: Box, values: Tensor, source: str, target: str) -> None:
    x = values.to(source)  # the same twice: who remembers results by their argument is to be found
    for device in (target, torch.device(target)):
        demand(MOVED, _copied(answer, x, device, values, box))


def _stays(answer: Answer, box: Box) -> None:
    for device in ("vgpu:1", torch.device("vgpu:1")):
        x = torch.ones(3, device="vgpu:1", requires_grad=True)
        demand(STAYED, _copied(answer, x, device, torch.ones(3), box))


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
    copied = _copied(answer, h, target, h.detach().to("cpu"), box)
    demand(DIFFERENTIABLE, copied)
    z = copied.got * 2
    box.reset()
    backward(answer, z, probe, "the copy", WHYS_BACKWARD)
    weight_grad = layer.weight.grad
    demand(GRADIENTS, Result(x.grad, plain.grad, "the gradient of x"))
    demand(GRADIENTS, Result(weight_grad, weight, "the gradient of a weight before the copy"))
    back = Lanes(lane for lane in lanes(box) if lane.startswith(f"{target} -> "))
    demand(CAME_BACK, Copied(None, None, "", source, x=None, source=target, copies=back))


def _moved_by_torch(y: Tensor, h: Tensor) -> bool:
    """Return whether torch's own copy is in the graph between `h` and `y`."""
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


def _comes_back(answer: Answer, gradient: Tensor) -> None:
    """Check that gradients come back unchanged: zeros, NaN and infinity, and other types than float32."""
    x = torch.ones(len(gradient), dtype=gradient.dtype, device="vgpu:0", requires_grad=True)
    y = answer.call("copy", x, "vgpu:1", changes=(x,))
    backward(answer, y, gradient, f"the copy of a tensor of {gradient.dtype}", WHYS_BACKWARD)
    what = f"the gradient of x, of {gradient.dtype}, where the result's is {short(gradient.tolist())},"
    demand(AS_IT_IS, Result(x.grad, gradient, what))


def _two_results(answer: Answer) -> None:
    """Check that what a call has returned stays as it is when there is another call."""
    first, second = torch.arange(3.0, device="vgpu:0"), torch.arange(3.0, 6.0, device="vgpu:0")
    y = answer.call("copy", first, "vgpu:1", changes=(first,))
    answer.call("copy", second, "vgpu:1", changes=(second,))
    demand(TWO_RESULTS, Result(y, torch.arange(3.0), "the copy, after another call,"))


def _twice(answer: Answer) -> None:
    """Copy one tensor twice, and copy a copy: no call may use the state of another call."""
    x = torch.arange(3.0, device="vgpu:0", requires_grad=True)
    first = answer.call("copy", x, "vgpu:1", changes=(x,))
    first = first * first
    second = answer.call("copy", first, "vgpu:2", changes=(first,))
    third = answer.call("copy", x, "vgpu:2", changes=(x,))
    result = second * second + third * 3
    backward(answer, result, torch.ones(3), "the copies", THREE_COPIES)
    demand(TWICE, Result(x.grad, 4 * torch.arange(3.0) ** 3 + 3, "the gradient of x after three copies"))


# -- what is said --

WAY_BACK = (
    "backward gets its gradient on the device of the result, and must move it to where x was: forward sees where that "
    "is, and keeps it in ctx."
)
THREE_COPIES = f"{WAY_BACK} Each call remembers that for itself, in ctx."
WRITTEN = "Is the device written into the code? It is the second argument."
NO_GRADIENT = "backward returns it: the gradient of x comes first."

X_STAYS = placed("x stays where it is: its owner still needs it there.")
WHYS_PLACE = rules(
    no_copy="x is on another device: vgpu:0 and vgpu:1 differ in their index, and the CPU is a device too.",
    otherwise=WRITTEN,
)
WHYS_COPIES = rules(
    no_copy="Nothing was copied: that is a result of an earlier call. Each call copies the x that it gets.",
    otherwise="Each copy costs the link's time. One is enough, straight from device to device.",
)
MOVED = [
    *tests(
        no_apply=(
            "a tensor",
            "an object of the class {kind}",
            "Copy(x, device) makes an object. Copy.apply(x, device) runs its forward.",
        )
    ),
    *placed(WHYS_PLACE),
    *equals("A copy has the numbers of x, unchanged.", dtype="A copy keeps the type of its numbers."),
    *tests(
        requires_grad=(
            "a result that needs no gradient",
            "one that does",
            "x needs none. A result that asks for a gradient by itself starts a graph of its own.",
        ),
        other_copies=("1 copy: {lane}", "{copies}", WHYS_COPIES),
    ),
]
STAYED = tests(
    another_tensor=(
        "x itself from {what}",
        "{another}",
        "Where x already is there, nothing needs to be done: return x, and no clone. "
        "Compare devices with devices, torch.device(device) with x.device: one never equals a name.",
    )
)
DIFFERENTIABLE = [
    *tests(
        no_graph=(
            "a result through which a gradient can come back",
            "a tensor that autograd knows nothing of",
            "Autograd follows Copy.apply(...). detach, .data and torch.no_grad hide the copy from it.",
        )
    ),
    *placed(WRITTEN),
    *tests(
        by_torch=(
            "a copy with a backward of yours",
            "x.to(device) outside of Copy",
            "x.to(device) outside of Copy is torch's own copy, with torch's own backward. Here you write both: let "
            "Copy.apply(x, device) get the x that has not moved yet, and move it in Copy.forward.",
        )
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
UNCHANGED = "The gradient of a copy is the gradient of its result, unchanged"
GRADIENTS = gradients(f"{UNCHANGED}.", NO_GRADIENT, computed=False)
CAME_BACK = tests(other_copies=("1 copy in backward: {lane}", "{copies}", WAY_BACK))
WHYS_NONE = [
    Rule(
        "zeros",
        lambda f: not f.want.any(),
        "A gradient of zeros is a gradient: it comes back as any other does.",
    ),
    Rule("nothing returned", always, NO_GRADIENT),
]
WHYS_CHANGED = [
    Rule(
        "conjugated",
        lambda f: f.want.is_complex() and torch.equal(f.got.to("cpu"), f.want.conj()),
        "It is conjugated. The derivative of a copy is 1, and its conjugate is 1: the gradient goes back as it is.",
    ),
    Rule(
        "another type",
        lambda f: f.want.dtype != torch.float32,
        "x is {want.dtype}, and so is its gradient: backward moves it as it is. Is it turned into another type on the "
        "way?",
    ),
    Rule("other numbers", always, f"{UNCHANGED}, whatever numbers are in it."),
]
AS_IT_IS = gradients(WHYS_CHANGED, WHYS_NONE, computed=False)
TWO_RESULTS = equals(
    "It was that before another tensor was copied: both results are in one memory. Each call makes a new tensor."
)
TWICE = gradients(THREE_COPIES, THREE_COPIES, computed=False)
