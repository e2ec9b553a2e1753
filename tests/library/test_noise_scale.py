"""The gradient noise scale: unbiased over all batches that there are, and the same on ranks as in one process."""

import copy
import itertools
import json
import math
from pathlib import Path

import pytest
import torch

from mpcourse.data_parallel import COMMUNICATORS
from mpcourse.large_batch import NoiseScale, RankNoise, estimate
from mpcourse.virtual import run
from tests.conftest import load_script

TRUTH = Path(__file__).parents[1] / "programs" / "noise_scale_truth.py"


def test_two_batch_sizes_give_back_the_two_unknowns():
    """|G|^2 = 3, tr(Sigma) = 40: batches of 4 and of 32 have squares of 13 and of 4.25 on average."""
    assert estimate(13.0, 4.25, 4, 32) == pytest.approx((3.0, 40.0))


@pytest.mark.parametrize(("small", "big"), [(1, 2), (1, 4), (2, 4), (3, 4)])
def test_the_estimator_is_unbiased(small, big):
    """Over all draws, with repetition, of `small` and of `big` examples out of three: no chance is left."""
    examples = torch.randn(3, 5, dtype=torch.float64)
    mean = examples.mean(0)
    want = mean.square().sum().item(), (examples - mean).square().sum(1).mean().item()

    def expected(batch):
        draws = torch.tensor(list(itertools.product(range(3), repeat=batch)))
        return examples[draws].mean(1).square().sum(1).mean().item()

    assert estimate(expected(small), expected(big), small, big) == pytest.approx(want, rel=1e-12)


def test_averages_are_right_from_the_first_step_on():
    scale = NoiseScale(decay=0.9)
    assert math.isnan(scale.value) and math.isnan(scale.trace)
    for _ in range(5):
        scale.update(13.0, 4.25, 4, 32)
        assert (scale.gradient_square, scale.trace) == pytest.approx((3.0, 40.0))
        assert scale.value == pytest.approx(40 / 3)


def test_numerator_and_denominator_are_averaged_each_alone():
    """Two steps, worth (|G|^2, trace) = (1, 8) and (3, 8): weights are 0.5 * 0.5 and 0.5, over 0.75."""
    scale = NoiseScale(decay=0.5)
    for gradient in (1.0, 3.0):
        scale.update(gradient + 8 / 2, gradient + 8 / 8, 2, 8)
    assert scale.gradient_square == pytest.approx((1 / 3) * 1 + (2 / 3) * 3)
    assert scale.value == pytest.approx(8 / (7 / 3))
    assert scale.value != pytest.approx((1 / 3) * 8 + (2 / 3) * 8 / 3)  # a mean of ratios


def test_batch_sizes_may_change_on_the_way():
    scale = NoiseScale()
    for small, big in ((1, 2), (7, 50), (2, 1000)):
        scale.update(3 + 40 / small, 3 + 40 / big, small, big)
    assert (scale.gradient_square, scale.trace) == pytest.approx((3.0, 40.0))


def test_gaussian_gradients_of_known_mean_and_covariance_are_found():
    """tr(Sigma) = 1 + 4 + 9 + ... + 64 = 204 and |G|^2 = 8: a noise scale of 25.5, from 4000 steps of 8 ranks."""
    generator = torch.Generator().manual_seed(0)
    deviations = torch.arange(1, 9, dtype=torch.float64)
    scale = NoiseScale(decay=0.999)
    for _ in range(4000):
        parts = 1 + deviations * torch.randn(8, 16, 8, generator=generator, dtype=torch.float64)
        ranks = parts.mean(1)
        scale.update(ranks.square().sum(1).mean().item(), ranks.mean(0).square().sum().item(), 16, 128)
    assert scale.trace == pytest.approx(204, rel=0.02)
    assert scale.value == pytest.approx(25.5, rel=0.05)


def test_where_the_gradient_is_lost_in_the_noise_the_scale_is_infinite():
    scale = NoiseScale()
    scale.update(4.0, 1.0, 1, 2)
    assert scale.gradient_square < 0 < scale.trace and scale.value == math.inf


def test_a_saved_scale_goes_on():
    scale, other = NoiseScale(0.9), NoiseScale(0.9)
    scale.update(13.0, 4.25, 4, 32)
    other.load_state_dict(json.loads(json.dumps(scale.state_dict())))
    for each in (scale, other):
        each.update(17.0, 4.25, 4, 32)
    assert other.value == scale.value and other.steps == 2


@pytest.mark.parametrize(("small", "big"), [(4, 4), (8, 4), (0, 4)])
def test_batches_that_tell_nothing_are_refused(small, big):
    with pytest.raises(ValueError, match="two batches of different size"):
        estimate(1.0, 1.0, small, big)


def test_what_is_not_finite_does_not_enter_the_average():
    scale = NoiseScale()
    scale.update(13.0, 4.25, 4, 32)
    before = copy.copy(scale.state_dict())
    for bad in (math.nan, math.inf):
        with pytest.raises(ValueError, match="must be finite"):
            scale.update(bad, 1.0, 4, 32)
    assert scale.state_dict() == before
    with pytest.raises(ValueError, match="from 0 to below 1"):
        NoiseScale(1.0)


@pytest.mark.parametrize("size", [2, 3, 4])
def test_ranks_find_what_one_process_finds_with_every_communicator(size):
    found = run(load_script(TRUTH).check, size).results
    assert [set(each) for each in found] == [set(COMMUNICATORS)] * size
    assert max(off for each in found for off in each.values()) < 1e-10


@pytest.mark.parametrize("size", [2, 4])
def test_real_ranks_do_too(mpirun, size):
    done = mpirun(size, "-m", "mpi4py", TRUTH, timeout=110)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout)
    assert len(found) == size and max(off for each in found for off in each.values()) < 1e-10


def test_it_costs_one_sum_of_one_number_a_step():
    def traffic(noise):
        return run(lambda comm: load_script(TRUTH).steps(comm, "flat", noise), 4).traffic

    more = traffic("measured") - traffic("none")
    assert more.any() and (more == traffic("a number") - traffic("none")).all()


def test_ranks_are_told_what_they_do_wrong():
    def program(comm):
        return load_script(TRUTH).refused(comm)

    said = run(program, 2).results
    assert (
        said[0]
        == said[1]
        == [
            "RuntimeError: no backward pass since the last update: call it once in each step, after backward",
            "RuntimeError: a second backward pass in one step: the noise scale is measured in steps with one only",
        ]
    )
    (alone,) = run(load_script(TRUTH).alone, 1).results
    assert alone.startswith("ValueError: the noise scale of ranks needs two of them")


def test_after_close_nothing_is_looked_at():
    def program(comm):
        model, communicator = load_script(TRUTH).made(comm, "naive")
        noise = RankNoise(communicator, model.parameters())
        noise.close()
        for _ in range(2):
            model(torch.ones(3, 6)).sum().backward()
        return noise.scale.steps

    assert run(program, 2).results == [0, 0]
