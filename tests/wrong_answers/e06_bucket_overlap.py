"""Wrong answers to e06_bucket_overlap. What a cell holds is told in tests/answers.py."""

# %% blocking_in_the_hook
# says: Allreduce returns when the result is there
# thinks: An all-reduce in a hook runs while backward goes on.
import torch
from mpi4py import MPI


class BucketedMean:
    def __init__(self, comm, model, bucket_bytes):
        self.comm = comm
        self.buckets, room = [], 0
        for p in reversed([p for p in model.parameters() if p.requires_grad]):
            size = p.numel() * p.element_size()
            if not self.buckets or size > room:
                self.buckets.append([])
                room = bucket_bytes
            self.buckets[-1].append(p)
            room -= size
        self.number = {p: i for i, bucket in enumerate(self.buckets) for p in bucket}
        for p in self.number:
            p.register_post_accumulate_grad_hook(self.hook)
        self.reset()

    def reset(self):
        self.missing = [len(bucket) for bucket in self.buckets]
        self.pending = []

    def hook(self, p):
        self.missing[self.number[p]] -= 1
        while len(self.pending) < len(self.buckets) and self.missing[len(self.pending)] == 0:
            self.begin()

    def begin(self):
        bucket = self.buckets[len(self.pending)]
        row = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in bucket])
        self.comm.Allreduce(MPI.IN_PLACE, row.numpy())
        self.pending.append((bucket, row))

    def wait(self):
        while len(self.pending) < len(self.buckets):
            self.begin()
        for bucket, row in self.pending:
            row /= self.comm.size
            for p, part in zip(bucket, row.split([p.numel() for p in bucket])):
                p.grad = part.view_as(p).clone()
        self.reset()


# %% all_begun_in_wait
# says: All of them begin when backward is over
# thinks: Buckets save calls; that is the point of them.
import torch
from mpi4py import MPI


class BucketedMean:
    def __init__(self, comm, model, bucket_bytes):
        self.comm = comm
        self.buckets, room = [], 0
        for p in reversed([p for p in model.parameters() if p.requires_grad]):
            size = p.numel() * p.element_size()
            if not self.buckets or size > room:
                self.buckets.append([])
                room = bucket_bytes
            self.buckets[-1].append(p)
            room -= size
        self.number = {p: i for i, bucket in enumerate(self.buckets) for p in bucket}
        for p in self.number:
            pass
        self.reset()

    def reset(self):
        self.missing = [len(bucket) for bucket in self.buckets]
        self.pending = []

    def hook(self, p):
        self.missing[self.number[p]] -= 1
        while len(self.pending) < len(self.buckets) and self.missing[len(self.pending)] == 0:
            self.begin()

    def begin(self):
        bucket = self.buckets[len(self.pending)]
        row = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in bucket])
        self.pending.append((bucket, row, self.comm.Iallreduce(MPI.IN_PLACE, row.numpy())))

    def wait(self):
        while len(self.pending) < len(self.buckets):
            self.begin()
        for bucket, row, request in self.pending:
            request.Wait()
            row /= self.comm.size
            for p, part in zip(bucket, row.split([p.numel() for p in bucket])):
                p.grad = part.view_as(p).clone()
        self.reset()


# %% first_parameters_first
# says: All of them begin when backward is over
# thinks: Parameters come in the order of model.parameters().
import torch
from mpi4py import MPI


class BucketedMean:
    def __init__(self, comm, model, bucket_bytes):
        self.comm = comm
        self.buckets, room = [], 0
        for p in [p for p in model.parameters() if p.requires_grad]:
            size = p.numel() * p.element_size()
            if not self.buckets or size > room:
                self.buckets.append([])
                room = bucket_bytes
            self.buckets[-1].append(p)
            room -= size
        self.number = {p: i for i, bucket in enumerate(self.buckets) for p in bucket}
        for p in self.number:
            p.register_post_accumulate_grad_hook(self.hook)
        self.reset()

    def reset(self):
        self.missing = [len(bucket) for bucket in self.buckets]
        self.pending = []

    def hook(self, p):
        self.missing[self.number[p]] -= 1
        while len(self.pending) < len(self.buckets) and self.missing[len(self.pending)] == 0:
            self.begin()

    def begin(self):
        bucket = self.buckets[len(self.pending)]
        row = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in bucket])
        self.pending.append((bucket, row, self.comm.Iallreduce(MPI.IN_PLACE, row.numpy())))

    def wait(self):
        while len(self.pending) < len(self.buckets):
            self.begin()
        for bucket, row, request in self.pending:
            request.Wait()
            row /= self.comm.size
            for p, part in zip(bucket, row.split([p.numel() for p in bucket])):
                p.grad = part.view_as(p).clone()
        self.reset()


# %% sum_not_mean
# says: the sum over ranks
# thinks: The sum of the gradients is what the optimizer needs.
import torch
from mpi4py import MPI


class BucketedMean:
    def __init__(self, comm, model, bucket_bytes):
        self.comm = comm
        self.buckets, room = [], 0
        for p in reversed([p for p in model.parameters() if p.requires_grad]):
            size = p.numel() * p.element_size()
            if not self.buckets or size > room:
                self.buckets.append([])
                room = bucket_bytes
            self.buckets[-1].append(p)
            room -= size
        self.number = {p: i for i, bucket in enumerate(self.buckets) for p in bucket}
        for p in self.number:
            p.register_post_accumulate_grad_hook(self.hook)
        self.reset()

    def reset(self):
        self.missing = [len(bucket) for bucket in self.buckets]
        self.pending = []

    def hook(self, p):
        self.missing[self.number[p]] -= 1
        while len(self.pending) < len(self.buckets) and self.missing[len(self.pending)] == 0:
            self.begin()

    def begin(self):
        bucket = self.buckets[len(self.pending)]
        row = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in bucket])
        self.pending.append((bucket, row, self.comm.Iallreduce(MPI.IN_PLACE, row.numpy())))

    def wait(self):
        while len(self.pending) < len(self.buckets):
            self.begin()
        for bucket, row, request in self.pending:
            request.Wait()
            for p, part in zip(bucket, row.split([p.numel() for p in bucket])):
                p.grad = part.view_as(p).clone()
        self.reset()


# %% divided_twice
# says: divided by the number of ranks twice
# thinks: Divide before the sum against overflow, and after it for the mean.
import torch
from mpi4py import MPI


class BucketedMean:
    def __init__(self, comm, model, bucket_bytes):
        self.comm = comm
        self.buckets, room = [], 0
        for p in reversed([p for p in model.parameters() if p.requires_grad]):
            size = p.numel() * p.element_size()
            if not self.buckets or size > room:
                self.buckets.append([])
                room = bucket_bytes
            self.buckets[-1].append(p)
            room -= size
        self.number = {p: i for i, bucket in enumerate(self.buckets) for p in bucket}
        for p in self.number:
            p.register_post_accumulate_grad_hook(self.hook)
        self.reset()

    def reset(self):
        self.missing = [len(bucket) for bucket in self.buckets]
        self.pending = []

    def hook(self, p):
        self.missing[self.number[p]] -= 1
        while len(self.pending) < len(self.buckets) and self.missing[len(self.pending)] == 0:
            self.begin()

    def begin(self):
        bucket = self.buckets[len(self.pending)]
        row = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in bucket])
        row /= self.comm.size
        self.pending.append((bucket, row, self.comm.Iallreduce(MPI.IN_PLACE, row.numpy())))

    def wait(self):
        while len(self.pending) < len(self.buckets):
            self.begin()
        for bucket, row, request in self.pending:
            request.Wait()
            row /= self.comm.size
            for p, part in zip(bucket, row.split([p.numel() for p in bucket])):
                p.grad = part.view_as(p).clone()
        self.reset()


# %% a_call_for_each_parameter
# says: Gradients of a bucket travel in one array
# thinks: A parameter is a bucket.
import torch
from mpi4py import MPI


class BucketedMean:
    def __init__(self, comm, model, bucket_bytes):
        self.comm = comm
        self.buckets, room = [], 0
        for p in reversed([p for p in model.parameters() if p.requires_grad]):
            size = p.numel() * p.element_size()
            if True:
                self.buckets.append([])
                room = bucket_bytes
            self.buckets[-1].append(p)
            room -= size
        self.number = {p: i for i, bucket in enumerate(self.buckets) for p in bucket}
        for p in self.number:
            p.register_post_accumulate_grad_hook(self.hook)
        self.reset()

    def reset(self):
        self.missing = [len(bucket) for bucket in self.buckets]
        self.pending = []

    def hook(self, p):
        self.missing[self.number[p]] -= 1
        while len(self.pending) < len(self.buckets) and self.missing[len(self.pending)] == 0:
            self.begin()

    def begin(self):
        bucket = self.buckets[len(self.pending)]
        row = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in bucket])
        self.pending.append((bucket, row, self.comm.Iallreduce(MPI.IN_PLACE, row.numpy())))

    def wait(self):
        while len(self.pending) < len(self.buckets):
            self.begin()
        for bucket, row, request in self.pending:
            request.Wait()
            row /= self.comm.size
            for p, part in zip(bucket, row.split([p.numel() for p in bucket])):
                p.grad = part.view_as(p).clone()
        self.reset()


# %% one_bucket_for_all
# says: One bucket for all begins when all gradients are there
# thinks: The fewer messages, the better.
import torch
from mpi4py import MPI


class BucketedMean:
    def __init__(self, comm, model, bucket_bytes):
        self.comm = comm
        self.buckets, room = [], 0
        for p in reversed([p for p in model.parameters() if p.requires_grad]):
            size = p.numel() * p.element_size()
            if not self.buckets:
                self.buckets.append([])
                room = bucket_bytes
            self.buckets[-1].append(p)
            room -= size
        self.number = {p: i for i, bucket in enumerate(self.buckets) for p in bucket}
        for p in self.number:
            p.register_post_accumulate_grad_hook(self.hook)
        self.reset()

    def reset(self):
        self.missing = [len(bucket) for bucket in self.buckets]
        self.pending = []

    def hook(self, p):
        self.missing[self.number[p]] -= 1
        while len(self.pending) < len(self.buckets) and self.missing[len(self.pending)] == 0:
            self.begin()

    def begin(self):
        bucket = self.buckets[len(self.pending)]
        row = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in bucket])
        self.pending.append((bucket, row, self.comm.Iallreduce(MPI.IN_PLACE, row.numpy())))

    def wait(self):
        while len(self.pending) < len(self.buckets):
            self.begin()
        for bucket, row, request in self.pending:
            request.Wait()
            row /= self.comm.size
            for p, part in zip(bucket, row.split([p.numel() for p in bucket])):
                p.grad = part.view_as(p).clone()
        self.reset()


# %% counts_are_not_set_back
# says: what counts what is ready begins anew
# thinks: The hooks count by themselves.
import torch
from mpi4py import MPI


class BucketedMean:
    def __init__(self, comm, model, bucket_bytes):
        self.comm = comm
        self.buckets, room = [], 0
        for p in reversed([p for p in model.parameters() if p.requires_grad]):
            size = p.numel() * p.element_size()
            if not self.buckets or size > room:
                self.buckets.append([])
                room = bucket_bytes
            self.buckets[-1].append(p)
            room -= size
        self.number = {p: i for i, bucket in enumerate(self.buckets) for p in bucket}
        for p in self.number:
            p.register_post_accumulate_grad_hook(self.hook)
        self.reset()

    def reset(self):
        self.missing = [len(bucket) for bucket in self.buckets]
        self.pending = []
        self.again = True

    def hook(self, p):
        self.missing[self.number[p]] -= 1
        while len(self.pending) < len(self.buckets) and self.missing[len(self.pending)] == 0:
            self.begin()

    def begin(self):
        bucket = self.buckets[len(self.pending)]
        row = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in bucket])
        self.pending.append((bucket, row, self.comm.Iallreduce(MPI.IN_PLACE, row.numpy())))

    def wait(self):
        while len(self.pending) < len(self.buckets):
            self.begin()
        for bucket, row, request in self.pending:
            request.Wait()
            row /= self.comm.size
            for p, part in zip(bucket, row.split([p.numel() for p in bucket])):
                p.grad = part.view_as(p).clone()
        self.pending = []


# %% begun_when_full
# says: different orders
# thinks: A bucket begins as soon as it is full: that overlaps most.
import torch
from mpi4py import MPI


class BucketedMean:
    def __init__(self, comm, model, bucket_bytes):
        self.comm = comm
        self.buckets, room = [], 0
        for p in reversed([p for p in model.parameters() if p.requires_grad]):
            size = p.numel() * p.element_size()
            if not self.buckets or size > room:
                self.buckets.append([])
                room = bucket_bytes
            self.buckets[-1].append(p)
            room -= size
        self.number = {p: i for i, bucket in enumerate(self.buckets) for p in bucket}
        for p in self.number:
            p.register_post_accumulate_grad_hook(self.hook)
        self.reset()

    def reset(self):
        self.missing = [len(bucket) for bucket in self.buckets]
        self.pending = []

    def hook(self, p):
        self.missing[self.number[p]] -= 1
        if self.missing[self.number[p]] == 0:
            self.begin(self.number[p])

    def begin(self, i):
        bucket = self.buckets[i]
        row = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in bucket])
        self.pending.append((bucket, row, self.comm.Iallreduce(MPI.IN_PLACE, row.numpy())))

    def wait(self):
        for i, missing in enumerate(self.missing):
            if missing:
                self.begin(i)
        for bucket, row, request in self.pending:
            request.Wait()
            row /= self.comm.size
            for p, part in zip(bucket, row.split([p.numel() for p in bucket])):
                p.grad = part.view_as(p).clone()
        self.reset()


# %% buckets_in_order_of_readiness
# says: different orders
# thinks: The first step shows in which order gradients are ready.
import torch
from mpi4py import MPI


class BucketedMean:
    def __init__(self, comm, model, bucket_bytes):
        self.comm, self.bytes = comm, bucket_bytes
        self.left = {p for p in model.parameters() if p.requires_grad}
        self.all = set(self.left)
        self.ready, self.pending = [], []
        for p in self.left:
            p.register_post_accumulate_grad_hook(self.hook)

    def hook(self, p):
        if self.ready and sum(q.numel() * q.element_size() for q in [*self.ready, p]) > self.bytes:
            self.begin()
        self.ready.append(p)
        self.left.discard(p)
        if not self.left:
            self.begin()

    def begin(self):
        row = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in self.ready])
        self.pending.append((self.ready, row, self.comm.Iallreduce(MPI.IN_PLACE, row.numpy())))
        self.ready = []

    def wait(self):
        for bucket, row, request in self.pending:
            request.Wait()
            for p, part in zip(bucket, (row / self.comm.size).split([p.numel() for p in bucket])):
                p.grad = part.view_as(p).clone()
        self.left, self.pending = set(self.all), []


# %% nothing_for_what_is_missing
# says: wait() begins the buckets that are left
# thinks: backward computes every gradient.
import torch
from mpi4py import MPI


class BucketedMean:
    def __init__(self, comm, model, bucket_bytes):
        self.comm = comm
        self.buckets, room = [], 0
        for p in reversed([p for p in model.parameters() if p.requires_grad]):
            size = p.numel() * p.element_size()
            if not self.buckets or size > room:
                self.buckets.append([])
                room = bucket_bytes
            self.buckets[-1].append(p)
            room -= size
        self.number = {p: i for i, bucket in enumerate(self.buckets) for p in bucket}
        for p in self.number:
            p.register_post_accumulate_grad_hook(self.hook)
        self.reset()

    def reset(self):
        self.missing = [len(bucket) for bucket in self.buckets]
        self.pending = []

    def hook(self, p):
        self.missing[self.number[p]] -= 1
        while len(self.pending) < len(self.buckets) and self.missing[len(self.pending)] == 0:
            self.begin()

    def begin(self):
        bucket = self.buckets[len(self.pending)]
        row = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in bucket])
        self.pending.append((bucket, row, self.comm.Iallreduce(MPI.IN_PLACE, row.numpy())))

    def wait(self):
        for bucket, row, request in self.pending:
            request.Wait()
            row /= self.comm.size
            for p, part in zip(bucket, row.split([p.numel() for p in bucket])):
                p.grad = part.view_as(p).clone()
        self.reset()


# %% mean_over_those_who_have_one
# says: times the bytes of all gradients
# thinks: Who has no gradient does not count.
import torch
from mpi4py import MPI


class BucketedMean:
    def __init__(self, comm, model, bucket_bytes):
        self.comm = comm
        self.buckets, room = [], 0
        for p in reversed([p for p in model.parameters() if p.requires_grad]):
            size = p.numel() * p.element_size()
            if not self.buckets or size > room:
                self.buckets.append([])
                room = bucket_bytes
            self.buckets[-1].append(p)
            room -= size
        self.number = {p: i for i, bucket in enumerate(self.buckets) for p in bucket}
        for p in self.number:
            p.register_post_accumulate_grad_hook(self.hook)
        self.reset()

    def reset(self):
        self.missing = [len(bucket) for bucket in self.buckets]
        self.pending = []

    def hook(self, p):
        self.missing[self.number[p]] -= 1
        while len(self.pending) < len(self.buckets) and self.missing[len(self.pending)] == 0:
            self.begin()

    def begin(self):
        bucket = self.buckets[len(self.pending)]
        row = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in bucket])
        has = torch.cat([torch.full((p.numel(),), float(p.grad is not None), dtype=p.dtype) for p in bucket])
        row = torch.stack([row, has])
        self.pending.append((bucket, row, self.comm.Iallreduce(MPI.IN_PLACE, row.numpy())))

    def wait(self):
        while len(self.pending) < len(self.buckets):
            self.begin()
        for bucket, row, request in self.pending:
            request.Wait()
            row = row[0] / row[1].clamp(min=1)
            for p, part in zip(bucket, row.split([p.numel() for p in bucket])):
                p.grad = part.view_as(p).clone()
        self.reset()


# %% frozen_ones_too
# says: frozen
# thinks: model.parameters() are what is trained.
import torch
from mpi4py import MPI


class BucketedMean:
    def __init__(self, comm, model, bucket_bytes):
        self.comm = comm
        self.buckets, room = [], 0
        for p in reversed(list(model.parameters())):
            size = p.numel() * p.element_size()
            if not self.buckets or size > room:
                self.buckets.append([])
                room = bucket_bytes
            self.buckets[-1].append(p)
            room -= size
        self.number = {p: i for i, bucket in enumerate(self.buckets) for p in bucket}
        for p in self.number:
            p.register_post_accumulate_grad_hook(self.hook)
        self.reset()

    def reset(self):
        self.missing = [len(bucket) for bucket in self.buckets]
        self.pending = []

    def hook(self, p):
        self.missing[self.number[p]] -= 1
        while len(self.pending) < len(self.buckets) and self.missing[len(self.pending)] == 0:
            self.begin()

    def begin(self):
        bucket = self.buckets[len(self.pending)]
        row = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in bucket])
        self.pending.append((bucket, row, self.comm.Iallreduce(MPI.IN_PLACE, row.numpy())))

    def wait(self):
        while len(self.pending) < len(self.buckets):
            self.begin()
        for bucket, row, request in self.pending:
            request.Wait()
            row /= self.comm.size
            for p, part in zip(bucket, row.split([p.numel() for p in bucket])):
                p.grad = part.view_as(p).clone()
        self.reset()


# %% not_written_back
# says: this rank's own gradient
# thinks: torch.cat gives a view of the gradients.
import torch
from mpi4py import MPI


class BucketedMean:
    def __init__(self, comm, model, bucket_bytes):
        self.comm = comm
        self.buckets, room = [], 0
        for p in reversed([p for p in model.parameters() if p.requires_grad]):
            size = p.numel() * p.element_size()
            if not self.buckets or size > room:
                self.buckets.append([])
                room = bucket_bytes
            self.buckets[-1].append(p)
            room -= size
        self.number = {p: i for i, bucket in enumerate(self.buckets) for p in bucket}
        for p in self.number:
            p.register_post_accumulate_grad_hook(self.hook)
        self.reset()

    def reset(self):
        self.missing = [len(bucket) for bucket in self.buckets]
        self.pending = []

    def hook(self, p):
        self.missing[self.number[p]] -= 1
        while len(self.pending) < len(self.buckets) and self.missing[len(self.pending)] == 0:
            self.begin()

    def begin(self):
        bucket = self.buckets[len(self.pending)]
        row = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in bucket])
        self.pending.append((bucket, row, self.comm.Iallreduce(MPI.IN_PLACE, row.numpy())))

    def wait(self):
        while len(self.pending) < len(self.buckets):
            self.begin()
        for bucket, row, request in self.pending:
            request.Wait()
            row /= self.comm.size
        self.reset()


# %% never_waited_for
# says: was never waited for
# thinks: Iallreduce returns when it is done, as MPI says of every call.
import torch
from mpi4py import MPI


class BucketedMean:
    def __init__(self, comm, model, bucket_bytes):
        self.comm = comm
        self.buckets, room = [], 0
        for p in reversed([p for p in model.parameters() if p.requires_grad]):
            size = p.numel() * p.element_size()
            if not self.buckets or size > room:
                self.buckets.append([])
                room = bucket_bytes
            self.buckets[-1].append(p)
            room -= size
        self.number = {p: i for i, bucket in enumerate(self.buckets) for p in bucket}
        for p in self.number:
            p.register_post_accumulate_grad_hook(self.hook)
        self.reset()

    def reset(self):
        self.missing = [len(bucket) for bucket in self.buckets]
        self.pending = []

    def hook(self, p):
        self.missing[self.number[p]] -= 1
        while len(self.pending) < len(self.buckets) and self.missing[len(self.pending)] == 0:
            self.begin()

    def begin(self):
        bucket = self.buckets[len(self.pending)]
        row = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in bucket])
        self.pending.append((bucket, row, self.comm.Iallreduce(MPI.IN_PLACE, row.numpy())))

    def wait(self):
        while len(self.pending) < len(self.buckets):
            self.begin()
        for bucket, row, request in self.pending:
            row /= self.comm.size
            for p, part in zip(bucket, row.split([p.numel() for p in bucket])):
                p.grad = part.view_as(p).clone()
        self.reset()


# %% flat_gradients
# says: attempting to assign a gradient of size
# thinks: A gradient is a row of values.
import torch
from mpi4py import MPI


class BucketedMean:
    def __init__(self, comm, model, bucket_bytes):
        self.comm = comm
        self.buckets, room = [], 0
        for p in reversed([p for p in model.parameters() if p.requires_grad]):
            size = p.numel() * p.element_size()
            if not self.buckets or size > room:
                self.buckets.append([])
                room = bucket_bytes
            self.buckets[-1].append(p)
            room -= size
        self.number = {p: i for i, bucket in enumerate(self.buckets) for p in bucket}
        for p in self.number:
            p.register_post_accumulate_grad_hook(self.hook)
        self.reset()

    def reset(self):
        self.missing = [len(bucket) for bucket in self.buckets]
        self.pending = []

    def hook(self, p):
        self.missing[self.number[p]] -= 1
        while len(self.pending) < len(self.buckets) and self.missing[len(self.pending)] == 0:
            self.begin()

    def begin(self):
        bucket = self.buckets[len(self.pending)]
        row = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in bucket])
        self.pending.append((bucket, row, self.comm.Iallreduce(MPI.IN_PLACE, row.numpy())))

    def wait(self):
        while len(self.pending) < len(self.buckets):
            self.begin()
        for bucket, row, request in self.pending:
            request.Wait()
            row /= self.comm.size
            for p, part in zip(bucket, row.split([p.numel() for p in bucket])):
                p.grad = part.clone()
        self.reset()


# %% tensor_hook
# says: zeros
# thinks: register_hook is the hook of gradients.
import torch
from mpi4py import MPI


class BucketedMean:
    def __init__(self, comm, model, bucket_bytes):
        self.comm = comm
        self.buckets, room = [], 0
        for p in reversed([p for p in model.parameters() if p.requires_grad]):
            size = p.numel() * p.element_size()
            if not self.buckets or size > room:
                self.buckets.append([])
                room = bucket_bytes
            self.buckets[-1].append(p)
            room -= size
        self.number = {p: i for i, bucket in enumerate(self.buckets) for p in bucket}
        for p in self.number:
            p.register_hook(lambda grad, p=p: self.hook(p))
        self.reset()

    def reset(self):
        self.missing = [len(bucket) for bucket in self.buckets]
        self.pending = []

    def hook(self, p):
        self.missing[self.number[p]] -= 1
        while len(self.pending) < len(self.buckets) and self.missing[len(self.pending)] == 0:
            self.begin()

    def begin(self):
        bucket = self.buckets[len(self.pending)]
        row = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in bucket])
        self.pending.append((bucket, row, self.comm.Iallreduce(MPI.IN_PLACE, row.numpy())))

    def wait(self):
        while len(self.pending) < len(self.buckets):
            self.begin()
        for bucket, row, request in self.pending:
            request.Wait()
            row /= self.comm.size
            for p, part in zip(bucket, row.split([p.numel() for p in bucket])):
                p.grad = part.view_as(p).clone()
        self.reset()
