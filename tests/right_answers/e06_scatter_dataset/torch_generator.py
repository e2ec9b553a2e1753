# right: torch's generator of its own.
"""Exercise e06: which examples are whose."""

from mpcourse.check import check_this_file

if __name__ == "__main__":  # up here, so that whatever stands below runs under the checker's watch
    check_this_file(__file__)

import numpy as np
import torch


def scatter_indices(comm, n, shuffle, seed):
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed)) if shuffle else torch.arange(n)
    return np.asarray(torch.tensor_split(order, comm.size)[comm.rank], dtype=np.int64)
