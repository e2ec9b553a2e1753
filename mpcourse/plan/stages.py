"""The model cut into the parts of a pipeline, and what each part costs with one micro-batch."""

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

from mpcourse.plan.cost import LayerCost
from mpcourse.split import balance


@dataclass(frozen=True)
class Part:
    """Consecutive layers, and what they cost with one micro-batch.

    forward: seconds of computing.
    backward: seconds of computing, with what checkpoints compute again.
    forward_sums, backward_sums: seconds of the tensor axis's all-reduces in them.
    forward_exchange, backward_exchange: seconds to gather the context axis's keys and values, and to scatter gradients.
    held: bytes that a micro-batch in flight keeps here.
    working: further bytes at the fullest moment.
    output: bytes that go to the next part.
    flops: of forward and backward, without what checkpoints compute again.
    """

    forward: float
    backward: float
    forward_sums: float
    backward_sums: float
    forward_exchange: float
    backward_exchange: float
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
    costs: Sequence[LayerCost], checkpoint: bool, seconds: Callable[[int], float], gather: Callable[[int], float]
) -> Part:
    """Return what consecutive layers cost together.

    costs: of each of them.
    checkpoint: each layer keeps only its input, and runs once more, with its all-reduces, when backward reaches it.
    seconds: takes bytes, returns the seconds of an all-reduce of so many along the tensor axis.
    gather: takes bytes, returns the seconds of an all-gather along the context axis that leaves so many on each rank.
    """
    forward, sums = sum(c.forward for c in costs), sum(seconds(n) for c in costs for n in c.forward_sums)
    backward_sums = sum(seconds(n) for c in costs for n in c.backward_sums)
    backward, exchange = sum(c.backward for c in costs), sum(gather(c.exchanged) for c in costs)
    held = sum(c.given + c.kept if checkpoint else c.held for c in costs)
    # What the layer that works now holds is already counted in `held`, unless it is made anew.
    working = max(c.working - c.kept if checkpoint else c.working - c.held for c in costs)
    if checkpoint:
        backward += sum(c.again for c in costs)
        backward_sums += sum(seconds(n) for c in costs if c.again for n in c.forward_sums)
    again = exchange if checkpoint else 0.0
    return Part(
        forward, backward, sums, backward_sums, exchange, exchange + again, held, working, costs[-1].output,
        sum(c.flops for c in costs),
    )  # fmt: skip
