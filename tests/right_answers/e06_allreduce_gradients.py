"""Unusual right answers to e06_allreduce_gradients. What a cell holds is told in tests/answers.py."""

# %% allgather_sum
# thinks: All gradients on all ranks; the sum is everybody's own, in one order.
def allreduce_gradients(comm, model):
    own = {name: p.grad for name, p in model.named_parameters()}
    everyone = comm.allgather(own)
    for name, p in model.named_parameters():
        there = [grads[name] for grads in everyone if grads[name] is not None]
        if there:
            p.grad = sum(there[1:], start=there[0].clone()).div(comm.size)


# %% by_dtype
# thinks: A buffer for each dtype, by torch.cat and split; gradients are views of it.
def allreduce_gradients(comm, model):
    held = [p for p in model.parameters() if p.requires_grad]
    flags = comm.allgather([p.grad is not None for p in held])
    held = [p for p, *own in zip(held, *flags) if any(own)]
    for dtype in (torch.float32, torch.float64):
        alike = [p for p in held if p.dtype == dtype]
        if not alike:
            continue
        grads = [torch.zeros(p.numel(), dtype=dtype) if p.grad is None else p.grad.flatten() for p in alike]
        row = torch.cat(grads).div_(comm.size)
        comm.Allreduce(MPI.IN_PLACE, row)
        for p, part in zip(alike, row.split([p.numel() for p in alike])):
            p.grad = part.view_as(p)


# %% divided_in_place
# thinks: What allreduce returns is this rank's own, and is divided in place.
def allreduce_gradients(comm, model):
    for p in model.parameters():
        if comm.allreduce(p.grad is not None):
            p.grad = comm.allreduce(torch.zeros_like(p.data) if p.grad is None else p.grad)
            p.grad /= comm.size


# %% flat
# thinks: One float64 buffer for all, and the flags at its end.
def allreduce_gradients(comm, model):
    held = [p for p in model.parameters() if p.requires_grad]
    n = sum(p.numel() for p in held)
    row, at = np.zeros(n + len(held)), 0
    for i, p in enumerate(held):
        if p.grad is not None:
            row[at : at + p.numel()] = p.grad.reshape(-1).numpy()
            row[n + i] = 1
        at += p.numel()
    total = np.empty_like(row)
    comm.Allreduce(row, total, op=MPI.SUM)
    at = 0
    for i, p in enumerate(held):
        part = total[at : at + p.numel()] / comm.Get_size()
        at += p.numel()
        if total[n + i]:
            p.grad = torch.from_numpy(part).view(p.shape).to(p.dtype)


# %% named_at_root
# thinks: Named gradients go to rank 0 and come back.
def allreduce_gradients(comm, model):
    mine = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    everyone = comm.gather(mine, root=0)
    means = {}
    if comm.rank == 0:
        for theirs in everyone:
            for name, g in theirs.items():
                means[name] = means[name] + g if name in means else g.clone()
        means = {name: total / comm.size for name, total in means.items()}
    means = comm.bcast(means, root=0)
    for name, p in model.named_parameters():
        p.grad = means.get(name)


# %% no_messages_alone
# thinks: A rank alone has nothing to do; elsewhere requests are waited for at the end.
def allreduce_gradients(comm, model):
    if comm.size == 1:
        return
    held = list(model.parameters())
    having = np.array([p.grad is not None for p in held], dtype="i")
    anybody = np.empty_like(having)
    comm.Allreduce(having, anybody, MPI.MAX)
    held = [p for p, yes in zip(held, anybody) if yes]
    rows, requests = [], []
    for p in held:
        row = torch.zeros(p.shape, dtype=p.dtype) if p.grad is None else p.grad.clone(memory_format=torch.contiguous_format)
        rows.append(row)
        requests.append(comm.Iallreduce(MPI.IN_PLACE, row.numpy()))
    MPI.Request.Waitall(requests)
    for p, row in zip(held, rows):
        p.grad = row.mul_(1 / comm.size)


# %% pickled
# thinks: Lower-case allreduce moves tensors; who has a gradient is agreed on by a list of flags.
def allreduce_gradients(comm, model):
    for name, p in model.named_parameters():
        had = comm.allreduce(int(p.grad is not None))
        if had:
            own = p.grad if p.grad is not None else torch.zeros_like(p.data)
            p.grad = comm.allreduce(own) / comm.size


# %% reduce_bcast
# thinks: To rank 0 and back, scaled before; written into the gradient that is there.
def allreduce_gradients(comm, model):
    for p in model.parameters():
        if not p.requires_grad or not comm.allreduce(p.grad is not None, op=MPI.LOR):
            continue
        if p.grad is None:
            p.grad = torch.zeros_like(p)
        row = np.ascontiguousarray(p.grad.numpy()).reshape(-1) / comm.size
        row = row.astype(p.grad.numpy().dtype)
        total = np.empty_like(row)
        comm.Reduce(row, total, root=0)
        comm.Bcast(total, root=0)
        with torch.no_grad():
            p.grad.copy_(torch.from_numpy(total).reshape(p.shape))


# %% reduce_scatter_allgather
# thinks: By Reduce_scatter of a padded row and Allgather.
def allreduce_gradients(comm, model):
    p_all = list(model.parameters())
    masks = comm.allgather(tuple(p.grad is None for p in p_all))
    todo = [p for i, p in enumerate(p_all) if not all(mask[i] for mask in masks)]
    for p in todo:
        each = -(-p.numel() // comm.size)
        row = np.zeros(each * comm.size, dtype=np.float64 if p.dtype == torch.float64 else np.float32)
        if p.grad is not None:
            row[: p.numel()] = p.grad.numpy().ravel()
        mine = np.empty(each, dtype=row.dtype)
        comm.Reduce_scatter_block(row, mine)
        mine /= comm.size
        comm.Allgather(mine, row)
        p.grad = torch.from_numpy(row[: p.numel()].reshape(p.shape).copy())


# %% ring_of_its_own
# thinks: A sum of its own, passed round the ranks; rank 0 begins.
def allreduce_gradients(comm, model):
    p, rank = comm.size, comm.rank
    for q in model.parameters():
        if not q.requires_grad or not any(comm.allgather(q.grad is not None)):
            continue
        total = (torch.zeros_like(q) if q.grad is None else q.grad).contiguous().numpy().astype("d")
        if p > 1:
            if rank:
                before = np.empty_like(total)
                comm.Recv(before, rank - 1)
                total = np.asarray(before + total)
            if rank < p - 1:
                comm.Send(total, rank + 1)
            comm.Bcast(total, root=p - 1)
        q.grad = torch.tensor(total / p).to(q.dtype)
