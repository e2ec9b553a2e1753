"""Where to cut a chain of layers: contiguous stages whose most expensive one costs as little as possible, exactly."""

import math
from collections.abc import Iterator, Sequence
from itertools import combinations


def balance(costs: Sequence[float], stages: int) -> list[int]:
    """Return how many consecutive layers each stage gets, so that the largest cost of a stage is minimal.

    costs: of each layer, 0 or more, in any unit (seconds, bytes).
    stages: from 1 to the number of layers; each gets at least one layer.

    Of several best answers, return the one that fills earlier stages first. Dynamic programming over (layers, stages)
    takes O(layers^2 stages), as for the linear partition problem (Skiena, The Algorithm Design Manual).
    Raises ValueError for an impossible number of stages, or a cost that is negative or not finite.
    """
    n = len(costs)
    _check_stages(n, stages)
    if bad := [c for c in costs if not (c >= 0 and math.isfinite(c))]:
        raise ValueError(f"a cost must be 0 or more and finite: got {bad[0]}")
    total = [0.0]
    for cost in costs:
        total.append(total[-1] + cost)
    # best[i]: cost of the most expensive of s stages made of layers i, i + 1, ...; sizes[s][i]: layers of the first one
    best = [total[n] - total[i] for i in range(n + 1)]
    sizes = [[], [n - i for i in range(n + 1)]]
    for s in range(2, stages + 1):
        new, chosen = [math.inf] * (n + 1), [0] * (n + 1)
        for i in range(n - s + 1):
            for j in range(i + 1, n - s + 2):
                if total[j] - total[i] > new[i]:
                    break  # the first stage alone costs more, and with more layers it would cost still more
                dearest = max(total[j] - total[i], best[j])
                if dearest <= new[i]:  # of equal ones take the last: the first stage takes as many layers as it can
                    new[i], chosen[i] = dearest, j - i
        best = new
        sizes.append(chosen)
    parts, i = [], 0
    for s in range(stages, 0, -1):
        parts.append(sizes[s][i])
        i += parts[-1]
    return parts


def all_cuts(layers: int, stages: int) -> Iterator[list[int]]:
    """Yield every way to make stages of consecutive layers, one or more each. Use it for few stages only.

    layers: how many there are.
    stages: how many to make; there are (layers - 1) over (stages - 1) ways.
    Raises ValueError for an impossible number of stages.
    """
    _check_stages(layers, stages)
    for places in combinations(range(1, layers), stages - 1):
        yield [b - a for a, b in zip((0, *places), (*places, layers), strict=True)]


def _check_stages(layers: int, stages: int) -> None:
    if not 1 <= stages <= layers:
        raise ValueError(f"{layers} layers cannot make {stages} stages: each stage needs a layer at least")
