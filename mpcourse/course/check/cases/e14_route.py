"""What e14_route is asked: the experts of each token, the line in which choices find room, and the balance loss."""

import functools
import itertools
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from numbers import Integral
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
from mpcourse.course.check.wrong import first_difference, short

ROUTE, ROOM, LOSS = "route", "room_for", "balance_loss"
GRADIENT = "gradient"  # of logits, in backward from the weights or from the loss
RESULTS = {ROUTE: ("chosen", "weights", "kept"), ROOM: ("room",), LOSS: ("loss",)}
ORDER = ("chosen", "weights", "loss", GRADIENT, "kept", "room")  # what is looked at first
STUMBLES = (RuntimeError, LookupError, ValueError, TypeError)
NEAR = 1e-11  # absolute and relative: of the loss, a single number, float32 may round 9 digits rightly by chance
Of = Callable[..., Any]


class Parts(dict[str, Any]):
    """Results by name, where all that a function has to return is there and has its type."""


# -- the oracle: loops over choices, and autograd --


def _route(logits: Tensor, k: int, room: int | None) -> Parts:
    x = logits.clone().requires_grad_()
    rows = [sorted(range(len(row)), key=row.__getitem__, reverse=True)[:k] for row in x.tolist()]
    chosen = torch.tensor(rows)
    weights = x.softmax(1).gather(1, chosen)
    kept = _given_out(logits, k, room)
    return Parts(chosen=chosen, weights=weights.detach(), gradient=_gradient(weights, x), kept=kept)


def _given_out(x: Tensor, k: int, room: Any, turn: Of = lambda t, c, w: (c, t), whose: Of = lambda e, c: e) -> Tensor:
    """Return which choices find room.

    turn: the key by which the line is sorted, from a token, the number of its choice, and its weight. whose: what has
    `room` of its own, from an expert and the number of a choice.
    """
    weights, chosen = x.softmax(1).topk(k)
    kept, taken = torch.zeros_like(chosen, dtype=torch.bool), Counter[Any]()
    for at in sorted(itertools.product(range(len(x)), range(k)), key=lambda at: turn(*at, weights[at].item())):
        own = whose(int(chosen[at]), at[1])
        kept[at] = room is None or taken[own] < room
        taken[own] += int(kept[at])
    return kept


def _room_for(tokens: int, experts: int, k: int, factor: float) -> Parts:
    return Parts(room=math.ceil(factor * tokens * k / experts))


def _balance_loss(logits: Tensor, chosen: Tensor) -> Parts:
    x = logits.clone().requires_grad_()
    terms = [(chosen == e).double().mean() * x.softmax(1)[:, e].mean() for e in range(x.shape[1])]
    loss = x.shape[1] * torch.stack(terms).sum()
    return Parts(loss=loss.detach(), gradient=_gradient(loss, x))


ORACLES: dict[str, Callable[..., Parts]] = {ROUTE: _route, ROOM: _room_for, LOSS: _balance_loss}


def _gradient(result: Tensor, x: Tensor) -> Any:
    """Return the gradient of x in backward from a result whose elements count 1, 2, 3, ...; or backward's error."""
    factors = torch.arange(1, result.numel() + 1).to(result.dtype).view(result.shape)
    return returned(lambda: torch.autograd.grad(result, x, factors, allow_unused=True)[0], RuntimeError)


# -- inputs --


@dataclass(frozen=True)
class Case:
    """A call of the function `name` with `given`. why: what is special, for an answer that was right until then."""

    name: str
    given: Sequence[Any]
    what: str
    why: str = ""


FEW = (
    "Some experts are chosen by no token here, and their share is 0. torch.bincount and one_hot end with the largest "
    "number that is there, unless they are given minlength or num_classes. unique leaves out all that is not there."
)
FACTORS = [(10, 4, 2, 1.25), (10, 4, 1, 1.25), (64, 8, 2, 1.0), (100, 8, 2, 1.25), (7, 8, 1, 1.0), (10, 8, 1, 4.0),
           (9, 2, 1, 1.0), (5, 2, 2, 4.0), (1000, 7, 2, 1.5), (30, 7, 3, 0.5)]  # fmt: skip
SMALL = torch.tensor([[0, 1, 2], [1, 0, 2], [0, 2, 1], [0, 1, 2], [2, 0, 1]])  # experts of 5 tokens


def _cases() -> list[Case]:
    """Return all cases; in the first ones of each function, most mistakes show."""
    numbers = drawing()
    generator = torch.Generator().manual_seed(numbers.getrandbits(60))
    randn = functools.partial(torch.randn, generator=generator, dtype=torch.float64)

    def route(tokens: int, experts: int, k: int, room: int | None = None) -> Case:
        what = f"{tokens} tokens, {experts} experts, k = {k} and room = {room}"
        return Case(ROUTE, (randn(tokens, experts) - 0.5 * torch.arange(experts), k, room), what)

    def loss(logits: Tensor, k: int, what: str = "", why: str = "") -> Case:
        what = what or "{} tokens, {} experts and k = {}".format(*logits.shape, k)
        return Case(LOSS, (logits, logits.topk(k)[1]), what, why)

    small = randn(5, 3).sort(1, descending=True)[0].gather(1, SMALL.argsort(1))
    free = [route(*sizes) for sizes in ((6, 5, 2), (3, 4, 1), (7, 4, 4))]
    full = [route(*sizes) for sizes in ((12, 4, 2, 4), (16, 6, 3, 5), (9, 3, 1, 2), (8, 5, 5, 3), (6, 3, 2, 50))]
    e, t = numbers.randint(3, 9), numbers.randint(2, 9)
    factors = [*FACTORS, (e * t + numbers.randint(1, e - 1), e, 1, 1.0)]
    even = randn(4, 4) / 2 + 5 * torch.eye(4) + 9 * torch.eye(4).roll(1, 0)
    return [
        *free,
        Case(ROUTE, (small, 2, 2), f"tokens that choose {SMALL[:, :2].tolist()}, and room = 2"),
        *full,
        *(Case(ROOM, given, "{} tokens, {} experts, k = {} and factor = {}".format(*given)) for given in factors),
        *(
            loss(randn(*sizes) / 3 + 3 * torch.eye(*sizes), k)
            for *sizes, k in ((7, 4, 2), (5, 3, 1), (6, 5, 3), (3, 4, 4))
        ),
        loss(even, 2, "experts that are chosen equally often"),
        loss(randn(5, 6) - 12 * torch.tensor([1, 0, 0, 1, 0, 1]), 2, "experts that are not all chosen", FEW),
    ]


def check(answer: Answer, comm: HasStatusPage) -> None:
    """Check the answer; every rank may call this, and ranks exchange nothing."""
    every = _cases()
    one_by_one(answer, [functools.partial(_one, case=case, every=every) for case in every])


# -- observation --


def _one(answer: Answer, case: Case, every: list[Case]) -> None:
    got = returned(lambda: _call(answer, case.name, case.given), *(STUMBLES if case.why else ()))
    demand(TESTS[case.name], Facts(answer, tuple(case.given), got, case, every))


def _call(answer: Answer, name: str, given: Sequence[Any]) -> Any:
    """Return the parts of what a call returned, or that itself. Backward's error is in place of a gradient."""
    given = [x.clone() if isinstance(x, Tensor) else x for x in given]
    if name != ROOM:
        given[0].requires_grad_()
    value = answer.call(name, *given)
    row = value if name == ROUTE and isinstance(value, tuple | list) else [value]
    if [isinstance(part, Integral if name == ROOM else Tensor) for part in row] != [True] * len(RESULTS[name]):
        return value
    parts = Parts(zip(RESULTS[name], row, strict=True))
    for result in (parts[part] for part in ("weights", "loss") if part in parts):
        parts[GRADIENT] = _gradient(result, given[0]) if result.requires_grad else None
    return parts


@dataclass(frozen=True)
class Facts(Called):
    """What a call returned, or the error that it raised. every: all cases; plain ones tell misconceptions apart."""

    case: Case
    every: list[Case]

    call = property(lambda self: lambda answer, *given: _call(answer, self.case.name, given))
    same = property(lambda self: lambda got, value: _same(self.of(got), value))
    right = property(lambda self: ORACLES[self.case.name])
    probes = property(lambda self: [c.given for c in self.every if c.name == self.case.name and not c.why])
    malformed = property(lambda self: not isinstance(self.got, Parts))

    @functools.cached_property
    def wrong(self) -> tuple[str, str, str] | None:
        """Which result is wrong, what was asked, and what came."""
        for part in (part for part in ORDER if part in self.want):
            got, place = self.got[part], f"{self.case.name}, for {self.case.what}"
            if isinstance(got, Exception):
                return part, f"backward from {place}", short(str(got), 150)
            what = f"{'the gradient of logits' if part == GRADIENT else part} from {place},"
            if difference := first_difference(got, self.want[part], what, NEAR, NEAR):
                return part, *difference
        return None

    def of(self, got: Any) -> Any:
        """Return the part that is wrong, of what a call returned."""
        return got[self.wrong[0]] if self.wrong and isinstance(got, Parts) else None

    value = property(lambda self: self.of(self.got))
    wanted = property(lambda self: self.of(self.want))
    of_gradient = property(lambda self: self.wrong[0] == GRADIENT)
    of_kept = property(lambda self: self.wrong[0] == "kept")
    stopped = property(lambda self: isinstance(self.value, Exception))
    in_place = property(lambda self: self.stopped and "inplace" in str(self.value))
    cut = property(lambda self: self.value is None)
    reshaped = property(lambda self: self.value.shape != self.wanted.shape)
    in_another_place = property(lambda self: any(_same(self.value, want) for want in self.want.values()))
    retyped = property(lambda self: self.value.dtype != self.wanted.dtype)
    drawn = property(lambda self: not _same(self.again(*self.given), self.value))
    right_without_room = property(lambda self: _same(self.again(*self.given[:2], None), self.wanted))
    special = property(lambda self: self.case.why)

    def again(self, *given: Any) -> Any:
        return self.of(self.call(self.answer, *given))

    @functools.cached_property
    def pairs(self) -> list[tuple[Any, Any]]:
        """This part and the right one, of all calls that were seen and gave a tensor of the right dtype."""
        pairs = [(self.of(got), self.of(self.right(*given))) for given, got in self.seen]
        return [(a, b) for a, b in pairs if isinstance(a, Tensor) and a.dtype == b.dtype]

    reordered = property(lambda self: all(_same(a.sort()[0], b.sort()[0]) for a, b in self.pairs))

    @property
    def shorter(self) -> str:
        if self.value.dtype != torch.float64:
            return ""
        got, want = (torch.cat([x.detach().flatten() for x in xs]) for xs in zip(*self.pairs, strict=True))
        return shorter_dtype(got, want)


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return a.shape == b.shape and a.dtype == b.dtype and torch.allclose(a, b, NEAR, NEAR)
    return isinstance(a, Integral) and a == b


# -- what is said: misconceptions, each with what a program with it returns; dtypes tell the parts of a result apart --


def _best(scores: Of) -> list[Of]:
    """Return ways to choose experts, and to weigh the right ones. scores: of logits."""
    return [lambda x, k, room: scores(x).topk(k)[1], lambda x, k, room: scores(x).gather(1, x.topk(k)[1])]


def _kept(after: Of = lambda kept: kept, more: int = 0, **line: Of) -> Of:
    """Return a way to give out room, by default the right one. after: changes the result. line: as in _given_out."""
    return lambda x, k, room: _given_out(x, k, None) if room is None else after(_given_out(x, k, room + more, **line))


OF_ROUTE = {
    "Those are the least probable experts: argsort puts small numbers first.": lambda x, k, room: x.argsort(1)[:, :k],
    "There the softmax goes over the tokens. A token's probabilities add up to 1.": _best(lambda x: x.softmax(0)),
    "Those are logits. The weights are probabilities, so the softmax over all experts comes first.": _best(lambda x: x),
    "That is the sigmoid of each logit alone. The probabilities of a token are a softmax.": _best(torch.sigmoid),
    "There the weights of a token add up to 1. Its probabilities add up to 1 over all experts, chosen or not.": (
        lambda x, k, room: x.topk(k)[0].softmax(1)
    ),
    "There all choices of a token come before those of the next one. First choices of all tokens come first.": (
        _kept(turn=lambda t, c, w: t)
    ),
    "There an expert has as much room again for second choices. All choices share it.": (
        _kept(whose=lambda e, c: (e, c))
    ),
    "There an expert takes one choice more than `room`. Does it count from 0 or from 1?": _kept(more=1),
    "There an expert takes one choice less than `room`. Does it count from 0 or from 1?": _kept(more=-1),
    "There the more probable choices come first. The line does not depend on probabilities.": [
        _kept(turn=lambda t, c, w: -w),
        _kept(turn=lambda t, c, w: (c, -w)),
    ],
    "There kept is True for the choices that are dropped.": _kept(torch.logical_not),
    "There no choice is dropped, though some experts have more choices than room.": _kept(torch.ones_like),
    "There a token loses all its choices if one of them finds no room. Each choice is kept or dropped alone.": (
        _kept(lambda kept: kept.all(1, keepdim=True).expand_as(kept))
    ),
    "These values are right, but in another place. They have the order of the line, with first choices in front: view "
    "them as (k, tokens), and transpose.": _kept(lambda kept: kept.T.reshape(kept.shape)),
}
OF_ROOM = {
    "Round up. There the number is rounded down, or to the nearest int.": [
        lambda t, e, k, f: int(f * t * k / e),
        lambda t, e, k, f: round(f * t * k / e),
    ],
    "There 1 is added to whole numbers, too. They need no rounding.": lambda t, e, k, f: int(f * t * k / e) + 1,
    "Each token makes k choices. There it makes one.": lambda t, e, k, f: math.ceil(f * t / e),
    "The factor is missing there.": lambda t, e, k, f: math.ceil(t * k / e),
    "There the share is rounded, and then multiplied. Round once, at the end.": [
        lambda t, e, k, f: math.ceil(f * math.ceil(t * k / e)),
        lambda t, e, k, f: math.ceil(f * (t * k // e)),
    ],
    "There it is never more than `tokens`. Here it may be.": lambda t, e, k, f: min(t, math.ceil(f * t * k / e)),
    "There it is never less than 4, as in some libraries.": lambda t, e, k, f: max(4, math.ceil(f * t * k / e)),
}


def _lost(share: Of = lambda hot, p: hot.mean((0, 1)), mean: Of = lambda hot, p: p.mean(0)) -> Of:
    """Return a way to compute the loss, by default the right one. hot: choices, one-hot (tokens, k, experts)."""

    def way(x: Tensor, chosen: Tensor) -> Tensor:
        hot, p = torch.nn.functional.one_hot(chosen, x.shape[1]).double(), x.softmax(1)
        return x.shape[1] * (share(hot, p) * mean(hot, p)).sum()

    return way


FLOAT32 = "There the shares are float32. torch divides integers in float32, so make the counts float64 first."
OF_LOSS = {
    "With equal shares the loss is 1, and there it is less. Multiply the sum over the experts by their number.": [
        _lost(lambda hot, p: hot.mean((0, 1)) / p.shape[1]),
        _lost(lambda hot, p: hot.mean((0, 1)) / p.shape[1] ** 2),
    ],
    "There the shares add up to more than 1. Divide the counts by the number of all choices.": [
        _lost(lambda hot, p: hot.sum(1).mean(0)),
        _lost(lambda hot, p: hot.sum((0, 1))),
    ],
    "There only first choices count. All k choices of a token do.": _lost(lambda hot, p: hot[:, 0].mean(0)),
    "There mean probabilities are multiplied by themselves. Shares come from counts.": _lost(lambda hot, p: p.mean(0)),
    "There a choice counts as much as its probability in the shares. Each choice counts 1.": [
        _lost(lambda hot, p: (hot.sum(1) * p).mean(0)),
        _lost(lambda hot, p: (hot.sum(1) * p).sum(0) / (hot.sum(1) * p).sum()),
    ],
    "There the probabilities of all tokens are added up. Take their mean.": _lost(mean=lambda hot, p: p.sum(0)),
    "There only the tokens that have chosen an expert count in its mean. All tokens do.": [
        _lost(mean=lambda hot, p: (hot.sum(1) * p).mean(0)),
        _lost(mean=lambda hot, p: (hot.sum(1) * p).sum(0) / hot.sum((0, 1)).clamp(min=1)),
    ],
    "There the softmax goes over the tokens. A token's probabilities add up to 1.": (
        lambda x, chosen: torch.tensor(x.shape[1] / len(x), dtype=torch.float64)
    ),
}
BACKWARD = rules(
    in_place="An operation in place has changed numbers that backward needs. Let it change a copy, such as x.clone().",
    stopped="",
    cut="No gradient comes back to logits. detach, .data, no_grad, .item() and new tensors stop it.",
)


def _tests(form: str, why_malformed: str, *whys: Rule | Table | str) -> list[Test]:
    """Return the tests of one function. form: what it has to return."""
    return tests(
        failed=("{case.name} to work with {case.what}", "{shown}", "{case.why}"),
        malformed=(f"{{case.name}} to return {form}, for {{case.what}}", "{shown}", why_malformed),
        wrong=("{wrong[1]}", "{wrong[2]}", whys),
    )


TESTS = {
    ROUTE: _tests(
        "(chosen, weights, kept), all of them tensors",
        "The caller needs all of these results, and each as a tensor of torch.",
        *BACKWARD,
        *rules(
            in_another_place="That is another one of the results. torch.topk returns numbers, and then their places.",
            reshaped="All results have a row for each token and a column for each choice, also if k is 1.",
            retyped="chosen is int64, weights are float64, and kept is bool.",
        ),
        ROUNDED,
        *rules(drawn="Another call with the same logits gives another result. Nothing is drawn at random here."),
        programs(OF_ROUTE),
        *rules(
            of_gradient="A probability depends on all logits of its token, also through the sum that divides.",
            of_kept="Write down the line: the first choices of tokens 0, 1, 2 and so on, and then their second ones. "
            "Count the choices of each expert.",
            reordered="These are right, but in another order. The most probable expert of a token comes first.",
            right_without_room="With room = None this is right. A choice that is dropped stays in chosen and keeps its "
            "weight. Only kept says that it is dropped.",
            otherwise="Take one token. Compute its probabilities of all experts, and sort them.",
        ),
    ),
    ROOM: _tests(
        "an int",
        "math.ceil returns an int. What numpy and torch round up is not an int yet: int() makes one.",
        programs(OF_ROOM),
        "An equal share is the number of all choices, divided by the number of experts.",
    ),
    LOSS: _tests(
        "a tensor",
        "Backward begins at the loss, so it has to be a tensor.",
        *BACKWARD,
        *rules(reshaped="The loss is one number, of shape ()."),
        programs({FLOAT32: _lost(lambda hot, p: hot.mean((0, 1)).float())}),
        ROUNDED,
        *rules(special="{case.why}"),  # what follows would have made plain cases wrong
        programs(OF_LOSS),
        *rules(
            of_gradient="Gradients flow through the mean probabilities only. The shares are constants.",
            otherwise="Take 2 experts, and 2 tokens that both choose expert 0. The shares are 1 and 0, so the loss is "
            "2 times the mean probability of expert 0.",
        ),
    ),
}
