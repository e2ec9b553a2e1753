"""Build the notebooks: read each text in lessons/src, run it from top to bottom, write lessons/NN_name.ipynb.

Run by `make lessons`. Names choose some: python tools/build.py 00_start_here appendix/05_this_machine. A notebook's
metadata and cell ids depend on its text alone, so that building twice changes nothing but outputs.

python tools/build.py --texts [NAME ...] runs nothing. It writes notebooks anew whose prose or tags have changed, with
the outputs that they have, and names those in which code has changed: they must be run.

python tools/build.py --judged FOLDER runs nothing, and copies the notebooks that the tests judge. With the option
--without-torchrun after it, nbval skips the cells that start torchrun or use what it wrote: 5 to 18 CPU-seconds each.

python tools/build.py --without-answers runs nothing, and removes the outputs of cells that answer a prediction.
"""

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import jupytext
import nbformat
from jupytext.config import load_jupytext_configuration_file
from nbclient import NotebookClient

LESSONS = Path(__file__).resolve().parents[1] / "lessons"
SECONDS = 60  # a lesson runs in less than this on two cores without a GPU
# What JupyterLab's kernel, mpcourse.course.jupyter.kernel, and jupytext write into a notebook: with less, a lesson
# would count as changed as soon as it is open, and saving it would change it.
METADATA = {
    "jupytext": {"cell_metadata_filter": "tags,-all", "notebook_metadata_filter": "-all"},
    "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
    "language_info": {
        "codemirror_mode": {"name": "ipython", "version": 3},
        "file_extension": ".py",
        "mimetype": "text/x-python",
        "name": "python",
        "nbconvert_exporter": "python",
        "pygments_lexer": "ipython3",
        "version": "3",
    },
}
# How JupyterLab shows a cell with one of these tags: folded. Running it unfolds its output, a click its code.
FOLDED = {
    "answer": {"collapsed": True, "jupyter": {"outputs_hidden": True, "source_hidden": True}},  # to "Predict first"
    "checked": {"jupyter": {"source_hidden": True}},  # asserts what the text above claims
}
NO_OUTPUT = {"remove-cell", "remove-output"}  # tags of cells that show a learner's own machine, answers or progress


def lesson_texts() -> list[Path]:
    """Return the texts of all lessons, and then of their appendices."""
    return [*sorted((LESSONS / "src").glob("*.py")), *sorted((LESSONS / "src" / "appendix").glob("*.py"))]


def name_of(text: Path) -> str:
    """Return what a lesson is called, such as 00_start_here or appendix/05_this_machine."""
    return text.relative_to(LESSONS / "src").with_suffix("").as_posix()


def read_source(path: Path) -> nbformat.NotebookNode:
    """Return the notebook of a text, without outputs, with metadata and cell ids of its own."""
    book = jupytext.read(path, fmt="py:percent")
    book.metadata = nbformat.from_dict(METADATA)
    seen: Counter[str] = Counter()
    for cell in book.cells:
        tags = cell.metadata.get("tags", [])
        folds = [FOLDED[tag] for tag in tags if tag in FOLDED]
        cell.metadata = nbformat.from_dict(({"tags": tags} if tags else {}) | (folds[0] if folds else {}))
        digest = hashlib.sha256(f"{cell.cell_type}\n{cell.source}".encode()).hexdigest()[:12]
        seen[digest] += 1
        cell.id = digest if seen[digest] == 1 else f"{digest}-{seen[digest]}"
    book.nbformat, book.nbformat_minor = 4, 5
    return book


def canonical(path: Path) -> str:
    """Return the text as jupytext itself writes it for this notebook.

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
    with tempfile.TemporaryDirectory() as progress:  # of a learner who has done nothing yet
        file = LESSONS / f"{name_of(path)}.ipynb"
        client.execute(cwd=str(file.parent), env=os.environ | {"MPCOURSE_HOME": progress})
    seconds = time.perf_counter() - start
    write(book, file)
    return seconds


def write(book: nbformat.NotebookNode, path: Path) -> None:
    """Write a notebook as it is committed: without what its cells show of the builder's own machine and progress."""
    for number, cell in enumerate((cell for cell in book.cells if cell.cell_type == "code"), start=1):
        cell.execution_count = number
        for output in cell.outputs:
            if output.output_type == "execute_result":
                output.execution_count = number
        cell.outputs = [] if NO_OUTPUT & set(cell.metadata.get("tags", [])) else joined(cell.outputs)
    book.metadata = nbformat.from_dict(METADATA | {"mpcourse": {"built": digest(book)}})
    nbformat.validate(book)
    nbformat.write(book, path)


def joined(outputs: list[nbformat.NotebookNode]) -> list[nbformat.NotebookNode]:
    """Make one output of what a slow cell printed in several pieces, so that a rebuild changes nothing else."""
    whole: list[nbformat.NotebookNode] = []
    for output in outputs:
        if whole and output.output_type == "stream" and whole[-1].get("name") == output.name:
            whole[-1].text += output.text
        else:
            whole.append(output)
    return whole


def digest(book: nbformat.NotebookNode) -> str:
    """Return what changes where a cell or an output of a notebook does; one that holds its own is as it was built."""
    return hashlib.sha256(json.dumps(book.cells, sort_keys=True).encode()).hexdigest()[:16]


def renew(path: Path) -> bool:
    """Write the notebook of the text at `path` with the outputs that it has; False where code has changed."""
    path.write_text(canonical(path))
    book, file = read_source(path), LESSONS / f"{name_of(path)}.ipynb"
    before = {cell.id: cell for cell in nbformat.read(file, as_version=4).cells if cell.cell_type == "code"}
    cells = [cell for cell in book.cells if cell.cell_type == "code"]
    if not all(cell.id in before or NO_OUTPUT & set(cell.metadata.get("tags", [])) for cell in cells):
        return False
    for cell in cells:
        cell.outputs = before[cell.id].outputs if cell.id in before else []
    write(book, file)
    return True


def judged(name: str) -> tuple[str, str]:
    """Text and notebook by which a lesson is judged.

    Those in the working tree if `make lessons` made that notebook. Otherwise a learner used it: JupyterLab saves a
    learner's outputs and cells, the cells to the text as well. Then those of the last commit count. CI checks out a
    commit, so there the two are the same and nothing escapes.
    """
    paths = (f"lessons/src/{name}.py", f"lessons/{name}.ipynb")
    text, book = ((LESSONS.parent / path).read_text(encoding="utf-8") for path in paths)
    made = nbformat.reads(book, as_version=4)
    if made.metadata.get("mpcourse", {}).get("built") != digest(made):
        committed = [_committed(path) for path in paths]
        if all(committed):
            text, book = committed
    return text, book


def _committed(path: str) -> str:
    """Return a file's text in the last commit; empty where there is no git or no such file."""
    try:
        shown = subprocess.run(["git", "-C", str(LESSONS), "show", f"HEAD:{path}"], capture_output=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return shown.stdout.decode() if shown.returncode == 0 else ""


def copy_judged(folder: Path, without_torchrun: bool = False) -> None:
    """Write the notebooks that are judged to `folder`, so that running them leaves the learner's own alone."""
    (folder / "appendix").mkdir(parents=True, exist_ok=True)
    for old in folder.rglob("*.ipynb"):
        old.unlink()
    for name in map(name_of, lesson_texts()):
        book = judged(name)[1]
        copy = skip_torchrun(book) if without_torchrun else book
        (folder / f"{name}.ipynb").write_text(copy, encoding="utf-8")
        if book != (LESSONS / f"{name}.ipynb").read_text(encoding="utf-8"):
            print(f"lessons/{name}.ipynb was saved in JupyterLab: the committed one is judged")


def skip_torchrun(text: str) -> str:
    """Make nbval skip code from a cell that starts torchrun up to the next heading; return the notebook's new text."""
    book = nbformat.reads(text, as_version=4)
    skipping = False
    for cell in book.cells:
        if cell.cell_type == "markdown" and any(line.startswith("## ") for line in cell.source.splitlines()):
            skipping = False
        elif cell.cell_type == "code":
            skipping = skipping or "!torchrun" in cell.source
            if skipping:
                cell.metadata.tags = [*cell.metadata.get("tags", []), "nbval-skip"]
    return nbformat.writes(book)


def without_answers(path: Path) -> None:
    """Remove the outputs of cells that answer a prediction, for editors that do not fold them, such as VS Code."""
    book = nbformat.read(path, as_version=4)
    for cell in book.cells:
        if "answer" in cell.metadata.get("tags", []):
            cell.outputs = []
    nbformat.write(book, path)


def main(arguments: list[str]) -> None:
    """Do what the first argument asks for; without one, run the lessons that are named, or all."""
    option = arguments.pop(0) if arguments and arguments[0].startswith("--") else ""
    if option == "--judged":
        return copy_judged(Path(arguments[0]), "--without-torchrun" in arguments)
    for source in lesson_texts():
        name = name_of(source)
        if arguments and name not in arguments:
            continue
        if option == "--without-answers":
            without_answers(LESSONS / f"{name}.ipynb")
        elif not option:
            print(f"{name}: {build(source):.1f} s", flush=True)
        elif not renew(source):
            print(f"{name}: code has changed: python tools/build.py {name}")


if __name__ == "__main__":
    main(sys.argv[1:])
