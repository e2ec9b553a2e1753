# right: Returns None where no gradient is asked for, and has keyword defaults and early returns.
"""Exercise e02: a copy to another device that autograd sees."""

import torch


class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, device):
        ctx.source = x.device
        return x.to(device, non_blocking=False)

    @staticmethod
    def backward(ctx, *gradients):
        if not ctx.needs_input_grad[0]:
            return None, None
        (gradient,) = gradients
        return gradient.to(ctx.source), None


send = Copy.apply


def copy(x, device):
    if isinstance(device, str):
        device = torch.device(device)
    already_there = device == x.device
    if not already_there:
        x = send(x, device)
    return x
