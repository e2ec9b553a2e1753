# says: A rank without examples takes part like any other
"""Exercise e06: the accuracy of all ranks together."""

from mpcourse.check import check_this_file

if __name__ == "__main__":  # up here, so that whatever stands below runs under the checker's watch
    check_this_file(__file__)

def evaluate(comm, correct, count):
    if count == 0:
        return 0.0
    right, examples = comm.allreduce(correct), comm.allreduce(count)
    return right / examples
