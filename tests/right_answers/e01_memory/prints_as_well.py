# right: prints its working, and is right
"""Exercise e01: the memory of one training step, to the byte."""


def training_bytes(widths, batch, optimizer):
    """Bytes by kind, as ints: "parameters", "gradients", "optimizer", "activations"."""
    parameters = 4 * sum((n + 1) * m for n, m in zip(widths, widths[1:]))
    print("parameters", parameters / 2**20, "MiB")
    state = {"sgd": 0, "momentum": parameters, "adam": 2 * parameters + 8 * (len(widths) - 1)}[optimizer]
    activations = 4 * batch * sum(widths) + 8 * batch + 4
    print("activations", activations / 2**20, "MiB")
    return {"parameters": parameters, "gradients": parameters, "optimizer": state, "activations": activations}
