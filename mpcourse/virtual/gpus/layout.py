"""The order in which a convolution's numbers lie in memory."""

import torch

Tensor = torch.Tensor


def channels_last(x: Tensor, weight: Tensor) -> torch.memory_format | None:
    """Return the format of a convolution's result, if it is one of channels last; image and weight decide it."""
    if x.dim() not in (4, 5):
        return None
    last = torch.channels_last if x.dim() == 4 else torch.channels_last_3d
    chosen = (t.is_contiguous(memory_format=last) and not t.is_contiguous() for t in (x, weight))
    return last if any(chosen) else None
