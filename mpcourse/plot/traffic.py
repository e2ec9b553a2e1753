"""How much each device or rank sends to each other one."""

from collections import Counter
from collections.abc import Iterable

import numpy as np
from matplotlib.figure import Figure

from mpcourse.plot.records import ARROW, events_of, lane_order
from mpcourse.plot.style import INK, color, figure, label, shade
from mpcourse.virtual import Box, Event
from mpcourse.virtual.gpus.ledger import size


def traffic(
    source: Box | Iterable[Event], title: str = "Bytes copied from each row's memory to each column's"
) -> Figure:
    """Draw a matrix of what was copied from the row's device to the column's: bytes and number of copies.

    source: a box, all of whose devices are shown, or events; all devices that a copy names are shown. Darker is more; a
    cell without copies is empty.
    Raises ValueError where there are no events, and where nothing was copied.
    """
    names, number, moved = _copies(source)
    nbytes = np.array([[moved[a, b] for b in names] for a in names], dtype=float)
    n = len(names)
    made, (axis,) = figure(title, width=max(7.0, 0.9 * n + 1.2), height=0.45 * n + 1.1)
    most = nbytes.max() or 1.0
    axis.imshow(np.ma.masked_equal(nbytes, 0), cmap="Blues", vmin=0, vmax=1.15 * most, aspect="auto")
    for (a, b), count in number.items():
        row, column = names.index(a), names.index(b)
        one, more = ("message", "messages") if a.startswith("rank") else ("copy", "copies")
        text = f"{size(moved[a, b])}\n{count} {one if count == 1 else more}"
        ink = "white" if moved[a, b] > 0.6 * most else INK
        axis.text(column, row, text, fontsize=8, color=ink, ha="center", va="center")
    axis.set_xticks(range(n), names)
    axis.set_yticks(range(n), names)
    axis.xaxis.tick_top()
    axis.xaxis.set_label_position("top")
    axis.tick_params(length=0)
    axis.grid(False)
    axis.spines[:].set_visible(False)
    for edge in np.arange(n + 1) - 0.5:
        axis.axhline(edge, color="#CCCCCC", linewidth=0.6, clip_on=False)
        axis.axvline(edge, color="#CCCCCC", linewidth=0.6, clip_on=False)
    label(axis, "to", "from")
    return made


def sent(source: Box | Iterable[Event], title: str) -> Figure:
    """Draw two bars for each device or rank: the bytes that it sends, and below them the bytes that it receives.

    source: a box, all of whose devices are shown, or events; all devices that a copy names are shown.
    Raises ValueError where there are no events, and where nothing was copied.
    """
    names, _, moved = _copies(source)
    made, (axis,) = figure(title, height=0.34 * len(names) + 1.1)
    looks = ("sends", -0.19, color(0), ""), ("receives", 0.19, shade(color(0), 0.3), "///")
    for end, (word, shift, fill, hatch) in enumerate(looks):
        nbytes = [sum(n for pair, n in moved.items() if pair[end] == name) for name in names]
        places = [row + shift for row in range(len(names))]
        megabytes = [n / 1e6 for n in nbytes]
        bars = axis.barh(places, megabytes, 0.34, label=word, facecolor=fill, edgecolor=color(0), hatch=hatch)
        axis.bar_label(bars, [f"{each:.1f}" for each in megabytes], padding=3, fontsize=7)
    axis.set_yticks(range(len(names)), names)
    axis.set_ylim(len(names) - 0.5, -0.5)
    axis.margins(x=0.12)
    axis.grid(axis="y", visible=False)
    label(axis, "MB", "")
    made.legend(fontsize=8, frameon=False, loc="outside lower right", ncols=2)
    return made


def _copies(source: Box | Iterable[Event]) -> tuple[list[str], Counter[tuple[str, str]], Counter[tuple[str, str]]]:
    """Return the names of all devices, in order, and for each pair how often and how many bytes were copied."""
    copies = [e for e in events_of(source) if e.kind == "copy" and ARROW in e.lane]
    if not copies:
        raise ValueError("no copies to draw: no event has the kind 'copy' on a lane 'source -> target'")
    number: Counter[tuple[str, str]] = Counter()
    moved: Counter[tuple[str, str]] = Counter()
    for e in copies:
        origin, _, target = e.lane.partition(ARROW)
        number[origin, target] += 1
        moved[origin, target] += e.nbytes
    named = {name for pair in number for name in pair}
    names = sorted(named | (set(source.names) if isinstance(source, Box) else set()), key=lane_order)
    return names, number, moved
