"""Figures of the course, drawn from plain records. Nothing else in mpcourse knows matplotlib's plotting."""

from mpcourse.plot.curves import learning_curves
from mpcourse.plot.images import contact_sheet
from mpcourse.plot.messages import message_cost
from mpcourse.plot.steps import memory_bill, step_cost, throughput
from mpcourse.plot.style import COLORS, color

__all__ = [
    "COLORS",
    "color",
    "contact_sheet",
    "learning_curves",
    "memory_bill",
    "message_cost",
    "step_cost",
    "throughput",
]
