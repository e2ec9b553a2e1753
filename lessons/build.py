"""Build the notebooks: read each text in lessons/src, run it from top to bottom, write lessons/NN_name.ipynb.

Run by `make lessons`, which takes names of lessons too: python lessons/build.py 00_start_here. A notebook's metadata
and cell ids depend on its text alone, so that building twice changes nothing but outputs.
"""

import hashlib
import sys
import time
from collections import Counter
from pathlib import Path

import jupytext
import nbformat
from jupytext.config import load_jupytext_configuration_file
from nbclient import NotebookClient

LESSONS = Path(__file__).resolve().parent
SECONDS = 60  # a lesson runs in less than this on two cores without a GPU
METADATA = {
    "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def read_source(path: Path) -> nbformat.NotebookNode:
    """The notebook that a text stands for, without outputs, with metadata and cell ids of its own making."""
    book = jupytext.read(path, fmt="py:percent")
    book.metadata = nbformat.from_dict(METADATA)
    seen: Counter[str] = Counter()
    for cell in book.cells:
        tags = cell.metadata.get("tags")
        cell.metadata = nbformat.from_dict({"tags": tags} if tags else {})
        digest = hashlib.sha256(f"{cell.cell_type}\n{cell.source}".encode()).hexdigest()[:12]
        seen[digest] += 1
        cell.id = digest if seen[digest] == 1 else f"{digest}-{seen[digest]}"
    book.nbformat, book.nbformat_minor = 4, 5
    return book


def canonical(path: Path) -> str:
    """The text as jupytext itself writes it for this notebook.

    JupyterLab refuses to open a pair whose text differs from that, be it by a blank line.
    """
    config = load_jupytext_configuration_file(str(LESSONS.parent / "jupytext.toml"))
    book = read_source(path)
    names = ("notebook_metadata_filter", "cell_metadata_filter")
    book.metadata["jupytext"] = {name: getattr(config, name) for name in names}
    return jupytext.writes(book, fmt="py:percent", config=config)


def build(path: Path) -> float:
    """Run the lesson whose text is at `path` and write its notebook; the seconds that it ran."""
    path.write_text(canonical(path))
    book = read_source(path)
    start = time.perf_counter()
    client = NotebookClient(book, timeout=SECONDS, kernel_name="python3", record_timing=False, store_widget_state=False)
    client.execute(cwd=str(LESSONS))
    seconds = time.perf_counter() - start
    book.metadata = nbformat.from_dict(METADATA)  # the kernel adds its exact version
    nbformat.validate(book)
    nbformat.write(book, LESSONS / f"{path.stem}.ipynb")
    return seconds


if __name__ == "__main__":
    names = sys.argv[1:]
    for source in sorted((LESSONS / "src").glob("*.py")):
        if not names or source.stem in names:
            print(f"{source.stem}: {build(source):.1f} s", flush=True)
