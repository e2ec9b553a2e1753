"""What a training system does where a grid leaves it open."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Software:
    """What a training system does. Defaults are what is usual today.

    gradients: bytes per parameter that gradients take; None: what `States` say.
    split_transfers: each rank of the tensor axis sends its share of what goes to the next stage, and neighbours put the
    shares together (Narayanan et al. 2021, section 4.1).
    blocking: a stage waits for its messages to the next one; otherwise it continues.
    overlap: gradients are summed while the last micro-batch's backward runs, where there is one stage.
    pipeline_overlap: likewise where there are several stages.
    buckets: bytes per parameter of buffers to which gradients are copied, to be summed while one stage's backward runs.
    whole_node: ZeRO's stage 3 gathers over all cards of a node, each for its share; otherwise along one ring, at the
    rate of one card.
    interleaved: the least number of stages with which a pipeline may have several parts of the model on each.
    slowed: computing takes longer by this part of the time of messages that are sent beside it, because kernels that
    send occupy multiprocessors: 20 of an H800's 132 (DeepSeek-AI 2024, DeepSeek-V3, section 3.2.2).
    equal: all stages have equally many layers of the most frequent kind; otherwise the slowest stage is made as fast as
    possible.
    """

    gradients: int | None = None
    split_transfers: bool = False
    blocking: bool = False
    overlap: bool = True
    pipeline_overlap: bool = True
    buckets: int = 0
    whole_node: bool = True
    interleaved: int = 2
    slowed: float = 20 / 132
    equal: bool = False


# Megatron-LM of 2021, by its scripts for the paper (examples/sc21, commit 6985e58) and the code at that commit:
# gradients in float16, and copies in float32 for the optimizer (its documentation counts 20 bytes per parameter);
# torch's DistributedDataParallel where there is one stage, with buckets, as it was without gradient_as_bucket_view;
# gradients summed after the last backward where there are several; sends and receives that are waited for; stages of
# equally many layers; no interleaving of two stages (megatron/arguments.py refuses it). ZeRO-3 there is DeepSpeed's of
# the time.
MEGATRON_2021 = Software(
    gradients=6,
    split_transfers=True,
    blocking=True,
    pipeline_overlap=False,
    buckets=2,
    whole_node=False,
    interleaved=3,
    equal=True,
)
