"""Many tensors side by side in one flat buffer, so that one all-reduce serves them all."""

from collections.abc import Callable, Iterable, Sequence

import torch

MakeBuffer = Callable[..., torch.Tensor]  # takes a length in elements, dtype= and device=


class FlatBuffers:
    """A flat buffer for each dtype and device of some parameters, with a place for each parameter's gradient.

    parameters: of any shapes, dtypes and devices.
    make_buffer: makes a buffer elsewhere than in memory of its own.
    views: each parameter's place, in its shape, in the order of parameters.
    buffers: all elements, of one dimension.
    places: for each parameter, the number of its buffer, and the element at which it begins there.
    """

    def __init__(self, parameters: Sequence[torch.Tensor], make_buffer: MakeBuffer = torch.zeros) -> None:
        lengths: dict[tuple[torch.dtype, torch.device], int] = {}
        begins = []
        for p in parameters:
            kind = (p.dtype, p.device)
            begins.append((kind, lengths.get(kind, 0)))
            lengths[kind] = lengths.get(kind, 0) + p.numel()
        made = {(dtype, device): make_buffer(n, dtype=dtype, device=device) for (dtype, device), n in lengths.items()}
        self.buffers = list(made.values())
        self.places = [(list(made).index(kind), begin) for kind, begin in begins]
        self.views = [
            made[kind][begin : begin + p.numel()].view(p.shape)
            for (kind, begin), p in zip(begins, parameters, strict=True)
        ]

    def fill(self, values: Iterable[torch.Tensor | None], scale: float = 1.0) -> None:
        """Write each value, times `scale`, into its place.

        values: in the order of parameters, each with its parameter's shape; None counts as zeros.
        scale: each element is multiplied by it.
        """
        for view, value in zip(self.views, values, strict=True):
            write_scaled(view, value, scale)


def write_scaled(view: torch.Tensor, value: torch.Tensor | None, scale: float) -> None:
    """Write value * scale into view, in one pass: scaling while copying costs nothing.

    view: a tensor, which is written to.
    value: of view's shape; None counts as zeros.
    scale: each element is multiplied by it.
    """
    if value is None:
        view.zero_()
    else:
        torch.mul(value, scale, out=view)
