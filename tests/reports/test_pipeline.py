"""Public reports about pipelines: torchgpipe, Megatron-LM and others, rebuilt small, each with the right value."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from mpcourse.pipeline import (
    Costs,
    defer_batch_norm,
    gpipe,
    interleaved_one_f_one_b,
    naive,
    one_f_one_b,
    pipeline_step,
    replay,
    zero_bubble_h1,
)
from mpcourse.pipeline.ranks import PipelineRank
from mpcourse.split import split
from mpcourse.virtual import run
from tests.programs import grid_truth

EQUAL = Costs(1, 1)  # forward and backward take as long


def layers(n=4, width=5):
    with torch.random.fork_rng():
        torch.manual_seed(2)
        return nn.Sequential(*[nn.Sequential(nn.Linear(width, width), nn.Tanh()) for _ in range(n)]).double()


def data(batch, width=5):
    draw = torch.Generator().manual_seed(batch)
    return [torch.randn(batch, width, generator=draw, dtype=torch.float64) for _ in range(2)]


def gradients(model):
    return [p.grad for p in model.parameters()]


def plain_gradients(model, x, target):
    model = copy.deepcopy(model)
    F.mse_loss(model(x), target).backward()
    return gradients(model)


# -- values --


@pytest.mark.parametrize("microbatches", [1, 2, 4])
@pytest.mark.parametrize("schedule", [gpipe, one_f_one_b, zero_bubble_h1])
def test_gradients_do_not_depend_on_the_number_of_micro_batches(schedule, microbatches):
    """With the same batch size and seed, two or four micro-batches gave other results than one.

    https://github.com/kakaobrain/torchgpipe/issues/35
    """
    model, (x, target) = layers(), data(8)
    wanted = plain_gradients(model, x, target)
    pipeline = split(model, [2, 2], ["cpu", "cpu"])
    pipeline_step(pipeline, schedule(2, microbatches), x, target, F.mse_loss)
    torch.testing.assert_close(gradients(model), wanted, rtol=0, atol=1e-14)


@pytest.mark.parametrize("microbatches", [2, 3, 5])
def test_the_norm_of_gradients_is_not_divided_by_micro_batches_twice(microbatches):
    """The loss was normalised for the whole batch, and the schedule divided it by the micro-batches once more.

    https://github.com/areal-project/AReaL/pull/1273
    """
    model, (x, target) = layers(), data(30)
    wanted = torch.cat([g.flatten() for g in plain_gradients(model, x, target)]).norm().item()

    def program(comm):
        part = copy.deepcopy(model)[comm.rank * 2 : comm.rank * 2 + 2]
        PipelineRank(comm, part, one_f_one_b(2, microbatches), F.mse_loss).step(x, target)
        return sum(g.pow(2).sum().item() for g in gradients(part))

    assert sum(run(program, 2).results) ** 0.5 == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize("microbatches", [3, 4, 7])
def test_a_batch_that_does_not_divide_weighs_every_example_alike(microbatches):
    """Results varied with the micro-batch size, because means of unequal parts were averaged as if they were equal.

    https://github.com/NVIDIA-NeMo/Speech/issues/8343
    """
    model, (x, target) = layers(), data(10)
    wanted = plain_gradients(model, x, target)
    pipeline_step(split(model, [2, 2], ["cpu", "cpu"]), gpipe(2, microbatches), x, target, F.mse_loss)
    torch.testing.assert_close(gradients(model), wanted, rtol=0, atol=1e-14)


def with_batch_norm():
    with torch.random.fork_rng():
        torch.manual_seed(2)
        return nn.Sequential(nn.Linear(5, 5), nn.BatchNorm1d(5), nn.Linear(5, 5), nn.BatchNorm1d(5)).double()


def test_deferred_batch_norm_ends_with_the_statistics_of_the_whole_batch():
    """How is batch norm done with micro-batches? Its statistics are gathered, and used once a batch.

    https://github.com/kakaobrain/torchgpipe/issues/14
    """
    model, (x, target) = with_batch_norm(), data(12)
    plain = copy.deepcopy(model)
    plain[1](plain[0](x))
    model = defer_batch_norm(model)
    pipeline_step(split(model, [2, 2], ["cpu", "cpu"]), gpipe(2, 4), x, target, F.mse_loss)
    torch.testing.assert_close(model[1].running_mean, plain[1].running_mean, rtol=0, atol=1e-14)
    torch.testing.assert_close(model[1].running_var, plain[1].running_var, rtol=0, atol=1e-14)


def test_batch_norm_in_training_normalises_each_micro_batch():
    """A detection network became worse with the number of divisions: its batch norms saw smaller batches.

    https://github.com/kakaobrain/torchgpipe/issues/9
    """
    model, (x, target) = with_batch_norm(), data(12)
    whole = copy.deepcopy(model)
    parts = [F.mse_loss(whole(a), b) for a, b in zip(x.chunk(4), target.chunk(4), strict=True)]
    loss = pipeline_step(split(model, [2, 2], ["cpu", "cpu"]), gpipe(2, 4), x, target, F.mse_loss).loss
    assert loss.item() == pytest.approx(sum(parts).item() / 4, rel=1e-12)
    assert abs(loss.item() - F.mse_loss(copy.deepcopy(model)(x), target).item()) > 1e-3


@pytest.mark.parametrize("sizes", [(1, 2, 1), (2, 2, 1)])
def test_a_tied_embedding_gets_the_gradients_of_both_its_stages(sizes):
    """Why has the last stage an embedding? For the logits; its gradient and the first stage's must be added up.

    https://github.com/NVIDIA/Megatron-LM/issues/299
    """
    data_ranks, stages, _ = sizes
    found = run(lambda comm: grid_truth.on_a_grid(comm, sizes, grid_truth.momentum), data_ranks * stages).results
    assert max(found) < 1e-10


def test_tied_gradients_are_whole_on_every_replica_of_both_stages():
    """Shards of a tied gradient lay on different replicas in the first and the last stage, and were added up crosswise.

    https://github.com/NVIDIA/Megatron-LM/issues/844
    """
    found = run(lambda comm: grid_truth.on_a_grid(comm, (2, 2, 1), grid_truth.adamw, clip=None), 4).results
    assert max(found) < 1e-10


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe"])
def test_each_replica_of_each_stage_averages_all_micro_batches(schedule):
    """Of a data-parallel 1F1B pipeline the last stage never averaged its gradients: it has no cool-down phase.

    https://github.com/huggingface/picotron/pull/5
    """
    found = run(
        lambda comm: grid_truth.on_a_grid(comm, (2, 2, 1), grid_truth.momentum, clip=None, schedule=schedule), 4
    ).results
    assert max(found) < 1e-10


# -- time and memory --


def test_8_stages_and_32_micro_batches_take_78_steps_in_either_schedule():
    """Does 1F1B have a smaller bubble than GPipe? Not with one forward or backward a step: both have 14 of 78.

    What it saves is activations: each stage holds at most 8 micro-batches, not 32.
    https://github.com/zxypro1/algolocal/pull/95
    """
    both = replay(gpipe(8, 32), EQUAL), replay(one_f_one_b(8, 32), EQUAL)
    for execution in both:
        assert execution.makespan == 78 and execution.bubble == pytest.approx(14 / 78)
    assert [max(execution.peak) for execution in both] == [32, 8]


def test_a_larger_micro_batch_of_the_same_batch_makes_a_larger_bubble():
    """Does increasing the micro-batch size reduce the bubble? The number of micro-batches does, which then falls.

    https://github.com/ISEEKYAN/verl_megatron_practice/issues/9
    """
    batch, stages = 64, 4
    shares = []
    for size in (1, 2, 4, 8):
        execution = replay(one_f_one_b(stages, batch // size), Costs(size, 2 * size))
        assert execution.idle[0] / execution.busy[0] == pytest.approx((stages - 1) / (batch // size))
        shares.append(execution.bubble)
    assert shares == sorted(shares) and shares[0] < shares[-1]


@pytest.mark.parametrize("stages", [2, 4, 8])
def test_without_micro_batches_all_stages_but_one_wait(stages):
    """What part of the time is bubble where each batch must go forward and backward before the next? (D - 1) / D.

    https://github.com/pentium3/sys_reading/issues/259
    """
    for microbatches in (1, 3):
        assert replay(naive(stages, microbatches)).bubble == pytest.approx((stages - 1) / stages)


def test_16_stages_and_8_micro_batches_wait_for_longer_than_they_work():
    """A lesson on schedules counts a bubble of 30 F beside 16 F of work.

    https://github.com/rohitg00/ai-engineering-from-scratch/pull/66
    """
    execution = replay(one_f_one_b(16, 8), EQUAL)
    assert execution.busy == [16] * 16 and execution.idle == [30] * 16


@pytest.mark.parametrize(("stages", "microbatches", "chunks"), [(4, 8, 2), (4, 16, 4), (8, 16, 2)])
def test_interleaving_divides_the_bubble_by_the_chunks(stages, microbatches, chunks):
    """Interleaved 1F1B was as fast as zero bubble with enough chunks: its bubble is (p - 1) / (v m) of the work.

    https://github.com/sail-sg/zero-bubble-pipeline-parallelism/issues/21
    """
    plain = replay(one_f_one_b(stages, microbatches))
    interleaved = replay(interleaved_one_f_one_b(stages, microbatches, chunks))
    work = 3 * microbatches
    assert plain.makespan - work == pytest.approx(3 * (stages - 1))
    assert interleaved.makespan - work == pytest.approx(3 * (stages - 1) / chunks)
    assert replay(zero_bubble_h1(stages, microbatches)).makespan - work == pytest.approx(stages - 1)


@pytest.mark.parametrize("schedule", [one_f_one_b, zero_bubble_h1])
def test_more_micro_batches_do_not_make_the_peak_larger(schedule):
    """Peak memory rose with the number of micro-batches, as if all were held: weight gradients were kept one by one.

    https://github.com/marin-community/marin/issues/6532
    """
    assert [max(replay(schedule(4, m)).peak) for m in (8, 16, 32)] == [4, 4, 4]
    assert [max(replay(gpipe(4, m)).peak) for m in (8, 16, 32)] == [8, 16, 32]


@pytest.mark.parametrize("microbatches", [5, 6, 7])
def test_interleaving_takes_numbers_that_the_stages_do_not_divide(microbatches):
    """What happens where groups of micro-batches are not multiples of the stages? More bubble, and no wrong order.

    https://github.com/NVIDIA/Megatron-LM/issues/1829
    """
    model, (x, target) = layers(8), data(14)
    wanted = plain_gradients(model, x, target)
    schedule = interleaved_one_f_one_b(4, microbatches, 2)
    pipeline_step(split(model, [1] * 8, ["cpu"] * 8), schedule, x, target, F.mse_loss)
    torch.testing.assert_close(gradients(model), wanted, rtol=0, atol=1e-14)
    assert replay(schedule).makespan - 3 * microbatches >= 3 * (4 - 1) / 2


def test_checkpoints_cost_a_forward_more_and_the_pipeline_is_what_makes_it_faster():
    """How much of GPipe's speed is due to larger batches, which checkpoints allow? Compare equal batches.

    https://github.com/kakaobrain/torchgpipe/issues/18
    """
    one = replay(gpipe(1, 8), Costs(4, 8, again=4))
    four = replay(gpipe(4, 8), Costs(1, 2, again=1))
    assert one.makespan == 8 * 12 + 7 * 4  # the last micro-batch goes back at once: nothing was forgotten
    assert replay(gpipe(4, 8), Costs(1, 2)).makespan < four.makespan < one.makespan


# -- what stages hand on --


class Embed(nn.Module):
    """(batch, length) of tokens -> hidden states, a mask, positions, and angles; only the first has a gradient."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(7, 4)

    def forward(self, tokens):
        positions = torch.arange(tokens.shape[1]).expand(tokens.shape)
        angles = torch.linspace(0, 1, 4, dtype=torch.float64).expand(len(tokens), 4)
        return self.table(tokens), tokens > 2, positions, angles


class Read(nn.Module):
    """Those four -> (batch, length, 7)."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(4, 7)

    def forward(self, hidden, mask, positions, angles):
        return self.head(hidden * mask[..., None] + positions[..., None] + angles[:, None])


class ReadTuple(Read):
    """Takes the four as one tuple, as layers of an nn.Sequential do."""

    def forward(self, given):
        return super().forward(*given)


def token_loss(output, target):
    return F.cross_entropy(output.flatten(0, 1), target.flatten())


def tokens_problem(read):
    with torch.random.fork_rng():
        torch.manual_seed(4)
        embed, head = Embed().double(), read().double()
    x, target = (torch.randint(7, (6, 5), generator=torch.Generator().manual_seed(i)) for i in range(2))
    hidden = embed(x)
    token_loss(head(*hidden) if read is Read else head(hidden), target).backward()
    wanted = [gradients(embed), gradients(head)]
    for p in (*embed.parameters(), *head.parameters()):
        p.grad = None
    return embed, head, x, target, wanted


@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_stage_may_hand_on_tensors_that_need_no_gradient(checkpoint):
    """Masks, positions and angles that cross a cut were given requires_grad, or their gradients were waited for.

    https://github.com/deepspeedai/DeepSpeed/issues/7357 and https://github.com/deepspeedai/DeepSpeed/pull/5518
    """
    embed, head, x, target, wanted = tokens_problem(Read)

    def program(comm):
        part = copy.deepcopy([embed, head][comm.rank])
        PipelineRank(comm, part, one_f_one_b(2, 3), token_loss, checkpoint=checkpoint).step(x, target)
        return gradients(part)

    torch.testing.assert_close(run(program, 2).results, wanted, rtol=0, atol=1e-14)


@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_tuple_that_crosses_a_cut_stays_one_argument(checkpoint):
    """Layers hand on tuples of hidden states and masks; with one stage that worked, with two it failed.

    https://github.com/tdrussell/qlora-pipe/issues/56 and https://github.com/deepspeedai/DeepSpeed/issues/3895
    """
    embed, head, x, target, wanted = tokens_problem(ReadTuple)
    pipeline = split(nn.Sequential(embed, head), [1, 1], ["cpu", "cpu"])
    torch.testing.assert_close(pipeline(x), head(embed(x)), rtol=0, atol=0)
    pipeline_step(pipeline, gpipe(2, 3), x, target, token_loss, checkpoint=checkpoint)
    torch.testing.assert_close([gradients(embed), gradients(head)], wanted, rtol=0, atol=1e-14)


@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_frozen_first_stage_gets_no_gradient_and_sends_none(checkpoint):
    """Report: "element 0 of tensors does not require grad": checkpoints of a stage without an input gradient failed.

    https://github.com/deepspeedai/DeepSpeed/issues/4479
    """
    model, (x, target) = layers(3), data(6)
    model[0].requires_grad_(False)
    wanted = plain_gradients(model, x, target)

    def program(comm):
        part = copy.deepcopy(model)[comm.rank : comm.rank + 1]
        PipelineRank(comm, part, one_f_one_b(3, 2), F.mse_loss, checkpoint=checkpoint).step(x, target)
        return gradients(part)

    found = sum(run(program, 3).results, [])
    assert found[:2] == [None, None]
    torch.testing.assert_close(found[2:], wanted[2:], rtol=0, atol=1e-14)


@pytest.mark.parametrize("schedule", [naive, gpipe, one_f_one_b, zero_bubble_h1])
@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_forward_that_is_run_again_drops_the_same_elements(schedule, checkpoint):
    """With checkpoints dropout drew other masks in backward, and the loss was 2.49 in place of 2.19.

    https://github.com/allenai/OLMo-core/pull/828 and https://github.com/openai/guided-diffusion/issues/167
    """
    x, target = data(8, 30)

    def found(schedule, checkpoint):
        model = layers(2, 30)
        for layer in model:
            layer.append(nn.Dropout(0.5))
        pipeline = split(model, [1, 1], ["cpu", "cpu"])
        pipeline_step(pipeline, schedule(2, 4), x, target, F.mse_loss, checkpoint=checkpoint, seed=5)
        return gradients(model)

    torch.testing.assert_close(found(schedule, checkpoint), found(gpipe, False), rtol=0, atol=1e-15)
