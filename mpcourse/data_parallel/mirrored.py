"""Data parallelism over the GPUs of one machine, by one process: what TensorFlow calls MirroredStrategy."""

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import nn

from mpcourse.models import mnist_cnn
from mpcourse.virtual import GPU, virtual_gpus


def mirrored_step(
    replicas: Sequence[nn.Module],
    optimizers: Sequence[torch.optim.Optimizer],
    batches: Sequence[tuple[torch.Tensor, torch.Tensor]],
    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] = F.cross_entropy,
) -> list[torch.Tensor]:
    """Run one step of a replica on each device, each on its own part of the batch.

    replicas: one model, with equal values, on one device each.
    optimizers: one for each replica.
    batches: images and labels for each replica, on its device, all of the same length.
    loss: of (output, labels); returns the mean over examples.
    Returns the losses, a scalar on each device.

    Every replica sends its gradients to all others, and all add up in the same order, so that replicas stay equal to
    the last bit. With two replicas this moves as many bytes as any all-reduce; with more, a ring would move fewer.
    """
    losses = []
    for model, optimizer, (images, labels) in zip(replicas, optimizers, batches, strict=True):
        optimizer.zero_grad()
        losses.append(loss(model(images), labels))
        losses[-1].backward()  # the host goes on to the next device while this one computes
    with torch.no_grad():
        for twins in zip(*(model.parameters() for model in replicas), strict=True):
            gradients = [p.grad for p in twins if p.grad is not None]
            if not gradients:
                continue
            means = []
            for own in twins:
                there = [g.to(own.device) for g in gradients]
                mean = there[0] / len(there)
                for other in there[1:]:
                    mean += other / len(there)
                means.append(mean)
            for own, mean in zip(twins, means, strict=True):
                own.grad = mean
    for optimizer in optimizers:
        optimizer.step()
    return losses


def mirrored_seconds(gpus: int, batch: int, gpu: GPU | str, link: str, width: int = 1) -> float:
    """Return the virtual seconds of a step of SGD on `mnist_cnn(width)`, mirrored over several GPUs.

    gpus: their number.
    batch: examples on each.
    gpu: a name of `mpcourse.virtual.GPUS`, or a GPU.
    link: a name of `mpcourse.virtual.LINKS`, for any two GPUs.
    width: of the network.
    """
    with virtual_gpus(gpus, gpu, link, dry=True, record=False) as box:
        places = [f"vgpu:{i}" for i in range(gpus)]
        replicas = []
        for place in places:
            with torch.device(place):  # it holds no data, so no random numbers are drawn
                replicas.append(mnist_cnn(width))
        optimizers = [torch.optim.SGD(model.parameters(), 0.001) for model in replicas]
        batches = [
            (torch.empty(batch, 1, 28, 28, device=place), torch.zeros(batch, dtype=torch.int64, device=place))
            for place in places
        ]
        mirrored_step(replicas, optimizers, batches)  # the first step fills the allocator's memory
        start = box.synchronize()
        mirrored_step(replicas, optimizers, batches)
        return box.synchronize() - start
