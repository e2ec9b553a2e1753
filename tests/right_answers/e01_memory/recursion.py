# right: one layer at a time, by recursion on the tail of the list
"""Exercise e01: the memory of one training step, to the byte."""


def training_bytes(widths, batch, optimizer):
    """Bytes by kind, as ints: "parameters", "gradients", "optimizer", "activations"."""
    if len(widths) == 1:
        return {"parameters": 0, "gradients": 0, "optimizer": 0, "activations": batch * (4 * widths[0] + 8) + 4}
    n, *tail = widths
    total = training_bytes(tail, batch, optimizer)
    size = 4 * (n + 1) * tail[0]
    total["parameters"] += size
    total["gradients"] += size
    total["optimizer"] += {"sgd": 0, "momentum": size, "adam": 2 * size + 8}[optimizer]
    total["activations"] += 4 * batch * n
    return total
