"""Published tables of pipelines, replayed on virtual GPUs."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import nn

from mpcourse.data.published import PIPELINE_TUTORIAL, Partitions, Pipelined
from mpcourse.models import ResNet50
from mpcourse.pipeline.costs import Costs
from mpcourse.pipeline.local import pipeline_step
from mpcourse.pipeline.replay import replay
from mpcourse.pipeline.schedule import gpipe, naive
from mpcourse.split import ModelParallelResNet50, PipelinedResNet50, split
from mpcourse.virtual import GPU, virtual_gpus

BATCH, BATCHES = (120, 3, 128, 128), 3  # of the tutorial


def slowed_to_the_tutorial(gpu: GPU, link: str) -> GPU:
    """Slow a GPU until the tutorial's run on one GPU takes as long as published: scale all efficiencies by one factor.

    gpu: the one to begin with.
    link: a name of `mpcourse.virtual.LINKS`.
    """
    for _ in range(2):  # operations have a minimum length, so time is not exactly one over the factor
        factor = tutorial_seconds(gpu, link, ["single"])["single"] / PIPELINE_TUTORIAL.single
        gpu = replace(
            gpu,
            product_efficiency=gpu.product_efficiency * factor,
            convolution_efficiency=gpu.convolution_efficiency * factor,
            memory_efficiency=gpu.memory_efficiency * factor,
        )
    return gpu


def tutorial_seconds(gpu: GPU | str, link: str, runs: Sequence[int | str]) -> dict[int | str, float]:
    """Return the virtual seconds of each of the tutorial's runs.

    gpu: a name of `mpcourse.virtual.GPUS`, or a GPU.
    link: a name of `mpcourse.virtual.LINKS`.
    runs: "single", "model parallel", or the number of examples in a split.

    The tutorial reads the clock when the last optimizer step has been launched, and does not wait for the GPUs. The
    copy of the labels waits for each forward pass, so the time holds three forward passes and two backward passes. One
    batch runs here, without values. The time in which the tutorial's host draws random images is left out.
    """
    seconds: dict[int | str, float] = {}
    for run in runs:
        with (
            virtual_gpus(1 if run == "single" else 2, gpu, link, dry=True, record=False) as box,
            torch.device("vgpu:0"),
        ):
            model: nn.Module
            if run == "single":
                model = ResNet50()
            elif run == "model parallel":
                model = ModelParallelResNet50("vgpu:0", "vgpu:1")
            else:
                model = PipelinedResNet50("vgpu:0", "vgpu:1", int(run))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
            x, labels = (torch.empty(shape, device="cpu") for shape in (BATCH, (BATCH[0], 1000)))
            start = box.synchronize()
            optimizer.zero_grad()
            out = model(x.to("vgpu:0"))
            target = labels.to(out.device)  # a copy from the host, which waits for the forward pass
            forward = box.now - start
            F.mse_loss(out, target).backward()
            optimizer.step()
            whole = box.synchronize() - start
            seconds[run] = forward + (BATCHES - 1) * whole
    return seconds


def replayed_rates(make: Callable[[], nn.Sequential], table: Partitions, gpu: GPU | str, link: str) -> list[float]:
    """Return the examples/s that a table's pipelines would have on virtual GPUs: first alone, then for each row.

    make: returns the table's model.
    table: published rates.
    gpu: a name of `mpcourse.virtual.GPUS`, or a GPU.
    link: a name of `mpcourse.virtual.LINKS`.

    Forward and backward of each partition, and the transfers, are those of one micro-batch on virtual GPUs; the rest is
    the replay of GPipe's schedule. The few smaller micro-batches at the end of an epoch are left out.
    """
    return [_rate(make, table, row, gpu, link, i > 0) for i, row in enumerate((table.alone, *table.rows))]


def partition_costs(
    make: Callable[[], nn.Sequential], table: Partitions, row: Pipelined, gpu: GPU | str, link: str
) -> Costs:
    """Return the virtual seconds of one micro-batch of a row: each partition's forward and backward, each transfer.

    make: returns the table's model.
    table: gives the shape of an example.
    row: of the table: how the model is cut, and how many micro-batches there are.
    gpu: a name of `mpcourse.virtual.GPUS`, or a GPU.
    link: a name of `mpcourse.virtual.LINKS`.
    """
    p, size = len(row.balance), _examples(row)
    with virtual_gpus(p, gpu, link, dry=True):
        with torch.device("vgpu:0"):  # where not even random numbers are drawn
            whole = make()
        model = split(whole, row.balance, [f"vgpu:{i}" for i in range(p)])
        for parameter in model.parameters():  # all micro-batches except the first add to existing gradients
            parameter.grad = torch.zeros_like(parameter)
        x = torch.empty(size, *table.shape, device="vgpu:0")
        target = torch.empty(size, device=f"vgpu:{p - 1}")
        ran = pipeline_step(model, naive(p, 1), x, target, _mean).execution
    forward, backward = ([stage[i].end - stage[i].start for stage in ran.stages] for i in (0, 1))
    transfer = [
        sum(e.end - e.start for e in ran.transfers if e.lane == f"vgpu:{s} -> vgpu:{s + 1}") for s in range(p - 1)
    ]
    return Costs(forward, backward, transfer=transfer)


def _rate(
    make: Callable[[], nn.Sequential], table: Partitions, row: Pipelined, gpu: GPU | str, link: str, checkpoints: bool
) -> float:
    costs = partition_costs(make, table, row, gpu, link)
    if checkpoints:
        costs = replace(costs, again=costs.forward)
    return row.chunks * _examples(row) / replay(gpipe(len(row.balance), row.chunks), costs).makespan


def _examples(row: Pipelined) -> int:
    """Return the number of examples in the largest micro-batch."""
    return -(-row.batch // row.chunks)


def _mean(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return output.square().mean()  # next to these models, as cheap as any loss
