"""What a step does, seen from inside: which action runs when, and on which tensors."""

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch.nn.functional as F
from torch import Tensor, nn

from mpcourse.course.check.answer import Answer
from mpcourse.course.check.cases.on_steps import PipelinedStep
from mpcourse.course.check.facts.tensors import close
from mpcourse.course.check.wrong import to_numpy
from mpcourse.pipeline import Action


class StepSeen:
    """What was seen of one run. To look waits for results, so time and memory are judged in another one.

    rows: for each stage, the actions that it ran. strangers: (stage, input) of each F whose input is no micro-batch's.
    uncut: whether autograd leads from a stage's input to the stage before. asleep: whether one needs no gradient.
    moved: whether one is made from a leaf, and is none. refilled: the B whose F's input has other numbers by then.
    gradients: (stage, k, j) of each B of k that starts from the gradient of j, None: of no micro-batch. losses: (k, j),
    micro-batch k's loss was taken against the targets of j.
    """

    def __init__(self, case: PipelinedStep) -> None:
        self.case, self.known, self.starts = case, case.activations, case.gradients
        self.rows: list[list[Action]] = [[] for _ in case.stages]
        self.strangers: list[tuple[int, Tensor]] = []
        self.uncut = self.asleep = self.moved = False
        self.refilled: list[tuple[int, int]] = []
        self.gradients: list[tuple[int, int, int | None]] = []
        self.losses: list[tuple[int, int | None]] = []

    def run(self, answer: Answer) -> Any:
        """Ask for the step and look on."""

        @functools.wraps(F.mse_loss)
        def loss(*args: Any, **options: Any) -> Tensor:
            self._note_loss(*args)
            return F.mse_loss(*args, **options)

        with self._hooks():
            return self.case.run(answer, loss)

    @contextlib.contextmanager
    def _hooks(self) -> Iterator[None]:
        handles = [stage.register_forward_hook(self._watch(s)) for s, stage in enumerate(self.case.stages)]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _watch(self, s: int) -> Callable:
        known = self.known[s]

        def hook(module: nn.Module, args: tuple, output: Tensor) -> None:
            given = args[0]
            k = _which(given, known)
            if k is None:
                self.strangers.append((s, given.detach().cpu()))
                return
            if s > 0:
                self._look_at(given)
            self.rows[s].append(Action("F", k))
            if output.requires_grad:
                output.register_hook(lambda gradient: self._backward(s, k, given, gradient))

        return hook

    def _look_at(self, given: Tensor) -> None:
        self.asleep |= not given.requires_grad
        if given.grad_fn is not None:
            parameters = {id(q) for stage in self.case.stages for q in stage.parameters()}
            uncut = any(id(leaf) in parameters for leaf in _leaves(given))
            self.uncut |= uncut
            self.moved |= not uncut

    def _backward(self, s: int, k: int, given: Tensor, gradient: Tensor) -> None:
        self.rows[s].append(Action("B", k))
        if not close(given, self.known[s][k]):
            self.refilled.append((s, k))
        if (j := _which(gradient, self.starts[s])) != k:
            self.gradients.append((s, k, j))

    def _note_loss(self, *args: Any) -> None:
        k = _which(args[0], self.known[-1]) if len(args) > 1 else None
        if k is not None:
            self.losses.append((k, _which(args[1], [target for _, target in self.case.pieces])))


def _which(tensor: Tensor, known: Sequence[Tensor | np.ndarray]) -> int | None:
    there = to_numpy(tensor.detach())
    return next((k for k, one in enumerate(known) if close(there, one)), None)


def _leaves(tensor: Tensor) -> Iterator[Tensor]:
    """The leaves that autograd would reach from `tensor`."""
    ways, been = [tensor.grad_fn], set()
    while ways:
        node = ways.pop()
        if node is None or node in been:
            continue
        been.add(node)
        if hasattr(node, "variable"):
            yield node.variable
        ways += [following for following, _ in node.next_functions]
