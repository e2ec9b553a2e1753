# right: numpy arrays for the letters and the numbers, made plain Python by tolist()
"""Exercise e04: GPipe's schedule."""

import numpy as np


def gpipe(stages, microbatches):
    up = np.arange(microbatches)
    numbers = np.concatenate([up, up[::-1]])
    letters = np.repeat(np.array(["F", "B"]), microbatches)
    rows = np.broadcast_to(numbers, (stages, 2 * microbatches)).tolist()
    return [list(zip(letters.tolist(), row)) for row in rows]
