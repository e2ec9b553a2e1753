"""What one training step costs in time and memory."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from mpcourse.plot.style import INK, KIND_COLORS, KIND_HATCHES, color, figure, label, shade
from mpcourse.plot.timeline import STRENGTHS

# As in a timeline: light, full, dark.
PHASE_STYLES = {phase: (shade(color(0), STRENGTHS[phase]), "") for phase in ("forward", "backward", "optimizer")}
KIND_STYLES = {kind: (KIND_COLORS[kind], KIND_HATCHES[kind]) for kind in KIND_COLORS}
STATE = {"optimizer": "optimizer state"}  # what `StepMemory` calls it, and every figure


def step_cost(rows: Mapping[str, Mapping[str, float]], title: str) -> Figure:
    """Draw one bar per row, made of the step's phases. rows: name -> {"forward": s, "backward": s, "optimizer": s}."""
    return _stacked_bars(rows, PHASE_STYLES, 1e3, "milliseconds", lambda total: f"{total:.2g} ms", title)


def memory_breakdown(
    rows: Mapping[str, Mapping[str, float]], title: str, unit: str = "MiB", capacity: float | None = None
) -> Figure:
    """Draw one bar per row, stacked by kind.

    rows: name -> bytes by kind, as `StepMemory.as_dict()` or a ledger gives them. unit: "MiB" or "GB". capacity: bytes
    that a device has, marked by a line; None: no line.
    """
    scale, digits = {"MiB": (2**-20, 1), "GB": (1e-9, 2)}[unit]
    named = {name: {STATE.get(kind, kind): nbytes for kind, nbytes in row.items()} for name, row in rows.items()}
    styles = {kind: style for kind, style in KIND_STYLES.items() if any(kind in row for row in named.values())}
    full = {name: {kind: row.get(kind, 0) for kind in styles} for name, row in named.items()}
    made = _stacked_bars(full, styles, scale, unit, lambda total: f"{total:.{digits}f} {unit}", title)
    if capacity is not None:
        (axis,) = made.axes
        axis.axvline(scale * capacity, color=INK, linewidth=1, linestyle="--")
        text = f"{scale * capacity:g} {unit}: all that a device has"
        axis.annotate(
            text, (scale * capacity, 1), (0, 2), xycoords=axis.get_xaxis_transform(), textcoords="offset points",
            fontsize=8, color=INK, ha="right" if 2 * scale * capacity > axis.get_xlim()[1] else "left",
        )  # fmt: skip
    return made


def _stacked_bars(
    rows: Mapping[str, Mapping[str, float]],
    styles: Mapping[str, tuple[str, str]],
    scale: float,
    unit: str,
    total_text: Callable[[float], str],
    title: str,
) -> Figure:
    """Draw stacked bars. styles: part -> colour and hatch, in stacking order. total_text: the label beside a row."""
    made, (axis,) = figure(title, height=0.5 * len(rows) + 1.4)
    left = np.zeros(len(rows))
    for part, (fill, hatch) in styles.items():
        width = scale * np.array([row[part] for row in rows.values()])
        axis.barh(range(len(rows)), width, left=left, label=part, color=fill, hatch=hatch, edgecolor="white")
        left += width
    for y, total in enumerate(left):
        axis.text(total, y, f" {total_text(total)}", va="center", fontsize=8)
    axis.set_yticks(range(len(rows)), list(rows))
    axis.invert_yaxis()
    axis.margins(x=0.14)
    label(axis, unit, "")
    made.legend(fontsize=8, frameon=False, loc="outside lower center", ncols=len(styles))
    return made


def throughput(
    batch: Sequence[int], seconds: Sequence[float], fixed: float, each: float, title: str, source: str = "measured"
) -> Figure:
    """Plot the time of a step (left) and examples per second (right) against the batch size.

    seconds: of a step with that batch. fixed, each: the fitted line fixed + each x batch, in seconds. The knee, where
    the two parts are equal, is marked in both. source: how the seconds were found, for the legend.
    """
    made, (left, right) = figure(title, columns=2)
    size, time = np.array(batch, float), np.array(seconds, float)
    x = np.geomspace(size[0], size[-1], 200)
    left.loglog(size, 1e3 * time, "o", color=color(0), markersize=5, label=source)
    left.loglog(x, 1e3 * (fixed + each * x), "--", color=color(1), linewidth=1.5, label="fixed + each x batch")
    right.loglog(size, size / time, "o", color=color(0), markersize=5)
    right.loglog(x, x / (fixed + each * x), "--", color=color(1), linewidth=1.5)
    for axis in (left, right):
        axis.axvline(fixed / each, color=INK, linewidth=0.8, linestyle=":")
        axis.set_xscale("log", base=2)
    left.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))  # there may be less than two decades
    left.yaxis.set_major_formatter("{x:g}")
    left.yaxis.set_minor_formatter("")
    # Where the panel has room and no curve.
    knee, early = fixed / each, fixed / each < np.sqrt(size[0] * size[-1])
    for axis, top in ((left, not early), (right, False)):
        at, shift = (knee, axis.get_ylim()[top]), (4 if early else -4, -10 if top else 6)
        side = "left" if early else "right"
        axis.annotate(f"knee: batch {knee:.0f}", at, shift, textcoords="offset points", fontsize=8, ha=side)
    label(left, "batch size", "one step (ms)")
    label(right, "batch size", "examples a second")
    made.legend(*left.get_legend_handles_labels(), fontsize=8, frameon=False, loc="outside lower center", ncols=2)
    return made
