"""`mpcourse schedule`: a pipeline's schedule, replayed and drawn, without a model or a device."""

import argparse
import contextlib
import json
import sys
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.table import Table

from mpcourse.common.errors import UserError
from mpcourse.common.words import counted
from mpcourse.course.commands.output import check_picture, percent
from mpcourse.pipeline import (
    SCHEDULES,
    Costs,
    Execution,
    IllegalAction,
    Schedule,
    interleaved_one_f_one_b,
    replay,
)

CHUNKS = 2  # of an interleaved schedule, by default


def run(options: argparse.Namespace) -> int:
    """Run `mpcourse schedule`. Returns exit status 0, or 1 for a user's own schedule that cannot run."""
    if options.save:
        check_picture(options.save)
    try:
        made = _make(options)
        costs = Costs(options.forward, options.backward, options.weight, options.transfer)
        done = replay(made, costs, options.cap)
    except IllegalAction as error:
        print(f"{options.name} cannot run: {error}", file=sys.stderr)
        return 1
    except ValueError as error:
        raise UserError(str(error)) from None
    title = (
        f"{options.name}, {counted(len(done.stages), 'stage')}, {counted(done.microbatches, 'micro-batch')}: "
        f"{percent(done.bubble)} of the time is bubble"
    )
    if options.json:
        print(json.dumps(done.as_dict(), indent=1))
    else:
        _show(done, title)
    if options.save:
        _save(done, title, costs, options.save)
        print(f"The picture: {options.save}", file=sys.stderr if options.json else sys.stdout)
    return 0


def _make(options: argparse.Namespace) -> Schedule:
    interleaved = options.name == "interleaved-1f1b"
    if options.chunks is not None and not interleaved:
        raise UserError("--chunks belongs to interleaved-1f1b")
    if interleaved:
        chunks = CHUNKS if options.chunks is None else options.chunks
        return interleaved_one_f_one_b(options.stages, options.microbatches, chunks)
    if options.name in SCHEDULES:
        return SCHEDULES[options.name](options.stages, options.microbatches)
    if ":" not in options.name:
        raise UserError(f"unknown schedule {options.name!r}: choose one of {', '.join(SCHEDULES)}, or FILE:FUNCTION")
    return _own(options)


def _own(options: argparse.Namespace) -> Schedule:
    from mpcourse.predict import find_maker
    from mpcourse.predict.load import blame

    make: Callable = find_maker(options.name)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            made = make(options.stages, options.microbatches)
    except (Exception, SystemExit) as error:
        raise UserError(f"{options.name} failed: {blame(error)}") from None
    if not isinstance(made, list | tuple) or len(made) != options.stages:
        raise UserError(f"{options.name} must return a list of actions for each of {counted(options.stages, 'stage')}")
    return made  # type: ignore[return-value]  # replay looks at what is in it


def _show(done: Execution, title: str) -> None:
    out = Console(file=sys.stdout, highlight=False)
    table = Table("stage", "actions", "idle", "in flight")
    for s, (row, idle, peak) in enumerate(zip(done.stages, done.idle, done.peak, strict=True)):
        share = idle / done.makespan if done.makespan else 0.0
        table.add_row(str(s), " ".join(str(t.action) for t in row), f"{100 * share:.0f} %", f"{peak:g}")
    out.print(title)
    out.print(table)
    out.print(f"{done.makespan:g} from the first start to the last end. Holds: micro-batches at most at once.")


def _save(done: Execution, title: str, costs: Costs, path: Path) -> None:
    import matplotlib

    matplotlib.use("agg")
    from mpcourse.plot import schedule

    figure = schedule(done, title, f"time (a forward takes {costs.forward:g}, a backward {costs.backward:g})")
    try:
        figure.savefig(path, bbox_inches="tight", dpi=150)
    except OSError as error:
        raise UserError(f"{path} cannot be written ({error.strerror}): name another file") from None
