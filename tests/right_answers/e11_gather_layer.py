"""Right answers to e11_gather_layer. What a cell holds is told in tests/answers.py."""


# %% plain
# thinks: Gathers twice, saves x and the shard alone, and reduce-scatters a padded buffer of zeros.
def gathered(shard, comm, shape):
    whole = torch.empty(len(shard) * comm.size, dtype=shard.dtype)
    comm.Allgather(shard.detach().numpy(), whole.numpy())
    return whole[:shape[0] * shape[1]].view(shape)


class GatheredLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, shard, comm, shape):
        weight = gathered(shard, comm, shape)
        ctx.save_for_backward(x, shard)
        ctx.comm, ctx.shape = comm, shape
        return x @ weight.t()

    @staticmethod
    def backward(ctx, grad):
        x, shard = ctx.saved_tensors
        comm, shape = ctx.comm, ctx.shape
        weight = gathered(shard, comm, shape)
        grad_x = grad @ weight
        flat = torch.zeros(len(shard) * comm.size, dtype=shard.dtype)
        flat[:shape[0] * shape[1]] = (grad.t() @ x).flatten()
        grad_shard = torch.empty_like(shard)
        comm.Reduce_scatter_block(flat.numpy(), grad_shard.numpy())
        return grad_x, grad_shard / comm.size, None, None


# %% numpy_all_the_way
# thinks: Everything is numpy between the tensors that come in and those that go out.
import numpy as np


def gathered(shard, comm, shape):
    mine = np.ascontiguousarray(shard.detach().numpy())
    whole = np.empty(mine.size * comm.Get_size(), mine.dtype)
    comm.Allgather(mine, whole)
    return whole[:shape[0] * shape[1]].reshape(shape)


class GatheredLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, shard, comm, shape):
        ctx.save_for_backward(x, shard)
        ctx.rest = comm, tuple(shape)
        return torch.from_numpy(np.dot(x.detach().numpy(), gathered(shard, comm, shape).T))

    @staticmethod
    def backward(ctx, grad):
        x, shard = ctx.saved_tensors
        comm, shape = ctx.rest
        g = grad.numpy()
        grad_x = g @ gathered(shard, comm, shape)
        out = (g.T @ x.detach().numpy()).ravel()
        out = np.pad(out, (0, shard.numel() * comm.Get_size() - out.size))
        mine = np.empty(shard.numel(), out.dtype)
        comm.Reduce_scatter_block(out, mine)
        return torch.from_numpy(grad_x), torch.from_numpy(mine / mine.dtype.type(comm.Get_size())), None, None


# %% rings_with_sendrecv
# thinks: Both the gather and the reduce-scatter are rings of p - 1 steps.
def gathered(shard, comm, shape):
    p, r = comm.size, comm.rank
    parts = torch.empty(p, len(shard), dtype=shard.dtype)
    parts[r] = shard.detach()
    for k in range(p - 1):
        comm.Sendrecv(parts[(r - k) % p].numpy(), dest=(r + 1) % p, recvbuf=parts[(r - k - 1) % p].numpy(), source=(r - 1) % p)
    return parts.flatten()[:shape[0] * shape[1]].view(shape)


class GatheredLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, shard, comm, shape):
        ctx.save_for_backward(x, shard)
        ctx.comm, ctx.shape = comm, shape
        return torch.nn.functional.linear(x, gathered(shard, comm, shape))

    @staticmethod
    def backward(ctx, grad):
        x, shard = ctx.saved_tensors
        p, r = ctx.comm.size, ctx.comm.rank
        grad_x = grad @ gathered(shard, ctx.comm, ctx.shape)
        flat = torch.mm(grad.t(), x).flatten() / p
        parts = torch.nn.functional.pad(flat, (0, p * len(shard) - len(flat))).view(p, len(shard))
        total, incoming = parts[r - 1].clone(), torch.empty_like(parts[0])
        for k in range(p - 1):
            ctx.comm.Sendrecv(total.numpy(), dest=(r + 1) % p, recvbuf=incoming.numpy(), source=(r - 1) % p)
            total = incoming + parts[(r - 2 - k) % p]
        return grad_x, total, None, None


# %% messages_to_all
# thinks: Isend and Irecv to and from every other rank; one helper exchanges for both directions.
def exchange(comm, send, receive):
    others = [q for q in range(comm.size) if q != comm.rank]
    requests = [comm.Irecv(receive[q].numpy(), source=q) for q in others]
    requests += [comm.Isend(send[q].numpy(), dest=q) for q in others]
    MPI.Request.Waitall(requests)
    receive[comm.rank] = send[comm.rank]
    return receive


def gathered(shard, comm, shape):
    mine = shard.detach().contiguous()
    parts = exchange(comm, [mine] * comm.size, torch.empty(comm.size, len(mine), dtype=mine.dtype))
    return parts.view(-1)[:shape[0] * shape[1]].reshape(shape)


class GatheredLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, shard, comm, shape):
        ctx.save_for_backward(x, shard)
        ctx.comm, ctx.shape = comm, shape
        return x.matmul(gathered(shard, comm, shape).T)

    @staticmethod
    def backward(ctx, grad):
        x, shard = ctx.saved_tensors
        comm = ctx.comm
        grad_x = grad.matmul(gathered(shard, comm, ctx.shape))
        parts = torch.zeros(comm.size, len(shard), dtype=shard.dtype)
        parts.view(-1)[:grad.shape[1] * x.shape[1]] = torch.einsum("no,ni->oi", grad, x).reshape(-1)
        return grad_x, exchange(comm, parts, torch.empty_like(parts)).mean(0), None, None


# %% without_gathered
# thinks: The function gathered is not used, so it is not there; all stands in the class, with Allgatherv and Alltoall.
class GatheredLinear(torch.autograd.Function):
    @staticmethod
    def whole(ctx, shard):
        n, chunk = ctx.shape[0] * ctx.shape[1], shard.numel()
        counts = [max(0, min(chunk, n - r * chunk)) for r in range(ctx.comm.size)]
        weight = shard.new_empty(ctx.shape)
        mine = shard.detach()[:counts[ctx.comm.rank]]
        ctx.comm.Allgatherv(mine.numpy(), [weight.numpy(), counts])
        return weight

    @staticmethod
    def forward(ctx, x, shard, comm, shape):
        ctx.comm, ctx.shape = comm, tuple(shape)
        ctx.save_for_backward(x, shard)
        return torch.einsum("ni,oi->no", x, GatheredLinear.whole(ctx, shard))

    @staticmethod
    def backward(ctx, grad):
        x, shard = ctx.saved_tensors
        grad_x = torch.einsum("no,oi->ni", grad, GatheredLinear.whole(ctx, shard))
        p = ctx.comm.size
        parts = (grad.t() @ x).reshape(-1)
        parts = torch.cat([parts, parts.new_zeros(p * shard.numel() - parts.numel())])
        got = torch.empty_like(parts)
        ctx.comm.Alltoall(parts.numpy(), got.numpy())
        return grad_x, got.view(p, -1).sum(0) / p, None, None


# %% autograd_inside_backward
# thinks: backward computes y again with autograd, on leaves of its own, and asks for both gradients; the graph dies with the call.
def gathered(shard, comm, shape):
    whole = shard.detach().new_empty(comm.size, shard.numel())
    comm.Allgather(shard.detach().numpy(), whole.numpy())
    return whole.flatten().narrow(0, 0, shape[0] * shape[1]).unflatten(0, tuple(shape))


class GatheredLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, shard, comm, shape):
        ctx.save_for_backward(x, shard)
        ctx.comm, ctx.shape = comm, shape
        return x @ gathered(shard, comm, shape).t()

    @staticmethod
    def backward(ctx, grad):
        x, shard = ctx.saved_tensors
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            weight = gathered(shard, ctx.comm, ctx.shape).requires_grad_()
            grad_x, grad_weight = torch.autograd.grad(x @ weight.t(), [x, weight], grad)
        mine = torch.zeros_like(shard, requires_grad=False)
        for root in range(ctx.comm.size):
            part = torch.zeros_like(mine)
            some = grad_weight.flatten()[root * len(shard):(root + 1) * len(shard)]
            part[:len(some)] = some
            ctx.comm.Reduce(part.numpy(), mine.numpy() if root == ctx.comm.rank else None, root=root)
        return grad_x, mine / ctx.comm.size, None, None


# %% broadcast_in_turn
# thinks: Every rank broadcasts its chunk, and the weight is put together in a recursion; back, each chunk is reduced to its owner.
def parts_from(root, shard, comm):
    if root == comm.size:
        return []
    part = shard.detach().clone()
    comm.Bcast(part.numpy(), root=root)
    return [part] + parts_from(root + 1, shard, comm)


def gathered(shard, comm, shape):
    return torch.cat(parts_from(0, shard, comm))[:shape[0] * shape[1]].view(shape)


class GatheredLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, shard, comm, shape):
        ctx.save_for_backward(x, shard)
        ctx.where = comm, shape
        return torch.mm(x, gathered(shard, comm, shape).t())

    @staticmethod
    def backward(ctx, grad):
        (x, shard), (comm, shape) = ctx.saved_tensors, ctx.where
        flat = torch.zeros(comm.size * len(shard), dtype=grad.dtype)
        flat[:shape[0] * shape[1]] = (grad.t() @ x).flatten().div(comm.size)
        mine = torch.empty(len(shard), dtype=grad.dtype)
        for root, part in enumerate(flat.split(len(shard))):
            comm.Reduce(part.numpy(), mine.numpy() if root == comm.rank else None, root=root)
        return grad @ gathered(shard, comm, shape), mine, None, None


# %% one_gather_whether_needed_or_not
# thinks: The weight is gathered on all ranks, and multiplied only where x needs a gradient; the collective does not block.
def gathered(shard, comm, shape):
    whole = torch.empty(len(shard) * comm.size, dtype=shard.dtype)
    request = comm.Iallgather(shard.detach().numpy(), whole.numpy())
    request.Wait()
    return whole[:shape[0] * shape[1]].view(shape)


class GatheredLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, shard, comm, shape):
        ctx.x, ctx.shard, ctx.comm, ctx.shape = x, shard, comm, shape
        return (gathered(shard, comm, shape) @ x.t()).t().contiguous()

    @staticmethod
    def backward(ctx, grad):
        comm = ctx.comm
        mine = torch.empty(len(ctx.shard), dtype=grad.dtype)
        flat = grad.new_zeros(len(mine) * comm.size)
        n = ctx.shape[0] * ctx.shape[1]
        torch.mm(grad.t(), ctx.x.detach(), out=flat[:n].view(ctx.shape))
        comm.Reduce_scatter(flat.numpy(), mine.numpy(), [len(mine)] * comm.size)
        del flat
        weight = gathered(ctx.shard, comm, ctx.shape)
        return grad @ weight if ctx.needs_input_grad[0] else None, mine.div_(comm.size), None, None


# %% row_by_row_into_the_gradient
# thinks: The weight's place takes the gradient once x has its own: one array as large as the weight, no second.
class GatheredLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, shard, comm, shape):
        ctx.save_for_backward(x, shard)
        ctx.comm, ctx.shape = comm, shape
        whole = torch.empty(len(shard) * comm.size, dtype=shard.dtype)
        comm.Allgather(shard.detach().numpy(), whole.numpy())
        return torch.nn.functional.linear(x, whole[: shape[0] * shape[1]].view(shape))

    @staticmethod
    def backward(ctx, grad):
        x, shard = ctx.saved_tensors
        comm, (out, width) = ctx.comm, ctx.shape
        whole = torch.empty(len(shard) * comm.size, dtype=shard.dtype)
        comm.Allgather(shard.detach().numpy(), whole.numpy())
        weight = whole[: out * width].view(out, width)
        of_x = grad @ weight
        whole[out * width :] = 0
        torch.mm(grad.T, x, out=weight)
        own = torch.empty_like(shard)
        comm.Reduce_scatter_block(whole.numpy(), own.numpy())
        return of_x, own.div_(comm.size), None, None


# %% non_blocking_gather
# thinks: The gather is under way while the weight's gradient is computed; both requests are waited for.
def gathered(shard, comm, shape):
    whole = torch.empty(len(shard) * comm.size, dtype=shard.dtype)
    comm.Allgather(shard.detach().numpy(), whole.numpy())
    return whole[: shape[0] * shape[1]].view(shape)


class GatheredLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, shard, comm, shape):
        ctx.save_for_backward(x, shard)
        ctx.comm, ctx.shape = comm, shape
        return x @ gathered(shard, comm, shape).T

    @staticmethod
    def backward(ctx, grad):
        x, shard = ctx.saved_tensors
        comm, (out, width) = ctx.comm, ctx.shape
        whole = torch.empty(len(shard) * comm.size, dtype=shard.dtype)
        gathering = comm.Iallgather(shard.detach().numpy(), whole.numpy())
        flat = torch.zeros(len(shard) * comm.size, dtype=shard.dtype)
        flat[: out * width] = (grad.T @ x).reshape(-1)
        own = torch.empty_like(shard)
        summing = comm.Ireduce_scatter_block(flat.numpy(), own.numpy())
        gathering.Wait()
        of_x = grad @ whole[: out * width].view(out, width)
        summing.Wait()
        return of_x, own / comm.size, None, None


# %% never_a_whole_weight
# thinks: Each chunk comes by a broadcast, is multiplied into its places and dropped: no rank has the whole weight at all.
def places(root, shard, shape):
    """Rows and columns of the weight that a rank's chunk holds, padding left out."""
    begin = min(root * len(shard), shape[0] * shape[1])
    at = torch.arange(begin, min(begin + len(shard), shape[0] * shape[1]))
    return at // shape[1], at % shape[1]


def chunks(shard, comm):
    for root in range(comm.size):
        part = shard.detach().clone()
        comm.Bcast(part.numpy(), root=root)
        yield root, part


class GatheredLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, shard, comm, shape):
        ctx.save_for_backward(x, shard)
        ctx.comm, ctx.shape = comm, shape
        y = x.new_zeros(len(x), shape[0])
        for root, part in chunks(shard, comm):
            rows, columns = places(root, shard, shape)
            y.index_add_(1, rows, x[:, columns] * part[: len(rows)])
        return y

    @staticmethod
    def backward(ctx, grad):
        x, shard = ctx.saved_tensors
        comm = ctx.comm
        of_x, own = torch.zeros_like(x), torch.empty_like(shard)
        for root, part in chunks(shard, comm):
            rows, columns = places(root, shard, ctx.shape)
            of_x.index_add_(1, columns, grad[:, rows] * part[: len(rows)])
            mine = torch.zeros_like(shard)
            mine[: len(rows)] = (grad[:, rows] * x[:, columns]).sum(0)
            comm.Reduce(mine.numpy(), own.numpy() if root == comm.rank else None, root=root)
        return of_x, own / comm.size, None, None


# %% numpy_without_detach
# thinks: No graph is recorded in forward and backward, so numpy() needs no detach there.
def gathered(shard, comm, shape):
    whole = torch.empty(len(shard) * comm.size, dtype=shard.dtype)
    comm.Allgather(shard.numpy(), whole.numpy())
    return whole[:shape[0] * shape[1]].view(shape)


class GatheredLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, shard, comm, shape):
        weight = gathered(shard, comm, shape)
        ctx.save_for_backward(x, shard)
        ctx.comm, ctx.shape = comm, shape
        return x @ weight.t()

    @staticmethod
    def backward(ctx, grad):
        x, shard = ctx.saved_tensors
        comm, shape = ctx.comm, ctx.shape
        weight = gathered(shard, comm, shape)
        grad_x = grad @ weight
        flat = torch.zeros(len(shard) * comm.size, dtype=shard.dtype)
        flat[:shape[0] * shape[1]] = (grad.t() @ x).flatten()
        grad_shard = torch.empty_like(shard)
        comm.Reduce_scatter_block(flat.numpy(), grad_shard.numpy())
        return grad_x, grad_shard / comm.size, None, None


# %% context_set_up_apart
# thinks: forward computes alone, setup_context keeps what backward needs, and backward is marked as differentiable once.
from torch.autograd.function import once_differentiable


def gathered(shard, comm, shape):
    whole = torch.empty(len(shard) * comm.size, dtype=shard.dtype)
    comm.Allgather(shard.detach().numpy(), whole.numpy())
    return whole[: shape[0] * shape[1]].view(shape)


class GatheredLinear(torch.autograd.Function):
    @staticmethod
    def forward(x, shard, comm, shape):
        return torch.nn.functional.linear(x, gathered(shard, comm, shape))

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, shard, ctx.comm, ctx.shape = inputs
        ctx.save_for_backward(x, shard)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        x, shard = ctx.saved_tensors
        comm, (out, width) = ctx.comm, ctx.shape
        of_x = grad @ gathered(shard, comm, ctx.shape)
        flat = torch.zeros(len(shard) * comm.size, dtype=shard.dtype)
        torch.mm(grad.T, x, out=flat[: out * width].view(out, width))
        own = torch.empty_like(shard)
        comm.Reduce_scatter_block(flat.numpy(), own.numpy(), op=MPI.SUM)
        return of_x, own.div_(comm.size), None, None
