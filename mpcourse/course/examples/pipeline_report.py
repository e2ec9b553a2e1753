"""The report of the pipeline example: what it learned, beside one process alone, and when each rank worked."""

import argparse
import contextlib
import json
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

from mpcourse.common.errors import UserError
from mpcourse.common.words import counted
from mpcourse.course.doctor.machine import usable_cores
from mpcourse.pipeline import Execution, Schedule, measured_costs, replay

EPS = torch.finfo(torch.float32).eps
WIDTH = 100  # of lines: a notebook breaks longer ones within words


@torch.no_grad()
def compare(whole: nn.Module, parts: nn.Module, steps: int) -> dict[str, Any]:
    """Return by how much parameters differ at most, and how much of that rounding explains.

    Each step rounds a parameter once, to a number of float32: by one unit in the last place of the largest at most. A
    gradient's own rounding is smaller than the gradient, and that smaller than the parameter. More than that has grown
    from step to step.
    """
    pairs = list(zip(whole.parameters(), parts.parameters(), strict=True))
    difference = torch.stack([(a - b).abs().max() for a, b in pairs]).max().item()
    largest = torch.stack([a.abs().max() for a, _ in pairs]).max().item()
    return {"steps": steps, "difference": difference, "rounding": steps * EPS * largest}


def difference(figures: dict[str, Any]) -> str:
    """Say in words what `compare` found."""
    steps, off, rounding = counted(figures["steps"], "step"), figures["difference"], figures["rounding"]
    if off <= rounding:
        return (
            f"One process alone learns the same: after {steps} no parameter differs by more than {off:.1e}. That is "
            f"rounding, of float32 sums in another order: below {steps} x {EPS:.1e} x the largest parameter, "
            f"{rounding:.1e}."
        )
    return (
        f"One process alone learns something else: after {steps} parameters differ by up to {off:.1e}, where rounding "
        f"in each step comes to {rounding:.1e} at most. Where training is unstable, each step makes the differences "
        "before it larger: see whether a lower --lr brings them down."
    )


def later_steps(executions: list[Execution]) -> tuple[Execution, list[Execution]]:
    """Return the step of median length of the second half of all steps, and that half by length, in milliseconds.

    executions: of all steps, in seconds. All figures of a step are those of the median one, so that they agree.
    """
    later = sorted((_in_ms(e) for e in executions[len(executions) // 2 :]), key=lambda e: e.makespan)
    return later[len(later) // 2], later


def report(ranks: int, options: argparse.Namespace, figures: dict[str, Any], step: Execution, accuracy: float) -> None:
    """Print what the training has learnt and how long a step took."""
    pieces = counted(options.microbatches, "micro-batch")
    print(f"{options.schedule}: {counted(ranks, 'rank')}, {pieces} a batch of {options.batch}")
    losses = figures["losses"]
    grew = ". It grew: a lower --lr helps." if losses[-1] > losses[0] else ""
    print("Loss by epoch:", " ".join(f"{loss:.3f}" for loss in losses) + grew)
    print(f"{100 * accuracy:.1f} % of the test digits are classified rightly.")
    _say(difference(figures))
    alone = figures["alone"]
    _say(durations(ranks, options, step.makespan, alone["at_once"], alone["in_turn"]))


def _say(text: str) -> None:
    print(textwrap.fill(text, WIDTH))


def durations(ranks: int, options: argparse.Namespace, step: float, at_once: float, in_turn: float) -> str:
    """Say how long a step takes, and how long one process takes for the whole batch or for its micro-batches."""
    said = f"A step takes {step:.0f} ms on {counted(ranks, 'rank')}"
    if ranks > (cores := usable_cores()):
        said += f", which share {counted(cores, 'core')}"
    said += f". One process alone takes {at_once:.0f} ms"
    if options.microbatches > 1:
        said += f" for the whole batch at once, and {in_turn:.0f} ms for the same micro-batches one after the other"
        if in_turn > 1.1 * at_once:
            rows = options.batch // options.microbatches
            said += f": matrix products of {counted(rows, 'row')} take longer, row by row, than of {options.batch}"
    return said + "."


def draw(
    options: argparse.Namespace,
    schedule: Schedule,
    measured: Execution,
    later: list[Execution],
    figures: dict[str, Any],
) -> None:
    """Draw a measured step and the replay of actions with average times of `later` steps; print both bubbles."""
    predicted = replay(schedule, measured_costs(later))
    equal = replay(schedule)
    _say(
        f"The ranks together compute {sum(measured.busy):.0f} ms of a step. "
        f"Bubble: measured {100 * measured.bubble:.1f} %, predicted {100 * predicted.bubble:.1f} % from the measured "
        f"forwards and backwards, {100 * equal.bubble:.1f} % if all stages took the same."
    )
    import matplotlib

    matplotlib.use("agg")
    from mpcourse.plot import schedule as picture

    runs = {"predicted": predicted, f"measured, {counted(len(schedule), 'rank')}": measured}
    title = f"{options.schedule}, {counted(options.microbatches, 'micro-batch')}"
    with _writing(options.save):
        picture(runs, title, "milliseconds").savefig(options.save, bbox_inches="tight", dpi=150)
    print(f"The picture: {options.save}")
    if options.json:
        contents = figures | {"measured": measured.as_dict(), "predicted": predicted.as_dict()}
        with _writing(options.json):
            options.json.write_text(json.dumps(contents))


@contextlib.contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:  # ValueError: a format that matplotlib knows, but not on this machine
        raise UserError(f"{path} cannot be written: {error}") from None


def _in_ms(run: Execution) -> Execution:
    return Execution([[t._replace(start=1e3 * t.start, end=1e3 * t.end) for t in row] for row in run.stages])
