# says: A float was asked
"""Exercise e06: the accuracy of all ranks together."""

from mpcourse.check import check_this_file

if __name__ == "__main__":  # up here, so that whatever stands below runs under the checker's watch
    check_this_file(__file__)

import torch


def evaluate(comm, correct, count):
    both = torch.tensor([correct, count], dtype=torch.float64)
    both = comm.allreduce(both)
    if both[1] == 0:
        raise ValueError("no examples")
    return both[0] / both[1]
