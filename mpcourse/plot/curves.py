"""Learning curves."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from mpcourse.plot.style import color, figure, label
from mpcourse.training import LearningCurve

AXES = {"step": "updates", "epoch": "epochs", "seconds": "seconds of training"}


def learning_curves(
    groups: Mapping[str, Sequence[LearningCurve]], title: str, by: str = "epoch", accuracy_from: float | None = None
) -> Figure:
    """Training loss (left) and test accuracy (right) of groups of runs: the mean, and a band from least to most.

    groups: name -> curves that were recorded at the same steps, one for each seed. by: "step", "epoch" or "seconds".
    accuracy_from: where the accuracy axis begins, in percent; None: fitted to the curves.
    """
    made, (left, right) = figure(title, columns=2)
    for i, (name, curves) in enumerate(groups.items()):
        x = np.mean([getattr(curve, by) for curve in curves], axis=0)
        for axis, field, scale in ((left, "train_loss", 1.0), (right, "test_accuracy", 100.0)):
            y = scale * np.array([getattr(curve, field) for curve in curves])
            line = ("-", "--", ":", "-.")[i % 4]
            axis.plot(x, y.mean(0), label=name, linewidth=1.8, color=color(i), linestyle=line)
            axis.fill_between(x, y.min(0), y.max(0), color=color(i), alpha=0.25, linewidth=0)
    label(left, AXES[by], "training loss")
    label(right, AXES[by], "test accuracy (%)")
    left.set_yscale("log")
    if accuracy_from is not None:
        right.set_ylim(accuracy_from, 100)
    if len(groups) > 1:
        right.legend(fontsize=8, frameon=False, loc="lower right")
    return made
