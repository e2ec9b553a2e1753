"""Two training steps in a dry box, and what the second one held, moved and took."""

import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import torch
import torch.nn as nn

from mpcourse.common.errors import UserError
from mpcourse.predict.inputs import Arguments, Inputs
from mpcourse.predict.load import blame, built
from mpcourse.predict.loss import UsualLoss
from mpcourse.predict.place import balanced, children, moved, place, stages
from mpcourse.predict.sharded import check_sharding, sharded
from mpcourse.virtual import GPU, Box, busy, virtual_gpus
from mpcourse.virtual.gpus.ledger import size
from mpcourse.virtual.specs import Link, find_gpu, link_between

OPTIMIZERS: dict[str, tuple[Callable[..., torch.optim.Optimizer], int]] = {  # with tensors of state per parameter
    "sgd": (lambda p: torch.optim.SGD(p, lr=0.01), 0),
    "momentum": (lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9), 1),
    "adam": (torch.optim.Adam, 2),
    "adamw": (torch.optim.AdamW, 2),
}
PRECISIONS = ("float32", "autocast", "half")
_ROOMY = 2**60  # bytes: a card on which everything fits


@dataclass(frozen=True)
class Device:
    """What one device held and did in a step. All sizes are in bytes.

    device: its name.
    children: names of the model's children on it.
    peak: by kind, when it is fullest.
    kept: by kind, after the step.
    allocated: the sum of `peak`.
    reserved: by the caching allocator.
    context: CUDA's.
    total: with the CUDA context, as nvidia-smi shows it.
    capacity: what the GPU has.
    fits: whether that is enough.
    busy: the part of the step during which it computed, 0 to 1; None: the step does not fit.
    flops: of one step.
    traffic: bytes that operations of one step read and write.
    operations: number of operations in one step.
    """

    device: str
    children: list[str]
    peak: dict[str, int]
    kept: dict[str, int]
    allocated: int
    reserved: int
    context: int
    total: int
    capacity: int
    fits: bool
    busy: float | None
    flops: int
    traffic: int
    operations: int


@dataclass(frozen=True)
class Prediction:
    """A step of training.

    batch: shape of the input.
    gpu: its name.
    link: between two devices, its name.
    optimizer: its name.
    fits: whether the step fits on all devices.
    cut: the children after which the model was cut.
    chosen: whether the cut was chosen here, and not given.
    devices: what each held and did.
    seconds: of the step; None where it does not fit.
    copies: bytes over each link and direction between devices.
    across_cut: bytes over all links.
    out_of_memory: why the step does not fit; then the bytes of the devices are those that it would need. None: it fits.
    zero: the stage of ZeRO, 0 without it.
    ranks: number of ranks that share what is sharded; 1 without ZeRO.
    sent: bytes that each rank sends in a step, by collective call; their time is not in `seconds`.
    precision: one of PRECISIONS.
    loss: its name.
    peak: FLOP/s of products in this precision, of all devices, by the data sheet.
    """

    batch: list[int]
    gpu: str
    link: str
    optimizer: str
    fits: bool
    cut: list[str]
    chosen: bool
    devices: list[Device]
    seconds: float | None
    copies: dict[str, int]
    across_cut: int
    out_of_memory: str | None
    zero: int
    ranks: int
    sent: dict[str, int]
    precision: str
    loss: str
    peak: float

    def as_dict(self) -> dict[str, Any]:
        """Return plain lists and numbers, for JSON."""
        return asdict(self)


def predict(
    make: Callable[[], object],
    batch: Sequence[int],
    gpu: str | GPU = "Tesla P100-SXM2",
    gpus: int = 1,
    *,
    link: str | None = None,
    cut: Sequence[str] = (),
    optimizer: str = "sgd",
    tokens: int | None = None,
    zero: int = 0,
    ranks: int = 1,
    inputs: Callable[[int], Any] | None = None,
    precision: str = "float32",
) -> Prediction:
    """Predict what a training step of a model holds, moves and takes on virtual GPUs.

    make: returns the model.
    batch: shape of the input, float32, or with `tokens` int64.
    gpu: a name of `mpcourse.virtual.GPUS`, or a GPU.
    gpus: their number, 1 or more.
    link: a name of `mpcourse.virtual.LINKS`, between any two GPUs; None: "NVLink 1", or through the host where the GPUs
    have no peers.
    cut: the children after which the model is cut, one less than devices; empty: chosen so that the device that holds
    most (weights, their gradients and optimizer state, activations) holds as little as possible.
    optimizer: one of OPTIMIZERS.
    tokens: the size of the vocabulary; None: the input does not consist of tokens.
    zero: the stage of ZeRO (`mpcourse.zero`), on one GPU; 0: nothing is sharded.
    ranks: number of ranks that share what is sharded; this is one of them.
    inputs: takes a number of examples, returns what the model takes: a tensor, a tuple, or a dict by names. `batch` is
    that number alone then. None: the model takes one tensor.
    precision: one of PRECISIONS: "float32"; "autocast", with weights in float32 and products in half precision;
    "half", with weights, gradients and the optimizer's state in half precision, too.

    Half precision is bfloat16, or float16 on a GPU without it. The loss is the one that such an output usually has
    (`UsualLoss`). A model that does not fit is a result, and no error.
    Raises UserError for impossible arguments and for a model that fails.
    """
    spec = find_gpu(gpu)
    joined = link_between([spec], link)
    if gpus < 1:
        raise UserError(f"--gpus {gpus}: at least one is needed")
    check_sharding(zero, ranks, gpus)
    if not batch or min(batch) < 1:
        raise UserError(f"--batch {' '.join(map(str, batch))}: a shape is one or more whole numbers from 1 on")
    if tokens is not None and tokens < 1:
        raise UserError(f"--tokens {tokens}: a vocabulary has one token at least")
    if precision not in PRECISIONS:
        raise UserError(f"--precision {precision}: choose from {', '.join(PRECISIONS)}")
    half = torch.float16 if spec.capability < (8, 0) else torch.bfloat16
    own = half if precision == "half" else torch.float32
    x, kind = _input(batch, tokens, inputs, own)
    task = _Task(x, UsualLoss(kind), half if precision == "autocast" else None)

    def made() -> nn.Module:
        return built(make).to(own)

    model = made()
    _check_model(model, tokens)
    names, cuts, chosen = list(children(model)), list(cut), gpus > 1 and not cut
    if chosen:
        cuts = balanced(_memory_of_children(model, task, replace(spec, memory=_ROOMY), OPTIMIZERS[optimizer][1]), gpus)
        model = made()  # anew, because the other one was left in its box
    parts = stages(names, cuts, gpus)
    refusal = None
    if zero:  # until it is sharded, the model may be larger than the GPU
        run = _train(model, task, parts, replace(spec, memory=_ROOMY), joined, optimizer, zero, ranks)
        if run.devices[0].total > spec.memory:
            refusal = f"{run.devices[0].device} is out of memory: a {spec.name} has {size(spec.memory)}"
    else:
        try:
            run = _train(model, task, parts, spec, joined, optimizer)
        except torch.OutOfMemoryError as error:
            refusal = str(error)
            run = _train(made(), task, parts, replace(spec, memory=_ROOMY), joined, optimizer)
    full = refusal and int(re.findall(r"\d+", refusal)[0])  # "vgpu:1 is out of memory: ..."
    devices = []
    for i, device in enumerate(run.devices):
        fits = i != full and device.allocated + device.context <= spec.memory
        devices.append(replace(device, capacity=spec.memory, fits=fits, busy=None if refusal else device.busy))
    seconds = None if refusal else run.seconds
    return Prediction(
        list(batch), spec.name, joined.name, optimizer, refusal is None, cuts, chosen, devices, seconds, run.copies,
        sum(run.copies.values()), refusal, zero, ranks, run.sent, precision, task.loss.name,
        gpus * spec.peak(torch.float32 if precision == "float32" else half)[0],
    )  # fmt: skip


@dataclass(frozen=True)
class _Task:
    """What a model is trained on.

    given: what it takes, positions and keywords, on the meta device.
    loss: takes its output.
    autocast: the type of products, where it is not that of weights.
    """

    given: Arguments
    loss: UsualLoss
    autocast: torch.dtype | None

    @property
    def shapes(self) -> str:
        args, kwargs = self.given
        return ", ".join("x".join(map(str, x.shape)) for x in (*args, *kwargs.values()) if isinstance(x, torch.Tensor))


def _input(
    batch: Sequence[int], tokens: int | None, inputs: Callable[[int], Any] | None, dtype: torch.dtype
) -> tuple[Arguments, bool]:
    """Return what the model takes, and whether it holds tokens."""
    if inputs is not None:
        if len(batch) != 1 or tokens is not None:
            raise UserError("with inputs from a function, --batch is a number of examples, and --tokens has no meaning")
        example = Inputs(inputs)
        return example.batch(batch[0], dtype), example.tokens
    try:
        x = torch.empty(*batch, dtype=dtype if tokens is None else torch.int64, device="meta")
    except RuntimeError as error:
        raise UserError(f"--batch {' '.join(map(str, batch))}: {error}") from None
    return ((x,), {}), tokens is not None


@dataclass(frozen=True)
class _Run:
    devices: list[Device]
    seconds: float
    copies: dict[str, int]
    sent: dict[str, int]


def _train(
    model: nn.Module, task: _Task, parts: list[list[str]], spec: GPU, link: Link, optimizer: str, zero: int = 0,
    ranks: int = 1,
) -> _Run:  # fmt: skip
    """Run two steps; return the second. Raises torch.OutOfMemoryError where it does not fit."""
    with virtual_gpus(len(parts), spec, link, dry=True) as box:
        box.assumes = True  # where code asks whether a mask hides anything
        args, kwargs = task.given
        try:
            place(model, parts, box.devices)
            make_optimizer = OPTIMIZERS[optimizer][0]
            opt: Any
            if zero:
                opt = sharded(make_optimizer, model, zero, ranks)
            else:
                opt = make_optimizer([p for p in model.parameters() if p.requires_grad])
            train_step(model, args, opt, box.devices[0], kwargs, task.loss, task.autocast)
            if zero:
                opt.comm.sent.clear()
                for allocator in box.ledger.allocators:
                    allocator.empty_cache()  # of the whole model
            box.reset()  # the first step made the optimizer's state and the workspaces
            start = box.now
            train_step(model, args, opt, box.devices[0], kwargs, task.loss, task.autocast)
            seconds = box.synchronize() - start
        except UserError:
            raise
        except Exception as error:
            if isinstance(error, torch.OutOfMemoryError) and spec.memory < _ROOMY:
                raise
            raise _failed(model, task, error) from None
        devices = [_device(box, i, part, seconds) for i, part in enumerate(parts)]
        copies: dict[str, int] = {}
        for e in box.copies:
            if "cpu" not in e.lane:
                copies[e.lane] = copies.get(e.lane, 0) + e.nbytes
        return _Run(devices, seconds, copies, opt.comm.sent if zero else {})


def train_step(
    model: nn.Module,
    x: torch.Tensor | tuple,
    optimizer: Any,
    device: torch.device,
    kwargs: dict[str, Any] | None = None,
    loss: Callable[[Any], torch.Tensor] | None = None,
    autocast: torch.dtype | None = None,
) -> None:
    """Run one step: copy the batch to a device, forward, the loss, backward, update.

    model: its output is a tensor, or a tuple or dict with one.
    x: a batch, on any device, or a tuple of what the model takes.
    optimizer: of the model's parameters, one of torch's or of ZeRO's.
    device: the model takes its input there.
    kwargs: what else the model takes, by names.
    loss: takes the output, returns a scalar; None: the usual one where the input holds no tokens.
    autocast: the type of products, where it is not that of weights.
    Raises UserError for an output without a tensor, or one that depends on no parameter.
    """
    optimizer.zero_grad()
    args = x if isinstance(x, tuple) else (x,)
    given, named = moved(args, device), moved(kwargs or {}, device)
    with torch.autocast(device.type, autocast or torch.bfloat16, enabled=autocast is not None):
        value = (loss or UsualLoss(False))(model(*given, **named))
    value.backward()
    optimizer.step()


def _device(box: Box, index: int, part: list[str], seconds: float) -> Device:
    peak, spec = box.ledger.peak(index), box.gpus[index]
    reserved = box.ledger.allocators[index].max_reserved
    work = [e for e in box.events if e.lane == box.names[index]]
    return Device(
        box.names[index], part, peak.kinds, box.ledger.kinds(index), peak.nbytes, reserved, spec.context,
        reserved + spec.context, spec.memory, True, busy(work, box.names[index]) / seconds,
        sum(e.flops for e in work), sum(e.nbytes for e in work), len(work),
    )  # fmt: skip


def _memory_of_children(model: nn.Module, task: _Task, roomy: GPU, states: int) -> dict[str, int]:
    """Return the bytes that a step needs for each child: weights, gradients, optimizer state, activations."""
    nbytes_of = {name: _weights(child) * (2 + states) for name, child in children(model).items()}
    with virtual_gpus(1, roomy, dry=True) as box:
        box.assumes = True
        model.to("vgpu:0")
        for name, child in children(model).items():

            def count(module: nn.Module, args: object, out: object = None, name: str = name, sign: int = 1) -> None:
                nbytes_of[name] += sign * box.ledger.used[0]

            child.register_forward_pre_hook(partial(count, sign=-1))
            child.register_forward_hook(count)
        try:
            args, kwargs = moved(task.given, box.devices[0])
            model(*args, **kwargs)
        except Exception as error:
            raise _failed(model, task, error) from None
    return {name: max(0, nbytes) for name, nbytes in nbytes_of.items()}


def _weights(module: nn.Module) -> int:
    return sum(p.nbytes for p in module.parameters())


def _failed(model: nn.Module, task: _Task, error: Exception) -> UserError:
    return UserError(f"a step of {type(model).__name__} on a {task.shapes} batch failed: {blame(error)}")


def _check_model(model: nn.Module, tokens: int | None) -> None:
    if not any(p.requires_grad for p in model.parameters()):
        raise UserError(f"{type(model).__name__} has no parameter to train")
    rows = [m.num_embeddings for m in model.modules() if isinstance(m, nn.Embedding)]
    if tokens is not None and rows and tokens > max(rows):
        raise UserError(f"--tokens {tokens}: the model's largest embedding has {max(rows)} rows")
