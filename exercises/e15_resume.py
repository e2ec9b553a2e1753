"""Exercise e15: what a checkpoint must hold.

A job that continues from a checkpoint should compute what it would have computed without the failure. The weights
are not enough for this. Take a snapshot of everything that the next step depends on, and put it back into a new job,
which may have more processes than the old one, or fewer.

The check trains small jobs on 1, 2, 3 and 4 virtual ranks and compares them with a job that was never stopped. Then
it does the same under mpirun.

Check it with `mpcourse check e15_resume`. Stuck? `mpcourse hint e15_resume`.
"""

import copy
from dataclasses import dataclass
from typing import Any

import torch

from mpcourse import check_this_file

if __name__ == "__main__":  # up here, so that all code below runs under the checker's watch
    check_this_file(__file__)


@dataclass
class Job:
    """What one rank trains with. Everything but `noise` is in the same state on all ranks.

    model: a torch.nn.Module. It may have buffers, and parameters that are frozen or tied.
    optimizer: any optimizer of torch.optim. It updates the parameters of the model.
    scheduler: any scheduler of torch.optim.lr_scheduler. It changes the learning rate of the optimizer.
    scaler: a torch.amp.GradScaler.
    sampler: knows which examples come next. Like the four above, it has state_dict() and load_state_dict().
    noise: the torch.Generator from which this rank draws its dropout masks. Its state differs from rank to rank. It
    has get_state(), which returns a tensor, and set_state(tensor). Do not give set_state a row of a larger tensor:
    torch 2.13 crashes unless you clone() the row.
    """

    model: torch.nn.Module
    optimizer: torch.optim.Optimizer
    scheduler: Any
    scaler: torch.amp.GradScaler
    sampler: Any
    noise: torch.Generator


def state_of(comm, job):
    """Return a snapshot of the job, the same on all ranks. All ranks call this function. It does not change the job.

    comm: an mpi4py communicator.
    job: this rank's Job.
    Returns a dict of dicts, lists, numbers, texts and tensors, which torch.save can write, and which
    torch.load(file, weights_only=True) can read. The job trains on after this call, and that does not change the
    snapshot.
    """
    raise NotImplementedError("e15_resume: return all that the next step of the job depends on")


def restore(comm, job, state):
    """Bring a new job to where the snapshot was taken. All ranks call this function.

    comm: an mpi4py communicator. It may have more ranks, or fewer, than the one that state_of was given.
    job: this rank's Job. The same program has made it anew, with other weights and other random numbers. Change the
    state of its objects. They stay connected: the optimizer goes on to update the parameters of job.model.
    state: the snapshot, as torch.load has read it from a file. It is the same on all ranks.

    Afterwards the job trains as the old one would have without a stop. Rank r continues with the random numbers of
    rank r. If the snapshot has none of this rank, the rank keeps those of its new job. Neither this call nor what the
    job trains afterwards changes the snapshot, so that it can be restored once more.
    """
    raise NotImplementedError("e15_resume: put it back into the new job")
