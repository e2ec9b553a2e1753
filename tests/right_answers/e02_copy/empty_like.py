# right: Makes an empty tensor on the target and fills it with copy_, both ways, with no .to at all.
"""Exercise e02: a copy to another device that autograd sees."""

import torch


class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, device):
        ctx.source = x.device
        y = torch.empty_like(x, device=device)
        y.copy_(x)
        return y

    @staticmethod
    def backward(ctx, gradient):
        back = torch.empty_like(gradient, device=ctx.source)
        back.copy_(gradient)
        return back, None


def copy(x, device):
    device = torch.device(device)
    return x if x.device == device else Copy.apply(x, device)
