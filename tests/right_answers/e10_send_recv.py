"""Right answers to e10_send_recv. What a cell holds is told in tests/answers.py."""

# %% attribute_tuple
# thinks: One attribute holds all, and both backward methods read it.
class Send(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, comm, rank, tag):
        ctx.where = comm, {"tag": tag}, rank
        comm.send(x.detach().numpy(), dest=rank, tag=tag)
        return x.new_zeros(())

    @staticmethod
    def backward(ctx, gradient_of_delegate):
        comm, tag, rank = ctx.where
        return torch.as_tensor(comm.recv(source=rank, **tag)), None, None, None


class Recv(torch.autograd.Function):
    @staticmethod
    def forward(ctx, anchor, comm, rank, tag):
        ctx.where = comm, {"tag": tag}, rank
        return torch.from_numpy(comm.recv(source=rank, tag=tag))

    @staticmethod
    def backward(ctx, gradient):
        comm, tag, rank = ctx.where
        comm.send(gradient.clone().numpy(), rank, **tag)
        return torch.zeros(()), None, None, None


def send(x, comm, rank, tag=0):
    return Send.apply(x, comm, rank, tag)


def recv(comm, rank, tag=0):
    return Recv.apply(torch.zeros((), requires_grad=True), comm, rank, tag)


# %% buffers
# thinks: A header with shape and dtype, then the values as a contiguous buffer; the gradient has x's shape and dtype.
import numpy as np


class Send(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, comm, rank, tag):
        ctx.comm, ctx.rank, ctx.tag = comm, rank, tag
        values = np.ascontiguousarray(x.detach().numpy())
        comm.send((x.shape, values.dtype.str), dest=rank, tag=tag)
        comm.Send(values, dest=rank, tag=tag)
        ctx.shape, ctx.dtype = x.shape, values.dtype
        return x.new_zeros(())

    @staticmethod
    def backward(ctx, gradient_of_delegate):
        gradient = np.empty(ctx.shape, ctx.dtype)
        ctx.comm.Recv(gradient, source=ctx.rank, tag=ctx.tag)
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
        ctx.comm.Send(np.ascontiguousarray(gradient.numpy()), dest=ctx.rank, tag=ctx.tag)
        return None, None, None, None


def send(x, comm, rank, tag=0):
    return Send.apply(x, comm, rank, tag)


def recv(comm, rank, tag=0):
    return Recv.apply(torch.zeros((), requires_grad=True), comm, rank, tag)


# %% closures
# thinks: A Function made for each message, whose backward knows rank and tag from around it.
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
    class Away(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            comm.send(x.detach().numpy().copy(), dest=rank, tag=tag)
            return torch.zeros((), dtype=x.dtype)

        @staticmethod
        def backward(ctx, one):
            return torch.from_numpy(comm.recv(source=rank, tag=tag))

    return Away.apply(x)


def recv(comm, rank, tag=0):
    return Recv.apply(torch.zeros((), requires_grad=True), comm, rank, tag)


# %% isend_waited
# thinks: A request that is waited for at once is a blocking send.
class Send(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, comm, rank, tag):
        ctx.comm, ctx.rank, ctx.tag = comm, rank, tag
        comm.isend(x.detach().numpy(), dest=rank, tag=tag).wait()
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
        ctx.comm.isend(gradient.numpy(), dest=ctx.rank, tag=ctx.tag).wait()
        return None, None, None, None


def send(x, comm, rank, tag=0):
    return Send.apply(x, comm, rank, tag)


def recv(comm, rank, tag=0):
    return Recv.apply(torch.zeros((), requires_grad=True), comm, rank, tag)


# %% ssend
# thinks: A synchronous send waits for its receiver, which is there in both directions.
class Send(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, comm, rank, tag):
        ctx.comm, ctx.rank, ctx.tag = comm, rank, tag
        comm.ssend(x.detach().numpy(), dest=rank, tag=tag)
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
        ctx.comm.ssend(gradient.numpy(), dest=ctx.rank, tag=ctx.tag)
        return None, None, None, None


def send(x, comm, rank, tag=0):
    return Send.apply(x, comm, rank, tag)


def recv(comm, rank, tag=0):
    return Recv.apply(torch.zeros((), requires_grad=True), comm, rank, tag)


# %% tensors
# thinks: A tensor can be pickled as it is.
class Send(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, comm, rank, tag):
        ctx.comm, ctx.rank, ctx.tag = comm, rank, tag
        comm.send(x.detach(), dest=rank, tag=tag)
        return x.new_zeros(())

    @staticmethod
    def backward(ctx, gradient_of_delegate):
        return ctx.comm.recv(source=ctx.rank, tag=ctx.tag), None, None, None


class Recv(torch.autograd.Function):
    @staticmethod
    def forward(ctx, anchor, comm, rank, tag):
        ctx.comm, ctx.rank, ctx.tag = comm, rank, tag
        return comm.recv(source=rank, tag=tag)

    @staticmethod
    def backward(ctx, gradient):
        ctx.comm.send(gradient, dest=ctx.rank, tag=ctx.tag)
        return None, None, None, None


def send(x, comm, rank, tag=0):
    return Send.apply(x, comm, rank, tag)


def recv(comm, rank, tag=0):
    return Recv.apply(torch.zeros((), requires_grad=True), comm, rank, tag)


# %% times_delegates_gradient
# thinks: The delegate's gradient is 1, and a factor before the delegate would scale x's gradient.
class Send(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, comm, rank, tag):
        ctx.comm, ctx.rank, ctx.tag = comm, rank, tag
        comm.send(x.detach().numpy(), dest=rank, tag=tag)
        return x.new_zeros(())

    @staticmethod
    def backward(ctx, gradient_of_delegate):
        gradient = ctx.comm.recv(source=ctx.rank, tag=ctx.tag)
        return torch.from_numpy(gradient) * gradient_of_delegate, None, None, None


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


# %% without_detach
# thinks: Inside forward torch records nothing, and numpy takes a tensor that requires a gradient.
class Send(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, comm, rank, tag):
        ctx.comm, ctx.rank, ctx.tag = comm, rank, tag
        comm.send(x.numpy(), dest=rank, tag=tag)
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
