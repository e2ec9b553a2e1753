"""The tables of memory in docs/virtual_gpus.md: `python -m tests.validation memory --page docs/virtual_gpus.md`."""

import multiprocessing
import re
import sys
import warnings
from collections.abc import Iterable
from pathlib import Path

from mpcourse.common.provenance import versions
from tests.validation import anatomy
from tests.validation.memory import KINDS, both
from tests.validation.memory_models import MODELS

BEGIN, END = "<!-- memory: made by tests/validation/memory_table.py -->", "<!-- end of memory -->"
ANATOMY = "<!-- anatomy: made by tests/validation/memory_table.py -->", "<!-- end of anatomy -->"
MiB = 2**20


def count(number: int) -> str:
    """Make and print the line of a model, by its number in MODELS."""
    warnings.simplefilter("ignore")
    line = row(MODELS[number].head, [both(MODELS[number], kind) for kind in KINDS])
    print(line, file=sys.stderr, flush=True)
    return line


def row(name: str, counts: list[tuple[int, int]]) -> str:
    """Return a model's line: for each kind of run the independent count in MiB, and how far virtual GPUs are off."""
    return f"| {name} | " + " | ".join(f"{theirs / MiB:.2f} ({off(ours, theirs)})" for ours, theirs in counts) + " |"


def off(ours: int, theirs: int) -> str:
    """Write a deviation as `+0.01 %`, or as `0` where it rounds to nothing."""
    text = f"{100 * (ours / theirs - 1):+.2f} %"
    return "0" if text[1:] == "0.00 %" else text


def with_table(text: str, rows: list[str]) -> str:
    """Put the table of models between the text's markers. Raises ValueError unless each marker is there once."""
    used = ", ".join(
        f"{name} {version}"
        for name, version in versions("torch", "transformers", "diffusers", "timm", "torchvision").items()
    )
    head = ["| model | " + " | ".join(KINDS) + " |", "|---" * (len(KINDS) + 1) + "|"]
    return between(text, BEGIN, END, [*head, *rows, "", f"MiB. {used}."])


def between(text: str, begin: str, end: str, lines: Iterable[str]) -> str:
    """Put these lines between two markers of the text. Raises ValueError unless each marker is there once."""
    table = "\n".join([begin, *lines, end])
    made, count = re.subn(f"{re.escape(begin)}.*?{re.escape(end)}", lambda _: table, text, flags=re.DOTALL)
    if count != 1:
        raise ValueError(f"the text must hold {begin} and {end} once")
    return made


def write(page: Path) -> None:
    """Write both tables between their markers in a page. Two processes count a model each at a time."""
    text = between(page.read_text(), *ANATOMY, anatomy.table())
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        rows = pool.map(count, range(len(MODELS)), chunksize=1)
    page.write_text(with_table(text, rows))
