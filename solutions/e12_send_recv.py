"""Exercise e12: a message that autograd sees, like ChainerMN's functions.send and functions.recv.

A model's layers are on several ranks. In the forward pass an activation travels from rank to rank, and in the backward
pass its gradient travels back. Each rank's autograd knows only its own rank's part. So send and recv are operations
with a backward of their own. The backward of send receives the gradient of what was sent, and the backward of recv
sends the gradient of what was received. A rank without a loss also has to call backward(). So send returns a delegate,
the number 0, whose backward() waits for the gradient.

The check runs chains of virtual ranks forward and backward, and then chains under mpirun. It compares the gradients
with the gradients of one process.

Check it with `mpcourse check e12_send_recv`. Stuck? `mpcourse hint e12_send_recv`.
"""

from mpcourse import check_this_file

if __name__ == "__main__":  # up here, so that all code below runs under the checker's watch
    check_this_file(__file__)

import torch


class Send(torch.autograd.Function):
    """Send x to `rank` in forward, and receive the gradient of x from `rank` in backward."""

    @staticmethod
    def forward(ctx, x, comm, rank, tag):
        """Send x, and return a new tensor 0 of shape (). Keep what backward needs as attributes of ctx."""
        # solution: send x to `rank` with this tag, and return 0
        ctx.peer = comm, rank, tag
        comm.send(x.detach().numpy(), rank, tag)
        return x.new_zeros(())
        # end of solution

    @staticmethod
    def backward(ctx, gradient_of_delegate):
        """Return one value for each argument of forward: the gradient of x, and None for any other argument."""
        # solution: receive the gradient of x, which the recv of the other rank sends
        comm, rank, tag = ctx.peer
        return torch.from_numpy(comm.recv(None, rank, tag)), None, None, None
        # end of solution


class Recv(torch.autograd.Function):
    """Receive a tensor from `rank` in forward, and send its gradient to `rank` in backward."""

    @staticmethod
    def forward(ctx, anchor, comm, rank, tag):
        """Receive and return a tensor. anchor requires a gradient: without such an input, autograd skips backward."""
        # solution: receive what `rank` sends with this tag
        ctx.peer = comm, rank, tag
        return torch.from_numpy(comm.recv(None, rank, tag))
        # end of solution

    @staticmethod
    def backward(ctx, gradient):
        """Return one value for each argument of forward. It is None for the anchor, which needs no gradient."""
        # solution: send the gradient to where the tensor came from
        comm, rank, tag = ctx.peer
        comm.send(gradient.numpy(), rank, tag)
        return None, None, None, None
        # end of solution


def send(x, comm, rank, tag=0):
    """Send x to `rank`, which calls recv with the same tag. Returns a delegate.

    x: a tensor that requires a gradient, of any shape, float32 or float64, contiguous or not. It is not changed.
    comm: an mpi4py communicator. rank: the number of another rank. tag: an int.
    The delegate is a tensor of shape () with the value 0 and x's dtype, and is part of x's graph. The backward of the
    delegate, or of a sum that contains it, waits for the gradient of x, which `rank` sends back with the same tag.
    """
    return Send.apply(x, comm, rank, tag)


def recv(comm, rank, tag=0):
    """Return what `rank` sends by send(x, comm, this rank, tag): a tensor with x's shape, dtype and values.

    The result requires a gradient. Backward sends its gradient to `rank`, with the same tag. Both forward and backward
    leave messages from other ranks, or with other tags, for the calls that wait for them.
    """
    return Recv.apply(torch.zeros((), requires_grad=True), comm, rank, tag)
