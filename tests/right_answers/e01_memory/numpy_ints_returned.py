# right: the values are numpy int64
"""Exercise e01: the memory of one training step, to the byte."""

import numpy as np


def training_bytes(widths, batch, optimizer):
    """Bytes by kind, as ints: "parameters", "gradients", "optimizer", "activations"."""
    w = np.array(widths)
    p = 4 * ((w[:-1] + 1) * w[1:]).sum()
    state = {"sgd": np.int64(0), "momentum": p, "adam": 2 * p + 8 * np.int64(len(w) - 1)}[optimizer]
    return {"parameters": p, "gradients": p, "optimizer": state, "activations": 4 * batch * w.sum() + 8 * batch + 4}
