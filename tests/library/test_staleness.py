"""Trainings with and without waiting: what they have in common, and the study that lesson 07 shows."""

import json
from statistics import fmean

import pytest

from lessons.studies.staleness import as_text
from mpcourse.data_parallel.servers import Asynchronous, BoundedStaleness, Synchronous
from mpcourse.studies.staleness.shipped import Runs, shipped_delay, shipped_staleness, shipped_ways
from mpcourse.studies.staleness.study import (
    DELAY_RATES,
    DELAYS,
    RATES,
    SEEDS,
    SLOWNESS,
    STALE_GRADIENTS,
    STALE_SEEDS,
    STALENESS,
    WAYS,
    WORKERS,
)
from mpcourse.studies.staleness.training import FAST, SLOW, Way, alike, now_and_then, one_slow, train


@pytest.mark.parametrize(
    "way, staleness",
    [(Way(0.4, Synchronous()), 0), (Way(0.4, Synchronous(backup=1)), 0), (Way(0.1, Asynchronous()), 3), (Way(0.4), 0)],
    ids=["synchronous", "backup", "asynchronous", "all-reduce"],
)
def test_a_curve_counts_updates_gradients_and_seconds(way, staleness):
    curve = train(way, alike, workers=4, gradients=96)
    each = way.gradients_of_an_update(4)
    assert curve.gradients == [update * each for update in curve.updates]
    assert curve.updates[-1] == 96 // each and curve.seconds == sorted(curve.seconds)
    assert len(curve.updates) == len(curve.accuracy) == len(curve.seconds)
    assert abs(curve.staleness - staleness) < 0.3  # the first gradients are fresh


def test_a_server_that_waits_for_all_learns_what_an_all_reduce_does():
    served, reduced = (train(way, alike, 4, 128, seed=5) for way in (Way(0.4, Synchronous()), Way(0.4)))
    assert served.updates == reduced.updates and served.accuracy == pytest.approx(reduced.accuracy, abs=0.6)


def test_the_seed_decides_and_nothing_else():
    one, same, other = (train(Way(0.1, Asynchronous()), alike, 4, 96, seed=seed) for seed in (1, 1, 2))
    assert one == same and one.accuracy != other.accuracy and one.seconds == other.seconds
    one, same, other = (train(Way(0.1, Asynchronous()), now_and_then, 4, 96, seed=seed) for seed in (1, 1, 2))
    assert one == same and one.seconds != other.seconds


def test_who_is_slow():
    assert [one_slow(worker, 7, seed=0) for worker in range(3)] == [SLOW, FAST, FAST]
    slow = [[now_and_then(worker, step, seed=0) == SLOW for step in range(400)] for worker in range(8)]
    assert all(80 < sum(each) < 120 for each in slow) and 750 < sum(map(sum, slow)) < 850
    assert slow == [[now_and_then(worker, step, seed=0) == SLOW for step in range(400)] for worker in range(8)]
    assert slow[0] != slow[1] != [now_and_then(1, step, seed=1) == SLOW for step in range(400)]


def test_delays_of_the_study_are_drawn_anew_for_each_seed_and_are_as_many_as_expected():
    waits = [
        sum(any(now_and_then(worker, step, seed) == SLOW for worker in range(WORKERS)) for step in range(80))
        for seed in range(SEEDS)
    ]
    expected, variance = (80 * chance for chance in (1 - 0.75**8, (1 - 0.75**8) * 0.75**8))
    assert len(set(waits)) > 5 and abs(fmean(waits) - expected) < 2 * (variance / SEEDS) ** 0.5


@pytest.mark.parametrize(
    "policy, seconds", [(Synchronous(), 0.15), (BoundedStaleness(2), 0.083), (Asynchronous(), 0.07)], ids=repr
)
def test_slowness_that_comes_and_goes_is_evened_out_where_nobody_meets_in_each_step(policy, seconds):
    way = Way(0.8 if isinstance(policy, Synchronous) else 0.1, policy)
    took = [train(way, now_and_then, 8, 32, seed).seconds[-1] for seed in range(4)]
    assert fmean(took) == pytest.approx(seconds, rel=0.07)


def test_double_buffering_applies_gradients_one_step_late():
    plain, late = (train(Way(0.4, double_buffering=late), alike, 2, 8, seed=1) for late in (False, True))
    assert plain.updates == late.updates and plain.accuracy != late.accuracy


@pytest.mark.parametrize("slowness", SLOWNESS)
def test_the_study_has_all_its_trainings(slowness):
    ways = shipped_ways(slowness)
    assert list(ways) == list(WAYS)
    for runs in ways.values():
        assert len(runs.accuracy) == len(runs.seconds) == len(runs.staleness) == SEEDS
        assert {len(seed) for seed in [*runs.accuracy, *runs.seconds]} == {len(runs.updates)}
        assert all(seed == sorted(seed) for seed in runs.seconds)
        assert runs.final == [seed[-1] for seed in runs.accuracy] and runs.took == [seed[-1] for seed in runs.seconds]


def test_the_study_of_staleness_and_of_delay_has_all_its_trainings():
    assert tuple(shipped_staleness()) == RATES and tuple(shipped_delay()) == DELAY_RATES
    assert all([len(runs) for runs in rows] == [STALE_SEEDS] * len(STALENESS) for rows in shipped_staleness().values())
    assert all(list(map(len, found.values())) == [SEEDS] * len(DELAYS) for found in shipped_delay().values())


@pytest.mark.parametrize("name", WAYS)
def test_a_training_of_the_study_comes_out_again(name):
    before, again = shipped_ways("now and then")[name], train(WAYS[name], now_and_then, seed=2)
    assert (again.updates, again.gradients, again.staleness) == (before.updates, before.gradients, before.staleness[2])
    assert again.seconds == pytest.approx(before.seconds[2])
    assert again.accuracy == pytest.approx(before.accuracy[2], abs=4)  # a processor may round otherwise


@pytest.mark.parametrize("staleness", [3, 7])
def test_a_training_of_the_study_of_staleness_comes_out_again(staleness):
    shipped = shipped_staleness()[0.1][STALENESS.index(staleness)][0]
    again = train(Way(0.1, Asynchronous()), alike, staleness + 1, STALE_GRADIENTS, seed=0).accuracy[-1]
    assert again == pytest.approx(shipped, abs=2)  # a processor may round otherwise


def test_what_each_seed_needs_until_it_first_reaches_an_accuracy():
    accuracy = [[50.0, 90.0, 80.0], [85.0, 70.0, 95.0]]
    runs = Runs([1, 2, 3], [8, 16, 24], [[0.5, 1.0, 1.5], [0.6, 1.2, 1.8]], [0.0, 0.0], accuracy)
    assert runs.needed(81) == {"updates": [2, 1], "gradients": [16, 8], "seconds": [1.0, 0.6]}
    assert runs.needed(86)["seconds"] == [1.0, 1.8]
    with pytest.raises(ValueError, match="not every seed reached 93 %"):
        runs.needed(93)


def test_the_file_has_a_line_for_each_list_of_numbers():
    found = {"a": {"b": [1, 2.5]}, "c": [[1, 2], [3]], "d": "e"}
    text = as_text(found)
    assert json.loads(text) == found and "[ 1, 2.5 ]" in text
