# right: all pairs on all ranks.
"""Exercise e06: the accuracy of all ranks together."""

from mpcourse.check import check_this_file

if __name__ == "__main__":  # up here, so that whatever stands below runs under the checker's watch
    check_this_file(__file__)

def evaluate(comm, correct, count):
    pairs = comm.allgather((correct, count))
    if not any(n for _, n in pairs):
        raise ValueError(f"none of {comm.size} ranks has examples")
    return sum(c for c, _ in pairs) / sum(n for _, n in pairs)
