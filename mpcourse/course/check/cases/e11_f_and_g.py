"""What e11_f_and_g is asked: each function's result and gradient, its messages, and a network that is cut by them."""

import functools
import itertools
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
import torch.fx.experimental.symbolic_shapes  # what a backward that is given gradients imports: before the clock starts
from torch import Tensor

from mpcourse.common.words import named
from mpcourse.course.check.answer import Answer
from mpcourse.course.check.cases.on_models import SIZES, Finding, each_on_real, each_on_virtual, on_virtual, one_line
from mpcourse.course.check.facts.messages import THROUGH_WORLD, Sent, counting, other_than_world
from mpcourse.course.check.facts.rounding import UNITS, shorter_dtype
from mpcourse.course.check.rules import Test, demand, judge, rules, tests
from mpcourse.course.check.status_page import HasStatusPage
from mpcourse.course.check.wrong import first_difference, short

if TYPE_CHECKING:
    from mpcourse.course.check.traced_mpi import TracedComm

COPY, SUM = "copy_in", "sum_out"

# -- inputs --


@dataclass(frozen=True)
class Case:
    """What x is. movedim: whether its last dimension is the slowest in memory. expanded: whether its gradient is.

    zero: whether rank 0's gradient is. trained: whether x needs a gradient. another: whether a call on another
    communicator comes before backward. why: what is special, for an answer that was right until then. name,
    backward: which function is judged, and whether its backward is.
    """

    what: str
    shape: tuple[int, ...] = (3, 4)
    dtype: torch.dtype = torch.float64
    movedim: bool = False
    expanded: bool = False
    zero: bool = False
    trained: bool = True
    another: bool = False
    why: str = ""
    name: str = SUM
    backward: bool = False

    step = property(lambda self: f"{self.name}'s {'backward' if self.backward else 'forward'}")

    def tensor(self, seed: int) -> Tensor:
        made = torch.randn(self.shape, generator=torch.Generator().manual_seed(seed), dtype=self.dtype)
        return made.movedim(0, -1) if self.movedim else made

    def gradient(self, rank: int) -> Tensor:
        """Return the gradient on a rank: the same on all of them for the sum."""
        gradient = self.tensor(1 + rank if self.name == COPY else 0)
        if self.zero and rank == 0:
            return torch.zeros_like(gradient)
        return gradient.flatten()[0].expand(gradient.shape) if self.expanded else gradient


MATRIX = Case("a matrix")
TRANSPOSED = Case(
    "a transposed matrix",
    movedim=True,
    why="A transposed matrix is not contiguous. MPI reads memory in its own order, and the result has another one: "
    "copy with .contiguous() first.",
)
CASES = (
    MATRIX,
    Case("a float32 matrix", dtype=torch.float32, why="The result has x's own dtype, and numbers travel in it."),
    Case(
        "a gradient like that of y.sum()",
        expanded=True,
        why="The gradient of a sum is one number in memory, expanded to a shape. MPI cannot read that: copy it with "
        ".contiguous(), or .clone(memory_format=torch.contiguous_format).",
    ),
    Case(
        "a gradient of zeros on rank 0",
        zero=True,
        why="Every rank takes part in every sum, also where its own gradient is zero: the others wait for it.",
    ),
    TRANSPOSED,
    Case(
        "a permuted tensor of three dimensions",
        (2, 3, 4),
        movedim=True,
        why="A permuted tensor is not contiguous, and .clone() keeps the order of its elements in memory. "
        ".contiguous() and .clone(memory_format=torch.contiguous_format) do not.",
    ),
    Case("a tensor of shape ()", (), why="x may have any shape, also (). The result has the same."),
    Case("an x that needs no gradient", trained=False, why="Without a gradient for x, forward works as it does with."),
    Case(
        "a call with another communicator before backward",
        another=True,
        why="Each backward belongs to a forward of its own, and needs the communicator of that one: ctx keeps it.",
    ),
)


def _steps(cases: Sequence[Case]) -> list[Case]:
    """Return a case for each function, and for its forward and backward: a verdict names the line of the last call."""
    every = itertools.product(cases, (SUM, COPY), (False, True))
    return [replace(case, name=name, backward=back) for case, name, back in every if case.trained or not back]


def check(answer: Answer, comm: "TracedComm") -> None:
    """Check the answer on real ranks; every rank must call this."""
    each_on_real(answer, comm, _steps((MATRIX, TRANSPOSED)), _program, _judge)
    each_on_real(answer, comm, (None,), _train, _judge_training)


def check_virtually(answer: Answer, comm: HasStatusPage) -> None:
    """Check the answer on virtual ranks; one process calls this."""
    each_on_virtual(answer, comm, _steps(CASES), _program, _judge, "{case.step} to work on {ranks}, with {case.what}")
    for size in SIZES:
        on_virtual(
            answer,
            comm,
            size,
            functools.partial(_train, None),
            functools.partial(_judge_training, None),
            (TRAINED, AGAIN),
        )


# -- observation --


class Seen(NamedTuple):
    """What one rank's call, or its backward, was given and returned.

    got: None if it is no tensor; then it is shown. kept: whether what was given is as it was. overwritten: whether a
    later call changed the result. sent: known of virtual ranks.
    """

    given: np.ndarray
    got: np.ndarray | None
    shown: str
    kept: bool
    overwritten: bool
    sent: Sent | None


def _program(case: Case, own: Answer, comm: Any) -> Seen:
    comm, mine = other_than_world(comm), 1 + comm.rank
    x = case.tensor(mine if case.name == SUM else 0).requires_grad_(case.trained)
    given, sent = x, counting(comm)
    before, overwritten = x.detach().numpy().copy(), False
    got = y = own.call(case.name, comm, x, changes=(x,))
    if case.backward:
        demand(OPERATION, _Operation(case.name, y))
        if case.another:
            first = y.detach().numpy().copy()
            own.call(case.name, comm.Split(comm.rank), case.tensor(0).requires_grad_())
            overwritten = not np.array_equal(y.detach().numpy(), first)
        given, sent = case.gradient(comm.rank), counting(comm)
        before = given.numpy().copy()
        got = own.run(lambda g: _gradients(own, y, [x], g)[0], "backward", given, changes=(given,))
    values = got.detach().numpy().copy() if isinstance(got, Tensor) else None
    return Seen(before, values, short(got), np.array_equal(given.detach().numpy(), before), overwritten, sent())


@dataclass(frozen=True)
class _Operation:
    """What a function returned. rank: on none."""

    name: str
    y: Tensor

    rank = None
    cut = property(lambda self: not self.y.requires_grad)


def _gradients(own: Answer, y: Tensor, xs: Sequence[Tensor], gradient: Tensor | None = None) -> Sequence[Tensor | None]:
    try:
        return torch.autograd.grad(y, xs, gradient, allow_unused=True)
    except (RuntimeError, TypeError) as error:
        if any(frame.filename == own.module.__file__ for frame in traceback.extract_tb(error.__traceback__)):
            raise
        demand(REFUSED, error)
        raise


@dataclass(frozen=True)
class Facts:
    """What came of one call, or of one backward, on `rank`. everyone: what was seen of it on all ranks."""

    rank: int
    case: Case
    everyone: Sequence[Seen]

    seen = property(lambda self: self.everyone[self.rank])
    size = property(lambda self: len(self.everyone))
    sent = property(lambda self: self.seen.sent)
    got = property(lambda self: self.seen.got)
    own = property(lambda self: self.seen.given)
    summed = property(lambda self: self.case.backward == (self.case.name == COPY))
    total = property(lambda self: np.sum([seen.given for seen in self.everyone], axis=0, dtype=np.float64))
    want = property(lambda self: np.asarray(self.total if self.summed else self.own).astype(self.own.dtype))
    tolerance = property(lambda self: 1e-5 if self.case.dtype == torch.float32 else 1e-12)
    difference = functools.cached_property(
        lambda self: first_difference(self.got, self.want, self.place, self.tolerance, self.tolerance)
    )
    missing = property(lambda self: self.got is None)
    changed = property(lambda self: not self.seen.kept)
    overwritten = property(lambda self: self.seen.overwritten)

    def near(self, value: Any) -> bool:
        return self.got.shape == np.shape(value) and np.allclose(self.got, value, self.tolerance, self.tolerance)

    @property
    def rounded(self) -> str:
        scale = np.sum([np.abs(seen.given) for seen in self.everyone], axis=0) if self.summed else None
        return shorter_dtype(self.got, self.want, UNITS.get(str(self.own.dtype), 2.0**-53), scale)

    special = property(lambda self: self.case.why)
    good = property(lambda self: [r for r in range(self.size) if not Facts(r, self.case, self.everyone).difference])
    on_some = property(lambda self: self.summed and self.good)
    is_mean = property(lambda self: self.summed and self.near(self.total / self.size))
    is_own = property(lambda self: self.summed and self.near(self.own))
    part_of_result = property(lambda self: self.is_own and not self.case.backward)
    part_of_gradient = property(lambda self: self.is_own and self.case.backward)
    copies_added = property(lambda self: not self.case.backward and self.near(self.total))
    summed_again = property(lambda self: not self.summed and self.case.backward and self.near(self.total))
    divided = property(lambda self: not self.summed and self.near(self.own / self.size))
    zeros = property(lambda self: not self.got.any())

    # Messages.

    calls = property(lambda self: [name.replace("Iall", "All") for name in self.sent.calls])
    other_calls = property(
        lambda self: self.sent and self.size > 1 and (self.calls != ["Allreduce"] * self.summed or self.by_messages)
    )
    by_messages = property(lambda self: self.sent.nbytes and not self.calls)
    pickled = property(lambda self: self.sent.pickled)
    needless = property(lambda self: not self.summed)
    several = property(lambda self: set(self.calls) == {"Allreduce"})

    # What sentences show.

    noun = property(lambda self: "gradient" if self.case.backward else "x")
    given = property(lambda self: "the gradient" if self.case.backward else "x")
    ranks = property(lambda self: f"with {self.case.what} on rank {self.rank} of {self.size}")
    place = property(lambda self: f"what {self.case.step} returns {self.ranks}")
    calls_asked = property(lambda self: "to call comm.Allreduce once" if self.summed else "to send nothing")
    good_have = property(lambda self: f"{named(self.good).capitalize()} {'has' if len(self.good) == 1 else 'have'}")


def _judge(case: Case, results: Sequence[Seen]) -> Finding | None:
    everyone = [Facts(rank, case, results) for rank in range(len(results))]
    return judge(VALUES, *everyone) or judge(CALLS, *everyone)


# -- a network --

BATCH, WIDTH, STEPS = 3, 12, 2


@dataclass(frozen=True)
class Trained:
    """A gradient of a network on `rank`, kept until its last step, beside that of one process."""

    rank: int
    place: str
    got: np.ndarray | None
    want: np.ndarray

    difference = property(lambda self: first_difference(self.got, self.want, self.place, 1e-9, 1e-9))


def _losses(x: Tensor, weights: Sequence[Tensor], copy: Callable, add: Callable) -> Tensor:
    for first, second in zip(weights[::2], weights[1::2], strict=True):
        x = add(torch.tanh(copy(x) @ first.T) @ second.T)
    return (x**3).sum()


def _train(_: None, own: Answer, comm: Any) -> list[Trained]:
    """Train two blocks, each of two layers: the first cut by its outputs, the second by its inputs."""
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(BATCH, WIDTH, generator=draw, dtype=torch.float64).requires_grad_()
    whole = [0.3 * torch.randn(WIDTH, WIDTH, generator=draw, dtype=torch.float64) for _ in range(4)]
    mine = [w.chunk(comm.size, i % 2)[comm.rank].clone().requires_grad_() for i, w in enumerate(whole)]
    whole = [w.requires_grad_() for w in whole]
    copy, add = (functools.partial(getattr(own.module, name), comm) for name in (COPY, SUM))
    rows: list[tuple[int, Tensor | None, Tensor]] = []
    for _step in range(STEPS):
        want = torch.autograd.grad(_losses(x, whole, lambda x: x, lambda x: x), [x, *whole])
        step = functools.partial(_step_of, own, x, mine, copy, add)
        got = own.run(lambda comm, step=step: step(), "copy_in, sum_out and backward", comm)
        parts = [want[0], *(g.chunk(comm.size, i % 2)[comm.rank] for i, g in enumerate(want[1:]))]
        rows += [(i, *pair) for i, pair in enumerate(zip(got, parts, strict=True))]
        with torch.no_grad():
            for w, g in zip([*whole, *mine], [*want[1:], *got[1:]], strict=True):
                w -= 0.01 * (torch.zeros_like(w) if g is None else g)
    where = f"on rank {comm.rank} of {comm.size}"
    names = ["x", *(f"the weight of block {b}'s {which} layer" for b in (1, 2) for which in ("first", "second"))]
    return [
        Trained(
            comm.rank,
            f"the gradient of {names[i]} in step {1 + at // len(names)}, after all steps, {where}",
            None if got is None else got.numpy().copy(),
            want.numpy(),
        )
        for at, (i, got, want) in enumerate(rows)
    ]


def _step_of(
    own: Answer, x: Tensor, weights: Sequence[Tensor], copy: Callable, add: Callable
) -> Sequence[Tensor | None]:
    return _gradients(own, _losses(x, weights, copy, add), [x, *weights])


def _judge_training(_: None, results: Sequence[Sequence[Trained]]) -> Finding | None:
    return judge(TRAINING, *itertools.chain(*results))


# -- what is said --

OPERATION = tests(
    cut=(
        "{name} to return the result of an operation with a backward",
        "a tensor that autograd knows nothing of",
        "Without it backward never comes to x. Let {name} return what apply returns.",
    )
)
REFUSED = [
    Test(
        "refused by autograd",
        lambda error: True,
        "two values from backward: None for comm, and a gradient of x's shape",
        one_line,
        "backward returns one value for each argument of forward but ctx, in the same order.",
    )
]
WHYS_CHANGED = "Others still need {given}: sum a copy of it. x.numpy() is no copy, because it shares x's memory."
WHYS_MISSING = "forward returns a tensor. backward returns None for comm, and then the gradient of x, a tensor."
OVERWRITTEN = "A later call wrote into the tensor that this one had returned: each call makes a new one."
WHYS = rules(
    rounded="Rounded to {rounded} on the way: send numbers in their own dtype.",
    special="{case.why}",
    is_mean="That is the mean over the ranks. Each rank's {noun} is a summand: add them up, and do not divide.",
    on_some="{good_have} the sum; all ranks need it. Reduce brings it to one rank, Allreduce to all.",
    part_of_result="That is this rank's own x: add up the x of all ranks.",
    part_of_gradient="That is this rank's own gradient. The parts on other ranks have used x, too: each of them has a "
    "part of its gradient, and these are added up.",
    copies_added="That is the sum over the ranks. x is the same on all of them, and each part of the layer takes it as "
    "it is. Its gradients are added up, in backward.",
    summed_again="That is {size} times the gradient, the sum over the ranks. All ranks compute the same loss, so each "
    "of them has its whole gradient already. The backward of an all-reduce is an all-reduce only where each rank has a "
    "loss of its own, and their sum is minimised, as torch.distributed.nn assumes.",
    divided="Divided by the number of ranks. A sum passes its gradient on to each summand as it is.",
    zeros="All zeros: is the array with the result the one that is returned?",
    otherwise="copy_in passes x on and adds up gradients; sum_out adds up x and passes its gradient on.",
)
WHYS_CALLS = rules(
    pickled="Methods with a small letter pickle: they copy the array, and send more. comm.Allreduce sends it as it is.",
    needless="All ranks have the same {noun} already: nothing is to be sent.",
    several="One call adds up a whole array, of any length.",
    otherwise="comm.Allreduce brings the sum of an array to all ranks in one call.",
)
VALUES = [
    THROUGH_WORLD,
    *tests(
        overwritten=("what {case.name} returned to keep its values", "other values after another call", OVERWRITTEN),
        missing=("{place} to be a tensor", "{seen.shown}", WHYS_MISSING),
        changed=("{case.step} to leave {given} as it is", "{given} with other values, {ranks}", WHYS_CHANGED),
        difference=("{difference[0]}", "{difference[1]}", WHYS),
    ),
]
CALLS = tests(other_calls=("{case.step} {calls_asked}, {ranks}", "{sent.by}", WHYS_CALLS))
TRAINED = "copy_in and sum_out to work in a network of two blocks"
AGAIN = (
    "Each function alone was right. In a network they are called several times: does a call write into memory that an "
    "earlier one returned, or keep something for the next?"
)
TRAINING = tests(difference=("{difference[0]}", "{difference[1]}", AGAIN))
