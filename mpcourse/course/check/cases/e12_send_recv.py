"""What e12_send_recv is asked: values forward, gradients back, on chains of ranks, with the tags that were given."""

import functools
import itertools
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from mpcourse.course.check.answer import Answer
from mpcourse.course.check.cases.on_models import Finding, Program, on_real, on_virtual, one_line
from mpcourse.course.check.facts.gradients import copies_of
from mpcourse.course.check.facts.messages import THROUGH_WORLD, Sent, counting, is_virtual, other_than_world
from mpcourse.course.check.facts.ranks import turned
from mpcourse.course.check.facts.rounding import UNITS, shorter_dtype
from mpcourse.course.check.facts.tensors import Result, equals
from mpcourse.course.check.rules import Test, always, demand, judge, rules, tests
from mpcourse.course.check.status_page import HasStatusPage
from mpcourse.course.check.virtual_run import OnVirtualRank, Ran, on_each
from mpcourse.course.check.wrong import first_difference, short
from mpcourse.virtual.ranks import ClusterError

if TYPE_CHECKING:
    from mpcourse.course.check.traced_mpi import TracedComm

Gradients = list[tuple[str, torch.Tensor, torch.Tensor]]  # its name, the tensor, and one with the right .grad
Calls = Callable[[ModuleType, Any], Gradients | None]  # of the learner's file and a communicator

# -- inputs --


def _matrix() -> torch.Tensor:
    return torch.tensor([[0.5, -1.0, 2.0], [1.5, 0.25, -0.75]], dtype=torch.float64)


def _vector() -> torch.Tensor:
    return torch.tensor([0.5, -2.0, 1.25])


SEVERAL = (
    "A message concerns two ranks alone, and a backward one message: it needs the rank and the tag of its own forward. "
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
ROOM = (
    "A message may be long. irecv has room for 32 KiB of a pickled object, unless it is given a larger buffer, "
    "irecv(bytearray(n)); recv asks how long the message is."
)
EXPANDED = (
    "The gradient of a sum is one number in memory, expanded to a shape: it is not contiguous. An upper-case Send "
    "takes gradient.contiguous()."
)
TURNED = (
    "This gradient lies transposed in memory, and MPI sends memory as it lies. clone() keeps that order: "
    "gradient.contiguous() does not."
)
LONG = "a matrix of 35 KiB"
ZEROS = "a matrix, whose gradient is zero"
TRANSPOSED = "a transposed matrix, which is not contiguous"
INPUTS: dict[str, tuple[Callable[[], torch.Tensor], str]] = {  # and why one is not right where a matrix is
    "a matrix": (_matrix, ""),
    ZEROS: (_matrix, "A gradient of zeros is a gradient, too: the rank that has sent x waits for it."),
    "a float32 vector": (_vector, ""),
    "a number, of shape ()": (lambda: torch.tensor(1.5, dtype=torch.float64), ANY_SHAPE),
    TRANSPOSED: (lambda: _matrix().T, AS_IT_LIES),
    "no elements": (lambda: torch.zeros(0, 3, dtype=torch.float64), ANY_SHAPE),
    "a vector with infinity": (lambda: torch.tensor([1.0, torch.inf], dtype=torch.float64), ""),
    LONG: (lambda: torch.linspace(-1, 1, 4500, dtype=torch.float64).reshape(90, 50), ROOM),
}
LOSSES: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], str]] = {  # of what is received, and why one is special
    "the sum of what was received": (torch.sum, EXPANDED),
    "computed from what was received, transposed": (lambda x: (x.T * _matrix().T.contiguous()).sum(), TURNED),
}


def check(answer: Answer, comm: "TracedComm") -> None:
    """Check the answer on real ranks; every rank must call this."""
    for ranks in (comm, turned(comm)):  # where a rank is alone, it hands on nothing, and meets the others all the same
        for name in ("a matrix", "a float32 vector", TRANSPOSED):
            on_real(answer, ranks, _program(_chain(name), BACK), _judge)
        on_real(answer, ranks, _program(_there_and_back, SEVERAL), _judge)


def check_virtually(answer: Answer, comm: HasStatusPage) -> None:
    """Check the answer on virtual ranks; one process calls this."""

    def gradients(size: int, calls: Calls, where: str, why: str, more: str = "") -> Ran:
        stumbled = (f"gradients as of one process, where {where}", why + more) if why else None
        return on_virtual(answer, comm, size, _program(calls, why or BACK), _judge, stumbled)

    for name, (_, about) in INPUTS.items():
        for size in (2,) if name == LONG else (2, 3, 4):
            why = about or (SEVERAL if size > 2 else "")  # of two ranks none both sends and receives
            gradients(size, _chain(name), f"{size} ranks hand on {name}", why)
    for where, (loss, why) in LOSSES.items():
        gradients(2, _with_loss(loss), f"the loss is {where}", why)
    for size in (2, 3):
        twice = "ranks send and receive twice"
        gradients(size, _there_and_back, twice, SEVERAL)
        ran = gradients(size, _two_messages(lambda: _matrix() + 1, (5, 6)), twice, SEVERAL, f" {IN_ORDER}")
        ran.demand(judge(TAGS, Tags(ran)))
        gradients(size, _two_messages(_vector, (0, 0)), "tensors of two shapes are sent", OTHER_SHAPES)
    for stray in (Stray(1, 0, 6, 0), Stray(1, 2, 5, 0), Stray(0, 1, 5, 2, of_backward=True)):
        try:
            ran = on_each(answer, comm, _program(stray.calls), 3)
        except OnVirtualRank as error:
            if not isinstance(error.error, ClusterError):
                raise
        else:
            ran.demand(judge([TAKEN], stray))


# -- observation --


def _program(calls: Calls, why: str = "") -> Program:
    """Let calls of a check be one: ranks meet after each, which ranks that wait for each other would never do."""

    def program(own: Answer, comm: Any) -> list[Facts]:
        ranks = other_than_world(comm)
        sent = counting(ranks)
        made = own.run(lambda comm: calls(own.module, comm), "send, recv and backward", ranks) or []
        return [Facts(comm.rank, why, sent(), what, *copies_of([x, want])) for what, x, want in made]

    return program


@dataclass(frozen=True)
class Facts:
    """A gradient on `rank`, and the right one. why: why it may be wrong, if nothing about its values says more."""

    rank: int
    why: str
    sent: Sent | None
    what: str
    got: Any  # None: there is none
    want: Any

    missing = property(lambda self: self.got is None)
    tolerance = property(lambda self: 1e-6 if self.want.dtype == np.float32 else 1e-12)
    dtype = property(lambda self: self.want.dtype)
    difference = functools.cached_property(
        lambda self: first_difference(self.got, self.want, self.what, self.tolerance, self.tolerance)
    )
    zeros = property(lambda self: not self.got.any())
    rounded = property(lambda self: shorter_dtype(self.got, self.want, UNITS.get(str(self.dtype), 2.0**-53)))
    twice = property(lambda self: self.is_times(2))
    other_sign = property(lambda self: self.is_times(-1))

    def is_times(self, factor: float) -> bool:
        """Return whether the gradient is the right one times a factor."""
        return np.allclose(np.asarray(self.got), factor * self.want, self.tolerance, self.tolerance)

    @property
    def factor(self) -> float | None:
        """By what the right gradient is multiplied; None where it is not."""
        pairs = zip(np.ravel(self.got), self.want.flat, strict=True)
        factor = next((float(got / want) for got, want in pairs if want), 0.0)
        return factor if factor and self.is_times(factor) else None


def _weight(rank: int, like: torch.Tensor) -> torch.Tensor:
    return torch.full_like(like, 0.5 + rank / 4, memory_format=torch.contiguous_format).requires_grad_()


def _layer(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return torch.tanh(x * weight) + x


def _alone(
    x: torch.Tensor, size: int, loss: Callable[[torch.Tensor], torch.Tensor]
) -> tuple[list[torch.Tensor], list[torch.Tensor], torch.Tensor]:
    """Compute in one process what each rank hands on, and the weights and the input with their gradients."""
    h, handed, weights = x.requires_grad_(), [], [_weight(rank, x) for rank in range(size)]
    for weight in weights:
        h = _layer(h, weight)
        handed.append(h.detach())
    loss(h).backward()
    return handed, weights, x


def _chain(name: str) -> Calls:
    """Return calls that send from rank 0 to rank 1, ..., to the last.

    Its loss is a sum: the gradient is one value in memory, expanded.
    """

    def loss(out: torch.Tensor) -> torch.Tensor:
        return (0 * out if name == ZEROS else out).sum()

    def chain(own: ModuleType, comm: Any) -> Gradients:
        rank = comm.rank
        handed, weights, x = _alone(INPUTS[name][0](), comm.size, loss)
        weight, given = _weight(rank, x), INPUTS[name][0]().requires_grad_()
        h = given if rank == 0 else _received(own, comm, rank - 1, handed[rank - 1])
        out = _layer(h, weight)
        if rank == 0 and name == TRANSPOSED:
            out = out.T.contiguous().T
        if rank == comm.size - 1:
            _backward(own, loss(out))
        else:
            before = out.detach().clone()
            _backward(own, _sent(own, comm, out, rank + 1))
            demand(KEPT_IN_BACKWARD, Result(out, before, "x, after backward,"))
        first = [("the gradient of rank 0's input", given, x)] if rank == 0 else []
        return [(f"the gradient of rank {rank}'s weight", weight, weights[rank]), *first]

    return chain


def _with_loss(loss: Callable[[torch.Tensor], torch.Tensor]) -> Calls:
    """Return calls that send a matrix from rank 0 to rank 1, whose loss is computed from it directly."""

    def with_loss(own: ModuleType, comm: Any) -> Gradients:
        given, want = _matrix().requires_grad_(), _matrix().requires_grad_()
        loss(want).backward()
        _backward(own, _sent(own, comm, given, 1) if comm.rank == 0 else loss(_received(own, comm, 0, want)))
        return [("the gradient of what was sent", given, want)] if comm.rank == 0 else []

    return with_loss


def _there_and_back(own: ModuleType, comm: Any) -> Gradients:
    """Send from rank 0 to rank 1, ..., to rank 0, where the delegate of what was sent is added to the loss."""
    rank, size = comm.rank, comm.size
    if size == 1:
        return []
    handed, weights, x = _alone(_matrix(), size, lambda out: (out**2).sum())
    weight = _weight(rank, x)
    if rank == 0:
        delegate = _sent(own, comm, _layer(_matrix().requires_grad_(), weight), 1)
        _backward(own, (_received(own, comm, size - 1, handed[-1]) ** 2).sum() + delegate)
    else:
        out = _layer(_received(own, comm, rank - 1, handed[rank - 1]), weight)
        _backward(own, _sent(own, comm, out, (rank + 1) % size))
    return [(f"the gradient of rank {rank}'s weight", weight, weights[rank])]


def _two_messages(other: Callable[[], torch.Tensor], tags: tuple[int, int]) -> Calls:
    """Send a matrix and another tensor from rank 0 to rank 1. They are leaves: their .grad is looked at.

    With one tag, the second is sent after the first one's backward.
    """

    def two_messages(own: ModuleType, comm: Any) -> Gradients:
        if comm.rank > 1:
            return []
        a, b = given = [_matrix().requires_grad_(), other().requires_grad_()]
        ((a**3).sum() + (2 * b**2).sum()).backward()
        mine = [x.detach().clone().requires_grad_() for x in given]

        def message(i: int) -> torch.Tensor:
            if comm.rank == 0:
                return _sent(own, comm, mine[i], 1, tags[i])
            return _received(own, comm, 0, given[i], tags[i])

        first = message(0)
        if tags[0] == tags[1]:
            _backward(own, first if comm.rank == 0 else (first**3).sum())
        second = message(1)
        if comm.rank == 1:
            demand(KEPT, Result(first, a, "what was received first"))
            second, first = (2 * second**2).sum(), (first**3).sum()  # in this order: backward turns it round
        _backward(own, second if tags[0] == tags[1] else first + second)
        names = ("the gradient of the first", "that of the second")
        return [*zip(names, mine, given, strict=True)] if comm.rank == 0 else []

    return two_messages


class Passed(Result):
    """A tensor that send or recv returned.

    Known of send: early, whether a receive from `of`, the other rank, waits when it returns.
    """

    rank = None

    no_tensor = property(lambda self: not issubclass(type(self.got), torch.Tensor) or self.got.is_meta)
    not_zero = property(lambda self: self.got.shape or self.got.item() != 0 or self.got.dtype != self.want.dtype)
    no_operation = property(lambda self: self.got.grad_fn is None)

    @property
    def no_backward(self) -> bool:
        """Whether it comes from no operation, and is no leaf with a hook that may send its gradient."""
        return self.no_operation and not (self.got._backward_hooks or self.got._post_accumulate_grad_hooks)

    shown = property(lambda self: short(self.got if self.no_tensor else self.got.detach()))


def _backward(own: ModuleType, loss: torch.Tensor) -> None:
    try:
        loss.backward()
    except (RuntimeError, TypeError) as error:
        if any(frame.filename == own.__file__ for frame in traceback.extract_tb(error.__traceback__)):
            raise
        demand([REFUSED], error)


def _received(own: ModuleType, comm: Any, rank: int, want: torch.Tensor, tag: int = 0) -> torch.Tensor:
    """Return what recv returns: a tensor like `want`, whose gradient will be sent back."""
    got = own.recv(comm, rank, tag)
    demand(RECEIVED, Passed(got, want, f"what rank {comm.rank} receives from rank {rank}"))
    return got


def _sent(own: ModuleType, comm: Any, x: torch.Tensor, rank: int, tag: int = 0) -> torch.Tensor:
    """Return the delegate that send returns; x stays as it was."""
    before = x.detach().clone()
    got = own.send(x, comm, rank, tag)
    queues = comm.world.matching.queues[comm.context, comm.me] if is_virtual(comm) else None
    early = bool(queues and queues.exact.get((rank, tag)))
    demand(GIVEN, Result(x, before, "x, after send,"))
    demand(DELEGATE, Passed(got, x, f"what send returns on rank {comm.rank}", early=early, of=f"rank {rank}"))
    return got


@dataclass(frozen=True)
class Tags:
    """With which tags gradients went back."""

    ran: Ran
    rank = 1

    forth = property(lambda self: self.of("rank 0 -> rank 1"))
    back = property(lambda self: self.of("rank 1 -> rank 0"))
    other_tags = property(lambda self: self.back != {"tag 5", "tag 6"})
    more_forth = property(lambda self: self.forth > {"tag 5", "tag 6"})
    several = property(lambda self: len(self.back) > 1)
    shown_forth = property(lambda self: " and ".join(sorted(self.forth)))
    shown = property(lambda self: " and ".join(sorted(self.back)) or "no messages")

    def of(self, lane: str) -> set[str]:
        return {event.name for event in self.ran.run.events if event.lane == lane}


def _judge(results: Sequence[Any]) -> Finding | None:
    everyone = [*itertools.chain(*results)]
    return judge([THROUGH_WORLD], *everyone) or judge(GRADIENTS, *everyone)


@dataclass(frozen=True)
class Stray:
    """Rank `other` sends a message with tag 5 to `rank`, which waits for one of rank `source` with `tag`.

    of_backward: the message that is waited for is a gradient.
    """

    rank: int
    source: int
    tag: int
    other: int
    of_backward: bool = False

    @property
    def asked(self) -> str:
        if self.of_backward:
            return f"backward to wait for a gradient, which rank {self.source} has not sent"
        return f"recv from rank {self.source} with tag {self.tag} to wait for such a message"

    def calls(self, own: ModuleType, comm: Any) -> None:
        x = _matrix().requires_grad_()
        if comm.rank == self.other:
            own.send(x, comm, self.rank, 5)
        if comm.rank == self.rank and self.of_backward:
            own.send(x, comm, self.source, self.tag).backward()
        elif comm.rank == self.rank:
            own.recv(comm, self.source, self.tag)
        elif comm.rank == self.source and self.of_backward:
            own.recv(comm, self.rank, self.tag)


# -- what is said --

TAKEN = Test(
    "taken",
    always,
    "{asked}",
    "a message of rank {other} with tag 5",
    "comm.recv takes whatever comes first, unless it is given source and tag.",
)
REFUSED = Test(
    "refused by autograd",
    always,
    "four values from backward, that of x a gradient of x's shape",
    one_line,
    "Return a tensor, or None, for each argument of forward but ctx: x or anchor, comm, rank, tag.",
)
KEPT = equals("The second was written into the memory of the first: each needs its own.")
LEARN = "The receiver has to learn dtype and shape: comm.send pickles an array with both."
WHYS_RECEIVED = rules(reshaped=LEARN, otherwise=f"What arrives is x, as it was sent. {AS_IT_LIES}")
OTHER_DTYPE = (
    "x is to arrive in its own dtype: comm.send pickles an array with dtype and shape, if neither side changes them."
)
RECEIVED = [
    *tests(no_tensor=("{what} to be a tensor", "{shown}", "Recv.forward returns the tensor that it received.")),
    *equals(WHYS_RECEIVED, dtype=OTHER_DTYPE),
    *tests(
        no_backward=(
            "{what} to be the result of an operation with a backward",
            "a tensor without one",
            "Its gradient would never be sent back. Leave recv as it was: Recv.apply, and an anchor with a gradient.",
        ),
    ),
]
GIVEN = equals("Layers before may need x in their backward: it stays as it is.")
KEPT_IN_BACKWARD = equals(
    "The gradient was received into x's own memory. detach() and numpy() copy nothing, and contiguous() copies only "
    "what is not contiguous: receive into a new tensor."
)
DELEGATE = tests(
    early=(
        "send to leave the receiving of the gradient to backward",
        "a receive from {of} that has begun in send",
        "It takes the next message with this tag, which may be a tensor and no gradient: begin to receive in backward.",
    ),
    no_tensor=("{what} to be a tensor, the delegate", "{shown}", "Send.forward returns the number 0, a tensor."),
    not_zero=(
        "{what} to be the number 0, {want.dtype}, of shape ()",
        "{shown}, {got.dtype}",
        "The delegate stands for what x has become elsewhere, and adds nothing to a loss: x.new_zeros(()).",
    ),
    no_operation=(
        "{what} to be part of x's graph",
        "a tensor without a grad_fn",
        "Its backward would never reach x. Send.apply makes the graph, if x itself goes in, and forward does not mark "
        "the delegate as not differentiable.",
    ),
)
WHYS_GRADIENT = rules(
    zeros="All zeros: backward has to receive the gradient that the other rank's backward sends.",
    rounded="Rounded on the way: the gradient has x's dtype, {dtype}.",
    twice="Twice the gradient: it was added to .grad by hand, and autograd adds what backward returns.",
    other_sign="The sign is wrong: what was received is the gradient of x, as it is.",
    factor="Right but for a factor of {factor:.4g}: what was received is the gradient of x, as it is.",
    otherwise="{why}",
)
GRADIENTS = tests(
    missing=("{what}", "None", "No gradient came: Send.backward returns that of x in the first place."),
    difference=("{difference[0]}", "{difference[1]}", WHYS_GRADIENT),
)
WHYS_TAGS = rules(
    more_forth=(
        "The tensors themselves were sent with {shown_forth}. A tag that is not theirs may be that of another tensor. "
        "Parts of a tensor may have one tag: messages with one tag arrive in the order in which a rank sent them."
    ),
    several="The tag is changed on the way back, and may be that of another tensor: send a gradient with its tensor's.",
    otherwise="Only tags distinguish messages that travel at the same time: keep the tag in ctx, beside the rank.",
)
TAGS = tests(
    other_tags=(
        "gradients of what was sent with tags 5 and 6 to be sent back with these tags",
        "{shown}",
        WHYS_TAGS,
    )
)
