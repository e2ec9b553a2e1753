"""A lesson in JupyterLab as somebody at the screen has it: opened, run by the menu, looked at, its sliders moved."""

import time

LEFT, RIGHT, SHIFT, ENTER = "\ue012", "\ue014", "\ue008", "\ue007"  # keys, as the WebDriver standard has them
WIDTH, HEIGHT, TALLEST = 1400, 1000, 16000  # pixels; a taller picture than that Chromium does not take

# What the page shows now, told by the page.
LOOK = """
const all = (from, what) => [...from.querySelectorAll(what)];
const cut = element => element.scrollWidth > element.clientWidth;
return {
    status: document.querySelector(".jp-Notebook-ExecutionIndicator")?.dataset.status,
    prompts: all(document, ".jp-CodeCell .jp-InputArea-prompt").map(e => e.textContent),
    complaints: all(document, "[data-mime-type$='.error'], [data-mime-type$='.stderr']").map(e => e.textContent),
    figures: all(document, ".jp-OutputArea-output img").map(e => [e.naturalWidth, e.width]),
    cut: all(document, ".jupyter-widgets label, .jupyter-widgets .widget-readout").filter(cut).map(e => e.textContent),
};
"""
# By how many pixels the lesson is taller than the window's part for it. After the last cell JupyterLab leaves space to
# scroll on into, which does not count.
MISSING = """
const outer = document.querySelector(".jp-WindowedPanel-outer");
outer.scrollTop = 0;
const end = Math.max(...[...document.querySelectorAll(".jp-Notebook-cell")].map(e => e.getBoundingClientRect().bottom));
return Math.max(0, Math.ceil(end - outer.getBoundingClientRect().bottom));
"""
# The picture that a slider's cell shows.
PICTURE = "return arguments[0].closest('.jp-Cell').querySelector('.jp-OutputArea-output img').src;"


class Page:
    """browser: Selenium's. address, token: JupyterLab's, as it prints them."""

    def __init__(self, browser, address, token):
        self.browser, self.address, self.token = browser, address, token
        self.lesson = "no lesson"
        browser.set_window_size(WIDTH, HEIGHT)

    def open(self, name, cells):
        """Open a lesson; wait until its kernel and all its code cells are there. JupyterLab adds the last ones late."""
        self.lesson = name
        self.browser.get(f"{self.address}/lab/tree/lessons/{name}.ipynb?token={self.token}")
        self.until(60, f"a kernel and {cells} code cells", lambda: self._is_open(cells))

    def _is_open(self, cells):
        seen = self.look()
        return seen["status"] == "idle" and len(seen["prompts"]) == cells

    def run_all(self, seconds):
        """Run > Run All Cells, and wait until every cell has run; at most so many seconds."""
        self.find("//li[contains(@class, 'lm-MenuBar-item')][normalize-space() = 'Run']").click()
        self.find("//li[@data-command = 'runmenu:run-all'][not(contains(@class, 'lm-mod-disabled'))]").click()
        self.until(20, "a cell to run", lambda: any(prompt.strip("[]: ") for prompt in self.look()["prompts"]))
        self.until(seconds, "every cell to have run", self._has_run)

    def run_cell(self, number, seconds):
        """Run one code cell as a reader does, Shift+Enter in it, and wait until it has run."""
        cell = self.browser.find_elements("css selector", ".jp-CodeCell")[number]
        cell.find_element("css selector", ".jp-InputArea-prompt").click()
        self.browser.switch_to.active_element.send_keys(SHIFT, ENTER)
        self.until(seconds, f"code cell {number} to have run", lambda: self._has_run(number))

    def _has_run(self, number=None):
        seen = self.look()
        assert not seen["complaints"], seen["complaints"]  # after an error JupyterLab runs no further cell
        prompts = [prompt.strip("[]: ") for prompt in seen["prompts"]]
        asked = prompts if number is None else [prompts[number]]
        return seen["status"] == "idle" and all(prompt.isdigit() for prompt in asked)

    def look(self):
        """What the page shows: `status` of the kernel, `prompts` of code cells, `complaints`: the texts of outputs that
        are errors or were written to stderr, `figures`: [own width, width on the page], 0 for one that cannot be drawn,
        and the texts of sliders that are `cut` off."""
        return self.browser.execute_script(LOOK)

    def find(self, path):
        return self.browser.find_element("xpath", path)

    def sliders(self):
        """The handles of all sliders."""
        return self.browser.find_elements("css selector", ".jp-OutputArea .widget-slider .noUi-handle")

    def picture_of(self, slider):
        """What the figure that a slider belongs to looks like, as an address that holds all of it."""
        return self.browser.execute_script(PICTURE, slider)

    def move(self, slider):
        """Move a slider by one step, and back, with the arrow keys. Its figure must follow both ways."""
        first = self.picture_of(slider)
        last = slider.get_attribute("aria-valuenow") == slider.get_attribute("aria-valuemax")
        there, back = (LEFT, RIGHT) if last else (RIGHT, LEFT)
        slider.send_keys(there)
        self.until(30, "another figure", lambda: self.picture_of(slider) != first)
        seen = self.look()
        assert not seen["complaints"] + seen["cut"], seen
        slider.send_keys(back)
        self.until(30, "the first figure", lambda: self.picture_of(slider) == first)

    def buttons(self):
        """The buttons that cells show, in their order."""
        return self.browser.find_elements("css selector", ".jp-OutputArea .jupyter-button")

    def said(self):
        """What the last line beside the buttons says."""
        return self.browser.find_elements("css selector", ".jp-OutputArea .widget-html-content")[-1].text

    def show_all(self):
        """Make the window as tall as the lesson, or as a window can be, so that all of it is drawn."""
        for _ in range(5):  # what comes into view may grow
            missing = self.browser.execute_script(MISSING)
            self.browser.set_window_size(WIDTH, min(TALLEST, self.browser.get_window_size()["height"] + missing))
            time.sleep(0.5)

    def until(self, seconds, what, condition):
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, f"waited {seconds} s for {what}: {self.look()}"
            time.sleep(0.1)
