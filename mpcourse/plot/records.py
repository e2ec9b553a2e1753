"""What the figures of virtual hardware ask of records: which events, which lanes, in which order and colour."""

import re
from collections.abc import Iterable

from mpcourse.plot.style import GREY, color
from mpcourse.virtual import Box, Event

ARROW = " -> "


def events_of(source: Box | Iterable[Event]) -> list[Event]:
    """The events of a box, or the given ones. Raises ValueError where there are none."""
    if not isinstance(source, Box):
        if events := list(source):
            return events
        raise ValueError("no events to draw: the list is empty")
    if source.events:
        return source.events
    if not source.record:
        raise ValueError("no events to draw: this box keeps none; make it with virtual_gpus(..., record=True)")
    raise ValueError("no events to draw: nothing has run in this box, or nothing since its reset()")


def lane_order(lane: str) -> tuple:
    """For sorting: the host, then devices, then links; within each by name, and vgpu:2 before vgpu:10."""
    words = tuple((int(w), "") if w.isdigit() else (-1, w) for w in re.split(r"(\d+)", lane))
    return (ARROW in lane, lane.partition(ARROW)[0] != "cpu", words)


def lane_color(lane: str) -> str:
    """The colour of the device or rank whose number ends the name, of a link that of its source, else grey."""
    number = re.search(r"\d+$", lane.partition(ARROW)[0])
    return color(int(number[0])) if number else GREY
