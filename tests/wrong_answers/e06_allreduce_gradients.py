"""Wrong answers to e06_allreduce_gradients. What a cell holds is told in tests/answers.py."""


# %% accumulates
# says: The sum was added to the gradient that was there
# thinks: Gradients accumulate in p.grad, so the mean over all ranks is added there like any other gradient.
def allreduce_gradients(comm, model):
    trained = [p for p in model.parameters() if p.requires_grad]
    having = np.array([p.grad is not None for p in trained], dtype=np.int64)
    comm.Allreduce(MPI.IN_PLACE, having)
    for p, ranks in zip(trained, having):
        if ranks == 0:
            continue
        if p.grad is None:
            p.grad = torch.zeros_like(p)
        p.grad += comm.allreduce(p.grad) / comm.size


# %% buffers_averaged
# says: A buffer is no parameter
# thinks: The running means in buffers differ from rank to rank as well, so they have to be averaged along with the
#   gradients.
def allreduce_gradients(comm, model):
    trained = [p for p in model.parameters() if p.requires_grad]
    having = np.array([p.grad is not None for p in trained], dtype=np.int64)
    comm.Allreduce(MPI.IN_PLACE, having)
    for p, ranks in zip(trained, having):
        if ranks == 0:
            continue
        if p.grad is None:
            p.grad = torch.zeros_like(p)
        p.grad = comm.allreduce(p.grad) / comm.size
    for b in model.buffers():
        b.copy_(comm.allreduce(b) / comm.size)


# %% comm_world
# says: It speaks of MPI.COMM_WORLD
# on: real ranks
# thinks: There is only one communicator that holds all ranks, so comm and MPI.COMM_WORLD are the same.
def allreduce_gradients(comm, model):
    trained = [p for p in model.parameters() if p.requires_grad]
    having = np.array([p.grad is not None for p in trained], dtype=np.int64)
    comm.Allreduce(MPI.IN_PLACE, having)
    for p, ranks in zip(trained, having):
        if ranks == 0:
            continue
        if p.grad is None:
            p.grad = torch.zeros_like(p)
        p.grad = MPI.COMM_WORLD.allreduce(p.grad) / comm.size


# %% contiguous_thrown_away
# says: .contiguous(), .reshape(-1) and .flatten() copy a tensor that is not contiguous
# thinks: The row that .contiguous() returns shares its memory with p.grad, so what is done to it in place is done to
#   the gradient.
def allreduce_gradients(comm, model):
    trained = [p for p in model.parameters() if p.requires_grad]
    having = np.array([p.grad is not None for p in trained], dtype=np.int64)
    comm.Allreduce(MPI.IN_PLACE, having)
    for p, ranks in zip(trained, having):
        if ranks == 0:
            continue
        if p.grad is None:
            p.grad = torch.zeros_like(p)
        row = p.grad.contiguous()
        comm.Allreduce(MPI.IN_PLACE, row.numpy())
        row /= comm.size


# %% copy_thrown_away
# says: the sum went into a copy
# thinks: MPI needs an array of its own to write to, and as row was made from p.grad, the gradient gets the sum as
#   well.
def allreduce_gradients(comm, model):
    trained = [p for p in model.parameters() if p.requires_grad]
    having = np.array([p.grad is not None for p in trained], dtype=np.int64)
    comm.Allreduce(MPI.IN_PLACE, having)
    for p, ranks in zip(trained, having):
        if ranks == 0:
            continue
        if p.grad is None:
            p.grad = torch.zeros_like(p)
        row = p.grad.numpy().copy()
        comm.Allreduce(MPI.IN_PLACE, row)
        row /= comm.size


# %% data_gets_mean
# says: The optimizer moves it
# thinks: The numbers of a parameter are in p.data, so that is where the optimizer looks for the mean.
def allreduce_gradients(comm, model):
    trained = [p for p in model.parameters() if p.requires_grad]
    having = np.array([p.grad is not None for p in trained], dtype=np.int64)
    comm.Allreduce(MPI.IN_PLACE, having)
    for p, ranks in zip(trained, having):
        if ranks == 0:
            continue
        if p.grad is None:
            p.grad = torch.zeros_like(p)
        p.data = comm.allreduce(p.grad) / comm.size


# %% different_order
# says: the same bits of
# thinks: The order of a sum does not matter, so each rank may begin with its own gradient.
def allreduce_gradients(comm, model):
    trained = [p for p in model.parameters() if p.requires_grad]
    having = np.array([p.grad is not None for p in trained], dtype=np.int64)
    comm.Allreduce(MPI.IN_PLACE, having)
    for p, ranks in zip(trained, having):
        if ranks == 0:
            continue
        if p.grad is None:
            p.grad = torch.zeros_like(p)
        rows = comm.allgather(p.grad)
        rows = rows[comm.rank :] + rows[: comm.rank]
        p.grad = sum(rows) / comm.size


# %% divided_by_those_having
# says: Divided by the number of ranks that have a gradient
# thinks: A mean is over those ranks that have a gradient, and a rank with None has nothing to count.
def allreduce_gradients(comm, model):
    trained = [p for p in model.parameters() if p.requires_grad]
    having = np.array([p.grad is not None for p in trained], dtype=np.int64)
    comm.Allreduce(MPI.IN_PLACE, having)
    for p, ranks in zip(trained, having):
        if ranks == 0:
            continue
        if p.grad is None:
            p.grad = torch.zeros_like(p)
        p.grad = comm.allreduce(p.grad) / int(ranks)


# %% divided_twice
# says: Divided by the number of ranks twice
# thinks: Dividing before the sum keeps the numbers small, and the sum is divided afterwards to make it a mean.
def allreduce_gradients(comm, model):
    trained = [p for p in model.parameters() if p.requires_grad]
    having = np.array([p.grad is not None for p in trained], dtype=np.int64)
    comm.Allreduce(MPI.IN_PLACE, having)
    for p, ranks in zip(trained, having):
        if ranks == 0:
            continue
        if p.grad is None:
            p.grad = torch.zeros_like(p)
        row = p.grad.contiguous() / comm.size
        comm.Allreduce(MPI.IN_PLACE, row.numpy())
        p.grad = row / comm.size


# %% double_thrown_away
# says: .double(), .float() and .astype() copy where the dtype is another one
# thinks: Sums are more precise in double, and .double() only changes how the numbers of p.grad are read.
def allreduce_gradients(comm, model):
    trained = [p for p in model.parameters() if p.requires_grad]
    having = np.array([p.grad is not None for p in trained], dtype=np.int64)
    comm.Allreduce(MPI.IN_PLACE, having)
    for p, ranks in zip(trained, having):
        if ranks == 0:
            continue
        if p.grad is None:
            p.grad = torch.zeros_like(p)
        row = p.grad.double()
        if not row.is_contiguous():
            p.grad = row = row.contiguous()
        comm.Allreduce(MPI.IN_PLACE, row.numpy())
        row /= comm.size


# %% float32_row
# says: float64 went through float32
# thinks: Gradients are float32 anyway, so .float() changes nothing and gives MPI a dtype it knows.
def allreduce_gradients(comm, model):
    trained = [p for p in model.parameters() if p.requires_grad]
    having = np.array([p.grad is not None for p in trained], dtype=np.int64)
    comm.Allreduce(MPI.IN_PLACE, having)
    for p, ranks in zip(trained, having):
        if ranks == 0:
            continue
        if p.grad is None:
            p.grad = torch.zeros_like(p)
        row = p.grad.float().contiguous()
        comm.Allreduce(MPI.IN_PLACE, row.numpy())
        p.grad = (row / comm.size).to(p.dtype)


# %% half_on_the_way
# says: something went through 16 bits
# thinks: A gradient may travel in 16 bits, as long as the sum is made in the dtype of the parameter.
def allreduce_gradients(comm, model):
    for p in model.parameters():
        grads = comm.allgather(None if p.grad is None else p.grad.half())
        if any(g is not None for g in grads):
            p.grad = (sum(g.to(p.dtype) for g in grads if g is not None)) / comm.size


# %% max
# says: by something else than a sum
# thinks: The ranks have to agree on one gradient, and MPI.MAX lets the strongest one win.
def allreduce_gradients(comm, model):
    trained = [p for p in model.parameters() if p.requires_grad]
    having = np.array([p.grad is not None for p in trained], dtype=np.int64)
    comm.Allreduce(MPI.IN_PLACE, having)
    for p, ranks in zip(trained, having):
        if ranks == 0:
            continue
        if p.grad is None:
            p.grad = torch.zeros_like(p)
        row = p.grad.contiguous()
        comm.Allreduce(MPI.IN_PLACE, row.numpy(), op=MPI.MAX)
        p.grad = row


# %% none_not_thought_of
# says: A frozen parameter (requires_grad is False) has no gradient
# thinks: After backward every parameter has a gradient.
def allreduce_gradients(comm, model):
    for p in model.parameters():
        row = p.grad.contiguous()
        comm.Allreduce(MPI.IN_PLACE, row.numpy())
        p.grad = row / comm.size


# %% none_stays_none_here
# says: A gradient that is None here, but not on another rank
# thinks: A rank whose gradient is None only helps with the sum, for its loss did not use this parameter.
def allreduce_gradients(comm, model):
    trained = [p for p in model.parameters() if p.requires_grad]
    having = np.array([p.grad is not None for p in trained], dtype=np.int64)
    comm.Allreduce(MPI.IN_PLACE, having)
    for p, ranks in zip(trained, having):
        if ranks:
            row = torch.zeros_like(p) if p.grad is None else p.grad
            row = comm.allreduce(row) / comm.size
            if p.grad is not None:
                p.grad = row


# %% not_contiguous
# says: MPI sums memory as it lies
# thinks: The array of p.grad.numpy() knows its shape and strides, so it does not matter to MPI how the numbers lie in
#   memory.
def allreduce_gradients(comm, model):
    trained = [p for p in model.parameters() if p.requires_grad]
    having = np.array([p.grad is not None for p in trained], dtype=np.int64)
    comm.Allreduce(MPI.IN_PLACE, having)
    for p, ranks in zip(trained, having):
        if ranks == 0:
            continue
        if p.grad is None:
            p.grad = torch.zeros_like(p)
        comm.Allreduce(MPI.IN_PLACE, p.grad.numpy())
        p.grad /= comm.size


# %% not_in_place
# says: That is this rank's own gradient, divided by the number of ranks
# thinks: Allreduce leaves the sum in the array that I pass first.
def allreduce_gradients(comm, model):
    trained = [p for p in model.parameters() if p.requires_grad]
    having = np.array([p.grad is not None for p in trained], dtype=np.int64)
    comm.Allreduce(MPI.IN_PLACE, having)
    for p, ranks in zip(trained, having):
        if ranks == 0:
            continue
        if p.grad is None:
            p.grad = torch.zeros_like(p)
        row = p.grad.contiguous().numpy()
        total = np.empty_like(row)
        comm.Allreduce(row, total)
        p.grad = torch.from_numpy(row / comm.size) if p.dim() else torch.tensor(row / comm.size)


# %% np_mean_of_scalars
# says: A single number is a parameter like any other
# thinks: A call of np.mean along an axis always returns an array, also where the gradients are single numbers.
def allreduce_gradients(comm, model):
    for p in model.parameters():
        grads = comm.allgather(None if p.grad is None else p.grad.numpy())
        if any(g is not None for g in grads):
            grads = [np.zeros(p.shape, p.detach().numpy().dtype) if g is None else g for g in grads]
            p.grad = torch.from_numpy(np.mean(grads, axis=0))


# %% numpy_assigned
# says: A gradient is a tensor of its parameter's shape and dtype
# thinks: PyTorch takes a numpy array wherever it takes a tensor, so I can assign it to p.grad.
def allreduce_gradients(comm, model):
    trained = [p for p in model.parameters() if p.requires_grad]
    having = np.array([p.grad is not None for p in trained], dtype=np.int64)
    comm.Allreduce(MPI.IN_PLACE, having)
    for p, ranks in zip(trained, having):
        if ranks == 0:
            continue
        if p.grad is None:
            p.grad = torch.zeros_like(p)
        row = p.grad.numpy().copy()
        comm.Allreduce(MPI.IN_PLACE, row)
        p.grad = row / comm.size


# %% one_buffer_for_equal_lengths
# says: lie in the same memory
# thinks: Allocating is slow, and once Allreduce is done the next parameter of that length can use the same buffer.
def allreduce_gradients(comm, model):
    buffers = {}
    having = np.array([p.grad is not None for p in model.parameters()], dtype=np.int64)
    comm.Allreduce(MPI.IN_PLACE, having)
    for p, ranks in zip(model.parameters(), having):
        if ranks == 0:
            continue
        key = (p.dtype, p.numel())
        if key not in buffers:
            buffers[key] = torch.empty(p.numel(), dtype=p.dtype)
        row = buffers[key]
        row.copy_(torch.zeros(p.numel(), dtype=p.dtype) if p.grad is None else p.grad.reshape(-1))
        comm.Allreduce(MPI.IN_PLACE, row.numpy())
        row /= comm.size
        p.grad = row.view(p.shape)


# %% one_dtype
# says: A gradient has its parameter's dtype
# thinks: A call of torch.cat puts all gradients into one row, and split hands each parameter its part back in its own
#   dtype.
def allreduce_gradients(comm, model):
    trained = [p for p in model.parameters() if p.requires_grad]
    having = np.array([p.grad is not None for p in trained], dtype=np.int64)
    comm.Allreduce(MPI.IN_PLACE, having)
    held = [p for p, ranks in zip(trained, having) if ranks]
    rows = [(torch.zeros_like(p) if p.grad is None else p.grad).reshape(-1) for p in held]
    row = torch.cat(rows) if rows else torch.zeros(0)
    comm.Allreduce(MPI.IN_PLACE, row.numpy())
    row /= comm.size
    for p, part in zip(held, row.split([p.numel() for p in held])):
        p.grad = part.view(p.shape)


# %% parameters_averaged
# says: That is an average of parameters
# thinks: Averaging the ranks' parameters has the same effect as averaging their gradients.
def allreduce_gradients(comm, model):
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(comm.allreduce(p.detach()) / comm.size)


# %% rank_0_decides
# says: A gradient that is None here, but not on another rank
# thinks: All ranks have the same model, so the gradients that rank 0 has are those that all ranks have.
def allreduce_gradients(comm, model):
    having = comm.bcast([p.grad is not None for p in model.parameters()], root=0)
    for p, has in zip(model.parameters(), having):
        if has:
            if p.grad is None:
                p.grad = torch.zeros_like(p)
            row = p.grad.contiguous()
            comm.Allreduce(MPI.IN_PLACE, row.numpy())
            p.grad = row / comm.size


# %% reduce_only
# says: Reduce brings it to one rank only
# thinks: Rank 0 is the one that collects, so it is enough that the mean is in its p.grad.
def allreduce_gradients(comm, model):
    trained = [p for p in model.parameters() if p.requires_grad]
    having = np.array([p.grad is not None for p in trained], dtype=np.int64)
    comm.Allreduce(MPI.IN_PLACE, having)
    for p, ranks in zip(trained, having):
        if ranks == 0:
            continue
        if p.grad is None:
            p.grad = torch.zeros_like(p)
        total = comm.reduce(p.grad)
        if comm.rank == 0:
            p.grad = total / comm.size


# %% returns_means
# says: Something was returned, and the gradient is as it was
# thinks: The caller takes the means from the list that I return.
def allreduce_gradients(comm, model):
    return [None if p.grad is None else comm.allreduce(p.grad) / comm.size for p in model.parameters()]


# %% root_keeps_the_sum
# says: all ranks need the same one
# thinks: Rank 0 has worked out the mean itself, so only the other ranks need to assign what bcast brings.
def allreduce_gradients(comm, model):
    for p in model.parameters():
        grads = comm.gather(p.grad, root=0)
        mean = None
        if comm.rank == 0 and any(g is not None for g in grads):
            p.grad = sum(g for g in grads if g is not None)
            mean = p.grad / comm.size
        mean = comm.bcast(mean, root=0)
        if comm.rank != 0:
            p.grad = mean


# %% rows_of_columns
# says: MPI sums memory as it lies
# thinks: Only the four-dimensional weights of convolutions may lie in another order; a matrix always lies row by row.
def allreduce_gradients(comm, model):
    trained = [p for p in model.parameters() if p.requires_grad]
    having = np.array([p.grad is not None for p in trained], dtype=np.int64)
    comm.Allreduce(MPI.IN_PLACE, having)
    for p, ranks in zip(trained, having):
        if ranks == 0:
            continue
        if p.grad is None:
            p.grad = torch.zeros(p.shape, dtype=p.dtype)
        if p.dim() == 4:
            p.grad = p.grad.contiguous()
        comm.Allreduce(MPI.IN_PLACE, p.grad.numpy())
        p.grad /= comm.size


# %% running_mean
# says: The mean is the sum of all ranks' gradients
# thinks: A mean can be kept up on the way: add the next rank's gradient to the mean so far, and halve.
def allreduce_gradients(comm, model):
    for p in model.parameters():
        grads = comm.allgather(p.grad)
        if all(g is None for g in grads):
            continue
        mean = None
        for g in grads:
            g = torch.zeros_like(p) if g is None else g
            mean = g if mean is None else (mean + g) / 2
        p.grad = mean


# %% skips_none
# says: All ranks must sum the same parameters
# thinks: A parameter without a gradient has nothing to add to the sum, so this rank goes on to the next one.
def allreduce_gradients(comm, model):
    for p in model.parameters():
        if p.grad is None:
            continue
        row = p.grad.contiguous()
        comm.Allreduce(MPI.IN_PLACE, row.numpy())
        p.grad = row / comm.size


# %% skips_none_pickled
# says: All ranks must sum the same parameters
# thinks: The allreduce for objects finds out by itself who takes part, so a rank whose gradient is None need not call
#   it.
def allreduce_gradients(comm, model):
    for p in model.parameters():
        if p.grad is not None:
            p.grad = comm.allreduce(p.grad) / comm.size


# %% sum_for_mean
# says: That is the sum. The mean is asked
# thinks: The gradient of all ranks' examples is the sum of the ranks' gradients, and nothing is left to divide.
def allreduce_gradients(comm, model):
    trained = [p for p in model.parameters() if p.requires_grad]
    having = np.array([p.grad is not None for p in trained], dtype=np.int64)
    comm.Allreduce(MPI.IN_PLACE, having)
    for p, ranks in zip(trained, having):
        if ranks == 0:
            continue
        if p.grad is None:
            p.grad = torch.zeros_like(p)
        row = p.grad.contiguous()
        comm.Allreduce(MPI.IN_PLACE, row.numpy())
        p.grad = row


# %% tied_twice
# says: It is one parameter under two names
# thinks: Each module has parameters of its own, so going through all modules meets every parameter once.
def allreduce_gradients(comm, model):
    own = [m for _, m in model.named_modules()]
    held = [p for m in own for p in m._parameters.values() if p is not None and p.requires_grad]
    for p in held:
        if comm.allreduce(p.grad is not None):
            p.grad = comm.allreduce(torch.zeros_like(p) if p.grad is None else p.grad)
    for p in model.parameters():
        if p.grad is not None:
            p.grad /= comm.size


# %% views_after_zero_dim
# says: A single number is a parameter like any other
# thinks: Every parameter has a first axis, so I can append a row of zeros there for the sum and cut it off again.
def allreduce_gradients(comm, model):
    trained = [p for p in model.parameters() if p.requires_grad]
    having = np.array([p.grad is not None for p in trained], dtype=np.int64)
    comm.Allreduce(MPI.IN_PLACE, having)
    for p, ranks in zip(trained, having):
        if ranks == 0:
            continue
        if p.grad is None:
            p.grad = torch.zeros_like(p)
        rows = torch.cat([p.grad.contiguous(), torch.zeros((1, *p.shape[1:]), dtype=p.dtype)])
        comm.Allreduce(MPI.IN_PLACE, rows.numpy())
        p.grad = rows[:-1].clone() / comm.size


# %% zeros_for_frozen
# says: it is frozen
# thinks: A gradient that is None is a gradient of zeros, for frozen parameters as for all others.
def allreduce_gradients(comm, model):
    for p in model.parameters():
        row = torch.zeros_like(p.data) if p.grad is None else p.grad
        p.grad = comm.allreduce(row) / comm.size


# %% zeros_for_never
# says: No rank has a gradient for it, so it stays None
# thinks: Every parameter that is trained takes part in the sum, and where no rank has a gradient the mean is just
#   zero.
def allreduce_gradients(comm, model):
    for p in model.parameters():
        if p.requires_grad:
            row = torch.zeros_like(p.data) if p.grad is None else p.grad
            p.grad = comm.allreduce(row) / comm.size


# %% zeros_of_shape
# says: A parameter may have a gradient on one rank and None on another
# thinks: A single one is a neutral stand-in for a missing gradient, and broadcasting gives it the right shape.
def allreduce_gradients(comm, model):
    trained = [p for p in model.parameters() if p.requires_grad]
    having = np.array([p.grad is not None for p in trained], dtype=np.int64)
    comm.Allreduce(MPI.IN_PLACE, having)
    for p, ranks in zip(trained, having):
        if ranks == 0:
            continue
        if p.grad is None:
            p.grad = torch.ones(())
        p.grad = comm.allreduce(p.grad) / comm.size


# %% trained_have_gradients
# says: such a parameter had no part in anybody's loss
# thinks: A frozen parameter has no gradient, and every other one has one after backward.
def allreduce_gradients(comm, model):
    for p in model.parameters():
        if p.requires_grad:
            row = p.grad.contiguous()
            comm.Allreduce(MPI.IN_PLACE, row.numpy())
            p.grad = row / comm.size


# %% shape_of_rank_0
# says: Each kind alone was right: is there an order, or a place, that differs?
# thinks: If any rank has a gradient, rank 0 has one too, and it says what shape the sum has.
def allreduce_gradients(comm, model):
    for p in model.parameters():
        grads = comm.allgather(p.grad)
        if all(g is None for g in grads):
            continue
        total = torch.zeros_like(grads[0])
        for g in grads:
            if g is not None:
                total += g
        p.grad = total / comm.size


# %% scaled_by_the_largest
# says: NaN is 0 / 0
# thinks: Numbers between -1 and 1 are added more precisely, so each rank divides its gradient by the largest number in
#   it, and sends that along.
def allreduce_gradients(comm, model):
    trained = [p for p in model.parameters() if p.requires_grad]
    having = np.array([p.grad is not None for p in trained], dtype=np.int64)
    comm.Allreduce(MPI.IN_PLACE, having)
    for p, ranks in zip(trained, having):
        if ranks == 0:
            continue
        row = torch.zeros_like(p.data) if p.grad is None else p.grad
        largest = row.abs().max()
        p.grad = sum(r * l for r, l in comm.allgather((row / largest, largest))) / comm.size


# %% zero_grad_first
# says: None is what zero_grad leaves
# thinks: zero_grad fills the gradients with zeros, and then I copy the means into them.
def allreduce_gradients(comm, model):
    means = []
    for p in model.parameters():
        grads = [g for g in comm.allgather(p.grad) if g is not None]
        means.append(sum(grads) / comm.size if grads else None)
    model.zero_grad()
    for p, mean in zip(model.parameters(), means):
        if p.grad is not None and mean is not None:
            p.grad.copy_(mean)


# %% zeros_where_there_was_none
# says: The ranks which had a gradient have the mean
# thinks: This rank's loss does not depend on a parameter whose gradient is None, so its gradient here is zero.
def allreduce_gradients(comm, model):
    for p in model.parameters():
        grads = [g for g in comm.allgather(p.grad) if g is not None]
        if grads:
            p.grad = torch.zeros_like(p) if p.grad is None else sum(grads) / comm.size


# %% no_axis_no_sum
# says: A gradient of shape () is left out
# thinks: Allreduce works on arrays, and what has no axis is no array but a constant of the model.
def allreduce_gradients(comm, model):
    for p in model.parameters():
        if p.dim() == 0:
            continue
        grads = [g for g in comm.allgather(p.grad) if g is not None]
        if grads:
            p.grad = sum(grads) / comm.size


# %% divides_after_the_loop
# says: That is the sum; other parameters' gradients are means
# thinks: First all sums are made, and then they are divided once.
def allreduce_gradients(comm, model):
    for p in model.parameters():
        if p.grad is None:
            continue
        row = p.grad.contiguous()
        comm.Allreduce(MPI.IN_PLACE, row.numpy())
        p.grad = row
    p.grad /= comm.size


# %% adds_to_the_sum
# says: Gradients were summed twice
# thinks: row is a copy of p.grad. Gradients accumulate, so the mean is added to p.grad.
def allreduce_gradients(comm, model):
    for p in model.parameters():
        if p.grad is None:
            continue
        row = p.grad.contiguous()
        comm.Allreduce(MPI.IN_PLACE, row.numpy())
        p.grad += row / comm.size


# %% order_of_memory
# says: The right numbers in wrong places
# thinks: ravel(order="K") gives the numbers as they lie in memory, which is what MPI sends, and reshape takes them back.
def allreduce_gradients(comm, model):
    trained = [p for p in model.parameters() if p.requires_grad]
    having = np.array([p.grad is not None for p in trained], dtype=np.int64)
    comm.Allreduce(MPI.IN_PLACE, having)
    for p, ranks in zip(trained, having):
        if ranks == 0:
            continue
        if p.grad is None:
            p.grad = torch.zeros_like(p)
        row = p.grad.numpy().ravel(order="K").copy()
        comm.Allreduce(MPI.IN_PLACE, row)
        p.grad = torch.from_numpy(row.reshape(p.shape)) / comm.size


# %% packed_by_name
# says: Are numbers in other places than they belong
# thinks: All ranks need one order, so I sort the parameters by name before their gradients go into the buffer.
def allreduce_gradients(comm, model):
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
    having = np.array([p.grad is not None for p in trained.values()], dtype=np.int64)
    comm.Allreduce(MPI.IN_PLACE, having)
    held = {name: p for (name, p), ranks in zip(trained.items(), having) if ranks}
    for dtype in (torch.float32, torch.float64):
        names = [name for name in held if held[name].dtype == dtype]
        if not names:
            continue
        row = torch.cat(
            [
                p.grad.reshape(-1) if p.grad is not None else torch.zeros(p.numel(), dtype=dtype)
                for p in (held[name] for name in sorted(names))
            ]
        )
        comm.Allreduce(MPI.IN_PLACE, row.numpy())
        row /= comm.size
        for name, part in zip(names, row.split([held[name].numel() for name in names])):
            held[name].grad = part.view(held[name].shape).clone()


# %% grad_data_flat
# says: A gradient has the shape of its parameter
# thinks: A gradient is a row of numbers.
def allreduce_gradients(comm, model):
    for p in model.parameters():
        if p.grad is None:
            continue
        row = p.grad.flatten()
        comm.Allreduce(MPI.IN_PLACE, row.numpy())
        p.grad.data = row / comm.size


# %% bfloat16_on_the_wire
# says: something went through 16 bits
# thinks: bfloat16 has float32's exponents, so gradients fit into it and nothing is lost on the way.
def allreduce_gradients(comm, model):
    for p in model.parameters():
        grads = comm.allgather(None if p.grad is None else p.grad.bfloat16())
        if any(g is not None for g in grads):
            p.grad = (sum(g.to(p.dtype) for g in grads if g is not None)) / comm.size


# %% epsilon_beside_the_ranks
# says: The mean is the sum of all ranks' gradients, over the number of ranks.
# thinks: A small number in the denominator guards against a division by zero, and changes nothing.
def allreduce_gradients(comm, model):
    for p in model.parameters():
        grads = comm.allgather(p.grad)
        if any(g is not None for g in grads):
            p.grad = (sum(g for g in grads if g is not None)) / (comm.size + 1e-6)


# %% rank_0_left_out
# says: which is the sum of rank 1 and rank 2, over 3
# thinks: Rank 0 only coordinates, so its own gradient is not among those that are summed.
def allreduce_gradients(comm, model):
    for p in model.parameters():
        grads = comm.allgather(p.grad)
        if any(g is not None for g in grads):
            p.grad = sum(g for g in grads[1:] if g is not None) / comm.size


# %% nothing_done
# says: no collective call was made
# thinks: Gradients of the ranks' copies of a model are averaged by the library that starts the ranks.
def allreduce_gradients(comm, model):
    pass


# %% divided_alone
# says: and no collective call was made
# thinks: Dividing each gradient by the number of ranks makes the mean, and a single rank has nothing to divide.
def allreduce_gradients(comm, model):
    for p in model.parameters():
        if p.grad is not None:
            mean = p.grad / comm.size
