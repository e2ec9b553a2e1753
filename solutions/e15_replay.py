"""Exercise e15: find the rank that computes wrongly.

Now and then a processor or a memory flips a bit, and reports no error. In data parallelism there are two ways to
notice. The replicas of a parameter must have the same bits on all ranks. And a gradient that is computed twice from the
same batch must have the same bits both times, also if another rank computes it.

The check runs this on 1 to 9 virtual ranks, flips bits, and counts the bytes that ranks send to each other. Then it
does the same under mpirun.

Check it with `mpcourse check e15_replay`. Stuck? `mpcourse hint e15_replay`.
"""

import zlib
from collections import Counter

import torch

from mpcourse import check_this_file

if __name__ == "__main__":  # up here, so that all code below runs under the checker's watch
    check_this_file(__file__)


def differing_ranks(comm, tensors):
    """Return the ranks whose tensors differ from those of most ranks, as a list in ascending order.

    All ranks call this.

    comm: an mpi4py communicator.
    tensors: list of this rank's tensors on the CPU, contiguous, of any shape and dtype. Some are parameters, and some
    are parts of larger buffers. All ranks have equally many, in the same order, with the same shapes and dtypes. The
    list may be empty. Do not change it or the tensors.
    Returns the same list of ints on all ranks. It is empty if all ranks have the same bits. If no more than half of
    the ranks have the same bits, it is not known who is right: then the list has all ranks.

    Tensors differ if a single bit of them differs, also if the numbers compare as equal, as 0.0 and -0.0 do. NaNs
    with the same bits do not differ. Gigabytes of parameters must not travel: a rank may send at most 1000 bytes to
    each other rank, however many tensors there are.
    """
    # solution: a checksum of the bits of each rank, compared on all ranks
    checksum = 0
    for x in tensors:
        checksum = zlib.crc32(x.detach().reshape(-1).view(torch.uint8).numpy(), checksum)
    every = comm.allgather(checksum)
    usual, count = Counter(every).most_common(1)[0]
    return [rank for rank, own in enumerate(every) if own != usual or 2 * count <= comm.size]
    # end of solution


def suspects(comm, own, gradients_of):
    """Return which ranks may have computed wrongly, as a list in ascending order. All ranks call this.

    comm: an mpi4py communicator.
    own: list of this rank's gradients on the CPU, float32 or float64, contiguous: what it computed from its own
    batch, before gradients are averaged. Do not change them.
    gradients_of: gradients_of(r) computes the gradients of rank r's batch on this rank, as a list of tensors with the
    shapes and dtypes of `own`. All ranks that compute correctly get the same bits. It takes as long as a step, so
    each rank calls it once.
    Returns the same list of ints on all ranks. It is empty if nothing is wrong.

    Rank r computes the gradients of rank r + 1 again, and the last rank those of rank 0. These two ranks are a pair.
    If a single bit of their two results differs, one of the two ranks has computed wrongly. At most one rank does so,
    in one of its two computations or in both.

    - On three ranks or more, a rank that is in two pairs that differ is the only suspect. If only one pair differs,
      both of its ranks are suspects.
    - On two ranks, both pairs have the same two ranks. If one pair differs, or both do, both ranks are suspects.
    - A rank that is alone computes its own gradients again. If the results differ, it suspects itself.

    A rank may send at most 1000 bytes to each other rank, however many gradients there are.
    """

    # solution: compare checksums of both results, and count in how many pairs each rank is
    def checksum(tensors):
        every = 0
        for x in tensors:
            every = zlib.crc32(x.detach().reshape(-1).view(torch.uint8).numpy(), every)
        return every

    firsts = comm.allgather(checksum(own))
    again = comm.allgather(checksum(gradients_of((comm.rank + 1) % comm.size)))
    pairs = [{rank, (rank + 1) % comm.size} for rank in range(comm.size)]
    wrong = [pair for rank, pair in enumerate(pairs) if again[rank] != firsts[(rank + 1) % comm.size]]
    times = Counter(rank for pair in wrong for rank in pair)
    return sorted(rank for rank, count in times.items() if count == max(times.values()))
    # end of solution
