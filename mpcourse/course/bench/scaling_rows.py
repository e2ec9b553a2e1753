"""The file of `mpcourse bench scaling`: a row for each run, kept so that a killed measurement can be resumed."""

import csv
import glob
import io
import platform
import re
import statistics
from collections.abc import Callable, Iterable, Sequence
from itertools import product
from pathlib import Path
from typing import NamedTuple

from mpcourse.common.errors import UserError
from mpcourse.common.files import remove_parts, write_atomically
from mpcourse.common.launch import mpirun
from mpcourse.common.words import counted
from mpcourse.course.bench.show import machine
from mpcourse.course.doctor.machine import usable_cores

# Made by `mpcourse bench scaling --np 4 --runs 10 --save mpcourse/course/bench/measured/scaling.csv`.
MEASURED = Path(__file__).parent / "measured" / "scaling.csv"

KINDS, SIDES = ("weak", "strong"), ("ours", "alone")


class ScalingCase(NamedTuple):
    """threads: of each rank. bound: each rank stays on one core, with all its threads."""

    ranks: int
    threads: int
    bound: bool

    def __str__(self) -> str:
        text = counted(self.ranks, "rank")
        if self.threads > 1:
            text += f" x {self.threads} threads" + (", bound" if self.bound else "")
        return text


class Here(NamedTuple):
    """What a figure depends on. cores: that may be used. mpi: the launcher's."""

    machine: str
    system: str
    cores: int
    python: str
    torch: str
    numpy: str
    mpi4py: str
    mpi: str


class Row(NamedTuple):
    """One run; the fields are the file's columns, "yes" and "no" its truth values.

    kind: one of KINDS. batch: examples of a rank, the largest. side: one of SIDES. seconds: of a step. others, spread:
    the machine's noise before the case, as `quiet.Noise` has it; None where it was not measured.
    """

    date: str
    machine: str
    system: str
    cores: int
    python: str
    torch: str
    numpy: str
    mpi4py: str
    mpi: str
    kind: str
    ranks: int
    threads: int
    bound: bool
    batch: int
    side: str
    run: int
    seconds: float
    examples_per_second: float
    others: float | None
    spread: float | None

    @property
    def case(self) -> ScalingCase:
        return ScalingCase(self.ranks, self.threads, self.bound)

    @property
    def here(self) -> Here:
        return Here._make(getattr(self, name) for name in Here._fields)


def here() -> Here:
    """Return the facts of this process and its machine."""
    facts, launcher = machine(), mpirun()
    release = re.match(r"(\d+(\.\d+)*)?", platform.release())  # the rest is whose build of the same it is
    return Here(
        machine=facts["machine"],
        system=f"{platform.system()} {release[0] if release else ''}".strip(),
        cores=usable_cores(),
        **{name: facts[name] for name in ("python", "torch", "numpy", "mpi4py")},
        mpi=f"{launcher.implementation} {launcher.version}".strip(),
    )


def load(file: Path | str = MEASURED) -> list[Row]:
    """Return the rows of a file, by default of the one that the course brings along.

    Raises UserError for a file that cannot be read, or is none of this benchmark's.
    """
    try:
        text = Path(file).read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"{file} cannot be read ({error.strerror}): name another file") from None
    except UnicodeDecodeError:
        raise UserError(f"{file} is not a text file: name another one") from None
    lines = text.splitlines()
    if not lines or lines[0].split(",") != list(Row._fields):
        raise UserError(f"{file} has not the columns that `mpcourse bench scaling` writes: name another file")
    rows = []
    for number, cells in enumerate(csv.reader(lines[1:]), 2):
        try:
            rows.append(_row(cells))
        except (ValueError, KeyError):
            raise UserError(
                f"{file}, line {number}, is damaged: remove the lines of its case, or name another file"
            ) from None
    if not text.endswith("\n"):
        raise UserError(f"{file}, line {len(lines)}, is cut off: remove the lines of its case, or name another file")
    return rows


def medians(rows: Iterable[Row], of: str = "examples_per_second") -> dict[tuple[str, ScalingCase, str], float]:
    """Return a column's median over runs, by kind, case and side: "seconds" (of a step) or "examples_per_second"."""
    grouped: dict[tuple[str, ScalingCase, str], list[float]] = {}
    for row in rows:
        grouped.setdefault((row.kind, row.case, row.side), []).append(getattr(row, of))
    return {key: statistics.median(values) for key, values in grouped.items()}


def rounded(row: Row) -> Row:
    """Return the row with the digits that a file keeps, so that writing and reading it gives the same row."""
    return _row([_cell(value) for value in row])


def resume(file: Path, runs: int) -> list[Row]:
    """Return the rows that a file has already, and make the file if it is not there.

    Raises UserError for a file of another machine or other versions, with more or fewer runs, or that cannot be
    written.
    """
    rows = load(file) if file.exists() and (file.is_dir() or file.stat().st_size) else []
    now = here()
    for row in rows:
        for name, then, present in zip(Here._fields, row.here, now, strict=True):
            if then != present:
                raise UserError(f"{file} was measured with {name} {then}, and here it is {present}: name another file")
    for case in {row.case: None for row in rows}:
        for kind, side in product(KINDS, SIDES):
            count = sum((row.kind, row.case, row.side) == (kind, case, side) for row in rows)
            if count != runs:
                runs_of = f"{count} runs of {kind}, {case}, {side}"
                raise UserError(f"{file} has {runs_of}, and not --runs {runs}: ask for as many, or name another file")
    target = file.resolve()
    remove_parts(target.parent, glob.escape(target.name))
    write(file, rows)
    return rows


def write(file: Path, rows: Sequence[Row]) -> None:
    """Replace what the file had by all rows: a process that is killed leaves the old file or the new one, whole."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(Row._fields)
    writer.writerows([_cell(value) for value in row] for row in rows)
    try:
        write_atomically(file.resolve(), text.getvalue())
    except OSError as error:
        raise UserError(f"{file} cannot be written ({error.strerror}): name another file") from None


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _row(cells: Sequence[str]) -> Row:
    """Return the row in a line's cells. Raises ValueError or KeyError for a line that is no row."""
    columns = zip(Row.__annotations__.values(), cells, strict=True)
    return Row._make(_READ[kind](cell) for kind, cell in columns)


_READ: dict[object, Callable[[str], object]] = {
    str: str,
    int: int,
    float: float,
    bool: lambda cell: {"yes": True, "no": False}[cell],
    float | None: lambda cell: float(cell) if cell else None,
}
