# right: builds the network, trains it for one step and measures it with saved-tensor hooks
"""Exercise e01: the memory of one training step, to the byte."""

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
