"""How much of each row goes to each column, as numbers on shades of grey."""

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from mpcourse.plot.style import INK, figure, label


def matrix(
    panels: Mapping[str, Sequence[Sequence[float]]], x_label: str, y_label: str, title: str, places: int = 0
) -> Figure:
    """Draw a panel for each matrix, the darker the larger the number.

    panels: name -> rows of numbers that are not negative. places: decimal places of the numbers that are shown.
    Raises ValueError for a matrix without numbers.
    """
    if not panels or not all(len(rows) and len(rows[0]) for rows in panels.values()):
        raise ValueError("there is no number to draw")
    first = next(iter(panels.values()))
    height = 1.3 + 0.32 * max(len(rows) for rows in panels.values())
    made, axes = figure(title, columns=len(panels), width=max(7.0, 0.42 * len(first[0]) * len(panels)), height=height)
    most = max(max(map(max, rows)) for rows in panels.values())
    for axis, (name, rows) in zip(axes, panels.items(), strict=True):
        axis.imshow(rows, cmap="Greys", vmin=0, vmax=1.2 * most, aspect="auto")
        for y, row in enumerate(rows):
            for x, value in enumerate(row):
                ink = "white" if value > 0.6 * most else INK
                axis.text(x, y, f"{value:.{places}f}", ha="center", va="center", fontsize=8, color=ink)
        axis.set(xticks=range(len(rows[0])), yticks=range(len(rows)))
        axis.grid(False)
        axis.set_title(name, fontsize=9, color=INK, loc="left")
        label(axis, x_label, y_label if axis is axes[0] else "")
    return made
