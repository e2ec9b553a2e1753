# says: the gradient of its result, unchanged
# thinks: backward has to make a tensor of x's shape on x's device, autograd then fills it.
"""Exercise e02: a copy to another device that autograd sees."""

import torch


class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, device):
        ctx.source, ctx.shape = x.device, x.shape
        return x.to(device)

    @staticmethod
    def backward(ctx, gradient):
        return torch.zeros(ctx.shape, dtype=gradient.dtype, device=ctx.source), None


def copy(x, device):
    device = torch.device(device)
    return x if x.device == device else Copy.apply(x, device)
