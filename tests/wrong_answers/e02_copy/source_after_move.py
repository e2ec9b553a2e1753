# says: must move it to where x was
# thinks: x and its copy can have the same name, ctx.source is x.device anyway.
"""Exercise e02: a copy to another device that autograd sees."""

import torch


class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, device):
        x = x.to(device)
        ctx.source = x.device
        return x

    @staticmethod
    def backward(ctx, gradient):
        return gradient.to(ctx.source), None


def copy(x, device):
    device = torch.device(device)
    return x if x.device == device else Copy.apply(x, device)
