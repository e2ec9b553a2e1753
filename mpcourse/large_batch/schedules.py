"""Learning rates: what a larger batch needs, how training warms up to it, and how it decays. One rate per update."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.optim.lr_scheduler import LambdaLR


def linear_scaling(rate: float, batch: int, base_batch: int) -> float:
    """Return k times the rate for k times the batch (Goyal et al. 2017, section 2.1).

    rate: suits `base_batch` examples.
    batch: examples of a step.
    base_batch: examples of a step that the rate suits.

    One step with k times the rate moves the weights about as far as k steps did.
    Raises ValueError for a batch below 1.
    """
    return rate * _times(batch, base_batch)


def sqrt_scaling(rate: float, batch: int, base_batch: int) -> float:
    """Return sqrt(k) times the rate for k times the batch (Hoffer et al. 2017, section 4.1).

    rate: suits `base_batch` examples.
    batch: examples of a step.
    base_batch: examples of a step that the rate suits.

    This keeps the variance of a step: noise in the mean of k times as many examples is sqrt(k) times smaller.
    Raises ValueError for a batch below 1.
    """
    return rate * math.sqrt(_times(batch, base_batch))


def no_scaling(rate: float, batch: int, base_batch: int) -> float:
    """Return the rate unchanged, whatever the batch.

    rate: is returned.
    batch: examples of a step.
    base_batch: examples of a step that the rate suits.
    Raises ValueError for a batch below 1.
    """
    _times(batch, base_batch)
    return rate


Rule = Callable[[float, int, int], float]
SCALINGS: dict[str, Rule] = {"linear": linear_scaling, "sqrt": sqrt_scaling, "none": no_scaling}


def _times(batch: int, base_batch: int) -> float:
    if batch < 1 or base_batch < 1:
        raise ValueError(f"a batch has 1 example or more: got batch={batch}, base_batch={base_batch}")
    return batch / base_batch


def warmup(step: int, steps: int, start: float, peak: float) -> float:
    """Return an update's rate: a straight line from `start` to `peak` (Goyal et al. 2017, section 2.2).

    step: the update's number, from 0.
    steps: number of the first update that uses `peak`; 0: no warm-up.
    start: often the rate of the small batch; 0 leaves the first update without effect.
    peak: the rate after the warm-up.

    The rate grows each step, not each epoch ("gradual warmup").
    Raises ValueError for a step or steps below 0.
    """
    if step < 0 or steps < 0:
        raise ValueError(f"steps are counted from 0: got step={step}, steps={steps}")
    return peak if step >= steps else start + (peak - start) * step / steps


def step_decay(step: int, milestones: tuple[int, ...], factor: float = 0.1) -> float:
    """Return the part of the rate that is left in an update: `factor` for each milestone reached.

    step: the update's number, from 0.
    milestones: numbers of updates.
    factor: the rate is multiplied by it.
    """
    return factor ** sum(step >= milestone for milestone in milestones)


def cosine_decay(step: int, steps: int) -> float:
    """Return the part of the rate that is left in an update: half a cosine, from 1 to 0.

    step: the update's number; before 0 the part is 1.
    steps: from this update on the part is 0. The cosine is that of Loshchilov and Hutter (2017), without restarts.
    Raises ValueError for steps below 1.
    """
    if steps < 1:
        raise ValueError(f"cosine decay takes 1 step or more: got steps={steps}")
    return 0.5 * (1 + math.cos(math.pi * min(max(step, 0), steps) / steps))


@dataclass(frozen=True)
class Schedule:
    """The rate of each update: `schedule(step)`, with steps counted from 0.

    peak: the rate after warm-up.
    warmup_steps: number of the first update that uses `peak`; 0: no warm-up.
    start: the rate of update 0, where there is a warm-up.
    decay: "none"; "cosine", which begins after the warm-up and reaches 0 after `steps` updates; or "step", by
    `factor` at each of `milestones`.
    steps: of the training, for "cosine".
    milestones: numbers of updates, counted from update 0, like Goyal's epochs 30, 60 and 80.
    factor: the rate is multiplied by it at each milestone.
    Raises ValueError for numbers that make no sense.
    """

    peak: float
    warmup_steps: int = 0
    start: float = 0.0
    decay: str = "none"
    steps: int = 0
    milestones: tuple[int, ...] = ()
    factor: float = 0.1

    def __post_init__(self) -> None:
        if not self.peak > 0 or not 0 <= self.start <= self.peak or self.warmup_steps < 0:
            raise ValueError(f"rates and steps are positive, and a warm-up goes upwards: got {self}")
        if self.decay not in ("none", "cosine", "step"):
            raise ValueError(f"decay is none, cosine or step: got {self.decay!r}")
        if self.decay == "cosine" and self.steps <= self.warmup_steps:
            raise ValueError(f"cosine decay begins after the warm-up, and `steps` ends it: got {self}")
        if (self.decay == "step") != bool(self.milestones):
            raise ValueError(f"milestones and decay='step' go together: got {self}")

    def __call__(self, step: int) -> float:
        if step < self.warmup_steps:
            return warmup(step, self.warmup_steps, self.start, self.peak)
        if self.decay == "cosine":
            return self.peak * cosine_decay(step - self.warmup_steps, self.steps - self.warmup_steps)
        return self.peak * step_decay(step, self.milestones, self.factor)


def scheduler(optimizer: torch.optim.Optimizer, schedule: Schedule) -> LambdaLR:
    """Return a torch scheduler; call its `step` after the optimizer's.

    optimizer: made with lr=schedule.peak; groups with other rates keep their ratio to it.
    schedule: the rate of each update.
    """
    return LambdaLR(optimizer, lambda step: schedule(step) / schedule.peak)
