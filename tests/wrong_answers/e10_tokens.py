"""Wrong answers to e10_tokens. What a cell holds is told in tests/answers.py."""

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
