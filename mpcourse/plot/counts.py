"""How often each whole number occurred."""

from collections import Counter
from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from mpcourse.plot.style import COLORS, INK, figure, label


def counts(rows: Mapping[str, Sequence[int]], x_label: str, counted: str, title: str) -> Figure:
    """Draw a panel with a bar for each number, in percent of its row.

    rows: name -> whole numbers, in any order.
    counted: what has these numbers.
    Raises ValueError where a row is empty.
    """
    if not rows or not all(len(values) for values in rows.values()):
        raise ValueError("nothing to count")
    made, axes = figure(title, columns=len(rows), width=max(7.0, 2.4 * len(rows)), height=2.6)
    last = max(max(values) for values in rows.values())
    for axis, (name, values) in zip(axes, rows.items(), strict=True):
        occurrences = Counter(values)
        axis.bar(list(occurrences), [100 * n / len(values) for n in occurrences.values()], width=0.85, color=COLORS[0])
        axis.set_title(name, fontsize=9, color=INK, loc="left")
        axis.sharex(axes[0])
        axis.sharey(axes[0])
        axis.set_xlim(-0.8, last + 0.8)
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
        axis.grid(axis="x", visible=False)
        label(axis, x_label, f"{counted} (%)" if axis is axes[0] else "")
    return made
