"""A figure with a slider for each number that it depends on."""

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import matplotlib.pyplot as plt
from IPython.core.getipython import get_ipython
from IPython.core.pylabtools import print_figure
from IPython.display import DisplayHandle, Image, display
from ipywidgets import SelectionSlider, interactive
from matplotlib.figure import Figure
from matplotlib_inline.config import InlineBackend


def sliders(draw: Callable[..., Figure], **choices: Sequence[Any]) -> None:
    """Show the figure that draw(**values) returns, and in JupyterLab a slider for each value.

    choices: name -> the values to choose from, from left to right, hashable. The figure begins with `draw`'s own
    defaults if they are among them, else with the first values. It is an ordinary image in the notebook, so that it is
    also seen where nothing can be moved: in a web page, or in a notebook that nbclient or nbval runs, without sliders.
    Raises ValueError for a choice without values.
    """
    if empty := [name for name, values in choices.items() if not len(values)]:
        raise ValueError(f"the slider {empty[0]!r} needs values to choose from")
    given = {name: p.default for name, p in inspect.signature(draw).parameters.items()}
    begin = {name: given[name] if given.get(name) in values else values[0] for name, values in choices.items()}

    @functools.cache  # so that a value that comes back is shown at once
    def image(**values: Any) -> Image:
        made = draw(**values)
        drawn = print_figure(made, "png", **InlineBackend.instance().print_figure_kwargs)  # like others of a notebook
        plt.close(made)  # or the notebook would show it once more
        return Image(drawn, format="png")

    shown = DisplayHandle()
    shown.display(image(**begin))
    if not somebody_there():
        return

    room = max(map(len, choices)) + 1  # by default long names and values are cut off
    controls = {
        name: SelectionSlider(
            options=[(str(v), v) for v in values],
            value=begin[name],
            description=name.replace("_", " "),
            continuous_update=False,
            style={"description_width": f"{room}ch"},
            layout={"width": f"{room + 50}ch"},
        )
        for name, values in choices.items()
    }
    display(interactive(lambda **values: shown.update(image(**values)), **controls))


def somebody_there() -> bool:
    """Return whether a person runs this cell: programs that run notebooks refuse `input()`, and say so."""
    return bool(getattr(getattr(get_ipython(), "kernel", None), "_allow_stdin", False))
