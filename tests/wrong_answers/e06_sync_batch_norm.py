"""Wrong answers to e06_sync_batch_norm. What a cell holds is told in tests/answers.py."""

# %% own_statistics
# says: mean and variance of this rank's own batch
# thinks: Batch norm is a layer like any other: it sees the batch that it is given.
import torch
from mpi4py import MPI


def sync_batch_norm(comm, x, weight, bias, eps=1e-5):
    return SyncBatchNorm.apply(x, weight, bias, comm, eps)


class SyncBatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, comm, eps):
        wide = x.double()
        sums = torch.cat([wide.new_tensor([len(x)]), wide.sum(0), (wide * wide).sum(0)])
        count, (total, squares) = sums[0], sums[1:].chunk(2)
        mean = total / count
        variance = squares / count - mean * mean
        inverse = (variance + eps).rsqrt()
        normal = (wide - mean) * inverse
        ctx.save_for_backward(normal, weight, inverse)
        ctx.comm, ctx.count = comm, count
        return (normal * weight + bias).to(x.dtype)

    @staticmethod
    def backward(ctx, dy):
        normal, weight, inverse = ctx.saved_tensors
        wide = dy.double()
        own = torch.stack([wide.sum(0), (wide * normal).sum(0)])
        whole = own.clone()
        ctx.comm.Allreduce(MPI.IN_PLACE, whole.numpy())
        along, across = whole / ctx.count
        dx = weight * inverse * (wide - along - normal * across)
        return dx.to(dy.dtype), own[1].to(weight.dtype), own[0].to(weight.dtype), None, None


# %% mean_of_means
# says: mean of the ranks' means
# thinks: Each rank's mean, averaged, is the mean.
import torch
from mpi4py import MPI


def sync_batch_norm(comm, x, weight, bias, eps=1e-5):
    return SyncBatchNorm.apply(x, weight, bias, comm, eps)


class SyncBatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, comm, eps):
        wide = x.double()
        n = max(len(x), 1)
        sums = torch.cat([wide.new_tensor([len(x)]), wide.sum(0) / n, (wide * wide).sum(0) / n])
        comm.Allreduce(MPI.IN_PLACE, sums.numpy())
        count, (total, squares) = sums[0], sums[1:].chunk(2)
        mean = total / comm.size
        variance = squares / comm.size - mean * mean
        inverse = (variance + eps).rsqrt()
        normal = (wide - mean) * inverse
        ctx.save_for_backward(normal, weight, inverse)
        ctx.comm, ctx.count = comm, count
        return (normal * weight + bias).to(x.dtype)

    @staticmethod
    def backward(ctx, dy):
        normal, weight, inverse = ctx.saved_tensors
        wide = dy.double()
        own = torch.stack([wide.sum(0), (wide * normal).sum(0)])
        whole = own.clone()
        ctx.comm.Allreduce(MPI.IN_PLACE, whole.numpy())
        along, across = whole / ctx.count
        dx = weight * inverse * (wide - along - normal * across)
        return dx.to(dy.dtype), own[1].to(weight.dtype), own[0].to(weight.dtype), None, None


# %% variance_of_own
# says: the variance of this one alone
# thinks: The mean has to be shared; how far values lie apart is much the same everywhere.
import torch
from mpi4py import MPI


def sync_batch_norm(comm, x, weight, bias, eps=1e-5):
    return SyncBatchNorm.apply(x, weight, bias, comm, eps)


class SyncBatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, comm, eps):
        wide = x.double()
        sums = torch.cat([wide.new_tensor([len(x)]), wide.sum(0), (wide * wide).sum(0)])
        comm.Allreduce(MPI.IN_PLACE, sums.numpy())
        count, (total, squares) = sums[0], sums[1:].chunk(2)
        mean = total / count
        variance = wide.var(0, unbiased=False) if len(x) else torch.ones(x.shape[1], dtype=torch.float64)
        inverse = (variance + eps).rsqrt()
        normal = (wide - mean) * inverse
        ctx.save_for_backward(normal, weight, inverse)
        ctx.comm, ctx.count = comm, count
        return (normal * weight + bias).to(x.dtype)

    @staticmethod
    def backward(ctx, dy):
        normal, weight, inverse = ctx.saved_tensors
        wide = dy.double()
        own = torch.stack([wide.sum(0), (wide * normal).sum(0)])
        whole = own.clone()
        ctx.comm.Allreduce(MPI.IN_PLACE, whole.numpy())
        along, across = whole / ctx.count
        dx = weight * inverse * (wide - along - normal * across)
        return dx.to(dy.dtype), own[1].to(weight.dtype), own[0].to(weight.dtype), None, None


# %% mean_of_variances
# says: How far the ranks' means lie apart
# thinks: Variances are averaged by the counts, as means are.
import torch
from mpi4py import MPI


def sync_batch_norm(comm, x, weight, bias, eps=1e-5):
    return SyncBatchNorm.apply(x, weight, bias, comm, eps)


class SyncBatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, comm, eps):
        wide = x.double()
        sums = torch.cat([wide.new_tensor([len(x)]), wide.sum(0), (len(x) * wide.var(0, unbiased=False) if len(x) else torch.zeros(x.shape[1], dtype=torch.float64))])
        comm.Allreduce(MPI.IN_PLACE, sums.numpy())
        count, (total, squares) = sums[0], sums[1:].chunk(2)
        mean = total / count
        variance = squares / count
        inverse = (variance + eps).rsqrt()
        normal = (wide - mean) * inverse
        ctx.save_for_backward(normal, weight, inverse)
        ctx.comm, ctx.count = comm, count
        return (normal * weight + bias).to(x.dtype)

    @staticmethod
    def backward(ctx, dy):
        normal, weight, inverse = ctx.saved_tensors
        wide = dy.double()
        own = torch.stack([wide.sum(0), (wide * normal).sum(0)])
        whole = own.clone()
        ctx.comm.Allreduce(MPI.IN_PLACE, whole.numpy())
        along, across = whole / ctx.count
        dx = weight * inverse * (wide - along - normal * across)
        return dx.to(dy.dtype), own[1].to(weight.dtype), own[0].to(weight.dtype), None, None


# %% unbiased
# says: unbiased variance
# thinks: A sample's variance is divided by n - 1.
import torch
from mpi4py import MPI


def sync_batch_norm(comm, x, weight, bias, eps=1e-5):
    return SyncBatchNorm.apply(x, weight, bias, comm, eps)


class SyncBatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, comm, eps):
        wide = x.double()
        sums = torch.cat([wide.new_tensor([len(x)]), wide.sum(0), (wide * wide).sum(0)])
        comm.Allreduce(MPI.IN_PLACE, sums.numpy())
        count, (total, squares) = sums[0], sums[1:].chunk(2)
        mean = total / count
        variance = (squares / count - mean * mean) * count / (count - 1)
        inverse = (variance + eps).rsqrt()
        normal = (wide - mean) * inverse
        ctx.save_for_backward(normal, weight, inverse)
        ctx.comm, ctx.count = comm, count
        return (normal * weight + bias).to(x.dtype)

    @staticmethod
    def backward(ctx, dy):
        normal, weight, inverse = ctx.saved_tensors
        wide = dy.double()
        own = torch.stack([wide.sum(0), (wide * normal).sum(0)])
        whole = own.clone()
        ctx.comm.Allreduce(MPI.IN_PLACE, whole.numpy())
        along, across = whole / ctx.count
        dx = weight * inverse * (wide - along - normal * across)
        return dx.to(dy.dtype), own[1].to(weight.dtype), own[0].to(weight.dtype), None, None


# %% eps_outside
# says: It belongs under the root
# thinks: eps only keeps the division from failing.
import torch
from mpi4py import MPI


def sync_batch_norm(comm, x, weight, bias, eps=1e-5):
    return SyncBatchNorm.apply(x, weight, bias, comm, eps)


class SyncBatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, comm, eps):
        wide = x.double()
        sums = torch.cat([wide.new_tensor([len(x)]), wide.sum(0), (wide * wide).sum(0)])
        comm.Allreduce(MPI.IN_PLACE, sums.numpy())
        count, (total, squares) = sums[0], sums[1:].chunk(2)
        mean = total / count
        variance = squares / count - mean * mean
        inverse = 1 / (variance.sqrt() + eps)
        normal = (wide - mean) * inverse
        ctx.save_for_backward(normal, weight, inverse)
        ctx.comm, ctx.count = comm, count
        return (normal * weight + bias).to(x.dtype)

    @staticmethod
    def backward(ctx, dy):
        normal, weight, inverse = ctx.saved_tensors
        wide = dy.double()
        own = torch.stack([wide.sum(0), (wide * normal).sum(0)])
        whole = own.clone()
        ctx.comm.Allreduce(MPI.IN_PLACE, whole.numpy())
        along, across = whole / ctx.count
        dx = weight * inverse * (wide - along - normal * across)
        return dx.to(dy.dtype), own[1].to(weight.dtype), own[0].to(weight.dtype), None, None


# %% eps_is_a_constant
# says: eps
# thinks: 1e-5 is what everybody takes.
import torch
from mpi4py import MPI


def sync_batch_norm(comm, x, weight, bias, eps=1e-5):
    return SyncBatchNorm.apply(x, weight, bias, comm, eps)


class SyncBatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, comm, eps):
        wide = x.double()
        sums = torch.cat([wide.new_tensor([len(x)]), wide.sum(0), (wide * wide).sum(0)])
        comm.Allreduce(MPI.IN_PLACE, sums.numpy())
        count, (total, squares) = sums[0], sums[1:].chunk(2)
        mean = total / count
        variance = squares / count - mean * mean
        inverse = (variance + 1e-5).rsqrt()
        normal = (wide - mean) * inverse
        ctx.save_for_backward(normal, weight, inverse)
        ctx.comm, ctx.count = comm, count
        return (normal * weight + bias).to(x.dtype)

    @staticmethod
    def backward(ctx, dy):
        normal, weight, inverse = ctx.saved_tensors
        wide = dy.double()
        own = torch.stack([wide.sum(0), (wide * normal).sum(0)])
        whole = own.clone()
        ctx.comm.Allreduce(MPI.IN_PLACE, whole.numpy())
        along, across = whole / ctx.count
        dx = weight * inverse * (wide - along - normal * across)
        return dx.to(dy.dtype), own[1].to(weight.dtype), own[0].to(weight.dtype), None, None


# %% divides_by_variance
# says: The deviation is its root
# thinks: To normalise is to divide by the variance.
import torch
from mpi4py import MPI


def sync_batch_norm(comm, x, weight, bias, eps=1e-5):
    return SyncBatchNorm.apply(x, weight, bias, comm, eps)


class SyncBatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, comm, eps):
        wide = x.double()
        sums = torch.cat([wide.new_tensor([len(x)]), wide.sum(0), (wide * wide).sum(0)])
        comm.Allreduce(MPI.IN_PLACE, sums.numpy())
        count, (total, squares) = sums[0], sums[1:].chunk(2)
        mean = total / count
        variance = squares / count - mean * mean
        inverse = 1 / (variance + eps)
        normal = (wide - mean) * inverse
        ctx.save_for_backward(normal, weight, inverse)
        ctx.comm, ctx.count = comm, count
        return (normal * weight + bias).to(x.dtype)

    @staticmethod
    def backward(ctx, dy):
        normal, weight, inverse = ctx.saved_tensors
        wide = dy.double()
        own = torch.stack([wide.sum(0), (wide * normal).sum(0)])
        whole = own.clone()
        ctx.comm.Allreduce(MPI.IN_PLACE, whole.numpy())
        along, across = whole / ctx.count
        dx = weight * inverse * (wide - along - normal * across)
        return dx.to(dy.dtype), own[1].to(weight.dtype), own[0].to(weight.dtype), None, None


# %% forgets_bias
# says: bias is missing
# thinks: After subtracting the mean there is nothing to add.
import torch
from mpi4py import MPI


def sync_batch_norm(comm, x, weight, bias, eps=1e-5):
    return SyncBatchNorm.apply(x, weight, bias, comm, eps)


class SyncBatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, comm, eps):
        wide = x.double()
        sums = torch.cat([wide.new_tensor([len(x)]), wide.sum(0), (wide * wide).sum(0)])
        comm.Allreduce(MPI.IN_PLACE, sums.numpy())
        count, (total, squares) = sums[0], sums[1:].chunk(2)
        mean = total / count
        variance = squares / count - mean * mean
        inverse = (variance + eps).rsqrt()
        normal = (wide - mean) * inverse
        ctx.save_for_backward(normal, weight, inverse)
        ctx.comm, ctx.count = comm, count
        return (normal * weight).to(x.dtype)

    @staticmethod
    def backward(ctx, dy):
        normal, weight, inverse = ctx.saved_tensors
        wide = dy.double()
        own = torch.stack([wide.sum(0), (wide * normal).sum(0)])
        whole = own.clone()
        ctx.comm.Allreduce(MPI.IN_PLACE, whole.numpy())
        along, across = whole / ctx.count
        dx = weight * inverse * (wide - along - normal * across)
        return dx.to(dy.dtype), own[1].to(weight.dtype), own[0].to(weight.dtype), None, None


# %% sums_in_float32
# says: x.double() first
# thinks: Sums in float32 are as exact as x is.
import torch
from mpi4py import MPI


def sync_batch_norm(comm, x, weight, bias, eps=1e-5):
    return SyncBatchNorm.apply(x, weight, bias, comm, eps)


class SyncBatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, comm, eps):
        wide = x + 0
        sums = torch.cat([wide.new_tensor([len(x)]), wide.sum(0), (wide * wide).sum(0)])
        comm.Allreduce(MPI.IN_PLACE, sums.numpy())
        count, (total, squares) = sums[0], sums[1:].chunk(2)
        total, squares, count = total.clone(), squares.clone(), count.clone()
        mean = total / count
        variance = squares / count - mean * mean
        inverse = (variance + eps).rsqrt()
        normal = (wide - mean) * inverse
        ctx.save_for_backward(normal, weight, inverse)
        ctx.comm, ctx.count = comm, count
        return (normal * weight + bias).to(x.dtype)

    @staticmethod
    def backward(ctx, dy):
        normal, weight, inverse = ctx.saved_tensors
        wide = dy.double()
        own = torch.stack([wide.sum(0), (wide * normal).sum(0)])
        whole = own.clone()
        ctx.comm.Allreduce(MPI.IN_PLACE, whole.numpy())
        along, across = whole / ctx.count
        dx = weight * inverse * (wide - along - normal * across)
        return dx.to(dy.dtype), own[1].to(weight.dtype), own[0].to(weight.dtype), None, None


# %% empty_rank_leaves
# says: brings zeros to both collective calls
# thinks: Who has nothing to normalise has nothing to say.
import torch
from mpi4py import MPI


def sync_batch_norm(comm, x, weight, bias, eps=1e-5):
    return SyncBatchNorm.apply(x, weight, bias, comm, eps)


class SyncBatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, comm, eps):
        if len(x) == 0:
            ctx.save_for_backward(x, weight, weight)
            ctx.comm, ctx.count = comm, 1.0
            return x.clone()
        wide = x.double()
        sums = torch.cat([wide.new_tensor([len(x)]), wide.sum(0), (wide * wide).sum(0)])
        comm.Allreduce(MPI.IN_PLACE, sums.numpy())
        count, (total, squares) = sums[0], sums[1:].chunk(2)
        mean = total / count
        variance = squares / count - mean * mean
        inverse = (variance + eps).rsqrt()
        normal = (wide - mean) * inverse
        ctx.save_for_backward(normal, weight, inverse)
        ctx.comm, ctx.count = comm, count
        return (normal * weight + bias).to(x.dtype)

    @staticmethod
    def backward(ctx, dy):
        normal, weight, inverse = ctx.saved_tensors
        wide = dy.double()
        own = torch.stack([wide.sum(0), (wide * normal).sum(0)])
        whole = own.clone()
        ctx.comm.Allreduce(MPI.IN_PLACE, whole.numpy())
        along, across = whole / ctx.count
        dx = weight * inverse * (wide - along - normal * across)
        return dx.to(dy.dtype), own[1].to(weight.dtype), own[0].to(weight.dtype), None, None


# %% divides_by_own_count_when_empty
# says: brings zeros to both collective calls
# thinks: The mean of a rank is x.mean(0), which MPI can average by counts.
import torch
from mpi4py import MPI


def sync_batch_norm(comm, x, weight, bias, eps=1e-5):
    return SyncBatchNorm.apply(x, weight, bias, comm, eps)


class SyncBatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, comm, eps):
        wide = x.double()
        sums = torch.cat([wide.new_tensor([len(x)]), len(x) * wide.mean(0), len(x) * (wide * wide).mean(0)])
        comm.Allreduce(MPI.IN_PLACE, sums.numpy())
        count, (total, squares) = sums[0], sums[1:].chunk(2)
        mean = total / count
        variance = squares / count - mean * mean
        inverse = (variance + eps).rsqrt()
        normal = (wide - mean) * inverse
        ctx.save_for_backward(normal, weight, inverse)
        ctx.comm, ctx.count = comm, count
        return (normal * weight + bias).to(x.dtype)

    @staticmethod
    def backward(ctx, dy):
        normal, weight, inverse = ctx.saved_tensors
        wide = dy.double()
        own = torch.stack([wide.sum(0), (wide * normal).sum(0)])
        whole = own.clone()
        ctx.comm.Allreduce(MPI.IN_PLACE, whole.numpy())
        along, across = whole / ctx.count
        dx = weight * inverse * (wide - along - normal * across)
        return dx.to(dy.dtype), own[1].to(weight.dtype), own[0].to(weight.dtype), None, None


# %% constants_in_backward
# says: treated as constants
# thinks: Mean and variance are numbers, and the derivative of a number is 0.
import torch
from mpi4py import MPI


def sync_batch_norm(comm, x, weight, bias, eps=1e-5):
    return SyncBatchNorm.apply(x, weight, bias, comm, eps)


class SyncBatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, comm, eps):
        wide = x.double()
        sums = torch.cat([wide.new_tensor([len(x)]), wide.sum(0), (wide * wide).sum(0)])
        comm.Allreduce(MPI.IN_PLACE, sums.numpy())
        count, (total, squares) = sums[0], sums[1:].chunk(2)
        mean = total / count
        variance = squares / count - mean * mean
        inverse = (variance + eps).rsqrt()
        normal = (wide - mean) * inverse
        ctx.save_for_backward(normal, weight, inverse)
        ctx.comm, ctx.count = comm, count
        return (normal * weight + bias).to(x.dtype)

    @staticmethod
    def backward(ctx, dy):
        normal, weight, inverse = ctx.saved_tensors
        wide = dy.double()
        own = torch.stack([wide.sum(0), (wide * normal).sum(0)])
        whole = own.clone()
        ctx.comm.Allreduce(MPI.IN_PLACE, whole.numpy())
        along, across = whole / ctx.count
        dx = weight * inverse * wide
        return dx.to(dy.dtype), own[1].to(weight.dtype), own[0].to(weight.dtype), None, None


# %% own_sums_in_backward
# says: over this rank's examples alone
# thinks: Gradients are averaged by the optimizer afterwards, so backward needs no call of its own.
import torch
from mpi4py import MPI


def sync_batch_norm(comm, x, weight, bias, eps=1e-5):
    return SyncBatchNorm.apply(x, weight, bias, comm, eps)


class SyncBatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, comm, eps):
        wide = x.double()
        sums = torch.cat([wide.new_tensor([len(x)]), wide.sum(0), (wide * wide).sum(0)])
        comm.Allreduce(MPI.IN_PLACE, sums.numpy())
        count, (total, squares) = sums[0], sums[1:].chunk(2)
        mean = total / count
        variance = squares / count - mean * mean
        inverse = (variance + eps).rsqrt()
        normal = (wide - mean) * inverse
        ctx.save_for_backward(normal, weight, inverse)
        ctx.comm, ctx.count = comm, count
        return (normal * weight + bias).to(x.dtype)

    @staticmethod
    def backward(ctx, dy):
        normal, weight, inverse = ctx.saved_tensors
        wide = dy.double()
        own = torch.stack([wide.sum(0), (wide * normal).sum(0)])
        whole = own.clone()
        along, across = whole / ctx.count
        dx = weight * inverse * (wide - along - normal * across)
        return dx.to(dy.dtype), own[1].to(weight.dtype), own[0].to(weight.dtype), None, None


# %% no_term_of_the_variance
# says: through the variance is missing
# thinks: The mean is what changes when an example changes.
import torch
from mpi4py import MPI


def sync_batch_norm(comm, x, weight, bias, eps=1e-5):
    return SyncBatchNorm.apply(x, weight, bias, comm, eps)


class SyncBatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, comm, eps):
        wide = x.double()
        sums = torch.cat([wide.new_tensor([len(x)]), wide.sum(0), (wide * wide).sum(0)])
        comm.Allreduce(MPI.IN_PLACE, sums.numpy())
        count, (total, squares) = sums[0], sums[1:].chunk(2)
        mean = total / count
        variance = squares / count - mean * mean
        inverse = (variance + eps).rsqrt()
        normal = (wide - mean) * inverse
        ctx.save_for_backward(normal, weight, inverse)
        ctx.comm, ctx.count = comm, count
        return (normal * weight + bias).to(x.dtype)

    @staticmethod
    def backward(ctx, dy):
        normal, weight, inverse = ctx.saved_tensors
        wide = dy.double()
        own = torch.stack([wide.sum(0), (wide * normal).sum(0)])
        whole = own.clone()
        ctx.comm.Allreduce(MPI.IN_PLACE, whole.numpy())
        along, across = whole / ctx.count
        dx = weight * inverse * (wide - along)
        return dx.to(dy.dtype), own[1].to(weight.dtype), own[0].to(weight.dtype), None, None


# %% mean_over_ranks_in_backward
# says: divided by the number of ranks
# thinks: An all-reduce of gradients is a mean over ranks.
import torch
from mpi4py import MPI


def sync_batch_norm(comm, x, weight, bias, eps=1e-5):
    return SyncBatchNorm.apply(x, weight, bias, comm, eps)


class SyncBatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, comm, eps):
        wide = x.double()
        sums = torch.cat([wide.new_tensor([len(x)]), wide.sum(0), (wide * wide).sum(0)])
        comm.Allreduce(MPI.IN_PLACE, sums.numpy())
        count, (total, squares) = sums[0], sums[1:].chunk(2)
        mean = total / count
        variance = squares / count - mean * mean
        inverse = (variance + eps).rsqrt()
        normal = (wide - mean) * inverse
        ctx.save_for_backward(normal, weight, inverse)
        ctx.comm, ctx.count = comm, count
        return (normal * weight + bias).to(x.dtype)

    @staticmethod
    def backward(ctx, dy):
        normal, weight, inverse = ctx.saved_tensors
        wide = dy.double()
        own = torch.stack([wide.sum(0), (wide * normal).sum(0)])
        whole = own.clone()
        ctx.comm.Allreduce(MPI.IN_PLACE, whole.numpy())
        along, across = whole / ctx.comm.size / ctx.count
        dx = weight * inverse * (wide - along - normal * across)
        return dx.to(dy.dtype), own[1].to(weight.dtype), own[0].to(weight.dtype), None, None


# %% sums_of_weight_over_all_ranks
# says: counted twice
# thinks: The sums over all ranks are there, and they are the gradient of the whole batch.
import torch
from mpi4py import MPI


def sync_batch_norm(comm, x, weight, bias, eps=1e-5):
    return SyncBatchNorm.apply(x, weight, bias, comm, eps)


class SyncBatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, comm, eps):
        wide = x.double()
        sums = torch.cat([wide.new_tensor([len(x)]), wide.sum(0), (wide * wide).sum(0)])
        comm.Allreduce(MPI.IN_PLACE, sums.numpy())
        count, (total, squares) = sums[0], sums[1:].chunk(2)
        mean = total / count
        variance = squares / count - mean * mean
        inverse = (variance + eps).rsqrt()
        normal = (wide - mean) * inverse
        ctx.save_for_backward(normal, weight, inverse)
        ctx.comm, ctx.count = comm, count
        return (normal * weight + bias).to(x.dtype)

    @staticmethod
    def backward(ctx, dy):
        normal, weight, inverse = ctx.saved_tensors
        wide = dy.double()
        own = torch.stack([wide.sum(0), (wide * normal).sum(0)])
        whole = own.clone()
        ctx.comm.Allreduce(MPI.IN_PLACE, whole.numpy())
        along, across = whole / ctx.count
        dx = weight * inverse * (wide - along - normal * across)
        return dx.to(dy.dtype), whole[1].to(weight.dtype), whole[0].to(weight.dtype), None, None


# %% weight_and_bias_swapped
# says: gradient of the other one
# thinks: The sum of dy comes first, so it is the gradient of the first of both.
import torch
from mpi4py import MPI


def sync_batch_norm(comm, x, weight, bias, eps=1e-5):
    return SyncBatchNorm.apply(x, weight, bias, comm, eps)


class SyncBatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, comm, eps):
        wide = x.double()
        sums = torch.cat([wide.new_tensor([len(x)]), wide.sum(0), (wide * wide).sum(0)])
        comm.Allreduce(MPI.IN_PLACE, sums.numpy())
        count, (total, squares) = sums[0], sums[1:].chunk(2)
        mean = total / count
        variance = squares / count - mean * mean
        inverse = (variance + eps).rsqrt()
        normal = (wide - mean) * inverse
        ctx.save_for_backward(normal, weight, inverse)
        ctx.comm, ctx.count = comm, count
        return (normal * weight + bias).to(x.dtype)

    @staticmethod
    def backward(ctx, dy):
        normal, weight, inverse = ctx.saved_tensors
        wide = dy.double()
        own = torch.stack([wide.sum(0), (wide * normal).sum(0)])
        whole = own.clone()
        ctx.comm.Allreduce(MPI.IN_PLACE, whole.numpy())
        along, across = whole / ctx.count
        dx = weight * inverse * (wide - along - normal * across)
        return dx.to(dy.dtype), own[0].to(weight.dtype), own[1].to(weight.dtype), None, None


# %% three_calls
# says: torch.cat or torch.stack
# thinks: Count, sum and squares are three numbers: three calls.
import torch
from mpi4py import MPI


def sync_batch_norm(comm, x, weight, bias, eps=1e-5):
    return SyncBatchNorm.apply(x, weight, bias, comm, eps)


class SyncBatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, comm, eps):
        wide = x.double()
        sums = torch.cat([wide.new_tensor([len(x)]), wide.sum(0), (wide * wide).sum(0)])
        for part in sums.split([1, x.shape[1], x.shape[1]]):
            comm.Allreduce(MPI.IN_PLACE, part.numpy())
        count, (total, squares) = sums[0], sums[1:].chunk(2)
        mean = total / count
        variance = squares / count - mean * mean
        inverse = (variance + eps).rsqrt()
        normal = (wide - mean) * inverse
        ctx.save_for_backward(normal, weight, inverse)
        ctx.comm, ctx.count = comm, count
        return (normal * weight + bias).to(x.dtype)

    @staticmethod
    def backward(ctx, dy):
        normal, weight, inverse = ctx.saved_tensors
        wide = dy.double()
        own = torch.stack([wide.sum(0), (wide * normal).sum(0)])
        whole = own.clone()
        ctx.comm.Allreduce(MPI.IN_PLACE, whole.numpy())
        along, across = whole / ctx.count
        dx = weight * inverse * (wide - along - normal * across)
        return dx.to(dy.dtype), own[1].to(weight.dtype), own[0].to(weight.dtype), None, None


# %% gathers_examples
# says: need not travel
# thinks: With all examples on each rank it is the batch norm of one process.
import torch
from mpi4py import MPI


def sync_batch_norm(comm, x, weight, bias, eps=1e-5):
    return SyncBatchNorm.apply(x, weight, bias, comm, eps)


class SyncBatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, comm, eps):
        wide = x.double()
        every = torch.cat(comm.allgather(wide.detach()))
        sums = torch.cat([wide.new_tensor([len(every)]), every.sum(0), (every * every).sum(0)])
        count, (total, squares) = sums[0], sums[1:].chunk(2)
        mean = total / count
        variance = squares / count - mean * mean
        inverse = (variance + eps).rsqrt()
        normal = (wide - mean) * inverse
        ctx.save_for_backward(normal, weight, inverse)
        ctx.comm, ctx.count = comm, count
        return (normal * weight + bias).to(x.dtype)

    @staticmethod
    def backward(ctx, dy):
        normal, weight, inverse = ctx.saved_tensors
        wide = dy.double()
        own = torch.stack([wide.sum(0), (wide * normal).sum(0)])
        whole = own.clone()
        ctx.comm.Allreduce(MPI.IN_PLACE, whole.numpy())
        along, across = whole / ctx.count
        dx = weight * inverse * (wide - along - normal * across)
        return dx.to(dy.dtype), own[1].to(weight.dtype), own[0].to(weight.dtype), None, None


# %% stays_double
# says: the dtype that x has
# thinks: Double is better than float.
import torch
from mpi4py import MPI


def sync_batch_norm(comm, x, weight, bias, eps=1e-5):
    return SyncBatchNorm.apply(x, weight, bias, comm, eps)


class SyncBatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, comm, eps):
        wide = x.double()
        sums = torch.cat([wide.new_tensor([len(x)]), wide.sum(0), (wide * wide).sum(0)])
        comm.Allreduce(MPI.IN_PLACE, sums.numpy())
        count, (total, squares) = sums[0], sums[1:].chunk(2)
        mean = total / count
        variance = squares / count - mean * mean
        inverse = (variance + eps).rsqrt()
        normal = (wide - mean) * inverse
        ctx.save_for_backward(normal, weight, inverse)
        ctx.comm, ctx.count = comm, count
        return normal * weight + bias

    @staticmethod
    def backward(ctx, dy):
        normal, weight, inverse = ctx.saved_tensors
        wide = dy.double()
        own = torch.stack([wide.sum(0), (wide * normal).sum(0)])
        whole = own.clone()
        ctx.comm.Allreduce(MPI.IN_PLACE, whole.numpy())
        along, across = whole / ctx.count
        dx = weight * inverse * (wide - along - normal * across)
        return dx.to(dy.dtype), own[1].to(weight.dtype), own[0].to(weight.dtype), None, None


# %% too_few_gradients
# says: one gradient for each argument
# thinks: comm and eps have no gradient, so nothing is returned for them.
import torch
from mpi4py import MPI


def sync_batch_norm(comm, x, weight, bias, eps=1e-5):
    return SyncBatchNorm.apply(x, weight, bias, comm, eps)


class SyncBatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, comm, eps):
        wide = x.double()
        sums = torch.cat([wide.new_tensor([len(x)]), wide.sum(0), (wide * wide).sum(0)])
        comm.Allreduce(MPI.IN_PLACE, sums.numpy())
        count, (total, squares) = sums[0], sums[1:].chunk(2)
        mean = total / count
        variance = squares / count - mean * mean
        inverse = (variance + eps).rsqrt()
        normal = (wide - mean) * inverse
        ctx.save_for_backward(normal, weight, inverse)
        ctx.comm, ctx.count = comm, count
        return (normal * weight + bias).to(x.dtype)

    @staticmethod
    def backward(ctx, dy):
        normal, weight, inverse = ctx.saved_tensors
        wide = dy.double()
        own = torch.stack([wide.sum(0), (wide * normal).sum(0)])
        whole = own.clone()
        ctx.comm.Allreduce(MPI.IN_PLACE, whole.numpy())
        along, across = whole / ctx.count
        dx = weight * inverse * (wide - along - normal * across)
        return dx.to(dy.dtype), own[1].to(weight.dtype), own[0].to(weight.dtype)


# %% state_in_the_class
# says: Two layers in a row
# thinks: What forward knows is kept in the class until backward asks for it.
import torch
from mpi4py import MPI


def sync_batch_norm(comm, x, weight, bias, eps=1e-5):
    return SyncBatchNorm.apply(x, weight, bias, comm, eps)


class SyncBatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, comm, eps):
        wide = x.double()
        sums = torch.cat([wide.new_tensor([len(x)]), wide.sum(0), (wide * wide).sum(0)])
        comm.Allreduce(MPI.IN_PLACE, sums.numpy())
        count, (total, squares) = sums[0], sums[1:].chunk(2)
        mean = total / count
        variance = squares / count - mean * mean
        inverse = (variance + eps).rsqrt()
        normal = (wide - mean) * inverse
        SyncBatchNorm.kept = normal, weight, inverse
        ctx.comm, ctx.count = comm, count
        return (normal * weight + bias).to(x.dtype)

    @staticmethod
    def backward(ctx, dy):
        normal, weight, inverse = SyncBatchNorm.kept
        wide = dy.double()
        own = torch.stack([wide.sum(0), (wide * normal).sum(0)])
        whole = own.clone()
        ctx.comm.Allreduce(MPI.IN_PLACE, whole.numpy())
        along, across = whole / ctx.count
        dx = weight * inverse * (wide - along - normal * across)
        return dx.to(dy.dtype), own[1].to(weight.dtype), own[0].to(weight.dtype), None, None


# %% by_torch_and_detached
# says: autograd knows nothing of
# thinks: The forward pass is all that changes: torch does the rest.
import torch
from mpi4py import MPI


def sync_batch_norm(comm, x, weight, bias, eps=1e-5):
    with torch.no_grad():
        return SyncBatchNorm.apply(x, weight, bias, comm, eps)


class SyncBatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, comm, eps):
        wide = x.double()
        sums = torch.cat([wide.new_tensor([len(x)]), wide.sum(0), (wide * wide).sum(0)])
        comm.Allreduce(MPI.IN_PLACE, sums.numpy())
        count, (total, squares) = sums[0], sums[1:].chunk(2)
        mean = total / count
        variance = squares / count - mean * mean
        inverse = (variance + eps).rsqrt()
        normal = (wide - mean) * inverse
        ctx.save_for_backward(normal, weight, inverse)
        ctx.comm, ctx.count = comm, count
        return (normal * weight + bias).to(x.dtype)

    @staticmethod
    def backward(ctx, dy):
        normal, weight, inverse = ctx.saved_tensors
        wide = dy.double()
        own = torch.stack([wide.sum(0), (wide * normal).sum(0)])
        whole = own.clone()
        ctx.comm.Allreduce(MPI.IN_PLACE, whole.numpy())
        along, across = whole / ctx.count
        dx = weight * inverse * (wide - along - normal * across)
        return dx.to(dy.dtype), own[1].to(weight.dtype), own[0].to(weight.dtype), None, None


# %% allreduce_of_a_tuple
# says: mean and variance of rank 0's batch
# thinks: Comm.allreduce of a tuple adds the tuples element by element, so all three go in one call.
import torch
from mpi4py import MPI


def sync_batch_norm(comm, x, weight, bias, eps=1e-5):
    return SyncBatchNorm.apply(x, weight, bias, comm, eps)


class SyncBatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, comm, eps):
        xd = x.detach().double()
        total = comm.allreduce((xd.sum(0), (xd**2).sum(0), x.shape[0]), op=MPI.SUM)
        s, ss, n = total[0], total[1], total[2]
        mean = s / n
        var = ss / n - mean**2
        std = torch.sqrt(var + eps)
        xhat = (xd - mean) / std
        ctx.save_for_backward(xhat, std, weight)
        ctx.comm, ctx.n = comm, n
        return (xhat * weight + bias).to(x.dtype)

    @staticmethod
    def backward(ctx, dy):
        xhat, std, weight = ctx.saved_tensors
        g = dy.double()
        db, dw = g.sum(0), (g * xhat).sum(0)
        total = ctx.comm.allreduce((db, dw), op=MPI.SUM)
        dx = weight / std * (g - total[0] / ctx.n - xhat * total[1] / ctx.n)
        return dx.to(dy.dtype), dw.to(weight.dtype), db.to(weight.dtype), None, None


# %% shift_by_own_first_example
# says: Mean and variance are over the examples of all ranks
# thinks: Variance does not change with a shift, so against cancellation each rank subtracts its first example first.
import torch
from mpi4py import MPI


def sync_batch_norm(comm, x, weight, bias, eps=1e-5):
    return SyncBatchNorm.apply(x, weight, bias, comm, eps)


class SyncBatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, comm, eps):
        f = x.shape[1]
        xd = x.detach().double()
        shift = xd[0] if len(xd) else torch.zeros(f, dtype=torch.float64)
        shifted = xd - shift
        sums = torch.cat(
            [xd.sum(0), shifted.sum(0), shifted.square().sum(0), torch.tensor([len(xd)], dtype=torch.float64)]
        )
        result = torch.zeros_like(sums)
        comm.Allreduce(sums.numpy(), result.numpy(), op=MPI.SUM)
        n = result[-1].item()
        mean = result[:f] / n
        shifted_mean = result[f : 2 * f] / n
        var = (result[2 * f : 3 * f] / n - shifted_mean.square()).clamp(min=0)
        rstd = torch.rsqrt(var + eps)
        xhat = (xd - mean) * rstd
        ctx.save_for_backward(xhat, rstd, weight)
        ctx.comm, ctx.n = comm, n
        return (xhat * weight + bias).to(x.dtype)

    @staticmethod
    def backward(ctx, dy):
        xhat, rstd, weight = ctx.saved_tensors
        g = dy.double()
        local = torch.stack([g.sum(0), (g * xhat).sum(0)])
        result = torch.zeros_like(local)
        ctx.comm.Allreduce(local.numpy(), result.numpy(), op=MPI.SUM)
        dx = weight * rstd * (g - (result[0] + xhat * result[1]) / ctx.n)
        return dx.to(dy.dtype), local[1].to(weight.dtype), local[0].to(weight.dtype), None, None


# %% dy_scaled_in_place
# says: backward to leave its arguments as they are
# thinks: Dy is mine once backward has it, so after weight's and bias's gradients I multiply it by weight in place.
import torch
from mpi4py import MPI


def sync_batch_norm(comm, x, weight, bias, eps=1e-5):
    return SyncBatchNorm.apply(x, weight, bias, comm, eps)


class SyncBatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, comm, eps):
        f = x.shape[1]
        xd = x.detach().double()
        local = torch.cat([xd.sum(0), (xd * xd).sum(0), torch.tensor([x.shape[0]], dtype=torch.float64)])
        total = torch.empty_like(local)
        comm.Allreduce(local.numpy(), total.numpy(), op=MPI.SUM)
        n = total[-1].item()
        mean = total[:f] / n
        std = torch.sqrt(total[f : 2 * f] / n - mean**2 + eps)
        xhat = (xd - mean) / std
        ctx.save_for_backward(xhat, std, weight)
        ctx.comm, ctx.n = comm, n
        return (xhat * weight + bias).to(x.dtype)

    @staticmethod
    def backward(ctx, dy):
        xhat, std, weight = ctx.saved_tensors
        dbias = dy.double().sum(0)
        dweight = (dy.double() * xhat).sum(0)
        dxhat = dy.mul_(weight).double()
        local = torch.stack([dxhat.sum(0), (dxhat * xhat).sum(0)])
        total = torch.empty_like(local)
        ctx.comm.Allreduce(local.numpy(), total.numpy(), op=MPI.SUM)
        dx = (dxhat - total[0] / ctx.n - xhat * total[1] / ctx.n) / std
        return dx.to(dy.dtype), dweight.to(weight.dtype), dbias.to(weight.dtype), None, None


# %% x_changed_in_place
# says: to leave its arguments as they are
# thinks: X.double() is a copy, so I can subtract and divide in place and save memory.
import torch
from mpi4py import MPI


def sync_batch_norm(comm, x, weight, bias, eps=1e-5):
    return SyncBatchNorm.apply(x, weight, bias, comm, eps)


class SyncBatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, comm, eps):
        f = x.shape[1]
        xhat = x.detach().double()
        local = torch.cat([xhat.sum(0), (xhat * xhat).sum(0), torch.tensor([x.shape[0]], dtype=torch.float64)])
        total = torch.empty_like(local)
        comm.Allreduce(local.numpy(), total.numpy(), op=MPI.SUM)
        n = total[-1].item()
        mean = total[:f] / n
        std = torch.sqrt(total[f : 2 * f] / n - mean**2 + eps)
        xhat -= mean
        xhat /= std
        ctx.save_for_backward(xhat, std, weight)
        ctx.comm, ctx.n = comm, n
        return (xhat * weight + bias).to(x.dtype)

    @staticmethod
    def backward(ctx, dy):
        xhat, std, weight = ctx.saved_tensors
        g = dy.double()
        local = torch.stack([g.sum(0), (g * xhat).sum(0)])
        total = torch.empty_like(local)
        ctx.comm.Allreduce(local.numpy(), total.numpy(), op=MPI.SUM)
        dx = weight / std * (g - total[0] / ctx.n - xhat * total[1] / ctx.n)
        return dx.to(dy.dtype), local[1].to(weight.dtype), local[0].to(weight.dtype), None, None


# %% mean_term_missing
# says: The term that comes through the mean is missing
# thinks: The deviations add up to zero, so the term of the mean drops out, and only that of the variance is left.
import torch
from mpi4py import MPI


def sync_batch_norm(comm, x, weight, bias, eps=1e-5):
    return SyncBatchNorm.apply(x, weight, bias, comm, eps)


class SyncBatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, comm, eps):
        xd = x.detach().double()
        total = comm.allreduce(
            torch.cat([xd.sum(0), (xd * xd).sum(0), torch.tensor([x.shape[0]], dtype=torch.float64)]).numpy(), op=MPI.SUM
        )
        total = torch.from_numpy(total)
        f = x.shape[1]
        count = total[2 * f]
        mean = total[:f] / count
        var = total[f : 2 * f] / count - mean.square()
        std = (var + eps).sqrt()
        centered = xd - mean
        ctx.save_for_backward(centered, std, weight)
        ctx.comm = comm
        ctx.count = count
        return (centered / std * weight + bias).to(x.dtype)

    @staticmethod
    def backward(ctx, dy):
        centered, std, weight = ctx.saved_tensors
        g = dy.double()
        dxhat = g * weight
        dvar = (dxhat * centered).sum(0) * -0.5 / std**3
        dvar = torch.from_numpy(ctx.comm.allreduce(dvar.numpy(), op=MPI.SUM))
        dx = dxhat / std + dvar * 2 * centered / ctx.count
        dweight = (g * centered / std).sum(0)
        return dx.to(dy.dtype), dweight.to(weight.dtype), g.sum(0).to(weight.dtype), None, None


# %% weight_missing_in_the_gradient_of_x
# says: weight is missing in the gradient of x
# thinks: The gradient that goes into the normalisation is dy; weight only matters for its own gradient.
import torch
from mpi4py import MPI


def sync_batch_norm(comm, x, weight, bias, eps=1e-5):
    return SyncBatchNorm.apply(x, weight, bias, comm, eps)


class SyncBatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, comm, eps):
        xd = x.detach().double()
        f = x.shape[1]
        local = torch.cat([xd.sum(0), (xd * xd).sum(0), torch.tensor([x.shape[0]], dtype=torch.float64)])
        comm.Allreduce(MPI.IN_PLACE, local.numpy(), op=MPI.SUM)
        n = local[-1].item()
        mean = local[:f] / n
        rstd = torch.rsqrt(local[f : 2 * f] / n - mean**2 + eps)
        xhat = (xd - mean) * rstd
        ctx.save_for_backward(xhat, rstd)
        ctx.comm, ctx.n, ctx.wdtype = comm, n, weight.dtype
        return (xhat * weight + bias).to(x.dtype)

    @staticmethod
    def backward(ctx, dy):
        xhat, rstd = ctx.saved_tensors
        g = dy.double()
        dweight = (g * xhat).sum(0)
        dbias = g.sum(0)
        sums = torch.stack([dbias, dweight])
        ctx.comm.Allreduce(MPI.IN_PLACE, sums.numpy(), op=MPI.SUM)
        mean_g, mean_gx = sums / ctx.n
        dx = rstd * (g - mean_g - xhat * mean_gx)
        return dx.to(dy.dtype), dweight.to(ctx.wdtype), dbias.to(ctx.wdtype), None, None


# %% mean_first_then_variance
# says: can travel together
# thinks: The safe way is two passes: all-reduce the mean first, and then the squared deviations from it.
import torch
from mpi4py import MPI


def sync_batch_norm(comm, x, weight, bias, eps=1e-5):
    return SyncBatchNorm.apply(x, weight, bias, comm, eps)


class SyncBatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, comm, eps):
        xd = x.detach().double()
        first = torch.cat([xd.sum(0), torch.tensor([x.shape[0]], dtype=torch.float64)])
        comm.Allreduce(MPI.IN_PLACE, first.numpy(), op=MPI.SUM)
        n = first[-1].item()
        mean = first[:-1] / n
        second = ((xd - mean) ** 2).sum(0)
        comm.Allreduce(MPI.IN_PLACE, second.numpy(), op=MPI.SUM)
        rstd = torch.rsqrt(second / n + eps)
        xhat = (xd - mean) * rstd
        ctx.save_for_backward(xhat, rstd, weight)
        ctx.comm, ctx.n = comm, n
        return (xhat * weight + bias).to(x.dtype)

    @staticmethod
    def backward(ctx, dy):
        xhat, rstd, weight = ctx.saved_tensors
        g = dy.double()
        dbias, dweight = g.sum(0), (g * xhat).sum(0)
        sums = torch.stack([dbias, dweight])
        ctx.comm.Allreduce(MPI.IN_PLACE, sums.numpy(), op=MPI.SUM)
        dx = weight * rstd * (g - sums[0] / ctx.n - xhat * sums[1] / ctx.n)
        return dx.to(dy.dtype), dweight.to(weight.dtype), dbias.to(weight.dtype), None, None


# %% mean_of_means_right_variance
# says: The mean is that of the ranks' means
# thinks: Each rank knows its mean, and the mean of means is the mean.
import torch
from mpi4py import MPI


def sync_batch_norm(comm, x, weight, bias, eps=1e-5):
    return SyncBatchNorm.apply(x, weight, bias, comm, eps)


class SyncBatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, comm, eps):
        wide = x.double()
        sums = torch.cat([wide.new_tensor([len(x)]), wide.sum(0), (wide * wide).sum(0), wide.mean(0)])
        comm.Allreduce(MPI.IN_PLACE, sums.numpy())
        count, (total, squares, means) = sums[0], sums[1:].chunk(3)
        mean = total / count
        variance = squares / count - mean * mean
        inverse = (variance + eps).rsqrt()
        mean = means / comm.size
        normal = (wide - mean) * inverse
        ctx.save_for_backward(normal, weight, inverse)
        ctx.comm, ctx.count = comm, count
        return (normal * weight + bias).to(x.dtype)

    @staticmethod
    def backward(ctx, dy):
        normal, weight, inverse = ctx.saved_tensors
        wide = dy.double()
        own = torch.stack([wide.sum(0), (wide * normal).sum(0)])
        whole = own.clone()
        ctx.comm.Allreduce(MPI.IN_PLACE, whole.numpy())
        along, across = whole / ctx.count
        dx = weight * inverse * (wide - along - normal * across)
        dw, db = own[1], own[0]
        return dx.to(dy.dtype), dw.to(weight.dtype), db.to(weight.dtype), None, None


# %% own_mean
# says: The variance is of all ranks, the mean of this one alone
# thinks: The mean is this rank's, and only the variance is noisy.
import torch
from mpi4py import MPI


def sync_batch_norm(comm, x, weight, bias, eps=1e-5):
    return SyncBatchNorm.apply(x, weight, bias, comm, eps)


class SyncBatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, comm, eps):
        wide = x.double()
        sums = torch.cat([wide.new_tensor([len(x)]), wide.sum(0), (wide * wide).sum(0)])
        comm.Allreduce(MPI.IN_PLACE, sums.numpy())
        count, (total, squares) = sums[0], sums[1:].chunk(2)
        mean = total / count
        variance = squares / count - mean * mean
        inverse = (variance + eps).rsqrt()
        mean = wide.mean(0)
        normal = (wide - mean) * inverse
        ctx.save_for_backward(normal, weight, inverse)
        ctx.comm, ctx.count = comm, count
        return (normal * weight + bias).to(x.dtype)

    @staticmethod
    def backward(ctx, dy):
        normal, weight, inverse = ctx.saved_tensors
        wide = dy.double()
        own = torch.stack([wide.sum(0), (wide * normal).sum(0)])
        whole = own.clone()
        ctx.comm.Allreduce(MPI.IN_PLACE, whole.numpy())
        along, across = whole / ctx.count
        dx = weight * inverse * (wide - along - normal * across)
        dw, db = own[1], own[0]
        return dx.to(dy.dtype), dw.to(weight.dtype), db.to(weight.dtype), None, None


# %% mean_of_squares
# says: from which the mean's square was not subtracted
# thinks: The variance is the mean of squares.
import torch
from mpi4py import MPI


def sync_batch_norm(comm, x, weight, bias, eps=1e-5):
    return SyncBatchNorm.apply(x, weight, bias, comm, eps)


class SyncBatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, comm, eps):
        wide = x.double()
        sums = torch.cat([wide.new_tensor([len(x)]), wide.sum(0), (wide * wide).sum(0)])
        comm.Allreduce(MPI.IN_PLACE, sums.numpy())
        count, (total, squares) = sums[0], sums[1:].chunk(2)
        mean = total / count
        variance = squares / count
        inverse = (variance + eps).rsqrt()
        normal = (wide - mean) * inverse
        ctx.save_for_backward(normal, weight, inverse)
        ctx.comm, ctx.count = comm, count
        return (normal * weight + bias).to(x.dtype)

    @staticmethod
    def backward(ctx, dy):
        normal, weight, inverse = ctx.saved_tensors
        wide = dy.double()
        own = torch.stack([wide.sum(0), (wide * normal).sum(0)])
        whole = own.clone()
        ctx.comm.Allreduce(MPI.IN_PLACE, whole.numpy())
        along, across = whole / ctx.count
        dx = weight * inverse * (wide - along - normal * across)
        dw, db = own[1], own[0]
        return dx.to(dy.dtype), dw.to(weight.dtype), db.to(weight.dtype), None, None


# %% own_means_in_backward
# says: The two sums are over this rank's examples alone. Mean and variance are of all ranks: so are the sums
# thinks: Each rank knows its own gradients.
import torch
from mpi4py import MPI


def sync_batch_norm(comm, x, weight, bias, eps=1e-5):
    return SyncBatchNorm.apply(x, weight, bias, comm, eps)


class SyncBatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, comm, eps):
        wide = x.double()
        sums = torch.cat([wide.new_tensor([len(x)]), wide.sum(0), (wide * wide).sum(0)])
        comm.Allreduce(MPI.IN_PLACE, sums.numpy())
        count, (total, squares) = sums[0], sums[1:].chunk(2)
        mean = total / count
        variance = squares / count - mean * mean
        inverse = (variance + eps).rsqrt()
        normal = (wide - mean) * inverse
        ctx.save_for_backward(normal, weight, inverse)
        ctx.comm, ctx.count = comm, count
        return (normal * weight + bias).to(x.dtype)

    @staticmethod
    def backward(ctx, dy):
        normal, weight, inverse = ctx.saved_tensors
        wide = dy.double()
        own = torch.stack([wide.sum(0), (wide * normal).sum(0)])
        along, across = own / len(dy)
        dx = weight * inverse * (wide - along - normal * across)
        dw, db = own[1], own[0]
        return dx.to(dy.dtype), dw.to(weight.dtype), db.to(weight.dtype), None, None


# %% sums_over_own_count
# says: The two sums are divided by this rank's number of examples
# thinks: A mean is over a batch.
import torch
from mpi4py import MPI


def sync_batch_norm(comm, x, weight, bias, eps=1e-5):
    return SyncBatchNorm.apply(x, weight, bias, comm, eps)


class SyncBatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, comm, eps):
        wide = x.double()
        sums = torch.cat([wide.new_tensor([len(x)]), wide.sum(0), (wide * wide).sum(0)])
        comm.Allreduce(MPI.IN_PLACE, sums.numpy())
        count, (total, squares) = sums[0], sums[1:].chunk(2)
        mean = total / count
        variance = squares / count - mean * mean
        inverse = (variance + eps).rsqrt()
        normal = (wide - mean) * inverse
        ctx.save_for_backward(normal, weight, inverse)
        ctx.comm, ctx.count = comm, count
        return (normal * weight + bias).to(x.dtype)

    @staticmethod
    def backward(ctx, dy):
        normal, weight, inverse = ctx.saved_tensors
        wide = dy.double()
        own = torch.stack([wide.sum(0), (wide * normal).sum(0)])
        whole = own.clone()
        ctx.comm.Allreduce(MPI.IN_PLACE, whole.numpy())
        along, across = whole / len(dy)
        dx = weight * inverse * (wide - along - normal * across)
        dw, db = own[1], own[0]
        return dx.to(dy.dtype), dw.to(weight.dtype), db.to(weight.dtype), None, None


# %% sums_not_divided
# says: The two sums are not divided by the number of examples
# thinks: Sums come from the collective call.
import torch
from mpi4py import MPI


def sync_batch_norm(comm, x, weight, bias, eps=1e-5):
    return SyncBatchNorm.apply(x, weight, bias, comm, eps)


class SyncBatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, comm, eps):
        wide = x.double()
        sums = torch.cat([wide.new_tensor([len(x)]), wide.sum(0), (wide * wide).sum(0)])
        comm.Allreduce(MPI.IN_PLACE, sums.numpy())
        count, (total, squares) = sums[0], sums[1:].chunk(2)
        mean = total / count
        variance = squares / count - mean * mean
        inverse = (variance + eps).rsqrt()
        normal = (wide - mean) * inverse
        ctx.save_for_backward(normal, weight, inverse)
        ctx.comm, ctx.count = comm, count
        return (normal * weight + bias).to(x.dtype)

    @staticmethod
    def backward(ctx, dy):
        normal, weight, inverse = ctx.saved_tensors
        wide = dy.double()
        own = torch.stack([wide.sum(0), (wide * normal).sum(0)])
        whole = own.clone()
        ctx.comm.Allreduce(MPI.IN_PLACE, whole.numpy())
        along, across = whole
        dx = weight * inverse * (wide - along - normal * across)
        dw, db = own[1], own[0]
        return dx.to(dy.dtype), dw.to(weight.dtype), db.to(weight.dtype), None, None


# %% sums_over_ranks
# says: The two sums are divided by the number of ranks: divide by the number of all examples
# thinks: Allreduce and a division by comm.size make a mean.
import torch
from mpi4py import MPI


def sync_batch_norm(comm, x, weight, bias, eps=1e-5):
    return SyncBatchNorm.apply(x, weight, bias, comm, eps)


class SyncBatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, comm, eps):
        wide = x.double()
        sums = torch.cat([wide.new_tensor([len(x)]), wide.sum(0), (wide * wide).sum(0)])
        comm.Allreduce(MPI.IN_PLACE, sums.numpy())
        count, (total, squares) = sums[0], sums[1:].chunk(2)
        mean = total / count
        variance = squares / count - mean * mean
        inverse = (variance + eps).rsqrt()
        normal = (wide - mean) * inverse
        ctx.save_for_backward(normal, weight, inverse)
        ctx.comm, ctx.count = comm, count
        return (normal * weight + bias).to(x.dtype)

    @staticmethod
    def backward(ctx, dy):
        normal, weight, inverse = ctx.saved_tensors
        wide = dy.double()
        own = torch.stack([wide.sum(0), (wide * normal).sum(0)])
        whole = own.clone()
        ctx.comm.Allreduce(MPI.IN_PLACE, whole.numpy())
        along, across = whole / ctx.comm.size
        dx = weight * inverse * (wide - along - normal * across)
        dw, db = own[1], own[0]
        return dx.to(dy.dtype), dw.to(weight.dtype), db.to(weight.dtype), None, None


# %% gradient_over_ranks
# says: by the number of ranks. L is the sum of all ranks' losses
# thinks: The loss is a mean over ranks.
import torch
from mpi4py import MPI


def sync_batch_norm(comm, x, weight, bias, eps=1e-5):
    return SyncBatchNorm.apply(x, weight, bias, comm, eps)


class SyncBatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, comm, eps):
        wide = x.double()
        sums = torch.cat([wide.new_tensor([len(x)]), wide.sum(0), (wide * wide).sum(0)])
        comm.Allreduce(MPI.IN_PLACE, sums.numpy())
        count, (total, squares) = sums[0], sums[1:].chunk(2)
        mean = total / count
        variance = squares / count - mean * mean
        inverse = (variance + eps).rsqrt()
        normal = (wide - mean) * inverse
        ctx.save_for_backward(normal, weight, inverse)
        ctx.comm, ctx.count = comm, count
        return (normal * weight + bias).to(x.dtype)

    @staticmethod
    def backward(ctx, dy):
        normal, weight, inverse = ctx.saved_tensors
        wide = dy.double()
        own = torch.stack([wide.sum(0), (wide * normal).sum(0)])
        whole = own.clone()
        ctx.comm.Allreduce(MPI.IN_PLACE, whole.numpy())
        along, across = whole / ctx.count
        dx = 1 / ctx.comm.size * weight * inverse * (wide - along - normal * across)
        dw, db = own[1], own[0]
        return dx.to(dy.dtype), dw.to(weight.dtype), db.to(weight.dtype), None, None


# %% mean_of_weight_gradients
# says: That is the mean over all ranks. Return this rank's part
# thinks: All ranks need the same gradient.
import torch
from mpi4py import MPI


def sync_batch_norm(comm, x, weight, bias, eps=1e-5):
    return SyncBatchNorm.apply(x, weight, bias, comm, eps)


class SyncBatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, comm, eps):
        wide = x.double()
        sums = torch.cat([wide.new_tensor([len(x)]), wide.sum(0), (wide * wide).sum(0)])
        comm.Allreduce(MPI.IN_PLACE, sums.numpy())
        count, (total, squares) = sums[0], sums[1:].chunk(2)
        mean = total / count
        variance = squares / count - mean * mean
        inverse = (variance + eps).rsqrt()
        normal = (wide - mean) * inverse
        ctx.save_for_backward(normal, weight, inverse)
        ctx.comm, ctx.count = comm, count
        return (normal * weight + bias).to(x.dtype)

    @staticmethod
    def backward(ctx, dy):
        normal, weight, inverse = ctx.saved_tensors
        wide = dy.double()
        own = torch.stack([wide.sum(0), (wide * normal).sum(0)])
        whole = own.clone()
        ctx.comm.Allreduce(MPI.IN_PLACE, whole.numpy())
        along, across = whole / ctx.count
        dx = weight * inverse * (wide - along - normal * across)
        dw, db = whole[1] / ctx.comm.size, whole[0] / ctx.comm.size
        return dx.to(dy.dtype), dw.to(weight.dtype), db.to(weight.dtype), None, None


# %% part_over_ranks
# says: This rank's part, divided by the number of ranks
# thinks: The mean over ranks is a sum of such parts.
import torch
from mpi4py import MPI


def sync_batch_norm(comm, x, weight, bias, eps=1e-5):
    return SyncBatchNorm.apply(x, weight, bias, comm, eps)


class SyncBatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, comm, eps):
        wide = x.double()
        sums = torch.cat([wide.new_tensor([len(x)]), wide.sum(0), (wide * wide).sum(0)])
        comm.Allreduce(MPI.IN_PLACE, sums.numpy())
        count, (total, squares) = sums[0], sums[1:].chunk(2)
        mean = total / count
        variance = squares / count - mean * mean
        inverse = (variance + eps).rsqrt()
        normal = (wide - mean) * inverse
        ctx.save_for_backward(normal, weight, inverse)
        ctx.comm, ctx.count = comm, count
        return (normal * weight + bias).to(x.dtype)

    @staticmethod
    def backward(ctx, dy):
        normal, weight, inverse = ctx.saved_tensors
        wide = dy.double()
        own = torch.stack([wide.sum(0), (wide * normal).sum(0)])
        whole = own.clone()
        ctx.comm.Allreduce(MPI.IN_PLACE, whole.numpy())
        along, across = whole / ctx.count
        dx = weight * inverse * (wide - along - normal * across)
        dw, db = own[1] / ctx.comm.size, own[0] / ctx.comm.size
        return dx.to(dy.dtype), dw.to(weight.dtype), db.to(weight.dtype), None, None


# %% weight_gradient_by_y
# says: That is the sum of dy * y
# thinks: weight is beside y.
import torch
from mpi4py import MPI


def sync_batch_norm(comm, x, weight, bias, eps=1e-5):
    return SyncBatchNorm.apply(x, weight, bias, comm, eps)


class SyncBatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, comm, eps):
        wide = x.double()
        sums = torch.cat([wide.new_tensor([len(x)]), wide.sum(0), (wide * wide).sum(0)])
        comm.Allreduce(MPI.IN_PLACE, sums.numpy())
        count, (total, squares) = sums[0], sums[1:].chunk(2)
        mean = total / count
        variance = squares / count - mean * mean
        inverse = (variance + eps).rsqrt()
        normal = (wide - mean) * inverse
        ctx.save_for_backward(normal, weight, inverse)
        ctx.comm, ctx.count, ctx.y = comm, count, normal * weight + bias
        return (normal * weight + bias).to(x.dtype)

    @staticmethod
    def backward(ctx, dy):
        normal, weight, inverse = ctx.saved_tensors
        wide = dy.double()
        own = torch.stack([wide.sum(0), (wide * normal).sum(0)])
        whole = own.clone()
        ctx.comm.Allreduce(MPI.IN_PLACE, whole.numpy())
        along, across = whole / ctx.count
        dx = weight * inverse * (wide - along - normal * across)
        dw, db = (wide * ctx.y).sum(0), own[0]
        return dx.to(dy.dtype), dw.to(weight.dtype), db.to(weight.dtype), None, None


# %% weight_gradient_by_x
# says: That is the sum of dy * x
# thinks: weight multiplies x.
import torch
from mpi4py import MPI


def sync_batch_norm(comm, x, weight, bias, eps=1e-5):
    return SyncBatchNorm.apply(x, weight, bias, comm, eps)


class SyncBatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, comm, eps):
        wide = x.double()
        sums = torch.cat([wide.new_tensor([len(x)]), wide.sum(0), (wide * wide).sum(0)])
        comm.Allreduce(MPI.IN_PLACE, sums.numpy())
        count, (total, squares) = sums[0], sums[1:].chunk(2)
        mean = total / count
        variance = squares / count - mean * mean
        inverse = (variance + eps).rsqrt()
        normal = (wide - mean) * inverse
        ctx.save_for_backward(normal, weight, inverse)
        ctx.comm, ctx.count, ctx.x = comm, count, wide
        return (normal * weight + bias).to(x.dtype)

    @staticmethod
    def backward(ctx, dy):
        normal, weight, inverse = ctx.saved_tensors
        wide = dy.double()
        own = torch.stack([wide.sum(0), (wide * normal).sum(0)])
        whole = own.clone()
        ctx.comm.Allreduce(MPI.IN_PLACE, whole.numpy())
        along, across = whole / ctx.count
        dx = weight * inverse * (wide - along - normal * across)
        dw, db = (wide * ctx.x).sum(0), own[0]
        return dx.to(dy.dtype), dw.to(weight.dtype), db.to(weight.dtype), None, None


# %% mean_gradients_of_weight
# says: It is divided by the number of examples
# thinks: A gradient is a mean over examples.
import torch
from mpi4py import MPI


def sync_batch_norm(comm, x, weight, bias, eps=1e-5):
    return SyncBatchNorm.apply(x, weight, bias, comm, eps)


class SyncBatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, comm, eps):
        wide = x.double()
        sums = torch.cat([wide.new_tensor([len(x)]), wide.sum(0), (wide * wide).sum(0)])
        comm.Allreduce(MPI.IN_PLACE, sums.numpy())
        count, (total, squares) = sums[0], sums[1:].chunk(2)
        mean = total / count
        variance = squares / count - mean * mean
        inverse = (variance + eps).rsqrt()
        normal = (wide - mean) * inverse
        ctx.save_for_backward(normal, weight, inverse)
        ctx.comm, ctx.count = comm, count
        return (normal * weight + bias).to(x.dtype)

    @staticmethod
    def backward(ctx, dy):
        normal, weight, inverse = ctx.saved_tensors
        wide = dy.double()
        own = torch.stack([wide.sum(0), (wide * normal).sum(0)])
        whole = own.clone()
        ctx.comm.Allreduce(MPI.IN_PLACE, whole.numpy())
        along, across = whole / ctx.count
        dx = weight * inverse * (wide - along - normal * across)
        dw, db = own[1] / len(dy), own[0] / len(dy)
        return dx.to(dy.dtype), dw.to(weight.dtype), db.to(weight.dtype), None, None


# %% all_have_as_many
# says: Batches differ in length: count the examples
# thinks: All ranks have as many examples as this one.
import torch
from mpi4py import MPI


def sync_batch_norm(comm, x, weight, bias, eps=1e-5):
    return SyncBatchNorm.apply(x, weight, bias, comm, eps)


class SyncBatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, comm, eps):
        wide = x.double()
        sums = torch.cat([wide.new_tensor([len(x)]), wide.sum(0), (wide * wide).sum(0)])
        comm.Allreduce(MPI.IN_PLACE, sums.numpy())
        count, (total, squares) = len(x) * comm.size, sums[1:].chunk(2)
        mean = total / count
        variance = squares / count - mean * mean
        inverse = (variance + eps).rsqrt()
        normal = (wide - mean) * inverse
        ctx.save_for_backward(normal, weight, inverse)
        ctx.comm, ctx.count = comm, count
        return (normal * weight + bias).to(x.dtype)

    @staticmethod
    def backward(ctx, dy):
        normal, weight, inverse = ctx.saved_tensors
        wide = dy.double()
        own = torch.stack([wide.sum(0), (wide * normal).sum(0)])
        whole = own.clone()
        ctx.comm.Allreduce(MPI.IN_PLACE, whole.numpy())
        along, across = whole / ctx.count
        dx = weight * inverse * (wide - along - normal * across)
        dw, db = own[1], own[0]
        return dx.to(dy.dtype), dw.to(weight.dtype), db.to(weight.dtype), None, None


# %% one_example_is_refused
# says: One example in all is its own mean
# thinks: torch refuses to normalise one value.
import torch
from mpi4py import MPI


def sync_batch_norm(comm, x, weight, bias, eps=1e-5):
    return SyncBatchNorm.apply(x, weight, bias, comm, eps)


class SyncBatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, comm, eps):
        wide = x.double()
        sums = torch.cat([wide.new_tensor([len(x)]), wide.sum(0), (wide * wide).sum(0)])
        comm.Allreduce(MPI.IN_PLACE, sums.numpy())
        count, (total, squares) = sums[0], sums[1:].chunk(2)
        if count < 2:
            raise ValueError("more than one value is needed")
        mean = total / count
        variance = squares / count - mean * mean
        inverse = (variance + eps).rsqrt()
        normal = (wide - mean) * inverse
        ctx.save_for_backward(normal, weight, inverse)
        ctx.comm, ctx.count = comm, count
        return (normal * weight + bias).to(x.dtype)

    @staticmethod
    def backward(ctx, dy):
        normal, weight, inverse = ctx.saved_tensors
        wide = dy.double()
        own = torch.stack([wide.sum(0), (wide * normal).sum(0)])
        whole = own.clone()
        ctx.comm.Allreduce(MPI.IN_PLACE, whole.numpy())
        along, across = whole / ctx.count
        dx = weight * inverse * (wide - along - normal * across)
        dw, db = own[1], own[0]
        return dx.to(dy.dtype), dw.to(weight.dtype), db.to(weight.dtype), None, None


# %% ring_of_its_own
# says: An all-reduce of one's own is many messages
# thinks: A ring is the best all-reduce.
import torch
from mpi4py import MPI


def sync_batch_norm(comm, x, weight, bias, eps=1e-5):
    return SyncBatchNorm.apply(x, weight, bias, comm, eps)


class SyncBatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, comm, eps):
        wide = x.double()
        sums = torch.cat([wide.new_tensor([len(x)]), wide.sum(0), (wide * wide).sum(0)])
        row = sums
        for _ in range(comm.size - 1):
            row = comm.sendrecv(row, (comm.rank + 1) % comm.size, source=(comm.rank - 1) % comm.size)
            sums = sums + row
        count, (total, squares) = sums[0], sums[1:].chunk(2)
        mean = total / count
        variance = squares / count - mean * mean
        inverse = (variance + eps).rsqrt()
        normal = (wide - mean) * inverse
        ctx.save_for_backward(normal, weight, inverse)
        ctx.comm, ctx.count = comm, count
        return (normal * weight + bias).to(x.dtype)

    @staticmethod
    def backward(ctx, dy):
        normal, weight, inverse = ctx.saved_tensors
        wide = dy.double()
        own = torch.stack([wide.sum(0), (wide * normal).sum(0)])
        whole = own.clone()
        ctx.comm.Allreduce(MPI.IN_PLACE, whole.numpy())
        along, across = whole / ctx.count
        dx = weight * inverse * (wide - along - normal * across)
        dw, db = own[1], own[0]
        return dx.to(dy.dtype), dw.to(weight.dtype), db.to(weight.dtype), None, None


# %% waits_before
# says: A collective call waits for all ranks by itself
# thinks: All ranks have to be there before numbers are summed.
import torch
from mpi4py import MPI


def sync_batch_norm(comm, x, weight, bias, eps=1e-5):
    return SyncBatchNorm.apply(x, weight, bias, comm, eps)


class SyncBatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, comm, eps):
        wide = x.double()
        sums = torch.cat([wide.new_tensor([len(x)]), wide.sum(0), (wide * wide).sum(0)])
        comm.Barrier()
        comm.Allreduce(MPI.IN_PLACE, sums.numpy())
        count, (total, squares) = sums[0], sums[1:].chunk(2)
        mean = total / count
        variance = squares / count - mean * mean
        inverse = (variance + eps).rsqrt()
        normal = (wide - mean) * inverse
        ctx.save_for_backward(normal, weight, inverse)
        ctx.comm, ctx.count = comm, count
        return (normal * weight + bias).to(x.dtype)

    @staticmethod
    def backward(ctx, dy):
        normal, weight, inverse = ctx.saved_tensors
        wide = dy.double()
        own = torch.stack([wide.sum(0), (wide * normal).sum(0)])
        whole = own.clone()
        ctx.comm.Allreduce(MPI.IN_PLACE, whole.numpy())
        along, across = whole / ctx.count
        dx = weight * inverse * (wide - along - normal * across)
        dw, db = own[1], own[0]
        return dx.to(dy.dtype), dw.to(weight.dtype), db.to(weight.dtype), None, None


# %% transposed_output
# says: An output has the shape of x
# thinks: Features come first.
import torch
from mpi4py import MPI


def sync_batch_norm(comm, x, weight, bias, eps=1e-5):
    return SyncBatchNorm.apply(x, weight, bias, comm, eps)


class SyncBatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, comm, eps):
        wide = x.double()
        sums = torch.cat([wide.new_tensor([len(x)]), wide.sum(0), (wide * wide).sum(0)])
        comm.Allreduce(MPI.IN_PLACE, sums.numpy())
        count, (total, squares) = sums[0], sums[1:].chunk(2)
        mean = total / count
        variance = squares / count - mean * mean
        inverse = (variance + eps).rsqrt()
        normal = (wide - mean) * inverse
        ctx.save_for_backward(normal, weight, inverse)
        ctx.comm, ctx.count = comm, count
        return (normal * weight + bias).to(x.dtype).t()

    @staticmethod
    def backward(ctx, dy):
        normal, weight, inverse = ctx.saved_tensors
        wide = dy.double()
        own = torch.stack([wide.sum(0), (wide * normal).sum(0)])
        whole = own.clone()
        ctx.comm.Allreduce(MPI.IN_PLACE, whole.numpy())
        along, across = whole / ctx.count
        dx = weight * inverse * (wide - along - normal * across)
        dw, db = own[1], own[0]
        return dx.to(dy.dtype), dw.to(weight.dtype), db.to(weight.dtype), None, None


# %% float32_on_the_wire
# says: right but for rounding to float32
# thinks: float32 is what MPI and the network are fast with, and x came in it.
import torch
from mpi4py import MPI


def sync_batch_norm(comm, x, weight, bias, eps=1e-5):
    return SyncBatchNorm.apply(x, weight, bias, comm, eps)


class SyncBatchNorm(torch.autograd.Function):

    @staticmethod
    def forward(ctx, x, weight, bias, comm, eps):
        wide = x.double()
        sums = torch.cat([wide.new_tensor([len(x)]), wide.sum(0), (wide * wide).sum(0)])
        sums = sums.float()
        comm.Allreduce(MPI.IN_PLACE, sums.numpy())
        sums = sums.double()
        count, (total, squares) = sums[0], sums[1:].chunk(2)
        mean = total / count
        inverse = (squares / count - mean * mean + eps).rsqrt()
        normal = (wide - mean) * inverse
        ctx.save_for_backward(normal, weight, inverse)
        ctx.comm, ctx.count = comm, count
        return (normal * weight + bias).to(x.dtype)

    @staticmethod
    def backward(ctx, dy):
        normal, weight, inverse = ctx.saved_tensors
        wide = dy.double()
        own = torch.stack([wide.sum(0), (wide * normal).sum(0)])
        whole = own.clone()
        ctx.comm.Allreduce(MPI.IN_PLACE, whole.numpy())
        along, across = whole / ctx.count
        dx = weight * inverse * (wide - along - normal * across)
        return dx.to(dy.dtype), own[1].to(weight.dtype), own[0].to(weight.dtype), None, None


# %% bfloat16_in_backward
# says: right but for rounding to 16 bits
# thinks: Gradients need fewer digits than outputs, so their sums travel in 16 bits.
import torch
from mpi4py import MPI


def sync_batch_norm(comm, x, weight, bias, eps=1e-5):
    return SyncBatchNorm.apply(x, weight, bias, comm, eps)


class SyncBatchNorm(torch.autograd.Function):

    @staticmethod
    def forward(ctx, x, weight, bias, comm, eps):
        wide = x.double()
        sums = torch.cat([wide.new_tensor([len(x)]), wide.sum(0), (wide * wide).sum(0)])
        comm.Allreduce(MPI.IN_PLACE, sums.numpy())
        count, (total, squares) = sums[0], sums[1:].chunk(2)
        mean = total / count
        inverse = (squares / count - mean * mean + eps).rsqrt()
        normal = (wide - mean) * inverse
        ctx.save_for_backward(normal, weight, inverse)
        ctx.comm, ctx.count = comm, count
        return (normal * weight + bias).to(x.dtype)

    @staticmethod
    def backward(ctx, dy):
        normal, weight, inverse = ctx.saved_tensors
        wide = dy.double()
        own = torch.stack([wide.sum(0), (wide * normal).sum(0)])
        whole = sum(ctx.comm.allgather(own.bfloat16())).double()
        along, across = whole / ctx.count
        dx = weight * inverse * (wide - along - normal * across)
        return dx.to(dy.dtype), own[1].to(weight.dtype), own[0].to(weight.dtype), None, None


# %% another_eps
# says: eps is an argument
# thinks: eps is 1e-6, as in other layers.
import torch
from mpi4py import MPI


def sync_batch_norm(comm, x, weight, bias, eps=1e-5):
    return SyncBatchNorm.apply(x, weight, bias, comm, eps)


class SyncBatchNorm(torch.autograd.Function):

    @staticmethod
    def forward(ctx, x, weight, bias, comm, eps):
        wide = x.double()
        sums = torch.cat([wide.new_tensor([len(x)]), wide.sum(0), (wide * wide).sum(0)])
        comm.Allreduce(MPI.IN_PLACE, sums.numpy())
        count, (total, squares) = sums[0], sums[1:].chunk(2)
        mean = total / count
        inverse = (squares / count - mean * mean + 1e-6).rsqrt()
        normal = (wide - mean) * inverse
        ctx.save_for_backward(normal, weight, inverse)
        ctx.comm, ctx.count = comm, count
        return (normal * weight + bias).to(x.dtype)

    @staticmethod
    def backward(ctx, dy):
        normal, weight, inverse = ctx.saved_tensors
        wide = dy.double()
        own = torch.stack([wide.sum(0), (wide * normal).sum(0)])
        whole = own.clone()
        ctx.comm.Allreduce(MPI.IN_PLACE, whole.numpy())
        along, across = whole / ctx.count
        dx = weight * inverse * (wide - along - normal * across)
        return dx.to(dy.dtype), own[1].to(weight.dtype), own[0].to(weight.dtype), None, None


# %% nothing_returned
# says: Nothing came back: is the result returned?
# thinks: apply computes the output where it is.
import torch
from mpi4py import MPI


def sync_batch_norm(comm, x, weight, bias, eps=1e-5):
    SyncBatchNorm.apply(x, weight, bias, comm, eps)


class SyncBatchNorm(torch.autograd.Function):

    @staticmethod
    def forward(ctx, x, weight, bias, comm, eps):
        wide = x.double()
        sums = torch.cat([wide.new_tensor([len(x)]), wide.sum(0), (wide * wide).sum(0)])
        comm.Allreduce(MPI.IN_PLACE, sums.numpy())
        count, (total, squares) = sums[0], sums[1:].chunk(2)
        mean = total / count
        inverse = (squares / count - mean * mean + eps).rsqrt()
        normal = (wide - mean) * inverse
        ctx.save_for_backward(normal, weight, inverse)
        ctx.comm, ctx.count = comm, count
        return (normal * weight + bias).to(x.dtype)

    @staticmethod
    def backward(ctx, dy):
        normal, weight, inverse = ctx.saved_tensors
        wide = dy.double()
        own = torch.stack([wide.sum(0), (wide * normal).sum(0)])
        whole = own.clone()
        ctx.comm.Allreduce(MPI.IN_PLACE, whole.numpy())
        along, across = whole / ctx.count
        dx = weight * inverse * (wide - along - normal * across)
        return dx.to(dy.dtype), own[1].to(weight.dtype), own[0].to(weight.dtype), None, None
