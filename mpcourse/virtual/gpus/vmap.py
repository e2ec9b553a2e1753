"""torch.vmap on virtual GPUs: refused, except in a dry box that assumes values.

There its result is placed on the device, and its operations are not billed: libraries make masks by it.
"""

import functools
from typing import Any

import torch

from mpcourse.virtual.gpus.modes import mode_here
from mpcourse.virtual.gpus.nested import tensors_in
from mpcourse.virtual.gpus.unplaced import place
from mpcourse.virtual.gpus.unsupported import NO_TRANSFORMS, has_device

_vmap = torch._functorch.apis.vmap_impl


@functools.wraps(_vmap)
def _placed(func: Any, in_dims: Any, out_dims: Any, randomness: Any, chunk: Any, *args: Any, **kwargs: Any) -> Any:
    mode = mode_here()
    if mode is None or mode.dispatch.depth or not has_device(func, *args, **kwargs):
        return _vmap(func, in_dims, out_dims, randomness, chunk, *args, **kwargs)
    if not (mode.box.dry and mode.box.assumes):
        raise RuntimeError(NO_TRANSFORMS)
    index = next(b.index for t in tensors_in((*args, *kwargs.values())) if (b := mode.box.block_of(t)) is not None)
    with mode.dispatch.paused():
        out = _vmap(func, in_dims, out_dims, randomness, chunk, *args, **kwargs)
    for t in tensors_in(out if isinstance(out, tuple | list) else (out,)):
        if mode.box.block_of(t) is None:
            place(mode.dispatch, t, index)
    return out


PATCHES = [(torch._functorch.apis, "vmap_impl", _placed)]
