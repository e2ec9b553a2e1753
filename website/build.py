"""Build the course's pages: python website/build.py [FOLDER], run by `make site`. No lesson is run.

Writes what Sphinx reads to FOLDER/website (build/website unless another is named): lessons as they are committed, with
their outputs; a page for each exercise, for each module of the reference implementations and for each source file that
a lesson links to. Then Sphinx writes FOLDER/site.
"""

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from urllib.parse import quote

import nbformat

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from mpcourse import virtual  # noqa: E402
from mpcourse.course.check.manifest import Course, Exercise, Lesson, load_course  # noqa: E402
from mpcourse.course.check.stubs import stub_of  # noqa: E402
from mpcourse.course.forkserver import python  # noqa: E402
from tools.build import judged, lesson_texts, name_of  # noqa: E402  no part of the package
from tools.readme import reading_minutes  # noqa: E402

# What the reference shows: packages. Of `virtual`, the names that its users need.
ROOMS = (
    *("virtual", "models", "split", "pipeline", "collectives", "data_parallel", "predict", "large_batch"),
    *("model_parallel", "tensor_parallel", "context_parallel", "experts", "grid", "zero", "plan"),
)
DOCS = (
    *("install", "commands", "debugging", "several_machines"),
    *("running_a_large_job", "published", "virtual_gpus", "on_a_gpu", "asked", "teaching"),
)
PAGES = ("README.md", *(f"docs/{name}.md" for name in DOCS), "CONTRIBUTING.md", "CHANGELOG.md")
LINK = re.compile(r"\]\((?!https?:|#)([^)#\s]+)")
# How the pages fold the cells that JupyterLab folds: MyST-NB's tag, and the text to click on.
FOLDS = {"answer": ("hide-cell", "Show the answer"), "checked": ("hide-input", "Show the check")}
LIVE = "*The picture shows one position of the controls. Run this lesson in JupyterLab, `mpcourse lab`, to move them.*"


def described(source: str) -> str:
    """Return what a figure shows, by the cell that draws it: its title, or else the call that draws it.

    The title is the longest text that is passed to a plot or is called `title`. Values that only a run of the cell
    gives, in an f-string's braces, are "...".
    """
    titles, drawn = [""], "a drawing"
    for node in ast.walk(ast.parse(re.sub(r"^(\w+ = )?[!%].*", "", source, flags=re.MULTILINE))):
        match node:
            case ast.Call(func=ast.Name(id="print")):
                continue
            case ast.Call(func=ast.Attribute(attr="sliders"), keywords=choices):
                return f"one position of the sliders {', '.join(choice.arg or '' for choice in choices)}"
            case ast.Call(args=args, keywords=keywords):
                texts = [*args, *(keyword.value for keyword in keywords if keyword.arg == "title")]
                if ast.unparse(node.func).startswith("plot."):
                    drawn = f"drawn by {ast.unparse(node)}"
            case ast.Assign(targets=[ast.Name(id="title")], value=value):
                texts = [value]
            case _:
                continue
        for text in texts:
            parts = text.values if isinstance(text, ast.JoinedStr) else [text]
            if all(isinstance(p, ast.FormattedValue) or isinstance(getattr(p, "value", 0), str) for p in parts):
                titles.append("".join(p.value if isinstance(p, ast.Constant) else "..." for p in parts))
    title = max(titles, key=len)
    return title if len(title.split()) > 2 else drawn


def places_to_run(lesson: Lesson) -> str:
    """Links that open a lesson in Colab and in Codespaces, in Markdown; empty where the repository is not known.

    GitHub Actions tells it, and so each fork's pages lead to that fork. Colab's copies are on the branch `colab`, where
    .github/workflows/site.yml puts them.
    """
    repository, branch = (quote(os.environ.get(f"GITHUB_{name}", "")) for name in ("REPOSITORY", "REF_NAME"))
    if not repository or not branch:
        return ""
    colab = f"https://colab.research.google.com/github/{repository}/blob/colab/{lesson.id}.ipynb"
    codespaces = f"https://codespaces.new/{repository}/tree/{branch}"
    return f"Without installing anything: [open in Colab]({colab}) or [open in Codespaces]({codespaces})."


def address() -> str:
    """Where the course can be cloned from, as GitHub Actions names it; "ADDRESS" where that is not known."""
    server, repository = os.environ.get("GITHUB_SERVER_URL", "https://github.com"), os.environ.get("GITHUB_REPOSITORY")
    return f"{server}/{quote(repository)}.git" if repository else "ADDRESS"


def home_page(text: str, course: Course, rows: list[str]) -> str:
    """website/index.md with what one learns, as in README.md, the table of lessons, their hours and the address."""
    reading = sum(reading_minutes(nbformat.reads(judged(x.id)[1], as_version=4)) for x in course.lessons) / 60
    writing = sum(exercise.minutes for exercise in course.exercises) / 60
    known = address() != "ADDRESS"
    values = {
        "hours": f"{reading + writing:.0f}",
        "reading": f"{reading:.0f}",
        "writing": f"{writing:.0f}",
        "count": str(len(course.lessons)),
        "exercises": str(len(course.exercises)),
        "get": "On Debian or Ubuntu:" if known else "On Debian or Ubuntu, with the address of the course's repository:",
        "address": address(),
        "lessons": "\n".join(rows),
        "learn": re.search(r"(?m)(^- .*\n)+", (ROOT / "README.md").read_text(encoding="utf-8"))[0].strip(),
    }
    for name, value in values.items():
        text = text.replace(f"{{{name}}}", value)
    return text


def lesson_book(lesson: Lesson, course: Course) -> nbformat.NotebookNode:
    """Return the lesson's page: the lesson, links to its exercises, and places to run it."""
    book = with_figures_described(lesson.id, lesson.title)
    links = [f"[{e.name}](../exercises/{e.name}.md) {e.title}" for e in course.exercises if e.lesson == lesson.id]
    book.cells.append(nbformat.v4.new_markdown_cell("## Exercises of this lesson\n\n- " + "\n- ".join(links)))
    if places := places_to_run(lesson):
        book.cells.insert(1, nbformat.v4.new_markdown_cell(places))
    return book


def with_figures_described(name: str, section: str) -> nbformat.NotebookNode:
    """Return a lesson or an appendix as it is committed, with what its figures show, and its folds."""
    book = nbformat.reads(judged(name)[1], as_version=4)
    cells, number = [], 0
    for cell in book.cells:
        cells.append(cell)
        if cell.cell_type == "markdown":
            section = (re.findall(r"^##? (.+)$", cell.source, re.MULTILINE) or [section])[-1]
            continue
        for tag in FOLDS.keys() & cell.metadata.get("tags", []):
            cell.metadata.tags, cell.metadata["mystnb"] = [FOLDS[tag][0]], {"code_prompt_show": FOLDS[tag][1]}
        shown = [output for output in cell.outputs if "image/png" in output.get("data", {})]
        texts = [output for output in cell.outputs if "text/markdown" in output.get("data", {})]
        cell.outputs = [output for output in cell.outputs if output not in texts]
        cells += [nbformat.v4.new_markdown_cell(output.data["text/markdown"]) for output in texts]
        if shown:
            number += 1
            alt = f"Figure {number}, in the section “{section}”: {described(cell.source)}"
            cell.metadata["mystnb"] = {**cell.metadata.get("mystnb", {}), "image": {"alt": alt}}
        if any("Image object" in output.data.get("text/plain", "") for output in shown):
            cells.append(nbformat.v4.new_markdown_cell(LIVE))
    book.cells = cells
    return book


def exercise_page(course: Course, exercise: Exercise) -> str:
    """Return the task and the code of its stub, and the hints, folded, without any answer or the solution."""
    stub = stub_of(course, exercise)
    task = ast.get_docstring(ast.parse(stub)) or ""
    head, _, text = task.partition("\n")
    code = stub.split('"""', 2)[2].strip()
    lesson = next(lesson for lesson in course.lessons if lesson.id == exercise.lesson)
    sizes = ", ".join(map(str, exercise.sizes))
    hints = "\n".join(
        f"<details>\n<summary>Hint {number} of {len(exercise.hints)}</summary>\n\n{hint}\n\n</details>\n"
        for number, hint in enumerate(exercise.hints, start=1)
    )
    return f"""# {exercise.title}

{head}

Lesson [{lesson.id[:2]} {lesson.title}](../lessons/{lesson.id}.ipynb). About {exercise.minutes} minutes, difficulty
{exercise.difficulty} of 5. Numbers of ranks that are checked: {sizes}.

{text.strip()}

## Your part

Replace `raise NotImplementedError` in `exercises/{exercise.name}.py`:

```python
{code}
```

## Hints

{hints}"""


def glossary_page(text: str, course: Course) -> str:
    """docs/glossary.md's table as a list of terms, each with an anchor for links."""
    page = ["# Glossary", "What each term means, what other systems call it, and where the course introduces it."]
    page.append("```{glossary}")
    for row in re.findall(r"^\| (.+) \|$", text, re.MULTILINE)[1:]:
        term, meaning, number, elsewhere = (cell.strip() for cell in f"{row} ".split(" |"))
        lesson = next(lesson for lesson in course.lessons if lesson.id.startswith(number))
        called = f" Elsewhere: {elsewhere}." if elsewhere else ""
        page.append(f"{term}\n  {meaning}.{called} Lesson [{number} {lesson.title}](lessons/{lesson.id}.ipynb).\n")
    return "\n\n".join([*page, "```"])


def modules_of(room: str) -> list[str]:
    """Names of the room's package and of all modules in it; of a module its own."""
    files = [path.relative_to(ROOT).with_suffix("") for path in (ROOT / "mpcourse" / room).rglob("*.py")]
    below = sorted(file.parent.parts if file.name == "__init__" else file.parts for file in files)
    return [".".join(parts) for parts in below] or [f"mpcourse.{room}"]


def documented(package: ModuleType) -> list[str]:
    """Sphinx's directives for a package's functions and classes, wherever below it they are; not for its constants."""
    named = [(name, getattr(package, name)) for name in package.__all__]
    kinds = [(name, "class" if isinstance(each, type) else "function") for name, each in named if callable(each)]
    return [f".. auto{kind}:: {package.__name__}.{name}\n" for name, kind in kinds]


class Sources:
    """What Sphinx reads, in `folder`. `linked`: files of the repository that pages link to, and that are no pages."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.linked: set[str] = set()

    def write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def with_links(self, text: str, folder: str = ".") -> str:
        """Return a text of the repository's `folder`, in which links to files lead to the pages that show them."""

        def link(found: re.Match[str]) -> str:
            path, _, _anchor = found[1].partition("#")
            file = (ROOT / folder / path).resolve().relative_to(ROOT).as_posix()
            top = "../" * len(Path(folder).parts)
            if file == "docs/glossary.md":
                return f"]({top}glossary.md"
            if file.startswith("exercises/"):  # the task and the stub, and not an answer
                return f"]({top}{Path(file).with_suffix('.md')}"
            if file in PAGES or file.endswith((".ipynb", ".svg")):
                return found[0]
            if file.startswith("solutions/") or not (ROOT / file).is_file():
                raise ValueError(f"{file}, to which {folder} links, is none to show")
            self.linked.add(file)
            return f"]({top}code/{file}.md"

        return LINK.sub(link, text)


def toctree(names: list[str], hidden: bool = False) -> str:
    options = "```{toctree}\n:maxdepth: 1\n" + ":hidden:\n" * hidden
    return "\n".join([options, *names, "```"])


def write_lessons(course: Course, sources: Sources) -> tuple[list[str], list[str]]:
    """Write the pages of lessons and appendices. Return their names, and the rows of the home page's table."""
    rows = ["| lesson | question | exercises |", "|---|---|---|"]
    books = {lesson.id: lesson_book(lesson, course) for lesson in course.lessons}
    for lesson in course.lessons:
        asked = [f"[{e.title}](exercises/{e.name}.md)" for e in course.exercises if e.lesson == lesson.id]
        name = f"[{lesson.id[:2]} {lesson.title}](lessons/{lesson.id}.ipynb)"
        rows.append(f"| {name} | {lesson.question} | {'<br>'.join(asked)} |")
    appendices = [name for name in map(name_of, lesson_texts()) if name not in books]
    books |= {name: with_figures_described(name, name) for name in appendices}
    for name, book in books.items():
        for cell in book.cells:
            if cell.cell_type == "markdown":
                cell.source = sources.with_links(cell.source, Path("lessons", name).parent.as_posix())
        sources.write(f"lessons/{name}.ipynb", nbformat.writes(book))
    return list(books), rows


def write_sources(folder: Path) -> None:
    """Everything that Sphinx reads, anew."""
    shutil.rmtree(folder, ignore_errors=True)
    course, sources = load_course(ROOT), Sources(folder)
    lessons, rows = write_lessons(course, sources)
    for exercise in course.exercises:
        sources.write(f"exercises/{exercise.name}.md", exercise_page(course, exercise))
    exercises = [e.name for e in course.exercises]
    sources.write("lessons/index.md", f"# Lessons\n\n{toctree(lessons)}")
    sources.write("exercises/index.md", f"# Exercises\n\n{toctree(exercises)}")
    for room in ROOMS:
        names = [f"mpcourse.{room}"] if room == "virtual" else modules_of(room)
        for name in names:
            page = f"{name}\n{'=' * len(name)}\n\n.. automodule:: {name}\n"
            if room == "virtual":
                page += "   :no-members:\n\n" + "\n".join(documented(virtual))
            if name == names[0] and len(names) > 1:
                inside = [f"{module.removeprefix(f'{name}.')} <{module}>" for module in names[1:]]
                page += "   :no-members:\n\n" + "\n   ".join([".. toctree::", ":maxdepth: 1\n", *inside]) + "\n"
            sources.write(f"reference/{name}.rst", page)
    rooms = toctree([f"mpcourse.{room}" for room in ROOMS])
    begin = "The implementations that the lessons lead to, from their docstrings. `[source]` shows the code."
    sources.write("reference/index.md", f"# Reference\n\n{begin}\n\n{rooms}")
    sources.write("glossary.md", glossary_page((ROOT / "docs/glossary.md").read_text(encoding="utf-8"), course))
    for page in PAGES:
        text = (ROOT / page).read_text(encoding="utf-8").replace("git clone ADDRESS", f"git clone {address()}")
        sources.write(page, sources.with_links(text, Path(page).parent.as_posix()))
    shutil.copytree(ROOT / "lessons" / "figures", folder / "lessons" / "figures")
    for file in sources.linked:
        code, kind = (ROOT / file).read_text(encoding="utf-8"), {".py": "python", ".cff": "yaml"}[Path(file).suffix]
        sources.write(f"code/{file}.md", f"---\norphan: true\n---\n# {file}\n\n````{kind}\n{code}````\n")
    index = (ROOT / "website" / "index.md").read_text(encoding="utf-8")
    parts = [
        "lessons/index",
        "exercises/index",
        "reference/index",
        "glossary",
        *(page.removesuffix(".md") for page in PAGES),
    ]
    sources.write("index.md", home_page(index, course, rows) + toctree(parts, hidden=True))


def build(folder: Path) -> int:
    """Pages in folder/site. Exit status 0, or Sphinx's own: a warning counts as an error."""
    sources, site = folder / "website", folder / "site"
    write_sources(sources)
    shutil.rmtree(site, ignore_errors=True)
    options = ["-W", "--keep-going", "-q", "-E", "-c", ROOT / "website", "-d", folder / "doctrees"]
    done = subprocess.run(python().command("-m", "sphinx", *map(str, options), str(sources), str(site)))
    if done.returncode == 0:
        print(f"The pages are in {site}: open {site / 'index.html'}")
    return done.returncode


if __name__ == "__main__":
    sys.exit(build(Path(sys.argv[1]).resolve() if sys.argv[1:] else ROOT / "build"))
