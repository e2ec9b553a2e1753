"""A pipeline in one process: any schedule on virtual devices, on real ones, or on the CPU for its values alone."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from mpcourse.pipeline.batch_norm import DeferredBatchNorm
from mpcourse.pipeline.clock import clock_of
from mpcourse.pipeline.execution import Execution, Timed
from mpcourse.pipeline.replay import checked, chunks_of, microbatches_of, replay
from mpcourse.pipeline.schedule import Action, Schedule
from mpcourse.pipeline.stage import Given, Loss, Stage, keeping_numbers
from mpcourse.split import Split


@dataclass(frozen=True)
class PipelineStep:
    """What `pipeline_step` returns.

    loss: of the whole batch, a scalar on the device of the last part.
    execution: when each action ran on its device.
    """

    loss: torch.Tensor
    execution: Execution


def pipeline_step(
    model: Split,
    schedule: Schedule,
    x: torch.Tensor,
    target: torch.Tensor,
    loss: Loss,
    *,
    checkpoint: bool = False,
    seed: int | None = None,
) -> PipelineStep:
    """Run forward and backward of one batch by `schedule`; add to .grad what loss.backward() would add.

    model: made by `split`, its part i on devices[i]. A schedule of p stages with v chunks each needs v p parts, and
    part c p + s is chunk c of stage s. Parts take and return one tensor or several.
    schedule: a list of actions for each stage.
    x: (batch, ...), on any device.
    target: (batch, ...), on any device. The batch is cut into as many micro-batches as the schedule has; their sizes
    differ by at most 1.
    loss: of (output, target); returns the mean over the examples that it is given. Each micro-batch counts by its size.
    checkpoint: keep only the inputs of a part for each micro-batch, and compute the rest again in backward (Chen et al.
    2016).
    seed: of what parts draw, as dropout does. What is drawn depends on seed, micro-batch and part, not on the schedule.
    None: draw from torch's generator.

    Batch norm sees one micro-batch at a time; `defer_batch_norm` makes its running statistics the whole batch's.
    Raises IllegalAction for a schedule that cannot run, ValueError where model, batch and schedule do not fit.
    """
    schedule = checked(schedule)
    planned = replay(schedule)
    p, last = len(schedule), len(model) - 1
    check_devices(model, schedule)
    if len(x) != len(target):
        raise ValueError(f"x has {len(x)} examples, target has {len(target)}")
    on_first, on_last = x.detach().to(model.devices[0]), target.to(model.devices[last])
    inputs = cut(on_first.requires_grad_(x.requires_grad), microbatches_of(schedule))
    targets = cut(on_last, microbatches_of(schedule))
    first_seed = int(torch.randint(2**62, ())) if seed is None else seed

    def own_loss(k: int, output: torch.Tensor) -> torch.Tensor:
        return loss(output, targets[k])

    def share(k: int) -> float:
        return len(targets[k]) / len(target)

    stages = [
        Stage(
            part, device, schedule[i % p], part=i, chunk=i // p, loss=own_loss if i == last else None,
            share=share, checkpoint=checkpoint, seed=first_seed,
        )
        for i, (part, device) in enumerate(zip(model, model.devices, strict=True))
    ]  # fmt: skip
    arrived: dict[tuple[str, int, int], Given] = {("F", k, 0): [piece] for k, piece in enumerate(inputs)}
    losses: dict[int, torch.Tensor] = {}
    marks, clock = dict[tuple[int, Action], Any](), clock_of(model.devices)
    with keeping_numbers(model.devices):
        for s, a in _in_time(planned):
            stage, direction = stages[a.chunk * p + s], "F" if a.kind == "F" else "B"
            given = arrived.pop((direction, a.microbatch, stage.part), ()) if a.kind != "W" else ()
            out, marks[s, a] = clock.time(stage.device, stage.act, a, given)
            target_part = stage.part + (1 if a.kind == "F" else -1)
            if a.kind == "F" and stage.part == last:
                losses[a.microbatch] = out[0]
            elif a.kind != "W":
                there = stages[max(0, target_part)].device
                arrived[direction, a.microbatch, target_part] = _sent(out, there, a.kind == "F")
    if x.requires_grad:
        of_x = [arrived["B", k, -1][0] for k in range(len(inputs))]
        x.backward(torch.cat([g for g in of_x if g is not None]).to(x.device))
    for module in model.modules():
        if isinstance(module, DeferredBatchNorm):
            module.commit()
    ran = [[Timed(a, *clock.read(marks[s, a])) for a in row] for s, row in enumerate(schedule)]
    return PipelineStep(weighed(losses, share), Execution(ran, clock.copies()))


def _in_time(planned: Execution) -> list[tuple[int, Action]]:
    """Return all actions in the order in which they would begin if all stages were alike. The host enqueues them so."""
    timed = [(t.start, s, i) for s, row in enumerate(planned.stages) for i, t in enumerate(row)]
    return [(s, planned.stages[s][i].action) for _, s, i in sorted(timed)]


def _sent(tensors: Given, device: torch.device, forward: bool) -> Given:
    # None of them has a graph, so grad mode changes nothing. It shows a virtual GPU's ledger what kind these bytes are.
    with torch.set_grad_enabled(forward):
        return [None if t is None else t.detach().to(device).requires_grad_(t.requires_grad) for t in tensors]


@torch.no_grad()
def weighed(losses: dict[int, torch.Tensor], share: Callable[[int], float]) -> torch.Tensor:
    """Return the batch's loss, from the losses of its micro-batches and their shares of the examples.

    losses: scalars, by micro-batch.
    share: takes a micro-batch's number, returns its share of the batch's examples, 0 to 1.
    """
    return torch.stack([losses[k] * share(k) for k in sorted(losses)]).sum()


def cut(batch: torch.Tensor, microbatches: int) -> list[torch.Tensor]:
    """Cut a batch into micro-batches whose sizes differ by at most 1.

    batch: (batch, ...).
    microbatches: how many to make.
    Raises ValueError where there are too few examples.
    """
    if len(batch) < microbatches:
        raise ValueError(f"a batch of {len(batch)} examples cannot make {microbatches} micro-batches: take fewer")
    return list(batch.tensor_split(microbatches))


def check_devices(model: Split, schedule: Schedule) -> None:
    """Raise ValueError unless each stage of a schedule has its parts of the model on a device of its own.

    model: made by `split`.
    schedule: a list of actions for each stage.
    """
    p, chunks, devices = len(schedule), chunks_of(schedule), model.devices
    if len(model) != p * chunks:
        of = f"{p} stages" + (f" of {chunks} chunks" if chunks > 1 else "")
        raise ValueError(f"a schedule for {of} needs a model of {p * chunks} parts, not {len(model)}")
    for i, (part, device) in enumerate(zip(model, devices, strict=True)):
        if device != devices[i % p]:
            raise ValueError(f"part {i} is on {device}: it is a chunk of stage {i % p}, which is on {devices[i % p]}")
        for name, tensor in [*part.named_parameters(), *part.named_buffers()]:
            if tensor.device != device:
                raise ValueError(f"part {i} is to be on {device}, but its {name} is on {tensor.device}")
    stages = devices[:p]
    for s, device in enumerate(stages):
        if device in stages[:s] and device.type != "cpu":
            raise ValueError(
                f"stages {stages.index(device)} and {s} are both on {device}, where they cannot work at once: give "
                "each a device of its own (or put all on the CPU, for the values alone)"
            )
    if len({d.type for d in devices}) > 1:
        raise ValueError(f"stages are on {', '.join(map(str, stages))}: put all on devices of one kind")
