"""Gradients that are averaged over ranks approximately, with fewer bytes: PowerSGD, and one bit for each number.

    compressed = PowerSGD(comm, columns=2)  # on all ranks
    loss.backward()
    compressed.mean_gradients(model)  # instead of a communicator's
    optimizer.step()

With **error feedback**, what a rank's message leaves out is not lost: the rank adds it to its gradient of the next step
(Frank Seide and others, 1-Bit Stochastic Gradient Descent, Interspeech 2014).
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch

from mpcourse.collectives.tensors import all_gather, all_reduce
from mpcourse.common.comm import Comm
from mpcourse.data_parallel.parameters import Model, same_tensors, trained_parameters

Tensor = torch.Tensor


class Compression(ABC):
    """The mean of gradients over ranks, approximately. All ranks make one together, with the same arguments.

    comm: mpi4py's communicator, or a virtual rank's.
    feedback: whether a rank adds to its gradients what its messages have left out so far.
    """

    def __init__(self, comm: Comm, feedback: bool = True) -> None:
        self.comm, self.feedback = comm, feedback
        self.parameters: list[Tensor] = []
        self.errors: list[Tensor] = []  # for each parameter, what this rank's messages have left out so far

    @torch.no_grad()
    def mean_gradients(self, model: Model) -> None:
        """Replace each parameter's gradient by its approximate mean, the same on all ranks, which all call this.

        model: a module, or its parameters, by name or in a list; the same on all ranks, and in each step. Gradients
        are float32 or float64. One that a rank does not have (None) counts as zeros.
        Raises ValueError for other parameters than in the first step, to which the errors belong; for a sparse gradient
        or one of another dtype.
        """
        parameters = list(trained_parameters(model).values())
        if not self.parameters:
            if wrong := {p.dtype for p in parameters} - {torch.float32, torch.float64}:
                raise ValueError(f"gradients of {wrong.pop()} are not compressed: float32 or float64")
            self.parameters, self.errors = parameters, [torch.zeros_like(p) for p in parameters]
        if not same_tensors(parameters, self.parameters):
            raise ValueError("these are not the parameters of the first step: new ones need a new compression")
        wanted = [e if p.grad is None else p.grad + e for p, e in zip(parameters, self.errors, strict=True)]
        means, sent = self.compress(wanted)
        if self.feedback:
            self.errors = [w - s for w, s in zip(wanted, sent, strict=True)]
        for p, mean in zip(parameters, means, strict=True):
            p.grad = mean

    @abstractmethod
    def compress(self, wanted: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        """Return approximate means over ranks, and this rank's part in them: what `wanted` has become in its message.

        wanted: of this rank, a tensor for each parameter.
        """


class PowerSGD(Compression):
    """Each matrix is approximated by a product of two thin ones, and only these are summed over ranks.

    comm: mpi4py's communicator, or a virtual rank's.
    columns: of the thin matrices, the rank of the approximation. A matrix (n, m) with n m <= columns (n + m) is
    averaged as it is, like all vectors. A convolution's weight is a matrix with a row for each output channel.
    feedback: whether a rank adds to its gradients what its messages have left out so far.
    seed: of the first thin matrices, the same on all ranks.

    M is approximated by P Q'. First P = M Q, with the Q of the step before, and P's columns are made orthonormal; then
    Q = M' P. This is a step of power iteration, which over the steps finds the largest singular vectors. Both products
    are linear in M, so an all-reduce of P and another one of Q average them over ranks. What is averaged as it is
    travels with P. Along a ring, a rank sends 2 (p - 1) / p times the bytes of all this.
    Source: Thijs Vogels, Sai Praneeth Karimireddy, Martin Jaggi, PowerSGD (2019), https://arxiv.org/abs/1905.13727.
    """

    def __init__(self, comm: Comm, columns: int = 1, feedback: bool = True, seed: int = 0) -> None:
        """Raise ValueError for less than one column."""
        if columns < 1:
            raise ValueError(f"columns={columns}: an approximation has a rank of 1 or more")
        super().__init__(comm, feedback)
        self.columns, self.draw = columns, torch.Generator().manual_seed(seed)
        self.qs: list[Tensor] = []  # of the last step, for each matrix that is approximated

    def compress(self, wanted: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        matrices = [w.flatten(1) for w in wanted if self.is_thin(w)]
        others = [w for w in wanted if not self.is_thin(w)]
        if not self.qs:
            self.qs = [torch.randn(m.shape[1], self.columns, generator=self.draw).to(m) for m in matrices]
        first = self._mean([m @ q for m, q in zip(matrices, self.qs, strict=True)] + others)
        ps = [torch.linalg.qr(p).Q for p in first[: len(matrices)]]
        own = [m.T @ p for m, p in zip(matrices, ps, strict=True)]
        self.qs = self._mean(own)
        means, sent = (iter([p @ q.T for p, q in zip(ps, qs, strict=True)]) for qs in (self.qs, own))
        averaged = iter(first[len(matrices) :])
        return (
            [next(means).view_as(w) if self.is_thin(w) else next(averaged) for w in wanted],
            [next(sent).view_as(w) if self.is_thin(w) else w for w in wanted],
        )

    def is_thin(self, x: Tensor) -> bool:
        """Return whether x is approximated: it is a matrix, and has more numbers than two thin ones.

        x: a gradient, or its parameter.
        """
        return x.dim() > 1 and self.columns * (len(x) + x.numel() // len(x)) < x.numel()

    def _mean(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Return the means of tensors over ranks, by one all-reduce."""
        if not tensors:
            return []
        flat = all_reduce(self.comm, torch.cat([x.reshape(-1) for x in tensors])) / self.comm.size
        parts = flat.split([x.numel() for x in tensors])
        return [part.view_as(x) for x, part in zip(tensors, parts, strict=True)]


class Signs(Compression):
    """Of each number, a rank sends only the sign, as one bit; and for each tensor, the mean of its absolute values.

    comm: mpi4py's communicator, or a virtual rank's.
    feedback: whether a rank adds to its gradients what its messages have left out so far.

    Bits cannot be added up in an all-reduce, so each rank gathers the bits of all ranks. For n numbers in k tensors, a
    rank sends p - 1 times n / 8 + 4 k bytes.
    Source: Sai Praneeth Karimireddy and others, Error Feedback Fixes SignSGD (2019), https://arxiv.org/abs/1901.09847,
    where the mean of absolute values is the scale of a sign.
    """

    def compress(self, wanted: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        if not wanted:
            return [], []
        bits = pack(torch.cat([(w >= 0).reshape(-1) for w in wanted]))
        scales = torch.stack([w.abs().mean().float() for w in wanted])
        every_bits = [_signs(row, wanted) for row in all_gather(self.comm, bits[None])]
        every_scale = all_gather(self.comm, scales[None])
        every = [
            [scale * sign for scale, sign in zip(of_rank, signs, strict=True)]
            for of_rank, signs in zip(every_scale, every_bits, strict=True)
        ]
        means = [torch.stack(of_ranks).mean(0) for of_ranks in zip(*every, strict=True)]
        return means, every[self.comm.rank]


def _signs(bits: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    """Return tensors of 1 and -1, of the shapes and dtypes of `like`, from packed bits."""
    numbers = unpack(bits)[: sum(x.numel() for x in like)].split([x.numel() for x in like])
    return [(2 * part.to(x.dtype) - 1).view_as(x) for part, x in zip(numbers, like, strict=True)]


BITS = torch.arange(8, dtype=torch.uint8)


def pack(bits: Tensor) -> Tensor:
    """Return eight bits a byte, uint8 (n / 8, rounded up).

    bits: bool (n,).
    """
    padded = torch.nn.functional.pad(bits.to(torch.uint8), (0, -len(bits) % 8))
    return (padded.view(-1, 8) << BITS.to(bits.device)).sum(1, dtype=torch.uint8)


def unpack(packed: Tensor) -> Tensor:
    """Return a number for each bit, 0 or 1, uint8 (8 n,).

    packed: uint8 (n,).
    """
    return (packed[:, None] >> BITS.to(packed.device) & 1).view(-1)
