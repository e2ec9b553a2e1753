"""Exercise e12: the gradient of the mean loss over all tokens, in micro-batches and over ranks.

Sequences have different lengths. In a batch they are padded to one length, and padding has no loss. The loss of the
batch is the mean over all its tokens. Here the batch is spread over ranks, and each rank has its share in micro-batches
with different numbers of tokens. The mean of the micro-batches' means is a different loss, in which each token of a
short micro-batch counts more.

The check runs this on 1, 2, 3 and 4 virtual ranks, and then under mpirun, and looks at gradients and at the loss.

Check it with `mpcourse check e12_tokens`. Stuck? `mpcourse hint e12_tokens`.
"""

from mpcourse import check_this_file

if __name__ == "__main__":  # up here, so that all code below runs under the checker's watch
    check_this_file(__file__)

import torch
import torch.nn.functional as F
from mpi4py import MPI

IGNORED = -100  # the target of padding: F.cross_entropy leaves it out


def gradients_of_token_mean(comm, model, microbatches):
    """Set each p.grad to the gradient of the mean loss over all tokens of all ranks, and return this mean loss.

    comm: an mpi4py communicator. All its ranks call this function; it may have one rank only.
    model: a torch.nn.Module, the same on all ranks. Every parameter requires a gradient, and its .grad is None. Layers
    may share a parameter. The model stays in its mode (train or eval).
    microbatches: this rank's list of (x, target). x has n places, model(x) has the shape (n, classes), and target has
    the shape (n,) and dtype int64: the class of the token in each place, or IGNORED where the place is padding. Logits
    of one place may depend on the other places of x. The loss of a token is the cross-entropy of its logits and its
    class (F.cross_entropy).
    A rank may have more micro-batches than another, or none. A micro-batch may be all padding. All ranks together have
    at least one token.
    Each rank runs its own micro-batches one after the other, each forward and then backward, so that memory holds the
    activations of one micro-batch only.
    Returns a float, the same on all ranks. Afterwards every parameter has a gradient, the same on all ranks, even on a
    rank without micro-batches.
    """
    # solution: count the tokens of all ranks first, sum losses in place of means, and sum gradients over ranks
    tokens = comm.allreduce(sum(int((target != IGNORED).sum()) for _, target in microbatches))
    total = 0.0
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    for x, target in microbatches:
        loss = F.cross_entropy(model(x), target, ignore_index=IGNORED, reduction="sum") / tokens
        loss.backward()
        total += loss.item()
    for p in model.parameters():
        comm.Allreduce(MPI.IN_PLACE, p.grad.numpy())
    return comm.allreduce(total)
    # end of solution
