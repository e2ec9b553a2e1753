"""One quantity against another, a line for each variant."""

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from mpcourse.plot.style import INK, MARKERS, color, figure, label


def lines(
    x: Sequence[float],
    rows: Mapping[str, Sequence[float]],
    x_label: str,
    y_label: str,
    title: str,
    references: Mapping[str, float] | None = None,
    log: bool = True,
) -> Figure:
    """rows: name -> a value for each x. references: name -> a height to compare with. log: x grows by factors."""
    made, (axis,) = figure(title)
    for i, (name, values) in enumerate(rows.items()):
        axis.plot(x, values, color=color(i), marker=MARKERS[i], markersize=5, linewidth=1.5, label=name)
    for name, height in (references or {}).items():
        axis.axhline(height, color=INK, linewidth=0.8, linestyle=":")
        axis.annotate(name, (x[0], height), (0, 4), textcoords="offset points", fontsize=8, color=INK)
    if log:
        axis.set_xscale("log", base=2)
    axis.set_xticks(list(x), [f"{value:g}" for value in x])
    axis.minorticks_off()
    label(axis, x_label, y_label)
    axis.legend(fontsize=8, frameon=False)
    return made
