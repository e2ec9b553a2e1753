"""Many gradients as one row of numbers, so that one sum serves them all."""

import cmath
from collections.abc import Callable, Mapping, Sequence

import torch

MakeRow = Callable[..., torch.Tensor]  # of a length, with dtype and device


class Packing:
    """Rows of numbers, one for each dtype and device, that the gradients of some parameters lie in side by side.

    parameters: any shapes. views: for each of them its place in its row, in its shape. make_row: where else than in
    memory of its own a row lies.
    """

    def __init__(self, parameters: Sequence[torch.Tensor], make_row: MakeRow = torch.zeros) -> None:
        lengths: dict[tuple[torch.dtype, torch.device], int] = {}
        begins = []
        for p in parameters:
            kind = (p.dtype, p.device)
            begins.append((kind, lengths.get(kind, 0)))
            lengths[kind] = lengths.get(kind, 0) + p.numel()
        made = {(dtype, device): make_row(n, dtype=dtype, device=device) for (dtype, device), n in lengths.items()}
        self.rows = list(made.values())
        self.places = [(list(made).index(kind), begin) for kind, begin in begins]  # which row, and where in it
        self.views = [
            made[kind][begin : begin + p.numel()].view(p.shape)
            for (kind, begin), p in zip(begins, parameters, strict=True)
        ]

    def fill(self, values: Mapping[str, torch.Tensor | None], scale: float) -> str | None:
        """Write all values, scaled, and zeros for None. The name of one that is not finite."""
        bad = None
        for (name, value), view in zip(values.items(), self.views, strict=True):
            fill(view, value, scale)
            if bad is None and not looks_finite(view):
                bad = name
        return bad

    def hand_over(self, held: Mapping[str, torch.Tensor], missing: set[str]) -> None:
        """Each parameter's gradient is its place here from now on, but for those in `missing`, which have none.

        Nor has one that was frozen meanwhile: an optimizer would change it.
        """
        for (name, p), view in zip(held.items(), self.views, strict=True):
            p.grad = None if name in missing or not p.requires_grad else view


def fill(view: torch.Tensor, value: torch.Tensor | None, scale: float) -> None:
    """Write value * scale into its place; None counts as zeros. One pass: scaling costs nothing beside copying."""
    if value is None:
        view.zero_()
    else:
        torch.mul(value, scale, out=view)


def gradients(held: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor | None]:
    """Those of these parameters, by name; None where there is none."""
    return {name: p.grad for name, p in held.items()}


def looks_finite(t: torch.Tensor) -> bool:
    """Whether no number is NaN or infinite: one pass over t, where its sum is finite."""
    return cmath.isfinite(t.sum().item()) or bool(t.isfinite().all())
