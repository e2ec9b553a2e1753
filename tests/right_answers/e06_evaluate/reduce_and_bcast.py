# right: rank 0 divides and tells the others, also that there is nothing.
"""Exercise e06: the accuracy of all ranks together."""

from mpcourse.check import check_this_file

if __name__ == "__main__":  # up here, so that whatever stands below runs under the checker's watch
    check_this_file(__file__)

def evaluate(comm, correct, count):
    right, examples = comm.reduce(correct, root=0), comm.reduce(count, root=0)
    share = comm.bcast(right / examples if comm.rank == 0 and examples else None, root=0)
    if share is None:
        raise ValueError("no examples")
    return share
