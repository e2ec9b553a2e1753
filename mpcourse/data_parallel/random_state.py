"""The random numbers of Python, numpy and torch, as a snapshot holds them."""

import random
from typing import Any

import numpy as np
import torch


def random_state() -> dict[str, Any]:
    """Return the state of this process's random numbers, its GPUs' too, as torch.load takes it with weights_only."""
    version, numbers, gauss = random.getstate()
    name, keys, at, has_gauss, cached = np.random.get_state()
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
    return {
        "python": [version, list(numbers), gauss],
        "numpy": [name, torch.from_numpy(np.asarray(keys).astype(np.int64)), at, has_gauss, cached],
        "torch": torch.get_rng_state(),
        "cuda": cuda,
    }


def set_random_state(state: dict[str, Any]) -> None:
    """Restore the state of this process's random numbers.

    state: what `random_state` returned.
    """
    version, numbers, gauss = state["python"]
    random.setstate((version, tuple(numbers), gauss))
    name, keys, at, has_gauss, cached = state["numpy"]
    np.random.set_state((name, keys.numpy().astype(np.uint32), at, has_gauss, cached))
    torch.set_rng_state(state["torch"])
    for device, numbers in enumerate(state["cuda"]):
        torch.cuda.set_rng_state(numbers, device)
