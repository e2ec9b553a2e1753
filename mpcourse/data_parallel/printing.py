"""Printing for all ranks: rank 0 alone prints what every rank would print."""

import os
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from tqdm.auto import tqdm

from mpcourse.data_parallel.communicator import Communicator

T = TypeVar("T")


def print_once(communicator: Communicator, *values: Any, **options: Any) -> None:
    """Print on rank 0, at once, and nothing on other ranks. No rank waits for another.

    communicator: its rank number decides; any of its ranks may call this.
    values: must already be computed: if a value is a sum over ranks, all ranks must make the sum first.
    options: of Python's print.
    """
    if communicator.rank == 0:
        print(*values, **{"flush": True, **options})


def progress(communicator: Communicator, steps: Iterable[T], **options: Any) -> Iterator[T]:
    """Yield `steps`, one after the other, with a progress bar on rank 0. Any rank may call it.

    communicator: its rank number decides.
    steps: what is iterated over.
    options: of tqdm.

    Where $TQDM_DISABLE is set no rank shows a bar.
    """
    quiet = communicator.rank != 0 or bool(os.environ.get("TQDM_DISABLE"))
    return iter(tqdm(steps, disable=quiet, **options))
