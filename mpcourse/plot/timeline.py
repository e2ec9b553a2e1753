"""When each was busy: the host, the devices and the links, a row for each."""

import functools
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.legend_handler import HandlerTuple
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.textpath import TextPath

from mpcourse.plot.records import ARROW, events_of, lane_color, lane_order
from mpcourse.plot.style import INK, figure, ink_on, label, shade
from mpcourse.virtual import Box, Event, busy, span
from mpcourse.virtual.gpus.ledger import size

# How strong a lane's colour is in each phase. The phases differ in lightness, so that they differ in a grey print.
STRENGTHS = {"forward": 0.45, "recompute": 0.45, "backward": 1.0, "optimizer": 1.6, "": 0.2}
OTHER = "no gradient"  # the name of phase "" beside others
HATCHES = {"recompute": "....", "copy": "/////"}
HEIGHTS = {"compute": 0.74, "enqueue": 0.74, "copy": 0.5, "wait": 0.14}
WAITS = "#BBBBBB"
COLUMNS = 1200  # of a row; events that begin within one of them are one bar
ALONE = 8  # a bar of so many columns or more is one event's alone
POINTS = 380.0  # width of a row in print
FONT = 6.0
MARGIN = 9.0  # points beside a label in its bar, both sides together
SWATCHES = 4  # colours beside a name in the legend


@dataclass
class _Panel:
    """What is drawn of one source: its lanes from top to bottom, and its events, cut at start and end, in seconds."""

    lanes: list[str]
    events: list[Event]
    start: float
    end: float

    @property
    def seconds(self) -> float:
        return self.end - self.start


def timeline(
    source: Box | Iterable[Event] | Mapping[str, Iterable[Event]],
    title: str = "What the host, the devices and the links did, and when",
    start: float | None = None,
    end: float | None = None,
    lanes: Sequence[str] | None = None,
) -> Figure:
    """Draw a row for each lane, a bar for each event, and beside a device's row the part of time that it computed.

    source: a box, or events, also of ranks or measured ones; or several lists of events by the names of their panels,
    to compare how long they take: on one axis, each from its own start on. start, end: seconds on their clock; None:
    the first start and the last end of all events. The axis counts from `start`. lanes: the lanes to draw, from top to
    bottom; None: all. Light bars are forward, full ones backward, dark ones the optimizer; waits are thin. Bars that
    touch or lie within a pixel are drawn as one, which is as long as they are together, and begins where the first
    does.
    Raises ValueError where there is nothing to draw, and for a lane that does not exist.
    """
    sources = source if isinstance(source, Mapping) else {"": source}
    panels = {name: _panel(one, start, end, lanes) for name, one in sources.items()}
    if not panels:
        raise ValueError("no events to draw: there is no panel")
    height = 0.3 * sum(len(panel.lanes) for panel in panels.values()) + 0.5 * len(panels) + 0.85
    made, axes = figure(title, height=height, rows=len(panels))
    longest = max(panel.seconds for panel in panels.values())
    scale, unit = _unit(longest)
    fills: dict[str, dict[str, None]] = defaultdict(dict)  # for the legend: the colours of each style, in order
    for (name, panel), axis in zip(panels.items(), axes, strict=True):
        _draw(axis, panel, longest, scale, fills)
        axis.set_title(name, fontsize=9, color=INK, loc="left")
        label(axis, unit if axis is axes[-1] else "", "")
    legend = _legend(fills, [e for panel in panels.values() for e in panel.events])
    handles: list[Any] = [*legend.values()]  # matplotlib's stubs do not allow tuples here
    made.legend(
        handles, list(legend), fontsize=8, frameon=False, loc="outside lower center", ncols=7,
        handlelength=2.6, handler_map={tuple: HandlerTuple(None, pad=0.1)},
    )  # fmt: skip
    return made


def _panel(
    source: Box | Iterable[Event], start: float | None, end: float | None, lanes: Sequence[str] | None
) -> _Panel:
    events = events_of(source)
    known = {e.lane for e in events} | ({"cpu", *source.names} if isinstance(source, Box) else set())
    rows = sorted(known, key=lane_order) if lanes is None else list(lanes)
    if unknown := [lane for lane in rows if lane not in known]:
        raise ValueError(f"there is no lane {unknown[0]!r}: choose of {', '.join(sorted(known, key=lane_order))}")
    first, last = span(events)
    start, end = first if start is None else start, last if end is None else end
    shown = [
        e._replace(start=max(e.start, start), end=min(e.end, end))
        for e in events
        if e.start < end and e.end > start and e.seconds > 0 and e.lane in set(rows)
    ]
    if not shown:
        raise ValueError(
            f"nothing happened from {start:.6g} s to {end:.6g} s in {', '.join(rows)}: events are from {first:.6g} s "
            f"to {last:.6g} s"
        )
    return _Panel(rows, shown, start, end)


def _draw(axis: Axes, panel: _Panel, longest: float, scale: float, fills: dict[str, dict[str, None]]) -> None:
    """Draw a panel. longest: seconds of the axis. scale: its units in a second. fills: gets the colours used."""
    shown, start = panel.events, panel.start
    plain = not any(e.phase for e in shown)  # no training step, so there are no phases to distinguish
    for (lane, kind, phase), group in _groups(shown).items():
        y = panel.lanes.index(lane)
        bars = _packed(group, longest / COLUMNS)
        full = plain or (kind == "copy" and not phase)  # a message between ranks, which has no phase
        fill = WAITS if kind == "wait" else shade(lane_color(lane), 1.0 if full else STRENGTHS[phase])
        if kind != "wait" or max(width for _, width, _ in bars) > longest / COLUMNS:
            fills[kind if kind in ("wait", "copy") else phase][fill] = None
        height = HEIGHTS[kind]
        low, high = y - height / 2, y + height / 2
        axis.broken_barh(
            [(scale * (at - start), scale * width) for at, width, _ in bars],
            (low, height),
            facecolor=fill,
            edgecolor="white",
            hatch=HATCHES.get(kind, HATCHES.get(phase)),
            linewidth=0,
            gid=f"{lane}|{kind}|{phase}",
        )
        specks, joints = _specks(bars, longest / COLUMNS), [at for at, _, alone in bars if alone]
        axis.vlines([scale * (at - start) for at in specks], low, high, color=fill, linewidth=0.7)
        axis.vlines([scale * (at - start) for at in joints], low, high, color="white", linewidth=0.5)
        if kind != "wait":
            named = [(e, bar) for bar in bars if (e := bar[2])]
            _write_names(axis, named, start, start + longest, scale, y, fill)
    for y, lane in enumerate(panel.lanes):
        only_copies = {e.kind for e in shown if e.lane == lane} == {"copy"}
        if lane != "cpu" and ARROW not in lane and not only_copies:
            part = busy(shown, lane) / panel.seconds
            axis.text(
                1.01,
                y,
                f"{100 * part:.0f} % busy",
                fontsize=8,
                color=INK,
                va="center",
                transform=axis.get_yaxis_transform(),
            )
    axis.set_yticks(range(len(panel.lanes)), panel.lanes)
    axis.set_ylim(len(panel.lanes) - 0.4, -0.6)
    axis.set_xlim(0, scale * longest)
    axis.grid(axis="y", visible=False)
    axis.tick_params(axis="y", length=0)


Bar = tuple[float, float, Event | None]  # start, width, and the event if the bar is one event's alone


def _packed(events: list[Event], column: float) -> list[Bar]:
    """Join events of one style into bars.

    An event that touches the bar before, or begins within a column of its start, continues that bar. So nothing moves
    by more than a column, and no time is added or lost.
    """
    bars: list[Bar] = []
    reached = float("-inf")
    for e in sorted(events, key=lambda e: e.start):
        new = e.end - max(e.start, reached)
        if e.seconds >= ALONE * column and e.start >= reached:
            bars.append((e.start, new, e))
        elif bars and bars[-1][2] is None and (e.start <= reached or e.start < bars[-1][0] + column):
            at, width, _ = bars[-1]
            bars[-1] = (at, width + max(0.0, new), None)
        elif new > 0:
            bars.append((max(e.start, reached), new, None))
        reached = max(reached, e.end)
    return bars


def _specks(bars: list[Bar], column: float) -> list[float]:
    """Return places where a bar would not be seen: narrower than a column, and far from the next ones."""
    starts = [float("-inf"), *(at for at, *_ in bars), float("inf")]
    return [
        at
        for i, (at, width, _) in enumerate(bars, 1)
        if width < column and min(at - starts[i - 1], starts[i + 1] - at) > 4 * column
    ]


def _groups(events: list[Event]) -> dict[tuple[str, str, str], list[Event]]:
    """Group events by lane, kind and phase; those without a style count as computation and as no phase."""
    groups = defaultdict(list)
    for e in events:
        kind = e.kind if e.kind in HEIGHTS else "compute"
        groups[e.lane, kind, e.phase if e.phase in STRENGTHS else ""].append(e)
    return groups


def _write_names(
    axis: Axes, bars: list[tuple[Event, Bar]], start: float, end: float, scale: float, y: float, fill: str
) -> None:
    """Write the name of an operation, or the bytes of a copy, in each bar that has room for it."""
    for event, (at, width, _) in bars:
        name = event.name
        if event.kind == "copy" and event.nbytes:
            number, unit = size(event.nbytes).split()
            name = f"{float(number):.0f} {unit}" if float(number) >= 100 else f"{number} {unit}"
        if _printed(name) + MARGIN < POINTS * width / (end - start):
            box = {"facecolor": fill, "edgecolor": "none", "pad": 0.8} if event.kind == "copy" else None
            middle = scale * (at + width / 2 - start)
            axis.text(middle, y, name, fontsize=FONT, color=ink_on(fill), ha="center", va="center_baseline", bbox=box)


@functools.cache
def _printed(text: str) -> float:
    """Return the width of a bar's label in points."""
    return float(TextPath((0, 0), text, size=FONT).get_extents().width) if text else 0.0


def _unit(seconds: float) -> tuple[float, str]:
    if seconds < 1e-3:
        return 1e6, "microseconds"
    return (1e3, "milliseconds") if seconds < 2 else (1.0, "seconds")


def _legend(fills: Mapping[str, Iterable[str]], events: list[Event]) -> dict[str, tuple[Artist, ...]]:
    """Return names and what is drawn under them: a patch in each colour that occurs, or in the first few.

    fills: phase, "copy" or "wait" -> colours.
    """

    def patches(what: str, hatch: str | None) -> tuple[Artist, ...]:
        return tuple(Patch(facecolor=fill, edgecolor="white", hatch=hatch) for fill in [*fills[what]][:SWATCHES])

    phases = [phase for phase in STRENGTHS if phase in fills]
    entries: dict[str, tuple[Artist, ...]] = {}
    if phases != [""]:
        entries = {phase or OTHER: patches(phase, HATCHES.get(phase)) for phase in phases}
    if "copy" in fills:
        entries[_moved(events)] = patches("copy", HATCHES["copy"])
    if "wait" in fills:
        entries["waits"] = (Line2D([], [], color=WAITS, linewidth=2.5),)
    return entries


def _moved(events: list[Event]) -> str:
    """Return the name for moving data: copies between devices, communication between ranks."""
    lanes = {e.lane for e in events if e.kind == "copy"}
    return "copy" if all("gpu" in lane or "cpu" in lane for lane in lanes) else "communication"
