"""Accuracy over a training, against each quantity by which its length may be counted."""

from collections.abc import Container, Mapping, Sequence

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from mpcourse.plot.bands import draw_mean
from mpcourse.plot.style import color, figure, label

STYLES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)))


def accuracy_against(
    axes: Mapping[str, Mapping[str, Sequence[float]]],
    accuracy: Mapping[str, Sequence[Sequence[float]]],
    title: str,
    log: Container[str] = (),
) -> Figure:
    """Plot the test accuracy of several ways to train, once against each count: the mean over seeds.

    axes: label of an x axis -> way -> positions on it at which the accuracy was measured. accuracy: way -> for each
    seed a value (percent) for each position; all ways have equally many seeds, two or more. The band around a mean is
    two of its standard errors to each side. log: axes with a logarithmic scale.
    """
    seeds = len(next(iter(accuracy.values())))
    made, panels = figure(title, columns=len(axes), width=7.4, height=3.4)
    for axis, (name, counts) in zip(panels, axes.items(), strict=True):
        for i, (way, runs) in enumerate(accuracy.items()):
            draw_mean(axis, counts[way], runs, color(i), label=way, linewidth=1.6, linestyle=STYLES[i % len(STYLES)])
        if name in log:
            axis.set_xscale("log")
            axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        else:
            axis.set_xlim(0)
        label(axis, name, f"test accuracy (%), {seeds} seeds" if axis is panels[0] else "")
        axis.sharey(panels[0])
    made.legend(*panels[0].get_legend_handles_labels(), fontsize=8, frameon=False, loc="outside lower center", ncols=3)
    return made
