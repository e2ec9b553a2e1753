"""Training on one device: the plain loop that every later lesson splits, pipelines or spreads over ranks."""

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch
import torch.nn as nn
import torch.nn.functional as F
from tqdm.auto import tqdm

from mpcourse.data import Dataset, Examples

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


@dataclass
class LearningCurve:
    """A recorded training run. All lists have the same length, one entry for each record.

    step: updates so far.
    epoch: passes over the training set so far, a fraction within one.
    seconds: spent on training so far, evaluation not counted.
    train_loss: mean over the examples since the record before.
    test_accuracy: on the whole test set, 0 to 1.
    """

    step: list[int] = field(default_factory=list)
    epoch: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    train_loss: list[float] = field(default_factory=list)
    test_accuracy: list[float] = field(default_factory=list)


Batch = tuple[torch.Tensor, torch.Tensor]


def batches(examples: Examples, batch_size: int, generator: torch.Generator) -> Iterator[Batch]:
    """Yield one epoch in random order: (images, labels) of one batch after the other.

    examples: all of them.
    batch_size: examples in a batch; the last batch has what is left.
    generator: draws the order.
    """
    order = torch.randperm(len(examples), generator=generator)
    for chosen in order.split(batch_size):
        yield examples.images[chosen], examples.labels[chosen]


def train(
    model: nn.Module,
    data: Dataset,
    optimizer: torch.optim.Optimizer,
    epochs: int,
    batch_size: int,
    seed: int = 0,
    loss: Loss = F.cross_entropy,
    record_every: int | None = None,
    progress: bool = True,
) -> LearningCurve:
    """Train `model` in place and return its learning curve.

    model: (batch, 1, height, width) -> what `loss` takes.
    data: its train part is trained on, its test part evaluated.
    optimizer: of the model's parameters.
    epochs: 0 or more.
    batch_size: examples in an update, at most the size of the training set.
    seed: of the order of examples.
    loss: of (output, labels); returns the mean over examples.
    record_every: updates between two records (None: one record an epoch; the end is always recorded).
    progress: show a bar, in a notebook or a terminal ($TQDM_DISABLE switches all bars off).
    Raises ValueError for numbers that make no sense.
    """
    if epochs < 0 or not 1 <= batch_size <= len(data.train) or (record_every is not None and record_every < 1):
        raise ValueError(
            f"train needs epochs >= 0, a batch size from 1 to {len(data.train)} and record_every >= 1: "
            f"got epochs={epochs}, batch_size={batch_size}, record_every={record_every}"
        )
    generator = torch.Generator().manual_seed(seed)
    steps_per_epoch = -(-len(data.train) // batch_size)
    every = record_every or steps_per_epoch
    curve = LearningCurve()
    step, seconds, summed, seen = 0, 0.0, 0.0, 0
    quiet = not progress or bool(os.environ.get("TQDM_DISABLE"))  # tqdm itself heeds it only in terminals
    with tqdm(total=epochs * steps_per_epoch, unit="step", leave=False, disable=quiet) as bar:
        for epoch in range(epochs):
            for i, (images, labels) in enumerate(batches(data.train, batch_size, generator), start=1):
                start = time.perf_counter()
                optimizer.zero_grad()
                value = loss(model(images), labels)  # forward
                value.backward()  # backward
                optimizer.step()  # update
                seconds += time.perf_counter() - start
                step, summed, seen = step + 1, summed + value.item() * len(labels), seen + len(labels)
                bar.update()
                if step % every == 0 or step == epochs * steps_per_epoch:
                    accuracy = evaluate(model, data.test)
                    curve.step.append(step)
                    curve.epoch.append(epoch + i / steps_per_epoch)
                    curve.seconds.append(seconds)
                    curve.train_loss.append(summed / seen)
                    curve.test_accuracy.append(accuracy)
                    summed, seen = 0.0, 0
                    bar.set_postfix(loss=f"{curve.train_loss[-1]:.3f}", accuracy=f"{accuracy:.3f}")
    return curve


@torch.no_grad()
def evaluate(model: nn.Module, examples: Examples, batch_size: int = 1000) -> float:
    """Return the share of examples that a model classifies correctly, 0 to 1.

    model: (batch, 1, height, width) -> (batch, classes); its training mode is put back.
    examples: one or more.
    batch_size: examples that are classified at once.
    """
    training = model.training
    model.eval()
    try:
        right = sum(
            int((model(images).argmax(1) == labels).sum())
            for images, labels in zip(examples.images.split(batch_size), examples.labels.split(batch_size), strict=True)
        )
    finally:
        model.train(training)
    return right / len(examples)
