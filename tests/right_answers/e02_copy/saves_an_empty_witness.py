# right: Remembers the device by an empty tensor that is on it, and moves the gradient .to(that tensor).
"""Exercise e02: a copy to another device that autograd sees."""

import torch


class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, device):
        ctx.save_for_backward(x.new_empty(0))
        return x.to(device)

    @staticmethod
    def backward(ctx, gradient):
        (witness,) = ctx.saved_tensors
        return gradient.to(witness.device), None


def copy(x, device):
    device = torch.device(device)
    return x if x.device == device else Copy.apply(x, device)
