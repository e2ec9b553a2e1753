"""What e10_send_recv is asked: values forward, gradients back, on chains of ranks, with the tags that were given."""

import functools
import traceback
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from mpcourse.course.check.answer import Answer
from mpcourse.course.check.cases.on_models import Finding, Judge, Program, on_real, on_virtual, one_line
from mpcourse.course.check.facts.ranks import turned
from mpcourse.course.check.status_page import HasStatusPage
from mpcourse.course.check.virtual_run import OnVirtualRank, Ran, on_each
from mpcourse.course.check.wrong import Wrong, first_difference, short
from mpcourse.virtual.ranks import ClusterError

if TYPE_CHECKING:
    from mpcourse.course.check.traced_mpi import TracedComm

Gradient = tuple[str, np.ndarray | None, np.ndarray]  # of what, as it is, as it has to be
Inputs = Callable[[], torch.Tensor]


def _matrix() -> torch.Tensor:
    return torch.tensor([[0.5, -1.0, 2.0], [1.5, 0.25, -0.75]], dtype=torch.float64)


INPUTS: dict[str, Inputs] = {
    "a matrix": _matrix,
    "a float32 vector": lambda: torch.tensor([0.5, -2.0, 1.25]),
    "a number, of shape ()": lambda: torch.tensor(1.5, dtype=torch.float64),
    "a transposed matrix, which is not contiguous": lambda: _matrix().T,
    "no elements": lambda: torch.zeros(0, 3, dtype=torch.float64),
}
_SEVERAL = (
    "A message is of two ranks alone, and a backward of one message: it needs the rank and the tag of its own forward. "
    "ctx has them, and no global variable does when several messages were sent or received."
)
_AS_IT_LIES = "MPI sends memory as it lies: x.contiguous() first, of the tensor and of its gradient."
_BACK = "Backward returns what the other rank's backward sent: the gradient of its loss by what it received."


def check(answer: Answer, comm: "TracedComm") -> None:
    """On real ranks, every one of which must call this."""
    for ranks in (comm, turned(comm)):  # where a rank is alone, it hands on nothing, and meets the others all the same
        for name in ("a matrix", "a float32 vector", "a transposed matrix, which is not contiguous"):
            on_real(answer, ranks, _chain(name), _judged(_BACK))
        on_real(answer, ranks, _there_and_back(), _judged(_SEVERAL))


def check_virtually(answer: Answer, comm: HasStatusPage) -> None:
    """On virtual ranks; one process calls this."""
    for name in INPUTS:
        for size in (2, 3, 4):
            why = _why_of(name) or (_SEVERAL if size > 2 else "")  # of two ranks none both sends and receives
            stumbled = (f"gradients as of one process, where {size} ranks hand on {name}", why) if why else None
            on_virtual(answer, comm, size, _chain(name), _judged(why or _BACK), stumbled)
    stumbled = ("gradients as of one process, where ranks send and receive twice", _SEVERAL)
    for size in (2, 3):
        on_virtual(answer, comm, size, _there_and_back(), _judged(_SEVERAL), stumbled)
        _judge_tags(on_virtual(answer, comm, size, _two_tags(), _judged(_SEVERAL), stumbled))
    for strange in (_of_another(0, 6), _of_another(2, 5), _gradient_of_another):
        _waits(answer, comm, strange)


def _why_of(name: str) -> str:
    """What an answer has not thought of that is right for a matrix, and not for this."""
    if "contiguous" in name:
        return _AS_IT_LIES
    if "number" in name or "no elements" in name:
        return "Any shape may come: a number has the shape (), and a tensor may have no elements."
    return ""


def _weight(rank: int, like: torch.Tensor) -> torch.Tensor:
    return torch.full_like(like, 0.5 + rank / 4, memory_format=torch.contiguous_format).requires_grad_()


def _layer(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return torch.tanh(x * weight) + x


def _chain_alone(name: str, size: int) -> tuple[list[torch.Tensor], list[torch.Tensor], torch.Tensor]:
    """One process: what each rank hands on, the weights with their gradients, and the input with its own."""
    x = INPUTS[name]().requires_grad_()
    weights = [_weight(rank, x) for rank in range(size)]
    h, handed = x, []
    for weight in weights:
        h = _layer(h, weight)
        handed.append(h.detach())
    h.sum().backward()
    return handed, weights, x


def _chain(name: str) -> Program:
    """Rank 0 -> rank 1 -> ... -> the last, whose loss is a sum: its gradient is one value in memory, expanded."""

    def chain(own: ModuleType, comm: Any) -> list[Gradient]:
        rank, last = comm.rank, comm.size - 1
        handed, weights, x = _chain_alone(name, comm.size)
        weight, given = _weight(rank, x), INPUTS[name]().requires_grad_()
        h = given if rank == 0 else _received(own, comm, rank - 1, handed[rank - 1])
        out = _layer(h, weight)
        if rank == 0 and "contiguous" in name:
            out = out.T.contiguous().T
        if rank == last:
            _backward(own, out.sum())
        else:
            _backward(own, _sent(own, comm, out, rank + 1))
        first = [("the gradient of rank 0's input", given, x)] if rank == 0 else []
        return _gradients([(f"the gradient of rank {rank}'s weight", weight, weights[rank]), *first])

    return _as_one_call(chain)


def _there_and_back() -> Program:
    """Rank 0 -> rank 1 -> ... -> rank 0, where the loss is, and the delegate of what was sent is added to it."""

    def there_and_back(own: ModuleType, comm: Any) -> list[Gradient]:
        rank, size = comm.rank, comm.size
        if size == 1:
            return []
        x = _matrix().requires_grad_()
        weights = [_weight(r, x) for r in range(size)]
        (functools.reduce(_layer, weights, x) ** 2).sum().backward()
        weight, given = _weight(rank, x), _matrix().requires_grad_()
        if rank == 0:
            delegate = own.send(_layer(given, weight), comm, 1)
            back = own.recv(comm, size - 1)
            _backward(own, (back**2).sum() + delegate)
        else:
            out = _layer(own.recv(comm, rank - 1), weight)
            _backward(own, own.send(out, comm, (rank + 1) % size))
        return _gradients([(f"the gradient of rank {rank}'s weight", weight, weights[rank])])

    return _as_one_call(there_and_back)


def _two_tags() -> Program:
    """Rank 0 sends two tensors of one shape to rank 1, with tags 5 and 6. They are leaves: their .grad is looked at."""

    def two_tags(own: ModuleType, comm: Any) -> list[Gradient]:
        a, b = _matrix().requires_grad_(), (_matrix() + 1).requires_grad_()
        ((a**3).sum() + (2 * b**2).sum()).backward()
        if comm.rank == 0:
            mine = [x.detach().clone().requires_grad_() for x in (a, b)]
            _backward(own, _sent(own, comm, mine[0], 1, 5) + _sent(own, comm, mine[1], 1, 6))
            return _gradients([("the gradient of the first", mine[0], a), ("that of the second", mine[1], b)])
        if comm.rank == 1:
            first, second = _received(own, comm, 0, a, 5), _received(own, comm, 0, b, 6)
            if difference := first_difference(first.detach(), a, "what was received first"):
                raise Wrong(*difference, "The second was written into the memory of the first: each needs its own.")
            _backward(own, (first**3).sum() + (2 * second**2).sum())
        return []

    return _as_one_call(two_tags)


def _as_one_call(calls: Callable[[ModuleType, Any], Any]) -> Program:
    """Ranks meet after each call of a check, which ranks that wait for each other's next call would never do."""

    def program(own: Answer, comm: Any) -> Any:
        return own.run(lambda comm: calls(own.module, comm), "send, recv and backward", comm)

    return program


def _backward(own: ModuleType, loss: torch.Tensor) -> None:
    try:
        loss.backward()
    except (RuntimeError, TypeError) as error:
        if any(frame.filename == own.__file__ for frame in traceback.extract_tb(error.__traceback__)):
            raise
        why = "Return a tensor, or None, for each argument of forward but ctx: x or anchor, comm, rank, tag."
        raise Wrong("four values from backward, that of x a gradient of x's shape", one_line(error), why) from None


def _received(own: ModuleType, comm: Any, rank: int, want: torch.Tensor, tag: int = 0) -> torch.Tensor:
    """What recv returns; Wrong where that is not `want`, with a backward."""
    got = own.recv(comm, rank, tag)
    what = f"what rank {comm.rank} receives from rank {rank}"
    if not issubclass(type(got), torch.Tensor):
        raise Wrong(f"{what} to be a tensor", short(got), "Recv.forward returns the tensor that it received.")
    if got.shape != want.shape or got.dtype != want.dtype:
        why = "The receiver has to learn dtype and shape: comm.send pickles an array with both."
        asked = f"{what} to be {want.dtype} of shape {tuple(want.shape)}"
        raise Wrong(asked, f"{got.dtype} of shape {tuple(got.shape)}", why)
    if difference := first_difference(got.detach(), want, what):
        raise Wrong(*difference, f"What arrives is x, as it was sent. {_AS_IT_LIES}")
    if got.grad_fn is None:
        why = "Its gradient would never be sent back. Leave recv as it was: Recv.apply, and an anchor with a gradient."
        raise Wrong(f"{what} to be the result of an operation with a backward", "a tensor without one", why)
    return got


def _sent(own: ModuleType, comm: Any, x: torch.Tensor, rank: int, tag: int = 0) -> torch.Tensor:
    """The delegate that send returns; Wrong where it is none, or x is another one than before."""
    before = x.detach().clone()
    got = own.send(x, comm, rank, tag)
    what = f"what send returns on rank {comm.rank}"
    if x.shape != before.shape or not torch.equal(x.detach(), before):
        why = "Layers before may need x in their backward: it stays as it is."
        raise Wrong(f"x to be {short(before)} after send, too", short(x.detach()), why)
    if not issubclass(type(got), torch.Tensor):
        raise Wrong(f"{what} to be a tensor, the delegate", short(got), "Send.forward returns the number 0, a tensor.")
    if tuple(got.shape) or float(got.detach()) != 0 or got.dtype != x.dtype:
        why = "The delegate stands for what x has become elsewhere, and adds nothing to a loss: x.new_zeros(())."
        raise Wrong(f"{what} to be the number 0, {x.dtype}, of shape ()", f"{short(got.detach())}, {got.dtype}", why)
    if got.grad_fn is None:
        why = "Its backward would never reach x. Leave send as it was: Send.apply makes the graph, if x goes in itself."
        raise Wrong(f"{what} to be part of x's graph", "a tensor that no operation made", why)
    return got


def _gradients(results: Sequence[tuple[str, torch.Tensor, torch.Tensor]]) -> list[Gradient]:
    def numbers(x: torch.Tensor) -> np.ndarray | None:
        return None if x.grad is None else x.grad.numpy().copy()

    return [(what, numbers(x), np.asarray(numbers(want))) for what, x, want in results]


def _judged(otherwise: str) -> Judge:
    return functools.partial(_judge, otherwise)


def _judge(otherwise: str, results: Sequence[list[Gradient]]) -> Finding | None:
    """otherwise: why a gradient may be wrong, if nothing about its values tells more."""
    for rank, gradients in enumerate(results):
        for what, got, want in gradients:
            if got is None:
                why = "No gradient came: Send.backward returns that of x in the first place."
                return Finding(rank, what, "None", why)
            tolerance = 1e-6 if want.dtype == np.float32 else 1e-12
            if difference := first_difference(got, want, what, tolerance, tolerance):
                return Finding(rank, *difference, _why_gradient(got, want) or otherwise)
    return None


def _why_gradient(got: np.ndarray, want: np.ndarray) -> str:
    if not got.any():
        return "All zeros: backward has to receive the gradient that the other rank's backward sends."
    if np.allclose(got, 2 * want):
        return "Twice the gradient: it was added to .grad by hand, and autograd adds what backward returns."
    if np.allclose(got, -want):
        return "The sign is wrong: what was received is the gradient of x, as it is."
    if np.allclose(got, want, 1e-5):
        return "Rounded on the way: the gradient has x's dtype, float64."
    factors = got / want
    if np.allclose(factors, factors.flat[0]):
        return f"Right but for a factor of {factors.flat[0]:.4g}: what was received is the gradient of x, as it is."
    return ""


def _judge_tags(ran: Ran) -> None:
    """Raise what tells that gradients travel under other tags than what they are the gradients of."""
    back = {event.name for event in ran.run.events if event.lane == "rank 1 -> rank 0"}
    if back != {"tag 5", "tag 6"}:
        asked = "gradients of what was sent with tags 5 and 6 to be sent back with these tags"
        why = "Messages that travel at once are told apart by their tags alone: keep the tag in ctx, beside the rank."
        raise ran.wrong(1, asked, " and ".join(sorted(back)) or "no messages", why)


def _waits(answer: Answer, comm: HasStatusPage, strange: Callable[[ModuleType, Any], None]) -> None:
    """Three virtual ranks, of which one waits for what no rank sends, and raises Wrong if it takes something else."""
    try:
        on_each(answer, comm, _as_one_call(strange), 3)
    except OnVirtualRank as error:
        if not isinstance(error.error, ClusterError):
            raise


_STRANGE = "comm.recv takes whatever comes first, unless it is told source and tag."


def _of_another(source: int, tag: int) -> Callable[[ModuleType, Any], None]:
    """Rank 0 sends with tag 5, and rank 1 waits for another message."""

    def of_another(own: ModuleType, comm: Any) -> None:
        if comm.rank == 0:
            own.send(_matrix().requires_grad_(), comm, 1, 5)
        if comm.rank == 1:
            own.recv(comm, source, tag)
            asked = f"recv from rank {source} with tag {tag} to wait for such a message"
            raise Wrong(asked, "one of rank 0 with tag 5", _STRANGE)

    return of_another


def _gradient_of_another(own: ModuleType, comm: Any) -> None:
    """Rank 0 waits for a gradient, and rank 2 sends it something else."""
    if comm.rank == 0:
        own.send(_matrix().requires_grad_(), comm, 1, 5).backward()
        raise Wrong("backward to wait for a gradient, which rank 1 has not sent", "a message of rank 2", _STRANGE)
    if comm.rank == 1:
        own.recv(comm, 0, 5)
    if comm.rank == 2:
        own.send(_matrix().requires_grad_(), comm, 0, 5)
