"""The page of `mpcourse progress --html` in a real browser: on a telephone and on a screen, light and dark."""

import importlib.util
from pathlib import Path

import pytest

from mpcourse.course.check.manifest import load_course
from mpcourse.course.check.progress import Progress, by_lesson
from mpcourse.course.check.show_progress import as_html
from mpcourse.course.check.verdict import Verdict
from mpcourse.course.page import page as page_of
from tests.browser.test_site_pages import JUDGE, SMALL
from tests.conftest import ROOT

WHYS = ("Each rank divides by its own count.", "A long sentence with many words, which a telephone breaks. " * 4)


@pytest.fixture
def file(tmp_path, monkeypatch):
    """Return a page on which all that can be shown is shown."""
    monkeypatch.setenv("MPCOURSE_HOME", str(tmp_path / "home"))
    course = load_course(ROOT)
    progress = Progress(course)
    for number, exercise in enumerate(course.exercises[:20]):
        for kind, why in [*(("wrong answer", why) for why in WHYS), ("passed", "")][: 1 + number % 3]:
            progress.note_check(exercise, Verdict(exercise.name, kind, 2, "rank 0", why=why))
    with progress.changing(course.exercises[1]) as record:
        record.hints, record.spoiled = 3, True
    page = tmp_path / "progress.html"
    page.write_text(page_of("Progress", [as_html(by_lesson(course, progress))]), encoding="utf-8")
    return page


def test_the_page_of_progress_fits_a_telephone_and_a_screen_and_axe_finds_nothing(file, browser, screenshots):
    package = importlib.util.find_spec("axe_playwright_python")  # only found, for Playwright need not be there
    if package is None:
        pytest.skip("axe is not installed: run `make test-browser`")
    axe = (Path(package.origin).parent / "axe.min.js").read_text()
    for width in (390, 1400):
        size = {"width": width, "height": 1000, "deviceScaleFactor": 1, "mobile": False}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        for theme in ("light", "dark"):
            wanted = {"features": [{"name": "prefers-color-scheme", "value": theme}]}
            browser.execute_cdp_cmd("Emulation.setEmulatedMedia", wanted)
            browser.get(file.as_uri())
            browser.save_screenshot(str(screenshots / f"progress-{width}-{theme}.png"))
            case = width, theme
            whole = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
            assert browser.execute_script(whole) == 0, case
            assert not browser.execute_script(SMALL), case
            browser.execute_script(axe)
            assert not browser.execute_async_script(JUDGE), case
