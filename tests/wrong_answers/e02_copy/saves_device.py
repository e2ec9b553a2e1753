# says: save_for_backward is for tensors
# thinks: Everything that backward needs goes through save_for_backward.
"""Exercise e02: a copy to another device that autograd sees."""

import torch


class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, device):
        ctx.save_for_backward(x.device)
        return x.to(device)

    @staticmethod
    def backward(ctx, gradient):
        (source,) = ctx.saved_tensors
        return gradient.to(source), None


def copy(x, device):
    device = torch.device(device)
    return x if x.device == device else Copy.apply(x, device)
