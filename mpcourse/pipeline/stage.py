"""What one part of the model does in a pipeline: forward and backward of single micro-batches, in any legal order."""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import torch
import torch.nn as nn
from torch.autograd.graph import GradientEdge, get_gradient_edge

from mpcourse.pipeline.deferred import Later, deferring
from mpcourse.pipeline.schedule import Action
from mpcourse.split.layers import call

Given = Sequence[torch.Tensor | None]
Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]  # of (output, target): the mean over examples
IN_PLACE = (
    "part {} of the model begins with a layer that works in place, on what backward needs as it arrived: give that "
    "layer inplace=False, or cut the model elsewhere"
)


@dataclass
class _Kept:
    """What is kept for one micro-batch between its forward and its backward."""

    inputs: list[torch.Tensor]
    # Where backward begins. Not the outputs themselves: the next stage has their data, which is not needed here.
    outputs: list[torch.Tensor | GradientEdge | None] = field(default_factory=list)
    later: Later = field(default_factory=list)


class Stage:
    """Part of a model in a pipeline: it does the actions of one chunk of a stage, one at a time.

    module: the part's layers, which are on `device`.
    device: of the stage.
    row: all actions of this stage, in their order.
    part: its number in the model.
    chunk: its number among the stage's parts.
    loss: on the last part, what follows the module: takes (k, output) for micro-batch k. None on other parts.
    share: takes k, returns the weight of micro-batch k's loss in the batch's loss; backward begins with it.
    checkpoint: keep only the part's inputs for each micro-batch, and compute the rest again in backward (Chen et al.
    2016), except where backward follows forward at once.
    seed: where the part draws random numbers (dropout), it draws them for micro-batch k from a generator that begins at
    (seed, k, part). So what is drawn depends neither on the schedule nor on which process runs it, and a forward that
    runs again draws the same.
    """

    def __init__(
        self,
        module: nn.Module,
        device: torch.device,
        row: Sequence[Action],
        *,
        part: int = 0,
        chunk: int = 0,
        loss: Callable[[int, torch.Tensor], torch.Tensor] | None = None,
        share: Callable[[int], float] = lambda k: 1.0,
        checkpoint: bool = False,
        seed: int = 0,
    ) -> None:
        self.module, self.device, self.part, self.seed = module, device, part, seed
        self.loss, self.share = loss, share
        own = [a for a in row if a.chunk == chunk]
        self._in_parts = {a.microbatch for a in own if a.kind == "I"}
        at_once = {a.microbatch for a, b in pairwise(row) if a.kind == "F" and b in (a.of("B"), a.of("I"))}
        self._again = {a.microbatch for a in own} - at_once if checkpoint else set()
        self._kept: dict[int, _Kept] = {}

    def act(self, a: Action, given: Given) -> Given:
        """Do one action: turn activations into activations, or gradients into gradients.

        a: one of the part's own.
        given: for "F" the tensors that the part takes, each with the requires_grad that it needs; for "B" and "I" the
        gradients of what it returned, None where there is none; for "W" nothing. All on this device.
        Returns for "F" the part's outputs, with requires_grad but without a graph (the loss, on the last part); for "B"
        and "I" the gradients of its inputs. Gradients of parameters are added to their .grad.
        Raises RuntimeError for a part that begins with a layer that works in place.
        """
        if a.kind == "F":
            return self._forward(a.microbatch, given)
        result = [] if a.kind == "W" else self._backward(a.microbatch, given)
        if a.kind != "I":
            for task in self._kept.pop(a.microbatch).later:
                task()
        return result

    def _forward(self, k: int, given: Given) -> Given:
        inputs = [x.detach().requires_grad_(x.requires_grad) for x in given if x is not None]
        kept = self._kept[k] = _Kept(inputs)
        if k not in self._again:
            outputs = self._run(k, inputs, kept.later)
            kept.outputs = self._begins(outputs)
            return [y.detach().requires_grad_(y.requires_grad) for y in outputs]
        versions = [x._version for x in inputs]
        with torch.no_grad():
            outputs = self._run(k, inputs, [])
        if versions != [x._version for x in inputs]:
            raise RuntimeError(IN_PLACE.format(self.part))
        learns = any(x.requires_grad for x in inputs) or any(p.requires_grad for p in self.module.parameters())
        return [y.detach().requires_grad_(learns and y.is_floating_point()) for y in outputs]

    def _backward(self, k: int, gradients: Given) -> Given:
        kept = self._kept[k]
        if k in self._again:
            with without_trace(self.module):
                kept.outputs = self._begins(self._run(k, kept.inputs, kept.later))
        if self.loss is not None:
            gradients = [torch.full_like(y, self.share(k)) for y in kept.outputs if isinstance(y, torch.Tensor)]
        pairs = [(y, g) for y, g in zip(kept.outputs, gradients, strict=True) if y is not None and g is not None]
        if pairs:
            begins: list = [y for y, _ in pairs]  # all of one kind, as torch's types ask
            torch.autograd.backward(begins, [g for _, g in pairs])
        of_inputs = [x.grad for x in kept.inputs]
        kept.inputs, kept.outputs = [], []
        return of_inputs

    def _begins(self, outputs: list[torch.Tensor]) -> list[torch.Tensor | GradientEdge | None]:
        if self.loss is not None:
            return [y if y.requires_grad else None for y in outputs]  # a single number
        return [get_gradient_edge(y) if y.requires_grad else None for y in outputs]

    def _run(self, k: int, inputs: list[torch.Tensor], later: Later) -> list[torch.Tensor]:
        putting_off = deferring(self.module, later) if k in self._in_parts else contextlib.nullcontext()
        draw_from(hash((self.seed, k, self.part)), self.device)
        with putting_off:
            try:
                outputs = call(self.module, inputs)
            except RuntimeError as error:
                if "leaf Variable" in str(error) and any(x.requires_grad for x in inputs):  # else about a parameter
                    raise RuntimeError(IN_PLACE.format(self.part)) from error
                raise
            if self.loss is not None:
                outputs = self.loss(k, outputs)
        return [outputs] if isinstance(outputs, torch.Tensor) else list(outputs)


def draw_from(seed: int, device: torch.device) -> None:
    """Seed the random numbers of the CPU and of a device.

    seed: any whole number.
    device: its generator is seeded too, where it has its own.
    """
    for generator in _generators(device):
        generator.manual_seed(seed % 2**63)


@contextlib.contextmanager
def keeping_numbers(devices: Iterable[torch.device]) -> Iterator[None]:
    """Restore the random numbers of the CPU and of devices afterwards, as if nothing had been drawn within.

    devices: their generators are restored.
    """
    # Once a step: doing it for each action would take longer than a message between ranks.
    kept = [(g, g.get_state()) for device in dict.fromkeys(devices) for g in _generators(device)]
    try:
        yield
    finally:
        for generator, state in kept:
            generator.set_state(state)


def _generators(device: torch.device) -> list[torch.Generator]:
    if device.type == "cuda":
        return [torch.default_generator, torch.cuda.default_generators[device.index or 0]]
    return [torch.default_generator]


@contextlib.contextmanager
def without_trace(module: nn.Module) -> Iterator[None]:
    """Let `module` change only copies of its buffers and numbers within: batch norm must not count a batch twice.

    module: has its own buffers again afterwards.

    Copies are used, not a saved state: what autograd has saved of a buffer must not change afterwards.
    """
    buffers = [(m, dict(m._buffers)) for m in module.modules() if m._buffers]
    numbers = [(m, {n: v for n, v in vars(m).items() if isinstance(v, int | float)}) for m in module.modules()]
    for m, own in buffers:
        m._buffers.update({name: None if b is None else b.clone() for name, b in own.items()})
    try:
        yield
    finally:
        for m, own in buffers:
            m._buffers.update(own)
        for m, counts in numbers:
            vars(m).update(counts)
