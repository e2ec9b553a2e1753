# right: counts bits and divides by 8 without a remainder
"""Exercise e01: the memory of one training step, to the byte."""

from functools import reduce


def training_bytes(widths, batch, optimizer):
    """Bytes by kind, as ints: "parameters", "gradients", "optimizer", "activations"."""
    p = reduce(lambda total, nm: total + 32 * (nm[0] + 1) * nm[1], zip(widths, widths[1:]), 0) // 8
    state = p * (optimizer != "sgd") + (p + 8 * (len(widths) - 1)) * (optimizer == "adam")
    return {
        "parameters": p,
        "gradients": p,
        "optimizer": state,
        "activations": (32 * batch * sum(widths) + 64 * batch + 32) // 8,
    }
