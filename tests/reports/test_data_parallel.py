"""Public reports about ChainerMN, Horovod and DDP, rebuilt small: the right value, or the mistake named."""

import contextlib
import copy

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from mpcourse.data_parallel import (
    MultiNodeOptimizer,
    ShardSampler,
    SyncBatchNorm,
    convert_batch_norm,
    create_communicator,
    evaluate,
    scatter_dataset,
    share_of,
    weighted_mean,
)
from mpcourse.grid import Grid, clip_grad_norm
from mpcourse.large_batch import LAMB, LARS, linear_scaling
from mpcourse.virtual import run

KINDS = pytest.mark.parametrize("kind", ["naive", "flat", "bucketed"])
UNEVEN = [range(0, 1), range(1, 4), range(4, 10)]  # shares of ten examples


def close(found, wanted):
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-12)


def one_weight(comm, kind="bucketed", rate=1.0, **options):
    """Return a weight of one number, 0, and its optimizer over ranks."""
    weight = nn.Parameter(torch.zeros(1, dtype=torch.float64))
    return weight, MultiNodeOptimizer(torch.optim.SGD([weight], rate, **options), create_communicator(kind, comm))


def linear_problem(n):
    """Return a layer, n examples of it, their targets, and the gradient of its weight in one process."""
    generator = torch.Generator().manual_seed(n)
    x, y = (torch.randn(n, k, generator=generator, dtype=torch.float64) for k in (3, 1))
    layer = nn.Linear(3, 1, dtype=torch.float64)
    (wanted,) = torch.autograd.grad(F.mse_loss(layer(x), y), [layer.weight])
    return layer, x, y, wanted


def mean_gradient(comm, layer, loss, kind="flat"):
    """Return the mean gradient of a layer's weight over ranks, where a rank's loss is loss(its copy of the layer)."""
    mine, communicator = copy.deepcopy(layer), create_communicator(kind, comm)
    communicator.attach(mine)
    loss(mine, communicator).backward()
    communicator.mean_gradients(mine)
    return mine.weight.grad


# -- mean or sum, and of what --


@KINDS
def test_a_step_takes_the_mean_of_gradients_and_not_their_sum(kind):
    """Are gradients summed, so that the learning rate is too large by the number of GPUs? They are averaged.

    https://github.com/NVIDIA/apex/issues/696
    """

    def program(comm):
        weight, optimizer = one_weight(comm, kind)
        (weight * (comm.rank + 1)).sum().backward()
        optimizer.step()
        return weight.item()

    assert run(program, 4).results == [-2.5] * 4


@pytest.mark.parametrize("factor", [1, 4])
def test_a_mean_loss_needs_no_factor_of_the_number_of_ranks(factor):
    """A trainer multiplied a mean loss by the world size, and all gradients were that much too large.

    https://github.com/neuralmagic/sparseml/pull/135
    """
    layer, x, y, wanted = linear_problem(12)

    def program(comm):
        mine = slice(comm.rank * 3, comm.rank * 3 + 3)
        return mean_gradient(comm, layer, lambda own, _: F.mse_loss(own(x[mine]), y[mine]) * factor)

    for gradient in run(program, 4).results:
        close(gradient, factor * wanted)


@pytest.mark.parametrize(("times", "length"), [(3, 1), (1, 1 / 3)])
def test_a_sum_over_the_examples_of_all_ranks_needs_it(times, length):
    """Each rank divided its sum by the tokens of all W ranks, then gradients were averaged: steps were 1 / W as long.

    https://github.com/verl-project/verl-SpeCo/pull/29
    """
    layer, x, y, wanted = linear_problem(10)

    def program(comm):
        mine = list(UNEVEN[comm.rank])
        count = comm.allreduce(len(mine))
        return mean_gradient(
            comm, layer, lambda own, _: F.mse_loss(own(x[mine]), y[mine], reduction="sum") / count * times
        )

    for gradient in run(program, 3).results:
        close(gradient, length * wanted)


def test_batches_of_different_lengths_weigh_by_their_examples():
    """Ranks with few and with many tokens counted alike in the mean.

    https://github.com/ml-explore/mlx-lm/pull/1413
    """
    layer, x, y, wanted = linear_problem(10)

    def program(comm):
        mine = list(UNEVEN[comm.rank])
        return mean_gradient(
            comm, layer, lambda own, communicator: F.mse_loss(own(x[mine]), y[mine]) * communicator.share(len(mine))
        )

    for gradient in run(program, 3).results:
        close(gradient, wanted)


def test_ranks_that_tell_different_numbers_of_examples_are_refused():
    """A mean of means is another number where batches are ragged, and nothing said so.

    https://github.com/meta-pytorch/torchtune/pull/2980
    """

    def program(comm):
        weight, optimizer = one_weight(comm)
        (weight * 2).sum().backward()
        optimizer.step(examples=4 + comm.rank)

    with pytest.raises(ValueError, match="different numbers of examples"):
        run(program, 2)


@pytest.mark.parametrize("size", [1, 2, 4, 8])
def test_the_gradient_of_a_batch_does_not_depend_on_how_many_ranks_share_it(size):
    """Does averaging over 4 GPUs in place of 8 double the step? No: the rate follows the total batch alone.

    https://github.com/facebookresearch/moco/issues/98
    """
    layer, x, y, wanted = linear_problem(8)

    def program(comm):
        mine = share_of(8, comm.rank, comm.size)
        return mean_gradient(comm, layer, lambda own, _: F.mse_loss(own(x[mine]), y[mine]))

    close(run(program, size).results[-1], wanted)
    assert linear_scaling(0.03, 128, 256) == pytest.approx(0.015)


# -- several backward passes a step --


@KINDS
def test_of_several_passes_all_but_the_last_are_not_averaged(kind):
    """The first of two micro-batches was averaged, not the last: ranks had gradients 4 and 7. Right are 5.5 and 5.5.

    https://github.com/modelscope/FunASR/pull/3472
    """

    def program(comm):
        weight, optimizer = one_weight(comm, kind)
        for last, gradient in enumerate([(1.0, 3.0), (2.0, 5.0)][comm.rank]):
            with contextlib.nullcontext() if last else optimizer.no_sync():
                (weight * gradient).sum().backward()
        optimizer.step()
        return weight.grad.item()

    assert run(program, 2).results == [5.5, 5.5]


def test_averaging_the_first_of_two_passes_is_refused():
    """The same program as its author had it: ranks would go on with gradients of their own.

    https://github.com/modelscope/FunASR/pull/3472
    """

    def program(comm):
        weight, optimizer = one_weight(comm)
        for last, gradient in enumerate([(1.0, 3.0), (2.0, 5.0)][comm.rank]):
            with optimizer.no_sync() if last else contextlib.nullcontext():
                (weight * gradient).sum().backward()
        optimizer.step()

    with pytest.raises(RuntimeError, match="run the last one outside of no_sync"):
        run(program, 2)


@KINDS
def test_gradients_that_were_only_added_up_are_averaged_by_the_step(kind):
    """After passes within no_sync alone, must another backward pass follow to average? Here the step does it.

    https://github.com/pytorch/pytorch/issues/53443
    """

    def program(comm):
        weight, optimizer = one_weight(comm, kind)
        for _ in range(2):
            with optimizer.no_sync():
                (weight * (comm.rank + 1)).sum().backward()
        optimizer.step()
        return weight.item()

    assert run(program, 2).results == [-3.0, -3.0]


def test_with_no_sync_four_passes_send_what_one_sends():
    """Averaging after every micro-batch in place of once a step sends (N - 1) / N of its bytes for nothing.

    https://github.com/karpathy/nanochat/pull/33
    """

    def program(comm, passes):
        weight = nn.Parameter(torch.zeros(10_000))
        optimizer = MultiNodeOptimizer(torch.optim.SGD([weight], 1.0), create_communicator("bucketed", comm))
        for i in range(passes):
            with contextlib.nullcontext() if i == passes - 1 else optimizer.no_sync():
                weight.sum().backward()
        optimizer.step()

    one, four = (run(lambda comm, n=n: program(comm, n), 4).traffic.sum() for n in (1, 4))
    assert one == four > 4 * 10_000


# -- parameters without a gradient --


@KINDS
def test_a_branch_that_one_rank_runs_counts_as_zeros_on_the_others(kind):
    """Report: "Expected to have finished reduction in the prior iteration": ranks ran different branches of a model.

    https://github.com/open-mmlab/mmdetection/pull/6697
    """

    def program(comm):
        branches = nn.ParameterList([torch.zeros(1) for _ in range(3)])
        communicator = create_communicator(kind, comm)
        optimizer = MultiNodeOptimizer(torch.optim.SGD(branches.parameters(), 1.0), communicator, model=branches)
        (branches[comm.rank] * (comm.rank + 1)).sum().backward()
        optimizer.step()
        return [p.item() for p in branches], branches[2].grad

    assert run(program, 2).results == [([-0.5, -1.0, 0.0], None)] * 2


@KINDS
def test_a_parameter_times_zero_is_a_parameter_with_zero_gradients(kind):
    """Adding unused parameters to the loss with a factor of 0 hides the error; weight decay then moves them.

    https://github.com/pytorch/pytorch/issues/43259
    """

    def program(comm, factor):
        used, unused = nn.Parameter(torch.ones(1)), nn.Parameter(torch.ones(1))
        optimizer = torch.optim.SGD([used, unused], 0.5, weight_decay=0.5)
        optimizer = MultiNodeOptimizer(optimizer, create_communicator(kind, comm))
        loss = used.sum() * 0.0 if factor is None else used.sum() * 0.0 + unused.sum() * factor
        loss.backward()
        optimizer.step()
        return unused.item()

    assert run(lambda comm: program(comm, 0.0), 2).results == [0.75, 0.75]
    assert run(lambda comm: program(comm, None), 2).results == [1.0, 1.0]


def test_a_frozen_parameter_is_broadcast_and_not_trained():
    """Broadcasting optimizer state failed at parameters that need no gradient.

    https://github.com/horovod/horovod/pull/1609
    """

    def program(comm):
        model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
        model[0].requires_grad_(False)
        adam = torch.optim.Adam(model.parameters(), 0.1)
        optimizer = MultiNodeOptimizer(adam, create_communicator("bucketed", comm), model=model)
        before = model[0].weight.clone()
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        assert torch.equal(model[0].weight, before)
        return [p.tolist() for p in model.parameters()], len(adam.state)

    first, second = run(program, 2).results
    assert first == second and first[1] == 2


@KINDS
def test_sparse_gradients_are_refused_in_our_words(kind):
    """Embeddings with sparse=True ended backward in DistributedDataParallel with an error about strides.

    https://github.com/pytorch/pytorch/issues/17356 and https://github.com/horovod/horovod/issues/1230
    """

    def program(comm):
        model = nn.Sequential(nn.Embedding(9, 4, sparse=True), nn.Linear(4, 1))
        communicator = create_communicator(kind, comm)
        optimizer = MultiNodeOptimizer(torch.optim.SGD(model.parameters(), 0.1), communicator, model=model)
        model(torch.arange(3)).sum().backward()
        optimizer.step()

    with pytest.raises(ValueError, match="is sparse, and only dense ones are summed"):
        run(program, 2)


# -- the same start, and the same rates, on all ranks --


def test_parameters_and_buffers_start_as_those_of_rank_0():
    """In which state do ranks start that each initialised a model at random? Horovod must be told to broadcast.

    https://github.com/horovod/horovod/issues/936
    """

    def program(comm):
        torch.manual_seed(comm.rank)
        model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
        model[1].running_mean += comm.rank
        before = model[0].weight.clone()
        communicator = create_communicator("flat", comm)
        MultiNodeOptimizer(torch.optim.SGD(model.parameters(), 1.0), communicator, model=model)
        return before, model[0].weight, model[1].running_mean.tolist()

    (first, *start), (second, *other) = run(program, 2).results
    assert not torch.equal(first, second) and torch.equal(start[0], other[0]) and torch.equal(start[0], first)
    assert start[1] == other[1] == [0.0, 0.0, 0.0]


@KINDS
def test_a_learning_rate_that_rank_0_alone_loaded_is_refused(kind):
    """Rank 0 loaded a checkpoint with a rate of 2e-11; the other GPUs went on with 0.1.

    https://github.com/horovod/horovod/issues/526
    """

    def program(comm):
        weight, optimizer = one_weight(comm, kind, 1e-3 if comm.rank == 0 else 0.1)
        (weight * 1).sum().backward()
        optimizer.step()

    with pytest.raises(ValueError, match="the optimizer's lr of group 0 is not the same on rank 1 as on rank 0"):
        run(program, 2)


@KINDS
@pytest.mark.parametrize("when", ["before the first step", "in training"])
def test_momentum_that_rank_0_alone_loaded_is_refused(kind, when):
    """After a checkpoint was loaded on rank 0, that rank's model degraded, and the others' did not.

    https://github.com/horovod/horovod/issues/1774
    """

    def program(comm):
        weight, optimizer = one_weight(comm, kind, momentum=0.9)
        weight.grad = torch.ones_like(weight)
        optimizer.step()
        saved = copy.deepcopy(optimizer.state_dict())
        if when == "before the first step":
            weight, optimizer = one_weight(comm, kind, momentum=0.9)
        else:
            saved["state"][0]["momentum_buffer"] *= 2
        if comm.rank == 0:
            optimizer.load_state_dict(saved)
        weight.grad = torch.ones_like(weight)
        optimizer.step()

    with pytest.raises((ValueError, RuntimeError), match=r"momentum_buffer|rank 0 compares what it loaded"):
        run(program, 2)


def test_what_all_ranks_load_they_go_on_with():
    """Which state do ranks have after a checkpoint was loaded on all of them? The one that was saved, to the bit.

    https://github.com/horovod/horovod/issues/1964
    """

    def program(comm, stop):
        weight, optimizer = one_weight(comm, "flat", 0.1, momentum=0.9)
        for step in range(4):
            if stop and step == 2:
                saved = copy.deepcopy((weight.detach(), optimizer.state_dict()))
                weight, optimizer = one_weight(comm, "flat", 0.5)
                with torch.no_grad():
                    weight.copy_(saved[0])
                optimizer.load_state_dict(saved[1])
            optimizer.zero_grad()
            (weight * (comm.rank + step)).sum().backward()
            optimizer.step()
        return weight.item()

    wanted = run(lambda comm: program(comm, False), 2).results
    assert run(lambda comm: program(comm, True), 2).results == wanted


# -- data: each example once, in another order each epoch --


@pytest.mark.parametrize(("shards", "counts"), [("exact", [10, 11]), ("repeat", [11, 11]), ("drop", [10, 10])])
def test_21_examples_on_two_ranks_are_21_or_22_or_20(shards, counts):
    """21 images on two GPUs were evaluated as 22, because the sampler repeats some to make shares equal.

    https://github.com/roboflow/rf-detr/issues/1507
    """
    shares = [share_of(21, rank, 2, shards=shards) for rank in range(2)]
    assert sorted(map(len, shares)) == counts
    assert len(set(np.concatenate(shares))) == min(21, sum(counts))


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_accuracy_does_not_depend_on_the_number_of_ranks(size):
    """Padding shares with duplicates gives another validation accuracy for each number of processes.

    https://github.com/pytorch/pytorch/issues/25162
    """
    right = np.arange(10) % 3 == 0  # 4 of 10

    def program(comm):
        mine = scatter_dataset(list(range(10)), comm)
        return evaluate(create_communicator("naive", comm), sum(right[i] for i in mine), len(mine))

    assert run(program, size).results == [pytest.approx(0.4)] * size


def test_a_mean_loss_over_ranks_weighs_each_by_its_examples():
    """(x1 / n1 + x2 / n2) / 2 is not (x1 + x2) / (n1 + n2).

    https://github.com/meta-pytorch/torchtune/pull/1875
    """

    def program(comm):
        losses = [[4.0], [1.0, 2.0, 3.0]][comm.rank]
        mean = sum(losses) / len(losses)
        return weighted_mean(create_communicator("naive", comm), {"loss": mean}, len(losses))["loss"]

    assert run(program, 2).results == [2.5, 2.5]  # and not 3


def test_every_rank_is_told_the_whole_validation_score():
    """Ranks printed different validation scores, because each had seen a part of the data.

    https://github.com/apache/mxnet/issues/1410
    """

    def program(comm):
        return evaluate(create_communicator("naive", comm), comm.rank, 4)

    assert run(program, 4).results == [6 / 16] * 4


def test_scattered_data_is_complete_and_shares_differ_by_one_example():
    """ChainerMN's scatter_dataset made shares equal by duplicates, though its tutorial said "almost equal".

    https://github.com/chainer/chainer/issues/8267
    """
    shares = run(lambda comm: list(scatter_dataset(range(10), comm)), 3).results
    assert sorted(map(len, shares)) == [3, 3, 4] and sorted(sum(shares, [])) == list(range(10))


def test_equal_shares_have_the_quotient_rounded_up():
    """With shares of different lengths epochs end at different steps, so ChainerMN made them ceil(n / size) long.

    https://github.com/chainer/chainermn/pull/61
    """
    shares = [share_of(10, rank, 4, shards="repeat") for rank in range(4)]
    assert [len(share) for share in shares] == [3, 3, 3, 3] and set(np.concatenate(shares)) == set(range(10))


def test_without_set_epoch_every_epoch_has_the_same_order():
    """A distributed sampler with shuffle=True gave the same batches in all epochs.

    https://github.com/pytorch/pytorch/issues/31771
    """
    sampler = ShardSampler(range(22), 0, 1)
    first, again = list(sampler), list(sampler)
    sampler.set_epoch(1)
    assert first == again != list(sampler) and sorted(sampler) == list(range(22))


def test_ranks_in_different_epochs_leave_examples_out():
    """Epochs must be the same on all ranks, or some examples are visited twice, and others by no rank.

    https://github.com/yangkky/distributed_tutorial/issues/5
    """

    def visited(epochs):
        samplers = [ShardSampler(range(40), rank, 2) for rank in range(2)]
        for sampler, epoch in zip(samplers, epochs, strict=True):
            sampler.set_epoch(epoch)
        return sorted(i for sampler in samplers for i in sampler)

    assert visited((3, 3)) == list(range(40)) != visited((3, 4))


def test_fewer_examples_than_ranks_are_repeated_until_all_have_one():
    """A sampler for 3 examples on 7 ranks ended in an assertion, where more than twice as many were needed.

    https://github.com/pytorch/pytorch/issues/49172 and https://github.com/pytorch/pytorch/issues/45324
    """
    shares = [list(ShardSampler(range(3), rank, 7)) for rank in range(7)]
    assert [len(share) for share in shares] == [1] * 7 and {i for share in shares for i in share} == {0, 1, 2}
    assert sorted(i for rank in range(7) for i in share_of(3, rank, 7)) == [0, 1, 2]


@pytest.mark.parametrize("epoch", range(5))
def test_shuffled_shares_of_as_many_examples_as_ranks_have_each_once(epoch):
    """With shuffle=True some files were processed twice and others by no GPU.

    https://github.com/pytorch/pytorch/issues/136588
    """
    samplers = [ShardSampler(range(4), rank, 4) for rank in range(4)]
    for sampler in samplers:
        sampler.set_epoch(epoch)
    assert sorted(i for sampler in samplers for i in sampler) == [0, 1, 2, 3]


# -- a batch that spoils --


@KINDS
def test_a_loss_that_is_not_finite_on_one_rank_leaves_the_batch_out_on_all(kind):
    """Rank 0 alone decided whether a batch is skipped, so NaNs of other ranks went into the mean.

    https://github.com/ecmwf/WeatherGenerator/issues/2724 and https://github.com/OpenBMB/BMTrain/issues/108
    """

    def program(comm):
        weight, optimizer = one_weight(comm, kind)
        for step in range(3):
            optimizer.zero_grad()
            factor = float("nan") if step == 1 and comm.rank == 1 else 1.0
            (weight * factor).sum().backward()
            try:
                optimizer.step()
            except FloatingPointError as error:
                assert step == 1 and "rank 1" in str(error)
        return weight.item()

    assert run(program, 3).results == [-2.0] * 3


# -- batch norm --


def of_ranks(whole, shares, program, size):
    """Return what `program(a copy of the layer, this rank's part of `whole`, communicator)` returns on each rank."""

    def on_rank(comm):
        return program(whole[0], whole[1][list(shares[comm.rank])], create_communicator("flat", comm))

    return run(on_rank, size).results


def normalised(layer, x, communicator):
    layer = convert_batch_norm(copy.deepcopy(layer), communicator)
    x = x.clone().requires_grad_()
    y = layer(x)
    (y**3).sum().backward()
    communicator.mean_gradients(layer)
    return layer, y.detach(), x.grad


def batch_problem(shape=(10, 3, 4)):
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(*shape, generator=generator, dtype=torch.float64) * 3 + 1
    layer = nn.BatchNorm1d(3, dtype=torch.float64)
    whole = copy.deepcopy(layer)
    leaf = x.clone().requires_grad_()
    y = whole(leaf)
    (y**3).sum().backward()
    return layer, x, whole, y.detach(), leaf.grad


def test_running_statistics_are_a_ranks_own_unless_batch_norm_is_synchronised():
    """In evaluation the same image gave other results on other GPUs: each had gathered statistics of its own.

    https://github.com/pytorch/pytorch/issues/13711
    """
    layer, x, whole, _, _ = batch_problem()
    shares = [range(0, 5), range(5, 10)]

    def own(layer, x, communicator):
        layer = copy.deepcopy(layer)
        layer(x)
        return layer.running_mean

    one, other = of_ranks((layer, x), shares, own, 2)
    assert not torch.allclose(one, other)
    for synchronised, _, _ in of_ranks((layer, x), shares, normalised, 2):
        close(synchronised.running_mean, whole.running_mean)


def test_synchronised_batch_norm_is_the_whole_batchs():
    """ChainerMN's MultiNodeBatchNormalization was written to have mean and deviation of the whole global batch.

    https://github.com/chainer/chainermn/pull/106
    """
    layer, x, _, y, gradient = batch_problem()
    shares = [range(0, 5), range(5, 10)]
    for (_, mine, its), share in zip(of_ranks((layer, x), shares, normalised, 2), shares, strict=True):
        close(mine, y[list(share)])
        close(its, gradient[list(share)])


def test_synchronised_variance_counts_batches_by_their_length():
    """With inputs of different sizes each GPU updated running_var by another count.

    https://github.com/pytorch/pytorch/issues/22192
    """
    layer, x, whole, _, _ = batch_problem()
    for synchronised, _, _ in of_ranks((layer, x), UNEVEN, normalised, 3):
        close(synchronised.running_var, whole.running_var)


def test_gradients_of_synchronised_batch_norm_count_batches_by_their_length():
    """Forward knew batches of different lengths, backward did not, and gradients were wrong.

    https://github.com/pytorch/pytorch/pull/36382
    """
    layer, x, whole, y, gradient = batch_problem()
    for (layer_of_rank, mine, its), share in zip(of_ranks((layer, x), UNEVEN, normalised, 3), UNEVEN, strict=True):
        close(mine, y[list(share)])
        close(its, gradient[list(share)])
        close(layer_of_rank.weight.grad * 3, whole.weight.grad)


def test_one_example_a_rank_is_enough_for_synchronised_batch_norm():
    """A check refused single examples, though together the ranks had several.

    https://github.com/NVIDIA/apex/pull/287
    """
    layer, x, _, y, _ = batch_problem((3, 3))
    for rank, (_, mine, _) in enumerate(of_ranks((layer, x), [[0], [1], [2]], normalised, 3)):
        close(mine[0], y[rank])


@pytest.mark.parametrize("view", [lambda x: x.transpose(0, 2), lambda x: x[:, :, ::2], lambda x: x.unfold(2, 3, 1)])
def test_synchronised_batch_norm_takes_views(view):
    """Layers in a permuted layout gave other outputs, and wrong gradients, on two GPUs than on one.

    https://github.com/pytorch/pytorch/issues/62967 and https://github.com/pytorch/pytorch/issues/64039
    """
    generator = torch.Generator().manual_seed(5)
    x = view(torch.randn(3, 3, 8, generator=generator, dtype=torch.float64))
    plain = nn.BatchNorm1d(3, dtype=torch.float64) if x.dim() == 3 else nn.BatchNorm2d(3, dtype=torch.float64)
    leaf = x.clone().requires_grad_()
    y = plain(leaf)
    (y**3).sum().backward()

    def program(comm):
        layer = SyncBatchNorm(3, create_communicator("flat", comm), dtype=torch.float64)
        mine = share_of(len(x), comm.rank, comm.size)
        part = x[mine[0] : mine[-1] + 1].detach().requires_grad_()
        found = layer(part)
        (found**3).sum().backward()
        return mine, found.detach(), part.grad

    for mine, found, gradient in run(program, 2).results:
        close(found, y.detach()[mine])
        close(gradient, leaf.grad[mine])


# -- random numbers --


def test_a_generator_that_knows_its_rank_draws_masks_of_its_own():
    """Workers with the same number on different GPUs drew the same masks: their seeds did not depend on the rank.

    https://github.com/facebookresearch/fastMRI/pull/123
    """

    def program(comm, seed):
        return np.random.default_rng(seed(comm.rank)).random(20).tolist(), np.random.rand(20).tolist()

    same, own = (run(lambda comm, s=s: program(comm, s), 3).results for s in (lambda rank: 5, lambda rank: (5, rank)))
    assert len({str(mask) for mask, _ in same}) == 1 and len({str(mask) for mask, _ in own}) == 3
    assert len({str(numbers) for _, numbers in same}) == 3  # those that nobody seeds are a rank's own


def test_one_seed_on_all_ranks_drops_the_same_places():
    """Every rank got the same seed, so that dropout left out the same elements of different inputs.

    https://github.com/ecmwf/anemoi-core/issues/595
    """

    def program(comm, seed):
        torch.manual_seed(seed(comm.rank))
        return F.dropout(torch.ones(64), 0.5).tolist()

    same, own = (run(lambda comm, s=s: program(comm, s), 2).results for s in (lambda rank: 7, lambda rank: 7 + rank))
    assert same[0] == same[1] and own[0] != own[1]


# -- optimizers for large batches --


def test_a_bias_that_begins_as_zeros_is_updated():
    """LARS with `>=` for `>` had a trust ratio of 0 for weights that are 0, and they stayed so.

    https://github.com/Spijkervet/SimCLR/issues/27
    """
    for shape in ((3,), (3, 3)):
        weight = nn.Parameter(torch.zeros(shape, dtype=torch.float64))
        weight.grad = torch.ones_like(weight)
        LARS([weight], lr=0.1, momentum=0.0).step()
        close(weight.detach(), torch.full_like(weight, -0.1))


@pytest.mark.parametrize("decay", [0.0, 0.5])
def test_lambs_trust_ratio_holds_the_decay_and_does_not_wait_for_one(decay):
    """One LAMB added the decay to the gradient, and did not learn; another was Adam wherever the decay is 0.

    https://github.com/cybertronai/pytorch-lamb/issues/3 and https://github.com/NUS-HPC-AI-Lab/pytorch-lamb/issues/1
    """
    begin, gradient = torch.tensor([[[1, 2], [3, 4]], [[0.1, -2], [3, 0.4]]], dtype=torch.float64)
    weight = nn.Parameter(begin.clone())
    weight.grad = gradient
    LAMB([weight], lr=0.1, weight_decay=decay, eps=0.0).step()
    update = gradient.sign() + decay * begin  # in Adam's first step its moments' quotient is the sign
    close(weight.detach(), begin - 0.1 * begin.norm() / update.norm() * update)


# -- clipping --


@KINDS
def test_clipping_after_the_mean_is_one_process_clipping(kind):
    """Gradients were clipped while each rank still had its own, or before they were unscaled.

    https://github.com/huggingface/accelerate/issues/641
    """

    def program(comm):
        weight = nn.Parameter(torch.zeros(2))
        optimizer = MultiNodeOptimizer(torch.optim.SGD([weight], 1.0), create_communicator(kind, comm))
        (weight * torch.tensor([3.0, 4.0]) * (comm.rank * 2)).sum().backward()
        optimizer.mean_gradients()
        norm = nn.utils.clip_grad_norm_([weight], 1.0)
        optimizer.step()
        return norm.item(), weight.tolist()

    for norm, weight in run(program, 2).results:
        assert norm == 5.0 and weight == pytest.approx([-0.6, -0.8], abs=1e-6)


def test_clipping_before_the_mean_is_refused():
    """The same program, clipped where rank 0 still has zeros and rank 1 (6, 8): the mean would be (0.3, 0.4).

    https://github.com/huggingface/accelerate/issues/641
    """

    def program(comm):
        weight = nn.Parameter(torch.zeros(2))
        optimizer = MultiNodeOptimizer(torch.optim.SGD([weight], 1.0), create_communicator("bucketed", comm))
        (weight * torch.tensor([3.0, 4.0]) * (comm.rank * 2)).sum().backward()
        nn.utils.clip_grad_norm_([weight], 1.0)
        optimizer.step()

    with pytest.raises(RuntimeError, match="mean_gradients"):
        run(program, 2)


def test_the_norm_of_averaged_gradients_is_not_added_up_over_ranks():
    """A norm of 0.8 that both ranks had already was told as 1.131, and gradients were clipped to 0.707.

    https://github.com/modelscope/twinkle/pull/290
    """

    def program(comm):
        weight = nn.Parameter(torch.zeros(1, dtype=torch.float64))
        weight.grad = torch.full_like(weight, 0.8)
        return clip_grad_norm(Grid(comm, data=2), [weight], 1.0, sharded=[]), weight.grad.item()

    assert run(program, 2).results == [(pytest.approx(0.8), 0.8)] * 2
