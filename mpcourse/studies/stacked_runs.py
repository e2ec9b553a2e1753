"""Training runs side by side: each with its own seed, order of examples and learning rates."""

import time
from collections.abc import Sequence
from typing import Any

import torch

from mpcourse.data import Dataset
from mpcourse.models.training import LearningCurve
from mpcourse.studies.stacked_mlps import StackedMLPs, StackedSGD


class StackedRuns:
    """S runs of `models.training.train` on one data set, with equal batches and numbers of updates, at once.

    Run i trains mlp(widths) as it is after torch.manual_seed(seeds[i]), on batches in the order of that seed, with
    rates[:, i] as its learning rate. It equals the plain loop with torch.optim.SGD (or LARS) up to rounding: on the
    digits, with batch 32, rate 0.1, momentum 0.9 and float32, no parameter differs by more than 1e-5 after 225 updates.
    At the edge of stability (rate 0.3) rounding errors grow with each step, as between two machines.

    rates: (updates, S), one for each update. data: images may be of any float dtype, which the networks take over.
    batch_size: at most the training set's; an epoch's last batch is what is left. record_every: updates between two
    records (None: one record an epoch; the end is always recorded). momentum, weight_decay: of SGD. trust_coefficient:
    of LARS; None: SGD. curves: one for each run; its seconds are an equal part of the time that all runs took.
    Raises ValueError for numbers that make no sense.
    """

    def __init__(
        self,
        widths: Sequence[int],
        data: Dataset,
        batch_size: int,
        seeds: Sequence[int],
        rates: torch.Tensor,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        trust_coefficient: float | None = None,
        record_every: int | None = None,
    ) -> None:
        n = len(data.train)
        if not 1 <= batch_size <= n or (record_every is not None and record_every < 1):
            raise ValueError(
                f"runs need a batch size from 1 to {n} and record_every >= 1: got {batch_size} and {record_every}"
            )
        if not seeds or rates.dim() != 2 or rates.shape[1] != len(seeds):
            raise ValueError(f"rates are (updates, {len(seeds)}) for as many seeds: got {tuple(rates.shape)}")
        self.batch_size, self.seeds = batch_size, list(seeds)
        self.images, self.labels = data.train.flat(), data.train.labels
        self.test_images, self.test_labels = data.test.flat(), data.test.labels
        self.models = StackedMLPs.from_seeds(widths, self.seeds)
        self.models.parameters = [p.to(self.images.dtype) for p in self.models.parameters]
        self.optimizer = StackedSGD(self.models, momentum, weight_decay, trust_coefficient)
        self.rates = rates.to(self.images.dtype)
        self.steps_per_epoch = -(-n // batch_size)
        self.record_every = record_every or self.steps_per_epoch
        self.step, self.seconds = 0, 0.0
        self.curves = [LearningCurve() for _ in self.seeds]
        self._inputs = self.images.new_empty(len(self.seeds) * batch_size, self.images.shape[1])
        self._orders, self._epoch = torch.empty(0), -1
        self._generators = [torch.Generator().manual_seed(seed) for seed in self.seeds]

    @property
    def done(self) -> bool:
        return self.step == len(self.rates)

    def advance(self) -> None:
        """Train up to the next record, or to the end."""
        start, first = time.perf_counter(), self.step
        last = min(len(self.rates), (first // self.record_every + 1) * self.record_every)
        summed, seen = torch.zeros(len(self.seeds), dtype=torch.float64), 0
        while self.step < last:
            chosen = self._batch()
            losses, gradients = self.models.gradients(self._taken(chosen), self.labels[chosen])
            self.optimizer.step(gradients, self.rates[self.step])
            summed += losses * chosen.shape[1]
            seen += chosen.shape[1]
            self.step += 1
        self.seconds += time.perf_counter() - start
        if seen:
            self._record((summed / seen).tolist())

    def finish(self) -> list[LearningCurve]:
        """Train to the end; return the learning curves."""
        while not self.done:
            self.advance()
        return self.curves

    def accuracy(self) -> list[float]:
        """Return each network's share of correct answers on the test set."""
        right = self.models.logits(self.test_images).argmax(-1) == self.test_labels
        return [count / len(self.test_labels) for count in right.sum(1).tolist()]

    def state_dict(self) -> dict[str, Any]:
        """Return all that another StackedRuns with equal arguments needs to continue from here to the same bits."""
        return {
            "step": self.step,
            "seconds": self.seconds,
            "parameters": self.models.parameters,
            "velocities": self.optimizer.velocities,
            "curves": [vars(curve) for curve in self.curves],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.step, self.seconds = state["step"], state["seconds"]
        self.models.parameters, self.optimizer.velocities = state["parameters"], state["velocities"]
        self.curves = [LearningCurve(**curve) for curve in state["curves"]]
        self._epoch = -1
        self._generators = [torch.Generator().manual_seed(seed) for seed in self.seeds]

    def _batch(self) -> torch.Tensor:
        """Return each run's examples of this update, (S, batch), as `models.training.batches` draws them."""
        epoch, i = divmod(self.step, self.steps_per_epoch)
        while self._epoch < epoch:  # several times after load_state_dict, because a generator only goes forwards
            self._orders = torch.stack([torch.randperm(len(self.labels), generator=g) for g in self._generators])
            self._epoch += 1
        return self._orders[:, i * self.batch_size : (i + 1) * self.batch_size]

    def _taken(self, chosen: torch.Tensor) -> torch.Tensor:
        """Return these images, (S, batch, inputs), in memory that is used again: it may be hundreds of megabytes."""
        place = self._inputs[: chosen.numel()]
        torch.index_select(self.images, 0, chosen.flatten(), out=place)
        return place.view(*chosen.shape, -1)

    def _record(self, losses: list[float]) -> None:
        epoch = self.step / self.steps_per_epoch
        for curve, loss, accuracy in zip(self.curves, losses, self.accuracy(), strict=True):
            curve.step.append(self.step)
            curve.epoch.append(epoch)
            curve.seconds.append(self.seconds / len(self.seeds))
            curve.train_loss.append(loss)
            curve.test_accuracy.append(accuracy)
