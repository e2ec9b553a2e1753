"""The time of an all-reduce: alpha seconds per message, beta per byte sent, gamma per byte added up.

Formulas: Thakur, Rabenseifner & Gropp 2005, and Patarasuk & Yuan 2009 for the ring. lg is the logarithm to base 2.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from mpcourse.virtual.specs import Link

# Inside a node, NCCL's all-reduce reaches this part of a link's bandwidth, and takes so many seconds per message. Both
# come from the measurements in `mpcourse.data.published_plans`, fitted to 8 GPUs and 16 MiB or more. A network is
# assumed to reach its whole bandwidth, because we know of no measurement with a card for each GPU.
REACHED = {"NVLink 3": (0.70, 10e-6), "NVLink 4": (0.85, 4e-6)}


class Cost(NamedTuple):
    """The time of a message and of an addition: the parameters of the formulas.

    alpha: seconds per message.
    beta: seconds per byte that is sent.
    gamma: seconds per byte that is added up.
    """

    alpha: float
    beta: float
    gamma: float = 0.0


def of_link(link: Link) -> Cost:
    """Return what a message of NCCL's rings costs over a link.

    link: between any two neighbours of the ring.
    """
    part, latency = REACHED.get(link.name, (1.0, link.latency))
    return Cost(latency, 1 / (link.bandwidth * part))


def _naive(p: int, n: float, c: Cost) -> float:
    return 2 * (p - 1) * (c.alpha + n * c.beta) + (p - 1) * n * c.gamma


def _tree(p: int, n: float, c: Cost) -> float:
    rounds = (p - 1).bit_length()
    return 2 * rounds * (c.alpha + n * c.beta) + rounds * n * c.gamma


def _ring(p: int, n: float, c: Cost) -> float:
    return 2 * (p - 1) * c.alpha + 2 * n * (p - 1) / p * c.beta + n * (p - 1) / p * c.gamma


def _doubling(p: int, n: float, c: Cost) -> float:
    rounds, fold = _rounds(p)
    return (rounds + 2 * fold) * (c.alpha + n * c.beta) + (rounds + fold) * n * c.gamma


def _rabenseifner(p: int, n: float, c: Cost) -> float:
    rounds, fold = _rounds(p)
    power = 1 << rounds
    share = (power - 1) / power
    return (2 * rounds + 2 * fold) * c.alpha + (2 * share + 2 * fold) * n * c.beta + (share + fold) * n * c.gamma


def _rounds(p: int) -> tuple[int, int]:
    """Return floor(lg p), and 1 where p is no power of two: then ranks are folded before and after."""
    rounds = p.bit_length() - 1
    return rounds, int(p != 1 << rounds)


FORMULAS: dict[str, Callable[[int, float, Cost], float]] = {
    "naive": _naive, "tree": _tree, "ring": _ring, "doubling": _doubling, "rabenseifner": _rabenseifner,
}  # fmt: skip


def seconds(algorithm: str, p: int, nbytes: float, cost: Cost) -> float:
    """Return the seconds that an all-reduce takes by its formula.

    algorithm: one of FORMULAS.
    p: ranks, 1 or more.
    nbytes: size of x, 0 or more.
    cost: of a message and of a byte.
    Raises ValueError for an algorithm without a formula, and for p or nbytes out of range.
    """
    if algorithm not in FORMULAS:
        raise ValueError(f"there is no formula for {algorithm!r}: choose one of {', '.join(FORMULAS)}")
    if p < 1 or nbytes < 0:
        raise ValueError(f"{p} ranks and {nbytes} bytes: 1 rank and 0 bytes are the least")
    return FORMULAS[algorithm](p, nbytes, cost)


def best(p: int, nbytes: float, cost: Cost, of: Sequence[str] = tuple(FORMULAS)) -> str:
    """Return the algorithm that takes the least time by its formula; of equal ones the first in `of`.

    p: ranks, 1 or more.
    nbytes: size of x, 0 or more.
    cost: of a message and of a byte.
    of: names of FORMULAS to choose from.
    Raises ValueError for an algorithm without a formula, and for p or nbytes out of range.
    """
    return min(of, key=lambda name: seconds(name, p, nbytes, cost))


def crossovers(p: int, cost: Cost, of: Sequence[str] = tuple(FORMULAS), most: int = 1 << 30) -> list[tuple[int, str]]:
    """Return from how many bytes on which algorithm is fastest: [(0, "doubling"), (17_532, "ring"), ...].

    p: ranks.
    cost: of a message and of a byte.
    of: names of FORMULAS to choose from.
    most: bytes up to which sizes are searched.

    All formulas are straight lines in the number of bytes, so an algorithm that is overtaken is never fastest again.
    """
    choices, nbytes = [(0, best(p, 0, cost, of))], 0
    while best(p, most, cost, of) != choices[-1][1]:
        low, high = nbytes, most
        while high - low > 1:  # find the first size at which another algorithm is best
            middle = (low + high) // 2
            low, high = (middle, high) if best(p, middle, cost, of) == choices[-1][1] else (low, middle)
        choices.append((high, best(p, high, cost, of)))
        nbytes = high
    return choices
