"""Which of a device's two limits bounds each kernel: the roofline model (Williams, Waterman, Patterson, 2009)."""

from collections import defaultdict
from collections.abc import Iterable

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from mpcourse.plot.records import events_of
from mpcourse.plot.style import INK, color, figure, label, shade
from mpcourse.plot.timeline import STRENGTHS
from mpcourse.virtual import Box, Event

ELEMENTWISE = 1 / 8  # FLOP/byte of a kernel whose FLOPs are not counted: one per float32 that it reads and writes
LOWEST = 1e-4  # part of the peak at which the axis begins
MARKS = {"forward": "o", "backward": "s", "optimizer": "D"}
LAYERS = {"backward": 3, "forward": 4, "optimizer": 5}  # larger marks are drawn first
NAMES = 2  # of kernels, beside marks that lie together


def roofline(source: Box | Iterable[Event], flops: float, bandwidth: float, title: str, lane: str = "vgpu:0") -> Figure:
    """Plot each kernel's rate against its arithmetic intensity, below the two roofs of the device.

    flops, bandwidth: what the device reaches, in FLOP/s and bytes/s. lane: the device. FLOPs of products and
    convolutions are counted; any other kernel is assumed to do one FLOP for each float32 that it reads and writes. An
    area is the share of the lane's time. Marks that lie together have the names of the kernels that take most of it.
    Raises ValueError where the lane has no kernels.
    """
    kernels = [e for e in events_of(source) if e.lane == lane and e.kind == "compute" and e.nbytes and e.seconds > 0]
    if not kernels:
        raise ValueError(f"no kernel ran on {lane}")
    made, (axis,) = figure(title)
    total = sum(e.seconds for e in kernels)
    intensity = [e.flops / e.nbytes or ELEMENTWISE for e in kernels]
    ridge = flops / bandwidth
    x = np.geomspace(min(0.05, *intensity), max(10 * ridge, *intensity) * 2, 200)
    axis.loglog(x, np.minimum(flops, x * bandwidth) / 1e12, color=INK, linewidth=1.5)
    axis.axvline(ridge, color=INK, linewidth=0.7, linestyle=":")
    for phase, mark in MARKS.items():
        of = [(i, e) for i, e in zip(intensity, kernels, strict=True) if e.phase == phase]
        if of:
            axis.scatter(
                [i for i, _ in of],
                [i * e.nbytes / e.seconds / 1e12 for i, e in of],
                [20 + 900 * e.seconds / total for _, e in of],
                facecolor=(*to_rgb(shade(color(0), STRENGTHS[phase])), 0.6), edgecolor=INK, linewidth=0.6, marker=mark,
                label=phase, zorder=LAYERS[phase],  # see-through, so that a mark below another is seen
            )  # fmt: skip
    axis.set_ylim(flops * LOWEST / 1e12, 6 * flops / 1e12)  # what is lower takes too little time to be seen
    _write_names(axis, zip(intensity, kernels, strict=True), ridge)
    for side, text in ((-1, "memory-bound"), (1, "compute-bound")):
        axis.annotate(
            text, (ridge, 3 * flops / 1e12), (6 * side, 0), textcoords="offset points", fontsize=9, color=INK,
            ha="right" if side < 0 else "left", va="center",
        )  # fmt: skip
    label(axis, "arithmetic intensity (FLOP a byte)", "TFLOP/s")
    handles = [
        Line2D([], [], marker=mark, linestyle="", color=shade(color(0), STRENGTHS[phase]), label=phase)
        for phase, mark in MARKS.items()
    ]
    axis.legend(handles=handles, fontsize=8, frameon=False, loc="lower right")
    return made


def _write_names(axis: Axes, kernels: Iterable[tuple[float, Event]], ridge: float) -> None:
    """Name marks that lie together, within a factor of about three. kernels: intensity and event."""
    together: dict[tuple[int, int], list[tuple[float, float, Event]]] = defaultdict(list)
    for intensity, e in kernels:
        rate = intensity * e.nbytes / e.seconds / 1e12
        if rate > axis.get_ylim()[0]:
            together[round(2 * np.log10(intensity)), round(np.log10(rate))].append((intensity, rate, e))
    for marks in together.values():
        seconds: dict[str, float] = defaultdict(float)
        for *_, e in marks:
            seconds[e.name] += e.seconds
        names = sorted(seconds, key=lambda name: -seconds[name])
        text = ", ".join(names[:NAMES])
        intensity, rate, _ = max(marks, key=lambda mark: mark[2].seconds)
        memory = intensity < ridge  # there is room to the right of marks on the slope, and below the roof
        axis.annotate(
            text, (intensity, rate), (9, 0) if memory else (0, -18), textcoords="offset points", fontsize=7, color=INK,
            ha="left" if memory else "center", va="center",
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5},  # where the ridge's line crosses it
        )  # fmt: skip
