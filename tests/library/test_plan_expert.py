"""A plan with an expert axis: GPUs that share the experts of each layer, as far as it can be counted."""

import pytest

from mpcourse.common.errors import UserError
from mpcourse.plan import Asked, Input, Machines, plan
from mpcourse.plan.configuration import configured, read

LENGTH = 2048
NAME = "mixtral-8x7b"
C = read(NAME)
OF_EXPERTS = C.layers * C.experts * 3 * C.width * C.hidden
REST = 46_702_792_704 - OF_EXPERTS


def planned(gpus, expert, zero, batch=None, recompute="full", **options):
    asked = Asked(gpus, 1, 1, recomputations=(recompute,), zeros=(zero,), microbatches=(1,))
    example, machines = Input((LENGTH,), True), Machines.named(gpus, "H100-SXM")
    plans = plan(configured(NAME), machines, batch or gpus, example, asked, expert=expert, **options)
    return plans, plans.best[0] if plans.best else plans.smallest


def states(plan):
    return sum(plan.memory[kind] for kind in ("parameters", "gradients", "optimizer state"))


@pytest.mark.parametrize("expert", [1, 2, 8])
def test_a_gpu_has_its_share_of_the_experts_and_all_else(expert):
    plans, found = planned(8, expert, zero=0)
    assert plans.parameters == REST + OF_EXPERTS
    assert states(found) == pytest.approx(16 * (REST + OF_EXPERTS / expert), rel=1e-12)


@pytest.mark.parametrize("zero, whole, shared", [(1, 4, 12), (2, 2, 14), (3, 0, 16)])
def test_only_gpus_with_the_same_experts_share_their_states(zero, whole, shared):
    for expert in (1, 4, 8):
        found = planned(16, expert, zero)[1]
        own = REST + OF_EXPERTS / expert
        wanted = whole * own + shared * (REST / 16 + OF_EXPERTS / expert / (16 / expert))
        assert states(found) == pytest.approx(wanted, rel=1e-9)


def test_work_does_not_depend_on_the_expert_axis_and_messages_do():
    alone, shared = planned(8, 1, zero=3)[1], planned(8, 8, zero=3)[1]
    assert shared.flops == alone.flops and alone.seconds.expert == 0
    machines = Machines.named(8, "H100-SXM")
    each = machines.all_to_all(8, 1, LENGTH * C.chosen * C.width * 2)
    # dispatch and combine: in forward, in forward again by recomputation, and in backward
    assert shared.seconds.expert == pytest.approx(6 * C.layers * each, rel=1e-6)
    # ZeRO-3 gathers no experts from others who do not have them
    assert shared.seconds.data < alone.seconds.data


def test_an_all_to_all_goes_over_both_kinds_of_links():
    machines = Machines.named(16, "H100-SXM")
    inside, between = machines.inside, machines.between
    assert machines.all_to_all(8, 1, 8e6) == pytest.approx(inside.seconds(7e6))
    assert machines.all_to_all(16, 1, 16e6) == pytest.approx(max(inside.seconds(7e6), between.seconds(8e6)))
    assert machines.all_to_all(2, 8, 2e6) == pytest.approx(between.seconds(1e6))
    assert machines.all_to_all(1, 1, 1e6) == 0


def test_a_token_costs_as_many_flops_as_its_experts():
    """Of 46.7 billion parameters 12.9 billion are used by a token, as Mixtral's authors say."""
    found = planned(8, 8, zero=3)[1]
    active = REST + OF_EXPERTS * C.chosen / C.experts
    assert active == pytest.approx(12.9e9, rel=0.005)
    attention = 6 * C.layers * LENGTH * C.heads * C.head  # 12 without the causal mask
    assert found.flops / LENGTH == pytest.approx(6 * (active - C.vocabulary * C.width) + attention, rel=0.01)


@pytest.mark.parametrize(
    "gpus, options, says",
    [
        (8, {"expert": 0}, "--expert 0: an expert axis has 1 rank or more"),
        (8, {"expert": 16}, "--expert 16 does not divide the data axis"),
        (8, {"expert": 3}, "--expert 3 does not divide the data axis"),
    ],
)
def test_what_does_not_fit_is_refused(gpus, options, says):
    with pytest.raises(UserError, match=says):
        planned(gpus, zero=0, **options)


@pytest.mark.parametrize(
    "given, says",
    [
        (("--model", "llama-2-7b", "--expert", 2), "llama-2-7b has no experts"),
        (("--model", NAME, "--expert", 3), "--expert 3 does not divide the 8 experts of mixtral-8x7b"),
        (("--model", NAME, "--expert", 2, "--lora", 8, "q"), "adapters are not known along the expert axis"),
        (("model.py:make", "--expert", 2), "--expert is for --model"),
    ],
)
def test_the_command_refuses_what_has_no_experts_to_share(cli, given, says):
    done = cli("plan", *given, "--gpus", 8, "--batch", 8)
    assert done.returncode == 2 and says in done.stderr


def test_a_published_training_of_experts_is_predicted_a_ninth_too_fast():
    """NVIDIA, Megatron Bridge, performance summary of NeMo 25.11, 2025: Qwen3 235B on DGX GB200, bfloat16.

    The only row in bfloat16 on GPUs like one of our tables. It was predicted once, and nothing was fitted to it. The
    GPUs of a GB200 are somewhat faster than a B200. How much was computed again was not published.
    """
    asked = Asked(32, 8, 1, (1, 3), microbatches=(1,))
    machines = Machines.named(256, "B200", 64)
    make = configured("qwen3-235b-a22b", "fused")
    best = plan(make, machines, 8192, Input((4096,), True), asked, expert=32).best[0]
    speed = 8192 * 4096 / best.seconds.total / 256
    assert speed / 4916 == pytest.approx(1.11, abs=0.02)


def test_the_command_says_what_the_experts_send_and_what_is_assumed(cli):
    done = cli("plan", "--model", NAME, "--gpus", 16, "--gpu", "H100-SXM", "--batch", 64, "--expert", 8)
    assert done.returncode == 0 and "46.7 billion parameters on 16 H100-SXM" in done.stdout
    assert " expert " in done.stdout and "Experts get equally many tokens here" in done.stdout
