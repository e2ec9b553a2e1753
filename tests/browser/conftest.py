"""A course of the test's own, JupyterLab opened on it by `make lab`, and a Chromium without a screen."""

import os
import shutil
import sys
from pathlib import Path

import nbformat
import pytest

from mpcourse.course.check.manifest import load_course
from mpcourse.course.forkserver import offered
from tests.browser.page import Page
from tests.conftest import ROOT, jupyterlab, keep, kernels, load_script

BUILD = load_script(ROOT / "tools" / "build.py")
OPTIONS = (
    "--headless",
    "--disable-gpu",
    "--disable-dev-shm-usage",  # a container's is too small for a tall page
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
# JupyterLab lets the cursors of all cells blink, those that are not seen as well. For that Chromium computes the page's
# styles sixty times a second, half of its work while a cell runs.
NO_BLINKING = """
const sheet = new CSSStyleSheet();
sheet.replaceSync(".cm-cursorLayer { animation: none !important }");
document.adoptedStyleSheets.push(sheet);
"""


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    """Copy the course as it is judged, so that JupyterLab saves no lesson of the clone; return its path.

    The first lesson holds no output, for it is run as a whole: what its page shows comes from that run.
    """
    copy = tmp_path_factory.mktemp("copy") / "course"
    for folder in ("exercises", "solutions"):
        shutil.copytree(ROOT / folder, copy / folder)
    shutil.copy(ROOT / "jupytext.toml", copy)
    (copy / "lessons" / "src").mkdir(parents=True)
    shutil.copytree(ROOT / "lessons" / "twins", copy / "lessons" / "twins")  # programs that lesson 12 starts
    for number, lesson in enumerate(load_course(ROOT).lessons):
        text, book = BUILD.judged(lesson.id)
        (copy / "lessons" / "src" / f"{lesson.id}.py").write_text(text)
        book = nbformat.reads(book, as_version=4)
        for cell in book.cells:
            if cell.cell_type == "code":
                cell.outputs, cell.execution_count = [] if number == 0 else cell.outputs, None
        nbformat.write(book, copy / "lessons" / f"{lesson.id}.ipynb")
    return copy


@pytest.fixture(scope="module")
def lab(course, tmp_path_factory, time_to_end):
    """Return address and token of a JupyterLab that `make lab` opened on `course`, and its folder for kernels.

    Kernels are forked from this run's server, as those of other tests are.
    """
    own = tmp_path_factory.mktemp("lab")
    made = sorted(Path(sys.prefix).glob(".mpcourse-*"))
    if not made:
        pytest.skip(f"{sys.prefix} is no environment that `make setup` made: run `make test-browser`")
    # An outer make's settings are none of this one's. And a learner sees progress bars, and has no settings yet.
    environment = {k: v for k, v in os.environ.items() if not k.startswith("MAKE") and k != "TQDM_DISABLE"}
    environment |= {"MPCOURSE_ROOT": str(course), "MPCOURSE_HOME": str(own / "progress")}
    environment |= {f"JUPYTER_{name}_DIR": str(own / name.lower()) for name in ("CONFIG", "DATA", "RUNTIME")}
    environment |= {"JUPYTER_PATH": str(kernels())} if offered() else {}
    # -o: an environment older than pyproject.toml is not made again under the test that runs in it.
    arguments = "--no-browser --port=0 --expose-app-in-browser"
    command = ["make", "-o", str(made[0]), "lab", f"VENV={sys.prefix}", f"LAB_ARGS={arguments}"]
    with jupyterlab(command, environment, own / "lab.log") as (address, token):
        keep(and_what_they_start=False)
        yield address, token, own / "runtime"


@pytest.fixture
def screenshots(tmp_path):
    """Where pictures of pages go: $MPCOURSE_SCREENSHOTS, else the test's own folder."""
    folder = Path(os.environ.get("MPCOURSE_SCREENSHOTS") or tmp_path)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture(scope="module")
def chromium():
    """Selenium's webdriver, and the paths of Chromium and of its driver."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed: run `make test-browser`")
    programs = [shutil.which(name) for name in ("chromium", "chromedriver")]
    if None in programs:
        pytest.skip("no Chromium: apt-get install chromium chromium-driver")
    return webdriver, *programs


@pytest.fixture(scope="module")
def browser(chromium, tmp_path_factory, time_to_end):
    """Selenium's Chromium, without a screen and with a profile of its own."""
    webdriver, program, driver = chromium
    options = webdriver.ChromeOptions()
    options.binary_location = program
    profile = f"--user-data-dir={tmp_path_factory.mktemp('profile')}"
    for option in (*OPTIONS, profile, *["--no-sandbox"] * (os.geteuid() == 0)):
        options.add_argument(option)
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    keep(and_what_they_start=True)
    browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": NO_BLINKING})
    yield browser
    browser.quit()


@pytest.fixture
def page(lab, browser, screenshots):
    """Return the browser's page, with no lesson open. A picture of it is taken at the end, and at a failure."""
    page = Page(browser, *lab)
    yield page
    browser.save_screenshot(str(screenshots / f"{page.lesson}-end.png"))
    page.close()
