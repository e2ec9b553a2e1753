"""Time against compute: what a larger batch costs and saves (McCandlish et al., 2018, section 2.3)."""

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from mpcourse.plot.style import GREY, INK, color, figure, label


def tradeoff(
    runs: Mapping[int, tuple[float, float]],
    least_updates: float,
    least_examples: float,
    title: str,
    batch: int | None = None,
) -> Figure:
    """Plot updates against examples needed to reach one target, a mark for each batch, as parts of their least.

    runs: batch -> (updates, examples). Beside the marks the curve (S / S_min - 1) (E / E_min - 1) = 1. batch: one that
    is marked on the curve. Raises ValueError where there is nothing to draw.
    """
    if not runs:
        raise ValueError("no runs to draw")
    made, (axis,) = figure(title, width=5.6, height=3.6)
    critical = least_examples / least_updates
    curve = np.geomspace(0.3 * min(runs), 3 * max(runs), 300)
    axis.loglog(1 + critical / curve, 1 + curve / critical, "--", color=GREY, linewidth=1.5, label="formula")
    x = [updates / least_updates for updates, _ in runs.values()]
    y = [examples / least_examples for _, examples in runs.values()]
    axis.loglog(x, y, "o", color=color(0), markersize=6, label="measured")
    for size, (time, compute) in zip(runs, zip(x, y, strict=True), strict=True):
        below = (time - 1) * (compute - 1) < 1  # the name is on the side where the curve is not
        axis.annotate(
            f"{size}", (time, compute), (-6, -3) if below else (6, 4), textcoords="offset points", fontsize=8,
            color=INK, ha="right" if below else "left", va="top" if below else "baseline",
        )  # fmt: skip
    axis.loglog(2, 2, "D", color=color(5), markersize=7, label=f"critical batch, {critical:.0f}")
    if batch is not None:
        axis.loglog(
            1 + critical / batch, 1 + batch / critical, "s", color=color(1), markersize=9, label=f"batch {batch}"
        )
    axis.set_xlim(left=0.7)  # room for names left of the marks
    for of in (axis.xaxis, axis.yaxis):
        of.set_major_locator(LogLocator(subs=(1, 2, 5)))
        of.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        of.set_minor_locator(NullLocator())
    label(axis, "updates / least updates (time)", "examples / least examples (compute)")
    axis.legend(fontsize=8, frameon=False)
    return made
