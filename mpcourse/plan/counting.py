"""A communicator for code that runs alone, without data: it counts sums over ranks, and sends nothing."""

from typing import Any, NoReturn

import torch

from mpcourse.common.errors import UserError


class CountingComm:
    """A tensor axis as its rank 0 sees it, alone and without data: sums over ranks are counted, and nothing is sent.

    size: ranks.
    sums: bytes of each all-reduce since the list was emptied.

    All-reduces by `mpcourse.collectives.allreduce`, by what is built on it (`mpcourse.model_parallel`,
    `mpcourse.grid`), and by mpi4py's own Allreduce are counted.
    Raises UserError for any other message, because it needs data.
    """

    rank = 0

    def __init__(self, size: int) -> None:
        self.size = size
        self.sums: list[int] = []

    def __repr__(self) -> str:
        return f"<CountingComm of {self.size} ranks>"

    def __deepcopy__(self, memo: dict) -> "CountingComm":
        return self  # sums in a copied layer are counted, too

    def count_sum(self, nbytes: int) -> None:
        """Count an all-reduce; `mpcourse.collectives.allreduce` calls this instead of sending.

        nbytes: size of what is summed.
        """
        self.sums.append(nbytes)

    def all_reduce(self, x: torch.Tensor, op: Any = None, wait: bool = True) -> torch.Tensor:
        """Count a sum of `mpcourse.tensor_parallel`, and return a tensor like the sum.

        x: what is summed.
        op: ignored.
        wait: ignored.
        """
        self.count_sum(x.nbytes)
        return torch.empty_like(x)

    def reduce_scatter(self, x: torch.Tensor) -> torch.Tensor:
        """Count a reduce-scatter as an all-reduce, together with the all-gather that belongs to it.

        x: (rows, ...), what is summed.
        """
        self.count_sum(x.nbytes)
        return x.new_empty((len(x) // self.size, *x.shape[1:]))

    def all_gather(self, x: torch.Tensor) -> torch.Tensor:
        """Return a tensor like the gathered one. Its reduce-scatter is counted as a whole all-reduce.

        x: this rank's rows.
        """
        return x.new_empty((len(x) * self.size, *x.shape[1:]))

    def count_gather(self, nbytes: int) -> None:
        """Count an all-gather of a context axis, which has no all-reduces.

        nbytes: what each rank has afterwards.
        """
        self.sums.append(nbytes)

    def Allreduce(self, sendbuf: Any, recvbuf: Any, op: Any = None) -> None:
        self.count_sum(recvbuf.nbytes)

    def Get_rank(self) -> int:
        return self.rank

    def Get_size(self) -> int:
        return self.size

    def Barrier(self) -> None:
        """Return at once: there is no other rank to wait for."""

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise UserError(f"a plan runs one rank of the tensor axis alone, and counts its all-reduces: it has no {name}")
