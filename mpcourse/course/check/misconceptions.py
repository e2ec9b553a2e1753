"""Misconceptions that verdicts have named: which verdicts name one, and which of them name the same."""

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # what judges is not needed to read what was kept
    from mpcourse.course.check.verdict import Verdict

# Their sentences are about a file, a machine or a process, and not about what somebody took for right.
NO_MISCONCEPTION = frozenset(
    ("passed", "not written yet", "not started", "fault of the checker", "out of time")
    + ("syntax error", "nothing to call", "vanished")
)


@dataclass
class Met:
    """A misconception that a learner has met in one exercise.

    kind, why, headline: as the last verdict had them that named it. met_at: when the first one did, ISO 8601.
    times: how many have. mended_at: when the exercise passed after the last of them; None while it has not.
    """

    kind: str
    why: str
    headline: str
    met_at: str
    times: int = 1
    mended_at: str | None = None


def names_one(verdict: "Verdict") -> bool:
    """Whether a verdict says what was misunderstood: it has a sentence on it, and did not end before that mattered."""
    return bool(verdict.why) and verdict.kind not in NO_MISCONCEPTION


def note(met: list[Met], verdict: "Verdict", now: str) -> None:
    """Enter a verdict on the exercise in which `met` were met. now: the moment, ISO 8601.

    An answer that passes has mended all of them. One that does not pass mends none, whatever it is told: a verdict
    names the first misconception that it comes to, and others may be in the answer still.
    """
    if verdict.passed:
        for each in met:
            each.mended_at = each.mended_at or now
    elif names_one(verdict):
        same = (each for each in met if is_same((each.kind, each.why), (verdict.kind, verdict.why)))
        if (known := next(same, None)) is None:
            met.append(Met(verdict.kind, verdict.why, verdict.headline, now))
        else:
            known.why, known.headline, known.mended_at = verdict.why, verdict.headline, None
            known.times += 1


def is_same(one: tuple[str, str], other: tuple[str, str]) -> bool:
    """Whether two pairs of a verdict's kind and its sentence are about the same misconception."""
    return one[0] == other[0] and without_values(one[1]) == without_values(other[1])


_RULES = (
    (r"(?<![\w)\]])[-+]?\d+(\.\d+)?(e[-+]?\d+)?|\d+(\.\d+)*|\b(nan|inf)\b", "#"),  # numbers
    (r"(#|\.\.\.)((, | and )(#|\.\.\.))+,?|[\[(]#,?[\])]", "#"),  # several, and what holds them
    (r"(?<=line #): `[^`]*`", ""),  # the learner's own code
    (r"(?<=# )(has|have|is|are|was|were|does|do)\b", "~"),  # after one rank, and after several
)


def without_values(why: str) -> str:
    """A verdict's sentence without what differs from one wrong answer to the next with the same misconception.

    Numbers, and lists and shapes of them, become `#`; words beside them lose what tells one from several.
    """
    text, before = why, ""
    while text != before:
        before = text
        for pattern, value in _RULES:
            text = re.sub(pattern, value, text)
    text = re.sub(r"((?<=ch)es|(?<=\w)s)(?= #)", "", text)
    return re.sub(r"(?<=# )([\w-]+?)((?<=ch)es|s)\b", r"\1", text)
