"""What e13_ring_attention is asked: attention and gradients as of one process, and messages to the next rank alone."""

import functools
import itertools
import math
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
import torch.fx.experimental.symbolic_shapes  # what a backward that is given gradients imports: before the clock starts
from torch import Tensor
from torch.utils import _pytree

from mpcourse.common.words import named
from mpcourse.course.check.answer import Answer
from mpcourse.course.check.cases.on_models import Finding, each_on_real, each_on_virtual, one_line
from mpcourse.course.check.facts import chunks
from mpcourse.course.check.facts.chunks import OnAllRanks
from mpcourse.course.check.facts.messages import COMM, PICKLED, SLACK, THROUGH_WORLD, Sent, is_virtual, metered
from mpcourse.course.check.rules import Test, Whys, always, demand, judge, rules, tests
from mpcourse.course.check.status_page import HasStatusPage
from mpcourse.course.check.wrong import first_difference

if TYPE_CHECKING:
    from mpcourse.course.check.traced_mpi import TracedComm

NAME = "ring_attention"

# -- inputs --


@dataclass(frozen=True)
class Case:
    """An input. shape: of a rank's queries, keys and values; there are more columns than ranks (see `other_shares`).

    scattered: tensors are transposed in memory, and the gradient is that of a sum. zero: rank 0's gradient is zero.
    scale: of the queries. again: another call comes between forward and backward. alone: there is no backward. turned:
    comm has the ranks in the opposite order. measured: messages are counted. why: for an answer that was right until
    then.
    """

    what: str
    shape: tuple[int, int] = (6, 5)
    scattered: bool = False
    zero: bool = False
    scale: float = 1.0
    again: bool = False
    alone: bool = False
    turned: bool = False
    measured: bool = False
    why: str = ""
    dtype = torch.float64

    n = property(lambda self: self.shape[0] * self.shape[1])

    def given(self, which: int, rank: int) -> Tensor:
        """Return a rank's q, k, v, or gradient of the result."""
        draw = torch.Generator().manual_seed(1 + 10 * rank + which)
        drawn = torch.randn(self.shape, generator=draw, dtype=self.dtype)
        if which == 3 and (self.scattered or (self.zero and rank == 0)):
            return (drawn[0, 0] * self.scattered).expand(self.shape)
        drawn = drawn * self.scale if which == 0 else drawn
        return drawn.T.contiguous().T if self.scattered else drawn


PLAIN = Case("6 tokens a rank")
SCATTERED = Case(
    "tensors that are not contiguous",
    scattered=True,
    why="MPI takes memory as it lies. A transposed tensor is not contiguous, nor is the gradient of a sum, one number "
    "that is expanded to a shape: tensor.contiguous() makes a copy that is.",
)
AGAIN = Case(
    "another call between forward and backward",
    again=True,
    why="Several forwards may come before the first backward. What belongs to one call is kept in ctx, and not in a "
    "variable of the file.",
)
CASES = (
    Case("6 tokens a rank", alone=True),
    PLAIN,
    SCATTERED,
    Case(
        "a gradient of zeros on rank 0",
        zero=True,
        why="Every rank takes part in the ring, even if its own gradient is zero: others wait for what it passes on.",
    ),
    AGAIN,
    Case(
        "scores of some thousands",
        scale=3000,
        alone=True,
        why="No float64 holds exp(3000). block and merge, which are given, subtract first.",
    ),
    Case("ranks of a communicator that has them in another order", turned=True, why=COMM),
    Case("16 tokens a rank", (16, 8), measured=True),
)


def check(answer: Answer, comm: "TracedComm") -> None:
    """Check the answer on real ranks; every rank must call this."""
    each_on_real(answer, comm, (PLAIN, SCATTERED, AGAIN), _call, _judge)


def check_virtually(answer: Answer, comm: HasStatusPage) -> None:
    """Check the answer on virtual ranks; one process calls this."""
    each_on_virtual(answer, comm, CASES, _call, _judge, "attention as of one process, on {ranks}, with {case.what}")


# -- observation --


class Seen(NamedTuple):
    """What a rank got: the result, and the gradients of q, k and v; None for what is no tensor.

    overwritten: whether another call changed the result, or another backward the gradients. calls: what forward and
    backward sent, where messages are counted. to: the ranks that got it. kept: the other ranks whose keys or values ctx
    has. sent: of virtual ranks.
    """

    found: Sequence[np.ndarray | None]
    overwritten: bool = False
    calls: Sequence[Sent] = ()
    to: Sequence[int] = ()
    kept: Sequence[int] = ()
    sent: Sent | None = None


def _copy(tensor: Any) -> np.ndarray | None:
    return tensor.detach().numpy().copy() if isinstance(tensor, Tensor) else None


def _call(case: Case, own: Answer, comm: Any) -> Seen:
    with chunks.given(comm, case) as (ranks, sent):
        given = [case.given(which, ranks.rank).requires_grad_() for which in range(3)]
        measured = case.measured and is_virtual(ranks)
        meter = metered(ranks) if measured else Sent
        before = len(ranks.world.matching.messages) if measured else 0
        y = own.call(NAME, ranks, *given)
        calls, result = [meter()], _copy(y)
        if case.alone or result is None or result.shape != case.shape:
            return Seen([result], sent=sent())
        if case.again:
            own.call(NAME, ranks, *(-2 * x for x in given))
        overwritten = not np.array_equal(result, y.detach().numpy(), equal_nan=True)
        kept = _kept(case, y, ranks) if measured else ()
        back = functools.partial(_backward, own, given)
        gradients = own.run(back, "backward", y, case.given(3, ranks.rank), *given, changes=(y,))
        calls.append(meter())
        found = [result, *map(_copy, gradients)]
        if case.again and all(x is not None for x in found):
            later = [x.detach().clone().requires_grad_() for x in given]
            z = own.call(NAME, ranks, *later)
            own.run(functools.partial(_backward, own, later), "backward", z, case.given(2, ranks.rank), *later)
            pairs = zip(found[1:], map(_copy, gradients), strict=True)
            overwritten |= any(not np.array_equal(np.asarray(x), np.asarray(now), equal_nan=True) for x, now in pairs)
        messages = ranks.world.matching.received(before) if measured else ()
        to = sorted({target for source, target, *_ in messages if source == ranks.rank})
        return Seen(found, overwritten, calls if measured else (), to, kept, sent())


def _backward(own: Answer, given: Sequence[Tensor], y: Tensor, gradient: Tensor, *_: Tensor) -> Sequence[Any]:
    try:
        return torch.autograd.grad(y, given, gradient, allow_unused=True)
    except (RuntimeError, TypeError) as error:
        if not any(frame.filename == str(own.path) for frame in traceback.extract_tb(error.__traceback__)):
            demand([REFUSED], error)
        raise


def _kept(case: Case, y: Tensor, ranks: Any) -> list[int]:
    """Return the other ranks whose keys or values are in the ctx of y's operation."""
    things = _pytree.tree_leaves([getattr(y.grad_fn, "saved_tensors", ()), getattr(y.grad_fn, "__dict__", ())])
    arrays = [np.asarray(x.detach() if isinstance(x, Tensor) else x) for x in things if hasattr(x, "dtype")]
    has = {r for r in range(ranks.size) for x in arrays if np.isin(x, [case.given(i, r)[0, 0] for i in (1, 2)]).any()}
    return sorted(has - {ranks.rank})


# -- what is right, and what known mistakes make of it --


def _attended(q: Tensor, k: Tensor, v: Tensor, visible: Tensor) -> tuple[Tensor, Tensor]:
    """Return attention and its lse. A query that sees no key gets zeros."""
    scores = (q @ k.T / math.sqrt(q.shape[1])).masked_fill(~visible, -math.inf)
    return scores.softmax(1).nan_to_num(0) @ v, scores.logsumexp(1)


def _lower(n: int, diagonal: int = 0) -> Tensor:
    return torch.ones(n, n, dtype=torch.bool).tril(diagonal)


class Whole:
    """The whole sequence, by rank: q, k, v and the result's gradient, and what is right: out, lse and gradients."""

    def __init__(self, case: Case, size: int) -> None:
        self.n, self.ranks = case.shape[0], range(size)
        *given, gradient = (torch.cat([case.given(which, rank) for rank in self.ranks]) for which in range(4))
        q, k, v = (x.contiguous().requires_grad_() for x in given)
        out, lse = _attended(q, k, v, _lower(len(q)))
        rows = [x.detach().chunk(size) for x in (q, k, v, gradient, out, lse)]
        self.q, self.k, self.v, self.gradient, self.out, self.lse = rows
        right = [out.detach(), *torch.autograd.grad(out, (q, k, v), gradient)]
        self.right = [[x.numpy() for x in each.chunk(size)] for each in right]

    def parts(self, which: int, of_block: str = "", own: int = 0, later: bool = False) -> np.ndarray:
        """Return the parts of q's, k's or v's gradient: (rank of queries, rank of keys, n, d).

        of_block: "lse" or "out and lse", where backward takes those of a block alone; "own", the lse of the own block.
        own: the diagonal of the mask in the own block. later: whether keys of later ranks are visible.
        """

        def part(r: int, c: int) -> tuple[Tensor, Tensor, Tensor]:
            q, k, v, gradient, root = self.q[r], self.k[c], self.v[c], self.gradient[r], math.sqrt(self.q[r].shape[1])
            visible = _lower(self.n, own if c == r else self.n if c < r or later else -self.n)
            out, lse = _attended(q, k, v, visible)
            if of_block == "own":
                lse = _attended(q, self.k[r], self.v[r], _lower(self.n))[1]
            out, lse = out if "out" in of_block else self.out[r], lse if of_block else self.lse[r]
            weights = (q @ k.T / root - lse[:, None]).exp().masked_fill(~visible, 0)
            of_scores = weights * (gradient @ v.T - (gradient * out).sum(1, keepdim=True)) / root
            return of_scores @ k, of_scores.T @ q, weights.T @ gradient

        return np.array([[part(r, c)[which].numpy() for c in self.ranks] for r in self.ranks])


whole_of = functools.lru_cache(Whole)


class Facts(OnAllRanks):
    """The result, or the gradient of q, k or v."""

    whole = property(lambda self: whole_of(self.case, self.size))
    which = property(lambda self: "qkv".find(self.name[-1]))
    nothing = property(lambda self: self.result is None)
    overwritten = property(lambda self: self.seen.overwritten)
    nan = property(lambda self: np.isnan(self.result).any())
    overflowed = property(lambda self: self.nan and self.case.scale > 1)
    place = property(lambda self: f"{self.name} on rank {self.rank} of {self.size}, with {self.case.what}")

    @functools.cached_property
    def difference(self) -> tuple[str, str] | None:
        return first_difference(self.result, self.want[self.rank], self.place, self.tolerance, self.tolerance)

    # The result.

    reshaped = property(lambda self: self.result.shape != self.case.shape)

    @functools.cached_property
    def met(self) -> tuple[str, int, int, list[int]]:
        """What explains the result: what travelled, the masks' diagonals in the own and other blocks, and ranks seen.

        If nothing does, it is what is asked.
        """
        w, r, n, size = self.whole, self.rank, self.whole.n, self.size
        turns = [(w.k[c], w.v[c])[:: -1 if (r - c) % 2 else 1] for c in w.ranks]
        ways = {
            "both": (w.k, w.v),
            "keys": (w.k, [w.v[r]] * size),
            "values": ([w.k[r]] * size, w.v),
            "nothing": ([w.k[r]] * size, [w.v[r]] * size),
            "in turns": tuple(zip(*turns, strict=True)),
        }
        subsets = [*itertools.product((True, False), repeat=size)]
        for way, own, other, sees in itertools.product(ways, (0, n, -1), (n, 0), subsets):
            masks = [_lower(n, -n if not sees[c] else own if c == r else other) for c in w.ranks]
            k, v = (torch.cat([*rows]) for rows in ways[way])
            if self.same(self.result, _attended(w.q[r], k, v, torch.cat(masks, 1))[0].numpy()):
                return way, own, other, [c for c in w.ranks if sees[c]]
        return "both", 0, n, [*range(r + 1)]

    way = property(lambda self: self.met[0])
    nothing_travels = property(lambda self: self.way == "nothing")
    one_stays = property(lambda self: self.way in ("keys", "values"))
    in_turns = property(lambda self: self.way == "in turns")
    sees_all_own = property(lambda self: self.met[1] > 0)
    misses_own_token = property(lambda self: self.met[1] < 0)
    others_causal = property(lambda self: self.met[2] == 0)
    later = property(lambda self: [c for c in self.met[3] if c > self.rank])
    unseen = property(lambda self: [c for c in range(self.rank + 1) if c not in self.met[3]])
    later_ranks, unseen_ranks = (property(lambda self: named(self.later)), property(lambda self: named(self.unseen)))

    @property
    def other_shares(self) -> bool:
        """Whether each row of the result adds up the right rows of blocks, each times a number."""
        w, r, n = self.whole, self.rank, self.whole.n
        outs = [_attended(w.q[r], w.k[c], w.v[c], _lower(n, (r - c) * n))[0].numpy() for c in range(r + 1)]
        rows, blocks = self.result[:, :, None], np.stack(outs, 2)
        return self.same(rows, blocks @ (np.linalg.pinv(blocks) @ rows))

    # Gradients.

    parts = property(lambda self: self.whole.parts(self.which))
    others = property(lambda self: "queries" if self.which else "keys")

    @functools.cached_property
    def lacking(self) -> tuple[int, ...]:
        """The ranks without whose parts the gradient would be right; none: ()."""
        parts = self.parts[:, self.rank] if self.which else self.parts[self.rank]
        needed = range(self.rank, self.size) if self.which else range(self.rank + 1)
        subsets = (ranks for n in range(len(needed)) for ranks in itertools.combinations(needed, n + 1))
        without = ((ranks, parts.sum(0) - parts[[*ranks]].sum(0)) for ranks in subsets)
        return next((ranks for ranks, rest in without if self.same(self.result, rest)), ())

    lacks = property(lambda self: named(self.lacking))
    of_own_queries = property(lambda self: self.which and self.gives([*self.parts.sum(1)]))

    @functools.cached_property
    def home(self) -> str:
        """Whose right gradient it is; empty: no other one's."""
        every = [*itertools.product(range(3), self.whole.ranks)]
        its = ("qkv"[i] + f" on rank {r}" for i, r in every if self.same(self.result, self.whole.right[1 + i][r]))
        return next(its, "")

    def comes_of(self, **mistake: Any) -> bool:
        return self.gives([*self.whole.parts(self.which, **mistake).sum(0 if self.which else 1)])

    divided = property(lambda self: self.size > 1 and self.same(self.result * self.size, self.want[self.rank]))
    lse_of_block = property(lambda self: any(self.comes_of(of_block=taken) for taken in ("lse", "out and lse", "own")))
    hidden_keys = property(
        lambda self: any(self.comes_of(own=n, later=later) for n in (0, self.whole.n) for later in (True, False))
    )


@dataclass(frozen=True)
class Call:
    """What one forward or backward sent. most: how many bytes it may. due: for what. seen: on this rank."""

    rank: int
    size: int
    what: str
    sent: Sent
    most: int
    due: str
    seen: Seen

    next = property(lambda self: (self.rank + 1) % self.size)
    collective = property(lambda self: {*self.sent.calls} - {"Barrier", "Ibarrier"})
    astray = property(lambda self: {*self.seen.to} - {self.next})
    receivers = property(lambda self: named(self.seen.to))
    too_many = property(lambda self: self.sent.nbytes > self.most + SLACK)
    kept = property(lambda self: self.seen.kept and named(self.seen.kept))


def _judge(case: Case, results: Sequence[Seen]) -> Finding | None:
    everyone = results[::-1] if case.turned else results
    size, ranks = len(everyone), range(len(everyone))
    names = ("the result", "the gradient of q", "the gradient of k", "the gradient of v")
    rows = zip(names, zip(*(seen.found for seen in everyone), strict=False), whole_of(case, size).right, strict=False)
    result, *gradients = [[Facts(r, case, everyone, name, got, want, 1e-9) for r in ranks] for name, got, want in rows]
    tables: list[tuple[list[Test], list[Any]]] = [([THROUGH_WORLD], result), (RESULT, result)]
    tables += [(GRADIENTS, facts) for facts in gradients]
    kinds = (
        ("forward", 2 * (size - 1), "p - 1 times k and v"),
        ("backward", 4 * size, "p times k, v and the gradients of both"),
    )
    for at, (what, times, due) in enumerate(kinds if all(seen.calls for seen in everyone) else ()):
        most = times * case.n * case.dtype.itemsize
        tables.append((MESSAGES, [Call(r, size, what, everyone[r].calls[at], most, due, everyone[r]) for r in ranks]))
    return next(filter(None, (judge(table, *facts) for table, facts in tables)), None)


# -- what is said --

REFUSED = Test(
    "refused by autograd",
    always,
    "autograd to go back from the result to q, k and v",
    one_line,
    "ring_attention returns what apply returns. backward returns one value for each argument of forward but ctx, in "
    "the same order: None, and gradients of the shapes of q, k and v.",
)
ABOUT_NUMBERS = rules(
    nan="NaN is infinity minus infinity, as for a query that sees no key, or memory that was never written.",
    rounded="Right to some digits: numbers were in a shorter dtype on their way. All of them have to be {dtype}.",
)
WHYS_RESULT: Whys = [
    *rules(overflowed="{case.why}"),
    *ABOUT_NUMBERS,
    *rules(
        reshaped="A rank returns the rows of its own queries.",
        nothing_travels="Each rank has met its own keys and values again and again: what arrives from the rank before "
        "has to take their place.",
        one_stays="Only {way} come from other ranks. Keys and values both have to travel.",
        in_turns="With each hop, keys are taken for values and values for keys.",
        later="These queries have also seen keys of {later_ranks}. They come later in the sequence, and are hidden.",
        sees_all_own="These queries see all keys of their own rank. In this block a query sees its own token and "
        "earlier ones, but no later one.",
        misses_own_token="No query has seen the key of its own token, which is visible.",
        others_causal="The keys of another rank were masked as if they were this rank's own. All tokens of an earlier "
        "rank are earlier: a query sees all of them.",
        unseen="The keys of {unseen_ranks} are missing. The result is merged from the blocks of all ranks up to this "
        "one, and each merge needs the lse of those before it.",
        other_shares="The blocks are right, but their shares in the result are not. merge computes them from the lse "
        "of a block, and that of all blocks before it.",
    ),
    chunks.ABOUT,
    "Whose keys are here after s steps, and which of them does a query see?",
]
WHYS_GRADIENT: Whys = [
    *ABOUT_NUMBERS,
    *rules(
        home="That is the right gradient of {home}. The gradients of keys come home with them, after p hops, and "
        "backward returns those of q, k and v in this order.",
        of_own_queries="These are the parts that come from this rank's own queries, for the keys of all ranks. Each "
        "part belongs to the keys that were here then, and has to travel with them.",
        lacking="What comes from the {others} of {lacks} is missing. Each query has a part in the gradients of all "
        "keys that it sees, and each of these keys in the gradient of the query.",
        divided="That is the gradient divided by the number of ranks. The loss is a sum over the ranks, so the parts "
        "of the gradient are added up, and not averaged.",
        lse_of_block="A block's own lse was taken. A weight is a share of the exponentials of all keys, as in the lse "
        "that forward has merged last.",
        hidden_keys="Queries and keys that are hidden from each other have a part in it: backward needs the masks of "
        "forward.",
    ),
    chunks.ABOUT,
    "block_gradients takes a block's own mask, and out and lse of all keys. The gradient of a key is a sum over all "
    "queries that see it, whichever rank has them.",
]
RESULT = [
    *tests(
        nothing=("{place}", "no tensor", "forward returns a tensor, and ring_attention returns what apply returns.")
    ),
    chunks.values(WHYS_RESULT),
    *tests(
        overwritten=(
            "results and gradients to keep their values",
            "other values after another call",
            chunks.OVERWRITTEN,
        ),
    ),
]
GRADIENTS = [
    *tests(nothing=("{place}", "no tensor", "backward returns None for comm, and then the gradients of q, k and v.")),
    chunks.values(WHYS_GRADIENT),
]
IN_RING = "messages from rank {rank} to rank {next} alone, with {size} ranks"
MESSAGES = [
    *tests(
        collective=(
            IN_RING,
            "{sent.by}, in {what}",
            "No collective call is needed. By an all-gather, each rank would hold the keys and values of the whole "
            "sequence at once.",
        )
    ),
    PICKLED,
    *tests(
        astray=(
            IN_RING,
            "messages to {receivers}",
            "In a ring each rank only sends to the next one. It passes on what came from the rank before.",
        ),
        too_many=(
            "at most {most} bytes to be sent in {what}, by rank {rank} of {size}",
            "{sent.by}",
            "Right, but these are more bytes than {due} have.",
        ),
        kept=(
            "ctx to hold nothing that came from other ranks, on rank {rank} of {size}",
            "keys or values of {kept}",
            "What comes from other ranks does not stay: a rank has room for its own part of the sequence. In backward, "
            "keys and values travel once more.",
        ),
    ),
]
