# says: None for the device
# thinks: ctx takes the first place in backward's result, so the None comes first.
"""Exercise e02: a copy to another device that autograd sees."""

import torch


class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, device):
        ctx.source = x.device
        return x.to(device)

    @staticmethod
    def backward(ctx, gradient):
        return None, gradient.to(ctx.source)


def copy(x, device):
    device = torch.device(device)
    return x if x.device == device else Copy.apply(x, device)
