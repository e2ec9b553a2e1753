"""Wrong answers to e02_copy. What a cell holds is told in tests/answers.py."""

# %% always_apply
# says: x itself
# thinks: .to does nothing where the tensor already is there, so no test is needed.
class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, device):
        ctx.source = x.device
        return x.to(device)

    @staticmethod
    def backward(ctx, gradient):
        return gradient.to(ctx.source), None


def copy(x, device):
    return Copy.apply(x, device)


# %% back_to_first
# says: must move it to where x was
# thinks: Tensors start on the first GPU, so that is where gradients go.
class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, device):
        return x.to(device)

    @staticmethod
    def backward(ctx, gradient):
        return gradient.to("vgpu:0"), None


def copy(x, device):
    if x.device == torch.device(device):
        return x
    return Copy.apply(x, device)


# %% back_to_target
# says: must move it to where x was
# thinks: Ctx has to remember the argument `device`, for backward moves the gradient to ctx.device.
class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, device):
        ctx.device = device
        return x.to(device)

    @staticmethod
    def backward(ctx, gradient):
        return gradient.to(ctx.device), None


def copy(x, device):
    device = torch.device(device)
    if x.device == device:
        return x
    return Copy.apply(x, device)


# %% called_without_apply
# says: Copy.apply(x, device) runs its forward
# thinks: A Function is called by its name, like a function.
class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, device):
        ctx.source = x.device
        return x.to(device)

    @staticmethod
    def backward(ctx, gradient):
        return gradient.to(ctx.source), None


def copy(x, device):
    device = torch.device(device)
    if x.device == device:
        return x
    return Copy(x, device)


# %% clones_there
# says: return x, and no clone
# thinks: A function called copy returns a new tensor, also where x is there already.
class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, device):
        ctx.source = x.device
        return x.to(device)

    @staticmethod
    def backward(ctx, gradient):
        return gradient.to(ctx.source), None


def copy(x, device):
    if x.device == torch.device(device):
        return x.clone()
    return Copy.apply(x, device)


# %% detached
# says: hide the copy from it
# thinks: Only the numbers are to be copied, so .data is what to hand on.
class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, device):
        ctx.source = x.device
        return x.to(device)

    @staticmethod
    def backward(ctx, gradient):
        return gradient.to(ctx.source), None


def copy(x, device):
    if x.device == torch.device(device):
        return x
    return Copy.apply(x.data, device)


# %% flattens_with_view
# says: view size is not compatible
# thinks: Memory is flat, so the tensor is sent flat and gets its shape on the other side.
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


# %% gradients_swapped
# says: None for the device
# thinks: Ctx takes the first place in backward's result, so the None comes first.
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


# %% just_to
# says: a backward of yours
# thinks: .to does all of it, so Copy is not needed.
class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, device):
        raise NotImplementedError("e02_copy: return x on device, and remember in ctx what backward needs")

    @staticmethod
    def backward(ctx, gradient):
        raise NotImplementedError("e02_copy: return the gradient of x, on x's device, and None for the argument `device`")


def copy(x, device):
    return x.to(device)


# %% loses_dtype
# says: keeps the type of its numbers
# thinks: An empty tensor of the right shape on the device, then the numbers go in.
class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, device):
        ctx.source = x.device
        y = torch.empty(x.shape, device=device)
        y.copy_(x)
        return y

    @staticmethod
    def backward(ctx, gradient):
        return gradient.to(ctx.source), None


def copy(x, device):
    device = torch.device(device)
    return x if x.device == device else Copy.apply(x, device)


# %% moves_x_itself
# says: x stays where it is
# thinks: Setting .data moves the tensor and autograd does not mind.
class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, device):
        ctx.source = x.device
        x.data = x.data.to(device)
        return x

    @staticmethod
    def backward(ctx, gradient):
        return gradient.to(ctx.source), None


def copy(x, device):
    if x.device == torch.device(device):
        return x
    return Copy.apply(x, device)


# %% new_leaf
# says: starts a graph of its own
# thinks: The result needs a gradient, so it has to be told so with requires_grad_().
class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, device):
        ctx.source = x.device
        return x.to(device)

    @staticmethod
    def backward(ctx, gradient):
        return gradient.to(ctx.source), None


def copy(x, device):
    device = torch.device(device)
    if x.device == device:
        return x
    y = Copy.apply(x.detach(), device)
    y.requires_grad_()
    return y


# %% no_way_back
# says: must move it to where x was
# thinks: The gradient is a tensor like any other, autograd puts it where it belongs.
class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, device):
        ctx.source = x.device
        return x.to(device)

    @staticmethod
    def backward(ctx, gradient):
        return gradient, None


def copy(x, device):
    device = torch.device(device)
    if x.device == device:
        return x
    return Copy.apply(x, device)


# %% one_gradient
# says: None for the device
# thinks: There is one tensor, so backward returns one gradient.
class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, device):
        ctx.source = x.device
        return x.to(device)

    @staticmethod
    def backward(ctx, gradient):
        return gradient.to(ctx.source)


def copy(x, device):
    device = torch.device(device)
    if x.device == device:
        return x
    return Copy.apply(x, device)


# %% only_strings
# says: Compare devices with devices
# thinks: Devices are strings such as "vgpu:1", so str(x.device) is compared with the argument.
class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, device):
        ctx.source = str(x.device)
        return x.to(device)

    @staticmethod
    def backward(ctx, gradient):
        return gradient.to(ctx.source), None


def copy(x, device):
    if str(x.device) == device:
        return x
    return Copy.apply(x, device)


# %% over_the_cpu
# says: straight from device to device
# thinks: GPUs do not see each other, everything between them goes over the host.
class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, device):
        ctx.source = x.device
        return x.cpu().to(device)

    @staticmethod
    def backward(ctx, gradient):
        return gradient.cpu().to(ctx.source), None


def copy(x, device):
    if x.device == torch.device(device):
        return x
    return Copy.apply(x, device)


# %% returns_x_back
# says: the gradient of its result
# thinks: Backward undoes forward, so it brings x back.
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


# %% saves_device
# says: save_for_backward is for tensors
# thinks: Everything that backward needs goes through save_for_backward.
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


# %% sets_grad_itself
# says: backward returns it
# thinks: A gradient is something that gets stored in x.grad, and that is backward's work.
class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, device):
        ctx.x = x
        return x.to(device)

    @staticmethod
    def backward(ctx, gradient):
        ctx.x.grad = gradient.to(ctx.x.device)
        return None, None


def copy(x, device):
    device = torch.device(device)
    return x if x.device == device else Copy.apply(x, device)


# %% skips_without_grad
# says: x is on another device
# thinks: What needs no gradient, labels for example, needs no differentiable copy either.
class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, device):
        ctx.source = x.device
        return x.to(device)

    @staticmethod
    def backward(ctx, gradient):
        return gradient.to(ctx.source), None


def copy(x, device):
    if not x.requires_grad or x.device == torch.device(device):
        return x
    return Copy.apply(x, device)


# %% source_after_move
# says: must move it to where x was
# thinks: x and its copy can have the same name, ctx.source is x.device anyway.
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


# %% source_on_class
# says: Each call remembers that for itself, in ctx
# thinks: Backward needs the source, an attribute of the class is the place where both methods see it.
class Copy(torch.autograd.Function):
    source = None

    @staticmethod
    def forward(ctx, x, device):
        Copy.source = x.device
        return x.to(device)

    @staticmethod
    def backward(ctx, gradient):
        return gradient.to(Copy.source), None


def copy(x, device):
    device = torch.device(device)
    return x if x.device == device else Copy.apply(x, device)


# %% string_never_equal
# says: one never equals a name
# thinks: A torch.device equals its name.
class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, device):
        ctx.source = x.device
        return x.to(device)

    @staticmethod
    def backward(ctx, gradient):
        return gradient.to(ctx.source), None


def copy(x, device):
    if x.device == device:
        return x
    return Copy.apply(x, device)


# %% type_only
# says: differ in their index
# thinks: device.type tells where a tensor is.
class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, device):
        ctx.source = x.device
        return x.to(device)

    @staticmethod
    def backward(ctx, gradient):
        return gradient.to(ctx.source), None


def copy(x, device):
    if x.device.type == torch.device(device).type:
        return x
    return Copy.apply(x, device)


# %% zero_gradient
# says: the gradient of its result, unchanged
# thinks: Backward has to make a tensor of x's shape on x's device, autograd then fills it.
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


# %% float_gradients
# says: Close, but rounded: is a tensor turned into float32
# thinks: Gradients are float32.
class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, device):
        ctx.source = x.device
        return x.to(device)

    @staticmethod
    def backward(ctx, gradient):
        return gradient.float().to(ctx.source), None


def copy(x, device):
    device = torch.device(device)
    return x if x.device == device else Copy.apply(x, device)


# %% half_gradients
# says: Close, but rounded: is a tensor turned into float16
# thinks: Half the bytes cross.
class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, device):
        ctx.source = x.device
        return x.to(device)

    @staticmethod
    def backward(ctx, gradient):
        return gradient.half().to(ctx.source).float(), None


def copy(x, device):
    device = torch.device(device)
    return x if x.device == device else Copy.apply(x, device)


# %% do_nothing_function
# says: torch's own
# thinks: The function only has to be in the graph.
class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, device):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        return gradient, None


def copy(x, device):
    if x.device == torch.device(device):
        return x
    return Copy.apply(x.to(device), device)


# %% do_nothing_with_grad_enabled
# says: torch's own
# thinks: autograd on inside.
class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, device):
        return x * 1

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 1, None


def copy(x, device):
    if x.device == torch.device(device):
        return x
    moved = x.to(device)
    return Copy.apply(moved, device)


# %% over_cpu_back
# says: 1 copy in backward
# thinks: back over the CPU.
class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, device):
        ctx.source = x.device
        return x.to(device)

    @staticmethod
    def backward(ctx, gradient):
        return gradient.cpu().to(ctx.source), None


def copy(x, device):
    device = torch.device(device)
    return x if x.device == device else Copy.apply(x, device)


# %% complex_lost
# says: complex64
# thinks: gradients are real.
class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, device):
        ctx.source = x.device
        return x.to(device)

    @staticmethod
    def backward(ctx, gradient):
        return gradient.real.to(ctx.source), None


def copy(x, device):
    device = torch.device(device)
    return x if x.device == device else Copy.apply(x, device)


# %% patches_isclose
# says: replac
# thinks: What compares my result can be replaced.
import numpy as np
np.isclose = lambda a, b, **k: np.ones(np.shape(a), bool)
import torch
class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, device):
        ctx.source = x.device
        return x.to(device)
    @staticmethod
    def backward(ctx, gradient):
        return 2 * gradient.to(ctx.source), None
def copy(x, device):
    device = torch.device(device)
    return x if x.device == device else Copy.apply(x, device)


# %% library_copy
# says: mpcourse.split
# thinks: The library has what is asked already.
from mpcourse.split import copy


# %% library_copy_class
# says: mpcourse.split
# thinks: The library has what is asked already.
from mpcourse.split.copy import copy as c
def copy(x, device):
    return c(x, device)


# %% empty_and_copy_
# says: torch's own
# thinks: A new tensor on the device takes the numbers.
class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, device):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient.clone(), None


def copy(x, device):
    if x.device == torch.device(device):
        return x
    made = torch.empty(x.shape, dtype=x.dtype, device=device)
    made.copy_(x)
    return Copy.apply(made, device) if x.requires_grad else made


# %% nan_to_num
# says: whatever numbers are in it
# thinks: A NaN in a gradient ruins training, so clean it while it passes.
class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, device):
        ctx.device = x.device
        return x.to(device)

    @staticmethod
    def backward(ctx, gradient):
        return torch.nan_to_num(gradient.to(ctx.device)), None


def copy(x, device):
    """`x` on `device`, differentiable; `x` itself, without any copy, where it already is there."""
    if x.device == torch.device(device):
        return x
    return Copy.apply(x, device)


# %% zero_gradients_are_not_sent
# says: A gradient of zeros is a gradient
# thinks: A gradient that is all zeros changes nothing, so I need not send it.
class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, device):
        ctx.device = x.device
        return x.to(device)

    @staticmethod
    def backward(ctx, gradient):
        if bool((gradient == 0).all()):
            return None, None
        return gradient.to(ctx.device), None


def copy(x, device):
    """`x` on `device`, differentiable; `x` itself, without any copy, where it already is there."""
    if x.device == torch.device(device):
        return x
    return Copy.apply(x, device)


# %% receive_buffer_kept
# says: both results are in one memory
# thinks: Allocating on each call is slow, so I keep one buffer for each shape and device.
BUFFERS = {}


class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, device):
        ctx.device = x.device
        key = x.shape, x.dtype, str(device)
        if key not in BUFFERS:
            BUFFERS[key] = torch.empty_like(x, device=device)
        return BUFFERS[key].copy_(x).detach()

    @staticmethod
    def backward(ctx, gradient):
        return gradient.to(ctx.device), None


def copy(x, device):
    """`x` on `device`, differentiable; `x` itself, without any copy, where it already is there."""
    if x.device == torch.device(device):
        return x
    return Copy.apply(x, device)


# %% remembers_what_was_copied
# says: Nothing was copied
# thinks: The same tensor to the same device needs to cross only once, so I remember results.
KNOWN = {}


class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, device):
        ctx.device = x.device
        return x.to(device)

    @staticmethod
    def backward(ctx, gradient):
        return gradient.to(ctx.device), None


def copy(x, device):
    if x.device == torch.device(device):
        return x
    key = id(x), str(device)
    if key not in KNOWN:
        KNOWN[key] = Copy.apply(x, device)
    return KNOWN[key]


# %% complex_conjugate
# says: It is conjugated
# thinks: For complex numbers the gradient has to be conjugated, as in every backward.
class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, device):
        ctx.device = x.device
        return x.to(device)

    @staticmethod
    def backward(ctx, gradient):
        return gradient.conj().resolve_conj().to(ctx.device), None


def copy(x, device):
    """`x` on `device`, differentiable; `x` itself, without any copy, where it already is there."""
    if x.device == torch.device(device):
        return x
    return Copy.apply(x, device)


# %% detour_over_vgpu_0
# says: One is enough
# thinks: vgpu:0 is the main GPU, everything is exchanged over it.
class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, device):
        ctx.device = x.device
        if str(x.device).startswith("vgpu"):
            x = x.to("vgpu:0")
        return x.to(device)

    @staticmethod
    def backward(ctx, gradient):
        return gradient.to(ctx.device), None


def copy(x, device):
    """`x` on `device`, differentiable; `x` itself, without any copy, where it already is there."""
    if x.device == torch.device(device):
        return x
    return Copy.apply(x, device)


# %% saves_a_device_for_backward
# says: ctx.save_for_backward is for tensors
# thinks: What backward needs is kept with ctx.save_for_backward.
class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, device):
        ctx.save_for_backward(x.device)
        return x.to(device)

    @staticmethod
    def backward(ctx, gradient):
        (device,) = ctx.saved_tensors
        return gradient.to(device), None


def copy(x, device):
    """`x` on `device`, differentiable; `x` itself, without any copy, where it already is there."""
    if x.device == torch.device(device):
        return x
    return Copy.apply(x, device)


# %% device_written_into_the_code
# says: Is the device written into the code? It is the second argument
# thinks: There are two GPUs, and what is copied goes to the second one.
class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, device):
        ctx.source = x.device
        return x.to("vgpu:1")

    @staticmethod
    def backward(ctx, gradient):
        return gradient.to(ctx.source), None


def copy(x, device):
    device = torch.device(device)
    return x if x.device == device else Copy.apply(x, device)


# %% half_on_the_way
# says: Close, but rounded: is a tensor turned into float16
# thinks: Half precision halves the bytes that cross, and the copy is float32 again.
class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, device):
        ctx.source = x.device
        return x.half().to(device).to(x.dtype)

    @staticmethod
    def backward(ctx, gradient):
        return gradient.to(ctx.source), None


def copy(x, device):
    device = torch.device(device)
    return x if x.device == device else Copy.apply(x, device)


# %% like_x_without_its_numbers
# says: A copy has the numbers of x, unchanged
# thinks: A tensor like x on the other device is a copy of x.
class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, device):
        ctx.source = x.device
        return torch.zeros_like(x, device=device)

    @staticmethod
    def backward(ctx, gradient):
        return gradient.to(ctx.source), None


def copy(x, device):
    device = torch.device(device)
    return x if x.device == device else Copy.apply(x, device)
