# right: takes apart a copy of the list
"""Exercise e01: the memory of one training step, to the byte."""


def training_bytes(widths, batch, optimizer):
    """Bytes by kind, as ints: "parameters", "gradients", "optimizer", "activations"."""
    left = list(widths)
    p = tensors = activations = 0
    while len(left) > 1:
        n = left.pop(0)
        p += n * left[0] + left[0]
        tensors += 2
        activations += n * batch
    activations += batch * left.pop()
    match optimizer:
        case "sgd":
            state = 0
        case "momentum":
            state = p
        case "adam":
            state = 2 * p + tensors
    return {
        "parameters": p * 4,
        "gradients": p * 4,
        "optimizer": state * 4,
        "activations": activations * 4 + batch * 8 + 4,
    }
