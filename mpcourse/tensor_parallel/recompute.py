"""Recomputation: forward keeps inputs only, and backward computes the rest again, with the same random numbers."""

from collections.abc import Callable
from typing import Any

from torch.utils.checkpoint import checkpoint

from mpcourse.tensor_parallel.random_numbers import Generators


def recompute(function: Callable[..., Any], *xs: Any, generators: Generators) -> Any:
    """Return function(*xs), and keep only xs: backward will compute the rest once more.

    function: may send messages, which are sent once more, too, as far as backward needs their results. All ranks do
    that in the same order, because they run the same program.
    xs: tensors, which are kept.
    generators: `function` draws from them; the second time it draws the same numbers.

    torch's own checkpoint restores only torch's default generator.
    """
    before, again = generators.state(), False

    def run(*xs: Any) -> Any:
        nonlocal again
        if not again:
            again = True
            return function(*xs)
        after = generators.state()
        generators.set_state(before)
        try:
            return function(*xs)
        finally:
            generators.set_state(after)

    return checkpoint(run, *xs, use_reentrant=False)
