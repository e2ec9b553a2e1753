"""One voice for all ranks: what every rank says is said by rank 0 alone."""

import os
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from tqdm.auto import tqdm

from mpcourse.data_parallel.communicator import Communicator

T = TypeVar("T")


def print_once(communicator: Communicator, *values: Any, **options: Any) -> None:
    """Print on rank 0, at once; nothing elsewhere. No rank waits for another.

    communicator: whose rank counts; any of its ranks may call this.
    values: must be there already: a sum over ranks among them is for all ranks to make, before.
    options: of Python's print.
    """
    if communicator.rank == 0:
        print(*values, **{"flush": True, **options})


def progress(communicator: Communicator, steps: Iterable[T], **options: Any) -> Iterator[T]:
    """`steps`, one after the other, with a progress bar on rank 0. Any rank may call it.

    communicator: whose rank counts.
    steps: what is gone through.
    options: of tqdm.

    Where $TQDM_DISABLE is set no rank shows a bar.
    """
    quiet = communicator.rank != 0 or bool(os.environ.get("TQDM_DISABLE"))
    return iter(tqdm(steps, disable=quiet, **options))
