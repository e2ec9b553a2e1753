"""What the parts of a user's own model cost, by running its code on a virtual GPU without data."""

import contextlib
import copy
import inspect
import sys
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_map

from mpcourse.common.errors import UserError
from mpcourse.plan.blocks import find_blocks
from mpcourse.plan.configuration import Experts
from mpcourse.plan.cost import LayerCost
from mpcourse.plan.counting import CountingComm
from mpcourse.plan.probe import Known, Loss, Part, Probe, structure
from mpcourse.predict.inputs import Example
from mpcourse.predict.load import blame
from mpcourse.virtual import GPU, virtual_gpus

_ROOMY = 2**60  # bytes: a card on which everything fits
Make = Callable[..., object]


class Indivisible(Exception):
    """A size of the tensor axis by which the model cannot be divided."""


class Layers:
    """The parts of a model, and what they cost on a GPU.

    make: takes the communicator of the tensor axis, or None where there is one rank. If it takes nothing, tensor is 1.
    It returns a model, an nn.Module that trains on one GPU.
    example: one example of the model's input.
    gpu: parts run on it, virtually.
    context: the communicator with which the layers were made along the context axis, whose ranks have a part of each
    sequence; `example` is one rank's part. None: there is no such axis.
    expert: likewise along the expert axis, whose ranks have different experts; modules of the class
    `configuration.Experts` hold them. None: there is no such axis.
    loss: takes the model's output, returns a scalar; None: its time and memory are left out.
    blocks: names of the model's blocks, or of lists of them; empty: they are found (`find_blocks`).
    precision: one of PRECISIONS (states.py).
    selective: whether selective recomputation is measured, too, which takes as long again.
    runs: number of blocks that were run so far. Blocks of equal structure are run once for a micro-batch.
    """

    def __init__(
        self,
        make: Make,
        example: Example,
        gpu: GPU,
        context: CountingComm | None = None,
        expert: CountingComm | None = None,
        loss: Loss | None = None,
        blocks: Sequence[str] = (),
        precision: str = "mixed",
        selective: bool = True,
    ) -> None:
        self.make, self.example, self.loss, self.named = make, example, loss, blocks
        self.context, self.expert = context, expert
        self.gpu = replace(gpu, memory=_ROOMY, workspace=0, by_shape=gpu.multiprocessors > 0)
        # Tensor cores of a V100 have only float16.
        half = torch.float16 if gpu.capability < (8, 0) else torch.bfloat16
        self.dtype = half if precision in ("mixed", "half") else torch.float32
        self.autocast = half if precision == "autocast" else None
        self.precision, self.selective = precision, selective
        self.runs = 0
        self._models: dict[int, _Model] = {}
        self._parts: dict[tuple[int, int], list[Part]] = {}

    @property
    def ranks_of_a_sequence(self) -> int:
        """Size of the context axis; 1: there is none."""
        return 1 if self.context is None else self.context.size

    @property
    def ranks_of_experts(self) -> int:
        """Size of the expert axis; 1: there is none."""
        return 1 if self.expert is None else self.expert.size

    def of_experts(self, tensor: int) -> frozenset[int]:
        """Return which parameters are experts', by identity, as `parts` has them.

        tensor: ranks of the tensor axis.
        Raises Indivisible for a tensor size that the model cannot have, UserError for a model that fails.
        """
        return self._model(tensor).of_experts

    def parts(self, tensor: int, microbatch: int) -> list[Part]:
        """Return the parts of the model, in the order in which they run.

        tensor: ranks of the tensor axis.
        microbatch: examples.
        Raises Indivisible for a tensor size that the model cannot have, UserError for a model that fails.
        """
        if (tensor, microbatch) not in self._parts:
            self._parts[tensor, microbatch] = self._measured(self._model(tensor), microbatch)
        return self._parts[tensor, microbatch]

    def costs(self, tensor: int, microbatch: int) -> list[LayerCost]:
        """Return the cost of each part, in the order in which they run.

        tensor: ranks of the tensor axis.
        microbatch: examples.
        Raises Indivisible for a tensor size that the model cannot have, UserError for a model that fails.
        """
        return [part.cost for part in self.parts(tensor, microbatch)]

    def structures(self, tensor: int) -> list[Hashable]:
        """Return, for each part, a value that is equal for parts that compute alike.

        tensor: ranks of the tensor axis.
        Raises Indivisible for a tensor size that the model cannot have, UserError for a model that fails.
        """
        return [part.structure for part in self.parts(tensor, 1)]

    def count(self, tensor: int = 1) -> int:
        """Return how many trained parameters one rank of the tensor axis has, with those of all experts.

        tensor: ranks of the tensor axis.
        Raises Indivisible for a tensor size that the model cannot have, UserError for a model that fails.
        """
        model, own = self._model(tensor), self.ranks_of_experts
        return sum(
            p.numel() * (own if id(p) in model.of_experts else 1) for p in model.on_gpu.parameters() if p.requires_grad
        )

    def frozen(self) -> int:
        """Return how many parameters are not trained.

        Raises UserError for a model that fails.
        """
        return sum(p.numel() for p in self._model(1).module.parameters() if not p.requires_grad)

    def _model(self, tensor: int) -> "_Model":
        if tensor not in self._models:
            self._models[tensor] = _Model(self.make, tensor, self.dtype, self.gpu, self.named)
        return self._models[tensor]

    def _measured(self, model: "_Model", microbatch: int) -> list[Part]:
        args, kwargs = self.example.batch(microbatch, self.dtype)
        with model.box:
            comms = model.comm, self.context, self.expert
            probe = Probe(model.box, model.on_gpu, model.blocks, model.structures, *comms, model.known, self.selective)
            region = torch.autocast("vgpu", self.autocast or torch.bfloat16, enabled=self.autocast is not None)
            try:
                return probe.parts(tree_map(_moved, args), tree_map(_moved, kwargs), self.loss, region)
            except UserError:
                raise
            except Exception as error:
                shapes = ["x".join(map(str, x.shape)) for x in (*args, *kwargs.values()) if isinstance(x, torch.Tensor)]
                what = f"a step of {type(model.module).__name__} on {' and '.join(shapes)} failed"
                raise UserError(f"{what}: {blame(error)}") from None
            finally:
                self.runs += probe.runs


def _moved(x: Any) -> Any:
    return x.to("vgpu:0").detach().requires_grad_(x.requires_grad) if isinstance(x, torch.Tensor) else x


class _Model:
    """The model as one rank of the tensor axis has it, without data."""

    def __init__(self, make: Make, tensor: int, dtype: torch.dtype, gpu: GPU, named: Sequence[str]) -> None:
        self.comm = CountingComm(tensor) if tensor > 1 else None
        self.module = _built(make, self.comm).to(dtype)
        self.box = virtual_gpus(1, gpu, dry=True)
        self.box.assumes = True  # where code asks whether a mask hides anything
        self.blocks = find_blocks(self.module, named)
        kinds: dict[Hashable, int] = {}  # a number stands for each structure, which is large
        structures = [structure(self.module.get_submodule(name)) for name in self.blocks]
        self.structures = [kinds.setdefault(kind, len(kinds)) for kind in structures]
        self.known: dict[Hashable, Known] = {}
        with self.box:
            self.on_gpu = copy.deepcopy(self.module).to("vgpu:0")
        mixtures = [module for module in self.on_gpu.modules() if isinstance(module, Experts)]
        self.of_experts = frozenset(id(p) for module in mixtures for p in module.parameters())


def _built(make: Make, comm: CountingComm | None) -> nn.Module:
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
    if not isinstance(model, nn.Module):
        raise UserError(f"{name}() must return a torch.nn.Module: it returned {type(model).__name__}")
    if not any(p.requires_grad for p in model.parameters()):
        raise UserError(f"{name}() returned a {type(model).__name__} that has no parameter to train")
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
