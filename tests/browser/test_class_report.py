"""The report of `mpcourse grade --html` in a real browser: a class of twelve is seen at once."""

import pytest

from mpcourse.course.check.manifest import load_course
from mpcourse.course.grading.report import as_html
from tests.browser.test_site_pages import SMALL
from tests.conftest import ROOT
from tests.course.test_grading import made_up

NAMES = ("Ada Lovelace", "Grace Hopper", "Edsger Dijkstra", "Barbara Liskov", "Leslie Lamport", "Frances Allen")
SEEN = """
const table = document.querySelector(".students table"), {right, bottom} = table.getBoundingClientRect();
const {scrollWidth, clientWidth} = table.parentElement;
return right <= innerWidth && bottom <= innerHeight && scrollWidth <= clientWidth;
"""


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_class_of_twelve_with_all_exercises_fits_one_screen(theme, browser, tmp_path, screenshots):
    file = tmp_path / "report.html"
    students = [f"{name} {half}" for name in NAMES for half in ("A", "B")]
    file.write_text(as_html(made_up(students, load_course(ROOT).exercises)), encoding="utf-8")
    size = {"width": 1280, "height": 720, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    wanted = {"features": [{"name": "prefers-color-scheme", "value": theme}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", wanted)
    browser.get(file.as_uri())
    browser.save_screenshot(str(screenshots / f"class-{theme}.png"))
    assert browser.execute_script(SEEN)
    assert not browser.execute_script(SMALL)
