"""Checkpoints and failures: closed forms against a simulation, and against published figures."""

import random
from statistics import fmean, stdev

import pytest
import torch

from mpcourse.data.published_failures import LLAMA_3 as CAUSES
from mpcourse.data.published_failures import LLAMA_3_DAYS, LLAMA_3_GPUS, LLAMA_3_OF_GPUS, LLAMA_3_UNPLANNED
from mpcourse.data_parallel.resilience import (
    StepSampler,
    best,
    daly,
    differing_replicas,
    failures,
    fingerprint,
    flip,
    lost,
    replay,
    simulate,
    stragglers,
    time_between_failures,
    young,
)
from mpcourse.models import mlp
from mpcourse.virtual import run

LLAMA_3 = LLAMA_3_DAYS * 24 * 3600 / LLAMA_3_UNPLANNED  # seconds between two unplanned interruptions


def test_one_percentage_of_llama_3s_table_contradicts_its_counts():
    """The counts add up to 419. The text's 58.7 % is the sum of the printed percentages, and has the same mistake."""
    assert sum(cause.times for cause in CAUSES) == LLAMA_3_UNPLANNED
    wrong = [c for c in CAUSES if abs(100 * c.times / LLAMA_3_UNPLANNED - c.percent) > 0.051]
    assert [(c.component, c.percent) for c in wrong] == [("faulty GPU", 30.1)]
    assert round(100 * 148 / LLAMA_3_UNPLANNED, 1) == 35.3
    of_gpus = [c for c in CAUSES if c.category == "GPU"]
    assert round(sum(c.percent for c in of_gpus), 1) == LLAMA_3_OF_GPUS
    assert round(100 * sum(c.times for c in of_gpus) / LLAMA_3_UNPLANNED, 1) == 64.0


def test_llama_3s_rate_of_failures():
    assert abs(LLAMA_3 / 3600 - 3.09) < 0.005
    assert time_between_failures(3.79, LLAMA_3_GPUS // 8) == pytest.approx(LLAMA_3, rel=0.001)


@pytest.mark.parametrize("between, save, restart", [(3600, 30, 0), (3600, 30, 600), (1000, 100, 200), (500, 400, 50)])
def test_the_share_that_is_lost_is_that_of_a_simulation(between, save, restart):
    interval = best(save, between)
    shares = []
    for seed in range(40):
        done = simulate(100 * between, interval, save, restart, between, seed)
        shares.append(1 - 100 * between / done.seconds)
    error = stdev(shares) / len(shares) ** 0.5
    assert abs(fmean(shares) - lost(interval, save, restart, between)) < 4 * error < 0.02


@pytest.mark.parametrize("between, save", [(3600.0, 1.0), (3600.0, 60.0), (1000.0, 500.0), (10.0, 30.0)])
def test_the_best_interval_is_a_minimum(between, save):
    interval = best(save, between)
    for restart in (0.0, between / 10):
        least = lost(interval, save, restart, between)
        assert all(lost(factor * interval, save, restart, between) > least for factor in (0.9, 0.98, 1.02, 1.1))


def test_youngs_interval_is_the_best_for_short_checkpoints_and_dalys_for_longer_ones():
    assert young(1, 1e6) == pytest.approx(best(1, 1e6), rel=2e-3)
    for save in (10, 100, 300):
        assert abs(daly(save, 1000) - best(save, 1000)) < 0.02 * best(save, 1000)
        assert abs(daly(save, 1000) - best(save, 1000)) < abs(young(save, 1000) - best(save, 1000))
    assert daly(3000, 1000) == 1000


def test_from_which_time_of_a_restart_on_no_interval_keeps_90_percent():
    """Already the restarts take a tenth of the time, if one takes a tenth of the time between failures or more."""
    assert lost(best(1e-6, LLAMA_3), 1e-6, 18.6 * 60, LLAMA_3) > 0.095
    assert lost(best(1e-6, LLAMA_3), 1e-6, 20 * 60, LLAMA_3) > 0.1
    for save, restart in ((50, 0), (25, 300), (10, 600)):
        assert lost(best(save, LLAMA_3), save, restart, LLAMA_3) < 0.1


def test_without_failures_only_checkpoints_cost():
    done = simulate(1000, 100, 5, 60, 1e12)
    assert (done.seconds, done.failures, done.again) == (pytest.approx(1050), 0, 0)
    assert lost(100, 5, 60, 1e12) == pytest.approx(5 / 105, rel=1e-6)


def test_work_that_is_done_again_counts():
    done = simulate(10_000, 100, 1, 10, 500, seed=3)
    assert done.failures > 5 and done.again > 0
    # work, checkpoints, what was done again, and restarts; a checkpoint that a failure stops is done again, too
    least = 10_000 + 100 * 1 + done.again
    assert least + 0.5 * done.failures * 10 < done.seconds < least + done.failures * (10 + 1)


def test_an_interval_that_is_hopeless_loses_everything():
    assert lost(1e9, 1, 1, 10) == 1.0


def test_failures_come_so_many_seconds_apart_on_average():
    drawn = [gap for gap, _ in zip(failures(50, seed=1), range(20_000), strict=False)]
    assert fmean(drawn) == pytest.approx(50, rel=0.03) and stdev(drawn) == pytest.approx(50, rel=0.05)


@pytest.mark.parametrize(
    "call, says",
    [
        (lambda: young(0, 10), "save=0: it is above 0 seconds"),
        (lambda: lost(0, 1, 1, 10), "interval=0"),
        (lambda: lost(1, -1, 1, 10), "save=-1, restart=1: neither is below 0"),
        (lambda: simulate(1, 1, 1, 1, 0), "between=0"),
        (lambda: time_between_failures(1, 0), "0 nodes: both are above 0"),
    ],
)
def test_what_makes_no_sense_is_refused(call, says):
    with pytest.raises(ValueError, match=says):
        call()


# -- the place in the data --


@pytest.mark.parametrize("n, batch", [(50, 7), (12, 4), (5, 8), (1, 1)])
def test_a_job_on_changing_numbers_of_ranks_sees_each_example_of_an_epoch_once(n, batch):
    """The job is killed at random: it goes on from its last checkpoint, with another number of ranks."""
    draw, state, used = random.Random(n), None, {}
    while True:
        size = draw.choice([1, 2, 3, 4, 8])
        ranks = [StepSampler(n, batch, rank, size, seed=3) for rank in range(size)]
        for sampler in ranks:
            if state is not None:
                sampler.load_state_dict(state)
        first = ranks[0].trained
        if ranks[0].epoch == 3:
            break
        assert len(ranks[0]) == len(list(ranks[0]))
        lives = draw.randint(0, 5)
        for done, shares in enumerate(zip(*ranks, strict=True)):
            if done == lives:
                break  # what came after the last checkpoint is lost
            used[first + done] = [example for share in shares for example in share]
            for sampler in ranks:
                sampler.trained += 1
            if draw.random() < 0.5:
                state = ranks[draw.randrange(size)].state_dict()
        else:
            state = ranks[-1].state_dict()
    steps = -(-n // batch)
    for epoch in range(3):
        seen = [example for step in range(epoch * steps, (epoch + 1) * steps) for example in used[step]]
        assert sorted(seen) == list(range(n))
    if n > 12:
        assert used[0] != used[steps] and sorted(used[0]) != used[0]  # each epoch has an order of its own


def test_shares_of_a_step_differ_by_one_at_most():
    shares = [next(iter(StepSampler(50, 7, rank, 3))) for rank in range(3)]
    assert sorted(map(len, shares)) == [2, 2, 3]


def test_a_dataloader_takes_the_sampler():
    data = torch.arange(10)
    loader = torch.utils.data.DataLoader(data, batch_sampler=StepSampler(10, 4, 1, 2))
    assert [len(batch) for batch in loader] == [2, 2, 1]


def test_a_place_in_other_data_is_refused():
    state = StepSampler(50, 7, 0, 1).state_dict()
    with pytest.raises(ValueError, match="another order: batch=7, and here batch=8"):
        StepSampler(50, 8, 0, 1).load_state_dict(state)
    with pytest.raises(ValueError, match="rank 2 of 2: there is an example, and ranks from 0 on"):
        StepSampler(5, 1, 2, 2)


# -- silent corruption --


def model_of():
    torch.manual_seed(0)
    return mlp((6, 5, 3))


def test_one_flipped_bit_changes_the_fingerprint_and_flipping_it_again_brings_it_back():
    x = torch.randn(4, 5)
    before, copy = fingerprint(x), x.clone()
    for index, bit in ((0, 0), (7, 23), (19, 31)):
        flip(x, index, bit)
        changed = (x != copy).flatten()
        assert fingerprint(x) != before and changed.sum() == 1 and changed[index]
        flip(x, index, bit)
        assert fingerprint(x) == before and torch.equal(x, copy)
    y = torch.ones(1)
    flip(y, 0, 31)
    assert y.item() == -1  # the sign
    flip(y, 0, 31)
    flip(y, 0, 30)
    assert y.item() == float("inf")  # an exponent of ones


def test_fingerprints_are_of_values_in_order_whatever_their_memory():
    x = torch.randn(3, 4, dtype=torch.float64)
    assert fingerprint(x.T) == fingerprint(x.T.contiguous()) != fingerprint(x)
    assert fingerprint(torch.ones(2, dtype=torch.bfloat16)) != fingerprint(torch.ones(2))


@pytest.mark.parametrize("size", [2, 3, 4])
def test_the_replica_whose_memory_has_changed_is_named(size):
    def program(comm):
        model = model_of()
        same = differing_replicas(comm, model)
        if comm.rank == 1:
            flip(model[-1].weight.data, 4, 3)
        return same, differing_replicas(comm, model)

    name = [n for n, _ in model_of().named_parameters()][-2]
    for same, found in run(program, size).results:
        assert same == {} and found == {name: [0, 1] if size == 2 else [1]}


def gradients(model, rank):
    model.zero_grad()
    x = torch.randn(4, 6, generator=torch.Generator().manual_seed(rank))
    model(x).square().sum().backward()
    return [p.grad.clone() for p in model.parameters()]


@pytest.mark.parametrize("size", [2, 3, 5])
def test_a_wrong_gradient_is_seen_by_replay_and_not_by_comparing_replicas(size):
    def program(comm, wrong):
        model = model_of()
        own = gradients(model, comm.rank)
        if comm.rank == wrong:
            flip(own[0], 2, 20)
        pairs = replay(comm, own, lambda rank: gradients(model, rank))
        means = [sum(parts) / comm.size for parts in zip(*comm.allgather(own), strict=True)]
        return pairs, differing_replicas(comm, means)

    for pairs, replicas in run(lambda comm: program(comm, None), size).results:
        assert pairs == [] and replicas == {}
    for pairs, replicas in run(lambda comm: program(comm, 1), size).results:
        assert pairs == [(1, 0)] and replicas == {}


def test_a_rank_that_always_computes_wrongly_is_in_two_pairs():
    def program(comm):
        model = model_of()

        def computed(rank):
            found = gradients(model, rank)
            if comm.rank == 2:
                flip(found[1], 0, 9)
            return found

        return replay(comm, computed(comm.rank), computed)

    assert run(program, 4).results == [[(2, 1), (3, 2)]] * 4


def test_a_bit_that_is_not_there_is_refused():
    with pytest.raises(ValueError, match="bit 32: a float32 has bits 0 to 31"):
        flip(torch.ones(1), 0, 32)


# -- stragglers --


def test_a_rank_that_is_slow_in_most_steps_is_a_straggler_and_one_that_is_slow_once_is_not():
    draw = random.Random(0)
    steps = [[draw.gauss(1, 0.02) * (1.1 if rank == 5 else 1) for rank in range(8)] for _ in range(50)]
    steps[7][2] = 30.0  # writes a checkpoint
    found = stragglers(steps)
    assert list(found) == [5] and found[5] == pytest.approx(1.1, abs=0.02)
    assert stragglers(steps, slower=1.2) == {}
    assert stragglers([[1, 1, 3, 2]]) == {2: 2.0, 3: pytest.approx(4 / 3)}


@pytest.mark.parametrize("seconds", [[], [[]], [[1, 2], [1]]])
def test_steps_without_the_same_ranks_are_refused(seconds):
    with pytest.raises(ValueError, match="each has the seconds of the same ranks"):
        stragglers(seconds)


def test_a_limit_that_all_ranks_pass_is_refused():
    with pytest.raises(ValueError, match="slower=1"):
        stragglers([[1.0]], slower=1)
