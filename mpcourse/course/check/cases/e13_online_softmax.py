"""What e13_online_softmax is asked: each function alone, on two blocks of keys, then a sequence in uneven blocks."""

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx.experimental.symbolic_shapes  # what a backward that is given gradients imports: before the clock starts
from torch import Tensor

from mpcourse.course.check.answer import Answer
from mpcourse.course.check.facts.calls import ROUNDED, Called, one_by_one, programs, returned
from mpcourse.course.check.facts.rounding import shorter_dtype
from mpcourse.course.check.rules import Rule, Table, Test, demand, rules, tests
from mpcourse.course.check.seeding import drawing
from mpcourse.course.check.status_page import HasStatusPage
from mpcourse.course.check.wrong import first_difference

BLOCK, MERGE, GRADIENTS = "block", "merge", "block_gradients"
RESULTS = {BLOCK: ("out", "lse"), MERGE: ("out", "lse"), GRADIENTS: ("of_q", "of_k", "of_v")}
STUMBLES = (RuntimeError, LookupError, ValueError, TypeError, ArithmeticError)
NEAR = 1e-9  # absolute and relative: scores of 3000 bring errors of 1e-12
Tensors = Sequence[Tensor]

# -- inputs --


@dataclass(frozen=True)
class Setting:
    """Queries, and the keys of two blocks. first: keys of the first. visible: its rows are queries, its columns keys.

    score: is added to the scores of all keys, or subtracted: if mixed, every other query and the second block have the
    other sign. hidden: is added to the score of key 0. zeros: the values of the first block are 0. why: what is
    special, for an answer that was right until then.
    """

    what: str
    first: int
    visible: Sequence[Sequence[int]]
    score: float = 0.0
    mixed: bool = False
    hidden: float = 0.0
    zeros: bool = False
    why: str = ""


@dataclass(frozen=True)
class Case:
    """A call of the function `name` with `given`, which has to return `want`. what, why: as in Setting."""

    name: str
    given: Tensors
    want: Tensors
    what: str
    why: str


SOME = [[0, 1, 0, 1, 1, 0, 1], [0, 1, 1, 0, 0, 1, 0], [1, 0, 0, 1, 1, 1, 1], [0, 0, 1, 1, 0, 0, 0]]
NONE = [[0, 0, 0, 1, 1], [1, 0, 1, 0, 0], [0, 0, 0, 0, 0], [1, 1, 0, 0, 1]]
SETTINGS = (
    Setting("1 query that sees all keys", 1, [[1, 1]]),
    Setting("3 queries that see all keys", 4, [[1] * 6] * 3),
    Setting("4 queries that see some keys", 3, SOME),
    Setting(
        "scores of about 3000", 3, SOME, score=3000,
        why="No float64 holds exp(3000). Only differences count: subtract first, and then take the exponential.",
    ),
    Setting(
        "scores of about -3000", 3, SOME, score=-3000,
        why="In float64 exp(-3000) is 0, and so is a sum of such numbers. Only differences count: subtract something "
        "as small as these scores first, and then take the exponential.",
    ),
    Setting(
        "scores of about 3000 and about -3000", 3, SOME, score=3000, mixed=True,
        why="Scores of 3000 and -3000 meet here. What you subtract is to be each query's own largest number: then no "
        "exponential is above 1, and not all of them are 0.",
    ),
    Setting(
        "a hidden key with a score of 4000", 3, [[0, 1, 1, 0, 1], [0, 1, 0, 1, 1]], hidden=4000,
        why="The largest score is that of a key that no query sees. Hide it before you use scores: if you subtract the "
        "largest of all scores, the other exponentials are 0, and infinity times 0 is NaN.",
    ),
    Setting(
        "a block whose values are all 0", 3, SOME, zeros=True,
        why="A result of 0 does not mean that a query has seen no key. Only its lse says so, by minus infinity.",
    ),
    Setting(
        "queries that see no key of a block, or of both", 3, NONE,
        why="A query that sees no key has an empty sum, which is 0. Its row of out is 0 and its lse is minus infinity, "
        "also if you hide keys by a very low score. Minus infinity minus itself is NaN, and so is 0 / 0.",
    ),
)  # fmt: skip


def attention(scores: Tensor, v: Tensor, visible: Tensor) -> Tensors:
    """Return results and lse of all keys at once, by torch's own softmax; autograd can go through it."""
    weights = scores.masked_fill(~visible, -1e30).softmax(1) * visible  # without any key: 0, and no NaN in backward
    return weights @ v, scores.masked_fill(~visible, -math.inf).logsumexp(1)


def gradients(gradient: Tensor, q: Tensor, k: Tensor, v: Tensor, visible: Tensor, sizes: list[int]) -> Tensors:
    """Return, by autograd, each block's part of the gradient of q, then the gradients of k and v. sizes: of blocks."""
    *copies, k, v = (x.clone().requires_grad_() for x in (*[q] * len(sizes), k, v))
    scores = torch.cat([own @ keys.T for own, keys in zip(copies, k.split(sizes), strict=True)], 1)
    return torch.autograd.grad(attention(scores / math.sqrt(q.shape[1]), v, visible)[0], [*copies, k, v], gradient)


def _drawn(visible: Tensor, draw: torch.Generator) -> Tensors:
    """Return the gradient of the results, q, k, and v: 5 numbers for a query or a key, 3 for a value."""
    (n, m), randn = visible.shape, functools.partial(torch.randn, generator=draw, dtype=torch.float64)
    return randn(n, 3), randn(n, 5), randn(m, 5), randn(m, 3)


def _cases(setting: Setting, draw: torch.Generator) -> list[Case]:
    """Return the case of each function."""
    visible, n = torch.tensor(setting.visible, dtype=torch.bool), setting.first
    gradient, q, k, v = _drawn(visible, draw)
    if setting.score or setting.hidden:  # their part of each score comes from the first column
        q[:, 0] = 50
        k[:, 0] += setting.score
        k[0, 0] += setting.hidden
        k[:, 0] *= math.sqrt(5) / 50
    if setting.mixed:
        q[1::2, 0] *= -1
        k[n:, 0] *= -1
    if setting.zeros:
        v[:n] = 0
    whole = q @ k.T / math.sqrt(5), v, visible
    first, second = (attention(whole[0][:, own], v[own], visible[:, own]) for own in (slice(n), slice(n, None)))
    of_q, _, of_k, of_v = gradients(gradient, q, k, v, visible, [n, len(k) - n])
    block = q, k[:n], v[:n], visible[:, :n]
    calls = [
        (BLOCK, block, first),
        (MERGE, (*first, *second), attention(*whole)),
        (GRADIENTS, (gradient, *block, *attention(*whole)), (of_q, of_k[:n], of_v[:n])),
    ]
    return [Case(*call, setting.what, setting.why) for call in calls if call[0] != MERGE or not setting.hidden]


def check(answer: Answer, comm: HasStatusPage) -> None:
    """Check the answer; every rank may call this, and ranks exchange nothing."""
    draw = torch.Generator().manual_seed(drawing().getrandbits(60))
    every = [case for setting in SETTINGS for case in _cases(setting, draw)]
    every.sort(key=lambda case: list(RESULTS).index(case.name))
    checks = [functools.partial(_one, case=case, every=every) for case in every]
    one_by_one(answer, [*checks, functools.partial(_together, seed=draw.initial_seed())])


# -- observation --


def _call(answer: Answer, case: Case) -> Any:
    return answer.call(case.name, *(x.clone() for x in case.given))


def _one(answer: Answer, case: Case, every: list[Case]) -> None:
    got = returned(lambda: _call(answer, case), *(STUMBLES if case.why else ()))
    demand(TESTS[case.name], Facts(answer, (case,), got, every))


@dataclass(frozen=True)
class Facts(Called):
    """What a call returned, or the error that it raised. every: all cases; plain ones tell misconceptions apart."""

    every: list[Case]

    call = staticmethod(_call)
    right = staticmethod(lambda case: case.want)
    case = property(lambda self: self.given[0])
    probes = property(lambda self: [(c,) for c in self.every if c.name == self.case.name and not c.why])
    names = property(lambda self: RESULTS[self.case.name])
    no_tensors = property(lambda self: not self.formed(self.got))
    tuple_of = property(lambda self: ", ".join(self.names))

    def formed(self, got: Any) -> bool:
        return isinstance(got, tuple | list) and [isinstance(x, Tensor) for x in got] == [True] * len(self.names)

    @functools.cached_property
    def wrong(self) -> tuple[int, str, str] | None:
        """Which result is wrong, what was asked and what came. The last is first, because it depends on less."""
        for part in reversed(range(len(self.names))):
            what = f"{self.names[part]} from {self.case.name}, for {self.case.what},"
            if difference := first_difference(self.got[part], self.want[part], what, NEAR, NEAR):
                return part, *difference
        return None

    part = property(lambda self: self.wrong[0])
    value = property(lambda self: self.got[self.part])
    retyped = property(lambda self: self.value.dtype != torch.float64)
    column = property(lambda self: self.value.shape == (*self.want[self.part].shape, 1))
    in_another_place = property(lambda self: any(_close(self.value, want) for want in self.want))
    special = property(lambda self: self.case.why)
    is_nan = property(lambda self: self.value.isnan().any())

    def same(self, got: Any, value: Sequence[Tensor | None]) -> bool:
        return self.formed(got) and _close(got[self.part], value[self.part])

    @property
    def shorter(self) -> str:
        seen = [(got, given[0].want) for given, got in self.seen if self.formed(got) and not given[0].why]
        rows = [torch.cat([results[self.part].detach().flatten() for results in xs]) for xs in zip(*seen, strict=True)]
        return shorter_dtype(rows[0], rows[1]) if rows else ""


def _close(a: Tensor, b: Tensor | None) -> bool:
    return b is not None and a.shape == b.shape and torch.allclose(a.double(), b, NEAR, NEAR, equal_nan=True)


@dataclass(frozen=True)
class Together:
    """A sequence in blocks: each result's name, what the functions gave and what all keys at once give; or an error."""

    got: Any

    failed = property(lambda self: isinstance(self.got, Exception))
    shown = property(lambda self: f"{type(self.got).__name__}: {self.got}")

    @functools.cached_property
    def difference(self) -> tuple[str, str] | None:
        pairs = (first_difference(got, want, what, NEAR, NEAR) for what, got, want in self.got)
        return next(filter(None, pairs), None)


def _together(answer: Answer, seed: int) -> None:
    demand(TOGETHER, Together(returned(lambda: _sequence(answer, seed), *STUMBLES)))


def _sequence(answer: Answer, seed: int) -> list[tuple[str, Tensor, Tensor]]:
    """Compute causal attention in blocks, forward and backward."""
    visible, sizes = torch.ones(13, 13, dtype=torch.bool).tril(), [4, 1, 6, 2]
    gradient, q, k, v = _drawn(visible, torch.Generator().manual_seed(seed))
    seen = (part.contiguous() for part in visible.split(sizes, 1))
    blocks = list(zip(k.split(sizes), v.split(sizes), seen, strict=True))
    parts = [answer.call(BLOCK, q, *block) for block in blocks]

    def merged(*results: Tensors) -> Tensors:
        return functools.reduce(lambda a, b: answer.call(MERGE, *a, *b), results)

    ways = {
        "from the first to the last": merged(*parts),
        "from the last to the first": merged(*reversed(parts)),
        "in pairs": merged(merged(*parts[:2]), merged(*parts[2:])),
    }
    of_q, *rest = zip(*(answer.call(GRADIENTS, gradient, q, *b, *ways["in pairs"]) for b in blocks), strict=True)
    want = attention(q @ k.T / math.sqrt(5), v, visible)[0]
    rows = [(f"the result of 4 blocks, merged {way}", got, want) for way, (got, _) in ways.items()]
    pairs = zip("qkv", (sum(of_q), *map(torch.cat, rest)), gradients(gradient, q, k, v, visible, [13]), strict=True)
    return rows + [(f"the gradient of {x}, from 4 blocks", *pair) for x, *pair in pairs]


# -- what is said: misconceptions, each with what a program with it returns --

Of = Callable[..., Tensor]
Way = Callable[[Case], Sequence[Tensor | None]]  # None: the misconception says nothing of this result
Ways = dict[str, Way | list[Way]]  # by what is said
_sum = functools.partial(torch.sum, dim=1, keepdim=True)


def _hide(s: Tensor, visible: Tensor) -> Tensor:
    return s.masked_fill(~visible, -math.inf)


def _above(s: Tensor) -> Tensor:
    """Return exponentials; the largest of each query is 1."""
    return (s - s.amax(1, keepdim=True)).exp()


def _block(
    root: Of | float = 5**0.5,
    hide: Of = _hide,
    weigh: Of = lambda s, see: s.softmax(1),
    log: Of = lambda s: s.logsumexp(1),
) -> Way:
    """Return a way to compute a block's out and lse; by default the right one. root: divides q . k, perhaps by k."""

    def way(case: Case) -> Tensors:
        q, k, v, visible = case.given
        s = hide(q @ k.T / (root(q, k) if callable(root) else root), visible)
        return weigh(s, visible) @ v, log(s)

    return way


OF_BLOCK: Ways = {
    "Those are the scores q . k, which are still to be divided by sqrt(d).": _block(1),
    "Scores are divided by the root of d. There they are divided by d itself.": _block(5),
    "d is the length of a query, q.shape[1]. There the root of another number divides the scores.": [
        _block(lambda q, k: len(q) ** 0.5),
        _block(lambda q, k: len(k) ** 0.5),
        _block(3**0.5),
    ],
    "Keys that a query does not see count there. visible says which ones it sees.": [
        _block(hide=lambda s, see: s),
        _block(hide=lambda s, see: s, weigh=lambda s, see: s.softmax(1) * see),
    ],
    "visible is True where a query sees a key. There the other keys count.": _block(hide=lambda s, see: _hide(s, ~see)),
    "A score of 0 hides no key, because exp(0) is 1.": _block(hide=lambda s, see: s * see),
    "The sums go over the keys of one query. There they go over the queries.": (
        _block(weigh=lambda s, see: s.softmax(0), log=lambda s: s.logsumexp(0))
    ),
    "The sum of the exponentials does not divide the result there.": [
        _block(weigh=lambda s, see: s.exp()),
        _block(weigh=lambda s, see: _above(s)),
    ],
    "That is the sum of the exponentials. lse is its logarithm.": _block(log=lambda s: s.exp().sum(1)),
    "That is the largest score alone. lse has the exponentials of all scores.": _block(log=lambda s: s.amax(1)),
    "The score that was subtracted before the exponentials is missing. Add it to their logarithm again.": (
        _block(log=lambda s: _above(s).sum(1).log())
    ),
}


def _logged(total: Of) -> Way:
    """Return a way to merge the lse of two sets."""
    return lambda case: (None, total(case.given[1], case.given[3]))


def _mixed(weigh: Callable[[Tensor, Tensor], Tensors]) -> Way:
    """Return a way to merge the results of two sets. weigh: their weights, from the lse of both."""

    def way(case: Case) -> tuple[Tensor, None]:
        out, lse, other, other_lse = case.given
        one, two = weigh(lse[:, None], other_lse[:, None])
        return one * out + two * other, None

    return way


def _share(a: Tensor, b: Tensor) -> Tensor:
    return torch.sigmoid(a - b)


OF_MERGE: Ways = {
    "That is the sum of both lse. The exponentials are added, and not their logarithms.": _logged(torch.add),
    "That is the larger lse of the two. The keys of both sets count.": _logged(torch.maximum),
    "That is the lse of one set. The keys of both sets count.": [_logged(lambda a, b: a), _logged(lambda a, b: b)],
    "What was subtracted before the exponentials is missing. Add it to the logarithm again.": [
        _logged(lambda a, b: torch.logaddexp(a, b) - torch.maximum(a, b)),
        _logged(lambda a, b: torch.logaddexp(a, b) - a),
    ],
    "That is the mean of both results. The larger lse has the larger weight.": _mixed(
        lambda a, b: (a**0 / 2, b**0 / 2)
    ),
    "There both results are added as they are. The result of both is a mean, too.": _mixed(lambda a, b: (a**0, b**0)),
    "There a set has its lse as its weight, not exp(lse).": _mixed(lambda a, b: (a / (a + b), b / (a + b))),
    "There each result has the weight of the other set.": _mixed(lambda a, b: (_share(b, a), _share(a, b))),
    "The two weights do not add up to 1 there. Divide by their sum.": [
        _mixed(lambda a, b: ((a - torch.maximum(a, b)).exp(), (b - torch.maximum(a, b)).exp())),
        _mixed(lambda a, b: (a.exp(), b.exp())),
    ],
    "One of the two results keeps its full weight there. Both have less weight than before.": [
        _mixed(lambda a, b: (a**0, _share(b, a))),
        _mixed(lambda a, b: (_share(a, b), b**0)),
    ],
}


def _backward(
    weigh: Of = lambda s, see, lse: (_hide(s, see) - lse).exp(),
    mean: Of = lambda p, of_p, dot: _sum(dot),
    root: float = 5,
) -> Way:
    """Return a way to compute gradients; by default the right one, where each query sees a key.

    weigh: the weights p, from scores, visible and lse. mean: what is subtracted from the gradients of p, by p, these
    gradients, and gradient * out. root: what the gradients of scores are divided by, squared.
    """

    def way(case: Case) -> Tensors:
        gradient, q, k, v, visible, out, lse = case.given
        p, of_p = weigh(q @ k.T / math.sqrt(5), visible, lse[:, None]), gradient @ v.T
        of_s = p * (of_p - mean(p, of_p, gradient * out)) / math.sqrt(root)
        return of_s @ k, of_s.T @ q, p.T @ gradient

    return way


OF_GRADIENTS: Ways = {
    "The scores are divided by sqrt(d) here, too.": _backward(lambda s, see, lse: (_hide(s, see) * 5**0.5 - lse).exp()),
    "There the weights are a softmax over the keys of this block. Take the lse that is given: all keys count.": (
        _backward(lambda s, see, lse: _hide(s, see).softmax(1))
    ),
    "Keys that a query does not see have a weight there.": _backward(lambda s, see, lse: (s - lse).exp()),
    "There lse divides the exponentials, not exp(lse).": _backward(lambda s, see, lse: _hide(s, see).exp() / lse),
    "A term is missing there: the weights add up to 1, so that the others shrink if the score of one key grows.": (
        _backward(mean=lambda p, of_p, dot: 0 * of_p)
    ),
    "What is subtracted comes from this block alone. How do gradient and out give the mean over the keys of all?": [
        _backward(mean=lambda p, of_p, dot: _sum(p * of_p)),
        _backward(mean=lambda p, of_p, dot: _sum(p * of_p) / _sum(p)),
    ],
    "There the mean over all keys is added. It is subtracted.": _backward(mean=lambda p, of_p, dot: -_sum(dot)),
    "gradient * out is averaged over its columns there. Its sum is needed, for each query.": (
        _backward(mean=lambda p, of_p, dot: _sum(dot) / 3)
    ),
    "A score is q . k / sqrt(d): its gradients with respect to q and k have this factor, too.": _backward(root=1),
    "The gradient is divided by sqrt(d) twice there.": _backward(root=25),
}


def _tests(table: Ways, otherwise: str) -> list[Test]:
    """Return the tests of one function, whose misconceptions are in the table."""
    whys: list[Rule | Table | str] = [
        *rules(
            retyped="The results are float64. A new tensor is float32 unless torch is given a dtype.",
            column="keepdim=True leaves a dimension of 1. There is one lse for each query.",
            in_another_place="That is another one of the results: return them in their order.",
        ),
        ROUNDED,
        *rules(special="{case.why}"),  # what follows would have made plain cases wrong
        programs(table),
        *rules(is_nan="NaN is 0 / 0, 0 times infinity, or infinity minus infinity.", otherwise=otherwise),
    ]
    missing = "The caller needs all of these results, and each as a tensor of torch."
    return tests(
        failed=("{case.name} to work with {case.what}", "{shown}", "{case.why}"),
        no_tensors=("{case.name} to return ({tuple_of}), all of them tensors", "{shown}", missing),
        wrong=("{wrong[1]}", "{wrong[2]}", whys),
    )


VALUE = "Take one query that sees one key: its result is the value of this key, and its lse is the score."
SETS = "Take one query, and two sets of one key each: each lse is a score, and each result is a value."
WHOLE = "Take one block that has all keys. There plain attention gives the same three gradients, by autograd."
TESTS = {BLOCK: _tests(OF_BLOCK, VALUE), MERGE: _tests(OF_MERGE, SETS), GRADIENTS: _tests(OF_GRADIENTS, WHOLE)}
AGAIN = (
    "Each function alone was right. Here the results of several calls are needed at once: does a call keep something "
    "for the next one, or write into what an earlier call returned?"
)
TOGETHER = tests(
    failed=("the three functions to work together on 4 blocks", "{shown}", AGAIN),
    difference=("{difference[0]}", "{difference[1]}", AGAIN),
)
