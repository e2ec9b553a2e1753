"""Comparisons of runs, beside scipy's own tests."""

import math

import numpy as np
import pytest
from scipy import stats

from mpcourse.studies.compare import difference, mean_of


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("paired", [False, True])
def test_they_differ_where_scipys_test_says_so(seed, paired):
    random = np.random.default_rng(seed)
    n = int(random.integers(2, 12))
    one = random.normal(0.5 * (seed % 3), 1, n).tolist()
    other = random.normal(0, 0.3 + seed % 2, n if paired else n + 3).tolist()
    found = difference(one, other, paired)
    test = stats.ttest_rel(one, other) if paired else stats.ttest_ind(one, other, equal_var=False)
    assert found.told_apart == (test.pvalue < 0.05)
    interval = test.confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high))
    assert found.mean / found.error == pytest.approx(test.statistic)


@pytest.mark.parametrize("comparisons", [1, 4, 10])
def test_of_several_comparisons_each_is_judged_more_strictly(comparisons):
    random = np.random.default_rng(comparisons)
    verdicts = set()
    for shift in np.linspace(0, 2, 21):
        one, other = random.normal(shift, 1, 12).tolist(), random.normal(0, 1, 12).tolist()
        found = difference(one, other, True, comparisons)
        assert found.told_apart == (comparisons * stats.ttest_rel(one, other).pvalue < 0.05)
        verdicts.add((found.told_apart, difference(one, other, True).told_apart))
    assert ((False, True) in verdicts) == (comparisons > 1) and (True, False) not in verdicts


def test_what_the_seeds_share_drops_out_of_pairs():
    seeds = np.random.default_rng(0).normal(90, 5, 10)
    other = (seeds + 0.5 + np.random.default_rng(1).normal(0, 0.1, 10)).tolist()
    apart, paired = (difference(other, seeds.tolist(), p) for p in (False, True))
    assert paired.told_apart and not apart.told_apart and paired.mean == pytest.approx(apart.mean)
    assert "differ (10 paired seeds)" in str(paired) and "not told apart with 10 seeds each" in str(apart)


def test_a_mean_says_how_well_it_is_known():
    found = mean_of([1.0, 2.0, 3.0])
    assert (found.mean, found.n) == (2.0, 3) and found.error == pytest.approx(1 / math.sqrt(3))
    assert str(found) == "2.00 +- 0.58 (n = 3)" and math.isnan(mean_of([1.0]).error)


def test_runs_that_never_vary_differ_where_they_are_not_equal():
    assert difference([1.0, 1.0], [2.0, 2.0], True).told_apart and difference([1.0] * 2, [2.0] * 3, False).told_apart
    assert not difference([1.0, 1.0], [1.0, 1.0], True).told_apart


@pytest.mark.parametrize(
    ("one", "other", "paired", "words"),
    [([1.0], [1.0, 2.0], False, "two runs or more"), ([1.0, 2.0], [1.0, 2.0, 3.0], True, "as many on each side")],
)
def test_too_few_runs_are_refused(one, other, paired, words):
    with pytest.raises(ValueError, match=words):
        difference(one, other, paired)
    with pytest.raises(ValueError, match="one run or more"):
        mean_of([])
