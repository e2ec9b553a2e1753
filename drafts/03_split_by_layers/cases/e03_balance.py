"""What e03_balance is asked: cuts whose dearest stage is as cheap as the library's exact answer."""

import random
from collections.abc import Sequence

from mpcourse.check.answer import Answer
from mpcourse.check.watched import WatchedComm
from mpcourse.check.wrong import Wrong, short
from mpcourse.split import balance


def check(answer: Answer, comm: WatchedComm) -> None:
    """Every rank may call this; ranks do not talk."""
    draw = random.SystemRandom()
    _one(answer, [1, 1, 1, 5, 1], 2)
    _one(answer, [1, 1, 1, 1, 1, 1, 9], 2)
    _one(answer, [4], 1)
    _one(answer, [3, 1, 4, 1, 5], 1)
    _one(answer, [3, 1, 4, 1, 5], 5)
    _one(answer, [0, 0, 0, 7, 0], 3)
    _one(answer, [9, 1, 1, 1, 1, 1], 3)
    _one(answer, [0.25, 0.5, 0.125, 0.5, 0.0625], 2)
    for n in (6, 9, 12):
        for stages in (2, 3, 4):
            _one(answer, [draw.randint(0, 20) for _ in range(n)], stages)
    _one(answer, [draw.randint(1, 64) / 64 for _ in range(10)], 3)
    _one(answer, [draw.randint(1, 1000) for _ in range(40)], 8)


def _one(answer: Answer, costs: list, stages: int) -> None:
    call = f"balance({short(costs)}, {stages})"
    got = answer.call("balance", costs, stages)
    want = balance(costs, stages)
    n = len(costs)
    if not isinstance(got, list | tuple):
        raise Wrong(f"a list of {stages} sizes from {call}", short(got), _why_not_list(got))
    sizes = [int(s) if isinstance(s, int | float) and s == int(s) else s for s in got]
    if len(sizes) == stages - 1 or (len(sizes) == stages and sum(sizes) != n and sizes == sorted(sizes)):
        ends = [sum(want[: i + 1]) for i in range(len(want))]
        if set(sizes) <= {0, *range(n + 1)} and sizes == sorted(set(sizes)) and stages > 1:
            why = f"Are these the places of the cuts? The sizes of the stages are asked: for {ends[:-1]} {want}."
            raise Wrong(f"{stages} sizes that sum to {n}", short(got), why)
    if any(isinstance(s, list | tuple) for s in sizes):
        raise Wrong(f"{stages} numbers of layers", short(got), "The sizes are asked, not the layers or their costs.")
    if len(sizes) != stages:
        raise Wrong(f"{stages} sizes from {call}", short(got), "One size for each stage.")
    if any(not isinstance(s, int) or isinstance(s, bool) for s in sizes):
        raise Wrong(f"whole numbers from {call}", short(got), "A size is a number of layers, not a cost.")
    if min(sizes) < 1:
        raise Wrong(f"1 layer or more in each stage of {call}", short(got), "A stage without a layer is a GPU unused.")
    if sum(sizes) != n:
        what = "Some layers are in no stage." if sum(sizes) < n else "Some layers are in two stages."
        raise Wrong(f"sizes that sum to {n} from {call}", f"{short(got)}, which sum to {sum(sizes)}", what)
    dearest, best = _dearest(costs, sizes), _dearest(costs, want)
    if dearest > best * (1 + 1e-9):
        raise Wrong(
            f"a largest stage of {best:g} from {call}, e.g. {_plain(want)}",
            f"{_plain(sizes)}, whose largest stage is {dearest:g}",
            _why(costs, stages, sizes),
        )


def _why_not_list(got: object) -> str:
    if got is None:
        return "Nothing came back: is the list returned?"
    if isinstance(got, int | float):
        return "That is one number. How many layers each stage gets is asked, not what the dearest stage costs."
    return "Return a list of ints."


def _plain(sizes: Sequence[int]) -> str:
    return str(list(sizes))


def _dearest(costs: list, sizes: Sequence[int]) -> float:
    total, start = [], 0
    for size in sizes:
        total.append(sum(costs[start : start + size]))
        start += size
    return max(total)


def _why(costs: list, stages: int, sizes: list[int]) -> str:
    """The rule of thumb that gives just these sizes."""
    n = len(costs)
    if max(sizes) - min(sizes) <= 1:
        return "The stages have equally many layers. It is their cost that is to be equal, not their number."
    if sizes == _greedy(costs, stages, over=False) or sizes == _greedy(costs, stages, over=True):
        return "A stage that is filled up to the average once is never looked at again: the rest pays for it."
    if sizes[:-1] == [1] * (stages - 1) or sizes[1:] == [1] * (stages - 1):
        return "All but one stage have one layer. Try every place for a cut, and keep the best."
    ordered = sorted(costs, reverse=True)
    if _dearest(ordered, sizes) < _dearest(costs, sizes) or _dearest(sorted(costs), sizes) < _dearest(costs, sizes):
        return "Are the layers put in another order? They run one after the other: a stage is consecutive layers."
    if stages > 2:
        return "With more than two stages one good cut is not enough: the best first cut depends on the later ones."
    return f"There are {n - 1} places for the cut. Which is the best?"


def _greedy(costs: list, stages: int, over: bool) -> list[int]:
    """Fill each stage up to the average, with or without the layer that goes over it."""
    average, sizes, held = sum(costs) / stages, [0], 0.0
    for i, cost in enumerate(costs):
        full = held >= average if over else held + cost > average
        left = len(costs) - i
        if sizes[-1] and len(sizes) < stages and (full or left == stages - len(sizes)):
            sizes.append(0)
            held = 0.0
        sizes[-1] += 1
        held += cost
    return sizes
