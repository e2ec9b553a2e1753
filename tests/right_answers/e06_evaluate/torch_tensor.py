# right: torch's int64 sums; .item() gives the float.
"""Exercise e06: the accuracy of all ranks together."""

from mpcourse.check import check_this_file

if __name__ == "__main__":  # up here, so that whatever stands below runs under the checker's watch
    check_this_file(__file__)

import torch


def evaluate(comm, correct, count):
    right, examples = comm.allreduce(torch.tensor([correct, count]))
    if examples == 0:
        raise ValueError("no examples")
    return (right.double() / examples.double()).item()
