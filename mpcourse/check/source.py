"""The text of a learner's file: read as Python reads it, and named as the learner knows it."""

import ast
import importlib.util
import os
from pathlib import Path


def read_source(file: Path) -> str:
    """The text of `file`, decoded as `python FILE` does: by its coding line, else as UTF-8.

    Raises SyntaxError where Python refuses it, and OSError where it cannot be read. `compile` is no judge of that: of
    bytes it lets invalid ones pass that stand in a comment.
    """
    data = file.read_bytes()
    try:
        return importlib.util.decode_source(data)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise SyntaxError(f"bytes that are not {error.encoding.upper()}", (str(file), line, None, None)) from None


def source_lines(file: Path) -> list[str]:
    """The lines of `file` for showing, whatever is in it."""
    try:
        return read_source(file).splitlines()
    except SyntaxError:
        return file.read_text(encoding="utf-8", errors="replace").splitlines()


def shown_path(file: Path) -> str:
    """The path of `file`: from the current folder if it lies in or beside it, else in full."""
    relative = os.path.relpath(file)
    return relative if relative.count(os.pardir + os.sep) <= 1 else str(file)


def raises_not_implemented(file: Path, line: int | None, stub: str) -> tuple[str, bool] | None:
    """The function in which `line` is a `raise NotImplementedError`, and whether it holds code that `stub` has not.

    stub: the exercise's text before anyone wrote in it. None where that line is something else: then a library raised
    the exception.
    """
    tree = ast.parse(read_source(file))
    raises = [n for n in ast.walk(tree) if isinstance(n, ast.Raise) and line in range(n.lineno, _end(n) + 1)]
    if not raises or "NotImplementedError" not in ast.unparse(raises[0]):
        return None
    around = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.lineno <= raises[0].lineno <= _end(n)]
    if not around:
        return "the file", False
    function = around[-1]  # ast.walk goes from the outside in
    given = {ast.dump(n) for n in ast.walk(ast.parse(stub)) if isinstance(n, ast.stmt)}
    other = [n for n in function.body if n is not raises[0] and not _is_text(n) and ast.dump(n) not in given]
    return function.name, bool(other)


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)  # a docstring, or `...`


def _end(node: ast.stmt) -> int:
    return node.end_lineno or node.lineno
