# says: bits, not bytes
# thinks: A float32 takes 32, so one multiplies by 32.
"""Exercise e01: the memory of one training step, to the byte."""


def training_bytes(widths, batch, optimizer):
    """Bytes by kind, as ints: "parameters", "gradients", "optimizer", "activations"."""
    layers = list(zip(widths[:-1], widths[1:]))
    parameters = 32 * sum(n * m + m for n, m in layers)
    gradients = parameters
    if optimizer == "sgd":
        state = 0
    elif optimizer == "momentum":
        state = parameters
    else:
        state = 2 * parameters + 32 * 2 * len(layers)
    saved = 32 * batch * sum(widths[:-1])
    loss = 32 * batch * widths[-1] + 64 * batch + 32
    return {"parameters": parameters, "gradients": gradients, "optimizer": state, "activations": saved + loss}
