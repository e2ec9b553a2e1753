"""The course's web pages in a real browser: on a telephone and on a screen, in the light and in the dark theme."""

import importlib.util
from pathlib import Path

import pytest

from tests.house.test_site import WITHOUT_SPHINX, built_site

PAGES = (
    *("index", "lessons/00_start_here", "exercises/e04_pipeline_step"),
    "reference/mpcourse.data_parallel.communicator",
)
WIDE = """
const whole = [document.documentElement, ...document.querySelectorAll(".bd-article-container, .bd-article")];
return whole.filter(part => part.scrollWidth > part.clientWidth).map(part => part.className);
"""
SMALL = """
const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), small = [];
while (texts.nextNode()) {
    const text = texts.currentNode.textContent.trim(), element = texts.currentNode.parentElement;
    if (text && element.offsetParent && parseFloat(getComputedStyle(element).fontSize) < 12) small.push(text);
}
return small;
"""
JUDGE = """
const done = arguments[0];
document.querySelectorAll("details").forEach(part => part.open = true);
// On a busy machine a button's colours are still on their way from one theme to the other.
document.getAnimations().filter(each => each.effect.getTiming().iterations < Infinity).forEach(each => each.finish());
axe.run({resultTypes: ["violations"]}).then(({violations}) => done(violations
    .filter(found => ["serious", "critical"].includes(found.impact))
    .map(found => [found.id, found.nodes.map(node => node.html)])));
"""
# As the button in the page's head does, which also remembers it: of files, a browser may not.
THEME = "document.documentElement.dataset.theme = document.documentElement.dataset.mode = arguments[0]"


@pytest.fixture(scope="module")
def site():
    if WITHOUT_SPHINX:
        pytest.skip("Sphinx is not installed: run `make test-browser`")
    return built_site()


@pytest.mark.timeout(900)  # building, and axe on twelve pages, on a machine that does other things as well
def test_pages_fit_a_telephone_and_a_screen_and_axe_finds_nothing_serious(site, browser, screenshots):
    package = importlib.util.find_spec("axe_playwright_python")  # only found, for Playwright need not be there
    if package is None:
        pytest.skip("axe is not installed: run `make test-browser`")
    axe = (Path(package.origin).parent / "axe.min.js").read_text()
    browser.set_script_timeout(200)
    for page in PAGES:
        for width in (390, 1400):
            size = {"width": width, "height": 1000, "deviceScaleFactor": 1, "mobile": False}
            browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
            for theme in ("light", "dark"):
                browser.get(f"file://{site}/{page}.html")
                browser.execute_script(THEME, theme)
                browser.save_screenshot(str(screenshots / f"{Path(page).name}-{width}-{theme}.png"))
                case = page, width, theme
                assert not browser.execute_script(WIDE), case
                assert not browser.execute_script(SMALL), case
                browser.execute_script(axe)
                assert not browser.execute_async_script(JUDGE), case
