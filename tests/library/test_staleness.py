"""Trainings with and without waiting: what they have in common, and the study that lesson 07 shows."""

import json

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
    STALE_SEEDS,
    STALENESS,
    WAYS,
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


def test_who_is_slow():
    assert [one_slow(worker, 7) for worker in range(3)] == [SLOW, FAST, FAST]
    slow = [[now_and_then(worker, step) == SLOW for step in range(400)] for worker in range(8)]
    assert all(80 < sum(each) < 120 for each in slow) and 750 < sum(map(sum, slow)) < 850
    assert slow[0] != slow[1] and slow == [[now_and_then(w, step) == SLOW for step in range(400)] for w in range(8)]


@pytest.mark.parametrize(
    "policy, seconds", [(Synchronous(), 0.16), (BoundedStaleness(2), 0.09), (Asynchronous(), 0.06)], ids=repr
)
def test_slowness_that_comes_and_goes_is_evened_out_where_nobody_meets_in_each_step(policy, seconds):
    per_update = 8 if isinstance(policy, Synchronous) else 1
    curve = train(Way(0.1 * per_update, policy), now_and_then, 8, 32)
    assert seconds <= curve.seconds[-1] < 1.1 * seconds


def test_double_buffering_applies_gradients_one_step_late():
    plain, late = (train(Way(0.4, double_buffering=late), alike, 2, 8, seed=1) for late in (False, True))
    assert plain.updates == late.updates and plain.accuracy != late.accuracy


@pytest.mark.parametrize("slowness", SLOWNESS)
def test_the_study_has_all_its_trainings(slowness):
    ways = shipped_ways(slowness)
    assert list(ways) == list(WAYS)
    for runs in ways.values():
        assert len(runs.accuracy) == SEEDS and {len(seed) for seed in runs.accuracy} == {len(runs.updates)}
        assert runs.seconds == sorted(runs.seconds) and runs.final == [seed[-1] for seed in runs.accuracy]


def test_the_study_of_staleness_and_of_delay_has_all_its_trainings():
    assert tuple(shipped_staleness()) == RATES and tuple(shipped_delay()) == DELAY_RATES
    assert all([len(runs) for runs in rows] == [STALE_SEEDS] * len(STALENESS) for rows in shipped_staleness().values())
    assert all(list(map(len, found.values())) == [SEEDS] * len(DELAYS) for found in shipped_delay().values())


@pytest.mark.parametrize("name", WAYS)
def test_a_training_of_the_study_comes_out_again(name):
    before, again = shipped_ways("now and then")[name], train(WAYS[name], now_and_then, seed=2)
    assert (again.updates, again.gradients, again.staleness) == (before.updates, before.gradients, before.staleness)
    assert again.seconds == pytest.approx(before.seconds)
    assert again.accuracy == pytest.approx(before.accuracy[2], abs=4)  # a processor may round otherwise


def test_when_a_mean_reaches_an_accuracy():
    runs = Runs([1, 2], [8, 16], [0.5, 1.0], 0.0, [[50.0, 90.0], [70.0, 95.0]])
    assert runs.seconds_to(60) == 0.5 and runs.seconds_to(61) == 1.0
    with pytest.raises(ValueError, match="never reached 93 %"):
        runs.seconds_to(93)


def test_the_file_has_a_line_for_each_list_of_numbers():
    found = {"a": {"b": [1, 2.5]}, "c": [[1, 2], [3]], "d": "e"}
    text = as_text(found)
    assert json.loads(text) == found and "[ 1, 2.5 ]" in text
