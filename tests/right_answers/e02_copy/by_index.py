# right: Compares indices from get_device(), where the CPU has -1.
"""Exercise e02: a copy to another device that autograd sees."""

import torch


class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, device):
        ctx.index = x.get_device()
        return x.to(device)

    @staticmethod
    def backward(ctx, gradient):
        source = "cpu" if ctx.index < 0 else f"vgpu:{ctx.index}"
        return gradient.to(source), None


def copy(x, device):
    device = torch.device(device)
    index = -1 if device.type == "cpu" else device.index
    if x.get_device() == index:
        return x
    return Copy.apply(x, device)
