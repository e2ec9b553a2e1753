"""Exercise e13: attention, one block of keys at a time.

Attention compares a query q with the keys k_j that it sees. Each key has a value v_j:

    s_j    = q . k_j / sqrt(d)                              the score of key j; q and k_j have d numbers
    lse    = log(sum over j of exp(s_j))                    the logarithm of the sum of the exponentials
    result = sum over j of exp(s_j) v_j / sum over j of exp(s_j)

A long sequence has too many keys for one device, and the scores of all queries for all keys need more memory still. So
the keys and their values are cut into blocks. `block` sees the keys of one block alone. `merge` sees results of blocks,
but no keys. `block_gradients`, for the backward pass, sees the keys of one block again.

One process is enough here. The check calls each function alone. Then it cuts a sequence into uneven blocks, and
compares the result and the gradients with those of attention to all keys at once.

Check it with `mpcourse check e13_online_softmax`. Stuck? `mpcourse hint e13_online_softmax`.
"""

from mpcourse import check_this_file

if __name__ == "__main__":  # up here, so that all code below runs under the checker's watch
    check_this_file(__file__)

import torch


def block(q, k, v, visible):
    """Return (out, lse): the results of n queries for the m keys of one block, (n, c), and their lse, (n,).

    q: (n, d). k: (m, d). v: (m, c). n, m, d and c are 1 or more.
    visible: bool (n, m). visible[i, j] says whether query i sees key j. The formulas hold for the keys that a query
    sees. If it sees no key of this block, its row of out is 0 and its lse is minus infinity.
    A score may be as large as 5000 and as small as -5000, whether the query sees the key or not.

    All tensors of this file but `visible` are float64, also those that are returned. All numbers are finite, except an
    lse of minus infinity. No tensor requires a gradient. Arguments are not changed, and no later call changes what was
    returned.
    """
    raise NotImplementedError("e13_online_softmax: the results and the lse of the keys of one block")


def merge(out, lse, other, other_lse):
    """Return (out, lse): the results of n queries for the keys of two sets together, (n, c), and their lse, (n,).

    out, lse: (n, c) and (n,), for one set of keys, as `block` or `merge` returns them.
    other, other_lse: (n, c) and (n,), for the same queries and another set of keys. No key is in both sets.
    A query may see no key of one set, or of both. If it sees no key at all, its row of out is 0 and its lse is minus
    infinity. Sets may be merged in any order and grouping, and the results are the same, but for rounding.
    """
    raise NotImplementedError("e13_online_softmax: the results and the lse of both sets of keys together")


def block_gradients(gradient, q, k, v, visible, out, lse):
    """Return (of_q, of_k, of_v): one block's part of the gradient of q, (n, d), and the gradients of k and v.

    gradient: (n, c), the gradient of the loss with respect to the results for the keys of all blocks.
    q, k, v, visible: as in `block`. The keys and values are those of one block.
    out, lse: (n, c) and (n,), the results for the keys of all blocks, and their lse.
    of_k: (m, d). of_v: (m, c). The sum of of_q over all blocks is the gradient of q.
    A query may see no key of this block, or no key of any block. Then it contributes 0 to these gradients, whatever its
    row of `gradient` is.
    """
    raise NotImplementedError("e13_online_softmax: the part of the gradient of q, and the gradients of k and v")
