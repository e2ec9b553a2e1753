"""Three-way merges of notebooks, cell by cell."""

import json
from collections.abc import Sequence
from typing import Any

from mpcourse.course.learner.merge import parts

Cell = dict[str, Any]
Key = tuple[str, ...]


def merge_books(base: bytes, ours: bytes, theirs: bytes) -> tuple[bytes, bool]:
    """The new lesson with the cells that a learner has added or changed, and whether they conflict.

    base, ours, theirs: what the learner began from, has now, and the new lesson, as .ipynb files. A cell that the
    learner has changed is known by its id. It conflicts where the new lesson has changed it, too: then the new one
    stands there alone. Of a cell that only the learner has run, the learner's outputs stay.
    Raises ValueError for what is no notebook.
    """
    books = [_read(text) for text in (base, ours, theirs)]
    base_cells, our_cells, their_cells = (book["cells"] for book in books)
    keys = ([_key(cell) for cell in base_cells], _known(base_cells, our_cells), [_key(cell) for cell in their_cells])
    cells: list[Cell] = []
    taken = [0, 0, 0]

    def take(which: int, count: int) -> list[Cell]:
        """The next cells of one of the three."""
        start = taken[which]
        taken[which] += count
        return (base_cells, our_cells, their_cells)[which][start : taken[which]]

    for part in parts(*keys):
        old, mine, new = take(0, len(part.base)), take(1, len(part.ours)), take(2, len(part.theirs))
        if part.same:
            cells += [_own(b, o, t) for b, o, t in zip(old, mine, new, strict=True)]
        else:
            cells += _changed(old, mine, new, part.ours)
    written = {_key(cell) for cell in our_cells} - {_key(cell) for cell in base_cells}
    book = books[2] | {"cells": _with_ids(cells), "metadata": _metadata(*(b["metadata"] for b in books))}
    text = json.dumps(book, indent=1, ensure_ascii=False, sort_keys=True) + "\n"
    return text.encode(), bool(written - {_key(cell) for cell in cells})


def _read(text: bytes) -> dict[str, Any]:
    book = json.loads(text)
    if not isinstance(book, dict) or book.get("nbformat") != 4 or not isinstance(book.get("cells"), list):
        raise ValueError("no notebook of format 4")
    for cell in book["cells"]:
        if not isinstance(cell, dict) or not isinstance(_joined(cell.get("source")), str):
            raise ValueError("a cell without a source")
        if not isinstance(cell.get("id", ""), str) or not isinstance(cell.get("cell_type"), str):
            raise ValueError("a cell of no kind")
    return book | {"metadata": dict(book.get("metadata") or {})}


def _known(base: list[Cell], ours: list[Cell]) -> list[Key]:
    """Keys of the learner's cells. One that was changed goes by what it was; of a copy with the same id, the first."""
    by_id = {cell["id"]: _key(cell) for cell in reversed(base) if "id" in cell}
    return [by_id.pop(cell.get("id", ""), _key(cell)) for cell in ours]


def _key(cell: Cell) -> Key:
    """What a person has written in it: kind, text, and pictures that were pasted."""
    return cell["cell_type"], _joined(cell["source"]), json.dumps(cell.get("attachments") or {}, sort_keys=True)


def _joined(text: Any) -> Any:
    return "".join(text) if isinstance(text, list) and all(isinstance(line, str) for line in text) else text


def _plain(value: Any) -> Any:
    """With texts in one piece, as files may have them in lines; without a cell's id and number of execution."""
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items() if k not in ("id", "execution_count")}
    return [_plain(v) for v in value] if isinstance(joined := _joined(value), list) else joined


def _own(base: Cell, ours: Cell, theirs: Cell) -> Cell:
    """Of a cell that the new lesson has as it was."""
    return theirs if _plain(ours) == _plain(base) else ours


def _changed(old: list[Cell], mine: list[Cell], new: list[Cell], known_as: Sequence[Key]) -> list[Cell]:
    """Of a stretch in which the cells are not the same in all three. known_as: keys of `mine`."""
    olds, news = [_key(cell) for cell in old], [_key(cell) for cell in new]
    if news == olds:
        return mine
    if [_key(cell) for cell in mine] == olds:
        return new
    pairs = list(zip(mine, known_as, strict=True))
    first = next((i for i, (_, key) in enumerate(pairs) if key in olds), 0)

    def added(some: list[tuple[Cell, Key]]) -> list[Cell]:
        return [cell for cell, key in some if key not in olds and _key(cell) not in news]

    return added(pairs[:first]) + new + added(pairs[first:])


def _metadata(base: dict, ours: dict, theirs: dict) -> dict:
    """A notebook's own: what the learner has set stays, such as another kernel."""
    return theirs | {name: value for name, value in ours.items() if value != base.get(name)}


def _with_ids(cells: list[Cell]) -> list[Cell]:
    """Cells whose ids differ."""
    seen: set[str] = set()
    result = []
    for cell in cells:
        if "id" in cell:
            name, number = cell["id"], 1
            while name in seen:
                number += 1
                name = f"{cell['id'][:56]}-{number}"
            seen.add(name)
            cell = cell | {"id": name}
        result.append(cell)
    return result
