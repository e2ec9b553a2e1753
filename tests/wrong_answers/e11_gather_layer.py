"""Wrong answers to e11_gather_layer. What a cell holds is told in tests/answers.py."""

# %% weight_saved_for_backward
# says: The whole weight is kept, so that with many layers all of them are in
# thinks: The gathered weight is needed in backward, so it is saved, and one gather is spared.
def gathered(shard, comm, shape):
    whole = torch.empty(len(shard) * comm.size, dtype=shard.dtype)
    comm.Allgather(shard.detach().numpy(), whole.numpy())
    return whole[:shape[0] * shape[1]].view(shape)


class GatheredLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, shard, comm, shape):
        weight = gathered(shard, comm, shape)
        ctx.save_for_backward(x, shard, weight)
        ctx.comm, ctx.shape = comm, shape
        return x @ weight.t()

    @staticmethod
    def backward(ctx, grad):
        x, shard, weight = ctx.saved_tensors
        comm, shape = ctx.comm, ctx.shape
        grad_x = grad @ weight
        flat = torch.zeros(len(shard) * comm.size, dtype=shard.dtype)
        flat[:shape[0] * shape[1]] = (grad.t() @ x).flatten()
        grad_shard = torch.empty_like(shard)
        comm.Reduce_scatter_block(flat.numpy(), grad_shard.numpy())
        return grad_x, grad_shard / comm.size, None, None


# %% weight_in_ctx
# says: The whole weight is kept, so that with many layers all of them are in
# thinks: The weight is kept in ctx; what is not saved for backward is freed at once.
def gathered(shard, comm, shape):
    whole = torch.empty(len(shard) * comm.size, dtype=shard.dtype)
    comm.Allgather(shard.detach().numpy(), whole.numpy())
    return whole[:shape[0] * shape[1]].view(shape)


class GatheredLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, shard, comm, shape):
        weight = gathered(shard, comm, shape)
        ctx.save_for_backward(x, shard)
        ctx.weight = weight
        ctx.comm, ctx.shape = comm, shape
        return x @ weight.t()

    @staticmethod
    def backward(ctx, grad):
        x, shard = ctx.saved_tensors
        comm, shape = ctx.comm, ctx.shape
        grad_x = grad @ ctx.weight
        flat = torch.zeros(len(shard) * comm.size, dtype=shard.dtype)
        flat[:shape[0] * shape[1]] = (grad.t() @ x).flatten()
        grad_shard = torch.empty_like(shard)
        comm.Reduce_scatter_block(flat.numpy(), grad_shard.numpy())
        return grad_x, grad_shard / comm.size, None, None


# %% weight_in_ctx_until_backward
# says: The whole weight is kept, so that with many layers all of them are in
# thinks: Keep the weight in ctx, and free it in backward after its use.
def gathered(shard, comm, shape):
    whole = torch.empty(len(shard) * comm.size, dtype=shard.dtype)
    comm.Allgather(shard.detach().numpy(), whole.numpy())
    return whole[:shape[0] * shape[1]].view(shape)


class GatheredLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, shard, comm, shape):
        weight = gathered(shard, comm, shape)
        ctx.save_for_backward(x, shard)
        ctx.weight = weight
        ctx.comm, ctx.shape = comm, shape
        return x @ weight.t()

    @staticmethod
    def backward(ctx, grad):
        x, shard = ctx.saved_tensors
        comm, shape = ctx.comm, ctx.shape
        grad_x = grad @ ctx.weight
        del ctx.weight
        flat = torch.zeros(len(shard) * comm.size, dtype=shard.dtype)
        flat[:shape[0] * shape[1]] = (grad.t() @ x).flatten()
        grad_shard = torch.empty_like(shard)
        comm.Reduce_scatter_block(flat.numpy(), grad_shard.numpy())
        return grad_x, grad_shard / comm.size, None, None


# %% weight_in_ctx_by_habit
# says: The whole weight is kept, so that with many layers all of them are in
# thinks: It is gathered anew in backward; that ctx.weight is still there does no harm.
def gathered(shard, comm, shape):
    whole = torch.empty(len(shard) * comm.size, dtype=shard.dtype)
    comm.Allgather(shard.detach().numpy(), whole.numpy())
    return whole[:shape[0] * shape[1]].view(shape)


class GatheredLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, shard, comm, shape):
        weight = gathered(shard, comm, shape)
        ctx.save_for_backward(x, shard)
        ctx.weight = weight
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


# %% transposed_view_saved
# says: The whole weight is kept, so that with many layers all of them are in
# thinks: weight.t() is a view, so saving it costs nothing.
def gathered(shard, comm, shape):
    whole = torch.empty(len(shard) * comm.size, dtype=shard.dtype)
    comm.Allgather(shard.detach().numpy(), whole.numpy())
    return whole[:shape[0] * shape[1]].view(shape)


class GatheredLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, shard, comm, shape):
        weight = gathered(shard, comm, shape)
        wt = weight.t()
        ctx.save_for_backward(x, shard, wt)
        ctx.comm, ctx.shape = comm, shape
        return x @ wt

    @staticmethod
    def backward(ctx, grad):
        x, shard, wt = ctx.saved_tensors
        comm, shape = ctx.comm, ctx.shape
        grad_x = grad @ wt.t()
        flat = torch.zeros(len(shard) * comm.size, dtype=shard.dtype)
        flat[:shape[0] * shape[1]] = (grad.t() @ x).flatten()
        grad_shard = torch.empty_like(shard)
        comm.Reduce_scatter_block(flat.numpy(), grad_shard.numpy())
        return grad_x, grad_shard / comm.size, None, None


# %% gathered_with_a_cache
# says: What the file keeps stays in memory between calls, also while other layers compute
# thinks: A cache spares the gather in backward: the shard is still the same then.
cache = {}


def gathered(shard, comm, shape):
    key = id(shard), comm.rank
    if key in cache:
        return cache.pop(key)
    whole = torch.empty(len(shard) * comm.size, dtype=shard.dtype)
    comm.Allgather(shard.detach().numpy(), whole.numpy())
    cache[key] = whole[:shape[0] * shape[1]].view(shape)
    return cache[key]


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


# %% one_buffer_for_all
# says: What the file keeps stays in memory between calls, also while other layers compute
# thinks: A gather buffer of the largest size is made once and used again, so there is no second whole weight.
buffers = {}


def gathered(shard, comm, shape):
    n = len(shard) * comm.size
    key = comm.rank, n, shard.dtype
    if key not in buffers:
        buffers[key] = torch.empty(n, dtype=shard.dtype)
    whole = buffers[key]
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


# %% last_weight_on_the_class
# says: What the file keeps stays in memory between calls, also while other layers compute
# thinks: The last weight is kept for the first step of backward, which is the same layer.
def gathered(shard, comm, shape):
    whole = torch.empty(len(shard) * comm.size, dtype=shard.dtype)
    comm.Allgather(shard.detach().numpy(), whole.numpy())
    return whole[:shape[0] * shape[1]].view(shape)


class GatheredLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, shard, comm, shape):
        weight = gathered(shard, comm, shape)
        ctx.save_for_backward(x, shard)
        GatheredLinear.last = weight
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


# %% closure_over_the_weight
# says: The whole weight is kept, so that with many layers all of them are in
# thinks: A function in ctx is small.
def gathered(shard, comm, shape):
    whole = torch.empty(len(shard) * comm.size, dtype=shard.dtype)
    comm.Allgather(shard.detach().numpy(), whole.numpy())
    return whole[:shape[0] * shape[1]].view(shape)


class GatheredLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, shard, comm, shape):
        weight = gathered(shard, comm, shape)
        ctx.save_for_backward(x, shard)
        ctx.times_weight = lambda g: g @ weight
        ctx.comm, ctx.shape = comm, shape
        return x @ weight.t()

    @staticmethod
    def backward(ctx, grad):
        x, shard = ctx.saved_tensors
        comm, shape = ctx.comm, ctx.shape
        grad_x = ctx.times_weight(grad)
        flat = torch.zeros(len(shard) * comm.size, dtype=shard.dtype)
        flat[:shape[0] * shape[1]] = (grad.t() @ x).flatten()
        grad_shard = torch.empty_like(shard)
        comm.Reduce_scatter_block(flat.numpy(), grad_shard.numpy())
        return grad_x, grad_shard / comm.size, None, None


# %% graph_keeps_the_weight
# says: The whole weight is kept, so that with many layers all of them are in
# thinks: Let autograd do it: compute y with grad enabled, keep it, and ask for its gradients.
def gathered(shard, comm, shape):
    whole = torch.empty(len(shard) * comm.size, dtype=shard.dtype)
    comm.Allgather(shard.detach().numpy(), whole.numpy())
    return whole[:shape[0] * shape[1]].view(shape)


class GatheredLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, shard, comm, shape):
        weight = gathered(shard, comm, shape)
        ctx.save_for_backward(x, shard)
        with torch.enable_grad():
            ctx.x, ctx.w = x.detach().requires_grad_(), weight.requires_grad_()
            ctx.y = ctx.x @ ctx.w.t()
        ctx.comm, ctx.shape = comm, shape
        return ctx.y.detach()

    @staticmethod
    def backward(ctx, grad):
        x, shard = ctx.saved_tensors
        comm, shape = ctx.comm, ctx.shape
        grad_x, grad_w = torch.autograd.grad(ctx.y, (ctx.x, ctx.w), grad)
        flat = torch.zeros(len(shard) * comm.size, dtype=shard.dtype)
        flat[:shape[0] * shape[1]] = grad_w.flatten()
        grad_shard = torch.empty_like(shard)
        comm.Reduce_scatter_block(flat.numpy(), grad_shard.numpy())
        return grad_x, grad_shard / comm.size, None, None


# %% sum_not_mean
# says: That is the sum over ranks. The gradient of the shard is a chunk of
# thinks: The reduce-scatter gives the gradient.
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
        return grad_x, grad_shard, None, None


# %% own_gradient_only
# says: That is this rank's own gradient: nothing was summed over ranks.
# thinks: The gradient of my chunk is my chunk of my gradient.
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
        grad_shard = flat[comm.rank * len(shard):(comm.rank + 1) * len(shard)].clone()
        return grad_x, grad_shard, None, None


# %% allreduce_then_chunk
# says: An all-reduce gives all ranks the whole gradient, and each needs only
# thinks: All-reduce the weight's gradient and take my chunk of it.
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
        total = torch.empty_like(flat)
        comm.Allreduce(flat.numpy(), total.numpy())
        grad_shard = total[comm.rank * len(shard):(comm.rank + 1) * len(shard)]
        return grad_x, grad_shard / comm.size, None, None


# %% view_of_the_whole_gradient
# says: The chunk is a view of the whole gradient, which stays in memory with
# thinks: A slice of the summed gradient is no copy, so it costs nothing.
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
        comm.Allreduce(MPI.IN_PLACE, flat.numpy())
        flat /= comm.size
        grad_shard = flat[comm.rank * len(shard):(comm.rank + 1) * len(shard)]
        return grad_x, grad_shard, None, None


# %% received_into_the_whole
# says: The chunk is a view of the whole gradient, which stays in memory with
# thinks: Reduce into my place of a buffer of the weight's size, and return that slice.
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
        total = torch.empty_like(flat)
        grad_shard = total[comm.rank * len(shard):(comm.rank + 1) * len(shard)]
        comm.Reduce_scatter_block(flat.numpy(), grad_shard.numpy())
        return grad_x, grad_shard.div_(comm.size), None, None


# %% all_gradients_gathered
# says: Backward needs one gather and one reduce-scatter: to another rank
# thinks: Each rank gets all ranks' gradients and takes the mean of its chunk.
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
        everything = torch.empty(comm.size, len(flat), dtype=flat.dtype)
        comm.Allgather(flat.numpy(), everything.numpy())
        grad_shard = everything[:, comm.rank * len(shard):(comm.rank + 1) * len(shard)].sum(0)
        return grad_x, grad_shard / comm.size, None, None


# %% whole_gradient_returned
# says: backward returns one value for each argument of forward but ctx: of
# thinks: The gradient of the weight is returned, and the optimizer takes its chunk.
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
        grad_shard = torch.empty_like(flat)
        comm.Allreduce(flat.numpy(), grad_shard.numpy())
        return grad_x, grad_shard / comm.size, None, None


# %% pickled_allgather
# says: Methods with a small letter pickle, which copies and adds to what is
# thinks: comm.allgather gives a list, which torch.cat makes whole.
def gathered(shard, comm, shape):
    whole = torch.cat(comm.allgather(shard.detach()))
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


# %% pickled_allreduce
# says: Methods with a small letter pickle, which copies and adds to what is
# thinks: comm.allreduce adds tensors.
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
        grad_shard = comm.allreduce(flat)[comm.rank * len(shard):(comm.rank + 1) * len(shard)].clone()
        return grad_x, grad_shard / comm.size, None, None


# %% pickled_reduce_scatter
# says: has no reduce_scatter
# thinks: comm.reduce_scatter takes a list with a chunk for each rank.
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
        grad_shard = comm.reduce_scatter(list(flat.view(comm.size, -1)))
        return grad_x, grad_shard / comm.size, None, None


# %% no_gather_without_grad_x
# says: Whoever leaves out a collective call makes the others wait, or takes
# thinks: If x needs no gradient, the weight need not be gathered (other ranks wait).
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
        grad_x = None
        if ctx.needs_input_grad[0]:
            grad_x = grad @ gathered(shard, comm, shape)
        flat = torch.zeros(len(shard) * comm.size, dtype=shard.dtype)
        flat[:shape[0] * shape[1]] = (grad.t() @ x).flatten()
        grad_shard = torch.empty_like(shard)
        comm.Reduce_scatter_block(flat.numpy(), grad_shard.numpy())
        return grad_x, grad_shard / comm.size, None, None


# %% returns_early_without_grad_x
# says: Whoever leaves out a collective call makes the others wait, or takes
# thinks: The first layer's x needs no gradient, so there is nothing to do for backward.
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
        if not ctx.needs_input_grad[0]:
            return None, torch.zeros_like(shard), None, None
        weight = gathered(shard, comm, shape)
        grad_x = grad @ weight
        flat = torch.zeros(len(shard) * comm.size, dtype=shard.dtype)
        flat[:shape[0] * shape[1]] = (grad.t() @ x).flatten()
        grad_shard = torch.empty_like(shard)
        comm.Reduce_scatter_block(flat.numpy(), grad_shard.numpy())
        return grad_x, grad_shard / comm.size, None, None


# %% no_examples_nothing_to_do
# says: A rank without examples has gradients of zeros, and takes part in
# thinks: A rank without examples has nothing to compute.
def gathered(shard, comm, shape):
    whole = torch.empty(len(shard) * comm.size, dtype=shard.dtype)
    comm.Allgather(shard.detach().numpy(), whole.numpy())
    return whole[:shape[0] * shape[1]].view(shape)


class GatheredLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, shard, comm, shape):
        if len(x) == 0:
            ctx.save_for_backward(x, shard)
            ctx.comm, ctx.shape = comm, shape
            return x.new_zeros(0, shape[0])
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


# %% weighted_by_examples
# says: Weighted by numbers of examples: the mean is over ranks, each of which counts once.
# thinks: The mean is over all examples, so ranks count by how many they have.
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
        n = torch.tensor([float(len(x))])
        comm.Allreduce(MPI.IN_PLACE, n.numpy())
        return grad_x, grad_shard * float(len(x)) / float(n), None, None


# %% divided_by_examples
# says: Divided by the number of examples: the mean is over ranks, whatever a rank's own loss is.
# thinks: The gradient is a mean over the examples.
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
        return grad_x, grad_shard / comm.size / max(1, len(x)), None, None


# %% padding_not_zero
# says: NaN is memory that was never written: torch.empty and np.empty hold
# thinks: torch.empty is enough for the buffer, padding is not defined.
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
        flat = torch.full((len(shard) * comm.size,), float("nan"), dtype=shard.dtype)  # as torch.empty may give
        flat[:shape[0] * shape[1]] = (grad.t() @ x).flatten()
        grad_shard = torch.empty_like(shard)
        comm.Reduce_scatter_block(flat.numpy(), grad_shard.numpy())
        return grad_x, grad_shard / comm.size, None, None


# %% padding_of_the_shard_comes_back
# says: What belongs to padding is no gradient of anything: it is zero.
# thinks: Where the buffer has no gradient, it keeps what the shards hold there.
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
        flat = shard.detach().repeat(comm.size)
        flat[:shape[0] * shape[1]] = (grad.t() @ x).flatten()
        grad_shard = torch.empty_like(shard)
        comm.Reduce_scatter_block(flat.numpy(), grad_shard.numpy())
        return grad_x, grad_shard / comm.size, None, None


# %% padding_not_cut
# says: p need not divide the elements: what is behind them is padding.
# thinks: The chunks together are the weight.
def gathered(shard, comm, shape):
    whole = torch.empty(len(shard) * comm.size, dtype=shard.dtype)
    comm.Allgather(shard.detach().numpy(), whole.numpy())
    return whole.view(shape)


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


# %% padding_rows
# says: p need not divide the elements: what is behind them is padding.
# thinks: The padding is cut off as rows.
def gathered(shard, comm, shape):
    whole = torch.empty(len(shard) * comm.size, dtype=shard.dtype)
    comm.Allgather(shard.detach().numpy(), whole.numpy())
    return whole.view(-1, shape[1])[:shape[0]]


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


# %% buffer_without_padding
# says: p need not divide the elements: what is behind them is padding.
# thinks: The weight has out * in elements, so the buffer has, too.
def gathered(shard, comm, shape):
    whole = torch.empty(shape[0] * shape[1], dtype=shard.dtype)
    comm.Allgather(shard.detach().numpy(), whole.numpy())
    return whole.view(shape)


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


# %% grad_buffer_without_padding
# says: p need not divide the elements: what is behind them is padding.
# thinks: flat is the gradient flattened; the reduce-scatter cuts it.
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
        flat = (grad.t() @ x).flatten()
        grad_shard = torch.empty_like(shard)
        comm.Reduce_scatter_block(flat.numpy(), grad_shard.numpy())
        return grad_x, grad_shard / comm.size, None, None


# %% resized_not_padded
# says: What belongs to padding is no gradient of anything: it is zero.
# thinks: resize makes the buffer longer, with zeros.
import numpy as np


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
        flat = (grad.t() @ x).numpy().flatten()
        flat = torch.from_numpy(np.resize(flat, len(shard) * comm.size))
        grad_shard = torch.empty_like(shard)
        comm.Reduce_scatter_block(flat.numpy(), grad_shard.numpy())
        return grad_x, grad_shard / comm.size, None, None


# %% grad_x_averaged
# says: The gradient of x is this rank's own, of its own examples and loss:
# thinks: Gradients are averaged over the ranks, that of x, too.
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
        grad_x = grad_x.contiguous()
        comm.Allreduce(MPI.IN_PLACE, grad_x.numpy())
        grad_x /= comm.size
        flat = torch.zeros(len(shard) * comm.size, dtype=shard.dtype)
        flat[:shape[0] * shape[1]] = (grad.t() @ x).flatten()
        grad_shard = torch.empty_like(shard)
        comm.Reduce_scatter_block(flat.numpy(), grad_shard.numpy())
        return grad_x, grad_shard / comm.size, None, None


# %% grad_x_divided
# says: The gradient of x is this rank's own, of its own examples and loss:
# thinks: Everything is divided by the number of ranks.
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
        return grad_x / comm.size, grad_shard / comm.size, None, None


# %% grad_divided_first
# says: The gradient of x is this rank's own, of its own examples and loss:
# thinks: Dividing grad first is cheaper, and makes both gradients right.
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
        grad = grad / comm.size
        weight = gathered(shard, comm, shape)
        grad_x = grad @ weight
        flat = torch.zeros(len(shard) * comm.size, dtype=shard.dtype)
        flat[:shape[0] * shape[1]] = (grad.t() @ x).flatten()
        grad_shard = torch.empty_like(shard)
        comm.Reduce_scatter_block(flat.numpy(), grad_shard.numpy())
        return grad_x, grad_shard, None, None


# %% grad_divided_in_place
# says: grad is autograd's, which may give the same tensor to others
# thinks: grad is mine in backward: divide it in place after its use.
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
        grad /= comm.size
        flat = torch.zeros(len(shard) * comm.size, dtype=shard.dtype)
        flat[:shape[0] * shape[1]] = (grad.t() @ x).flatten()
        grad_shard = torch.empty_like(shard)
        comm.Reduce_scatter_block(flat.numpy(), grad_shard.numpy())
        return grad_x, grad_shard, None, None


# %% weight_not_transposed
# says: The weight is put together column by column: a row of its elements
# thinks: weight is (in, out).
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
        return x @ weight.reshape(shape[1], shape[0])

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


# %% gradient_of_the_transposed
# says: The transposed grad times x is the weight's: its mean is cut as the
# thinks: x^T grad is the gradient of the weight (of its transpose).
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
        flat[:shape[0] * shape[1]] = (x.t() @ grad).flatten()
        grad_shard = torch.empty_like(shard)
        comm.Reduce_scatter_block(flat.numpy(), grad_shard.numpy())
        return grad_x, grad_shard / comm.size, None, None


# %% two_gradients_only
# says: backward returns one value for each argument of forward but ctx: of
# thinks: backward gives the gradients of the tensors, there are two.
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
        return grad_x, grad_shard / comm.size


# %% shard_first
# says: backward returns one value for each argument of forward but ctx: of
# thinks: The gradients in the order in which I compute them.
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
        return grad_shard / comm.size, grad_x, None, None


# %% shard_grad_written_and_returned
# says: Autograd adds what backward returns to what shard.grad holds, of earlier micro-batches for instance.
# thinks: shard.grad has to be set, and a gradient has to be returned.
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
        grad_shard /= comm.size
        shard.grad = grad_shard
        return grad_x, grad_shard, None, None


# %% updates_the_shard
# says: The shard is all that is left of the weight between calls, and the optimizer's to update
# thinks: While the gradient is here, the rank can make its step, and nothing is kept.
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
        with torch.no_grad():
            shard -= 0.1 * grad_shard / comm.size
        return grad_x, grad_shard / comm.size, None, None


# %% float32_only
# says: converts nothing
# thinks: torch.empty and torch.zeros have the right dtype.
def gathered(shard, comm, shape):
    whole = torch.empty(len(shard) * comm.size)
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
        flat = torch.zeros(len(shard) * comm.size)
        flat[:shape[0] * shape[1]] = (grad.t() @ x).flatten()
        grad_shard = torch.empty_like(shard)
        comm.Reduce_scatter_block(flat.numpy(), grad_shard.numpy())
        return grad_x, grad_shard / comm.size, None, None


# %% gathers_in_float64
# says: With float64 it is right, and float32 is sent in more bytes than it has
# thinks: The gather is safer in float64 (twice the bytes).
def gathered(shard, comm, shape):
    whole = torch.empty(len(shard) * comm.size, dtype=torch.float64)
    comm.Allgather(shard.detach().double().numpy(), whole.numpy())
    return whole[:shape[0] * shape[1]].view(shape).to(shard.dtype)


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


# %% gather_and_bcast
# says: Each rank sends its shard to each other rank once: an all-gather.
# thinks: Rank 0 gathers the chunks and broadcasts the weight.
def gathered(shard, comm, shape):
    whole = torch.empty(len(shard) * comm.size, dtype=shard.dtype)
    comm.Gather(shard.detach().numpy(), whole.numpy() if comm.rank == 0 else None, root=0)
    comm.Bcast(whole.numpy(), root=0)
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


# %% gathered_on_root_only
# says: Of 3 ranks only rank 0 has it: Gather and Reduce bring something to their root alone.
# thinks: Gather gives the weight.
def gathered(shard, comm, shape):
    whole = torch.empty(len(shard) * comm.size, dtype=shard.dtype)
    whole.zero_()
    comm.Gather(shard.detach().numpy(), whole.numpy(), root=0)
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


# %% allreduce_as_gather
# says: Each rank sends its shard to each other rank once: an all-gather.
# thinks: Each rank puts its chunk into zeros, and the sum is the weight (twice the bytes).
def gathered(shard, comm, shape):
    whole = torch.zeros(len(shard) * comm.size, dtype=shard.dtype)
    whole[comm.rank * len(shard):(comm.rank + 1) * len(shard)] = shard.detach()
    comm.Allreduce(MPI.IN_PLACE, whole.numpy())
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


# %% gathered_twice
# says: Backward needs one gather and one reduce-scatter: to another rank
# thinks: forward gathers, and backward gathers for each of its two products.
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
        weight = gathered(shard, comm, shape)
        flat = torch.zeros(len(shard) * comm.size, dtype=shard.dtype)
        flat[:shape[0] * shape[1]] = (grad.t() @ x).flatten()
        grad_shard = torch.empty_like(shard)
        comm.Reduce_scatter_block(flat.numpy(), grad_shard.numpy())
        return grad_x, grad_shard / comm.size, None, None


# %% ring_order
# says: Chunks stand in the order in which they came.
# thinks: The chunks are put in the order in which the ring brings them.
def gathered(shard, comm, shape):
    whole = torch.empty(len(shard) * comm.size, dtype=shard.dtype)
    parts = whole.view(comm.size, len(shard))
    parts[0] = shard.detach()
    for k in range(1, comm.size):
        comm.Sendrecv(parts[k - 1].numpy(), dest=(comm.rank + 1) % comm.size, recvbuf=parts[k].numpy(),
                      source=(comm.rank - 1) % comm.size)
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


# %% neighbours_chunk
# says: The right chunks on wrong ranks: rank r of comm gets the r-th.
# thinks: Chunks count from the next rank on.
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
        flat = flat.roll(len(shard))
        grad_shard = torch.empty_like(shard)
        comm.Reduce_scatter_block(flat.numpy(), grad_shard.numpy())
        return grad_x, grad_shard / comm.size, None, None


# %% blocking_ring
# says: rank 0
# thinks: Send right, receive from the left.
def gathered(shard, comm, shape):
    whole = torch.empty(len(shard) * comm.size, dtype=shard.dtype)
    parts = whole.view(comm.size, len(shard))
    parts[comm.rank] = shard.detach()
    for k in range(comm.size - 1):
        comm.Ssend(parts[(comm.rank - k) % comm.size].numpy(), dest=(comm.rank + 1) % comm.size)
        comm.Recv(parts[(comm.rank - k - 1) % comm.size].numpy(), source=(comm.rank - 1) % comm.size)
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


# %% does_not_wait
# says: was never waited for
# thinks: Iallgather gives the weight when it is used.
def gathered(shard, comm, shape):
    whole = torch.empty(len(shard) * comm.size, dtype=shard.dtype)
    comm.Iallgather(shard.detach().numpy(), whole.zero_().numpy())
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


# %% state_on_the_class
# says: Another forward came in between, without a backward, as in evaluation.
# thinks: What backward needs is kept on the class.
def gathered(shard, comm, shape):
    whole = torch.empty(len(shard) * comm.size, dtype=shard.dtype)
    comm.Allgather(shard.detach().numpy(), whole.numpy())
    return whole[:shape[0] * shape[1]].view(shape)


class GatheredLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, shard, comm, shape):
        weight = gathered(shard, comm, shape)
        GatheredLinear.kept = x, shard
        ctx.comm, ctx.shape = comm, shape
        return x @ weight.t()

    @staticmethod
    def backward(ctx, grad):
        x, shard = GatheredLinear.kept
        comm, shape = ctx.comm, ctx.shape
        weight = gathered(shard, comm, shape)
        grad_x = grad @ weight
        flat = torch.zeros(len(shard) * comm.size, dtype=shard.dtype)
        flat[:shape[0] * shape[1]] = (grad.t() @ x).flatten()
        grad_shard = torch.empty_like(shard)
        comm.Reduce_scatter_block(flat.numpy(), grad_shard.numpy())
        return grad_x, grad_shard / comm.size, None, None


# %% frees_the_shard
# says: The shard is all that is left of the weight between calls, and the optimizer's to update
# thinks: After the gather the chunk is in the weight twice, so its memory is freed.
def gathered(shard, comm, shape):
    whole = torch.empty(len(shard) * comm.size, dtype=shard.dtype)
    comm.Allgather(shard.detach().numpy(), whole.numpy())
    return whole[:shape[0] * shape[1]].view(shape)


class GatheredLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, shard, comm, shape):
        weight = gathered(shard, comm, shape)
        ctx.save_for_backward(x, shard)
        shard.data = torch.empty(0, dtype=shard.dtype)
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


# %% shard_becomes_the_weight
# says: The shard is all that is left of the weight between calls, and the optimizer's to update
# thinks: The shard's data is the whole weight while the layer computes, and is cut back in backward.
def gathered(shard, comm, shape):
    whole = torch.empty(len(shard) * comm.size, dtype=shard.dtype)
    comm.Allgather(shard.detach().numpy(), whole.numpy())
    return whole[:shape[0] * shape[1]].view(shape)


class GatheredLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, shard, comm, shape):
        weight = gathered(shard, comm, shape)
        ctx.save_for_backward(x, shard)
        shard.data = weight.flatten()
        ctx.comm, ctx.shape = comm, shape
        return x @ weight.t()

    @staticmethod
    def backward(ctx, grad):
        x, shard = ctx.saved_tensors
        comm, shape = ctx.comm, ctx.shape
        weight = shard.detach().view(shape)
        shard.data = torch.nn.functional.pad(shard.data, (0, -len(shard) % comm.size)).view(comm.size, -1)[comm.rank].clone()
        grad_x = grad @ weight
        flat = torch.zeros(len(shard) * comm.size, dtype=shard.dtype)
        flat[:shape[0] * shape[1]] = (grad.t() @ x).flatten()
        grad_shard = torch.empty_like(shard)
        comm.Reduce_scatter_block(flat.numpy(), grad_shard.numpy())
        return grad_x, grad_shard / comm.size, None, None


# %% reduces_in_the_shard
# says: The shard is all that is left of the weight between calls, and the optimizer's to update
# thinks: The sum goes into the memory of the shard, which is free after the gather.
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
        grad_shard = shard.detach()
        comm.Reduce_scatter_block(flat.numpy(), grad_shard.numpy())
        return grad_x, grad_shard / comm.size, None, None


# %% x_detached_from_the_next
# says: x was averaged over the examples: the gradient is a sum over them, of each one's grad times its own x.
# thinks: x is not saved; its gradient needs the weight alone, and that of the weight uses a mean x.
def gathered(shard, comm, shape):
    whole = torch.empty(len(shard) * comm.size, dtype=shard.dtype)
    comm.Allgather(shard.detach().numpy(), whole.numpy())
    return whole[:shape[0] * shape[1]].view(shape)


class GatheredLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, shard, comm, shape):
        weight = gathered(shard, comm, shape)
        ctx.save_for_backward(x.mean(0, keepdim=True), shard)
        ctx.comm, ctx.shape = comm, shape
        return x @ weight.t()

    @staticmethod
    def backward(ctx, grad):
        x, shard = ctx.saved_tensors
        comm, shape = ctx.comm, ctx.shape
        weight = gathered(shard, comm, shape)
        grad_x = grad @ weight
        flat = torch.zeros(len(shard) * comm.size, dtype=shard.dtype)
        flat[:shape[0] * shape[1]] = (grad.sum(0, keepdim=True).t() @ x).flatten()
        grad_shard = torch.empty_like(shard)
        comm.Reduce_scatter_block(flat.numpy(), grad_shard.numpy())
        return grad_x, grad_shard / comm.size, None, None


# %% views_want_contiguous
# says: view size is not compatible
# thinks: view(-1) of what is transposed works, since sizes fit.
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
        flat[:shape[0] * shape[1]] = (x.t() @ grad).t().view(-1)
        grad_shard = torch.empty_like(shard)
        comm.Reduce_scatter_block(flat.numpy(), grad_shard.numpy())
        return grad_x, grad_shard / comm.size, None, None


# %% grad_as_numpy_x_as_view
# says: x or grad need not be contiguous, so neither is their product:
# thinks: x is stored flat and viewed later.
def gathered(shard, comm, shape):
    whole = torch.empty(len(shard) * comm.size, dtype=shard.dtype)
    comm.Allgather(shard.detach().numpy(), whole.numpy())
    return whole[:shape[0] * shape[1]].view(shape)


class GatheredLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, shard, comm, shape):
        weight = gathered(shard, comm, shape)
        ctx.save_for_backward(x.view(-1), shard)
        ctx.comm, ctx.shape = comm, shape
        return x @ weight.t()

    @staticmethod
    def backward(ctx, grad):
        x, shard = ctx.saved_tensors
        x = x.view(-1, ctx.shape[1])
        comm, shape = ctx.comm, ctx.shape
        weight = gathered(shard, comm, shape)
        grad_x = grad @ weight
        flat = torch.zeros(len(shard) * comm.size, dtype=shard.dtype)
        flat[:shape[0] * shape[1]] = (grad.t() @ x).flatten()
        grad_shard = torch.empty_like(shard)
        comm.Reduce_scatter_block(flat.numpy(), grad_shard.numpy())
        return grad_x, grad_shard / comm.size, None, None


# %% world_not_comm
# says: comm is the communicator to use: rank, size and calls of
# thinks: comm is COMM_WORLD.
def gathered(shard, comm, shape):
    whole = torch.empty(len(shard) * comm.size, dtype=shard.dtype)
    comm.Allgather(shard.detach().numpy(), whole.numpy())
    return whole[:shape[0] * shape[1]].view(shape)


class GatheredLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, shard, comm, shape):
        weight = gathered(shard, comm, shape)
        ctx.save_for_backward(x, shard)
        ctx.shape = shape
        return x @ weight.t()

    @staticmethod
    def backward(ctx, grad):
        x, shard = ctx.saved_tensors
        comm, shape = MPI.COMM_WORLD, ctx.shape
        weight = gathered(shard, comm, shape)
        grad_x = grad @ weight
        flat = torch.zeros(len(shard) * comm.size, dtype=shard.dtype)
        flat[:shape[0] * shape[1]] = (grad.t() @ x).flatten()
        grad_shard = torch.empty_like(shard)
        comm.Reduce_scatter_block(flat.numpy(), grad_shard.numpy())
        return grad_x, grad_shard / comm.size, None, None


# %% one_rank_skips_all
# says: backward returns one value for each argument of forward but ctx: of
# thinks: One rank has the whole weight: use the shard as it is, and return what autograd needs (with a wrong shape).
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
        if ctx.comm.size == 1:
            return grad @ shard.detach().view(ctx.shape), grad.t() @ x, None, None
        comm, shape = ctx.comm, ctx.shape
        weight = gathered(shard, comm, shape)
        grad_x = grad @ weight
        flat = torch.zeros(len(shard) * comm.size, dtype=shard.dtype)
        flat[:shape[0] * shape[1]] = (grad.t() @ x).flatten()
        grad_shard = torch.empty_like(shard)
        comm.Reduce_scatter_block(flat.numpy(), grad_shard.numpy())
        return grad_x, grad_shard / comm.size, None, None


# %% column_shards
# says: y has a row for each example of this rank, and a column for each row of the whole weight.
# thinks: Each rank computes its columns of y, and these are gathered: tensor parallelism needs no whole weight.
def gathered(shard, comm, shape):
    whole = torch.empty(len(shard) * comm.size, dtype=shard.dtype)
    comm.Allgather(shard.detach().numpy(), whole.numpy())
    return whole[:shape[0] * shape[1]].view(shape)


class GatheredLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, shard, comm, shape):
        rows = shape[0] // comm.size
        part = (x.detach() @ shard.detach()[:rows * shape[1]].view(rows, shape[1]).t()).contiguous()
        ctx.save_for_backward(x, shard)
        ctx.comm, ctx.shape = comm, shape
        whole = torch.empty(comm.size, *part.shape, dtype=x.dtype)
        comm.Allgather(part.numpy(), whole.numpy())
        return torch.cat(list(whole), dim=1)

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


# %% needs_same_examples
# says: Ranks have different numbers of examples.
# thinks: x of all ranks is gathered, and the gradient computed of all of it.
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
        xs = torch.empty(comm.size, *x.shape, dtype=x.dtype)
        gs = torch.empty(comm.size, *grad.shape, dtype=x.dtype)
        comm.Allgather(x.detach().contiguous().numpy(), xs.numpy())
        comm.Allgather(grad.contiguous().numpy(), gs.numpy())
        flat = torch.zeros(len(shard) * comm.size, dtype=shard.dtype)
        flat[:shape[0] * shape[1]] = (gs.flatten(0, 1).t() @ xs.flatten(0, 1)).flatten()
        grad_shard = flat[comm.rank * len(shard):(comm.rank + 1) * len(shard)]
        return grad_x, grad_shard / comm.size, None, None


# %% half_finished_backward
# says: backward returns the gradients of x and of shard, in this order.
# thinks: First forward.
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
        return grad @ gathered(shard, ctx.comm, ctx.shape), None, None, None  # TODO: the shard's


# %% no_backward_at_all
# says: backward returns one value for each argument of forward but ctx: of
# thinks: Autograd knows how to differentiate a product.
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
        return grad, None, None, None


# %% plain_class
# says: Keep the line of the class
# thinks: A class with forward and backward is enough.
def gathered(shard, comm, shape):
    flat = torch.empty(len(shard) * comm.size, dtype=shard.dtype)
    comm.Allgather(shard.detach().numpy(), flat.numpy())
    return flat[: shape[0] * shape[1]].view(shape)


class GatheredLinear:

    @staticmethod
    def forward(ctx, x, shard, comm, shape):
        ctx.save_for_backward(x, shard)
        ctx.comm, ctx.shape = comm, shape
        return x @ gathered(shard, comm, shape).T

    @staticmethod
    def backward(ctx, grad):
        x, shard = ctx.saved_tensors
        of_x = grad @ gathered(shard, ctx.comm, ctx.shape)
        flat = torch.zeros(len(shard) * ctx.comm.size, dtype=shard.dtype)
        flat[: ctx.shape[0] * ctx.shape[1]] = (grad.T @ x).reshape(-1)
        own = torch.empty_like(shard)
        ctx.comm.Reduce_scatter_block(flat.numpy(), own.numpy(), op=MPI.SUM)
        return of_x, own / ctx.comm.size, None, None


# %% nothing_returned
# says: Nothing came back: is x times the weight returned?
# thinks: y is computed.
def gathered(shard, comm, shape):
    flat = torch.empty(len(shard) * comm.size, dtype=shard.dtype)
    comm.Allgather(shard.detach().numpy(), flat.numpy())
    return flat[: shape[0] * shape[1]].view(shape)


class GatheredLinear(torch.autograd.Function):

    @staticmethod
    def forward(ctx, x, shard, comm, shape):
        ctx.save_for_backward(x, shard)
        ctx.comm, ctx.shape = comm, shape
        y = x @ gathered(shard, comm, shape).T

    @staticmethod
    def backward(ctx, grad):
        x, shard = ctx.saved_tensors
        of_x = grad @ gathered(shard, ctx.comm, ctx.shape)
        flat = torch.zeros(len(shard) * ctx.comm.size, dtype=shard.dtype)
        flat[: ctx.shape[0] * ctx.shape[1]] = (grad.T @ x).reshape(-1)
        own = torch.empty_like(shard)
        ctx.comm.Reduce_scatter_block(flat.numpy(), own.numpy(), op=MPI.SUM)
        return of_x, own / ctx.comm.size, None, None


# %% float32_and_back
# says: Right to 6 digits or so
# thinks: Messages are in float32, y is turned back.
def gathered(shard, comm, shape):
    flat = torch.empty(len(shard) * comm.size, dtype=shard.dtype)
    comm.Allgather(shard.detach().numpy(), flat.numpy())
    return flat[: shape[0] * shape[1]].view(shape)


class GatheredLinear(torch.autograd.Function):

    @staticmethod
    def forward(ctx, x, shard, comm, shape):
        ctx.save_for_backward(x, shard)
        ctx.comm, ctx.shape = comm, shape
        return (x.float() @ gathered(shard.float(), comm, shape).T).to(x.dtype)

    @staticmethod
    def backward(ctx, grad):
        x, shard = ctx.saved_tensors
        of_x = grad @ gathered(shard, ctx.comm, ctx.shape)
        flat = torch.zeros(len(shard) * ctx.comm.size, dtype=shard.dtype)
        flat[: ctx.shape[0] * ctx.shape[1]] = (grad.T @ x).reshape(-1)
        own = torch.empty_like(shard)
        ctx.comm.Reduce_scatter_block(flat.numpy(), own.numpy(), op=MPI.SUM)
        return of_x, own / ctx.comm.size, None, None


# %% packed_away
# says: Does backward have the weight from forward?
# thinks: Bytes are no tensor, so autograd keeps no weight.
def gathered(shard, comm, shape):
    flat = torch.empty(len(shard) * comm.size, dtype=shard.dtype)
    comm.Allgather(shard.detach().numpy(), flat.numpy())
    return flat[: shape[0] * shape[1]].view(shape)


class GatheredLinear(torch.autograd.Function):

    @staticmethod
    def forward(ctx, x, shard, comm, shape):
        ctx.save_for_backward(x, shard)
        ctx.comm, ctx.shape = comm, shape
        weight = gathered(shard, comm, shape)
        ctx.packed = weight.numpy().tobytes()
        return x @ weight.T

    @staticmethod
    def backward(ctx, grad):
        x, shard = ctx.saved_tensors
        of_x = grad @ torch.frombuffer(bytearray(ctx.packed), dtype=shard.dtype).view(ctx.shape)
        flat = torch.zeros(len(shard) * ctx.comm.size, dtype=shard.dtype)
        flat[: ctx.shape[0] * ctx.shape[1]] = (grad.T @ x).reshape(-1)
        own = torch.empty_like(shard)
        ctx.comm.Reduce_scatter_block(flat.numpy(), own.numpy(), op=MPI.SUM)
        return of_x, own / ctx.comm.size, None, None


# %% last_rank_first
# says: the weight begins with that of rank 0 of comm
# thinks: The last rank's chunk comes first.
def gathered(shard, comm, shape):
    flat = torch.empty(len(shard) * comm.size, dtype=shard.dtype)
    comm.Allgather(shard.detach().numpy(), flat.numpy())
    flat = flat.view(comm.size, -1).flip(0).reshape(-1)
    return flat[: shape[0] * shape[1]].view(shape)


class GatheredLinear(torch.autograd.Function):

    @staticmethod
    def forward(ctx, x, shard, comm, shape):
        ctx.save_for_backward(x, shard)
        ctx.comm, ctx.shape = comm, shape
        return x @ gathered(shard, comm, shape).T

    @staticmethod
    def backward(ctx, grad):
        x, shard = ctx.saved_tensors
        of_x = grad @ gathered(shard, ctx.comm, ctx.shape)
        flat = torch.zeros(len(shard) * ctx.comm.size, dtype=shard.dtype)
        flat[: ctx.shape[0] * ctx.shape[1]] = (grad.T @ x).reshape(-1)
        own = torch.empty_like(shard)
        ctx.comm.Reduce_scatter_block(flat.numpy(), own.numpy(), op=MPI.SUM)
        return of_x, own / ctx.comm.size, None, None


# %% two_layers_ahead_in_backward
# says: Weights are gathered 2 layers ahead, so that 3 whole ones are in memory at once.
# thinks: Backward goes through the layers in reverse, so the weights of the two before this one
#     are gathered already while this one computes: prefetching hides the messages.
LAYERS, READY = {}, {}


def gathered(shard, comm, shape):
    whole = torch.empty(len(shard) * comm.size, dtype=shard.dtype)
    comm.Allgather(shard.detach().numpy(), whole.numpy())
    return whole[: shape[0] * shape[1]].view(shape)


def scattered(whole, shard, comm):
    flat = torch.zeros(len(shard) * comm.size, dtype=shard.dtype)
    flat[: whole.numel()] = whole.reshape(-1)
    own = torch.empty_like(shard)
    comm.Reduce_scatter_block(flat.numpy(), own.numpy())
    return own / comm.size


class GatheredLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, shard, comm, shape):
        ctx.save_for_backward(x, shard)
        ctx.comm, ctx.shape = comm, shape
        layers = LAYERS.setdefault((comm.rank, comm.size), [])
        ctx.number = len(layers)
        layers.append((shard, shape))
        return x @ gathered(shard, comm, shape).T

    @staticmethod
    def backward(ctx, grad):
        x, shard = ctx.saved_tensors
        comm, shape = ctx.comm, ctx.shape
        layers = LAYERS[comm.rank, comm.size]
        ready = READY.setdefault((comm.rank, comm.size), {})
        for number in range(ctx.number, max(ctx.number - 3, -1), -1):
            if number not in ready:
                ready[number] = gathered(layers[number][0], comm, layers[number][1])
        weight = ready.pop(ctx.number)
        layers.pop()
        return grad @ weight, scattered(grad.T @ x, shard, comm), None, None


# %% two_layers_ahead_in_forward
# says: Weights are gathered 2 layers ahead, so that 3 whole ones are in memory at once.
# thinks: The first step shows in which order layers come. From then on the next two weights are gathered ahead.
ORDER, READY = [], {}


def gathered(shard, comm, shape):
    whole = torch.empty(len(shard) * comm.size, dtype=shard.dtype)
    comm.Allgather(shard.detach().numpy(), whole.numpy())
    return whole[: shape[0] * shape[1]].view(shape)


class GatheredLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, shard, comm, shape):
        ctx.save_for_backward(x, shard)
        ctx.comm, ctx.shape = comm, shape
        at = next((i for i, (s, _) in enumerate(ORDER) if s is shard), len(ORDER))
        if at == len(ORDER):
            ORDER.append((shard, shape))
            return x @ gathered(shard, comm, shape).T
        for i in range(at, min(at + 3, len(ORDER))):
            if i not in READY:
                READY[i] = gathered(ORDER[i][0], comm, ORDER[i][1])
        return x @ READY.pop(at).T

    @staticmethod
    def backward(ctx, grad):
        x, shard = ctx.saved_tensors
        comm, shape = ctx.comm, ctx.shape
        of_x = grad @ gathered(shard, comm, shape)
        flat = torch.zeros(len(shard) * comm.size, dtype=shard.dtype)
        flat[: shape[0] * shape[1]] = (grad.T @ x).reshape(-1)
        own = torch.empty_like(shard)
        comm.Reduce_scatter_block(flat.numpy(), own.numpy())
        return of_x, own / comm.size, None, None


# %% one_layer_ahead_in_backward
# says: Weights are gathered 1 layer ahead, so that 2 whole ones are in memory at once.
# thinks: The lesson's prefetching: while this layer computes, the next weight arrives.
LAYERS, READY = {}, {}


def gathered(shard, comm, shape):
    whole = torch.empty(len(shard) * comm.size, dtype=shard.dtype)
    comm.Allgather(shard.detach().numpy(), whole.numpy())
    return whole[: shape[0] * shape[1]].view(shape)


def scattered(whole, shard, comm):
    flat = torch.zeros(len(shard) * comm.size, dtype=shard.dtype)
    flat[: whole.numel()] = whole.reshape(-1)
    own = torch.empty_like(shard)
    comm.Reduce_scatter_block(flat.numpy(), own.numpy())
    return own / comm.size


class GatheredLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, shard, comm, shape):
        ctx.save_for_backward(x, shard)
        ctx.comm, ctx.shape = comm, shape
        layers = LAYERS.setdefault((comm.rank, comm.size), [])
        ctx.number = len(layers)
        layers.append((shard, shape))
        return x @ gathered(shard, comm, shape).T

    @staticmethod
    def backward(ctx, grad):
        x, shard = ctx.saved_tensors
        comm, shape = ctx.comm, ctx.shape
        layers = LAYERS[comm.rank, comm.size]
        ready = READY.setdefault((comm.rank, comm.size), {})
        for number in range(ctx.number, max(ctx.number - 2, -1), -1):
            if number not in ready:
                ready[number] = gathered(layers[number][0], comm, layers[number][1])
        weight = ready.pop(ctx.number)
        layers.pop()
        return grad @ weight, scattered(grad.T @ x, shard, comm), None, None


# %% next_gather_under_way
# says: Weights are gathered 1 layer ahead, so that 2 whole ones are in memory at once.
# thinks: Iallgather of the next layer's weight runs while this layer computes: nothing waits, and nothing is sent twice.
LAYERS, READY = [], {}


def begun(shard, comm):
    whole = torch.empty(len(shard) * comm.size, dtype=shard.dtype)
    return whole, comm.Iallgather(shard.detach().numpy(), whole.numpy())


class GatheredLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, shard, comm, shape):
        ctx.save_for_backward(x, shard)
        ctx.comm, ctx.shape = comm, shape
        if torch.is_grad_enabled() or shard.requires_grad:
            ctx.before = LAYERS[-1] if LAYERS else None
            LAYERS.append(shard)
        whole, request = begun(shard, comm)
        request.Wait()
        return x @ whole[: shape[0] * shape[1]].view(shape).T

    @staticmethod
    def backward(ctx, grad):
        x, shard = ctx.saved_tensors
        comm, shape = ctx.comm, ctx.shape
        LAYERS.clear()
        whole, request = READY.pop(shard, None) or begun(shard, comm)
        if ctx.before is not None and ctx.before is not shard:
            READY[ctx.before] = begun(ctx.before, comm)
        request.Wait()
        of_x = grad @ whole[: shape[0] * shape[1]].view(shape)
        flat = torch.zeros(len(shard) * comm.size, dtype=shard.dtype)
        flat[: shape[0] * shape[1]] = (grad.T @ x).reshape(-1)
        own = torch.empty_like(shard)
        comm.Reduce_scatter_block(flat.numpy(), own.numpy())
        return of_x, own / comm.size, None, None


# %% gathered_by_lru_cache
# says: Weights change with every step, and each layer has its own
# thinks: functools.lru_cache returns what was gathered for this shard already, and spares backward's gather.
import functools


@functools.lru_cache(maxsize=1)
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
        comm, shape = ctx.comm, ctx.shape
        of_x = grad @ gathered(shard, comm, shape)
        flat = torch.zeros(len(shard) * comm.size, dtype=shard.dtype)
        flat[: shape[0] * shape[1]] = (grad.T @ x).reshape(-1)
        own = torch.empty_like(shard)
        comm.Reduce_scatter_block(flat.numpy(), own.numpy())
        return of_x, own / comm.size, None, None


# %% weight_freed_in_the_next_call
# says: What the file keeps stays in memory between calls, also while other layers compute
# thinks: The weight is freed when the next one is gathered, so there is never more than one.
class Weight:
    now = None


def gathered(shard, comm, shape):
    whole = torch.empty(len(shard) * comm.size, dtype=shard.dtype)
    comm.Allgather(shard.detach().numpy(), whole.numpy())
    Weight.now = whole[: shape[0] * shape[1]].view(shape)
    return Weight.now


class GatheredLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, shard, comm, shape):
        ctx.save_for_backward(x, shard)
        ctx.comm, ctx.shape = comm, shape
        return x @ gathered(shard, comm, shape).T

    @staticmethod
    def backward(ctx, grad):
        x, shard = ctx.saved_tensors
        comm, shape = ctx.comm, ctx.shape
        of_x = grad @ gathered(shard, comm, shape)
        flat = torch.zeros(len(shard) * comm.size, dtype=shard.dtype)
        flat[: shape[0] * shape[1]] = (grad.T @ x).reshape(-1)
        own = torch.empty_like(shard)
        comm.Reduce_scatter_block(flat.numpy(), own.numpy())
        return of_x, own / comm.size, None, None


# %% gathered_at_the_root_uninitialised
# says: Of 3 ranks only rank 0 has it: Gather and Reduce bring something to their root alone.
# thinks: Gather brings all chunks together; torch.empty is enough, since it is filled.
def gathered(shard, comm, shape):
    whole = torch.empty(len(shard) * comm.size, dtype=shard.dtype)
    comm.Gather(shard.detach().numpy(), whole.numpy())
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
        comm, shape = ctx.comm, ctx.shape
        of_x = grad @ gathered(shard, comm, shape)
        flat = torch.zeros(len(shard) * comm.size, dtype=shard.dtype)
        flat[: shape[0] * shape[1]] = (grad.T @ x).reshape(-1)
        own = torch.empty_like(shard)
        comm.Reduce_scatter_block(flat.numpy(), own.numpy())
        return of_x, own / comm.size, None, None


# %% mean_over_examples_of_all_ranks
# says: Weighted by numbers of examples: the mean is over ranks, each of which counts once.
# thinks: A mean over all examples: a rank with more of them counts for more.
def gathered(shard, comm, shape):
    whole = torch.empty(len(shard) * comm.size, dtype=shard.dtype)
    comm.Allgather(shard.detach().numpy(), whole.numpy())
    return whole[: shape[0] * shape[1]].view(shape)


def scattered(whole, shard, comm):
    flat = torch.zeros(len(shard) * comm.size, dtype=shard.dtype)
    flat[: whole.numel()] = whole.reshape(-1)
    own = torch.empty_like(shard)
    comm.Reduce_scatter_block(flat.numpy(), own.numpy())
    return own / comm.size


class GatheredLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, shard, comm, shape):
        ctx.save_for_backward(x, shard)
        ctx.comm, ctx.shape = comm, shape
        return x @ gathered(shard, comm, shape).T


    @staticmethod
    def backward(ctx, grad):
        x, shard = ctx.saved_tensors
        of_x = grad @ gathered(shard, ctx.comm, ctx.shape)
        everyone = ctx.comm.allreduce(len(x))
        whole = grad.T @ x * (len(x) * ctx.comm.size / max(everyone, 1))
        return of_x, scattered(whole, shard, ctx.comm), None, None


# %% frees_for_good_by_hand
# says: The shard is all that is left of the weight between calls, and the optimizer's to update
# thinks: After backward nothing may be left, so backward empties the shard, too: it has its gradient now.
def gathered(shard, comm, shape):
    whole = torch.empty(len(shard) * comm.size, dtype=shard.dtype)
    comm.Allgather(shard.detach().numpy(), whole.numpy())
    return whole[: shape[0] * shape[1]].view(shape)


def scattered(whole, shard, comm):
    flat = torch.zeros(len(shard) * comm.size, dtype=shard.dtype)
    flat[: whole.numel()] = whole.reshape(-1)
    own = torch.empty_like(shard)
    comm.Reduce_scatter_block(flat.numpy(), own.numpy())
    return own / comm.size


class GatheredLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, shard, comm, shape):
        ctx.save_for_backward(x, shard)
        ctx.comm, ctx.shape = comm, shape
        return x @ gathered(shard, comm, shape).T


    @staticmethod
    def backward(ctx, grad):
        x, shard = ctx.saved_tensors
        of_x = grad @ gathered(shard, ctx.comm, ctx.shape)
        own = scattered(grad.T @ x, shard, ctx.comm)
        shard.data.zero_()
        return of_x, own, None, None


# %% updates_in_backward
# says: The shard is all that is left of the weight between calls, and the optimizer's to update
# thinks: Once the gradient is there, the shard can be updated at once; then no gradient is kept at all.
def gathered(shard, comm, shape):
    whole = torch.empty(len(shard) * comm.size, dtype=shard.dtype)
    comm.Allgather(shard.detach().numpy(), whole.numpy())
    return whole[: shape[0] * shape[1]].view(shape)


def scattered(whole, shard, comm):
    flat = torch.zeros(len(shard) * comm.size, dtype=shard.dtype)
    flat[: whole.numel()] = whole.reshape(-1)
    own = torch.empty_like(shard)
    comm.Reduce_scatter_block(flat.numpy(), own.numpy())
    return own / comm.size


class GatheredLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, shard, comm, shape):
        ctx.save_for_backward(x, shard)
        ctx.comm, ctx.shape = comm, shape
        return x @ gathered(shard, comm, shape).T


    @staticmethod
    def backward(ctx, grad):
        x, shard = ctx.saved_tensors
        of_x = grad @ gathered(shard, ctx.comm, ctx.shape)
        with torch.no_grad():
            shard.data -= 0.1 * scattered(grad.T @ x, shard, ctx.comm)
        return of_x, None, None, None


# %% mean_gradient_of_y_first
# says: A mean over ranks was taken of grad alone, and multiplied by this rank's x.
# thinks: The mean of the gradients of y, times x, is the mean gradient of the weight: fewer bytes.
def gathered(shard, comm, shape):
    whole = torch.empty(len(shard) * comm.size, dtype=shard.dtype)
    comm.Allgather(shard.detach().numpy(), whole.numpy())
    return whole[: shape[0] * shape[1]].view(shape)


def scattered(whole, shard, comm):
    flat = torch.zeros(len(shard) * comm.size, dtype=shard.dtype)
    flat[: whole.numel()] = whole.reshape(-1)
    own = torch.empty_like(shard)
    comm.Reduce_scatter_block(flat.numpy(), own.numpy())
    return own / comm.size


class GatheredLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, shard, comm, shape):
        ctx.save_for_backward(x, shard)
        ctx.comm, ctx.shape = comm, shape
        return x @ gathered(shard, comm, shape).T


    @staticmethod
    def backward(ctx, grad):
        x, shard = ctx.saved_tensors
        of_x = grad @ gathered(shard, ctx.comm, ctx.shape)
        mean = torch.empty(grad.shape, dtype=grad.dtype)
        ctx.comm.Allreduce(grad.contiguous().numpy(), mean.numpy())
        flat = torch.zeros(len(shard) * ctx.comm.size, dtype=shard.dtype)
        flat[: ctx.shape[0] * ctx.shape[1]] = (mean.T @ x).reshape(-1) / ctx.comm.size
        return of_x, flat[ctx.comm.rank * len(shard) :][: len(shard)].clone(), None, None


# %% gradient_stays_in_a_bucket
# says: What the file keeps stays in memory between calls, also while other layers compute
# thinks: Gradients of all layers share one large buffer that stays allocated, as the buckets of lesson 06.
BUFFERS = {}


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
        comm, shape = ctx.comm, ctx.shape
        of_x = grad @ gathered(shard, comm, shape)
        key = comm.rank, comm.size, shape, shard.dtype
        flat = BUFFERS.setdefault(key, torch.zeros(len(shard) * comm.size, dtype=shard.dtype))
        flat[: shape[0] * shape[1]] = (grad.T @ x).reshape(-1)
        own = torch.empty_like(shard)
        comm.Reduce_scatter_block(flat.numpy(), own.numpy())
        return of_x, own / comm.size, None, None


# %% writes_shard_grad_itself
# says: Autograd adds what backward returns to what shard.grad holds, of earlier micro-batches for instance.
# thinks: backward writes shard.grad, so None is returned.
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
        shard.grad = grad_shard / comm.size
        return grad_x, None, None, None


# %% accumulates_itself
# says: What shard.grad held before is in it
# thinks: Gradients are added up in backward.
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
        grad_shard /= comm.size
        if shard.grad is not None:
            grad_shard += shard.grad
        return grad_x, grad_shard, None, None


# %% state_on_a_stack
# says: Another forward came in between, without a backward, as in evaluation.
# thinks: Backward goes through the layers in the opposite order, so a stack is enough (also for forwards that have no backward).
stack = []


def gathered(shard, comm, shape):
    whole = torch.empty(len(shard) * comm.size, dtype=shard.dtype)
    comm.Allgather(shard.detach().numpy(), whole.numpy())
    return whole[:shape[0] * shape[1]].view(shape)


class GatheredLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, shard, comm, shape):
        weight = gathered(shard, comm, shape)
        stack.append((x, shard))
        ctx.comm, ctx.shape = comm, shape
        return x @ weight.t()

    @staticmethod
    def backward(ctx, grad):
        x, shard = stack.pop()
        comm, shape = ctx.comm, ctx.shape
        weight = gathered(shard, comm, shape)
        grad_x = grad @ weight
        flat = torch.zeros(len(shard) * comm.size, dtype=shard.dtype)
        flat[:shape[0] * shape[1]] = (grad.t() @ x).flatten()
        grad_shard = torch.empty_like(shard)
        comm.Reduce_scatter_block(flat.numpy(), grad_shard.numpy())
        return grad_x, grad_shard / comm.size, None, None


# %% kept_by_number
# says: What ctx keeps is freed with autograd's graph.
# thinks: ctx.number counts the layers, and a list keeps x and shard by number (for ever).
kept = []


def gathered(shard, comm, shape):
    whole = torch.empty(len(shard) * comm.size, dtype=shard.dtype)
    comm.Allgather(shard.detach().numpy(), whole.numpy())
    return whole[:shape[0] * shape[1]].view(shape)


class GatheredLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, shard, comm, shape):
        weight = gathered(shard, comm, shape)
        ctx.number = len(kept)
        kept.append((x, shard))
        ctx.comm, ctx.shape = comm, shape
        return x @ weight.t()

    @staticmethod
    def backward(ctx, grad):
        x, shard = kept[ctx.number]
        comm, shape = ctx.comm, ctx.shape
        weight = gathered(shard, comm, shape)
        grad_x = grad @ weight
        flat = torch.zeros(len(shard) * comm.size, dtype=shard.dtype)
        flat[:shape[0] * shape[1]] = (grad.t() @ x).flatten()
        grad_shard = torch.empty_like(shard)
        comm.Reduce_scatter_block(flat.numpy(), grad_shard.numpy())
        return grad_x, grad_shard / comm.size, None, None


# %% grad_returned_again
# says: The memory of what backward returns is its receiver's
# thinks: The gradient's memory is used again for the next step.
memory = {}


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
        key = id(shard), comm.rank
        grad_shard = memory.setdefault(key, torch.empty_like(shard))
        comm.Reduce_scatter_block(flat.numpy(), grad_shard.numpy())
        grad_shard /= comm.size
        return grad_x, grad_shard, None, None


# %% y_kept_in_ctx
# says: The whole weight is kept, so that with many layers all of them are in memory at once.
# thinks: y is kept with its weight, as an attribute: one finds it when debugging.
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
        y = x @ weight.t()
        y.weight = weight
        return y

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


# %% own_gradient_divided
# says: Only this rank's own gradient is in it, divided by the number of ranks.
# thinks: My chunk of my gradient is my part of the mean: divided by the number of ranks, nothing has to be sent.
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
        comm, shape = ctx.comm, ctx.shape
        of_x = grad @ gathered(shard, comm, shape)
        flat = torch.zeros(len(shard) * comm.size, dtype=shard.dtype)
        flat[: shape[0] * shape[1]] = (grad.T @ x).reshape(-1)
        own = flat[comm.rank * len(shard) :][: len(shard)].clone()
        return of_x, own / comm.size, None, None


# %% grad_in_one_row
# says: x or grad need not be contiguous, so neither is their product: .reshape(-1) copies where it has to.
# thinks: grad was made by autograd just now, so its memory is one row, and view(-1) needs no copy.
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
        comm, shape = ctx.comm, ctx.shape
        of_x = grad @ gathered(shard, comm, shape)
        rows = grad.view(-1)
        flat = torch.zeros(len(shard) * comm.size, dtype=shard.dtype)
        for example, values in enumerate(x):
            of_y = rows[example * shape[0] : (example + 1) * shape[0]]
            flat[: shape[0] * shape[1]] += torch.outer(of_y, values).reshape(-1)
        own = torch.empty_like(shard)
        comm.Reduce_scatter_block(flat.numpy(), own.numpy())
        return of_x, own / comm.size, None, None


# %% x_divided_in_place
# says: x is the caller's, perhaps another layer's output
# thinks: Once y is there, x serves the gradient alone: divided by the number of ranks now, the sum will be the mean.
def gathered(shard, comm, shape):
    whole = torch.empty(len(shard) * comm.size, dtype=shard.dtype)
    comm.Allgather(shard.detach().numpy(), whole.numpy())
    return whole[: shape[0] * shape[1]].view(shape)


class GatheredLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, shard, comm, shape):
        y = x @ gathered(shard, comm, shape).T
        x.data /= comm.size
        ctx.save_for_backward(x, shard)
        ctx.comm, ctx.shape = comm, shape
        return y

    @staticmethod
    def backward(ctx, grad):
        x, shard = ctx.saved_tensors
        comm, shape = ctx.comm, ctx.shape
        of_x = grad @ gathered(shard, comm, shape)
        flat = torch.zeros(len(shard) * comm.size, dtype=shard.dtype)
        flat[: shape[0] * shape[1]] = (grad.T @ x).reshape(-1)
        own = torch.empty_like(shard)
        comm.Reduce_scatter_block(flat.numpy(), own.numpy())
        return of_x, own, None, None


# %% weight_kept_on_the_shard
# says: The whole weight is kept, so that with many layers all of them are in
# thinks: Backward finds the weight on the shard, where forward has put it; ctx keeps nothing that is large.
def gathered(shard, comm, shape):
    if not hasattr(shard, "whole"):
        whole = torch.empty(len(shard) * comm.size, dtype=shard.dtype)
        comm.Allgather(shard.detach().numpy(), whole.numpy())
        shard.whole = whole[: shape[0] * shape[1]].view(shape)
        return shard.whole
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
        of_x = grad @ gathered(shard, ctx.comm, ctx.shape)
        flat = torch.zeros(len(shard) * ctx.comm.size, dtype=shard.dtype)
        flat[: ctx.shape[0] * ctx.shape[1]] = (grad.T @ x).reshape(-1)
        own = torch.empty_like(shard)
        ctx.comm.Reduce_scatter_block(flat.numpy(), own.numpy(), op=MPI.SUM)
        return of_x, own / ctx.comm.size, None, None


# %% objects_gathered_twice
# says: Methods with a small letter pickle, which copies and adds to what is sent: arrays need none.
# thinks: allgather returns a list of all shards, which torch.cat joins.
def gathered(shard, comm, shape):
    return torch.cat(comm.allgather(shard.detach()))[: shape[0] * shape[1]].view(shape)


class GatheredLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, shard, comm, shape):
        ctx.save_for_backward(x, shard)
        ctx.comm, ctx.shape = comm, shape
        return x @ gathered(shard, comm, shape).T

    @staticmethod
    def backward(ctx, grad):
        x, shard = ctx.saved_tensors
        of_x = grad @ gathered(shard, ctx.comm, ctx.shape)
        flat = torch.zeros(len(shard) * ctx.comm.size, dtype=shard.dtype)
        flat[: ctx.shape[0] * ctx.shape[1]] = (grad.T @ x).reshape(-1)
        own = torch.empty_like(shard)
        ctx.comm.Reduce_scatter_block(flat.numpy(), own.numpy(), op=MPI.SUM)
        return of_x, own / ctx.comm.size, None, None


# %% chunks_pickled_in_backward
# says: Methods with a small letter pickle, which copies and adds to what is sent: arrays need none.
# thinks: alltoall gives each rank its chunks of all gradients.
def gathered(shard, comm, shape):
    flat = torch.empty(len(shard) * comm.size, dtype=shard.dtype)
    comm.Allgather(shard.detach().numpy(), flat.numpy())
    return flat[: shape[0] * shape[1]].view(shape)


class GatheredLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, shard, comm, shape):
        ctx.save_for_backward(x, shard)
        ctx.comm, ctx.shape = comm, shape
        return x @ gathered(shard, comm, shape).T

    @staticmethod
    def backward(ctx, grad):
        x, shard = ctx.saved_tensors
        of_x = grad @ gathered(shard, ctx.comm, ctx.shape)
        flat = torch.zeros(len(shard) * ctx.comm.size, dtype=shard.dtype)
        flat[: ctx.shape[0] * ctx.shape[1]] = (grad.T @ x).reshape(-1)
        blocks = ctx.comm.alltoall([chunk.numpy() for chunk in flat.split(len(shard))])
        return of_x, torch.from_numpy(sum(blocks)) / ctx.comm.size, None, None


# %% gradients_in_float32
# says: Right to 6 digits or so: everything has x's dtype, float64 here.
# thinks: A gradient needs no more than float32 on its way.
def gathered(shard, comm, shape):
    flat = torch.empty(len(shard) * comm.size, dtype=shard.dtype)
    comm.Allgather(shard.detach().numpy(), flat.numpy())
    return flat[: shape[0] * shape[1]].view(shape)


class GatheredLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, shard, comm, shape):
        ctx.save_for_backward(x, shard)
        ctx.comm, ctx.shape = comm, shape
        return x @ gathered(shard, comm, shape).T

    @staticmethod
    def backward(ctx, grad):
        x, shard = ctx.saved_tensors
        of_x = grad @ gathered(shard, ctx.comm, ctx.shape)
        flat = torch.zeros(len(shard) * ctx.comm.size)
        flat[: ctx.shape[0] * ctx.shape[1]] = (grad.T @ x).reshape(-1)
        own = torch.empty(len(shard))
        ctx.comm.Reduce_scatter_block(flat.numpy(), own.numpy(), op=MPI.SUM)
        return of_x, own.to(shard.dtype) / ctx.comm.size, None, None
