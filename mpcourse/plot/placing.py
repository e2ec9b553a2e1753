"""Placing a schedule by hand: a figure, and in JupyterLab a button for each action that a stage may run next."""

from functools import partial

import matplotlib.pyplot as plt
from IPython.core.pylabtools import print_figure
from IPython.display import DisplayHandle, Image, display
from ipywidgets import HTML, Button, HBox, VBox
from matplotlib.figure import Figure
from matplotlib_inline.config import InlineBackend

from mpcourse.pipeline import Execution, one_f_one_b, replay
from mpcourse.pipeline.placing import Placing
from mpcourse.plot.schedule import schedule
from mpcourse.plot.sliders import somebody_there


class PlacingView:
    """The buttons of a `Placing`, a line that reports what a click did, and the figure, which each click redraws."""

    def __init__(self, placing: Placing) -> None:
        self.placing = placing
        self.figure = DisplayHandle()
        self.says = HTML()
        self.buttons = {(stage, kind): Button() for stage in range(placing.stages) for kind in "FB"}
        for (stage, kind), button in self.buttons.items():
            button.layout.width = "8ch"
            button.on_click(partial(self._place, stage, kind))
        back, again = Button(description="undo"), Button(description="start again")
        back.on_click(self._undo)
        again.on_click(self._reset)
        rows = [
            HBox([HTML(f"stage {stage}", layout={"width": "9ch"}), *(self.buttons[stage, kind] for kind in "FB")])
            for stage in range(placing.stages)
        ]
        self.controls = VBox([*rows, HBox([back, again]), self.says])
        self.name_buttons()

    def image(self) -> Image:
        made = drawn(self.placing)
        png = print_figure(made, "png", **InlineBackend.instance().print_figure_kwargs)
        plt.close(made)  # or the notebook would show it once more
        return Image(png, format="png")

    def name_buttons(self) -> None:
        """Name each button after what it would place, and make it green where that can run now."""
        for (stage, kind), button in self.buttons.items():
            action = self.placing.next(stage, kind)
            button.description = str(action or "-")
            button.button_style = "success" if action and not self.placing.reason(stage, action) else ""

    def _place(self, stage: int, kind: str, _: Button) -> None:
        self._after(self.placing.place(stage, kind))

    def _undo(self, _: Button) -> None:
        self.placing.undo()
        self._after("")

    def _reset(self, _: Button) -> None:
        self.placing.reset()
        self._after("")

    def _after(self, reason: str) -> None:
        stuck = "Nothing can be placed any more: undo, for the cap is in the way." if self.placing.stuck() else ""
        self.says.value = reason or stuck or describe(self.placing)
        self.name_buttons()
        self.figure.update(self.image())


def place_schedule(stages: int = 4, microbatches: int = 8, cap: int | None = 4) -> None:
    """Show a schedule of stage 0's first forwards, and in JupyterLab buttons to place all other actions.

    cap: the most micro-batches in flight on a stage; None: no limit. In a web page, or in a notebook that nbclient or
    nbval runs, the figure has no buttons. Raises ValueError for numbers below 1.
    """
    first = min(microbatches, microbatches if cap is None else cap)
    view = PlacingView(Placing(stages, microbatches, cap, [(0, "F")] * first))
    view.figure.display(view.image())
    if somebody_there():
        display(view.controls)


def drawn(placing: Placing) -> Figure:
    """Draw what is placed so far, with the bubble's size."""
    limit = "" if placing.cap is None else f", at most {placing.cap:g} micro-batches in flight on a stage"
    total = 2 * placing.stages * placing.microbatches
    title = f"{placing.count} of {total} actions placed{limit}"
    return schedule(placing.run, title, until=_peer(placing).makespan)


def describe(placing: Placing) -> str:
    """Describe what was reached: the bubble so far or, for a complete schedule, how it compares with 1F1B."""
    run = placing.run
    reached = f"makespan {run.makespan:g}, {100 * run.bubble:.1f} % bubble, {max(run.peak):g} in flight at most"
    if not placing.complete:
        return reached
    peer = _peer(placing)
    return f"Complete: {reached}. 1F1B has a makespan of {peer.makespan:g} and {max(peer.peak):g} in flight at most."


def _peer(placing: Placing) -> Execution:
    return replay(one_f_one_b(placing.stages, placing.microbatches), placing.costs)
