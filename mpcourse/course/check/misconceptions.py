"""Misconceptions that verdicts have named: which verdicts name one, and which of them name the same."""

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # what judges is not needed to read what was kept
    from mpcourse.course.check.verdict import Verdict

# Their sentences are about a file, a machine or a process, and not about a misconception.
NO_MISCONCEPTION = frozenset(
    (
        "passed",
        "not written yet",
        "not started",
        "fault of the checker",
        "out of time",
        "syntax error",
        "nothing to call",
        "vanished",
    )
)


def names_one(verdict: "Verdict") -> bool:
    """Return whether a verdict names a misconception: it has a sentence, and did not end before that mattered."""
    return bool(verdict.why) and verdict.kind not in NO_MISCONCEPTION


def is_same(one: tuple[str, str], other: tuple[str, str]) -> bool:
    """Return whether two pairs of a verdict's kind and its sentence are about the same misconception."""
    return one[0] == other[0] and without_values(one[1]) == without_values(other[1])


_RULES = (
    (r"(?<![\w)\]])[-+]?\d+(\.\d+)?(e[-+]?\d+)?|\d+(\.\d+)*|\b(nan|inf)\b", "#"),  # numbers
    (r"(#|\.\.\.)((, | and )(#|\.\.\.))+,?|[\[(]#,?[\])]", "#"),  # several, and what holds them
    (r"(?<=line #): `[^`]*`", ""),  # the learner's own code
    (r"(?<=# )(has|have|is|are|was|were|does|do)\b", "~"),  # after one rank, and after several
)


def without_values(why: str) -> str:
    """Remove from a verdict's sentence what differs between wrong answers with the same misconception.

    Numbers, and lists and shapes of them, become `#`; words beside them lose what tells one from several.
    """
    text, before = why, ""
    while text != before:
        before = text
        for pattern, value in _RULES:
            text = re.sub(pattern, value, text)
    text = re.sub(r"((?<=ch)es|(?<=\w)s)(?= #)", "", text)
    return re.sub(r"(?<=# )([\w-]+?)((?<=ch)es|s)\b", r"\1", text)
