"""What is chosen, and what it costs: plain records."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

MOST = 32  # sequences in the largest micro-batch that is tried

RECOMPUTATIONS = ("none", "selective", "full")
OFFLOADS = ("none", "optimizer", "parameters")
PARTS = ("compute", "bubble", "tensor", "context", "expert", "pipeline", "data", "host", "update")


@dataclass(frozen=True)
class Candidate:
    """A way to train.

    data, pipeline, tensor: the grid's sizes.
    microbatch: examples.
    recompute: one of RECOMPUTATIONS: "none"; "selective", layers keep their inputs and the results of products and
    attention, and backward computes the rest again; "full", layers keep only their inputs.
    zero: the stage of ZeRO, by what replicas share instead of each having it: 0 nothing, 1 the optimizer's state, 2
    gradients too, 3 parameters too.
    chunks: parts of the model on each stage.
    offload: one of OFFLOADS, what the host's memory holds: "optimizer", the optimizer's state, and the host updates
    (Ren et al. 2021, ZeRO-Offload); "parameters", also weights and gradients, while the GPU has one layer's at a
    time (Rajbhandari et al. 2021, ZeRO-Infinity).
    context: size of a context axis. `data` counts its ranks, too, because they have the same weights.
    """

    data: int
    pipeline: int
    tensor: int
    microbatch: int
    recompute: str
    zero: int
    chunks: int = 1
    offload: str = "none"
    context: int = 1

    @property
    def grid(self) -> tuple[int, int, int]:
        """Sizes of data, pipeline and tensor."""
        return self.data, self.pipeline, self.tensor

    @property
    def shown(self) -> str:
        """Sizes of data, pipeline and tensor, with a context axis behind data: "2x4x1x8"."""
        own = (self.data // self.context, self.context) if self.context > 1 else (self.data,)
        return "x".join(map(str, (*own, self.pipeline, self.tensor)))

    def __str__(self) -> str:
        context = f" x context {self.context}" if self.context > 1 else ""
        return f"data {self.data // self.context}{context} x pipeline {self.pipeline} x tensor {self.tensor}"


@dataclass(frozen=True)
class Seconds:
    """Seconds of one step, by part; they add up to the step.

    compute: of the busiest stage, including what is recomputed.
    bubble: time in which that stage waits for others.
    tensor, context, expert, pipeline, data: messages along that axis that nothing hides (data: gradients, and ZeRO's).
    host: copies to and from the host that nothing hides.
    update: of the optimizer.
    """

    compute: float
    bubble: float
    tensor: float
    context: float
    expert: float
    pipeline: float
    data: float
    host: float
    update: float

    @property
    def total(self) -> float:
        """Seconds of the whole step."""
        return sum(getattr(self, part) for part in PARTS)


@dataclass(frozen=True)
class Plan:
    """A candidate with its price.

    candidate: the way to train.
    microbatches: of a step on each replica.
    memory: bytes by kind on the fullest GPU.
    seconds: of one step, by part.
    flops: that each GPU computes in a step on average, without what is recomputed.
    host: bytes that a node's memory holds for its GPUs.
    wrapping: bytes on a GPU while weights are sharded that were all put there first; 0 where nothing shards them.
    """

    candidate: Candidate
    microbatches: int
    memory: dict[str, float]
    seconds: Seconds
    flops: float
    host: float = 0.0
    wrapping: float = 0.0

    @property
    def nbytes(self) -> float:
        """Bytes on the fullest GPU, of all kinds."""
        return sum(self.memory.values())

    @property
    def rate(self) -> float:
        """FLOP/s of each GPU on average."""
        return self.flops / self.seconds.total

    def as_dict(self) -> dict[str, Any]:
        """Return plain numbers, for JSON."""
        return asdict(self) | {"bytes": self.nbytes, "step": self.seconds.total, "rate": self.rate}


def divisors(n: int) -> list[int]:
    """Return the whole numbers that divide n, the smallest first.

    n: 1 or more.
    """
    small = [i for i in range(1, math.isqrt(n) + 1) if n % i == 0]
    return small + [n // i for i in reversed(small) if i * i != n]


def candidates(
    grid: tuple[int, int, int],
    batch: int,
    microbatch: int,
    chunks: Sequence[int],
    recomputations: Sequence[str],
    zeros: Sequence[int],
    offload: str = "none",
    context: int = 1,
) -> Iterator[Candidate]:
    """Yield the candidates of one grid and micro-batch.

    grid: sizes of data, pipeline and tensor.
    batch: examples of a step, on all replicas together.
    microbatch: examples.
    chunks: numbers of parts per stage to try.
    recomputations: the kinds to try.
    zeros: stages of ZeRO to try; one replica has nothing to share, and is tried with stage 0 alone.
    offload: one of OFFLOADS.
    context: size of the context axis, which divides data.
    """
    data, pipeline, tensor = grid
    count = batch // data // microbatch
    for v in chunks:
        if v > 1 and (pipeline == 1 or count % pipeline):
            continue  # Megatron-LM interleaves whole groups of as many micro-batches as there are stages
        for recompute in recomputations:
            for zero in zeros if data > 1 else (0,):
                yield Candidate(data, pipeline, tensor, microbatch, recompute, zero, v, offload, context)
