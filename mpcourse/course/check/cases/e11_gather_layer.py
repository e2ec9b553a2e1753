"""What e11_gather_layer is asked: values of one process, whole weights during calls alone, and few bytes."""

import dataclasses
import functools
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
import torch.fx.experimental.symbolic_shapes  # what a backward that is given gradients imports: before the clock starts

from mpcourse.common.words import counted, named
from mpcourse.course.check.answer import Answer
from mpcourse.course.check.cases.on_models import SIZES, Finding, Program, on_real, on_virtual, one_line
from mpcourse.course.check.facts import chunks
from mpcourse.course.check.facts.chunks import OnAllRanks, chunks_of, kept_array
from mpcourse.course.check.facts.messages import COMM, PICKLED, SLACK, THROUGH_WORLD, Sent, counting, is_virtual
from mpcourse.course.check.facts.ranks import turned
from mpcourse.course.check.rules import Rule, Test, always, demand, judge
from mpcourse.course.check.status_page import HasStatusPage
from mpcourse.course.check.wrong import first_difference, short
from mpcourse.virtual.ranks import ClusterError

if TYPE_CHECKING:
    from mpcourse.course.check.traced_mpi import TracedComm

NAME = "GatheredLinear"
GARBAGE = 1e3  # what padding holds
BEFORE = 7.0  # what shard.grad holds, as of an earlier micro-batch
STEPS, RATE, WIDTHS = 3, 0.01, (40, 48, 36, 32)  # of the network
Rows = list[np.ndarray]

# -- inputs: one layer --


@dataclass(frozen=True)
class Layer:
    """One layer. examples: by rank. needs: whether x needs a gradient, by rank. summed: the loss is the sum of y.

    why: for an answer that was right until then.
    """

    what: str
    shape: tuple[int, int] = (4, 3)
    examples: tuple[int, ...] = (2, 2, 2, 2)
    needs: tuple[bool, ...] = (True, True, True, True)
    dtype: torch.dtype = torch.float64
    columns: bool = False
    summed: bool = False
    turned: bool = False
    why: str = ""

    @property
    def n(self) -> int:
        return self.shape[0] * self.shape[1]

    def weight(self) -> torch.Tensor:
        return _drawn(7, self.shape, self.dtype)

    def shard(self, rank: int, size: int) -> torch.Tensor:
        return shard_of(self.weight(), rank, size)

    def x(self, rank: int) -> torch.Tensor:
        x = _drawn(20 + rank, (self.examples[rank], self.shape[1]), self.dtype).clone()
        return (x.t().contiguous().t() if self.columns else x).requires_grad_(self.needs[rank])

    def grad(self, rank: int) -> torch.Tensor:
        """Return the gradient of y; that of a sum is one number in memory, expanded."""
        if self.summed:
            return torch.ones((), dtype=self.dtype).expand(self.examples[rank], self.shape[0])
        grad = _drawn(50 + rank, (self.examples[rank], self.shape[0]), self.dtype).clone()
        return grad.t().contiguous().t() if self.columns else grad

    def outputs(self, size: int) -> Rows:
        return [_of_rank(self, rank).y for rank in range(size)]

    def of_x(self, size: int) -> Rows:
        return [_of_rank(self, rank).of_x for rank in range(size)]

    def of_weight(self, size: int) -> Rows:
        """Return each rank's own gradient of the whole weight, in one row."""
        return [_of_rank(self, rank).of_weight for rank in range(size)]

    def of_shard(self, size: int) -> Rows:
        return chunks_of(np.mean(self.of_weight(size), axis=0), size)


@functools.cache
def _drawn(seed: int, shape: tuple[int, int], dtype: torch.dtype) -> torch.Tensor:
    """Return random numbers, which must not be changed."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


class _OfRank(NamedTuple):
    """What one process makes of a rank's examples, whatever the number of ranks."""

    y: np.ndarray
    of_x: np.ndarray
    of_weight: np.ndarray


@functools.cache
def _of_rank(layer: Layer, rank: int) -> _OfRank:
    x, grad, weight = layer.x(rank).detach(), layer.grad(rank), layer.weight()
    return _OfRank(*(t.numpy() for t in (x @ weight.t(), grad @ weight, (grad.t() @ x).reshape(-1))))


def shard_of(weight: torch.Tensor, rank: int, size: int) -> torch.Tensor:
    """Return a rank's chunk of a weight, in memory of its own; padding holds GARBAGE."""
    n = weight.numel()
    chunk = -(-n // size)
    row = torch.cat([weight.reshape(-1), torch.full((chunk * size - n,), GARBAGE, dtype=weight.dtype)])
    return row[rank * chunk : (rank + 1) * chunk].clone().requires_grad_()


LAYERS = (
    Layer("a weight of 12 elements"),
    Layer("a weight of 15 elements", (5, 3), why="p need not divide the elements: what is behind them is padding."),
    Layer(
        "different numbers of examples",
        (3, 5),
        (2, 4, 1, 3),
        why="Ranks have different numbers of examples. What they send each other is weights and gradients, as long on "
        "all of them.",
    ),
    Layer(
        "an x that needs a gradient on some ranks",
        needs=(True, False, True, False),
        why="Whoever leaves out a collective call makes the others wait, or takes part in the wrong one: "
        "ctx.needs_input_grad may differ between ranks. Gather on all of them, and return None where x needs none.",
    ),
    Layer(
        "a rank without examples",
        (4, 3),
        (3, 0, 2, 1),
        why="A rank without examples has gradients of zeros, and takes part in every collective call.",
    ),
    Layer("float32", (5, 3), dtype=torch.float32),
    Layer(
        "an x and a grad that are not contiguous",
        (3, 4),
        columns=True,
        why="x or grad need not be contiguous, so neither is their product: .reshape(-1) copies where it has to.",
    ),
    Layer("the sum of y as the loss", summed=True),
    Layer("a weight of 2 elements", (1, 2)),
    Layer("ranks of a communicator that has them in another order", (5, 3), turned=True, why=COMM),
)
LONG = Layer("a weight of 1,920 elements", (48, 40))


# -- inputs: a network of three layers, with tanh between them --


def shapes() -> list[tuple[int, int]]:
    return [(out, width) for width, out in zip(WIDTHS, WIDTHS[1:], strict=False)]


def weights() -> list[torch.Tensor]:
    draw = torch.Generator().manual_seed(3)
    return [torch.randn(shape, generator=draw, dtype=torch.float64) / shape[1] ** 0.5 for shape in shapes()]


def batch(rank: int, step: int) -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(10 * step + rank)
    return tuple(torch.randn((2, w), generator=draw, dtype=torch.float64) for w in (WIDTHS[0], WIDTHS[-1]))  # type: ignore[return-value]


@functools.cache
def trained(size: int) -> list[list[torch.Tensor]]:
    """Return what one process makes of them: the weights after each step."""
    held, found = [w.requires_grad_() for w in weights()], []
    for step in range(STEPS):
        for rank in range(size):
            x, target = batch(rank, step)
            for i, weight in enumerate(held):
                x = (torch.tanh(x) if i else x) @ weight.t()
            (((x - target) ** 2).sum() / size).backward()
        with torch.no_grad():
            for weight in held:
                assert weight.grad is not None
                weight -= RATE * weight.grad
                weight.grad = None
        found.append([weight.detach().clone() for weight in held])
    return found


def check(answer: Answer, comm: "TracedComm") -> None:
    """On real ranks, every one of which must call this."""
    for ranks in (comm, turned(comm)):
        for layer in (LAYERS[1], LAYERS[2], LAYERS[3]):
            on_real(answer, ranks, _program(layer), functools.partial(_judge, layer))
        on_real(answer, ranks, _network(), _judge_network)


def check_virtually(answer: Answer, comm: HasStatusPage) -> None:
    """On virtual ranks; one process calls this."""
    for layer in LAYERS:
        for size in SIZES:
            asked = f"output and gradients as of one process, on {counted(size, 'rank')}, with {layer.what}"
            stumbled = (asked, layer.why) if layer.why else None
            on_virtual(answer, comm, size, _program(layer), functools.partial(_judge, layer), stumbled)
    for size in SIZES:
        stumbled = (f"a network of three layers to be trained as by one process, on {size} ranks", ANEW)
        on_virtual(answer, comm, size, _network(), _judge_network, stumbled)
    for layer in (LONG, dataclasses.replace(LONG, dtype=torch.float32)):
        for size in SIZES[:-1]:
            on_virtual(answer, comm, size, _program(layer, True), functools.partial(_judge, layer))


# -- observation: what a call leaves and returns --


class Stopped(NamedTuple):
    """Why a rank cannot go on. what: "the class", "y", "backward", or the name of a tensor that was changed."""

    what: str
    shown: str
    when: str = ""
    rank: int | None = None


def _applied(own: ModuleType, *args: Any) -> torch.Tensor:
    """Return what GatheredLinear.apply returns, a tensor."""
    function = getattr(own, NAME)
    if not isinstance(function, type) or not issubclass(function, torch.autograd.Function):
        demand(STOPS, Stopped("the class", short(function)))
    y = function.apply(*args)
    if not isinstance(y, torch.Tensor):
        demand(STOPS, Stopped("y", short(y)))
    return y


def _backward(own: ModuleType, run: Callable[[], Any]) -> Any:
    """Return what `run` returns, in which autograd calls backward, and may refuse what that returns."""
    try:
        return run()
    except (RuntimeError, TypeError) as error:
        mine = any(frame.filename == own.__file__ for frame in traceback.extract_tb(error.__traceback__))
        if mine or isinstance(error, ClusterError):
            raise
        demand(STOPS, Stopped("backward", one_line(error)))


def _unchanged(when: str, given: Sequence[tuple[str, torch.Tensor, torch.Tensor]]) -> None:
    """Stop where a tensor is not as it was. given: the name, the tensor and a copy from before of each."""
    for name, tensor, before in given:
        if tensor.shape != before.shape:
            demand(STOPS, Stopped(name, f"shape {tuple(tensor.shape)}", when))
        if not torch.equal(tensor.detach(), before):
            demand(STOPS, Stopped(name, "other values", when))


def _met(comm: Any, sent: Callable[[], Sent]) -> Sent:
    """Return what was sent until all virtual ranks have come here: until then messages may be under way."""
    comm.Barrier()
    found = sent()
    return found._replace(calls=found.calls[:-1])


class Seen(NamedTuple):
    """What one layer did on one rank.

    storage: bytes of the memory of shard's gradient. kept: where whole weights are after forward, and after backward.
    of_call: where x is after backward. written: whether shard.grad was. overwritten: whether a second backward changed
    what the first returned. anothers: whether it was not that of its own forward. sent: in forward and in backward,
    where bytes are counted. talked: all that was sent, known of virtual ranks.
    """

    y: np.ndarray
    of_x: np.ndarray | None = None
    of_shard: np.ndarray | None = None
    storage: int = 0
    kept: tuple[str, str] = ("", "")
    of_call: str = ""
    written: bool = False
    overwritten: bool = False
    anothers: bool = False
    sent: tuple[Sent, Sent] | None = None
    talked: Sent | None = None


def _program(layer: Layer, counts: bool = False) -> Program:
    """counts: what is sent, and what is left in memory, by virtual ranks."""

    def program(own: Answer, comm: Any) -> Seen:
        ranks = comm.Split(0, -comm.rank) if layer.turned else comm
        talked = counting(ranks) if is_virtual(comm) else lambda: None
        with chunks.nan_in_new_memory(layer.n, ranks.size, layer.dtype):
            seen = own.run(lambda ranks: _calls(own.module, ranks, layer, counts), f"{NAME}.apply and backward", ranks)
        return seen._replace(talked=talked())

    return program


def _calls(own: ModuleType, ranks: Any, layer: Layer, counts: bool) -> Seen:
    x, shard, grad = layer.x(ranks.rank), layer.shard(ranks.rank, ranks.size), layer.grad(ranks.rank)
    shard.grad = torch.full_like(shard, BEFORE)
    given = [(name, t, t.detach().clone()) for name, t in (("x", x), ("shard", shard), ("grad", grad))]
    whole = layer.n * layer.dtype.itemsize

    def gradients(y: torch.Tensor, grad: torch.Tensor) -> dict[str, Any]:
        inputs = {name: t for name, t, _ in given[:2] if t.requires_grad}
        got = _backward(own, lambda: torch.autograd.grad(y, [*inputs.values()], grad, allow_unused=True))
        return {"x": None, **dict(zip(inputs, got, strict=True))}

    sent = counting(ranks) if counts else None
    y = _applied(own, x, shard, ranks, layer.shape)
    forward = _met(ranks, sent) if sent else Sent()
    values = y.detach().numpy().copy()
    if tuple(y.shape) != (len(x), layer.shape[0]):
        return Seen(values)
    _unchanged("forward", given)
    kept = kept_array(own, ranks, lambda n: n >= whole, y, shard)
    sent = counting(ranks) if counts else None
    found = gradients(y, grad)
    behind = _met(ranks, sent) if sent else Sent()
    del y
    after = kept_array(own, ranks, lambda n: n >= whole, given=shard)
    of_call = kept_array(own, ranks, lambda n: n == x.nbytes) if counts else ""
    _unchanged("backward", given)
    written = shard.grad is None or not bool((shard.grad == BEFORE).all())
    gx, gs = (None if found[name] is None else found[name].numpy().copy() for name in ("x", "shard"))
    if counts or gs is None:
        storage = 0 if gs is None else found["shard"].untyped_storage().nbytes()
        two = (forward, behind) if counts else None
        return Seen(values, gx, gs, storage, (kept, after), of_call, written, sent=two)
    # A second backward, before which there was a forward without a backward.
    y = _applied(own, x, shard, ranks, layer.shape)
    with torch.no_grad():
        _applied(own, -x.detach(), shard, ranks, layer.shape)
    second = gradients(y, 2 * grad)["shard"]
    overwritten = not np.array_equal(found["shard"].numpy(), gs, equal_nan=True)
    anothers = second is None or not np.allclose(second.numpy(), 2 * gs, 1e-4, 1e-4, equal_nan=True)
    return Seen(values, gx, gs, written=written, overwritten=overwritten, anothers=anothers)


@dataclass(frozen=True)
class Facts:
    """What a layer did, seen from `rank`. everyone: by rank. name: what is compared: "y", or the gradient of what."""

    rank: int
    layer: Layer
    everyone: Sequence[Seen]
    name: str = "y"

    size = property(lambda self: len(self.everyone))
    number = property(lambda self: self.size - 1 - self.rank if self.layer.turned else self.rank)
    in_order = property(lambda self: self.everyone[::-1] if self.layer.turned else self.everyone)
    seen = property(lambda self: self.everyone[self.rank])
    tolerance = property(lambda self: 1e-5 if self.layer.dtype == torch.float32 else 1e-12)

    @functools.cached_property
    def rows(self) -> OnAllRanks:
        got, want = {
            "y": (lambda: [seen.y for seen in self.in_order], self.layer.outputs),
            "the gradient of x": (lambda: [seen.of_x for seen in self.in_order], self.layer.of_x),
            "the gradient of shard": (lambda: [seen.of_shard for seen in self.in_order], self.layer.of_shard),
        }[self.name]
        return OnAllRanks(got(), want(self.size), self.tolerance, self.layer.dtype)

    gives = property(lambda self: self.rows.gives)
    got = property(lambda self: self.rows.got[self.number])
    right = property(lambda self: self.rows.want)
    is_asked = property(lambda self: self.name != "the gradient of x" or self.layer.needs[self.number])
    place = property(lambda self: f"{self.name} on rank {self.number} of {self.size}, with {self.layer.what}")
    difference = functools.cached_property(lambda self: self.rows.difference(self.number, self.place))
    other_shapes = property(
        lambda self: any(a is not None and a.shape != b.shape for a, b in zip(self.rows.got, self.right, strict=True))
    )

    # What wrong programs make of a layer, on all ranks.

    shards = property(lambda self: [self.layer.shard(rank, self.size).detach() for rank in range(self.size)])
    xs = property(lambda self: [self.layer.x(rank).detach() for rank in range(self.size)])
    of_weight = property(lambda self: self.layer.of_weight(self.size))
    own = property(lambda self: [chunks_of(row, self.size)[rank] for rank, row in enumerate(self.of_weight)])
    examples = property(lambda self: self.layer.examples[: self.size])
    weights = property(lambda self: [self.size * number / max(1, sum(self.examples)) for number in self.examples])

    def outputs_with(self, order: Sequence[torch.Tensor]) -> Rows:
        """Outputs where the weight is these chunks in a row."""
        weight = torch.cat([*order])[: self.layer.n].view(self.layer.shape)
        return [(x @ weight.t()).numpy() for x in self.xs]

    @property
    def outputs_by_columns(self) -> Rows:
        row = torch.cat(self.shards)[: self.layer.n]
        return [(x @ row.view(self.layer.shape[::-1])).numpy() for x in self.xs]

    def outputs_as_they_came(self, by: int) -> Rows:
        """Outputs where each rank's weight begins with its own chunk."""
        shards, size = self.shards, self.size
        orders = [[shards[(rank + by * k) % size] for k in range(size)] for rank in range(size)]
        return [self.outputs_with(order)[rank] for rank, order in enumerate(orders)]

    def combined(self, combine: Callable[..., np.ndarray]) -> Rows:
        """All ranks' gradients of x, made one; empty where they have different shapes."""
        alike = len({row.shape for row in self.right}) == 1
        return [combine(self.right, axis=0)] * self.size if alike else [np.empty(0)] * self.size

    @property
    def weighted(self) -> tuple[Rows, Rows]:
        """Means in which ranks count by their examples; and each chunk weighted by its rank's."""
        mean = np.mean([row * w for row, w in zip(self.of_weight, self.weights, strict=True)], axis=0)
        return chunks_of(mean, self.size), [row * w for row, w in zip(self.right, self.weights, strict=True)]

    @property
    def of_mean_x(self) -> Rows:
        """Gradients where x was averaged over the examples."""
        pairs = ((self.layer.grad(rank), x) for rank, x in enumerate(self.xs))
        outer = [torch.outer(g.sum(0), x.sum(0) / max(1, len(x))).reshape(-1).numpy() for g, x in pairs]
        return chunks_of(np.mean(outer, axis=0), self.size)

    @property
    def of_mean_grad(self) -> Rows:
        """Gradients where grad alone was averaged over ranks; empty where ranks have other numbers of examples."""
        if len(set(self.examples)) > 1:
            return [np.empty(0)] * self.size
        mean = torch.stack([self.layer.grad(rank) for rank in range(self.size)]).mean(0)
        return [chunks_of((mean.t() @ x).reshape(-1).numpy(), self.size)[rank] for rank, x in enumerate(self.xs)]

    @property
    def right_but_for_padding(self) -> bool:
        got, want = (np.concatenate(rows)[: self.layer.n] for rows in (self.rows.got, self.right))
        return not self.other_shapes and np.allclose(got, want, self.tolerance, self.tolerance)

    # What sentences show.

    sent = property(lambda self: self.seen.talked)
    who = property(lambda self: named(self.rows.there))
    dtype = property(lambda self: str(self.layer.dtype).removeprefix("torch."))
    most = property(lambda self: self.seen.of_shard.nbytes)


@dataclass(frozen=True)
class Counted:
    """What a rank sent and kept in forward, or in backward."""

    rank: int
    layer: Layer
    size: int
    when: str
    sent: Sent
    kept: str

    times = property(lambda self: 2 if self.when == "backward" else 1)
    want = property(
        lambda self: self.times * (self.size - 1) * -(-self.layer.n // self.size) * self.layer.dtype.itemsize
    )
    others = property(lambda self: self.size - 1)
    twice = property(lambda self: ", twice" if self.when == "backward" else "")


def _judge(layer: Layer, results: Sequence[Seen]) -> Finding | None:
    size = len(results)
    order = range(size)[::-1] if layer.turned else range(size)  # by the number in the communicator
    everyone = {name: [Facts(rank, layer, results, name) for rank in order] for name in VALUES}
    counted_ = [
        Counted(rank, layer, size, when, sent, kept)
        for rank, seen in enumerate(results)
        for when, sent, kept in zip(("forward", "backward"), seen.sent or (), seen.kept, strict=False)
    ]
    finding = judge(CALLS, *everyone["y"])
    for name, tests in VALUES.items():
        finding = finding or judge(tests, *everyone[name])
    finding = finding or judge(AGAIN, *everyone["y"])
    if counted_:
        finding = finding or judge(KEPT, *counted_) or judge(MEMORY, *everyone["y"]) or judge(BYTES, *counted_)
    return finding


# -- observation: a network in training --


class Call(NamedTuple):
    """A layer's call in a step. when: forward or backward. sent: by this rank."""

    layer: int
    when: str
    sent: Sent


class Trained(NamedTuple):
    """What one rank did. shards: after each step. calls: in their order, known of virtual ranks."""

    shards: list[list[np.ndarray]]
    calls: list[Call]


def _network() -> Program:
    """Train three layers, with tanh between them, for some steps."""

    def program(own: Answer, comm: Any) -> Trained:
        return own.run(lambda comm: _train(own.module, comm), f"{NAME} in a network", comm)

    return program


def _train(own: ModuleType, comm: Any) -> Trained:
    found, calls = [], list[Call]()
    since: list[Callable[[], Sent]] = [Sent]

    def begin() -> None:
        since[0] = counting(comm) if is_virtual(comm) else Sent

    def noted(layer: int, when: str) -> None:
        if is_virtual(comm):
            calls.append(Call(layer, when, _met(comm, since[0])))
        begin()

    def before(x: torch.Tensor, layer: int) -> torch.Tensor:
        """Return what a layer is given; its gradient is there once the layer's backward has returned."""
        x.register_hook(lambda _: noted(layer, "backward"))
        return x

    shards = [shard_of(weight, comm.rank, comm.size) for weight in weights()]
    for step in range(STEPS):
        x, target = batch(comm.rank, step)
        begin()
        for i, (shard, shape) in enumerate(zip(shards, shapes(), strict=True)):
            y = x = _applied(own, before(torch.tanh(x), i) if i else x, shard, comm, shape)
            noted(i, "forward")
        loss = ((y - target) ** 2).sum()
        _backward(own, loss.backward)
        noted(0, "backward")
        with torch.no_grad():
            for shard in shards:
                shard -= RATE * (0 if shard.grad is None else shard.grad)
                shard.grad = None
        found.append([shard.detach().numpy().copy() for shard in shards])
    return Trained(found, calls)


@dataclass(frozen=True)
class Updated:
    """A layer's shard after a step. got, want: without padding."""

    rank: int
    size: int
    layer: int
    step: int
    got: np.ndarray
    want: np.ndarray

    @property
    def difference(self) -> tuple[str, str] | None:
        what = f"the shard of layer {self.layer} after step {self.step} on rank {self.rank} of {self.size}"
        return first_difference(self.got, self.want, what, 1e-10, 1e-10)


@dataclass(frozen=True)
class Gathers:
    """Calls of one rank in their order, and by how many layers they gather weights ahead, if they do."""

    rank: int
    size: int
    calls: Sequence[Call]

    @property
    def sent(self) -> Sent:
        """What the call sent that pickled most."""
        return max((call.sent for call in self.calls), key=lambda sent: sent.pickled, default=Sent())

    @functools.cached_property
    def gather(self) -> list[int]:
        """Bytes that a rank sends where a layer's weight is gathered."""
        return [(self.size - 1) * -(-out * width // self.size) * 8 for out, width in shapes()]

    @functools.cached_property
    def excess(self) -> list[int]:
        """Bytes that were sent, up to each call, besides what calls until then need."""
        more, excess = 0, []
        for call in self.calls:
            more += call.sent.nbytes - self.gather[call.layer] * (2 if call.when == "backward" else 1)
            excess.append(more)
        return excess

    @functools.cached_property
    def at(self) -> int | None:
        """The first call in which weights are gathered that only later ones need, which then gather less."""
        least = min(self.gather) / 2
        if self.size == 1 or not self.excess or abs(self.excess[-1]) > least:
            return None
        return next((i for i, nbytes in enumerate(self.excess) if nbytes > least), None)

    later = property(lambda self: self.calls[self.at + 1 :])

    @functools.cached_property
    def ahead(self) -> int:
        """How many layers: the number that explains the excess best."""
        sums = [sum(self.gather[call.layer] for call in self.later[:k]) for k in range(1, 4)]
        return min(range(1, 4), key=lambda k: abs(sums[k - 1] - self.excess[self.at or 0]))

    call = property(lambda self: self.calls[self.at])
    layer = property(lambda self: self.call.layer)
    when = property(lambda self: self.call.when)
    nbytes = property(lambda self: self.call.sent.nbytes)
    early = property(lambda self: named([call.layer for call in self.later[: self.ahead]], "layer"))
    weights_take = property(
        lambda self: f"weight of {self.early} takes" if self.ahead == 1 else f"weights of {self.early} take"
    )
    layers = property(lambda self: f"{counted(self.ahead, 'layer')} ahead")
    whole = property(lambda self: self.ahead + 1)


def _judge_network(results: Sequence[Trained]) -> Finding | None:
    size, updated = len(results), []
    for step, held in enumerate(trained(size)):
        for i, weight in enumerate(held):
            for rank, found in enumerate(results):
                n = weight.numel()
                chunk = -(-n // size)
                keep = max(0, min(n, (rank + 1) * chunk) - rank * chunk)
                want = weight.reshape(-1).numpy()[rank * chunk :][:keep]
                updated.append(Updated(rank, size, i, step, found.shards[step][i][:keep], want))
    gathers = [Gathers(rank, size, found.calls) for rank, found in enumerate(results)]
    return judge(UPDATED, *updated) or judge(GATHERS, *gathers)


# -- what is said --

ANEW = (
    "Weights change with every step, and each layer has its own: gather in every call, and keep in ctx alone what "
    "backward needs."
)
CHANGED = "{what} to be as it was once {when} has returned"
STOPS = [
    Test(
        "no Function",
        lambda f: f.what == "the class",
        f"{NAME} to be a torch.autograd.Function",
        "{shown}",
        "Keep the line of the class: it makes apply, which calls forward and notes backward.",
    ),
    Test(
        "no tensor",
        lambda f: f.what == "y",
        "forward to return y, a tensor",
        "{shown}",
        "Nothing came back: is x times the weight returned?",
    ),
    Test(
        "refused by autograd",
        lambda f: f.what == "backward",
        "gradients of x and of the shard from backward, in their shapes",
        "{shown}",
        "backward returns one value for each argument of forward but ctx: of x's shape, of the shard's, (chunk,), and "
        "None for comm and shape.",
    ),
    Test(
        "x changed",
        lambda f: f.what == "x",
        CHANGED,
        "{shown}",
        "x is the caller's, perhaps another layer's output: change nothing in it, and work on a copy.",
    ),
    Test(
        "shard changed",
        lambda f: f.what == "shard",
        CHANGED,
        "{shown}",
        "The shard is all that is left of the weight between calls, and the optimizer's to update: use a copy.",
    ),
    Test(
        "grad changed",
        always,
        CHANGED,
        "{shown}",
        "grad is autograd's, which may give the same tensor to others: change what is made of it alone.",
    ),
]
CALLS = [
    THROUGH_WORLD,
    Test(
        "shard.grad written",
        lambda f: f.seen.written,
        "the gradient of shard to be returned on rank {number} of {size}, and shard.grad to be left alone",
        "shard.grad was written by hand",
        "Autograd adds what backward returns to what shard.grad holds, of earlier micro-batches for instance. Hooks "
        "and torch.autograd.grad see what is returned, and nothing else.",
    ),
]
WHYS_ANY = [
    Rule(
        "shape",
        lambda f: f.name == "y" and f.other_shapes,
        "y has a row for each example of this rank, and a column for each row of the whole weight. It cannot be put "
        "together from parts of other ranks: their examples are others, and a chunk need not be whole rows.",
    ),
    Rule(
        "at a root",
        lambda f: f.rows.at_a_root,
        "Of {size} ranks only {who} has it: Gather and Reduce bring something to their root alone.",
    ),
    Rule("NaN", lambda f: f.rows.has_nan, chunks.UNWRITTEN),
    Rule("rounded", lambda f: f.rows.rounded, "Right to 6 digits or so: everything has x's dtype, {dtype} here."),
]
OTHER_ORDER = "The chunks are in another order: the weight begins with that of rank 0 of comm."
OWN_X = "The gradient of x is this rank's own, of its own examples and loss: no sum and no mean over ranks."
WRONG_RANKS = "The right chunks on wrong ranks: rank r of comm gets the r-th."
WEIGHTED = "Weighted by numbers of examples: the mean is over ranks, each of which counts once."
WHYS_Y = [
    *WHYS_ANY,
    Rule("reversed", lambda f: f.gives(f.outputs_with(f.shards[::-1])), OTHER_ORDER),
    Rule(
        "columns",
        lambda f: f.gives(f.outputs_by_columns),
        "The weight is put together column by column: a row of its elements takes the shape (out, in) as it is.",
    ),
    Rule(
        "as they came",
        lambda f: f.gives(f.outputs_as_they_came(1), f.outputs_as_they_came(-1)),
        "Chunks stand in the order in which they came. The r-th place is that of rank r's, on every rank.",
    ),
    Rule("what the layer is about", lambda f: f.layer.why, "{layer.why}"),
    Rule(
        "another y",
        always,
        "y is x times the transposed weight, which is all shards, one after the other, without the padding.",
    ),
]
WHYS_X = [
    *WHYS_ANY,
    Rule(
        "over ranks",
        lambda f: f.gives(f.combined(np.mean), f.combined(np.sum), [row / f.size for row in f.right]),
        OWN_X,
    ),
    Rule("what the layer is about", lambda f: f.layer.why, "{layer.why}"),
]
WHYS_SHARD = [
    *WHYS_ANY,
    Rule(
        "sum",
        lambda f: f.gives([row * f.size for row in f.right]),
        "That is the sum over ranks. The gradient of the shard is a chunk of their mean: divide by their number.",
    ),
    chunks.TWICE,
    chunks.OWN,
    chunks.OWN_DIVIDED,
    Rule(
        "on wrong ranks",
        lambda f: f.gives(
            *([f.right[(rank + by) % f.size] for rank in range(f.size)] for by in range(1, f.size)), f.right[::-1]
        ),
        WRONG_RANKS,
    ),
    Rule(
        "divided by examples",
        lambda f: f.gives([row * f.size / max(1, sum(f.examples)) for row in f.right]),
        "Divided by the number of examples: the mean is over ranks, whatever a rank's own loss is.",
    ),
    Rule("weighted by examples", lambda f: f.gives(*f.weighted), WEIGHTED),
    Rule(
        "what was there before",
        lambda f: f.gives([row + BEFORE for row in f.right]),
        "What shard.grad held before is in it: autograd adds that itself, and backward returns this call's alone.",
    ),
    Rule(
        "mean of x",
        lambda f: f.gives(f.of_mean_x),
        "x was averaged over the examples: the gradient is a sum over them, of each one's grad times its own x.",
    ),
    Rule(
        "mean of grad alone",
        lambda f: f.gives(f.of_mean_grad),
        "A mean over ranks was taken of grad alone, and multiplied by this rank's x. The mean is of the products: each "
        "rank's grad belongs to its own x.",
    ),
    Rule(
        "padding", lambda f: f.right_but_for_padding, "What belongs to padding is no gradient of anything: it is zero."
    ),
    Rule("what the layer is about", lambda f: f.layer.why, "{layer.why}"),
    Rule("another gradient", always, "The transposed grad times x is the weight's: its mean is cut as the weight is."),
]
NO_GRADIENT = Test(
    "no gradient",
    lambda f: f.is_asked and f.got is None,
    "{place}",
    "None",
    "backward returns the gradients of x and of shard, in this order.",
)
VALUES = {
    "y": [Test("y", lambda f: f.difference, "{difference[0]}", "{difference[1]}", WHYS_Y)],
    "the gradient of x": [
        NO_GRADIENT,
        Test("gradient of x", lambda f: f.is_asked and f.difference, "{difference[0]}", "{difference[1]}", WHYS_X),
    ],
    "the gradient of shard": [
        NO_GRADIENT,
        Test("gradient of shard", lambda f: f.difference, "{difference[0]}", "{difference[1]}", WHYS_SHARD),
    ],
}
TWO = "two backwards, each with its own gradient of shard, on rank {number} of {size}, with {layer.what}"
AGAIN = [
    Test(
        "first overwritten",
        lambda f: f.seen.overwritten,
        TWO,
        "the first one has other values after the second",
        "The memory of what backward returns is its receiver's: make a new tensor in each call.",
    ),
    Test(
        "another forward's",
        lambda f: f.seen.anothers,
        TWO,
        "the second one is not that of its own forward",
        "Another forward came in between, without a backward, as in evaluation. Keep in ctx what backward needs: each "
        "call has one for itself.",
    ),
]
WHYS_KEPT = [
    Rule(
        "by the file",
        lambda f: "of the file" in f.kept,
        "What the file keeps stays in memory between calls, also while other layers compute: make it in each call, and "
        "let it go when that returns.",
    ),
    Rule(
        "for backward",
        always,
        "The whole weight is kept, so that with many layers all of them are in memory at once. Keep the shard alone, "
        "and gather again in backward.",
    ),
]
KEPT = [
    Test(
        "a whole weight",
        lambda f: f.kept,
        "nothing as large as the whole weight in memory on rank {rank} once {when} has returned",
        "something in {kept}",
        WHYS_KEPT,
    )
]
MEMORY = [
    Test(
        "x kept",
        lambda f: f.seen.of_call,
        "nothing of the call in memory on rank {rank} once backward has returned",
        "x, in {seen.of_call}",
        "What ctx keeps is freed with autograd's graph. What the file keeps is not: it grows with every step.",
    ),
    Test(
        "a view of the whole gradient",
        lambda f: f.seen.storage > f.most,
        "a gradient of shard that keeps {most} bytes on rank {rank}",
        "{seen.storage} bytes",
        "The chunk is a view of the whole gradient, which stays in memory with it. Take a copy of the chunk.",
    ),
]
WHYS_BYTES = [
    Rule(
        "too few",
        lambda f: f.sent.nbytes < f.want,
        "Too little for a gather and a reduce-scatter. Does backward have the weight from forward?",
    ),
    Rule(
        "all-reduce",
        lambda f: f.when == "backward" and any("llreduce" in name for name in f.sent.calls),
        "An all-reduce gives all ranks the whole gradient, and each needs only its chunk: a reduce-scatter sends half "
        "as much.",
    ),
    Rule(
        "float64 for float32",
        lambda f: f.layer.dtype == torch.float32,
        "With float64 it is right, and float32 is sent in more bytes than it has: send x's dtype.",
    ),
    Rule(
        "more in forward",
        lambda f: f.when == "forward",
        "Each rank sends its shard to each other rank once: an all-gather.",
    ),
    Rule(
        "more in backward",
        always,
        "Backward needs one gather and one reduce-scatter: to another rank goes a chunk, and each once.",
    ),
]
BYTES = [
    PICKLED,
    Test(
        "other bytes",
        lambda f: abs(f.sent.nbytes - f.want) > SLACK,
        "{want} bytes to be sent by rank {rank} of {size} in {when}, {others}/{size} of the weight{twice}",
        "{sent.by}",
        WHYS_BYTES,
    ),
]
UPDATED = [Test("other weights", lambda f: f.difference, "{difference[0]}", "{difference[1]}", ANEW)]
WHYS_AHEAD = [
    Rule(
        "one layer",
        lambda f: f.ahead == 1,
        "Weights are gathered {layers}, so that {whole} whole ones are in memory at once. Here it is one at a time: "
        "each call gathers its own layer's weight, and no other's.",
    ),
    Rule(
        "several layers",
        always,
        "Weights are gathered {layers}, so that {whole} whole ones are in memory at once. Here it is one at a time: "
        "each call gathers its own layer's weight, and no other's. To hide messages, one layer ahead would do.",
    ),
]
GATHERS = [
    PICKLED,
    Test(
        "ahead",
        lambda f: f.at is not None,
        "layer {layer}'s weight alone to be gathered in its {when}, on rank {rank} of {size}",
        "{nbytes} bytes sent, among them what the {weights_take}",
        WHYS_AHEAD,
    ),
]
