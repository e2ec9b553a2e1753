"""Collective calls of model parallelism beside one process, whoever requires gradients, and whoever is within no_grad.

`mpirun -np 3 python tests/programs/collective_gradients.py` prints, on rank 0, the cases that differ on some rank.
"""

import contextlib
import itertools

import torch

from mpcourse.model_parallel import all_to_all, allgather, allreduce, bcast

CALLS = "allreduce", "bcast", "allgather", "all_to_all"


def drawn(size, seed):
    """Each rank's x, and the weights of each rank's results in its loss."""
    draw = torch.Generator().manual_seed(seed)
    xs = [torch.randn(2 * size, dtype=torch.float64, generator=draw) for _ in range(size)]
    return xs, torch.randn(size, size, 2 * size, dtype=torch.float64, generator=draw)


def loss(results, weights):
    return sum((y.square() * w[: y.numel()]).sum() for y, w in zip(results, weights, strict=False))


def plain(call, xs, root):
    """Return what each rank gets, computed in one process."""
    size = len(xs)
    return {
        "allreduce": [[sum(xs)]] * size,
        "bcast": [[xs[root]]] * size,
        "allgather": [xs] * size,
        "all_to_all": [[x.chunk(size)[rank] for x in xs] for rank in range(size)],
    }[call]


def one_process(call, requires, without, root, seed):
    """Return the gradient of the sum of losses for each rank's x. without: ranks within no_grad, which have none."""
    xs, weights = drawn(len(requires), seed)
    xs = [x.requires_grad_(learns) for x, learns in zip(xs, requires, strict=True)]
    seen = [x.detach() if no else x for x, no in zip(xs, without, strict=True)]
    losses = [loss(y, w) for y, w, no in zip(plain(call, seen, root), weights, without, strict=True) if not no]
    total = sum(losses, torch.zeros((), dtype=torch.float64))
    if total.requires_grad:
        total.backward()
    return [torch.zeros_like(x) if x.grad is None else x.grad for x in xs]


def on_rank(comm, call, requires, without, root, seed):
    """Do the same on this rank of several."""
    xs, weights = drawn(comm.size, seed)
    x = xs[comm.rank].requires_grad_(requires[comm.rank])
    with torch.no_grad() if without[comm.rank] else contextlib.nullcontext():
        if call == "allreduce":
            results = [allreduce(comm, x)]
        elif call == "bcast":
            results = [bcast(comm, x if comm.rank == root or seed % 2 else None, root)]
        elif call == "allgather":
            results = allgather(comm, x)
        else:
            results = all_to_all(comm, x.chunk(comm.size))
    own = loss(results, weights[comm.rank])
    if own.requires_grad:
        own.backward()
    return torch.zeros_like(x) if x.grad is None else x.grad


def differing(comm):
    """Return the cases in which this rank's gradient is not that of one process."""
    found, sides = [], list(itertools.product([False, True], repeat=comm.size))
    for seed, (call, requires, without) in enumerate(itertools.product(CALLS, sides, sides)):
        case = call, requires, without, seed % comm.size, seed
        if not torch.allclose(on_rank(comm, *case), one_process(*case)[comm.rank]):
            found.append(case)
    return found


if __name__ == "__main__":
    from mpi4py import MPI

    torch.set_num_threads(1)
    found = MPI.COMM_WORLD.gather(differing(MPI.COMM_WORLD))
    if found is not None:
        print(found)
