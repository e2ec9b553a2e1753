"""What e02_copy is asked: a tensor on another device, its gradient back where the tensor is, and no copy too many."""

from collections.abc import Callable
from functools import partial

import torch

from mpcourse.course.check.answer import Answer
from mpcourse.course.check.cases.on_calls import one_by_one
from mpcourse.course.check.cases.on_devices import backward, copies_text, equal, is_on, lanes
from mpcourse.course.check.status_page import HasStatusPage
from mpcourse.course.check.wrong import Wrong, short
from mpcourse.virtual import Box, virtual_gpus

WAY_BACK = (
    "backward gets its gradient on the device of the result, and must move it to where x was: forward sees where that "
    "is, and keeps it in ctx."
)
WRITTEN = "Is the device written into the code? It is the second argument."


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


def _moves(answer: Answer, box: Box, values: torch.Tensor, source: str, target: str) -> None:
    x = values.to(source)  # the same twice: who remembers results by their argument is to be found
    for device in (target, torch.device(target)):
        box.reset()
        y = answer.call("copy", x, device, changes=(x,))
        copies = lanes(box)
        if isinstance(y, torch.autograd.Function):
            why = "Copy(x, device) makes an object. Copy.apply(x, device) runs its forward."
            raise Wrong("a tensor", f"an object of the class {type(y).__name__}", why)
        is_on(x, source, "x itself, after the call,", "x stays where it is: its owner still needs it there.")
        why = WRITTEN
        if not copies:
            why = "x is on another device: vgpu:0 and vgpu:1 differ in their index, and the CPU is a device too."
        is_on(y, target, f"copy(x on {source}, {device!r})", why)
        if y.dtype != values.dtype:
            raise Wrong(f"a tensor of {values.dtype}", f"{y.dtype}", "A copy keeps the type of its numbers.")
        equal(y, values, "the copy", "A copy has the numbers of x, unchanged.")
        if y.requires_grad:
            why = "x needs none. A result that asks for a gradient by itself starts a graph of its own."
            raise Wrong("a result that needs no gradient", "one that does", why)
        if copies != [f"{source} -> {target}"]:
            why = "Each copy costs the link's time. One is enough, straight from device to device."
            if not copies:
                why = "Nothing was copied: that is a result of an earlier call. Each call copies the x that it gets."
            raise Wrong(f"1 copy: {source} -> {target}", copies_text(copies), why)


def _stays(answer: Answer, box: Box) -> None:
    for device in ("vgpu:1", torch.device("vgpu:1")):
        x = torch.ones(3, device="vgpu:1", requires_grad=True)
        box.reset()
        y = answer.call("copy", x, device, changes=(x,))
        if y is not x:
            why = "Where x already is there, nothing needs to be done: return x, and no clone. "
            why += "Compare devices with devices, torch.device(device) with x.device: one never equals a name."
            got = copies_text(lanes(box)) if lanes(box) else f"another tensor: {short(y)}"
            raise Wrong(f"x itself from copy(x on vgpu:1, {device!r})", got, why)


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
    if not y.requires_grad or y.grad_fn is None:
        raise Wrong(
            "a result through which a gradient can come back",
            "a tensor that autograd knows nothing of",
            "Autograd follows Copy.apply(...). detach, .data and torch.no_grad hide the copy from it.",
        )
    is_on(y, target, f"copy(x on {source}, {target!r})", WRITTEN)
    if _moved_by_torch(y, h):
        why = "x.to(device) outside of Copy is torch's own copy, with torch's own backward. Here you write both: let "
        why += "Copy.apply(x, device) get the x that has not moved yet, and move it in Copy.forward."
        raise Wrong("a copy with a backward of yours", "x.to(device) outside of Copy", why)
    z = y * 2
    box.reset()
    try:
        backward(answer, z, probe, "the copy", WAY_BACK)
    except Wrong as wrong:
        if "returned an incorrect number of gradients" in wrong.got or "different than None" in wrong.got:
            wrong.why = "backward returns one value for each argument of forward, in their order: None for the device."
        raise
    for got, want, what in ((x.grad, plain.grad, "x"), (layer.weight.grad, weight, "a weight before the copy")):
        if got is None:
            raise Wrong(f"a gradient for {what}", "None", "backward returns it: the gradient of x comes first.")
        equal(got, want, f"the gradient of {what}", "The gradient of a copy is the gradient of its result, unchanged.")
    back = [lane for lane in lanes(box) if lane.startswith(f"{target} -> ")]
    if back != [f"{target} -> {source}"]:
        raise Wrong(f"1 copy in backward: {target} -> {source}", copies_text(back), WAY_BACK)


def _moved_by_torch(y: torch.Tensor, h: torch.Tensor) -> bool:
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
        backward(answer, y, gradient, "the copy", WAY_BACK)
        what = f"the gradient of x where the result's is {short(gradient.tolist())}"
        if x.grad is None:
            raise Wrong(what, "None", "A gradient of zeros is a gradient: it comes back as any other does.")
        back = x.grad.to("cpu")
        if not torch.equal(back.nan_to_num(7.0, 8.0, 9.0), gradient.nan_to_num(7.0, 8.0, 9.0)):
            why = "The gradient of a copy is the gradient of its result, unchanged, whatever numbers are in it."
            raise Wrong(what, short(back.tolist()), why)


def _two_results(answer: Answer) -> None:
    """What a call has returned stays as it is when there is another call."""
    first, second = torch.arange(3.0, device="vgpu:0"), torch.arange(3.0, 6.0, device="vgpu:0")
    y = answer.call("copy", first, "vgpu:1", changes=(first,))
    answer.call("copy", second, "vgpu:1", changes=(second,))
    why = "It was that before another tensor was copied: both results are in one memory. Each call makes a new tensor."
    equal(y, torch.arange(3.0), "the copy, after another call,", why)


def _precision(answer: Answer, dtype: torch.dtype) -> None:
    """Gradients of other types than float32 come back with all their digits."""
    x = torch.randn(5, dtype=dtype).to("vgpu:0").requires_grad_()
    gradient = torch.randn(5, dtype=dtype)
    y = answer.call("copy", x, "vgpu:1", changes=(x,))
    backward(answer, y, gradient, f"the copy of a tensor of {dtype}", WAY_BACK)
    if x.grad is None:
        raise Wrong(f"a gradient for x of {dtype}", "None", "backward returns it: the gradient of x comes first.")
    why = (
        f"x is {dtype}, and so is its gradient: backward moves it as it is. Is it turned into another type on the way?"
    )
    if dtype.is_complex and torch.equal(x.grad.to("cpu"), gradient.conj()):
        why = (
            "It is conjugated. The derivative of a copy is 1, and its conjugate is 1: the gradient goes back as it is."
        )
    equal(x.grad, gradient, f"the gradient of x, of {dtype},", why)


def _twice(answer: Answer) -> None:
    """Two copies of one tensor, and a copy of a copy: no state of one call may be used by another."""
    x = torch.arange(3.0, device="vgpu:0", requires_grad=True)
    first = answer.call("copy", x, "vgpu:1", changes=(x,))
    first = first * first
    second = answer.call("copy", first, "vgpu:2", changes=(first,))
    third = answer.call("copy", x, "vgpu:2", changes=(x,))
    result = second * second + third * 3
    why = f"{WAY_BACK} Each call remembers that for itself, in ctx."
    backward(answer, result, torch.ones(3), "the copies", why)
    if x.grad is None:
        raise Wrong("a gradient for x, from three copies", "None", why)
    equal(x.grad, 4 * torch.arange(3.0) ** 3 + 3, "the gradient of x after three copies", why)
