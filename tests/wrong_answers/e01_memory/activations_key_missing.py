# says: have the key 'activations'
# thinks: Activations do not count as memory of the step; autograd cleans them up.
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
    return {"parameters": parameters, "gradients": gradients, "optimizer": state}
