"""Figures of the course, drawn from plain records. Only this room of mpcourse uses matplotlib's plotting."""

from mpcourse.plot.accuracy import accuracy_against
from mpcourse.plot.attention import attention
from mpcourse.plot.chunks import chunks
from mpcourse.plot.collectives import collectives, marked
from mpcourse.plot.column_row import column_row
from mpcourse.plot.copies import copies
from mpcourse.plot.counts import counts
from mpcourse.plot.curves import each_run, learning_curves
from mpcourse.plot.dots import dots
from mpcourse.plot.groups import groups
from mpcourse.plot.images import contact_sheet
from mpcourse.plot.lines import label_bytes, lines
from mpcourse.plot.matrix import matrix
from mpcourse.plot.memory import memory
from mpcourse.plot.messages import message_cost, split_message
from mpcourse.plot.panels import panels, side_by_side
from mpcourse.plot.parts import parts
from mpcourse.plot.placing import place_schedule
from mpcourse.plot.points import points
from mpcourse.plot.pushes import pushes
from mpcourse.plot.reference import against_reference
from mpcourse.plot.roofline import roofline
from mpcourse.plot.schedule import schedule
from mpcourse.plot.sliders import sliders
from mpcourse.plot.steps import memory_breakdown, step_cost, throughput
from mpcourse.plot.style import COLORS, color
from mpcourse.plot.tensor_layer import tensor_layer
from mpcourse.plot.timeline import timeline
from mpcourse.plot.trace import read_trace
from mpcourse.plot.tradeoff import tradeoff
from mpcourse.plot.traffic import sent, traffic
from mpcourse.plot.unet import unet
from mpcourse.plot.waits import deadlock

__all__ = [
    "COLORS",
    "accuracy_against",
    "against_reference",
    "attention",
    "chunks",
    "collectives",
    "color",
    "column_row",
    "contact_sheet",
    "copies",
    "counts",
    "deadlock",
    "dots",
    "each_run",
    "groups",
    "label_bytes",
    "learning_curves",
    "lines",
    "marked",
    "matrix",
    "memory",
    "memory_breakdown",
    "message_cost",
    "panels",
    "parts",
    "place_schedule",
    "points",
    "pushes",
    "read_trace",
    "roofline",
    "schedule",
    "sent",
    "side_by_side",
    "sliders",
    "split_message",
    "step_cost",
    "tensor_layer",
    "throughput",
    "timeline",
    "tradeoff",
    "traffic",
    "unet",
]
