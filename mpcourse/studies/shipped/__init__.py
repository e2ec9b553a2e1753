"""The studies that come with the course: what was asked, and what was found.

NAME.toml is the study, the folder NAME its results. lessons/studies/README.md says how they were made. Programs have
moved since: a manifest's command names them where they were or are.

Only seconds depend on what else the machine does, so lessons take them only from glyphs-time, whose manifest has the
machine's noise. Accuracies and numbers of updates do not, and most of these studies are older than that record.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mpcourse.common.errors import UserError
from mpcourse.models.training import LearningCurve
from mpcourse.studies.grid import Study, read_study
from mpcourse.studies.tables import Row, read_curves, read_rows

FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Shipped:
    """A study's results.

    study: the grid. rows: one for each run, as in runs.csv. curves: by a run's number. manifest: where and when.
    """

    study: Study
    rows: list[Row]
    curves: dict[int, LearningCurve]
    manifest: dict[str, Any]

    def chosen(self, **wanted: Any) -> list[Row]:
        """Return the rows with these values, such as batch=32."""
        return [row for row in self.rows if all(row[name] == value for name, value in wanted.items())]

    def curves_of(self, rows: list[Row]) -> list[LearningCurve]:
        return [self.curves[row["run"]] for row in rows]


def names() -> list[str]:
    """List the studies that are shipped."""
    return sorted(path.parent.name for path in FOLDER.glob("*/runs.csv"))


def shipped(name: str) -> Shipped:
    """Return the study of this name. Raises UserError, with the names of all studies, for any other name."""
    if name not in names():
        raise UserError(f"no study is called {name!r}: there are {', '.join(names())}")
    results = FOLDER / name
    manifest = json.loads((results / "manifest.json").read_text(encoding="utf-8"))
    study = read_study(FOLDER / f"{name}.toml")
    return Shipped(study, read_rows(results / "runs.csv"), read_curves(results / "curves.csv"), manifest)


def shipped_noise(name: str = "glyphs-noise") -> list[Row]:
    """Return the rows of a study's noise.csv: a dict for each record of each run.

    Keys: run, batch, rate, seed, step, test_accuracy, gradient_square, trace.
    """
    return read_rows(FOLDER / name / "noise.csv")
