"""Which cells of a lesson another one needs: those that give it the names that it reads, and the files."""

import ast
import builtins
import re
from collections.abc import Sequence

from IPython.core.inputtransformer2 import TransformerManager

APART = (ast.FunctionDef, ast.ClassDef, ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
FILE = re.compile(r"scratch/[\w.]+")  # that lessons write for cells below, here taken for a name


def needed(sources: Sequence[str], wanted: Sequence[int]) -> list[int]:
    """The places of the cells that must run for those at `wanted` to run, and of these: of a name, the cell that last
    gave it; of a file, all cells above that speak of it. The first cell, which sets up the lesson, is always one."""
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
    """The names that a cell reads and has not given itself, and those that it gives."""
    reads: set[str] = set()
    gives: set[str] = set()
    for statement in ast.parse(TransformerManager().transform_cell(source)).body:
        read, given = _of_statement(statement)
        reads |= read - gives
        gives |= given
    return reads - set(dir(builtins)), gives | {name for name in reads if FILE.match(name)}


def _of_statement(statement: ast.stmt) -> tuple[set[str], set[str]]:
    reads: set[str] = set()
    gives: set[str] = set()

    def look(node: ast.AST, outside: bool) -> None:
        match node:
            case ast.Name(id=name, ctx=ast.Load()):
                reads.add(name)
            case ast.Name(id=name) | ast.FunctionDef(name=name) | ast.ClassDef(name=name) if outside:
                gives.add(name)
            case ast.alias(name=name, asname=other) if outside:
                gives.add(other or name.partition(".")[0])
            case ast.Constant(value=str(text)):
                reads.update(FILE.findall(text))
        for child in ast.iter_child_nodes(node):
            look(child, outside and not isinstance(node, APART))

    look(statement, True)
    return reads, gives
