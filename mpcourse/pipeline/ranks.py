"""A pipeline over MPI: each rank has one stage, and activations and gradients cross the cuts as messages.

An example trains on handwritten digits:

    mpirun -np 2 python -m mpi4py -m mpcourse.course.examples.pipeline --schedule 1f1b --microbatches 8
"""

import time
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import nn

from mpcourse.common.comm import Comm
from mpcourse.common.errors import RankFailed
from mpcourse.pipeline.batch_norm import DeferredBatchNorm
from mpcourse.pipeline.execution import Execution, Timed
from mpcourse.pipeline.local import cut, weighed
from mpcourse.pipeline.messages import TensorChannel
from mpcourse.pipeline.replay import checked, chunks_of, microbatches_of, replay
from mpcourse.pipeline.schedule import Action, Schedule
from mpcourse.pipeline.stage import Given, Loss, Stage, keeping_numbers
from mpcourse.pipeline.tied import Tied


class PipelineRank:
    """This rank's stage of a pipeline. All ranks of `comm` make one together, as many as the schedule has stages.

    comm: mpi4py's communicator, or a virtual rank's.
    chunks: this rank's parts of the model, all on one device: one, or as many as the schedule's chunks. Rank s of p has
    the parts s, p + s, 2 p + s ... Parts take and return one tensor or several.
    schedule: a list of actions for each stage, the same on all ranks.
    loss: of (output, target); returns the mean over the examples that it is given. Each micro-batch counts by its size.
    checkpoint: keep only the inputs of a part for each micro-batch, and compute the rest again in backward (Chen et al.
    2016).
    seed: of what parts draw, as dropout does. It grows by one each step, on all ranks alike.
    tied: this rank's tied parameters, each under a name that is the same on all ranks that hold a copy.
    Raises ValueError, on every rank, where ranks and schedule do not fit or ranks were given different ones;
    IllegalAction for a schedule that cannot run.
    """

    def __init__(
        self,
        comm: Comm,
        chunks: nn.Module | Sequence[nn.Module],
        schedule: Schedule,
        loss: Loss,
        *,
        checkpoint: bool = False,
        seed: int = 0,
        tied: Mapping[str, nn.Parameter] | None = None,
    ) -> None:
        self.comm, self.loss, self.seed, self.checkpoint = comm, loss, seed, checkpoint
        self.chunks = [chunks] if isinstance(chunks, nn.Module) else list(chunks)
        self.schedule = checked(schedule)
        self._agree()
        replay(self.schedule)
        self.count, self.row = microbatches_of(self.schedule), self.schedule[comm.rank]
        self.last = len(self.schedule) * len(self.chunks) - 1
        first = next((p for c in self.chunks for p in c.parameters()), None)
        self.device = torch.device("cpu") if first is None else first.device
        self._channel, self._tied, self._failed = TensorChannel(comm.Dup()), Tied(comm, tied or {}), ""
        self._targets: list[torch.Tensor] = []  # of a step's micro-batches, on the last rank
        self._batch_size = 0
        # Made once, because work that a step does before its first action delays all ranks.
        self._stages = [
            Stage(
                module, self.device, self.row, part=c * comm.size + comm.rank, chunk=c,
                loss=self._loss if c * comm.size + comm.rank == self.last else None, share=self._share,
                checkpoint=checkpoint,
            )
            for c, module in enumerate(self.chunks)
        ]  # fmt: skip
        self._norms = [m for c in self.chunks for m in c.modules() if isinstance(m, DeferredBatchNorm)]

    def step(self, x: torch.Tensor | None = None, target: torch.Tensor | None = None) -> torch.Tensor | None:
        """Run forward and backward of one batch; all ranks call it.

        Return the batch's loss, a scalar, on the last rank, and None on the others.

        x: (batch, ...), on the first rank; other ranks may pass it or not.
        target: (batch, ...), on the last rank; other ranks may pass it or not.
        Raises ValueError, on every rank, for a batch that does not fit. Where one rank's model raises, all ranks raise:
        that rank its own error, the others RankFailed.
        """
        return self.timed_step(x, target)[0]

    def timed_step(
        self, x: torch.Tensor | None = None, target: torch.Tensor | None = None
    ) -> tuple[torch.Tensor | None, list[Timed]]:
        """Run forward and backward of one batch; all ranks call it.

        Return the batch's loss (None except on the last rank), and when this rank's actions ran.

        x: (batch, ...), on the first rank; other ranks may pass it or not.
        target: (batch, ...), on the last rank; other ranks may pass it or not.

        Times are seconds on `time.perf_counter`'s clock. An action begins when its input has arrived; the time before
        is bubble.
        Raises ValueError, on every rank, for a batch that does not fit. Where one rank's model raises, all ranks raise:
        that rank its own error, the others RankFailed.
        """
        rank, last_rank = self.comm.rank, self.comm.size - 1
        self._batch_size = self._batch(x, target)
        inputs = cut(x.detach().to(self.device), self.count) if x is not None and rank == 0 else []
        if target is not None and rank == last_rank:
            self._targets = cut(target.to(self.device), self.count)
        for stage in self._stages:
            stage.seed = self.seed
        self.seed += 1
        asked = x is not None and x.requires_grad
        # What this rank computed for itself, under the names that another rank would send it with.
        own: dict[tuple[str, int, int], Given] = {("F", k, 0): [t.requires_grad_(asked)] for k, t in enumerate(inputs)}
        ran: list[Timed] = []
        self._tied.begin()
        done = 0
        try:
            with keeping_numbers([self.device]):
                for a in self.row:
                    stage = self._stages[a.chunk]
                    given = self._given(a, stage.part, own)
                    start = time.perf_counter()
                    out = stage.act(a, given)
                    ran.append(Timed(a, start, self._now()))
                    self._pass_on(a, stage.part, out, own)
                    done += 1
                self._channel.finish()
        except BaseException as error:
            self._fail(error, done)
            raise
        self._tied.sum_gradients()
        for norm in self._norms:
            norm.commit()
        if inputs and asked:
            assert x is not None
            of_x = [own["B", k, -1][0] for k in range(self.count)]
            x.backward(torch.cat([g for g in of_x if g is not None]).to(x.device))
        if rank != last_rank:
            return None, ran
        losses = {k: part for k in range(self.count) for part in own["F", k, self.last + 1] if part is not None}
        return weighed(losses, self._share), ran

    def gather(self, ran: list[Timed]) -> Execution | None:
        """Gather what `timed_step` returned on each rank. Return it on rank 0, None on the others; all ranks call it.

        ran: this rank's actions. All ranks must be on one machine, so that they share a clock.
        """
        rows = self.comm.gather([(tuple(t.action), t.start, t.end) for t in ran], root=0)
        if rows is None:
            return None
        begin = min(start for row in rows for _, start, _ in row)
        return Execution([[Timed(Action(*a), s - begin, e - begin) for a, s, e in row] for row in rows])

    def _loss(self, k: int, output: torch.Tensor) -> torch.Tensor:
        return self.loss(output, self._targets[k])

    def _share(self, k: int) -> float:
        return len(self._targets[k]) / self._batch_size

    def _given(self, a: Action, part: int, own: dict[tuple[str, int, int], Given]) -> Given:
        """Return what action `a` of this rank's part `part` takes; receive it if another rank sends it."""
        direction = "F" if a.kind == "F" else "B"
        if a.kind == "W" or (direction == "B" and part == self.last):
            return []
        if (direction, a.microbatch, part) in own:
            return own.pop((direction, a.microbatch, part))
        source = (part + (-1 if a.kind == "F" else 1)) % self.comm.size
        return self._channel.receive(source, self._tag(direction, a.microbatch, part), self.device)

    def _pass_on(self, a: Action, part: int, out: Given, own: dict[tuple[str, int, int], Given]) -> None:
        """Give what action `a` returned to the part that takes it. Losses and the input's gradients stay here."""
        if a.kind == "W":
            return
        direction, to = "F" if a.kind == "F" else "B", self._after(a, part)
        if 0 <= to <= self.last and to % self.comm.size != self.comm.rank:
            self._channel.send(out, to % self.comm.size, self._tag(direction, a.microbatch, to))
        else:
            own[direction, a.microbatch, to] = out

    def _after(self, a: Action, part: int) -> int:
        return part + (1 if a.kind == "F" else -1)

    def _fail(self, error: BaseException, done: int) -> None:
        """Send the failure to all ranks that wait for results of this rank's actions after the first `done`."""
        self._failed = str(error) if isinstance(error, RankFailed) else f"rank {self.comm.rank} raised {error!r}"
        for a in self.row[done:]:
            to = self._after(a, a.chunk * self.comm.size + self.comm.rank)
            if a.kind != "W" and 0 <= to <= self.last and to % self.comm.size != self.comm.rank:
                tag = self._tag("F" if a.kind == "F" else "B", a.microbatch, to)
                self._channel.send_failure(self._failed, to % self.comm.size, tag)

    def _now(self) -> float:
        if self.device.type != "cpu":
            torch.get_device_module(self.device).synchronize(self.device)
        return time.perf_counter()

    def _tag(self, direction: str, k: int, part: int) -> int:
        """Return the tag of what part `part` is given for micro-batch k. MPI promises at least 32 768 tags."""
        return (2 * (k * (self.last + 1) + part) + (direction == "B")) % 32768

    def _batch(self, x: torch.Tensor | None, target: torch.Tensor | None) -> int:
        """Return how many examples this step has. If something is wrong with them, all ranks raise before any waits."""
        if self._failed:
            raise RuntimeError(f"this pipeline stopped in the middle of a step: {self._failed}. Make a new one")
        lengths = np.empty((self.comm.size, 2), np.int64)
        self.comm.Allgather(np.array([-1 if t is None else len(t) for t in (x, target)], np.int64), lengths)
        batch, targets = int(lengths[0, 0]), int(lengths[-1, 1])
        if batch < 0:
            raise ValueError("rank 0 needs x: it has the model's first part")
        if targets < 0:
            raise ValueError(f"rank {self.comm.size - 1} needs target: it has the model's last part")
        if batch != targets:
            raise ValueError(f"x has {batch} examples on rank 0, target has {targets} on rank {self.comm.size - 1}")
        if batch < self.count:
            raise ValueError(f"a batch of {batch} examples cannot make {self.count} micro-batches: take fewer")
        return batch

    def _agree(self) -> None:
        """Raise ValueError on all ranks if one of them would raise it."""
        by_rank = self.comm.allgather((len(self.chunks), self.schedule, self.checkpoint, self.seed))
        for rank, (given, schedule, *others) in enumerate(by_rank):
            stages, ranks, chunks = len(schedule), self.comm.size, chunks_of(schedule)
            if stages != ranks:
                needs = f"one rank a stage: this schedule has {stages}, this run {ranks}"
                raise ValueError(f"a pipeline needs {needs}. Start it with -np {stages}, or ask for {ranks} stages")
            if given != chunks:
                raise ValueError(
                    f"rank {rank} was given {given} of the model's parts: this schedule needs {chunks} a rank"
                )
            if [schedule, *others] != list(by_rank[0][1:]):
                raise ValueError(f"rank {rank} was given another schedule, seed or checkpoint setting than rank 0")
