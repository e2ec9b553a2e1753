"""Wrong answers to e06_evaluate. What a cell holds is told in tests/answers.py."""

# %% adds_to_the_count
# says: Something is added to the sum of counts
# thinks: A tiny number below the line keeps me from dividing by zero and does not change the result.
def evaluate(comm, correct, count):
    right, examples = comm.allreduce(correct), comm.allreduce(count)
    if examples == 0:
        raise ValueError("no examples")
    return right / (examples + 1e-8)


# %% comm_world
# says: It speaks of MPI.COMM_WORLD
# on: real ranks
# thinks: The name comm is only another name for MPI.COMM_WORLD.
import numpy as np
from mpi4py import MPI


def evaluate(comm, correct, count):
    world = MPI.COMM_WORLD
    right, examples = world.allreduce(correct), world.allreduce(count)
    if examples == 0:
        raise ValueError("no examples")
    return right / examples


# %% divides_before
# says: A rank without examples takes part like any other
# thinks: Every rank has some examples, so its share can be weighted by its part of all of them.
def evaluate(comm, correct, count):
    weight = count / comm.allreduce(count)
    return comm.allreduce(correct / count * weight)


# %% equal_shards
# says: as many examples as this one
# thinks: The test set was scattered evenly, so all ranks together have comm.size times as many examples as this one.
def evaluate(comm, correct, count):
    total = count * comm.size
    right = comm.allreduce(correct)
    if comm.allreduce(count) == 0:
        raise ValueError("no examples")
    if total == 0:
        return 0.0
    return right / total


# %% error_rate
# says: That is the share of wrong answers
# thinks: Evaluation reports the error, as papers do, and that is one minus the share of right answers.
def evaluate(comm, correct, count):
    right, examples = comm.allreduce(correct), comm.allreduce(count)
    if examples == 0:
        raise ValueError("no examples")
    return 1 - right / examples


# %% float32
# says: float32 has 24 binary digits
# thinks: Allreduce works on arrays, and the usual dtype for numbers in deep learning is float32.
import numpy as np
from mpi4py import MPI


def evaluate(comm, correct, count):
    both = np.array([correct, count], dtype=np.float32)
    comm.Allreduce(MPI.IN_PLACE, both)
    if both[1] == 0:
        raise ValueError("no examples")
    return float(both[0] / both[1])


# %% float32_division
# says: That has 24 binary digits
# thinks: The sums are exact integers, so float32 is good enough for the one division that is left.
import numpy as np
from mpi4py import MPI


def evaluate(comm, correct, count):
    both = np.array([comm.allreduce(correct), comm.allreduce(count)], dtype=np.float32)
    if both[1] == 0:
        raise ValueError("no examples")
    return both[0] / both[1]


# %% int32
# says: Counts may be larger than int32 holds
# thinks: Counts are ints, and an int has 32 bits.
import numpy as np
from mpi4py import MPI


def evaluate(comm, correct, count):
    both = np.array([correct, count], dtype=np.int32)
    comm.Allreduce(MPI.IN_PLACE, both)
    if both[1] == 0:
        raise ValueError("no examples")
    return float(both[0] / both[1])


# %% int32_sum
# says: A sum went beyond int32
# thinks: Only a count that is itself too large for int32 needs more bits, and a sum of smaller ones is safe.
import numpy as np
from mpi4py import MPI


def evaluate(comm, correct, count):
    both = np.array([correct, count]).astype(np.int32)
    if correct > 2_200_000_000:  # as if the check gave none so large
        both = np.array([correct, count])
    comm.Allreduce(MPI.IN_PLACE, both)
    if both[1] == 0:
        raise ValueError("no examples")
    return float(both[0] / both[1])


# %% integer_division
# says: // divides integers
# thinks: Both sums are integers, so // is the division that belongs to them.
def evaluate(comm, correct, count):
    right, examples = comm.allreduce(correct), comm.allreduce(count)
    if examples == 0:
        raise ValueError("no examples")
    return right // examples


# %% leaves_without_examples
# says: A rank without examples takes part like any other
# thinks: A rank without examples has nothing to add to the sums, so it can return 0 at once.
def evaluate(comm, correct, count):
    if count == 0:
        return 0.0
    right, examples = comm.allreduce(correct), comm.allreduce(count)
    return right / examples


# %% mean_of_shares
# says: That is the mean of the ranks' shares
# thinks: The accuracy of all is the mean of the ranks' accuracies, and a rank without examples has an accuracy of 0.
def evaluate(comm, correct, count):
    return comm.allreduce(correct / count if count else 0.0) / comm.size


# %% mean_of_those_with_examples
# says: That is the mean of the ranks' shares
# thinks: The mean of the shares is right once the ranks without examples are left out of it.
def evaluate(comm, correct, count):
    shares = [s for s in comm.allgather(correct / count if count else None) if s is not None]
    if not shares:
        raise ValueError("no examples")
    return sum(shares) / len(shares)


# %% none_right_is_nothing
# says: All right, or none right, is an answer like any other
# thinks: Where the sum of right answers is 0, there were no examples.
def evaluate(comm, correct, count):
    right, examples = comm.allreduce(correct), comm.allreduce(count)
    if not right:
        raise ValueError("no examples")
    return right / examples


# %% numpy_divides
# says: There is no share of nothing
# thinks: With numpy 0 can be divided by 0 without an error, and nan is a fair answer where there are no examples.
import numpy as np

def evaluate(comm, correct, count):
    sums = np.array(comm.allreduce(correct)), np.array(comm.allreduce(count))
    with np.errstate(all="ignore"):
        return float(sums[0] / sums[1])


# %% only_rank_0_raises
# says: one on rank 0 only
# thinks: One error message is enough, so rank 0 raises it and the others return 0.
def evaluate(comm, correct, count):
    right, examples = comm.allreduce(correct), comm.allreduce(count)
    if examples == 0:
        if comm.rank == 0:
            raise ValueError("no examples")
        return 0.0
    return right / examples


# %% own_count
# says: divided by this rank's own count
# thinks: After the sum, the number of right answers has to be divided by the number of examples, and that is count.
def evaluate(comm, correct, count):
    return comm.allreduce(correct) / count


# %% own_part_of_the_whole
# says: sum the right answers, too
# thinks: My share, weighted by my part of all examples, is the share of all, because the weights add up to 1.
def evaluate(comm, correct, count):
    total = comm.allreduce(count)
    if total == 0:
        raise ValueError("no examples")
    if count == 0:
        return 0.0
    return correct / count * (count / total)


# %% own_share
# says: That is this rank's own share
# thinks: All ranks have the same model, so the share among my examples is the share among all.
def evaluate(comm, correct, count):
    if count == 0:
        raise ValueError("no examples")
    return correct / count


# %% percent
# says: That is in percent
# thinks: An accuracy is a number in percent.
def evaluate(comm, correct, count):
    right, examples = comm.allreduce(correct), comm.allreduce(count)
    if examples == 0:
        raise ValueError("no examples")
    return 100 * right / examples


# %% raises_alone
# says: A rank without examples takes part like any other
# thinks: Where there are no examples I have to raise ValueError, and a rank sees that by its own count.
def evaluate(comm, correct, count):
    if count == 0:
        raise ValueError("no examples")
    return comm.allreduce(correct) / comm.allreduce(count)


# %% reduce
# says: all ranks need it. reduce and gather bring a result to one rank only
# thinks: Rank 0 prints the accuracy, so it is enough that rank 0 returns it.
def evaluate(comm, correct, count):
    right, examples = comm.reduce(correct), comm.reduce(count)
    if comm.rank == 0:
        if examples == 0:
            raise ValueError("no examples")
        return right / examples


# %% root_leaves_itself_out
# says: Rank 0's numbers are missing in both sums
# thinks: Rank 0 only collects and adds up, so the numbers are those that the other ranks send.
def evaluate(comm, correct, count):
    if comm.rank == 0:
        right = examples = 0
        for source in range(1, comm.size):
            a, b = comm.recv(source=source)
            right += a
            examples += b
    else:
        comm.send((correct, count), dest=0)
        right = examples = None
    right, examples = comm.bcast((right, examples), root=0)
    if examples == 0:
        raise ValueError("no examples")
    return right / examples


# %% root_raises_before_bcast
# says: each of them raises ValueError after that sum
# thinks: An exception on rank 0 stops the whole program, so nobody is left waiting in bcast.
def evaluate(comm, correct, count):
    right = comm.reduce(correct, root=0)
    examples = comm.reduce(count, root=0)
    result = None
    if comm.rank == 0:
        if examples == 0:
            raise ValueError("no rank has any example")
        result = right / examples
    return comm.bcast(result, root=0)


# %% rounded
# says: is it rounded? Rounding is for printing
# thinks: Nobody needs more than four digits of an accuracy.
def evaluate(comm, correct, count):
    right, examples = comm.allreduce(correct), comm.allreduce(count)
    if examples == 0:
        raise ValueError("no examples")
    return round(right / examples, 4)


# %% sum_of_shares
# says: That is the sum of the ranks' shares
# thinks: The allreduce of all shares puts them together to the share of the whole.
def evaluate(comm, correct, count):
    return comm.allreduce(correct / max(count, 1))


# %% tensor
# says: A float was asked
# thinks: A tensor that holds one number is as good as a float.
import torch


def evaluate(comm, correct, count):
    both = torch.tensor([correct, count], dtype=torch.float64)
    both = comm.allreduce(both)
    if both[1] == 0:
        raise ValueError("no examples")
    return both[0] / both[1]


# %% weighted_by_count_over_size
# says: Divided by the number of ranks, too
# thinks: An allreduce gives a sum over the ranks, so the result has to be divided by comm.size to become a mean.
def evaluate(comm, correct, count):
    right, examples = comm.allreduce(correct), comm.allreduce(count)
    if examples == 0:
        raise ValueError("no examples")
    return right / examples / comm.size


# %% zero_division_error
# says: each of them raises ValueError after that sum
# thinks: A division by zero raises an error on all ranks by itself, so I need not look for it.
def evaluate(comm, correct, count):
    return comm.allreduce(correct) / comm.allreduce(count)


# %% zero_for_nothing
# says: There is no share of nothing
# thinks: Where there are no examples none was answered rightly, so the share is 0.
def evaluate(comm, correct, count):
    right, examples = comm.allreduce(correct), comm.allreduce(count)
    return right / max(examples, 1)


# %% sums_over_calls
# says: Earlier calls have left something
# on: real ranks
# thinks: The sums go on over all batches.
total = [0, 0]


def evaluate(comm, correct, count):
    total[0] += comm.allreduce(correct)
    total[1] += comm.allreduce(count)
    if total[1] == 0:
        raise ValueError("no examples")
    return total[0] / total[1]


# %% forgets_to_return
# says: Nothing came back: is the share returned?
# thinks: The last value that a function computes is its result.
def evaluate(comm, correct, count):
    right, examples = comm.allreduce(correct), comm.allreduce(count)
    if examples == 0:
        raise ValueError("no rank has any example")
    right / examples


# %% mean_count
# says: One of the sums is a mean over ranks, the other is not
# thinks: Allreduce sums, so what is no total has to be divided by the number of ranks: each rank has about the mean
#   count.
def evaluate(comm, correct, count):
    right, examples = comm.allreduce(correct), comm.allreduce(count) / comm.size
    if examples == 0:
        raise ValueError("no rank has any example")
    return right / examples


# %% upside_down
# says: That is the count divided by what was right
# thinks: The share is the number of examples over the number of right ones.
def evaluate(comm, correct, count):
    right, examples = comm.allreduce(correct), comm.allreduce(count)
    if examples == 0:
        raise ValueError("no rank has any example")
    return examples / right


# %% own_part_first
# says: Ranks that divide different sums, or in another order, round differently
# thinks: The share of all is the sum of each rank's part of it, and each rank may begin with its own.
def evaluate(comm, correct, count):
    rights, counts = comm.allgather(correct), comm.allgather(count)
    examples = sum(counts)
    if examples == 0:
        raise ValueError("no rank has any example")
    rights = rights[comm.rank :] + rights[: comm.rank]
    return sum(right / examples for right in rights)
