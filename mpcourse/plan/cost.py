"""What one layer of a model costs."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Selective:
    """What differs where a layer recomputes all but its products and its attention.

    backward: seconds, with what is computed again.
    held: bytes that forward leaves behind for backward, with its output.
    working: bytes at the fullest moment of forward and backward, in addition to its input.
    """

    backward: float
    held: int
    working: int


@dataclass(frozen=True)
class LayerCost:
    """What one layer holds and takes with one micro-batch on one GPU.

    forward: seconds of computing.
    backward: seconds of computing, when gradients are added to existing ones.
    held: bytes that forward leaves behind for backward, with its output.
    working: bytes at the fullest moment of forward and backward, in addition to its input.
    given: bytes of its input.
    output: bytes that go on to later layers.
    forward_sums, backward_sums: bytes of each all-reduce along the tensor axis.
    exchanged: bytes of keys and values of whole sequences, which forward gathers along the context axis; backward
    scatters the sum of their gradients.
    dispatched: bytes of each all-to-all of forward along the expert axis; backward has as many.
    again: seconds of what a checkpoint computes again in backward; 0 for what is never checkpointed.
    kept: bytes that are held although checkpoints keep only inputs.
    flops: of forward and backward, without what is computed again.
    selective: what differs with selective recomputation; None: nothing does.
    """

    forward: float
    backward: float
    held: int
    working: int
    given: int
    output: int
    forward_sums: tuple[int, ...] = ()
    backward_sums: tuple[int, ...] = ()
    exchanged: int = 0
    dispatched: tuple[int, ...] = ()
    again: float = 0.0
    kept: int = 0
    flops: int = 0
    selective: Selective | None = None
