# right: the sums are made with torch, then .item()
"""Exercise e01: the memory of one training step, to the byte."""

import torch


def training_bytes(widths, batch, optimizer):
    """Bytes by kind, as ints: "parameters", "gradients", "optimizer", "activations"."""
    w = torch.tensor(widths)
    parameters = 4 * torch.sum(w[:-1] * w[1:] + w[1:]).item()
    moments = ["sgd", "momentum", "adam"].index(optimizer)
    counts = 4 * 2 * (len(w) - 1) if moments == 2 else 0
    activations = torch.full((1,), batch).mul(4 * w.sum() + 8).add(4).item()
    return dict(
        parameters=parameters, gradients=parameters, optimizer=moments * parameters + counts, activations=activations
    )
