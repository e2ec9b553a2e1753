"""What a whole consists of, row by row, beside its measured or published value."""

from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure

from mpcourse.plot.style import BUBBLE, BUBBLE_LOOK, INK, color, figure, label, shade

HATCHES = ("", "/////", "....", "xxxx", "----")  # none for the first part, mostly computation; then for what is sent


def parts(
    rows: Mapping[str, Mapping[str, float]],
    x_label: str,
    title: str,
    marks: Mapping[str, float] | None = None,
    mark: str = "published",
) -> Figure:
    """Draw each row as one bar, made of its parts end to end.

    rows: name -> its parts, name -> length. marks: for some rows, the position of a mark.

    The first row is the uppermost. A part called "bubble" looks as in a schedule. Raises ValueError where there is
    nothing to draw, or a mark for no row.
    """
    if not rows:
        raise ValueError("no rows to draw")
    if unknown := set(marks or {}) - set(rows):
        raise ValueError(f"marks for rows that are not there: {', '.join(sorted(unknown))}")
    made, (axis,) = figure(title, height=0.9 + 0.36 * len(rows))
    names = list(dict.fromkeys(name for row in rows.values() for name in row))
    for i, name in enumerate(names):
        begins = [sum(list(row.values())[: list(row).index(name)]) if name in row else 0.0 for row in rows.values()]
        lengths = [row.get(name, 0.0) for row in rows.values()]
        plain = {"facecolor": color(i), "edgecolor": shade(color(i), 1.5), "hatch": HATCHES[i % len(HATCHES)]}
        look: dict[str, Any] = BUBBLE_LOOK if name == BUBBLE else {**plain, "linewidth": 0.0}
        axis.barh(list(rows), lengths, left=begins, height=0.6, label=name, **look)
    if marks:
        axis.plot(list(marks.values()), list(marks), "|", color=INK, markersize=18, markeredgewidth=2.5, label=mark)
    axis.invert_yaxis()
    axis.set_xlim(left=0)
    axis.grid(axis="y", visible=False)
    label(axis, x_label, "")
    axis.legend(fontsize=8, frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0), markerscale=0.6)
    return made
