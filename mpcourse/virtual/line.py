"""A line of a program, and its text in messages."""

import functools
import os

Line = tuple[str, int]  # a file, and the number of a line in it


@functools.cache
def location(line: Line | None) -> str:
    """Write a line as `file.py:12`, or as `cell:12` for a notebook's cell, whose file has a random name."""
    if line is None:
        return ""
    file, number = line
    name = os.path.basename(file)
    return f"{'cell' if 'ipykernel' in file or name.startswith('<ipython') else name}:{number}"
