"""Exercise e02: a copy to another device that autograd sees.

To split a model over devices, you need only one new operation, Chainer's `F.copy(x, device)`. Its forward copies a
tensor to another device, and its backward copies the gradient back to the tensor's own device. In torch, `Tensor.to`
does both. Here you write forward and backward yourself.

A `torch.autograd.Function` is an operation with a backward of your own:

    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):            # ctx remembers things for backward: ctx.anything = ...
            return 2 * x

        @staticmethod
        def backward(ctx, gradient):    # gradient: of the result. Return one gradient for each argument of forward,
            return 2 * gradient         # and None for an argument that is not a tensor.

    y = Double.apply(x)

Inside forward and backward, autograd is off, and `.to` only copies numbers. Outside of them, autograd differentiates
`.to` with torch's own backward, and not with yours.

The check runs on virtual GPUs.

Check it with `mpcourse check e02_copy`. Stuck? `mpcourse hint e02_copy`.
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
    """Return a differentiable copy of `x` on `device`, or `x` itself, without a copy, if `x` is already there.

    x: a tensor on any device, of any shape and dtype. device: a torch.device, or its name, such as "vgpu:1".
    Forward makes one copy, and backward makes one, each directly from one device to the other. Neither of them
    changes values or dtype. x itself stays on its device.
    """
    # solution: return x itself if it is on device already, else Copy.apply(...)
    device = torch.device(device)
    return x if x.device == device else Copy.apply(x, device)
    # end of solution
