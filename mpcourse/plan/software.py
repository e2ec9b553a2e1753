"""What a training system does where a grid leaves it open."""

from dataclasses import dataclass

from mpcourse.model_states import GRADIENTS


@dataclass(frozen=True)
class Software:
    """What a training system does. Defaults are what is usual today.

    gradients: bytes a parameter that gradients take, 2 in halves; the weights' 2 and the optimizer's 12 are Adam's in
    mixed precision (ZeRO, Rajbhandari et al. 2020, section 3.1).
    split_transfers: each rank of the tensor axis sends its share of what goes to the next stage, and neighbours put the
    shares together (Narayanan et al. 2021, section 4.1).
    blocking: a stage waits for its messages to the next one; else it goes on.
    overlap: gradients are summed while the last micro-batch's backward runs.
    whole_node: ZeRO's stage 3 gathers over all cards of a node, each for its share; without, along one ring, at the
    rate of one card.
    equal: all stages have as many layers of the kind that most are; else the dearest takes as little time as can be.
    """

    gradients: int = GRADIENTS
    split_transfers: bool = False
    blocking: bool = False
    overlap: bool = True
    whole_node: bool = True
    equal: bool = False


# Megatron-LM of 2021: gradients in float16, and copies in float32 for the optimizer (its documentation counts 20 bytes
# a parameter); sends and receives that are waited for; gradients summed after the last backward; stages of equally many
# layers. ZeRO-3 there: DeepSpeed's of the time.
MEGATRON_2021 = Software(gradients=6, split_transfers=True, blocking=True, overlap=False, whole_node=False, equal=True)
