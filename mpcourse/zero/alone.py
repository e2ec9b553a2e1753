"""One rank of many, without the others and without data: to see what it holds in memory on a virtual GPU."""

from typing import Any


class AloneComm:
    """A communicator of many ranks, as rank 0 sees it. Nothing is sent.

    size: ranks, 1 or more.

    It is for models on a dry box's virtual GPUs, whose tensors hold no data.
    sent: bytes that each rank would send, by the call that sends them ("all-gather", "reduce-scatter").
    """

    rank = 0

    def __init__(self, size: int) -> None:
        self.size = size
        self.sent: dict[str, int] = {}

    def count(self, name: str, nbytes: int) -> None:
        """Count a collective call; the functions of this room call it instead of sending.

        name: of the call, "all-gather" or "reduce-scatter".
        nbytes: size of the whole flat buffer, with the chunks of all ranks.
        """
        self.sent[name] = self.sent.get(name, 0) + nbytes * (self.size - 1) // self.size

    def allgather(self, own: Any) -> list[Any]:
        """Return a list of `size` times the same, as if all other ranks gave what this one gives.

        own: what this rank gives, anything.
        """
        return [own] * self.size

    def Split(self, color: int = 0, key: int = 0) -> "AloneComm":
        return self

    def Dup(self) -> "AloneComm":
        return self
