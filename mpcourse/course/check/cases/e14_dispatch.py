"""What e14_dispatch is asked: rows that travel to other ranks and back, with gradients as of one process, and bytes."""

import functools
import itertools
import operator
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
import torch.fx.experimental.symbolic_shapes  # what a backward that is given gradients imports: before the clock starts
from torch import Tensor

from mpcourse.common.words import named
from mpcourse.course.check.answer import Answer
from mpcourse.course.check.cases.on_models import Finding, each_on_real, each_on_virtual, one_line
from mpcourse.course.check.facts import chunks
from mpcourse.course.check.facts.chunks import OnAllRanks
from mpcourse.course.check.facts.messages import COMM, PICKLED, THROUGH_WORLD, Sent, is_virtual, metered
from mpcourse.course.check.rules import Test, Whys, always, demand, judge, rules, tests
from mpcourse.course.check.status_page import HasStatusPage
from mpcourse.course.check.wrong import first_difference

if TYPE_CHECKING:
    from mpcourse.course.check.traced_mpi import TracedComm

EXCHANGE, MIXTURE = "exchange", "mixture"
MORE = {EXCHANGE: 256, MIXTURE: 4096}  # bytes that a forward or a backward may send besides rows
NAMES = {
    EXCHANGE: ("the result", "the gradient of rows"),
    MIXTURE: ("the result", "the gradient of x", "the gradient of weights", "the gradient of the experts' parameters"),
}

# -- inputs --


@dataclass(frozen=True)
class Case:
    """An input: tokens and their experts. `exchange` gets as many rows for each rank as tokens chose its experts.

    tokens: of each rank. to: the experts that they choose: "any"; "all", each one twice; "some", none of the last rank;
    "idle", none of the last rank, which has no tokens either; "next", those of the next rank. own: experts of a rank.
    width: of a row. scattered: tensors are not contiguous. again: other calls come between forward and backward, and
    the loss is the sum of two. alone: there is no backward. turned: comm has the ranks in the opposite order. measured:
    messages are counted. why: for an answer that was right until then.
    """

    what: str
    why: str = ""
    name: str = EXCHANGE
    tokens: tuple[int, ...] = (4, 9, 3, 6)
    to: str = "any"
    own: int = 2
    width: int = 3
    scattered: bool = False
    again: bool = False
    alone: bool = False
    turned: bool = False
    measured: bool = False
    dtype = torch.float64
    n = property(lambda self: self.tokens[0] * self.width)

    def chosen(self, rank: int, size: int, call: int = 0) -> Tensor:
        n, draw = self.tokens[rank], torch.Generator().manual_seed(7 + rank + 10 * call)
        if self.to == "all":
            return torch.arange(size * self.own).repeat(2)[torch.randperm(2 * size * self.own, generator=draw)]
        if self.to == "next":
            return (rank + 1) % size * self.own + torch.arange(n) % self.own
        asked = size - 1 if self.to in ("some", "idle") and size > 1 else size
        n = 0 if self.to == "idle" and rank == asked else n
        return torch.randint(asked * self.own, (n,), generator=draw)

    def counts(self, size: int, call: int = 0) -> list[list[int]]:
        """Return how many rows each rank sends to each rank."""
        homes = (self.chosen(rank, size, call) // self.own for rank in range(size))
        return [torch.bincount(home, minlength=size).tolist() for home in homes]

    def drawn(self, which: int, rank: int, *shape: int) -> Tensor:
        return torch.randn(shape, generator=torch.Generator().manual_seed(100 * which + rank), dtype=self.dtype)

    def leaves(self, rank: int, size: int) -> list[Tensor]:
        """Return what gradients are asked of: rows, or x, weights and the parameters of a rank's experts."""
        n = len(self.chosen(rank, size))
        x, weights = self.drawn(1, rank, n, self.width), self.drawn(2, rank, n).abs() + 0.3
        parameters = 0.7 * self.drawn(3, rank, self.own, self.width + 1, self.width)
        if self.scattered:
            x, weights = x.T.contiguous().T, torch.stack([weights, weights], 1)[:, 0]
        made = [x] if self.name == EXCHANGE else [x, weights, parameters]
        return [tensor.detach().requires_grad_() for tensor in made]

    def gradient(self, rank: int, like: Tensor, call: int) -> Tensor:
        """Return the gradient of what a call returns on a rank."""
        return self.drawn(4, rank).expand(like.shape) if self.scattered else self.drawn(4 + call, rank, *like.shape)

    def expert(self, everyone: Sequence[Tensor], i: int, rows: Tensor) -> Tensor:
        """Return what expert i makes of rows. everyone: the parameters of all ranks' experts."""
        weight = everyone[i // self.own % len(everyone)][i % self.own]
        return torch.tanh(rows @ weight[:-1] + weight[-1])


EVEN = Case("as many rows from each rank for each other", to="all")
UNEVEN = Case(
    "different numbers of rows", "sent[r] rows go to rank r, and received[r] rows come from it. Each may be 0."
)
BACK = "In backward, gradients go back to where rows came from: received[r] rows go to rank r, and sent[r] rows come."
COUNTS = (
    "Numbers differ, and may be 0. A rank knows how many rows it sends, but not how many it gets: before rows travel, "
    "ranks tell each other these numbers."
)
NONE_LEAVE = Case(
    "no rows from rank 0",
    "A rank takes part in all exchanges, even if it has nothing to send: others wait for it.",
    tokens=(0, 9, 3, 6),
)
NONE_COME = Case(
    "no rows for the last rank",
    "A rank takes part in all exchanges, even if it gets nothing, and also in backward: others wait for it.",
    to="some",
)
IDLE = Case(
    "no rows from the last rank, and none for it",
    "A rank takes part in all exchanges, even if it neither sends nor gets anything: others wait for it.",
    to="idle",
)
SCATTERED = Case(
    "tensors that are not contiguous",
    "MPI takes memory as it lies. A transposed tensor is not contiguous, nor is the gradient of a sum, one number that "
    "is expanded to a shape: tensor.contiguous() makes a copy that is.",
    scattered=True,
)
AGAIN = Case(
    "other calls between forward and backward",
    "Several forwards may come before the first backward. What belongs to one call is kept in ctx, and each result and "
    "gradient has memory of its own.",
    tokens=(6, 6, 6, 6),
    again=True,
)
TURNED = Case("ranks of a communicator that has them in another order", COMM, own=1, turned=True)
MEASURED = Case("all rows for the next rank", tokens=(24,) * 4, to="next", width=64, measured=True)
CASES = (
    *(replace(case, alone=True) for case in (EVEN, UNEVEN, NONE_COME)),
    *(EVEN, replace(UNEVEN, why=BACK), NONE_LEAVE, NONE_COME, IDLE, SCATTERED, AGAIN, TURNED, MEASURED),
)
FOR_EXPERTS = tuple(replace(case, name=MIXTURE, why=COUNTS if case.what == UNEVEN.what else case.why) for case in CASES)


def check(answer: Answer, comm: "TracedComm") -> None:
    """Check the answer on real ranks; every rank must call this."""
    each_on_real(answer, comm, (*CASES[4:10], *FOR_EXPERTS[4:10]), _call, _judge)


def check_virtually(answer: Answer, comm: HasStatusPage) -> None:
    """Check the answer on virtual ranks; one process calls this."""
    asked = "{case.name} as of one process, on {ranks}, with {case.what}"
    each_on_virtual(answer, comm, (*CASES, *FOR_EXPERTS), _call, _judge, asked)


# -- observation --


class Seen(NamedTuple):
    """What a rank got: the result, and the gradients of its leaves; None for what is no tensor.

    experts: those that were called. overwritten: whether another call changed the result. calls: what forward and
    backward sent to other ranks, where messages are counted. sent: of virtual ranks.
    """

    found: Sequence[np.ndarray | None]
    experts: Sequence[int] = ()
    overwritten: bool = False
    calls: Sequence[Sent] = ()
    sent: Sent | None = None


def _copy(tensor: Any) -> np.ndarray | None:
    return tensor.detach().numpy().copy() if isinstance(tensor, Tensor) else None


def _call(case: Case, own: Answer, comm: Any) -> Seen:
    with chunks.given(comm, case) as (ranks, sent):
        rank, size, called = ranks.rank, ranks.size, []
        leaves, whole = case.leaves(rank, size), whole_of(case, size)
        every = [leaves[-1] if r == rank else whole.leaves[r][-1].detach() for r in range(size)]

        def expert(i: int, rows: Tensor) -> Tensor:
            called.append(operator.index(i))
            return case.expert(every, called[-1], rows)

        def call(number: int = 0) -> Any:
            if case.name == MIXTURE:
                chosen = case.chosen(rank, size, number)
                return own.call(MIXTURE, ranks, leaves[0], chosen, leaves[1], expert, case.own)
            counts = case.counts(size, number)
            return own.call(EXCHANGE, ranks, leaves[0], counts[rank], [row[rank] for row in counts])

        meter = metered(ranks) if case.measured and is_virtual(ranks) else Sent
        y = call()
        calls, result, experts = [meter()], _copy(y), [*called]
        if case.alone or result is None or result.shape != whole.right[0][rank].shape:
            return Seen([result], experts, sent=sent())
        ys = [y, *(call(number) for number in (1, 2) if case.again)][:2]
        overwritten = not np.array_equal(result, y.detach().numpy(), equal_nan=True)
        given = [gradients[rank] for gradients in whole.gradients]
        back = functools.partial(_backward, own, ys, given, leaves)
        gradients = own.run(back, "backward", *given, *leaves)
        calls.append(meter())
        return Seen([result, *map(_copy, gradients)], experts, overwritten, calls, sent())


def _backward(own: Answer, ys: Sequence[Tensor], given: Sequence[Tensor], leaves: Sequence[Tensor], *_: Any) -> Any:
    try:
        return torch.autograd.grad(ys, leaves, given, allow_unused=True)
    except (RuntimeError, TypeError) as error:
        if not any(frame.filename == str(own.path) for frame in traceback.extract_tb(error.__traceback__)):
            demand([REFUSED], error)
        raise


# -- what is right, and what known mistakes make of it --


class Whole:
    """All ranks in one process. right: each rank's result, and the gradients of its leaves, in the order of NAMES."""

    def __init__(self, case: Case, size: int) -> None:
        self.case, self.ranks = case, range(size)
        self.leaves = [case.leaves(r, size) for r in self.ranks]
        ys = [self._results(size, call) for call in range(1 + case.again)]
        self.gradients = [[case.gradient(r, y, call) for r, y in enumerate(ys[call])] for call in range(len(ys))]
        flat, leaves, given = ([*itertools.chain(*rows)] for rows in (ys, self.leaves, self.gradients))
        found = torch.autograd.grad(flat, leaves, given, allow_unused=True, materialize_grads=True)
        of_leaves = [found[kind :: len(self.leaves[0])] for kind in range(len(self.leaves[0]))]
        self.right = [[x.detach().numpy() for x in rows] for rows in (ys[0], *of_leaves)]

    def _results(self, size: int, call: int) -> list[Tensor]:
        if self.case.name == EXCHANGE:
            counts = self.case.counts(size, call)
            pieces = [rows.split(row) for (rows,), row in zip(self.leaves, counts, strict=True)]
            return [torch.cat([piece[r] for piece in pieces]) for r in self.ranks]
        every, results = [parameters for *_, parameters in self.leaves], []
        for r, (x, weights, _) in enumerate(self.leaves):
            tokens = zip(x, weights, self.case.chosen(r, size, call).tolist(), strict=True)
            done = [weight * self.case.expert(every, i, row[None]) for row, weight, i in tokens]
            results.append(torch.cat([x[:0], *done]))
        return results


whole_of = functools.lru_cache(Whole)


class Origin(NamedTuple):
    """Whose row it is: a row that goes to the rank `to`, or a token's result by the expert `to`, multiplied `times`."""

    rank: int
    row: int
    to: int
    times: float = 1.0


class Facts(OnAllRanks):
    """The result, or a gradient. `at` is the first row that is wrong, and `row` is what is there."""

    whole = property(lambda self: whole_of(self.case, self.size))
    right = property(lambda self: self.want[self.rank])
    nothing = property(lambda self: self.result is None)
    overwritten = property(lambda self: self.seen.overwritten)
    reshaped = property(lambda self: self.result.shape != self.right.shape)
    nan = property(lambda self: np.isnan(self.result).any())
    other_dtype = property(lambda self: self.result.dtype != self.right.dtype)
    place = property(lambda self: f"{self.name} on rank {self.rank} of {self.size}, with {self.case.what}")
    row = property(lambda self: self.result[self.at])
    zeros = property(lambda self: ((self.result == 0) & (self.right != 0)).any())
    zero_row = property(lambda self: not self.row.any())

    @functools.cached_property
    def difference(self) -> tuple[str, str] | None:
        return first_difference(self.result, self.right, self.place, self.tolerance, self.tolerance)

    @functools.cached_property
    def at(self) -> int:
        wrong = ~np.isclose(self.result, self.right, self.tolerance, self.tolerance)
        return int(wrong.reshape(len(wrong), -1).any(1).argmax())

    @functools.cached_property
    def factor(self) -> float | None:
        """By what the right arrays of all ranks are multiplied; None: that explains nothing."""
        got, want = self.in_one_row()
        factor = float(got @ want / (want @ want))
        return factor if factor and self.same(got, factor * want) else None

    def those_like(self, rows: np.ndarray) -> np.ndarray:
        """Return which of these are what the wrong row is."""
        return np.flatnonzero(np.isclose(rows, self.row, self.tolerance, self.tolerance).all(1))

    # Which experts were called, and what forward sent, or backward.

    own = property(lambda self: [*range(self.rank * self.case.own, (self.rank + 1) * self.case.own)])
    others = property(lambda self: {*self.seen.experts} - {*self.own})
    tokens = property(lambda self: torch.cat([self.case.chosen(r, self.size) for r in range(self.size)]).tolist())
    idle = property(lambda self: {*self.own} - {*self.seen.experts} and {*self.own} - {*self.tokens})
    not_once = property(lambda self: sorted(self.seen.experts) != self.own)
    asked = property(lambda self: named(self.own, "expert"))
    called = property(lambda self: f"calls of {named(self.seen.experts, 'expert')}" if self.seen.experts else "none")
    forward = property(lambda self: self.name == NAMES[EXCHANGE][0])
    spent = property(lambda self: self.seen.calls[not self.forward])
    due = property(lambda self: self.case.n * 8 * (1 + (self.case.name == MIXTURE)))
    more = property(lambda self: MORE[self.case.name])
    too_many = property(lambda self: self.spent.nbytes > self.due + self.more)
    what = property(lambda self: "forward" if self.forward else "backward")

    # What exchange moves.

    @functools.cached_property
    def moved(self) -> Origin | None:
        """Which row is in the place of the right one."""
        counts = np.array(self.case.counts(self.size))
        rows = [rows.detach() for (rows,) in self.whole.leaves] if self.forward else self.whole.gradients[0]
        for rank, sent in enumerate(counts if self.forward else counts.T):
            for i in self.those_like(rows[rank].numpy()):
                return Origin(rank, int(i), int(np.repeat(self.whole.ranks, sent)[i]))
        return None

    # What mixture returns.

    weights = property(lambda self: self.whole.leaves[self.rank][1].detach().numpy())
    chosen = property(lambda self: int(self.case.chosen(self.rank, self.size)[self.at]))

    def computed(self, rank: int, i: int, times: Any = 1.0) -> np.ndarray:
        """Return the results of a rank's tokens by expert i. times: what the tokens are multiplied by before."""
        every = [parameters for *_, parameters in self.whole.leaves]
        return self.case.expert(every, i, times * self.whole.leaves[rank][0]).detach().numpy()

    @functools.cached_property
    def origin(self) -> Origin:
        """Which token's result the row is a multiple of; if it is none, or zero, what is asked."""
        asked = Origin(self.rank, self.at, self.chosen, self.weights[self.at])
        found = []
        for rank in self.whole.ranks if self.row.any() else ():
            for i in range(self.case.own * self.size):
                out = self.computed(rank, i)
                times = out @ self.row / (out**2).sum(1)
                found += [Origin(rank, int(t), i, times[t]) for t in self.those_like(times[:, None] * out)]
        return min(found, key=lambda o: (o.rank != self.rank, o.row != self.at, o.to != self.chosen), default=asked)

    elsewhere = property(lambda self: self.origin[:2] != (self.rank, self.at))
    home = property(lambda self: self.chosen // self.case.own)
    other_expert = property(lambda self: self.origin.to != self.chosen)
    unweighted = property(lambda self: abs(self.origin.times - 1) < self.tolerance)
    whose = property(lambda self: int(abs(self.weights - self.origin.times).argmin()))
    of_a_token = property(lambda self: np.isclose(self.weights[self.whose], self.origin.times))
    other_weight = property(lambda self: self.whose != self.at and self.of_a_token)

    @property
    def weighted_before(self) -> bool:
        """Whether the expert got the token times its weight."""
        weight = self.weights[self.at]
        out = self.computed(self.rank, self.chosen, weight)[self.at]
        return self.same(self.row, out) or self.same(self.row, weight * out)


def _judge(case: Case, results: Sequence[Seen]) -> Finding | None:
    everyone = results[::-1] if case.turned else results
    ranks, right = range(len(everyone)), whole_of(case, len(everyone)).right
    rows = zip(NAMES[case.name], zip(*(seen.found for seen in everyone), strict=False), right, strict=False)
    facts = [[Facts(r, case, everyone, of, got, want, 1e-9) for r in ranks] for of, got, want in rows]
    tables = [([THROUGH_WORLD, *(CALLED if case.name == MIXTURE else ())], facts[0])]
    tables += [(VALUES[case.name, each[0].forward], each) for each in facts]
    tables += [(MESSAGES[case.name], each) for each in facts[:2] if case.measured and each[0].sent]
    return next(filter(None, (judge(table, *each) for table, each in tables)), None)


# -- what is said --


REFUSED = Test(
    "refused by autograd",
    always,
    "autograd to go back from the result",
    one_line,
    {
        "Autograd knows no operation behind the result. exchange returns what apply returns, and detach, numpy and "
        "torch.no_grad cut the way back.": lambda error: "does not require grad" in str(error),
        "backward returns one value for each argument of forward but ctx: None for comm, the gradient of rows in their "
        "shape, and None for each list.": lambda error: "returned a" in str(error),
    },
)
ABOUT_NUMBERS = rules(
    nan="Some numbers are NaN, as in memory of torch.empty that was never written. Do rows that stay on a rank have "
    "a place, too? Alltoallv counts elements, and a row has {case.width}.",
    rounded="Right to some digits: numbers were in a shorter dtype on their way. All of them have to be {dtype}.",
    other_dtype="torch.empty and torch.zeros make float32, unless they are given dtype=torch.float64.",
)
ABOUT_REST: Whys = [
    chunks.ABOUT,
    *rules(
        factor="Right but for a factor of {factor:.4g}. The loss is the sum of what all ranks compute: nothing is "
        "divided, and nothing is counted twice."
    ),
]
WHYS_EXCHANGE: Whys = [
    *ABOUT_NUMBERS,
    *rules(
        reshaped="Forward returns a row for each row that comes, and backward one for each row that was sent.",
        moved="That is row {moved.row} of rank {moved.rank}, which goes to rank {moved.to}. What rank s sends to rank "
        "r lies behind what it sends to ranks before r, and is put behind what comes from ranks before s.",
        zeros="Some numbers are 0, because nothing was received there. Alltoallv counts elements, and a row has "
        "{case.width}.",
    ),
    *ABOUT_REST,
    "Forward sends row i to one rank, and backward brings the gradient of this row back from there.",
]
WHYS_MIXTURE: Whys = [
    *ABOUT_NUMBERS,
    *rules(
        reshaped="A rank returns a row for each of its own tokens.",
        weighted_before="The token was multiplied by its weight before its expert got it. An expert is not linear: "
        "multiply the result.",
        elsewhere="That is the result of token {origin.row} of rank {origin.rank}, by expert {origin.to}. Undo each "
        "sort: results leave the expert's rank in the order in which rows came, and with order = chosen.argsort(), "
        "result i that comes back belongs to token order[i].",
        other_expert="Expert {origin.to} has computed this token. Its expert is {chosen}, on rank {home}, where rows "
        "come rank by rank: which of them belong to which expert?",
        unweighted="That is the expert's result. It is multiplied by the weight of the token.",
        zero_row="Zeros: no result has come back to this token.",
        other_weight="That is multiplied by the weight of token {whose}. Results come in the order in which tokens "
        "were sent, and weights are in the order of the tokens.",
    ),
    chunks.ABOUT,
    "Follow one token: to rank chosen // own, to one of the experts there, back to this rank, and to its place.",
]
WHYS_GRADIENT: Whys = [
    *ABOUT_NUMBERS,
    *rules(zero_row="Zeros: the way back is cut for some rows. Do all rows travel by operations that autograd knows?"),
    *ABOUT_REST,
    "Rows and results travel by exchange, whose backward brings gradients back. All else can be operations of torch.",
]
CALLED = tests(
    others=(
        "mixture to call {asked} on rank {rank} of {size}",
        "{called}",
        "A rank computes its own experts alone, and expert(i, rows) takes the number of an expert among those of all "
        "ranks: the first of this rank is rank * own.",
    ),
    not_once=(
        "mixture to call {asked}, each once, on rank {rank} of {size}",
        "{called}",
        rules(
            idle="An expert is called with 0 rows if no token has come to it. A result without it may have no "
            "backward, and other ranks wait for that.",
            otherwise="All rows of an expert go into one call, whichever ranks they come from.",
        ),
    ),
)
OVERWRITTEN = ("a result to keep its values when there is another call", "other values", chunks.OVERWRITTEN)
VALUES = {
    (name, forward): [
        *tests(nothing=("{place}", "no tensor", nothing)),
        chunks.values(whys),
        *tests(overwritten=OVERWRITTEN),
    ]
    for name, forward, nothing, whys in (
        (EXCHANGE, True, "forward returns a tensor, and exchange returns what apply returns.", WHYS_EXCHANGE),
        (EXCHANGE, False, "backward returns the gradient of rows second, after None for comm.", WHYS_EXCHANGE),
        (MIXTURE, True, "mixture returns a tensor, with a row for each token.", WHYS_MIXTURE),
        (
            MIXTURE,
            False,
            "The way back is cut. So do detach, numpy, torch.no_grad, and messages that autograd does not know.",
            WHYS_GRADIENT,
        ),
    )
}
TOO_MANY = tests(
    too_many=(
        "at most {due} bytes of rows and {more} more, in {what}, by rank {rank} of {size}",
        "{spent.by}",
        "Right, but more than the rows travels, or it travels to more ranks than the one that needs it.",
    ),
)
MESSAGES = {EXCHANGE: [PICKLED, *TOO_MANY], MIXTURE: TOO_MANY}
