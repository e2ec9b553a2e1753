"""`mpirun -np 2 python -m mpcourse.pipeline.ranks`: a pipeline over ranks learns digits, and shows when each worked."""

import argparse
import contextlib
import copy
import json
import os
import statistics
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch._dynamo  # what torch.optim imports at its first use, in seconds: not in the first step
import torch.nn.functional as F
from mpi4py import MPI
from torch import nn

from mpcourse.data import Dataset, digits
from mpcourse.errors import UserError
from mpcourse.pipeline import SCHEDULES, Execution, Schedule, interleaved_one_f_one_b, measured_costs, replay
from mpcourse.pipeline.ranks import PipelineRank
from mpcourse.training import batches, evaluate

ABOUT = "Train on real digits, a stage of the network on each rank, and draw when each rank worked."
LAYERS = 2  # hidden layers of each part
SEED = 0


def main() -> None:
    """All ranks call it. A rank that fails ends all of them."""
    comm = MPI.COMM_WORLD
    options = _options(comm.rank)
    try:
        _run(comm, options)
    except UserError as error:  # which all ranks raise alike
        if comm.rank == 0:
            print(f"mpcourse: {error}", file=sys.stderr)
        sys.exit(2)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        comm.Abort(1)


def _options(rank: int) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m mpcourse.pipeline.ranks", description=ABOUT)
    parser.add_argument("--schedule", choices=list(SCHEDULES), default="1f1b")
    parser.add_argument("--microbatches", type=int, default=8, metavar="N", help="that a batch is cut into (8)")
    parser.add_argument("--chunks", type=int, default=2, metavar="N", help="parts a rank, of interleaved-1f1b (2)")
    parser.add_argument("--epochs", type=int, default=10, metavar="N", help="(10)")
    parser.add_argument("--batch", type=int, default=512, metavar="N", help="examples (512)")
    parser.add_argument("--width", type=int, default=1024, metavar="N", help="units of each hidden layer (1024)")
    parser.add_argument("--lr", type=float, default=0.02, metavar="X", help="of SGD with momentum 0.9 (0.02)")
    parser.add_argument("--save", type=Path, metavar="FILE", help="the picture (pipeline.svg, in this folder)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="the timelines and figures, too")
    with open(os.devnull, "w") as silence:  # one rank's complaint is enough
        with contextlib.redirect_stderr(sys.stderr if rank == 0 else silence):
            with contextlib.redirect_stdout(sys.stdout if rank == 0 else silence):
                return parser.parse_args()


def _run(comm: Any, options: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    data = digits()
    schedule, chunks = _schedule(comm.size, options)
    for name in ("epochs", "batch", "width"):
        if getattr(options, name) < 1:
            raise UserError(f"--{name} {getattr(options, name)}: 1 or more is needed")
    smallest = len(data.train) % options.batch or options.batch
    if options.batch > len(data.train) or smallest < options.microbatches:
        raise UserError(
            f"--batch {options.batch} of {len(data.train)} examples leaves a batch of "
            f"{min(smallest, len(data.train))}: it must be {options.microbatches} micro-batches or more"
        )
    parts = _parts(comm.size * chunks, data, options.width)
    whole = copy.deepcopy(parts)
    mine = list(parts)[comm.rank :: comm.size]
    pipeline = PipelineRank(comm, mine, schedule, F.cross_entropy)
    optimizer = torch.optim.SGD(nn.ModuleList(mine).parameters(), lr=options.lr, momentum=0.9)
    losses, seconds, executions = [], [], []
    for images, labels in _batches(data, options):
        optimizer.zero_grad()
        comm.Barrier()
        begin = time.perf_counter()
        loss, ran = pipeline.timed_step(images, labels)
        comm.Barrier()
        seconds.append(time.perf_counter() - begin)
        optimizer.step()
        losses.append(comm.bcast(None if loss is None else float(loss), root=comm.size - 1))
        if (execution := pipeline.gather(ran)) is not None:
            executions.append(execution)
    learned = comm.gather([part.state_dict() for part in mine], root=0)
    if comm.rank == 0:
        for rank, states in enumerate(learned):
            for part, state in zip(list(parts)[rank :: comm.size], states, strict=True):
                part.load_state_dict(state)
        steps = len(losses) // options.epochs
        per_epoch = [statistics.fmean(losses[i : i + steps]) for i in range(0, len(losses), steps)]
        alone, difference = _alone(whole, parts, data, options)
        _tell(comm.size, options, per_epoch, seconds, alone, difference, evaluate(parts, data.test))
        _draw(options, schedule, executions, {"losses": per_epoch, "difference": difference})


def _schedule(stages: int, options: argparse.Namespace) -> tuple[Schedule, int]:
    try:
        if options.schedule == "interleaved-1f1b":
            return interleaved_one_f_one_b(stages, options.microbatches, options.chunks), options.chunks
        return SCHEDULES[options.schedule](stages, options.microbatches), 1
    except ValueError as error:
        raise UserError(str(error)) from None


def _parts(count: int, data: Dataset, width: int) -> nn.Sequential:
    """A network in `count` parts, the same on all ranks, each with LAYERS hidden layers."""
    torch.manual_seed(SEED)
    inputs, classes = data.train.flat().shape[1], int(data.train.labels.max()) + 1
    layers: list[nn.Module] = []
    for part in range(count):
        made: list[nn.Module] = [] if part else [nn.Flatten(), nn.Linear(inputs, width), nn.ReLU()]
        for _ in range(LAYERS):
            made += [nn.Linear(width, width), nn.ReLU()]
        layers.append(nn.Sequential(*made, *([nn.Linear(width, classes)] if part == count - 1 else [])))
    model = nn.Sequential(*layers)
    for module in model.modules():
        if isinstance(module, nn.Linear):  # or the signal dies on its way through that many layers
            nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
            nn.init.zeros_(module.bias)
    return model


def _batches(data: Dataset, options: argparse.Namespace) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Of all epochs; every rank draws the same."""
    generator = torch.Generator().manual_seed(SEED)
    for _ in range(options.epochs):
        yield from batches(data.train, options.batch, generator)


def _alone(
    whole: nn.Sequential, parts: nn.Sequential, data: Dataset, options: argparse.Namespace
) -> tuple[list[float], float]:
    """The same training in this process alone: seconds of each step, and how far the pipeline's parameters are off."""
    optimizer = torch.optim.SGD(whole.parameters(), lr=options.lr, momentum=0.9)
    seconds = []
    for images, labels in _batches(data, options):
        optimizer.zero_grad()
        begin = time.perf_counter()
        F.cross_entropy(whole(images), labels).backward()
        seconds.append(time.perf_counter() - begin)
        optimizer.step()
    pairs = zip(whole.parameters(), parts.parameters(), strict=True)
    return seconds, max((a - b).detach().abs().max().item() for a, b in pairs)


def _tell(
    ranks: int, options: argparse.Namespace, losses: list[float], seconds: list[float], alone: list[float],
    difference: float, accuracy: float,
) -> None:  # fmt: skip
    print(f"{options.schedule}: {ranks} ranks, {options.microbatches} micro-batches a batch of {options.batch}")
    print("Loss by epoch:", " ".join(f"{loss:.3f}" for loss in losses))
    print(f"{100 * accuracy:.1f} % of the test digits are classified rightly.")
    print(
        f"One process alone learns the same: after {len(seconds)} steps no parameter differs by more than "
        f"{difference:.1e}, which is rounding: float32 sums are added up in another order."
    )
    step, single = statistics.median(seconds), statistics.median(alone)
    print(f"A step takes {1e3 * step:.0f} ms; in one process, without micro-batches, {1e3 * single:.0f} ms.")


def _draw(
    options: argparse.Namespace, schedule: Schedule, executions: list[Execution], figures: dict[str, Any]
) -> None:
    """The step of median length, beside what the replay says of actions that take what they took on average."""
    later = sorted(executions[len(executions) // 2 :], key=lambda e: e.makespan)
    measured = _in_ms(later[len(later) // 2])
    predicted = replay(schedule, measured_costs([_in_ms(e) for e in later]))
    equal = replay(schedule)
    print(
        f"The ranks together compute {sum(measured.busy):.0f} ms of a step. "
        f"Bubble: measured {100 * measured.bubble:.1f} %, predicted {100 * predicted.bubble:.1f} % from the measured "
        f"forwards and backwards, {100 * equal.bubble:.1f} % if all stages took the same."
    )
    import matplotlib

    matplotlib.use("agg")
    from mpcourse.plot import schedule as picture

    path = options.save or Path("pipeline.svg")
    runs = {"predicted": predicted, f"measured, {len(schedule)} ranks": measured}
    title = f"{options.schedule}, {options.microbatches} micro-batches"
    with _writing(path):
        picture(runs, title, "milliseconds").savefig(path, bbox_inches="tight", dpi=150)
    print(f"The picture: {path}")
    if options.json:
        told = figures | {"measured": measured.as_dict(), "predicted": predicted.as_dict()}
        with _writing(options.json):
            options.json.write_text(json.dumps(told))


@contextlib.contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:  # ValueError: a format that matplotlib does not know
        raise UserError(f"{path} cannot be written: {error}") from None


def _in_ms(run: Execution) -> Execution:
    return Execution([[t._replace(start=1e3 * t.start, end=1e3 * t.end) for t in row] for row in run.stages])
