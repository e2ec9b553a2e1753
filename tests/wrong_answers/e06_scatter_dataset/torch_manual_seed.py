# says: torch's global generator to stay as it was
"""Exercise e06: which examples are whose."""

from mpcourse.check import check_this_file

if __name__ == "__main__":  # up here, so that whatever stands below runs under the checker's watch
    check_this_file(__file__)

import torch


def scatter_indices(comm, n, shuffle, seed):
    torch.manual_seed(seed)
    order = torch.randperm(n) if shuffle else torch.arange(n)
    return torch.tensor_split(order, comm.size)[comm.rank].numpy()
