"""Exercise e10: the gradient of the mean loss over all tokens, in micro-batches and over ranks.

Sequences have different lengths, so a batch of them is padded, and padding has no loss. The loss of a batch is the mean
over its tokens. Where the batch is spread over ranks, and each rank's share over micro-batches, no part has as many
tokens as another: the mean of the parts' means is another loss, in which the tokens of a short micro-batch count more.

The check runs this on 1, 2, 3 and 4 virtual ranks, and then under mpirun, and looks at gradients and at the loss.

Check it with `mpcourse check e10_tokens`. Stuck? `mpcourse hint e10_tokens`.
"""

from mpcourse import check_this_file

if __name__ == "__main__":  # up here, so that whatever stands below runs under the checker's watch
    check_this_file(__file__)

import torch
import torch.nn.functional as F
from mpi4py import MPI

IGNORED = -100  # the target of padding: F.cross_entropy leaves it out


def gradients_of_token_mean(comm, model, microbatches):
    """Set every p.grad to the gradient of the mean loss over all tokens of all ranks' micro-batches; return that mean.

    comm: an mpi4py communicator. Every rank calls this function, also the only rank of one.
    model: a torch.nn.Module, the same on all ranks, whose parameters have .grad None. model(x) returns logits.
    microbatches: a list of (x, target): model(x) has the shape (tokens, kinds), target (tokens,), int64, IGNORED where
    there is no token to predict. Ranks may have different numbers of micro-batches, a micro-batch may have no token
    that counts, and so may all of a rank's. All ranks together have one such token at least.
    A micro-batch is run alone, forward and backward: with another one it would not fit into memory.
    Returns a float, the same on all ranks. Every parameter has the same gradient on all ranks.
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
