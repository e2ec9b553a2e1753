"""Exercise e11: attention by heads.

A transformer's attention has several heads, and no head needs the result of another one. So each rank computes some of
the heads: it takes their rows of the matrix that makes queries, keys and values, and the columns of the output matrix
that belong to their results. What ranks get in this way are parts of the output, which are added up.

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
    """Return causal self-attention of x, (length, batch, width), the same on all ranks.

    comm: an mpi4py communicator of p ranks, perhaps of one. Each of its ranks calls this function, and runs backward
    from one and the same loss.
    x: a float64 tensor (length, batch, width), the same on all ranks. heads: a divisor of width.
    qkv: a pair of tensors, weight (3 width, width) and bias (3 width,). The first `width` rows make the queries, the
    next ones the keys, and the last ones the values, each of them head by head: a head has width / heads rows.
    out: a pair of tensors, weight (width, width) and bias (width,). Its inputs are the results of all heads, in order.
    All tensors are whole, and the same on all ranks. They are not changed.
    A query is compared with the keys of its own position and of earlier ones, in the same sequence of the batch. The
    products are divided by the square root of a head's width before the softmax.
    Each rank computes heads / p heads and no more, and multiplies by its own parts of both weights. In backward every
    rank gets the whole gradient of x and of out's bias. The gradients of both weights and of qkv's bias are those of
    this rank's part, and zeros elsewhere, so that the sum over the ranks is the whole gradient.
    Forward sends as many bytes as one all-reduce of the result, and backward as many as one all-reduce of x's gradient.
    Raises ValueError on all ranks, before any message, where p does not divide heads.

    You may use copy_in and sum_out of mpcourse, which you know from e11_f_and_g: copy_in(comm, x) returns x, and its
    backward adds up the gradients of all ranks; sum_out(comm, x) returns the sum over all ranks, and its backward
    passes the gradient on. F.scaled_dot_product_attention is allowed, too; it takes (batch, heads, length, head).
    """
    raise NotImplementedError("e11_attention_heads: cut qkv by heads and out by its columns; attend; sum over the ranks, then add the bias")
