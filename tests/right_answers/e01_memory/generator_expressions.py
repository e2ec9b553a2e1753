# right: generator expressions over one list of shapes
"""Exercise e01: the memory of one training step, to the byte."""

import math


def training_bytes(widths, batch, optimizer):
    """Bytes by kind, as ints: "parameters", "gradients", "optimizer", "activations"."""
    shapes = [shape for n, m in zip(widths, widths[1:]) for shape in ((m, n), (m,))]
    saved = [*((batch, n) for n in widths[:-1]), (batch, widths[-1]), (batch, 2), (1,)]
    state = [s for s in shapes for _ in range(("sgd", "momentum", "adam").index(optimizer))]
    state += [()] * len(shapes) * (optimizer == "adam")

    def size(tensors):
        return sum(4 * math.prod(s) for s in tensors)

    return {"parameters": size(shapes), "gradients": size(shapes), "optimizer": size(state), "activations": size(saved)}
