"""Local SGD and DiLoCo: ranks train alone for some steps, then average their parameters, or take an outer step."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import nn

from mpcourse.data_parallel.checked.communicator import CheckedCommunicator
from mpcourse.data_parallel.optimizer import Closure, MultiNodeOptimizer


class LocalOptimizer(torch.optim.Optimizer):
    """An optimizer on this rank's own gradients; parameters are averaged over all ranks every few steps.

    optimizer: any of torch's, with this rank's parameters, which become those of rank 0.
    communicator: made by `create_communicator`. All its ranks make one optimizer together.
    every: steps between two averages, 1 or more.
    begin: in the first `begin` steps, gradients are averaged in each step, as MultiNodeOptimizer does: post-local SGD
    (Lin et al., "Don't Use Large Mini-Batches, Use Local SGD", 2020).
    model: its names are used in messages, and its buffers are broadcast, too; None: only the optimizer's parameters are
    known.
    outer: takes a list of parameters, returns the outer optimizer of DiLoCo; None: local SGD, which takes the average.

    DiLoCo (Arthur Douillard and others, 2023, https://arxiv.org/abs/2311.08105) begins each period with the same
    parameters on all ranks. What the ranks have changed in it on average is the outer gradient, with the opposite sign.
    The outer optimizer takes a step from where the period began. The paper's is `partial(torch.optim.SGD, lr=0.7,
    momentum=0.9, nesterov=True)`; SGD with a rate of 1 is local SGD.

    `every=1` with plain SGD does what MultiNodeOptimizer does. The optimizer's state (momentum, Adam's moments) stays
    each rank's own. `finish` averages what the last incomplete period left.
    Raises ValueError, on every rank, for numbers that make no sense, or differ between ranks.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        communicator: CheckedCommunicator,
        every: int,
        begin: int = 0,
        model: nn.Module | None = None,
        outer: Callable[[list[torch.Tensor]], torch.optim.Optimizer] | None = None,
    ) -> None:
        given = communicator.comm.allgather((every, begin, outer is not None))
        if len(set(settings := [one[:2] for one in given])) > 1:
            raise ValueError(f"ranks were given different (every, begin): {settings}")
        if len(set(with_outer := [one[2] for one in given])) > 1:
            raise ValueError(f"only some ranks were given an outer optimizer: {with_outer}")
        if every < 1 or begin < 0:
            raise ValueError(f"every={every}, begin={begin}: average every 1 or more steps, begin after 0 or more")
        self.communicator, self.every, self.begin = communicator, every, begin
        self.steps = self.alone = 0  # steps done; and steps since parameters were the same on all ranks
        self.together = MultiNodeOptimizer(optimizer, communicator, model=model)
        self.optimizer = optimizer
        # Of the outer optimizer, the parameters as they were when they were last the same on all ranks.
        self.shared = [] if outer is None else [p.detach().clone() for p in self._trained()]
        self.outer = None if outer is None else outer(self.shared)
        self._part()

    def __getattr__(self, name: str) -> Any:
        if name == "optimizer":  # not there yet, because it is being copied or unpickled
            raise AttributeError(name)
        return getattr(self.optimizer, name)

    def __repr__(self) -> str:
        return f"LocalOptimizer({self.optimizer!r}, {self.communicator!r}, every={self.every}, begin={self.begin})"

    @property
    def _step_supports_amp_scaling(self) -> bool:
        raise ValueError(
            "ranks that step alone would skip different steps of a GradScaler: take a MultiNodeOptimizer, or bfloat16, "
            "which needs no scaling"
        )

    def mean_gradients(self, examples: int | None = None) -> None:
        """Average now what `step` would average: nothing, where ranks are alone. All ranks call it.

        examples: of this rank's batch, compared with those of the other ranks; None: not compared.
        """
        if self.steps < self.begin:
            self.together.mean_gradients(examples)

    def no_sync(self) -> AbstractContextManager[None]:
        """Let backward passes within add to this rank's own gradients: for all but the last pass before a step."""
        return self.together.no_sync()

    def step(self, closure: Closure | None = None, *, examples: int | None = None) -> Any:
        """Update this rank's parameters, and average them over ranks when due. All ranks call it equally often.

        closure: computes the loss and its gradients, as torch's optimizers take it.
        examples: of this rank's batch; used only in the first `begin` steps, where gradients are averaged.
        Raises, on every rank: ValueError for different models or numbers of examples; FloatingPointError, which names
        rank and parameter, for a parameter that is not finite, or such a gradient in the first `begin` steps.
        """
        self.steps += 1
        if self.steps <= self.begin:
            try:
                return self.together.step(closure, examples=examples)
            finally:  # also where a batch was refused, which happens on all ranks
                self._part()
                if self.outer is not None:
                    for began, p in zip(self.shared, self._trained(), strict=True):
                        began.copy_(p.detach())
        loss = self.optimizer.step(closure)
        self.alone += 1
        if self.alone >= self.every:  # more, where a run continues with a smaller number, or after an error
            self.finish()
        return loss

    def zero_grad(self, set_to_none: bool = True) -> None:
        self.together.zero_grad(set_to_none)

    def finish(self) -> None:
        """Average parameters now, unless they are already the same. All ranks call it, after training."""
        if self.alone:
            self.communicator.mean_parameters(self.together.named_parameters())
            if self.outer is not None:
                self._outer_step()
            self.alone = 0

    def state_dict(self) -> dict[str, Any]:
        state = {"optimizer": self.optimizer.state_dict(), "steps": self.steps, "alone": self.alone}
        if self.outer is not None:
            state |= {"outer": self.outer.state_dict(), "shared": self.shared}
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.optimizer.load_state_dict(state_dict["optimizer"])
        self.steps, self.alone = state_dict["steps"], state_dict["alone"]
        if self.outer is not None:
            self.outer.load_state_dict(state_dict["outer"])
            for own, saved in zip(self.shared, state_dict["shared"], strict=True):
                own.copy_(saved)
        self._part()

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters, with the optimizer's options for them; they become those of rank 0. All ranks call it."""
        if self.outer is not None:
            raise ValueError("an outer optimizer takes no more parameters: make a new one")
        self.together.add_param_group(param_group)
        self._part()

    def _trained(self) -> list[torch.Tensor]:
        return [p for group in self.optimizer.param_groups for p in group["params"]]

    @torch.no_grad()
    def _outer_step(self) -> None:
        """Let the outer optimizer step from where the period began; all parameters are averages."""
        assert self.outer is not None
        for began, p in zip(self.shared, self._trained(), strict=True):
            began.grad = began - p
        self.outer.step()
        for began, p in zip(self.shared, self._trained(), strict=True):
            p.copy_(began)

    def _part(self) -> None:
        """Make sure that no backward pass sums anything, from the step on in which ranks continue alone."""
        if self.steps >= self.begin:
            self.communicator.detach()
