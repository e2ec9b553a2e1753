"""Two linear layers cut over devices: the first by its columns, the second by its rows."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from mpcourse.plot.style import INK, color, figure, shade

BATCH, WIDTH, HIDDEN, GAP = 1.0, 1.2, 2.4, 0.55  # sizes of the matrices in the drawing, and the space between them
HATCHES = ("", "///", "...", "xx")


def column_row(devices: int, title: str) -> Figure:
    """Draw H = GELU(X A), and H B = the sum of partial results, with each block in its device's colour.

    The cut is Megatron-LM's for the two layers of an MLP block (Shoeybi et al., 2019, section 3): A by columns, so that
    the function between the layers needs nothing from another device, and B by rows. Each device has one partial
    result.
    devices: 2 to 4. Raises ValueError for other numbers.
    """
    if not 2 <= devices <= 4:
        raise ValueError(f"2 to 4 devices can be drawn apart, not {devices}")
    made, (axis,) = figure(title, width=7.4, height=2.5)
    at = _matrix(axis, 0, BATCH, WIDTH, "X", "on every GPU")
    at = _matrix(axis, _sign(axis, at, "×"), WIDTH, HIDDEN, "A", "cut by columns", columns=devices)
    axis.text(at + GAP, 0.18, "GELU", ha="center", va="bottom", fontsize=8, color=INK)
    at = _sign(axis, at + GAP / 2, "→") + GAP / 2  # room for the word
    at = _matrix(axis, at, BATCH, HIDDEN, "H", "stays where it is", columns=devices)
    at = _matrix(axis, _sign(axis, at, "×"), HIDDEN, WIDTH, "B", "cut by rows", rows=devices)
    terms = at + GAP
    for device in range(devices):
        at = _sign(axis, at, "=" if device == 0 else "+")
        at = _matrix(axis, at, BATCH, WIDTH, "", "", of=device)
    _caption(axis, (terms + at) / 2, BATCH, "all-reduce")
    axis.set_xlim(-0.1, at + 0.1)
    axis.set_ylim(-HIDDEN / 2 - 0.75, HIDDEN / 2 + 0.35)
    axis.set_aspect("equal")
    axis.axis("off")
    handles = [Rectangle((0, 0), 1, 1, **_style(device)) for device in range(devices)]
    names = [f"GPU {device}" for device in range(devices)]
    made.legend(handles, names, fontsize=8, frameon=False, loc="outside lower center", ncols=devices)
    return made


def _style(device: int | None) -> dict:
    if device is None:
        return {"facecolor": "#DDDDDD", "edgecolor": "white"}
    return {"facecolor": shade(color(device), 0.7), "hatch": HATCHES[device], "edgecolor": "white"}


def _sign(axis: Axes, at: float, sign: str) -> float:
    axis.text(at + GAP / 2, 0, sign, ha="center", va="center", fontsize=11, color=INK)
    return at + GAP


def _matrix(
    axis: Axes, at: float, high: float, wide: float, name: str, caption: str,
    columns: int = 1, rows: int = 1, of: int | None = None,
) -> float:  # fmt: skip
    """Draw a matrix from `at` on, in blocks of one device each, or whole as device `of` has it; return its end."""
    for block in range(columns * rows):
        device = block if columns * rows > 1 else of
        x, top = (
            at + wide * (block if columns > 1 else 0) / columns,
            high / 2 - high * (block if rows > 1 else 0) / rows,
        )
        axis.add_patch(Rectangle((x, top - high / rows), wide / columns, high / rows, gid=name, **_style(device)))
    if name:
        axis.text(at + wide / 2, high / 2 + 0.08, name, ha="center", va="bottom", fontsize=9, color=INK)
    _caption(axis, at + wide / 2, high, caption)
    return at + wide


def _caption(axis: Axes, middle: float, high: float, text: str) -> None:
    """Write a caption below a matrix of this height."""
    axis.text(middle, -high / 2 - 0.1, text, ha="center", va="top", fontsize=8, color=INK)
