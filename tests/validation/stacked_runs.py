"""Many small models trained at once against the plain loop: the same runs on one thread, their results compared."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import nn

from mpcourse.course.bench.record import Record
from mpcourse.data import Dataset, Examples, digits
from mpcourse.large_batch import LARS
from mpcourse.models import mlp
from mpcourse.models.training import LearningCurve, train
from mpcourse.studies import StackedRuns

RATE, MOMENTUM = 0.1, 0.9
Trained = list[tuple[nn.Module, LearningCurve]]


class StackedRunsCase(NamedTuple):
    """Runs on the digits. together: so many at once. plain: so many by the plain loop. trust: of LARS; None: SGD."""

    widths: tuple[int, ...] = (64, 32, 10)
    batch: int = 32
    together: int = 32
    epochs: int = 5
    plain: int = 3
    trust: float | None = None

    def __str__(self) -> str:
        optimizer = "SGD" if self.trust is None else "LARS"
        return f"MLP {'-'.join(map(str, self.widths))}, batch {self.batch}, {optimizer}"


class Measurement(NamedTuple):
    """plain, many: runs a second. The rest is the largest of any run that both have trained.

    apart: parameters, in float32. exactly: in float64. reordered: of the plain loop with itself, in float32, where
    every hidden layer's units stand in another order, which changes nothing but the order in which products are summed.
    examples: of the test set, judged differently in float64.
    """

    plain: list[float]
    many: list[float]
    apart: float
    exactly: float
    reordered: float
    examples: int


CASES = (
    StackedRunsCase(),
    StackedRunsCase(trust=0.02),
    StackedRunsCase(widths=(64, 32, 32, 10)),
    StackedRunsCase(widths=(64, 64, 10)),
    StackedRunsCase(batch=256),
)


def stacked_runs(runs: int = 5) -> Iterator[Record]:
    """Measure runs a second of the digits' network at batch 32, and of others, where products leave less to be saved.

    Both sides make their networks, train, and evaluate after each epoch; they take turns. That they compute the same is
    promised in float64. In float32 training may magnify a rounding error without a bound, most in a deep network. The
    plain loop's own error, with its products summed in another order, is reported beside it.
    """
    for case in CASES:
        yield from _records(case, _measured(case, runs))


def _records(case: StackedRunsCase, measurement: Measurement) -> Iterator[Record]:
    many = f"{case.together} at once"
    yield Record(f"{case}: plain loop", measurement.plain, "runs/s")
    yield Record(f"{case}: {many}", measurement.many, "runs/s")
    ratios = [m / p for m, p in zip(measurement.many, measurement.plain, strict=True)]
    studied = case.widths == StackedRunsCase().widths and case.batch == StackedRunsCase().batch
    yield Record(f"{case}: {many} / plain loop", ratios, "times", 5.0 if studied else None, at_least=True)
    yield Record(f"{case}: parameters apart, float64", [1e6 * measurement.exactly], "millionths", 1e-3)
    yield Record(f"{case}: parameters apart, float32", [1e6 * measurement.apart], "millionths")
    yield Record(f"{case}: plain loop, units reordered", [1e6 * measurement.reordered], "millionths")
    yield Record(f"{case}: tests judged differently", [measurement.examples], "", 0)


def _measured(case: StackedRunsCase, runs: int) -> Measurement:
    data = digits()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        _plain(case._replace(epochs=1, plain=1), data)  # the first step imports things
        plain, many = [], []
        for _ in range(runs):
            start = time.perf_counter()
            each = _plain(case, data)
            between = time.perf_counter()
            all_ = _stacked(case, data)
            plain.append(case.plain / (between - start))
            many.append(case.together / (time.perf_counter() - between))
        exact = _in_float64(data)
        doubles, all_doubles = _plain(case, exact), _stacked(case, exact)
        reordered = _plain(case, data, in_order=False)
    finally:
        torch.set_num_threads(threads)
    pairs = zip([curve for _, curve in doubles], all_doubles.curves, strict=False)
    accuracies = [(p, q) for a, b in pairs for p, q in zip(a.test_accuracy, b.test_accuracy, strict=True)]
    return Measurement(
        plain,
        many,
        apart=max(_apart(model, all_.models.model(i)) for i, (model, _) in enumerate(each)),
        exactly=max(_apart(model, all_doubles.models.model(i)) for i, (model, _) in enumerate(doubles)),
        reordered=max(_apart(a, b) for (a, _), (b, _) in zip(each, reordered, strict=True)),
        examples=max(round(abs(p - q) * len(data.test)) for p, q in accuracies),
    )


def _in_float64(data: Dataset) -> Dataset:
    train, test = (Examples(part.images.double(), part.labels) for part in (data.train, data.test))
    return replace(data, train=train, test=test)


def _reorder(model: nn.Module, orders: Sequence[torch.Tensor]) -> None:
    """Put the units of each hidden layer in an order: the network computes the same, by sums in another order."""
    layers = [layer for layer in model.modules() if isinstance(layer, nn.Linear)]
    with torch.no_grad():
        for one, after, order in zip(layers, layers[1:], orders, strict=False):
            one.weight.copy_(one.weight[order])
            one.bias.copy_(one.bias[order])
            after.weight.copy_(after.weight[:, order])


def _apart(one: nn.Module, other: nn.Module) -> float:
    return max((p - q).abs().max().item() for p, q in zip(one.parameters(), other.parameters(), strict=True))


def _plain(case: StackedRunsCase, data: Dataset, in_order: bool = True) -> Trained:
    """Train the runs by the plain loop. in_order: False: the hidden units are turned round while it trains."""
    trained: Trained = []
    backwards = [torch.arange(width - 1, -1, -1) for width in case.widths[1:-1]]
    for seed in range(case.plain):
        torch.manual_seed(seed)
        model = mlp(case.widths).to(data.train.images.dtype)
        if not in_order:
            _reorder(model, backwards)
        if case.trust is None:
            optimizer: torch.optim.Optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=MOMENTUM)
        else:
            optimizer = LARS(model.parameters(), lr=RATE, momentum=MOMENTUM, trust_coefficient=case.trust)
        trained.append((model, train(model, data, optimizer, case.epochs, case.batch, seed, progress=False)))
        if not in_order:
            _reorder(model, backwards)
    return trained


def _stacked(case: StackedRunsCase, data: Dataset) -> StackedRuns:
    steps = case.epochs * -(-len(data.train) // case.batch)
    rates = torch.full((steps, case.together), RATE, dtype=data.train.images.dtype)
    runs = StackedRuns(
        case.widths, data, case.batch, range(case.together), rates, MOMENTUM, trust_coefficient=case.trust
    )  # fmt: skip
    runs.finish()
    return runs
