"""Wrong answers to e10_tokens. What a cell holds is told in tests/answers.py."""

# %% all_divided_by_ranks_too
# says: number of ranks
# thinks: Gradient and loss are means over ranks.
def gradients_of_token_mean(comm, model, microbatches):
    count = sum(int((target != IGNORED).sum()) for _, target in microbatches)
    total = comm.allreduce(count)
    mean = 0.0
    for x, target in microbatches:
        loss = F.cross_entropy(model(x), target, reduction="sum") / total
        loss.backward()
        mean += loss.item()
    for p in model.parameters():
        if p.grad is None:
            p.grad = torch.zeros_like(p)
        comm.Allreduce(MPI.IN_PLACE, p.grad.numpy())
        p.grad /= comm.size
    return comm.allreduce(mean) / comm.size


# %% backward_after_the_loop
# says: last micro-batch
# thinks: One backward for the loss at the end.
def gradients_of_token_mean(comm, model, microbatches):
    count = sum(int((target != IGNORED).sum()) for _, target in microbatches)
    total = comm.allreduce(count)
    mean = 0.0
    for x, target in microbatches:
        loss = F.cross_entropy(model(x), target, reduction="sum") / total
        mean += loss.item()
    if microbatches:
        loss.backward()
    for p in model.parameters():
        if p.grad is None:
            p.grad = torch.zeros_like(p)
        comm.Allreduce(MPI.IN_PLACE, p.grad.numpy())
    return comm.allreduce(mean)


# %% concatenated
# says: run alone
# thinks: One call of the model with all tokens has one mean.
def gradients_of_token_mean(comm, model, microbatches):
    loss = torch.zeros(())
    total = comm.allreduce(sum(int((target != IGNORED).sum()) for _, target in microbatches))
    if microbatches:
        x, target = (torch.cat(parts) for parts in zip(*microbatches, strict=True))
        loss = F.cross_entropy(model(x), target, reduction="sum") / total
        loss.backward()
    for p in model.parameters():
        if p.grad is None:
            p.grad = torch.zeros_like(p)
        comm.Allreduce(MPI.IN_PLACE, p.grad.numpy())
    return comm.allreduce(loss.item())


# %% count_of_the_last
# says: last micro-batch
# thinks: target is the batch's target.
def gradients_of_token_mean(comm, model, microbatches):
    count = 0
    for _, target in microbatches:
        count = int((target != IGNORED).sum())
    total = max(comm.allreduce(count), 1)
    mean = 0.0
    for x, target in microbatches:
        loss = F.cross_entropy(model(x), target, reduction="sum") / total
        loss.backward()
        mean += loss.item()
    for p in model.parameters():
        if p.grad is None:
            p.grad = torch.zeros_like(p)
        comm.Allreduce(MPI.IN_PLACE, p.grad.numpy())
    return comm.allreduce(mean)


# %% count_times_ranks
# says: as many tokens
# thinks: All ranks have as many tokens as this one.
def gradients_of_token_mean(comm, model, microbatches):
    count = sum(int((target != IGNORED).sum()) for _, target in microbatches)
    total = max(count, 1) * comm.size
    mean = 0.0
    for x, target in microbatches:
        loss = F.cross_entropy(model(x), target, reduction="sum") / total
        loss.backward()
        mean += loss.item()
    for p in model.parameters():
        if p.grad is None:
            p.grad = torch.zeros_like(p)
        comm.Allreduce(MPI.IN_PLACE, p.grad.numpy())
    return comm.allreduce(mean)


# %% divided_by_microbatches_too
# says: micro-batches
# thinks: Gradient accumulation divides by the number of micro-batches.
def gradients_of_token_mean(comm, model, microbatches):
    count = sum(int((target != IGNORED).sum()) for _, target in microbatches)
    total = comm.allreduce(count)
    mean = 0.0
    for x, target in microbatches:
        loss = F.cross_entropy(model(x), target, reduction="sum") / total / len(microbatches)
        loss.backward()
        mean += loss.item()
    for p in model.parameters():
        if p.grad is None:
            p.grad = torch.zeros_like(p)
        comm.Allreduce(MPI.IN_PLACE, p.grad.numpy())
    return comm.allreduce(mean)


# %% divided_by_ranks_too
# says: number of ranks
# thinks: The gradient over ranks is a mean, so it is divided by their number.
def gradients_of_token_mean(comm, model, microbatches):
    count = sum(int((target != IGNORED).sum()) for _, target in microbatches)
    total = comm.allreduce(count)
    mean = 0.0
    for x, target in microbatches:
        loss = F.cross_entropy(model(x), target, reduction="sum") / total
        loss.backward()
        mean += loss.item()
    for p in model.parameters():
        if p.grad is None:
            p.grad = torch.zeros_like(p)
        comm.Allreduce(MPI.IN_PLACE, p.grad.numpy())
        p.grad /= comm.size
    return comm.allreduce(mean)


# %% divides_by_total_twice
# says: twice
# thinks: Loss and gradient are divided by the number of tokens.
def gradients_of_token_mean(comm, model, microbatches):
    count = sum(int((target != IGNORED).sum()) for _, target in microbatches)
    total = comm.allreduce(count)
    mean = 0.0
    for x, target in microbatches:
        loss = F.cross_entropy(model(x), target, reduction="sum") / total
        loss.backward()
        mean += loss.item()
    for p in model.parameters():
        if p.grad is None:
            p.grad = torch.zeros_like(p)
        comm.Allreduce(MPI.IN_PLACE, p.grad.numpy())
        p.grad /= total
    return comm.allreduce(mean)


# %% expects_gradients
# says: None
# thinks: After backward every parameter has a gradient.
def gradients_of_token_mean(comm, model, microbatches):
    count = sum(int((target != IGNORED).sum()) for _, target in microbatches)
    total = comm.allreduce(count)
    mean = 0.0
    for x, target in microbatches:
        loss = F.cross_entropy(model(x), target, reduction="sum") / total
        loss.backward()
        mean += loss.item()
    for p in model.parameters():
        comm.Allreduce(MPI.IN_PLACE, p.grad.numpy())
    return comm.allreduce(mean)


# %% first_microbatch_loss
# says: loss
# thinks: The loss that is logged is that of the last micro-batch.
def gradients_of_token_mean(comm, model, microbatches):
    count = sum(int((target != IGNORED).sum()) for _, target in microbatches)
    total = comm.allreduce(count)
    mean = 0.0
    for x, target in microbatches:
        loss = F.cross_entropy(model(x), target, reduction="sum") / total
        loss.backward()
        mean = loss.item()
    for p in model.parameters():
        if p.grad is None:
            p.grad = torch.zeros_like(p)
        comm.Allreduce(MPI.IN_PLACE, p.grad.numpy())
    return comm.allreduce(mean)


# %% gradients_not_summed
# says: over ranks
# thinks: Each rank has gradients, already divided by the number of all tokens.
def gradients_of_token_mean(comm, model, microbatches):
    count = sum(int((target != IGNORED).sum()) for _, target in microbatches)
    total = comm.allreduce(count)
    mean = 0.0
    for x, target in microbatches:
        loss = F.cross_entropy(model(x), target, reduction="sum") / total
        loss.backward()
        mean += loss.item()
    for p in model.parameters():
        if p.grad is None:
            p.grad = torch.zeros_like(p)
    return comm.allreduce(mean)


# %% gradients_on_root
# says: rank 0
# thinks: Rank 0 has the optimizer.
def gradients_of_token_mean(comm, model, microbatches):
    count = sum(int((target != IGNORED).sum()) for _, target in microbatches)
    total = comm.allreduce(count)
    mean = 0.0
    for x, target in microbatches:
        loss = F.cross_entropy(model(x), target, reduction="sum") / total
        loss.backward()
        mean += loss.item()
    for p in model.parameters():
        if p.grad is None:
            p.grad = torch.zeros_like(p)
        total_grad = comm.reduce(p.grad.numpy())
        if comm.rank == 0:
            p.grad.copy_(torch.from_numpy(total_grad))
    return comm.allreduce(mean)


# %% graphs_kept
# says: run alone
# thinks: Losses are added up, and one backward goes through all.
def gradients_of_token_mean(comm, model, microbatches):
    count = sum(int((target != IGNORED).sum()) for _, target in microbatches)
    total = comm.allreduce(count)
    mean = torch.zeros(())
    for x, target in microbatches:
        loss = F.cross_entropy(model(x), target, reduction="sum") / total
        mean = mean + loss
    if microbatches:
        mean.backward()
    for p in model.parameters():
        if p.grad is None:
            p.grad = torch.zeros_like(p)
        comm.Allreduce(MPI.IN_PLACE, p.grad.numpy())
    return comm.allreduce(mean.item())


# %% largest_count
# says: largest
# thinks: Padding makes all ranks as long as the longest.
def gradients_of_token_mean(comm, model, microbatches):
    count = sum(int((target != IGNORED).sum()) for _, target in microbatches)
    total = comm.allreduce(count, op=MPI.MAX) * comm.size
    mean = 0.0
    for x, target in microbatches:
        loss = F.cross_entropy(model(x), target, reduction="sum") / total
        loss.backward()
        mean += loss.item()
    for p in model.parameters():
        if p.grad is None:
            p.grad = torch.zeros_like(p)
        comm.Allreduce(MPI.IN_PLACE, p.grad.numpy())
    return comm.allreduce(mean)


# %% last_microbatch_only
# says: last micro-batch
# thinks: Before each backward, gradients are set to zero.
def gradients_of_token_mean(comm, model, microbatches):
    count = sum(int((target != IGNORED).sum()) for _, target in microbatches)
    total = comm.allreduce(count)
    mean = 0.0
    for x, target in microbatches:
        model.zero_grad()
        loss = F.cross_entropy(model(x), target, reduction="sum") / total
        loss.backward()
        mean += loss.item()
    for p in model.parameters():
        if p.grad is None:
            p.grad = torch.zeros_like(p)
        comm.Allreduce(MPI.IN_PLACE, p.grad.numpy())
    return comm.allreduce(mean)


# %% leaves_after_count
# says: takes part
# thinks: A rank without tokens has no gradients to send.
def gradients_of_token_mean(comm, model, microbatches):
    count = sum(int((target != IGNORED).sum()) for _, target in microbatches)
    total = comm.allreduce(count)
    if count == 0:
        return comm.allreduce(0.0)
    mean = 0.0
    for x, target in microbatches:
        loss = F.cross_entropy(model(x), target, reduction="sum") / total
        loss.backward()
        mean += loss.item()
    for p in model.parameters():
        if p.grad is None:
            p.grad = torch.zeros_like(p)
        comm.Allreduce(MPI.IN_PLACE, p.grad.numpy())
    return comm.allreduce(mean)


# %% leaves_without_tokens
# says: takes part
# thinks: A rank without tokens has nothing to add.
def gradients_of_token_mean(comm, model, microbatches):
    count = sum(int((target != IGNORED).sum()) for _, target in microbatches)
    if count == 0:
        return 0.0
    total = comm.allreduce(count)
    mean = 0.0
    for x, target in microbatches:
        loss = F.cross_entropy(model(x), target, reduction="sum") / total
        loss.backward()
        mean += loss.item()
    for p in model.parameters():
        if p.grad is None:
            p.grad = torch.zeros_like(p)
        comm.Allreduce(MPI.IN_PLACE, p.grad.numpy())
    return comm.allreduce(mean)


# %% loss_is_a_sum
# says: loss
# thinks: The loss is the sum over all tokens, the gradient that of the mean.
def gradients_of_token_mean(comm, model, microbatches):
    count = sum(int((target != IGNORED).sum()) for _, target in microbatches)
    total = comm.allreduce(count)
    mean = 0.0
    for x, target in microbatches:
        loss = F.cross_entropy(model(x), target, reduction="sum") / total
        loss.backward()
        mean += loss.item()
    for p in model.parameters():
        if p.grad is None:
            p.grad = torch.zeros_like(p)
        comm.Allreduce(MPI.IN_PLACE, p.grad.numpy())
    return comm.allreduce(mean) * total


# %% loss_of_own_mean
# says: loss
# thinks: The mean of my tokens, averaged over ranks.
def gradients_of_token_mean(comm, model, microbatches):
    count = sum(int((target != IGNORED).sum()) for _, target in microbatches)
    total = comm.allreduce(count)
    mean = 0.0
    for x, target in microbatches:
        loss = F.cross_entropy(model(x), target, reduction="sum") / total
        loss.backward()
        mean += loss.item()
    for p in model.parameters():
        if p.grad is None:
            p.grad = torch.zeros_like(p)
        comm.Allreduce(MPI.IN_PLACE, p.grad.numpy())
    return comm.allreduce(mean * total / max(count, 1)) / comm.size


# %% mean_loss_over_ranks
# says: loss
# thinks: A loss is averaged over ranks.
def gradients_of_token_mean(comm, model, microbatches):
    count = sum(int((target != IGNORED).sum()) for _, target in microbatches)
    total = comm.allreduce(count)
    mean = 0.0
    for x, target in microbatches:
        loss = F.cross_entropy(model(x), target, reduction="sum") / total
        loss.backward()
        mean += loss.item()
    for p in model.parameters():
        if p.grad is None:
            p.grad = torch.zeros_like(p)
        comm.Allreduce(MPI.IN_PLACE, p.grad.numpy())
    return comm.allreduce(mean) / comm.size


# %% mean_of_means
# says: mean of
# thinks: A mean over micro-batches, then a mean over ranks, is the mean over all.
def gradients_of_token_mean(comm, model, microbatches):
    mean = 0.0
    for x, target in microbatches:
        if not (target != IGNORED).any():
            continue
        loss = F.cross_entropy(model(x), target) / len(microbatches)
        loss.backward()
        mean += loss.item()
    for p in model.parameters():
        if p.grad is None:
            p.grad = torch.zeros_like(p)
        comm.Allreduce(MPI.IN_PLACE, p.grad.numpy())
        p.grad /= comm.size
    return comm.allreduce(mean) / comm.size


# %% mean_of_means_of_all_microbatches
# says: micro-batch
# thinks: All micro-batches of all ranks count alike.
def gradients_of_token_mean(comm, model, microbatches):
    total = comm.allreduce(len(microbatches))
    mean = 0.0
    for x, target in microbatches:
        if not (target != IGNORED).any():
            continue
        loss = F.cross_entropy(model(x), target) / total
        loss.backward()
        mean += loss.item()
    for p in model.parameters():
        if p.grad is None:
            p.grad = torch.zeros_like(p)
        comm.Allreduce(MPI.IN_PLACE, p.grad.numpy())
    return comm.allreduce(mean)


# %% mean_of_means_of_those_with_tokens
# says: micro-batch
# thinks: Micro-batches without tokens have no mean, and all others count alike.
def gradients_of_token_mean(comm, model, microbatches):
    total = comm.allreduce(sum(bool((target != IGNORED).any()) for _, target in microbatches))
    mean = 0.0
    for x, target in microbatches:
        if not (target != IGNORED).any():
            continue
        loss = F.cross_entropy(model(x), target) / total
        loss.backward()
        mean += loss.item()
    for p in model.parameters():
        if p.grad is None:
            p.grad = torch.zeros_like(p)
        comm.Allreduce(MPI.IN_PLACE, p.grad.numpy())
    return comm.allreduce(mean)


# %% mean_over_ranks
# says: ranks
# thinks: Within a rank tokens are counted, and ranks are averaged, as DistributedDataParallel does.
def gradients_of_token_mean(comm, model, microbatches):
    total = max(1, sum(int((target != IGNORED).sum()) for _, target in microbatches))
    mean = 0.0
    for x, target in microbatches:
        loss = F.cross_entropy(model(x), target, reduction="sum") / total
        loss.backward()
        mean += loss.item()
    for p in model.parameters():
        if p.grad is None:
            p.grad = torch.zeros_like(p)
        comm.Allreduce(MPI.IN_PLACE, p.grad.numpy())
        p.grad /= comm.size
    return comm.allreduce(mean) / comm.size


# %% mean_within_ranks_weighted
# says: micro-batch
# thinks: Ranks are weighted by their tokens, and a rank's micro-batches are averaged.
def gradients_of_token_mean(comm, model, microbatches):
    count = sum(int((target != IGNORED).sum()) for _, target in microbatches)
    total = comm.allreduce(count)
    mean = 0.0
    for x, target in microbatches:
        if not (target != IGNORED).any():
            continue
        loss = F.cross_entropy(model(x), target) / len(microbatches) * count / total
        loss.backward()
        mean += loss.item()
    for p in model.parameters():
        if p.grad is None:
            p.grad = torch.zeros_like(p)
        comm.Allreduce(MPI.IN_PLACE, p.grad.numpy())
    return comm.allreduce(mean)


# %% nan_of_an_empty_one
# says: nan
# thinks: The mean of a micro-batch times its number of tokens is its sum.
def gradients_of_token_mean(comm, model, microbatches):
    count = sum(int((target != IGNORED).sum()) for _, target in microbatches)
    total = comm.allreduce(count)
    mean = 0.0
    for x, target in microbatches:
        loss = F.cross_entropy(model(x), target) * (target != IGNORED).sum() / total
        loss.backward()
        mean += loss.item()
    for p in model.parameters():
        if p.grad is None:
            p.grad = torch.zeros_like(p)
        comm.Allreduce(MPI.IN_PLACE, p.grad.numpy())
    return comm.allreduce(mean)


# %% own_count
# says: this rank's
# thinks: The mean is over the tokens that this rank has, and gradients are summed.
def gradients_of_token_mean(comm, model, microbatches):
    count = sum(int((target != IGNORED).sum()) for _, target in microbatches)
    total = max(count, 1)
    mean = 0.0
    for x, target in microbatches:
        loss = F.cross_entropy(model(x), target, reduction="sum") / total
        loss.backward()
        mean += loss.item()
    for p in model.parameters():
        if p.grad is None:
            p.grad = torch.zeros_like(p)
        comm.Allreduce(MPI.IN_PLACE, p.grad.numpy())
    return comm.allreduce(mean)


# %% own_loss
# says: over ranks
# thinks: The loss is what this rank has.
def gradients_of_token_mean(comm, model, microbatches):
    count = sum(int((target != IGNORED).sum()) for _, target in microbatches)
    total = comm.allreduce(count)
    mean = 0.0
    for x, target in microbatches:
        loss = F.cross_entropy(model(x), target, reduction="sum") / total
        loss.backward()
        mean += loss.item()
    for p in model.parameters():
        if p.grad is None:
            p.grad = torch.zeros_like(p)
        comm.Allreduce(MPI.IN_PLACE, p.grad.numpy())
    return mean


# %% padding_counted
# says: padding
# thinks: The mean over tokens divides by how many targets there are.
def gradients_of_token_mean(comm, model, microbatches):
    count = sum(target.numel() for _, target in microbatches)
    total = comm.allreduce(count)
    mean = 0.0
    for x, target in microbatches:
        loss = F.cross_entropy(model(x), target, reduction="sum") / total
        loss.backward()
        mean += loss.item()
    for p in model.parameters():
        if p.grad is None:
            p.grad = torch.zeros_like(p)
        comm.Allreduce(MPI.IN_PLACE, p.grad.numpy())
    return comm.allreduce(mean)


# %% padding_in_the_loss
# says: padding
# thinks: IGNORED is a target that has no loss, so I set it to 0.
def gradients_of_token_mean(comm, model, microbatches):
    count = sum(int((target != IGNORED).sum()) for _, target in microbatches)
    total = comm.allreduce(count)
    mean = 0.0
    for x, target in microbatches:
        loss = F.cross_entropy(model(x), target.clamp(min=0), reduction="sum") / total
        loss.backward()
        mean += loss.item()
    for p in model.parameters():
        if p.grad is None:
            p.grad = torch.zeros_like(p)
        comm.Allreduce(MPI.IN_PLACE, p.grad.numpy())
    return comm.allreduce(mean)


# %% padding_is_zero
# says: class 0
# thinks: Padding is what is not a positive target.
def gradients_of_token_mean(comm, model, microbatches):
    count = sum(int((target > 0).sum()) for _, target in microbatches)
    total = comm.allreduce(count)
    mean = 0.0
    for x, target in microbatches:
        loss = F.cross_entropy(model(x), target, reduction="sum") / total
        loss.backward()
        mean += loss.item()
    for p in model.parameters():
        if p.grad is None:
            p.grad = torch.zeros_like(p)
        comm.Allreduce(MPI.IN_PLACE, p.grad.numpy())
    return comm.allreduce(mean)


# %% returns_tensor
# says: float
# thinks: A tensor with one number is a number.
def gradients_of_token_mean(comm, model, microbatches):
    count = sum(int((target != IGNORED).sum()) for _, target in microbatches)
    total = comm.allreduce(count)
    mean = 0.0
    for x, target in microbatches:
        loss = F.cross_entropy(model(x), target, reduction="sum") / total
        loss.backward()
        mean += loss.item()
    for p in model.parameters():
        if p.grad is None:
            p.grad = torch.zeros_like(p)
        comm.Allreduce(MPI.IN_PLACE, p.grad.numpy())
    return torch.tensor(comm.allreduce(mean))


# %% skips_gradients_of_none
# says: takes part
# thinks: A parameter without a gradient is left out of the sum.
def gradients_of_token_mean(comm, model, microbatches):
    count = sum(int((target != IGNORED).sum()) for _, target in microbatches)
    total = comm.allreduce(count)
    mean = 0.0
    for x, target in microbatches:
        loss = F.cross_entropy(model(x), target, reduction="sum") / total
        loss.backward()
        mean += loss.item()
    for p in model.parameters():
        if p.grad is not None:
            comm.Allreduce(MPI.IN_PLACE, p.grad.numpy())
    return comm.allreduce(mean)


# %% sum_of_losses
# says: divided
# thinks: A sum of losses has the same direction as a mean.
def gradients_of_token_mean(comm, model, microbatches):
    mean = 0.0
    for x, target in microbatches:
        loss = F.cross_entropy(model(x), target, reduction="sum")
        loss.backward()
        mean += loss.item()
    for p in model.parameters():
        if p.grad is None:
            p.grad = torch.zeros_like(p)
        comm.Allreduce(MPI.IN_PLACE, p.grad.numpy())
    return comm.allreduce(mean)


# %% sum_of_means
# says: sum of
# thinks: Gradients add up in .grad, and over ranks.
def gradients_of_token_mean(comm, model, microbatches):
    mean = 0.0
    for x, target in microbatches:
        if not (target != IGNORED).any():
            continue
        loss = F.cross_entropy(model(x), target)
        loss.backward()
        mean += loss.item()
    for p in model.parameters():
        if p.grad is None:
            p.grad = torch.zeros_like(p)
        comm.Allreduce(MPI.IN_PLACE, p.grad.numpy())
    return comm.allreduce(mean)


# %% summed_in_the_loop
# says: each micro-batch
# thinks: After each backward, gradients are summed over ranks.
def gradients_of_token_mean(comm, model, microbatches):
    count = sum(int((target != IGNORED).sum()) for _, target in microbatches)
    total = comm.allreduce(count)
    mean = 0.0
    for x, target in microbatches:
        loss = F.cross_entropy(model(x), target, reduction="sum") / total
        loss.backward()
        mean += loss.item()
        for p in model.parameters():
            comm.Allreduce(MPI.IN_PLACE, p.grad.numpy())
    return comm.allreduce(mean)


# %% zeros_everywhere
# says: zeros
# thinks: Gradients of a rank that has some are put to zeros first, so that nothing is left of the step before.
def gradients_of_token_mean(comm, model, microbatches):
    count = sum(int((target != IGNORED).sum()) for _, target in microbatches)
    total = comm.allreduce(count)
    mean = 0.0
    for x, target in microbatches:
        loss = F.cross_entropy(model(x), target, reduction="sum") / total
        loss.backward()
        mean += loss.item()
    for p in model.parameters():
        if p.grad is None or count == 0 or True:
            p.grad = torch.zeros_like(p)
        comm.Allreduce(MPI.IN_PLACE, p.grad.numpy())
    return comm.allreduce(mean)
