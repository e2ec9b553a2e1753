"""A Dockerfile read into its instructions, and a context's files by .dockerignore, as far as the course's own go."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

KNOWN = frozenset(["FROM", "ARG", "ENV", "WORKDIR", "COPY", "RUN", "USER", "EXPOSE", "ENTRYPOINT", "CMD"])
WILD = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*"}


class Instruction(NamedTuple):
    """name: in capitals. text: what follows it, in one line. line: its number in the file, from 1."""

    name: str
    text: str
    line: int

    def words(self) -> list[str]:
        """Of ENTRYPOINT and CMD, which must have the form of a JSON list: others would start a shell."""
        words = json.loads(self.text)
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            raise ValueError(f"line {self.line}: {self.name} is no list of words")
        return words


def parse(text: str) -> list[Instruction]:
    """Return the instructions, in order. Raises ValueError for an unknown one."""
    found, parts, began = [], [], 0
    for number, line in enumerate(text.splitlines(), start=1):
        if line.lstrip().startswith("#") or (not parts and not line.strip()):
            continue  # a comment also between the lines of an instruction
        began = began if parts else number
        parts.append(line.removesuffix("\\"))
        if line.endswith("\\"):
            continue
        name, _, rest = "".join(parts).strip().partition(" ")
        if name not in KNOWN:
            raise ValueError(f"line {began}: {name} is not known here")
        found.append(Instruction(name, rest.strip(), began))
        parts = []
    if parts:
        raise ValueError(f"line {began}: the last instruction goes on behind the end")
    return found


def expanded(text: str, variables: Mapping[str, str]) -> str:
    """`text` in which $NAME and ${NAME} are replaced; one that is not set is empty."""
    return re.sub(r"\$(?:\{(\w+)\}|(\w+))", lambda found: variables.get(found[1] or found[2], ""), text)


def context(root: Path, ignore: Iterable[str]) -> Iterator[str]:
    """Paths, from `root`, of the files that .dockerignore, whose lines are `ignore`, lets into an image.

    The last line that a file or a folder above it matches decides.
    """
    rules = []
    for line in ignore:
        if (line := line.strip()) and not line.startswith("#"):
            parts = re.split(r"(\*\*/|\*\*|\*)", line.removeprefix("!").rstrip("/"))
            pattern = "".join(WILD.get(part, re.escape(part)) for part in parts)
            rules.append((not line.startswith("!"), re.compile(f"{pattern}(?:/.*)?")))
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root).as_posix()
        verdicts = [excluded for excluded, pattern in rules if pattern.fullmatch(name)]
        if path.is_file() and not (verdicts and verdicts[-1]):
            yield name
