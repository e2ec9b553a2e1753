"""DiLoCo: inner steps on each rank alone, and outer steps along what the ranks have changed on average."""

import copy
from functools import partial

import pytest
import torch
import torch.nn.functional as F

from mpcourse.data_parallel import LocalOptimizer, create_communicator
from mpcourse.models import mlp
from mpcourse.virtual import run

NESTEROV = partial(torch.optim.SGD, lr=0.7, momentum=0.9, nesterov=True)
EVERY, PERIODS = 3, 4


def batches(rank):
    draw = torch.Generator().manual_seed(rank)
    inputs = [torch.randn(5, 6, generator=draw, dtype=torch.float64) for _ in range(EVERY * PERIODS)]
    return [(x, torch.randint(4, (5,), generator=draw)) for x in inputs]


def model_of(seed=0):
    torch.manual_seed(seed)
    return mlp((6, 7, 4)).double()


def adamw(model):
    return torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], 1e-2, eps=1e-6)


def over_ranks(comm, outer, stop=None, resume=None):
    """Train on a rank of its own; return its parameters, or the state of everything after `stop` steps."""
    model = model_of(comm.rank)  # ranks draw different models: they become those of rank 0
    optimizer = LocalOptimizer(adamw(model), create_communicator("flat", comm), EVERY, model=model, outer=outer)
    begin = 0
    if resume is not None:
        begin = resume[0]
        model.load_state_dict(resume[1][comm.rank])
        optimizer.load_state_dict(resume[2][comm.rank])
    for step, (x, target) in enumerate(batches(comm.rank)):
        if step < begin:
            continue
        if step == stop:
            return copy.deepcopy(model.state_dict()), copy.deepcopy(optimizer.state_dict())
        optimizer.zero_grad()
        F.cross_entropy(model(x), target).backward()
        optimizer.step()
    return [p.detach() for p in model.parameters()]


def by_hand(size, rate, momentum):
    """Return the parameters by the paper's algorithm 1, with Nesterov's momentum written out."""
    replicas = [model_of() for _ in range(size)]
    optimizers = [adamw(model) for model in replicas]
    theta = [p.detach().clone() for p in replicas[0].parameters()]
    velocity = [torch.zeros_like(p) for p in theta]
    data = [batches(rank) for rank in range(size)]
    for period in range(PERIODS):
        for model, optimizer, own in zip(replicas, optimizers, data, strict=True):
            for p, began in zip(model.parameters(), theta, strict=True):
                p.data.copy_(began)
            for x, target in own[EVERY * period : EVERY * (period + 1)]:
                optimizer.zero_grad()
                F.cross_entropy(model(x), target).backward()
                optimizer.step()
        for i, began in enumerate(theta):
            outer = sum(began - list(model.parameters())[i].detach() for model in replicas) / size
            velocity[i] = momentum * velocity[i] + outer
            theta[i] = began - rate * (outer + momentum * velocity[i])
    return theta


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_diloco_is_the_papers_algorithm(size):
    wanted = by_hand(size, 0.7, 0.9)
    for found in run(lambda comm: over_ranks(comm, NESTEROV), size).results:
        assert all(torch.allclose(a, b, atol=1e-12) for a, b in zip(found, wanted, strict=True))


@pytest.mark.parametrize("size", [2, 3])
def test_an_outer_rate_of_1_is_local_sgd(size):
    with_outer, plain = (
        run(lambda comm, outer=outer: over_ranks(comm, outer), size).results[0]
        for outer in (partial(torch.optim.SGD, lr=1.0), None)
    )
    assert all(torch.allclose(a, b, atol=1e-14) for a, b in zip(with_outer, plain, strict=True))


@pytest.mark.parametrize("stop", [EVERY, EVERY + 1, 2 * EVERY + 2])
def test_a_training_goes_on_from_its_state(stop):
    whole = run(lambda comm: over_ranks(comm, NESTEROV), 2).results[0]
    models, optimizers = zip(*run(lambda comm: over_ranks(comm, NESTEROV, stop=stop), 2).results, strict=True)
    again = run(lambda comm: over_ranks(comm, NESTEROV, resume=(stop, models, optimizers)), 2).results[0]
    assert all(torch.equal(a, b) for a, b in zip(again, whole, strict=True))


def test_messages_are_one_sum_a_period_as_for_local_sgd():
    both = [run(lambda comm, outer=outer: over_ranks(comm, outer), 2).traffic.sum() for outer in (NESTEROV, None)]
    assert both[0] == both[1]


def test_more_parameters_are_refused():
    def program(comm):
        model = model_of()
        optimizer = LocalOptimizer(adamw(model), create_communicator("flat", comm), EVERY, outer=NESTEROV)
        optimizer.add_param_group({"params": [torch.zeros(2, requires_grad=True)]})

    with pytest.raises(Exception, match="an outer optimizer takes no more parameters"):
        run(program, 2)


def test_all_ranks_have_an_outer_optimizer_or_none_has():
    def program(comm):
        outer = NESTEROV if comm.rank else None
        return LocalOptimizer(adamw(model_of()), create_communicator("flat", comm), EVERY, outer=outer)

    with pytest.raises(ValueError, match=r"only some ranks were given an outer optimizer: \[False, True\]"):
        run(program, 2)
