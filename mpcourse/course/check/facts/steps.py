"""Pipelined steps: cases and their oracle, which action ran when and on which tensors, what a step holds and takes."""

import contextlib
import copy
import functools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mpcourse.common.source import source_lines
from mpcourse.common.words import counted
from mpcourse.course.check.answer import Answer
from mpcourse.course.check.facts.schedules import actions_text, first
from mpcourse.course.check.facts.tensors import ROUNDED, close, lanes, rounded
from mpcourse.course.check.time_limit import within_seconds
from mpcourse.course.check.wrong import short, to_numpy
from mpcourse.pipeline import Action, Schedule, gpipe, one_f_one_b, pipeline_step, replay
from mpcourse.split import split
from mpcourse.virtual import Box
from mpcourse.virtual.gpus.modes import outside

WIDTH = 6
SECONDS = 2.0  # of computing, for one step: the longest right one takes a fortieth of that
ENDLESS = "Is there a stage whose next input never arrives, or a loop that ends only when all do at once?"
FIRST, FROZEN = "parameters whose .grad is None", "a parameter whose requires_grad is False"

# -- inputs and the oracle --


class Piece(NamedTuple):
    """A micro-batch. share: of the examples. loss: the mean over its own, from which its gradients are.

    given: what each stage is given of it, and then what the last one returns. starts: what each backward starts from.
    """

    target: Tensor
    share: float
    given: list[np.ndarray]
    starts: list[np.ndarray]
    gradients: list[np.ndarray]
    loss: Tensor


class PipelinedStep:
    """A model of as many stages as `schedule` has, one a device, and what a step must do with it.

    having: FIRST: it has no gradients yet; else it has those of a step before. FROZEN: a parameter is not trained.
    """

    def __init__(self, schedule: Sequence[Sequence[tuple]], batch: int, having: str = "") -> None:
        self.schedule: Schedule = [[Action(*a) for a in row] for row in schedule]
        self.having, self.n, self.p = having, batch, len(schedule)
        self.m = 1 + max(a.microbatch for a in self.schedule[0])
        replay(self.schedule)
        with outside():
            layers = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(self.p)]
            layers[0][0].bias.requires_grad_(having != FROZEN)
            self.x, self.target = torch.randn(2, batch, WIDTH)
            self.whole = nn.Sequential(*layers)
            if having != FIRST:
                F.mse_loss(self.whole(torch.randn(4, WIDTH)), torch.randn(4, WIDTH)).backward()
            self.earlier = [None if q.grad is None else q.grad.clone() for q in self.whole.parameters()]
            copies = copy.deepcopy(layers)  # without gradients
            for q, earlier in zip(nn.Sequential(*copies).parameters(), self.earlier, strict=True):
                q.grad = None if earlier is None else earlier.clone()
            self.loss = F.mse_loss(self.whole(self.x), self.target)
            self.loss.backward()
        self.devices = [f"vgpu:{s}" for s in range(self.p)]
        self.stages = [layer.to(device) for layer, device in zip(copies, self.devices, strict=True)]
        self.given = self.x.to(self.devices[0]), self.target.to(self.devices[-1])

    def run(self, answer: Answer, loss: Callable = F.mse_loss) -> Any:
        """Ask for the step; the schedule that is given must be left as it is."""
        plain = [[(a.kind, a.microbatch) for a in row] for row in self.schedule]
        arguments = (self.stages, list(self.devices), plain, *self.given, loss)
        with within_seconds(answer, SECONDS, "pipeline_step to return", ENDLESS):
            return answer.call("pipeline_step", *arguments, changes=(self.stages, *self.given))

    @property
    def asked(self) -> str:
        rows = "; ".join(f"stage {s}: {actions_text(row)}" for s, row in enumerate(self.schedule[:3]))
        having = f" with {self.having}" if self.having else ""
        return f"{counted(self.m, 'micro-batch')} of a batch of {self.n}{having}, {rows}"

    @cached_property
    def pieces(self) -> list[Piece]:
        pieces, trained = [], [q for q in self.whole.parameters() if q.requires_grad]
        with outside():
            for x, target in zip(self.x.tensor_split(self.m), self.target.tensor_split(self.m), strict=True):
                given = [out := x, *[out := stage(out) for stage in self.whole]]
                loss, share = F.mse_loss(out, target), len(x) / self.n
                gradients = [g.numpy() for g in torch.autograd.grad(loss, [*given[1:], *trained])]
                starts = [share * g for g in gradients[: self.p]]
                inputs = [each.detach().numpy() for each in given]
                pieces.append(Piece(target, share, inputs, starts, gradients[self.p :], loss.detach()))
        return pieces


# -- what was seen of a step --


class Stranger(NamedTuple):
    """What an F was given that is no micro-batch's. dtype: to which one of these is rounded here; empty for none.

    examples: those of x that it is; None: no examples in a row.
    """

    stage: int
    asked: str
    shape: tuple[int, ...]
    dtype: str
    examples: range | None


class Start(NamedTuple):
    """A stage's B of micro-batch k, and whose gradient it starts from, None: of no micro-batch; rounded to dtype."""

    stage: int
    k: int
    of: int | None
    dtype: str


class Step:
    """What was seen of two runs: `look` sees what stages do, but waits for results; `run` is judged by its results.

    rows: for each stage, the actions that it ran. strangers: each F whose input is no micro-batch's.
    uncut: whether autograd leads from a stage's input to the stage before. asleep: whether one needs no gradient.
    moved: whether one is made from a leaf, and is none. refilled: the B whose F's input has other numbers by then.
    starts: each B that starts from another gradient. losses: (k, j), micro-batch k's loss was taken against the targets
    of j. error: what ended the run.
    """

    def __init__(self, schedule: Sequence[Sequence[tuple]], batch: int, having: str = "") -> None:
        self.new_case = functools.partial(PipelinedStep, schedule, batch, having)

    def look(self, answer: Answer) -> None:
        """Ask for the step and look on."""
        case = self.case = self.new_case()
        self.m, self.p, self.n = case.m, case.p, case.n
        self.rows: list[list[Action]] = [[] for _ in case.stages]
        self.strangers: list[Stranger] = []
        self.uncut = self.asleep = self.moved = False
        self.refilled: list[tuple[int, int]] = []
        self.starts: list[Start] = []
        self.losses: list[tuple[int, int | None]] = []
        self.error: Exception | None = None
        pieces = case.pieces  # made now, and not in a hook, where autograd is off

        @functools.wraps(F.mse_loss)
        def loss(*args: Any, **options: Any) -> Tensor:
            k = _which(args[0], [piece.given[-1] for piece in pieces]) if len(args) > 1 else None
            if k is not None:
                self.losses.append((k, _which(args[1], [piece.target for piece in pieces])))
            return F.mse_loss(*args, **options)

        with contextlib.ExitStack() as stack:
            for s, stage in enumerate(case.stages):
                # A function, which a copy of the stage shares: of a bound method it would copy all that was seen.
                handle = stage.register_forward_hook(lambda *seen, s=s: self._forward(s, *seen))
                stack.callback(handle.remove)
            try:
                case.run(answer, loss)
            except (RuntimeError, LookupError, AttributeError, TypeError) as error:
                self.error = error
        self.autograd_off = not torch.is_grad_enabled()
        torch.set_grad_enabled(True)

    def _forward(self, s: int, module: nn.Module, args: tuple, output: Tensor) -> None:
        given = args[0]
        k = _which(given, [piece.given[s] for piece in self.case.pieces])
        if k is None:
            self.strangers.append(self._stranger(s, given.detach().cpu()))
            return
        if s > 0:
            self.asleep |= not given.requires_grad
            if given.grad_fn is not None:
                parameters = {id(q) for stage in self.case.stages for q in stage.parameters()}
                uncut = any(id(leaf) in parameters for leaf in _leaves(given))
                self.uncut |= uncut
                self.moved |= not uncut
        self.rows[s].append(Action("F", k))
        if output.requires_grad:
            output.register_hook(functools.partial(self._backward, s, k, given))

    def _stranger(self, s: int, given: Tensor) -> Stranger:
        asked = "what the stage before made of one micro-batch" if s else "one micro-batch"
        dtypes = (rounded(given, torch.as_tensor(piece.given[s])) for piece in self.case.pieces)
        n, x = len(given), self.case.x
        ranges = (range(i, i + n) for i in range(len(x) - n + 1) if n and s == 0)
        examples = first(each for each in ranges if close(given, x[each.start : each.stop]))
        return Stranger(s, asked, tuple(given.shape), first(filter(None, dtypes)) or "", examples)

    def _backward(self, s: int, k: int, given: Tensor, gradient: Tensor) -> None:
        self.rows[s].append(Action("B", k))
        if not close(given, self.case.pieces[k].given[s]):
            self.refilled.append((s, k))
        want = [piece.starts[s] for piece in self.case.pieces]
        if (j := _which(gradient, want)) != k:
            self.starts.append(Start(s, k, j, rounded(gradient, torch.as_tensor(want[k]))))

    def run(self, answer: Answer, box: Box) -> None:
        """Ask for the step once more, with other numbers."""
        self.case = self.new_case()
        box.reset()
        self.result = self.case.run(answer)
        self.copies = lanes(box)
        # Where Python waited although it had more work to give out.
        given_out = max((i for i, e in enumerate(box.events) if e.kind == "enqueue"), default=0)
        self.waits = [e for e in box.events[:given_out] if e.kind == "wait"]

    @property
    def parameters(self) -> list[tuple[int, str, Any, Any]]:
        """(stage, name, parameter, the same of the whole model), which has what is right."""
        pairs = enumerate(zip(self.case.stages, self.case.whole, strict=True))
        named = ((s, *both) for s, (a, b) in pairs for both in zip(a.named_parameters(), b.parameters(), strict=True))
        return [(s, name, q, w) for s, (name, q), w in named]

    # What a run left otherwise than it was; (stage, ...) of the first.

    @property
    def asks(self) -> str | None:
        given = zip(("x", "target"), self.case.given, strict=True)
        return first(name for name, t in given if t.requires_grad or t.grad is not None)

    modules = property(lambda self: [(s, m) for s, stage in enumerate(self.case.stages) for m in stage.modules()])
    evaluating = property(lambda self: first(s for s, module in self.modules if not module.training))
    trained = property(
        lambda self: first((s, q.requires_grad) for s, _, q, w in self.parameters if q.requires_grad != w.requires_grad)
    )
    changed = property(
        lambda self: first((s, name) for s, name, q, w in self.parameters if not torch.equal(q.detach().cpu(), w))
    )

    # Inputs that are no micro-batch's.

    stranger = property(lambda self: self.strangers[0])
    pieces = property(lambda self: [each.examples for each in self.strangers if each.stage == 0])
    counts = property(lambda self: [c for c in range(1, 2 * self.n) if {*self.pieces} <= {*_cut(self.n, c)}])
    piece = property(lambda self: len(self.pieces[0]))
    no_piece = property(lambda self: self.stranger.stage or None in self.pieces)
    rounded_input = property(lambda self: ROUNDED.format(self.stranger.dtype))
    more = property(lambda self: " or more" * (len(self.counts) > 1))
    microbatches = property(lambda self: counted(self.m, "micro-batch"))

    # Actions that ran otherwise than asked.

    @property
    def stage(self) -> int | None:
        """The first stage whose actions are not the list's; of a run that has stopped, not its beginning."""
        pairs = enumerate(zip(self.rows, self.case.schedule, strict=True))
        return first(s for s, (row, want) in pairs if row != (want[: len(row)] if self.error else want))

    row = property(lambda self: self.rows[self.stage])
    to_run = property(lambda self: self.case.schedule[self.stage])
    in_list = property(lambda self: actions_text(self.to_run))
    ran = property(lambda self: actions_text(self.row) + (f", then {self.text}" if self.error else ""))
    twice = property(lambda self: first(a for a in self.row if self.row.count(a) > 1))
    missing = property(lambda self: None if self.error else first(a for a in self.to_run if a not in self.row))

    @property
    def place(self) -> tuple[list[Action], Action, Action] | None:
        """(what ran before, what ran, what was asked) where the two differ first; None: one goes on where one ends."""
        pairs = enumerate(zip(self.row, self.to_run, strict=False))
        return first((self.row[:i], a, b) for i, (a, b) in pairs if a != b)

    before = property(lambda self: self.place[0])
    got = property(lambda self: self.place[1])
    asked = property(lambda self: self.place[2])
    newest = property(lambda self: first(a for a in reversed(self.before) if a.kind == "F"))

    @property
    def other_k(self) -> bool:
        """Whether the right kind of action ran of another micro-batch, and was no second run of a forward."""
        alike = self.place and self.got.kind == self.asked.kind
        return bool(alike) and not (self.got.kind == "F" and self.got in self.before)

    # What ended the run.

    @property
    def text(self) -> str:
        """The error on one line."""
        line = (str(self.error).splitlines() or [""])[0]
        text = f"{type(self.error).__name__}: {line}"
        return text if len(text) <= 150 else text[:146] + " ..."

    def says(self, *words: str) -> bool:
        return any(each in f"{type(self.error).__name__}: {self.error}" for each in words)

    key = property(lambda self: short(self.error.args[0]))
    none = property(lambda self: isinstance(self.error, AttributeError | TypeError) and self.says("NoneType"))

    @property
    def by_microbatch_only(self) -> bool:
        """Whether a key is missing that is the number of a micro-batch, though that micro-batch's F has run.

        With more than one micro-batch it may be the number of a stage.
        """
        key = self.error.args[0] if isinstance(self.error, KeyError) and self.error.args else None
        if isinstance(key, tuple) and len(key) == 2 and key[0] in ("F", "B"):
            key = key[1]
        return type(key) is int and self.m == 1 and sum(Action("F", key) in row for row in self.rows) > 1

    @property
    def next(self) -> list[tuple[int, Action, str, int, bool]]:
        """(stage, its next action, what this needs, the stage that makes it, whether it has), the least done first."""
        pairs = zip(self.rows, self.case.schedule, strict=True)
        unfinished = [(len(row), s, want[len(row)]) for s, (row, want) in enumerate(pairs) if len(row) < len(want)]
        needs = {"F": ("output", -1), "B": ("gradient", 1)}
        found = [(s, a, needs[a.kind][0], s + needs[a.kind][1]) for _, s, a in sorted(unfinished)]
        return [(*each, each[3] not in range(self.p) or each[1] in self.rows[each[3]]) for each in found]

    absent = property(lambda self: first(each for each in self.next if not each[4]))
    ready = property(lambda self: [each for each in self.next if each[1].kind == "B" and each[4]])
    no_loss = property(lambda self: self.ready and self.ready[0][1].microbatch not in [k for k, _ in self.losses])
    middle = property(lambda self: first(each for each in self.ready if each[3] < self.p))

    # What the second run left in the parameters.

    wrong = property(lambda self: [each for each in self.parameters if not _same(each[2].grad, each[3].grad)])
    its_stage = property(lambda self: (self.wrong or self.parameters)[0][0])
    gradient = property(lambda self: (self.wrong or self.parameters)[0][2].grad)
    wanted = property(lambda self: (self.wrong or self.parameters)[0][3].grad)
    wrong_stages = property(lambda self: {s for s, *_ in self.wrong})
    right_stages = property(lambda self: ", ".join(str(s) for s in range(self.p) if s not in self.wrong_stages))
    backwards = property(lambda self: any(a.kind == "B" for row in self.rows for a in row))
    shares = property(lambda self: [piece.share for piece in self.case.pieces])

    def has(self, *weights: Callable[[float, int], float], earlier: float = 1.0) -> bool:
        """Return whether all gradients are what one of `weights` gives.

        weights: of a micro-batch in a stage, from its share of the examples. earlier: of the gradients before.
        """

        def gives(weight: Callable[[float, int], float]) -> bool:
            for i, (s, _, q, _) in enumerate(self.parameters):
                before = self.case.earlier[i]
                new = np.sum([weight(piece.share, s) * piece.gradients[i] for piece in self.case.pieces], axis=0)
                want = new if before is None else new + earlier * to_numpy(before)
                if q.grad is None or not close(q.grad, want):
                    return False
            return True

        return any(map(gives, weights))

    start = property(lambda self: max(self.starts, key=lambda start: start.stage))  # those before it follow from it
    other_targets = property(lambda self: first((k, j) for k, j in self.losses if k != j))
    device = property(lambda self: self.case.devices[-1])

    alone = property(lambda self: torch.stack([piece.loss for piece in self.case.pieces]))  # the mean loss of each
    shown = property(lambda self: short(self.result))
    waited = property(lambda self: ", at ".join([counted(len(self.waits), "time"), *self.lines[:1]]))
    lines = property(lambda self: [e.asked for e in self.waits if e.asked])
    over_cpu = property(lambda self: any(lane.endswith("cpu") for lane in self.copies))

    @property
    def lane(self) -> tuple[str, int, int] | None:
        """(lane, copies asked, copies made) of the first lane with more copies than asked, or else with fewer."""
        cuts = list(zip(self.case.devices, self.case.devices[1:], strict=False))
        want = Counter({f"{a} -> {b}": self.m for pair in cuts for a, b in (pair, pair[::-1])})
        got = Counter(self.copies)
        return first((lane, want[lane], got[lane]) for lane in [*(got - want), *(want - got)])


def _which(tensor: Tensor, known: Sequence[Tensor | np.ndarray]) -> int | None:
    there = to_numpy(tensor.detach())
    return first(k for k, one in enumerate(known) if close(there, one))


def _same(got: Tensor | None, want: Tensor | None) -> bool:
    return got is want if got is None or want is None else close(got, want)


def _leaves(tensor: Tensor) -> Iterator[Tensor]:
    """Yield the leaves that autograd would reach from `tensor`."""
    ways, been = [tensor.grad_fn], set()
    while ways:
        if (node := ways.pop()) is None or node in been:
            continue
        been.add(node)
        if hasattr(node, "variable"):
            yield node.variable
        ways += [following for following, _ in node.next_functions]


def _cut(examples: int, count: int) -> list[range]:
    pieces = torch.arange(examples).tensor_split(count)
    return [range(int(piece[0]), int(piece[-1]) + 1) for piece in pieces if len(piece)]


# -- what a step holds --

STAGES, MICROBATCHES, EXAMPLES = 4, 16, 16
UNIT = EXAMPLES * WIDTH * 4  # bytes of one micro-batch between two stages
# Input, output and gradient of each micro-batch in flight, and of two that come and go. One tensor of each of the 16
# may stay: of a stage with more layers that would be little. An answer that frees nothing keeps two or three of each.
EACH, SPARE, STAY = 3, 2, 1


def memory(answer: Answer, box: Box, forgets: Callable[..., None]) -> list[SimpleNamespace]:
    """Return how many tensors of a micro-batch's size each stage holds in a step by 1F1B, and may hold.

    long: gradients as long as the whole batch that were made there. forgets: what raises where the peak is forgotten.
    """
    case = PipelinedStep(one_f_one_b(STAGES, MICROBATCHES), MICROBATCHES * EXAMPLES)
    box.reset()
    before, start = list(box.ledger.used), {id(a) for a in box.ledger.live.values()}
    with mock.patch.object(box.ledger, "reset", forgets):
        case.run(answer)
    found = []
    for s, peak in enumerate(replay(case.schedule).peak):
        made = [a for _, a, sign in box.ledger.log if sign > 0 and a.device == s and a.phase == "backward"]
        facts = SimpleNamespace(stage=s, in_flight=round(peak), held=(box.ledger.most[s] - before[s]) / UNIT)
        facts.allowed = EACH * (facts.in_flight + SPARE) + STAY * MICROBATCHES
        facts.long = sum(a.nbytes >= UNIT * MICROBATCHES for a in made)
        facts.made = _made(answer, box, s, start)
        found.append(facts)
    return found


def _made(answer: Answer, box: Box, device: int, start: set[int]) -> str:
    """Say on which lines most of what is held at the peak was made."""
    log = [(a, sign) for _, a, sign in box.ledger.log[: box.ledger.peak_at[device]] if a.device == device]
    gone = {id(a) for a, sign in log if sign < 0} | start
    held = [a.line for a, sign in log if sign > 0 and id(a) not in gone and a.nbytes >= UNIT and a.line]
    lines = Counter(number for file, number in held if file == str(answer.path))
    source = source_lines(answer.path)
    return ", ".join(f"{count} made at line {n} `{source[n - 1].strip()}`" for n, count in lines.most_common(2))


# -- how long a step takes on the virtual clock, which no busy machine moves --


def overlap(answer: Answer, box: Box) -> list[SimpleNamespace]:
    """Return the milliseconds of steps with 8 micro-batches, and of the library's. Nothing else may go on in `box`."""
    schedules = {"GPipe": gpipe(STAGES, 8), "1F1B": one_f_one_b(STAGES, 8)}
    best = par(box, schedules["GPipe"])  # of both: they leave their stages idle for as long
    times = {name: _timed(box, schedule, lambda case: case.run(answer)) for name, schedule in schedules.items()}
    return [SimpleNamespace(name=name, got=got, par=best) for name, got in times.items()]


def par(box: Box, schedule: Schedule) -> float:
    """Return the milliseconds of the library's own step."""

    def step(case: PipelinedStep) -> None:
        model = split(nn.Sequential(*case.stages), [1] * STAGES, case.devices)
        pipeline_step(model, schedule, *case.given, F.mse_loss)

    return _timed(box, schedule, step)


def _timed(box: Box, schedule: Schedule, step: Callable[[PipelinedStep], Any]) -> float:
    case = PipelinedStep(schedule, EXAMPLES)
    box.reset()
    start = box.now
    step(case)
    return 1000 * (box.synchronize() - start)
