# right: a class for a layer, and helpers
"""Exercise e01: the memory of one training step, to the byte."""

from dataclasses import dataclass

FLOAT, LABEL = 4, 8


@dataclass
class Layer:
    inputs: int
    outputs: int

    @property
    def bytes(self):
        return FLOAT * (self.inputs * self.outputs + self.outputs)


def optimizer_bytes(layer, optimizer):
    if optimizer == "adam":
        return 2 * (layer.bytes + FLOAT)
    return layer.bytes if optimizer == "momentum" else 0


def loss_bytes(batch, classes):
    return FLOAT * batch * classes + LABEL * batch + FLOAT


def training_bytes(widths, batch, optimizer):
    """Bytes by kind, as ints: "parameters", "gradients", "optimizer", "activations"."""
    layers = [Layer(n, m) for n, m in zip(widths[:-1], widths[1:])]
    parameters = sum(layer.bytes for layer in layers)
    return {
        "parameters": parameters,
        "gradients": parameters,
        "optimizer": sum(optimizer_bytes(layer, optimizer) for layer in layers),
        "activations": sum(FLOAT * batch * layer.inputs for layer in layers) + loss_bytes(batch, layers[-1].outputs),
    }
