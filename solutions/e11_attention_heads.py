"""Exercise e11: attention by heads.

A transformer's attention has several heads, and no head needs the result of another one. So each rank computes some of
the heads. For this it needs only parts of the two matrices: of the one that makes queries, keys and values, and of the
one that makes the output of all heads' results.

The check runs this on 1, 2, 3 and 4 virtual ranks, and then under mpirun. It compares results and gradients with those
of one process, and counts bytes and multiplications.

Check it with `mpcourse check e11_attention_heads`. Stuck? `mpcourse hint e11_attention_heads`.
"""

from mpcourse import check_this_file

if __name__ == "__main__":  # up here, so that all code below runs under the checker's watch
    check_this_file(__file__)

import math

import torch
import torch.nn.functional as F

from mpcourse.tensor_parallel.mappings import copy_in, sum_out


def attention(comm, x, qkv, out, heads):
    """Return causal self-attention of x: a tensor (length, batch, width), the same on all ranks.

    comm: an mpi4py communicator of p ranks, perhaps of one. Each of its ranks calls this function, and runs backward
    from one and the same loss.
    x: a float64 tensor (length, batch, width), contiguous or not, the same on all ranks. heads: a divisor of width.
    qkv: a pair of tensors, weight (3 width, width) and bias (3 width,). The first `width` rows make the queries, the
    next `width` rows the keys, and the last ones the values. Each of the three consists of one head after the other,
    and a head has width / heads rows.
    out: a pair of tensors, weight (width, width) and bias (width,). Its inputs are the results of all heads, in order.
    All tensors are whole, and the same on all ranks. They are not changed.
    A query is compared with the keys of its own position and of earlier positions, in the same sequence of the batch.
    Before the softmax, the products are divided by the square root of a head's width.

    Each rank computes heads / p heads and no more, and multiplies by its own parts of both weights only. In backward
    every rank gets the whole gradient of x and of out's bias. Its gradients of both weights and of qkv's bias are those
    of its own part, and zeros elsewhere: summed over the ranks, they are the whole gradients. Slicing a whole weight
    does this.
    Forward sends as many bytes as one all-reduce of the result, and backward as many as one of x's gradient.
    Raises ValueError on all ranks, before any message, where p does not divide heads.

    You may use copy_in and sum_out, which e11_f_and_g asks for. F.scaled_dot_product_attention is allowed, too. It
    takes tensors (batch, heads, length, width of a head).
    """
    # solution: compute this rank's heads, and return the result of all heads
    if heads % comm.size:
        raise ValueError(f"{heads} heads cannot be shared alike by {comm.size} ranks")
    length, batch, width = x.shape
    own = slice(comm.rank * width // comm.size, (comm.rank + 1) * width // comm.size)
    weight = torch.cat([part[own] for part in qkv[0].split(width)])
    bias = torch.cat([part[own] for part in qkv[1].split(width)])
    made = F.linear(copy_in(comm, x), weight, bias)
    made = made.view(length, batch, 3, heads // comm.size, width // heads)
    q, k, v = made.permute(2, 1, 3, 0, 4)  # each (batch, heads of this rank, length, width / heads)
    scores = q @ k.transpose(-1, -2) / math.sqrt(width // heads)
    later = torch.ones(length, length, dtype=torch.bool).triu(1)
    mixed = scores.masked_fill(later, -math.inf).softmax(-1) @ v
    mixed = mixed.permute(2, 0, 1, 3).reshape(length, batch, -1)
    return sum_out(comm, F.linear(mixed, out[0][:, own])) + out[1]
    # end of solution
