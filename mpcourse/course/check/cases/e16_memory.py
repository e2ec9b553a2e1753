"""What e16_memory is asked: a training whose memory does not grow, on a virtual GPU, with all that it notes.

The program is rebuilt from these reports: https://github.com/alexhernandezgarcia/gflownet/pull/133 (a running mean
of the loss kept the whole graph), https://github.com/horovod/horovod/pull/641 (a metric averaged the loss with its
graph) and https://github.com/ray-project/ray/pull/40940 (so did a sum of losses). Not every such sum fills a GPU,
because backward frees what a graph has saved (https://github.com/pytorch/pytorch/issues/17568). So backward never
runs through the graphs that are kept here.
"""

import functools
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch._dynamo  # what torch.optim imports at its first use, which takes seconds: here, before the clock starts
import torch.nn.functional as F
from torch import nn

from mpcourse.course.check.answer import Answer
from mpcourse.course.check.cases.clinic import demand_diagnosis
from mpcourse.course.check.facts.calls import one_by_one
from mpcourse.course.check.rules import Test, demand, rules, tests
from mpcourse.course.check.status_page import HasStatusPage
from mpcourse.course.check.wrong import first_difference, short
from mpcourse.virtual import GPUS, Box, virtual_gpus
from mpcourse.virtual.gpus.ledger import size

Tensor = torch.Tensor
GPU = replace(GPUS["Tesla P100-SXM2"], workspace=0)  # cuBLAS's workspaces would hide these small tensors
N, CLASSES, FEATURES, DECAY = 32, 48, 20, 0.9
ROW, WHOLE = 4 * (CLASSES + 2), 4 * N * CLASSES  # bytes of a step's results, and of one number an example and class
RTOL, ATOL = 1e-4, 1e-5

REFUTED = {
    "batch": "Forty steps with batches of the same size run, and after the second one memory.txt shows 52 MiB of "
    "tensors. The GPU is filled by something that steps leave behind.",
    "pieces": "In memory.txt, allocated and reserved grow together: the memory is full of tensors. In the end no more "
    "than 15 MiB are free.",
    "garbage": "memory.txt shows the memory before and after gc.collect(), and both lines are the same. So these "
    "tensors are no garbage: something that is still in use refers to them.",
    "optimizer": "In memory.txt there are as many tensors of the optimizer after the second step as at the end, and "
    "gradients are not among those that pile up. Which rows of the table have grown?",
    "results": "The results of a step are one row of 4000 numbers and two single ones, 16 KiB. The memory grows by "
    "8 MiB in a step, in tensors of 256 rows.",
}


def check(answer: Answer, comm: HasStatusPage) -> None:
    """Check the answer; every rank may call this, and ranks exchange nothing."""
    demand_diagnosis(answer, "graph", REFUTED)
    cases = [
        Case([N] * 25, 8, 0),
        Case([N] * 14, 4, 6),
        Case([9, 12, 7, 12, 1, 5, 9, 3], 3, 0),
        Case([N] * 6, 1, 4),
        Case([6, 5], 4, 0),
        Case([4], 1, 0),
    ]
    one_by_one(answer, [functools.partial(_one, case=case) for case in cases])


@dataclass(frozen=True)
class Case:
    """sizes: of the batches. every: as of train. ends: the first step with an average below the target; 0: none."""

    sizes: list[int]
    every: int
    ends: int


# -- oracle --


class Batches:
    """The batches of a case, on the GPU of a box, or on the CPU where there is none.

    held: after each step, the tensors on the GPU, as (operation, shape, bytes). waited: whether the host waited in it.
    """

    def __init__(self, case: Case, box: Box | None) -> None:
        draw = torch.Generator().manual_seed(len(case.sizes))
        self.data = [torch.randn(n, FEATURES, generator=draw) for n in case.sizes]
        self.box, self.taken, self.held, self.waited = box, 0, list[Counter[tuple[str, str, int]]](), list[bool]()

    def __len__(self) -> int:
        return len(self.data)

    def __repr__(self) -> str:
        return f"{len(self)} batches"

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for x in self.data:
            y = 7 * (x[:, 0] > 0).long()
            self.taken += 1
            if self.box is None:
                yield x, y
                continue
            pair = x.to("vgpu:0"), y.to("vgpu:0")
            before = len(self.box.events)
            yield pair
            del pair
            self.held.append(Counter((a.name, str(a.shape), a.nbytes) for a in self.box.ledger.live.values()))
            self.waited.append(any(e.kind == "wait" for e in self.box.events[before:]))


@dataclass(frozen=True)
class Run:
    """A training. returned: averages, losses and outputs, or what came instead. most, flops: on a GPU.

    late: whether copies from there were still under way when train returned.
    """

    returned: Any
    parameters: list[Tensor]
    batches: Batches
    most: int = 0
    flops: int = 0
    late: bool = False


def _run(box: Box | None, case: Case, train: Callable[..., Any], *rest: Any) -> Run:
    """Train a new model on the batches of a case. box: None for a plain run on the CPU."""
    torch.manual_seed(case.every)
    layers = nn.Linear(FEATURES, 24), nn.ReLU(), nn.Linear(24, CLASSES)
    model = nn.Sequential(*layers).to("vgpu:0" if box else "cpu")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.5)
    batches = Batches(case, box)
    if box:
        box.reset()
    returned = train(model, optimizer, batches, DECAY, *rest, case.every)
    on_gpu: Any = ()
    if box:
        late = any(e.kind == "copy" and e.end > box.now for e in box.events)
        on_gpu = box.ledger.most[0], sum(e.flops for e in box.events), late
    parameters = [p.detach().cpu() for p in model.parameters()]
    return Run(returned, parameters, batches, *on_gpu)


def _plain(model: Any, optimizer: Any, batches: Batches, decay: float, ends: int, every: int, way: str = "") -> Any:
    """Do what train is asked. ends: the last step; 0: that of the last batch. way: a mistake that is made."""
    averages, worst, outputs, average = list[float](), list[Tensor](), list[Tensor](), None
    for step, (x, y) in enumerate(batches, start=1):
        logits = model(x)
        loss = F.cross_entropy(logits, y, label_smoothing=0.1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            logits = model(x) if way == "after" else logits.detach()
            losses = F.cross_entropy(logits, y, reduction="none")
            mean = (loss if way == "smoothed" else losses.mean()).item()
            at = int(losses.argmax())
            worst.append(losses[at].cpu())
            outputs.append(logits[at].softmax(0).cpu())
        average = mean if average is None else decay * average + (1 - decay) * mean
        averages.append(average)
        if step == ends:
            break
    return averages, torch.stack(worst), torch.stack(outputs)


# -- observation --


def _one(answer: Answer, case: Case) -> None:
    want, target = _run(None, case, _plain, 0), 0.0
    if case.ends:
        averages = want.returned[0]
        target = (averages[case.ends - 2] + averages[case.ends - 1]) / 2
        read = range(case.every, len(averages) + 1, case.every)
        want = _run(None, case, _plain, next(step for step in read if averages[step - 1] < target))
    with virtual_gpus(1, GPU) as box:
        try:
            got = _run(box, case, functools.partial(answer.call, "train"), target)
        except RuntimeError as error:
            demand(FAILED, Failed(error))
            raise
        on_gpu = _run(box, case, _plain, 0) if case.sizes == [N] * 25 else None
        demand(TESTS, Facts(case, got, want, on_gpu))


@dataclass(frozen=True)
class Failed:
    """An error of train."""

    error: Exception

    text = property(lambda self: str(self.error).splitlines()[0])
    without_graph = property(lambda self: "does not require grad" in str(self.error))


@dataclass(frozen=True)
class Facts:
    """A run of the answer beside that of the oracle. on_gpu: the oracle's on the GPU, in one case."""

    of: Case
    run: Run
    want: Run
    on_gpu: Run | None

    target = property(lambda self: ", and a target" if self.of.ends else "")
    case = property(lambda self: f"{self.run.batches!r}, every = {self.of.every}{self.target}")

    # -- results --

    shown = property(lambda self: short(self.run.returned))
    averages = property(lambda self: self.run.returned[0])
    shown_averages = property(lambda self: short(self.averages))
    no_three = property(lambda self: not isinstance(self.run.returned, tuple | list) or len(self.run.returned) != 3)
    no_list = property(lambda self: not (isinstance(self.averages, list) and {*map(type, self.averages)} <= {float}))
    steps = property(lambda self: len(self.want.returned[0]))
    taken = property(lambda self: self.run.batches.taken)
    number = property(lambda self: len(self.averages))
    other_steps = property(lambda self: not self.number == self.taken == self.steps)
    dropped = property(lambda self: self.taken == self.steps)
    too_early = property(lambda self: self.taken < self.steps)
    smoothed = property(lambda self: self._is_like("smoothed"))
    after = property(lambda self: self._is_like("after"))

    def _is_like(self, way: str) -> bool:
        other = _run(None, self.of, functools.partial(_plain, way=way), self.steps).returned[0]
        return first_difference(self.averages, other, "", RTOL, ATOL) is None

    # -- memory --

    @functools.cached_property
    def growth(self) -> list[int]:
        """By how many bytes more than after the second step the GPU holds, after each step from the second on."""
        used = [sum(n * nbytes for (*_, nbytes), n in held.items()) for held in self.run.batches.held]
        return [now - used[1] for now in used[1:]]

    @property
    def grown(self) -> int:
        """The first step after which more is held than three times the results of the steps; 0: there is none."""
        steps = enumerate(self.growth if {*self.of.sizes} == {N} else [], start=2)
        return next((step for step, more in steps if more > 3 * ROW * (step - 2) + WHOLE // 2), 0)

    grown_by = property(lambda self: size(self.growth[self.grown - 2]))
    more = property(lambda self: self.run.batches.held[self.grown - 1] - self.run.batches.held[1])
    of_more = property(lambda self: ", ".join(f"{n} of shape {at} by {op}" for (op, at, _), n in self.more.items()))
    names = property(lambda self: {name for name, *_ in self.more})
    falls = property(lambda self: any(a - b > WHOLE for a, b in zip(self.growth, self.growth[1:], strict=False)))
    losses_only = property(lambda self: "_log_softmax" in self.names and "_softmax" not in self.names)
    outputs_only = property(lambda self: "_softmax" in self.names and "_log_softmax" not in self.names)
    late = property(lambda self: self.run.late)
    high = property(lambda self: self.on_gpu and self.run.most > self.allowed)
    allowed = property(lambda self: self.on_gpu.most + 4 * ROW * self.steps + 2 * WHOLE)
    peak = property(lambda self: size(self.run.most))
    allowed_peak = property(lambda self: size(self.allowed))

    # -- time --

    waits = property(lambda self: sum(self.run.batches.waited))
    reads = property(lambda self: self.steps // self.of.every)
    more_waits = property(lambda self: self.waits > self.reads + 1)
    work = property(lambda self: self.run.flops / self.on_gpu.flops)
    more_work = property(lambda self: self.on_gpu and self.work > 1.02)


def _equal(name: str, of: Callable[[Run], Any], why: Any) -> Test:
    """Make a test of whether a part of the results is as the oracle's. Tensors are on the CPU."""

    def difference(f: Facts) -> tuple[str, str]:
        got, want = of(f.run), of(f.want)
        if isinstance(got, Tensor) and str(got.device) != "cpu":
            return f"{name} on the CPU", f"a tensor on {got.device}"
        if isinstance(got, Tensor) and got.requires_grad:
            return f"{name} without a graph", "a tensor that requires a gradient"
        return first_difference(got, want, name, RTOL, ATOL) or ("", "")

    return Test(name, lambda f: any(difference(f)), lambda f: difference(f)[0], lambda f: difference(f)[1], why)


# -- what is said --

FAILED = tests(
    without_graph=(
        "train to run",
        "{text}",
        "backward has to run through the forward pass of the loss that is minimized, so this pass needs its graph. "
        "Only what is noted afterwards needs none.",
    )
)
RESULTS = tests(
    no_three=("averages, losses and outputs", "{shown}", "Return the three results that the docstring lists."),
    no_list=("averages to be a list of Python floats", "{shown_averages}", "tolist() makes floats of a tensor."),
    other_steps=(
        "{steps} steps, and as many averages, for {case}",
        "{taken} steps and {number} averages",
        rules(
            dropped="All steps were made, but not all are in the results: train returns what was noted in each.",
            too_early="The training ends too early. Only the moving average after the steps every, 2 * every and so "
            "on decides, and it has to be below `target`.",
            otherwise="The training goes on, although the moving average was below `target` when it was to be read.",
        ),
    ),
)
VALUES = [
    _equal(
        "the final parameters",
        lambda run: run.parameters,
        "The training itself has become another one. To save memory, change what is kept after a step, and leave "
        "batches, loss, precision and updates as they are.",
    ),
    _equal(
        "averages",
        lambda run: run.returned[0],
        rules(
            smoothed="That is the average of the loss with label smoothing. backward frees its graph, but the task "
            "asks for the loss without label smoothing.",
            after="These losses come from a second forward pass, whose parameters are those after the update. The "
            "task asks for those of the logits that the step has anyway.",
            otherwise="In every step the moving average goes on from the one before. It begins with the first mean.",
        ),
    ),
    _equal("losses", lambda run: run.returned[1], "losses has one number a step, on the CPU and without a graph."),
    _equal("outputs", lambda run: run.returned[2], "outputs has one row a step, on the CPU and without a graph."),
]
COSTS = tests(
    grown=(
        "no more memory after step {grown} than after step 2, but for results, for {case}",
        "{grown_by} more: {of_more}",
        rules(
            falls="Graphs are given up from time to time, but in between the GPU holds those of several steps. No step "
            "needs them: keep numbers alone, in each step.",
            losses_only="Cross-entropy saves log-probabilities, so something that outlives a step still has the graph "
            "of a loss: what is carried on to the next step, or what is kept for the end. The outputs have none.",
            outputs_only="Probabilities of whole batches stay, and the losses have no graph any more. Are all "
            "probabilities kept, or only rows? If rows, they have a graph, or they are views: a view of one row keeps "
            "the whole tensor.",
            otherwise="backward runs through the graph of the smoothed loss, and frees what that has saved. It never "
            "runs through the graphs of what is noted, and these hold tensors of the whole batch. Which objects "
            "outlive a step, and do all of them keep numbers alone?",
        ),
    ),
    high=(
        "at most {allowed_peak} at the peak, for {case}",
        "{peak}",
        "The memory does not grow, but it holds more than a step and the results need: one row of probabilities a "
        "step is kept, not all.",
    ),
    more_waits=(
        "the host to wait in {reads} of {steps} steps, for {case}",
        "waits in {waits} steps",
        "item(), float(), tolist(), cpu() and synchronize() make the host wait until the GPU has finished all its "
        "work. Then the GPU idles until it gets new work. Between readings, keep the numbers on the GPU.",
    ),
    late=(
        "the numbers to have arrived when they are read, for {case}",
        "copies to the CPU that are still under way when train returns",
        "A copy with non_blocking=True goes on after the call. The host has to wait once before it reads the copies.",
    ),
    more_work=(
        "one forward and one backward pass a step",
        "{work:.2f} times as many floating-point operations",
        "A part of the model runs twice in a step. The logits are there already: take them without their graph.",
    ),
)
TESTS = [*RESULTS, *VALUES, *COSTS]
