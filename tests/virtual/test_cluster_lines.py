"""Errors name the line of the learner's program, whatever of this library has been called there."""

import inspect
import re

import numpy as np
import pytest
import torch
from torch import nn

from mpcourse.collectives import ring_allreduce
from mpcourse.data_parallel import MultiNodeOptimizer, create_communicator, scatter_dataset
from mpcourse.grid import Grid
from mpcourse.model_parallel import allgather, allreduce, recv, send
from mpcourse.pipeline import one_f_one_b
from mpcourse.pipeline.ranks import PipelineRank
from mpcourse.virtual import ClusterError, Deadlock, run
from mpcourse.zero import ShardedOptimizer, ShardedParameters


def sgd(parameters):
    return torch.optim.SGD(parameters, 0.1)


def backward(model):
    model(torch.ones(2, 4)).sum().backward()


def data_parallel(c, kind="naive"):
    model = nn.Linear(4, 4)
    optimizer = MultiNodeOptimizer(sgd(model.parameters()), create_communicator(kind, c))
    for _ in range(3 - c.rank):  # rank 1 does one step less
        optimizer.zero_grad()
        backward(model)
        optimizer.step()  # waits


def bucketed(c):
    data_parallel(c, "bucketed")


def flat(c):
    data_parallel(c, "flat")


def data_set(c):
    if c.rank == 0:
        scatter_dataset(list(range(4)), create_communicator("naive", c))  # waits


def zero(c):
    model = nn.Linear(4, 4)
    optimizer = ShardedOptimizer(sgd, model.parameters(), c)
    for _ in range(3 - c.rank):
        backward(model)
        optimizer.step()  # waits


def zero_3(c):
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    optimizer = ShardedParameters(sgd, model, c)
    if c.rank == 0:
        model(torch.ones(2, 4))  # waits
    return optimizer


def pipeline(c):
    stage = nn.Linear(4, 4)
    schedule = one_f_one_b(2, 2)
    ranks = PipelineRank(c, stage, schedule, nn.functional.mse_loss)
    if c.rank == 0:
        ranks.step(torch.ones(4, 4), None)  # waits


def forward_messages(c):
    if c.rank == 0:
        recv(c, 1)  # waits


def backward_messages(c):
    """Rank 1 leaves out its backward pass."""
    x = torch.ones(4, requires_grad=True)
    if c.rank == 0:
        send(x * 2, c, 1).sum().backward()  # waits
    else:
        recv(c, 0)


def backward_of_a_sum(c):
    y = allreduce(c, torch.ones(4, requires_grad=True))
    if c.rank == 0:
        y.sum().backward()  # waits


def backward_of_parts(c):
    y = allgather(c, torch.ones(4, requires_grad=True))
    if c.rank == 0:
        sum(each.sum() for each in y).backward()  # waits


def grids(c):
    if c.rank == 0:
        Grid(c, data=2)  # waits


def ring(c):
    if c.rank == 0:
        ring_allreduce(c, np.ones(8))  # waits


def own_helper(c):
    def mine():
        c.Barrier()  # waits

    if c.rank == 0:
        mine()


PROGRAMS = [data_parallel, flat, bucketed, data_set, zero, zero_3, pipeline, forward_messages, backward_messages,
            backward_of_a_sum, backward_of_parts, grids, ring, own_helper]  # fmt: skip


def line(program, mark):
    lines, first = inspect.getsourcelines(program)
    return first + next(i for i, text in enumerate(lines) if f"# {mark}" in text)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_a_deadlock_names_the_learners_line_first(program):
    with pytest.raises(Deadlock) as told:
        run(program, 2)
    (wait,) = [wait for wait in told.value.waits if wait.rank == 0]
    wanted = (
        f"{__name__.rpartition('.')[2]}.py:{line(data_parallel if program in (flat, bucketed) else program, 'waits')}"
    )
    assert re.match(rf"{re.escape(wanted)}($|, in [A-Za-z_.]+\(\)$)", wait.line), str(told.value)
    assert (", in " in wait.line) == (program is not own_helper)


def too_long(c):
    if c.rank == 0:
        ring_allreduce(c, np.ones(8))  # speaks
    else:
        c.Recv(np.zeros(1), 0)


def another_call(c):
    if c.rank == 0:
        create_communicator("naive", c)  # speaks
    else:
        c.Barrier()


@pytest.mark.parametrize("program", [too_long, another_call], ids=lambda f: f.__name__)
def test_other_mistakes_name_the_learners_line_too(program):
    with pytest.raises(ClusterError) as told:
        run(program, 2)
    wanted = f"{__name__.rpartition('.')[2]}.py:{line(program, 'speaks')}, in "
    assert wanted in str(told.value)
