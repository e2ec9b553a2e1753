"""ChainerMN's examples of model parallelism, over ranks.

Start it by `mpirun -np 2 python -m mpi4py -m mpcourse.course.examples.model_parallel`.

Source: ChainerMN's documentation, "Model Parallel on ChainerMN", examples 1 to 3. Each function computes one backward
pass over the ranks of a communicator, real or virtual, and the same in one process; it returns the gradients of this
rank's parameters, and what they are in one process, in the same order.
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from mpcourse.common.comm import Comm
from mpcourse.model_parallel import MultiNodeChainList, allgather

Gradients = list[torch.Tensor]


def drawn(*modules: nn.Module) -> tuple[Any, ...]:
    """Return the modules in float64, with parameters that are the same on every rank."""
    draw = torch.Generator().manual_seed(0)
    for module in modules:
        for p in module.double().parameters():
            p.data.copy_(torch.randn(p.shape, generator=draw, dtype=p.dtype) / 3)
    return modules


def numbers(*shape: int, seed: int = 1) -> torch.Tensor:
    """Draw random inputs, the same on every rank, float64."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def gradients(modules: Sequence[nn.Module]) -> Gradients:
    """Return the gradients of all parameters that have one."""
    return [p.grad for module in modules for p in module.parameters() if p.grad is not None]


def mlp(comm: Comm) -> tuple[Gradients, Gradients]:
    """Run example 1: a multilayer perceptron with its first and last part on rank 0, and its middle one on rank 1."""
    x, labels = numbers(7, 4), torch.tensor([0, 2, 1, 1, 0, 2, 0])

    def parts() -> tuple[Any, ...]:
        return drawn(nn.Linear(4, 6), nn.Sequential(nn.Tanh(), nn.Linear(6, 5)), nn.Linear(5, 3))

    first, second, third = parts()
    model = MultiNodeChainList(comm)
    if comm.rank == 0:
        model.add_link(first, rank_in=None, rank_out=1)
        model.add_link(third, rank_in=1, rank_out=None)
        F.cross_entropy(model(x), labels).backward()
    else:
        model.add_link(second, rank_in=0, rank_out=0)
        model().backward()
    whole = parts()
    F.cross_entropy(nn.Sequential(*whole)(x), labels).backward()
    return gradients([model]), gradients([whole[0], whole[2]] if comm.rank == 0 else [whole[1]])


class Encoder(nn.Module):
    """(batch, length, 4) -> the last state of an LSTM: a tuple of two tensors, (1, batch, 5) each."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(4, 5, batch_first=True)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.lstm(x)[1]


class Decoder(nn.Module):
    """From an encoder's state -> (batch, length, 3). given: what the decoder reads, (batch, length, 4)."""

    def __init__(self, given: torch.Tensor) -> None:
        super().__init__()
        self.lstm, self.out, self.given = nn.LSTM(4, 5, batch_first=True), nn.Linear(5, 3), given

    def forward(self, h: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        return self.out(self.lstm(self.given, (h, c))[0])


def encoder_and_decoder(comm: Comm) -> tuple[Gradients, Gradients]:
    """Run example 2: a sequence-to-sequence model, its encoder on rank 0 and its decoder on rank 1."""
    source, given, target = numbers(3, 6, 4), numbers(3, 6, 4, seed=2), numbers(3, 6, 3, seed=3)
    encoder, decoder = drawn(Encoder(), Decoder(given))
    model = MultiNodeChainList(comm)
    if comm.rank == 0:
        model.add_link(encoder, rank_in=None, rank_out=1)
        model(source).backward()
    else:
        model.add_link(decoder, rank_in=0, rank_out=None)
        F.mse_loss(model(), target).backward()
    whole = drawn(Encoder(), Decoder(given))
    F.mse_loss(whole[1](*whole[0](source)), target).backward()
    return gradients([model]), gradients([whole[comm.rank]])


def parallel_convolution(comm: Comm) -> tuple[Gradients, Gradients]:
    """Run example 3: a convolution that spreads its output channels over all ranks and gathers them on every rank.

    Every rank computes the same loss, and losses of ranks are added (see `mpcourse.model_parallel.collective`): so each
    counts 1 / p.
    """
    x, channels = numbers(2, 6, 5, 5), 12
    own = slice(comm.rank * channels // comm.size, (comm.rank + 1) * channels // comm.size)
    (layer,), (whole,) = drawn(nn.Conv2d(6, channels, 3)), drawn(nn.Conv2d(6, channels, 3))
    weight, bias = (p[own].detach().clone().requires_grad_() for p in (layer.weight, layer.bias))
    out = torch.cat(allgather(comm, F.conv2d(x, weight, bias)), 1)
    ((out**3).sum() / comm.size).backward()
    (whole(x) ** 3).sum().backward()
    return [g for g in (weight.grad, bias.grad) if g is not None], [g[own] for g in gradients([whole])]


EXAMPLES = {example.__name__: example for example in (mlp, encoder_and_decoder, parallel_convolution)}


def main() -> None:
    """Run all examples on two ranks, and compare their gradients with one process's."""
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    if comm.size != 2:
        raise SystemExit(
            "start it on two ranks: mpirun -np 2 python -m mpi4py -m mpcourse.course.examples.model_parallel"
        )
    for name, example in EXAMPLES.items():
        gradients, want = example(comm)
        off = max(float((a - b).abs().max()) for a, b in zip(gradients, want, strict=True))
        largest = comm.allreduce(off, MPI.MAX)
        if comm.rank == 0:
            print(f"{name:22} gradients of both ranks are those of one process, to {largest:.0e}")


if __name__ == "__main__":
    main()
