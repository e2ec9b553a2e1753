"""What holds a device's memory, and when it is fullest."""

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from mpcourse.plot.style import INK, KIND_COLORS, KIND_HATCHES, figure, label
from mpcourse.virtual import GPU, Box
from mpcourse.virtual.gpus.ledger import KINDS, Peak, size

COLUMNS = 900  # of a panel; for each of them the fullest moment is drawn
HATCHING = (1.0, 1.0, 1.0, 0.55)
SEEN = 0.002  # part of a panel's height from which on a kind can be seen, and is in the legend
NEAR = 0.6  # part of a device's memory from which on its end is drawn


@dataclass
class _Panel:
    """What one device held, and when.

    gpu: the one whose memory is compared. moments: seconds and bytes by kind, after each change. issued: when the host
    had issued each of its operations.
    """

    title: str
    box: Box
    device: int
    gpu: GPU
    moments: list[tuple[float, dict[str, int]]]
    issued: list[float]

    @property
    def capacity(self) -> int:
        return self.gpu.memory - self.gpu.context

    @property
    def most(self) -> int:
        return self.box.ledger.most[self.device]


def memory(
    box: Box | Mapping[str, Box],
    title: str = "What holds each device's memory",
    device: int | str | torch.device | None = None,
    over: str = "time",
    beside: bool = False,
    gpu: GPU | None = None,
) -> Figure:
    """Draw bytes by kind, stacked, with the peak and what made it; a panel for each device.

    The peak is labelled with its operation and line.
    box: one, or several by the names of their panels, to compare what they held: on one scale, each from its own first
    change on. device: the one to draw; None: all that ever held something. over: "time", on the host's clock from the
    first change on, or "operations", the number that the host had issued. beside: draw narrow panels side by side,
    whose peaks show bytes alone; otherwise one panel below the other. gpu: compare with the memory of this one, if the
    box's own are larger, so that they also run what does not fit. Where more happens than the panel has columns, a
    column shows its fullest moment. Raises ValueError where there is nothing to draw, RuntimeError for a device that
    the box lacks or where the box keeps no record.
    """
    if over not in ("time", "operations"):
        raise ValueError(f'over is "time" or "operations", not {over!r}')
    boxes = box if isinstance(box, Mapping) else {"": box}
    panels = [panel for name, one in boxes.items() for panel in _panels(one, device, name, gpu)]
    begins = [panel.moments[0][0] for panel in panels]
    firsts = begins if isinstance(box, Mapping) else [min(begins)] * len(panels)
    longest = max(panel.moments[-1][0] - first for panel, first in zip(panels, firsts, strict=True))
    scale, unit = _time_unit(longest) if over == "time" else (1.0, "operations issued by the host")

    most = max(panel.most for panel in panels)
    nbytes, byte_unit = next((n, u) for n, u in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"), (1, "B")) if most >= n)
    near = [panel.most > NEAR * panel.capacity for panel in panels]
    tops = [1.18 * max(p.capacity, p.most) for p, is_near in zip(panels, near, strict=True) if is_near]
    top = max(1.25 * most, *tops, 0.0)
    if beside:
        made, axes = figure(title, columns=len(panels), width=8.2, height=3.4)
    else:
        made, axes = figure(title, height=1.75 * len(panels) + 1.0, rows=len(panels))
    for axis, panel, first, is_near in zip(axes, panels, firsts, near, strict=True):

        def where_on_axis(seconds: float, panel: _Panel = panel, first: float = first) -> float:
            return scale * (seconds - first) if over == "time" else float(bisect_right(panel.issued, seconds))

        x = np.array([where_on_axis(seconds) for seconds, _ in panel.moments])
        held = np.array([[kinds.get(kind, 0) for kind in KINDS] for _, kinds in panel.moments])
        last = first + longest if over == "time" else panel.moments[-1][0]
        edges, heights = _columns(x, held, where_on_axis(first), where_on_axis(last), over == "operations")
        bottom = np.zeros(len(edges))
        for kind, height in zip(KINDS, heights.T / nbytes, strict=True):
            if height.any():
                axis.fill_between(
                    edges,
                    bottom,
                    bottom + height,
                    step="post",
                    facecolor=KIND_COLORS[kind],
                    edgecolor=HATCHING,
                    hatch=KIND_HATCHES[kind],
                    linewidth=0,
                    gid=kind,
                )
            bottom += height
        axis.set_xlim(edges[0], edges[-1])
        axis.set_ylim(0, top / nbytes)  # one scale, because panels are compared
        axis.set_title(panel.title, fontsize=9, color=INK, loc="left")
        if is_near:
            axis.axhline(panel.capacity / nbytes, color=INK, linewidth=1, linestyle="--")
            text = f"{size(panel.capacity)}: all that tensors can have" + (f" on a {gpu.name}" if gpu else "")
            axis.annotate(
                text, (0, panel.capacity / nbytes), (3, 3), xycoords=axis.get_yaxis_transform(),
                textcoords="offset points", fontsize=8, color=INK,
            )  # fmt: skip
        peak = panel.box.ledger.peak(panel.device)
        limit = panel.capacity if is_near else None
        from_start = peak.seconds <= panel.moments[0][0]
        _mark(axis, where_on_axis(peak.seconds), peak, nbytes, limit, from_start, beside)
        if not beside:
            label(axis, unit if axis is axes[-1] else "", byte_unit)
        else:
            label(axis, "", byte_unit if axis is axes[0] else "")
            axis.tick_params(axis="y", labelleft=axis is axes[0])
    if beside:  # one label below all panels, in the middle
        axes[(len(axes) - 1) // 2].set_xlabel(unit, x=0.5 if len(axes) % 2 else 1.05, fontsize=9, color=INK)
    held_by = [kinds for panel in panels for _, kinds in panel.moments]
    shown = {kind for kinds in held_by for kind, n in kinds.items() if n > SEEN * top}
    made.legend(
        handles=[
            Patch(facecolor=KIND_COLORS[kind], edgecolor=HATCHING, hatch=KIND_HATCHES[kind], label=kind)
            for kind in KINDS
            if kind in shown
        ],
        fontsize=8,
        frameon=False,
        loc="outside lower center",
        ncols=len(shown) if len(shown) < 6 else 4,
    )
    return made


def _panels(box: Box, device: int | str | torch.device | None, name: str, gpu: GPU | None) -> list[_Panel]:
    """Return what to draw of a box. Raises ValueError where there is nothing."""
    wanted = range(len(box.devices)) if device is None else [_index(box, device)]
    issued = sorted(e.end for e in box.events if e.lane == "cpu" and e.kind != "wait")
    panels = []
    for i in wanted:
        if moments := [(seconds, dict(kinds)) for seconds, kinds in box.ledger.history(i)]:
            title = box.names[i] if gpu else f"{box.names[i]}, {box.gpus[i].name}"
            panels.append(_Panel(name or title, box, i, gpu or box.gpus[i], moments, issued))
    if not panels:
        where = "any device of this box" if device is None else f"{box.names[wanted[0]]} of this box"
        raise ValueError(f"no memory to draw: nothing was ever on {where}, or nothing since its reset()")
    return panels


def _index(box: Box, device: int | str | torch.device) -> int:
    index = box.index_of(box.devices[device] if isinstance(device, int) and device < len(box.devices) else device)
    if index < 0:
        raise ValueError(f"the ledger covers the devices {', '.join(box.names)}, not the host's memory")
    return index


def _time_unit(seconds: float) -> tuple[float, str]:
    scale, name = (1e6, "microseconds") if seconds < 1e-3 else (1e3, "milliseconds") if seconds < 2 else (1, "seconds")
    return scale, f"{name} on the host's clock"


def _columns(x: np.ndarray, held: np.ndarray, first: float, last: float, whole: bool) -> tuple[np.ndarray, np.ndarray]:
    """Divide the axis from `first` to `last` into columns; return their left edges, and the most held in each.

    The last edge is there twice, with what was held last. x: of each change; held: bytes after it, (changes, kinds).
    whole: columns are whole numbers.
    """
    count = COLUMNS
    if whole and last - first < COLUMNS:
        count = max(1, int(last - first))
    width = (last - first) / count or 1.0
    edges = first + width * np.arange(count + 2)
    states = np.vstack([np.zeros_like(held[:1]), held])
    total = states.sum(axis=1)
    begins = np.searchsorted(x, edges[:-1])  # changes before each column
    heights = []
    for before, after in zip(begins, [*begins[1:], len(x)], strict=True):
        chosen = before + int(np.argmax(total[before : after + 1]))  # the state on entering counts, too
        heights.append(states[chosen])
    heights[-1] = states[-1]
    return edges, np.array([*heights, states[-1]])


def _mark(axis: Axes, x: float, peak: Peak, nbytes: int, limit: int | None, from_start: bool, narrow: bool) -> None:
    """Draw a dot at the peak, and write what made it where there is room; if `narrow`, write its bytes alone."""
    axis.plot([x], [peak.nbytes / nbytes], "o", color=INK, markersize=4, clip_on=False, zorder=5)
    doing = f"{peak.name} in {peak.phase}" if peak.phase else peak.name
    made = "from the start" if from_start else f"{doing}, {peak.asked}" if peak.asked else doing
    low, high = axis.get_xlim()
    side = ("left", "center", "right")[int(min(2, max(0, 2.5 * (x - low) / (high - low))))]
    tight = limit is not None and limit - peak.nbytes < 0.2 * limit  # no room for text below the line
    axis.annotate(
        f"peak {size(peak.nbytes)}" + ("" if narrow else f": {made}"),
        (x, peak.nbytes / nbytes),
        ({"left": 5, "center": 0, "right": -5}[side], -16 if tight else 5),
        textcoords="offset points",
        fontsize=8,
        color=INK,
        ha=side,
        bbox={"facecolor": "white", "alpha": 0.8, "edgecolor": "none", "pad": 1} if tight else None,
    )
