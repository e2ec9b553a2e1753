"""One look for the whole course: a palette whose colours differ for the colour-blind and in a grey print."""

from typing import Any

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure

# Okabe & Ito's palette (2008), in an order whose neighbours also differ in lightness.
COLORS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#000000")
INK = "#333333"
GREY = "#808080"  # of the host, which is not a device
# What memory holds.
KIND_COLORS = {
    "parameters": COLORS[0],
    "gradients": COLORS[4],
    "optimizer state": COLORS[1],
    "activations": COLORS[2],
    "buffers": COLORS[5],
    "inputs": COLORS[6],
    "temporaries": COLORS[3],
    "workspaces": "#BBBBBB",
}
KIND_HATCHES = {
    "parameters": "",
    "gradients": "//",
    "optimizer state": "..",
    "activations": "xx",
    "buffers": "",
    "inputs": "--",
    "temporaries": "\\\\",
    "workspaces": "",
}
MARKERS = "osD^vP*X"
# For time in which a device computes nothing, wherever parts of a step are drawn.
BUBBLE = "bubble"
BUBBLE_LOOK: dict[str, Any] = {"facecolor": "white", "edgecolor": "#BBBBBB", "hatch": "////", "linewidth": 0.0}


def color(index: int) -> str:
    """Return the colour of rank or device `index`, the same in every figure."""
    return COLORS[index % len(COLORS)]


def shade(fill: str, strength: float) -> str:
    """Mix a colour with white (strength below 1 is the part that is left of it) or with black (1 to 2)."""
    red, green, blue = (min(strength, 2 - strength) * part + max(0.0, 1 - strength) for part in to_rgb(fill))
    return to_hex((red, green, blue))


def ink_on(fill: str) -> str:
    """Return the ink, dark or white, that can be read on that colour."""
    red, green, blue = to_rgb(fill)
    return INK if 0.3 * red + 0.59 * green + 0.11 * blue > 0.5 else "white"


def figure(
    title: str, columns: int = 1, width: float = 7.0, height: float = 3.2, rows: int = 1
) -> tuple[Figure, list[Axes]]:
    """Make an empty figure whose title states what it shows; return it and its axes, left to right, row by row."""
    made, axes = plt.subplots(rows, columns, figsize=(width, height), layout="constrained", squeeze=False)
    made.suptitle(title, fontsize=11, color=INK, x=0.01, ha="left")
    for axis in axes.flat:
        axis.spines[["top", "right"]].set_visible(False)
        axis.tick_params(which="both", labelsize=8, colors=INK)  # log axes also label minor ticks
        axis.grid(alpha=0.25, linewidth=0.6)
        axis.set_axisbelow(True)
    return made, list(axes.flat)


def label(axis: Axes, x: str, y: str) -> None:
    """Label both axes."""
    axis.set_xlabel(x, fontsize=9, color=INK)
    axis.set_ylabel(y, fontsize=9, color=INK)
