"""Choices as points: what each costs in one respect, and what it costs in another."""

from collections.abc import Mapping

from matplotlib.figure import Figure

from mpcourse.plot.style import INK, MARKERS, color, figure, label


def points(
    choices: Mapping[str, tuple[float, float]],
    x_label: str,
    y_label: str,
    title: str,
    references: Mapping[str, float] | None = None,
) -> Figure:
    """Draw choices as points; less of both x and y is better.

    choices: name -> (x, y). references: name -> a height to compare with. Each name is written beside its point, on the
    side where no other point is near, and lower if a reference would cross it. Heights begin at 0. Raises ValueError
    where there is no choice.
    """
    if not choices:
        raise ValueError("no choices to draw")
    made, (axis,) = figure(title)
    places = list(choices.values())
    left, right = min(x for x, _ in places), max(x for x, _ in places)
    wide = right - left or right or 1.0
    high = 1.1 * max([y for _, y in places] + list((references or {}).values()))
    for i, (name, (x, y)) in enumerate(choices.items()):
        axis.plot(x, y, MARKERS[i % len(MARKERS)], color=color(i), markersize=8, label=name)
        taken = any(0 < x2 - x < 0.6 * wide and abs(y2 - y) < 0.06 * high for x2, y2 in places)
        side = -1 if taken else 1
        crossed = any(abs(height - y) < 0.04 * high for height in (references or {}).values())
        axis.annotate(
            name, (x, y), (8 * side, -9 if crossed else 0), textcoords="offset points", fontsize=8, color=INK,
            va="center", ha="right" if taken else "left",
        )  # fmt: skip
    axis.set_xlim(left - 0.25 * wide, right + 0.55 * wide)  # the names need room on the right
    axis.set_ylim(0, high)
    for name, height in (references or {}).items():
        axis.axhline(height, color=INK, linewidth=0.8, linestyle=":")
        axis.annotate(
            name, (1, height), (-4, 4), xycoords=axis.get_yaxis_transform(), textcoords="offset points", fontsize=8,
            color=INK, ha="right",
        )  # fmt: skip
    label(axis, x_label, y_label)
    return made
