"""What the lessons train on: images, one record, `Dataset`, for each of the three sets, and a text.

- `digits()`: 1797 real handwritten digits, 8x8, ready in an instant.
- `glyphs()`: any number of 28x28 digits, drawn from fonts and bent. They have MNIST's size and shape, with no download.
- `mnist()`: MNIST itself, from files that you have or from a checked download.
- `course_text()`: prose of this course, for the small GPT; `draw_batch` draws pieces of it.
"""

from collections.abc import Callable
from typing import Any

from mpcourse.common.errors import UserError
from mpcourse.data.examples import Dataset, Examples
from mpcourse.data.handwritten import digits, mnist
from mpcourse.data.rendered import glyphs
from mpcourse.data.text import Text, course_text, draw_batch

__all__ = ["Dataset", "Examples", "Text", "course_text", "digits", "draw_batch", "glyphs", "load", "mnist"]


def load(name: str, **options: Any) -> Dataset:
    """Return the dataset of a name.

    name: "digits", "glyphs" or "mnist".
    options: for the function of that name.
    Raises UserError, naming the choices, for any other name.
    """
    loaders: dict[str, Callable[..., Dataset]] = {"digits": digits, "glyphs": glyphs, "mnist": mnist}
    if name not in loaders:
        raise UserError(f"no dataset is called {name!r}: choose one of {', '.join(loaders)}")
    return loaders[name](**options)
