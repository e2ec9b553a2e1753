"""What e16_idle is asked: the same training and log, in which the host waits for the GPU only where a line is logged.

The fault is rebuilt from https://github.com/meta-pytorch/torchtune/pull/522 (rohan-varma, March 2024): a trace of
torch.profiler showed 40 to 50 ms of cudaStreamSynchronize in each step, for loss.item(). In
https://github.com/openvdb/fvdb-reality-capture/pull/144 (October 2025), training became 5 to 10 % faster without two
such reads. It does not always pay: https://github.com/lnccbrown/LANfactory/pull/120 (August 2026) promised 85 % and
measured 4 %, and its author writes that the profile should have come first.
"""

import bisect
import copy
import functools
import numbers
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import methodcaller
from typing import Any, NamedTuple

import torch
import torch._dynamo  # what torch.optim imports at its first use, which takes seconds: here, before the clock starts
import torch.nn.functional as F
from torch import Tensor, nn

from mpcourse.common.words import counted
from mpcourse.course.check.answer import Answer
from mpcourse.course.check.cases.clinic import demand_diagnosis
from mpcourse.course.check.facts.calls import one_by_one
from mpcourse.course.check.rules import Rule, demand, rules, tests
from mpcourse.course.check.status_page import HasStatusPage
from mpcourse.course.check.wrong import short
from mpcourse.virtual import GPUS, Box, Event, virtual_gpus

REFUTED = {
    "batches": "The data set is on the GPU, and a batch is a view of it. summary.txt counts no copies from or to the "
    "host, and trace.json has no row for any.",
    "launches": "The host waits for 32 % of the time, and a host that is too slow to launch the kernels never waits. "
    "In trace.json, kernels are shorter than their launches only at the end of a step. What could the host have done "
    "just before, while the GPU still computed?",
    "memory": "At most 50 of 15360 MiB are reserved, so there is memory enough.",
    "log": "The program writes a line after steps 10, 20 and 30. trace.json shows steps 24 and 25, and the gaps are "
    "there, too, although no line of the log is written.",
}

# -- inputs --


class Case(NamedTuple):
    """steps, limit: as train takes them. seed: of data and model."""

    steps: int
    limit: float
    seed: int


# A norm that is near the limit would be clipped or not by rounding: these differ from it by 1 % and more.
CASES = (Case(30, 0.8, 1), Case(25, 0.7, 2), Case(7, 0.8, 3), Case(40, 0.01, 4), Case(20, 99.0, 5))
BATCH, BATCHES, RATE = 32, 6, 0.3
# Each kernel takes longer than many launches, so the host is ahead, and each time that it waits is seen.
SLOW = replace(GPUS["Tesla T4"], kernel=100e-6, workspace=0)


def check(answer: Answer, comm: HasStatusPage) -> None:
    """Check the answer; every rank may call this, and ranks exchange nothing."""
    demand_diagnosis(answer, "reads", REFUTED)
    one_by_one(answer, [functools.partial(_one, case=case) for case in CASES])


class Rectify(torch.autograd.Function):
    """A ReLU as people write it by hand: what backward needs is in ctx, and stays as long as the graph."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.positive = (x > 0).to(x.dtype)
        return x * ctx.positive

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return gradients[0] * ctx.positive


class Net(nn.Module):
    """A network that writes down when forward passes begin, on the clock of a box, and with how many examples."""

    def __init__(self, box: Box | None = None) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(6, 48), nn.Linear(48, 48), nn.Linear(48, 5)])
        self.box, self.begun, self.examples = box, list[float](), list[int]()

    def forward(self, x: Tensor) -> Tensor:
        self.begun.append(self.box.now if self.box else 0.0)
        self.examples.append(len(x))
        for layer in self.layers[:-1]:
            x = Rectify.apply(layer(x))
        return self.layers[-1](x)


@functools.cache
def _inputs(seed: int) -> tuple[Net, Tensor, Tensor]:
    """Return a model and a data set, on the CPU."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model, images = Net(), torch.randn(BATCH * BATCHES, 6)
        return model, images, (images @ torch.randn(6, 5)).argmax(1)


# -- the right values --


class Trained(NamedTuple):
    """What a training does: the loss of each step, whether it was clipped, and the parameters, on the CPU."""

    losses: list[float]
    clipped: list[bool]
    parameters: list[Tensor]


def _train(case: Case, model: nn.Module, images: Tensor, labels: Tensor, way: str = "") -> Trained:
    """Train on any device. way: of clipping, see _factors; "value": number by number."""
    parameters = list(model.parameters())
    optimizer = torch.optim.SGD(parameters, RATE, momentum=0.9, foreach=False)
    losses, clipped, before = [], [], torch.tensor(0.0)
    for step in range(case.steps):
        chosen = slice(step % BATCHES * BATCH, (step % BATCHES + 1) * BATCH)
        loss = F.cross_entropy(model(images[chosen]), labels[chosen])
        optimizer.zero_grad()
        loss.backward()
        gradients = [p.grad for p in parameters if p.grad is not None]
        norms = torch.stack([torch.linalg.vector_norm(g) for g in gradients])
        norm = torch.linalg.vector_norm(norms)
        for g, factor in zip(gradients, _factors(way, case.limit, norm, norms, before, step), strict=True):
            g.copy_(g.clamp(-case.limit, case.limit) if way == "value" else g * factor)
        before = norm
        optimizer.step()
        losses.append(loss.item())
        clipped.append(norm.item() > case.limit)
    return Trained(losses, clipped, [p.detach().cpu().clone() for p in parameters])


def _factors(way: str, limit: float, norm: Tensor, norms: Tensor, before: Tensor, step: int) -> Tensor:
    """Return the factor of each gradient. norms: of each one. before: the norm of the step before."""
    if way in ("never", "value") or (way == "seldom" and step % 10 != 9):
        return torch.ones(len(norms))
    factors = limit / {"each": norms, "stale": before}.get(way, norm)
    return (factors if way == "always" else factors.clamp(max=1.0)).expand(len(norms))


@functools.cache
def _right(case: Case, way: str = "") -> Trained:
    model, images, labels = _inputs(case.seed)
    return _train(case, copy.deepcopy(model), images, labels, way)


# -- observation --


class Log:
    """What train reports to: it keeps each line, with the number of forward passes and the host's time by then."""

    def __init__(self, model: Net, box: Box) -> None:
        self.model, self.box, self.lines = model, box, list[tuple[Any, Any, Any, int, float]]()

    def __call__(self, step: Any, loss: Any, clipped: Any) -> None:
        self.lines.append((step, loss, clipped, len(self.model.begun), self.box.now))

    def __repr__(self) -> str:
        return "report"  # messages show it


def _one(answer: Answer, case: Case) -> None:
    plain, images, labels = _inputs(case.seed)
    with virtual_gpus(1, SLOW, as_cuda=True) as box:
        images, labels = images.to("cuda"), labels.to("cuda")
        box.reset()
        _train(case, copy.deepcopy(plain).to("cuda"), images, labels)
        usual = box.ledger.most[0]
        model = Net(box)
        model.load_state_dict(plain.state_dict())
        log, given = Log(model, box), (model.to("cuda"), images, labels)
        box.reset()
        got = answer.call("train", *given, BATCH, case.steps, RATE, case.limit, log, changes=given)
        events, held, end = list(box.events), box.ledger.most[0], box.now
        parameters = [p.detach().cpu().clone() for p in model.parameters()]
    facts = Facts(case, got, parameters, log.lines, events, model.begun, model.examples, held, usual, end)
    demand(TRAINING, facts)
    demand(LINES, *[Line(case, *line) for line in log.lines])
    demand(COSTS, facts)


@dataclass(frozen=True)
class Line:
    """What a line of the log got, after how many forward passes, and when."""

    case: Case
    step: Any
    loss: Any
    clipped: Any
    passes: int
    now: float

    losses = property(lambda self: _right(self.case).losses[: self.step])
    mean = property(lambda self: sum(self.losses[-10:]) / 10)
    count = property(lambda self: sum(_right(self.case).clipped[: self.step]))
    types = property(lambda self: (type(self.loss), type(self.clipped)))
    kinds = property(lambda self: " and ".join(kind.__name__ for kind in self.types))

    late = property(lambda self: self.passes != self.step)
    no_numbers = property(lambda self: not all(map(issubclass, self.types, (numbers.Real, numbers.Integral))))
    other_loss = property(lambda self: not self.near(self.mean))
    last_loss = property(lambda self: self.near(self.losses[-1]))
    mean_of_all = property(lambda self: self.near(sum(self.losses) / self.step))
    other_count = property(lambda self: self.clipped != self.count)

    def near(self, loss: float) -> bool:
        return abs(self.loss - loss) <= 1e-4 * abs(loss)


@dataclass(frozen=True)
class Facts:
    """What a call of train did.

    begun, examples: of each forward pass. held, usual: bytes of the GPU at its fullest, in this program and in a
    plain one. end: when the call returned.
    """

    case: Case
    got: Any
    parameters: list[Tensor]
    lines: Sequence[tuple[Any, Any, Any, int, float]]
    events: list[Event]
    begun: list[float]
    examples: list[int]
    held: int
    usual: int
    end: float

    training = property(lambda self: f"{self.case.steps} steps with the limit {self.case.limit:g}")
    shown = property(lambda self: short(self.got))
    no_int = property(lambda self: not isinstance(self.got, numbers.Integral))
    count = property(lambda self: sum(_right(self.case).clipped))
    other_number = property(lambda self: self.got != self.count)
    passes = property(lambda self: f"{len(self.examples)} of {max(self.examples, default=0)} examples")
    other_batches = property(lambda self: set(self.examples) != {BATCH})
    other_passes = property(lambda self: self.examples != [BATCH] * self.case.steps)
    due = property(lambda self: list(range(10, self.case.steps + 1, 10)))
    logged = property(lambda self: [line[0] for line in self.lines])
    other_lines = property(lambda self: self.logged != self.due)
    other_parameters = property(lambda self: not self.is_like())

    def is_like(self, way: str = "") -> bool:
        """Return whether the parameters are those of a training that clips in this way."""
        wanted = _right(self.case, way).parameters
        return all(torch.allclose(p, q, rtol=1e-3, atol=1e-5) for p, q in zip(self.parameters, wanted, strict=True))

    waits = property(lambda self: [e for e in self.events if (e.lane, e.kind) == ("cpu", "wait")])
    waiting = property(lambda self: len({bisect.bisect(self.begun, e.start) for e in self.waits}))  # steps
    few = property(lambda self: len(self.due) + 2)  # steps that report; before the first one, and after the last one
    waits_between = property(lambda self: self.waiting > self.few)
    allowed = property(lambda self: 4 * self.few)
    one_by_one = property(lambda self: len(self.waits) > self.allowed)
    by_line = property(lambda self: Counter(e.asked for e in self.waits).most_common())
    at = property(lambda self: ", ".join(f"{counted(n, 'time')} in {line}" for line, n in self.by_line[:3]))
    one_line = property(lambda self: sum(n > 2 * self.few for _, n in self.by_line) == 1)
    synchronized = property(lambda self: sum(e.name == "synchronize" for e in self.waits) > self.few)
    to_host = property(lambda self: [e for e in self.events if e.lane.endswith("-> cpu")])
    copied_to_host = property(lambda self: len(self.to_host) > self.few)
    copied_to_gpu = property(lambda self: sum(e.lane.startswith("cpu ->") for e in self.events) > self.few)
    nbytes = property(lambda self: sum(e.nbytes for e in self.to_host))
    many_bytes = property(lambda self: self.nbytes > 4 * self.case.steps * (BATCH + 4) + 64)
    more_memory = property(lambda self: self.held > 1.2 * self.usual)

    @property
    def early(self) -> bool:
        """Whether the host read a number in its memory, reported or returned while a copy to it was under way."""
        reads = [e for e in self.events if (e.lane, e.kind, e.name) == ("cpu", "compute", "_local_scalar_dense")]
        moments = [self.end, *(e.start for e in reads), *(line[-1] for line in self.lines)]
        return any(copied.issued <= moment < copied.end for copied in self.to_host for moment in moments)


# -- what is said --

OF_CLIPPING = {
    "never": "Gradients are never clipped. That saves time, but it is another training.",
    "always": "Each gradient is multiplied by limit / norm, also where the norm is below the limit, so that it "
    "grows. Such a gradient keeps its size.",
    "each": "Each parameter is clipped by its own norm. The norm in question is that of all of them together.",
    "value": "That clips each number of a gradient by itself, which changes the gradient's direction. Multiply the "
    "whole gradient by limit / norm.",
    "stale": "A step is clipped by the norm of the step before, which had other examples.",
    "seldom": "Gradients are clipped only in steps that report. Each step whose norm is above the limit is clipped.",
}
TRAINING = tests(
    no_int=(
        "the number of clipped steps, an int",
        "{shown}",
        "The caller gets an int: read the number from the GPU once, at the end.",
    ),
    other_passes=(
        f"{{case.steps}} forward passes of {BATCH} examples",
        "{passes}",
        rules(
            other_batches="Other batches make another training: other parameters, and another log.",
            otherwise="Each step runs the model once. A further forward pass takes the time that was to be saved, "
            "and after the update it has another loss.",
        ),
    ),
    other_parameters=(
        "the parameters that the program had before, after {training}",
        "others",
        [
            *(Rule(way, methodcaller("is_like", way), sentence) for way, sentence in OF_CLIPPING.items()),
            "Does a step compute something else than before? Only waits may go.",
        ],
    ),
    other_lines=(
        "lines of the log for the steps {due}",
        "for {logged}",
        "The log stays as it was. Fewer lines are no cure, either: does the host wait in the steps between them?",
    ),
)
LINES = tests(
    late=(
        "report({step}, ...) after {step} steps, before the next one",
        "after {passes}",
        "People watch the log while the program trains. One wait in ten steps costs little.",
    ),
    no_numbers=(
        "report({step}, loss, clipped) with a float and an int",
        "{kinds}",
        "When a tensor on the GPU is printed, the host waits there. Read the numbers before you report them.",
    ),
    other_loss=(
        "the loss {mean:.6g} in the line of step {step}",
        "{loss:.6g}",
        rules(
            last_loss="That is the loss of the last step alone. The line has the mean of ten.",
            mean_of_all="That is the mean since the beginning. The line has the mean of the last ten.",
            otherwise="The line has the mean of the last ten losses, each of them once.",
        ),
    ),
    other_count=(
        "{count} clipped steps in the line of step {step}",
        "{clipped}",
        "Each clipped step counts, whether it reports or not. The GPU can add up (norm > limit).",
    ),
)
SAME = "Meanwhile it launches no kernels, and afterwards the GPU has nothing to do until the next launches."
WHYS_WAITS = rules(
    synchronized="synchronize() itself is a wait, and in each step. After it, a number is read at once, but the GPU "
    "is without work as before.",
    copied_to_host="In each step, something is copied to the host. Such a copy waits for the GPU as item() does, and "
    "pinned memory alone does not change that. Keep the numbers on the GPU until they are reported.",
    copied_to_gpu="In each step, torch.tensor(..., device=...) makes a tensor on the host and copies it to the GPU, "
    "and the host waits for this copy. Use a plain number, or make the tensor once.",
    one_line="One line is left in which the host needs to know a number that is on the GPU. An `if`, min(), float(), "
    "a check for NaN and item() after detach() all wait until the GPU has done all that was launched, also for a "
    f"number of an earlier step. {SAME}",
    otherwise=f"In each of these lines, the host needs a number from the GPU, and waits until it is computed. {SAME}",
)
COSTS = tests(
    other_number=(
        "{count} clipped steps after {training}",
        "{got}",
        "What is returned counts the steps after the last line of the log, too.",
    ),
    early=(
        "the host to wait for a copy before it uses the numbers",
        "numbers that are used while a copy is under way",
        "non_blocking=True lets the host go on before the copy is done. Virtual GPUs have the right numbers at once, "
        "but with a real GPU the host may read what was in this memory before. Wait once before you read them.",
    ),
    waits_between=(
        "the host to wait for the GPU where it reports, and perhaps before the first step and after the last one",
        "waits in {waiting} of {case.steps} steps: {at}",
        WHYS_WAITS,
    ),
    one_by_one=(
        "at most {allowed} waits in {case.steps} steps",
        "more: {at}",
        "The host waits only where it reports, but there it reads many numbers, one after the other, and waits for "
        "each of them. Add them up on the GPU, or stack them there and read all at once.",
    ),
    many_bytes=(
        "the numbers of the log on the host",
        "{nbytes} bytes that are copied to it in {case.steps} steps",
        "What the numbers are computed from stays on the GPU, and so does the computation.",
    ),
    more_memory=(
        "at most {usual} bytes on the GPU, and a few numbers",
        "{held}",
        "A loss that needs a gradient keeps the graph of its step, and all that a layer like this model's keeps in "
        "ctx. Keep loss.detach().",
    ),
)
