# right: measures the parameters of a network on the meta device
"""Exercise e01: the memory of one training step, to the byte."""

import torch


def training_bytes(widths, batch, optimizer):
    """Bytes by kind, as ints: "parameters", "gradients", "optimizer", "activations"."""
    with torch.device("meta"):
        linears = [torch.nn.Linear(n, m) for n, m in zip(widths, widths[1:])]
    tensors = [t for linear in linears for t in linear.parameters()]
    size = sum(t.numel() * t.element_size() for t in tensors)
    state = {"sgd": 0, "momentum": size, "adam": 2 * size + 4 * len(tensors)}
    inputs = sum(linear.in_features for linear in linears)
    return {
        "parameters": size,
        "gradients": size,
        "optimizer": state[optimizer],
        "activations": 4 * batch * (inputs + linears[-1].out_features) + 8 * batch + 4,
    }
