"""The gradient noise scale: how many examples a batch needs before more of them stop helping.

McCandlish, Kaplan, Amodei et al., "An Empirical Model of Large-Batch Training", 2018, appendix A. Let G be the gradient
over all data and Sigma the covariance of single examples' gradients. Then the mean gradient over B examples has the
expected square |G|^2 + tr(Sigma) / B. Two batch sizes give two equations for these two unknowns. B_simple = tr(Sigma) /
|G|^2.
"""

import math
from collections.abc import Iterable
from typing import Any

import torch

from mpcourse.data_parallel import Communicator


def estimate(small_square: float, big_square: float, small: int, big: int) -> tuple[float, float]:
    """Return (|G|^2, tr(Sigma)), each without bias, from one small and one big batch.

    small_square: |gradient|^2 of the mean over `small` examples.
    big_square: |gradient|^2 of the mean over `big` examples.
    small, big: examples of each batch.

    Both are noisy, and may be negative. The ratio of two averages tends to the noise scale; an average of ratios does
    not.
    Raises ValueError unless 1 <= small < big.
    """
    if not 1 <= small < big:
        raise ValueError(f"two batches of different size are needed, the small one first: got {small} and {big}")
    gradient = (big * big_square - small * small_square) / (big - small)
    trace = (small_square - big_square) / (1 / small - 1 / big)
    return gradient, trace


class NoiseScale:
    """The noise scale from many steps: the ratio of separate moving averages of tr(Sigma) and |G|^2.

    decay: of the exponential averages, whose start at zero is corrected for, as in Adam; 0 keeps only the last step.
    Raises ValueError for a decay out of range.
    """

    def __init__(self, decay: float = 0.99) -> None:
        if not 0 <= decay < 1:
            raise ValueError(f"a decay is from 0 to below 1: got {decay}")
        self.decay, self.steps = decay, 0
        self._gradient = self._trace = 0.0

    def update(self, small_square: float, big_square: float, small: int, big: int) -> None:
        """Take in one step's gradients, of a small and of a big batch.

        small_square, big_square: the squares of their norms, |G_small|^2 and |G_big|^2.
        small, big: examples of each batch.
        Raises ValueError where either square is not finite, and unless 1 <= small < big.
        """
        gradient, trace = estimate(small_square, big_square, small, big)
        if not (math.isfinite(gradient) and math.isfinite(trace)):
            raise ValueError(f"gradients must be finite: got squares of {small_square} and {big_square}")
        self.steps += 1
        self._gradient += (1 - self.decay) * (gradient - self._gradient)
        self._trace += (1 - self.decay) * (trace - self._trace)

    @property
    def gradient_square(self) -> float:
        """|G|^2, averaged; NaN before the first step."""
        return self._corrected(self._gradient)

    @property
    def trace(self) -> float:
        """tr(Sigma), averaged; NaN before the first step."""
        return self._corrected(self._trace)

    @property
    def value(self) -> float:
        """B_simple, in examples: NaN before the first step, infinite while noise leaves |G|^2 not above 0."""
        if not self.steps:
            return math.nan
        return self.trace / self.gradient_square if self.gradient_square > 0 else math.inf

    def state_dict(self) -> dict[str, Any]:
        """Return the averages, for `load_state_dict`."""
        return {"steps": self.steps, "gradient": self._gradient, "trace": self._trace}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from earlier averages.

        state: what `state_dict` returned.
        """
        self.steps, self._gradient, self._trace = state["steps"], state["gradient"], state["trace"]

    def _corrected(self, average: float) -> float:
        return average / (1 - self.decay**self.steps) if self.steps else math.nan


class RankNoise:
    """The noise scale, measured while ranks train: small batches are single ranks', the big one is that of all ranks.

    communicator: its ranks, two or more, all make one together.
    parameters: of the model, as each rank has them.
    decay: of the exponential averages over steps, from 0 to below 1; 0 keeps only the last step.
    scale: the NoiseScale that takes in the steps; the same on all ranks.

    It costs one all-reduce of one number per step, in addition to the training. All ranks call `update` in each step,
    after gradients were averaged and before anything changes them:

        loss.backward(); optimizer.mean_gradients(); noise.update(examples); optimizer.step()

    A rank's own gradient is read while backward computes it, because a communicator may sum it at once. So a step may
    have only one backward pass, and no double buffering, whose mean belongs to the step before.
    Raises ValueError for one rank, or a decay out of range.
    """

    def __init__(self, communicator: Communicator, parameters: Iterable[torch.Tensor], decay: float = 0.99) -> None:
        if communicator.size < 2:
            raise ValueError("the noise scale of ranks needs two of them: with one, the small batch is the big one")
        self.communicator, self.scale = communicator, NoiseScale(decay)
        self.parameters = [p for p in dict.fromkeys(parameters) if p.requires_grad]
        self._own: dict[torch.Tensor, torch.Tensor] = {}
        self._handles = [p.register_hook(lambda g, p=p: self._look(p, g)) for p in self.parameters]

    def update(self, examples: int) -> float:
        """Take in this step; return the current noise scale. All ranks call it, after `mean_gradients`.

        examples: of each rank's batch, the same on all. Raises RuntimeError unless there was one backward pass since
        the last call, and the errors of `NoiseScale.update` and `Communicator.mean`.
        """
        if not self._own:
            raise RuntimeError("no backward pass since the last update: call it once in each step, after backward")
        own, self._own = math.fsum(float(s) for s in self._own.values()), {}
        mean = math.fsum(float(_square(p.grad)) for p in self.parameters if p.grad is not None)
        self.scale.update(self.communicator.mean(own), mean, examples, examples * self.communicator.size)
        return self.scale.value

    def close(self) -> None:
        """Stop reading the gradients of backward passes."""
        for handle in self._handles:
            handle.remove()

    def _look(self, p: torch.Tensor, gradient: torch.Tensor) -> None:
        if p in self._own:
            raise RuntimeError("a second backward pass in one step: the noise scale is measured in steps with one only")
        self._own[p] = _square(gradient)


def _square(gradient: torch.Tensor) -> torch.Tensor:
    """Return |gradient|^2, in float64, because many of them are added up."""
    return torch.linalg.vector_norm(gradient.detach(), dtype=torch.float64).square()
