"""Tidy tables of studies as CSV: runs.csv has one row per run, curves.csv one row per record."""

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from mpcourse.models.training import LearningCurve

Row = dict[str, Any]


def as_csv(columns: Sequence[str], rows: Iterable[Iterable[Any]]) -> str:
    """Return the table as text. Floats have six digits, because the seventh of a float32 differs between machines."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(columns)
    table.writerows([f"{cell:.6g}" if isinstance(cell, float) else cell for cell in row] for row in rows)
    return text.getvalue()


def read_rows(path: Path) -> list[Row]:
    """Return a dict for each line, by column: numbers are int or float, an empty cell is None."""
    with path.open(encoding="utf-8", newline="") as file:
        return [{name: _value(cell) for name, cell in row.items()} for row in csv.DictReader(file)]


def read_curves(path: Path) -> dict[int, LearningCurve]:
    """Return the learning curve of each run in a curves.csv, by the run's number."""
    curves: dict[int, LearningCurve] = {}
    for row in read_rows(path):
        curve = curves.setdefault(row.pop("run"), LearningCurve())
        for name, value in row.items():
            getattr(curve, name).append(value)
    return curves


def _value(cell: str) -> Any:
    if not cell:
        return None
    for kind in (int, float):
        try:
            return kind(cell)
        except ValueError:
            continue
    return cell
