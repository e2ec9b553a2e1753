"""A schedule that a user makes by hand, one action after the other. The replay must allow each of them."""

from collections.abc import Sequence

from mpcourse.pipeline.costs import Costs
from mpcourse.pipeline.execution import Execution
from mpcourse.pipeline.replay import IllegalAction, replay
from mpcourse.pipeline.schedule import BACKWARD, FORWARD, Action, Schedule


class Placing:
    """Lists of F and B for the stages of a pipeline, made action by action.

    stages: 1 or more.
    microbatches: 1 or more.
    cap: the most micro-batches whose activations a stage may hold; None: no limit.
    begin: actions that are placed from the start, one or more, as (stage, kind).
    costs: of the actions; None: forward 1, backward 2, transfers 0.
    Raises ValueError if these actions cannot run.
    """

    def __init__(
        self,
        stages: int,
        microbatches: int,
        cap: float | None = None,
        begin: Sequence[tuple[int, str]] = ((0, FORWARD),),
        costs: Costs | None = None,
    ) -> None:
        if stages < 1 or microbatches < 1 or not begin:
            raise ValueError(f"{stages} stages, {microbatches} micro-batches, {len(begin)} actions: 1 or more of each")
        self.stages, self.microbatches, self.cap, self.costs = stages, microbatches, cap, costs
        self.rows: Schedule = [[] for _ in range(stages)]
        self._placed: list[int] = []  # stages of the actions, in the order of placing
        for stage, kind in begin:
            if reason := self.place(stage, kind):
                raise ValueError(f"{kind} on stage {stage} cannot be there at the start: {reason}")
        self._given = len(self._placed)

    @property
    def count(self) -> int:
        """Number of actions that are placed."""
        return len(self._placed)

    @property
    def complete(self) -> bool:
        """Whether every forward and backward is placed."""
        return self.count == 2 * self.stages * self.microbatches

    @property
    def run(self) -> Execution:
        """The execution of what is placed, each action as early as its rules allow."""
        return replay(self.rows, self.costs, self.cap, whole=False)

    def next(self, stage: int, kind: str) -> Action | None:
        """Return what `kind` would place: the lowest micro-batch that can run, else the lowest one left, else None.

        stage: its number, from 0.
        kind: "F" or "B".
        """
        there = {a.microbatch for a in self.rows[stage] if a.kind == kind}
        left = [Action(kind, k) for k in range(self.microbatches) if k not in there]
        return next((a for a in left if not self.reason(stage, a)), left[0] if left else None)

    def place(self, stage: int, kind: str) -> str:
        """Place the next F or B of a stage and return "". If it cannot run now, change nothing and return why.

        stage: its number, from 0.
        kind: "F" or "B".
        """
        action = self.next(stage, kind)
        if action is None:
            return f"stage {stage} has every {kind} already"
        if reason := self.reason(stage, action):
            return reason
        self.rows[stage].append(action)
        self._placed.append(stage)
        return ""

    def undo(self) -> None:
        """Take the last action back; do nothing where only the actions from the start are left."""
        if self.count > self._given:
            self.rows[self._placed.pop()].pop()

    def reset(self) -> None:
        """Take back all actions except those from the start."""
        while self.count > self._given:
            self.undo()

    def stuck(self) -> bool:
        """Return whether an action is missing but none can be placed, because the cap is too low."""
        return not self.complete and all(
            action is None or self.reason(stage, action)
            for stage in range(self.stages)
            for action in (self.next(stage, FORWARD), self.next(stage, BACKWARD))
        )

    def reason(self, stage: int, action: Action) -> str:
        """Explain, in the replay's words, why an action cannot be the next one of its stage; "" where it can.

        stage: its number, from 0.
        action: a forward or backward of one micro-batch.
        """
        rows = [[*row, action] if s == stage else row for s, row in enumerate(self.rows)]
        try:
            replay(rows, self.costs, self.cap, whole=False)
        except IllegalAction as error:
            return f"{action} on stage {stage}: {error.reason}"
        return ""
