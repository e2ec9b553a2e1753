"""Wrong answers to e06_multi_node_optimizer. What a cell holds is told in tests/answers.py."""

# %% asks_once_who_has
# says: Who has gradients differs from step to step
# thinks: Which parameters have gradients depends on the model, so it is enough to ask in the first step.
class MultiNodeOptimizer:
    def __init__(self, optimizer, comm):
        self.optimizer, self.comm, self.having = optimizer, comm, None
        for group in optimizer.param_groups:
            for p in group["params"]:
                p.data.copy_(comm.bcast(p.data, root=0))

    @property
    def param_groups(self):
        return self.optimizer.param_groups

    def zero_grad(self):
        self.optimizer.zero_grad()

    def step(self):
        held = [p for group in self.param_groups for p in group["params"]]
        if self.having is None:
            masks = self.comm.allgather([p.grad is not None for p in held])
            self.having = [any(column) for column in zip(*masks)]
        for p, has in zip(held, self.having):
            if has:
                row = torch.zeros_like(p.data) if p.grad is None else p.grad.contiguous()
                self.comm.Allreduce(MPI.IN_PLACE, row.numpy())
                p.grad = row / self.comm.size
        self.optimizer.step()


# %% averages_parameters
# says: and then parameters were averaged
# thinks: Averaging parameters after the step comes to the same as averaging gradients before it.
class MultiNodeOptimizer:
    def __init__(self, optimizer, comm):
        self.optimizer, self.comm = optimizer, comm
        for p in self._held():
            p.data.copy_(comm.bcast(p.data, root=0))

    def _held(self):
        return [p for group in self.optimizer.param_groups for p in group["params"]]

    @property
    def param_groups(self):
        return self.optimizer.param_groups

    def zero_grad(self):
        self.optimizer.zero_grad()

    def step(self):
        self.optimizer.step()
        for p in self._held():
            p.data.copy_(self.comm.allreduce(p.data) / self.comm.size)


# %% barrier_in_zero_grad
# says: A rank may call zero_grad on its own
# thinks: All ranks should clear their gradients together, so that nobody clears one that others still need.
class MultiNodeOptimizer:
    def __init__(self, optimizer, comm):
        self.optimizer, self.comm = optimizer, comm
        for group in optimizer.param_groups:
            for p in group["params"]:
                p.data.copy_(comm.bcast(p.data, root=0))

    @property
    def param_groups(self):
        return self.optimizer.param_groups

    def zero_grad(self):
        self.comm.Barrier()
        self.optimizer.zero_grad()

    def step(self):
        held = [p for group in self.param_groups for p in group["params"]]
        grads = self.comm.allgather([p.grad for p in held])
        for i, p in enumerate(held):
            mine = [row[i] for row in grads if row[i] is not None]
            if mine:
                p.grad = sum(mine) / self.comm.size
        self.optimizer.step()


# %% bcast_on_rank_0_only
# says: bcast is a collective call: every rank of the communicator must make it
# thinks: Rank 0 has the parameters, so rank 0 is the one that calls bcast.
class MultiNodeOptimizer:
    def __init__(self, optimizer, comm):
        self.optimizer, self.comm = optimizer, comm
        if comm.rank == 0:
            for p in self._held():
                p.data.copy_(comm.bcast(p.data, root=0))

    def _held(self):
        return [p for group in self.optimizer.param_groups for p in group["params"]]

    @property
    def param_groups(self):
        return self.optimizer.param_groups

    def zero_grad(self):
        self.optimizer.zero_grad()

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


# %% bcast_watched_parameter
# says: p.detach() and p.data are the same memory without that
# thinks: A parameter is a tensor, so p.numpy() is the memory into which Bcast can write.
class MultiNodeOptimizer:
    def __init__(self, optimizer, comm):
        self.optimizer, self.comm = optimizer, comm
        for p in self._held():
            comm.Bcast(p.numpy(), root=0)

    def _held(self):
        return [p for group in self.optimizer.param_groups for p in group["params"]]

    @property
    def param_groups(self):
        return self.optimizer.param_groups

    def zero_grad(self):
        self.optimizer.zero_grad()

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


# %% broadcast_first_group
# says: Go through all groups of the optimizer
# thinks: The parameters of an optimizer are in param_groups[0].
class MultiNodeOptimizer:
    def __init__(self, optimizer, comm):
        self.optimizer, self.comm = optimizer, comm
        for p in optimizer.param_groups[0]["params"]:
            p.data.copy_(comm.bcast(p.data, root=0))

    def _held(self):
        return [p for group in self.optimizer.param_groups for p in group["params"]]

    @property
    def param_groups(self):
        return self.optimizer.param_groups

    def zero_grad(self):
        self.optimizer.zero_grad()

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


# %% broadcast_from_last
# says: Those are rank 2's
# thinks: What matters is that all ranks begin alike, so any rank may be the root.
class MultiNodeOptimizer:
    def __init__(self, optimizer, comm):
        self.optimizer, self.comm = optimizer, comm
        for p in self._held():
            p.data.copy_(comm.bcast(p.data, root=comm.size - 1))

    def _held(self):
        return [p for group in self.optimizer.param_groups for p in group["params"]]

    @property
    def param_groups(self):
        return self.optimizer.param_groups

    def zero_grad(self):
        self.optimizer.zero_grad()

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


# %% broadcast_into_names
# says: Ranks begin with different models
# thinks: Assigning what bcast returns to p changes the parameter.
class MultiNodeOptimizer:
    def __init__(self, optimizer, comm):
        self.optimizer, self.comm = optimizer, comm
        for p in self._held():
            p = comm.bcast(p.data, root=0)

    def _held(self):
        return [p for group in self.optimizer.param_groups for p in group["params"]]

    @property
    def param_groups(self):
        return self.optimizer.param_groups

    def zero_grad(self):
        self.optimizer.zero_grad()

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


# %% broadcast_of_copy
# says: Ranks begin with different models
# thinks: Bcast needs a plain array, so I give it a copy, and the numbers arrive in the parameter all the same.
class MultiNodeOptimizer:
    def __init__(self, optimizer, comm):
        self.optimizer, self.comm = optimizer, comm
        for p in self._held():
            comm.Bcast(p.detach().numpy().copy(), root=0)

    def _held(self):
        return [p for group in self.optimizer.param_groups for p in group["params"]]

    @property
    def param_groups(self):
        return self.optimizer.param_groups

    def zero_grad(self):
        self.optimizer.zero_grad()

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


# %% broadcast_trained_only
# says: A frozen parameter has a value, too
# thinks: A frozen parameter is never updated, so there is no need to broadcast it.
class MultiNodeOptimizer:
    def __init__(self, optimizer, comm):
        self.optimizer, self.comm = optimizer, comm
        for p in self._held():
            if p.requires_grad:
                p.data.copy_(comm.bcast(p.data, root=0))

    def _held(self):
        return [p for group in self.optimizer.param_groups for p in group["params"]]

    @property
    def param_groups(self):
        return self.optimizer.param_groups

    def zero_grad(self):
        self.optimizer.zero_grad()

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


# %% comm_world
# says: It speaks of MPI.COMM_WORLD
# on: real ranks
# thinks: All ranks train together, so MPI.COMM_WORLD is the communicator for their sums.
class MultiNodeOptimizer:
    def __init__(self, optimizer, comm):
        self.optimizer, self.comm = optimizer, comm
        for p in self._held():
            p.data.copy_(MPI.COMM_WORLD.bcast(p.data, root=0))

    def _held(self):
        return [p for group in self.optimizer.param_groups for p in group["params"]]

    @property
    def param_groups(self):
        return self.optimizer.param_groups

    def zero_grad(self):
        self.optimizer.zero_grad()

    def _average(self):
        held = self._held()
        having = MPI.COMM_WORLD.allreduce(np.array([p.grad is not None for p in held], dtype=int))
        for p, ranks in zip(held, having):
            if ranks:
                own = torch.zeros_like(p.data) if p.grad is None else p.grad
                p.grad = MPI.COMM_WORLD.allreduce(own) / MPI.COMM_WORLD.size

    def step(self):
        self._average()
        self.optimizer.step()


# %% deep_copy
# says: Ranks begin with different models
# thinks: A wrapper should work on a copy of what it is given, so that the caller's optimizer is not changed.
import copy


class MultiNodeOptimizer:
    def __init__(self, optimizer, comm):
        self.optimizer, self.comm = copy.deepcopy(optimizer), comm
        for group in self.optimizer.param_groups:
            for p in group["params"]:
                p.data.copy_(comm.bcast(p.data, root=0))

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


# %% divided_by_those_having
# says: Divided by the number of ranks that have a gradient
# thinks: Only the ranks that have a gradient count in its mean.
class MultiNodeOptimizer:
    def __init__(self, optimizer, comm):
        self.optimizer, self.comm = optimizer, comm
        for p in self._held():
            p.data.copy_(comm.bcast(p.data, root=0))

    def _held(self):
        return [p for group in self.optimizer.param_groups for p in group["params"]]

    @property
    def param_groups(self):
        return self.optimizer.param_groups

    def zero_grad(self):
        self.optimizer.zero_grad()

    def _average(self):
        held = self._held()
        having = self.comm.allreduce(np.array([p.grad is not None for p in held], dtype=int))
        for p, ranks in zip(held, having):
            if ranks:
                own = torch.zeros_like(p.data) if p.grad is None else p.grad
                p.grad = self.comm.allreduce(own) / int(ranks)

    def step(self):
        self._average()
        self.optimizer.step()


# %% divided_twice
# says: Divided by the number of ranks twice
# thinks: The sum is over p ranks and the batch is p times as large, so I divide by p for each of these.
class MultiNodeOptimizer:
    def __init__(self, optimizer, comm):
        self.optimizer, self.comm = optimizer, comm
        for p in self._held():
            p.data.copy_(comm.bcast(p.data, root=0))

    def _held(self):
        return [p for group in self.optimizer.param_groups for p in group["params"]]

    @property
    def param_groups(self):
        return self.optimizer.param_groups

    def zero_grad(self):
        self.optimizer.zero_grad()

    def _average(self):
        held = self._held()
        having = self.comm.allreduce(np.array([p.grad is not None for p in held], dtype=int))
        for p, ranks in zip(held, having):
            if ranks:
                own = torch.zeros_like(p.data) if p.grad is None else p.grad
                p.grad = self.comm.allreduce(own) / self.comm.size**2

    def step(self):
        self._average()
        self.optimizer.step()


# %% first_group_averaged
# says: Gradients of the first group were averaged
# thinks: The weights of the model are in the first group; other groups are only there for other options.
class MultiNodeOptimizer:
    def __init__(self, optimizer, comm):
        self.optimizer, self.comm = optimizer, comm
        for p in self._held():
            p.data.copy_(comm.bcast(p.data, root=0))

    def _held(self):
        return [p for group in self.optimizer.param_groups for p in group["params"]]

    @property
    def param_groups(self):
        return self.optimizer.param_groups

    def zero_grad(self):
        self.optimizer.zero_grad()

    def _average(self):
        held = self.optimizer.param_groups[0]["params"]
        having = self.comm.allreduce(np.array([p.grad is not None for p in held], dtype=int))
        for p, ranks in zip(held, having):
            if ranks:
                own = torch.zeros_like(p.data) if p.grad is None else p.grad
                p.grad = self.comm.allreduce(own) / self.comm.size

    def step(self):
        self._average()
        self.optimizer.step()


# %% forgets_momentum
# says: without what the optimizer keeps of earlier ones
# thinks: The momentum belongs to gradients of earlier steps, so it has to be cleared before the new mean is applied.
class MultiNodeOptimizer:
    def __init__(self, optimizer, comm):
        self.optimizer, self.comm = optimizer, comm
        for group in optimizer.param_groups:
            for p in group["params"]:
                p.data.copy_(comm.bcast(p.data, root=0))

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
        self.optimizer.state.clear()
        self.optimizer.step()


# %% late_broadcast
# says: Ranks begin with different models
# thinks: Parameters have to be equal when they are updated, so the first step is early enough for the broadcast.
class MultiNodeOptimizer:
    def __init__(self, optimizer, comm):
        self.optimizer, self.comm, self.begun = optimizer, comm, False

    @property
    def param_groups(self):
        return self.optimizer.param_groups

    def zero_grad(self):
        self.optimizer.zero_grad()

    def step(self):
        held = [p for group in self.param_groups for p in group["params"]]
        if not self.begun:
            for p in held:
                p.data.copy_(self.comm.bcast(p.data, root=0))
            self.begun = True
        grads = self.comm.allgather([p.grad for p in held])
        for i, p in enumerate(held):
            mine = [row[i] for row in grads if row[i] is not None]
            if mine:
                p.grad = sum(mine) / self.comm.size
        self.optimizer.step()


# %% lr_kept
# says: the step was made with the old one
# thinks: The learning rate is fixed when the optimizer is made, so I keep it and see to it that each step uses it.
class MultiNodeOptimizer:
    def __init__(self, optimizer, comm):
        self.optimizer, self.comm = optimizer, comm
        self.lrs = [group["lr"] for group in optimizer.param_groups]
        for p in self._held():
            p.data.copy_(comm.bcast(p.data, root=0))

    def _held(self):
        return [p for group in self.optimizer.param_groups for p in group["params"]]

    @property
    def param_groups(self):
        return self.optimizer.param_groups

    def zero_grad(self):
        self.optimizer.zero_grad()

    def _average(self):
        held = self._held()
        having = self.comm.allreduce(np.array([p.grad is not None for p in held], dtype=int))
        for p, ranks in zip(held, having):
            if ranks:
                own = torch.zeros_like(p.data) if p.grad is None else p.grad
                p.grad = self.comm.allreduce(own) / self.comm.size

    def step(self):
        self._average()
        for group, lr in zip(self.optimizer.param_groups, self.lrs):
            group["lr"] = lr
        self.optimizer.step()


# %% mean_of_starts
# says: That is the mean of all ranks' parameters
# thinks: All ranks need the same start, and the mean of their parameters is the fairest one.
class MultiNodeOptimizer:
    def __init__(self, optimizer, comm):
        self.optimizer, self.comm = optimizer, comm
        for p in self._held():
            p.data.copy_(comm.allreduce(p.data) / comm.size)

    def _held(self):
        return [p for group in self.optimizer.param_groups for p in group["params"]]

    @property
    def param_groups(self):
        return self.optimizer.param_groups

    def zero_grad(self):
        self.optimizer.zero_grad()

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


# %% new_parameters
# says: Ranks begin with different models
# thinks: An optimizer updates what is in its groups, so I put new parameters with the numbers of rank 0 there.
class MultiNodeOptimizer:
    def __init__(self, optimizer, comm):
        self.optimizer, self.comm = optimizer, comm
        for group in optimizer.param_groups:
            group["params"] = [
                torch.nn.Parameter(comm.bcast(p.data, root=0), requires_grad=p.requires_grad) for p in group["params"]
            ]

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


# %% no_average
# says: Each rank has stepped by its own gradients
# thinks: All ranks begin with the same parameters and step at the same time, so they stay together.
class MultiNodeOptimizer:
    def __init__(self, optimizer, comm):
        self.optimizer, self.comm = optimizer, comm
        for p in self._held():
            p.data.copy_(comm.bcast(p.data, root=0))

    def _held(self):
        return [p for group in self.optimizer.param_groups for p in group["params"]]

    @property
    def param_groups(self):
        return self.optimizer.param_groups

    def zero_grad(self):
        self.optimizer.zero_grad()

    def _average(self):
        held = self._held()
        having = self.comm.allreduce(np.array([p.grad is not None for p in held], dtype=int))
        for p, ranks in zip(held, having):
            if ranks:
                own = torch.zeros_like(p.data) if p.grad is None else p.grad
                p.grad = self.comm.allreduce(own) / self.comm.size

    def step(self):
        self.optimizer.step()


# %% no_broadcast
# says: Ranks begin with different models
# thinks: All ranks build their model by the same code, so they begin with the same parameters.
class MultiNodeOptimizer:
    def __init__(self, optimizer, comm):
        self.optimizer, self.comm = optimizer, comm

    def _held(self):
        return [p for group in self.optimizer.param_groups for p in group["params"]]

    @property
    def param_groups(self):
        return self.optimizer.param_groups

    def zero_grad(self):
        self.optimizer.zero_grad()

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


# %% no_step
# says: Nothing has moved
# thinks: My step replaces the one of the wrapped optimizer, and the averaged gradients are all that it has to
#   provide.
class MultiNodeOptimizer:
    def __init__(self, optimizer, comm):
        self.optimizer, self.comm = optimizer, comm
        for p in self._held():
            p.data.copy_(comm.bcast(p.data, root=0))

    def _held(self):
        return [p for group in self.optimizer.param_groups for p in group["params"]]

    @property
    def param_groups(self):
        return self.optimizer.param_groups

    def zero_grad(self):
        self.optimizer.zero_grad()

    def _average(self):
        held = self._held()
        having = self.comm.allreduce(np.array([p.grad is not None for p in held], dtype=int))
        for p, ranks in zip(held, having):
            if ranks:
                own = torch.zeros_like(p.data) if p.grad is None else p.grad
                p.grad = self.comm.allreduce(own) / self.comm.size

    def step(self):
        self._average()


# %% none_not_thought_of
# says: a frozen parameter in them has no gradient
# thinks: When step is called backward has run, so every parameter has a gradient.
class MultiNodeOptimizer:
    def __init__(self, optimizer, comm):
        self.optimizer, self.comm = optimizer, comm
        for p in self._held():
            p.data.copy_(comm.bcast(p.data, root=0))

    def _held(self):
        return [p for group in self.optimizer.param_groups for p in group["params"]]

    @property
    def param_groups(self):
        return self.optimizer.param_groups

    def zero_grad(self):
        self.optimizer.zero_grad()

    def _average(self):
        for p in self._held():
            row = p.grad.numpy()
            self.comm.Allreduce(MPI.IN_PLACE, row)
            row /= self.comm.size

    def step(self):
        self._average()
        self.optimizer.step()


# %% none_stays_none_here
# says: it becomes the mean, too: else this rank passes over
# thinks: A rank whose own gradient is None only helps with the sum and has nothing to update.
class MultiNodeOptimizer:
    def __init__(self, optimizer, comm):
        self.optimizer, self.comm = optimizer, comm
        for p in self._held():
            p.data.copy_(comm.bcast(p.data, root=0))

    def _held(self):
        return [p for group in self.optimizer.param_groups for p in group["params"]]

    @property
    def param_groups(self):
        return self.optimizer.param_groups

    def zero_grad(self):
        self.optimizer.zero_grad()

    def _average(self):
        held = self._held()
        having = self.comm.allreduce(np.array([p.grad is not None for p in held], dtype=int))
        for p, ranks in zip(held, having):
            if ranks:
                own = torch.zeros_like(p.data) if p.grad is None else p.grad
                own = self.comm.allreduce(own) / self.comm.size
                p.grad = None if p.grad is None else own

    def step(self):
        self._average()
        self.optimizer.step()


# %% own_divided
# says: divided by the number of ranks: the sum over ranks is missing
# thinks: A gradient divided by the number of ranks is its mean over the ranks.
class MultiNodeOptimizer:
    def __init__(self, optimizer, comm):
        self.optimizer, self.comm = optimizer, comm
        for p in self._held():
            p.data.copy_(comm.bcast(p.data, root=0))

    def _held(self):
        return [p for group in self.optimizer.param_groups for p in group["params"]]

    @property
    def param_groups(self):
        return self.optimizer.param_groups

    def zero_grad(self):
        self.optimizer.zero_grad()

    def _average(self):
        held = self._held()
        having = self.comm.allreduce(np.array([p.grad is not None for p in held], dtype=int))
        for p, ranks in zip(held, having):
            if ranks:
                own = torch.zeros_like(p.data) if p.grad is None else p.grad
                p.grad = own / self.comm.size

    def step(self):
        self._average()
        self.optimizer.step()


# %% param_groups_copied
# says: the step was made with the old one
# thinks: Copies of the groups show the same settings, and keep the optimizer's own from being changed by accident.
class MultiNodeOptimizer:
    def __init__(self, optimizer, comm):
        self.optimizer, self.comm = optimizer, comm
        self.param_groups = [dict(group) for group in optimizer.param_groups]
        for p in self._held():
            p.data.copy_(comm.bcast(p.data, root=0))

    def _held(self):
        return [p for group in self.optimizer.param_groups for p in group["params"]]

    def zero_grad(self):
        self.optimizer.zero_grad()

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


# %% param_groups_method
# says: is @property missing?
# thinks: The groups come from a method, as everything else here does, so whoever wants them calls it.
class MultiNodeOptimizer:
    def __init__(self, optimizer, comm):
        self.optimizer, self.comm = optimizer, comm
        for p in self._held():
            p.data.copy_(comm.bcast(p.data, root=0))

    def _held(self):
        return [p for group in self.optimizer.param_groups for p in group["params"]]

    def param_groups(self):
        return self.optimizer.param_groups

    def zero_grad(self):
        self.optimizer.zero_grad()

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


# %% param_groups_missing
# says: A scheduler sets the learning rate in optimizer.param_groups
# thinks: Only step and zero_grad are called on an optimizer, so the groups can stay inside the wrapped one.
class MultiNodeOptimizer:
    def __init__(self, optimizer, comm):
        self.optimizer, self.comm = optimizer, comm
        for p in self._held():
            p.data.copy_(comm.bcast(p.data, root=0))

    def _held(self):
        return [p for group in self.optimizer.param_groups for p in group["params"]]

    def zero_grad(self):
        self.optimizer.zero_grad()

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


# %% rate_divided
# says: The learning rate was
# thinks: The sum of gradients with the learning rate divided by the number of ranks makes the same step as the mean.
class MultiNodeOptimizer:
    def __init__(self, optimizer, comm):
        self.optimizer, self.comm = optimizer, comm
        for group in optimizer.param_groups:
            group["lr"] /= comm.size
            for p in group["params"]:
                p.data.copy_(comm.bcast(p.data, root=0))

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
                p.grad = sum(mine)
        self.optimizer.step()


# %% reduce_only
# says: have different parameters now
# thinks: The mean is needed on rank 0 only, for that is where all ranks have their parameters from.
class MultiNodeOptimizer:
    def __init__(self, optimizer, comm):
        self.optimizer, self.comm = optimizer, comm
        for p in self._held():
            p.data.copy_(comm.bcast(p.data, root=0))

    def _held(self):
        return [p for group in self.optimizer.param_groups for p in group["params"]]

    @property
    def param_groups(self):
        return self.optimizer.param_groups

    def zero_grad(self):
        self.optimizer.zero_grad()

    def _average(self):
        held = self._held()
        having = self.comm.allreduce(np.array([p.grad is not None for p in held], dtype=int))
        for p, ranks in zip(held, having):
            if ranks:
                own = torch.zeros_like(p.data) if p.grad is None else p.grad
                own = self.comm.reduce(own)
                if self.comm.rank == 0:
                    p.grad = own / self.comm.size

    def step(self):
        self._average()
        self.optimizer.step()


# %% root_is_own_rank
# says: all must name the same
# thinks: The root of a bcast is the rank that makes the call.
class MultiNodeOptimizer:
    def __init__(self, optimizer, comm):
        self.optimizer, self.comm = optimizer, comm
        for p in self._held():
            p.data.copy_(comm.bcast(p.data, root=comm.rank))

    def _held(self):
        return [p for group in self.optimizer.param_groups for p in group["params"]]

    @property
    def param_groups(self):
        return self.optimizer.param_groups

    def zero_grad(self):
        self.optimizer.zero_grad()

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


# %% root_steps_alone
# says: All ranks have stepped by rank 0's gradients
# thinks: Rank 0 has gathered all gradients, so its step is by all of them, and the others only need its parameters.
class MultiNodeOptimizer:
    def __init__(self, optimizer, comm):
        self.optimizer, self.comm = optimizer, comm
        for group in optimizer.param_groups:
            for p in group["params"]:
                p.data.copy_(comm.bcast(p.data, root=0))

    @property
    def param_groups(self):
        return self.optimizer.param_groups

    def zero_grad(self):
        self.optimizer.zero_grad()

    def step(self):
        held = [p for group in self.param_groups for p in group["params"]]
        grads = self.comm.gather([p.grad for p in held], root=0)
        if self.comm.rank == 0:
            self.optimizer.step()
            for i, p in enumerate(held):
                mine = [row[i] for row in grads if row[i] is not None]
                if mine:
                    p.grad = sum(mine) / self.comm.size
        for p in held:
            p.data.copy_(self.comm.bcast(p.data, root=0))


# %% skips_none
# says: All ranks must sum the same parameters
# thinks: Where p.grad is None there is nothing to sum, so this rank goes on to the next parameter.
class MultiNodeOptimizer:
    def __init__(self, optimizer, comm):
        self.optimizer, self.comm = optimizer, comm
        for p in self._held():
            p.data.copy_(comm.bcast(p.data, root=0))

    def _held(self):
        return [p for group in self.optimizer.param_groups for p in group["params"]]

    @property
    def param_groups(self):
        return self.optimizer.param_groups

    def zero_grad(self):
        self.optimizer.zero_grad()

    def _average(self):
        for p in self._held():
            if p.grad is not None:
                p.grad = self.comm.allreduce(p.grad) / self.comm.size

    def step(self):
        self._average()
        self.optimizer.step()


# %% step_then_average
# says: The mean was made after the step
# thinks: Whether gradients are averaged before the step or after it makes no difference, as long as both are done.
class MultiNodeOptimizer:
    def __init__(self, optimizer, comm):
        self.optimizer, self.comm = optimizer, comm
        for p in self._held():
            p.data.copy_(comm.bcast(p.data, root=0))

    def _held(self):
        return [p for group in self.optimizer.param_groups for p in group["params"]]

    @property
    def param_groups(self):
        return self.optimizer.param_groups

    def zero_grad(self):
        self.optimizer.zero_grad()

    def _average(self):
        held = self._held()
        having = self.comm.allreduce(np.array([p.grad is not None for p in held], dtype=int))
        for p, ranks in zip(held, having):
            if ranks:
                own = torch.zeros_like(p.data) if p.grad is None else p.grad
                p.grad = self.comm.allreduce(own) / self.comm.size

    def step(self):
        self.optimizer.step()
        self._average()


# %% steps_twice
# says: The wrapped optimizer has made two steps
# thinks: The mean stands for the batches of several ranks, so a single step would use only a part of it.
class MultiNodeOptimizer:
    def __init__(self, optimizer, comm):
        self.optimizer, self.comm = optimizer, comm
        for p in self._held():
            p.data.copy_(comm.bcast(p.data, root=0))

    def _held(self):
        return [p for group in self.optimizer.param_groups for p in group["params"]]

    @property
    def param_groups(self):
        return self.optimizer.param_groups

    def zero_grad(self):
        self.optimizer.zero_grad()

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
        self.optimizer.step()


# %% sum
# says: That is a step by the sum of gradients
# thinks: The gradient of all ranks' examples together is the sum of the ranks' gradients.
class MultiNodeOptimizer:
    def __init__(self, optimizer, comm):
        self.optimizer, self.comm = optimizer, comm
        for p in self._held():
            p.data.copy_(comm.bcast(p.data, root=0))

    def _held(self):
        return [p for group in self.optimizer.param_groups for p in group["params"]]

    @property
    def param_groups(self):
        return self.optimizer.param_groups

    def zero_grad(self):
        self.optimizer.zero_grad()

    def _average(self):
        held = self._held()
        having = self.comm.allreduce(np.array([p.grad is not None for p in held], dtype=int))
        for p, ranks in zip(held, having):
            if ranks:
                own = torch.zeros_like(p.data) if p.grad is None else p.grad
                p.grad = self.comm.allreduce(own)

    def step(self):
        self._average()
        self.optimizer.step()


# %% updates_by_hand
# says: without what the optimizer keeps of earlier ones
# thinks: A step is p -= lr * gradient, so the wrapped optimizer is needed only for its groups.
class MultiNodeOptimizer:
    def __init__(self, optimizer, comm):
        self.optimizer, self.comm = optimizer, comm
        for group in optimizer.param_groups:
            for p in group["params"]:
                p.data.copy_(comm.bcast(p.data, root=0))

    @property
    def param_groups(self):
        return self.optimizer.param_groups

    def zero_grad(self):
        self.optimizer.zero_grad()

    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                grads = [g for g in self.comm.allgather(p.grad) if g is not None]
                if grads:
                    p.grad = sum(grads) / self.comm.size
                    p.data -= group["lr"] * p.grad


# %% zero_grad_forgotten
# says: each step would use all gradients so far
# thinks: My step assigns a new tensor to p.grad each time, so there is nothing to clear.
class MultiNodeOptimizer:
    def __init__(self, optimizer, comm):
        self.optimizer, self.comm = optimizer, comm
        for p in self._held():
            p.data.copy_(comm.bcast(p.data, root=0))

    def _held(self):
        return [p for group in self.optimizer.param_groups for p in group["params"]]

    @property
    def param_groups(self):
        return self.optimizer.param_groups

    def zero_grad(self):
        pass

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


# %% zero_grad_missing
# says: A training loop calls optimizer.zero_grad()
# thinks: The training loop can call zero_grad of the wrapped optimizer, so the wrapper needs none.
class MultiNodeOptimizer:
    def __init__(self, optimizer, comm):
        self.optimizer, self.comm = optimizer, comm
        for p in self._held():
            p.data.copy_(comm.bcast(p.data, root=0))

    def _held(self):
        return [p for group in self.optimizer.param_groups for p in group["params"]]

    @property
    def param_groups(self):
        return self.optimizer.param_groups

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


# %% zeros_for_none
# says: A gradient that no rank has was taken for zeros
# thinks: An update by a gradient of zeros changes nothing, so zeros can stand for None on all ranks.
class MultiNodeOptimizer:
    def __init__(self, optimizer, comm):
        self.optimizer, self.comm = optimizer, comm
        for p in self._held():
            p.data.copy_(comm.bcast(p.data, root=0))

    def _held(self):
        return [p for group in self.optimizer.param_groups for p in group["params"]]

    @property
    def param_groups(self):
        return self.optimizer.param_groups

    def zero_grad(self):
        self.optimizer.zero_grad()

    def _average(self):
        held = self._held()
        having = self.comm.allreduce(np.array([p.grad is not None for p in held], dtype=int))
        for p, ranks in zip(held, having):
            if p.requires_grad:
                own = torch.zeros_like(p.data) if p.grad is None else p.grad
                p.grad = self.comm.allreduce(own) / self.comm.size

    def step(self):
        self._average()
        self.optimizer.step()


# %% zeros_when_cleared
# says: zero_grad leaves None
# thinks: A cleared gradient is one of zeros, and setting it to None would only save memory.
class MultiNodeOptimizer:
    def __init__(self, optimizer, comm):
        self.optimizer, self.comm = optimizer, comm
        for group in optimizer.param_groups:
            for p in group["params"]:
                p.data.copy_(comm.bcast(p.data, root=0))

    @property
    def param_groups(self):
        return self.optimizer.param_groups

    def zero_grad(self):
        self.optimizer.zero_grad(set_to_none=False)

    def step(self):
        held = [p for group in self.param_groups for p in group["params"]]
        grads = self.comm.allgather([p.grad for p in held])
        for i, p in enumerate(held):
            mine = [row[i] for row in grads if row[i] is not None]
            if mine:
                p.grad = sum(mine) / self.comm.size
        self.optimizer.step()


# %% contiguous_copy_broadcast
# says: transposed
# thinks: MPI needs contiguous memory.
class MultiNodeOptimizer:
    def __init__(self, optimizer, comm):
        self.optimizer, self.comm = optimizer, comm
        for group in self.param_groups:
            for p in group["params"]:
                comm.Bcast(p.data.contiguous().numpy())

    @property
    def param_groups(self):
        return self.optimizer.param_groups

    def zero_grad(self):
        self.optimizer.zero_grad()

    def step(self):
        held = [p for group in self.param_groups for p in group["params"]]
        having = np.array([p.grad is not None for p in held], dtype=np.int64)
        self.comm.Allreduce(MPI.IN_PLACE, having)
        for p, ranks in zip(held, having):
            if ranks > 0:
                row = torch.zeros_like(p.data) if p.grad is None else p.grad
                row = row.contiguous()
                self.comm.Allreduce(MPI.IN_PLACE, row.numpy())
                p.grad = row / self.comm.size
        self.optimizer.step()


# %% double_copy_broadcast
# says: float32
# thinks: MPI sends doubles.
class MultiNodeOptimizer:
    def __init__(self, optimizer, comm):
        self.optimizer, self.comm = optimizer, comm
        for group in self.param_groups:
            for p in group["params"]:
                comm.Bcast(p.data.double().numpy())

    @property
    def param_groups(self):
        return self.optimizer.param_groups

    def zero_grad(self):
        self.optimizer.zero_grad()

    def step(self):
        held = [p for group in self.param_groups for p in group["params"]]
        having = np.array([p.grad is not None for p in held], dtype=np.int64)
        self.comm.Allreduce(MPI.IN_PLACE, having)
        for p, ranks in zip(held, having):
            if ranks > 0:
                row = torch.zeros_like(p.data) if p.grad is None else p.grad
                row = row.contiguous()
                self.comm.Allreduce(MPI.IN_PLACE, row.numpy())
                p.grad = row / self.comm.size
        self.optimizer.step()


# %% reshape_copy_broadcast
# says: transposed
# thinks: a flat view
class MultiNodeOptimizer:
    def __init__(self, optimizer, comm):
        self.optimizer, self.comm = optimizer, comm
        for group in self.param_groups:
            for p in group["params"]:
                comm.Bcast(p.data.reshape(-1).numpy())

    @property
    def param_groups(self):
        return self.optimizer.param_groups

    def zero_grad(self):
        self.optimizer.zero_grad()

    def step(self):
        held = [p for group in self.param_groups for p in group["params"]]
        having = np.array([p.grad is not None for p in held], dtype=np.int64)
        self.comm.Allreduce(MPI.IN_PLACE, having)
        for p, ranks in zip(held, having):
            if ranks > 0:
                row = torch.zeros_like(p.data) if p.grad is None else p.grad
                row = row.contiguous()
                self.comm.Allreduce(MPI.IN_PLACE, row.numpy())
                p.grad = row / self.comm.size
        self.optimizer.step()


# %% averages_a_copy
# says: transposed
# thinks: contiguous is the same tensor.
class MultiNodeOptimizer:
    def __init__(self, optimizer, comm):
        self.optimizer, self.comm = optimizer, comm
        for group in self.param_groups:
            for p in group["params"]:
                p.data.copy_(comm.bcast(p.data, root=0))

    @property
    def param_groups(self):
        return self.optimizer.param_groups

    def zero_grad(self):
        self.optimizer.zero_grad()

    def step(self):
        held = [p for group in self.param_groups for p in group["params"]]
        having = np.array([p.grad is not None for p in held], dtype=np.int64)
        self.comm.Allreduce(MPI.IN_PLACE, having)
        for p, ranks in zip(held, having):
            if ranks > 0:
                if p.grad is None:
                    p.grad = torch.zeros_like(p.data)
                row = p.grad.contiguous()
                self.comm.Allreduce(MPI.IN_PLACE, row.numpy())
                row /= self.comm.size
        self.optimizer.step()


# %% copies_an_unwritten_buffer
# says: NaN: was a buffer read that nobody wrote into?
# thinks: A buffer is filled with NaN, so that a mistake shows, and all ranks copy it.
class MultiNodeOptimizer:
    def __init__(self, optimizer, comm):
        self.optimizer, self.comm = optimizer, comm
        for group in self.param_groups:
            for p in group["params"]:
                buffer = torch.full_like(p.data, torch.nan)
                comm.bcast(p.data, root=0)
                p.data.copy_(buffer)

    @property
    def param_groups(self):
        return self.optimizer.param_groups

    def zero_grad(self):
        self.optimizer.zero_grad()

    def step(self):
        held = [p for group in self.param_groups for p in group["params"]]
        having = np.array([p.grad is not None for p in held], dtype=np.int64)
        self.comm.Allreduce(MPI.IN_PLACE, having)
        for p, ranks in zip(held, having):
            if ranks > 0:
                row = torch.zeros_like(p.data) if p.grad is None else p.grad.contiguous()
                self.comm.Allreduce(MPI.IN_PLACE, row.numpy())
                p.grad = row / self.comm.size
        self.optimizer.step()


# %% begins_with_zeros
# says: Rank 0's own parameters are those that all get
# thinks: Zeros are the same on all ranks, and need no message.
class MultiNodeOptimizer:
    def __init__(self, optimizer, comm):
        self.optimizer, self.comm = optimizer, comm
        for group in self.param_groups:
            for p in group["params"]:
                p.data.zero_()

    @property
    def param_groups(self):
        return self.optimizer.param_groups

    def zero_grad(self):
        self.optimizer.zero_grad()

    def step(self):
        held = [p for group in self.param_groups for p in group["params"]]
        having = np.array([p.grad is not None for p in held], dtype=np.int64)
        self.comm.Allreduce(MPI.IN_PLACE, having)
        for p, ranks in zip(held, having):
            if ranks > 0:
                row = torch.zeros_like(p.data) if p.grad is None else p.grad.contiguous()
                self.comm.Allreduce(MPI.IN_PLACE, row.numpy())
                p.grad = row / self.comm.size
        self.optimizer.step()


# %% adds_what_came
# says: Parameters in another order, or a buffer that was not yet there?
# thinks: What comes from rank 0 is an update of the parameters.
class MultiNodeOptimizer:
    def __init__(self, optimizer, comm):
        self.optimizer, self.comm = optimizer, comm
        for group in self.param_groups:
            for p in group["params"]:
                came = comm.bcast(p.data, root=0)
                if comm.rank:
                    p.data.add_(came)

    @property
    def param_groups(self):
        return self.optimizer.param_groups

    def zero_grad(self):
        self.optimizer.zero_grad()

    def step(self):
        held = [p for group in self.param_groups for p in group["params"]]
        having = np.array([p.grad is not None for p in held], dtype=np.int64)
        self.comm.Allreduce(MPI.IN_PLACE, having)
        for p, ranks in zip(held, having):
            if ranks > 0:
                row = torch.zeros_like(p.data) if p.grad is None else p.grad.contiguous()
                self.comm.Allreduce(MPI.IN_PLACE, row.numpy())
                p.grad = row / self.comm.size
        self.optimizer.step()


# %% weighs_by_nothing
# says: NaN is 0 / 0, or memory that was never written
# thinks: Ranks are weighed by their examples, of which nobody has told the number.
class MultiNodeOptimizer:
    def __init__(self, optimizer, comm):
        self.optimizer, self.comm, self.examples = optimizer, comm, 0
        for group in self.param_groups:
            for p in group["params"]:
                p.data.copy_(comm.bcast(p.data, root=0))

    @property
    def param_groups(self):
        return self.optimizer.param_groups

    def zero_grad(self):
        self.optimizer.zero_grad()

    def step(self):
        held = [p for group in self.param_groups for p in group["params"]]
        having = np.array([p.grad is not None for p in held], dtype=np.int64)
        self.comm.Allreduce(MPI.IN_PLACE, having)
        for p, ranks in zip(held, having):
            if ranks > 0:
                row = torch.zeros_like(p.data) if p.grad is None else p.grad.contiguous()
                self.comm.Allreduce(MPI.IN_PLACE, row.numpy())
                p.grad = row * self.examples / self.comm.allreduce(self.examples)
        self.optimizer.step()


# %% normalises_gradients
# says: All ranks made the same step, another one than one process
# thinks: A gradient of length 1 is safer.
class MultiNodeOptimizer:
    def __init__(self, optimizer, comm):
        self.optimizer, self.comm = optimizer, comm
        for group in self.param_groups:
            for p in group["params"]:
                p.data.copy_(comm.bcast(p.data, root=0))

    @property
    def param_groups(self):
        return self.optimizer.param_groups

    def zero_grad(self):
        self.optimizer.zero_grad()

    def step(self):
        held = [p for group in self.param_groups for p in group["params"]]
        having = np.array([p.grad is not None for p in held], dtype=np.int64)
        self.comm.Allreduce(MPI.IN_PLACE, having)
        for p, ranks in zip(held, having):
            if ranks > 0:
                row = torch.zeros_like(p.data) if p.grad is None else p.grad.contiguous()
                self.comm.Allreduce(MPI.IN_PLACE, row.numpy())
                p.grad = row / row.norm()
        self.optimizer.step()


# %% float32_on_the_wire
# says: The mean of gradients was rounded to float32
# thinks: Gradients travel as float32, which networks are trained in.
class MultiNodeOptimizer:
    def __init__(self, optimizer, comm):
        self.optimizer, self.comm = optimizer, comm
        for group in self.param_groups:
            for p in group["params"]:
                p.data.copy_(comm.bcast(p.data, root=0))

    @property
    def param_groups(self):
        return self.optimizer.param_groups

    def zero_grad(self):
        self.optimizer.zero_grad()

    def step(self):
        held = [p for group in self.param_groups for p in group["params"]]
        having = np.array([p.grad is not None for p in held], dtype=np.int64)
        self.comm.Allreduce(MPI.IN_PLACE, having)
        for p, ranks in zip(held, having):
            if ranks > 0:
                row = torch.zeros_like(p.data) if p.grad is None else p.grad
                row = row.float().contiguous()
                self.comm.Allreduce(MPI.IN_PLACE, row.numpy())
                p.grad = (row / self.comm.size).to(p.dtype)
        self.optimizer.step()


# %% bfloat16_on_the_wire
# says: The mean of gradients was rounded to 16 bits
# thinks: Gradients need few digits, so they travel in 16 bits.
class MultiNodeOptimizer:
    def __init__(self, optimizer, comm):
        self.optimizer, self.comm = optimizer, comm
        for group in self.param_groups:
            for p in group["params"]:
                p.data.copy_(comm.bcast(p.data, root=0))

    @property
    def param_groups(self):
        return self.optimizer.param_groups

    def zero_grad(self):
        self.optimizer.zero_grad()

    def step(self):
        held = [p for group in self.param_groups for p in group["params"]]
        having = np.array([p.grad is not None for p in held], dtype=np.int64)
        self.comm.Allreduce(MPI.IN_PLACE, having)
        for p, ranks in zip(held, having):
            if ranks > 0:
                row = torch.zeros_like(p.data) if p.grad is None else p.grad
                row = row.bfloat16().to(p.dtype).contiguous()
                self.comm.Allreduce(MPI.IN_PLACE, row.numpy())
                p.grad = row / self.comm.size
        self.optimizer.step()
