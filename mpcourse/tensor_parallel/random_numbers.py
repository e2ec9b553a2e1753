"""Random numbers over the ranks of a tensor axis: the same where activations are, different where they are not."""

import torch

from mpcourse.common.comm import Comm

Tensor = torch.Tensor


class Generators:
    """Two generators of each rank (Megatron-LM has them in `tensor_parallel/random.py`).

    comm: the tensor axis's communicator; None: one rank. No message is sent.
    seed: the same on all ranks.
    device: where numbers are drawn.

    alike: draws the same numbers on all ranks, for activations that all ranks have: the results of `sum_out`.
    own: draws other numbers on each rank, for what only this rank has: its heads, and with sequence parallelism its
    rows. If all ranks drew the same here, heads of different ranks would drop the same positions.
    """

    def __init__(self, comm: Comm | None, seed: int = 0, device: torch.device | str = "cpu") -> None:
        self.alike, self.own = torch.Generator(device), torch.Generator(device)
        self.alike.manual_seed(seed)
        self.own.manual_seed(seed + 1 + (0 if comm is None else comm.rank))

    def drawn(self, sequence: bool) -> torch.Generator:
        """Return the generator for activations between the layers.

        sequence: each rank has its own rows of them; otherwise all ranks have the same.
        """
        return self.own if sequence else self.alike

    def state(self) -> tuple[Tensor, Tensor]:
        """Return the states of both, which `set_state` takes."""
        return self.alike.get_state(), self.own.get_state()

    def set_state(self, state: tuple[Tensor, Tensor]) -> None:
        """Continue from a state of both.

        state: as `state` returns it.
        """
        self.alike.set_state(state[0])
        self.own.set_state(state[1])


def dropout(x: Tensor, p: float, generator: torch.Generator) -> Tensor:
    """Set each element to 0 with probability p, and divide the others by 1 - p.

    x: of any shape and floating dtype. For backward a mask of one byte an element is kept.
    p: 0 to less than 1; 0: x itself is returned, and no number is drawn.
    generator: on x's device.
    """
    if p == 0:
        return x
    kept = torch.empty(x.shape, dtype=torch.bool, device=x.device).bernoulli_(1 - p, generator=generator)
    return (x * kept).div_(1 - p)
