"""What a message between two ranks costs."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from mpcourse.plot.style import INK, color, figure, label


def message_cost(sizes: Sequence[int], seconds: Sequence[float], title: str) -> Figure:
    """Plot the time of one message against its size, with the line alpha + beta n of least squared relative errors.

    sizes: bytes. seconds: of one message of that size, one way.
    """
    made, (axis,) = figure(title)
    size, time = np.array(sizes, float), np.array(seconds, float)
    alpha, beta = np.linalg.lstsq(np.stack([1 / time, size / time], axis=1), np.ones(len(size)), rcond=None)[0]
    axis.loglog(size, 1e6 * time, "o", color=color(0), markersize=5, label="measured")
    x = np.geomspace(size[0], size[-1], 200)
    axis.loglog(x, 1e6 * (alpha + beta * x), "--", color=color(1), linewidth=1.5, label="alpha + beta n")
    axis.axhline(1e6 * alpha, color=INK, linewidth=0.7, linestyle=":")
    for text, point, shift, side in (
        (f"latency alpha = {1e6 * alpha:.2g} µs", (size[-1], 1e6 * alpha), (0, 4), "right"),  # no point is near there
        (
            f"beta = {1e9 * beta:.2g} ns a byte: bandwidth 1 / beta = {1e-9 / beta:.2g} GB/s",
            (size[-1], 1e6 * (alpha + beta * size[-1])),
            (-12, -3),
            "right",
        ),
    ):
        axis.annotate(text, point, shift, textcoords="offset points", fontsize=8, ha=side)
    label(axis, "message size n (bytes)", "one way (µs)")
    axis.legend(fontsize=8, frameon=False, loc="upper left", bbox_to_anchor=(0, 0.9))
    return made


def split_message(nbytes: int, latency: float, bandwidth: float, title: str, most: int = 4**9) -> Figure:
    """Plot the time of `nbytes` bytes sent in 1, 2, 4, ... equal messages: latencies, bytes, and their sum.

    latency: seconds per message. bandwidth: bytes/s. most: messages. Where the first two are equal, a mark shows the
    number of messages.
    """
    made, (axis,) = figure(title)
    counts = 2 ** np.arange(int(np.log2(most)) + 1)
    latencies, bytes_ = latency * counts, np.full(len(counts), nbytes / bandwidth)
    axis.loglog(counts, 1e3 * (latencies + bytes_), color=color(0), linewidth=2.5, label="together")
    axis.loglog(counts, 1e3 * latencies, "--", color=color(1), linewidth=1.5, label="latency of all messages")
    axis.loglog(counts, 1e3 * bytes_, ":", color=INK, linewidth=1.5, label="bytes / bandwidth")
    equal = nbytes / bandwidth / latency
    if 1 <= equal <= most:
        axis.plot(equal, 2e3 * nbytes / bandwidth, "o", color=INK, markersize=5)
        text = f"half of the time is latency:\n{equal:,.0f} messages of {nbytes / equal / 1e3:,.1f} kB"
        axis.annotate(
            text, (equal, 2e3 * nbytes / bandwidth), (0, 8), textcoords="offset points", fontsize=8,
            ha="right" if equal > 100 else "left", va="bottom",
        )  # fmt: skip
    axis.set_ylim(1e-2, 1e5)
    axis.set_xlim(1, most)
    label(axis, "number of messages", "time (ms)")
    axis.legend(fontsize=8, frameon=False, loc="upper left")
    return made
