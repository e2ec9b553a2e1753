"""Wrong ways to cut costs into stages, each with what to say of an answer that cuts so."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import combinations

from mpcourse.split import balance

Costs = list[float]
Explains = Callable[[Costs, int, list[int]], bool]  # whether these sizes are what the way gives


def sums_of(costs: Sequence[float], sizes: Sequence[int]) -> list[float]:
    """What each stage costs."""
    total, start = [], 0
    for size in sizes:
        total.append(sum(costs[start : start + size]))
        start += size
    return total


def _equal_counts(costs: Costs, stages: int, sizes: list[int]) -> bool:
    return max(sizes) - min(sizes) <= 1 or len(set(sizes[:-1])) == 1 and sizes[0] == len(costs) // stages


def _filled(costs: Costs, stages: int, sizes: list[int], over: float, again: bool) -> bool:
    """Each stage filled up to the average, of all or of what is left; over: the share of a layer that may stand out."""
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
    """Whether the dearest layer is put first, each into the stage that has least."""
    totals, counts = [0.0] * stages, [0] * stages
    for cost in sorted(costs, reverse=True):
        least = totals.index(min(totals))
        totals[least] += cost
        counts[least] += 1
    return sizes == counts


def _dearest_halved(costs: Costs, stages: int, sizes: list[int]) -> bool:
    """Whether the dearest part is cut in two until there are enough."""
    parts = [costs]
    while len(parts) < stages:
        i = max((i for i, p in enumerate(parts) if len(p) > 1), key=lambda i: sum(parts[i]))
        first = balance(parts[i], 2)[0]
        parts[i : i + 1] = [parts[i][:first], parts[i][first:]]
    return sorted(sums_of(costs, sizes)) == sorted(map(sum, parts))


def _halved(costs: Costs, stages: int, sizes: list[int], up: bool, share: bool) -> bool:
    """Whether each part is cut in two, with half of its stages each, until each has one. up: of an odd number the first
    gets more. share: whether what a half costs is divided by its number of stages.
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
    """Whether no way makes `of` what the stages cost smaller."""
    least = min(of(sums_of(costs, way)) for way in _ways(len(costs), stages))
    return of(sums_of(costs, sizes)) <= least + 1e-9 * abs(least)


def _back_to_front(costs: Costs, stages: int, sizes: list[int]) -> bool:
    """Whether the same sizes, in the opposite order, are a best way."""
    return _least(costs, stages, sizes[::-1], max)


def _by_dearest_layer(costs: Costs, stages: int, sizes: list[int]) -> bool:
    """Whether it is the first or the last of all ways, which are equally good where a stage costs what its dearest
    layer costs."""
    rest = len(costs) - stages + 1
    return sizes in ([1] * (stages - 1) + [rest], [rest] + [1] * (stages - 1))


def _deviations(sums: list[float]) -> list[float]:
    average = sum(sums) / len(sums)
    return [abs(s - average) for s in sums]


_SPREAD = "This is the least spread around the average. The pace is set by the largest stage alone."
_AVERAGE = "A stage that is filled up to the average is never looked at again: the stages after it pay."
_HALVES = "A cut that was the best for two stages need not be one of the best cuts for three: earlier cuts stay."
RULES: list[tuple[str, Explains]] = [
    ("The stages have equally many layers. It is their cost that is to be equal, not their number.", _equal_counts),
    ("Layers run one after the other: a stage is consecutive layers, and not whatever fits into it.", _bins),
    *(
        (
            "Are the costs sorted? Layers run one after the other, in their order: so are they in the stages.",
            partial(_sorted, reverse=reverse),
        )
        for reverse in (False, True)
    ),
    *((_AVERAGE, partial(_filled, over=over, again=again)) for over in (0, 0.5, 1) for again in (False, True)),
    (_HALVES, _dearest_halved),
    *((_HALVES, partial(_halved, up=up, share=share)) for up in (False, True) for share in (False, True)),
    (_SPREAD, partial(_least, of=lambda sums: sum(s * s for s in sums))),
    (_SPREAD, partial(_least, of=lambda sums: sum(_deviations(sums)))),
    (_SPREAD, partial(_least, of=lambda sums: max(_deviations(sums)))),
    (
        "This makes the difference between the largest and the smallest stage least. The pace is set by the largest "
        "stage alone, however small another one is.",
        partial(_least, of=lambda sums: max(sums) - min(sums)),
    ),
    (
        "This makes the smallest stage as large as possible. The pace is set by the largest stage alone: that is to be "
        "as small as possible.",
        partial(_least, of=lambda sums: -min(sums)),
    ),
    (
        "This makes the largest stage as large as possible: max where min is meant, or the other way round?",
        partial(_least, of=lambda sums: -max(sums)),
    ),
    (
        "The same sizes from the last to the first would be right: a way that is followed back from the end has to be "
        "turned round.",
        _back_to_front,
    ),
    (
        "That is the first of all cuts, or the last, for any costs. Are all cuts equally good for it? The largest is "
        "then not of the stages' sums: the dearest layer, for instance, is in some stage whatever the cut.",
        _by_dearest_layer,
    ),
    ("This looks at the first stage only. All stages count.", partial(_least, of=lambda sums: sums[0])),
    ("This looks at the last stage only. All stages count.", partial(_least, of=lambda sums: sums[-1])),
]
