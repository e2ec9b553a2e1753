"""Learning curves."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from mpcourse.models.training import LearningCurve
from mpcourse.plot.bands import draw_mean
from mpcourse.plot.style import INK, color, figure, label

AXES = {"step": "updates", "epoch": "epochs", "seconds": "seconds of training"}


def learning_curves(
    groups: Mapping[str, Sequence[LearningCurve]], title: str, by: str = "epoch", accuracy_from: float | None = None
) -> Figure:
    """Plot training loss (left) and test accuracy (right) of groups of runs: means, and bands of two standard errors.

    groups: name -> curves that were recorded at the same steps, one for each seed. by: "step", "epoch" or "seconds".
    accuracy_from: where the accuracy axis begins, in percent; None: fitted to the curves.
    """
    made, (left, right) = figure(title, columns=2)
    for i, (name, curves) in enumerate(groups.items()):
        x = np.mean([getattr(curve, by) for curve in curves], axis=0)
        for axis, field, scale in ((left, "train_loss", 1.0), (right, "test_accuracy", 100.0)):
            y = scale * np.array([getattr(curve, field) for curve in curves])
            line = ("-", "--", ":", "-.")[i % 4]
            draw_mean(axis, x, y, color(i), label=name, linewidth=1.8, linestyle=line)
    label(left, AXES[by], "training loss")
    label(right, AXES[by], "test accuracy (%)")
    left.set_yscale("log")
    if accuracy_from is not None:
        right.set_ylim(accuracy_from, 100)
    if len(groups) > 1:
        right.legend(fontsize=8, frameon=False, loc="lower right")
    return made


def each_run(groups: Mapping[str, Sequence[LearningCurve]], title: str, by: str = "epoch", line: float = 90) -> Figure:
    """Plot the test accuracy of every run, a panel for each group. This shows which runs fail, as no band does.

    groups: name -> a curve for each seed. by: "step", "epoch" or "seconds". line: an accuracy (percent) to compare
    with; a panel's heading counts the runs that end below it, which are drawn in another colour, dashed.
    """
    made, axes = figure(title, columns=len(groups))
    for axis, (name, curves) in zip(axes, groups.items(), strict=True):
        below = [curve for curve in curves if 100 * curve.test_accuracy[-1] < line]
        for curve in curves:
            failed = curve in below
            axis.plot(
                getattr(curve, by), [100 * accuracy for accuracy in curve.test_accuracy], linewidth=0.9, alpha=0.6,
                color=color(5 if failed else 0), linestyle="--" if failed else "-",
            )  # fmt: skip
        axis.axhline(line, color=INK, linewidth=0.8, linestyle=":")
        heading = f"{name}: {len(below)} of {len(curves)} end below {line:g} %"
        axis.set_title(heading, fontsize=9, color=INK, loc="left")
        axis.set_ylim(0, 100)
        axis.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        label(axis, AXES[by], "test accuracy (%)" if axis is axes[0] else "")
    return made
