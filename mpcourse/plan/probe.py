"""One training step of a model without data, taken apart into its blocks and what is between them.

Blocks of equal structure compute alike, so only the first one runs, alone, on inputs like those it gets in the model.
In the step of the whole model a stub stands for each block: it returns tensors like the block's, and its backward
returns gradients like the block's. What is left of the step is the rest: embeddings, heads, the loss.
"""

import copy
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, is_dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

from mpcourse.common.errors import UserError
from mpcourse.plan.cost import LayerCost, Selective
from mpcourse.plan.counting import CountingComm
from mpcourse.predict.load import blame
from mpcourse.virtual import Box

Tensor = torch.Tensor
Loss = Callable[[Any], Tensor]
# What selective recomputation saves: results of products, convolutions and attention (Korthikanti et al. 2022, section
# 5, saves all but attention; with attention in one kernel, today's trainings save these).
_SAVED = [
    getattr(torch.ops.aten, name).default
    for name in (
        "mm", "addmm", "bmm", "baddbmm", "convolution", "_scaled_dot_product_flash_attention",
        "_scaled_dot_product_efficient_attention", "_scaled_dot_product_cudnn_attention",
    )
]  # fmt: skip


@dataclass(frozen=True)
class Part:
    """Consecutive operations of the model that a pipeline does not cut: a block, with what belongs to it.

    name: of the block; of the rest: "" where there is no block.
    structure: a value that is equal for parts that compute alike.
    cost: of one micro-batch.
    parameters: number of elements of each trained parameter, by its identity (`id`).
    frozen: likewise, of each parameter that is not trained.
    """

    name: str
    structure: Hashable
    cost: LayerCost
    parameters: dict[int, int]
    frozen: dict[int, int]


@dataclass
class _Rest:
    """What runs between two blocks: index i is before block i."""

    forward: float = 0.0
    backward: float = 0.0
    held: int = 0
    working: int = 0
    flops: int = 0
    forward_sums: tuple[int, ...] = ()
    backward_sums: tuple[int, ...] = ()


@dataclass(frozen=True)
class Known:
    """A block that was run.

    cost: what it takes and holds.
    output: what it returned, with each tensor's shape, dtype and need of a gradient in the tensor's place.
    """

    cost: LayerCost
    output: Any

    def selective(self, backward: float, held: int, working: int) -> "Known":
        """Add what selective recomputation takes and holds.

        backward: seconds, with what is computed again.
        held: bytes that forward leaves behind.
        working: bytes at the fullest moment.
        """
        return replace(self, cost=replace(self.cost, selective=Selective(backward, held, working)))


@dataclass(frozen=True)
class _Like:
    """A tensor without its storage."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    needs_gradient: bool

    @staticmethod
    def of(x: Any) -> Any:
        return _Like(tuple(x.shape), x.dtype, x.requires_grad) if isinstance(x, Tensor) else x

    def empty(self) -> Tensor:
        return torch.empty(self.shape, dtype=self.dtype, device="vgpu:0")


class Probe:
    """A step of a model that is on a virtual GPU.

    box: entered; it has one GPU and no data.
    model: on that GPU.
    blocks: names of its blocks.
    structures: of the blocks, equal for those that compute alike.
    comm: the communicator of the tensor axis with which the model was made, or None.
    context, expert: the communicators of the context and the expert axis, or None.
    known: blocks that were run before, by structure and inputs; those that run here are added.
    selective: whether selective recomputation is measured, too.
    """

    def __init__(
        self,
        box: Box,
        model: nn.Module,
        blocks: Sequence[str],
        structures: Sequence[Hashable],
        comm: CountingComm | None,
        context: CountingComm | None,
        expert: CountingComm | None,
        known: dict[Hashable, Known],
        selective: bool,
    ) -> None:
        self.box, self.model, self.known = box, model, known
        self.comm, self.context, self.expert = comm, context, expert
        self.selective = selective
        self.names, self.structures = list(blocks), dict(zip(blocks, structures, strict=True))
        self.runs = 0
        self.order: list[str] = []  # of blocks, as they are called
        self.again: set[str] = set()  # blocks that the model itself runs once more in backward
        self._in_backward = False
        self._costs: list[LayerCost] = []
        self._rests: list[_Rest] = []
        self._base = 0  # bytes that were used when the present piece of the rest began
        self._uses = _Uses(box)

    def parts(
        self, args: tuple, kwargs: dict[str, Any], loss: Loss | None, region: AbstractContextManager[Any] | None = None
    ) -> list[Part]:
        """Run the step; return the parts of the model in the order in which they ran.

        args, kwargs: what the model takes, on the GPU.
        loss: takes the model's output, returns a scalar; None: backward begins with a gradient of the output.
        region: forward and the loss run in it, as in autocast; None: in none.
        Raises UserError for a model that fails.
        """
        stubs = [(name, *_holder(self.model, name)) for name in self.names]
        own = {name: holder._modules[key] for name, holder, key in stubs}
        try:
            for name, holder, key in stubs:
                holder._modules[key] = _Stub(self, name, own[name])
            inside = {id(p) for block in own.values() if block is not None for p in block.parameters()}
            _add_gradients(p for p in self.model.parameters() if id(p) not in inside)
            self._step(args, kwargs, loss, region or nullcontext())
        finally:
            for name, holder, key in stubs:
                holder._modules[key] = own[name]
            for p in self.model.parameters():
                p.grad = None
        return self._put_together({name: module for name, module in own.items() if module is not None})

    # -- the step --

    def _step(
        self, args: tuple, kwargs: dict[str, Any], loss: Loss | None, region: AbstractContextManager[Any]
    ) -> None:
        self._begin(0)
        with self._uses, region:
            out = self.model(*args, **kwargs)
            value = _gradient_of(out) if loss is None else loss(out)
        self._end_forward()
        self._uses.made([value], 2 * len(self.order))
        if not value.requires_grad:
            raise UserError(f"the model's output, {value.dtype}, depends on no parameter by a gradient")
        gradient = torch.empty_like(value) if loss is None else None
        self._in_backward = True
        self._begin_backward()
        value.backward(gradient)
        self._end_backward(0)

    def _called(self, name: str, block: nn.Module, args: tuple, kwargs: dict[str, Any]) -> Any:
        """Stand for a block: run it, if none like it has run, and return tensors like those that it returns."""
        tensors = [x for x in tree_flatten((args, kwargs))[0] if isinstance(x, Tensor)]
        if self._in_backward:  # a checkpoint of the model's own computes again
            self.again.add(name)
            events = len(self.box.events)
            out = self._returned(self.order.index(name), self._known(name, args, kwargs), tensors)
            del self.box.events[events:]
            return out
        self._end_forward()
        number = len(self.order)
        self.order.append(name)
        self._uses.used(tensors, 2 * number + 1)
        known = self._known(name, args, kwargs)
        if known is None:
            known = self._run(name, block, args, kwargs)
        self._costs.append(replace(known.cost, given=self._uses.between(tensors)))
        out = self._returned(number, known, tensors)
        self._uses.made([x for x in tree_flatten(out)[0] if isinstance(x, Tensor)], 2 * number + 1)
        self._uses.position = 2 * number + 2
        self._begin(number + 1)
        return out

    def _returned(self, number: int, known: Known, given: list[Tensor]) -> Any:
        leaves, shape = tree_flatten(known.output)
        gate = torch.empty((), device="vgpu:0", requires_grad=True)
        made = iter(_Through.apply(self, number, [x for x in leaves if isinstance(x, _Like)], gate, *given))
        return tree_unflatten([next(made) if isinstance(x, _Like) else x for x in leaves], shape)

    # -- the pieces of the rest --

    def _begin(self, number: int) -> None:
        assert number == len(self._rests)
        self._rests.append(_Rest())
        self._clear()
        self._base = self.box.ledger.used[0]

    def _end_forward(self) -> None:
        rest, ledger = self._rests[-1], self.box.ledger
        rest.forward, rest.flops = seconds(self.box), flops(self.box)
        rest.held = max(0, ledger.used[0] - self._base)
        rest.working = ledger.most[0] - self._base
        rest.forward_sums = self._sums()

    def _begin_backward(self) -> None:
        self._clear()
        self._base = self.box.ledger.used[0]

    def _end_backward(self, number: int) -> None:
        rest = self._rests[number]
        rest.backward += seconds(self.box)
        rest.flops += flops(self.box)
        rest.working = max(rest.working, self.box.ledger.most[0] - self._base + rest.held)
        rest.backward_sums += self._sums()

    def _clear(self) -> None:
        self.box.reset()
        for comm in (self.comm, self.context, self.expert):
            if comm is not None:
                comm.sums.clear()

    def _sums(self) -> tuple[int, ...]:
        return tuple(self.comm.sums) if self.comm is not None else ()

    # -- a block alone --

    def _known(self, name: str, args: tuple, kwargs: dict[str, Any]) -> Any:
        return self.known.get(self._key(name, args, kwargs))

    def _key(self, name: str, args: tuple, kwargs: dict[str, Any]) -> Hashable:
        given, shape = tree_flatten((args, kwargs))
        return self.structures[name], str(shape), tuple(_plain(_Like.of(x)) for x in given)

    def _run(self, name: str, block: nn.Module, args: tuple, kwargs: dict[str, Any]) -> Known:
        """Run forward and backward of a block alone, on tensors like those that it is given."""
        self.runs += 1
        key = self._key(name, args, kwargs)
        calls: list[None] = []
        hook = block.register_forward_pre_hook(lambda *_: calls.append(None))
        try:
            plain = torch.autograd.graph.saved_tensors_hooks(_same, _same)  # not those of a checkpoint around the block
            with self._uses.paused(), torch.enable_grad(), plain:
                _add_gradients(block.parameters())
                before = _copied((args, kwargs)) if self.selective else None
                known, first = self._measured(block, args, kwargs)
                checkpointed = len(calls) > 1  # by the model: `forward` is in `backward` already
                if before is not None and not checkpointed:
                    known = self._with_selective(known, block, *before)
        except Exception as error:
            if isinstance(error, UserError):
                raise
            given = [x for x in tree_flatten((args, kwargs))[0] if isinstance(x, Tensor)]
            shapes = ", ".join("x".join(map(str, x.shape)) for x in given)
            what = f"block {name} of the model, {type(block).__name__}, failed on {shapes}"
            raise UserError(f"{what}: {blame(error)}") from None
        finally:
            hook.remove()
            for p in block.parameters():
                p.grad = None
        if checkpointed:
            cost = known.cost
            known = replace(known, cost=replace(cost, again=0.0, kept=cost.held, flops=cost.flops - first))
        self.known[key] = known
        return known

    def _with_selective(self, known: Known, block: nn.Module, args: tuple, kwargs: dict[str, Any]) -> Known:
        """Return what is known of a block with selective recomputation, too; a block that cannot run twice has none."""

        def once(*args: Any, **kwargs: Any) -> Any:
            args, kwargs = _copied((args, kwargs))  # a cache of keys must not grow twice
            return block(*args, **kwargs)

        contexts = partial(create_selective_checkpoint_contexts, _SAVED, allow_cache_entry_mutation=True)
        again = partial(checkpoint, once, use_reentrant=False, context_fn=contexts)
        try:
            cost = self._measured(again, args, kwargs)[0].cost
        except (RuntimeError, TypeError, ValueError):
            return known
        return known.selective(cost.backward, cost.held, cost.working)

    def _measured(self, block: Callable[..., Any], args: tuple, kwargs: dict[str, Any]) -> tuple[Known, int]:
        """Return what a block costs and returns, and the FLOPs of its forward."""
        args, kwargs = tree_map(lambda x: _fresh(x) if isinstance(x, Tensor) else x, (args, kwargs))
        ledger, context = self.box.ledger, self.context.sums if self.context is not None else []
        self._clear()
        before = ledger.used[0]
        out = block(*args, **kwargs)
        forward, held, working = seconds(self.box), ledger.used[0] - before, ledger.most[0] - before
        count = flops(self.box)
        forward_sums, exchanged = self._sums(), sum(context)
        dispatched = () if self.expert is None else tuple(self.expert.sums)
        tensors = [x for x in tree_flatten(out)[0] if isinstance(x, Tensor)]
        output = tree_map(_Like.of, out)
        roots = [x for x in tensors if x.requires_grad]
        gradients = [torch.empty_like(x) for x in roots]
        self._clear()
        if roots:
            torch.autograd.backward(roots, gradients)
        cost = LayerCost(
            forward, seconds(self.box), held, max(working, ledger.most[0] - before), 0, 0,
            forward_sums, self._sums(), exchanged + sum(context), dispatched, again=forward,
            flops=count + flops(self.box),
        )  # fmt: skip
        return Known(cost, output), count

    # -- the result --

    def _put_together(self, blocks: dict[str, nn.Module]) -> list[Part]:
        """Return the parts, with what crosses a cut after each.

        A rest without parameters goes to its neighbour, and parameters that the step does not use to the last part.
        """
        inside = {id(p) for block in blocks.values() for p in block.parameters()}
        parts: list[Part] = []
        ends: list[int] = []
        waiting: LayerCost | None = None  # a rest without parameters before the first block
        for i, rest in enumerate(self._rests):
            used = [p for key, p in self._uses.parameters.get(2 * i, {}).items() if key not in inside]
            cost = LayerCost(
                rest.forward, rest.backward, rest.held, rest.working, 0, 0, rest.forward_sums, rest.backward_sums,
                kept=rest.held, flops=rest.flops,
            )  # fmt: skip
            if used or not self.order:
                parts.append(Part("", ("rest", i), cost, *_sorted(used)))
                ends.append(2 * i)
            elif parts:
                parts[-1] = replace(parts[-1], cost=_together(parts[-1].cost, cost))
                ends[-1] = 2 * i
            else:
                waiting = cost
            if i == len(self.order):
                break
            name = self.order[i]
            own = self._costs[i]
            if name in self.again:
                backward = own.backward + own.forward
                own = replace(own, held=own.given, kept=own.given, backward=backward, again=0.0, selective=None)
            if waiting is not None:
                own, waiting = _together(own, waiting), None
            parts.append(Part(name, self.structures[name], own, *_sorted(blocks[name].parameters())))
            ends.append(2 * i + 1)
        crossing = self._uses.crossing()
        for i, end in enumerate(ends):
            parts[i] = replace(parts[i], cost=replace(parts[i].cost, output=crossing(end)))
        known = {key for part in parts for key in (*part.parameters, *part.frozen)}
        trained, frozen = _sorted(p for p in self.model.parameters() if id(p) not in known)
        last = parts[-1]
        parts[-1] = replace(last, parameters=last.parameters | trained, frozen=last.frozen | frozen)
        return parts


class _Stub(nn.Module):
    """Stands for a block in its model, and has its attributes."""

    def __init__(self, probe: Probe, name: str, block: nn.Module | None) -> None:
        super().__init__()
        self.block, self._probe, self._name = block, probe, name

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        assert self.block is not None
        return self._probe._called(self._name, self.block, args, kwargs)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self.block, name)


class _Through(torch.autograd.Function):
    """What a stub returns: tensors without data, whose gradients become gradients of what the block was given."""

    @staticmethod
    def forward(ctx: Any, probe: Probe, number: int, likes: list[_Like], gate: Tensor, *given: Tensor) -> Any:
        ctx.probe, ctx.number, ctx.given = probe, number, given  # as a block holds its input
        ctx.save_for_backward(gate)  # so that a checkpoint of the model's own computes the block again
        made = tuple(like.empty() for like in likes)
        ctx.made = [x.untyped_storage() for x in made]  # `held` counts a block's output until backward
        ctx.mark_non_differentiable(*(x for x, like in zip(made, likes, strict=True) if not like.needs_gradient))
        return made

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple:
        _ = ctx.saved_tensors
        ctx.probe._end_backward(ctx.number + 1)  # the rest behind this block
        needed = ctx.needs_input_grad[4:]
        back = [torch.empty_like(x) if needs else None for x, needs in zip(ctx.given, needed, strict=True)]
        ctx.given = ctx.made = ()
        ctx.probe._begin_backward()  # of the rest before it
        return None, None, None, None, *back


class _Uses(TorchFunctionMode):
    """Where the step makes its tensors and where it uses them last, in the rest and by the blocks.

    position: of what runs now, 2 i in the rest before block i, 2 i + 1 in block i.
    parameters: that each piece of the rest uses, by identity.
    """

    def __init__(self, box: Box) -> None:
        super().__init__()
        self.box, self.position, self._paused = box, 0, False
        self.parameters: dict[int, dict[int, nn.Parameter]] = {}
        self._spans: dict[Any, list[int]] = {}  # allocation -> [made, last used]
        self._of_blocks: set[Any] = set()
        self._counts: dict[Any, int] = {}  # allocation of consecutive numbers -> one more than the largest

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        if self._paused:
            return func(*args, **kwargs)
        given = [x for x in tree_flatten((args, kwargs))[0] if isinstance(x, Tensor)]
        if func is torch.nn.functional.embedding:
            self._check_table(*args[:2])
        for x in given:
            if isinstance(x, nn.Parameter):
                self.parameters.setdefault(self.position, {})[id(x)] = x
            elif x.requires_grad:
                self._use(x)
        out = func(*args, **kwargs)
        for x in tree_flatten(out)[0]:
            if isinstance(x, Tensor) and x.requires_grad and not isinstance(x, nn.Parameter):
                self._use(x)
        if func is torch.arange and isinstance(out, Tensor) and len(args) <= 2:
            self._counts[self._allocation(out)] = int(args[-1]) if args else int(kwargs["end"])
        return out

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Record nothing in this context."""
        self._paused = True
        try:
            yield
        finally:
            self._paused = False

    def used(self, tensors: Sequence[Tensor], position: int) -> None:
        self.position = position
        for x in tensors:
            if x.requires_grad or self._allocation(x) in self._of_blocks:
                self._use(x)

    def made(self, tensors: Sequence[Tensor], position: int) -> None:
        self.position = position
        for x in tensors:
            self._of_blocks.add(self._allocation(x))
            self._use(x)

    def between(self, tensors: Sequence[Tensor]) -> int:
        """Return the bytes of a block's inputs that the step has computed."""
        found = {self._allocation(x): x.nbytes for x in tensors if self._allocation(x) in self._spans}
        return sum(found.values())

    def crossing(self) -> Callable[[int], int]:
        """Return a function: takes a position, returns the bytes that are made up to it and used after it."""
        spans = [(*span, allocation.nbytes) for allocation, span in self._spans.items() if allocation is not None]
        return lambda end: sum(n for made, last, n in spans if made <= end < last)

    def _use(self, x: Tensor) -> None:
        key = self._allocation(x)
        self._spans.setdefault(key, [self.position, self.position])[1] = self.position

    def _allocation(self, x: Tensor) -> Any:
        block = self.box.block_of(x)
        return None if block is None else block.allocation

    def _check_table(self, numbers: Any, table: Any) -> None:
        if isinstance(numbers, Tensor) and isinstance(table, Tensor):
            count = self._counts.get(self._allocation(numbers), 0)
            if count > len(table):
                raise UserError(
                    f"the model looks up {count} consecutive numbers in a table of {len(table)} rows: the sequence is "
                    "longer than its position embedding"
                )


def seconds(box: Box) -> float:
    """Return the seconds that the GPU has computed, or the host has enqueued, since the reset: the longer.

    box: of one GPU.

    All-reduces copy to the host's memory here; their time is computed elsewhere.
    """
    work = [e for e in box.events if e.lane == box.names[0]]
    return max(sum(e.seconds for e in work), len(work) * box.gpus[0].launch)


def flops(box: Box) -> int:
    """Return the FLOPs since the reset.

    box: of one GPU.
    """
    return sum(e.flops for e in box.events if e.lane == box.names[0])


def _add_gradients(parameters: Iterable[nn.Parameter]) -> None:
    """Give parameters gradients, because a micro-batch adds its own to those of earlier ones."""
    for p in parameters:
        p.grad = torch.zeros_like(p) if p.requires_grad else None


def _copied(given: Any) -> Any:
    """Copy what a block may change beside tensors, such as a cache of keys; None where it cannot be copied."""
    try:
        return tree_map(lambda x: x if isinstance(x, Tensor | nn.Module) else copy.deepcopy(x), given)
    except (RuntimeError, TypeError):  # tensors with a history cannot be copied, for example
        return None


def _same(x: Tensor) -> Tensor:
    return x


def _fresh(x: Tensor) -> Tensor:
    """Return a tensor like x, which a block may change in place: it is no leaf where it needs a gradient."""
    leaf = torch.empty_like(x).requires_grad_(x.requires_grad)
    return _Pass.apply(leaf) if x.requires_grad else leaf


class _Pass(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return torch.empty_like(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> None:
        """End here: a leaf that took the gradient would copy it."""


def _gradient_of(out: Any) -> Tensor:
    found = [x for x in tree_flatten(out)[0] if isinstance(x, Tensor) and x.is_floating_point()]
    if not found:
        raise UserError("the model's output holds no tensor of floating-point numbers")
    return next((x for x in found if x.requires_grad), found[0])


def _together(a: LayerCost, b: LayerCost) -> LayerCost:
    """Return what two neighbours cost as one: a is a block, b a piece of the rest."""
    return replace(
        a,
        forward=a.forward + b.forward,
        backward=a.backward + b.backward,
        held=a.held + b.held,
        kept=a.kept + b.kept,
        flops=a.flops + b.flops,
        selective=None
        if a.selective is None
        else Selective(
            a.selective.backward + b.backward,
            a.selective.held + b.held,
            max(a.selective.working + b.held, b.working + a.selective.held),
        ),
        working=max(a.working + b.held, b.working + a.held),
        forward_sums=a.forward_sums + b.forward_sums,
        backward_sums=a.backward_sums + b.backward_sums,
    )


def _sorted(parameters: Iterable[nn.Parameter]) -> tuple[dict[int, int], dict[int, int]]:
    """Return each trained parameter's number of elements by its identity, and each frozen one's."""
    trained: dict[int, int] = {}
    frozen: dict[int, int] = {}
    for p in parameters:
        (trained if p.requires_grad else frozen)[id(p)] = p.numel()
    return trained, frozen


def _holder(model: nn.Module, name: str) -> tuple[nn.Module, str]:
    path, _, key = name.rpartition(".")
    return model.get_submodule(path), key


def structure(module: nn.Module) -> Hashable:
    """Return a value that is equal for modules that compute alike: classes, sizes, other contents, tensors by shape.

    module: any. Numbers by which a module only counts itself (`layer_idx`) make no difference.
    """
    own: list[Hashable] = []
    for name, value in sorted(vars(module).items()):
        if name in ("_parameters", "_buffers"):
            tensors: list[Hashable] = [
                (n, None if t is None else (tuple(t.shape), t.dtype, t.requires_grad)) for n, t in value.items()
            ]
            own.append((name, tuple(tensors)))
        elif name == "_modules":
            own.append((name, tuple((n, None if m is None else structure(m)) for n, m in value.items())))
        elif not name.startswith("_") and name not in NUMBERS:
            own.append((name, _plain(value)))
    return type(module), tuple(own)


NUMBERS = ("layer_idx", "layer_id", "layer_index", "layer_number", "index", "idx")


def _plain(value: Any) -> Hashable:
    if isinstance(value, int | float | str | bool | bytes | None | _Like):
        return value
    if isinstance(value, tuple | list):
        return tuple(map(_plain, value))
    if isinstance(value, set | frozenset):
        return frozenset(map(_plain, value))
    if isinstance(value, dict):
        return tuple((key, _plain(of)) for key, of in value.items())
    if isinstance(value, partial):
        return value.func, _plain(value.args), _plain(value.keywords)
    if isinstance(value, Tensor):
        return _Like.of(value)  # plans have no data
    if is_dataclass(value) and isinstance(value, Hashable):
        return value
    return id(value)  # another object may compute differently, so the block is run once more
