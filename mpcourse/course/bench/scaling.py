"""Strong and weak scaling on this machine, with threads and without, beside processes that never talk."""

import datetime
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path

from mpcourse.common.errors import UserError
from mpcourse.common.launch import check_ranks
from mpcourse.common.quiet import Noise, noise, refuse_if_busy
from mpcourse.course.bench import cpu_binding
from mpcourse.course.bench.over_ranks import measured
from mpcourse.course.bench.record import Record
from mpcourse.course.bench.scaling_rows import (
    KINDS,
    MEASURED,
    SIDES,
    Here,
    Row,
    ScalingCase,
    here,
    load,
    medians,
    resume,
    rounded,
    write,
)
from mpcourse.course.doctor.machine import usable_cores

__all__ = ["MEASURED", "Row", "ScalingCase", "batches", "cases", "load", "medians", "scaling"]

BATCH = 100  # examples of each rank
SHARED = 400  # examples that all ranks share: at 4 ranks strong scaling is weak scaling
THREADED = (1, 2, 4)  # ranks that are also measured with as many threads each as there are cores


def scaling(runs: int = 5, np: int = 4, save: Path | None = None) -> Iterator[Record]:
    """Time training steps of the course's MLP on 1 to np ranks, on random images, by ours and by ranks that never talk.

    Weak scaling gives each rank a batch of 100; strong scaling shares one of 400 as evenly as it goes. Each rank has
    one thread, on one core; then 1, 2 and 4 ranks have as many threads each as there are cores, wherever the system
    puts them; and then all on one core a rank, as where a launcher binds ranks and the program does not know. In each
    run all sides take turns, with some steps in a row. Efficiency counts the cores in use, and compares with one rank
    alone with one thread.

    save: a CSV file, to which each case is added once it is measured; what it has is not measured again. If there is a
    file, the machine's noise is measured before each case, and UserError is raised on a busy machine unless the
    environment has MPCOURSE_BUSY.
    """
    asked = cases(check_ranks(np), usable_cores(), cpu_binding.CAN_BIND)
    rows = _rows(asked, runs, save)
    medians_of = medians(rows)
    for kind, case in product(KINDS, asked):
        ours, alone = ([r for r in rows if (r.kind, r.case, r.side) == (kind, case, side)] for side in SIDES)
        speeds = [row.examples_per_second for row in ours]
        best = medians_of[kind, asked[0], "alone"] * min(
            case.ranks * (1 if case.bound else case.threads), ours[0].cores
        )
        yield Record(f"{kind}, {case}: a step", [1e3 * row.seconds for row in ours], "ms")
        yield Record(f"{kind}, {case}: ours", speeds, "examples/s")
        yield Record(f"{kind}, {case}: alone", [row.examples_per_second for row in alone], "examples/s")
        yield Record(f"{kind}, {case}: efficiency", [100 * speed / best for speed in speeds], "%")


def cases(np: int, cores: int, binds: bool) -> list[ScalingCase]:
    """Return the cases in the order of measurement; efficiency is relative to the first. binds: the system can bind."""
    cases = [ScalingCase(ranks, 1, binds) for ranks in range(1, np + 1)]
    if cores > 1:
        cases += [
            ScalingCase(ranks, cores, own) for ranks in THREADED if ranks <= np for own in ((False, True)[: 1 + binds])
        ]
    return cases


def batches(kind: str, ranks: int) -> list[int]:
    """Return each rank's number of examples. Ranks share a batch to within one example, and losses are weighted."""
    if kind == "weak":
        return [BATCH] * ranks
    return [SHARED // ranks + (rank < SHARED % ranks) for rank in range(ranks)]


def _rows(asked: Sequence[ScalingCase], runs: int, file: Path | None) -> list[Row]:
    """Return the rows of each case, from the file if it has them, else measured now and added to it."""
    fresh = file is not None and not file.exists()
    rows = resume(file, runs) if file else []
    now = here()
    for case in asked:
        if any(row.case == case for row in rows):
            continue
        found = noise() if file else None
        if file and found:
            try:
                refuse_if_busy(found, otherwise="leave out --save")
            except UserError:
                if fresh and not rows:
                    file.unlink()  # which holds nothing
                raise
        rows += _measured(case, runs, now, found)
        if file:
            write(file, rows)
    return rows


def _measured(case: ScalingCase, runs: int, now: Here, found: Noise | None) -> list[Row]:
    cores = cpu_binding.usable()
    before = cpu_binding.prefix(cores, 1 if case.bound else len(cores))
    module, arguments = "mpcourse.course.bench.scaling_ranks", [case.threads, runs]
    (seconds,) = measured(module, [arguments], case.ranks, True, case.threads, before)
    today = datetime.date.today().isoformat()
    noise_before = found or (None, None)
    return [
        rounded(
            Row(today, *now, kind, *case, max(batches(kind, case.ranks)), side, run, s, examples / s, *noise_before)
        )
        for kind, examples in ((kind, sum(batches(kind, case.ranks))) for kind in KINDS)
        for side in SIDES
        for run, s in enumerate(seconds[kind][side], 1)
    ]
