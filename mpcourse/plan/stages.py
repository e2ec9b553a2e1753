"""The model cut into the parts of a pipeline, and what each part costs with one micro-batch."""

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace

from mpcourse.plan.cost import LayerCost, Selective
from mpcourse.split import balance


@dataclass(frozen=True)
class Part:
    """Consecutive layers, and what they cost with one micro-batch.

    forward: seconds of computing.
    backward: seconds of computing, with what is computed again.
    forward_sums, backward_sums: seconds of the tensor axis's all-reduces in them.
    forward_exchange, backward_exchange: seconds to gather the context axis's keys and values, and to scatter gradients.
    forward_dispatch, backward_dispatch: seconds of the expert axis's all-to-alls in them.
    held: bytes that a micro-batch in flight keeps here.
    working: further bytes at the fullest moment.
    output: bytes that go to the next part.
    flops: of forward and backward, without what is computed again.
    """

    forward: float
    backward: float
    forward_sums: float
    backward_sums: float
    forward_exchange: float
    backward_exchange: float
    forward_dispatch: float
    backward_dispatch: float
    held: int
    working: int
    output: int
    flops: int


def cut(costs: Sequence[LayerCost], parts: int) -> list[int]:
    """Return how many layers each part has, so that the slowest part takes the least time.

    costs: of each layer.
    parts: 1 to as many as there are layers.
    """
    return balance([c.forward + c.backward for c in costs], parts)


def cut_equally(structures: Sequence[Hashable], parts: int) -> list[int] | None:
    """Return how many layers each part has, so that all have equally many of the most frequent kind.

    structures: of each layer, equal for layers of one kind.
    parts: 1 or more.

    Layers before these go to the first part, layers after them to the last. Return None where their number does not
    allow it.
    """
    (kind, count), *_ = Counter(structures).most_common(1)
    if count % parts:
        return None
    places = [i for i, structure in enumerate(structures) if structure == kind]
    ends = [places[(i + 1) * count // parts - 1] + 1 for i in range(parts)]
    ends[-1] = len(structures)
    return [end - begin for begin, end in zip([0, *ends], ends, strict=False)]


def part(
    costs: Sequence[LayerCost],
    recompute: str,
    seconds: Callable[[int], float],
    gather: Callable[[int], float],
    dispatch: Callable[[int], float],
) -> Part:
    """Return what consecutive layers cost together.

    costs: of each of them.
    recompute: "none"; "selective"; "full", each layer keeps only its input, and runs once more, with its all-reduces,
    when backward reaches it.
    seconds: takes bytes, returns the seconds of an all-reduce of so many along the tensor axis.
    gather: takes bytes, returns the seconds of an all-gather along the context axis that leaves so many on each rank.
    dispatch: takes bytes, returns the seconds of an all-to-all along the expert axis of so many on each rank.
    """
    full = recompute == "full"
    forward, sums = sum(c.forward for c in costs), sum(seconds(n) for c in costs for n in c.forward_sums)
    backward_sums = sum(seconds(n) for c in costs for n in c.backward_sums)
    exchange = sum(gather(c.exchanged) for c in costs)
    dispatched = sum(dispatch(n) for c in costs for n in c.dispatched)
    kept = [_kept(c, recompute) for c in costs]
    if full:
        backward_sums += sum(seconds(n) for c in costs if c.again for n in c.forward_sums)
    return Part(
        forward, sum(k.backward for k in kept), sums, backward_sums, exchange, 2 * exchange if full else exchange,
        dispatched, 2 * dispatched if full else dispatched,
        sum(k.held for k in kept), max(k.working for k in kept), costs[-1].output, sum(c.flops for c in costs),
    )  # fmt: skip


def _kept(c: LayerCost, recompute: str) -> Selective:
    """Return what a layer keeps and takes; its working bytes without those that it holds anyway."""
    if recompute == "full":  # what it holds while it works is made anew
        return Selective(c.backward + c.again, c.given + c.kept, c.working - c.kept)
    if recompute == "selective" and c.selective is not None:
        return replace(c.selective, working=c.selective.working - c.selective.held)
    return Selective(c.backward, c.held, c.working - c.held)
