"""Schedules of a pipeline as plain data: for each stage, the list of what it does, in order.

A batch is cut into micro-batches, and a model into stages, one on each device. A stage runs its list in order, and
waits where an input has not arrived. A schedule holds nothing else: no time, no device, no message. `replay` says
whether it can run and how long it takes, `pipeline_step` runs it in one process, `mpcourse.pipeline.ranks` over MPI.

Your own schedule is such a list of lists, too.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

FORWARD, BACKWARD, INPUT, WEIGHT = "F", "B", "I", "W"


class Action(NamedTuple):
    """One thing that a stage does to one micro-batch.

    kind: "F", forward; "B", backward; or backward in two parts: "I", the gradient of the stage's input, which the stage
    before waits for, and later "W", the gradients of its weights, which are needed only when the batch ends.
    microbatch: its number, from 0.
    chunk: which of the stage's parts of the model, where it has several. Of p stages, stage s holds part c p + s of the
    model as its chunk c.
    """

    kind: str
    microbatch: int
    chunk: int = 0

    def of(self, kind: str) -> "Action":
        """Return the action of another kind on the same micro-batch and chunk.

        kind: "F", "B", "I" or "W".
        """
        return self._replace(kind=kind)

    def __str__(self) -> str:
        return f"{self.kind}{self.microbatch}" + (f".{self.chunk}" if self.chunk else "")


Schedule = list[list[Action]]


def naive(stages: int, microbatches: int) -> Schedule:
    """Run one micro-batch after the other, forward and backward: one stage works while all others wait.

    stages: 1 or more.
    microbatches: 1 or more.

    This is what splitting by layers alone gives (lesson 03). A stage holds at most one micro-batch's activations.
    Raises ValueError for other numbers.
    """
    _check(stages, microbatches)
    return [[a for k in range(microbatches) for a in (Action("F", k), Action("B", k))] for _ in range(stages)]


def gpipe(stages: int, microbatches: int) -> Schedule:
    """Run all forwards, then all backwards, the last micro-batch first (Huang et al., GPipe, 2019).

    stages: 1 or more; p in the formula.
    microbatches: 1 or more; m in the formula.

    A share (p - 1) / (m + p - 1) of the time is bubble. Each stage holds the activations of all m micro-batches.
    Raises ValueError for other numbers.
    """
    _check(stages, microbatches)
    forwards = [Action("F", k) for k in range(microbatches)]
    return [forwards + [Action("B", a.microbatch) for a in reversed(forwards)] for _ in range(stages)]


def one_f_one_b(stages: int, microbatches: int) -> Schedule:
    """Fill the later stages, then alternate one forward with one backward on each stage (PipeDream-Flush, 2020).

    stages: 1 or more; p in the formula.
    microbatches: 1 or more; m in the formula.

    The bubble is GPipe's. But stage s of p holds the activations of min(m, p - s) micro-batches, however large m is.
    Raises ValueError for other numbers.
    """
    _check(stages, microbatches)
    forwards = [Action("F", k) for k in range(microbatches)]
    backwards = [Action("B", k) for k in range(microbatches)]
    return [alternate(forwards, backwards, warmup=stages - 1 - s) for s in range(stages)]


def interleaved_one_f_one_b(stages: int, microbatches: int, chunks: int) -> Schedule:
    """Run 1F1B with several smaller parts of the model on each stage (Narayanan et al., Megatron-LM, 2021, sec. 2.2).

    stages: 1 or more; p in the formula.
    microbatches: 1 or more; m in the formula.
    chunks: parts of the model on each stage; 1 is 1F1B.

    A micro-batch passes all stages `chunks` times. The first part of a round is short, so all stages are busy sooner:
    for m a multiple of p the bubble is (p - 1) / (chunks m) of the time without bubble. The price is `chunks` times as
    many transfers, and more activations than 1F1B holds.
    Raises ValueError for other numbers.
    """
    _check(stages, microbatches, chunks)
    if chunks == 1:
        return one_f_one_b(stages, microbatches)
    # Micro-batches travel in groups: a group goes through the first chunk, then through the next. A group of as many as
    # there are stages returns to the first stage just when its last micro-batch has left it. Where m is no multiple of
    # p, groups are larger, the first the largest: a smaller one would return too early, and a larger one after it would
    # find no room.
    rounds = max(1, microbatches // stages)
    size, rest = divmod(microbatches, rounds)
    ends = [i * size + min(i, rest) for i in range(rounds + 1)]
    groups = [range(*pair) for pair in pairwise(ends)]
    forwards = [Action("F", k, c) for group in groups for c in range(chunks) for k in group]
    backwards = [Action("B", k, c) for group in groups for c in reversed(range(chunks)) for k in group]
    ahead = (chunks - 1) * len(groups[0])  # forwards before the first one in the last chunk
    return [alternate(forwards, backwards, warmup=ahead + 2 * (stages - 1 - s)) for s in range(stages)]


def zero_bubble_h1(stages: int, microbatches: int) -> Schedule:
    """Cut the backward of 1F1B in two, so that the next stage waits only for the first part (Qi et al., ZB-H1, 2023).

    stages: 1 or more; p in the formula.
    microbatches: 1 or more; m in the formula.

    Weight parts fill what was bubble: a stage idles (p - 1)(F + B - 2 W), where B is the whole backward and W its
    weight part; with 1F1B it idles (p - 1)(F + B). This holds for m >= p and for W no longer than F or B - W. Stage s
    delays its weight parts by s micro-batches, so each stage holds the activations of min(m, p), as 1F1B's first stage
    does.
    Raises ValueError for other numbers.
    """
    _check(stages, microbatches)
    forwards = [Action("F", k) for k in range(microbatches)]
    made = []
    for s in range(stages):
        actions: list[Action] = []
        for a in alternate(forwards, [Action("I", k) for k in range(microbatches)], warmup=stages - 1 - s):
            actions.append(a)
            if a.kind == "I" and a.microbatch >= s:
                actions.append(Action("W", a.microbatch - s))
        late = range(max(0, microbatches - s), microbatches)
        made.append(actions + [Action("W", k) for k in late])
    return made


def alternate(forwards: Sequence[Action], backwards: Sequence[Action], warmup: int) -> list[Action]:
    """Return some forwards, then one forward and one backward in turns, then the backwards that are left.

    forwards: in their order.
    backwards: in their order, as many as forwards.
    warmup: forwards before the first backward.
    """
    actions = list(forwards[:warmup])
    turns = forwards[warmup:]
    for f, b in zip(turns, backwards, strict=False):
        actions += [f, b]
    return actions + list(backwards[len(turns) :])


def _check(stages: int, microbatches: int, chunks: int = 1) -> None:
    for name, value in (("stages", stages), ("microbatches", microbatches), ("chunks", chunks)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"{name} must be a whole number, 1 or more: got {value!r}")


SCHEDULES: dict[str, Callable[..., Schedule]] = {
    "naive": naive,
    "gpipe": gpipe,
    "1f1b": one_f_one_b,
    "interleaved-1f1b": interleaved_one_f_one_b,
    "zb-h1": zero_bubble_h1,
}
