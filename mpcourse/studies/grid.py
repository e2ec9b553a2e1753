"""What a study consists of: a file of lists, and the grid of runs that they span."""

import dataclasses
import itertools
import math
import tomllib
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from mpcourse.common.errors import UserError
from mpcourse.data import Dataset, load
from mpcourse.large_batch.schedules import SCALINGS, Schedule, linear_scaling

OPTIMIZERS = ("sgd", "lars")


@dataclass(frozen=True)
class TrainingRun:
    """One training run of a study.

    rate: for `base_batch` examples, before `rule` scales it to this batch. warmup: epochs.
    """

    batch: int
    optimizer: str
    rule: str
    rate: float
    warmup: float
    seed: int


@dataclass(frozen=True)
class Study:
    """A grid over batch, optimizer, rule, rate, warmup and seed, each a list; the rest is the same for all runs.

    data: "digits", "glyphs" or "mnist", with data_options for the function of that name. widths: of the MLP.
    epochs or steps: the length of a run; exactly one of them is given. With epochs, larger batches make fewer updates.
    decay: "none" or "cosine", over the whole run after its warm-up. trust_coefficient: of LARS. target: test accuracy,
    0 to 1. record_every: updates between two records; None: an epoch. together: the most runs that are trained at once;
    1: one after the other.
    """

    batch: list[int]
    rate: list[float]
    rule: list[str] = field(default_factory=lambda: ["linear"])
    warmup: list[float] = field(default_factory=lambda: [0.0])
    optimizer: list[str] = field(default_factory=lambda: ["sgd"])
    seed: list[int] = field(default_factory=lambda: [0])
    base_batch: int = 32
    epochs: int | None = None
    steps: int | None = None
    data: str = "digits"
    data_options: dict[str, Any] = field(default_factory=dict)
    widths: list[int] = field(default_factory=lambda: [64, 32, 10])
    momentum: float = 0.9
    weight_decay: float = 0.0
    trust_coefficient: float = 0.001
    decay: str = "none"
    target: float = 0.9
    record_every: int | None = None
    together: int = 32

    def runs(self) -> list[TrainingRun]:
        """Return all runs, in the order in which results number them: seeds change first, batches last."""
        axes = (self.batch, self.optimizer, self.rule, self.rate, self.warmup, self.seed)
        return [TrainingRun(*each) for each in itertools.product(*axes)]

    def tasks(self) -> list[list[int]]:
        """Return numbers of runs trained at once, of one batch size and optimizer. The longest tasks come first."""
        runs = self.runs()
        kinds: dict[tuple[int, str], list[int]] = {}
        for number, each in enumerate(runs):
            kinds.setdefault((each.batch, each.optimizer), []).append(number)
        parts = [kind[i : i + self.together] for kind in kinds.values() for i in range(0, len(kind), self.together)]
        weight = 1 if self.steps is None else -1  # of equal epochs small batches take longest, of equal updates large
        return sorted(parts, key=lambda part: (weight * runs[part[0]].batch, part))

    def load_data(self) -> Dataset:
        """Load the data set. Raises UserError where it does not fit the rest of the study."""
        try:
            data = load(self.data, **self.data_options)
        except TypeError as error:
            raise UserError(f"data_options: {error}") from None
        inputs = data.train.flat().shape[1]
        if (self.widths[0], self.widths[-1]) != (inputs, data.classes):
            raise UserError(f"widths: {self.data} has {inputs} inputs and {data.classes} classes, not {self.widths}")
        if max(self.batch) > len(data.train):
            raise UserError(f"batch: {self.data} has {len(data.train)} examples to train on, not {max(self.batch)}")
        return data

    def length(self, run: TrainingRun, examples: int) -> int:
        """Return the updates of this run with so many examples to train on."""
        return self.steps if self.steps is not None else (self.epochs or 0) * math.ceil(examples / run.batch)

    def schedule(self, run: TrainingRun, examples: int) -> Schedule:
        """Return the run's learning rates. Warm-up begins with the base batch's rate, or the scaled one if lower.

        With rule "none" a rate is this batch's own, and the base batch's follows from it by the linear rule.
        """
        peak = SCALINGS[run.rule](run.rate, run.batch, self.base_batch)
        start = linear_scaling(run.rate, self.base_batch, run.batch) if run.rule == "none" else run.rate
        steps, warmup_steps = self.length(run, examples), round(run.warmup * math.ceil(examples / run.batch))
        decay = self.decay if steps > warmup_steps else "none"
        return Schedule(peak, warmup_steps, min(start, peak), decay, steps)

    def rates(self, run: TrainingRun, examples: int) -> torch.Tensor:
        """Return the rate of each update, float64."""
        schedule = self.schedule(run, examples)
        return torch.tensor([schedule(s) for s in range(self.length(run, examples))], dtype=torch.float64)


def read_study(path: Path) -> Study:
    """Read the study in a TOML file with Study's fields. Raises UserError, in one line, for whatever is wrong in it.

    A number or string in place of a list is a list of one; `seed = 5` means seeds 0 to 4.
    """
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}): name a study's TOML file") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is not TOML: {error}") from None
    try:
        return make_study(table)
    except UserError as error:
        raise UserError(f"{path}: {error}") from None


def make_study(table: Mapping[str, Any]) -> Study:
    """Make the study with these fields of Study; a number or string in place of a list is a list of one.

    Raises UserError, in one line, for whatever is wrong in it.
    """
    kinds = typing.get_type_hints(Study)
    for name in table:
        if name not in kinds:
            raise UserError(f"a study has no {name!r}: it has {', '.join(kinds)}")
    for field_ in dataclasses.fields(Study):
        if field_.name not in table and _required(field_):
            raise UserError(f"{field_.name} is missing, e.g. {field_.name} = [32, 128]")
    values = {name: _as(kinds[name], value, name) for name, value in table.items()}
    study = Study(**values)
    _check(study)
    return study


def _required(field_: dataclasses.Field) -> bool:
    return field_.default is dataclasses.MISSING and field_.default_factory is dataclasses.MISSING


def _as(kind: Any, value: Any, name: str) -> Any:
    """Return `value` as a field of this kind holds it."""
    if typing.get_origin(kind) is list:
        if name == "seed" and _is(value, int):
            value = list(range(value))
        values = value if isinstance(value, list) else [value]
        (inner,) = typing.get_args(kind)
        if not values:
            raise UserError(f"{name} is empty: a list of one or more is needed")
        entries = [_as(inner, each, name) for each in values]
        if name != "widths" and len(set(entries)) < len(entries):
            raise UserError(f"{name}: {entries} names one of them twice")
        return entries
    if kind is float and _is(value, int):
        return float(value)
    if any(_is(value, each) for each in (int, float, str, dict) if each in (kind, *typing.get_args(kind))):
        return value
    if typing.get_origin(kind) is dict and isinstance(value, dict):
        return value
    raise UserError(f"{name}: {value!r} is not what belongs there")


def _is(value: Any, kind: type) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


def _check(study: Study) -> None:
    """Raise UserError for values that make no sense."""
    if (study.epochs is None) == (study.steps is None):
        raise UserError("a run's length is epochs or steps: name one of them, and not both")
    whole = {"batch": study.batch, "widths": study.widths, "base_batch": [study.base_batch]}
    whole |= {"epochs": [study.epochs or 1], "steps": [study.steps or 1], "together": [study.together]}
    whole |= {"record_every": [1 if study.record_every is None else study.record_every]}
    if study.epochs == 0 or study.steps == 0:
        raise UserError("epochs or steps: a run has 1 or more")
    for name, numbers in whole.items():
        if min(numbers) < 1:
            raise UserError(f"{name}: {min(numbers)} is below 1")
    if min(study.seed) < 0 or min(study.warmup) < 0 or study.weight_decay < 0:
        raise UserError("seed, warmup and weight_decay are 0 or more")
    if len(study.widths) < 2:
        raise UserError(f"widths: a network has at least an input and an output: got {study.widths}")
    if not all(0 < rate < math.inf for rate in study.rate) or not 0 < study.trust_coefficient < math.inf:
        raise UserError("rate and trust_coefficient are above 0")
    if not 0 <= study.momentum < 1 or not 0 < study.target <= 1:
        raise UserError("momentum is from 0 to below 1, target above 0 and at most 1")
    for name, values, known in (
        ("rule", study.rule, tuple(SCALINGS)),
        ("optimizer", study.optimizer, OPTIMIZERS),
        ("decay", [study.decay], ("none", "cosine")),
    ):
        for value in values:
            if value not in known:
                raise UserError(f"{name}: {value!r} is none of {', '.join(known)}")
