"""Public reports about DeepSpeed's ZeRO and FSDP, rebuilt small: the right value, or the mistake named."""

import copy

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from mpcourse.grid import Grid, GridTrainer, clip_grad_norm
from mpcourse.pipeline import gpipe
from mpcourse.predict import predict
from mpcourse.virtual import run
from mpcourse.zero import ShardedCheckpointer, ShardedGradients, ShardedOptimizer, ShardedParameters
from mpcourse.zero.model_states import held

STAGES = pytest.mark.parametrize("stage", [ShardedOptimizer, ShardedGradients, ShardedParameters])
GB = 1e9


def sgd(groups):
    return torch.optim.SGD(groups, 0.5)


def adam(groups):
    return torch.optim.Adam(groups, 0.1)


def tower():
    with torch.random.fork_rng():
        torch.manual_seed(3)
        return nn.Sequential(*[nn.Linear(3, 3) for _ in range(3)], nn.Linear(3, 1)).double()


def inputs(rank):
    return torch.randn(2, 3, generator=torch.Generator().manual_seed(rank), dtype=torch.float64)


def values(model, update):
    """All parameters of a model whose optimizer is sharded. All ranks call it."""
    if isinstance(update, ShardedParameters):
        with update.whole():
            return [p.detach().clone() for p in model.parameters()]
    return [p.detach().clone() for p in model.parameters()]


def one_process(ranks, make=sgd, clip=None, passes=1, model=None):
    """Return the parameters and the norm of a process that has the inputs of all ranks, after one step."""
    model = copy.deepcopy(model or tower())
    optimizer = make([p for p in model.parameters() if p.requires_grad])
    for rank in range(ranks):
        for i in range(passes):
            (model(inputs(rank) * (i + 1)) ** 2).sum().div(ranks).backward()
    trained = [p for p in model.parameters() if p.grad is not None]
    norm = nn.utils.clip_grad_norm_(trained, clip or 1e9)
    optimizer.step()
    return [p.detach() for p in model.parameters()], norm.item()


def assert_equal_to_one_process(found, wanted):
    for parameters, norm in found:
        assert norm == pytest.approx(wanted[1], rel=1e-12)
        torch.testing.assert_close(parameters, wanted[0], rtol=0, atol=1e-12)


# -- memory --


@pytest.mark.parametrize(("stage", "wanted"), [(0, 120), (1, 31.4), (2, 16.6), (3, 1.9)])
def test_7_and_a_half_billion_parameters_on_64_ranks(stage, wanted):
    """How does the paper's table of memory come about, and why does a small model on four GPUs gain less?

    https://github.com/deepspeedai/DeepSpeed/issues/155
    """
    assert round(sum(held(7.5e9, stage, 64).values()) / GB, 1) == wanted


def test_the_same_model_takes_30_gb_a_rank_on_four_ranks_in_stage_3():
    """The same question: with four GPUs the table's 7.5 billion parameters take 30 GB each.

    https://github.com/deepspeedai/DeepSpeed/issues/155
    """
    assert sum(held(7.5e9, 3, 4).values()) == 30 * GB


def test_stage_2_shares_gradients_too():
    """An estimator counted 4 P + 16 P / N for stage 2, as if every rank had all gradients. It is 2 P + 14 P / N.

    https://github.com/deepspeedai/DeepSpeed/pull/5099 and https://github.com/deepspeedai/DeepSpeed/issues/4076
    """
    for ranks in (1, 2, 8, 64):
        assert sum(held(1e9, 2, ranks).values()) == pytest.approx(2e9 + 14e9 / ranks)


def test_a_higher_stage_keeps_less_even_of_a_small_model():
    """With ResNet-152 more memory was used the higher the stage, because of buffers of a size made for large models.

    https://github.com/deepspeedai/DeepSpeed/issues/6936
    """

    def model():
        return nn.Sequential(*[nn.Linear(64, 64) for _ in range(8)])

    numbers, kept = 8 * (64 * 64 + 64), []
    for stage in range(4):
        ranks = 8 if stage else 1
        (device,) = predict(model, [4, 64], optimizer="adam", zero=stage, ranks=ranks).devices
        kept.append(sum(device.kept.get(kind, 0) for kind in ("parameters", "gradients", "optimizer state")))
        assert kept[-1] == pytest.approx(numbers * sum(held(1, stage, ranks, weight=4, gradient=4, state=8).values()))
    assert kept == sorted(kept, reverse=True)


@STAGES
def test_frozen_weights_get_no_optimizer_state(stage):
    """ZeRO-3 allocated optimizer state for frozen weights, and failed to load checkpoints with them.

    https://github.com/deepspeedai/DeepSpeed/pull/2653
    """

    def program(comm):
        model = nn.Sequential(nn.Linear(40, 40), nn.Linear(40, 1, bias=False))
        model[0].requires_grad_(False)
        update = stage(adam, model, comm)
        model(torch.ones(2, 40)).sum().backward()
        update.step()
        moments = [state[key].numel() for state in update.optimizer.state.values() for key in ("exp_avg", "exp_avg_sq")]
        return sum(moments)

    assert run(program, 2).results == [2 * 40 / 2] * 2


@STAGES
def test_the_number_of_parameters_stays_what_it_is(stage):
    """A trainer reported 0 trainable parameters under ZeRO-3, because each tensor was an empty placeholder.

    https://github.com/huggingface/transformers/pull/22193
    """

    def program(comm):
        model = nn.Sequential(nn.Linear(20, 20), nn.Linear(20, 1))
        stage(sgd, model, comm)
        return sum(p.numel() for p in model.parameters())

    assert run(program, 2).results == [20 * 20 + 20 + 20 + 1] * 2


# -- one process's step --


@STAGES
@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_clipping_is_by_the_norm_of_all_shards(stage, ranks):
    """Clip sharded parameters, where torch's clip_grad_norm_ took the norm of a rank's shards for that of all.

    https://github.com/pytorch/pytorch/issues/72548 and https://github.com/pytorch/pytorch/issues/170862
    """

    def program(comm):
        model = tower()
        update = stage(sgd, model, comm)
        (model(inputs(comm.rank)) ** 2).sum().backward()
        norm = update.step(clip=0.1)
        return values(model, update), norm

    wanted = one_process(ranks, clip=0.1)
    assert wanted[1] > 0.1
    assert_equal_to_one_process(run(program, ranks).results, wanted)


def test_a_norm_counts_what_every_rank_has_once():
    """With NO_SHARD each rank has all gradients, and each of them was counted once a rank.

    https://github.com/pytorch/pytorch/pull/88955
    """

    def program(comm):
        whole, shard = (nn.Parameter(torch.zeros(1, dtype=torch.float64)) for _ in range(2))
        whole.grad, shard.grad = torch.full_like(whole, 3.0), torch.full_like(shard, [2.4, 3.2][comm.rank])
        return clip_grad_norm(Grid(comm, tensor=2), [whole, shard], 100.0, sharded=[shard])

    assert run(program, 2).results == [pytest.approx(5.0)] * 2


@STAGES
def test_passes_before_a_step_add_up(stage):
    """ZeRO-2 forgot the gradients of all micro-batches but the last one, because each backward pass ended a step.

    https://github.com/allenai/open-instruct/pull/1498
    """

    def program(comm):
        model = tower()
        update = stage(sgd, model, comm)
        for i in range(3):
            (model(inputs(comm.rank) * (i + 1)) ** 2).sum().backward()
        return update.step(), values(model, update)

    wanted = one_process(2, passes=3)
    assert_equal_to_one_process([(b, a) for a, b in run(program, 2).results], wanted)


@STAGES
def test_one_graph_may_be_run_backward_twice(stage):
    """A second backward pass through the same graph failed: the parameters of the first had been freed.

    https://github.com/deepspeedai/DeepSpeed/issues/3539
    """

    def program(comm):
        model = tower()
        update = stage(sgd, model, comm)
        loss = (model(inputs(comm.rank)) ** 2).sum() / 2
        loss.backward(retain_graph=True)
        loss.backward()
        norm = update.step()
        return values(model, update), norm

    assert_equal_to_one_process(run(program, 2).results, one_process(2))


@pytest.mark.parametrize("stage", [ShardedGradients, ShardedParameters])
def test_sparse_gradients_are_refused_in_our_words(stage):
    """Embeddings with sparse=True ended backward with an error of torch's about its own inside.

    https://github.com/pytorch/pytorch/issues/17356
    """

    def program(comm):
        model = nn.Sequential(nn.Embedding(9, 4, sparse=True), nn.Linear(4, 1))
        update = stage(sgd, model, comm)
        model(torch.arange(3)).sum().backward()
        update.step()

    with pytest.raises(ValueError, match=r"'0.weight' is sparse.*sparse=False"):
        run(program, 2)


@STAGES
def test_one_layer_may_have_frozen_and_trained_parameters(stage):
    """`FlatParameter` requires uniform `requires_grad`: a frozen bias beside a trained weight was refused.

    https://github.com/pytorch/pytorch/issues/104690
    """

    def partly(model):
        for p in (model[0].bias, model[1].weight, model[3].bias):
            p.requires_grad_(False)
        return model

    def program(comm):
        model = partly(tower())
        update = stage(sgd, model, comm)
        (model(inputs(comm.rank)) ** 2).sum().backward()
        norm = update.step()
        return values(model, update), norm

    assert_equal_to_one_process(run(program, 2).results, one_process(2, model=partly(tower())))


@STAGES
def test_checkpointed_layers_may_be_frozen(stage):
    """ZeRO-3, gradient checkpointing and frozen weights together failed: a weight was freed before it was compared.

    https://github.com/deepspeedai/DeepSpeed/pull/8130
    """

    def partly(model):
        model[0].requires_grad_(False)
        model[2].weight.requires_grad_(False)
        return model

    def program(comm):
        model = partly(tower())
        update = stage(sgd, model, comm)
        x = inputs(comm.rank)
        for layer in model:
            x = checkpoint(layer, x, use_reentrant=False)
        (x**2).sum().backward()
        norm = update.step()
        return values(model, update), norm

    assert_equal_to_one_process(run(program, 2).results, one_process(2, model=partly(tower())))


class Tied(nn.Module):
    """(batch,) of tokens -> (batch, 5) of logits, with one weight for both."""

    def __init__(self):
        super().__init__()
        self.embedding, self.body, self.head = nn.Embedding(5, 4), nn.Linear(4, 4), nn.Linear(4, 5, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens):
        return self.head(torch.tanh(self.body(self.embedding(tokens))))


@STAGES
@pytest.mark.parametrize("ranks", [2, 3])
def test_an_embedding_that_is_the_head_too_is_trained_once(stage, ranks):
    """FSDP2 refuses a weight that two layers share, unless both are wrapped together; others counted it twice.

    https://github.com/huggingface/accelerate/pull/4171 and https://github.com/pytorch/torchtitan/pull/3225
    """
    with torch.random.fork_rng():
        torch.manual_seed(1)
        drawn = Tied().double()
    tokens = torch.arange(5)
    plain = copy.deepcopy(drawn)
    optimizer = adam(plain.parameters())
    for _ in range(2):
        optimizer.zero_grad()
        (plain(tokens) ** 2).mean().backward()
        optimizer.step()

    def program(comm):
        model = copy.deepcopy(drawn)
        update = stage(adam, model, comm)
        for _ in range(2):
            update.zero_grad()
            (model(tokens) ** 2).mean().backward()
            update.step()
        return sum(unit.length for unit in update.units), values(model, update)

    for numbers, found in run(program, ranks).results:
        assert numbers == 5 * 4 + 4 * 4 + 4
        torch.testing.assert_close(found, [p.detach() for p in plain.parameters()], rtol=0, atol=1e-11)


@STAGES
def test_ranks_without_a_shard_take_part(stage):
    """With more ranks than numbers some ranks have no shard, no gradients, and a scaler that was not prepared for it.

    https://github.com/pytorch/pytorch/issues/99174
    """

    def program(comm):
        model = nn.Sequential(nn.Linear(1, 1)).double()
        nn.init.ones_(model[0].weight)
        nn.init.zeros_(model[0].bias)
        update = stage(sgd, model, comm)
        model(torch.full((1, 1), comm.rank + 1.0, dtype=torch.float64)).sum().backward()
        norm = update.step()
        return [p.item() for p in values(model, update)], norm

    for parameters, norm in run(program, 4).results:
        assert parameters == [1 - 0.5 * 2.5, -0.5] and norm == pytest.approx((2.5**2 + 1) ** 0.5)


@STAGES
@pytest.mark.parametrize(("master", "wanted"), [(None, 1.0), (torch.float32, 0.94140625)])
def test_bfloat16_weights_move_by_small_steps_only_with_a_float32_copy(stage, master, wanted):
    """After 100 steps of 0.0006 a bfloat16 weight was 1.0 still: each step is rounded away. With a copy it is 0.94.

    https://github.com/workofart/ml-by-hand/pull/85
    """

    def program(comm):
        model = nn.Sequential(nn.Linear(1, 1, bias=False)).bfloat16()
        nn.init.ones_(model[0].weight)
        update = stage(lambda groups: torch.optim.SGD(groups, 6e-4), model, comm, master=master)
        for _ in range(100):
            update.zero_grad()
            model(torch.ones(1, 1, dtype=torch.bfloat16)).sum().backward()
            update.step()
        return values(model, update)[0].item()

    assert torch.tensor(0.94).bfloat16().item() == 0.94140625
    assert run(program, 2).results == [wanted] * 2


# -- checkpoints --


@STAGES
@pytest.mark.parametrize(("before", "after"), [(4, 3), (2, 4)])
def test_a_run_goes_on_with_another_number_of_ranks(stage, before, after, tmp_path):
    """Report: "The checkpoint being loaded used a DP world size of 4 but the current world size is 6".

    https://github.com/deepspeedai/DeepSpeed/issues/2898 and https://github.com/deepspeedai/DeepSpeed/issues/7628
    """

    def program(comm, steps, save):
        model = tower()
        update = stage(adam, model, comm)
        snapshots = ShardedCheckpointer(update, tmp_path)
        begin = (snapshots.resume() or {"step": 0})["step"]
        for step in range(begin, steps):
            update.zero_grad()
            (model(inputs(step)) ** 2).sum().backward()  # the same on all ranks, so that their number does not matter
            update.step()
        if save:
            snapshots.save(steps)
        return begin, values(model, update)

    run(lambda comm: program(comm, 2, True), before)
    plain = tower()
    optimizer = adam(plain.parameters())
    for step in range(4):
        optimizer.zero_grad()
        (plain(inputs(step)) ** 2).sum().backward()
        optimizer.step()
    for begin, found in run(lambda comm: program(comm, 4, False), after).results:
        assert begin == 2
        torch.testing.assert_close(found, [p.detach() for p in plain.parameters()], rtol=0, atol=1e-11)


# -- the same rates on all ranks --


@STAGES
def test_a_learning_rate_of_one_rank_alone_is_refused(stage):
    """A rate that rank 0 alone had from a checkpoint would be that of a shard here.

    https://github.com/horovod/horovod/issues/526
    """

    def program(comm):
        stage(lambda groups: torch.optim.SGD(groups, 0.1 / (1 + comm.rank)), tower(), comm)

    with pytest.raises(ValueError, match="the optimizer's lr of group 0 is not the same on rank 1 as on rank 0"):
        run(program, 2)


@pytest.mark.parametrize("what", ["the optimizer's lr of group 0", "parameter '0.weight'"])
def test_replicas_of_a_grid_that_begin_apart_are_refused(what):
    """FSDP2 does not broadcast parameters as DDP does: ranks that drew models of their own train apart.

    https://github.com/deepmodeling/deepmd-kit/pull/5222
    """

    def program(comm):
        torch.manual_seed(comm.rank if what.startswith("parameter") else 0)
        rate = 0.1 if what.startswith("parameter") else 0.1 / (1 + comm.rank)
        part = nn.Sequential(nn.Linear(2, 2))
        schedule = gpipe(1, 1)
        GridTrainer(Grid(comm, data=2), part, schedule, nn.functional.mse_loss, lambda ps: torch.optim.SGD(ps, rate))

    with pytest.raises(ValueError, match=f"{what} is not the same on rank 1 as on rank 0"):
        run(program, 2)
