"""What checks of chunks share: rows that are padded and cut, and memory in which padding that nobody wrote shows."""

import contextlib
import gc
import tracemalloc
from collections.abc import Iterator

import numpy as np
import torch


def chunks_of(flat: np.ndarray, size: int) -> list[np.ndarray]:
    """A row, padded with zeros at its end and cut into `size` equally long chunks."""
    chunk = -(-len(flat) // size)
    return list(np.concatenate([flat, np.zeros(chunk * size - len(flat))]).reshape(size, chunk))


@contextlib.contextmanager
def nan_in_new_memory(elements: int, size: int, dtype: torch.dtype) -> Iterator[None]:
    """Within this, new memory that nobody has written holds NaN: of torch all, of numpy at first that for so many."""
    chunk = -(-elements // size)
    for length in (elements, chunk * size, chunk):  # what is freed here is what numpy gives out next
        row = torch.full((length,), torch.nan, dtype=dtype).numpy()
        del [row.copy() for _ in range(8)][:]
    before = torch.get_deterministic_debug_mode()
    # Not use_deterministic_algorithms: it imports torch._dynamo, which takes seconds.
    torch.set_deterministic_debug_mode("warn")
    try:
        yield
    finally:
        torch.set_deterministic_debug_mode(before)


def freed(kept: list[torch.Tensor]) -> int:
    """Bytes of numpy's memory that go with these tensors, which the list loses; tracemalloc has to be on."""
    gc.collect()
    before = tracemalloc.get_traced_memory()[0]
    kept.clear()
    gc.collect()
    return before - tracemalloc.get_traced_memory()[0]
