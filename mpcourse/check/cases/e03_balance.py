"""What e03_balance is asked: cuts whose dearest stage is as cheap as the library's exact answer."""

import random
from collections.abc import Callable, Sequence
from itertools import combinations

from mpcourse.check.answer import Answer
from mpcourse.check.logbook import HasLogbook
from mpcourse.check.patience import patience
from mpcourse.check.wrong import Wrong, short
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
]
MANY, SECONDS = 40, 3.0


def check(answer: Answer, comm: HasLogbook) -> None:
    """Every rank may call this; ranks do not talk."""
    draw = random.SystemRandom()
    for costs, stages in FIXED:
        _one(answer, costs, stages)
    for n in (6, 9, 12):
        for stages in (2, 3, 4):
            _one(answer, [draw.randint(0, 20) for _ in range(n)], stages)
    _one(answer, [draw.random() for _ in range(10)], 3)
    why = (
        f"{MANY} layers can be cut into 8 stages in 15 million ways. But how to cut what follows a layer into k stages "
        f"is asked again and again: there are {MANY} * 8 such questions. Remember their answers."
    )
    with patience(answer, SECONDS, f"an answer for {MANY} layers and 8 stages", why):
        _one(answer, [draw.randint(1, 1000) for _ in range(MANY)], 8)


def _one(answer: Answer, costs: Costs, stages: int) -> None:
    call = f"balance({short(costs)}, {stages})"
    got = answer.call("balance", list(costs), stages)
    want = balance(costs, stages)
    sizes = _sizes(got, costs, stages, call, want)
    dearest, best = _dearest(costs, sizes), _dearest(costs, want)
    if dearest > best * (1 + 1e-9):
        line = answer.line
        why = _why(answer, costs, stages, sizes)
        answer.line = line
        raise Wrong(
            f"a largest stage of {best:g} from {call}, e.g. {want}", f"{sizes}, whose largest stage is {dearest:g}", why
        )


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
    if any(isinstance(s, bool) or not isinstance(s, int | float) or s % 1 != 0 for s in got):
        raise Wrong(asked, short(got), "A size is a whole number, of layers. It is not a cost.")
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


def _dearest(costs: Sequence[float], sizes: Sequence[int]) -> float:
    return max(_sums(costs, sizes))


def _sums(costs: Sequence[float], sizes: Sequence[int]) -> list[float]:
    total, start = [], 0
    for size in sizes:
        total.append(sum(costs[start : start + size]))
        start += size
    return total


def _why(answer: Answer, costs: Costs, stages: int, sizes: list[int]) -> str:
    """The misconception that explains this answer, and what the same function answers elsewhere."""
    found = [(costs, stages, sizes)]
    for probe, s in PROBES:
        try:
            found.append((probe, s, list(answer.call("balance", list(probe), s))))
        except Exception:  # then this one says nothing
            continue
    if any(c != int(c) for c in costs):
        scaled = [c * 10**4 for c in costs]
        again = answer.call("balance", list(map(round, scaled)), stages)
        if _dearest(scaled, again) <= _dearest(scaled, balance(scaled, stages)) * (1 + 1e-9):
            return (
                "The same costs, 10 000 times as large and whole, are cut right. Is something rounded, is there a "
                "tolerance, or are sums compared that were added up in two ways?"
            )
    for why, explains in RULES.items():
        if all(explains(*case) for case in found):
            return why
    if stages > 2:
        return "With more than two stages one good cut is not enough: the best first cut depends on the later ones."
    return f"There are {len(costs) - 1} places for the cut. Is each of them tried, the first and the last too?"


def _equal_counts(costs: Costs, stages: int, sizes: list[int]) -> bool:
    return max(sizes) - min(sizes) <= 1 or len(set(sizes[:-1])) == 1 and sizes[0] == len(costs) // stages


def _filled(costs: Costs, stages: int, sizes: list[int]) -> bool:
    return any(sizes == _fill(costs, stages, over, again) for over in (0, 0.5, 1) for again in (False, True))


def _fill(costs: Costs, stages: int, over: float, again: bool) -> list[int]:
    """Fill each stage up to the average, of all or of what is left. A layer goes in if that share of it still fits."""
    sizes, start, average = [], 0, sum(costs) / stages
    for left in range(stages - 1, 0, -1):
        if again:
            average = sum(costs[start:]) / (left + 1)
        end, held = start + 1, costs[start]
        while end < len(costs) - left and (held + (1 - over) * costs[end] <= average if over < 1 else held < average):
            held += costs[end]
            end += 1
        sizes.append(end - start)
        start = end
    return [*sizes, len(costs) - start]


def _sorted(costs: Costs, stages: int, sizes: list[int]) -> bool:
    orders = (sorted(costs), sorted(costs, reverse=True))
    return any(_dearest(order, sizes) == _dearest(order, balance(order, stages)) for order in orders)


def _bins(costs: Costs, stages: int, sizes: list[int]) -> bool:
    """Whether the dearest layer is put first, each into the stage that has least."""
    totals, counts = [0.0] * stages, [0] * stages
    for cost in sorted(costs, reverse=True):
        least = totals.index(min(totals))
        totals[least] += cost
        counts[least] += 1
    return sizes == counts


def _halved(costs: Costs, stages: int, sizes: list[int]) -> bool:
    parts = [costs]
    while len(parts) < stages:
        i = max((i for i, p in enumerate(parts) if len(p) > 1), key=lambda i: sum(parts[i]))
        first = balance(parts[i], 2)[0]
        parts[i : i + 1] = [parts[i][:first], parts[i][first:]]
    return sorted(_sums(costs, sizes)) == sorted(map(sum, parts))


def _least_spread(costs: Costs, stages: int, sizes: list[int]) -> bool:
    n = len(costs)

    def squares(sizes: Sequence[int]) -> float:
        return sum(s * s for s in _sums(costs, sizes))

    ways = (
        [b - a for a, b in zip((0, *cuts), (*cuts, n), strict=True)] for cuts in combinations(range(1, n), stages - 1)
    )
    return squares(sizes) <= min(map(squares, ways)) * (1 + 1e-9)


RULES: dict[str, Callable[[Costs, int, list[int]], bool]] = {
    "The stages have equally many layers. It is their cost that is to be equal, not their number.": _equal_counts,
    "Layers run one after the other: a stage is consecutive layers, and not whatever fits into it.": _bins,
    "Are the costs sorted? Layers run one after the other, in their order: so are they in the stages.": _sorted,
    "A stage that is filled up to the average is never looked at again: the stages after it pay.": _filled,
    "A cut that was the best for two stages need not be one of the best cuts for three: earlier cuts stay.": _halved,
    "This is the least spread around the average. The pace is set by the largest stage alone.": _least_spread,
}
