"""Exercise e16: the replicas that drift apart.

The program below trains a small network in half precision. In one process, the loss falls until the end. Three ranks
share the same batches. Their loss is close to that of the one process for almost 40 updates. From then on it is higher,
and goes up and down. At the end of 200 updates it is almost eight times as high. There is no error and no warning, and
no loss is infinite or NaN. The ranks should always have the same weights, but a checksum shows that they do not. Runs
with other seeds, or with four ranks, also end with a higher loss.

Evidence, in evidence/e16_drift/: `loss.csv`, the loss of each update in one process (expected) and on three ranks (this
run); `one.log` and `ranks.log`, what these two runs printed, sorted by update and rank. In every fifth update, each
rank prints the number of its batch, the loss, the loss scale, and the checksum of its weights. `mpirun -np 3 python
exercises/evidence/e16_drift/run.py` shows it again; with `-np 1` it is the one process.

First name the cause in `diagnose`. Then mend the program.

Check it with `mpcourse check e16_drift`. Stuck? `mpcourse hint e16_drift`.
"""

from mpcourse import check_this_file

if __name__ == "__main__":  # up here, so that all code below runs under the checker's watch
    check_this_file(__file__)

import zlib

import torch
import torch.nn.functional as F
from mpi4py import MPI
from torch import nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters


def diagnose():
    """Return the name of the cause, one of these.

    "examples": the examples of a rank are broken, and hold infinite numbers or NaN.
    "initial weights": the ranks begin with different weights.
    "learning rate": the learning rate is too high for three ranks, so that each update goes too far.
    "overflow": the loss scale grows too far, and infinite numbers come into the weights of a rank.
    "rounding": each rank adds up the gradients in another order, and the differences grow.
    "skipping": a rank skips a step that other ranks make.
    """
    raise NotImplementedError("e16_drift: name the cause")


class Net(nn.Module):
    """Two layers that compute in half precision. Their parameters are float64."""

    def __init__(self, inputs, width, classes):
        super().__init__()
        self.hidden, self.out = nn.Linear(inputs, width).double(), nn.Linear(width, classes).double()

    def forward(self, x):
        h = torch.tanh(F.linear(x.half(), self.hidden.weight.half(), self.hidden.bias.half()))
        return F.linear(h, self.out.weight.half(), self.out.bias.half())


class Scaler:
    """The loss scale: the loss is multiplied by it, so that small gradients do not become 0 in half precision.

    With a scale that is too large, large gradients become infinite. So it is halved after a step that was skipped. It
    is doubled after `patience` updates without a skipped step between them.
    """

    def __init__(self, scale, patience):
        self.scale, self.patience, self.count = scale, patience, 0

    def skipped(self):
        self.scale, self.count = self.scale / 2, 0

    def updated(self):
        self.count += 1
        if self.count == self.patience:
            self.scale, self.count = self.scale * 2, 0


def train(comm, net, read, updates, rate, scale, patience):
    """Train the network on all ranks; return a list with (batch, scale, loss) of each update, on all ranks.

    comm: an mpi4py communicator.
    net: a Net, with the same weights on all ranks. `train` changes them.
    read: read(n) returns x and y of batch n on any rank, for n = 0, 1, 2 and so on without end. x is float64 of shape
    (examples, inputs), and y is int64 of shape (examples,). A batch has 1 example or more.
    updates: the number of updates after which the training ends, 1 or more.
    rate: the learning rate.
    scale: the first loss scale, a float that is a power of 2.
    patience: after how many updates the scale is doubled, 1 or more; see Scaler.

    Step n is about batch n, in the order of n, and each batch has one step. Of its examples, rank r has r, r + size,
    r + 2 size and so on, perhaps none. Each rank computes its part of the gradient of scale times loss in half
    precision. The loss of a step is the mean of the cross-entropy over all examples of its batch, and the gradient is
    the sum of the parts of all ranks, as float64. If one of its numbers is infinite or NaN, the step is skipped: it
    leaves the weights as they are, and the scale becomes half as large. Every other step is an update: it subtracts
    from the weights rate times the gradient of the loss.

    Of an update, the list has the number of its batch, an int, and two floats: the scale that the loss was multiplied
    by, and the loss before the update. Numbers and scales, and the bits of the weights, are the same on all ranks. All
    results are those of one process that computes the parts of all ranks itself.

    A rank makes at most two collective calls in a step. It sends in a step no more than an Allreduce does of all
    parameters and the loss as float64, and 256 bytes besides.
    """
    params, scaler = list(net.parameters()), Scaler(scale, patience)
    n, history = 0, []
    while len(history) < updates:
        x, y = read(n)
        own = slice(comm.rank, None, comm.size)
        loss = F.cross_entropy(net(x[own]).double(), y[own], reduction="sum") / len(y)
        gradients = torch.autograd.grad(scaler.scale * loss, params)
        sums = torch.cat([loss.detach().reshape(1), *(g.flatten() for g in gradients)])
        n += 1
        if not torch.isfinite(sums).all():
            scaler.skipped()
            continue
        comm.Allreduce(MPI.IN_PLACE, sums.numpy())
        with torch.no_grad():
            weights = parameters_to_vector(params) - rate * sums[1:] / scaler.scale
            vector_to_parameters(weights, params)
        history.append((n - 1, scaler.scale, sums[0].item()))
        if len(history) % 5 == 0:
            report(comm, len(history), *history[-1], weights)
        scaler.updated()
    return history


def report(comm, update, batch, scale, loss, weights):
    """Print a line about an update. The checksum of weights that differ in any bit is another one."""
    checksum = f"{zlib.crc32(weights.numpy()):08x}"
    text = f"batch {batch}, loss {loss:.4f}, scale {scale:.0f}, weights {checksum}"
    print(f"update {update}, rank {comm.rank}: {text}", flush=True)
