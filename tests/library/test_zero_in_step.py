"""ZeRO names what ranks do differently: the layers that they run, and the batches that they leave out."""

import pytest
import torch
from torch import nn

from mpcourse.virtual import RankFailed, run
from mpcourse.zero import AloneComm, ShardedParameters
from tests.programs import zero_in_step
from tests.programs.zero_in_step import LAYERS, PROGRAMS, STAGES, sgd

GATHERING = [kind for kind, stage in STAGES.items() if issubclass(stage, ShardedParameters)]
SAID = {
    "another order": "rank 0 runs the forward pass of layer 'b', rank 1 runs the forward pass of layer 'a'",
    "skips the expert": "rank 0 runs the forward pass of layer 'expert', rank 1 runs the forward pass of layer 'last'",
    "skips the last": "rank 0 runs the forward pass of layer 'last', rank 1 begins a backward pass",
    "drops the expert's result": "rank 0 runs the backward pass of layer 'expert', rank 1 runs the backward pass of "
    "layer 'b'",
}


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("case", SAID)
@pytest.mark.parametrize("kind", GATHERING)
def test_ranks_that_run_different_layers_are_named_with_the_layers(kind, case, size):
    with pytest.raises(RankFailed, match=SAID[case]):
        run(lambda comm: zero_in_step.train(comm, kind, PROGRAMS[case]), size)


def test_real_ranks_say_it_all_and_end(mpirun):
    done = mpirun(3, "-m", "mpi4py", zero_in_step.__file__)
    assert done.returncode == 0, done.stderr[-3000:]
    said = done.stdout.splitlines()
    assert len(said) == 3 * len(GATHERING) * len(SAID)
    for rank in range(3):
        mine = [line.partition(": ")[2] for line in said if line.startswith(f"{rank}: ")]
        assert all(phrase in line for line, phrase in zip(mine, [*SAID.values()] * len(GATHERING), strict=True)), mine


@pytest.mark.parametrize("kind", STAGES)
@pytest.mark.parametrize("batches", [({3}, {1}), (set(), {2}), ({4}, {2})])
def test_ranks_that_leave_out_different_batches_are_named(kind, batches):
    with pytest.raises(RankFailed, match=r"different batches.*: 0 on rank 0, 1 on rank 1|rank 0 steps, rank 1 "):
        run(lambda comm: zero_in_step.train(comm, kind, leave_out=batches[comm.rank]), 2)


@pytest.mark.parametrize("kind", STAGES)
def test_a_batch_that_was_dropped_before_others_are_added_up_is_named(kind):
    """Both ranks run two backward passes before the step, but rank 1 has dropped the gradients of the first."""

    def program(comm):
        model = zero_in_step.Model()
        optimizer = STAGES[kind](sgd, model, comm)
        for number in range(2):
            if number == 0 or comm.rank:
                optimizer.zero_grad()
            model(torch.ones(1, 3)).sum().backward()
        optimizer.step()

    with pytest.raises(RankFailed, match=r"in step 1 ranks average gradients of different batches.* 1 on rank 1"):
        run(program, 2)


@pytest.mark.parametrize("kind", STAGES)
def test_ranks_that_leave_out_the_same_batches_train_on(kind):
    assert run(lambda comm: zero_in_step.train(comm, kind, leave_out={1, 3}), 3).results == [2] * 3


@pytest.mark.parametrize("kind", GATHERING)
def test_one_rank_alone_may_evaluate_within_whole(kind):
    def program(comm):
        model = zero_in_step.Model()
        optimizer = STAGES[kind](sgd, model, comm)
        with optimizer.whole(), torch.no_grad():
            return model(torch.ones(1, 3)).isfinite().all().item() if comm.rank == 0 else None

    assert run(program, 2).results == [True, None]


def test_a_rank_that_takes_more_steps_than_others_is_named(mpirun):
    done = mpirun(2, zero_in_step.__file__, "more steps")
    assert done.returncode != 0
    assert "rank 0 goes on with ZeRO (its call" in done.stderr and "and rank 1 has ended after" in done.stderr


def test_layers_without_names_are_numbered():
    def program(comm):
        layers = [nn.Linear(3, 3) for _ in range(2)]
        parameters = [p for layer in layers for p in layer.parameters()]
        optimizer = ShardedParameters(sgd, parameters, comm, layers)
        for layer in layers[:: 1 - 2 * comm.rank]:
            layer(torch.ones(1, 3))
        return optimizer

    with pytest.raises(RankFailed, match=r"rank 0 runs the forward pass of layer 0, rank 1 .* of layer 1"):
        run(program, 2)


def test_alone_nothing_is_compared():
    optimizer = ShardedParameters(sgd, zero_in_step.Model(), AloneComm(4))
    assert optimizer._in_step.check(0, 0, 7) == [7] and len(LAYERS) == 5
