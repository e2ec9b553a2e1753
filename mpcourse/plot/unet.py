"""A U-Net cut between encoder and decoder: the tensors that cross the cut."""

import math
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, Rectangle

from mpcourse.plot.style import GREY, INK, color, figure, shade
from mpcourse.virtual.gpus.ledger import size

STEP = 1.0  # between two levels
HIGH = 0.52


def unet(skips: Sequence[int], deepest: int, title: str) -> Figure:
    """Draw levels from the widest down, the encoder on GPU 0, the decoder on GPU 1, and an arrow for each skip.

    skips: bytes of each level's skip, the widest level first. deepest: bytes of the one tensor that a chain would send.
    An arrow's width grows with the logarithm of its bytes. Raises ValueError without skips.
    """
    if not skips:
        raise ValueError("a U-Net has one skip at least")
    made, (axis,) = figure(title, height=2.9)
    levels = len(skips) + 1
    for level in range(levels):
        y, wide = -level * STEP, 1.5 / 1.35**level
        for side, device in ((-1, 0), (1, 1)) if level < levels - 1 else ((-1, 0),):
            x = side * (3.1 - 0.62 * level)
            axis.add_patch(Rectangle((x - wide / 2, y - HIGH / 2), wide, HIGH, facecolor=shade(color(device), 0.6)))
            name = "bottom" if level == levels - 1 else f"level {level}"
            axis.text(x, y, name, ha="center", va="center", fontsize=8, color=INK)
            if level < levels - 2 or (side < 0 and level < levels - 1):  # down in the encoder, up in the decoder
                upper, lower = (x, y - HIGH / 2), (x - side * 0.62, y - STEP + HIGH / 2)
                _arrow(axis, *((upper, lower) if side < 0 else (lower, upper)), GREY, 1.0)
    for level, nbytes in enumerate(skips):
        reach = 3.1 - 0.62 * level - 0.75 / 1.35**level
        _arrow(axis, (-reach, -level * STEP), (reach, -level * STEP), color(0), _width(nbytes, deepest))
        axis.text(0.1, -level * STEP + 0.13, f"skip: {size(nbytes)}", ha="left", va="bottom", fontsize=8, color=INK)
    at, last = -(levels - 1) * STEP, 3.1 - 0.62 * (levels - 1)
    up = 3.1 - 0.62 * (levels - 2)
    _arrow(axis, (-last + 0.75 / 1.35 ** (levels - 1), at), (up - 0.2, at + STEP - HIGH / 2), INK, 1.5)
    axis.text(
        0.1, at - 0.18, f"all that a chain would send: {size(deepest)}", ha="left", va="top", fontsize=8, color=INK
    )
    axis.axvline(0, color=INK, linestyle=":", linewidth=1.0)
    for x, name in ((-3.1, "GPU 0: encoder"), (3.1, "GPU 1: decoder")):
        axis.text(x, HIGH / 2 + 0.12, name, ha="center", va="bottom", fontsize=9, color=INK)
    axis.set_xlim(-4.2, 4.2)
    axis.set_ylim(at - 0.6, HIGH / 2 + 0.5)
    axis.axis("off")
    return made


def _arrow(axis: Axes, begin: tuple[float, float], end: tuple[float, float], of: str, width: float) -> None:
    axis.add_patch(FancyArrowPatch(begin, end, arrowstyle="-|>", mutation_scale=8 + width, color=of, linewidth=width))


def _width(nbytes: int, least: int) -> float:
    return 1.5 + max(0.0, math.log2(nbytes / least))
