"""What the checks of pipelined steps share: a case to run, and the whole model on the CPU as its oracle."""

import copy
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from mpcourse.common.words import counted
from mpcourse.course.check.answer import Answer
from mpcourse.course.check.facts.schedules import actions_text
from mpcourse.course.check.time_limit import within_seconds
from mpcourse.course.check.wrong import Wrong
from mpcourse.pipeline import Action, Schedule, replay
from mpcourse.virtual.gpus.modes import outside

Tensor = torch.Tensor
WIDTH = 6
SECONDS = 2.0  # of computing, for one step: the longest right one takes a fortieth of that


class PipelinedStep:
    """A model of as many stages as `schedule` has, one a device, with gradients of a step before; and its oracle."""

    def __init__(self, schedule: Sequence[Sequence[tuple]], batch: int) -> None:
        self.schedule: Schedule = [[Action(*a) for a in row] for row in schedule]
        p = self.p = len(schedule)
        self.m = 1 + max(a.microbatch for a in self.schedule[0])
        replay(self.schedule)
        with outside():
            layers = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(p)]
            self.x, self.target = torch.randn(2, batch, WIDTH)
            self.whole = nn.Sequential(*layers)
            F.mse_loss(self.whole(torch.randn(4, WIDTH)), torch.randn(4, WIDTH)).backward()
            self.earlier = [q.grad.clone() for q in self.whole.parameters() if q.grad is not None]
            copies = copy.deepcopy(layers)  # without gradients
            for q, earlier in zip(nn.Sequential(*copies).parameters(), self.earlier, strict=True):
                q.grad = earlier.clone()
            self.loss = F.mse_loss(self.whole(self.x), self.target)
            self.loss.backward()
        self.devices = [f"vgpu:{s}" for s in range(p)]
        self.stages = [layer.to(device) for layer, device in zip(copies, self.devices, strict=True)]
        self.given = self.x.to(self.devices[0]), self.target.to(self.devices[-1])

    def run(self, answer: Answer, loss: Callable = F.mse_loss) -> Any:
        """Ask for the step; the schedule that is given must be left as it is."""
        plain = [[(a.kind, a.microbatch) for a in row] for row in self.schedule]
        arguments = (self.stages, list(self.devices), plain, *self.given, loss)
        why = "Is there a stage whose next input never arrives, or a loop that ends only when all do at once?"
        with within_seconds(answer, SECONDS, "pipeline_step to return", why):
            return answer.call("pipeline_step", *arguments, changes=(self.stages, *self.given))

    def unchanged(self) -> None:
        """Raise Wrong if the step changed what it was given: a parameter, a buffer, a mode, what needs a gradient."""
        enabled = torch.is_grad_enabled()
        torch.set_grad_enabled(True)
        if not enabled:
            why = "It stays off for the caller. `with torch.no_grad():` switches it on again at its end."
            raise Wrong("autograd to be on after the step, as before it", "it is off", why)
        for given, name in zip(self.given, ("x", "target"), strict=True):
            if given.requires_grad or given.grad is not None:
                why = (
                    f"{name} is the caller's: it is to be left as it is, {name}.requires_grad too, and nobody asks for "
                    "its gradient. The first stage's pieces need none, for autograd finds the stage's parameters "
                    "without that."
                )
                raise Wrong(f"{name}.requires_grad False after the step, as before it", "it is True", why)
        for s, stage in enumerate(self.stages):
            if any(not module.training for module in stage.modules()):
                why = "eval() changes what batch norm and dropout compute. A training step leaves the mode as it is."
                raise Wrong(f"stage {s} in training mode, as it came", "in evaluation mode", why)
            if any(not q.requires_grad for q in stage.parameters()):
                why = (
                    "requires_grad_(False) freezes parameters: they get no gradient, and nothing trains them any more."
                )
                raise Wrong(f"stage {s}'s parameters with requires_grad True", "requires_grad is False", why)
            now = stage.state_dict()
            for name, before in self.whole[s].state_dict().items():
                if not torch.equal(now[name].cpu(), before):
                    raise Wrong(
                        f"stage {s}'s {name} as it was before the step",
                        "other numbers",
                        "The step only adds to .grad. Whoever calls it updates the parameters afterwards, once.",
                    )

    @property
    def asked(self) -> str:
        rows = "; ".join(f"stage {s}: {actions_text(row)}" for s, row in enumerate(self.schedule[:3]))
        return f"{counted(self.m, 'micro-batch')} of a batch of {len(self.x)}, {rows}"

    @cached_property
    def pieces(self) -> list[tuple[Tensor, Tensor]]:
        """Input and target of each micro-batch."""
        return list(zip(self.x.tensor_split(self.m), self.target.tensor_split(self.m), strict=True))

    @cached_property
    def activations(self) -> list[list[np.ndarray]]:
        """[s][k]: what stage s is given of micro-batch k; of s = p, what the last stage returns."""
        with outside(), torch.no_grad():
            of_stages = [[x for x, _ in self.pieces]]
            for stage in self.whole:
                of_stages.append([stage(x) for x in of_stages[-1]])
            return [[x.numpy() for x in of_stage] for of_stage in of_stages]

    @cached_property
    def gradients(self) -> list[list[np.ndarray]]:
        """[s][k]: the gradient that stage s's backward of micro-batch k starts from."""
        gradients = []
        with outside():
            for out, target in self.pieces:
                outs = [out := stage(out) for stage in self.whole]
                loss = F.mse_loss(out, target) * (len(target) / len(self.target))
                gradients.append([g.numpy() for g in torch.autograd.grad(loss, outs)])
        return [list(of_stage) for of_stage in zip(*gradients, strict=True)]
