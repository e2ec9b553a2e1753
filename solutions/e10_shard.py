"""Exercise e10: which elements are whose?

ZeRO shares out what the optimizer holds: each rank updates some elements of the parameters, and has the state of these
alone. All trained parameters stand side by side in one flat buffer, which is padded and cut into equally long chunks.
Equal lengths are what MPI's collective calls are fast with, so a chunk begins and ends anywhere, also within a
parameter.

One process is enough here: the function only computes who owns what.

Check it with `mpcourse check e10_shard`. Stuck? `mpcourse hint e10_shard`.
"""

from mpcourse import check_this_file

if __name__ == "__main__":  # up here, so that all code below runs under the checker's watch
    check_this_file(__file__)


def shards(parameters, ranks):
    """Return which elements of which parameters each rank owns: a list of `ranks` lists of tuples (i, begin, end).

    parameters: a list of torch tensors, of any shapes, also () and with no element at all. A frozen one, whose
    requires_grad is False, is not in the buffer. One that is in the list twice (two layers that share a weight) is in
    the buffer once, at its first place; two different parameters may have equal values. There may be none to train.
    ranks: an int, 1 or more; also more than there are elements.
    The flat buffer holds the elements of the parameters, each flattened, in the order of the list. It is padded at its
    end to the next multiple of `ranks`, and cut into `ranks` chunks of one length. Rank r owns the r-th.
    (i, begin, end): of parameters[i], flattened, the rank owns the elements from begin to end, end not included. All
    three are ints, of Python or numpy; i counts all that is in `parameters`, frozen ones too. A rank has one tuple for
    each parameter that it owns a part of, in the order of the buffer. Padding belongs to no rank, no piece is empty,
    and a rank that owns nothing has an empty list.
    The parameters are not changed.
    """
    # solution: lay out each parameter once, round the chunk's length up, and cut each parameter where chunks end
    places, length = [], 0  # of each trained parameter its number, and where it begins and ends in the buffer
    seen = set()
    for i, p in enumerate(parameters):
        if p.requires_grad and id(p) not in seen:
            seen.add(id(p))
            places.append((i, length, length + p.numel()))
            length += p.numel()
    chunk = -(-length // ranks)
    by_rank = []
    for rank in range(ranks):
        own = []
        for i, first, last in places:
            begin, end = max(first, rank * chunk), min(last, (rank + 1) * chunk)
            if begin < end:
                own.append((i, begin - first, end - first))
        by_rank.append(own)
    return by_rank
    # end of solution
