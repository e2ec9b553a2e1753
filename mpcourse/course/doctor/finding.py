"""What the doctor says about one topic."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Status = Literal["ok", "note", "problem"]


@dataclass(frozen=True)
class Finding:
    """One row of the table.

    topic: a short name, one row each. value: what was found. status: "ok", "note" (the course runs, but know this) or
    "problem". advice: how to cure it, with the exact command; where all is well, what is good to know. fatal: the
    course cannot run.
    """

    topic: str
    value: str
    status: Status = "ok"
    advice: str = ""
    fatal: bool = False


def shown(path: str) -> str:
    """Return a path as a person would type it: relative to the clone, else to the home folder, where it can be."""
    for folder, prefix in ((Path(__file__).parents[3], ""), (Path.home(), "~/")):
        if Path(path).is_relative_to(folder):
            return prefix + str(Path(path).relative_to(folder))
    return path


def fatal(topic: str, value: str, advice: str) -> Finding:
    """Return a problem with which the course cannot run."""
    return Finding(topic, value, "problem", advice, fatal=True)


def guarded(topic: str, look: Callable[[], Finding]) -> Finding:
    """Return `look()`, or a finding that says why it failed: one broken topic must not hide the others."""
    try:
        return look()
    except Exception as error:
        lines = str(error).splitlines() or [""]
        why = f"{type(error).__name__}: {lines[-1]}" if lines[-1] else type(error).__name__
        advice = "the other lines still hold; report this one with the output of `mpcourse doctor --json`"
        return Finding(topic, f"could not be examined: {why}", "problem", advice)
