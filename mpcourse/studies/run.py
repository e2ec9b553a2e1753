"""`mpirun -np N python -m mpcourse.studies.run STUDY.toml FOLDER`: a grid of training runs, on N ranks or one.

STUDY.toml holds the fields of `mpcourse.studies.grid.Study`, for instance

    batch = [32, 128, 512]
    rate = [0.05, 0.1]
    rule = ["none", "sqrt", "linear"]
    seed = 3
    epochs = 20

FOLDER gets runs.csv (one row per run), curves.csv (one row per record) and manifest.json (versions, hardware, noise,
date, command of each session). The same command continues where a killed one stopped, with any number of ranks: runs
that ended are kept, and unfinished ones continue from a snapshot, taken at a record once the last one is a second old.

Before it begins, rank 0's machine is watched for a second, and a busy one is refused, because the seconds in the tables
would be too long. With MPCOURSE_BUSY=1 in the environment it is not refused, and the manifest records the noise.
"""

import argparse
import os
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import torch
from tqdm.auto import tqdm

from mpcourse.common.comm import Comm
from mpcourse.common.errors import UserError
from mpcourse.common.launch import launched_rank
from mpcourse.common.quiet import BUSY, Noise, noise, refuse_if_busy
from mpcourse.data import Dataset
from mpcourse.studies.grid import Study, read_study
from mpcourse.studies.results import Folder, summary
from mpcourse.studies.stacked_runs import StackedRuns
from mpcourse.studies.task_pool import run_tasks

SNAPSHOT_SECONDS = 1.0
DOZE = 0.05  # seconds


def main() -> None:
    """Run the program; all ranks call it. Exit status: 2 for a mistake of the user; other failures end all ranks."""
    options = _options()
    from mpi4py import MPI  # imported only now, because it makes this process a rank

    comm = MPI.COMM_WORLD
    torch.set_num_threads(1)  # products of small networks gain nothing from a second thread
    try:
        study = read_study(options.study)
        measured = noise_beside(comm)
        refuse_if_busy(measured, f"set {BUSY}=1, which changes the seconds in the tables and nothing else")
        run_study(comm, study, Folder(options.folder), MPI.Get_library_version().splitlines()[0].strip(), measured)
    except UserError as error:  # all ranks raise the same
        if comm.rank == 0:
            print(f"mpcourse: {error}", file=sys.stderr, flush=True)
        sys.exit(2)
    except KeyboardInterrupt:
        comm.Abort(130)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        comm.Abort(1)


def noise_beside(comm: Comm) -> Noise:
    """Measure the noise of rank 0's machine while no rank computes; return it on all ranks. All call it."""
    comm.Barrier()  # all ranks have imported what they need
    if comm.rank > 0:
        while not comm.Iprobe(source=0):  # a rank that waits in recv keeps a core busy
            time.sleep(DOZE)
        return comm.recv(source=0)
    measured = noise()
    for rank in range(1, comm.size):
        comm.send(measured, dest=rank)
    return measured


def run_study(comm: Comm, study: Study, folder: Folder, mpi: str = "", measured: Noise | None = None) -> None:
    """Do what is left of the study. All ranks of `comm` call it, with the same study and a folder that all see.

    mpi, measured: the MPI library's name, and the machine's noise, for the manifest. Raises UserError, on every rank,
    for a folder of another study.
    """
    data = study.load_data()
    said = None
    if comm.rank == 0:
        try:
            folder.begin(study, comm.size, mpi, measured)
        except UserError as error:
            said = str(error)
    if (said := comm.bcast(said)) is not None:
        raise UserError(said)
    tasks = study.tasks()
    left = comm.bcast([i for i in range(len(tasks)) if not folder.finished(i)])
    quiet = comm.rank != 0 or bool(os.environ.get("TQDM_DISABLE"))
    total = sum(map(len, tasks))
    with tqdm(total=total, initial=total - sum(len(tasks[i]) for i in left), unit="run", disable=quiet) as bar:
        run_tasks(comm, left, lambda i: work(study, data, folder, i), lambda i: bar.update(len(tasks[i])))
    if comm.rank == 0:
        folder.write_tables()


def work(study: Study, data: Dataset, folder: Folder, task: int) -> Iterator[None]:
    """Train the runs of a task, from its snapshot if there is one; yield after each record, and save the results."""
    numbers, runs, examples = study.tasks()[task], study.runs(), len(data.train)
    trained = train_task(study, data, numbers)
    if (state := folder.snapshot(task)) is not None:
        trained.load_state_dict(state)
    saved = time.perf_counter()
    while not trained.done:
        trained.advance()
        if time.perf_counter() - saved > SNAPSHOT_SECONDS and not trained.done:
            folder.save_snapshot(task, trained.state_dict())
            saved = time.perf_counter()
        yield
    rows = []
    for number, curve in zip(numbers, trained.curves, strict=True):
        run = runs[number]
        scaled = study.schedule(run, examples).peak
        row = {"run": number} | vars(run) | {"scaled_rate": scaled, "base_batch": study.base_batch}
        rows.append(row | summary(curve, study.target))
    folder.save(task, rows, dict(zip(numbers, trained.curves, strict=True)))


def train_task(study: Study, data: Dataset, numbers: Sequence[int]) -> StackedRuns:
    """Make the runs of these numbers, which are one task's, before their first step."""
    chosen = [study.runs()[number] for number in numbers]
    return StackedRuns(
        study.widths,
        data,
        chosen[0].batch,
        [run.seed for run in chosen],
        torch.stack([study.rates(run, len(data.train)) for run in chosen], 1),
        study.momentum,
        study.weight_decay,
        study.trust_coefficient if chosen[0].optimizer == "lars" else None,
        study.record_every,
    )


def _options() -> argparse.Namespace:
    about = "Train a grid of runs over batch size, learning rate, rule and seed."
    parser = argparse.ArgumentParser(prog="python -m mpcourse.studies.run", description=about)
    parser.add_argument("study", type=Path, metavar="STUDY.toml", help="fields of mpcourse.studies.grid.Study")
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="for the results; the same one to go on")
    if launched_rank() == 0:
        return parser.parse_args()
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):  # rank 0 has printed it
        return parser.parse_args()


if __name__ == "__main__":
    main()
