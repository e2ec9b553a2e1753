"""Many small models at once: one batched matrix product instead of one product for each model.

A small network's step is spent on calling operations, not on computing. S networks of one shape, stacked, take as many
calls as one. The gradient is written by hand here, which measured best (batch 32, one thread, S = 32, times as many
runs a second as the plain loop): 64-32-10 by hand 16, autograd through the same products 12, torch.func's vmap of grad
6; 64-64-10: 7, 6 and 3. `python -m tests.validation stacked-runs` measures it again.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import nn

from mpcourse.models import mlp


class StackedMLPs:
    """S independent multilayer perceptrons of the same widths, as `mpcourse.models.mlp` makes them.

    parameters: for each layer from n to m units a weight (S, n, m), the transpose of Linear's, and a bias (S, 1, m);
    weights and biases in turns.
    """

    def __init__(self, models: Sequence[nn.Module]) -> None:
        """Copy these models. Raises ValueError unless they are MLPs of the same widths."""
        stacks = [[layer for layer in model.modules() if isinstance(layer, nn.Linear)] for model in models]
        shapes = {tuple(tuple(layer.weight.shape) for layer in stack) for stack in stacks}
        if len(shapes) != 1:
            raise ValueError(f"models of the same widths can be stacked, one or more: got {len(shapes)} kinds of them")
        self.widths = [stacks[0][0].in_features, *(layer.out_features for layer in stacks[0])]
        wanted = [nn.Flatten, *[nn.Linear, nn.ReLU] * len(stacks[0])][:-1]
        if any([type(layer) for layer in model.children()] != wanted for model in models):
            raise ValueError("only MLPs are stacked, as mpcourse.models.mlp makes them")
        self.size = len(models)
        self.parameters: list[torch.Tensor] = []
        for layers in zip(*stacks, strict=True):
            self.parameters.append(torch.stack([layer.weight.detach().T for layer in layers]).contiguous())
            self.parameters.append(torch.stack([layer.bias.detach()[None] for layer in layers]))

    @classmethod
    def from_seeds(cls, widths: Sequence[int], seeds: Sequence[int]) -> "StackedMLPs":
        """Make a network for each seed: the one that mlp(widths) is after torch.manual_seed(seed)."""
        models = []
        with torch.random.fork_rng(devices=[]):
            for seed in seeds:
                torch.manual_seed(seed)
                models.append(mlp(widths))
        return cls(models)

    def model(self, i: int) -> nn.Sequential:
        """Return network i as a module of its own."""
        with torch.random.fork_rng(devices=[]):
            made = mlp(self.widths).to(self.parameters[0])
        with torch.no_grad():
            for p, stacked in zip(made.parameters(), self.parameters, strict=True):
                p.copy_(stacked[i].T if p.dim() == 2 else stacked[i, 0])
        return made

    @torch.no_grad()
    def logits(self, x: torch.Tensor) -> torch.Tensor:
        """Return (S, batch, classes). x: (S, batch, inputs), one batch each, or (batch, inputs), the same for all."""
        return self._forward(x.expand(self.size, *x.shape[-2:]))[-1]

    @torch.no_grad()
    def gradients(self, x: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """Return each network's mean cross-entropy on its batch, (S,), and its gradient, shaped like `parameters`.

        x: (S, batch, inputs). labels: int64 (S, batch).
        """
        *inputs, out = self._forward(x)
        logs = F.log_softmax(out, -1)
        right = labels[..., None]
        losses = -logs.gather(2, right).mean((1, 2))
        delta = logs.exp_()  # the loss's gradient at the output: softmax minus one-hot, over the batch
        delta.scatter_add_(2, right, delta.new_full((), -1.0).expand(right.shape)).div_(x.shape[1])
        gradients: list[torch.Tensor] = []
        for k in reversed(range(len(inputs))):
            gradients += [delta.sum(1, keepdim=True), torch.bmm(inputs[k].mT, delta)]
            if k:
                delta = torch.bmm(delta, self.parameters[2 * k].mT).mul_(inputs[k].sign())  # after a ReLU: 0 or 1
        return losses, gradients[::-1]

    def _forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        """Return the input of every layer, and the output."""
        activations = [x]
        for k in range(0, len(self.parameters), 2):
            if k:
                activations[-1].relu_()
            activations.append(torch.baddbmm(self.parameters[k + 1], activations[-1], self.parameters[k]))
        return activations


class StackedSGD:
    """Momentum SGD, or LARS, for each of many networks at its own rate.

    The steps are those of torch.optim.SGD(momentum, weight_decay) or, with a trust_coefficient, of
    mpcourse.large_batch.LARS: weights are trusted by their own norm in each network, biases have a trust of 1.
    """

    def __init__(
        self,
        models: StackedMLPs,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        trust_coefficient: float | None = None,
    ) -> None:
        self.models, self.momentum, self.weight_decay = models, momentum, weight_decay
        self.trust_coefficient = trust_coefficient
        self.velocities = [torch.zeros_like(p) for p in models.parameters]

    def step(self, gradients: Sequence[torch.Tensor], rates: torch.Tensor) -> None:
        """Update all networks. gradients: from `StackedMLPs.gradients`; they are overwritten. rates: (S,)."""
        rates = rates[:, None, None]
        for i, (p, g, v) in enumerate(zip(self.models.parameters, gradients, self.velocities, strict=True)):
            if self.trust_coefficient is None:
                if self.weight_decay:
                    g.add_(p, alpha=self.weight_decay)
                p.addcmul_(rates, v.mul_(self.momentum).add_(g), value=-1)
                continue
            trust = self._trust(p, g) if i % 2 == 0 else torch.ones_like(rates)
            v.mul_(self.momentum).addcmul_(rates * trust, g.add_(p, alpha=self.weight_decay))
            p.sub_(v)

    def _trust(self, p: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
        weights, gradients = (t.flatten(1).norm(dim=1)[:, None, None] for t in (p, g))
        below = gradients + self.weight_decay * weights
        trust = self.trust_coefficient * weights / below
        return torch.where((weights > 0) & (below > 0), trust, torch.ones_like(trust))
