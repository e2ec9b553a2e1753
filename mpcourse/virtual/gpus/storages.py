"""Storages that change their size: `untyped_storage().resize_(0)`, with which FSDP frees memory, `Tensor.resize_`."""

import copy
from typing import Any

import torch

from mpcourse.virtual.gpus.box import TAG, Block, box_here


def recount(storage: torch.UntypedStorage) -> None:
    """Count again a storage whose size may have changed. Raises torch.OutOfMemoryError where its device is full."""
    block: Block | None = getattr(storage, TAG, None)
    if block is None or block.allocation.nbytes == storage.nbytes():
        return
    ledger, now = block.box.ledger, block.box.now
    ledger.release(block.allocation, now)
    block.allocation = copy.copy(block.allocation)
    block.allocation.nbytes, block.allocation.chunk = storage.nbytes(), None
    ledger.allocate(block.allocation, now)


def check_device(tensor: torch.Tensor, storage: Any) -> None:
    """Check that `tensor.set_(storage)` leaves a tensor on its device. Raises RuntimeError in torch's words."""
    box = box_here()
    if box is None or not isinstance(storage, torch.UntypedStorage | torch.TypedStorage):
        return
    if isinstance(storage, torch.TypedStorage):
        storage = storage._untyped_storage
    own, other = (getattr(s, TAG, None) for s in (tensor.untyped_storage(), storage))
    nothing = tensor.numel() == 0 and own is None  # torch makes such tensors to show a storage
    if not nothing and (own and own.index) != (other and other.index):
        first, second = ("cpu" if b is None else box.names[b.index] for b in (own, other))
        raise RuntimeError(
            f'Attempted to set the storage of a tensor on device "{first}" to a storage on different device "{second}"'
            ". This is no longer allowed; the devices must match."
        )


_resize = torch.UntypedStorage.resize_


def resize_(storage: torch.UntypedStorage, size: int) -> Any:
    block: Block | None = getattr(storage, TAG, None)
    if block is not None and size > max(storage.nbytes(), block.box.ledger.free(block.index)):
        raise block.box.ledger.out_of_memory(block.index, size)
    out = _resize(storage, size)
    recount(storage)
    return out


# The device of a storage on a virtual GPU. Its data are on the CPU, or it has none.
_device: Any = getattr(torch._C.StorageBase, "device")  # noqa: B009, a getter that mypy does not know


def virtual_device(storage: torch.UntypedStorage) -> torch.device:
    block: Block | None = getattr(storage, TAG, None)
    if block is None or box_here() is None:
        return _device.__get__(storage)
    return block.box.device_at(block.index)
