"""What e03_balance is asked: cuts whose dearest stage is as cheap as the library's exact answer."""

import functools
import numbers
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import Any

from mpcourse.course.check.answer import Answer
from mpcourse.course.check.explain import probed
from mpcourse.course.check.facts.calls import one_by_one
from mpcourse.course.check.rules import Rule, demand, rules, tests
from mpcourse.course.check.seeding import drawing
from mpcourse.course.check.status_page import HasStatusPage
from mpcourse.course.check.time_limit import within_seconds
from mpcourse.course.check.wrong import short
from mpcourse.split import balance

Costs = list[float]
Way = Callable[[Costs, int, list[int]], bool]  # whether these sizes are what a way to cut gives

# Small ones. Each makes some rule of thumb go wrong.
FIXED: list[tuple[Costs, int]] = [
    ([1, 1, 1, 5, 1], 2),
    ([1, 1, 1, 1, 1, 1, 9], 2),
    ([9, 1, 1, 1, 1, 1], 3),
    ([4], 1),
    ([3, 1, 4, 1, 5], 1),
    ([3, 1, 4, 1, 5], 5),
    ([0, 0, 0, 7, 0], 3),
    ([5, 3, 0, 4, 0], 2),
    ([6, 2, 0, 4, 4, 5], 3),
    ([3, 3, 4, 1, 2, 5], 3),
    ([2, 5, 3, 9, 3, 3], 3),
    ([0.8, 0.3, 0.9, 0.4, 0.5], 2),
    ([0.0005, 0.0009, 0.0002, 0.0009, 0.0002], 2),
    ([0.1, 0.6, 0.7, 0.7, 0.7, 0.5], 3),
]
# A rule that explains a wrong answer has to explain what the same function says of these, too.
PROBES: list[tuple[Costs, int]] = [
    ([2, 7, 1, 8, 2, 8, 1, 8], 3),
    ([1, 1, 1, 1, 9], 2),
    ([1, 6, 1, 8, 2, 3], 3),
    ([4, 4, 1, 9, 2, 2, 7, 3, 5], 4),
    ([3, 8, 2, 5, 5, 1, 6], 3),
    ([12, 11, 5, 3, 2, 7, 15, 10], 4),  # here the ways that are best by other measures are all different
    ([2, 8, 13, 4, 8, 5, 9], 3),
]
MANY, SECONDS = 40, 1.0  # a right answer takes a hundredth of that


def check(answer: Answer, comm: HasStatusPage) -> None:
    """Check the answer; every rank may call this, and ranks exchange nothing."""
    draw = drawing()
    cases = [*FIXED]
    cases += [([draw.randint(0, 20) for _ in range(n)], stages) for n in (6, 9, 12) for stages in (2, 3, 4)]
    cases += [([draw.random() for _ in range(10)], 3)]
    one_by_one(answer, [partial(_one, costs=costs, stages=stages) for costs, stages in cases])
    with within_seconds(answer, SECONDS, f"an answer for {MANY} layers and 8 stages", TOO_SLOW):
        _one(answer, [draw.randint(1, 1000) for _ in range(MANY)], 8)


def _one(answer: Answer, costs: Costs, stages: int) -> None:
    got = answer.call("balance", list(costs), stages)
    demand(TESTS, Facts(answer, costs, stages, got))


# -- facts --


@dataclass(frozen=True)
class Facts:
    """What balance(costs, stages) returned."""

    answer: Answer
    costs: Costs
    stages: int
    got: Any

    n = property(lambda self: len(self.costs))
    best = functools.cached_property(lambda self: balance(self.costs, self.stages))
    sizes = property(lambda self: [int(size) for size in self.got])
    total = property(lambda self: sum(self.sizes))
    ends = property(lambda self: [sum(self.best[: i + 1]) for i in range(self.stages)])
    places = property(lambda self: self.n - 1)

    # Tests.

    one_number = property(lambda self: isinstance(self.got, int | float))
    no_list = property(lambda self: not isinstance(self.got, list | tuple))
    lists = property(lambda self: any(isinstance(size, list | tuple) for size in self.got))
    parts_of_layers = property(lambda self: not all(map(_whole, self.got)))
    floats = property(lambda self: any(isinstance(size, float) for size in self.got))
    no_cut = property(lambda self: len(self.sizes) != self.stages or self.total != self.n)
    empty_stage = property(lambda self: not self.no_cut and min(self.sizes) < 1)
    dearer = property(lambda self: not _best(self.costs, self.stages, self.sizes))

    # What known mistakes make of sizes.

    nothing = property(lambda self: self.got is None)
    are_ends = property(lambda self: self.sizes == self.ends)
    are_cuts = property(lambda self: self.sizes in (self.ends[:-1], self.best[:-1], self.best[1:]))
    are_costs = property(lambda self: self.sizes == sums_of(self.costs, self.best))
    other_stages = property(lambda self: len(self.sizes) != self.stages)
    too_few_layers = property(lambda self: self.total < self.n)
    several_cuts = property(lambda self: self.stages > 2)

    @functools.cached_property
    def seen(self) -> list[tuple[tuple[Costs, int], list[int]]]:
        """What the function gave for these costs and for others."""
        return [((self.costs, self.stages), self.sizes), *probed(self.answer, _cut, PROBES)]

    def cuts_by(self, ways: list[Way]) -> bool:
        """Return whether the answer cuts by one of these ways, these costs and others."""
        return any(all(way(costs, stages, sizes) for (costs, stages), sizes in self.seen) for way in ways)

    @property
    def rounding(self) -> bool:
        """Whether the same function is right where these costs, which are no whole numbers, are made whole."""
        whole: Costs = [round(cost * 10**4) for cost in self.costs]
        asked = [(whole, self.stages)] if any(cost != int(cost) for cost in self.costs) else []
        return any(_best(whole, self.stages, sizes) for _, sizes in probed(self.answer, _cut, asked))

    # What sentences show.

    call = property(lambda self: f"balance({short(self.costs)}, {self.stages})")
    shown = property(lambda self: short(self.got))
    largest = property(lambda self: f"{max(sums_of(self.costs, self.sizes)):g}")
    least = property(lambda self: f"{max(sums_of(self.costs, self.best)):g}")


def _whole(size: Any) -> bool:
    """Return whether it is a whole number, of Python's, numpy's or torch's types."""
    if isinstance(size, bool) or getattr(size, "shape", ()) != ():
        return False
    return (isinstance(size, numbers.Real) and size % 1 == 0) or (hasattr(size, "__index__") and str(size) != "True")


def _best(costs: Costs, stages: int, sizes: list[int]) -> bool:
    """Return whether no other cut has a cheaper dearest stage."""
    return max(sums_of(costs, sizes)) <= max(sums_of(costs, balance(costs, stages))) * (1 + 1e-9)


def _cut(answer: Answer, costs: Costs, stages: int) -> list[int]:
    """Return the sizes that the answer gives; raise ValueError if they are no way to cut."""
    sizes = [int(size) for size in answer.call("balance", list(costs), stages)]
    if len(sizes) != stages or sum(sizes) != len(costs) or min(sizes) < 1:
        raise ValueError
    return sizes


# -- facts: wrong ways to cut costs into stages --


def sums_of(costs: Sequence[float], sizes: Sequence[int]) -> list[float]:
    """Return what each stage costs."""
    total, start = [], 0
    for size in sizes:
        total.append(sum(costs[start : start + size]))
        start += size
    return total


def _equal_counts(costs: Costs, stages: int, sizes: list[int]) -> bool:
    return max(sizes) - min(sizes) <= 1 or (len(set(sizes[:-1])) == 1 and sizes[0] == len(costs) // stages)


def _filled(costs: Costs, stages: int, sizes: list[int], over: float, again: bool) -> bool:
    """Return whether stages are filled to the average, of all or of the rest.

    over: the share of a layer that may stand out.
    """
    filled, start, average = [], 0, sum(costs) / stages
    for left in range(stages - 1, 0, -1):
        if again:
            average = sum(costs[start:]) / (left + 1)
        end, held = start + 1, costs[start]
        while end < len(costs) - left and (held + (1 - over) * costs[end] <= average if over < 1 else held < average):
            held += costs[end]
            end += 1
        filled.append(end - start)
        start = end
    return sizes == [*filled, len(costs) - start]


def _sorted(costs: Costs, stages: int, sizes: list[int], reverse: bool) -> bool:
    order = sorted(costs, reverse=reverse)
    return max(sums_of(order, sizes)) == max(sums_of(order, balance(order, stages)))


def _bins(costs: Costs, stages: int, sizes: list[int]) -> bool:
    """Return whether the dearest layer is put first, each into the stage that has least."""
    totals, counts = [0.0] * stages, [0] * stages
    for cost in sorted(costs, reverse=True):
        least = totals.index(min(totals))
        totals[least] += cost
        counts[least] += 1
    return sizes == counts


def _dearest_halved(costs: Costs, stages: int, sizes: list[int]) -> bool:
    """Return whether the dearest part is cut in two until there are enough."""
    parts = [costs]
    while len(parts) < stages:
        i = max((i for i, p in enumerate(parts) if len(p) > 1), key=lambda i: sum(parts[i]))
        first = balance(parts[i], 2)[0]
        parts[i : i + 1] = [parts[i][:first], parts[i][first:]]
    return sorted(sums_of(costs, sizes)) == sorted(map(sum, parts))


def _halved(costs: Costs, stages: int, sizes: list[int], up: bool, share: bool) -> bool:
    """Return whether each part is cut in two, with half of its stages each, until each has one.

    up: of an odd number of stages, the first half gets more. share: whether what a half costs is divided by its number
    of stages.
    """

    def cut(part: Costs, stages: int) -> list[int]:
        if stages == 1:
            return [len(part)]
        first = (stages + up) // 2
        weights = (first, stages - first) if share else (1, 1)
        places = range(first, len(part) - (stages - first) + 1)
        at = min(places, key=lambda j: max(sum(part[:j]) / weights[0], sum(part[j:]) / weights[1]))
        return cut(part[:at], first) + cut(part[at:], stages - first)

    return sums_of(costs, sizes) == sums_of(costs, cut(costs, stages))


def _ways(layers: int, stages: int) -> Iterator[list[int]]:
    for cuts in combinations(range(1, layers), stages - 1):
        yield [b - a for a, b in zip((0, *cuts), (*cuts, layers), strict=True)]


def _least(costs: Costs, stages: int, sizes: list[int], of: Callable[[list[float]], float]) -> bool:
    """Return whether no way makes `of` what the stages cost smaller."""
    least = min(of(sums_of(costs, way)) for way in _ways(len(costs), stages))
    return of(sums_of(costs, sizes)) <= least + 1e-9 * abs(least)


def _by_dearest_layer(costs: Costs, stages: int, sizes: list[int]) -> bool:
    """Return whether it is the first or the last of all ways.

    They are equally good where a stage costs what its dearest layer costs.
    """
    rest = len(costs) - stages + 1
    return sizes in ([1] * (stages - 1) + [rest], [rest] + [1] * (stages - 1))


def _deviations(sums: list[float]) -> list[float]:
    average = sum(sums) / len(sums)
    return [abs(s - average) for s in sums]


# -- what is said --

TOO_SLOW = (
    f"{MANY} layers can be cut into 8 stages in 15 million ways. But how to cut what follows a layer into k stages "
    f"is asked again and again: there are {MANY} * 8 such questions. Remember their answers."
)
WAYS: dict[str, list[Way]] = {  # the first sentence with a way that gives all that the answer gave explains it
    "The stages have equally many layers. It is their cost that is to be equal, not their number.": [_equal_counts],
    "Layers run one after the other: a stage is consecutive layers, and not whatever fits into it.": [_bins],
    "Are the costs sorted? Layers run one after the other, in their order: so are they in the stages.": [
        partial(_sorted, reverse=reverse) for reverse in (False, True)
    ],
    "A stage that is filled up to the average is never looked at again: the stages after it pay.": [
        partial(_filled, over=over, again=again) for over in (0, 0.5, 1) for again in (False, True)
    ],
    "A cut that was the best for two stages need not be one of the best cuts for three: earlier cuts stay.": [
        _dearest_halved,
        *(partial(_halved, up=up, share=share) for up in (False, True) for share in (False, True)),
    ],
    "This is the least spread around the average. The pace is set by the largest stage alone.": [
        partial(_least, of=lambda sums: sum(s * s for s in sums)),
        partial(_least, of=lambda sums: sum(_deviations(sums))),
        partial(_least, of=lambda sums: max(_deviations(sums))),
    ],
    "This makes the difference between the largest and the smallest stage least. The pace is set by the largest stage "
    "alone, however small another one is.": [partial(_least, of=lambda sums: max(sums) - min(sums))],
    "This makes the smallest stage as large as possible. The pace is set by the largest stage alone: that is to be as "
    "small as possible.": [partial(_least, of=lambda sums: -min(sums))],
    "This makes the largest stage as large as possible: max where min is meant, or the other way round?": [
        partial(_least, of=lambda sums: -max(sums))
    ],
    "The same sizes from the last to the first would be right: a way that is followed back from the end has to be "
    "turned round.": [lambda costs, stages, sizes: _least(costs, stages, sizes[::-1], max)],
    "That is the first of all cuts, or the last, for any costs. Are all cuts equally good for it? The largest is then "
    "not of the stages' sums: the dearest layer, for instance, is in some stage whatever the cut.": [_by_dearest_layer],
    "This looks at the first stage only. All stages count.": [partial(_least, of=lambda sums: sums[0])],
    "This looks at the last stage only. All stages count.": [partial(_least, of=lambda sums: sums[-1])],
}
WHYS = [
    *rules(
        rounding=(
            "The same costs, 10 000 times as large and whole, are cut right. Is something rounded, is there a "
            "tolerance, or are sums compared that were added up in two ways?"
        )
    ),
    *(Rule("another way", partial(Facts.cuts_by, ways=ways), sentence) for sentence, ways in WAYS.items()),
    *rules(
        several_cuts=(
            "It is the largest stage that is to be as small as possible, and nothing else. If that is what is looked "
            "for: the best first cut depends on how the rest is cut, so all cuts have to be tried together."
        ),
        otherwise="There are {places} places for the cut. Is each of them tried, the first and the last too?",
    ),
]
WHYS_NO_CUT = rules(
    are_ends="These are the places where stages end. Their sizes are asked: {best}.",
    are_cuts="Are these the places of the cuts, or is one stage missing? The sizes of all stages are asked: {best}.",
    are_costs="That is what the stages cost. How many layers they have is asked: {best}.",
    other_stages="Each GPU gets one stage: as many sizes as stages, not more and not fewer.",
    too_few_layers="Some layers are in no stage.",
    otherwise="Some layers are in two stages.",
)
ASKED = "{stages} sizes that sum to {n} from {call}"
TESTS = tests(
    one_number=(
        ASKED,
        "{shown}",
        "That is one number. How many layers each stage gets is asked, not what the dearest stage costs.",
    ),
    no_list=(
        ASKED,
        "{shown}",
        rules(nothing="Nothing came back: is the list returned?", otherwise="Return a list of ints."),
    ),
    lists=(ASKED, "{shown}", "How many layers a stage has is asked, not which, nor what they cost."),
    parts_of_layers=(ASKED, "{shown}", "A size is a whole number, of layers. It is not a cost."),
    floats=(
        ASKED,
        "{shown}",
        "A size is an int, 3 and not 3.0: nothing can be counted off, or cut from a list, by a float.",
    ),
    empty_stage=(
        "1 layer or more in each stage, from {call}",
        "{shown}",
        "A stage without a layer is a GPU without work: each stage gets one at least.",
    ),
    no_cut=(ASKED, "{shown}, which sum to {total}", WHYS_NO_CUT),
    dearer=(
        "a largest stage of {least} from {call}, e.g. {best}",
        "{sizes}, whose largest stage is {largest}",
        WHYS,
    ),
)
