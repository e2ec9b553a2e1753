"""The course's web pages: what they are made of, and, where Sphinx is installed, the pages themselves."""

import atexit
import functools
import importlib.util
import re
import shutil
import tempfile
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import nbformat
import pytest

from mpcourse import virtual
from mpcourse.course.check.manifest import load_course
from tests.conftest import ROOT, load_script

COURSE = load_course(ROOT)
SITE = load_script(ROOT / "website" / "build.py")
PART = re.compile(r"# solution: [^\n]+\n(.*?)# end of solution", re.DOTALL)
WITHOUT_SPHINX = not all(map(importlib.util.find_spec, ("sphinx", "myst_nb", "pydata_sphinx_theme")))


@functools.cache
def built_site():
    """Return the folder of the pages that Sphinx makes, once for all tests."""
    folder = Path(tempfile.mkdtemp(prefix="mpcourse-site-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    assert SITE.build(folder) == 0
    return folder / "site"


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """Return the folder that Sphinx would read."""
    folder = tmp_path_factory.mktemp("sources")
    SITE.write_sources(folder)
    return folder


def test_every_lesson_and_exercise_is_in_a_table_of_contents(sources):
    for names, part in (([x.id for x in COURSE.lessons], "lessons"), ([x.name for x in COURSE.exercises], "exercises")):
        listed = (sources / part / "index.md").read_text().split("```{toctree}")[1].splitlines()
        assert [line for line in listed if line in names] == names
        assert f"\n{part}/index\n" in (sources / "index.md").read_text()


def test_no_page_of_an_exercise_holds_a_solution_and_every_hint_is_folded(sources):
    pages = {path.stem: path.read_text() for path in (sources / "exercises").glob("*.md")}
    for exercise in COURSE.exercises:
        parts = PART.findall(COURSE.solution_file(exercise).read_text())
        assert parts and not [name for name, page in pages.items() for part in parts if part.strip() in page]
        page = pages[exercise.name]
        empty = [part for part in parts if "# found:" not in part]  # the others hold the faulty lines of the clinic
        assert page.count("raise NotImplementedError(") == len(empty)
        folded = re.findall(r"<details>\n<summary>[^<]+</summary>\n\n(.*?)\n\n</details>", page, re.DOTALL)
        assert folded == exercise.hints


def test_every_figure_is_described_and_sliders_have_a_line_that_says_how_to_move_them(sources):
    for lesson in COURSE.lessons:
        cells = nbformat.read(sources / "lessons" / f"{lesson.id}.ipynb", as_version=4).cells
        drawn = [i for i, c in enumerate(cells) if any("image/png" in o.get("data", {}) for o in c.get("outputs", []))]
        said = [cells[i].metadata["mystnb"]["image"]["alt"] for i in drawn]
        assert len(set(said)) == len(said) > 0
        for i in drawn:
            controls = re.search(r"^plot\.(sliders|place_schedule)\(", cells[i].source, re.MULTILINE)
            assert (cells[i + 1].source == SITE.LIVE) == bool(controls), cells[i].source


def test_a_figure_is_described_by_its_title():
    assert SITE.described('title = f"A knee at batch {n}"\nplot.lines(x, "ms", title)\nprint("a long text of it")') == (
        "A knee at batch ..."
    )
    assert (
        SITE.described("lines = !mpirun\n!ls\nplot.schedule(gpipe(4, 8))\nNone")
        == "drawn by plot.schedule(gpipe(4, 8))"
    )


def test_a_lesson_leads_to_colab_and_codespaces_of_the_repository_that_github_actions_names(monkeypatch):
    lesson = COURSE.lessons[0]

    def places():
        book = SITE.lesson_book(lesson, COURSE)
        return [address for cell in book.cells for address in re.findall(r"\]\((https://co[^)]+)\)", cell.source)]

    monkeypatch.setenv("GITHUB_REPOSITORY", "somebody/mp-course")
    monkeypatch.setenv("GITHUB_REF_NAME", "a/branch")
    assert places() == [
        f"https://colab.research.google.com/github/somebody/mp-course/blob/colab/{lesson.id}.ipynb",
        "https://codespaces.new/somebody/mp-course/tree/a/branch",
    ]
    assert "open in Colab" in SITE.lesson_book(lesson, COURSE).cells[1].source
    monkeypatch.delenv("GITHUB_REPOSITORY")
    assert not places()


def test_the_home_page_says_for_whom_how_long_and_where_to_get_the_course(monkeypatch, tmp_path):
    monkeypatch.setenv("GITHUB_REPOSITORY", "somebody/mp-course")
    monkeypatch.delenv("GITHUB_SERVER_URL", raising=False)
    SITE.write_sources(tmp_path)
    home, readme = ((tmp_path / name).read_text() for name in ("index.md", "README.md"))
    command = "git clone https://github.com/somebody/mp-course.git mpcourse && cd mpcourse\nmake lab"
    assert command in home and command in readme
    headings = re.findall("^## (.*)", home, re.MULTILINE)
    assert headings == ["For whom", "What you will be able to do", "Get the course", "The lessons"]
    hours, reading, writing = map(
        int, re.search(r"about (\d+) hours: (\d+) to read.*?(\d+) for", home, re.DOTALL).groups()
    )
    assert writing == round(sum(exercise.minutes for exercise in COURSE.exercises) / 60)
    assert abs(reading + writing - hours) <= 1 and not re.findall(r"(?<!`){\w+}", home)
    picture = re.search(r"!\[.+\]\((.*?)\)", home)[1]
    assert (tmp_path / picture).is_file()
    monkeypatch.delenv("GITHUB_REPOSITORY")
    assert SITE.address() == "ADDRESS" and "ADDRESS is where this repository is" in (ROOT / "README.md").read_text()


def test_a_link_to_a_solution_or_to_nothing_is_refused(tmp_path):
    for file in ("solutions/e00_hello.py", "mpcourse/none.py"):
        with pytest.raises(ValueError, match=file):
            SITE.Sources(tmp_path).with_links(f"[it](../{file})", "lessons")


def test_the_reference_has_the_functions_and_classes_of_virtual_and_the_modules_of_plan(sources):
    page = (sources / "reference" / "mpcourse.virtual.rst").read_text()
    shown = re.findall(r"^\.\. auto(\w+):: mpcourse\.virtual\.(\w+)", page, re.MULTILINE)
    assert {("function", "virtual_gpus"), ("function", "run"), ("class", "Topology"), ("class", "Box")} < set(shown)
    assert {name for _, name in shown} == set(virtual.__all__) - {"GPUS", "LINKS", "MPI"}
    assert (sources / "reference" / "mpcourse.plan.search.rst").is_file()


def test_what_lessons_show_of_the_library_has_its_page_in_the_reference():
    pages = {name for room in SITE.ROOMS for name in SITE.modules_of(room)}
    shown = set()
    for lesson in COURSE.lessons:
        book = nbformat.reads(SITE.judged(lesson.id)[1], as_version=4)
        for output in (output for cell in book.cells for output in cell.get("outputs", [])):
            text = output.get("data", {}).get("text/markdown", "")
            shown |= {name.replace("/", ".") for name in re.findall(r"\]\(\.\./(mpcourse/[\w/]+)\.py\)", text)}
    assert len(shown) >= len(COURSE.lessons) and shown <= pages


def test_actions_that_publish_are_pinned():
    used = re.findall(r"uses: (\S+)", (ROOT / ".github" / "workflows" / "site.yml").read_text())
    assert used and all(re.fullmatch(r"actions/[\w-]+@[0-9a-f]{40}", action) for action in used)


# Of a page's tags, those that tell something; most only colour code, and to parse them takes longest.
TELLING = re.compile(r"""<[^<>]*\s(?:id|href|src)\s*=[^<>]*>|<(?:img|script|style)\b[^<>]*>|</(?:script|style)>""")


class Page(HTMLParser):
    """links: what a page refers to. ids: what can be referred to. nameless: pictures without a text."""

    def __init__(self, text):
        super().__init__()
        self.links, self.ids, self.nameless = [], set(), []
        self.feed("".join(TELLING.findall(text)))

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.ids.add(given.get("id"))
        self.links += [given[name] for name in ("href", "src") if given.get(name)]
        if tag == "img" and not given.get("alt"):
            self.nameless.append(given.get("src"))


@pytest.mark.skipif(WITHOUT_SPHINX, reason="Sphinx is not installed: run `make site` once")
@pytest.mark.timeout(300)
def test_the_site_is_built_without_a_warning_and_all_that_its_pages_link_to_is_there():
    site = built_site()
    pages = {path: Page(path.read_text()) for path in site.rglob("*.html") if "_static" not in path.parts}
    assert {f"{x.id}.html" for x in COURSE.lessons} < {path.name for path in pages}
    assert not [page.nameless for page in pages.values() if page.nameless]
    missing = []
    for path, page in pages.items():
        for link in page.links:
            address = urlsplit(link)
            if address.scheme or address.netloc:
                continue
            target = (path.parent / unquote(address.path)).resolve() if address.path else path
            anchored = not address.fragment or target.suffix != ".html"
            if not target.is_file() or not (anchored or unquote(address.fragment) in pages[target].ids):
                missing.append((path.name, link))
    assert not missing
