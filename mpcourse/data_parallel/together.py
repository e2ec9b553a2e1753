"""Work that each rank does by itself, and that has succeeded on all ranks or on none."""

from collections.abc import Callable
from typing import Any, TypeVar

from mpcourse.common.errors import RankFailed

Result = TypeVar("Result")


def together(allgather: Callable[[Any], list[Any]], doing: str, call: Callable[[], Result]) -> Result:
    """Return what a function returns on this rank, once no rank has failed in it. All ranks call this.

    allgather: of a communicator: returns what each rank gives it, in the same order on all ranks.
    doing: what the function does, for the other ranks' message, e.g. "save its snapshot".
    call: may raise anything; its error is raised on this rank, and RankFailed on the others.
    """
    error = None
    try:
        result = call()
    except Exception as mine:  # any, because torch reports a full disk, and a spoiled file, by errors of its own
        error = mine
    errors = allgather(error and f"{type(error).__name__}: {error}")
    if error is not None:
        raise error
    if failed := [f"rank {rank} cannot {doing}: {text}" for rank, text in enumerate(errors) if text]:
        raise RankFailed(failed[0])
    return result
