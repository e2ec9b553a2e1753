"""A lesson as slides for reveal.js, in one HTML file: `python tools/slides.py 05_mpi_allreduce [FOLDER]`.

`jupyter nbconvert --to slides` alone puts a whole lesson on one slide, for the cells do not say where slides begin.
Here each heading begins one, to the right, and each further text with the code that follows it is one below that.
"""

import sys
from pathlib import Path

import nbformat
from nbconvert import SlidesExporter

LESSONS = Path(__file__).resolve().parents[1] / "lessons"


def with_slides(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Return the notebook whose cells say where a slide begins ("slide": to the right, "subslide": below)."""
    before = None
    for cell in notebook.cells:
        kind = "-"  # goes on
        if cell.cell_type == "markdown":
            kind = "slide" if cell.source.startswith("#") else "subslide" if before == "code" else "-"
        cell.metadata["slideshow"] = {"slide_type": kind}
        before = cell.cell_type
    return notebook


def slides(path: Path, **settings: str) -> str:
    """Return the HTML of a notebook's slides. settings: of SlidesExporter, such as reveal_url_prefix="reveal.js"."""
    exporter = SlidesExporter(reveal_scroll=True, reveal_transition="none", **settings)
    found, _ = exporter.from_notebook_node(with_slides(nbformat.read(path, 4)))
    return found


def main() -> None:
    """Write the slides of a lesson; arguments: its name and a folder."""
    name, folder = sys.argv[1], Path(*sys.argv[2:3])
    file = folder / f"{name}.slides.html"
    file.write_text(slides(LESSONS / f"{name}.ipynb"), encoding="utf-8")
    print(f"{file}: open it in a browser; reveal.js comes from the network")


if __name__ == "__main__":
    main()
