"""A plan with a context axis: GPUs that share each sequence, as far as it can be counted."""

import pytest

from mpcourse.common.errors import UserError
from mpcourse.plan import Asked, Input, Machines, plan
from mpcourse.plan.configuration import configured

LENGTH = 8192
MACHINES = Machines.named(8, "H100-SXM")


def planned(context, batch, data=1, **options):
    asked = Asked(data, 1, 1, recomputations=("full",), zeros=(3,))
    return plan(configured("llama-3.1-8b"), MACHINES, batch, Input((LENGTH,), True), asked, context=context, **options)


def test_the_work_of_a_sequence_is_shared_and_its_activations_too():
    alone, shared = planned(1, 8, data=8).best[0], planned(8, 1).best[0]
    # one sequence on each of 8 GPUs against one on all of them: an eighth of the work, with half of the pairs
    assert shared.flops == pytest.approx(alone.flops / 8, rel=0.01)
    assert shared.memory["activations"] < alone.memory["activations"] / 6
    assert alone.seconds.context == 0 < shared.seconds.context < 0.1 * shared.seconds.compute


def test_the_context_axis_gathers_keys_and_values_in_each_layer():
    shared = planned(8, 1).best[0]
    layers, groups, head = 32, 8, 128
    each = 2 * LENGTH * groups * head * 2  # keys and values of one sequence, bfloat16
    gather = MACHINES.gather(8, 1, each)
    # forward, forward again by recomputation, and the sums of their gradients in backward
    assert shared.seconds.context == pytest.approx(3 * layers * gather, rel=1e-6)


def test_grids_count_the_context_axis_beside_data():
    plans = planned(4, 2, data=2)
    assert str(plans.best[0].candidate) == "data 2 x context 4 x pipeline 1 x tensor 1"
    assert plans.best[0].candidate.shown == "2x4x1x1"
    assert (plans.batch, plans.tokens) == (2, LENGTH)


@pytest.mark.parametrize(
    "context, length, says",
    [
        (0, 8192, "--context 0: a context axis has 1 rank or more"),
        (3, 8192, "--context 3 needs tokens, a multiple of 6"),
        (16, 8192, "--context 16 does not divide 8 GPUs"),
    ],
)
def test_what_does_not_fit_is_refused(context, length, says):
    with pytest.raises(UserError, match=says):
        plan(configured("llama-3.1-8b"), MACHINES, 8, Input((length,), True), context=context)


def test_the_command_refuses_a_context_axis_without_a_known_model(cli, tmp_path):
    file = tmp_path / "model.py"
    file.write_text("import torch\n\ndef make():\n    return torch.nn.Linear(2, 2)\n")
    done = cli("plan", f"{file}:make", "--gpus", 8, "--batch", 8, "--context", 2)
    assert done.returncode == 2 and "--context is for --model" in done.stderr
