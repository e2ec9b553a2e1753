"""Exercise e16: the checkpoint that cannot be loaded.

The program below trains a network and saves checkpoints. Each job makes ten steps, and the next job goes on from the
checkpoint. With two ranks on one node, this works. With two nodes of two ranks each, which share a file system, the
first jobs work, too. But then a job ends at its start, because torch.load says that the checkpoint is corrupted. All
further jobs end in the same way. The training was repeated on two nodes, and came to this again, some jobs earlier or
later.

Evidence, in evidence/e16_checkpoint/: `one.log` and `ranks.log`, what the jobs on one node and on two nodes printed,
and the files that were there after each job; `strace.txt`, what the ranks did to files in the last job that worked, as
strace shows it; `parts.txt`, the parts of the last two checkpoints, which are zip archives. For two nodes, run `mpirun
-np 4 python exercises/evidence/e16_checkpoint/run.py FOLDER` several times with the same FOLDER. Each time is a job.

First name the cause in `diagnose`. Then mend the program.

Check it with `mpcourse check e16_checkpoint`. Stuck? `mpcourse hint e16_checkpoint`.
"""

from mpcourse import check_this_file

if __name__ == "__main__":  # up here, so that all code below runs under the checker's watch
    check_this_file(__file__)

import os

import torch
import torch.nn.functional as F


def diagnose():
    """Return the name of the cause, one of these.

    "damage": the file system has changed bytes of a file after it was written.
    "full": the disk was full, so a part of the checkpoint is missing.
    "killed": a job was killed while it saved its last checkpoint.
    "readers": a job loads the checkpoint while it is still being written.
    "version": the checkpoint was saved with another version of PyTorch than it is loaded with.
    "writers": several ranks write the same file at the same time.
    """
    # solution: name the cause
    return "writers"
    # end of solution


def save(comm, local_rank, folder, state):
    """Save a checkpoint. All ranks call this function.

    comm: an mpi4py communicator.
    local_rank: the number of this rank on its node, from 0.
    folder: a Path. The ranks of all nodes see the same folder, which exists.
    state: what this rank has to save, as torch.load reads it with weights_only=True. It is a dict, and state["step"] is
        an int, larger than in the checkpoints that are complete. The other values may differ from rank to rank.

    The checkpoint is the state of rank 0. One rank writes it, and the other ranks change no files in the folder.
    If the job is killed at any moment of this call, the next job can still load the checkpoint before, unless the new
    one is complete. In this call, a rank makes at most three collective calls, and no state is sent between ranks.
    """
    name = f"step{state['step']}.pt"
    # solution: rank 0 alone writes
    # found: if local_rank == 0:
    # found:     torch.save(state, folder / name)
    if comm.rank == 0:
        torch.save(state, folder / name)
    # end of solution
    comm.Barrier()  # from here on the file is complete
    if comm.rank == 0:
        (folder / "latest.part").write_text(name)
        os.replace(folder / "latest.part", folder / "latest")


def load(comm, folder):
    """Return the newest checkpoint that is complete, the same on all ranks; None if there is none.

    All ranks call this function. comm and folder are as in `save`, but a job may have another number of ranks than the
    job before. If the file of this checkpoint is damaged, load raises an error, and does not return an older one. In
    this call, a rank makes at most three collective calls.
    """
    name = None
    if comm.rank == 0 and (folder / "latest").exists():
        name = (folder / "latest").read_text()
    name = comm.bcast(name)
    return torch.load(folder / name, weights_only=True) if name else None


def average_gradients(comm, model):
    """Replace the gradients by their means over all ranks."""
    flat = torch.cat([p.grad.flatten() for p in model.parameters()])
    comm.Allreduce(flat.clone().numpy(), flat.numpy())
    means = (flat / comm.size).split([p.numel() for p in model.parameters()])
    for p, mean in zip(model.parameters(), means, strict=True):
        p.grad.copy_(mean.view_as(p))


def train(comm, local_rank, folder, model, optimizer, batches, every):
    """Train a model on all ranks, from the newest checkpoint on; return this rank's log, a list of texts.

    comm, local_rank, folder: as in `save`.
    model, optimizer: the same on all ranks.
    batches: this rank's batch of each step, (x, y), since the first job began. All ranks have as many.
    every: a checkpoint is saved after each `every` steps.

    The log begins with what is in the checkpoint, the log of rank 0, and goes on with this rank's steps.
    """
    state = load(comm, folder)
    step, log = 0, []
    if state is not None:
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        step, log = state["step"], state["log"]
    while step < len(batches):
        x, y = batches[step]
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        average_gradients(comm, model)
        optimizer.step()
        step += 1
        log.append(f"step {step}: loss {loss.item():.4g} on rank {comm.rank}")
        if step % every == 0:
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step, "log": log}
            save(comm, local_rank, folder, state)
    return log
