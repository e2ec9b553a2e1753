"""Batch norm over all ranks' batches: what is right, and the mistakes that lead to what is wrong."""

import functools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

Rows = list[np.ndarray]


@dataclass(frozen=True)
class Norm:
    """A layer of batch norm over ranks. xs, dys: by rank, float64, (examples, features): inputs; outputs' gradients.

    weight, bias: (features,).
    """

    xs: Rows
    dys: Rows
    weight: np.ndarray
    bias: np.ndarray
    eps: float

    @property
    def total(self) -> int:
        """Examples of all ranks."""
        return sum(map(len, self.xs))

    @functools.cached_property
    def mean(self) -> np.ndarray:
        return np.concatenate(self.xs).mean(0)

    @functools.cached_property
    def variance(self) -> np.ndarray:
        return np.concatenate(self.xs).var(0)

    def normal(self, rank: int) -> np.ndarray:
        return (self.xs[rank] - self.mean) / np.sqrt(self.variance + self.eps)

    def output(self, rank: int) -> np.ndarray:
        return self.normal(rank) * self.weight + self.bias

    def of_bias(self, rank: int) -> np.ndarray:
        return self.dys[rank].sum(0)

    def of_weight(self, rank: int) -> np.ndarray:
        return (self.dys[rank] * self.normal(rank)).sum(0)

    def of_x(self, rank: int) -> np.ndarray:
        """The gradient of this rank's x."""
        along, across = self.sums
        return self._gradient(rank, along / self.total, across / self.total)

    @functools.cached_property
    def sums(self) -> tuple[np.ndarray, np.ndarray]:
        """Over all ranks: of the gradients of bias, and of weight."""
        ranks = range(len(self.xs))
        return sum(map(self.of_bias, ranks), np.zeros(())), sum(map(self.of_weight, ranks), np.zeros(()))

    def _gradient(self, rank: int, along: np.ndarray | float, across: np.ndarray | float) -> np.ndarray:
        inverse = self.weight / np.sqrt(self.variance + self.eps)
        return inverse * (self.dys[rank] - along - self.normal(rank) * across)

    def wrong_outputs(self, rank: int) -> Iterator[tuple[str, np.ndarray]]:
        """(why, output): what misconceptions make of this rank's output."""
        x, full = self.xs[rank], [own for own in self.xs if len(own)]
        own = x if len(x) else np.zeros((1, x.shape[1]))
        counts, w, b = np.array([[len(each)] for each in full]), self.weight, self.bias
        means, variances = np.array([each.mean(0) for each in full]), np.array([each.var(0) for each in full])

        def made(mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
            return (x - mean) / np.sqrt(variance + self.eps) * w + b

        yield (
            "These are mean and variance of this rank's own batch: sum what they need over all ranks.",
            made(own.mean(0), own.var(0)),
        )
        if rank and len(self.xs[0]):
            yield (
                "These are mean and variance of rank 0's batch: sum what they need over all ranks. (The sum of tuples, "
                "or of lists, is one after the other; arrays and tensors are added element by element.)",
                made(self.xs[0].mean(0), self.xs[0].var(0)),
            )
        yield (
            "The variance is the mean of the ranks' variances. How far the ranks' means lie apart belongs to it, too: "
            "take it from the sum of squares over all ranks, or from deviations from the mean of all.",
            made(self.mean, (counts * variances).sum(0) / self.total),
        )
        for ranks in (len(full), len(self.xs)):
            squares = np.array([np.square(each).mean(0) for each in full]).sum(0) / ranks
            yield (
                "That takes the mean of the ranks' means, in which a rank with few examples counts as much as one with "
                "many. Sum values and counts over all ranks, and divide once.",
                made(means.sum(0) / ranks, squares - (means.sum(0) / ranks) ** 2),
            )
            yield (
                "That takes the mean of the ranks' means, in which a rank with few examples counts as much as one with "
                "many. Sum values and counts over all ranks, and divide once.",
                made(means.sum(0) / ranks, variances.sum(0) / ranks),
            )
            yield (
                "The mean is that of the ranks' means, in which a rank with few examples counts as much as one with "
                "many. Sum values and counts over all ranks, and divide once.",
                made(means.sum(0) / ranks, self.variance),
            )
        yield "The mean is of all ranks, the variance of this one alone.", made(self.mean, own.var(0))
        yield "The variance is of all ranks, the mean of this one alone.", made(own.mean(0), self.variance)
        if self.total > 1:
            yield (
                "That is the unbiased variance, divided by the number of examples minus one. Batch norm normalises by "
                "the biased one, divided by the number of examples.",
                made(self.mean, self.variance * self.total / (self.total - 1)),
            )
        yield (
            "eps is added to the deviation there. It belongs under the root: sqrt(variance + eps).",
            (x - self.mean) / (np.sqrt(self.variance) + self.eps) * w + b,
        )
        with np.errstate(divide="ignore", invalid="ignore"):
            yield (
                "eps is missing under the root: sqrt(variance + eps).",
                (x - self.mean) / np.sqrt(self.variance) * w + b,
            )
        yield (
            "That divides by the variance. The deviation is its root.",
            (x - self.mean) / (self.variance + self.eps) * w + b,
        )
        yield "weight and bias are missing: y = normalised x * weight + bias.", self.normal(rank)
        yield "bias is missing: y = normalised x * weight + bias.", self.normal(rank) * w
        yield "weight is missing: y = normalised x * weight + bias.", self.normal(rank) + b
        yield "The mean is not subtracted.", x / np.sqrt(self.variance + self.eps) * w + b
        yield (
            "The variance is that of the mean of squares, from which the mean's square was not subtracted.",
            made(self.mean, self.variance + self.mean**2),
        )

    def wrong_gradients_of_x(self, rank: int) -> Iterator[tuple[str, np.ndarray]]:
        """(why, gradient): what misconceptions make of the gradient of this rank's x."""
        size, (along, across), n = len(self.xs), self.sums, self.total
        own = max(len(self.xs[rank]), 1)
        right = self.of_x(rank)
        yield (
            "Mean and variance are treated as constants there. Each x is in both, and so in every example's y: two "
            "more terms, with sums over all ranks.",
            self._gradient(rank, 0.0, 0.0),
        )
        yield (
            "The two sums are over this rank's examples alone. Mean and variance are of all ranks: so are the sums.",
            self._gradient(rank, self.of_bias(rank) / own, self.of_weight(rank) / own),
        )
        yield (
            "The two sums are over this rank's examples alone, divided by the number of all. They need the examples of "
            "all ranks: the second collective call.",
            self._gradient(rank, self.of_bias(rank) / n, self.of_weight(rank) / n),
        )
        yield "The term that comes through the variance is missing.", self._gradient(rank, along / n, 0.0)
        yield "The term that comes through the mean is missing.", self._gradient(rank, 0.0, across / n)
        yield (
            "The two sums are divided by this rank's number of examples: divide by that of all ranks.",
            self._gradient(rank, along / own, across / own),
        )
        yield "The two sums are not divided by the number of examples.", self._gradient(rank, along, across)
        yield (
            "The two sums are divided by the number of ranks: divide by the number of all examples.",
            self._gradient(rank, along / size, across / size),
        )
        yield (
            "The two sums are divided by the number of ranks, too: they are sums over all ranks, divided by the number "
            "of all examples alone.",
            self._gradient(rank, along / n / size, across / n / size),
        )
        if size > 1:
            why = (
                "It is {} by the number of ranks. L is the sum of all ranks' losses: each x has its gradient as it is."
            )
            yield why.format("divided"), right / size
            yield why.format("multiplied"), right * size
        with np.errstate(divide="ignore", invalid="ignore"):
            yield "weight is missing in the gradient of x.", right / self.weight
        yield "1 / deviation is missing in the gradient of x.", right * np.sqrt(self.variance + self.eps)

    def wrong_gradients_of(self, name: str, rank: int) -> Iterator[tuple[str, np.ndarray]]:
        """(why, gradient): what misconceptions make of the gradient of weight or bias."""
        ranks, size = range(len(self.xs)), len(self.xs)
        part, other = (self.of_weight, self.of_bias) if name == "weight" else (self.of_bias, self.of_weight)
        whole = sum(map(part, ranks))
        twice = (
            "That is the sum over all ranks. The optimizer adds up the ranks' gradients of every parameter: this "
            "one would be counted twice: return this rank's part, as it was before the collective call."
        )
        if size > 1:
            yield twice, np.asarray(whole)
            yield (
                "That is the mean over all ranks. Return this rank's part: the optimizer averages.",
                np.asarray(whole) / size,
            )
            yield "This rank's part, divided by the number of ranks: the optimizer does that.", part(rank) / size
        yield (
            "That is the gradient of the other one: bias has the sum of dy, weight that of dy * normalised x.",
            other(rank),
        )
        if name == "weight":
            yield (
                "That is the sum of dy * y. weight multiplies the normalised x, before weight and bias.",
                (self.dys[rank] * self.output(rank)).sum(0),
            )
            yield (
                "That is the sum of dy * x. weight multiplies the normalised x.",
                (self.dys[rank] * self.xs[rank]).sum(0),
            )
        n = max(len(self.xs[rank]), 1)
        why = "It is divided by the number of examples. y depends on it in each of them: a sum."
        yield why, part(rank) / n
        yield why, part(rank) / self.total
