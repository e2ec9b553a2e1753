"""Sphinx's settings for the course's pages. `website/build.py` makes what it reads, and starts it."""

import gc
import re
import sys
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from pygments.lexers.shell import BashLexer
from sphinx.application import Sphinx

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
gc.disable()  # nearly all that Sphinx makes stays: to look for garbage in it takes a fifth of its time

project = "mpcourse"
author = copyright = "The mpcourse authors"
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.viewcode"]
html_theme = "pydata_sphinx_theme"
html_title = "mpcourse"
html_static_path = [str(Path(__file__).parent / "static")]
html_css_files = ["course.css"]
html_theme_options = {"header_links_before_dropdown": 4, "collapse_navigation": True}
html_sidebars = {
    name: [] for name in ("index", "search", "README", "docs/several_machines", "docs/virtual_gpus", "glossary")
}
html_show_sourcelink = False
html_copy_source = False
html_use_index = html_domain_indices = False  # the search knows all names
html_math_renderer = "mathml"  # by the browser itself: the pages fetch nothing from elsewhere
# For keyboards and screen readers: what scrolls can be reached, and buttons that open parts of the sidebar have a name.
REACHED = """addEventListener("load", () => {
  for (const figure of document.querySelectorAll(".cell_output"))
    if (figure.scrollWidth > figure.clientWidth) figure.tabIndex = 0;
  for (const button of document.querySelectorAll("summary:has(.toctree-toggle)"))
    button.ariaLabel = "pages of " + button.closest("li").querySelector("a").textContent;
});"""
html_js_files = [(None, {"body": REACHED})]
nb_execution_mode = "off"
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
autodoc_default_options = {"members": True, "ignore-module-all": True, "member-order": "bysource"}
autodoc_inherit_docstrings = False
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
autodoc_use_type_comments = False  # we have none, and to look for them parses the source of each function once more

ARGUMENT = re.compile(r"(\*{0,2}\w+(?:, \*{0,2}\w+)*): (.*)")  # a line of a docstring that tells what an argument is
SENTENCE = re.compile(r"(Returns|Raises|Yields)\b")  # what may follow arguments without an empty line


def as_rst(text: str) -> str:
    """Return a docstring in reStructuredText: arguments are a list, indented lines are code, no character is markup."""
    blocks = []
    for block in re.split(r"\n\s*\n", text.strip("\n")):
        lines = block.split("\n")
        if all(line.startswith("    ") for line in lines):
            blocks.append("::\n\n" + "\n".join(lines))
            continue
        items: list[str] = []
        for line in lines:
            begins = ARGUMENT.match(line) or SENTENCE.match(line) or line.startswith("- ") or not items
            items.append(line) if begins else items.append(f"{items.pop()} {line.strip()}")
        blocks += [_item(item) for item in items]
    return "\n\n".join(blocks)


def _item(text: str) -> str:
    if found := ARGUMENT.fullmatch(text):
        return f"- **{_plain(found[1])}**: {_plain(found[2])}"
    return f"- {_plain(text[2:])}" if text.startswith("- ") else _plain(text)


def _plain(text: str) -> str:
    """Return running text, in which only `code` is markup."""
    parts = re.split(r"`([^`]+)`", text)
    parts[::2] = [re.sub(r"([\\*_|`<>\[\]])", r"\\\1", part) for part in parts[::2]]
    parts[1::2] = [f"\\ ``{part}``\\ " for part in parts[1::2]]
    return "".join(parts)


def process_docstring(app: Sphinx, what: str, name: str, each: Any, options: Any, lines: list[str]) -> None:
    lines[:] = [*as_rst("\n".join(lines)).split("\n"), ""]


def visit_math(self: Any, node: nodes.math | nodes.math_block) -> None:
    block = isinstance(node, nodes.math_block)
    self.body.append(tex2mathml(node.astext(), as_block=block))
    raise nodes.SkipNode


def setup(app: Sphinx) -> None:
    for name in ("root", "mpich", "openmpi", "slurm-mpich", "slurm-openmpi"):  # commands, in docs/several_machines.md
        app.add_lexer(name, BashLexer)
    app.connect("autodoc-process-docstring", process_docstring)
    app.add_html_math_renderer("mathml", (visit_math, None), (visit_math, None))
