"""Bytes of a training's weights, gradients and optimizer state, by precision and optimizer: closed forms."""

from dataclasses import dataclass

from mpcourse.common.errors import UserError
from mpcourse.zero.model_states import GRADIENTS, PARAMETERS

# Precision of weights and activations. "mixed": weights, gradients and activations in half precision, and a float32
# master of each weight (Rajbhandari et al. 2020, section 3.1). "autocast": weights and gradients in float32, products
# in half precision. "half": everything in half precision. "float32": everything.
PRECISIONS = ("mixed", "autocast", "half", "float32")
MOMENTS = {"sgd": 0, "momentum": 1, "adam": 2, "adamw": 2, "adamw8bit": 2}
BLOCK = 256  # numbers for which an 8-bit optimizer keeps one float32 scale (Dettmers et al. 2022)


@dataclass(frozen=True)
class States:
    """Bytes of one parameter.

    weight: that forward and backward use, trained or frozen.
    gradient: of a trained parameter.
    state: of the optimizer, with the master weight where there is one.
    update: that the optimizer reads and writes.
    optimizer: its name.
    gathered: of a weight that ZeRO's stage 3 gathers, or the optimizer's replicas send each other.
    """

    weight: float = PARAMETERS
    gradient: float = GRADIENTS
    state: float = 12
    update: float = 28
    gathered: float = PARAMETERS
    optimizer: str = "adamw"

    @property
    def whole(self) -> float:
        """Bytes of a trained parameter's weight, gradient and state."""
        return self.weight + self.gradient + self.state


def states(precision: str = "mixed", optimizer: str = "adamw", gradient: int | None = None) -> States:
    """Return the bytes of one parameter.

    precision: one of PRECISIONS.
    optimizer: one of MOMENTS.
    gradient: bytes of a gradient; None: as many as of a weight.
    Raises UserError for another precision or optimizer.
    """
    if precision not in PRECISIONS:
        raise UserError(f"--precision {precision}: choose from {', '.join(PRECISIONS)}")
    if optimizer not in MOMENTS:
        raise UserError(f"--optimizer {optimizer}: choose from {', '.join(MOMENTS)}")
    weight = 2 if precision in ("mixed", "half") else 4
    master = 4 if precision == "mixed" else 0
    moment = 1 + 4 / BLOCK if optimizer.endswith("8bit") else 2 if precision == "half" else 4
    kept = weight if gradient is None else gradient
    state = master + MOMENTS[optimizer] * moment
    update = kept + 2 * state + (weight if master else 2 * weight)
    return States(weight, kept, state, update, 4 if precision == "float32" else 2, optimizer)
