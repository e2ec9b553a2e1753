"""What a training step holds of its model, and what its ranks send, by the stage of ZeRO: closed forms.

Rajbhandari et al. 2020, section 5 and table 1: of P parameters over d ranks, in bytes, 16 P without sharding,
4 P + 12 P / d (stage 1), 2 P + 14 P / d (stage 2), 16 P / d (stage 3).
"""

STAGES = (0, 1, 2, 3)
# Bytes per parameter of Adam in mixed precision: two halves; float32 weights, means and variances.
PARAMETERS, GRADIENTS, STATE = 2, 2, 12


def held(
    parameters: float,
    stage: int,
    ranks: int,
    *,
    weight: float = PARAMETERS,
    gradient: float = GRADIENTS,
    state: float = STATE,
) -> dict[str, float]:
    """Return the bytes on each rank through a whole step, by the kind of a ledger.

    parameters: their number.
    stage: what ranks share instead of each having it: 0 nothing, 1 the optimizer's state, 2 gradients too, 3 parameters
    too.
    ranks: number of ranks that share, 1 or more.
    weight, gradient, state: bytes per parameter.

    A step may have one or more backward passes. What exists only for a moment does not count, such as the bucket whose
    gradients are summed, and the layers of stage 3 that compute. Raises ValueError for an unknown stage.
    """
    if stage not in STAGES:
        raise ValueError(f"ZeRO has stages 0 to 3, not {stage}")
    return {
        "parameters": weight * parameters / (ranks if stage == 3 else 1),
        "gradients": gradient * parameters / (ranks if stage >= 2 else 1),
        "optimizer state": state * parameters / (ranks if stage >= 1 else 1),
    }


def sent(parameters: float, stage: int, ranks: int, passes: int = 1) -> float:
    """Return the number of values that each rank sends in a step.

    parameters: their number.
    stage: what ranks share instead of each having it: 0 nothing, 1 the optimizer's state, 2 gradients too, 3 parameters
    too.
    ranks: number of ranks that share, 1 or more.
    passes: backward passes of the step.

    Stages 0 and 1 send 2 (d - 1) / d of the parameters, whatever `passes` is, because gradients add up first. Stage 2
    reduce-scatters in each pass, and gathers once. Stage 3 gathers for each forward and each backward, and
    reduce-scatters.
    Raises ValueError for an unknown stage.
    """
    if stage not in STAGES:
        raise ValueError(f"ZeRO has stages 0 to 3, not {stage}")
    times = {0: 2, 1: 2, 2: passes + 1, 3: 3 * passes}[stage]
    return times * parameters * (ranks - 1) / ranks
