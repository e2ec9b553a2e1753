# says: the gradient of its result
# thinks: backward undoes forward, so it brings x back.
"""Exercise e02: a copy to another device that autograd sees."""

import torch


class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, device):
        ctx.save_for_backward(x)
        return x.to(device)

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return x, None


def copy(x, device):
    device = torch.device(device)
    return x if x.device == device else Copy.apply(x, device)
