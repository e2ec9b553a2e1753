"""What e11_sequence is asked: two pairs of an all-gather and a reduce-scatter, summed gradients, and few bytes."""

import functools
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
import torch.fx.experimental.symbolic_shapes  # what a backward that is given gradients imports: before the clock starts
import torch.nn.functional as F

from mpcourse.course.check.answer import Answer
from mpcourse.course.check.cases.on_models import Finding, each_on_real, each_on_virtual, one_line
from mpcourse.course.check.facts import chunks
from mpcourse.course.check.facts.chunks import OnAllRanks, Rows
from mpcourse.course.check.facts.gradients import copies_of
from mpcourse.course.check.facts.messages import COMM, PICKLED, SLACK, THROUGH_WORLD, Sent, is_virtual, metered
from mpcourse.course.check.rules import Test, Whys, judge, rules, tests
from mpcourse.course.check.status_page import HasStatusPage
from mpcourse.course.check.wrong import Wrong
from mpcourse.virtual.ranks import ClusterError

if TYPE_CHECKING:
    from mpcourse.course.check.traced_mpi import TracedComm

Parts = dict[str, np.ndarray]  # what a rank has of parameters, by their names

# -- inputs --


@dataclass(frozen=True)
class Input:
    """An input. name: the function that is called. shape: of what one rank has of the rows.

    columns: whether tensors are transposed in memory. summed: the gradient is that of a sum. again: there is another
    call between forward and backward. alone: no backward. turned: comm has the ranks in the opposite order. measured:
    bytes are counted. why: for an answer that was right until then.
    """

    what: str
    name: str = ""
    shape: tuple[int, ...] = (2, 3)
    columns: bool = False
    summed: bool = False
    again: bool = False
    alone: bool = False
    turned: bool = False
    measured: bool = False
    why: str = ""
    dtype = torch.float64

    n = property(lambda self: int(np.prod(self.shape)))

    def drawn(self, seed: int, blocks: int = 1) -> torch.Tensor:
        shape = (blocks * self.shape[0], *self.shape[1:])
        drawn = torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=self.dtype)
        return drawn.transpose(0, -1).contiguous().transpose(0, -1) if self.columns else drawn

    def given(self, rank: int, size: int) -> torch.Tensor:
        return self.drawn(1 + rank, 1 if self.name == GATHER else size)

    def gradient(self, rank: int, size: int) -> torch.Tensor:
        """Return the gradient of what the function returns; that of a sum is one number in memory, expanded."""
        drawn = self.drawn(50 + rank, size if self.name == GATHER else 1)
        return torch.full((), 1.0 + rank, dtype=self.dtype).expand(drawn.shape) if self.summed else drawn


GATHER, SCATTER, SUM = "gather_in", "scatter_out", "sum_gradients"
IN_CTX = (
    "Several forwards may come before the first backward. What belongs to one call is kept in ctx, and not in a "
    "variable of the file."
)
AS_IT_LIES = "MPI takes memory as it lies, and this tensor is not contiguous: tensor.contiguous() makes a copy that is."
INPUTS = (
    Input("rows of 3 values", alone=True),
    Input("rows of 3 values, forward and backward"),
    Input("rows of shape (2, 3)", shape=(2, 2, 3), why="A row may have any shape: rows are the first dimension."),
    Input("tensors that are not contiguous", shape=(3, 4), columns=True, why=AS_IT_LIES),
    Input("the gradient of a sum", summed=True, why="The gradient of a sum is one number, expanded. " + AS_IT_LIES),
    Input("another call between forward and backward", again=True, why=IN_CTX),
    Input("ranks of a communicator that has them in another order", turned=True, why=COMM),
    Input("rows of 40 values", shape=(8, 40), measured=True),
)
CALLS = {name: [Input(**{**vars(each), "name": name}) for each in INPUTS] for name in (GATHER, SCATTER)}

# Name, shape, whether it has a gradient. The bias is frozen.
PARAMETERS = (("weight", (40,), True), ("unused", (2,), False), ("matrix", (12, 8), True), ("scale", (), True))
SUMS = (
    Input("parameters with and without gradients"),
    Input(
        "a gradient that is not contiguous",
        columns=True,
        why="A gradient need not be contiguous: .reshape(-1) copies where it has to, .view(-1) does not, and "
        "copy_ puts values back in their places.",
    ),
    Input("no gradients at all", alone=True, why="Where no parameter has a gradient, there is nothing to sum."),
    Input("ranks of a communicator that has them in another order", turned=True, why=COMM),
)
BLOCKS, STEPS, RATE, ROWS, WIDTH, HIDDEN = 2, 2, 0.05, 12, 4, 12  # all numbers of ranks here divide these
# A parameter's shape, and along which dimension ranks have parts of it; None: they have all of it.
LAYERS: dict[str, tuple[tuple[int, ...], int | None]] = {
    "the layer norm's weight": ((WIDTH,), None),
    "the layer norm's bias": ((WIDTH,), None),
    "the first layer's weight": ((HIDDEN, WIDTH), 0),
    "the first layer's bias": ((HIDDEN,), 0),
    "the second layer's weight": ((WIDTH, HIDDEN), 1),
    "the second layer's bias": ((WIDTH,), None),
}
TRAINING = Input(
    "two blocks in training",
    why="A single call was right, and the first that is not right comes after others. Results and buffers of one call "
    "have memory of their own, and nothing is kept for the next call.",
)


def check(answer: Answer, comm: "TracedComm") -> None:
    """Check the answer on real ranks; every rank must call this."""
    for name in (GATHER, SCATTER):
        each_on_real(answer, comm, CALLS[name][1:5], _call, _judge)
    each_on_real(answer, comm, SUMS[:2], _sum, _judge_sum)
    each_on_real(answer, comm, [TRAINING], _train, _judge_training)


def check_virtually(answer: Answer, comm: HasStatusPage) -> None:
    """Check the answer on virtual ranks; one process calls this."""
    asked = "results and gradients as of one process, on {ranks}, with {case.what}"
    for name in (GATHER, SCATTER):
        each_on_virtual(answer, comm, CALLS[name], _call, _judge, asked)
    each_on_virtual(answer, comm, SUMS, _sum, _judge_sum, asked)
    each_on_virtual(answer, comm, [TRAINING], _train, _judge_training, asked)


# -- observation --


class Seen(NamedTuple):
    """What a call of a function, and its backward, returned on a rank: None for what is no tensor.

    backward: whether it ran. overwritten: whether another call changed the result. calls: what was sent forward, and
    backward, where bytes are counted. sent: of virtual ranks.
    """

    result: np.ndarray | None
    gradient: np.ndarray | None = None
    backward: bool = False
    overwritten: bool = False
    calls: Sequence[Sent] = ()
    sent: Sent | None = None


def _copy(tensor: Any) -> np.ndarray | None:
    return tensor.detach().numpy().copy() if isinstance(tensor, torch.Tensor) else None


def _call(case: Input, own: Answer, comm: Any) -> Seen:
    with chunks.given(comm, case) as (ranks, sent):
        x = case.given(ranks.rank, ranks.size).requires_grad_()
        y_gradient = case.gradient(ranks.rank, ranks.size)
        meter = metered(ranks) if case.measured and is_virtual(ranks) else Sent
        y = own.call(case.name, ranks, x)
        calls, result = [meter()], _copy(y)
        if case.alone or result is None or result.shape != y_gradient.shape:
            return Seen(result, sent=sent())
        if case.again:
            own.call(case.name, ranks, -x)
            own.call(case.name, ranks, x[..., :2] * 3)
        overwritten = not np.array_equal(result, y.detach().numpy(), equal_nan=True)
        gradient = _copy(own.run(functools.partial(_backward, case, own), "backward", y, x, y_gradient, changes=(y,)))
        calls.append(meter())
    return Seen(result, gradient, True, overwritten, calls if case.measured else (), sent())


def _backward(case: Input, own: Answer, y: torch.Tensor, x: torch.Tensor, gradient: torch.Tensor) -> Any:
    """Return the gradient of x. Wrong for what autograd refuses."""
    try:
        return torch.autograd.grad(y, x, gradient, allow_unused=True)[0]
    except (RuntimeError, TypeError) as error:
        mine = any(frame.filename == str(own.path) for frame in traceback.extract_tb(error.__traceback__))
        if isinstance(error, ClusterError) or (mine and "returned an" not in str(error)):
            raise
        asked = f"a gradient of shape {tuple(x.shape)} from the backward of {case.name}, beside None for comm"
        raise Wrong(asked, one_line(error), REFUSED) from None


class Summed(NamedTuple):
    """Gradients by parameter, before and after the call. kept: whether the parameters have their values."""

    before: list[np.ndarray | None]
    after: list[np.ndarray | None]
    kept: bool
    sent: Sent | None


def _sum(case: Input, own: Answer, comm: Any) -> Summed:
    with chunks.given(comm, case) as (ranks, sent):
        parameters = []
        for number, (name, shape, has) in enumerate(PARAMETERS):
            draw = torch.Generator().manual_seed(1 + number + 10 * ranks.rank)
            p = torch.nn.Parameter(torch.ones(shape, dtype=case.dtype), requires_grad=name != "unused")
            gradient = torch.randn(shape, generator=draw, dtype=case.dtype)
            gradient = gradient.t().contiguous().t() if case.columns and len(shape) == 2 else gradient
            p.grad = gradient if has and not case.alone else None
            parameters.append(p)
        before = copies_of(parameters)
        own.call(SUM, ranks, parameters, changes=(parameters,))
        kept = all(bool((p == 1).all()) for p in parameters)
        return Summed(before, copies_of(parameters), kept, sent())


def _parameters(rank: int, size: int) -> list[dict[str, torch.Tensor]]:
    """Return what a rank has of the parameters of each block."""
    draw = torch.Generator().manual_seed(3)
    blocks = []
    for _ in range(BLOCKS):
        whole = {name: torch.randn(shape, generator=draw, dtype=Input.dtype) for name, (shape, _) in LAYERS.items()}
        parts = {name: p if (cut := LAYERS[name][1]) is None else p.chunk(size, cut)[rank] for name, p in whole.items()}
        blocks.append({name: (p / 2).clone().requires_grad_() for name, p in parts.items()})
    return blocks


def _trained(rank: int, size: int, gather: Callable, scatter: Callable, reduce: Callable) -> list[Parts]:
    """Return a rank's parameters of all blocks after each step, by their names."""
    blocks, found = _parameters(rank, size), []
    draw = torch.Generator().manual_seed(5)
    for step in range(STEPS):
        x, target = torch.randn((2, ROWS, WIDTH), generator=draw, dtype=Input.dtype).chunk(size, 1)[rank]
        for block in blocks:
            norm, norm_bias, first, first_bias, second, bias = block.values()
            hidden = F.gelu(F.linear(gather(F.layer_norm(x, (WIDTH,), norm, norm_bias)), first, first_bias))
            x = x + scatter(F.linear(hidden, second)) + bias
        (((x - target) ** 2).sum() / ROWS).backward()
        reduce([p for block in blocks for name, p in block.items() if LAYERS[name][1] is None])
        with torch.no_grad():
            for p in [p for block in blocks for p in block.values()]:
                p -= RATE * (0 if p.grad is None else p.grad)
                p.grad = None
        after = {f"{name} in block {i}, after step {step}": p for i, b in enumerate(blocks) for name, p in b.items()}
        found.append({name: p.detach().numpy().copy() for name, p in after.items()})
    return found


def _train(case: Input, own: Answer, comm: Any) -> list[Parts]:
    functions = [functools.partial(getattr(own.module, name), comm) for name in (GATHER, SCATTER, SUM)]
    return own.run(lambda comm: _trained(comm.rank, comm.size, *functions), "blocks in training", comm)


# -- facts --


class Facts(OnAllRanks):
    """A function's result, the gradient that its backward returned, or a gradient that was summed.

    rows: what each rank was given, or its own gradient.
    """

    forward = property(lambda self: self.name.startswith("the result"))
    gathers = property(lambda self: (self.case.name == GATHER) == self.forward)
    overwritten = property(lambda self: self.seen.overwritten)
    nothing = property(lambda self: self.result is None)
    shape = property(lambda self: self.want[self.rank].shape)
    reshaped = property(lambda self: self.result.shape != self.shape)
    wrong_rows = property(lambda self: self.gathers and self.difference)
    wrong_sum = property(lambda self: self.difference)

    # What known mistakes make of the shape.

    as_given = property(lambda self: self.result.shape == self.rows[self.rank].shape)
    only_own = property(lambda self: self.gathers and self.as_given)
    all_rows = property(lambda self: not self.gathers and self.as_given)
    new_axis = property(lambda self: self.gathers and self.result.shape == (self.size, *self.rows[0].shape))
    other_axis = property(
        lambda self: self.gathers and self.result.size == self.want[0].size and len(self.result) == len(self.rows[0])
    )

    # What they make of rows that are gathered.

    own_repeated = property(lambda self: self.gives([np.concatenate([row] * self.size) for row in self.rows]))

    @property
    def padded(self) -> bool:
        own = [[row if at == r else 0 * row for at in range(self.size)] for r, row in enumerate(self.rows)]
        return self.gives([np.concatenate(parts) for parts in own])

    @property
    def other_order(self) -> bool:
        got, want = (rows.reshape(len(rows), -1) for rows in (self.result, self.want[0]))
        return self.same(*(rows[np.argsort(rows[:, 0])] for rows in (got, want)))

    # What they make of a sum whose rows are shared.

    blocks = property(lambda self: [np.split(row, self.size) for row in self.rows])  # by rank
    sums = property(lambda self: np.split(self.total, self.size))
    own_rows = property(lambda self: self.gives([blocks[r] for r, blocks in enumerate(self.blocks)]))
    own_gradient = property(lambda self: not self.forward and self.own_rows)
    own_blocks = property(lambda self: self.gives([np.sum(blocks, axis=0) for blocks in self.blocks]))
    interleaved = property(lambda self: self.gives([self.total[r :: self.size] for r in range(self.size)]))
    without_own = property(lambda self: self.gives([s - self.blocks[r][r] for r, s in enumerate(self.sums)]))
    source = property(lambda self: self.first_same([blocks[self.rank] for blocks in self.blocks]))
    of_one_rank = property(lambda self: self.source is not None)
    block = property(lambda self: self.first_same(self.sums))
    of_another_rank = property(lambda self: self.block is not None)

    def first_same(self, rows: Rows) -> int | None:
        """Return the number of the first of these that the result is; None for none."""
        return next((number for number, row in enumerate(rows) if self.same(self.result, row)), None)

    # What they make of anything.

    mean = property(lambda self: self.gives([row / self.size for row in self.want]))

    @property
    def factor(self) -> float | None:
        """By what all ranks' right values are multiplied; None where they are not."""
        at = np.unravel_index(np.abs(self.want[0]).argmax(), self.want[0].shape)
        factor = float(self.got[0][at] / self.want[0][at])
        return factor if abs(factor) > 1e-9 and self.gives([row * factor for row in self.want]) else None

    # Gradients that were summed.

    had = property(lambda self: self.rows[self.rank].size > 0)
    filled_in = property(lambda self: not self.had and self.result is not None)
    missing = property(lambda self: self.had and self.result is None)
    values_changed = property(lambda self: not self.seen.kept)
    wrong = property(lambda self: self.had and self.difference)
    unchanged = property(lambda self: self.same(self.result, self.rows[self.rank]))
    added = property(lambda self: self.gives([own + self.total for own in self.rows]))
    only_there = property(lambda self: self.there and self.unchanged)
    other_calls = property(
        lambda self: len(self.sent.calls) > 1 or {*self.sent.calls} - {"Allreduce", "Iallreduce", "Barrier"}
    )
    call_by_parameter = property(lambda self: len(self.sent.calls) >= sum(has for _, _, has in PARAMETERS))


@dataclass(frozen=True)
class Call:
    """What one forward or backward sent. gathers: whether it is an all-gather. most: bytes that it may send."""

    rank: int
    size: int
    what: str
    gathers: bool
    sent: Sent
    most: int

    kinds = property(lambda self: {name.removeprefix("I").removesuffix("v").lower() for name in self.sent.calls})
    too_many = property(lambda self: self.sent.nbytes > self.most + SLACK)
    summed_zeros = property(lambda self: "allreduce" in self.kinds)
    summed_everywhere = property(lambda self: not self.gathers and self.summed_zeros)
    gathered_and_summed = property(lambda self: not self.gathers and "allgather" in self.kinds)
    by_root = property(lambda self: self.kinds & {"reduce", "gather", "bcast", "scatter"})
    times = property(lambda self: self.sent.nbytes / self.most)


def _judge(case: Input, results: Sequence[Seen]) -> Finding | None:
    everyone = results[::-1] if case.turned else results
    ranks = range(len(everyone))
    facts: list[list[Facts]] = [[], []]
    calls = []
    for backward, of in enumerate(("the result of {}", "the gradient of {}'s x")):
        given = [(case.gradient if backward else case.given)(rank, len(ranks)).numpy() for rank in ranks]
        gathers = (case.name == GATHER) != bool(backward)
        want = [np.concatenate(given)] * len(ranks) if gathers else np.split(np.sum(given, axis=0), len(ranks))
        got = [seen.gradient if backward else seen.result for seen in everyone]
        if not backward or all(seen.backward for seen in everyone):
            name = of.format(case.name)
            facts[backward] = [Facts(rank, case, everyone, name, got, want, 1e-12, given) for rank in ranks]
        what, most = f"the {'backward' if backward else 'forward'} of {case.name}", (len(ranks) - 1) * case.n * 8
        measured = [(rank, seen.calls[backward]) for rank, seen in enumerate(everyone) if seen.calls]
        calls += [Call(rank, len(ranks), what, gathers, sent, most) for rank, sent in measured]
    forwards, gradients = facts
    tables: list[tuple[list[Test], list[Any]]] = [([THROUGH_WORLD], forwards), (VALUES, forwards)]
    tables += [(AGAIN, forwards), (VALUES, gradients), (BYTES, calls)]
    return next(filter(None, (judge(each, *those) for each, those in tables)), None)


def _judge_sum(case: Input, results: Sequence[Summed]) -> Finding | None:
    everyone = results[::-1] if case.turned else results
    facts = []
    for number, (name, _, _) in enumerate(PARAMETERS):
        rows = [seen.before[number] for seen in everyone]
        own = [np.zeros(0) if row is None else row for row in rows]
        got, want = [seen.after[number] for seen in everyone], [np.sum(own, axis=0)] * len(own)
        facts += [Facts(rank, case, everyone, f"{name}.grad", got, want, 1e-12, own) for rank in range(len(everyone))]
    return judge(SUMMED, *facts) or (judge(SENT, *facts[: len(everyone)]) if everyone[0].sent else None)


def _judge_training(case: Input, results: Sequence[list[Parts]]) -> Finding | None:
    size, facts = len(results), []
    for step, whole in enumerate(_trained(0, 1, lambda x: x, lambda x: x, lambda parameters: None)):
        for name, right in whole.items():
            cut = LAYERS[name.partition(" in block")[0]][1]
            want = [right] * size if cut is None else np.split(right, size, cut)
            got = [found[step][name] for found in results]
            facts += [OnAllRanks(rank, case, results, name, got, want, 1e-9) for rank in range(size)]
    return judge(TRAINED, *facts)


# -- what is said --

REFUSED = "backward returns one value for each argument of forward but ctx: None for comm, and a gradient of x's shape."
WHYS_SHAPE = rules(
    only_own="These are as many rows as this rank has. The rows of all ranks are asked.",
    new_axis="There is a dimension for the ranks. The rows of all ranks follow each other in the first dimension.",
    other_axis="The ranks' parts were joined along another dimension. Rows are the first one.",
    all_rows="These are all rows. A rank keeps only its own rows of the sum.",
    otherwise="gather_in returns p times as many rows as it is given, and scatter_out returns a p-th of them.",
)
FACTOR = rules(
    mean="Divided by the number of ranks. Nothing is averaged here, because all ranks compute one loss together.",
    factor="Right but for a factor of {factor:.4g}: each rank's numbers count once.",
)
WHYS_GATHERED: Whys = [
    chunks.WHYS_ANY,
    *rules(
        padded=(
            "This rank's own rows are in their place, and all others are zero. Each row of x is in the result of some "
            "rank, which has the gradient of this row."
        ),
        own_repeated="All rows are this rank's own. Each rank needs the rows of all others, too.",
        other_order=(
            "All rows are there, in another order. The rows of rank 0 come first, then those of rank 1, and so on."
        ),
    ),
    *FACTOR,
    chunks.ABOUT,
    "The rows of all ranks were asked, as they are, in order of rank.",
]
WHYS_SCATTERED: Whys = [
    chunks.WHYS_ANY,
    *rules(
        own_gradient=(
            "These are this rank's rows of its own `gradient`, which was not summed. What follows gather_in differs "
            "from rank to rank, and the loss depends on x through all of it."
        ),
        own_rows=(
            "These are this rank's rows of its own x. Each rank has only a part of the result, and the parts have to "
            "be added up."
        ),
        own_blocks="These are the blocks of this rank's own tensor, added up. Nothing of other ranks is in it.",
        of_one_rank="These rows come from rank {source} alone. The tensors of all ranks have to be added up.",
        of_another_rank="These are rows of the sum, but those of rank {block}. Rank r has the r-th block of rows.",
        interleaved=(
            "These are every p-th row of the sum. Rank r has the r-th of p equal blocks of rows that follow each other."
        ),
        without_own="The sum is over all other ranks: this rank's own part is missing.",
    ),
    *FACTOR,
    chunks.ABOUT,
    "This rank's rows of the sum over all ranks were asked.",
]
SHAPE = "{name} of shape {shape} on rank {rank} of {size}, with {case.what}"
VALUES = tests(
    nothing=(SHAPE, "None", "Nothing came back: is it returned?"),
    reshaped=(SHAPE, "shape {result.shape}", WHYS_SHAPE),
    wrong_rows=("{difference[0]}", "{difference[1]}", WHYS_GATHERED),
    wrong_sum=("{difference[0]}", "{difference[1]}", WHYS_SCATTERED),
)
AGAIN = tests(
    overwritten=(
        "a result to keep its values when the function is called again",
        "other values",
        chunks.OVERWRITTEN,
    ),
)
WHYS_BYTES = rules(
    summed_everywhere=(
        "Right, but an all-reduce sends twice as much: it gives the whole sum to all ranks, and each needs only its "
        "rows."
    ),
    summed_zeros=(
        "Right, but an all-reduce of rows padded with zeros sends twice as much as an all-gather, and adds zeros."
    ),
    gathered_and_summed=(
        "Right, but an all-gather brings every rank the whole tensors of all ranks. Each rank needs only its rows of "
        "them."
    ),
    by_root="Right, but one rank receives everything and sends it on: what its link carries, all links could share.",
    otherwise="Right, but that is {times:.3g} times what has to be sent.",
)
BYTES = [
    PICKLED,
    *tests(
        too_many=(
            "at most {most} bytes to be sent in {what}, by rank {rank} of {size}",
            "{sent.by}",
            WHYS_BYTES,
        ),
    ),
]
WHYS_SUM: Whys = [
    *rules(only_there="Only {who} has the sum. All ranks need it: Reduce brings it to one rank, and Allreduce to all."),
    chunks.WHYS_ANY,
    *rules(
        unchanged=(
            "That is this rank's own gradient. It comes from this rank's rows alone, and the parameter is the same on "
            "all ranks."
        ),
        mean=(
            "That is the mean. All ranks compute one loss together, so the gradient is the sum of what comes from each "
            "rank's rows."
        ),
        added="The sum was added to the gradient that was there. It has to take its place.",
    ),
    *FACTOR,
    chunks.ABOUT,
    "The sum of all ranks' gradients of this parameter is asked. Each part of the buffer goes back to its parameter.",
]
SUMMED = tests(
    values_changed=("parameters to keep their values", "other values", "Sum p.grad, and leave p as it is."),
    filled_in=(
        "a .grad that is None on all ranks to stay None",
        "a tensor",
        "A gradient that is None stays None: an optimizer leaves such a parameter out.",
    ),
    missing=("{name} on rank {rank}", "None", "The gradient is gone: put the sum in its place."),
    wrong=("{difference[0]}", "{difference[1]}", WHYS_SUM),
)
WHYS_CALLS = rules(
    call_by_parameter=(
        "Right, but there is a call for each parameter, and each call waits for the network's latency. Put all "
        "gradients into one flat buffer."
    ),
    otherwise="Right, but one call of comm.Allreduce can sum all gradients at once, if they are in one flat buffer.",
)
SENT = [
    THROUGH_WORLD,
    PICKLED,
    *tests(other_calls=("one call of comm.Allreduce on rank {rank} of {size}", "{sent.by}", WHYS_CALLS)),
]
TRAINED = [chunks.values([chunks.WHYS_ANY, chunks.ABOUT])]
