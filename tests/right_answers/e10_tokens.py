"""Right answers to e10_tokens. What a cell holds is told in tests/answers.py."""

# %% autograd_grad
# thinks: torch.autograd.grad gives gradients without .grad, which are added up by hand.
def gradients_of_token_mean(comm, model, microbatches):
    parameters = list(model.parameters())
    gradients = [torch.zeros_like(p) for p in parameters]
    count, loss_sum = 0, 0.0
    for x, target in microbatches:
        losses = F.cross_entropy(model(x), target, reduction="none")
        for total, new in zip(gradients, torch.autograd.grad(losses.sum(), parameters), strict=True):
            total += new
        count += int((target != IGNORED).sum())
        loss_sum += losses.sum().item()
    count = comm.allreduce(count)
    for p, gradient in zip(parameters, gradients, strict=True):
        p.grad = comm.allreduce(gradient).div_(count)
    return comm.allreduce(loss_sum) / count


# %% means_weighted
# thinks: A mean times its number of tokens is a sum, where there are tokens.
def gradients_of_token_mean(comm, model, microbatches):
    count = sum(int((target != IGNORED).sum()) for _, target in microbatches)
    total = comm.allreduce(count)
    mean = 0.0
    for x, target in microbatches:
        tokens = int((target != IGNORED).sum())
        if tokens == 0:
            continue
        loss = F.cross_entropy(model(x), target, ignore_index=IGNORED) * (tokens / total)
        loss.backward()
        mean += loss.item()
    for p in model.parameters():
        if p.grad is None:
            p.grad = torch.zeros_like(p)
        comm.Allreduce(MPI.IN_PLACE, p.grad.numpy())
    return comm.allreduce(mean)


# %% one_message
# thinks: All gradients and the loss in one buffer and one Allreduce.
import numpy as np


def gradients_of_token_mean(comm, model, microbatches):
    count = np.array([sum(np.count_nonzero(target.numpy() != IGNORED) for _, target in microbatches)], dtype=np.int64)
    comm.Allreduce(MPI.IN_PLACE, count)
    mean = 0.0
    for x, target in microbatches:
        loss = F.nll_loss(F.log_softmax(model(x), dim=-1), target, reduction="sum") / int(count[0])
        loss.backward()
        mean += loss.item()
    parameters = list(model.parameters())
    flat = [np.zeros(p.numel()) if p.grad is None else p.grad.numpy().ravel() for p in parameters]
    buffer = np.concatenate([np.array([mean]), *flat]).astype(np.float64)
    comm.Allreduce(MPI.IN_PLACE, buffer)
    at = 1
    for p in parameters:
        p.grad = torch.from_numpy(buffer[at : at + p.numel()].copy()).to(p.dtype).reshape(p.shape)
        at += p.numel()
    return float(buffer[0])


# %% only_tokens_that_count
# thinks: Tokens without a target are taken out of the logits; a micro-batch without tokens has a sum of 0.
def gradients_of_token_mean(comm, model, microbatches):
    count = sum(int((target != IGNORED).sum()) for _, target in microbatches)
    total = comm.allreduce(count)
    mean = 0.0
    for x, target in microbatches:
        here = target != IGNORED
        logits = model(x)[here]
        loss = -torch.log_softmax(logits, 1).gather(1, target[here].unsqueeze(1)).sum() / total
        loss.backward()
        mean += loss.item()
    for p in model.parameters():
        if p.grad is None:
            p.grad = torch.zeros_like(p)
        comm.Allreduce(MPI.IN_PLACE, p.grad.numpy())
    return comm.allreduce(mean)


# %% root_and_back
# thinks: Rank 0 adds everything up, and broadcasts it.
def gradients_of_token_mean(comm, model, microbatches):
    counts = comm.gather(sum(int((target != IGNORED).sum()) for _, target in microbatches), root=0)
    total = comm.bcast(sum(counts) if comm.rank == 0 else None, root=0)
    mean = 0.0
    for x, target in microbatches:
        loss = F.cross_entropy(model(x), target, reduction="sum")
        (loss / total).backward()
        mean += loss.item() / total
    for p in model.parameters():
        own = p.grad if p.grad is not None else torch.zeros_like(p)
        parts = comm.gather(own, root=0)
        p.grad = comm.bcast(sum(parts) if comm.rank == 0 else None, root=0).clone()
    return sum(comm.allgather(mean))


# %% scaled_afterwards
# thinks: Sums first, of losses, gradients and counts; one division at the end.
def gradients_of_token_mean(comm, model, microbatches):
    sums = [0.0, 0]
    for x, target in microbatches:
        loss = F.cross_entropy(model(x), target, reduction="sum")
        loss.backward()
        sums[0] += float(loss.detach())
        sums[1] += int(target.ne(IGNORED).sum())
    loss, count = (comm.allreduce(each) for each in sums)
    with torch.no_grad():
        for p in model.parameters():
            own = torch.zeros_like(p) if p.grad is None else p.grad
            p.grad = comm.allreduce(own) / count
    return loss / count
