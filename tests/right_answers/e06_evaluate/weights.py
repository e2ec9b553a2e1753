# right: each rank's share, weighted by its part of all examples, as exact fractions.
"""Exercise e06: the accuracy of all ranks together."""

from mpcourse.check import check_this_file

if __name__ == "__main__":  # up here, so that whatever stands below runs under the checker's watch
    check_this_file(__file__)

from fractions import Fraction


def evaluate(comm, correct, count):
    examples = comm.allreduce(count)
    if examples == 0:
        raise ValueError("no examples")
    part = Fraction(correct, count) * Fraction(count, examples) if count else Fraction(0)
    return float(comm.allreduce(part))
