"""One look for the whole course: a palette that the colour-blind and a grey printer can tell apart."""

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

# Okabe & Ito's palette (2008), in an order whose neighbours also differ in lightness.
COLORS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#000000")
KIND_COLORS = {"parameters": COLORS[0], "gradients": COLORS[4], "optimizer": COLORS[1], "activations": COLORS[2]}
KIND_HATCHES = {"parameters": "", "gradients": "//", "optimizer": "..", "activations": "xx"}
MARKERS = "osD^vP*X"
INK = "#333333"


def color(index: int) -> str:
    """The colour of rank or device `index`, the same in every figure."""
    return COLORS[index % len(COLORS)]


def figure(title: str, columns: int = 1, width: float = 7.0, height: float = 3.2) -> tuple[Figure, list[Axes]]:
    """An empty figure whose title says what it shows, and its axes from left to right."""
    made, axes = plt.subplots(1, columns, figsize=(width, height), layout="constrained", squeeze=False)
    made.suptitle(title, fontsize=11, color=INK, x=0.01, ha="left")
    for axis in axes[0]:
        axis.spines[["top", "right"]].set_visible(False)
        axis.tick_params(which="both", labelsize=8, colors=INK)  # log axes also label minor ticks
        axis.grid(alpha=0.25, linewidth=0.6)
        axis.set_axisbelow(True)
    return made, list(axes[0])


def label(axis: Axes, x: str, y: str) -> None:
    axis.set_xlabel(x, fontsize=9, color=INK)
    axis.set_ylabel(y, fontsize=9, color=INK)
