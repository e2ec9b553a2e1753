"""Sums that begin while backward still computes: when each gradient is there, and when the last sum is done."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import nn

from mpcourse.predict.scaling import StepTime
from mpcourse.predict.step import train_step
from mpcourse.virtual import GPU, virtual_gpus


class Backward(NamedTuple):
    """When backward has each gradient. All seconds are from the step's begin, on one GPU.

    ready: for each gradient, as backward reaches them, when it is there, and how many numbers it has.
    backward: when the last one is.
    seconds: of the whole step, with its update.
    """

    ready: list[tuple[float, int]]
    backward: float
    seconds: float


def backward_of(model: nn.Module, batch: Sequence[int], gpu: str | GPU) -> Backward:
    """A step of SGD on one virtual GPU, in a dry run.

    model: not changed but moved.
    batch: shape of the input, float32.
    gpu: a name of `mpcourse.virtual.GPUS`, or a GPU.

    The loss is the mean of the squares of the output. No memory is asked for in the step.
    """
    ready: list[tuple[float, int]] = []
    with virtual_gpus(1, gpu, dry=True) as box:
        model.to("vgpu:0")
        optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.01)
        x = torch.empty(*batch, device="meta")
        train_step(model, x, optimizer, box.devices[0])  # the first one asks the allocator for memory
        box.reset()
        start = box.now

        def arrived(p: torch.Tensor) -> None:
            # The host is ahead: what it enqueued last for the GPU, this gradient, ends then.
            ready.append((max(e.end for e in box.events if e.lane == box.names[0]) - start, p.numel()))

        handles = [p.register_post_accumulate_grad_hook(arrived) for p in model.parameters() if p.requires_grad]
        train_step(model, x, optimizer, box.devices[0])
        for handle in handles:
            handle.remove()
        return Backward(ready, max(at for at, _ in ready), box.synchronize() - start)


def overlapped(step: Backward, bucket: int, sum_seconds: Callable[[int], float]) -> StepTime:
    """A step whose gradients are summed in buckets while backward goes on, one bucket after the other.

    step: on one GPU.
    bucket: numbers at which one is closed.
    sum_seconds: of so many numbers.

    The sum of the result is what backward does not hide. That a GPU computes more slowly while it also sends is not in
    it.
    """
    free, held = 0.0, 0
    for i, (at, numbers) in enumerate(step.ready):
        held += numbers
        if held >= bucket or i == len(step.ready) - 1:
            free, held = max(free, at) + sum_seconds(held), 0
    return StepTime(step.seconds, 0.0, max(0.0, free - step.backward))
