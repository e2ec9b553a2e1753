# right: the keys in another order than in the docstring
"""Exercise e01: the memory of one training step, to the byte."""


def training_bytes(widths, batch, optimizer):
    """Bytes by kind, as ints: "parameters", "gradients", "optimizer", "activations"."""
    out = {"activations": 8 * batch + 4 + 4 * batch * sum(widths), "optimizer": 0}
    out["gradients"] = sum(4 * b * (a + 1) for a, b in zip(widths, widths[1:]))
    if optimizer in ("momentum", "adam"):
        out["optimizer"] += out["gradients"]
    if optimizer == "adam":
        out["optimizer"] += out["gradients"] + 8 * len(widths) - 8
    out["parameters"] = out["gradients"]
    return out
