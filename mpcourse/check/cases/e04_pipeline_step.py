"""What e04_pipeline_step is asked: a step by some schedules, against one backward of the whole batch's loss."""

import copy
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from mpcourse.check.answer import Answer
from mpcourse.check.cases.on_devices import close, equal, is_on, lanes
from mpcourse.check.cases.on_schedules import told
from mpcourse.check.patience import patience
from mpcourse.check.watched import WatchedComm
from mpcourse.check.wrong import Wrong, short
from mpcourse.pipeline import Action, Schedule, gpipe, naive, one_f_one_b, replay
from mpcourse.virtual import Box, virtual_gpus

Tensor = torch.Tensor
SECONDS = 10.0
# Stages that take micro-batches in orders of their own, and backwards in another one.
OWN: Sequence[Sequence[tuple]] = [
    [("F", 1), ("F", 0), ("F", 2), ("B", 0), ("B", 2), ("B", 1)],
    [("F", 0), ("B", 0), ("F", 1), ("F", 2), ("B", 2), ("B", 1)],
]
SHAPE = 6


def check(answer: Answer, comm: WatchedComm) -> None:
    """Every rank may call this; ranks do not talk."""
    why = "Is there a stage whose next input never arrives, or a loop that ends only when all do at once?"
    with patience(answer, SECONDS, "pipeline_step to return", why), virtual_gpus(4, overlap=True) as box:
        for schedule, batch in (
            (naive(2, 1), 3),
            (gpipe(2, 2), 4),
            (one_f_one_b(2, 3), 6),
            (one_f_one_b(2, 3), 7),
            (gpipe(3, 4), 9),
            (OWN, 5),
            (gpipe(1, 3), 5),
            (one_f_one_b(3, 5), 11),
            (naive(4, 2), 5),
        ):
            _values(answer, box, _Case(schedule, batch))
            _order(answer, _Case(schedule, batch))


class _Case:
    """A model of as many stages as `schedule` has, one a device, with gradients of a step before; and its oracle."""

    def __init__(self, schedule: Sequence[Sequence[tuple]], batch: int) -> None:
        self.schedule: Schedule = [[Action(*a) for a in row] for row in schedule]
        p = self.p = len(schedule)
        self.m = 1 + max(a.microbatch for a in self.schedule[0])
        replay(self.schedule)
        layers = [nn.Sequential(nn.Linear(SHAPE, SHAPE), nn.Tanh()) for _ in range(p)]
        self.x, self.target = torch.randn(2, batch, SHAPE)
        self.whole = nn.Sequential(*layers)
        F.mse_loss(self.whole(torch.randn(4, SHAPE)), torch.randn(4, SHAPE)).backward()
        self.earlier = [q.grad.clone() for q in self.whole.parameters() if q.grad is not None]
        self.devices = [f"vgpu:{s}" for s in range(p)]
        self.stages = [copy.deepcopy(layer).to(device) for layer, device in zip(layers, self.devices, strict=True)]
        for layer, q in zip(self.stages, layers, strict=True):
            for a, b in zip(layer.parameters(), q.parameters(), strict=True):
                assert b.grad is not None
                a.grad = b.grad.to(a.device)
        self.given = self.x.to(self.devices[0]), self.target.to(self.devices[-1])
        self.loss = F.mse_loss(self.whole(self.x), self.target)
        self.loss.backward()

    def run(self, answer: Answer, loss: Callable = F.mse_loss) -> Any:
        """Ask for the step; the schedule that is given must be left as it is."""
        plain = [[(a.kind, a.microbatch) for a in row] for row in self.schedule]
        arguments = (self.stages, list(self.devices), plain, *self.given, loss)
        try:
            return answer.call("pipeline_step", *arguments, changes=(self.stages, *self.given))
        except KeyError as error:
            why = (
                "What a stage's next action needs may not be there yet: other stages take micro-batches in orders of "
                "their own. Look whether it is there; if not, go on with another stage."
            )
            raise Wrong(f"a step of {self.asked}", f"KeyError: {error}", why) from None
        except AttributeError as error:
            if "NoneType" not in str(error):
                raise
            why = (
                "A tensor's .grad stays None unless it required a gradient before the forward: detach() makes one that "
                "does not, requires_grad_() makes it ask."
            )
            raise Wrong(f"a step of {self.asked}", f"AttributeError: {error}", why) from None

    @property
    def asked(self) -> str:
        rows = "; ".join(f"stage {s}: {told(row)}" for s, row in enumerate(self.schedule[:3]))
        return f"{self.m} micro-batch{'es' * (self.m > 1)} of a batch of {len(self.x)}, {rows}"


def _values(answer: Answer, box: Box, case: _Case) -> None:
    parameters = [q for stage in case.stages for q in stage.parameters()]
    box.reset()
    result = case.run(answer)
    copies, waits = lanes(box), [e for e in box.events if e.kind == "wait"]
    for given, before, name in zip(case.given, (case.x, case.target), ("x", "target"), strict=True):
        equal(given, before, name, f"The caller still needs {name}.")
    _gradients(case, parameters)
    on = case.devices[-1]
    if isinstance(result, float | int):
        why = "float() and .item() make Python wait for the GPU. Return the tensor; who wants a number asks for it."
        raise Wrong(f"the batch's loss as a tensor on {on}", f"{short(result)}, a number", why)
    is_on(result, on, "the batch's loss", "Each micro-batch's loss is computed on the last device: sum them up there.")
    if result.shape != ():
        why = "One number for the batch: each micro-batch's loss times its share of the examples, summed."
        raise Wrong("a scalar, the batch's loss", short(result), why)
    equal(result, case.loss, f"the loss of {case.asked}", _why_loss(result, case), 1e-4, 1e-5)
    if not any(lane.endswith("cpu") for lane in copies) and waits:
        line = next((e.asked for e in waits if e.asked), "")
        raise Wrong(
            "no wait for a GPU before all work is given out",
            f"Python waited {len(waits)} time{'s' * (len(waits) > 1)}" + (f", at {line}" if line else ""),
            ".item(), float(), print, `if` on a tensor and copies to the CPU wait for a result. Meanwhile no other "
            "stage is given work: nothing overlaps.",
        )
    _copies(case, copies)


def _gradients(case: _Case, parameters: list[nn.Parameter]) -> None:
    wanted = [q.grad for q in case.whole.parameters()]
    for i, (p, want) in enumerate(zip(parameters, wanted, strict=True)):
        assert want is not None
        what = f"stage {i // 2}'s gradient, of {case.asked}"
        if p.grad is None:
            raise Wrong(
                what, "None", "It had a gradient from a step before. Gradients are added to that, not replaced."
            )
        if not close(p.grad, want):
            equal(p.grad, want, what, _why_gradients(case, parameters), 1e-4, 1e-5)


def _why_gradients(case: _Case, parameters: list[nn.Parameter]) -> str:
    """The mistake that gives just these gradients."""
    got = [q.grad for q in parameters if q.grad is not None]
    parts = []  # of each micro-batch's own mean loss
    for x, target in zip(case.x.tensor_split(case.m), case.target.tensor_split(case.m), strict=True):
        loss = F.mse_loss(case.whole(x), target)
        parts.append((len(x) / len(case.x), torch.autograd.grad(loss, list(case.whole.parameters()))))

    def of(weights: Callable[[float, int], float], earlier: float = 1.0) -> bool:
        sums = [
            earlier * before + sum(weights(share, j // 2) * g[j] for share, g in parts)
            for j, before in enumerate(case.earlier)
        ]
        return all(close(a, b) for a, b in zip(got, sums, strict=True))

    m, p = case.m, case.p
    explained: list[tuple[str, bool]] = [
        ("There were gradients of a step before. They are kept: new ones are added to them.", of(lambda w, s: w, 0.0)),
        ("Each micro-batch counts in full: its loss is a mean over its own examples only.", of(lambda w, s: 1.0)),
        (
            "All micro-batches count the same, but some have one example more: the mean of means is not the mean. "
            "Weigh by len(target of k) / len(target).",
            of(lambda w, s: 1 / m),
        ),
        (
            "Gradients that were there before the step are divided too. Weigh the loss before its backward.",
            any(of(lambda w, s: w, 1 / n) or of(lambda w, s: 1 / m, 1 / n) for n in (m, len(case.x))),
        ),
        (
            "Each stage weighs the gradient once more. It is weighed with the loss, and that reaches all stages.",
            of(lambda w, s: w ** (p - s)) or of(lambda w, s: (1 / m) ** (p - s)),
        ),
        ("No stage got a gradient: does each B call backward?", of(lambda w, s: 0.0)),
        (
            "Gradients are added twice: one backward for each micro-batch and stage.",
            of(lambda w, s: 2 * w) or of(lambda w, s: 2 * w if s == p - 1 else w),
        ),
    ]
    last = all(
        close(a, b.grad)
        for a, b in zip(got[-2:], list(case.whole.parameters())[-2:], strict=True)
        if b.grad is not None
    )
    otherwise = "Which tensors does a micro-batch's B need? Those of its own F, and the gradient of its own output."
    if last and p > 1:
        otherwise = "The last stage's gradients are right, an earlier one's are not. " + otherwise
    return next((why for why, explains in explained if explains), otherwise)


def _why_loss(result: Tensor, case: _Case) -> str:
    with torch.no_grad():
        pairs = zip(case.x.tensor_split(case.m), case.target.tensor_split(case.m), strict=True)
        parts = torch.stack([F.mse_loss(case.whole(x), target) for x, target in pairs])
    if close(result, parts.mean()):
        return "The mean of means is not the mean where some micro-batches have an example more: weigh each loss."
    if close(result, parts.sum()):
        return "This is the sum of the micro-batches' mean losses. The batch's loss is the mean over all its examples."
    if any(close(result, part) for part in parts):
        return "This is one micro-batch's loss."
    return "The gradients are right: so are the losses that they came from. How are they summed?"


def _copies(case: _Case, copies: list[str]) -> None:
    cuts = list(zip(case.devices, case.devices[1:], strict=False))
    want = Counter({f"{a} -> {b}": case.m for pair in cuts for a, b in (pair, pair[::-1])})
    got = Counter(copies)
    if got != want:
        lane = next(iter((got - want) or (want - got)))
        why = "Each cut is crossed by one activation and one gradient of each micro-batch, and by nothing else."
        if "cpu" in lane:
            why = "Tensors go from GPU to GPU. Over the CPU they take longer, and Python waits for them."
        raise Wrong(f"{want[lane]} copies {lane}, for {case.asked}", f"{got[lane]}", why)


def _order(answer: Answer, case: _Case) -> None:
    """Once more, with a look at what each stage does; looking waits for results, so time is not judged here."""
    pieces, inputs = case.x.tensor_split(case.m), []
    with torch.no_grad():
        for s in range(case.p):
            inputs.append([case.whole[:s](piece) if s else piece for piece in pieces])
    seen: list[list[Action]] = [[] for _ in case.stages]

    def watch(s: int) -> Callable:
        def hook(module: nn.Module, args: tuple, output: Tensor) -> None:
            k = next((k for k, known in enumerate(inputs[s]) if close(args[0], known)), None)
            if k is None:
                raise Wrong(
                    f"an F of stage {s} to be given what the stage before made of one micro-batch, {case.asked}",
                    f"a tensor of shape {tuple(args[0].shape)} that is none of them",
                    "x.tensor_split(m) makes the micro-batches, and each goes through the stages by itself.",
                )
            seen[s].append(Action("F", k))
            if output.requires_grad:
                output.register_hook(lambda gradient: seen[s].append(Action("B", k)))

        return hook

    handles = [stage.register_forward_hook(watch(s)) for s, stage in enumerate(case.stages)]
    try:
        case.run(answer)
    finally:
        for handle in handles:
            handle.remove()
    for s, (row, want) in enumerate(zip(seen, case.schedule, strict=True)):
        if row != want:
            raise Wrong(f"stage {s} to run {told(want)}", told(row), _why_order(row, want))


def _why_order(row: list[Action], want: list[Action]) -> str:
    if len(row) > len(set(row)):
        twice = next(a for a in row if row.count(a) > 1)
        return f"{twice} runs more than once. Keep what the F returned: its B starts there."
    if sorted(row) != sorted(want):
        missing = next(a for a in want if a not in row)
        return f"{missing} does not run. Each action in the list is one forward, or one backward, of this stage."
    got, asked = next((a, b) for a, b in zip(row, want, strict=True) if a != b)
    if got.kind == asked.kind:
        return f"{got} runs where {asked} is asked: the k of an action says which micro-batch it is of."
    if got.kind == "B":
        return (
            f"{got} runs before it is this stage's turn: B is a call of its own for each stage. Where a tensor crosses "
            "without detach, the last stage's backward runs on through all stages before it."
        )
    return (
        f"{got} runs where {asked} is asked. Each stage runs its list from front to back. While the next input is not "
        "there it waits, and runs nothing else."
    )
