"""Numbers and lists in the sentences that people read."""

from collections.abc import Sequence
from typing import Any


def counted(number: int | str, noun: str) -> str:
    """Write a number with its noun: `1 rank`, `2 ranks`, `2 copies`, `2 micro-batches`, `1 or 2 stages`.

    number: how many; as text, if there are several answers.
    noun: in the singular.
    """
    return f"{number} {noun if str(number) == '1' else _plural(noun)}"


def named(names: Sequence[Any], noun: str = "rank") -> str:
    """List names after their noun: `rank 1`, `ranks 1 and 2`, `ranks 1, 2 and 3`.

    names: one or more.
    noun: in the singular.
    """
    if len(names) == 1:
        return f"{noun} {names[0]}"
    return f"{_plural(noun)} {', '.join(map(str, names[:-1]))} and {names[-1]}"


def _plural(noun: str) -> str:
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return f"{noun[:-1]}ies"
    return f"{noun}es" if noun.endswith("ch") else f"{noun}s"
