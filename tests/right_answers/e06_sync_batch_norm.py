"""Right answers to e06_sync_batch_norm. What a cell holds is told in tests/answers.py."""

# %% the_solution_by_lowercase
# thinks: comm.allreduce adds tensors, too, if they are pickled.
import torch


class Norm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, comm, eps):
        wide = x.double()
        ones = torch.full((1, x.shape[1]), float(len(x)), dtype=torch.float64)
        count, total, squares = comm.allreduce(torch.cat([ones, wide.sum(0, True), wide.square().sum(0, True)]))
        mean = total / count
        deviation = (squares / count - mean.square() + eps).sqrt()
        normal = (wide - mean) / deviation
        ctx.save_for_backward(normal, weight, deviation, count)
        ctx.comm = comm
        return (weight * normal + bias).to(x.dtype)

    @staticmethod
    def backward(ctx, dy):
        normal, weight, deviation, count = ctx.saved_tensors
        wide = dy.double()
        mine = torch.stack([wide.sum(0), (wide * normal).sum(0)])
        along, across = ctx.comm.allreduce(mine) / count
        dx = weight / deviation * (wide - along - normal * across)
        return dx.to(dy.dtype), mine[1].to(dy.dtype), mine[0].to(dy.dtype), None, None


def sync_batch_norm(comm, x, weight, bias, eps=1e-5):
    return Norm.apply(x, weight, bias, comm, eps)


# %% all_reduce_is_differentiable
# thinks: Only the sums need a function of their own: its gradient is the sum of gradients. Autograd does the rest.
import torch
from mpi4py import MPI


class Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, comm):
        ctx.comm = comm
        out = x.detach().clone()
        comm.Allreduce(MPI.IN_PLACE, out.numpy())
        return out

    @staticmethod
    def backward(ctx, dy):
        out = dy.contiguous().clone()
        ctx.comm.Allreduce(MPI.IN_PLACE, out.numpy())
        return out, None


def sync_batch_norm(comm, x, weight, bias, eps=1e-5):
    wide = x.double()
    count = torch.full((1, x.shape[1]), float(len(x)), dtype=torch.float64)
    count, total, squares = Sum.apply(torch.cat([count, wide.sum(0, True), (wide**2).sum(0, True)]), comm)
    mean = total / count
    variance = squares / count - mean**2
    return ((wide - mean) / (variance + eps).sqrt() * weight + bias).to(x.dtype)


# %% chan_by_allgather
# thinks: Each rank's count, mean and sum of squared deviations, put together by the rule of Chan, lose no digits.
import numpy as np
import torch
from mpi4py import MPI


class Norm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, comm, eps):
        values = x.detach().numpy().astype(np.float64)
        n = len(values)
        mean = values.mean(0) if n else np.zeros(x.shape[1])
        row = np.concatenate([[n], mean, ((values - mean) ** 2).sum(0)])
        rows = np.empty((comm.size, len(row)))
        comm.Allgather(row, rows)
        counts, (means, deviations) = rows[:, :1], np.split(rows[:, 1:], 2, axis=1)
        total = counts.sum()
        mean = (counts * means).sum(0) / total
        variance = (deviations + counts * (means - mean) ** 2).sum(0) / total
        inverse = 1 / np.sqrt(variance + eps)
        ctx.kept = (values - mean) * inverse, weight.detach().numpy(), inverse, total, comm
        return torch.from_numpy(ctx.kept[0] * ctx.kept[1] + bias.detach().numpy()).to(x.dtype)

    @staticmethod
    def backward(ctx, dy):
        normal, weight, inverse, total, comm = ctx.kept
        wide = dy.numpy().astype(np.float64)
        mine = np.stack([wide.sum(0), (wide * normal).sum(0)])
        both = np.empty_like(mine)
        comm.Allreduce(mine, both, op=MPI.SUM)
        dx = weight * inverse * (wide - both[0] / total - normal * both[1] / total)
        return (*(torch.from_numpy(each).to(dy.dtype) for each in (dx, mine[1], mine[0])), None, None)


def sync_batch_norm(comm, x, weight, bias, eps=1e-5):
    return Norm.apply(x, weight, bias, comm, eps)


# %% recomputes_in_backward
# thinks: Backward may compute the normalised x again, so that only x is kept.
import torch


class Norm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, comm, eps):
        wide = x.double()
        sums = comm.allreduce(torch.cat([torch.tensor([[float(len(x))] * x.shape[1]]), wide.sum(0)[None], (wide**2).sum(0)[None]]))
        mean, variance = sums[1] / sums[0], sums[2] / sums[0] - (sums[1] / sums[0]) ** 2
        ctx.save_for_backward(x, weight, mean, variance + eps, sums[0])
        ctx.comm = comm
        return ((wide - mean) * (variance + eps) ** -0.5 * weight + bias).to(x.dtype)

    @staticmethod
    def backward(ctx, dy):
        x, weight, mean, variance, count = ctx.saved_tensors
        centred, wide = x.double() - mean, dy.double()
        normal = centred / variance.sqrt()
        own = torch.stack([wide.sum(0), (wide * normal).sum(0)])
        sums = ctx.comm.allreduce(own)
        dx = weight * variance**-0.5 * (wide - (sums[0] + normal * sums[1]) / count)
        return dx.to(x.dtype), own[1].to(x.dtype), own[0].to(x.dtype), None, None


def sync_batch_norm(comm, x, weight, bias, eps=1e-5):
    return Norm.apply(x, weight, bias, comm, eps)


# %% weight_and_bias_by_autograd
# thinks: The function normalises alone; multiplying by weight and adding bias is left to autograd.
import torch
from mpi4py import MPI


class Normalise(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, comm, eps):
        sums = torch.cat([torch.full((1,), float(len(x)), dtype=torch.float64), x.sum(0), x.square().sum(0)])
        comm.Allreduce(MPI.IN_PLACE, sums.numpy())
        n, (s, q) = sums[0], sums[1:].view(2, -1)
        inverse = 1 / (q / n - (s / n) ** 2 + eps).sqrt()
        normal = (x - s / n) * inverse
        ctx.save_for_backward(normal, inverse, n)
        ctx.comm = comm
        return normal

    @staticmethod
    def backward(ctx, dy):
        normal, inverse, n = ctx.saved_tensors
        sums = torch.stack([dy.sum(0), (dy * normal).sum(0)])
        ctx.comm.Allreduce(MPI.IN_PLACE, sums.numpy())
        return inverse * (dy - (sums[0] + normal * sums[1]) / n), None, None


def sync_batch_norm(comm, x, weight, bias, eps=1e-5):
    return (Normalise.apply(x.double(), comm, eps) * weight + bias).to(x.dtype)


# %% no_call_for_one_rank
# thinks: Alone there is nothing to exchange.
import torch


def summed(comm, x):
    return comm.allreduce(x) if comm.size > 1 else x


class Norm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, comm, eps):
        wide = x.double()
        n, s, q = summed(comm, torch.stack([torch.full((x.shape[1],), float(len(x)), dtype=torch.double), wide.sum(0), (wide * wide).sum(0)]))
        inverse = (q / n - (s / n) ** 2 + eps).rsqrt()
        ctx.save_for_backward((wide - s / n) * inverse, weight, inverse, n)
        ctx.comm = comm
        return ((wide - s / n) * inverse * weight + bias).to(x.dtype)

    @staticmethod
    def backward(ctx, dy):
        normal, weight, inverse, n = ctx.saved_tensors
        g = dy.double()
        own = torch.stack([g.sum(0), (g * normal).sum(0)])
        a, b = summed(ctx.comm, own.clone()) / n
        return (weight * inverse * (g - a - normal * b)).to(dy.dtype), own[1].to(dy.dtype), own[0].to(dy.dtype), None, None


def sync_batch_norm(comm, x, weight, bias, eps=1e-5):
    return Norm.apply(x, weight, bias, comm, eps)


# %% shifted_sums
# thinks: Values less a common shift lose no digits; bias changes nothing, but all ranks need the same shift, such as 1000.
import torch
from mpi4py import MPI

SHIFT = 512.0


class Norm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, comm, eps):
        moved = x.double() - SHIFT
        sums = torch.cat([moved.new_tensor([len(x)]), moved.sum(0), (moved * moved).sum(0)])
        comm.Allreduce(MPI.IN_PLACE, sums.numpy())
        n, (s, q) = sums[0], sums[1:].chunk(2)
        inverse = (q / n - (s / n) ** 2 + eps).rsqrt()
        normal = (moved - s / n) * inverse
        ctx.save_for_backward(normal, weight, inverse, n)
        ctx.comm = comm
        return (normal * weight + bias).to(x.dtype)

    @staticmethod
    def backward(ctx, dy):
        normal, weight, inverse, n = ctx.saved_tensors
        dy64 = dy.double()
        db, dw = dy64.sum(0), (dy64 * normal).sum(0)
        sums = torch.cat([db, dw])
        ctx.comm.Allreduce(MPI.IN_PLACE, sums.numpy())
        a, b = sums.chunk(2)
        return (weight * inverse * (dy64 - a / n - normal * b / n)).to(dy.dtype), dw.to(dy.dtype), db.to(dy.dtype), None, None


def sync_batch_norm(comm, x, weight, bias, eps=1e-5):
    return Norm.apply(x, weight, bias, comm, eps)


# %% nested_function
# thinks: A class made in the call sees comm and eps without passing them.
import torch
from mpi4py import MPI


def sync_batch_norm(comm, x, weight, bias, eps=1e-5):
    class Norm(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, weight, bias):
            wide = x.double()
            sums = torch.cat([wide.new_tensor([len(x)]), wide.sum(0), (wide * wide).sum(0)])
            comm.Allreduce(MPI.IN_PLACE, sums.numpy())
            ctx.n, (s, q) = sums[0].item(), sums[1:].chunk(2)
            ctx.inverse = (q / ctx.n - (s / ctx.n) ** 2 + eps).rsqrt()
            ctx.normal, ctx.weight = (wide - s / ctx.n) * ctx.inverse, weight
            return (ctx.normal * weight + bias).to(x.dtype)

        @staticmethod
        def backward(ctx, dy):
            wide = dy.double()
            own = torch.stack([wide.sum(0), (wide * ctx.normal).sum(0)])
            whole = torch.empty_like(own)
            comm.Allreduce(own.numpy(), whole.numpy())
            dx = ctx.weight * ctx.inverse * (wide - (whole[0] + ctx.normal * whole[1]) / ctx.n)
            return dx.to(dy.dtype), own[1].to(dy.dtype), own[0].to(dy.dtype)

    return Norm.apply(x, weight, bias)
