# right: numpy: sort by a key, B k comes right after F (k + p - s - 1)
"""Exercise e04: one forward, one backward (1F1B)."""

import numpy as np


def one_f_one_b(stages, microbatches):
    k = np.arange(microbatches)
    names = [("F", i) for i in range(microbatches)] + [("B", i) for i in range(microbatches)]
    s = np.arange(stages)[:, None]
    keys = np.hstack([np.broadcast_to(2 * k, (stages, microbatches)), 2 * (k + stages - s - 1) + 1])
    return [[names[i] for i in row] for row in np.argsort(keys, axis=1, kind="stable")]
