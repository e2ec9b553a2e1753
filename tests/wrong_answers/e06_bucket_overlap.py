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


# %% waits_in_the_hook
# says: is waited for in wait() only
# thinks: Iallreduce does not block, so a Wait right after it costs nothing.
import torch
from mpi4py import MPI


class BucketedMean:
    def __init__(self, comm, model, bucket_bytes):
        self.comm = comm
        self.buckets, size = [], 0
        for p in reversed([p for p in model.parameters() if p.requires_grad]):
            nbytes = p.numel() * p.element_size()
            if not self.buckets or size + nbytes > bucket_bytes:
                self.buckets.append([])
                size = 0
            self.buckets[-1].append(p)
            size += nbytes
        for i, bucket in enumerate(self.buckets):
            for p in bucket:
                p.register_post_accumulate_grad_hook(lambda _, i=i: self.arrived(i))
        self.reset()

    def reset(self):
        self.missing = [len(bucket) for bucket in self.buckets]
        self.begun = []

    def arrived(self, i):
        self.missing[i] -= 1
        while len(self.begun) < len(self.buckets) and self.missing[len(self.begun)] == 0:
            self.begin()

    def begin(self):
        bucket = self.buckets[len(self.begun)]
        flat = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in bucket])
        request = self.comm.Iallreduce(MPI.IN_PLACE, flat, op=MPI.SUM)
        request.Wait()
        self.begun.append((flat, request))

    def wait(self):
        while len(self.begun) < len(self.buckets):
            self.begin()
        for bucket, (flat, request) in zip(self.buckets, self.begun):
            request.Wait()
            flat /= self.comm.size
            for p, part in zip(bucket, flat.split([p.numel() for p in bucket])):
                p.grad = part.view_as(p).clone()
        self.reset()


# %% last_bucket_forgotten
# says: this rank's own gradient: wait() puts
# thinks: A bucket is put away when the next one begins.
import torch
from mpi4py import MPI


class BucketedMean:
    def __init__(self, comm, model, bucket_bytes):
        self.comm = comm
        self.buckets, bucket, size = [], [], 0
        for p in reversed([p for p in model.parameters() if p.requires_grad]):
            nbytes = p.numel() * p.element_size()
            if bucket and size + nbytes > bucket_bytes:
                self.buckets.append(bucket)
                bucket, size = [], 0
            bucket.append(p)
            size += nbytes
        for i, bucket in enumerate(self.buckets):
            for p in bucket:
                p.register_post_accumulate_grad_hook(lambda _, i=i: self.arrived(i))
        self.reset()

    def reset(self):
        self.missing = [len(bucket) for bucket in self.buckets]
        self.begun = []

    def arrived(self, i):
        self.missing[i] -= 1
        while len(self.begun) < len(self.buckets) and self.missing[len(self.begun)] == 0:
            self.begin()

    def begin(self):
        bucket = self.buckets[len(self.begun)]
        flat = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in bucket])
        self.begun.append((flat, self.comm.Iallreduce(MPI.IN_PLACE, flat, op=MPI.SUM)))

    def wait(self):
        while len(self.begun) < len(self.buckets):
            self.begin()
        for bucket, (flat, request) in zip(self.buckets, self.begun):
            request.Wait()
            flat /= self.comm.size
            for p, part in zip(bucket, flat.split([p.numel() for p in bucket])):
                p.grad = part.view_as(p).clone()
        self.reset()


# %% elements_not_bytes
# says: p.numel() * p.element_size() of them
# thinks: The size of a bucket is the number of its elements.
import torch
from mpi4py import MPI


class BucketedMean:
    def __init__(self, comm, model, bucket_bytes):
        self.comm = comm
        self.buckets, size = [], 0
        for p in reversed([p for p in model.parameters() if p.requires_grad]):
            nbytes = p.numel()
            if not self.buckets or size + nbytes > bucket_bytes:
                self.buckets.append([])
                size = 0
            self.buckets[-1].append(p)
            size += nbytes
        for i, bucket in enumerate(self.buckets):
            for p in bucket:
                p.register_post_accumulate_grad_hook(lambda _, i=i: self.arrived(i))
        self.reset()

    def reset(self):
        self.missing = [len(bucket) for bucket in self.buckets]
        self.begun = []

    def arrived(self, i):
        self.missing[i] -= 1
        while len(self.begun) < len(self.buckets) and self.missing[len(self.begun)] == 0:
            self.begin()

    def begin(self):
        bucket = self.buckets[len(self.begun)]
        flat = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in bucket])
        self.begun.append((flat, self.comm.Iallreduce(MPI.IN_PLACE, flat, op=MPI.SUM)))

    def wait(self):
        while len(self.begun) < len(self.buckets):
            self.begin()
        for bucket, (flat, request) in zip(self.buckets, self.begun):
            request.Wait()
            flat /= self.comm.size
            for p, part in zip(bucket, flat.split([p.numel() for p in bucket])):
                p.grad = part.view_as(p).clone()
        self.reset()


# %% four_bytes_each
# says: p.numel() * p.element_size() bytes
# thinks: A gradient has four bytes an element.
import torch
from mpi4py import MPI


class BucketedMean:
    def __init__(self, comm, model, bucket_bytes):
        self.comm = comm
        self.buckets, size = [], 0
        for p in reversed([p for p in model.parameters() if p.requires_grad]):
            nbytes = 4 * p.numel()
            if not self.buckets or size + nbytes > bucket_bytes:
                self.buckets.append([])
                size = 0
            self.buckets[-1].append(p)
            size += nbytes
        for i, bucket in enumerate(self.buckets):
            for p in bucket:
                p.register_post_accumulate_grad_hook(lambda _, i=i: self.arrived(i))
        self.reset()

    def reset(self):
        self.missing = [len(bucket) for bucket in self.buckets]
        self.begun = []

    def arrived(self, i):
        self.missing[i] -= 1
        while len(self.begun) < len(self.buckets) and self.missing[len(self.begun)] == 0:
            self.begin()

    def begin(self):
        bucket = self.buckets[len(self.begun)]
        flat = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in bucket])
        self.begun.append((flat, self.comm.Iallreduce(MPI.IN_PLACE, flat, op=MPI.SUM)))

    def wait(self):
        while len(self.begun) < len(self.buckets):
            self.begin()
        for bucket, (flat, request) in zip(self.buckets, self.begun):
            request.Wait()
            flat /= self.comm.size
            for p, part in zip(bucket, flat.split([p.numel() for p in bucket])):
                p.grad = part.view_as(p).clone()
        self.reset()


# %% closed_when_over
# says: only if it has no more than bucket_bytes with it
# thinks: A bucket is full when it has reached its size, as in DDP.
import torch
from mpi4py import MPI


class BucketedMean:
    def __init__(self, comm, model, bucket_bytes):
        self.comm = comm
        self.buckets, size = [], 0
        for p in reversed([p for p in model.parameters() if p.requires_grad]):
            nbytes = p.numel() * p.element_size()
            if not self.buckets or size >= bucket_bytes:
                self.buckets.append([])
                size = 0
            self.buckets[-1].append(p)
            size += nbytes
        for i, bucket in enumerate(self.buckets):
            for p in bucket:
                p.register_post_accumulate_grad_hook(lambda _, i=i: self.arrived(i))
        self.reset()

    def reset(self):
        self.missing = [len(bucket) for bucket in self.buckets]
        self.begun = []

    def arrived(self, i):
        self.missing[i] -= 1
        while len(self.begun) < len(self.buckets) and self.missing[len(self.begun)] == 0:
            self.begin()

    def begin(self):
        bucket = self.buckets[len(self.begun)]
        flat = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in bucket])
        self.begun.append((flat, self.comm.Iallreduce(MPI.IN_PLACE, flat, op=MPI.SUM)))

    def wait(self):
        while len(self.begun) < len(self.buckets):
            self.begin()
        for bucket, (flat, request) in zip(self.buckets, self.begun):
            request.Wait()
            flat /= self.comm.size
            for p, part in zip(bucket, flat.split([p.numel() for p in bucket])):
                p.grad = part.view_as(p).clone()
        self.reset()


# %% a_call_for_each_on_a_communicator_of_its_own
# says: Gradients of a bucket travel in one array
# thinks: Calls on a communicator of its own are nobody else's matter.
import torch
from mpi4py import MPI


class BucketedMean:
    def __init__(self, comm, model, bucket_bytes):
        self.comm = comm.Dup()
        self.buckets, size = [], 0
        for p in reversed([p for p in model.parameters() if p.requires_grad]):
            nbytes = p.numel() * p.element_size()
            if True:
                self.buckets.append([])
                size = 0
            self.buckets[-1].append(p)
            size += nbytes
        for i, bucket in enumerate(self.buckets):
            for p in bucket:
                p.register_post_accumulate_grad_hook(lambda _, i=i: self.arrived(i))
        self.reset()

    def reset(self):
        self.missing = [len(bucket) for bucket in self.buckets]
        self.begun = []

    def arrived(self, i):
        self.missing[i] -= 1
        while len(self.begun) < len(self.buckets) and self.missing[len(self.begun)] == 0:
            self.begin()

    def begin(self):
        bucket = self.buckets[len(self.begun)]
        flat = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in bucket])
        self.begun.append((flat, self.comm.Iallreduce(MPI.IN_PLACE, flat, op=MPI.SUM)))

    def wait(self):
        while len(self.begun) < len(self.buckets):
            self.begin()
        for bucket, (flat, request) in zip(self.buckets, self.begun):
            request.Wait()
            flat /= self.comm.size
            for p, part in zip(bucket, flat.split([p.numel() for p in bucket])):
                p.grad = part.view_as(p).clone()
        self.reset()


# %% one_array_for_all_buckets
# says: its buffer was changed before its Wait
# thinks: Only one bucket is filled at a time, so one array is enough.
import torch
from mpi4py import MPI


class BucketedMean:
    def __init__(self, comm, model, bucket_bytes):
        self.comm = comm
        self.buckets, size = [], 0
        for p in reversed([p for p in model.parameters() if p.requires_grad]):
            nbytes = p.numel() * p.element_size()
            if not self.buckets or size + nbytes > bucket_bytes:
                self.buckets.append([])
                size = 0
            self.buckets[-1].append(p)
            size += nbytes
        for i, bucket in enumerate(self.buckets):
            for p in bucket:
                p.register_post_accumulate_grad_hook(lambda _, i=i: self.arrived(i))
        self.buffer = torch.cat([p.detach().flatten() for bucket in self.buckets for p in bucket])
        self.reset()

    def reset(self):
        self.missing = [len(bucket) for bucket in self.buckets]
        self.begun = []

    def arrived(self, i):
        self.missing[i] -= 1
        while len(self.begun) < len(self.buckets) and self.missing[len(self.begun)] == 0:
            self.begin()

    def begin(self):
        bucket = self.buckets[len(self.begun)]
        flat = self.buffer[: sum(p.numel() for p in bucket)]
        for p, part in zip(bucket, flat.split([p.numel() for p in bucket])):
            part.copy_(torch.zeros_like(part) if p.grad is None else p.grad.flatten())
        self.begun.append((flat, self.comm.Iallreduce(MPI.IN_PLACE, flat, op=MPI.SUM)))

    def wait(self):
        while len(self.begun) < len(self.buckets):
            self.begin()
        for bucket, (flat, request) in zip(self.buckets, self.begun):
            request.Wait()
            flat /= self.comm.size
            for p, part in zip(bucket, flat.split([p.numel() for p in bucket])):
                p.grad = part.view_as(p).clone()
        self.reset()


# %% array_keeps_the_last_step
# says: the bucket still holds what it held in the step before
# thinks: Hooks fill the array anew in each step.
import torch
from mpi4py import MPI


class BucketedMean:
    def __init__(self, comm, model, bucket_bytes):
        self.comm = comm
        groups, size = [], 0
        for p in reversed([p for p in model.parameters() if p.requires_grad]):
            nbytes = p.numel() * p.element_size()
            if not groups or size + nbytes > bucket_bytes:
                groups.append([])
                size = 0
            groups[-1].append(p)
            size += nbytes
        self.groups = groups
        self.flats = [torch.zeros(sum(p.numel() for p in g), dtype=g[0].dtype) for g in groups]
        for i, group in enumerate(groups):
            for p, part in zip(group, self.flats[i].split([p.numel() for p in group])):
                p.register_post_accumulate_grad_hook(lambda p, i=i, part=part: self.arrived(p, i, part))
        self.missing = [len(group) for group in groups]
        self.requests = []

    def arrived(self, p, i, part):
        part.copy_(p.grad.flatten())
        self.missing[i] -= 1
        while len(self.requests) < len(self.groups) and self.missing[len(self.requests)] == 0:
            self.begin()

    def begin(self):
        self.requests.append(self.comm.Iallreduce(MPI.IN_PLACE, self.flats[len(self.requests)]))

    def wait(self):
        while len(self.requests) < len(self.groups):
            self.begin()
        MPI.Request.Waitall(self.requests)
        for group, flat in zip(self.groups, self.flats):
            flat /= self.comm.size
            for p, part in zip(group, flat.split([p.numel() for p in group])):
                p.grad = part.view_as(p).clone()
        self.missing = [len(group) for group in self.groups]
        self.requests = []


# %% gradients_are_views_once
# says: makes a new tensor for it, which is part of no bucket
# thinks: backward adds into p.grad, which is a part of the bucket for good.
import torch
from mpi4py import MPI


class BucketedMean:
    def __init__(self, comm, model, bucket_bytes):
        self.comm = comm
        groups, size = [], 0
        for p in reversed([p for p in model.parameters() if p.requires_grad]):
            nbytes = p.numel() * p.element_size()
            if not groups or size + nbytes > bucket_bytes:
                groups.append([])
                size = 0
            groups[-1].append(p)
            size += nbytes
        self.flats = [torch.zeros(sum(p.numel() for p in g), dtype=g[0].dtype) for g in groups]
        self.lengths = [len(group) for group in groups]
        for i, group in enumerate(groups):
            for p, part in zip(group, self.flats[i].split([p.numel() for p in group])):
                p.grad = part.view_as(p)  # backward adds into the bucket
                p.register_post_accumulate_grad_hook(lambda p, i=i: self.arrived(i))
        self.missing = list(self.lengths)
        self.requests = []

    def arrived(self, i):
        self.missing[i] -= 1
        while len(self.requests) < len(self.flats) and self.missing[len(self.requests)] == 0:
            self.begin()

    def begin(self):
        self.requests.append(self.comm.Iallreduce(MPI.IN_PLACE, self.flats[len(self.requests)]))

    def wait(self):
        while len(self.requests) < len(self.flats):
            self.begin()
        MPI.Request.Waitall(self.requests)
        for flat in self.flats:
            flat /= self.comm.size
        self.missing = list(self.lengths)
        self.requests = []


# %% a_barrier_completes_them
# says: was never waited for
# thinks: After a barrier all ranks have done all that was begun before.
import torch
from mpi4py import MPI


class BucketedMean:
    def __init__(self, comm, model, bucket_bytes):
        self.comm = comm
        self.buckets, size = [], 0
        for p in reversed([p for p in model.parameters() if p.requires_grad]):
            nbytes = p.numel() * p.element_size()
            if not self.buckets or size + nbytes > bucket_bytes:
                self.buckets.append([])
                size = 0
            self.buckets[-1].append(p)
            size += nbytes
        for i, bucket in enumerate(self.buckets):
            for p in bucket:
                p.register_post_accumulate_grad_hook(lambda _, i=i: self.arrived(i))
        self.reset()

    def reset(self):
        self.missing = [len(bucket) for bucket in self.buckets]
        self.begun = []

    def arrived(self, i):
        self.missing[i] -= 1
        while len(self.begun) < len(self.buckets) and self.missing[len(self.begun)] == 0:
            self.begin()

    def begin(self):
        bucket = self.buckets[len(self.begun)]
        flat = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in bucket])
        self.comm.Iallreduce(MPI.IN_PLACE, flat, op=MPI.SUM)
        self.begun.append(flat)

    def wait(self):
        while len(self.begun) < len(self.buckets):
            self.begin()
        self.comm.Barrier()
        for bucket, flat in zip(self.buckets, self.begun):
            flat /= self.comm.size
            for p, part in zip(bucket, flat.split([p.numel() for p in bucket])):
                p.grad = part.view_as(p).clone()
        self.reset()


# %% waits_for_the_last_one
# says: and so does Iallreduce
# thinks: They complete in the order in which they began.
import torch
from mpi4py import MPI


class BucketedMean:
    def __init__(self, comm, model, bucket_bytes):
        self.comm = comm
        self.buckets, size = [], 0
        for p in reversed([p for p in model.parameters() if p.requires_grad]):
            nbytes = p.numel() * p.element_size()
            if not self.buckets or size + nbytes > bucket_bytes:
                self.buckets.append([])
                size = 0
            self.buckets[-1].append(p)
            size += nbytes
        for i, bucket in enumerate(self.buckets):
            for p in bucket:
                p.register_post_accumulate_grad_hook(lambda _, i=i: self.arrived(i))
        self.reset()

    def reset(self):
        self.missing = [len(bucket) for bucket in self.buckets]
        self.begun = []

    def arrived(self, i):
        self.missing[i] -= 1
        while len(self.begun) < len(self.buckets) and self.missing[len(self.begun)] == 0:
            self.begin()

    def begin(self):
        bucket = self.buckets[len(self.begun)]
        flat = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in bucket])
        self.begun.append((flat, self.comm.Iallreduce(MPI.IN_PLACE, flat, op=MPI.SUM)))

    def wait(self):
        while len(self.begun) < len(self.buckets):
            self.begin()
        self.begun[-1][1].Wait()  # they complete in order
        for bucket, (flat, _) in zip(self.buckets, self.begun):
            flat /= self.comm.size
            for p, part in zip(bucket, flat.split([p.numel() for p in bucket])):
                p.grad = part.view_as(p).clone()
        self.reset()


# %% float32_array
# says: rounded to float32
# thinks: Gradients are float32.
import torch
from mpi4py import MPI


class BucketedMean:
    def __init__(self, comm, model, bucket_bytes):
        self.comm = comm
        self.buckets, size = [], 0
        for p in reversed([p for p in model.parameters() if p.requires_grad]):
            nbytes = p.numel() * p.element_size()
            if not self.buckets or size + nbytes > bucket_bytes:
                self.buckets.append([])
                size = 0
            self.buckets[-1].append(p)
            size += nbytes
        for i, bucket in enumerate(self.buckets):
            for p in bucket:
                p.register_post_accumulate_grad_hook(lambda _, i=i: self.arrived(i))
        self.reset()

    def reset(self):
        self.missing = [len(bucket) for bucket in self.buckets]
        self.begun = []

    def arrived(self, i):
        self.missing[i] -= 1
        while len(self.begun) < len(self.buckets) and self.missing[len(self.begun)] == 0:
            self.begin()

    def begin(self):
        bucket = self.buckets[len(self.begun)]
        flat = torch.zeros(sum(p.numel() for p in bucket))
        for p, part in zip(bucket, flat.split([p.numel() for p in bucket])):
            if p.grad is not None:
                part.copy_(p.grad.flatten())
        self.begun.append((flat, self.comm.Iallreduce(MPI.IN_PLACE, flat, op=MPI.SUM)))

    def wait(self):
        while len(self.begun) < len(self.buckets):
            self.begin()
        for bucket, (flat, request) in zip(self.buckets, self.begun):
            request.Wait()
            flat /= self.comm.size
            for p, part in zip(bucket, flat.split([p.numel() for p in bucket])):
                p.grad = part.view_as(p).to(p.dtype)
        self.reset()


# %% own_gradient_first
# says: the same bits
# thinks: Addition is commutative, so the order does not matter.
import torch
from mpi4py import MPI


class BucketedMean:
    def __init__(self, comm, model, bucket_bytes):
        self.comm = comm
        self.buckets, size = [], 0
        for p in reversed([p for p in model.parameters() if p.requires_grad]):
            nbytes = p.numel() * p.element_size()
            if not self.buckets or size + nbytes > bucket_bytes:
                self.buckets.append([])
                size = 0
            self.buckets[-1].append(p)
            size += nbytes
        for i, bucket in enumerate(self.buckets):
            for p in bucket:
                p.register_post_accumulate_grad_hook(lambda _, i=i: self.arrived(i))
        self.reset()

    def reset(self):
        self.missing = [len(bucket) for bucket in self.buckets]
        self.begun = []

    def arrived(self, i):
        self.missing[i] -= 1
        while len(self.begun) < len(self.buckets) and self.missing[len(self.begun)] == 0:
            self.begin()

    def begin(self):
        bucket = self.buckets[len(self.begun)]
        flat = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in bucket])
        others = torch.empty(self.comm.size, len(flat), dtype=flat.dtype)
        self.begun.append((flat, others, self.comm.Iallgather(flat, others)))

    def wait(self):
        while len(self.begun) < len(self.buckets):
            self.begin()
        for bucket, (flat, others, request) in zip(self.buckets, self.begun):
            request.Wait()
            for rank in range(self.comm.size):
                if rank != self.comm.rank:
                    flat += others[rank]
            flat /= self.comm.size
            for p, part in zip(bucket, flat.split([p.numel() for p in bucket])):
                p.grad = part.view_as(p).clone()
        self.reset()


# %% one_bucket_a_hook
# says: a hook goes on as long as the next bucket is ready
# thinks: A gradient makes at most one bucket ready.
import torch
from mpi4py import MPI


class BucketedMean:
    def __init__(self, comm, model, bucket_bytes):
        self.comm = comm
        self.buckets, size = [], 0
        for p in reversed([p for p in model.parameters() if p.requires_grad]):
            nbytes = p.numel() * p.element_size()
            if not self.buckets or size + nbytes > bucket_bytes:
                self.buckets.append([])
                size = 0
            self.buckets[-1].append(p)
            size += nbytes
        for i, bucket in enumerate(self.buckets):
            for p in bucket:
                p.register_post_accumulate_grad_hook(lambda _, i=i: self.arrived(i))
        self.reset()

    def reset(self):
        self.missing = [len(bucket) for bucket in self.buckets]
        self.begun = []

    def arrived(self, i):
        self.missing[i] -= 1
        if i == len(self.begun) and self.missing[i] == 0:
            self.begin()

    def begin(self):
        bucket = self.buckets[len(self.begun)]
        flat = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in bucket])
        self.begun.append((flat, self.comm.Iallreduce(MPI.IN_PLACE, flat, op=MPI.SUM)))

    def wait(self):
        while len(self.begun) < len(self.buckets):
            self.begin()
        for bucket, (flat, request) in zip(self.buckets, self.begun):
            request.Wait()
            flat /= self.comm.size
            for p, part in zip(bucket, flat.split([p.numel() for p in bucket])):
                p.grad = part.view_as(p).clone()
        self.reset()


# %% every_hook_has_the_last_bucket
# says: sees the loop's last value
# thinks: A lambda keeps the values of when it was made.
import torch
from mpi4py import MPI


class BucketedMean:
    def __init__(self, comm, model, bucket_bytes):
        self.comm = comm
        self.buckets, size = [], 0
        for p in reversed([p for p in model.parameters() if p.requires_grad]):
            nbytes = p.numel() * p.element_size()
            if not self.buckets or size + nbytes > bucket_bytes:
                self.buckets.append([])
                size = 0
            self.buckets[-1].append(p)
            size += nbytes
        for i, bucket in enumerate(self.buckets):
            for p in bucket:
                p.register_post_accumulate_grad_hook(lambda _: self.arrived(i))
        self.reset()

    def reset(self):
        self.missing = [len(bucket) for bucket in self.buckets]
        self.begun = []

    def arrived(self, i):
        self.missing[i] -= 1
        while len(self.begun) < len(self.buckets) and self.missing[len(self.begun)] == 0:
            self.begin()

    def begin(self):
        bucket = self.buckets[len(self.begun)]
        flat = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in bucket])
        self.begun.append((flat, self.comm.Iallreduce(MPI.IN_PLACE, flat, op=MPI.SUM)))

    def wait(self):
        while len(self.begun) < len(self.buckets):
            self.begin()
        for bucket, (flat, request) in zip(self.buckets, self.begun):
            request.Wait()
            flat /= self.comm.size
            for p, part in zip(bucket, flat.split([p.numel() for p in bucket])):
                p.grad = part.view_as(p).clone()
        self.reset()


# %% mean_is_added
# says: added to this rank's own gradient
# thinks: Gradients are accumulated.
import torch
from mpi4py import MPI


class BucketedMean:
    def __init__(self, comm, model, bucket_bytes):
        self.comm = comm
        self.buckets, size = [], 0
        for p in reversed([p for p in model.parameters() if p.requires_grad]):
            nbytes = p.numel() * p.element_size()
            if not self.buckets or size + nbytes > bucket_bytes:
                self.buckets.append([])
                size = 0
            self.buckets[-1].append(p)
            size += nbytes
        for i, bucket in enumerate(self.buckets):
            for p in bucket:
                p.register_post_accumulate_grad_hook(lambda _, i=i: self.arrived(i))
        self.reset()

    def reset(self):
        self.missing = [len(bucket) for bucket in self.buckets]
        self.begun = []

    def arrived(self, i):
        self.missing[i] -= 1
        while len(self.begun) < len(self.buckets) and self.missing[len(self.begun)] == 0:
            self.begin()

    def begin(self):
        bucket = self.buckets[len(self.begun)]
        flat = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in bucket])
        self.begun.append((flat, self.comm.Iallreduce(MPI.IN_PLACE, flat, op=MPI.SUM)))

    def wait(self):
        while len(self.begun) < len(self.buckets):
            self.begin()
        for bucket, (flat, request) in zip(self.buckets, self.begun):
            request.Wait()
            flat /= self.comm.size
            for p, part in zip(bucket, flat.split([p.numel() for p in bucket])):
                p.grad = part.view_as(p).clone() if p.grad is None else p.grad.add_(part.view_as(p))
        self.reset()


# %% read_at_once
# says: There is a sum in the array from the request's Wait on
# thinks: The array is given to MPI, so it has the sum.
import torch
from mpi4py import MPI


class BucketedMean:
    def __init__(self, comm, model, bucket_bytes):
        self.comm = comm
        self.buckets, size = [], 0
        for p in reversed([p for p in model.parameters() if p.requires_grad]):
            nbytes = p.numel() * p.element_size()
            if not self.buckets or size + nbytes > bucket_bytes:
                self.buckets.append([])
                size = 0
            self.buckets[-1].append(p)
            size += nbytes
        for i, bucket in enumerate(self.buckets):
            for p in bucket:
                p.register_post_accumulate_grad_hook(lambda _, i=i: self.arrived(i))
        self.reset()

    def reset(self):
        self.missing = [len(bucket) for bucket in self.buckets]
        self.begun = []

    def arrived(self, i):
        self.missing[i] -= 1
        while len(self.begun) < len(self.buckets) and self.missing[len(self.begun)] == 0:
            self.begin()

    def begin(self):
        bucket = self.buckets[len(self.begun)]
        flat = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in bucket])
        self.begun.append((flat, self.comm.Iallreduce(MPI.IN_PLACE, flat, op=MPI.SUM)))
        for p, part in zip(bucket, flat.split([p.numel() for p in bucket])):
            p.grad = part.view_as(p) / self.comm.size

    def wait(self):
        while len(self.begun) < len(self.buckets):
            self.begin()
        for bucket, (flat, request) in zip(self.buckets, self.begun):
            request.Wait()
        self.reset()


# %% no_call_for_an_empty_bucket
# says: wait() begins the buckets that are left
# thinks: Who has nothing to give need not call.
import torch
from mpi4py import MPI


class BucketedMean:
    def __init__(self, comm, model, bucket_bytes):
        self.comm = comm
        self.buckets, size = [], 0
        for p in reversed([p for p in model.parameters() if p.requires_grad]):
            nbytes = p.numel() * p.element_size()
            if not self.buckets or size + nbytes > bucket_bytes:
                self.buckets.append([])
                size = 0
            self.buckets[-1].append(p)
            size += nbytes
        for i, bucket in enumerate(self.buckets):
            for p in bucket:
                p.register_post_accumulate_grad_hook(lambda _, i=i: self.arrived(i))
        self.reset()

    def reset(self):
        self.missing = [len(bucket) for bucket in self.buckets]
        self.begun = []

    def arrived(self, i):
        self.missing[i] -= 1
        while len(self.begun) < len(self.buckets) and self.missing[len(self.begun)] == 0:
            self.begin()

    def begin(self):
        bucket = self.buckets[len(self.begun)]
        if all(p.grad is None for p in bucket):
            self.begun.append(None)
            return
        flat = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in bucket])
        self.begun.append((flat, self.comm.Iallreduce(MPI.IN_PLACE, flat, op=MPI.SUM)))

    def wait(self):
        while len(self.begun) < len(self.buckets):
            self.begin()
        for bucket, begun in zip(self.buckets, self.begun):
            if begun is None:
                continue
            flat, request = begun
            request.Wait()
            flat /= self.comm.size
            for p, part in zip(bucket, flat.split([p.numel() for p in bucket])):
                p.grad = part.view_as(p).clone()
        self.reset()


# %% none_stays_none
# says: wait() begins the buckets that are left
# thinks: Where there is no gradient there is nothing to update.
import torch
from mpi4py import MPI


class BucketedMean:
    def __init__(self, comm, model, bucket_bytes):
        self.comm = comm
        self.buckets, size = [], 0
        for p in reversed([p for p in model.parameters() if p.requires_grad]):
            nbytes = p.numel() * p.element_size()
            if not self.buckets or size + nbytes > bucket_bytes:
                self.buckets.append([])
                size = 0
            self.buckets[-1].append(p)
            size += nbytes
        for i, bucket in enumerate(self.buckets):
            for p in bucket:
                p.register_post_accumulate_grad_hook(lambda _, i=i: self.arrived(i))
        self.reset()

    def reset(self):
        self.missing = [len(bucket) for bucket in self.buckets]
        self.begun = []

    def arrived(self, i):
        self.missing[i] -= 1
        while len(self.begun) < len(self.buckets) and self.missing[len(self.begun)] == 0:
            self.begin()

    def begin(self):
        bucket = self.buckets[len(self.begun)]
        flat = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in bucket])
        self.begun.append((flat, self.comm.Iallreduce(MPI.IN_PLACE, flat, op=MPI.SUM)))

    def wait(self):
        while len(self.begun) < len(self.buckets):
            self.begin()
        for bucket, (flat, request) in zip(self.buckets, self.begun):
            request.Wait()
            flat /= self.comm.size
            for p, part in zip(bucket, flat.split([p.numel() for p in bucket])):
                if p.grad is not None:
                    p.grad.copy_(part.view_as(p))
        self.reset()


# %% divided_by_those_who_have_one
# says: mean over the ranks that have a gradient
# thinks: The mean is over the gradients that there are.
import torch
from mpi4py import MPI


class BucketedMean:
    def __init__(self, comm, model, bucket_bytes):
        self.comm = comm
        self.buckets, size = [], 0
        for p in reversed([p for p in model.parameters() if p.requires_grad]):
            nbytes = p.numel() * p.element_size()
            if not self.buckets or size + nbytes > bucket_bytes:
                self.buckets.append([])
                size = 0
            self.buckets[-1].append(p)
            size += nbytes
        for i, bucket in enumerate(self.buckets):
            for p in bucket:
                p.register_post_accumulate_grad_hook(lambda _, i=i: self.arrived(i))
        self.reset()

    def reset(self):
        self.missing = [len(bucket) for bucket in self.buckets]
        self.begun = []

    def arrived(self, i):
        self.missing[i] -= 1
        while len(self.begun) < len(self.buckets) and self.missing[len(self.begun)] == 0:
            self.begin()

    def begin(self):
        bucket = self.buckets[len(self.begun)]
        flat = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in bucket])
        have = flat.new_tensor([0.0 if p.grad is None else 1.0 for p in bucket])
        flat = torch.cat([flat, have])
        self.begun.append((flat, self.comm.Iallreduce(MPI.IN_PLACE, flat, op=MPI.SUM)))

    def wait(self):
        while len(self.begun) < len(self.buckets):
            self.begin()
        for bucket, (flat, request) in zip(self.buckets, self.begun):
            request.Wait()
            *parts, have = flat.split([p.numel() for p in bucket] + [len(bucket)])
            for p, part, n in zip(bucket, parts, have):
                p.grad = part.view_as(p) / max(n.item(), 1)
        self.reset()


# %% module_hooks
# says: zeros
# thinks: A module's backward hook runs when its gradients are there.
import torch
from mpi4py import MPI


class BucketedMean:
    def __init__(self, comm, model, bucket_bytes):
        self.comm = comm
        self.buckets, size = [], 0
        for p in reversed([p for p in model.parameters() if p.requires_grad]):
            nbytes = p.numel() * p.element_size()
            if not self.buckets or size + nbytes > bucket_bytes:
                self.buckets.append([])
                size = 0
            self.buckets[-1].append(p)
            size += nbytes
        where = {p: i for i, bucket in enumerate(self.buckets) for p in bucket}
        for module in model.modules():
            for p in module.parameters(recurse=False):
                if p in where:
                    module.register_full_backward_hook(lambda *_, i=where[p]: self.arrived(i))
        self.reset()

    def reset(self):
        self.missing = [len(bucket) for bucket in self.buckets]
        self.begun = []

    def arrived(self, i):
        self.missing[i] -= 1
        while len(self.begun) < len(self.buckets) and self.missing[len(self.begun)] == 0:
            self.begin()

    def begin(self):
        bucket = self.buckets[len(self.begun)]
        flat = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in bucket])
        self.begun.append((flat, self.comm.Iallreduce(MPI.IN_PLACE, flat, op=MPI.SUM)))

    def wait(self):
        while len(self.begun) < len(self.buckets):
            self.begin()
        for bucket, (flat, request) in zip(self.buckets, self.begun):
            request.Wait()
            flat /= self.comm.size
            for p, part in zip(bucket, flat.split([p.numel() for p in bucket])):
                p.grad = part.view_as(p).clone()
        self.reset()


# %% nothing_is_set_back
# says: mean of the step before
# thinks: A bucket that was begun stays begun.
import torch
from mpi4py import MPI


class BucketedMean:
    def __init__(self, comm, model, bucket_bytes):
        self.comm = comm
        self.buckets, size = [], 0
        for p in reversed([p for p in model.parameters() if p.requires_grad]):
            nbytes = p.numel() * p.element_size()
            if not self.buckets or size + nbytes > bucket_bytes:
                self.buckets.append([])
                size = 0
            self.buckets[-1].append(p)
            size += nbytes
        for i, bucket in enumerate(self.buckets):
            for p in bucket:
                p.register_post_accumulate_grad_hook(lambda _, i=i: self.arrived(i))
        self.reset()

    def reset(self):
        self.missing = [len(bucket) for bucket in self.buckets]
        self.begun = []

    def arrived(self, i):
        self.missing[i] -= 1
        while len(self.begun) < len(self.buckets) and self.missing[len(self.begun)] == 0:
            self.begin()

    def begin(self):
        bucket = self.buckets[len(self.begun)]
        flat = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in bucket])
        self.begun.append((flat, self.comm.Iallreduce(MPI.IN_PLACE, flat, op=MPI.SUM)))

    def wait(self):
        while len(self.begun) < len(self.buckets):
            self.begin()
        for bucket, (flat, request) in zip(self.buckets, self.begun):
            request.Wait()
            flat /= self.comm.size
            for p, part in zip(bucket, flat.split([p.numel() for p in bucket])):
                p.grad = part.view_as(p).clone()


# %% gathered_and_summed
# says: times the bytes of all gradients
# thinks: A sum over what all ranks have needs what all ranks have.
import torch
from mpi4py import MPI


class BucketedMean:
    def __init__(self, comm, model, bucket_bytes):
        self.comm = comm
        self.buckets, size = [], 0
        for p in reversed([p for p in model.parameters() if p.requires_grad]):
            nbytes = p.numel() * p.element_size()
            if not self.buckets or size + nbytes > bucket_bytes:
                self.buckets.append([])
                size = 0
            self.buckets[-1].append(p)
            size += nbytes
        for i, bucket in enumerate(self.buckets):
            for p in bucket:
                p.register_post_accumulate_grad_hook(lambda _, i=i: self.arrived(i))
        self.reset()

    def reset(self):
        self.missing = [len(bucket) for bucket in self.buckets]
        self.begun = []

    def arrived(self, i):
        self.missing[i] -= 1
        while len(self.begun) < len(self.buckets) and self.missing[len(self.begun)] == 0:
            self.begin()

    def begin(self):
        bucket = self.buckets[len(self.begun)]
        flat = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in bucket])
        others = torch.empty(self.comm.size, len(flat), dtype=flat.dtype)
        self.begun.append((flat, others, self.comm.Iallgather(flat, others)))

    def wait(self):
        while len(self.begun) < len(self.buckets):
            self.begin()
        for bucket, (_, others, request) in zip(self.buckets, self.begun):
            request.Wait()
            flat = others.sum(0) / self.comm.size
            for p, part in zip(bucket, flat.split([p.numel() for p in bucket])):
                p.grad = part.view_as(p).clone()
        self.reset()


# %% messages_of_its_own
# says: a non-blocking all-reduce for each bucket
# thinks: Messages overlap with backward as well as an all-reduce does.
import torch
from mpi4py import MPI


class BucketedMean:
    def __init__(self, comm, model, bucket_bytes):
        self.comm = comm
        self.buckets, size = [], 0
        for p in reversed([p for p in model.parameters() if p.requires_grad]):
            nbytes = p.numel() * p.element_size()
            if not self.buckets or size + nbytes > bucket_bytes:
                self.buckets.append([])
                size = 0
            self.buckets[-1].append(p)
            size += nbytes
        for i, bucket in enumerate(self.buckets):
            for p in bucket:
                p.register_post_accumulate_grad_hook(lambda _, i=i: self.arrived(i))
        self.reset()

    def reset(self):
        self.missing = [len(bucket) for bucket in self.buckets]
        self.begun = []

    def arrived(self, i):
        self.missing[i] -= 1
        while len(self.begun) < len(self.buckets) and self.missing[len(self.begun)] == 0:
            self.begin()

    def begin(self):
        bucket = self.buckets[len(self.begun)]
        flat = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in bucket])
        all_of_it = torch.empty(self.comm.size, len(flat), dtype=flat.dtype)
        all_of_it[self.comm.rank] = flat
        tag, requests = len(self.begun), []
        for other in range(self.comm.size):
            if other != self.comm.rank:
                requests.append(self.comm.Irecv(all_of_it[other], other, tag))
        for other in range(self.comm.size):
            if other != self.comm.rank:
                requests.append(self.comm.Isend(flat, other, tag))
        self.begun.append((all_of_it, flat, requests))

    def wait(self):
        while len(self.begun) < len(self.buckets):
            self.begin()
        for bucket, (all_of_it, _, requests) in zip(self.buckets, self.begun):
            MPI.Request.Waitall(requests)
            flat = all_of_it.sum(0) / self.comm.size
            for p, part in zip(bucket, flat.split([p.numel() for p in bucket])):
                p.grad = part.view_as(p).clone()
        self.reset()


# %% parts_from_the_other_end
# says: is each part put where it belongs
# thinks: A bucket is in the order of the model.
import torch
from mpi4py import MPI


class BucketedMean:
    def __init__(self, comm, model, bucket_bytes):
        self.comm = comm
        self.buckets, size = [], 0
        for p in reversed([p for p in model.parameters() if p.requires_grad]):
            nbytes = p.numel() * p.element_size()
            if not self.buckets or size + nbytes > bucket_bytes:
                self.buckets.append([])
                size = 0
            self.buckets[-1].append(p)
            size += nbytes
        for i, bucket in enumerate(self.buckets):
            for p in bucket:
                p.register_post_accumulate_grad_hook(lambda _, i=i: self.arrived(i))
        self.reset()

    def reset(self):
        self.missing = [len(bucket) for bucket in self.buckets]
        self.begun = []

    def arrived(self, i):
        self.missing[i] -= 1
        while len(self.begun) < len(self.buckets) and self.missing[len(self.begun)] == 0:
            self.begin()

    def begin(self):
        bucket = self.buckets[len(self.begun)]
        flat = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in bucket])
        self.begun.append((flat, self.comm.Iallreduce(MPI.IN_PLACE, flat, op=MPI.SUM)))

    def wait(self):
        while len(self.begun) < len(self.buckets):
            self.begin()
        for bucket, (flat, request) in zip(self.buckets, self.begun):
            request.Wait()
            flat /= self.comm.size
            for p, part in zip(bucket[::-1], flat.split([p.numel() for p in bucket[::-1]])):
                p.grad = part.view_as(p).clone()
        self.reset()


# %% counts_hooks_only
# says: On these ranks gradients are not computed in the same order
# thinks: Backward computes gradients from the last parameter to the first, so it is enough to count them.
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
        self.ready = 0
        self.due = [sum(map(len, self.buckets[: i + 1])) for i in range(len(self.buckets))]
        self.pending = []

    def hook(self, p):
        self.ready += 1
        while len(self.pending) < len(self.buckets) and self.ready >= self.due[len(self.pending)]:
            self.begin()

    def begin(self):
        bucket = self.buckets[len(self.pending)]
        row = torch.cat([p.grad.flatten() for p in bucket])
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


# %% a_bucket_is_a_layer
# says: Here a bucket has more than one layer
# thinks: A bucket has the bias and the weight of a layer.
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
            bias, weight = bucket
            bias.grad = row[: bias.numel()].clone()
            weight.grad = row[bias.numel() :].view_as(weight).clone()
        self.reset()


# %% another_name_for_wait
# says: The class keeps the methods that its task names
# thinks: What is called wait is busy with more than waiting, so another name says it better.
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

    def synchronize(self):
        while len(self.pending) < len(self.buckets):
            self.begin()
        for bucket, row, request in self.pending:
            request.Wait()
            row /= self.comm.size
            for p, part in zip(bucket, row.split([p.numel() for p in bucket])):
                p.grad = part.view_as(p).clone()
        self.reset()


# %% frozen_ones_in_the_bucket
# says: A parameter with requires_grad=False belongs to no bucket
# thinks: Buckets hold all parameters. Those without a gradient count as zeros, so hooks are for the others only.
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
        for p in filter(lambda p: p.requires_grad, self.number):
            p.register_post_accumulate_grad_hook(self.hook)
        self.reset()

    def reset(self):
        self.missing = [sum(p.requires_grad for p in bucket) for bucket in self.buckets]
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


# %% grad_data_flat
# says: A gradient has the shape of its parameter
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
                p.grad.data = part
        self.reset()


# %% begins_with_an_empty_bucket
# says: One of these buckets is empty
# thinks: There is always a bucket to put parameters into, so the list begins with one.
class BucketedMean:
    def __init__(self, comm, model, bucket_bytes):
        self.comm = comm
        self.buckets, nbytes = [[]], 0
        for p in reversed([p for p in model.parameters() if p.requires_grad]):
            size = p.numel() * p.element_size()
            if nbytes + size > bucket_bytes:
                self.buckets.append([])
                nbytes = 0
            self.buckets[-1].append(p)
            nbytes += size
        self.bucket_of = {p: i for i, bucket in enumerate(self.buckets) for p in bucket}
        for p in self.bucket_of:
            p.register_post_accumulate_grad_hook(self._ready)
        self._begin_step()

    def wait(self):
        while self.begun < len(self.buckets):
            self._begin_next()
        for bucket, row, request in zip(self.buckets, self.rows, self.requests):
            request.Wait()
            row /= self.comm.size
            for p, part in zip(bucket, row.split([p.numel() for p in bucket])):
                p.grad = part.view_as(p).clone()
        self._begin_step()

    def _begin_step(self):
        self.missing = [len(bucket) for bucket in self.buckets]
        self.arrived = set()
        self.begun, self.rows, self.requests = 0, [], []

    def _ready(self, p):
        self.arrived.add(p)
        self.missing[self.bucket_of[p]] -= 1
        while self.begun < len(self.buckets) and self.missing[self.begun] == 0:
            self._begin_next()

    def _begin_next(self):
        bucket = self.buckets[self.begun]
        parts = [p.grad.flatten() if p in self.arrived else torch.zeros_like(p).flatten() for p in bucket]
        row = torch.cat(parts) if parts else torch.zeros(0)
        self.rows.append(row)
        self.requests.append(self.comm.Iallreduce(MPI.IN_PLACE, row.numpy()))
        self.begun += 1


# %% full_bucket_is_closed
# says: A bucket may hold exactly bucket_bytes
# thinks: A bucket is full when its bytes have reached bucket_bytes.
class BucketedMean:
    def __init__(self, comm, model, bucket_bytes):
        self.comm = comm
        self.buckets, nbytes = [], 0
        for p in reversed([p for p in model.parameters() if p.requires_grad]):
            size = p.numel() * p.element_size()
            if not self.buckets or nbytes + size >= bucket_bytes:
                self.buckets.append([])
                nbytes = 0
            self.buckets[-1].append(p)
            nbytes += size
        self.bucket_of = {p: i for i, bucket in enumerate(self.buckets) for p in bucket}
        for p in self.bucket_of:
            p.register_post_accumulate_grad_hook(self._ready)
        self._begin_step()

    def wait(self):
        while self.begun < len(self.buckets):
            self._begin_next()
        for bucket, row, request in zip(self.buckets, self.rows, self.requests):
            request.Wait()
            row /= self.comm.size
            for p, part in zip(bucket, row.split([p.numel() for p in bucket])):
                p.grad = part.view_as(p).clone()
        self._begin_step()

    def _begin_step(self):
        self.missing = [len(bucket) for bucket in self.buckets]
        self.arrived = set()
        self.begun, self.rows, self.requests = 0, [], []

    def _ready(self, p):
        self.arrived.add(p)
        self.missing[self.bucket_of[p]] -= 1
        while self.begun < len(self.buckets) and self.missing[self.begun] == 0:
            self._begin_next()

    def _begin_next(self):
        bucket = self.buckets[self.begun]
        parts = [p.grad.flatten() if p in self.arrived else torch.zeros_like(p).flatten() for p in bucket]
        row = torch.cat(parts)
        self.rows.append(row)
        self.requests.append(self.comm.Iallreduce(MPI.IN_PLACE, row.numpy()))
        self.begun += 1


# %% state_of_the_class
# says: belongs to self, not to the class
# thinks: One list of buckets serves the whole program, so it is made once, in the class.
class BucketedMean:
    buckets = []

    def __init__(self, comm, model, bucket_bytes):
        self.comm = comm
        nbytes = 0
        for p in reversed([p for p in model.parameters() if p.requires_grad]):
            size = p.numel() * p.element_size()
            if not self.buckets or nbytes + size > bucket_bytes:
                self.buckets.append([])
                nbytes = 0
            self.buckets[-1].append(p)
            nbytes += size
        self.bucket_of = {p: i for i, bucket in enumerate(self.buckets) for p in bucket}
        for p in self.bucket_of:
            p.register_post_accumulate_grad_hook(self._ready)
        self._begin_step()

    def wait(self):
        while self.begun < len(self.buckets):
            self._begin_next()
        for bucket, row, request in zip(self.buckets, self.rows, self.requests):
            request.Wait()
            row /= self.comm.size
            for p, part in zip(bucket, row.split([p.numel() for p in bucket])):
                p.grad = part.view_as(p).clone()
        self._begin_step()

    def _begin_step(self):
        self.missing = [len(bucket) for bucket in self.buckets]
        self.arrived = set()
        self.begun, self.rows, self.requests = 0, [], []

    def _ready(self, p):
        self.arrived.add(p)
        self.missing[self.bucket_of[p]] -= 1
        while self.begun < len(self.buckets) and self.missing[self.begun] == 0:
            self._begin_next()

    def _begin_next(self):
        bucket = self.buckets[self.begun]
        parts = [p.grad.flatten() if p in self.arrived else torch.zeros_like(p).flatten() for p in bucket]
        row = torch.cat(parts)
        self.rows.append(row)
        self.requests.append(self.comm.Iallreduce(MPI.IN_PLACE, row.numpy()))
        self.begun += 1


# %% state_of_the_module
# says: belongs to self, not to the class
# thinks: Hooks are functions without self, so what they count is global.
class State:
    pass


class BucketedMean:
    def __init__(self, comm, model, bucket_bytes):
        self.comm = comm
        State.buckets, nbytes = [], 0
        for p in reversed([p for p in model.parameters() if p.requires_grad]):
            size = p.numel() * p.element_size()
            if not State.buckets or nbytes + size > bucket_bytes:
                State.buckets.append([])
                nbytes = 0
            State.buckets[-1].append(p)
            nbytes += size
        State.bucket_of = {p: i for i, bucket in enumerate(State.buckets) for p in bucket}
        for p in State.bucket_of:
            p.register_post_accumulate_grad_hook(self._ready)
        self._begin_step()

    def wait(self):
        while self.begun < len(State.buckets):
            self._begin_next()
        for bucket, row, request in zip(State.buckets, self.rows, self.requests):
            request.Wait()
            row /= self.comm.size
            for p, part in zip(bucket, row.split([p.numel() for p in bucket])):
                p.grad = part.view_as(p).clone()
        self._begin_step()

    def _begin_step(self):
        self.missing = [len(bucket) for bucket in State.buckets]
        self.arrived = set()
        self.begun, self.rows, self.requests = 0, [], []

    def _ready(self, p):
        self.arrived.add(p)
        self.missing[State.bucket_of[p]] -= 1
        while self.begun < len(State.buckets) and self.missing[self.begun] == 0:
            self._begin_next()

    def _begin_next(self):
        bucket = State.buckets[self.begun]
        parts = [p.grad.flatten() if p in self.arrived else torch.zeros_like(p).flatten() for p in bucket]
        row = torch.cat(parts)
        self.rows.append(row)
        self.requests.append(self.comm.Iallreduce(MPI.IN_PLACE, row.numpy()))
        self.begun += 1


# %% float16_on_the_wire
# says: rounded to 16 bits
# thinks: Gradients need few digits, so they travel in 16 bits.
class BucketedMean:
    def __init__(self, comm, model, bucket_bytes):
        self.comm = comm
        self.buckets, nbytes = [], 0
        for p in reversed([p for p in model.parameters() if p.requires_grad]):
            size = p.numel() * p.element_size()
            if not self.buckets or nbytes + size > bucket_bytes:
                self.buckets.append([])
                nbytes = 0
            self.buckets[-1].append(p)
            nbytes += size
        self.bucket_of = {p: i for i, bucket in enumerate(self.buckets) for p in bucket}
        for p in self.bucket_of:
            p.register_post_accumulate_grad_hook(self._ready)
        self._begin_step()

    def wait(self):
        while self.begun < len(self.buckets):
            self._begin_next()
        for bucket, row, request in zip(self.buckets, self.rows, self.requests):
            request.Wait()
            row /= self.comm.size
            for p, part in zip(bucket, row.split([p.numel() for p in bucket])):
                p.grad = part.view_as(p).clone()
        self._begin_step()

    def _begin_step(self):
        self.missing = [len(bucket) for bucket in self.buckets]
        self.arrived = set()
        self.begun, self.rows, self.requests = 0, [], []

    def _ready(self, p):
        self.arrived.add(p)
        self.missing[self.bucket_of[p]] -= 1
        while self.begun < len(self.buckets) and self.missing[self.begun] == 0:
            self._begin_next()

    def _begin_next(self):
        bucket = self.buckets[self.begun]
        parts = [p.grad.flatten() if p in self.arrived else torch.zeros_like(p).flatten() for p in bucket]
        row = torch.cat(parts).half().to(parts[0].dtype)
        self.rows.append(row)
        self.requests.append(self.comm.Iallreduce(MPI.IN_PLACE, row.numpy()))
        self.begun += 1


# %% refuses_large_parameters
# says: is a bucket of its own, also the first one
# thinks: bucket_bytes is a limit, so a parameter that does not fit is an error of the caller.
class BucketedMean:
    def __init__(self, comm, model, bucket_bytes):
        self.comm = comm
        self.buckets, nbytes = [], 0
        for p in reversed([p for p in model.parameters() if p.requires_grad]):
            size = p.numel() * p.element_size()
            if size > bucket_bytes:
                raise ValueError(f"{size} bytes do not fit into a bucket")
            if not self.buckets or nbytes + size > bucket_bytes:
                self.buckets.append([])
                nbytes = 0
            self.buckets[-1].append(p)
            nbytes += size
        self.bucket_of = {p: i for i, bucket in enumerate(self.buckets) for p in bucket}
        for p in self.bucket_of:
            p.register_post_accumulate_grad_hook(self._ready)
        self._begin_step()

    def wait(self):
        while self.begun < len(self.buckets):
            self._begin_next()
        for bucket, row, request in zip(self.buckets, self.rows, self.requests):
            request.Wait()
            row /= self.comm.size
            for p, part in zip(bucket, row.split([p.numel() for p in bucket])):
                p.grad = part.view_as(p).clone()
        self._begin_step()

    def _begin_step(self):
        self.missing = [len(bucket) for bucket in self.buckets]
        self.arrived = set()
        self.begun, self.rows, self.requests = 0, [], []

    def _ready(self, p):
        self.arrived.add(p)
        self.missing[self.bucket_of[p]] -= 1
        while self.begun < len(self.buckets) and self.missing[self.begun] == 0:
            self._begin_next()

    def _begin_next(self):
        bucket = self.buckets[self.begun]
        parts = [p.grad.flatten() if p in self.arrived else torch.zeros_like(p).flatten() for p in bucket]
        row = torch.cat(parts)
        self.rows.append(row)
        self.requests.append(self.comm.Iallreduce(MPI.IN_PLACE, row.numpy()))
        self.begun += 1
