"""A pipeline's schedule as the field draws it: stages down, time across, micro-batches as numbered blocks."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.legend_handler import HandlerTuple
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from mpcourse.common.words import counted
from mpcourse.pipeline import Execution, Schedule, replay
from mpcourse.plot.style import BUBBLE, BUBBLE_LOOK, INK, color, figure, ink_on, label, shade
from mpcourse.plot.timeline import SWATCHES

# As in a device's timeline: forward is light, backward full, and what comes last dark.
SHADES = {"F": 0.4, "B": 1.0, "I": 1.0, "W": 1.55}
NAMES = {"F": "forward", "B": "backward", "I": "backward, for the input", "W": "backward, for the weights"}
CHUNKS = "abcdefghijklmnopqrstuvwxyz"
POINTS = 400.0  # width of the axes in print
FONT, SMALL = 6.5, 5.5  # of the numbers in blocks, and the smallest that can still be read
DIGIT = 0.64  # width of a digit, in parts of the font's size
FOOT = 0.18  # part of a block that a later chunk's foot takes


def schedule(
    source: Execution | Schedule | Mapping[str, Execution | Schedule],
    title: str | None = None,
    unit: str = "time (a forward takes 1, a backward 2)",
    until: float = 0.0,
) -> Figure:
    """Draw a row for each stage, in its colour, with its idle share and its most micro-batches in flight.

    source: what `replay` or a run returned, or a schedule, which is replayed with default costs; or several by name,
    drawn one above the other on one time axis. unit: of that axis. until: the least end of the axis. Where a stage has
    several chunks of the model, a letter names the chunk. Raises IllegalAction for a schedule that cannot run,
    ValueError where there is nothing to draw.
    """
    given = source if isinstance(source, Mapping) else {"": source}
    runs = {name: run if isinstance(run, Execution) else replay(run) for name, run in given.items()}
    if not runs or not all(any(run.stages) for run in runs.values()):
        raise ValueError("no schedule to draw")
    if title is None:
        counts = [sorted({len(run.stages) for run in runs.values()}), sorted({r.microbatches for r in runs.values()})]
        stages, microbatches = (" or ".join(map(str, values)) for values in counts)
        title = f"{counted(stages, 'stage')}, {counted(microbatches, 'micro-batch')}"
        if len(runs) == 1:
            title += f": {_percent(next(iter(runs.values())).bubble)} of the time is bubble"
    height = sum((0.27 if run.chunks == 1 else 0.4) * len(run.stages) for run in runs.values())
    made, axes = figure(title, rows=len(runs), width=7.4, height=height + 0.42 * len(runs) + 0.75)
    longest = max(until, *(run.makespan for run in runs.values()))
    for axis, (name, run) in zip(axes, runs.items(), strict=True):
        _draw(axis, run, longest)
        if name:
            heading = f"{name}: makespan {run.makespan:.4g}, {_percent(run.bubble)} bubble"
            axis.set_title(heading, fontsize=9, color=INK, loc="left")
        if axis is not axes[-1]:
            axis.tick_params(axis="x", labelbottom=False)
    label(axes[-1], unit, "")
    shown = _legend(list(runs.values()))
    made.legend(
        [*shown.values()], [*shown], fontsize=8, frameon=False, loc="outside lower center", ncols=5,
        handlelength=2.6, columnspacing=1.6, handler_map={tuple: HandlerTuple(None, pad=0.1)},
    )  # fmt: skip
    return made


def _percent(share: float) -> str:
    return f"{round(100 * share, 1):g} %"  # 75 % and not 75.0 %, as beside the rows


def _draw(axis: Axes, run: Execution, longest: float) -> None:
    for s, row in enumerate(run.stages):
        at = run.start
        for t in [*row, None]:
            until = t.start if t else run.start + run.makespan
            if until - at > 1e-6 * longest:
                gap = [(at - run.start, until - at)]
                axis.broken_barh(gap, (s - 0.4, 0.8), gid=f"{BUBBLE}|{s}", **BUBBLE_LOOK)
            if t is None:
                break
            fill = shade(color(s), SHADES[t.action.kind])
            width, begin = t.end - t.start, t.start - run.start
            axis.broken_barh(
                [(begin, width)],
                (s - 0.4, 0.8),
                facecolor=fill,
                edgecolor="white",
                linewidth=0.5,
                gid=f"{t.action}|{s}",
            )
            if t.action.chunk:
                foot = 0.8 * FOOT * t.action.chunk / (run.chunks - 1)
                axis.broken_barh(
                    [(begin, width)], (s + 0.4 - foot, foot), facecolor=INK, edgecolor="white", linewidth=0.5
                )
            text = str(t.action.microbatch)
            if run.chunks > 1:
                text += "\n" + CHUNKS[t.action.chunk % len(CHUNKS)]
            _write(axis, text, POINTS * width / longest, (begin + width / 2, s - (0.06 if run.chunks > 1 else 0)), fill)
            at = t.end
    for s, (idle, peak) in enumerate(zip(run.idle, run.peak, strict=True)):
        text = f"{100 * idle / run.makespan:.0f} % idle, {peak:.3g} in flight"
        axis.text(1.01, s, text, fontsize=7.5, color=INK, va="center", transform=axis.get_yaxis_transform())
    axis.set_yticks(range(len(run.stages)), [f"stage {s}" for s in range(len(run.stages))])
    axis.set_ylim(len(run.stages) - 0.5, -0.5)
    axis.set_xlim(0, longest)
    axis.grid(visible=False)
    axis.tick_params(axis="y", length=0)


def _write(axis: Axes, text: str, room: float, at: tuple[float, float], fill: str) -> None:
    """Write the micro-batch, and below it the chunk's letter, if `room`, in points, is wide enough."""
    font = min(FONT, (room - 0.5) / (DIGIT * max(map(len, text.split("\n")))))
    if font >= SMALL:
        va = "center" if "\n" in text else "center_baseline"
        axis.text(*at, text, fontsize=font, color=ink_on(fill), ha="center", va=va, linespacing=0.95)


def _legend(runs: Sequence[Execution]) -> dict[str, Any]:
    """Return names and what is drawn under them: a patch in the colour of each stage, or of the first few."""
    kinds = {t.action.kind for run in runs for row in run.stages for t in row}
    names = NAMES if "I" in kinds else NAMES | {"B": "backward"}
    if {"B", "I"} <= kinds:
        names = names | {"B": "backward", "I": "backward"}  # both have one shade
    stages = range(min(SWATCHES, max(len(run.stages) for run in runs)))
    shown: dict[str, Any] = {}
    for kind in NAMES:
        if kind in kinds:
            shown[names[kind]] = tuple(Patch(facecolor=shade(color(s), SHADES[kind])) for s in stages)
    shown[BUBBLE] = Patch(**BUBBLE_LOOK)
    if (chunks := max(run.chunks for run in runs)) > 1:
        later = f"chunks {CHUNKS[1]} to {CHUNKS[chunks - 1]}" if chunks > 2 else f"chunk {CHUNKS[1]}"
        shown[later] = Line2D([], [], color=INK, linewidth=3)
    return shown
