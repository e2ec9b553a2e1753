# says: That is in percent
"""Exercise e06: the accuracy of all ranks together."""

from mpcourse.check import check_this_file

if __name__ == "__main__":  # up here, so that whatever stands below runs under the checker's watch
    check_this_file(__file__)

def evaluate(comm, correct, count):
    right, examples = comm.allreduce(correct), comm.allreduce(count)
    if examples == 0:
        raise ValueError("no examples")
    return 100 * right / examples
