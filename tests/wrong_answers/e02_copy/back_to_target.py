# says: must move it to where x was
# thinks: ctx has to remember the argument `device`, for backward moves the gradient to ctx.device.
"""Exercise e02: a copy to another device that autograd sees."""

import torch


class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, device):
        ctx.device = device
        return x.to(device)

    @staticmethod
    def backward(ctx, gradient):
        return gradient.to(ctx.device), None


def copy(x, device):
    device = torch.device(device)
    if x.device == device:
        return x
    return Copy.apply(x, device)
