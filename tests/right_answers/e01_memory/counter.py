# right: returns a Counter, a kind of dict
"""Exercise e01: the memory of one training step, to the byte."""

from collections import Counter


def training_bytes(widths, batch, optimizer):
    """Bytes by kind, as ints: "parameters", "gradients", "optimizer", "activations"."""
    kinds = Counter(parameters=0, gradients=0, optimizer=0, activations=0)
    for i in range(1, len(widths)):
        size = widths[i] * (widths[i - 1] + 1) * 4
        kinds.update(parameters=size, gradients=size, activations=4 * batch * widths[i - 1])
        if optimizer == "momentum":
            kinds["optimizer"] += size
        if optimizer == "adam":
            kinds.update(optimizer=2 * size + 2 * 4)
    kinds["activations"] += 4 * batch * widths[-1] + 8 * batch + 4
    return kinds
