"""What each layer of a user's own model costs, by running its code on a virtual GPU without data."""

import contextlib
import copy
import inspect
import sys
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from mpcourse.common.errors import UserError
from mpcourse.plan.counting import CountingComm
from mpcourse.predict.load import blame
from mpcourse.virtual import GPU, Box, virtual_gpus

_ROOMY = 2**60  # bytes: a card on which everything fits
Make = Callable[..., object]


@dataclass(frozen=True)
class Input:
    """One example of a model's input.

    shape: of one example, without the batch.
    tokens: whether it holds numbers of tokens, int64. False: floating point.
    """

    shape: tuple[int, ...]
    tokens: bool

    def batch(self, size: int, dtype: torch.dtype) -> torch.Tensor:
        """Make a batch without data, on the meta device.

        size: examples.
        dtype: of its elements, where they are not tokens.
        """
        return torch.empty(size, *self.shape, dtype=torch.int64 if self.tokens else dtype, device="meta")


@dataclass(frozen=True)
class LayerCost:
    """What one layer holds and takes with one micro-batch on one GPU.

    forward: seconds of computing.
    backward: seconds of computing, when gradients are added to existing ones.
    held: bytes that forward leaves behind for backward, with its output.
    working: bytes at the fullest moment of forward and backward, in addition to its input.
    given: bytes of its input.
    output: bytes of its output.
    forward_sums, backward_sums: bytes of each all-reduce along the tensor axis.
    exchanged: bytes of keys and values of whole sequences, which forward gathers along the context axis; backward
    scatters the sum of their gradients.
    """

    forward: float
    backward: float
    held: int
    working: int
    given: int
    output: int
    forward_sums: tuple[int, ...] = ()
    backward_sums: tuple[int, ...] = ()
    exchanged: int = 0


class Indivisible(Exception):
    """A size of the tensor axis by which the model cannot be divided."""


class Layers:
    """The layers of a model, and what they cost on a GPU.

    make: takes the communicator of the tensor axis, or None where there is one rank. If it takes nothing, tensor is 1.
    It returns an nn.Sequential, whose children are the layers.
    example: one example of the model's input.
    gpu: layers run on it, virtually.
    context: the communicator with which the layers were made along the context axis, whose ranks have a part of each
    sequence; `example` is one rank's part. None: there is no such axis.
    runs: number of layers that were run so far. Layers of equal structure are run once for a micro-batch.
    """

    def __init__(self, make: Make, example: Input, gpu: GPU, context: CountingComm | None = None) -> None:
        self.make, self.example, self.context = make, example, context
        self.gpu = replace(gpu, memory=_ROOMY, workspace=0, by_shape=gpu.multiprocessors > 0)
        # Tensor cores of a V100 have only float16.
        self.dtype = torch.float16 if gpu.capability < (8, 0) else torch.bfloat16
        self.runs = 0
        self._models: dict[int, _Model] = {}
        self._costs: dict[tuple[int, int], list[LayerCost]] = {}

    def costs(self, tensor: int, microbatch: int) -> list[LayerCost]:
        """Return the cost of each layer, in order.

        tensor: ranks of the tensor axis.
        microbatch: examples.
        Raises Indivisible for a tensor size that the model cannot have, UserError for a model that fails.
        """
        if (tensor, microbatch) not in self._costs:
            with virtual_gpus(1, self.gpu, dry=True) as box:
                self._costs[tensor, microbatch] = self._measured(box, self._model(tensor), microbatch)
        return self._costs[tensor, microbatch]

    def parameters(self, tensor: int) -> list[dict[int, int]]:
        """Return, for each layer, the number of elements of each trained parameter, by its identity (`id`).

        tensor: ranks of the tensor axis.
        Raises Indivisible for a tensor size that the model cannot have, UserError for a model that fails.
        """
        return self._model(tensor).parameters

    def structures(self, tensor: int) -> list[Hashable]:
        """Return, for each layer, a value that is equal for layers that compute alike.

        tensor: ranks of the tensor axis.
        Raises Indivisible for a tensor size that the model cannot have, UserError for a model that fails.
        """
        return self._model(tensor).structures

    def count(self, tensor: int = 1) -> int:
        """Return how many parameters one rank of the tensor axis has.

        tensor: ranks of the tensor axis.
        Raises Indivisible for a tensor size that the model cannot have, UserError for a model that fails.
        """
        return sum({key: n for layer in self.parameters(tensor) for key, n in layer.items()}.values())

    def _model(self, tensor: int) -> "_Model":
        if tensor not in self._models:
            self._models[tensor] = _Model(self.make, tensor, self.dtype)
        return self._models[tensor]

    def _measured(self, box: Box, model: "_Model", microbatch: int) -> list[LayerCost]:
        costs, known = [], model.known
        x = self.example.batch(microbatch, self.dtype)
        for number, (layer, structure) in enumerate(zip(model.layers, model.structures, strict=True)):
            key = (structure, tuple(x.shape), x.dtype)
            if key not in known:
                self.runs += 1
                try:
                    known[key] = _run(box, layer, x, model.comm, self.context)
                except Exception as error:
                    of = "" if number else f" on a batch of {'x'.join(map(str, x.shape))}"
                    what = f"layer {number} of the model, {type(layer).__name__}, failed{of}"
                    raise UserError(f"{what}: {blame(error)}") from None
            cost, shape, dtype = known[key]
            x = torch.empty(shape, dtype=dtype, device="meta")
            costs.append(cost)
        return costs


class _Model:
    """The model as one rank of the tensor axis has it, without data."""

    def __init__(self, make: Make, tensor: int, dtype: torch.dtype) -> None:
        self.comm = CountingComm(tensor) if tensor > 1 else None
        self.layers = list(_built(make, self.comm).to(dtype))
        self.structures = [_structure(layer) for layer in self.layers]
        self.parameters = [{id(p): p.numel() for p in m.parameters() if p.requires_grad} for m in self.layers]
        self.known: dict[Hashable, tuple[LayerCost, tuple[int, ...], torch.dtype]] = {}


def _built(make: Make, comm: CountingComm | None) -> nn.Sequential:
    name = getattr(make, "__name__", "the function")
    given = _arguments(make, comm)
    if given is None:
        if comm is not None:
            raise Indivisible(f"{name}() takes no communicator, comm, so tensor is 1")
        given = {}
    try:
        with contextlib.redirect_stdout(sys.stderr), torch.device("meta"):
            model = make(**given)
    except ValueError as error:
        if comm is not None:
            raise Indivisible(str(error)) from None
        raise UserError(f"{name}() failed: {blame(error)}") from None
    except (Exception, SystemExit) as error:
        raise UserError(f"{name}() failed, made without data: {blame(error)}") from None
    if not isinstance(model, nn.Sequential) or not len(model):
        what = "one without any" if isinstance(model, nn.Sequential) else type(model).__name__
        raise UserError(
            f"{name}() must return an nn.Sequential, whose layers a plan can cut between: it returned {what}"
        )
    return model


def _arguments(make: Make, comm: CountingComm | None) -> dict[str, Any] | None:
    """Return the communicator, by the name of the parameter that takes it: comm, or the only required one."""
    try:
        parameters = inspect.signature(make).parameters
    except (TypeError, ValueError):
        return None
    needed = [p.name for p in parameters.values() if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD]
    name = "comm" if "comm" in parameters else needed[0] if len(needed) == 1 else None
    return None if name is None else {name: comm}


def _run(
    box: Box, layer: nn.Module, given: torch.Tensor, comm: CountingComm | None, context: CountingComm | None
) -> tuple[LayerCost, tuple[int, ...], torch.dtype]:
    """Run forward and backward of a copy of a layer, which goes with the box; return cost, output's shape and dtype."""
    layer = copy.deepcopy(layer).to("vgpu:0")
    for p in layer.parameters():  # a micro-batch adds its gradients to those of earlier ones
        p.grad = torch.zeros_like(p) if p.requires_grad else None
    x = given.to("vgpu:0").requires_grad_(given.is_floating_point())
    sums = comm.sums if comm is not None else []
    sums.clear()
    exchanged = context.sums if context is not None else []
    exchanged.clear()
    box.reset()
    before = box.ledger.used[0]
    out = layer(x)
    if not isinstance(out, torch.Tensor):
        raise TypeError(f"it returned {type(out).__name__}: a layer between stages returns one tensor")
    forward, held, forward_sums = _seconds(box), box.ledger.used[0] - before, tuple(sums)
    if out.requires_grad:
        out.backward(torch.empty_like(out))
    cost = LayerCost(
        forward, _seconds(box) - forward, held, box.ledger.most[0] - before, given.nbytes, out.nbytes,
        forward_sums, tuple(sums[len(forward_sums) :]), sum(exchanged),
    )  # fmt: skip
    return cost, tuple(out.shape), out.dtype


def _seconds(box: Box) -> float:
    """Return the seconds that the GPU has computed, or the host has enqueued, since the reset: the longer.

    All-reduces copy to the host's memory here; their time is computed elsewhere.
    """
    work = [e for e in box.events if e.lane == box.names[0]]
    return max(sum(e.seconds for e in work), len(work) * box.gpus[0].launch)


def _structure(module: nn.Module) -> Hashable:
    """Return a value that is equal for modules that compute alike: classes, sizes, other contents, tensors by shape."""
    own: list[Hashable] = []
    for name, value in sorted(vars(module).items()):
        if name in ("_parameters", "_buffers"):
            tensors: list[Hashable] = [(n, None if t is None else (tuple(t.shape), t.dtype)) for n, t in value.items()]
            own.append((name, tuple(tensors)))
        elif name == "_modules":
            own.append((name, tuple((n, None if m is None else _structure(m)) for n, m in value.items())))
        elif not name.startswith("_"):
            own.append((name, _plain(value)))
    return type(module), tuple(own)


def _plain(value: Any) -> Hashable:
    if isinstance(value, int | float | str | bool | bytes | None):
        return value
    if isinstance(value, tuple | list):
        return tuple(map(_plain, value))
    return id(value)  # another object may compute differently, so the layer is run once more
