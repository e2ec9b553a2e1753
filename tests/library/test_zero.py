"""ZeRO's three stages equal one process, refuse what cannot be sharded, and send what closed forms say."""

import json
from functools import cache
from pathlib import Path

import pytest
import torch
from torch import nn

from mpcourse.large_batch import LAMB, LARS
from mpcourse.virtual import run
from mpcourse.zero import (
    PrefetchedParameters,
    ShardedGradients,
    ShardedOptimizer,
    ShardedParameters,
    Unit,
    within_nodes,
)
from mpcourse.zero.elementwise import check_elementwise
from tests.programs import zero_truth
from tests.programs.zero_truth import MODELS, OPTIMIZERS, STAGES, on_ranks

PROGRAM = Path(__file__).parents[1] / "programs" / "zero_truth.py"
ROUNDING = 1e-11  # of float64, after three steps


@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.parametrize("kind", STAGES)
def test_training_on_virtual_ranks_equals_one_process(monkeypatch, kind, size):
    """With clipping, two micro-batches a step, two groups, a frozen and a tied parameter; one batch is refused."""
    monkeypatch.setattr(zero_truth, "one_process", cache(zero_truth.one_process))
    for i, model in enumerate(MODELS):
        for j, optimizer in enumerate(OPTIMIZERS):
            if (kind, size) == ("ShardedOptimizer", 3) or (i + j + size) % 3 == 0:  # no stage looks at the optimizer
                off = run(lambda comm, m=model, o=optimizer: on_ranks(comm, kind, m, o), size).results
                assert 0 < max(off) < ROUNDING, (model, optimizer)


@pytest.mark.parametrize("kind", STAGES)
def test_sharding_within_nodes_equals_one_process(kind):
    assert max(run(lambda comm: on_ranks(comm, kind, "transformer", "adam", 2), 4).results) < ROUNDING


def test_training_on_real_ranks_equals_one_process(mpirun):
    done = mpirun(4, "-m", "mpi4py", PROGRAM, timeout=100)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout)
    assert len(found) == 5 * (4 + 1)
    assert {case: off for case, off in found.items() if off > ROUNDING} == {}


def chunks_of(lengths, ranks):
    unit = Unit([torch.empty(n) for n in lengths], ranks)
    return [[tuple(each) for each in unit.owned(rank)] for rank in range(ranks)]


def test_chunks_are_equally_long_and_the_padding_is_nobodys():
    assert chunks_of([6, 4], 2) == [[(0, 0, 5)], [(0, 5, 6), (1, 0, 4)]]
    assert chunks_of([6, 4], 4) == [[(0, 0, 3)], [(0, 3, 6)], [(1, 0, 3)], [(1, 3, 4)]]  # 12 places for 10
    assert chunks_of([1, 1], 4) == [[(0, 0, 1)], [(1, 0, 1)], [], []]
    for ranks in range(1, 9):
        owned = [each for rank in chunks_of([5, 1, 7], ranks) for each in rank]
        assert [sum(end - begin for i, begin, end in owned if i == n) for n in range(3)] == [5, 1, 7]


def plain(groups):
    return torch.optim.SGD(groups, 0.1)


def test_parameters_are_counted_once_and_frozen_ones_left_out():
    first, tied = nn.Linear(3, 4), nn.Linear(3, 4)
    tied.weight = first.weight
    tied.bias.requires_grad_(False)

    def program(comm):
        update = ShardedOptimizer(plain, nn.Sequential(first, tied), comm)
        return [unit.length for unit in update.units], [len(shard) for shard in update.shards]

    assert run(program, 1).results == [([16], [16])]
    assert run(program, 3).results == [([16], [6])] * 3
    groups = [{"params": [first.weight]}, {"params": [first.bias, tied.weight]}]
    assert [unit.length for unit in run(lambda comm: ShardedOptimizer(plain, groups, comm), 1).results[0].units] == [
        12,
        4,
    ]
    with pytest.raises(ValueError, match="no parameter to train"):
        run(lambda comm: ShardedOptimizer(plain, [tied.bias], comm), 2)


def test_what_cannot_be_sharded_is_told_on_every_rank():
    def program(comm):
        with pytest.raises(ValueError, match=r"rank 1 has another model than rank 0: parameter 0 is .4, 3. float32"):
            ShardedOptimizer(plain, nn.Linear(3, 3 + comm.rank % 2), comm)
        with pytest.raises(ValueError, match="'scale' belongs to no layer"):
            model = nn.Sequential(nn.Linear(2, 2))
            model.scale = nn.Parameter(torch.ones(1))
            ShardedParameters(plain, model, comm)
        with pytest.raises(ValueError, match="name the modules that compute at once"):
            ShardedParameters(plain, model.parameters(), comm)
        return True

    assert all(run(program, 3).results)


ELEMENTWISE = ("Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "ASGD", "NAdam", "RAdam", "RMSprop")


def test_optimizers_of_torch_that_update_each_element_by_itself_may_be_sharded():
    for name in ELEMENTWISE:
        check_elementwise(getattr(torch.optim, name))
        check_elementwise(lambda groups, n=name: getattr(torch.optim, n)(groups, lr=0.1, weight_decay=0.1))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda groups: LARS(groups, 0.1), "it is not element-wise"),
        (lambda groups: LAMB(groups, 0.1), "it is not element-wise"),
        (torch.optim.Adafactor, "it is not element-wise"),
        (torch.optim.LBFGS, "it fails with .* a vector, in a plain step"),
        (torch.optim.Muon, "it fails with a part of a parameter"),
        (torch.optim.SparseAdam, "it fails with"),
    ],
)
def test_optimizers_that_look_at_whole_layers_are_refused(make, said):
    with pytest.raises(ValueError, match=f"the optimizer cannot be sharded: .*{said}"):
        run(lambda comm: ShardedOptimizer(make, nn.Linear(3, 2), comm), 2)


def twelves():
    """Make a model whose layers' parameters 2, 3 and 4 ranks share alike: 72, 156 and 156 of them."""
    return nn.Sequential(nn.Linear(5, 12), nn.Tanh(), nn.Linear(12, 12), nn.Tanh(), nn.Linear(12, 12))


def steps(comm, kind, count, model=twelves, passes=1, nodes=None):
    """Train so many steps, of so many backward passes. nodes: ranks of each, where sharding stays within them."""
    own, arguments = model(), {}
    if not issubclass(STAGES[kind], ShardedParameters):
        arguments["bucket_bytes"] = 1
    update = STAGES[kind](plain, own, **(within_nodes(comm, nodes) if nodes else {"comm": comm}), **arguments)
    for _ in range(count):
        update.zero_grad()
        for _ in range(passes):
            own(torch.ones(2, 5)).square().sum().backward()
        update.step()


def sent_in_a_step(kind, size, **arguments):
    """Values that each rank sends in a step: the difference of two runs."""
    one, two = (run(lambda comm, n=n: steps(comm, kind, n, **arguments), size).traffic for n in (1, 2))
    return (two - one).sum(axis=1) / 4


@pytest.mark.parametrize("kind", STAGES)
def test_values_sent_are_those_of_the_closed_form(kind):
    times = 3 if issubclass(STAGES[kind], ShardedParameters) else 2
    parameters = 72 + 156 + 156
    for size in (1, 2, 3, 4):
        assert sent_in_a_step(kind, size).tolist() == [times * parameters * (size - 1) / size] * size


def test_of_several_backward_passes_stages_2_and_3_send_each():
    share = (72 + 156 + 156) * (2 - 1) / 2
    assert sent_in_a_step("ShardedOptimizer", 2, passes=3).tolist() == [2 * share] * 2
    assert sent_in_a_step("ShardedGradients", 2, passes=3).tolist() == [(3 + 1) * share] * 2
    assert sent_in_a_step("ShardedParameters", 2, passes=3).tolist() == [3 * 3 * share] * 2


def test_within_nodes_only_sums_of_shards_go_from_node_to_node():
    one, two = (run(lambda comm, n=n: steps(comm, "ShardedParameters", n, nodes=2), 4).traffic for n in (1, 2))
    sent, parameters = (two - one) / 4, 72 + 156 + 156
    assert sent[0, 1] == sent[1, 0] == sent[2, 3] == 3 * parameters / 2
    # An all-reduce of a shard, half of the parameters, over two nodes: as many values as the shard has.
    assert sent[0, 2] == sent[2, 0] == sent[1, 3] == parameters / 2
    assert sent[0, 3] == sent[1, 2] == 0


def test_a_tied_weight_is_gathered_for_each_layer_that_uses_it():
    class Embedding(nn.Linear):
        def forward(self, x):
            return x @ self.weight

    class Head(Embedding):
        def forward(self, x):
            return x @ self.weight.T

    def tied():
        first, last = Embedding(12, 5, bias=False), Head(12, 5, bias=False)
        last.weight = first.weight
        return nn.Sequential(first, nn.Linear(12, 12), last)

    assert sent_in_a_step("ShardedParameters", 2, model=tied).tolist() == [(5 * 60 + 3 * 156) / 2] * 2


@pytest.mark.parametrize("stage", [ShardedParameters, PrefetchedParameters])
def test_a_gradient_penalty_is_refused_by_stage_3_and_right_in_stage_2(stage):
    def penalty(model, x):
        (gradient,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
        return (gradient.norm() - 1).pow(2)

    def program(comm, stage):
        torch.manual_seed(1)
        model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)).double()
        x = torch.ones(2, 3, dtype=torch.float64, requires_grad=True)
        wanted = torch.autograd.grad(penalty(model, x), list(model.parameters())[:-1])  # but for the last bias
        update = stage(plain, model, comm)
        penalty(model, x).backward()
        return update.step() - sum(g.pow(2).sum().item() for g in wanted) ** 0.5

    with pytest.raises(RuntimeError, match=r"create_graph=True.*Take stage 2"):
        run(lambda comm: program(comm, stage), 2)
    assert run(lambda comm: program(comm, ShardedGradients), 2).results == [pytest.approx(0, abs=1e-12)] * 2
