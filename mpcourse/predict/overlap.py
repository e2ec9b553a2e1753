"""Sums that begin while backward still computes: when each gradient is ready, and when the last sum is done."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import nn

from mpcourse.predict.scaling import StepTime
from mpcourse.predict.step import train_step
from mpcourse.virtual import GPU, virtual_gpus


class Backward(NamedTuple):
    """When backward has computed each gradient, in seconds from the beginning of the step, on one GPU.

    ready: for each gradient, in the order of backward, when it is ready, and its number of elements.
    backward: when the last gradient is ready.
    seconds: of the whole step, with its update.
    """

    ready: list[tuple[float, int]]
    backward: float
    seconds: float


def backward_of(model: nn.Module, batch: Sequence[int], gpu: str | GPU) -> Backward:
    """Run a step of SGD on one virtual GPU, without data.

    model: not changed, but moved.
    batch: shape of the input, float32.
    gpu: a name of `mpcourse.virtual.GPUS`, or a GPU.

    The loss is the mean of the squares of the output. No memory is requested in the step.
    """
    ready: list[tuple[float, int]] = []
    with virtual_gpus(1, gpu, dry=True) as box:
        model.to("vgpu:0")
        optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.01)
        x = torch.empty(*batch, device="meta")
        train_step(model, x, optimizer, box.devices[0])  # the first step requests memory from the allocator
        box.reset()
        start = box.now

        def arrived(p: torch.Tensor) -> None:
            # The host is ahead: the work that it enqueued last for the GPU, this gradient, ends then.
            ready.append((max(e.end for e in box.events if e.lane == box.names[0]) - start, p.numel()))

        handles = [p.register_post_accumulate_grad_hook(arrived) for p in model.parameters() if p.requires_grad]
        train_step(model, x, optimizer, box.devices[0])
        for handle in handles:
            handle.remove()
        return Backward(ready, max(at for at, _ in ready), box.synchronize() - start)


def overlapped(step: Backward, bucket: int, sum_seconds: Callable[[int], float]) -> StepTime:
    """Return the time of a step whose gradients are summed in buckets during backward, one bucket after the other.

    step: on one GPU.
    bucket: number of elements at which a bucket is closed.
    sum_seconds: takes a number of elements, returns the seconds of their sum.

    The result's `sum` is what backward does not hide. That a GPU computes more slowly while it also sends is not
    included.
    """
    free, held = 0.0, 0
    for i, (at, numbers) in enumerate(step.ready):
        held += numbers
        if held >= bucket or i == len(step.ready) - 1:
            free, held = max(free, at) + sum_seconds(held), 0
    return StepTime(step.seconds, 0.0, max(0.0, free - step.backward))
