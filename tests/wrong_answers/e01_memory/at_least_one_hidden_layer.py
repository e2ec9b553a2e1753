# says: right for other networks
# thinks: There is always a hidden layer, so the hidden part starts at widths[1].
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
    hidden = widths[1] + sum(widths[2:-1])
    saved = 4 * batch * (widths[0] + hidden)
    loss = 4 * batch * widths[-1] + 8 * batch + 4
    return {"parameters": parameters, "gradients": gradients, "optimizer": state, "activations": saved + loss}
