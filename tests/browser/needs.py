"""Which cells of a lesson another one needs: those that give it the names that it reads, and the files."""

import ast
import builtins
import re
import symtable
from collections.abc import Sequence

from IPython.core.inputtransformer2 import TransformerManager

FILE = re.compile(r"scratch/[\w.]+")  # that lessons write for cells below, here taken for a name


def needed(sources: Sequence[str], wanted: Sequence[int]) -> list[int]:
    """Return the places of the cells that must run for those at `wanted` to run, and of these.

    A name needs the cell that last set it, and a file all cells above that mention it. The first cell, which sets up
    the lesson, is always needed.
    """
    cells = [_names(source) for source in sources]
    found = {0, *wanted}
    asked = list(found)
    while asked:
        at = asked.pop()
        for name in cells[at][0]:
            gives = [i for i in range(max(wanted)) if name in cells[i][1]]
            above = [i for i in gives if i < at]
            # What only cells below give, a function reads when these have run.
            more = {*(above if FILE.match(name) else above[-1:] or gives[:1])} - found
            found |= more
            asked += more
    return sorted(found)


def _names(source: str) -> tuple[set[str], set[str]]:
    """Return the names that a cell reads and has not set itself, and those that it sets."""
    reads: set[str] = set()
    gives: set[str] = set()
    for statement in ast.parse(TransformerManager().transform_cell(source)).body:
        read, given = _of_statement(statement)
        reads |= read - gives
        gives |= given
    return reads - set(dir(builtins)), gives | {name for name in reads if FILE.match(name)}


def _of_statement(statement: ast.stmt) -> tuple[set[str], set[str]]:
    """As Python's compiler tells names apart: those that a function or a comprehension gives itself are its own."""
    table = symtable.symtable(ast.unparse(statement), "cell", "exec")
    gives = {symbol.get_name() for symbol in table.get_symbols() if symbol.is_assigned() or symbol.is_imported()}
    reads = {symbol.get_name() for symbol in table.get_symbols() if symbol.is_referenced()}
    inner = table.get_children()
    while inner:
        scope = inner.pop()
        inner += scope.get_children()
        reads |= {s.get_name() for s in scope.get_symbols() if s.is_referenced() and s.is_global()}
    for node in ast.walk(statement):
        match node:
            case ast.AugAssign(target=ast.Name(id=name)):
                reads.add(name)
            case ast.Constant(value=str(text)):
                reads.update(FILE.findall(text))
    return reads, gives
