"""Wrong answers to e10_tokens. What a cell holds is told in tests/answers.py."""

# %% all_divided_by_ranks_too
# says: Divided by the number of ranks, too
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
# says: its backward before the next one
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
# says: A micro-batch is what fits into memory
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
# says: Divided as if 9 tokens counted
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
# says: and then the mean over ranks
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


# %% divided_by_microbatches_only
# says: Divided by the number of micro-batches
# thinks: Gradient accumulation divides by the number of micro-batches, of all ranks.
def gradients_of_token_mean(comm, model, microbatches):
    total = comm.allreduce(len(microbatches))
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
# says: Divided by the number of micro-batches, too: the tokens of all micro-batches are counted already.
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


# %% divided_by_own_count
# says: Divided by this rank's own tokens
# thinks: After the sum over ranks I divide by the number of tokens, which is count.
def gradients_of_token_mean(comm, model, microbatches):
    count = sum(int((target != IGNORED).sum()) for _, target in microbatches)
    total = comm.allreduce(count)
    mean = 0.0
    for x, target in microbatches:
        loss = F.cross_entropy(model(x), target, reduction="sum")
        loss.backward()
        mean += loss.item()
    for p in model.parameters():
        if p.grad is None:
            p.grad = torch.zeros_like(p)
        comm.Allreduce(MPI.IN_PLACE, p.grad.numpy())
        p.grad /= max(count, 1)
    return comm.allreduce(mean) / max(count, 1)


# %% divided_by_ranks_only
# says: divided by the number of ranks: divide by the number of tokens
# thinks: The mean over ranks of the sums of losses.
def gradients_of_token_mean(comm, model, microbatches):
    total = comm.size
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


# %% divided_by_ranks_too
# says: Divided by the number of ranks, too
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
# says: Divided as if
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
# says: A part without tokens adds 0 to both sums
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
# says: Only each rank's last micro-batch is in it: all of them add up
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
# says: Only this rank's share of the gradient
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
# says: sum over ranks, and on all of them
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
# says: its backward before the next one
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
# says: Divided as if
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
# says: Only each rank's last micro-batch is in it: all of them add up
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
# says: takes part in every collective call
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
# says: takes part in every collective call
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
# says: The sum over all tokens, not divided by their number
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
# says: and then the mean over ranks
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
# says: Divided by the number of ranks, too
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
# says: That is the mean of the micro-batches' means
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
# says: That is the mean of the micro-batches' means
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
# says: That is the mean of the micro-batches' means
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
# says: and then the mean over ranks
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
# says: within a rank it is the mean
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


# %% means_summed_over_ranks
# says: Means over a rank's micro-batches were summed
# thinks: Each rank has the mean over its micro-batches, and gradients are summed over ranks.
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
    return comm.allreduce(mean)


# %% nan_of_an_empty_one
# says: NaN is 0 / 0
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


# %% no_backward
# says: loss.backward() fills in .grad
# thinks: The loss is the result, and backward is the caller's.
def gradients_of_token_mean(comm, model, microbatches):
    count = sum(int((target != IGNORED).sum()) for _, target in microbatches)
    total = comm.allreduce(count)
    mean = 0.0
    for x, target in microbatches:
        loss = F.cross_entropy(model(x), target, reduction="sum") / total
        mean += loss.item()
    return comm.allreduce(mean)


# %% none_stays_none
# says: Begin with zeros
# thinks: A rank without tokens adds zeros, and keeps a gradient of None.
def gradients_of_token_mean(comm, model, microbatches):
    count = sum(int((target != IGNORED).sum()) for _, target in microbatches)
    total = comm.allreduce(count)
    mean = 0.0
    for x, target in microbatches:
        loss = F.cross_entropy(model(x), target, reduction="sum") / total
        loss.backward()
        mean += loss.item()
    for p in model.parameters():
        own = torch.zeros_like(p) if p.grad is None else p.grad
        summed = comm.allreduce(own)
        if p.grad is not None:
            p.grad.copy_(summed)
    return comm.allreduce(mean)


# %% own_count
# says: Each rank divided by its own tokens, and the means were summed
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


# %% own_gradient
# says: nothing was summed over ranks
# thinks: Each rank trains its model on its tokens.
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
    return mean


# %% own_loss
# says: Only this rank's share of the loss
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
# says: Padding was counted
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
# says: but those with the target IGNORED
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
# says: Divided as if
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


# %% returns_nothing
# says: is the mean loss returned?
# thinks: The gradients are set in place.
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


# %% returns_tensor
# says: A float was asked
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
# says: takes part in every collective call
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
# says: The sum over all tokens, not divided by their number
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
# says: The micro-batches' means were summed
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
# says: Summed over ranks after each micro-batch
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
# says: All zeros
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


# %% counts_one_microbatch_at_a_time
# says: the tokens that all ranks have in that one
# thinks: Each micro-batch is divided by the tokens that all ranks have in it.
def gradients_of_token_mean(comm, model, microbatches):
    loss = 0.0
    for x, target in microbatches:
        count = comm.allreduce(int((target != IGNORED).sum()))
        part = F.cross_entropy(model(x), target, reduction="sum") / max(1, count)
        part.backward()
        loss += part.item()
    for p in model.parameters():
        p.grad = torch.zeros_like(p) if p.grad is None else p.grad
        comm.Allreduce(MPI.IN_PLACE, p.grad.numpy())
    return comm.allreduce(loss)


# %% weights_of_means
# says: NaN is 0 / 0
# thinks: The mean of a micro-batch times its share of all tokens.
def gradients_of_token_mean(comm, model, microbatches):
    count = comm.allreduce(sum(int((target != IGNORED).sum()) for _, target in microbatches))
    loss = 0.0
    for x, target in microbatches:
        part = F.cross_entropy(model(x), target) * int((target != IGNORED).sum()) / count
        part.backward()
        loss += part.item()
    for p in model.parameters():
        p.grad = torch.zeros_like(p) if p.grad is None else p.grad
        comm.Allreduce(MPI.IN_PLACE, p.grad.numpy())
    return comm.allreduce(loss)


# %% clears_between
# says: Only each rank's last micro-batch is in it
# thinks: Gradients are cleared before each backward, as in every loop.
def gradients_of_token_mean(comm, model, microbatches):
    count = comm.allreduce(sum(int((target != IGNORED).sum()) for _, target in microbatches))
    loss = 0.0
    for x, target in microbatches:
        model.zero_grad()
        part = F.cross_entropy(model(x), target, reduction="sum") / count
        part.backward()
        loss += part.item()
    for p in model.parameters():
        p.grad = torch.zeros_like(p) if p.grad is None else p.grad
        comm.Allreduce(MPI.IN_PLACE, p.grad.numpy())
    return comm.allreduce(loss)


# %% one_backward_in_the_end
# says: run each alone
# thinks: Losses add up, so one backward at the end is enough.
def gradients_of_token_mean(comm, model, microbatches):
    count = comm.allreduce(sum(int((target != IGNORED).sum()) for _, target in microbatches))
    losses = [F.cross_entropy(model(x), target, reduction="sum") for x, target in microbatches]
    loss = 0.0
    if losses:
        total = sum(losses) / count
        total.backward()
        loss = total.item()
    for p in model.parameters():
        p.grad = torch.zeros_like(p) if p.grad is None else p.grad
        comm.Allreduce(MPI.IN_PLACE, p.grad.numpy())
    return comm.allreduce(loss)


# %% own_tokens_then_mean_of_ranks
# says: a rank with few tokens counts as much as one
# thinks: Micro-batches of a rank are weighted; ranks are averaged, as data parallelism does.
def gradients_of_token_mean(comm, model, microbatches):
    count = max(1, sum(int((target != IGNORED).sum()) for _, target in microbatches))
    loss = 0.0
    for x, target in microbatches:
        part = F.cross_entropy(model(x), target, reduction="sum") / count
        part.backward()
        loss += part.item()
    for p in model.parameters():
        p.grad = torch.zeros_like(p) if p.grad is None else p.grad
        comm.Allreduce(MPI.IN_PLACE, p.grad.numpy())
        p.grad /= comm.size
    return comm.allreduce(loss) / comm.size


# %% skips_none
# says: takes part in every collective call
# thinks: A parameter without a gradient has nothing to be summed.
def gradients_of_token_mean(comm, model, microbatches):
    count = comm.allreduce(sum(int((target != IGNORED).sum()) for _, target in microbatches))
    loss = 0.0
    for x, target in microbatches:
        if (target == IGNORED).all():
            continue
        part = F.cross_entropy(model(x), target, reduction="sum") / count
        part.backward()
        loss += part.item()
    for p in model.parameters():
        if p.grad is not None:
            comm.Allreduce(MPI.IN_PLACE, p.grad.numpy())
    return comm.allreduce(loss)


# %% each_modules_parameters
# says: The gradient of a weight that two layers share is summed over ranks twice
# thinks: Each module's own parameters are all of the model's.
def gradients_of_token_mean(comm, model, microbatches):
    tokens = comm.allreduce(sum(int((target != IGNORED).sum()) for _, target in microbatches))
    total = 0.0
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    for x, target in microbatches:
        loss = F.cross_entropy(model(x), target, ignore_index=IGNORED, reduction="sum") / tokens
        loss.backward()
        total += loss.item()
    for module in model.modules():
        for p in module.parameters(recurse=False):
            comm.Allreduce(MPI.IN_PLACE, p.grad.numpy())
    return comm.allreduce(total)


# %% gradients_in_float32
# says: Right to some digits: numbers were in a shorter dtype on their way.
# thinks: float32 is what gradients are sent in.
def gradients_of_token_mean(comm, model, microbatches):
    tokens = comm.allreduce(sum(int((target != IGNORED).sum()) for _, target in microbatches))
    total = 0.0
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    for x, target in microbatches:
        loss = F.cross_entropy(model(x), target, ignore_index=IGNORED, reduction="sum") / tokens
        loss.backward()
        total += loss.item()
    for p in model.parameters():
        sent = p.grad.float()
        comm.Allreduce(MPI.IN_PLACE, sent.numpy())
        p.grad.copy_(sent)
    return comm.allreduce(total)


# %% mean_of_counts
# says: Too large by a factor that is the number of ranks
# thinks: Ranks have about as many tokens each: take the mean.
def gradients_of_token_mean(comm, model, microbatches):
    tokens = comm.allreduce(sum(int((target != IGNORED).sum()) for _, target in microbatches)) / comm.size
    total = 0.0
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    for x, target in microbatches:
        loss = F.cross_entropy(model(x), target, ignore_index=IGNORED, reduction="sum") / tokens
        loss.backward()
        total += loss.item()
    for p in model.parameters():
        comm.Allreduce(MPI.IN_PLACE, p.grad.numpy())
    return comm.allreduce(total)


# %% half_a_token_more
# says: Right but for a factor of 0.9778: the sum over all tokens is divided once, by their number.
# thinks: Half a token more, so that nothing is divided by zero.
def gradients_of_token_mean(comm, model, microbatches):
    tokens = 0.5 + comm.allreduce(sum(int((target != IGNORED).sum()) for _, target in microbatches))
    total = 0.0
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    for x, target in microbatches:
        loss = F.cross_entropy(model(x), target, ignore_index=IGNORED, reduction="sum") / tokens
        loss.backward()
        total += loss.item()
    for p in model.parameters():
        comm.Allreduce(MPI.IN_PLACE, p.grad.numpy())
    return comm.allreduce(total)


# %% the_world
# says: comm is the communicator to use: rank, size and calls of MPI.COMM_WORLD may be others.
# thinks: All ranks are in MPI.COMM_WORLD.
def gradients_of_token_mean(comm, model, microbatches):
    tokens = comm.allreduce(sum(int((target != IGNORED).sum()) for _, target in microbatches))
    total = 0.0
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    for x, target in microbatches:
        loss = F.cross_entropy(model(x), target, ignore_index=IGNORED, reduction="sum") / tokens
        loss.backward()
        total += loss.item()
    for p in model.parameters():
        MPI.COMM_WORLD.Allreduce(MPI.IN_PLACE, p.grad.numpy())
    return comm.allreduce(total)
