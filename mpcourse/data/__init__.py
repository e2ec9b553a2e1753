"""The images that the lessons train on: one record, `Dataset`, whichever of the three sets it holds.

- `digits()`: 1797 real handwritten digits, 8x8, ready in an instant.
- `glyphs()`: any number of 28x28 digits drawn from fonts and bent. MNIST's size and shape, with no download.
- `mnist()`: MNIST itself, from files that you have or from a checked download.
"""

from collections.abc import Callable

from mpcourse.common.errors import UserError
from mpcourse.data.examples import Dataset, Examples
from mpcourse.data.handwritten import digits, mnist
from mpcourse.data.rendered import glyphs

__all__ = ["Dataset", "Examples", "digits", "glyphs", "load", "mnist"]


def load(name: str, **options) -> Dataset:
    """The dataset of a name.

    name: "digits", "glyphs" or "mnist".
    options: for the function of that name.
    Raises UserError, naming the choices, for any other name.
    """
    loaders: dict[str, Callable[..., Dataset]] = {"digits": digits, "glyphs": glyphs, "mnist": mnist}
    if name not in loaders:
        raise UserError(f"no dataset is called {name!r}: choose one of {', '.join(loaders)}")
    return loaders[name](**options)
