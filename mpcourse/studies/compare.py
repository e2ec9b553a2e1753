"""Whether two sets of runs differ: by the standard error of the difference of their means, never by their ranges.

The spread of single runs says nothing about means: a mean of n runs is known sqrt(n) times as precisely as one run.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Mean:
    """The mean of n runs and its standard error, in the unit of the runs. error: NaN for one run."""

    mean: float
    error: float
    n: int

    def __str__(self) -> str:
        return f"{self.mean:.2f} +- {self.error:.2f} (n = {self.n})"


@dataclass(frozen=True)
class Difference(Mean):
    """The mean difference of two sets of runs.

    low, high: the limits of its confidence interval, of 95 percent for all comparisons together.
    paired: run i of both sets had the same seed, so that n differences were averaged. Otherwise n is the smaller set's.
    """

    low: float
    high: float
    paired: bool

    @property
    def told_apart(self) -> bool:
        """Whether zero lies outside of the confidence interval."""
        return not self.low <= 0 <= self.high

    def __str__(self) -> str:
        seeds = "paired seeds" if self.paired else "seeds each"
        verdict = f"differ ({self.n} {seeds})" if self.told_apart else f"not told apart with {self.n} {seeds}"
        return f"{self.mean:+.2f} +- {self.error:.2f}: {verdict}"


def mean_of(runs: Sequence[float]) -> Mean:
    """Return the mean of these runs and its standard error. Raises ValueError without a run."""
    if not runs:
        raise ValueError("a mean needs one run or more")
    error = statistics.stdev(runs) / math.sqrt(len(runs)) if len(runs) > 1 else math.nan
    return Mean(statistics.fmean(runs), error, len(runs))


def difference(one: Sequence[float], other: Sequence[float], paired: bool, comparisons: int = 1) -> Difference:
    """Return one - other, the difference of the means of these runs, two or more each.

    paired: whether run i of both had the same seed, which gave both the same beginning. Then differences are averaged
    (Student's t test of pairs), and what the seeds share cancels. Otherwise Welch's t test, in which both sets may vary
    differently.
    comparisons: how many differences are judged together. With k of them each interval misses its mean with a chance of
    5 / k percent, so that at least one of them misses with a chance of at most 5 percent (Bonferroni's correction).
    Raises ValueError for fewer runs, or pairs that do not match.
    """
    from scipy import stats  # half a second, which only comparisons need

    if min(len(one), len(other)) < 2:
        raise ValueError(f"a difference needs two runs or more on each side: got {len(one)} and {len(other)}")
    if paired and len(one) != len(other):
        raise ValueError(f"paired runs are as many on each side: got {len(one)} and {len(other)}")
    n, between = min(len(one), len(other)), statistics.fmean(one) - statistics.fmean(other)
    if paired:
        error = mean_of([a - b for a, b in zip(one, other, strict=True)]).error
        freedom = n - 1.0
    else:
        shares = [statistics.variance(runs) / len(runs) for runs in (one, other)]
        error = math.sqrt(sum(shares))
        each = sum(share**2 / (len(runs) - 1) for share, runs in zip(shares, (one, other), strict=True))
        freedom = sum(shares) ** 2 / each if each else n - 1.0  # Welch and Satterthwaite's
    reach = error * float(stats.t.ppf(1 - (1 - CONFIDENCE) / (2 * comparisons), freedom))
    return Difference(between, error, n, between - reach, between + reach, paired)
