"""Unusual right answers to e02_copy. What a cell holds is told in tests/answers.py."""

# %% asks_if_needed
# thinks: Returns None where no gradient is asked for, and has keyword defaults and early returns.
class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, device):
        ctx.source = x.device
        return x.to(device, non_blocking=False)

    @staticmethod
    def backward(ctx, *gradients):
        if not ctx.needs_input_grad[0]:
            return None, None
        (gradient,) = gradients
        return gradient.to(ctx.source), None


send = Copy.apply


def copy(x, device):
    if isinstance(device, str):
        device = torch.device(device)
    already_there = device == x.device
    if not already_there:
        x = send(x, device)
    return x


# %% backward_is_a_copy
# thinks: The backward calls copy itself, so the way back is differentiable too.
class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, device):
        ctx.origin = x.device
        return x.to(device)

    @staticmethod
    def backward(ctx, gradient):
        return copy(gradient, ctx.origin), None


def copy(x, device):
    target = torch.device(device)
    if x.device == target:
        return x
    return Copy.apply(x, target)


# %% by_index
# thinks: Compares indices from get_device(), where the CPU has -1.
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


# %% compares_names
# thinks: Compares the devices' names, of which both sides are normalized.
class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, device):
        ctx.back = str(x.device)
        return x.to(device)

    @staticmethod
    def backward(ctx, gradient):
        return gradient.to(device=ctx.back), None


def copy(x, device):
    if str(x.device) != str(torch.device(device)):
        return Copy.apply(x, str(device))
    return x


# %% empty_like
# thinks: Makes an empty tensor on the target and fills it with copy_, both ways, with no .to at all.
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


# %% saves_an_empty_witness
# thinks: Remembers the device by an empty tensor that is on it, and moves the gradient .to(that tensor).
class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, device):
        ctx.save_for_backward(x.new_empty(0))
        return x.to(device)

    @staticmethod
    def backward(ctx, gradient):
        (witness,) = ctx.saved_tensors
        return gradient.to(witness.device), None


def copy(x, device):
    device = torch.device(device)
    return x if x.device == device else Copy.apply(x, device)


# %% setup_context
# thinks: The newer form of a Function, with setup_context, and a forward without ctx.
class Copy(torch.autograd.Function):
    @staticmethod
    def forward(x, device):
        return x.to(device)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.source = inputs[0].device

    @staticmethod
    def backward(ctx, gradient):
        return gradient.to(ctx.source), None


def copy(x, device):
    device = torch.device(device)
    return x if x.device == device else Copy.apply(x, device)


# %% one_class_recursion
# thinks: the backward is a copy too.
class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, device):
        ctx.source = x.device
        return x.to(device)

    @staticmethod
    def backward(ctx, gradient):
        return Copy.apply(gradient, ctx.source), None


def copy(x, device):
    device = torch.device(device)
    return x if x.device == device else Copy.apply(x, device)
