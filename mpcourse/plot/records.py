"""What the figures of virtual hardware need from records: which events and lanes, in which order and colour."""

import re
from collections.abc import Iterable

from mpcourse.plot.style import GREY, color
from mpcourse.virtual import Box, Event

ARROW = " -> "


def events_of(source: Box | Iterable[Event]) -> list[Event]:
    """Return the events of a box, or the given ones. Raises ValueError where there are none."""
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
    """Return a key for sorting: host, devices, links; within each by name, vgpu:2 before vgpu:10."""
    words = tuple((int(w), "") if w.isdigit() else (-1, w) for w in re.split(r"(\d+)", lane))
    return (ARROW in lane, lane.partition(ARROW)[0] != "cpu", words)


def lane_color(lane: str) -> str:
    """Return the colour of the device or rank whose number ends the name; a link has its source's; else grey."""
    number = re.search(r"\d+$", lane.partition(ARROW)[0])
    return color(int(number[0])) if number else GREY
