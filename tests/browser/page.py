"""A lesson in JupyterLab as somebody at the screen has it: opened, run by the menu, looked at, its sliders moved."""

import json
import time
import urllib.request
from contextlib import contextmanager

LEFT, RIGHT, SHIFT, ENTER = "\ue012", "\ue014", "\ue008", "\ue007"  # keys, as the WebDriver standard has them
WIDTH, HEIGHT, TALLEST = 1400, 1000, 16000  # pixels; a taller picture than that Chromium does not take

# How far the page is, told by the page. A folded cell shows no prompt: then its model has the number of its last run.
STATE = """
const all = what => [...document.querySelectorAll(what)];
const widgets = window.jupyterapp?.shell.currentWidget?.content?.widgets ?? [];
const counts = new Map(widgets.map(widget => [widget.node, widget.model.executionCount]));
const prompt = cell => cell.querySelector(".jp-InputArea-prompt")?.textContent ?? `[${counts.get(cell) ?? " "}]:`;
return {
    status: document.querySelector(".jp-Notebook-ExecutionIndicator")?.dataset.status,
    prompts: all(".jp-CodeCell").map(prompt),
    complaints: all("[data-mime-type$='.error'], [data-mime-type$='.stderr']").map(e => e.textContent),
};
"""
# How it looks. To tell it, the browser computes the places of all that there is on the page: not ten times a second.
LOOKS = """
const all = what => [...document.querySelectorAll(what)];
const cut = element => element.scrollWidth > element.clientWidth;
return {
    figures: all(".jp-OutputArea-output img").map(e => [e.naturalWidth, e.width]),
    cut: all(".jupyter-widgets label, .jupyter-widgets .widget-readout").filter(cut).map(e => e.textContent),
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
# On to what is below; from the end to the beginning again, for on a busy machine a view can pass before its cells come.
SCROLL = """
const outer = document.querySelector(".jp-WindowedPanel-outer");
const before = outer.scrollTop;
outer.scrollTop += outer.clientHeight;
if (outer.scrollTop === before) outer.scrollTop = 0;
"""
# JupyterLab, once loaded, opens a lesson as its file browser does. The promise ends when the lesson is there.
OPEN = """
const done = arguments[1];
window.jupyterapp.commands.execute("docmanager:open", {path: arguments[0]})
    .then(() => done(null), error => done(String(error)));
"""
# Lessons are closed as they are: what has been run in them is saved nowhere.
CLOSE = """
for (const widget of [...window.jupyterapp.shell.widgets("main")]) {
    if (widget.context) widget.context.model.dirty = false;
    widget.close();
}
"""
# Whether the open lesson counts as changed, which its tab shows by a dot.
CHANGED = "return window.jupyterapp.shell.currentWidget.context.model.dirty;"
# Save the open lesson. The promise ends when it is saved.
SAVE = "window.jupyterapp.shell.currentWidget.context.save().then(arguments[0]);"
# The path of the file that JupyterLab shows in front.
IN_FRONT = "return window.jupyterapp.shell.currentWidget.context?.path;"
# A point of the window that is beside the first line of a cell.
BESIDE = """
const prompt = arguments[0].querySelector(".jp-InputArea-prompt, .jp-Placeholder-prompt");
prompt.scrollIntoView({behavior: "instant"});
const {left, top, width} = prompt.getBoundingClientRect();
return [Math.round(left + width / 2), Math.round(top + 5)];
"""
# What JupyterLab shows in place of a folded cell's code, else null, and whether it has folded the output.
FOLDED = """
const cell = document.querySelectorAll(".jp-CodeCell")[arguments[0]];
const code = cell.querySelector(".jp-Cell-inputWrapper .jp-Placeholder");
const output = cell.querySelector(".jp-Cell-outputWrapper .jp-Placeholder");
return [code && code.textContent.trim(), Boolean(output)];
"""
# The picture that a slider's cell shows.
PICTURE = "return arguments[0].closest('.jp-Cell').querySelector('.jp-OutputArea-output img').src;"


class Page:
    """JupyterLab in a browser.

    browser: Selenium's. address, token: JupyterLab's, as it prints them. runtime: the folder in which it notes how
    kernels can be reached.
    """

    def __init__(self, browser, address, token, runtime):
        self.browser, self.address, self.token, self.runtime = browser, address, token, runtime
        self.lesson = "no lesson"
        browser.set_window_size(WIDTH, HEIGHT)

    def open(self, name, cells):
        """Open a lesson; wait until its kernel and all its code cells are there. The first one loads JupyterLab.

        JupyterLab adds the last ones when Chromium says that it has nothing else to do, or when they are scrolled to.
        """
        self.lesson = name
        path = f"lessons/{name}.ipynb"
        if self.browser.current_url.startswith(self.address):
            assert (error := self.browser.execute_async_script(OPEN, path)) is None, error
        else:
            self.browser.get(f"{self.address}/lab/tree/{path}?reset&token={self.token}")
        self.until(60, f"a kernel and {cells} code cells", lambda: self._is_open(cells))

    def _is_open(self, cells):
        seen = self.state()
        if seen["status"] == "idle" and len(seen["prompts"]) < cells:
            self.browser.execute_script(SCROLL)
        return seen["status"] == "idle" and len(seen["prompts"]) == cells

    def is_changed(self):
        """Whether the open lesson counts as changed since it was saved."""
        return self.browser.execute_script(CHANGED)

    def save(self):
        """Save the open lesson, and wait until it is saved."""
        self.browser.execute_async_script(SAVE)

    def in_front(self):
        """Return the path of the file that JupyterLab shows in front."""
        return self.browser.execute_script(IN_FRONT)

    def run_all(self, seconds):
        """Run > Run All Cells, and wait until every cell has run; at most so many seconds."""
        self.find("//li[contains(@class, 'lm-MenuBar-item')][normalize-space() = 'Run']").click()
        self.find("//li[@data-command = 'runmenu:run-all'][not(contains(@class, 'lm-mod-disabled'))]").click()
        self.until(20, "a cell to run", lambda: any(prompt.strip("[]: ") for prompt in self.state()["prompts"]))
        self.until(seconds, "every cell to have run", self._has_run)

    @contextmanager
    def kernel(self, seconds):
        """Return a function that runs code in the lesson's kernel, beside its page, each call for a limited time."""
        from jupyter_client import BlockingKernelClient

        (kernel,) = self._ask("GET", "kernels")
        client = BlockingKernelClient(connection_file=str(self.runtime / f"kernel-{kernel['id']}.json"))
        client.load_connection_file()
        client.start_channels()
        client.wait_for_ready(timeout=60)

        def run(code):
            reply = client.execute(code, silent=True, allow_stdin=False, reply=True, timeout=seconds)["content"]
            assert reply["status"] == "ok", "\n".join(reply["traceback"])

        try:
            yield run
        finally:
            client.stop_channels()

    def run_cell(self, number, seconds):
        """Run one code cell as a reader does, Shift+Enter in it, and wait until it has run."""
        cell = self.browser.find_elements("css selector", ".jp-CodeCell")[number]
        self.until(20, f"code cell {number} to be chosen", lambda: self._choose(cell))
        self.browser.switch_to.active_element.send_keys(SHIFT, ENTER)
        self.until(seconds, f"code cell {number} to have run", lambda: self._has_run(number))

    def folded(self, number):
        """Return the line that stands for a cell's folded code, None where it is shown; and whether its output is."""
        return tuple(self.browser.execute_script(FOLDED, number))

    def _choose(self, cell):
        """Click beside a cell, at its top, for a long one is higher than the window. Whether that has hit it."""
        from selenium.webdriver.common.actions.action_builder import ActionBuilder  # where there is none, tests say so

        x, y = self.browser.execute_script(BESIDE, cell)
        click = ActionBuilder(self.browser)
        click.pointer_action.move_to_location(x, y).click()
        click.perform()
        return "jp-mod-active" in cell.get_attribute("class")

    def _has_run(self, number=None):
        seen = self.state()
        assert not seen["complaints"], seen["complaints"]  # after an error JupyterLab runs no further cell
        prompts = [prompt.strip("[]: ") for prompt in seen["prompts"]]
        asked = prompts if number is None else [prompts[number]]
        return seen["status"] == "idle" and all(prompt.isdigit() for prompt in asked)

    def state(self):
        """Return how far the page is.

        `status` of the kernel, `prompts` of code cells, and `complaints`: texts of outputs that are errors or stderr's.
        """
        return self.browser.execute_script(STATE)

    def look(self):
        """Return what the page shows: its state, its figures and the texts of sliders that are `cut` off.

        `figures`: [own width, width on the page], 0 for one that cannot be drawn.
        """
        return self.state() | self.browser.execute_script(LOOKS)

    def find(self, path):
        return self.browser.find_element("xpath", path)

    def sliders(self):
        """Return the handles of all sliders."""
        return self.browser.find_elements("css selector", ".jp-OutputArea .widget-slider .noUi-handle")

    def picture_of(self, slider):
        """Return what the figure that a slider belongs to looks like, as an address that holds all of it."""
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
        """Return the buttons that cells show, in their order."""
        return self.browser.find_elements("css selector", ".jp-OutputArea .jupyter-button")

    def said(self):
        """Return what the last line beside the buttons says."""
        return self.browser.find_elements("css selector", ".jp-OutputArea .widget-html-content")[-1].text

    def show_all(self):
        """Make the window as tall as the lesson, or as a window can be, so that all of it is drawn."""
        height, shown = HEIGHT, 0
        while shown < 3 and height < TALLEST:  # what comes into view may grow
            missing = self.browser.execute_script(MISSING)
            shown = 0 if missing else shown + 1
            if missing:
                height = min(TALLEST, height + missing)
                self.browser.set_window_size(WIDTH, height)
            time.sleep(0.1)

    def show_a_part(self):
        """Make the window as tall as a screen again: of a tall one each change is drawn many times as slowly."""
        self.browser.set_window_size(WIDTH, HEIGHT)

    def close(self):
        """Close all lessons that are open, and end their kernels; see that none is left."""
        self.browser.execute_script(CLOSE)
        for kernel in self._ask("GET", "kernels"):
            self._ask("DELETE", f"kernels/{kernel['id']}")
        assert not self._ask("GET", "kernels")

    def _ask(self, method, what):
        headers = {"Authorization": f"token {self.token}"}
        request = urllib.request.Request(f"{self.address}/api/{what}", method=method, headers=headers)
        with urllib.request.urlopen(request, timeout=20) as answer:
            return json.loads(answer.read() or "null")

    def until(self, seconds, what, condition):
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, f"waited {seconds} s for {what}: {self.state()}"
            time.sleep(0.1)
