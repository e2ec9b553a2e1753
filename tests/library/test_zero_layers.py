"""Within a step of ZeRO: which parameters and gradients are there, in which order, and what prefetching hides."""

from itertools import pairwise

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop

from mpcourse.virtual import compute, run
from mpcourse.virtual.specs import Link
from mpcourse.zero import ShardedGradients
from tests.programs.zero_truth import STAGES, values


class Branches(nn.Module):
    """Uses one of two layers."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(2, 2, bias=False, dtype=torch.float64) for _ in range(3)])

    def forward(self, x, which):
        return self.layers[which](self.layers[0](x))


@pytest.mark.parametrize("kind", ["ShardedOptimizer", "ShardedGradients", "OverlappedGradients"])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_a_parameter_that_a_rank_does_not_reach_counts_as_zeros(kind, size):
    """Let ranks take different branches, twice before a step; in stage 3 all take the same, and gather it together."""
    x = torch.tensor([[1.0, 2.0]], dtype=torch.float64)

    def loss(model, rank, time):
        return model(x, 1 + (rank + time) // 2 % 2).square().sum()

    def model():
        torch.manual_seed(0)
        return Branches()

    def program(comm):
        own = model()
        update = STAGES[kind](lambda groups: torch.optim.SGD(groups, 0.1), own, comm, bucket_bytes=1)
        for time in range(2):
            loss(own, comm.rank, time).backward()
        update.step()
        return values(update, own)

    whole = model()
    (sum(loss(whole, rank, time) for rank in range(size) for time in range(2)) / size).backward()
    for found in run(program, size).results:
        for a, p in zip(found, whole.parameters(), strict=True):
            gradient = torch.zeros_like(p) if p.grad is None else p.grad
            torch.testing.assert_close(a, (p - 0.1 * gradient).detach(), rtol=0, atol=1e-12)


def seen(comm, kind):
    """Of each layer, in forward and backward, which layers' parameters are there while it computes."""
    model = nn.Sequential(*[nn.Linear(4, 4) for _ in range(5)])
    update = STAGES[kind](lambda groups: torch.optim.SGD(groups, 0.1), model, comm)
    found = []

    def look(*_):
        found.append([i for i, layer in enumerate(model) if layer.weight.untyped_storage().nbytes() > 4])

    for layer in model:
        layer.forward = lambda x, layer=layer: (look(), nn.functional.linear(x, layer.weight, layer.bias))[1]
    x = model(torch.ones(1, 4))
    forward, found = list(found), []
    for i in range(5):
        model[i].weight.register_hook(look)
    x.sum().backward()
    backward = list(found)
    assert all(p.isnan().all() and p.shape for p in model.parameters())  # afterwards nobody has any
    update.step()
    with update.whole():
        model(torch.ones(1, 4))
        assert not any(p.isnan().any() for p in model.parameters())
    return forward, backward


def test_a_layer_is_there_while_it_computes_and_no_other_one():
    forward, backward = run(lambda comm: seen(comm, "ShardedParameters"), 2).results[0]
    assert forward == [[i] for i in range(5)]
    assert backward == [[i] for i in reversed(range(5))]


def test_prefetching_has_the_next_layer_too():
    forward, backward = run(lambda comm: seen(comm, "PrefetchedParameters"), 2).results[0]
    assert forward == [*map(list, pairwise(range(5))), [4]]
    assert backward == [[3, 4], [2, 3], [1, 2], [0, 1], [0]]


def test_stage_2_frees_gradients_while_backward_goes_on():
    def program(comm):
        model = nn.Sequential(*[nn.Linear(4, 4) for _ in range(5)])
        update = ShardedGradients(lambda groups: torch.optim.SGD(groups, 0.1), model, comm, bucket_bytes=80)
        held = []
        model[0].weight.register_hook(lambda _: held.append([p.grad is None for p in model.parameters()]))
        model(torch.ones(1, 4)).sum().backward()
        with pytest.raises(RuntimeError, match="a backward pass comes before each step"):
            ShardedGradients(lambda groups: torch.optim.SGD(groups, 0.1), model, comm).step()
        return held, [None if own is None else len(own) for own in update.own], len(update._whole)

    assert run(program, 2).results == [([[True] * 10], [10] * 5, 0)] * 2


def seconds(kind, steps):
    """Virtual time of steps in which each of 8 layers computes twice as long as its parameters are on their way."""
    gather = 3 * (100 * 100 / 4) * 4 / 1e9  # three chunks of float32 come from the other three ranks

    def program(comm):
        model = nn.Sequential(*[nn.Linear(100, 100, bias=False) for _ in range(8)])
        update = STAGES[kind](lambda groups: torch.optim.SGD(groups, 0.1), model, comm)
        for layer in model:
            layer.register_forward_pre_hook(lambda *_: compute(comm, 2 * gather, "forward"))
            layer.weight.register_hook(lambda _: compute(comm, 4 * gather, "backward"))
        for _ in range(steps):
            update.zero_grad()
            model(torch.ones(1, 100)).sum().backward()

    return run(program, 4, Link("1 GB/s", bandwidth=1e9, latency=0.0)).seconds / gather


def test_prefetching_hides_messages_behind_computing():
    computing = 8 * (2 + 4)
    plain, ahead = (seconds(kind, 2) - seconds(kind, 1) for kind in ("ShardedParameters", "PrefetchedParameters"))
    # Two gathers and a reduce-scatter of each layer, and a few bytes by which ranks compare which layer they run.
    assert 0 < plain - (computing + 8 * 3) < 0.2
    assert computing < ahead < computing + 5  # what is not hidden: the first gather of each direction, the last sum


class Checkpointed(nn.Module):
    """Keeps the inputs of its blocks alone, and runs them again in backward."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([nn.Sequential(nn.Linear(3, 3), nn.Tanh()) for _ in range(3)]).double()

    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return x


@pytest.mark.parametrize("kind", ["ShardedParameters", "PrefetchedParameters"])
@pytest.mark.parametrize("whole_blocks", [True, False])
@pytest.mark.parametrize("early_stop", [True, False])
def test_activation_checkpoints_run_layers_again_whose_parameters_are_there(kind, whole_blocks, early_stop):
    """early_stop: torch ends the second forward once it has what backward needs, before hooks that would follow."""

    def model():
        torch.manual_seed(0)
        return Checkpointed()

    x = torch.linspace(-1, 1, 12, dtype=torch.float64).view(4, 3)

    def program(comm):
        own = model()
        layers = list(own.blocks) if whole_blocks else [part for block in own.blocks for part in block]
        update = STAGES[kind](lambda groups: torch.optim.SGD(groups, 0.1), own, comm, layers)
        for _ in range(2):
            update.zero_grad()
            own(x[comm.rank :: comm.size]).square().mean().backward()
            update.step()
        return values(update, own)

    whole = model()
    optimizer = torch.optim.SGD(whole.parameters(), 0.1)
    for _ in range(2):
        optimizer.zero_grad()
        whole(x).square().mean().backward()
        optimizer.step()
    with set_checkpoint_early_stop(early_stop):
        results = run(program, 2).results
    for found in results:
        for a, p in zip(found, whole.parameters(), strict=True):
            torch.testing.assert_close(a, p.detach(), rtol=0, atol=1e-12)
