"""Accuracy over a training, against all that one may count it by."""

from collections.abc import Container, Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from mpcourse.plot.style import color, figure, label

STYLES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)))


def accuracy_against(
    axes: Mapping[str, Mapping[str, Sequence[float]]],
    accuracy: Mapping[str, Sequence[Sequence[float]]],
    title: str,
    log: Container[str] = (),
) -> Figure:
    """Test accuracy of several ways to train, once against each count: the mean over seeds.

    axes: label of an x axis -> way -> where on it the accuracy was looked at. accuracy: way -> for each seed a value
    (percent) for each look. The band around a mean is two of its standard errors to each side. log: axes that grow by
    factors.
    """
    made, panels = figure(title, columns=len(axes), width=7.4, height=3.4)
    for axis, (name, counts) in zip(panels, axes.items(), strict=True):
        for i, (way, seeds) in enumerate(accuracy.items()):
            y = np.array(seeds, float)
            mean, error = y.mean(0), y.std(0, ddof=1) / len(y) ** 0.5
            axis.plot(counts[way], mean, label=way, linewidth=1.6, color=color(i), linestyle=STYLES[i % len(STYLES)])
            axis.fill_between(counts[way], mean - 2 * error, mean + 2 * error, color=color(i), alpha=0.2, linewidth=0)
        if name in log:
            axis.set_xscale("log")
        else:
            axis.set_xlim(0)
        label(axis, name, "test accuracy (%)" if axis is panels[0] else "")
        axis.sharey(panels[0])
    made.legend(*panels[0].get_legend_handles_labels(), fontsize=8, frameon=False, loc="outside lower center", ncols=3)
    return made
