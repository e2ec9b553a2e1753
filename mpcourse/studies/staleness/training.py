"""One training of digits by eight workers, some of them slow: accuracy after each stretch of gradients."""

import random
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

from mpcourse.common.comm import Comm
from mpcourse.data import digits
from mpcourse.data_parallel import (
    DoubleBufferedOptimizer,
    LocalOptimizer,
    create_communicator,
)
from mpcourse.data_parallel.servers import Policy, Served, Synchronous, train_with_servers
from mpcourse.models import mlp
from mpcourse.virtual import compute, mpi_of, run

FAST, SLOW = 0.01, 0.04  # seconds of a step
BATCH = 16
EVERY = 32  # gradients between two measurements of the accuracy
Slowness = Callable[[int, int, int], float]  # of a worker, its step and the training's seed


def one_slow(worker: int, step: int, seed: int) -> float:
    """Return the seconds of a step, where worker 0 is always slow."""
    return SLOW if worker == 0 else FAST


def now_and_then(worker: int, step: int, seed: int) -> float:
    """Return the seconds of a step, where each worker is slow in a random quarter of its steps, drawn by the seed."""
    return SLOW if random.Random(f"{seed} {worker} {step}").random() < 0.25 else FAST


def alike(worker: int, step: int, seed: int) -> float:
    """Return the seconds of a step, where no worker is slow."""
    return FAST


@dataclass(frozen=True)
class Way:
    """How workers share what they learn.

    rate: of plain SGD, for an update. policy: of a parameter server. Without one, local SGD: ranks average their
    parameters after every `period` steps. double_buffering: instead of that, each step applies the mean gradient of the
    step before.
    """

    rate: float
    policy: Policy | None = None
    period: int = 1
    double_buffering: bool = False

    def gradients_of_an_update(self, workers: int) -> int:
        """Return how many gradients, each of BATCH examples, make an update."""
        if self.policy is None:
            return workers
        return workers - self.policy.backup if isinstance(self.policy, Synchronous) else 1


@dataclass(frozen=True)
class Curve:
    """Accuracy on the test images (percent) after so many updates, gradients and seconds of virtual time.

    staleness: of the gradients that were used, on average.
    """

    updates: list[int]
    gradients: list[int]
    seconds: list[float]
    accuracy: list[float]
    staleness: float


def train(way: Way, slowness: Slowness, workers: int = 8, gradients: int = 640, seed: int = 0) -> Curve:
    """Return the curve of one training.

    The seed decides weights, batches and random delays, which do not depend on the way.
    """
    return (
        _locally(way, slowness, workers, gradients, seed)
        if way.policy is None
        else _served(way, slowness, workers, gradients, seed)
    )


def accuracy(model: nn.Module) -> float:
    """Return the accuracy on the test images, in percent."""
    test = digits().test
    with torch.no_grad():
        return 100 * (model(test.images).argmax(1) == test.labels).double().mean().item()


def _model(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return mlp((64, 32, 10))


def _batches(model: nn.Module, comm: Comm, worker: int, slowness: Slowness, seed: int) -> Callable[[int], float]:
    """Return `backward(step)` of a worker: the loss of its next batch, whose gradients it leaves in `model`."""
    train, generator = digits().train, torch.Generator().manual_seed(1000 * seed + worker)

    def backward(step: int) -> float:
        chosen = torch.randint(len(train), (BATCH,), generator=generator)
        loss = F.cross_entropy(model(train.images[chosen]), train.labels[chosen])
        loss.backward()
        compute(comm, slowness(worker, step, seed))
        return loss.item()

    return backward


def _served(way: Way, slowness: Slowness, workers: int, gradients: int, seed: int) -> Curve:
    each = way.gradients_of_an_update(workers)
    looked: dict[int, float] = {}

    def program(comm: Comm) -> Served:
        model = _model(seed)

        def look(update: int) -> None:
            if update * each // EVERY > (update - 1) * each // EVERY or update == gradients // each:
                looked[update] = round(accuracy(model), 3)

        return train_with_servers(
            comm,
            model,
            lambda row: torch.optim.SGD(row, way.rate),
            _batches(model, comm, comm.rank - 1, slowness, seed),
            gradients // each,
            way.policy,
            on_update=look,
        )

    served = run(program, workers + 1, record=False).results[0]
    used = [push for push in served.pushes[0] if push.applied]
    stale = served.staleness()
    return Curve(
        list(looked),
        [update * each for update in looked],
        [round(used[update * each - 1].seconds, 6) for update in looked],
        list(looked.values()),
        sum(stale) / len(stale),
    )


def _locally(way: Way, slowness: Slowness, workers: int, gradients: int, seed: int) -> Curve:
    looked: dict[int, tuple[float, float]] = {}

    def program(comm: Comm) -> None:
        model = _model(seed)
        sgd, communicator = torch.optim.SGD(model.parameters(), way.rate), create_communicator("flat", comm)
        optimizer = (
            DoubleBufferedOptimizer(sgd, communicator)
            if way.double_buffering
            else LocalOptimizer(sgd, communicator, way.period)
        )
        backward = _batches(model, comm, comm.rank, slowness, seed)
        for step in range(steps := gradients // workers):
            optimizer.zero_grad()
            backward(step)
            optimizer.step()
            if step == steps - 1:
                optimizer.finish()
            if comm.rank == 0 and ((step + 1) % max(way.period, EVERY // workers) == 0 or step == steps - 1):
                looked[step + 1] = mpi_of(comm).Wtime(), round(accuracy(model), 3)

    run(program, workers, record=False)
    return Curve(
        list(looked),
        [step * workers for step in looked],
        [round(seconds, 6) for seconds, _ in looked.values()],
        [right for _, right in looked.values()],
        0.0,
    )
