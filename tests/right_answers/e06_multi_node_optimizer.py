"""Unusual right answers to e06_multi_node_optimizer. What a cell holds is told in tests/answers.py."""

# %% attributes
# thinks: Methods and groups taken over as attributes; numpy buffers in place.
class MultiNodeOptimizer:
    def __init__(self, optimizer, comm):
        self.inner, self.comm = optimizer, comm
        self.param_groups, self.zero_grad = optimizer.param_groups, optimizer.zero_grad
        for group in self.param_groups:
            for p in group["params"]:
                comm.Bcast(p.detach().numpy(), root=0)

    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                flag = np.array([p.grad is not None], dtype="i")
                self.comm.Allreduce(MPI.IN_PLACE, flag, op=MPI.MAX)
                if flag[0] == 0:
                    continue
                if p.grad is None:
                    p.grad = torch.zeros_like(p)
                self.comm.Allreduce(MPI.IN_PLACE, p.grad.numpy())
                p.grad /= self.comm.size
        return self.inner.step()


# %% data_rebound
# thinks: p.data is a new tensor; the groups' list is asked anew each time.
class MultiNodeOptimizer:
    def __init__(self, optimizer, comm):
        self.optimizer, self.comm = optimizer, comm
        for group in self.optimizer.param_groups:
            for p in group["params"]:
                p.data = comm.bcast(p.data, root=0).clone()

    @property
    def param_groups(self):
        return self.optimizer.param_groups

    def zero_grad(self):
        self.optimizer.zero_grad()

    def step(self):
        held = [p for group in self.param_groups for p in group["params"]]
        grads = self.comm.allgather([p.grad for p in held])
        for i, p in enumerate(held):
            mine = [row[i] for row in grads if row[i] is not None]
            if mine:
                p.grad = sum(mine) / self.comm.size
        self.optimizer.step()


# %% deep_inside
# thinks: Replaces the wrapped optimizer's step by one that averages before.
def MultiNodeOptimizer(optimizer, comm):
    held = [p for group in optimizer.param_groups for p in group["params"]]
    for p in held:
        p.data.copy_(comm.bcast(p.data))
    inner = optimizer.step

    def step():
        anywhere = comm.allreduce(np.array([p.grad is not None for p in held], dtype=np.int64)) > 0
        for p in (p for p, yes in zip(held, anywhere) if yes):
            p.grad = comm.allreduce((torch.zeros_like(p.data) if p.grad is None else p.grad) / comm.size)
        inner()

    optimizer.step = step
    return optimizer


# %% flat_buffer
# thinks: One row for all gradients, and flags at its end; zero_grad by hand.
class MultiNodeOptimizer:
    def __init__(self, optimizer, comm):
        self.optimizer, self.comm, self.param_groups = optimizer, comm, optimizer.param_groups
        for p in self.held():
            p.data = torch.tensor(comm.bcast(p.detach().numpy()))

    def held(self):
        return [p for group in self.param_groups for p in group["params"]]

    def zero_grad(self):
        for p in self.held():
            p.grad = None

    def step(self):
        held = self.held()
        rows = [torch.zeros(p.numel() + 1) if p.grad is None else torch.cat([p.grad.flatten(), p.new_ones(1)]) for p in held]
        row = torch.cat([r.double() for r in rows])
        self.comm.Allreduce(MPI.IN_PLACE, row)
        for p, part in zip(held, row.split([p.numel() + 1 for p in held])):
            p.grad = part[:-1].view(p.shape) / self.comm.size if part[-1] > 0 else None
        self.optimizer.step()


# %% getattr_wrapper
# thinks: All but step is the wrapped optimizer's, by __getattr__.
class MultiNodeOptimizer:
    def __init__(self, optimizer, comm):
        self.optimizer, self.comm = optimizer, comm
        for p in self._held():
            p.data.copy_(comm.bcast(p.data, root=0))

    def _held(self):
        return [p for group in self.optimizer.param_groups for p in group["params"]]

    def __getattr__(self, name):
        return getattr(self.optimizer, name)

    def _average(self):
        held = self._held()
        having = self.comm.allreduce(np.array([p.grad is not None for p in held], dtype=int))
        for p, ranks in zip(held, having):
            if ranks:
                own = torch.zeros_like(p.data) if p.grad is None else p.grad
                p.grad = self.comm.allreduce(own) / self.comm.size

    def step(self):
        self._average()
        self.optimizer.step()


# %% hooked_step
# thinks: A hook of torch before the wrapped optimizer's step averages.
class MultiNodeOptimizer:
    def __init__(self, optimizer, comm):
        self.optimizer, self.comm = optimizer, comm
        rows = comm.bcast([p.data for p in self.parameters()], root=0)
        for p, row in zip(self.parameters(), rows):
            p.data.copy_(row)
        optimizer.register_step_pre_hook(self.average)

    def parameters(self):
        for group in self.optimizer.param_groups:
            yield from group["params"]

    def average(self, optimizer, args, kwargs):
        for p in self.parameters():
            found = [g for g in self.comm.allgather(p.grad) if g is not None]
            p.grad = torch.stack(found).sum(0).div(self.comm.size) if found else None

    @property
    def param_groups(self):
        return self.optimizer.param_groups

    def zero_grad(self, set_to_none=True):
        self.optimizer.zero_grad(set_to_none)

    def step(self):
        self.optimizer.step()


# %% named_hooks
# thinks: Gradients are gathered while backward runs, by hooks without messages; step sums what hooks kept.
class MultiNodeOptimizer:
    def __init__(self, optimizer, comm):
        self.optimizer, self.comm, self.kept = optimizer, comm, {}
        self.param_groups, self.state = optimizer.param_groups, optimizer.state
        self.held = [p for group in optimizer.param_groups for p in group["params"]]
        for i, p in enumerate(self.held):
            with torch.no_grad():
                p.set_(comm.bcast(p.detach().clone()))
            if p.requires_grad:
                p.register_post_accumulate_grad_hook(lambda q, i=i: self.kept.update({i: q.grad / comm.size}))

    def zero_grad(self):
        self.kept.clear()
        self.optimizer.zero_grad(set_to_none=True)

    def step(self):
        total = {}
        for own in self.comm.allgather(self.kept):
            for i, g in own.items():
                total[i] = total[i] + g if i in total else g.clone()
        for i, p in enumerate(self.held):
            p.grad = total.get(i)
        self.optimizer.step()


# %% root_means
# thinks: Gradients are summed at rank 0, which sends means; None travels as None.
class MultiNodeOptimizer:
    def __init__(self, optimizer, comm):
        self.optimizer, self.comm = optimizer, comm
        values = comm.bcast([p.data for group in optimizer.param_groups for p in group["params"]], root=0)
        it = iter(values)
        for group in optimizer.param_groups:
            for p in group["params"]:
                p.data[...] = next(it)

    @property
    def param_groups(self):
        return self.optimizer.param_groups

    def zero_grad(self):
        self.optimizer.zero_grad(set_to_none=True)

    def step(self):
        everyone = self.comm.gather([p.grad for g in self.param_groups for p in g["params"]], root=0)
        means = None
        if self.comm.rank == 0:
            means = []
            for grads in zip(*everyone):
                there = [g for g in grads if g is not None]
                means.append(torch.stack(there).sum(0).div(self.comm.size) if there else None)
        means = self.comm.bcast(means, root=0)
        for p, mean in zip((p for g in self.param_groups for p in g["params"]), means):
            p.grad = mean
        self.optimizer.step()


# %% subclass
# thinks: A torch optimizer by inheritance, which shares the groups.
class MultiNodeOptimizer(torch.optim.Optimizer):
    def __init__(self, optimizer, comm):
        super().__init__(optimizer.param_groups, dict(optimizer.defaults))
        self.actual, self.comm = optimizer, comm
        with torch.no_grad():
            for group in self.param_groups:
                for p in group["params"]:
                    p.copy_(comm.bcast(p.detach(), root=0))

    def step(self, closure=None):
        everyone = self.comm.allgather([p.grad for group in self.param_groups for p in group["params"]])
        held = [p for group in self.param_groups for p in group["params"]]
        for p, *found in zip(held, *everyone):
            found = [g for g in found if g is not None]
            if found:
                p.grad = sum(found) / self.comm.size
        self.actual.step()
