"""The text of Python files: read as Python reads it, named as a user knows it, and shown in a lesson."""

import ast
import functools
import importlib.util
import inspect
import os
import sys
import textwrap
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any


def read_source(file: Path) -> str:
    """Read a file as `python FILE` decodes it: by its coding line, else as UTF-8.

    file: of Python source.

    `compile` does not serve here: given bytes, it accepts invalid ones inside a comment.
    Raises SyntaxError where Python refuses it, and OSError where it cannot be read.
    """
    data = file.read_bytes()
    try:
        return importlib.util.decode_source(data)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise SyntaxError(f"bytes that are not {error.encoding.upper()}", (str(file), line, None, None)) from None


def source_lines(file: Path) -> list[str]:
    """Return the lines of a file to be shown, whatever the file contains.

    file: of Python source.
    Raises OSError where it cannot be read.
    """
    try:
        return read_source(file).splitlines()
    except SyntaxError:
        return file.read_text(encoding="utf-8", errors="replace").splitlines()


def shown_path(file: Path) -> str:
    """Return a path as a user knows it: relative where the file is in or beside the current folder, else in full.

    file: any.
    """
    relative = os.path.relpath(file)
    return relative if relative.count(os.pardir + os.sep) <= 1 else str(file)


def load_module(path: Path, name: str, stand_in: ModuleType | None = None) -> ModuleType:
    """Run a Python file as a module. Errors of its code pass through.

    path: of the file.
    name: of the module.
    stand_in: put into sys.modules instead of the module, where several threads load one file.
    """
    module = ModuleType(name)
    module.__file__ = str(path)
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))  # at the end, so that a file named like a library does not hide the library
    sys.modules[name] = stand_in or module  # dataclasses and pickling look classes up there
    if stand_in is not None:
        stand_in.mine.module = module
    # importlib would take compiled code of an earlier version, and accepts bytes that `python FILE` refuses.
    exec(_compiled(read_source(path), str(path)), module.__dict__)
    return module


@functools.lru_cache(maxsize=4)  # virtual ranks load the same text again and again
def _compiled(text: str, path: str) -> CodeType:
    return compile(text, path, "exec", dont_inherit=True)


def reference(*parts: Any) -> Any:
    """Show the source of functions and classes, without docstrings, in a notebook.

    parts: of this library. Each appears below a link to its file, which holds the docstrings, too.
    Raises TypeError for a part without source, ValueError for one that is not of this library.
    """
    from IPython.display import Markdown  # a notebook has it; the library does without

    return Markdown("\n\n".join(_linked(part) for part in parts))


def _linked(part: Any) -> str:
    part = inspect.unwrap(part)  # torch wraps the step of an optimizer
    file, root = Path(inspect.getfile(part)), Path(__file__).parents[2]
    if not file.is_relative_to(root / "mpcourse"):
        raise ValueError(f"{part.__qualname__} is not of this library: its source is in {file}")
    shown = file.relative_to(root).as_posix()
    place = file.relative_to(root / "mpcourse").as_posix()
    folder = "library" if os.path.isdir("../library") else "mpcourse"  # in a learner's folder, in a clone
    return f"[`{shown}`](../{folder}/{place})\n\n```python\n{without_docstrings(inspect.getsource(part))}\n```"


def without_docstrings(text: str) -> str:
    """Return Python source without its docstrings, from the left margin on, otherwise as it is written.

    text: of a whole function, class or module.
    """
    lines = textwrap.dedent(text).rstrip().splitlines()
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(ast.parse("\n".join(lines))):
        if isinstance(node, documented) and ast.get_docstring(node) is not None:
            first = node.body[0]
            lines[first.lineno - 1 : first.end_lineno] = [None] * (first.end_lineno - first.lineno + 1)  # type: ignore
    return "\n".join(line for line in lines if line is not None)
