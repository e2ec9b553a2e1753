"""One rank of many, without the others and without data: for what it holds in memory on a virtual GPU."""

from typing import Any


class AloneComm:
    """A communicator of `size` ranks, as rank 0 sees it; nothing is sent.

    For models on a dry box's virtual GPUs, whose tensors hold no data. sent: values in bytes that each rank would send,
    by what they belong to ("all-gather", "reduce-scatter").
    """

    rank = 0

    def __init__(self, size: int) -> None:
        self.size = size
        self.sent: dict[str, int] = {}

    def count(self, name: str, nbytes: int) -> None:
        """Note a collective call on so many bytes; the functions of this room call it instead of sending."""
        self.sent[name] = self.sent.get(name, 0) + nbytes * (self.size - 1) // self.size

    def allgather(self, own: Any) -> list[Any]:
        """All other ranks say what this one does."""
        return [own] * self.size

    def Split(self, color: int = 0, key: int = 0) -> "AloneComm":
        return self

    def Dup(self) -> "AloneComm":
        return self
