"""Forward and backward of e11_gather_layer's GatheredLinear, called as autograd calls them."""

import traceback
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import torch
import torch.fx.experimental.symbolic_shapes  # what a backward that is given gradients imports: before the clock starts

from mpcourse.course.check.cases.on_bytes import Sent
from mpcourse.course.check.cases.on_models import one_line
from mpcourse.course.check.wrong import Wrong, short
from mpcourse.virtual.ranks import ClusterError

NAME = "GatheredLinear"
_THEIRS = {
    "x": "x is the caller's, perhaps another layer's output: change nothing in it, and work on a copy.",
    "shard": "The shard is all that is left of the weight between calls, and the optimizer's to update: use a copy.",
    "grad": "grad is autograd's, which may give the same tensor to others: change what is made of it alone.",
}


def applied(own: ModuleType, *args: Any) -> torch.Tensor:
    """What GatheredLinear.apply returns; Wrong where it is no tensor with a backward."""
    function = getattr(own, NAME)
    if not isinstance(function, type) or not issubclass(function, torch.autograd.Function):
        why = "Keep the line of the class: it makes apply, which calls forward and notes backward."
        raise Wrong(f"{NAME} to be a torch.autograd.Function", short(function), why)
    y = function.apply(*args)
    if not isinstance(y, torch.Tensor):
        raise Wrong("forward to return y, a tensor", short(y), "Nothing came back: is x times the weight returned?")
    return y


def backward(own: ModuleType, run: Callable[[], Any]) -> Any:
    """What `run` returns, in which autograd calls backward; Wrong where autograd refuses what that returns."""
    try:
        return run()
    except (RuntimeError, TypeError) as error:
        mine = any(frame.filename == own.__file__ for frame in traceback.extract_tb(error.__traceback__))
        if mine or isinstance(error, ClusterError):
            raise
        why = (
            "backward returns one value for each argument of forward but ctx: of x's shape, of the shard's, (chunk,), "
            "and None for comm and shape."
        )
        raise Wrong("gradients of x and of the shard from backward, in their shapes", one_line(error), why) from None


def unchanged(when: str, given: Sequence[tuple[str, torch.Tensor, torch.Tensor]]) -> None:
    """Raise Wrong where a tensor is not as it was. given: the name, the tensor and a copy from before of each."""
    for name, tensor, before in given:
        if tensor.shape == before.shape and torch.equal(tensor.detach(), before):
            continue
        got = f"shape {tuple(tensor.shape)}" if tensor.shape != before.shape else "other values"
        raise Wrong(f"{name} to be as it was once {when} has returned", got, _THEIRS[name])


def met(comm: Any, sent: Callable[[], Sent] | None) -> Sent | None:
    """What was sent until all virtual ranks have come here: until then messages may be under way."""
    if sent is None:
        return None
    comm.Barrier()
    found = sent()
    return found._replace(calls=found.calls[:-1])
