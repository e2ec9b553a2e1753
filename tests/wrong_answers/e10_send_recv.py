"""Wrong answers to e10_send_recv. What a cell holds is told in tests/answers.py."""

# %% always_tag_0
# says: keep the tag in ctx
# thinks: One pair of ranks needs one tag only.
class Send(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, comm, rank, tag):
        ctx.comm, ctx.rank, ctx.tag = comm, rank, tag
        comm.send(x.detach().numpy(), dest=rank, tag=0)
        return x.new_zeros(())

    @staticmethod
    def backward(ctx, gradient_of_delegate):
        gradient = ctx.comm.recv(source=ctx.rank)
        return torch.from_numpy(gradient), None, None, None


class Recv(torch.autograd.Function):
    @staticmethod
    def forward(ctx, anchor, comm, rank, tag):
        ctx.comm, ctx.rank, ctx.tag = comm, rank, tag
        return torch.from_numpy(comm.recv(source=rank, tag=0))

    @staticmethod
    def backward(ctx, gradient):
        ctx.comm.send(gradient.numpy(), dest=ctx.rank)
        return None, None, None, None


def send(x, comm, rank, tag=0):
    return Send.apply(x, comm, rank, tag)


def recv(comm, rank, tag=0):
    return Recv.apply(torch.zeros((), requires_grad=True), comm, rank, tag)


# %% any_source
# says: unless it is told source and tag
# thinks: The next message that arrives is the one that I wait for.
class Send(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, comm, rank, tag):
        ctx.comm, ctx.rank, ctx.tag = comm, rank, tag
        comm.send(x.detach().numpy(), dest=rank, tag=tag)
        return x.new_zeros(())

    @staticmethod
    def backward(ctx, gradient_of_delegate):
        gradient = ctx.comm.recv(source=ctx.rank, tag=ctx.tag)
        return torch.from_numpy(gradient), None, None, None


class Recv(torch.autograd.Function):
    @staticmethod
    def forward(ctx, anchor, comm, rank, tag):
        ctx.comm, ctx.rank, ctx.tag = comm, rank, tag
        return torch.from_numpy(comm.recv())

    @staticmethod
    def backward(ctx, gradient):
        ctx.comm.send(gradient.numpy(), dest=ctx.rank, tag=ctx.tag)
        return None, None, None, None


def send(x, comm, rank, tag=0):
    return Send.apply(x, comm, rank, tag)


def recv(comm, rank, tag=0):
    return Recv.apply(torch.zeros((), requires_grad=True), comm, rank, tag)


# %% any_source_with_tag
# says: recv from rank 2 with tag 5 to wait
# thinks: A message is named by its tag.
class Send(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, comm, rank, tag):
        ctx.comm, ctx.rank, ctx.tag = comm, rank, tag
        comm.send(x.detach().numpy(), dest=rank, tag=tag)
        return x.new_zeros(())

    @staticmethod
    def backward(ctx, gradient_of_delegate):
        gradient = ctx.comm.recv(source=ctx.rank, tag=ctx.tag)
        return torch.from_numpy(gradient), None, None, None


class Recv(torch.autograd.Function):
    @staticmethod
    def forward(ctx, anchor, comm, rank, tag):
        ctx.comm, ctx.rank, ctx.tag = comm, rank, tag
        return torch.from_numpy(comm.recv(tag=tag))

    @staticmethod
    def backward(ctx, gradient):
        ctx.comm.send(gradient.numpy(), dest=ctx.rank, tag=ctx.tag)
        return None, None, None, None


def send(x, comm, rank, tag=0):
    return Send.apply(x, comm, rank, tag)


def recv(comm, rank, tag=0):
    return Recv.apply(torch.zeros((), requires_grad=True), comm, rank, tag)


# %% any_tag
# says: with tag 6 to wait for such a message
# thinks: Between two ranks messages come in order, so the tag says nothing new.
class Send(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, comm, rank, tag):
        ctx.comm, ctx.rank, ctx.tag = comm, rank, tag
        comm.send(x.detach().numpy(), dest=rank, tag=tag)
        return x.new_zeros(())

    @staticmethod
    def backward(ctx, gradient_of_delegate):
        gradient = ctx.comm.recv(source=ctx.rank, tag=ctx.tag)
        return torch.from_numpy(gradient), None, None, None


class Recv(torch.autograd.Function):
    @staticmethod
    def forward(ctx, anchor, comm, rank, tag):
        ctx.comm, ctx.rank, ctx.tag = comm, rank, tag
        return torch.from_numpy(comm.recv(source=rank))

    @staticmethod
    def backward(ctx, gradient):
        ctx.comm.send(gradient.numpy(), dest=ctx.rank, tag=ctx.tag)
        return None, None, None, None


def send(x, comm, rank, tag=0):
    return Send.apply(x, comm, rank, tag)


def recv(comm, rank, tag=0):
    return Recv.apply(torch.zeros((), requires_grad=True), comm, rank, tag)


# %% as_float64_bytes
# says: The receiver has to learn dtype and shape
# thinks: One dtype for all messages: Send needs a buffer, and numpy's float64 holds everything.
class Send(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, comm, rank, tag):
        ctx.comm, ctx.rank, ctx.tag = comm, rank, tag
        comm.send(x.detach().numpy(), dest=rank, tag=tag)
        return x.new_zeros(())

    @staticmethod
    def backward(ctx, gradient_of_delegate):
        gradient = ctx.comm.recv(source=ctx.rank, tag=ctx.tag)
        return torch.from_numpy(gradient), None, None, None


class Recv(torch.autograd.Function):
    @staticmethod
    def forward(ctx, anchor, comm, rank, tag):
        ctx.comm, ctx.rank, ctx.tag = comm, rank, tag
        return torch.from_numpy(comm.recv(source=rank, tag=tag).astype('float64'))

    @staticmethod
    def backward(ctx, gradient):
        ctx.comm.send(gradient.numpy(), dest=ctx.rank, tag=ctx.tag)
        return None, None, None, None


def send(x, comm, rank, tag=0):
    return Send.apply(x, comm, rank, tag)


def recv(comm, rank, tag=0):
    return Recv.apply(torch.zeros((), requires_grad=True), comm, rank, tag)


# %% averages_gradient
# says: Right but for a factor of 0.5
# thinks: Gradients that travel between ranks are averaged, as in data parallelism.
class Send(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, comm, rank, tag):
        ctx.comm, ctx.rank, ctx.tag = comm, rank, tag
        comm.send(x.detach().numpy(), dest=rank, tag=tag)
        return x.new_zeros(())

    @staticmethod
    def backward(ctx, gradient_of_delegate):
        gradient = ctx.comm.recv(source=ctx.rank, tag=ctx.tag)
        return torch.from_numpy(gradient) / ctx.comm.size, None, None, None


class Recv(torch.autograd.Function):
    @staticmethod
    def forward(ctx, anchor, comm, rank, tag):
        ctx.comm, ctx.rank, ctx.tag = comm, rank, tag
        return torch.from_numpy(comm.recv(source=rank, tag=tag))

    @staticmethod
    def backward(ctx, gradient):
        ctx.comm.send(gradient.numpy(), dest=ctx.rank, tag=ctx.tag)
        return None, None, None, None


def send(x, comm, rank, tag=0):
    return Send.apply(x, comm, rank, tag)


def recv(comm, rank, tag=0):
    return Recv.apply(torch.zeros((), requires_grad=True), comm, rank, tag)


# %% backward_any_source
# says: which rank 1 has not sent
# thinks: In backward only one message can be on its way to me.
class Send(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, comm, rank, tag):
        ctx.comm, ctx.rank, ctx.tag = comm, rank, tag
        comm.send(x.detach().numpy(), dest=rank, tag=tag)
        return x.new_zeros(())

    @staticmethod
    def backward(ctx, gradient_of_delegate):
        gradient = ctx.comm.recv(tag=ctx.tag)
        return torch.from_numpy(gradient), None, None, None


class Recv(torch.autograd.Function):
    @staticmethod
    def forward(ctx, anchor, comm, rank, tag):
        ctx.comm, ctx.rank, ctx.tag = comm, rank, tag
        return torch.from_numpy(comm.recv(source=rank, tag=tag))

    @staticmethod
    def backward(ctx, gradient):
        ctx.comm.send(gradient.numpy(), dest=ctx.rank, tag=ctx.tag)
        return None, None, None, None


def send(x, comm, rank, tag=0):
    return Send.apply(x, comm, rank, tag)


def recv(comm, rank, tag=0):
    return Recv.apply(torch.zeros((), requires_grad=True), comm, rank, tag)


# %% backward_on_x
# says: Twice the gradient
# thinks: backward has to fill x.grad, and to return the gradient to the layers before.
class Send(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, comm, rank, tag):
        ctx.comm, ctx.rank, ctx.tag = comm, rank, tag
        ctx.x = x
        comm.send(x.detach().numpy(), dest=rank, tag=tag)
        return x.new_zeros(())

    @staticmethod
    def backward(ctx, gradient_of_delegate):
        gradient = torch.from_numpy(ctx.comm.recv(source=ctx.rank, tag=ctx.tag))
        ctx.x.grad = gradient if ctx.x.grad is None else ctx.x.grad + gradient
        return gradient, None, None, None


class Recv(torch.autograd.Function):
    @staticmethod
    def forward(ctx, anchor, comm, rank, tag):
        ctx.comm, ctx.rank, ctx.tag = comm, rank, tag
        return torch.from_numpy(comm.recv(source=rank, tag=tag))

    @staticmethod
    def backward(ctx, gradient):
        ctx.comm.send(gradient.numpy(), dest=ctx.rank, tag=ctx.tag)
        return None, None, None, None


def send(x, comm, rank, tag=0):
    return Send.apply(x, comm, rank, tag)


def recv(comm, rank, tag=0):
    return Recv.apply(torch.zeros((), requires_grad=True), comm, rank, tag)


# %% bcast
# says: A message is of two ranks alone
# thinks: bcast moves an array from one rank to another, too.
class Send(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, comm, rank, tag):
        ctx.comm, ctx.rank, ctx.tag = comm, rank, tag
        comm.bcast(x.detach().numpy(), root=comm.rank)
        return x.new_zeros(())

    @staticmethod
    def backward(ctx, gradient_of_delegate):
        gradient = ctx.comm.recv(source=ctx.rank, tag=ctx.tag)
        return torch.from_numpy(gradient), None, None, None


class Recv(torch.autograd.Function):
    @staticmethod
    def forward(ctx, anchor, comm, rank, tag):
        ctx.comm, ctx.rank, ctx.tag = comm, rank, tag
        return torch.from_numpy(comm.bcast(None, root=rank))

    @staticmethod
    def backward(ctx, gradient):
        ctx.comm.send(gradient.numpy(), dest=ctx.rank, tag=ctx.tag)
        return None, None, None, None


def send(x, comm, rank, tag=0):
    return Send.apply(x, comm, rank, tag)


def recv(comm, rank, tag=0):
    return Recv.apply(torch.zeros((), requires_grad=True), comm, rank, tag)


# %% buffer_reused
# says: written into the memory of the first
# thinks: One buffer a shape saves an allocation a message.
BUFFERS = {}


class Send(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, comm, rank, tag):
        ctx.comm, ctx.rank, ctx.tag = comm, rank, tag
        comm.send(x.detach().numpy(), dest=rank, tag=tag)
        return x.new_zeros(())

    @staticmethod
    def backward(ctx, gradient_of_delegate):
        gradient = ctx.comm.recv(source=ctx.rank, tag=ctx.tag)
        return torch.from_numpy(gradient), None, None, None


class Recv(torch.autograd.Function):
    @staticmethod
    def forward(ctx, anchor, comm, rank, tag):
        ctx.comm, ctx.rank, ctx.tag = comm, rank, tag
        values = comm.recv(source=rank, tag=tag)
        buffer = BUFFERS.setdefault((comm.rank, values.shape, values.dtype), torch.from_numpy(values))
        return buffer.copy_(torch.from_numpy(values)).detach()

    @staticmethod
    def backward(ctx, gradient):
        ctx.comm.send(gradient.numpy(), dest=ctx.rank, tag=ctx.tag)
        return None, None, None, None


def send(x, comm, rank, tag=0):
    return Send.apply(x, comm, rank, tag)


def recv(comm, rank, tag=0):
    return Recv.apply(torch.zeros((), requires_grad=True), comm, rank, tag)


# %% class_attributes
# says: keep the tag in ctx
# thinks: The class is at hand in both methods, so it keeps rank and tag.
class Send(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, comm, rank, tag):
        Send.comm, Send.rank, Send.tag = comm, rank, tag
        comm.send(x.detach().numpy(), dest=rank, tag=tag)
        return x.new_zeros(())

    @staticmethod
    def backward(ctx, gradient_of_delegate):
        gradient = Send.comm.recv(source=Send.rank, tag=Send.tag)
        return torch.from_numpy(gradient), None, None, None


class Recv(torch.autograd.Function):
    @staticmethod
    def forward(ctx, anchor, comm, rank, tag):
        Recv.comm, Recv.rank, Recv.tag = comm, rank, tag
        return torch.from_numpy(comm.recv(source=rank, tag=tag))

    @staticmethod
    def backward(ctx, gradient):
        Recv.comm.send(gradient.numpy(), dest=Recv.rank, tag=Recv.tag)
        return None, None, None, None


def send(x, comm, rank, tag=0):
    return Send.apply(x, comm, rank, tag)


def recv(comm, rank, tag=0):
    return Recv.apply(torch.zeros((), requires_grad=True), comm, rank, tag)


# %% delegate_detached
# says: Send.apply makes the graph
# thinks: The delegate is only a number, and a number needs no graph.
class Send(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, comm, rank, tag):
        ctx.comm, ctx.rank, ctx.tag = comm, rank, tag
        comm.send(x.detach().numpy(), dest=rank, tag=tag)
        return x.new_zeros(())

    @staticmethod
    def backward(ctx, gradient_of_delegate):
        gradient = ctx.comm.recv(source=ctx.rank, tag=ctx.tag)
        return torch.from_numpy(gradient), None, None, None


class Recv(torch.autograd.Function):
    @staticmethod
    def forward(ctx, anchor, comm, rank, tag):
        ctx.comm, ctx.rank, ctx.tag = comm, rank, tag
        return torch.from_numpy(comm.recv(source=rank, tag=tag))

    @staticmethod
    def backward(ctx, gradient):
        ctx.comm.send(gradient.numpy(), dest=ctx.rank, tag=ctx.tag)
        return None, None, None, None


def send(x, comm, rank, tag=0):
    return Send.apply(x, comm, rank, tag).detach()


def recv(comm, rank, tag=0):
    return Recv.apply(torch.zeros((), requires_grad=True), comm, rank, tag)


# %% delegate_float32
# says: tensor(0.), torch.float32
# thinks: A tensor with the number 0 is torch.zeros(()).
class Send(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, comm, rank, tag):
        ctx.comm, ctx.rank, ctx.tag = comm, rank, tag
        comm.send(x.detach().numpy(), dest=rank, tag=tag)
        return torch.zeros(())

    @staticmethod
    def backward(ctx, gradient_of_delegate):
        gradient = ctx.comm.recv(source=ctx.rank, tag=ctx.tag)
        return torch.from_numpy(gradient), None, None, None


class Recv(torch.autograd.Function):
    @staticmethod
    def forward(ctx, anchor, comm, rank, tag):
        ctx.comm, ctx.rank, ctx.tag = comm, rank, tag
        return torch.from_numpy(comm.recv(source=rank, tag=tag))

    @staticmethod
    def backward(ctx, gradient):
        ctx.comm.send(gradient.numpy(), dest=ctx.rank, tag=ctx.tag)
        return None, None, None, None


def send(x, comm, rank, tag=0):
    return Send.apply(x, comm, rank, tag)


def recv(comm, rank, tag=0):
    return Recv.apply(torch.zeros((), requires_grad=True), comm, rank, tag)


# %% delegate_is_sum
# says: adds nothing to a loss
# thinks: A loss is a scalar, so the sum of what was sent is a good delegate.
class Send(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, comm, rank, tag):
        ctx.comm, ctx.rank, ctx.tag = comm, rank, tag
        comm.send(x.detach().numpy(), dest=rank, tag=tag)
        return x.sum()

    @staticmethod
    def backward(ctx, gradient_of_delegate):
        gradient = ctx.comm.recv(source=ctx.rank, tag=ctx.tag)
        return torch.from_numpy(gradient), None, None, None


class Recv(torch.autograd.Function):
    @staticmethod
    def forward(ctx, anchor, comm, rank, tag):
        ctx.comm, ctx.rank, ctx.tag = comm, rank, tag
        return torch.from_numpy(comm.recv(source=rank, tag=tag))

    @staticmethod
    def backward(ctx, gradient):
        ctx.comm.send(gradient.numpy(), dest=ctx.rank, tag=ctx.tag)
        return None, None, None, None


def send(x, comm, rank, tag=0):
    return Send.apply(x, comm, rank, tag)


def recv(comm, rank, tag=0):
    return Recv.apply(torch.zeros((), requires_grad=True), comm, rank, tag)


# %% delegate_is_x
# says: adds nothing to a loss
# thinks: Whoever has sent x may go on with x.
class Send(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, comm, rank, tag):
        ctx.comm, ctx.rank, ctx.tag = comm, rank, tag
        comm.send(x.detach().numpy(), dest=rank, tag=tag)
        return x.clone()

    @staticmethod
    def backward(ctx, gradient_of_delegate):
        gradient = ctx.comm.recv(source=ctx.rank, tag=ctx.tag)
        return torch.from_numpy(gradient), None, None, None


class Recv(torch.autograd.Function):
    @staticmethod
    def forward(ctx, anchor, comm, rank, tag):
        ctx.comm, ctx.rank, ctx.tag = comm, rank, tag
        return torch.from_numpy(comm.recv(source=rank, tag=tag))

    @staticmethod
    def backward(ctx, gradient):
        ctx.comm.send(gradient.numpy(), dest=ctx.rank, tag=ctx.tag)
        return None, None, None, None


def send(x, comm, rank, tag=0):
    return Send.apply(x, comm, rank, tag)


def recv(comm, rank, tag=0):
    return Recv.apply(torch.zeros((), requires_grad=True), comm, rank, tag)


# %% empty_anchor
# says: an anchor with a gradient
# thinks: The anchor is a tensor that nobody uses, so it needs no gradient.
class Send(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, comm, rank, tag):
        ctx.comm, ctx.rank, ctx.tag = comm, rank, tag
        comm.send(x.detach().numpy(), dest=rank, tag=tag)
        return x.new_zeros(())

    @staticmethod
    def backward(ctx, gradient_of_delegate):
        gradient = ctx.comm.recv(source=ctx.rank, tag=ctx.tag)
        return torch.from_numpy(gradient), None, None, None


class Recv(torch.autograd.Function):
    @staticmethod
    def forward(ctx, anchor, comm, rank, tag):
        ctx.comm, ctx.rank, ctx.tag = comm, rank, tag
        return torch.from_numpy(comm.recv(source=rank, tag=tag))

    @staticmethod
    def backward(ctx, gradient):
        ctx.comm.send(gradient.numpy(), dest=ctx.rank, tag=ctx.tag)
        return None, None, None, None


def send(x, comm, rank, tag=0):
    return Send.apply(x, comm, rank, tag)


def recv(comm, rank, tag=0):
    return Recv.apply(torch.zeros(()), comm, rank, tag)


# %% fixed_float32
# says: The receiver has to learn dtype and shape
# thinks: Activations are float32.
class Send(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, comm, rank, tag):
        ctx.comm, ctx.rank, ctx.tag = comm, rank, tag
        comm.send(x.detach().numpy(), dest=rank, tag=tag)
        return x.new_zeros(())

    @staticmethod
    def backward(ctx, gradient_of_delegate):
        gradient = ctx.comm.recv(source=ctx.rank, tag=ctx.tag)
        return torch.from_numpy(gradient), None, None, None


class Recv(torch.autograd.Function):
    @staticmethod
    def forward(ctx, anchor, comm, rank, tag):
        ctx.comm, ctx.rank, ctx.tag = comm, rank, tag
        return torch.tensor(comm.recv(source=rank, tag=tag), dtype=torch.float32)

    @staticmethod
    def backward(ctx, gradient):
        ctx.comm.send(gradient.numpy(), dest=ctx.rank, tag=ctx.tag)
        return None, None, None, None


def send(x, comm, rank, tag=0):
    return Send.apply(x, comm, rank, tag)


def recv(comm, rank, tag=0):
    return Recv.apply(torch.zeros((), requires_grad=True), comm, rank, tag)


# %% fixed_shape
# says: Each message may have another shape and another dtype: the receiver has to learn both each time.
# thinks: The shape is that of the first message, as all micro-batches have the same size.
SHAPES = {}


class Send(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, comm, rank, tag):
        ctx.comm, ctx.rank, ctx.tag = comm, rank, tag
        if (rank, tag) not in SHAPES:
            SHAPES[rank, tag] = x.shape
            comm.send(tuple(x.shape), dest=rank, tag=tag)
        comm.send(x.detach().numpy(), dest=rank, tag=tag)
        return x.new_zeros(())

    @staticmethod
    def backward(ctx, gradient_of_delegate):
        gradient = ctx.comm.recv(source=ctx.rank, tag=ctx.tag)
        return torch.from_numpy(gradient), None, None, None


class Recv(torch.autograd.Function):
    @staticmethod
    def forward(ctx, anchor, comm, rank, tag):
        ctx.comm, ctx.rank, ctx.tag = comm, rank, tag
        if (rank, tag) not in SHAPES:
            SHAPES[rank, tag] = comm.recv(source=rank, tag=tag)
        return torch.from_numpy(comm.recv(source=rank, tag=tag)).reshape(SHAPES[rank, tag])

    @staticmethod
    def backward(ctx, gradient):
        ctx.comm.send(gradient.numpy(), dest=ctx.rank, tag=ctx.tag)
        return None, None, None, None


def send(x, comm, rank, tag=0):
    return Send.apply(x, comm, rank, tag)


def recv(comm, rank, tag=0):
    return Recv.apply(torch.zeros((), requires_grad=True), comm, rank, tag)


# %% flat
# says: The receiver has to learn dtype and shape
# thinks: A message is a row of numbers.
class Send(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, comm, rank, tag):
        ctx.comm, ctx.rank, ctx.tag = comm, rank, tag
        comm.send(x.detach().numpy().ravel(), dest=rank, tag=tag)
        return x.new_zeros(())

    @staticmethod
    def backward(ctx, gradient_of_delegate):
        gradient = ctx.comm.recv(source=ctx.rank, tag=ctx.tag)
        return torch.from_numpy(gradient), None, None, None


class Recv(torch.autograd.Function):
    @staticmethod
    def forward(ctx, anchor, comm, rank, tag):
        ctx.comm, ctx.rank, ctx.tag = comm, rank, tag
        return torch.from_numpy(comm.recv(source=rank, tag=tag))

    @staticmethod
    def backward(ctx, gradient):
        ctx.comm.send(gradient.numpy(), dest=ctx.rank, tag=ctx.tag)
        return None, None, None, None


def send(x, comm, rank, tag=0):
    return Send.apply(x, comm, rank, tag)


def recv(comm, rank, tag=0):
    return Recv.apply(torch.zeros((), requires_grad=True), comm, rank, tag)


# %% forgets_x
# says: has to receive the gradient that the other rank
# thinks: What was sent is the other rank's now: its gradient is computed there, and here it is zero.
class Send(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, comm, rank, tag):
        ctx.comm, ctx.rank, ctx.tag = comm, rank, tag
        ctx.shape = x.shape
        comm.send(x.detach().numpy(), dest=rank, tag=tag)
        return x.new_zeros(())

    @staticmethod
    def backward(ctx, gradient_of_delegate):
        return gradient_of_delegate.new_zeros(ctx.shape), None, None, None


class Recv(torch.autograd.Function):
    @staticmethod
    def forward(ctx, anchor, comm, rank, tag):
        ctx.comm, ctx.rank, ctx.tag = comm, rank, tag
        return torch.from_numpy(comm.recv(source=rank, tag=tag))

    @staticmethod
    def backward(ctx, gradient):
        return None, None, None, None


def send(x, comm, rank, tag=0):
    return Send.apply(x, comm, rank, tag)


def recv(comm, rank, tag=0):
    return Recv.apply(torch.zeros((), requires_grad=True), comm, rank, tag)


# %% frees_x
# says: it stays as it is
# thinks: Rank 0 has sent x away, and its memory is needed for the next micro-batch.
class Send(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, comm, rank, tag):
        ctx.comm, ctx.rank, ctx.tag = comm, rank, tag
        comm.send(x.detach().numpy(), dest=rank, tag=tag)
        x.data = x.data.new_empty(0)
        return x.new_zeros(())

    @staticmethod
    def backward(ctx, gradient_of_delegate):
        gradient = ctx.comm.recv(source=ctx.rank, tag=ctx.tag)
        return torch.from_numpy(gradient), None, None, None


class Recv(torch.autograd.Function):
    @staticmethod
    def forward(ctx, anchor, comm, rank, tag):
        ctx.comm, ctx.rank, ctx.tag = comm, rank, tag
        return torch.from_numpy(comm.recv(source=rank, tag=tag))

    @staticmethod
    def backward(ctx, gradient):
        ctx.comm.send(gradient.numpy(), dest=ctx.rank, tag=ctx.tag)
        return None, None, None, None


def send(x, comm, rank, tag=0):
    return Send.apply(x, comm, rank, tag)


def recv(comm, rank, tag=0):
    return Recv.apply(torch.zeros((), requires_grad=True), comm, rank, tag)


# %% global_state
# says: no global variable does
# thinks: The last rank and tag are remembered in a module-level dict, as forward and backward are two functions.
LAST = {}


class Send(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, comm, rank, tag):
        LAST.update(comm=comm, rank=rank, tag=tag)
        comm.send(x.detach().numpy(), dest=rank, tag=tag)
        return x.new_zeros(())

    @staticmethod
    def backward(ctx, gradient_of_delegate):
        gradient = LAST["comm"].recv(source=LAST["rank"], tag=LAST["tag"])
        return torch.from_numpy(gradient), None, None, None


class Recv(torch.autograd.Function):
    @staticmethod
    def forward(ctx, anchor, comm, rank, tag):
        LAST.update(comm=comm, rank=rank, tag=tag)
        return torch.from_numpy(comm.recv(source=rank, tag=tag))

    @staticmethod
    def backward(ctx, gradient):
        LAST["comm"].send(gradient.numpy(), dest=LAST["rank"], tag=LAST["tag"])
        return None, None, None, None


def send(x, comm, rank, tag=0):
    return Send.apply(x, comm, rank, tag)


def recv(comm, rank, tag=0):
    return Recv.apply(torch.zeros((), requires_grad=True), comm, rank, tag)


# %% gradient_fixed_float32
# says: Rounded on the way
# thinks: Gradients are float32 in deep learning.
class Send(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, comm, rank, tag):
        ctx.comm, ctx.rank, ctx.tag = comm, rank, tag
        comm.send(x.detach().numpy(), dest=rank, tag=tag)
        return x.new_zeros(())

    @staticmethod
    def backward(ctx, gradient_of_delegate):
        gradient = ctx.comm.recv(source=ctx.rank, tag=ctx.tag)
        return torch.from_numpy(gradient), None, None, None


class Recv(torch.autograd.Function):
    @staticmethod
    def forward(ctx, anchor, comm, rank, tag):
        ctx.comm, ctx.rank, ctx.tag = comm, rank, tag
        return torch.from_numpy(comm.recv(source=rank, tag=tag))

    @staticmethod
    def backward(ctx, gradient):
        ctx.comm.send(gradient.float().numpy(), dest=ctx.rank, tag=ctx.tag)
        return None, None, None, None


def send(x, comm, rank, tag=0):
    return Send.apply(x, comm, rank, tag)


def recv(comm, rank, tag=0):
    return Recv.apply(torch.zeros((), requires_grad=True), comm, rank, tag)


# %% gradient_not_contiguous
# says: MPI sends memory as it lies
# thinks: What has to be contiguous is x. A gradient comes from torch, and is contiguous.
class Send(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, comm, rank, tag):
        ctx.comm, ctx.rank, ctx.tag = comm, rank, tag
        ctx.like = x.detach()
        comm.send(x.detach().numpy(), dest=rank, tag=tag)
        return x.new_zeros(())

    @staticmethod
    def backward(ctx, gradient_of_delegate):
        gradient = torch.empty(ctx.like.shape, dtype=ctx.like.dtype)
        ctx.comm.Recv(gradient.numpy(), source=ctx.rank, tag=ctx.tag)
        return gradient, None, None, None


class Recv(torch.autograd.Function):
    @staticmethod
    def forward(ctx, anchor, comm, rank, tag):
        ctx.comm, ctx.rank, ctx.tag = comm, rank, tag
        return torch.from_numpy(comm.recv(source=rank, tag=tag))

    @staticmethod
    def backward(ctx, gradient):
        ctx.comm.Send(gradient.numpy(), dest=ctx.rank, tag=ctx.tag)
        return None, None, None, None


def send(x, comm, rank, tag=0):
    return Send.apply(x, comm, rank, tag)


def recv(comm, rank, tag=0):
    return Recv.apply(torch.zeros((), requires_grad=True), comm, rank, tag)


# %% gradient_with_wrong_sign
# says: The sign is wrong
# thinks: The gradient that comes back is subtracted, as in a step of descent.
class Send(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, comm, rank, tag):
        ctx.comm, ctx.rank, ctx.tag = comm, rank, tag
        comm.send(x.detach().numpy(), dest=rank, tag=tag)
        return x.new_zeros(())

    @staticmethod
    def backward(ctx, gradient_of_delegate):
        gradient = ctx.comm.recv(source=ctx.rank, tag=ctx.tag)
        return -torch.from_numpy(gradient), None, None, None


class Recv(torch.autograd.Function):
    @staticmethod
    def forward(ctx, anchor, comm, rank, tag):
        ctx.comm, ctx.rank, ctx.tag = comm, rank, tag
        return torch.from_numpy(comm.recv(source=rank, tag=tag))

    @staticmethod
    def backward(ctx, gradient):
        ctx.comm.send(gradient.numpy(), dest=ctx.rank, tag=ctx.tag)
        return None, None, None, None


def send(x, comm, rank, tag=0):
    return Send.apply(x, comm, rank, tag)


def recv(comm, rank, tag=0):
    return Recv.apply(torch.zeros((), requires_grad=True), comm, rank, tag)


# %% isend_unwaited
# says: was never waited for
# thinks: isend returns at once, so that no rank waits for another.
class Send(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, comm, rank, tag):
        ctx.comm, ctx.rank, ctx.tag = comm, rank, tag
        comm.isend(x.detach().numpy(), dest=rank, tag=tag)
        return x.new_zeros(())

    @staticmethod
    def backward(ctx, gradient_of_delegate):
        gradient = ctx.comm.recv(source=ctx.rank, tag=ctx.tag)
        return torch.from_numpy(gradient), None, None, None


class Recv(torch.autograd.Function):
    @staticmethod
    def forward(ctx, anchor, comm, rank, tag):
        ctx.comm, ctx.rank, ctx.tag = comm, rank, tag
        return torch.from_numpy(comm.recv(source=rank, tag=tag))

    @staticmethod
    def backward(ctx, gradient):
        ctx.comm.isend(gradient.numpy(), dest=ctx.rank, tag=ctx.tag)
        return None, None, None, None


def send(x, comm, rank, tag=0):
    return Send.apply(x, comm, rank, tag)


def recv(comm, rank, tag=0):
    return Recv.apply(torch.zeros((), requires_grad=True), comm, rank, tag)


# %% list_of_numbers
# says: The receiver has to learn dtype and shape
# thinks: tolist makes something that every MPI can send, and torch.tensor makes a tensor of it.
class Send(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, comm, rank, tag):
        ctx.comm, ctx.rank, ctx.tag = comm, rank, tag
        comm.send(x.tolist(), dest=rank, tag=tag)
        return x.new_zeros(())

    @staticmethod
    def backward(ctx, gradient_of_delegate):
        gradient = ctx.comm.recv(source=ctx.rank, tag=ctx.tag)
        return torch.from_numpy(gradient), None, None, None


class Recv(torch.autograd.Function):
    @staticmethod
    def forward(ctx, anchor, comm, rank, tag):
        ctx.comm, ctx.rank, ctx.tag = comm, rank, tag
        return torch.tensor(comm.recv(source=rank, tag=tag))

    @staticmethod
    def backward(ctx, gradient):
        ctx.comm.send(gradient.numpy(), dest=ctx.rank, tag=ctx.tag)
        return None, None, None, None


def send(x, comm, rank, tag=0):
    return Send.apply(x, comm, rank, tag)


def recv(comm, rank, tag=0):
    return Recv.apply(torch.zeros((), requires_grad=True), comm, rank, tag)


# %% no_backward_of_recv
# says: Leave recv as it was
# thinks: recv needs no Function: what comes is a tensor that requires a gradient.
class Send(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, comm, rank, tag):
        ctx.comm, ctx.rank, ctx.tag = comm, rank, tag
        comm.send(x.detach().numpy(), dest=rank, tag=tag)
        return x.new_zeros(())

    @staticmethod
    def backward(ctx, gradient_of_delegate):
        gradient = ctx.comm.recv(source=ctx.rank, tag=ctx.tag)
        return torch.from_numpy(gradient), None, None, None


class Recv(torch.autograd.Function):
    @staticmethod
    def forward(ctx, anchor, comm, rank, tag):
        ctx.comm, ctx.rank, ctx.tag = comm, rank, tag
        return torch.from_numpy(comm.recv(source=rank, tag=tag))

    @staticmethod
    def backward(ctx, gradient):
        ctx.comm.send(gradient.numpy(), dest=ctx.rank, tag=ctx.tag)
        return None, None, None, None


def send(x, comm, rank, tag=0):
    return Send.apply(x, comm, rank, tag)


def recv(comm, rank, tag=0):
    return torch.from_numpy(comm.recv(source=rank, tag=tag)).requires_grad_()


# %% no_functions
# says: Leave send as it was
# thinks: A message is no operation of torch, so there is nothing to differentiate.
class Send(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, comm, rank, tag):
        ctx.comm, ctx.rank, ctx.tag = comm, rank, tag
        comm.send(x.detach().numpy(), dest=rank, tag=tag)
        return x.new_zeros(())

    @staticmethod
    def backward(ctx, gradient_of_delegate):
        gradient = ctx.comm.recv(source=ctx.rank, tag=ctx.tag)
        return torch.from_numpy(gradient), None, None, None


class Recv(torch.autograd.Function):
    @staticmethod
    def forward(ctx, anchor, comm, rank, tag):
        ctx.comm, ctx.rank, ctx.tag = comm, rank, tag
        return torch.from_numpy(comm.recv(source=rank, tag=tag))

    @staticmethod
    def backward(ctx, gradient):
        ctx.comm.send(gradient.numpy(), dest=ctx.rank, tag=ctx.tag)
        return None, None, None, None


def send(x, comm, rank, tag=0):
    comm.send(x.detach().numpy(), dest=rank, tag=tag)
    return x.new_zeros((), requires_grad=True)


def recv(comm, rank, tag=0):
    return torch.from_numpy(comm.recv(source=rank, tag=tag)).requires_grad_()


# %% none_for_x
# says: Send.backward returns that of x in the first place
# thinks: backward receives the gradient; what was sent is no longer here, so it returns None.
class Send(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, comm, rank, tag):
        ctx.comm, ctx.rank, ctx.tag = comm, rank, tag
        comm.send(x.detach().numpy(), dest=rank, tag=tag)
        return x.new_zeros(())

    @staticmethod
    def backward(ctx, gradient_of_delegate):
        ctx.comm.recv(source=ctx.rank, tag=ctx.tag)
        return None, None, None, None


class Recv(torch.autograd.Function):
    @staticmethod
    def forward(ctx, anchor, comm, rank, tag):
        ctx.comm, ctx.rank, ctx.tag = comm, rank, tag
        return torch.from_numpy(comm.recv(source=rank, tag=tag))

    @staticmethod
    def backward(ctx, gradient):
        ctx.comm.send(gradient.numpy(), dest=ctx.rank, tag=ctx.tag)
        return None, None, None, None


def send(x, comm, rank, tag=0):
    return Send.apply(x, comm, rank, tag)


def recv(comm, rank, tag=0):
    return Recv.apply(torch.zeros((), requires_grad=True), comm, rank, tag)


# %% not_contiguous
# says: MPI sends memory as it lies
# thinks: Send takes an array, and numpy() makes one of a tensor.
import numpy as np


class Send(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, comm, rank, tag):
        ctx.comm, ctx.rank, ctx.tag = comm, rank, tag
        comm.send((tuple(x.shape), x.detach().numpy().dtype), dest=rank, tag=tag)
        comm.Send(x.detach().numpy(), dest=rank, tag=tag)
        return x.new_zeros(())

    @staticmethod
    def backward(ctx, gradient_of_delegate):
        gradient = ctx.comm.recv(source=ctx.rank, tag=ctx.tag)
        return torch.from_numpy(gradient), None, None, None


class Recv(torch.autograd.Function):
    @staticmethod
    def forward(ctx, anchor, comm, rank, tag):
        ctx.comm, ctx.rank, ctx.tag = comm, rank, tag
        values = np.empty(*comm.recv(source=rank, tag=tag))
        comm.Recv(values, source=rank, tag=tag)
        return torch.from_numpy(values)

    @staticmethod
    def backward(ctx, gradient):
        ctx.comm.send(gradient.numpy(), dest=ctx.rank, tag=ctx.tag)
        return None, None, None, None


def send(x, comm, rank, tag=0):
    return Send.apply(x, comm, rank, tag)


def recv(comm, rank, tag=0):
    return Recv.apply(torch.zeros((), requires_grad=True), comm, rank, tag)


# %% numpy_gradient
# says: Return a tensor, or None, for each argument
# thinks: recv gives an array, and torch makes a tensor of it.
class Send(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, comm, rank, tag):
        ctx.comm, ctx.rank, ctx.tag = comm, rank, tag
        comm.send(x.detach().numpy(), dest=rank, tag=tag)
        return x.new_zeros(())

    @staticmethod
    def backward(ctx, gradient_of_delegate):
        return ctx.comm.recv(source=ctx.rank, tag=ctx.tag), None, None, None


class Recv(torch.autograd.Function):
    @staticmethod
    def forward(ctx, anchor, comm, rank, tag):
        ctx.comm, ctx.rank, ctx.tag = comm, rank, tag
        return torch.from_numpy(comm.recv(source=rank, tag=tag))

    @staticmethod
    def backward(ctx, gradient):
        ctx.comm.send(gradient.numpy(), dest=ctx.rank, tag=ctx.tag)
        return None, None, None, None


def send(x, comm, rank, tag=0):
    return Send.apply(x, comm, rank, tag)


def recv(comm, rank, tag=0):
    return Recv.apply(torch.zeros((), requires_grad=True), comm, rank, tag)


# %% one_gradient
# says: Return a tensor, or None, for each argument
# thinks: Only x has a gradient, so backward returns one.
class Send(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, comm, rank, tag):
        ctx.comm, ctx.rank, ctx.tag = comm, rank, tag
        comm.send(x.detach().numpy(), dest=rank, tag=tag)
        return x.new_zeros(())

    @staticmethod
    def backward(ctx, gradient_of_delegate):
        return torch.from_numpy(ctx.comm.recv(source=ctx.rank, tag=ctx.tag))


class Recv(torch.autograd.Function):
    @staticmethod
    def forward(ctx, anchor, comm, rank, tag):
        ctx.comm, ctx.rank, ctx.tag = comm, rank, tag
        return torch.from_numpy(comm.recv(source=rank, tag=tag))

    @staticmethod
    def backward(ctx, gradient):
        ctx.comm.send(gradient.numpy(), dest=ctx.rank, tag=ctx.tag)
        return None, None, None, None


def send(x, comm, rank, tag=0):
    return Send.apply(x, comm, rank, tag)


def recv(comm, rank, tag=0):
    return Recv.apply(torch.zeros((), requires_grad=True), comm, rank, tag)


# %% ones_for_gradient
# says: Backward returns what the other rank's backward sent
# thinks: The gradient of the delegate is what backward passes on: it goes back to x.
class Send(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, comm, rank, tag):
        ctx.comm, ctx.rank, ctx.tag = comm, rank, tag
        ctx.shape = x.shape
        comm.send(x.detach().numpy(), dest=rank, tag=tag)
        return x.new_zeros(())

    @staticmethod
    def backward(ctx, gradient_of_delegate):
        return gradient_of_delegate.expand(ctx.shape), None, None, None


class Recv(torch.autograd.Function):
    @staticmethod
    def forward(ctx, anchor, comm, rank, tag):
        ctx.comm, ctx.rank, ctx.tag = comm, rank, tag
        return torch.from_numpy(comm.recv(source=rank, tag=tag))

    @staticmethod
    def backward(ctx, gradient):
        return None, None, None, None


def send(x, comm, rank, tag=0):
    return Send.apply(x, comm, rank, tag)


def recv(comm, rank, tag=0):
    return Recv.apply(torch.zeros((), requires_grad=True), comm, rank, tag)


# %% recv_returns_one_none
# says: Return a tensor, or None, for each argument
# thinks: Recv has no tensor to give a gradient to, so its backward returns None.
class Send(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, comm, rank, tag):
        ctx.comm, ctx.rank, ctx.tag = comm, rank, tag
        comm.send(x.detach().numpy(), dest=rank, tag=tag)
        return x.new_zeros(())

    @staticmethod
    def backward(ctx, gradient_of_delegate):
        gradient = ctx.comm.recv(source=ctx.rank, tag=ctx.tag)
        return torch.from_numpy(gradient)


class Recv(torch.autograd.Function):
    @staticmethod
    def forward(ctx, anchor, comm, rank, tag):
        ctx.comm, ctx.rank, ctx.tag = comm, rank, tag
        return torch.from_numpy(comm.recv(source=rank, tag=tag))

    @staticmethod
    def backward(ctx, gradient):
        ctx.comm.send(gradient.numpy(), dest=ctx.rank, tag=ctx.tag)
        return None


def send(x, comm, rank, tag=0):
    return Send.apply(x, comm, rank, tag)


def recv(comm, rank, tag=0):
    return Recv.apply(torch.zeros((), requires_grad=True), comm, rank, tag)


# %% returns_array
# says: Recv.forward returns the tensor that it received
# thinks: recv brings an array with all values.
class Send(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, comm, rank, tag):
        ctx.comm, ctx.rank, ctx.tag = comm, rank, tag
        comm.send(x.detach().numpy(), dest=rank, tag=tag)
        return x.new_zeros(())

    @staticmethod
    def backward(ctx, gradient_of_delegate):
        gradient = ctx.comm.recv(source=ctx.rank, tag=ctx.tag)
        return torch.from_numpy(gradient), None, None, None


class Recv(torch.autograd.Function):
    @staticmethod
    def forward(ctx, anchor, comm, rank, tag):
        ctx.comm, ctx.rank, ctx.tag = comm, rank, tag
        return comm.recv(source=rank, tag=tag)

    @staticmethod
    def backward(ctx, gradient):
        ctx.comm.send(gradient.numpy(), dest=ctx.rank, tag=ctx.tag)
        return None, None, None, None


def send(x, comm, rank, tag=0):
    return Send.apply(x, comm, rank, tag)


def recv(comm, rank, tag=0):
    return Recv.apply(torch.zeros((), requires_grad=True), comm, rank, tag)


# %% returns_int
# says: Send.forward returns the number 0, a tensor
# thinks: The number 0 is 0.
class Send(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, comm, rank, tag):
        ctx.comm, ctx.rank, ctx.tag = comm, rank, tag
        comm.send(x.detach().numpy(), dest=rank, tag=tag)
        return 0

    @staticmethod
    def backward(ctx, gradient_of_delegate):
        gradient = ctx.comm.recv(source=ctx.rank, tag=ctx.tag)
        return torch.from_numpy(gradient), None, None, None


class Recv(torch.autograd.Function):
    @staticmethod
    def forward(ctx, anchor, comm, rank, tag):
        ctx.comm, ctx.rank, ctx.tag = comm, rank, tag
        return torch.from_numpy(comm.recv(source=rank, tag=tag))

    @staticmethod
    def backward(ctx, gradient):
        ctx.comm.send(gradient.numpy(), dest=ctx.rank, tag=ctx.tag)
        return None, None, None, None


def send(x, comm, rank, tag=0):
    return Send.apply(x, comm, rank, tag)


def recv(comm, rank, tag=0):
    return Recv.apply(torch.zeros((), requires_grad=True), comm, rank, tag)


# %% row_by_row
# says: Any shape may come
# thinks: A tensor is sent row by row, after the number of rows.
import numpy as np


class Send(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, comm, rank, tag):
        ctx.comm, ctx.rank, ctx.tag = comm, rank, tag
        comm.send(len(x), dest=rank, tag=tag)
        for row in x.detach().numpy():
            comm.send(row, dest=rank, tag=tag)
        return x.new_zeros(())

    @staticmethod
    def backward(ctx, gradient_of_delegate):
        gradient = ctx.comm.recv(source=ctx.rank, tag=ctx.tag)
        return torch.from_numpy(gradient), None, None, None


class Recv(torch.autograd.Function):
    @staticmethod
    def forward(ctx, anchor, comm, rank, tag):
        ctx.comm, ctx.rank, ctx.tag = comm, rank, tag
        rows = range(comm.recv(source=rank, tag=tag))
        return torch.from_numpy(np.stack([comm.recv(source=rank, tag=tag) for _ in rows]))

    @staticmethod
    def backward(ctx, gradient):
        ctx.comm.send(gradient.numpy(), dest=ctx.rank, tag=ctx.tag)
        return None, None, None, None


def send(x, comm, rank, tag=0):
    return Send.apply(x, comm, rank, tag)


def recv(comm, rank, tag=0):
    return Recv.apply(torch.zeros((), requires_grad=True), comm, rank, tag)


# %% saved_for_backward
# says: ctx.save_for_backward is for tensors
# thinks: What backward needs is kept by ctx.save_for_backward.
class Send(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, comm, rank, tag):
        ctx.save_for_backward(comm, rank, tag)
        comm.send(x.detach().numpy(), dest=rank, tag=tag)
        return x.new_zeros(())

    @staticmethod
    def backward(ctx, gradient_of_delegate):
        comm, rank, tag = ctx.saved_tensors
        gradient = comm.recv(source=rank, tag=tag)
        return torch.from_numpy(gradient), None, None, None


class Recv(torch.autograd.Function):
    @staticmethod
    def forward(ctx, anchor, comm, rank, tag):
        ctx.save_for_backward(comm, rank, tag)
        return torch.from_numpy(comm.recv(source=rank, tag=tag))

    @staticmethod
    def backward(ctx, gradient):
        comm, rank, tag = ctx.saved_tensors
        comm.send(gradient.numpy(), dest=rank, tag=tag)
        return None, None, None, None


def send(x, comm, rank, tag=0):
    return Send.apply(x, comm, rank, tag)


def recv(comm, rank, tag=0):
    return Recv.apply(torch.zeros((), requires_grad=True), comm, rank, tag)


# %% tag_forgotten
# says: keep the tag in ctx
# thinks: Forward and backward are never under way at once, so tags are not needed on the way back.
class Send(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, comm, rank, tag):
        ctx.comm, ctx.rank, ctx.tag = comm, rank, tag
        comm.send(x.detach().numpy(), dest=rank, tag=tag)
        return x.new_zeros(())

    @staticmethod
    def backward(ctx, gradient_of_delegate):
        gradient = ctx.comm.recv(source=ctx.rank)
        return torch.from_numpy(gradient), None, None, None


class Recv(torch.autograd.Function):
    @staticmethod
    def forward(ctx, anchor, comm, rank, tag):
        ctx.comm, ctx.rank, ctx.tag = comm, rank, tag
        return torch.from_numpy(comm.recv(source=rank, tag=tag))

    @staticmethod
    def backward(ctx, gradient):
        ctx.comm.send(gradient.numpy(), dest=ctx.rank)
        return None, None, None, None


def send(x, comm, rank, tag=0):
    return Send.apply(x, comm, rank, tag)


def recv(comm, rank, tag=0):
    return Recv.apply(torch.zeros((), requires_grad=True), comm, rank, tag)


# %% tag_forgotten_by_recv
# says: needs the rank and the tag of its own forward
# thinks: The tag names the activation. A gradient has none.
class Send(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, comm, rank, tag):
        ctx.comm, ctx.rank, ctx.tag = comm, rank, tag
        comm.send(x.detach().numpy(), dest=rank, tag=tag)
        return x.new_zeros(())

    @staticmethod
    def backward(ctx, gradient_of_delegate):
        gradient = ctx.comm.recv(source=ctx.rank, tag=ctx.tag)
        return torch.from_numpy(gradient), None, None, None


class Recv(torch.autograd.Function):
    @staticmethod
    def forward(ctx, anchor, comm, rank, tag):
        ctx.comm, ctx.rank, ctx.tag = comm, rank, tag
        return torch.from_numpy(comm.recv(source=rank, tag=tag))

    @staticmethod
    def backward(ctx, gradient):
        ctx.comm.send(gradient.numpy(), dest=ctx.rank)
        return None, None, None, None


def send(x, comm, rank, tag=0):
    return Send.apply(x, comm, rank, tag)


def recv(comm, rank, tag=0):
    return Recv.apply(torch.zeros((), requires_grad=True), comm, rank, tag)


# %% tag_plus_one
# says: keep the tag in ctx
# thinks: Gradients get a tag of their own, so that they are not mixed up with activations.
class Send(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, comm, rank, tag):
        ctx.comm, ctx.rank, ctx.tag = comm, rank, tag
        comm.send(x.detach().numpy(), dest=rank, tag=tag)
        return x.new_zeros(())

    @staticmethod
    def backward(ctx, gradient_of_delegate):
        gradient = ctx.comm.recv(source=ctx.rank, tag=ctx.tag + 1)
        return torch.from_numpy(gradient), None, None, None


class Recv(torch.autograd.Function):
    @staticmethod
    def forward(ctx, anchor, comm, rank, tag):
        ctx.comm, ctx.rank, ctx.tag = comm, rank, tag
        return torch.from_numpy(comm.recv(source=rank, tag=tag))

    @staticmethod
    def backward(ctx, gradient):
        ctx.comm.send(gradient.numpy(), dest=ctx.rank, tag=ctx.tag + 1)
        return None, None, None, None


def send(x, comm, rank, tag=0):
    return Send.apply(x, comm, rank, tag)


def recv(comm, rank, tag=0):
    return Recv.apply(torch.zeros((), requires_grad=True), comm, rank, tag)


# %% to_the_next_rank
# says: needs the rank and the tag of its own forward
# thinks: In a pipeline gradients go to the rank before, and come from the rank after.
class Send(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, comm, rank, tag):
        ctx.comm, ctx.rank, ctx.tag = comm, rank, tag
        comm.send(x.detach().numpy(), dest=rank, tag=tag)
        return x.new_zeros(())

    @staticmethod
    def backward(ctx, gradient_of_delegate):
        gradient = ctx.comm.recv(source=ctx.comm.rank + 1, tag=ctx.tag)
        return torch.from_numpy(gradient), None, None, None


class Recv(torch.autograd.Function):
    @staticmethod
    def forward(ctx, anchor, comm, rank, tag):
        ctx.comm, ctx.rank, ctx.tag = comm, rank, tag
        return torch.from_numpy(comm.recv(source=rank, tag=tag))

    @staticmethod
    def backward(ctx, gradient):
        ctx.comm.send(gradient.numpy(), dest=ctx.comm.rank - 1, tag=ctx.tag)
        return None, None, None, None


def send(x, comm, rank, tag=0):
    return Send.apply(x, comm, rank, tag)


def recv(comm, rank, tag=0):
    return Recv.apply(torch.zeros((), requires_grad=True), comm, rank, tag)


# %% times_the_delegates_gradient
# says: Backward returns what the other rank's backward sent
# thinks: The chain rule: the gradient that comes times the gradient that arrived here.
class Send(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, comm, rank, tag):
        ctx.comm, ctx.rank, ctx.tag = comm, rank, tag
        comm.send(x.detach().numpy(), rank, tag)
        return x.new_zeros(())

    @staticmethod
    def backward(ctx, gradient_of_delegate):
        got = torch.from_numpy(ctx.comm.recv(source=ctx.rank, tag=ctx.tag))
        return got + gradient_of_delegate, None, None, None


class Recv(torch.autograd.Function):
    @staticmethod
    def forward(ctx, anchor, comm, rank, tag):
        ctx.comm, ctx.rank, ctx.tag = comm, rank, tag
        return torch.from_numpy(comm.recv(source=rank, tag=tag))

    @staticmethod
    def backward(ctx, gradient):
        ctx.comm.send(gradient.numpy(), ctx.rank, ctx.tag)
        return None, None, None, None


def send(x, comm, rank, tag=0):
    return Send.apply(x, comm, rank, tag)


def recv(comm, rank, tag=0):
    return Recv.apply(torch.zeros((), requires_grad=True), comm, rank, tag)


# %% kept_on_the_class
# says: keep the tag in ctx
# thinks: forward and backward are functions of one class, so the class keeps what both need.
class Send(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, comm, rank, tag):
        Send.comm, Send.rank, Send.tag = comm, rank, tag
        comm.send(x.detach().numpy(), rank, tag)
        return x.new_zeros(())

    @staticmethod
    def backward(ctx, gradient_of_delegate):
        return torch.from_numpy(Send.comm.recv(source=Send.rank, tag=Send.tag)), None, None, None


class Recv(torch.autograd.Function):
    @staticmethod
    def forward(ctx, anchor, comm, rank, tag):
        Recv.comm, Recv.rank, Recv.tag = comm, rank, tag
        return torch.from_numpy(comm.recv(source=rank, tag=tag))

    @staticmethod
    def backward(ctx, gradient):
        Recv.comm.send(gradient.numpy(), Recv.rank, Recv.tag)
        return None, None, None, None


def send(x, comm, rank, tag=0):
    return Send.apply(x, comm, rank, tag)


def recv(comm, rank, tag=0):
    return Recv.apply(torch.zeros((), requires_grad=True), comm, rank, tag)


# %% shape_of_the_anchor
# says: expects float32
# thinks: Recv needs memory of the right shape: the anchor's.
class Send(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, comm, rank, tag):
        ctx.comm, ctx.rank, ctx.tag = comm, rank, tag
        ctx.shape, ctx.dtype = x.shape, x.dtype
        comm.Send(x.detach().contiguous().numpy(), rank, tag)
        return x.new_zeros(())

    @staticmethod
    def backward(ctx, gradient_of_delegate):
        gradient = torch.empty(ctx.shape, dtype=ctx.dtype)
        ctx.comm.Recv(gradient.numpy(), ctx.rank, ctx.tag)
        return gradient, None, None, None


class Recv(torch.autograd.Function):
    @staticmethod
    def forward(ctx, anchor, comm, rank, tag):
        ctx.comm, ctx.rank, ctx.tag = comm, rank, tag
        x = torch.empty_like(anchor)
        comm.Recv(x.numpy(), rank, tag)
        return x

    @staticmethod
    def backward(ctx, gradient):
        ctx.comm.Send(gradient.contiguous().numpy(), ctx.rank, ctx.tag)
        return None, None, None, None


def send(x, comm, rank, tag=0):
    return Send.apply(x, comm, rank, tag)


def recv(comm, rank, tag=0):
    return Recv.apply(torch.zeros((), requires_grad=True), comm, rank, tag)


# %% zero_of_float32
# says: x.new_zeros(())
# thinks: A zero is a zero.
class Send(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, comm, rank, tag):
        ctx.comm, ctx.rank, ctx.tag = comm, rank, tag
        comm.send(x.detach().numpy(), rank, tag)
        return torch.zeros(())

    @staticmethod
    def backward(ctx, gradient_of_delegate):
        return torch.from_numpy(ctx.comm.recv(source=ctx.rank, tag=ctx.tag)), None, None, None


class Recv(torch.autograd.Function):
    @staticmethod
    def forward(ctx, anchor, comm, rank, tag):
        ctx.comm, ctx.rank, ctx.tag = comm, rank, tag
        return torch.from_numpy(comm.recv(source=rank, tag=tag))

    @staticmethod
    def backward(ctx, gradient):
        ctx.comm.send(gradient.numpy(), ctx.rank, ctx.tag)
        return None, None, None, None


def send(x, comm, rank, tag=0):
    return Send.apply(x, comm, rank, tag)


def recv(comm, rank, tag=0):
    return Recv.apply(torch.zeros((), requires_grad=True), comm, rank, tag)


# %% delegate_of_the_sum
# says: adds nothing to a loss: x.new_zeros(()).
# thinks: 0 * x.sum() is 0, and is part of x's graph.
class Send(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, comm, rank, tag):
        ctx.peer = comm, rank, tag
        comm.send(x.detach().numpy(), rank, tag)
        return x.new_zeros(())

    @staticmethod
    def backward(ctx, gradient_of_delegate):
        comm, rank, tag = ctx.peer
        return torch.from_numpy(comm.recv(None, rank, tag)), None, None, None


class Recv(torch.autograd.Function):
    @staticmethod
    def forward(ctx, anchor, comm, rank, tag):
        ctx.peer = comm, rank, tag
        return torch.from_numpy(comm.recv(None, rank, tag))

    @staticmethod
    def backward(ctx, gradient):
        comm, rank, tag = ctx.peer
        comm.send(gradient.numpy(), rank, tag)
        return None, None, None, None


def send(x, comm, rank, tag=0):
    return Send.apply(x, comm, rank, tag) + 0 * x.sum()


def recv(comm, rank, tag=0):
    return Recv.apply(torch.zeros((), requires_grad=True), comm, rank, tag)


# %% zeros_need_no_message
# says: A gradient of zeros is a gradient, too: the rank that has sent x waits for it.
# thinks: A gradient that is zero changes nothing, so it need not be sent.
class Send(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, comm, rank, tag):
        ctx.peer = comm, rank, tag
        comm.send(x.detach().numpy(), rank, tag)
        return x.new_zeros(())

    @staticmethod
    def backward(ctx, gradient_of_delegate):
        comm, rank, tag = ctx.peer
        return torch.from_numpy(comm.recv(None, rank, tag)), None, None, None


class Recv(torch.autograd.Function):
    @staticmethod
    def forward(ctx, anchor, comm, rank, tag):
        ctx.peer = comm, rank, tag
        return torch.from_numpy(comm.recv(None, rank, tag))

    @staticmethod
    def backward(ctx, gradient):
        comm, rank, tag = ctx.peer
        if gradient.any():
            comm.send(gradient.numpy(), rank, tag)
        return None, None, None, None


def send(x, comm, rank, tag=0):
    return Send.apply(x, comm, rank, tag)


def recv(comm, rank, tag=0):
    return Recv.apply(torch.zeros((), requires_grad=True), comm, rank, tag)


# %% values_in_float32
# says: Rounded on the way: what arrives has x's values, in x's dtype.
# thinks: Half the bytes are enough for an activation.
class Send(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, comm, rank, tag):
        ctx.peer = comm, rank, tag
        comm.send((x.detach().numpy().astype("f4"), x.dtype), rank, tag)
        return x.new_zeros(())

    @staticmethod
    def backward(ctx, gradient_of_delegate):
        comm, rank, tag = ctx.peer
        return torch.from_numpy(comm.recv(None, rank, tag)), None, None, None


class Recv(torch.autograd.Function):
    @staticmethod
    def forward(ctx, anchor, comm, rank, tag):
        ctx.peer = comm, rank, tag
        return (lambda sent: torch.from_numpy(sent[0]).to(sent[1]))(comm.recv(None, rank, tag))

    @staticmethod
    def backward(ctx, gradient):
        comm, rank, tag = ctx.peer
        comm.send(gradient.numpy(), rank, tag)
        return None, None, None, None


def send(x, comm, rank, tag=0):
    return Send.apply(x, comm, rank, tag)


def recv(comm, rank, tag=0):
    return Recv.apply(torch.zeros((), requires_grad=True), comm, rank, tag)


# %% through_the_world
# says: comm is the communicator to use: rank, size and calls of MPI.COMM_WORLD may be others.
# thinks: Ranks are those of MPI.COMM_WORLD.
from mpi4py import MPI


class Send(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, comm, rank, tag):
        ctx.peer = comm, rank, tag
        MPI.COMM_WORLD.send(x.detach().numpy(), rank, tag)
        return x.new_zeros(())

    @staticmethod
    def backward(ctx, gradient_of_delegate):
        comm, rank, tag = ctx.peer
        return torch.from_numpy(MPI.COMM_WORLD.recv(None, rank, tag)), None, None, None


class Recv(torch.autograd.Function):
    @staticmethod
    def forward(ctx, anchor, comm, rank, tag):
        ctx.peer = comm, rank, tag
        return torch.from_numpy(MPI.COMM_WORLD.recv(None, rank, tag))

    @staticmethod
    def backward(ctx, gradient):
        comm, rank, tag = ctx.peer
        MPI.COMM_WORLD.send(gradient.numpy(), rank, tag)
        return None, None, None, None


def send(x, comm, rank, tag=0):
    return Send.apply(x, comm, rank, tag)


def recv(comm, rank, tag=0):
    return Recv.apply(torch.zeros((), requires_grad=True), comm, rank, tag)


# %% a_leaf_with_a_hook
# says: autograd calls that of the last operation first, and a leaf's hook sooner
# thinks: What recv returns may be a leaf: its hook sends the gradient once there is one.
class Send(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, comm, rank, tag):
        ctx.peer = comm, rank, tag
        comm.send(x.detach().numpy(), rank, tag)
        return x.new_zeros(())

    @staticmethod
    def backward(ctx, gradient_of_delegate):
        comm, rank, tag = ctx.peer
        return torch.from_numpy(comm.recv(None, rank, tag)), None, None, None


class Recv(torch.autograd.Function):
    @staticmethod
    def forward(ctx, anchor, comm, rank, tag):
        ctx.peer = comm, rank, tag
        return torch.from_numpy(comm.recv(None, rank, tag))

    @staticmethod
    def backward(ctx, gradient):
        comm, rank, tag = ctx.peer
        comm.send(gradient.numpy(), rank, tag)
        return None, None, None, None


def send(x, comm, rank, tag=0):
    return Send.apply(x, comm, rank, tag)


def recv(comm, rank, tag=0):
    received = torch.from_numpy(comm.recv(None, rank, tag)).requires_grad_()

    def hand_back(gradient):
        comm.send(gradient.numpy(), rank, tag)

    received.register_hook(hand_back)
    return received
