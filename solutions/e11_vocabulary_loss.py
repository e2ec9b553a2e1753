"""Exercise e11: cross-entropy without gathering logits.

A language model's last layer has an output for each token of the vocabulary. It is often the largest layer, so tensor
parallelism divides its outputs among the ranks: each rank has the logits of its part of the vocabulary, for all
positions of the text. An all-gather would send all logits to every rank, and each rank would have to hold them. The
loss needs less: a few numbers a position, which the ranks agree on.

At a position with logits x and target t the cross-entropy is

    log(sum over k of exp(x[k] - m)) + m - x[t]

It does not depend on m. With the largest of all logits as m, no exponential overflows. The gradient with respect to
x[k] is the softmax exp(x[k] - m) / sum over j of exp(x[j] - m), minus 1 where k is the target.

The check runs this on 1, 2, 3 and 4 virtual ranks, where it also counts bytes and calls, and then under mpirun.

Check it with `mpcourse check e11_vocabulary_loss`. Stuck? `mpcourse hint e11_vocabulary_loss`.
"""

from mpcourse import check_this_file

if __name__ == "__main__":  # up here, so that all code below runs under the checker's watch
    check_this_file(__file__)

import torch
from mpi4py import MPI


def loss_and_gradient(comm, logits, targets):
    """Return the mean cross-entropy over n positions, and its gradient with respect to this rank's logits.

    comm: an mpi4py communicator, perhaps of one rank. All its ranks call this function.
    logits: (n, own), float64 or float32, perhaps not contiguous: what this rank has of the logits of n positions, n at
    least 1. The ranks' parts of the vocabulary follow each other in order of rank. Each rank has at least one token,
    but the number of tokens, own, may differ between ranks: learn where this rank's part begins. A logit may be as
    large as 1000 or as small as -1000. The logits are not changed.
    targets: int64 (n,), the same on all ranks: tokens of the whole vocabulary, counted from 0.
    Returns (loss, gradient). loss: a float, the same on all ranks. gradient: (n, own), of the logits' dtype. Compute in
    float64, whatever that dtype is: the check compares the loss to 10 digits.
    To each other rank a rank sends at most 4 numbers of float64 a position, and 256 bytes more, but never its logits.
    It makes at most 8 collective calls, however large n is. Send arrays by methods that do not pickle.
    """
    # solution: the loss and the gradient, by a few numbers a position
    x = logits.double()
    n, own = x.shape
    begin = sum(comm.allgather(own)[: comm.rank])
    largest = x.amax(1)
    comm.Allreduce(MPI.IN_PLACE, largest.numpy(), op=MPI.MAX)
    shifted = x - largest[:, None]
    exponentials = shifted.exp()
    here = (begin <= targets) & (targets < begin + own)  # the positions whose target this rank has
    rows, columns = torch.arange(n)[here], targets[here] - begin
    sums = torch.zeros(2, n, dtype=torch.float64)
    sums[0] = exponentials.sum(1)
    sums[1, rows] = shifted[rows, columns]
    comm.Allreduce(MPI.IN_PLACE, sums.numpy(), op=MPI.SUM)
    total, of_target = sums
    gradient = exponentials / total[:, None]
    gradient[rows, columns] -= 1
    return (total.log() - of_target).mean().item(), (gradient / n).to(logits.dtype)
    # end of solution
