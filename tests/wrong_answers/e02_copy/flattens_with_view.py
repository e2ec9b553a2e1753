# says: view size is not compatible
# thinks: Memory is flat, so the tensor is sent flat and gets its shape on the other side.
"""Exercise e02: a copy to another device that autograd sees."""

import torch


class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, device):
        ctx.source = x.device
        return x.view(-1).to(device).view(x.shape)

    @staticmethod
    def backward(ctx, gradient):
        return gradient.to(ctx.source), None


def copy(x, device):
    device = torch.device(device)
    return x if x.device == device else Copy.apply(x, device)
