# says: sys.getsizeof of a tensor
# thinks: sys.getsizeof tells how many bytes a tensor's numbers take.
"""Exercise e01: the memory of one training step, to the byte."""

import sys

import torch


def training_bytes(widths, batch, optimizer):
    """Bytes by kind, as ints: "parameters", "gradients", "optimizer", "activations"."""
    layers = list(zip(widths[:-1], widths[1:]))
    tensors = [torch.zeros(m, n) for n, m in layers] + [torch.zeros(m) for _, m in layers]
    parameters = sum(sys.getsizeof(t) for t in tensors)
    gradients = parameters
    if optimizer == "sgd":
        state = 0
    elif optimizer == "momentum":
        state = parameters
    else:
        state = 2 * parameters + 4 * 2 * len(layers)
    saved = 4 * batch * sum(widths[:-1])
    loss = 4 * batch * widths[-1] + 8 * batch + 4
    return {"parameters": parameters, "gradients": gradients, "optimizer": state, "activations": saved + loss}
