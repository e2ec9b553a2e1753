"""Exercise e02: a copy to another device that autograd sees.

Chainer's `F.copy(x, device)` is all that splitting a model needs: it puts a tensor on another device, and brings its
gradient back to where the tensor was. torch has it inside of `Tensor.to`. Here you write it, both ways.

A `torch.autograd.Function` is an operation with a backward of your own:

    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):            # ctx remembers things for backward: ctx.anything = ...
            return 2 * x

        @staticmethod
        def backward(ctx, gradient):    # the gradient of the result -> one for each argument of forward,
            return 2 * gradient         # None for what is no tensor

    y = Double.apply(x)

Inside of forward and backward autograd is off: `.to` there moves numbers, and no more. Outside of them it is torch's
own copy, with torch's own backward, and not yours.
The check runs on virtual GPUs. Check it with `mpcourse check e02_copy`. Stuck? `mpcourse hint e02_copy`.
"""

from mpcourse import check_this_file

if __name__ == "__main__":  # up here, so that all code below runs under the checker's watch
    check_this_file(__file__)

import torch


class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, device):
        # solution: return x on device, and remember in ctx what backward needs
        ctx.source = x.device
        return x.to(device)
        # end of solution

    @staticmethod
    def backward(ctx, gradient):
        # solution: return the gradient of x, on x's device, and None for the argument `device`
        return gradient.to(ctx.source), None
        # end of solution


def copy(x, device):
    """`x` on `device`, differentiable; `x` itself, without any copy, where it already is there.

    x: a tensor on any device, of any shape and dtype. device: a torch.device, or its name: "vgpu:1".
    Forward makes one copy, backward one, each straight from device to device. Numbers and dtype stay as they are, those
    of gradients too. x stays where it is.
    """
    # solution: return x itself if it is on device already, else Copy.apply(...)
    device = torch.device(device)
    return x if x.device == device else Copy.apply(x, device)
    # end of solution
