"""What e10_send_recv is asked: values forward, gradients back, on chains of ranks, with the tags that were given."""

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from mpcourse.check.answer import Answer
from mpcourse.check.cases.on_models import Finding, Program, on_real, on_virtual
from mpcourse.check.cases.on_ranks import turned
from mpcourse.check.status_page import HasLogbook
from mpcourse.check.virtual_run import Ran
from mpcourse.check.wrong import first_difference, short

if TYPE_CHECKING:
    from mpcourse.check.traced_mpi import WatchedComm

# Rows of facts: what is asked of a value, the value, and what is right.
Fact = tuple[str, Any, Any]
Inputs = Callable[[], torch.Tensor]


def _matrix() -> torch.Tensor:
    return torch.tensor([[0.5, -1.0, 2.0], [1.5, 0.25, -0.75]], dtype=torch.float64)


INPUTS: dict[str, Inputs] = {
    "a matrix": _matrix,
    "a float32 vector": lambda: torch.tensor([0.5, -2.0, 1.25]),
    "a number, of shape ()": lambda: torch.tensor(1.5, dtype=torch.float64),
    "a transposed matrix, which is not contiguous": lambda: _matrix().T,
    "no elements": lambda: torch.zeros(0, 3, dtype=torch.float64),
}


def check(answer: Answer, comm: "WatchedComm") -> None:
    """On real ranks, every one of which must call this."""
    for ranks in (comm, turned(comm)):  # where a rank is alone, it hands on nothing, and meets the others all the same
        for name in ("a matrix", "a float32 vector", "a transposed matrix, which is not contiguous"):
            on_real(answer, ranks, _chain(name), _judge)
        on_real(answer, ranks, _there_and_back(), _judge)


def check_virtually(answer: Answer, comm: HasLogbook) -> None:
    """On virtual ranks; one process calls this."""
    for name in INPUTS:
        for size in (2, 3, 4):
            asked = f"gradients as of one process, where {size} ranks hand on {name}"
            stumbled = None if name == "a matrix" else (asked, _why_stumbled(name))
            on_virtual(answer, comm, size, _chain(name), _judge, stumbled)
    stumbled = ("gradients as of one process, where ranks send and receive twice", _TWICE)
    for size in (2, 3):
        on_virtual(answer, comm, size, _there_and_back(), _judge, stumbled)
        _judge_tags(on_virtual(answer, comm, size, _two_tags(), _judge, stumbled))


_TWICE = (
    "One backward is of one message: it needs the rank and the tag of its own forward. ctx has them, and no global "
    "variable does when send was called twice."
)


def _why_stumbled(name: str) -> str:
    if "contiguous" in name:
        return "MPI sends memory as it lies: x.contiguous() first, of the tensor and of its gradient."
    if "float32" in name:
        return "The tensor may be float32 or float64: its receiver has to know which."
    return "Any shape may come: a number has the shape (), and a tensor may have no elements."


def _weight(rank: int, like: torch.Tensor) -> torch.Tensor:
    return torch.full_like(like, 0.5 + rank / 4, memory_format=torch.contiguous_format).requires_grad_()


def _layer(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return torch.tanh(x * weight) + x


def _chain_alone(name: str, size: int) -> tuple[list[torch.Tensor], list[torch.Tensor], torch.Tensor]:
    """One process: what each rank hands on, the weights with their gradients, and the input with its own."""
    x = INPUTS[name]().requires_grad_()
    weights = [_weight(rank, x) for rank in range(size)]
    h, handed = x, []
    for weight in weights:
        h = _layer(h, weight)
        handed.append(h.detach())
    h.sum().backward()
    return handed, weights, x


def _chain(name: str) -> Program:
    """Rank 0 -> rank 1 -> ... -> the last, whose loss is a sum: its gradient is one value in memory, expanded."""

    def chain(own: ModuleType, comm: Any) -> list[Fact]:
        rank, last = comm.rank, comm.size - 1
        handed, weights, x = _chain_alone(name, comm.size)
        weight, given = _weight(rank, x), INPUTS[name]().requires_grad_()
        told: list[Fact] = []
        h = given if rank == 0 else own.recv(comm, rank - 1)
        if rank > 0:
            told += _of_tensor(f"what rank {rank} receives from rank {rank - 1}", h, handed[rank - 1])
            if told[-1][1] is not True:
                return told
        out = _layer(h, weight)
        if rank == 0 and "contiguous" in name:
            out = out.T.contiguous().T
        if rank == last:
            out.sum().backward()
        else:
            delegate = own.send(out, comm, rank + 1)
            told += _of_delegate(delegate, out, rank)
            if told[-1][1] is not True:
                return told
            delegate.backward()
        told.append((f"the gradient of rank {rank}'s weight", _numbers(weight.grad), _numbers(weights[rank].grad)))
        if rank == 0:
            told.append(("the gradient of rank 0's input", _numbers(given.grad), _numbers(x.grad)))
        return told

    return _as_one_call(chain)


def _there_and_back() -> Program:
    """Rank 0 -> rank 1 -> ... -> rank 0, where the loss is, and the delegate of what was sent is added to it."""

    def there_and_back(own: ModuleType, comm: Any) -> list[Fact]:
        rank, size = comm.rank, comm.size
        if size == 1:
            return []
        x = _matrix().requires_grad_()
        weights = [_weight(r, x) for r in range(size)]
        h = x
        for w in weights:
            h = _layer(h, w)
        (h**2).sum().backward()
        weight, given = _weight(rank, x), _matrix().requires_grad_()
        if rank == 0:
            delegate = own.send(_layer(given, weight), comm, 1)
            back = own.recv(comm, size - 1)
            ((back**2).sum() + delegate).backward()
        else:
            out = _layer(own.recv(comm, rank - 1), weight)
            own.send(out, comm, (rank + 1) % size).backward()
        return [(f"the gradient of rank {rank}'s weight", _numbers(weight.grad), _numbers(weights[rank].grad))]

    return _as_one_call(there_and_back)


def _two_tags() -> Program:
    """Rank 0 sends two tensors to rank 1, with tags 5 and 6."""

    def two_tags(own: ModuleType, comm: Any) -> list[Fact]:
        a, b = _matrix(), _matrix().T.contiguous()
        wants = {"a": 3 * a**2, "b": torch.full_like(b, 2.0)}
        if comm.rank == 0:
            a.requires_grad_()
            b.requires_grad_()
            first = own.send(a * 1, comm, 1, 5)
            second = own.send(b * 1, comm, 1, 6)
            (first + second).backward()
            told = [
                (f"the gradient of {name}", _numbers(x.grad), wants[name].numpy()) for name, x in (("a", a), ("b", b))
            ]
            return [*told]
        if comm.rank == 1:
            first, second = own.recv(comm, 0, 5), own.recv(comm, 0, 6)
            ((first**3).sum() + (2 * second).sum()).backward()
        return []

    return _as_one_call(two_tags)


def _as_one_call(calls: Callable[[ModuleType, Any], list[Fact]]) -> Program:
    """Ranks meet after each call of a check, which ranks that wait for each other's next call would never do."""

    def program(own: Answer, comm: Any) -> list[Fact]:
        return own.run(lambda comm: calls(own.module, comm), "send, recv and backward", comm)

    return program


def _numbers(x: torch.Tensor | None) -> np.ndarray | None:
    return None if x is None else x.detach().numpy().copy()


def _of_tensor(what: str, got: Any, want: torch.Tensor) -> list[Fact]:
    """Facts about a tensor that was received; the last one is True only where all is well."""
    if not isinstance(got, torch.Tensor):
        return [(f"{what} to be a tensor", short(got), True)]
    if got.shape != want.shape or got.dtype != want.dtype:
        asked = f"{what} to be {want.dtype} of shape {tuple(want.shape)}"
        return [(asked, f"{got.dtype} of shape {tuple(got.shape)}", True)]
    if difference := first_difference(got.detach(), want, what):
        return [(difference[0], difference[1], True)]
    if not got.requires_grad:
        return [(f"{what} to require a gradient", "a tensor that requires none", True)]
    return [(what, True, True)]


def _of_delegate(got: Any, sent: torch.Tensor, rank: int) -> list[Fact]:
    what = f"what send returns on rank {rank}"
    if not isinstance(got, torch.Tensor):
        return [(f"{what} to be a tensor, the delegate", short(got), True)]
    if tuple(got.shape) or float(got.detach()) != 0:
        return [(f"{what} to be the number 0, of shape ()", short(got.detach()), True)]
    if not got.requires_grad:
        return [(f"{what} to be part of x's graph", "a tensor that requires no gradient", True)]
    return [(what, True, True)]


def _judge(results: Sequence[list[Fact]]) -> Finding | None:
    for rank, told in enumerate(results):
        for what, got, want in told:
            if want is True:
                if got is not True:
                    return Finding(rank, what, got, _why_tensor(what, got))
                continue
            if got is None:
                return Finding(
                    rank, what, "None", "No gradient came: Send.backward returns that of x in the first place."
                )
            if difference := first_difference(got, want, what, 1e-6, 1e-9):
                return Finding(rank, *difference, _why_gradient(np.asarray(got), np.asarray(want)))
    return None


def _why_tensor(what: str, got: str) -> str:
    if "part of x's graph" in what:
        return "Is send as it was? Send.apply makes the graph, if x itself goes in, and not x.detach()."
    if "the number 0" in what:
        return "The delegate stands for what x has become elsewhere, and adds nothing to a loss: x.new_zeros(())."
    if "to require" in what:
        return "The anchor goes into Recv.apply so that the result requires a gradient: leave recv as it was."
    if "torch.float64 of" in got or "torch.float32 of" in got:
        return "The receiver has to learn dtype and shape: comm.send pickles an array with both."
    if got == "None" or "None" in got:
        return "Recv.forward returns the tensor that it received."
    return "What arrives is x, as it was sent."


def _why_gradient(got: np.ndarray, want: np.ndarray) -> str:
    if not got.any():
        return "All zeros: backward has to receive the gradient that the other rank's backward sends."
    if np.allclose(got, 1):
        return "All ones: that is not the gradient which the other rank computed. Backward receives it from there."
    if np.allclose(got, 2 * want):
        return "Twice the gradient: it was added to itself, or received by two backward passes."
    if np.allclose(got, -want):
        return "The sign is wrong: what was received is the gradient of x, as it is."
    return "Backward returns what the other rank's backward sent: the gradient of its loss by what it received."


def _judge_tags(ran: Ran) -> None:
    """Raise what tells that gradients travel under other tags than what they are the gradients of."""
    back = {event.name for event in ran.run.events if event.lane == "rank 1 -> rank 0"}
    if back != {"tag 5", "tag 6"}:
        asked = "gradients of what was sent with tags 5 and 6 to be sent back with these tags"
        why = (
            "Two messages that travel at once are told apart by their tags alone: keep the tag in ctx, beside the rank."
        )
        raise ran.wrong(1, asked, " and ".join(sorted(back)) or "no messages", why)
