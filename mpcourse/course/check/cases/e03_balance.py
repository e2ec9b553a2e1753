"""What e03_balance is asked: cuts whose dearest stage is as cheap as the library's exact answer."""

import numbers
from functools import partial
from typing import Any

from mpcourse.course.check.answer import Answer
from mpcourse.course.check.cases.on_calls import one_by_one
from mpcourse.course.check.cases.on_cuts import RULES, sums_of
from mpcourse.course.check.drawn import drawing
from mpcourse.course.check.explain import explanation, holds, probed
from mpcourse.course.check.status_page import HasStatusPage
from mpcourse.course.check.time_limit import within_seconds
from mpcourse.course.check.wrong import Wrong, short
from mpcourse.split import balance

Costs = list[float]

# Small ones, on each of which some rule of thumb goes wrong.
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
    """Every rank may call this; ranks do not talk."""
    draw = drawing()
    cases = [*FIXED]
    cases += [([draw.randint(0, 20) for _ in range(n)], stages) for n in (6, 9, 12) for stages in (2, 3, 4)]
    cases += [([draw.random() for _ in range(10)], 3)]
    one_by_one(answer, [partial(_one, costs=costs, stages=stages) for costs, stages in cases])
    why = (
        f"{MANY} layers can be cut into 8 stages in 15 million ways. But how to cut what follows a layer into k stages "
        f"is asked again and again: there are {MANY} * 8 such questions. Remember their answers."
    )
    with within_seconds(answer, SECONDS, f"an answer for {MANY} layers and 8 stages", why):
        _one(answer, [draw.randint(1, 1000) for _ in range(MANY)], 8)


def _one(answer: Answer, costs: Costs, stages: int) -> None:
    call = f"balance({short(costs)}, {stages})"
    got = answer.call("balance", list(costs), stages)
    want = balance(costs, stages)
    sizes = _sizes(got, costs, stages, call, want)
    if not _best(costs, stages, sizes):
        asked = f"a largest stage of {max(sums_of(costs, want)):g} from {call}, e.g. {want}"
        got = f"{sizes}, whose largest stage is {max(sums_of(costs, sizes)):g}"
        raise Wrong(asked, got, _why(answer, costs, stages, sizes))


def _sizes(got: object, costs: Costs, stages: int, call: str, want: list[int]) -> list[int]:
    """`got`, if it is a way to cut; else Wrong."""
    n, asked = len(costs), f"{stages} sizes that sum to {len(costs)} from {call}"
    if isinstance(got, int | float):
        why = "That is one number. How many layers each stage gets is asked, not what the dearest stage costs."
        raise Wrong(asked, short(got), why)
    if not isinstance(got, list | tuple):
        why = "Nothing came back: is the list returned?" if got is None else "Return a list of ints."
        raise Wrong(asked, short(got), why)
    if any(isinstance(s, list | tuple) for s in got):
        raise Wrong(asked, short(got), "How many layers a stage has is asked, not which, nor what they cost.")
    if not all(_whole(s) for s in got):
        raise Wrong(asked, short(got), "A size is a whole number, of layers. It is not a cost.")
    if any(isinstance(s, float) for s in got):
        why = "A size is an int, 3 and not 3.0: nothing can be counted off, or cut from a list, by a float."
        raise Wrong(asked, short(got), why)
    sizes = [int(s) for s in got]
    if len(sizes) == stages and sum(sizes) == n:
        if min(sizes) < 1:
            why = "A stage without a layer is a GPU without work: each stage gets one at least."
            raise Wrong(f"1 layer or more in each stage, from {call}", short(got), why)
        return sizes
    ends = [sum(want[: i + 1]) for i in range(stages)]
    if sizes == ends:
        why = f"These are the places where stages end. Their sizes are asked: {want}."
    elif sizes in (ends[:-1], want[:-1], want[1:]):
        why = f"Are these the places of the cuts, or is one stage missing? The sizes of all stages are asked: {want}."
    elif sizes == [sum(costs[e - s : e]) for s, e in zip(want, ends, strict=True)]:
        why = f"That is what the stages cost. How many layers they have is asked: {want}."
    elif len(sizes) != stages:
        why = "Each GPU gets one stage: as many sizes as stages, not more and not fewer."
    else:
        why = "Some layers are in no stage." if sum(sizes) < n else "Some layers are in two stages."
    raise Wrong(asked, f"{short(got)}, which sum to {sum(sizes)}", why)


def _whole(size: Any) -> bool:
    """Whether it is a whole number, of Python's, numpy's or torch's types."""
    if isinstance(size, bool) or getattr(size, "shape", ()) != ():
        return False
    return isinstance(size, numbers.Real) and size % 1 == 0 or hasattr(size, "__index__") and str(size) != "True"


def _best(costs: Costs, stages: int, sizes: list[int]) -> bool:
    """Whether no other cut has a cheaper dearest stage."""
    return max(sums_of(costs, sizes)) <= max(sums_of(costs, balance(costs, stages))) * (1 + 1e-9)


def _cut(answer: Answer, costs: Costs, stages: int) -> list[int]:
    """The sizes that the answer gives; ValueError if they are no way to cut."""
    sizes = [int(size) for size in answer.call("balance", list(costs), stages)]
    if len(sizes) != stages or sum(sizes) != len(costs) or min(sizes) < 1:
        raise ValueError
    return sizes


def _why(answer: Answer, costs: Costs, stages: int, got: list[int]) -> str:
    """The misconception that explains this answer, and what the same function answers elsewhere."""
    whole: Costs = [round(c * 10**4) for c in costs]
    scaled = [(whole, stages)] if any(c != int(c) for c in costs) else []
    if any(holds(_best, given, again) for given, again in probed(answer, _cut, scaled)):
        return (
            "The same costs, 10 000 times as large and whole, are cut right. Is something rounded, is there a "
            "tolerance, or are sums compared that were added up in two ways?"
        )
    if why := explanation(RULES, [((costs, stages), got), *probed(answer, _cut, PROBES)], holds):
        return why
    if stages > 2:
        return (
            "It is the largest stage that is to be as small as possible, and nothing else. If that is what is looked "
            "for: the best first cut depends on how the rest is cut, so all cuts have to be tried together."
        )
    return f"There are {len(costs) - 1} places for the cut. Is each of them tried, the first and the last too?"
