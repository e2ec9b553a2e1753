# says: numbers, not bytes
# thinks: The size of a tensor is how many numbers it has.
"""Exercise e01: the memory of one training step, to the byte."""


def training_bytes(widths, batch, optimizer):
    """Bytes by kind, as ints: "parameters", "gradients", "optimizer", "activations"."""
    layers = list(zip(widths[:-1], widths[1:]))
    parameters = sum(n * m + m for n, m in layers)
    gradients = parameters
    if optimizer == "sgd":
        state = 0
    elif optimizer == "momentum":
        state = parameters
    else:
        state = 2 * parameters + 2 * len(layers)
    saved = batch * sum(widths[:-1])
    loss = batch * widths[-1] + batch + 1
    return {"parameters": parameters, "gradients": gradients, "optimizer": state, "activations": saved + loss}
