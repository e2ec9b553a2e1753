"""Python processes that start in a hundredth of a second: forked from one that has imported what they need."""

from mpcourse.course.forkserver.process import CALL
from mpcourse.course.forkserver.start import (
    ADDRESS,
    GROUP,
    LAUNCHED,
    Forks,
    ForkServer,
    Plain,
    Started,
    Starter,
    attach,
    offered,
    python,
)

__all__ = [
    "ADDRESS",
    "CALL",
    "GROUP",
    "LAUNCHED",
    "ForkServer",
    "Forks",
    "Plain",
    "Started",
    "Starter",
    "attach",
    "offered",
    "python",
]
