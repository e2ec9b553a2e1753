"""Three-way merges: what a learner and a new version of the course have each changed in the same text.

Not by `git merge-file`, for a learner's machine may lack git; nor by nbdime, which writes markers of conflicts into
cells, so that a lesson no longer runs. merge3, the package for this, is under a licence that the course's cannot hold.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import Any, NamedTuple

_PLACEHOLDER = re.compile(rb'[ \t]*raise NotImplementedError\(".*"\)\s*')


class Part(NamedTuple):
    """A stretch of three sequences: the same in all (`same`), or what each has between two that are."""

    same: bool
    base: Sequence[Any]
    ours: Sequence[Any]
    theirs: Sequence[Any]


def parts(base: Sequence[Any], ours: Sequence[Any], theirs: Sequence[Any]) -> Iterator[Part]:
    """Three sequences of hashable things cut into stretches, in order, such that all three are the parts in a row.

    Source: Khanna, Kunal & Pierce, A formal investigation of diff3 (2007), section 3.
    """
    b = o = t = 0
    for next_b, next_o, next_t, length in _shared(base, ours, theirs):
        if (b, o, t) != (next_b, next_o, next_t):
            yield Part(False, base[b:next_b], ours[o:next_o], theirs[t:next_t])
        b, o, t = next_b + length, next_o + length, next_t + length
        if length:
            yield Part(True, base[next_b:b], ours[next_o:o], theirs[next_t:t])


def _shared(base: Sequence, ours: Sequence, theirs: Sequence) -> Iterator[tuple[int, int, int, int]]:
    """Runs that all three have: where each begins, and their length; at last an empty one behind the ends."""
    to_ours = SequenceMatcher(None, base, ours, autojunk=False).get_matching_blocks()
    to_theirs = SequenceMatcher(None, base, theirs, autojunk=False).get_matching_blocks()
    i = j = 0
    while i < len(to_ours) and j < len(to_theirs):
        x, y = to_ours[i], to_theirs[j]
        start, end = max(x.a, y.a), min(x.a + x.size, y.a + y.size)
        if start < end:
            yield start, x.b + start - x.a, y.b + start - y.a, end - start
        if x.a + x.size < y.a + y.size:
            i += 1
        else:
            j += 1
    yield len(base), len(ours), len(theirs), 0


def merge_text(base: bytes, ours: bytes, theirs: bytes) -> tuple[bytes, bool]:
    """The lines of both, and whether they conflict: then it holds ours where both changed the same lines.

    base: what both began from. Where an exercise's `raise NotImplementedError` names its task in new words, that does
    not conflict with an answer that stands in its place.
    """
    base_lines, our_lines, their_lines = (text.splitlines(keepends=True) for text in (base, ours, theirs))
    _reword(base_lines, our_lines, their_lines)
    merged: list[bytes] = []
    conflict = False
    for part in parts(base_lines, our_lines, their_lines):
        lines = _both(*part[1:])
        conflict |= lines is None
        merged += part.ours if lines is None else lines
    written = Counter(our_lines) - Counter(base_lines)
    if written - Counter(merged):  # no merge is worth a line of an answer
        return ours, True
    return b"".join(merged), conflict


def _reword(base: list[bytes], ours: list[bytes], theirs: list[bytes]) -> None:
    """Give the places for answers in `base` and `ours` the words that they have in `theirs`, if they are as many."""
    old = [i for i, line in enumerate(base) if _PLACEHOLDER.fullmatch(line)]
    new = [line for line in theirs if _PLACEHOLDER.fullmatch(line)]
    if len(old) != len(new):
        return
    words = {base[i]: line for i, line in zip(old, new, strict=True)}
    for lines in (base, ours):
        lines[:] = [words.get(line, line) for line in lines]


def _both(base: Sequence, ours: Sequence, theirs: Sequence) -> Sequence | None:
    """A stretch with what both have changed in it; None where they changed the same."""
    base, ours, theirs = list(base), list(ours), list(theirs)
    if theirs == base or ours == theirs:
        return ours
    if ours == base:
        return theirs
    n = len(base)
    for one, other in ((theirs, ours), (ours, theirs)):  # `one` only adds before or behind what `other` changes
        if one[:n] == base:
            return other + one[n:] if n else theirs + ours
        if one[-n:] == base:
            return one[:-n] + other
    return None
