"""Exercise e10: which elements are whose?

In ZeRO each rank updates only some elements of the parameters, and keeps the optimizer's state of these elements only.
All trained parameters lie side by side in one flat buffer. The buffer is padded and cut into chunks of equal length,
because MPI's collective calls are fastest with such chunks. So a chunk may begin and end anywhere, also within a
parameter.

One process is enough here, because the function only computes which rank owns which elements.

Check it with `mpcourse check e10_shard`. Stuck? `mpcourse hint e10_shard`.
"""

from mpcourse import check_this_file

if __name__ == "__main__":  # up here, so that all code below runs under the checker's watch
    check_this_file(__file__)


def shards(parameters, ranks):
    """Return the elements of the parameters that each rank owns: a list of `ranks` lists of tuples (i, begin, end).

    parameters: a list of torch tensors of any shapes, also () and shapes without elements. A frozen parameter, whose
    requires_grad is False, is not in the buffer. A parameter that is in the list twice (two layers share a weight) is
    in the buffer once, at its first place. Two different parameters may have equal values. Perhaps no parameter is
    trained.
    ranks: an int, 1 or more, perhaps larger than the number of elements.
    The flat buffer holds the elements of the parameters, each flattened, in the order of the list. It is padded at its
    end to the next multiple of `ranks`, and cut into `ranks` chunks of equal length. Rank r owns chunk r.
    (i, begin, end): the rank owns parameters[i].flatten()[begin:end]. All three are ints, of Python or numpy. The
    number i counts all entries of `parameters`, also frozen ones. A rank has one tuple for each parameter that it has a
    part of, in the order of the buffer. Padding belongs to no rank, no piece is empty, and a rank that owns nothing has
    an empty list.
    The parameters are not changed.
    """
    raise NotImplementedError("e10_shard: lay out each parameter once, round the chunk's length up, and cut each parameter where chunks end")
