"""Many gradients as one row of numbers, so that one sum serves them all."""

from collections.abc import Sequence

import torch


class Packing:
    """Rows of numbers, one for each dtype and device, that the gradients of some parameters lie in side by side.

    parameters: any shapes. views: for each of them its place in its row, in its shape.
    """

    def __init__(self, parameters: Sequence[torch.Tensor]) -> None:
        lengths: dict[tuple[torch.dtype, torch.device], int] = {}
        places = []
        for p in parameters:
            kind = (p.dtype, p.device)
            places.append((kind, lengths.get(kind, 0)))
            lengths[kind] = lengths.get(kind, 0) + p.numel()
        made = {(dtype, device): torch.zeros(n, dtype=dtype, device=device) for (dtype, device), n in lengths.items()}
        self.rows = list(made.values())
        self.views = [
            made[kind][begin : begin + p.numel()].view(p.shape)
            for (kind, begin), p in zip(places, parameters, strict=True)
        ]

    @property
    def nbytes(self) -> int:
        return sum(row.nbytes for row in self.rows)


def fill(view: torch.Tensor, gradient: torch.Tensor | None, scale: float) -> None:
    """Write gradient * scale into its place; None counts as zeros. One pass: scaling costs nothing beside copying."""
    if gradient is None:
        view.zero_()
    elif scale == 1.0:
        view.copy_(gradient)
    else:
        torch.mul(gradient, scale, out=view)
