"""Unusual right answers to e06_bucket_overlap. What a cell holds is told in tests/answers.py."""

# %% into_a_second_array
# thinks: The sum goes into an array of its own, so that what was given stays.
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
        total = torch.empty_like(row)
        self.pending.append((bucket, total, self.comm.Iallreduce(row.numpy(), total.numpy())))

    def wait(self):
        while len(self.pending) < len(self.buckets):
            self.begin()
        for bucket, row, request in self.pending:
            request.Wait()
            row /= self.comm.size
            for p, part in zip(bucket, row.split([p.numel() for p in bucket])):
                p.grad = part.view_as(p).clone()
        self.reset()


# %% divided_before_the_sum
# thinks: Each rank's share of the mean is summed.
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
            for p, part in zip(bucket, row.split([p.numel() for p in bucket])):
                p.grad = part.view_as(p).clone()
        self.reset()


# %% buffers_and_views
# thinks: Buckets are allocated once; hooks copy into their place, and .grad becomes a view of the buffer.
import torch
from mpi4py import MPI


class BucketedMean:
    def __init__(self, comm, model, bucket_bytes):
        self.comm, self.place, self.buffers, self.members = comm, {}, [], []
        trained = [p for p in model.parameters() if p.requires_grad][::-1]
        groups, filled = [], bucket_bytes + 1
        for p in trained:
            nbytes = p.numel() * p.element_size()
            if filled + nbytes > bucket_bytes or not groups:
                groups.append([])
                filled = 0
            groups[-1].append(p)
            filled += nbytes
        for i, group in enumerate(groups):
            buffer = torch.zeros(sum(p.numel() for p in group), dtype=group[0].dtype)
            at = 0
            for p in group:
                self.place[id(p)] = i, buffer[at : at + p.numel()].view(p.shape)
                at += p.numel()
                p.register_post_accumulate_grad_hook(self.arrived)
            self.buffers.append(buffer)
            self.members.append(group)
        self.count, self.requests = [0] * len(groups), []

    def arrived(self, p):
        i, view = self.place[id(p)]
        view.copy_(p.grad)
        self.count[i] += 1
        while len(self.requests) < len(self.members) and self.full(len(self.requests)):
            self.start()

    def full(self, i):
        return self.count[i] == len(self.members[i])

    def start(self):
        self.requests.append(self.comm.Iallreduce(MPI.IN_PLACE, self.buffers[len(self.requests)].numpy()))

    def wait(self):
        while len(self.requests) < len(self.members):
            self.start()
        MPI.Request.Waitall(self.requests)
        for group, buffer in zip(self.members, self.buffers):
            buffer /= self.comm.size
            for p in group:
                p.grad = self.place[id(p)][1].clone()
            buffer.zero_()
        self.count, self.requests = [0] * len(self.members), []


# %% hooks_of_the_gradient
# thinks: A hook of the tensor is given the gradient itself, which .grad need not hold yet.
from functools import partial

import numpy as np
import torch
from mpi4py import MPI


class BucketedMean:
    def __init__(self, comm, model, bucket_bytes):
        self.comm, self.model = comm, model
        self.names = [name for name, p in model.named_parameters() if p.requires_grad][::-1]
        self.parameters = dict(model.named_parameters())
        self.buckets, used = [[]], 0
        for name in self.names:
            nbytes = self.parameters[name].numel() * self.parameters[name].element_size()
            if self.buckets[-1] and used + nbytes > bucket_bytes:
                self.buckets.append([])
                used = 0
            self.buckets[-1].append(name)
            used += nbytes
        for name in self.names:
            self.parameters[name].register_hook(partial(self.got, name))
        self.gradients, self.open = {}, []

    def got(self, name, gradient):
        self.gradients[name] = gradient.numpy().copy()
        while len(self.open) < len(self.buckets) and all(n in self.gradients for n in self.buckets[len(self.open)]):
            self.begin()

    def begin(self):
        names = self.buckets[len(self.open)]
        zeros = {name: np.zeros_like(self.parameters[name].detach().numpy()) for name in names}
        row = np.concatenate([np.ravel(self.gradients.get(name, zeros[name])) for name in names])
        self.open.append((names, row, self.comm.Iallreduce(MPI.IN_PLACE, row, op=MPI.SUM)))

    def wait(self):
        while len(self.open) < len(self.buckets):
            self.begin()
        for names, row, request in self.open:
            request.wait()
            at = 0
            for name in names:
                p = self.parameters[name]
                p.grad = torch.from_numpy(row[at : at + p.numel()] / self.comm.size).view(p.shape).to(p.dtype)
                at += p.numel()
        self.gradients, self.open = {}, []


# %% a_communicator_of_its_own
# thinks: Its collective calls meet those of nobody else.
import torch
from mpi4py import MPI


class BucketedMean:
    def __init__(self, comm, model, bucket_bytes):
        self.comm = comm.Dup()
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
                p.grad = part.view_as(p).clone()
        self.reset()


# %% a_generator_begins_them
# thinks: One generator holds a step's order from beginning to end; a hook lets it go on.
import torch
from mpi4py import MPI


class BucketedMean:
    def __init__(self, comm, model, bucket_bytes):
        self.comm, self.ready, self.finish = comm, set(), False
        buckets = [[]]
        for p in reversed([*model.parameters()]):
            if not p.requires_grad:
                continue
            if buckets[-1] and sum(q.nbytes for q in buckets[-1]) + p.nbytes > bucket_bytes:
                buckets.append([])
            buckets[-1].append(p)
            p.register_post_accumulate_grad_hook(self.hook)
        self.buckets = [bucket for bucket in buckets if bucket]
        self.steps = self.one_step_after_the_other()
        next(self.steps)

    def hook(self, p):
        self.ready.add(p)
        next(self.steps)

    def wait(self):
        self.finish = True
        next(self.steps)

    def one_step_after_the_other(self):
        """Yields whenever it needs another gradient, and after a step."""
        while True:
            sent = []
            for bucket in self.buckets:
                while not self.finish and not self.ready.issuperset(bucket):
                    yield
                both = torch.stack([torch.zeros(sum(p.numel() for p in bucket), dtype=bucket[0].dtype)] * 2)
                torch.cat([(p.grad if p in self.ready else torch.zeros_like(p)).reshape(-1) for p in bucket], out=both[0])
                sent.append((both, self.comm.Iallreduce(both[0], both[1])))
            while not self.finish:
                yield
            for bucket, (both, request) in zip(self.buckets, sent):
                request.Wait()
                at = 0
                for p in bucket:
                    p.grad = (both[1, at : at + p.numel()] / self.comm.size).reshape(p.shape)
                    at += p.numel()
            self.ready.clear()
            self.finish = False
            yield


# %% one_vector_of_all_gradients
# thinks: Buckets are slices of one vector, in the order of the model, begun from its end.
import torch
from mpi4py import MPI


class BucketedMean:
    def __init__(self, comm, model, bucket_bytes):
        self.comm = comm
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self.where, at = {}, sum(p.numel() for p in self.parameters)
        self.flat = torch.zeros(at, dtype=self.parameters[0].dtype if self.parameters else torch.float32)
        width = self.flat.element_size()
        self.ends = [at]  # of buckets, from the end of the vector to its beginning
        for p in reversed(self.parameters):
            begin = at - p.numel()
            if at < self.ends[-1] and (self.ends[-1] - begin) * width > bucket_bytes:
                self.ends.append(at)
            self.where[p] = begin
            at = begin
            p.register_post_accumulate_grad_hook(self.computed)
        self.ends.append(0)
        self.start()

    def start(self):
        self.flat.zero_()
        self.left = [end - begin for end, begin in zip(self.ends, self.ends[1:])]
        self.requests = []

    def computed(self, p):
        at = self.where[p]
        self.flat[at : at + p.numel()] = p.grad.reshape(-1)
        bucket = max(i for i, end in enumerate(self.ends[:-1]) if at < end)
        self.left[bucket] -= p.numel()
        self.go_on(False)

    def go_on(self, all_of_them):
        while len(self.requests) < len(self.left) and (all_of_them or self.left[len(self.requests)] == 0):
            i = len(self.requests)
            self.requests.append(self.comm.Iallreduce(MPI.IN_PLACE, self.flat[self.ends[i + 1] : self.ends[i]]))

    def wait(self):
        self.go_on(True)
        MPI.Request.Waitall(self.requests)
        mean = self.flat / self.comm.size
        for p in self.parameters:
            p.grad = mean[self.where[p] : self.where[p] + p.numel()].view(p.shape)
        self.start()


# %% tests_in_the_hook
# thinks: Requests are asked in each hook whether they are done, which gives MPI time to make progress.
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
        for _, request in self.begun:
            request.Test()

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


# %% gradients_are_views_of_the_sum
# thinks: The array of this step is nobody else's, so gradients may be its parts.
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
                p.grad = part.view_as(p)
        self.reset()
