"""Unusual right answers to e06_evaluate. What a cell holds is told in tests/answers.py."""

# %% allgather
# thinks: All pairs on all ranks.
def evaluate(comm, correct, count):
    pairs = comm.allgather((correct, count))
    if not any(n for _, n in pairs):
        raise ValueError(f"none of {comm.size} ranks has examples")
    return sum(c for c, _ in pairs) / sum(n for _, n in pairs)


# %% float64_row
# thinks: Float64 holds every integer up to 2 ** 53; numpy's float64 is a float.
import numpy as np
from mpi4py import MPI


def evaluate(comm, correct, count):
    mine, both = np.array([correct, count], dtype="d"), np.empty(2)
    comm.Allreduce([mine, MPI.DOUBLE], [both, MPI.DOUBLE], op=MPI.SUM)
    if not both[1]:
        raise ValueError("nothing was evaluated")
    return both[0] / both[1]


# %% fractions
# thinks: Fractions, each rank's weight exact, then float.
from fractions import Fraction

def evaluate(comm, correct, count):
    pairs = comm.allgather((correct, count))
    examples = sum(n for _, n in pairs)
    if not examples:
        raise ValueError("nobody has examples")
    share = sum(Fraction(c, n) * Fraction(n, examples) for c, n in pairs if n)
    return float(share)


# %% int64_row
# thinks: One row of int64, summed in place.
import numpy as np
from mpi4py import MPI


def evaluate(comm, correct, count):
    both = np.array([correct, count], dtype=np.int64)
    comm.Allreduce(MPI.IN_PLACE, both)
    if both[1] == 0:
        raise ValueError("no examples")
    return both[0] / both[1]


# %% reduce_and_bcast
# thinks: Rank 0 divides and tells the others, also that there is nothing.
def evaluate(comm, correct, count):
    right, examples = comm.reduce(correct, root=0), comm.reduce(count, root=0)
    share = comm.bcast(right / examples if comm.rank == 0 and examples else None, root=0)
    if share is None:
        raise ValueError("no examples")
    return share


# %% own_class
# thinks: Two counts that belong together are an object of their own, which knows how it is added.
class Counts:
    def __init__(self, right, examples):
        self.right, self.examples = right, examples

    def __add__(self, other):
        assert isinstance(other, Counts)
        return Counts(self.right + other.right, self.examples + other.examples)


def evaluate(comm, correct, count):
    total = comm.allreduce(Counts(correct, count))
    assert isinstance(total, Counts)
    if not total.examples:
        raise ValueError("no examples")
    return total.right / total.examples


# %% ring
# thinks: Numbers go round the ring.
def evaluate(comm, correct, count):
    right, examples = a, b = correct, count
    for _ in range(comm.size - 1):
        a, b = comm.sendrecv((a, b), dest=(comm.rank + 1) % comm.size, source=(comm.rank - 1) % comm.size)
        right += a
        examples += b
    if examples < 1:
        raise ValueError("there is nothing to evaluate on any rank")
    return right / examples


# %% root_divides
# thinks: Rank 0 divides and tells; an error is told, too.
def evaluate(comm, correct, count):
    pairs = comm.gather((correct, count), root=0)
    answer = None
    if comm.rank == 0:
        examples = sum(pair[1] for pair in pairs)
        answer = sum(pair[0] for pair in pairs) / examples if examples else ValueError("no rank has any example")
    answer = comm.bcast(answer, root=0)
    if isinstance(answer, Exception):
        raise answer
    return answer


# %% scan_on_a_dup
# thinks: On a duplicate of the communicator, scan then bcast from the last.
def evaluate(comm, correct, count):
    mine = comm.Dup()
    right, examples = mine.scan(correct), mine.scan(count)
    right, examples = mine.bcast((right, examples), root=mine.size - 1)
    mine.Free()
    if examples == 0:
        raise ValueError("no examples")
    return right / examples


# %% torch_tensor
# thinks: Torch's int64 sums; .item() gives the float.
import torch


def evaluate(comm, correct, count):
    right, examples = comm.allreduce(torch.tensor([correct, count]))
    if examples == 0:
        raise ValueError("no examples")
    return (right.double() / examples.double()).item()


# %% weights
# thinks: Each rank's share, weighted by its part of all examples, as exact fractions.
from fractions import Fraction


def evaluate(comm, correct, count):
    examples = comm.allreduce(count)
    if examples == 0:
        raise ValueError("no examples")
    part = Fraction(correct, count) * Fraction(count, examples) if count else Fraction(0)
    return float(comm.allreduce(part))
