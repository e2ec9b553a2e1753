"""What a layer of a transformer costs a rank of the tensor axis: bytes that it keeps for backward, and that it sends.

Closed forms of Vijay Korthikanti and others, Reducing Activation Recomputation in Large Transformer Models, 2022,
https://arxiv.org/abs/2205.05198, sections 4 and 5. Activations have 2 bytes, masks of dropout 1 byte.
"""

from typing import NamedTuple

BETWEEN, SPLIT, SOFTMAX = "between the products", "split over the ranks", "around softmax"


class Kept(NamedTuple):
    """A tensor that a layer keeps for backward.

    what: the tensor.
    nbytes: on each rank.
    kind: BETWEEN, which only sequence parallelism divides; SPLIT, which tensor parallelism divides; SOFTMAX, which it
    divides and selective recomputation drops.
    """

    what: str
    nbytes: float
    kind: str


def kept_by_layer(
    length: int, batch: int, width: int, heads: int, size: int = 1, *, sequence: bool = False, recompute: str = "none"
) -> list[Kept]:
    """Return what a layer with dropout and written-out attention keeps for backward on each rank, tensor by tensor.

    length: tokens of a sequence, s in the paper.
    batch: sequences, b.
    width: numbers that represent a token, h.
    heads: of attention, a.
    size: ranks, t.
    sequence: with sequence parallelism.
    recompute: "none", "selective" or "full".

    Without tensor parallelism and recomputation, the sum is s b h (34 + 5 a s / h) bytes. Left out, as in the paper,
    are the mean and the deviation that a layer norm keeps for each token.
    Raises ValueError for another kind of recomputation.
    """
    if recompute not in ("none", "selective", "full"):
        raise ValueError(f'recompute is "none", "selective" or "full", not {recompute!r}')
    sbh = length * batch * width
    between = sbh / (size if sequence else 1)
    split = sbh / size
    weights = heads * length**2 * batch / size
    if recompute == "full":
        return [Kept("the layer's input", 2 * between, BETWEEN)]
    kept = [
        Kept("input of the first layer norm", 2 * between, BETWEEN),
        Kept("input of queries, keys and values", 2 * between, BETWEEN),
        Kept("queries and keys", 4 * split, SPLIT),
        Kept("result of softmax", 2 * weights, SOFTMAX),
        Kept("mask of its dropout", weights, SOFTMAX),
        Kept("result of its dropout", 2 * weights, SOFTMAX),
        Kept("values", 2 * split, SPLIT),
        Kept("input of attention's output product", 2 * split, SPLIT),
        Kept("mask of attention's dropout", between, BETWEEN),
        Kept("input of the second layer norm", 2 * between, BETWEEN),
        Kept("input of the MLP's first product", 2 * between, BETWEEN),
        Kept("input of GELU", 8 * split, SPLIT),
        Kept("input of the MLP's second product", 8 * split, SPLIT),
        Kept("mask of the MLP's dropout", between, BETWEEN),
    ]
    return [row for row in kept if recompute == "none" or row.kind != SOFTMAX]


def collectives_of_layer(sequence: bool) -> dict[str, tuple[int, int]]:
    """Return how many collective calls a layer makes without recomputation: (forward, backward) for each kind.

    sequence: with sequence parallelism.

    Each moves an activation of the whole sequence, (length, batch, width). Each product behind an all-gather keeps its
    own rows alone, and gathers once more in backward.
    """
    if not sequence:
        return {"all-reduce": (2, 2)}
    return {"all-gather": (2, 4), "reduce-scatter": (2, 2)}


def sent_by_layer(length: int, batch: int, width: int, size: int, itemsize: int, sequence: bool) -> float:
    """Return the bytes that a rank sends for a layer, forward and backward together, without recomputation.

    length, batch, width: of the activations.
    size: ranks.
    itemsize: bytes of an element.
    sequence: with sequence parallelism.

    An all-reduce sends as much as an all-gather and a reduce-scatter.
    """
    halves = sum(
        sum(counts) * (2 if kind == "all-reduce" else 1) for kind, counts in collectives_of_layer(sequence).items()
    )
    return halves * (size - 1) / size * length * batch * width * itemsize
