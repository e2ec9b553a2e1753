"""What the lessons say in words, and what their cells print."""

import re

import jupytext
import nbformat

from tests.conftest import ROOT


def prose(path):
    """Return the running text of a lesson, without headings, tables, formulas, code, and lists of its exercises."""
    cells = jupytext.read(path).cells
    text = "\n\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    text = re.sub(r"```.*?```|\$\$.*?\$\$|`[^`]*`", " ", text, flags=re.DOTALL)
    return "\n".join(line for line in text.splitlines() if not re.match(r"#|\|", line))


def unsaid(lesson, *phrases):
    """Those of the phrases that a lesson's running text has not, wherever its lines end."""
    text = " ".join(prose(ROOT / "lessons" / "src" / f"{lesson}.py").split())
    return [phrase for phrase in phrases if phrase not in text]


def unprinted(lesson, *phrases):
    """Those of the phrases that no cell of a lesson prints."""
    cells = nbformat.read(ROOT / "lessons" / f"{lesson}.ipynb", as_version=4).cells
    text = "\n".join(output.get("text", "") for cell in cells for output in cell.get("outputs", []))
    return [phrase for phrase in phrases if phrase not in text]
