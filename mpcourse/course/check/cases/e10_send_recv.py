"""What e10_send_recv is asked: values forward, gradients back, on chains of ranks, with the tags that were given."""

import functools
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from mpcourse.course.check.answer import Answer
from mpcourse.course.check.cases.on_models import Finding, Judge, Program, on_real, on_virtual, one_line
from mpcourse.course.check.facts.messages import THROUGH_WORLD, Sent, counting, is_virtual, other_than_world
from mpcourse.course.check.facts.ranks import turned
from mpcourse.course.check.facts.rounding import UNITS, shorter_dtype
from mpcourse.course.check.rules import Rule, Test, always, demand, judge
from mpcourse.course.check.status_page import HasStatusPage
from mpcourse.course.check.virtual_run import OnVirtualRank, Ran, on_each
from mpcourse.course.check.wrong import first_difference, short
from mpcourse.virtual.ranks import ClusterError

if TYPE_CHECKING:
    from mpcourse.course.check.traced_mpi import TracedComm

# -- inputs --


def _matrix() -> torch.Tensor:
    return torch.tensor([[0.5, -1.0, 2.0], [1.5, 0.25, -0.75]], dtype=torch.float64)


ZEROS = "a matrix, whose gradient is zero"
TRANSPOSED = "a transposed matrix, which is not contiguous"
INPUTS: dict[str, Callable[[], torch.Tensor]] = {
    "a matrix": _matrix,
    ZEROS: _matrix,
    "a float32 vector": lambda: torch.tensor([0.5, -2.0, 1.25]),
    "a number, of shape ()": lambda: torch.tensor(1.5, dtype=torch.float64),
    TRANSPOSED: lambda: _matrix().T,
    "no elements": lambda: torch.zeros(0, 3, dtype=torch.float64),
    "a vector with infinity": lambda: torch.tensor([1.0, torch.inf], dtype=torch.float64),
}
SEVERAL = (
    "A message is of two ranks alone, and a backward of one message: it needs the rank and the tag of its own forward. "
    "ctx has them, and no global variable does when several messages were sent or received."
)
IN_ORDER = (
    "Both ranks' backwards meet in one order: autograd calls that of the last operation first, "
    "and a leaf's hook sooner."
)
AS_IT_LIES = "MPI sends memory as it lies: x.contiguous() first, of the tensor and of its gradient."
ANY_SHAPE = "Any shape may come: a number has the shape (), and a tensor may have no elements."
OTHER_SHAPES = "Each message may have another shape and another dtype: the receiver has to learn both each time."
BACK = "Backward returns what the other rank's backward sent: the gradient of its loss by what it received."
WHYS_OF = {  # what an answer has not thought of that is right for a matrix, and not for this
    ZEROS: "A gradient of zeros is a gradient, too: the rank that has sent x waits for it.",
    "a number, of shape ()": ANY_SHAPE,
    "no elements": ANY_SHAPE,
    TRANSPOSED: AS_IT_LIES,
}


def check(answer: Answer, comm: "TracedComm") -> None:
    """On real ranks, every one of which must call this."""
    for ranks in (comm, turned(comm)):  # where a rank is alone, it hands on nothing, and meets the others all the same
        for name in ("a matrix", "a float32 vector", TRANSPOSED):
            on_real(answer, ranks, _chain(name), _judged(BACK))
        on_real(answer, ranks, _as_one_call(_there_and_back), _judged(SEVERAL))


def check_virtually(answer: Answer, comm: HasStatusPage) -> None:
    """On virtual ranks; one process calls this."""
    for name in INPUTS:
        for size in (2, 3, 4):
            why = WHYS_OF.get(name) or (SEVERAL if size > 2 else "")  # of two ranks none both sends and receives
            stumbled = (f"gradients as of one process, where {size} ranks hand on {name}", why) if why else None
            on_virtual(answer, comm, size, _chain(name), _judged(why or BACK), stumbled)
    stumbled = ("gradients as of one process, where ranks send and receive twice", SEVERAL)
    for size in (2, 3):
        on_virtual(answer, comm, size, _as_one_call(_there_and_back), _judged(SEVERAL), stumbled)
        in_order = (stumbled[0], f"{SEVERAL} {IN_ORDER}")
        ran = on_virtual(answer, comm, size, _as_one_call(_two_tags), _judged(SEVERAL), in_order)
        if finding := judge(TAGS, Tags(ran)):
            raise ran.wrong(*finding)
        stumbled_at_shapes = ("gradients as of one process, where tensors of two shapes are sent", OTHER_SHAPES)
        on_virtual(answer, comm, size, _as_one_call(_two_shapes), _judged(OTHER_SHAPES), stumbled_at_shapes)
    for strange in (_of_another(0, 6), _of_another(2, 5), _gradient_of_another):
        _waits(answer, comm, strange)


# -- observation --


class Gradient(NamedTuple):
    """A gradient, as it is and as it has to be."""

    what: str
    got: np.ndarray | None
    want: np.ndarray


class Seen(NamedTuple):
    """What one rank did. sent: known of virtual ranks."""

    gradients: list[Gradient]
    sent: Sent | None


@dataclass(frozen=True)
class Facts:
    """A gradient on `rank`; why: why it may be wrong, if nothing about its values says more."""

    rank: int
    why: str
    sent: Sent | None
    what: str = ""
    got: np.ndarray | None = None
    want: np.ndarray | None = None

    tolerance = property(lambda self: 1e-6 if self.want.dtype == np.float32 else 1e-12)
    rounded = property(lambda self: shorter_dtype(self.got, self.want, UNITS.get(str(self.want.dtype), 2.0**-53)))
    dtype = property(lambda self: self.want.dtype)

    @functools.cached_property
    def difference(self) -> tuple[str, str] | None:
        return first_difference(self.got, self.want, self.what, self.tolerance, self.tolerance)

    def is_times(self, factor: float) -> bool:
        """Whether the gradient is the right one times a factor."""
        assert self.got is not None and self.want is not None
        return np.allclose(self.got, factor * self.want, self.tolerance, self.tolerance)

    @property
    def factor(self) -> float | None:
        """By what the right gradient is multiplied; None where it is not."""
        assert self.got is not None and self.want is not None
        at = np.flatnonzero(self.want)
        factor = float(self.got.flat[at[0]] / self.want.flat[at[0]]) if len(at) else 0.0
        return factor if factor and self.is_times(factor) else None


def _weight(rank: int, like: torch.Tensor) -> torch.Tensor:
    return torch.full_like(like, 0.5 + rank / 4, memory_format=torch.contiguous_format).requires_grad_()


def _layer(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return torch.tanh(x * weight) + x


def _loss(name: str, out: torch.Tensor) -> torch.Tensor:
    return (0 * out if name == ZEROS else out).sum()


def _chain_alone(name: str, size: int) -> tuple[list[torch.Tensor], list[torch.Tensor], torch.Tensor]:
    """One process: what each rank hands on, the weights with their gradients, and the input with its own."""
    x = INPUTS[name]().requires_grad_()
    weights = [_weight(rank, x) for rank in range(size)]
    h, handed = x, []
    for weight in weights:
        h = _layer(h, weight)
        handed.append(h.detach())
    _loss(name, h).backward()
    return handed, weights, x


def _chain(name: str) -> Program:
    """Rank 0 -> rank 1 -> ... -> the last, whose loss is a sum: its gradient is one value in memory, expanded."""

    def chain(own: ModuleType, comm: Any) -> list[Gradient]:
        rank, last = comm.rank, comm.size - 1
        handed, weights, x = _chain_alone(name, comm.size)
        weight, given = _weight(rank, x), INPUTS[name]().requires_grad_()
        h = given if rank == 0 else _received(own, comm, rank - 1, handed[rank - 1])
        out = _layer(h, weight)
        if rank == 0 and name == TRANSPOSED:
            out = out.T.contiguous().T
        _backward(own, _loss(name, out) if rank == last else _sent(own, comm, out, rank + 1))
        first = [("the gradient of rank 0's input", given, x)] if rank == 0 else []
        return _gradients([(f"the gradient of rank {rank}'s weight", weight, weights[rank]), *first])

    return _as_one_call(chain)


def _there_and_back(own: ModuleType, comm: Any) -> list[Gradient]:
    """Rank 0 -> rank 1 -> ... -> rank 0, where the loss is, and the delegate of what was sent is added to it."""
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


def _two_tags(own: ModuleType, comm: Any) -> list[Gradient]:
    """Rank 0 sends two tensors of one shape to rank 1, with tags 5 and 6."""
    return _two_messages(own, comm, _matrix(), _matrix() + 1, (5, 6))


def _two_shapes(own: ModuleType, comm: Any) -> list[Gradient]:
    """Rank 0 sends two tensors of different shapes and dtypes to rank 1, with one tag."""
    return _two_messages(own, comm, _matrix(), torch.tensor([0.5, -2.0, 1.25]), (0, 0))


def _two_messages(
    own: ModuleType, comm: Any, one: torch.Tensor, other: torch.Tensor, tags: tuple[int, int]
) -> list[Gradient]:
    """They are leaves: their .grad is looked at. With one tag, the second is sent after the first one's backward."""
    a, b = one.requires_grad_(), other.requires_grad_()
    ((a**3).sum() + (2 * b**2).sum()).backward()
    mine = [x.detach().clone().requires_grad_() for x in (a, b)]
    together = tags[0] != tags[1]
    if comm.rank == 0:
        first = _sent(own, comm, mine[0], 1, tags[0])
        if not together:
            _backward(own, first)
        second = _sent(own, comm, mine[1], 1, tags[1])
        _backward(own, first + second if together else second)
        return _gradients([("the gradient of the first", mine[0], a), ("that of the second", mine[1], b)])
    if comm.rank == 1:
        first = _received(own, comm, 0, a, tags[0])
        if not together:
            _backward(own, (first**3).sum())
        second = _received(own, comm, 0, b, tags[1])
        demand(STOPS, Stopped("first", first.detach(), a, what="what was received first"))
        loss = (2 * second**2).sum()
        _backward(own, (first**3).sum() + loss if together else loss)
    return []


def _as_one_call(calls: Callable[[ModuleType, Any], Any]) -> Program:
    """Ranks meet after each call of a check, which ranks that wait for each other's next call would never do."""

    def program(own: Answer, comm: Any) -> Seen:
        ranks = other_than_world(comm)
        sent = counting(ranks) if is_virtual(ranks) else lambda: None
        gradients = own.run(lambda comm: calls(own.module, comm), "send, recv and backward", ranks)
        return Seen(gradients or [], sent())

    return program


@dataclass(frozen=True)
class Stopped:
    """What a rank cannot go on with. kind: of what; "first", "received", "x", "delegate", "backward" or "strange"."""

    kind: str
    got: Any = None
    want: Any = None
    what: str = ""
    asked: str = ""
    rank = None

    is_tensor = property(lambda self: issubclass(type(self.got), torch.Tensor))
    shown = property(lambda self: short(self.got.detach() if self.is_tensor else self.got))
    dtype = property(lambda self: self.got.dtype)
    shape = property(lambda self: tuple(self.got.shape))
    right = property(lambda self: short(self.want))
    right_dtype = property(lambda self: self.want.dtype)
    right_shape = property(lambda self: tuple(self.want.shape))
    is_zero = property(lambda self: self.shape == () and float(self.got.detach()) == 0)
    rounded = property(lambda self: shorter_dtype(self.got.detach().numpy(), self.want.numpy()))

    @property
    def has_backward(self) -> bool:
        """Whether it comes from an operation, or is a leaf with a hook that may send its gradient."""
        got = self.got
        return got.grad_fn is not None or bool(got._backward_hooks or got._post_accumulate_grad_hooks)

    @functools.cached_property
    def difference(self) -> tuple[str, str] | None:
        return first_difference(self.got.detach(), self.want.detach(), self.what)


def _backward(own: ModuleType, loss: torch.Tensor) -> None:
    try:
        loss.backward()
    except (RuntimeError, TypeError) as error:
        if any(frame.filename == own.__file__ for frame in traceback.extract_tb(error.__traceback__)):
            raise
        demand(STOPS, Stopped("backward", what=one_line(error)))


def _received(own: ModuleType, comm: Any, rank: int, want: torch.Tensor, tag: int = 0) -> torch.Tensor:
    """Return what recv returns: a tensor like `want`, whose gradient will be sent back."""
    got = own.recv(comm, rank, tag)
    demand(STOPS, Stopped("received", got, want, f"what rank {comm.rank} receives from rank {rank}"))
    return got


def _sent(own: ModuleType, comm: Any, x: torch.Tensor, rank: int, tag: int = 0) -> torch.Tensor:
    """Return the delegate that send returns; x stays as it was."""
    before = x.detach().clone()
    got = own.send(x, comm, rank, tag)
    demand(STOPS, Stopped("x", x, before))
    demand(STOPS, Stopped("delegate", got, x, f"what send returns on rank {comm.rank}"))
    return got


def _gradients(results: Sequence[tuple[str, torch.Tensor, torch.Tensor]]) -> list[Gradient]:
    def numbers(x: torch.Tensor) -> np.ndarray | None:
        return None if x.grad is None else x.grad.numpy().copy()

    return [Gradient(what, numbers(x), np.asarray(numbers(want))) for what, x, want in results]


@dataclass(frozen=True)
class Tags:
    """With which tags gradients went back."""

    ran: Ran
    rank = 1

    back = property(lambda self: {event.name for event in self.ran.run.events if event.lane == "rank 1 -> rank 0"})
    shown = property(lambda self: " and ".join(sorted(self.back)) or "no messages")


def _judged(why: str) -> Judge:
    return functools.partial(_judge, why)


def _judge(why: str, results: Sequence[Seen]) -> Finding | None:
    everyone = [
        Facts(rank, why, seen.sent, *gradient) for rank, seen in enumerate(results) for gradient in seen.gradients
    ]
    return judge([THROUGH_WORLD], *everyone) or judge(GRADIENTS, *everyone)


def _waits(answer: Answer, comm: HasStatusPage, strange: Callable[[ModuleType, Any], None]) -> None:
    """Let three virtual ranks run, of which one waits for what no rank sends, and stops if it takes something else."""
    try:
        on_each(answer, comm, _as_one_call(strange), 3)
    except OnVirtualRank as error:
        if not isinstance(error.error, ClusterError):
            raise


def _of_another(source: int, tag: int) -> Callable[[ModuleType, Any], None]:
    """Rank 0 sends with tag 5, and rank 1 waits for another message."""

    def of_another(own: ModuleType, comm: Any) -> None:
        if comm.rank == 0:
            own.send(_matrix().requires_grad_(), comm, 1, 5)
        if comm.rank == 1:
            own.recv(comm, source, tag)
            asked = f"recv from rank {source} with tag {tag} to wait for such a message"
            demand(STOPS, Stopped("strange", what="one of rank 0 with tag 5", asked=asked))

    return of_another


def _gradient_of_another(own: ModuleType, comm: Any) -> None:
    """Rank 0 waits for a gradient, and rank 2 sends it something else."""
    if comm.rank == 0:
        own.send(_matrix().requires_grad_(), comm, 1, 5).backward()
        asked = "backward to wait for a gradient, which rank 1 has not sent"
        demand(STOPS, Stopped("strange", what="a message of rank 2", asked=asked))
    if comm.rank == 1:
        own.recv(comm, 0, 5)
    if comm.rank == 2:
        own.send(_matrix().requires_grad_(), comm, 0, 5)


# -- what is said --

WHYS_RECEIVED = [
    Rule("rounded", lambda f: bool(f.rounded), "Rounded on the way: what arrives has x's values, in x's dtype."),
    Rule("other values", always, f"What arrives is x, as it was sent. {AS_IT_LIES}"),
]
STOPS = [
    Test(
        "refused by autograd",
        lambda f: f.kind == "backward",
        "four values from backward, that of x a gradient of x's shape",
        "{what}",
        "Return a tensor, or None, for each argument of forward but ctx: x or anchor, comm, rank, tag.",
    ),
    Test(
        "another message",
        lambda f: f.kind == "strange",
        "{asked}",
        "{what}",
        "comm.recv takes whatever comes first, unless it is told source and tag.",
    ),
    Test(
        "first overwritten",
        lambda f: f.kind == "first" and f.difference,
        "{difference[0]}",
        "{difference[1]}",
        "The second was written into the memory of the first: each needs its own.",
    ),
    Test(
        "no tensor received",
        lambda f: f.kind == "received" and not f.is_tensor,
        "{what} to be a tensor",
        "{shown}",
        "Recv.forward returns the tensor that it received.",
    ),
    Test(
        "another shape or dtype received",
        lambda f: f.kind == "received" and (f.shape, f.dtype) != (f.right_shape, f.right_dtype),
        "{what} to be {right_dtype} of shape {right_shape}",
        "{dtype} of shape {shape}",
        "The receiver has to learn dtype and shape: comm.send pickles an array with both.",
    ),
    Test(
        "other values received",
        lambda f: f.kind == "received" and f.difference,
        "{difference[0]}",
        "{difference[1]}",
        WHYS_RECEIVED,
    ),
    Test(
        "no backward of recv",
        lambda f: f.kind == "received" and not f.has_backward,
        "{what} to be the result of an operation with a backward",
        "a tensor without one",
        "Its gradient would never be sent back. Leave recv as it was: Recv.apply, and an anchor with a gradient.",
    ),
    Test(
        "x changed",
        lambda f: f.kind == "x" and (f.shape != f.right_shape or not torch.equal(f.got.detach(), f.want)),
        "x to be {right} after send, too",
        "{shown}",
        "Layers before may need x in their backward: it stays as it is.",
    ),
    Test(
        "no delegate",
        lambda f: f.kind == "delegate" and not f.is_tensor,
        "{what} to be a tensor, the delegate",
        "{shown}",
        "Send.forward returns the number 0, a tensor.",
    ),
    Test(
        "delegate not zero",
        lambda f: f.kind == "delegate" and not (f.is_zero and f.dtype == f.right_dtype),
        "{what} to be the number 0, {right_dtype}, of shape ()",
        "{shown}, {dtype}",
        "The delegate stands for what x has become elsewhere, and adds nothing to a loss: x.new_zeros(()).",
    ),
    Test(
        "no backward of send",
        lambda f: f.kind == "delegate" and f.got.grad_fn is None,
        "{what} to be part of x's graph",
        "a tensor that no operation made",
        "Its backward would never reach x. Leave send as it was: Send.apply makes the graph, if x goes in itself.",
    ),
]
WHYS_GRADIENT = [
    Rule(
        "zeros",
        lambda f: not f.got.any(),
        "All zeros: backward has to receive the gradient that the other rank's backward sends.",
    ),
    Rule("rounded", lambda f: bool(f.rounded), "Rounded on the way: the gradient has x's dtype, {dtype}."),
    Rule(
        "twice",
        lambda f: f.is_times(2),
        "Twice the gradient: it was added to .grad by hand, and autograd adds what backward returns.",
    ),
    Rule("sign", lambda f: f.is_times(-1), "The sign is wrong: what was received is the gradient of x, as it is."),
    Rule(
        "factor",
        lambda f: f.factor,
        "Right but for a factor of {factor:.4g}: what was received is the gradient of x, as it is.",
    ),
    Rule("what the case is about", always, "{why}"),
]
GRADIENTS = [
    Test(
        "None",
        lambda f: f.got is None,
        "{what}",
        "None",
        "No gradient came: Send.backward returns that of x in the first place.",
    ),
    Test("another gradient", lambda f: f.difference, "{difference[0]}", "{difference[1]}", WHYS_GRADIENT),
]
TAGS = [
    Test(
        "other tags",
        lambda f: f.back != {"tag 5", "tag 6"},
        "gradients of what was sent with tags 5 and 6 to be sent back with these tags",
        "{shown}",
        "Messages that travel at once are told apart by their tags alone: keep the tag in ctx, beside the rank.",
    )
]
