"""Unusual right answers to e01_memory. What a cell holds is told in tests/answers.py."""

# %% bits_divided
# thinks: Counts bits and divides by 8 without a remainder.
from functools import reduce


def training_bytes(widths, batch, optimizer):
    """Bytes by kind, as ints: "parameters", "gradients", "optimizer", "activations"."""
    p = reduce(lambda total, nm: total + 32 * (nm[0] + 1) * nm[1], zip(widths, widths[1:]), 0) // 8
    state = p * (optimizer != "sgd") + (p + 8 * (len(widths) - 1)) * (optimizer == "adam")
    return {
        "parameters": p,
        "gradients": p,
        "optimizer": state,
        "activations": (32 * batch * sum(widths) + 64 * batch + 32) // 8,
    }


# %% class_and_helpers
# thinks: A class for a layer, and helpers.
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


# %% counter
# thinks: Returns a Counter, a kind of dict.
from collections import Counter


def training_bytes(widths, batch, optimizer):
    """Bytes by kind, as ints: "parameters", "gradients", "optimizer", "activations"."""
    kinds = Counter(parameters=0, gradients=0, optimizer=0, activations=0)
    for i in range(1, len(widths)):
        size = widths[i] * (widths[i - 1] + 1) * 4
        kinds.update(parameters=size, gradients=size, activations=4 * batch * widths[i - 1])
        if optimizer == "momentum":
            kinds["optimizer"] += size
        if optimizer == "adam":
            kinds.update(optimizer=2 * size + 2 * 4)
    kinds["activations"] += 4 * batch * widths[-1] + 8 * batch + 4
    return kinds


# %% generator_expressions
# thinks: Generator expressions over one list of shapes.
import math


def training_bytes(widths, batch, optimizer):
    """Bytes by kind, as ints: "parameters", "gradients", "optimizer", "activations"."""
    shapes = [shape for n, m in zip(widths, widths[1:]) for shape in ((m, n), (m,))]
    saved = [*((batch, n) for n in widths[:-1]), (batch, widths[-1]), (batch, 2), (1,)]
    state = [s for s in shapes for _ in range(("sgd", "momentum", "adam").index(optimizer))]
    state += [()] * len(shapes) * (optimizer == "adam")

    def size(tensors):
        return sum(4 * math.prod(s) for s in tensors)

    return {"parameters": size(shapes), "gradients": size(shapes), "optimizer": size(state), "activations": size(saved)}


# %% measures_a_real_step
# thinks: Builds the network, trains it for one step and measures it with saved-tensor hooks.
import torch
from torch import nn


def training_bytes(widths, batch, optimizer):
    """Bytes by kind, as ints: "parameters", "gradients", "optimizer", "activations"."""
    parts = []
    for n, m in zip(widths, widths[1:]):
        parts += [nn.Linear(n, m), nn.ReLU()]
    model = nn.Sequential(*parts[:-1])
    parameters = list(model.parameters())
    makers = {
        "sgd": lambda: torch.optim.SGD(parameters, lr=0.1),
        "momentum": lambda: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
        "adam": lambda: torch.optim.Adam(parameters),
    }
    opt = makers[optimizer]()
    own = {p.data_ptr() for p in parameters}
    saved = {}

    def pack(tensor):
        if tensor.data_ptr() not in own:
            saved[tensor.data_ptr()] = tensor
        return tensor

    x = torch.randn(batch, widths[0])
    y = torch.randint(widths[-1], (batch,))
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss = nn.functional.cross_entropy(model(x), y)
    activations = sum(t.nbytes for t in saved.values())
    loss.backward()
    opt.step()
    state = sum(v.nbytes for s in opt.state.values() for v in s.values() if torch.is_tensor(v))
    return {
        "parameters": sum(p.nbytes for p in parameters),
        "gradients": sum(p.grad.nbytes for p in parameters),
        "optimizer": state,
        "activations": activations,
    }


# %% meta_device
# thinks: Measures the parameters of a network on the meta device.
import torch


def training_bytes(widths, batch, optimizer):
    """Bytes by kind, as ints: "parameters", "gradients", "optimizer", "activations"."""
    with torch.device("meta"):
        linears = [torch.nn.Linear(n, m) for n, m in zip(widths, widths[1:])]
    tensors = [t for linear in linears for t in linear.parameters()]
    size = sum(t.numel() * t.element_size() for t in tensors)
    state = {"sgd": 0, "momentum": size, "adam": 2 * size + 4 * len(tensors)}
    inputs = sum(linear.in_features for linear in linears)
    return {
        "parameters": size,
        "gradients": size,
        "optimizer": state[optimizer],
        "activations": 4 * batch * (inputs + linears[-1].out_features) + 8 * batch + 4,
    }


# %% numpy_ints_returned
# thinks: The values are numpy int64.
import numpy as np


def training_bytes(widths, batch, optimizer):
    """Bytes by kind, as ints: "parameters", "gradients", "optimizer", "activations"."""
    w = np.array(widths)
    p = 4 * ((w[:-1] + 1) * w[1:]).sum()
    state = {"sgd": np.int64(0), "momentum": p, "adam": 2 * p + 8 * np.int64(len(w) - 1)}[optimizer]
    return {"parameters": p, "gradients": p, "optimizer": state, "activations": 4 * batch * w.sum() + 8 * batch + 4}


# %% one_formula_per_kind
# thinks: Closed formulas, numpy's dot product, converted to ints at the end.
import numpy as np


def training_bytes(widths, batch, optimizer):
    """Bytes by kind, as ints: "parameters", "gradients", "optimizer", "activations"."""
    w = np.asarray(widths, dtype=np.int64)
    numbers = np.dot(w[:-1] + 1, w[1:])
    per_number, per_tensor = {"sgd": (0, 0), "momentum": (1, 0), "adam": (2, 1)}[optimizer]
    return {
        "parameters": int(4 * numbers),
        "gradients": int(4 * numbers),
        "optimizer": int(4 * per_number * numbers + 4 * per_tensor * 2 * (w.size - 1)),
        "activations": int(4 * batch * w.sum() + 8 * batch + 4),
    }


# %% other_order_of_keys
# thinks: The keys in another order than in the docstring.
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


# %% own_copy_of_the_list
# thinks: Takes apart a copy of the list.
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


# %% prints_as_well
# thinks: Prints its working, and is right.
def training_bytes(widths, batch, optimizer):
    """Bytes by kind, as ints: "parameters", "gradients", "optimizer", "activations"."""
    parameters = 4 * sum((n + 1) * m for n, m in zip(widths, widths[1:]))
    print("parameters", parameters / 2**20, "MiB")
    state = {"sgd": 0, "momentum": parameters, "adam": 2 * parameters + 8 * (len(widths) - 1)}[optimizer]
    activations = 4 * batch * sum(widths) + 8 * batch + 4
    print("activations", activations / 2**20, "MiB")
    return {"parameters": parameters, "gradients": parameters, "optimizer": state, "activations": activations}


# %% recursion
# thinks: One layer at a time, by recursion on the tail of the list.
def training_bytes(widths, batch, optimizer):
    """Bytes by kind, as ints: "parameters", "gradients", "optimizer", "activations"."""
    if len(widths) == 1:
        return {"parameters": 0, "gradients": 0, "optimizer": 0, "activations": batch * (4 * widths[0] + 8) + 4}
    n, *tail = widths
    total = training_bytes(tail, batch, optimizer)
    size = 4 * (n + 1) * tail[0]
    total["parameters"] += size
    total["gradients"] += size
    total["optimizer"] += {"sgd": 0, "momentum": size, "adam": 2 * size + 8}[optimizer]
    total["activations"] += 4 * batch * n
    return total


# %% torch_ints
# thinks: The sums are made with torch, then .item().
import torch


def training_bytes(widths, batch, optimizer):
    """Bytes by kind, as ints: "parameters", "gradients", "optimizer", "activations"."""
    w = torch.tensor(widths)
    parameters = 4 * torch.sum(w[:-1] * w[1:] + w[1:]).item()
    moments = ["sgd", "momentum", "adam"].index(optimizer)
    counts = 4 * 2 * (len(w) - 1) if moments == 2 else 0
    activations = torch.full((1,), batch).mul(4 * w.sum() + 8).add(4).item()
    return dict(
        parameters=parameters, gradients=parameters, optimizer=moments * parameters + counts, activations=activations
    )


# %% numpy_integers
# thinks: numpy counts for me.
import numpy as np
def training_bytes(widths, batch, optimizer):
    w = np.array(widths)
    p = 4 * (w[:-1] @ w[1:] + w[1:].sum())
    a = 4 * batch * w.sum() + 8 * batch + 4
    o = {"sgd": np.int64(0), "momentum": p, "adam": 2 * p + 8 * (len(widths) - 1)}[optimizer]
    return {"parameters": p, "gradients": p, "optimizer": o, "activations": a}
