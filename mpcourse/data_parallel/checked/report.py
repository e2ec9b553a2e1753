"""What a rank reports about its gradients to the others before their mean."""

from collections.abc import Mapping
from typing import NamedTuple

import torch

from mpcourse.data_parallel.checked.finite import first_not_finite

MISSING, NOT_FINITE, CHANGED = 1, 2, 4  # of at least one gradient of a rank


class Report(NamedTuple):
    """What a rank reports about its gradients before their mean, by names of parameters.

    missing: parameters without a gradient.
    not_finite: a parameter whose gradient is not finite; None where all are finite.
    changed: a parameter whose gradient was changed after its all-reduce had begun, and how; None where there is none.
    """

    missing: set[str]
    not_finite: str | None = None
    changed: str | None = None

    @property
    def flags(self) -> int:
        """MISSING, NOT_FINITE and CHANGED added up, as far as they apply: the report in one number."""
        return (
            MISSING * bool(self.missing)
            | NOT_FINITE * (self.not_finite is not None)
            | CHANGED * (self.changed is not None)
        )


def reported(parameters: Mapping[str, torch.Tensor]) -> Report:
    """Report gradients that are not being summed yet.

    parameters: of this rank, by name.
    """
    gradients = {name: p.grad for name, p in parameters.items()}
    return Report({name for name, g in gradients.items() if g is None}, first_not_finite(gradients))
