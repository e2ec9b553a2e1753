"""Answers of different students that are more alike than the task explains.

Fingerprints as in Schleimer, Wilkerson & Aiken, Winnowing (SIGMOD 2003): hashes of runs of TOKENS tokens; each window
of WINDOW hashes keeps the smallest. Names that the answer itself gives, docstrings and comments do not count.
"""

import ast
import io
import tokenize
import zlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

TOKENS, WINDOW = 8, 4
THRESHOLD = 0.8  # of the fingerprints of both that both have
LEAST = (
    10  # fingerprints that an answer must have beyond the stub's and the solution's: shorter ones are alike by chance
)
COMMON = 0.5  # of the class: what more students have than this is the task's, not theirs


@dataclass(frozen=True)
class Pair:
    """Two students whose answers to `exercise` share `share` (0 to 1) of the fingerprints that either has."""

    exercise: str
    students: tuple[str, str]
    share: float


@dataclass(frozen=True)
class Copy:
    """A student whose answer to `exercise` shares `share` (0 to 1) of its fingerprints with the course's solution."""

    exercise: str
    student: str
    share: float


def copies(
    exercise: str, answers: Sequence[tuple[str, str]], stub: str, solution: str, threshold: float = THRESHOLD
) -> list[Copy]:
    """Return the students whose answers share at least `threshold` of their fingerprints with the solution.

    answers: student and text. What is in the stub does not count. None where the solution is too short to tell a copy
    from an answer of one's own.
    """
    given = fingerprints(stub)
    ours = fingerprints(solution) - given
    if len(ours) < LEAST:
        return []
    marks = {student: fingerprints(text) - given for student, text in answers}
    shares = [(student, len(theirs & ours) / len(theirs | ours)) for student, theirs in marks.items()]
    return [Copy(exercise, student, share) for student, share in shares if share >= threshold]


def similar(
    exercise: str, answers: Sequence[tuple[str, str]], known: Iterable[str], threshold: float = THRESHOLD
) -> list[Pair]:
    """Return the pairs of students whose answers share at least `threshold` of their fingerprints, most alike first.

    answers: student and text. known: texts that everybody may have used: the stub, the solution. What is in them does
    not count, and neither does, in classes of at least six, what more than half of the class has written.
    """
    base = {mark for text in known for mark in fingerprints(text)}
    marks = {student: fingerprints(text) - base for student, text in answers}
    if len(marks) >= 6:
        counts = Counter(mark for each in marks.values() for mark in each)
        common = {mark for mark, count in counts.items() if count > COMMON * len(marks)}
        marks = {student: each - common for student, each in marks.items()}
    pairs = []
    for (a, of_a), (b, of_b) in combinations(sorted(marks.items()), 2):
        if min(len(of_a), len(of_b)) >= LEAST and (share := len(of_a & of_b) / len(of_a | of_b)) >= threshold:
            pairs.append(Pair(exercise, (a, b), share))
    return sorted(pairs, key=lambda pair: -pair.share)


def fingerprints(text: str) -> set[int]:
    """Return the fingerprints of Python code; none for a text that is not Python."""
    words = tokens(text)
    hashes = [zlib.crc32("\0".join(words[i : i + TOKENS]).encode()) for i in range(len(words) - TOKENS + 1)]
    return {min(hashes[i : i + WINDOW]) for i in range(max(1, len(hashes) - WINDOW + 1)) if hashes}


def tokens(text: str) -> list[str]:
    """Return code's tokens, as Python's own printer writes it, with `_` for each name that the code itself gives."""
    try:
        tree = ast.parse(text)
        given = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
        given |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node) is not None:
                node.body = node.body[1:] or [ast.Pass()]
        lines = io.StringIO(ast.unparse(ast.fix_missing_locations(tree))).readline
        return [
            "_" if token.string in given else token.string
            for token in tokenize.generate_tokens(lines)
            if token.string.strip()
        ]
    except (SyntaxError, ValueError, RecursionError, MemoryError, tokenize.TokenError):
        return []
