"""Whether a learner has begun to write a function."""

import ast
from pathlib import Path

from mpcourse.common.source import read_source


def raises_not_implemented(file: Path, line: int | None, stub: str) -> tuple[str, bool] | None:
    """Find the function in which `line` raises NotImplementedError, and whether it holds code that `stub` has not.

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
