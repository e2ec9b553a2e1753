"""What e10_gather_layer is asked: values of one process, whole weights during calls alone, and few bytes."""

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

from mpcourse.course.check.answer import Answer
from mpcourse.course.check.cases.on_models import SIZES, Finding, each_on_real, each_on_virtual, one_line
from mpcourse.course.check.facts import chunks
from mpcourse.course.check.facts.chunks import OnAllRanks, Rows, chunks_of, kept_array
from mpcourse.course.check.facts.messages import COMM, PICKLED, SLACK, THROUGH_WORLD, Sent, is_virtual, metered
from mpcourse.course.check.rules import Test, always, judge
from mpcourse.course.check.status_page import HasStatusPage
from mpcourse.course.check.wrong import Wrong, short
from mpcourse.virtual.ranks import ClusterError

if TYPE_CHECKING:
    from mpcourse.course.check.traced_mpi import TracedComm

NAME = "GatheredLinear"
GARBAGE = 1e3  # what padding holds
BEFORE = 7.0  # what shard.grad holds, as of an earlier micro-batch

# -- inputs: one layer --


@dataclass(frozen=True)
class Layer:
    """One layer. examples: by rank. needs: whether x needs a gradient, by rank. summed: the loss is the sum of y.

    columns: whether x and the gradient of y are transposed in memory. turned: whether comm has the ranks in the
    opposite order. measured: whether bytes are counted. why: for an answer that was right until then.
    """

    what: str
    shape: tuple[int, int] = (4, 3)
    examples: tuple[int, ...] = (2, 2, 2, 2)
    needs: tuple[bool, ...] = (True, True, True, True)
    dtype: torch.dtype = torch.float64
    columns: bool = False
    summed: bool = False
    turned: bool = False
    measured: bool = False
    why: str = ""

    n = property(lambda self: self.shape[0] * self.shape[1])

    def weight(self) -> torch.Tensor:
        return _drawn(7, *self.shape, dtype=self.dtype)

    def x(self, rank: int) -> torch.Tensor:
        return _drawn(20 + rank, self.examples[rank], self.shape[1], self.dtype, self.columns)

    def grad(self, rank: int) -> torch.Tensor:
        """Return the gradient of y; that of a sum is one number in memory, expanded."""
        one = torch.ones((), dtype=self.dtype).expand(self.examples[rank], self.shape[0])
        drawn = _drawn(50 + rank, self.examples[rank], self.shape[0], self.dtype, self.columns)
        return one if self.summed else drawn


def _drawn(seed: int, rows: int, width: int, dtype: torch.dtype = torch.float64, columns: bool = False) -> torch.Tensor:
    drawn = torch.randn((rows, width), generator=torch.Generator().manual_seed(seed), dtype=dtype)
    return drawn.t().contiguous().t() if columns else drawn


def shard_of(weight: torch.Tensor, rank: int, size: int) -> torch.Tensor:
    """Return a rank's chunk of a weight, in memory of its own; padding holds GARBAGE."""
    padding = torch.full((-weight.numel() % size,), GARBAGE, dtype=weight.dtype)
    row = torch.cat([weight.detach().reshape(-1), padding])
    return row.view(size, -1)[rank].clone().requires_grad_()


LAYERS = (
    Layer("a weight of 12 elements"),
    Layer("a weight of 15 elements", (5, 3), why="p need not divide the elements: what is behind them is padding."),
    Layer(
        "different numbers of examples",
        (3, 5),
        examples=(2, 4, 1, 3),
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
        examples=(3, 0, 2, 1),
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
LONG = Layer("a weight of 1,920 elements", (48, 40), measured=True)
NETWORK = Layer("three layers in training")


# -- inputs: a network in training --

STEPS, RATE, SHAPES = 3, 0.01, ((48, 40), (36, 48), (32, 36))  # all numbers of ranks here divide these weights


def weights() -> list[torch.Tensor]:
    """Draw the weights of a network of SHAPES, the same at each call."""
    return [_drawn(3, *shape) / shape[1] ** 0.5 for shape in SHAPES]


def train(
    weights: Sequence[torch.Tensor],
    ranks: Sequence[int],
    layer: Callable[[int, torch.Tensor, torch.Tensor], torch.Tensor],
    backward: Callable[[torch.Tensor], None],
) -> list[list[np.ndarray]]:
    """Return the weights, or a rank's shards of them, after each step of training with the batches of these ranks.

    layer: a layer's forward, of its number, x and its weight.
    """
    found = []
    for step in range(STEPS):
        for rank in ranks:
            x, target = (_drawn(10 * step + rank, 2, width) for width in (40, 32))
            for i, weight in enumerate(weights):
                x = layer(i, torch.tanh(x) if i else x, weight)
            backward(((x - target) ** 2).sum() / len(ranks))
        with torch.no_grad():
            for weight in weights:
                weight -= RATE * (0 if weight.grad is None else weight.grad)
                weight.grad = None
        found.append([weight.detach().numpy().copy() for weight in weights])
    return found


@functools.cache
def trained(size: int) -> list[list[np.ndarray]]:
    """Return what one process makes of them."""
    whole = [weight.requires_grad_() for weight in weights()]
    return train(whole, range(size), lambda i, x, weight: x @ weight.t(), torch.Tensor.backward)


def check(answer: Answer, comm: "TracedComm") -> None:
    """Check the answer on real ranks; every rank must call this."""
    each_on_real(answer, comm, LAYERS[1:4], _layer, _judge)
    each_on_real(answer, comm, [NETWORK], _network, _judge_network)


def check_virtually(answer: Answer, comm: HasStatusPage) -> None:
    """Check the answer on virtual ranks; one process calls this."""
    asked = "output and gradients as of one process, on {ranks}, with {case.what}"
    each_on_virtual(answer, comm, LAYERS, _layer, _judge, asked)
    network = dataclasses.replace(NETWORK, why=ANEW)
    networks = each_on_virtual(answer, comm, [network], _network, _judge_network, asked)
    long = (LONG, dataclasses.replace(LONG, dtype=torch.float32))
    each_on_virtual(answer, comm, long, _layer, _judge, asked, SIZES[:-1])  # alone a rank has the whole weight
    for ran in networks:
        ran.demand(judge(AHEAD, *[call for _, calls in ran.results for call in calls]))


# -- observation --


@dataclass(frozen=True)
class Call:
    """A layer's forward or backward on one rank. shard: its bytes. kept: where a whole weight is afterwards."""

    rank: int
    size: int
    shard: int
    when: str
    sent: Sent
    kept: str = ""
    layer: int = 0
    is_float32: bool = False

    times = property(lambda self: 2 if self.when == "backward" else 1)
    want = property(lambda self: self.times * (self.size - 1) * self.shard)
    others = property(lambda self: self.size - 1)
    twice = property(lambda self: ", twice" if self.times == 2 else "")


class Seen(NamedTuple):
    """What one layer did on one rank.

    values: what it returned, by name. storage: bytes of the memory of shard's gradient. written: whether shard.grad
    was. overwritten: whether a second backward changed what the first returned. anothers: whether it was not that of
    its own forward. calls: where bytes are counted. of_call: where x is after backward. sent: of virtual ranks.
    """

    values: dict[str, Any]
    storage: int = 0
    written: bool = False
    overwritten: bool = False
    anothers: bool = False
    calls: Sequence[Call] = ()
    of_call: str = ""
    sent: Sent | None = None


def _applied(own: ModuleType, *args: Any) -> torch.Tensor:
    """Return what GatheredLinear.apply returns, a tensor."""
    function = getattr(own, NAME)
    if not isinstance(function, type) or not issubclass(function, torch.autograd.Function):
        raise _stopped("the class", short(function))
    y = function.apply(*args)
    if not isinstance(y, torch.Tensor):
        raise _stopped("y", short(y))
    return y


def _backward(own: ModuleType, run: Callable[[], Any]) -> Any:
    """Return what `run` returns, in which autograd calls backward, and may refuse what that returns."""
    try:
        return run()
    except (RuntimeError, TypeError) as error:
        mine = any(frame.filename == own.__file__ for frame in traceback.extract_tb(error.__traceback__))
        if mine or isinstance(error, ClusterError):
            raise
        raise _stopped("backward", one_line(error)) from None


def _unchanged(when: str, given: dict[str, torch.Tensor], before: dict[str, torch.Tensor]) -> None:
    """Raise Wrong where a tensor is not as it was."""
    for name, tensor in given.items():
        if not torch.equal(tensor.detach(), before[name]):
            same_shape = tensor.shape == before[name].shape
            raise _stopped(name, "other values" if same_shape else f"shape {tuple(tensor.shape)}", when)


def _layer(layer: Layer, own: Answer, comm: Any) -> Seen:
    with chunks.given(comm, layer) as (ranks, sent):
        seen = own.run(lambda ranks: _calls(layer, own.module, ranks), f"{NAME}.apply and backward", ranks)
    return seen._replace(sent=sent())


def _calls(layer: Layer, own: ModuleType, ranks: Any) -> Seen:
    x, grad = layer.x(ranks.rank).requires_grad_(layer.needs[ranks.rank]), layer.grad(ranks.rank)
    shard = shard_of(layer.weight(), ranks.rank, ranks.size)
    shard.grad = torch.full_like(shard, BEFORE)
    given = {"x": x, "shard": shard, "grad": grad}
    before = {name: tensor.detach().clone() for name, tensor in given.items()}
    meter, large = metered(ranks) if layer.measured else Sent, lambda n: n >= layer.n * layer.dtype.itemsize
    call = functools.partial(Call, ranks.rank, ranks.size, shard.nbytes, is_float32=layer.dtype == torch.float32)

    def gradients(y: torch.Tensor, grad: torch.Tensor) -> list[torch.Tensor | None]:
        """Return those of x, None where it needs none, and of shard."""
        inputs = [x, shard] if x.requires_grad else [shard]
        found = _backward(own, lambda: torch.autograd.grad(y, inputs, grad, allow_unused=True))
        return [None, *found][-2:]

    y = _applied(own, x, shard, ranks, layer.shape)
    calls = [call("forward", meter(), kept_array(own, ranks, large, y, shard))]
    values: dict[str, Any] = {"y": y.detach().numpy().copy()}
    if tuple(y.shape) != (len(x), layer.shape[0]):
        return Seen(values)
    _unchanged("forward", given, before)
    of_x, of_shard = gradients(y, grad)
    del y
    calls.append(call("backward", meter(), kept_array(own, ranks, large, given=shard)))
    of_call = kept_array(own, ranks, lambda n: n == x.nbytes)
    _unchanged("backward", given, before)
    values[OF_X] = None if of_x is None else of_x.numpy().copy()
    seen = Seen(values, written=shard.grad is None or not bool((shard.grad == BEFORE).all()))
    if of_shard is None:
        return seen
    values[OF_SHARD] = first = of_shard.numpy().copy()
    # A second backward, before which there was a forward without a backward.
    y = _applied(own, x, shard, ranks, layer.shape)
    with torch.no_grad():
        _applied(own, -x.detach(), shard, ranks, layer.shape)
    second = gradients(y, 2 * grad)[1]
    return seen._replace(
        storage=of_shard.untyped_storage().nbytes(),
        overwritten=not np.array_equal(of_shard.numpy(), first, equal_nan=True),
        anothers=second is None or not np.allclose(second.numpy(), 2 * first, 1e-4, 1e-4, equal_nan=True),
        calls=calls if layer.measured else (),
        of_call=of_call if layer.measured else "",
    )


def _network(network: Layer, own: Answer, comm: Any) -> tuple[list[list[np.ndarray]], list[Call]]:
    """Return a rank's shards after each step, and all calls in their order, known of virtual ranks."""
    calls: list[Call] = []
    shards = [shard_of(weight, comm.rank, comm.size) for weight in weights()]
    meter = metered(comm) if is_virtual(comm) else Sent

    def called(i: int, when: str) -> None:
        calls.append(Call(comm.rank, comm.size, shards[i].nbytes, when, meter(), layer=i))

    def layer(i: int, x: torch.Tensor, shard: torch.Tensor) -> torch.Tensor:
        if i:  # the gradient of x is there once the layer's backward has returned
            x.register_hook(lambda _: called(i, "backward"))
        y = _applied(own.module, x, shard, comm, SHAPES[i])
        called(i, "forward")
        return y

    def backward(loss: torch.Tensor) -> None:
        _backward(own.module, loss.backward)
        called(0, "backward")

    return own.run(lambda comm: train(shards, [comm.rank], layer, backward), f"{NAME} in a network", comm), calls


# -- facts --

OF_X, OF_SHARD = "the gradient of x", "the gradient of shard"


class Facts(OnAllRanks):
    """What a layer did, beside what right and wrong programs make of it."""

    is_asked = property(lambda self: self.name != OF_X or self.case.needs[self.rank])
    shards = property(lambda self: [shard_of(self.case.weight(), r, self.size).detach() for r in range(self.size)])
    xs = property(lambda self: [self.case.x(rank) for rank in range(self.size)])
    grads = property(lambda self: [self.case.grad(rank) for rank in range(self.size)])
    examples = property(lambda self: self.case.examples[: self.size])
    alike = property(lambda self: len(set(self.examples)) == 1)
    weights = property(lambda self: [self.size * n / max(1, sum(self.examples)) for n in self.examples])

    def outputs(self, order: Callable[[int, int], int]) -> Rows:
        """Return the outputs where each rank's weight has, in its k-th place, the chunk of rank order(rank, k)."""
        size, shards, shape = self.size, self.shards, self.case.shape
        rows = [torch.cat([shards[order(rank, k) % size] for k in range(size)]) for rank in range(size)]
        return [(x @ row[: self.case.n].view(shape).t()).numpy() for x, row in zip(self.xs, rows, strict=True)]

    @property
    def of_mean_x(self) -> Rows:
        """Gradients where x was averaged over the examples."""
        pairs = zip(self.grads, self.xs, strict=True)
        return self.mean_of([torch.outer(g.sum(0), x.sum(0) / max(1, len(x))).reshape(-1).numpy() for g, x in pairs])

    @property
    def of_mean_grad(self) -> Rows:
        """Gradients where grad alone was averaged over ranks."""
        mean = torch.stack(self.grads).mean(0)
        return [self.cut((mean.t() @ x).reshape(-1).numpy())[rank] for rank, x in enumerate(self.xs)]


def _judge(layer: Layer, results: Sequence[Seen]) -> Finding | None:
    everyone = results[::-1] if layer.turned else results
    size, weight, tolerance = len(everyone), layer.weight(), 1e-5 if layer.dtype == torch.float32 else 1e-12
    pairs = [(layer.x(rank), layer.grad(rank)) for rank in range(size)]
    of_weight = [(grad.t() @ x).reshape(-1).numpy() for x, grad in pairs]
    want = {
        "y": [(x @ weight.t()).numpy() for x, _ in pairs],
        OF_X: [(grad @ weight).numpy() for _, grad in pairs],
        OF_SHARD: chunks_of(np.mean(of_weight, axis=0), size),
    }
    facts = {}
    for name, right in want.items():
        got = [seen.values.get(name) for seen in everyone]
        facts[name] = [Facts(rank, layer, everyone, name, got, right, tolerance, of_weight) for rank in range(size)]
    calls = [call for seen in everyone for call in seen.calls]
    tables: list[tuple[list[Test], list[Any]]] = [(CALLS, facts["y"])]
    tables += [(VALUES[name], facts[name]) for name in want]
    tables += [(AGAIN, facts["y"]), (KEPT, calls), (MEMORY, facts[OF_SHARD]), (BYTES, calls)]
    return next(filter(None, (judge(tests, *those) for tests, those in tables)), None)


def _judge_network(network: Layer, results: Sequence[tuple[list[list[np.ndarray]], Any]]) -> Finding | None:
    size, facts = len(results), []
    for step, whole in enumerate(trained(size)):
        for i, weight in enumerate(whole):
            got, name = [shards[step][i] for shards, _ in results], f"the shard of layer {i} after step {step}"
            want = chunks_of(weight.reshape(-1), size)
            facts += [OnAllRanks(rank, network, results, name, got, want, 1e-10) for rank in range(size)]
    return judge(UPDATED, *facts)


# -- what is said --

ANEW = (
    "Weights change with every step, and each layer has its own: gather in every call, and keep in ctx alone what "
    "backward needs."
)
CHANGED = "{what} to be as it was once {when} has returned"
STOPS = {  # where a rank cannot go on: what was asked, and why
    "the class": (
        f"{NAME} to be a torch.autograd.Function",
        "Keep the line of the class: it makes apply, which calls forward and notes backward.",
    ),
    "y": ("forward to return y, a tensor", "Nothing came back: is x times the weight returned?"),
    "backward": (
        "gradients of x and of the shard from backward, in their shapes",
        "backward returns one value for each argument of forward but ctx: of x's shape, of the shard's, (chunk,), and "
        "None for comm and shape.",
    ),
    "x": (CHANGED, "x is the caller's, perhaps another layer's output: change nothing in it, and work on a copy."),
    "shard": (
        CHANGED,
        "The shard is all that is left of the weight between calls, and the optimizer's to update: use a copy.",
    ),
    "grad": (
        CHANGED,
        "grad is autograd's, which may give the same tensor to others: change what is made of it alone.",
    ),
}


def _stopped(what: str, shown: str, when: str = "") -> Wrong:
    asked, why = STOPS[what]
    return Wrong(asked.format(what=what, when=when), shown, why)


CALLS = [
    THROUGH_WORLD,
    Test(
        "shard.grad written",
        lambda f: f.seen.written,
        "the gradient of shard to be returned on rank {rank} of {size}, and shard.grad to be left alone",
        "shard.grad was written by hand",
        "Autograd adds what backward returns to what shard.grad holds, of earlier micro-batches for instance. Hooks "
        "and torch.autograd.grad see what is returned, and nothing else.",
    ),
]
WHYS_Y = {
    "y has a row for each example of this rank, and a column for each row of the whole weight. It cannot be put "
    "together from parts of other ranks: their examples are others, and a chunk need not be whole rows.": (
        lambda f: f.other_shapes
    ),
    **chunks.WHYS_ANY,
    "The chunks are in another order: the weight begins with that of rank 0 of comm.": lambda f: f.gives(
        f.outputs(lambda rank, k: -1 - k)
    ),
    "The weight is put together column by column: a row of its elements takes the shape (out, in) as it is.": (
        lambda f: f.gives([(x @ torch.cat(f.shards)[: f.case.n].view(f.case.shape[::-1])).numpy() for x in f.xs])
    ),
    "Chunks are in the order in which they came. The r-th place is that of rank r's, on every rank.": (
        lambda f: f.gives(f.outputs(lambda rank, k: rank + k), f.outputs(lambda rank, k: rank - k))
    ),
    **chunks.ABOUT,
    "y is x times the transposed weight, which is all shards, one after the other, without the padding.": always,
}
WHYS_X = {
    **chunks.WHYS_ANY,
    "The gradient of x is this rank's own, of its own examples and loss: no sum and no mean over ranks.": (
        lambda f: (
            f.gives([row / f.size for row in f.want])
            or (f.alike and f.gives([sum(f.want)] * f.size, [sum(f.want) / f.size] * f.size))
        )
    ),
    **chunks.ABOUT,
}
WHYS_SHARD = {
    **chunks.WHYS_MEAN,
    "Weighted by numbers of examples: the mean is over ranks, and each rank counts once.": lambda f: f.gives(
        f.mean_of([row * w for row, w in zip(f.rows, f.weights, strict=True)]),
        [row * w for row, w in zip(f.want, f.weights, strict=True)],
    ),
    "Divided by the number of examples: the mean is over ranks, whatever a rank's own loss is.": lambda f: f.gives(
        [row * f.size / max(1, sum(f.examples)) for row in f.want]
    ),
    "What shard.grad held before is in it: autograd adds that, and backward returns this call's alone.": (
        lambda f: f.gives([row + BEFORE for row in f.want])
    ),
    "x was averaged over the examples: the gradient is a sum over them, of each one's grad times its own x.": (
        lambda f: f.gives(f.of_mean_x)
    ),
    "A mean over ranks was taken of grad alone, and multiplied by this rank's x. The mean is taken of the products: "
    "each rank's grad belongs to its own x.": lambda f: f.alike and f.gives(f.of_mean_grad),
    **chunks.ABOUT,
    "The transposed grad times x is the weight's: its mean is cut as the weight is.": always,
}
NO_GRADIENT = Test(
    "no gradient",
    lambda f: f.is_asked and f.result is None,
    "{name} on rank {rank} of {size}, with {case.what}",
    "None",
    "backward returns the gradients of x and of shard, in this order.",
)
VALUES = {
    name: [NO_GRADIENT, chunks.values(whys)] for name, whys in {"y": WHYS_Y, OF_X: WHYS_X, OF_SHARD: WHYS_SHARD}.items()
}
TWO = "two backwards, each with its own gradient of shard, on rank {rank} of {size}, with {case.what}"
AGAIN = [
    Test(
        "first overwritten",
        lambda f: f.seen.overwritten,
        TWO,
        "the first one has other values after the second",
        chunks.OVERWRITTEN,
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
WHYS_KEPT = {
    chunks.KEPT_BY_FILE: lambda f: "of the file" in f.kept,
    "The whole weight is kept, so that with many layers all of them are in memory at once. Keep the shard alone, "
    "and gather again in backward.": always,
}
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
        lambda f: f.seen.storage > f.result.nbytes,
        "a gradient of shard that keeps {result.nbytes} bytes on rank {rank}",
        "{seen.storage} bytes",
        chunks.VIEW,
    ),
]
WHYS_BYTES = {
    "Too little for a gather and a reduce-scatter. Does backward have the weight from forward?": (
        lambda f: f.sent.nbytes < f.want
    ),
    chunks.ALLREDUCE: lambda f: f.when == "backward" and any("llreduce" in name for name in f.sent.calls),
    **chunks.IN_FLOAT64,
    "Each rank sends its shard to each other rank once: an all-gather.": lambda f: f.when == "forward",
    "Backward needs one gather and one reduce-scatter: to another rank goes a chunk, and each once.": always,
}
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
UPDATED = [chunks.values(ANEW)]
AHEAD = [
    Test(
        "ahead",
        lambda f: f.sent.nbytes > f.want + SLACK,
        "layer {layer}'s weight alone to be gathered in its {when}, {want} bytes, on rank {rank} of {size}",
        "{sent.nbytes} bytes sent",
        "Weights are gathered ahead, so that several whole ones are in memory at once. Here it is one at a time: each "
        "call gathers its own layer's weight, and no other's.",
    )
]
