"""Choices as points: what each costs in one respect, and what in another."""

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
    """choices: name -> (x, y), less of both is better. references: name -> a height to compare with.

    Both axes begin at 0, so that distances are what they seem. Raises ValueError where there is no choice.
    """
    if not choices:
        raise ValueError("no choices to draw")
    made, (axis,) = figure(title)
    widest = max(x for x, _ in choices.values())
    for i, (name, (x, y)) in enumerate(choices.items()):
        axis.plot(x, y, MARKERS[i % len(MARKERS)], color=color(i), markersize=8, label=name)
    axis.set_xlim(0, 1.1 * widest)
    axis.set_ylim(0, 1.1 * max([y for _, y in choices.values()] + list((references or {}).values())))
    for name, height in (references or {}).items():
        axis.axhline(height, color=INK, linewidth=0.8, linestyle=":")
        axis.annotate(name, (0, height), (4, 4), textcoords="offset points", fontsize=8, color=INK)
    label(axis, x_label, y_label)
    axis.legend(fontsize=8, frameon=False)  # names beside the points would cover each other
    return made
