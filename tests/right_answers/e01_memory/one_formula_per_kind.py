# right: closed formulas, numpy's dot product, converted to ints at the end
"""Exercise e01: the memory of one training step, to the byte."""

import numpy as np


def training_bytes(widths, batch, optimizer):
    """Bytes by kind, as ints: "parameters", "gradients", "optimizer", "activations"."""
    w = np.asarray(widths, dtype=np.int64)
    numbers = np.dot(w[:-1] + 1, w[1:])
    per_number, per_tensor = {"sgd": (0, 0), "momentum": (1, 0), "adam": (2, 1)}[optimizer]
    return {
        "parameters": int(4 * numbers),
        "gradients": int(4 * numbers),
        "optimizer": int(4 * per_number * numbers + 4 * per_tensor * 2 * (w.size - 1)),
        "activations": int(4 * batch * w.sum() + 8 * batch + 4),
    }
