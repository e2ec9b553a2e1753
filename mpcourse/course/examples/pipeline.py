"""A pipeline over ranks learns digits, and draws its timeline.

Start it by `mpirun -np 2 python -m mpi4py -m mpcourse.course.examples.pipeline`.
"""

import argparse
import contextlib
import copy
import math
import os
import statistics
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
import torch._dynamo  # what torch.optim imports at its first use, in seconds: not in the first step
import torch.nn.functional as F
from mpi4py import MPI
from torch import nn

from mpcourse.common.comm import Comm
from mpcourse.common.errors import UserError
from mpcourse.course.examples.pipeline_options import check_batches, check_files
from mpcourse.course.examples.pipeline_report import compare, draw, later_steps, report
from mpcourse.data import Dataset, digits
from mpcourse.models.training import batches, evaluate
from mpcourse.pipeline import SCHEDULES, Schedule, interleaved_one_f_one_b
from mpcourse.pipeline.local import cut
from mpcourse.pipeline.ranks import PipelineRank

ABOUT = "Train on real digits, a stage of the network on each rank, and draw when each rank worked."
LAYERS = 2  # hidden layers of each part
SEED = 0
TIMED = 6  # steps for which one process alone also takes the micro-batches, for the clock


def main() -> None:
    """Train on all ranks; one that fails ends all of them. Exit status: 1 where training diverged, 2 for an error."""
    comm = MPI.COMM_WORLD
    options = _options(comm.rank)
    try:
        sys.exit(_run(comm, options))
    except UserError as error:  # which all ranks raise alike
        if comm.rank == 0:
            print(f"mpcourse: {error}", file=sys.stderr)
        sys.exit(2)
    except SystemExit:
        raise
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        comm.Abort(1)


def _options(rank: int) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m mpcourse.course.examples.pipeline", description=ABOUT)
    parser.add_argument("--schedule", choices=list(SCHEDULES), default="1f1b")
    parser.add_argument("--microbatches", type=int, default=8, metavar="N", help="that a batch is cut into (8)")
    parser.add_argument("--chunks", type=int, default=2, metavar="N", help="parts a rank, of interleaved-1f1b (2)")
    parser.add_argument("--epochs", type=int, default=6, metavar="N", help="(6)")
    parser.add_argument("--batch", type=int, default=512, metavar="N", help="examples (512)")
    parser.add_argument("--width", type=int, default=768, metavar="N", help="units of each hidden layer (768)")
    parser.add_argument("--lr", type=float, default=0.02, metavar="X", help="of SGD with momentum 0.9 (0.02)")
    picture = Path("pipeline.svg")
    parser.add_argument("--save", type=Path, default=picture, metavar="FILE", help="the picture (./pipeline.svg)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="the timelines and figures, too")
    with (
        open(os.devnull, "w") as silence,  # one rank's complaint is enough
        contextlib.redirect_stderr(sys.stderr if rank == 0 else silence),
        contextlib.redirect_stdout(sys.stdout if rank == 0 else silence),
    ):
        return parser.parse_args()


def _run(comm: Comm, options: argparse.Namespace) -> int:
    torch.set_num_threads(1)
    data = digits()
    schedule, chunks = _schedule(comm.size, options)
    check_batches(options, len(data.train))
    _check_files(comm, options)
    parts = _parts(comm.size * chunks, data, options.width)
    whole = copy.deepcopy(parts)
    mine = list(parts)[comm.rank :: comm.size]
    pipeline = PipelineRank(comm, mine, schedule, F.cross_entropy)
    optimizer = torch.optim.SGD(nn.ModuleList(mine).parameters(), lr=options.lr, momentum=0.9)
    losses, executions = [], []
    for images, labels in _batches(data, options):
        optimizer.zero_grad()
        comm.Barrier()
        loss, ran = pipeline.timed_step(images, labels)
        optimizer.step()
        losses.append(comm.bcast(None if loss is None else float(loss), root=comm.size - 1))
        if not math.isfinite(losses[-1]):
            if comm.rank == 0:
                what = f"in step {len(losses)} the loss is {losses[-1]}"
                print(f"mpcourse: training diverged: {what}. A lower --lr helps ({options.lr:g} now)", file=sys.stderr)
            return 1
        if (execution := pipeline.gather(ran)) is not None:
            executions.append(execution)
    learned = comm.gather([part.state_dict() for part in mine], root=0)
    with _while_others_sleep(comm):
        if learned is not None:  # on rank 0
            for rank, states in enumerate(learned):
                for part, state in zip(list(parts)[rank :: comm.size], states, strict=True):
                    part.load_state_dict(state)
            alone = _alone(whole, data, options, len(losses))
            figures = compare(whole, parts, len(losses))
            steps = len(losses) // options.epochs
            figures["alone"] = {
                name: 1e3 * statistics.median(t) for name, t in zip(("at_once", "in_turn"), alone, strict=True)
            }
            figures["losses"] = [statistics.fmean(losses[i : i + steps]) for i in range(0, len(losses), steps)]
            middle, later = later_steps(executions)
            report(comm.size, options, figures, middle, evaluate(parts, data.test))
            draw(options, schedule, middle, later, figures)
    return 0


def _check_files(comm: Comm, options: argparse.Namespace) -> None:
    """Raise on all ranks, before the training, if rank 0 could not write the files after it."""
    said = None
    if comm.rank == 0:
        try:
            check_files(options)
        except UserError as error:
            said = str(error)
    if said := comm.bcast(said, root=0):
        raise UserError(said)


@contextlib.contextmanager
def _while_others_sleep(comm: Comm) -> Iterator[None]:
    """Let rank 0 work while the others sleep until it ends: MPI would wait at full speed and take the cores.

    They exit as it does.
    """
    failed = np.zeros(1, np.int32)
    if comm.rank == 0:
        try:
            yield
        except UserError:
            failed[0] = 1
            raise
        finally:
            comm.Ibcast(failed, root=0).Wait()
        return
    yield
    request = comm.Ibcast(failed, root=0)
    while not request.Test():
        time.sleep(0.01)
    if failed[0]:
        raise UserError("rank 0 could not write its files")  # which it tells itself


def _schedule(stages: int, options: argparse.Namespace) -> tuple[Schedule, int]:
    try:
        if options.schedule == "interleaved-1f1b":
            return interleaved_one_f_one_b(stages, options.microbatches, options.chunks), options.chunks
        return SCHEDULES[options.schedule](stages, options.microbatches), 1
    except ValueError as error:
        raise UserError(str(error)) from None


def _parts(count: int, data: Dataset, width: int) -> nn.Sequential:
    """Make a network in `count` parts, the same on all ranks, each with LAYERS hidden layers.

    Of tanh: where rounding switches a ReLU, a gradient jumps, and two runs soon differ by more than rounding.
    """
    torch.manual_seed(SEED)
    inputs, classes = data.train.flat().shape[1], int(data.train.labels.max()) + 1
    layers: list[nn.Module] = []
    for part in range(count):
        made: list[nn.Module] = [] if part else [nn.Flatten(), nn.Linear(inputs, width), nn.Tanh()]
        for _ in range(LAYERS):
            made += [nn.Linear(width, width), nn.Tanh()]
        layers.append(nn.Sequential(*made, *([nn.Linear(width, classes)] if part == count - 1 else [])))
    model = nn.Sequential(*layers)
    for module in model.modules():
        if isinstance(module, nn.Linear):  # or the signal dies on its way through that many layers
            nn.init.xavier_normal_(module.weight)
            nn.init.zeros_(module.bias)
    return model


def _batches(data: Dataset, options: argparse.Namespace) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield the batches of all epochs; every rank draws the same."""
    generator = torch.Generator().manual_seed(SEED)
    for _ in range(options.epochs):
        yield from batches(data.train, options.batch, generator)


def _alone(
    whole: nn.Sequential, data: Dataset, options: argparse.Namespace, steps: int
) -> tuple[list[float], list[float]]:
    """Train `whole` in this process alone: seconds of the forwards and backwards of its last steps.

    First of each batch as a whole; second of its micro-batches, one after the other, which train nothing.
    """
    optimizer = torch.optim.SGD(whole.parameters(), lr=options.lr, momentum=0.9)
    at_once, in_turn = [], []
    for step, (images, labels) in enumerate(_batches(data, options)):
        if step >= steps - TIMED:
            optimizer.zero_grad()
            begin = time.perf_counter()
            for x, target in zip(cut(images, options.microbatches), cut(labels, options.microbatches), strict=True):
                F.cross_entropy(whole(x), target).backward()
            in_turn.append(time.perf_counter() - begin)
        optimizer.zero_grad()
        begin = time.perf_counter()
        F.cross_entropy(whole(images), labels).backward()
        if step >= steps - TIMED:
            at_once.append(time.perf_counter() - begin)
        optimizer.step()
    return at_once, in_turn


if __name__ == "__main__":
    main()
