"""One quantity against another, a line for each variant."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from mpcourse.plot.bands import draw_mean
from mpcourse.plot.style import GREY, INK, MARKERS, color, figure, label
from mpcourse.virtual.gpus.ledger import size

NAME = 0.05  # part of the axis from a reference to the middle of its name


def lines(
    x: Sequence[float],
    rows: Mapping[str, Sequence[float] | Sequence[Sequence[float]]],
    x_label: str,
    y_label: str,
    title: str,
    references: Mapping[str, float] | None = None,
    log: bool = True,
    formulas: Mapping[str, Sequence[float]] | None = None,
    log_y: bool = False,
    verticals: Mapping[str, float] | None = None,
    single: Mapping[str, tuple[float, float]] | None = None,
) -> Figure:
    """Draw a line for each variant.

    rows: name -> for each x a value, or several (one for each seed): then their mean, and a band of two standard errors
    to each side. NaN leaves a place out. references: name -> a height to compare with. log: a logarithmic x axis.
    formulas: name -> a value for each x, drawn as a dashed line without marks. log_y: a logarithmic y axis. verticals:
    name -> an x to mark. single: name -> (x, y) of a value by itself, such as a published one: an open circle, then
    other open marks.
    """
    made, (axis,) = figure(title)
    for i, (name, values) in enumerate(rows.items()):
        heights = np.array(values, float).reshape(len(x), -1)
        look: dict[str, Any] = dict(color=color(i), marker=MARKERS[i], markersize=5, linewidth=1.5, label=name)
        if heights.shape[1] > 1:
            draw_mean(axis, x, heights.T.tolist(), **look)
        else:
            axis.plot(x, heights[:, 0], **look)
    for i, (name, formula) in enumerate((formulas or {}).items()):
        axis.plot(x, formula, color=GREY, linewidth=1.5, linestyle=("--", ":", "-.")[i % 3], label=name)
    for i, (name, at) in enumerate((single or {}).items()):
        (mark,) = axis.plot(*at, MARKERS[i], color=INK, markersize=10, label=name)
        mark.set(markerfacecolor="none", markeredgewidth=1.5)
    for height in (references or {}).values():
        axis.axhline(height, color=INK, linewidth=0.8, linestyle=":")
    if log:
        axis.set_xscale("log", base=2)
    if log_y:
        axis.set_yscale("log")
        axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.yaxis.set_minor_locator(NullLocator())
    for i, (name, place) in enumerate((verticals or {}).items()):
        axis.axvline(place, color=INK, linewidth=0.8, linestyle=(":", "-.")[i % 2])
        left = any(other > place for other in (verticals or {}).values())  # otherwise a line would cross the name
        axis.annotate(
            name, (place, 0.5 + 0.08 * i), (-4 if left else 4, 2), xycoords=axis.get_xaxis_transform(),
            textcoords="offset points", fontsize=8, color=INK, ha="right" if left else "left",
        )  # fmt: skip
    for name, height in (references or {}).items():
        _name_reference(axis, x, height, name, list(rows.values()))
    axis.set_xticks(list(x), [f"{value:g}" for value in x])
    axis.minorticks_off()
    label(axis, x_label, y_label)
    axis.legend(fontsize=8, frameon=False)
    return made


def _name_reference(axis: Axes, x: Sequence[float], height: float, name: str, rows: Sequence) -> None:
    """Write a name above the reference's left end, or above its right end if only there no line crosses the name."""

    def place(value: float) -> float:
        return axis.transAxes.inverted().transform(axis.transData.transform((x[0], value)))[1]

    def room(end: int) -> float:
        ends = [float(np.mean(row[end])) for row in rows]
        return min((abs(place(y) - place(height) - NAME) for y in ends if np.isfinite(y)), default=1.0)

    end = -1 if room(0) < 2 * NAME < room(-1) else 0
    side = "right" if end else "left"
    axis.annotate(name, (x[end], height), (0, 4), textcoords="offset points", fontsize=8, color=INK, ha=side)


def label_bytes(made: Figure, nbytes: Sequence[int]) -> None:
    """Label the ticks of a logarithmic x axis in B, KiB and MiB."""
    names = [size(n).replace(".00", "") for n in nbytes]
    made.axes[0].set_xticks(list(nbytes), names, rotation=40)
    made.axes[0].set_xlabel("size of the array")
