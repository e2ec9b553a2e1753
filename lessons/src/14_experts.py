# %% [markdown]
# # 14 Experts
#
# **What if most of the model is idle?** About 45 minutes to read, and 100 for its exercises.
#
# In 2021 Google trained two language models on the same TPUs until both had the same quality [1]. T5-Large, a dense
# model, took 131 hours. Switch-Base took 63 hours, although it has ten times as many parameters. For each token, it
# uses only a small part of them, so a step takes less than half of the time. Parameters that are idle most of the time
# help all the same. How, and where are they stored?
#
# After this lesson you can
#
# - send tokens to experts, limit how many each expert takes, and keep the experts equally busy;
# - spread experts over ranks, so that tokens travel and experts stay, forward and backward;
# - say whose gradients are averaged over which ranks;
# - estimate how long the messages take, and when this estimate fails;
# - do this in PyTorch.

# %% tags=["nbval-ignore-output", "remove-cell"]
from mpcourse.course.learner import panel

panel.show("14_experts")

# %% tags=["nbval-ignore-output"]
# %config InlineBackend.print_figure_kwargs = {"dpi": 110}
from pathlib import Path

import torch
from scipy.stats import binom

from mpcourse import plot
from mpcourse.data.published_experts import DEEPEP_COMBINE, DEEPEP_DISPATCH, SWITCH
from mpcourse.experts import Mixture, average_gradients, room_for, route
from mpcourse.experts.costs import chosen_nodes, sent_by_dispatch
from mpcourse.studies.compare import difference, mean_of
from mpcourse.studies.experts import EVERY, STEPS, shipped_experts
from mpcourse.virtual import run

torch.set_num_threads(1)

# %% [markdown]
# ## A token chooses its experts
#
# A **mixture of experts** [2] replaces the MLP of a transformer layer by many MLPs, the experts [1]. A small linear
# layer, the **router**, computes a probability for each expert from the token. The token goes to the k most probable
# experts. Their results are multiplied by their probabilities and added up. (Many models first divide the k
# probabilities by their sum.) The choice itself has no gradient. The router learns through the probabilities.
#
# With k = 1, as in Switch Transformers, a token costs as many FLOPs as with a single MLP, however many experts there
# are (but for the small router). Other models use k = 2 (Mixtral) or 8 (DeepSeek-V3).

# %%
torch.manual_seed(0)
x, router = torch.randn(6, 8), torch.randn(4, 8)  # 6 tokens, 4 experts
routing = route(x @ router.T, k=1)
for token, probabilities in enumerate(routing.probabilities.tolist()):
    shown = " ".join(f"{p:.2f}" for p in probabilities)
    print(f"token {token}: probabilities {shown}, so expert {routing.chosen[token, 0]}")


# %% [markdown]
# Compilers for TPUs need shapes that are known beforehand. So Switch Transformers give each expert room for a fixed
# number of tokens, its **capacity**. If E experts shared the T k choices of T tokens equally, each would get T k / E.
# The capacity is this number times the capacity factor, rounded up. A choice that finds no room is dropped. With k = 1
# the layer then returns zero for this token, and the residual connection passes the token on unchanged. Today, experts
# on GPUs often take all their tokens.
#
# **Predict first.** 512 tokens choose among 8 experts at random, each with the same probability. What share of them is
# dropped with a capacity factor of 1, and what share with 1.25?

# %% tags=["answer"]
# answer
def dropped(factor, tokens=512, experts=8, times=400):
    """Return the share of tokens that find no room: drawn, and by the binomial distribution."""
    draw, room = torch.Generator().manual_seed(0), room_for(tokens, experts, 1, factor)
    drawn = (route(torch.randn(tokens, experts, generator=draw), 1, room) for _ in range(times))
    lost = sum(1 - routing.kept.float().mean() for routing in drawn)
    expected = sum((n - room) * binom.pmf(n, tokens, 1 / experts) for n in range(room + 1, tokens + 1))
    return lost.item() / times, experts * expected / tokens


for factor in (1.0, 1.25, 2.0):
    drawn, expected = dropped(factor)
    print(f"capacity factor {factor:4}: {drawn:.2%} dropped, by the binomial distribution {expected:.2%}")

# %% tags=["checked"]
# checked: drawn and computed shares agree
assert all(abs(drawn - expected) < 2e-3 for drawn, expected in map(dropped, (1.0, 1.25, 2.0)))
assert 0.04 < dropped(1.0)[1] < 0.05 and dropped(1.25)[1] < 0.002

# %% [markdown]
# <details><summary>Why</summary>
#
# Each expert is chosen by 64 tokens on average, with a standard deviation of 7.5. With a factor of 1, whatever is above
# 64 is dropped, 4.7 % of all tokens. With 1.25, an expert has room for 80, which is about two standard deviations more,
# so hardly any token is dropped. This holds for a router that spreads tokens evenly. Real routers do not do this by
# themselves.
#
# </details>
#
# Exercise [`e14_route`](../exercises/e14_route.py): choose experts, find room for tokens, and compute the loss of the
# next section.

# %% tags=["nbval-ignore-output", "remove-output"]
# !mpcourse check e14_route

# %% [markdown]
# ## Keep all experts busy
#
# An expert that gets more tokens learns faster, so the router sends it even more. To prevent this, a **balance loss**
# is added to the loss [1]:
#
# E · Σ (share of all choices that fell on expert i) · (mean probability of expert i).
#
# It is 1 if all experts get equally many tokens. With k = 1, it is E if the router sends every token to one expert with
# a probability of 1. The shares are counts, so they have no gradient. The gradient goes through the probabilities: it
# lowers those of the experts that have many tokens. If several ranks train together, our library counts the choices of
# all of them. (Users of Megatron-LM have reported bugs in which the weight of this loss depended on the number of ranks
# [3].)
#
# We took the small GPT of 216 thousand parameters, and replaced the MLP of each layer by 8 experts, which makes 1.1
# million. We trained it on two real ranks, with k = 1 and a capacity factor of 1.25. The balance loss has a weight of
# 0.01. The next figure shows, for the first of five seeds, what share of the validation text's tokens chose which
# expert after 800 steps.
#
# **Predict first.** An equal share is 12.5 %. Take the expert with the largest share in any of the four layers. What
# percentage of its layer's tokens does it get without the balance loss, and with it?

# %% tags=["answer"]
# answer
study = shipped_experts()
panels = {
    name: [[100 * share for share in layer] for layer in study[name][0].shares]
    for name in ("8 experts, no balance loss", "8 experts")
}
plot.matrix(panels, "expert", "layer", "Tokens to experts (%), without and with the balance loss")
for name in panels:
    largest = [max(100 * max(layer) for layer in run.shares) for run in study[name]]
    every = [share for run in study[name] for layer in run.shares for share in layer]
    few, near = sum(share < 0.04 for share in every), sum(1 / 16 <= share <= 1 / 4 for share in every)
    print(f"{name}, five seeds: largest shares {', '.join(f'{each:.0f}' for each in largest)} %;", end=" ")
    print(f"{few} of {len(every)} shares are below 4 %, and {near} between half and twice an equal share")


# %% [markdown]
# <details><summary>Why</summary>
#
# Without the loss, the most popular expert gets up to three times an equal share, and in each model some experts get
# hardly any tokens. With the loss, 150 of 160 shares are between half and twice an equal share, and without it 114. In
# this small model, no router sends all tokens to one expert. An expert has room for 15.6 % of the tokens. What goes
# beyond that is dropped.
#
# </details>
#
# ## Does it pay?
#
# A dense GPT has one MLP in each layer, so a token costs it as many FLOPs as the mixture with k = 1. All three models
# saw the same sequences, and each was trained with five seeds. We made the runs beforehand with
# `lessons/studies/experts.py`. Bands are two standard errors wide to each side.

# %%
def lower(name):
    """Return, for each validation, the loss minus that of the dense model, by seed."""
    pairs = zip(study[name], study["dense"])
    by_seed = [[loss - other for loss, other in zip(run.losses, dense.losses)] for run, dense in pairs]
    return list(zip(*by_seed))


title = "8 experts stay ahead of the dense model only with the balance loss"
rows = {name: lower(name) for name in study if name != "dense"}
steps = range(0, STEPS + 1, EVERY)
plot.lines(steps, rows, "step", "loss minus that of the dense model", title, {"dense": 0}, log=False)
final = {name: [run.losses[-1] for run in runs] for name, runs in study.items()}
for name, runs in final.items():
    against = "" if name == "dense" else f"   {difference(runs, final['dense'], paired=True, comparisons=2)}"
    print(f"{name:28} {mean_of(runs)}{against}")

# %% [markdown]
# With 8 experts and the balance loss, the model ends with a loss that is 0.06 lower than that of the dense model.
# Without the balance loss, it is ahead in the first 200 steps, and ends no lower. So in this study, the gain lasted
# only with the balance loss. (The study does not tell whether idle experts or dropped tokens cost more.)
#
# How does the speed of Switch Transformers depend on the capacity factor c? In Switch-Base, every other MLP is a
# mixture. With c = 1, the mixtures take 29 % of the FLOPs of all matrices of layers. With another c, they take c times
# these FLOPs, because each expert also computes the places that no token has taken. In the table, T5-Base is
# Switch-Base without experts, Switch-Base+ is a larger model, and MoE-Base sends a token to two experts. -1.50 is a
# quality, the negative log perplexity. The runs ended after 100,000 steps.

# %%
mixtures = 12 * 8 / (12 * 12 + 12 * 16)  # in h²: 12 of 24 MLPs; with attention, an encoder layer has 12, a decoder's 16
fastest = next(row for row in SWITCH if row.name == "Switch-Base" and row.capacity == 1.0)
for row in SWITCH:
    reached = f"{row.hours:5} h" if row.hours else " no run"
    text = f"{row.name:12} {row.capacity or '':4} {row.rate:5} examples/s, -1.50 after {reached}"
    if row.name == "Switch-Base":
        predicted = fastest.rate / (1 - mixtures + mixtures * row.capacity)
        text += f"; predicted {predicted:.0f} examples/s ({predicted / row.rate - 1:+.0%})"
    print(text)

# %% tags=["checked"]
# checked: the ratio of hours, and the errors of two predictions
assert abs(131.1 / 62.8 - 2.09) < 0.01
speed = {c: 1000 / (1 - mixtures + mixtures * c) for c in (1.25, 2.0)}
assert abs(speed[1.25] / 910 - 1.026) < 0.005 and abs(speed[2.0] / 860 - 0.904) < 0.005

# %% [markdown]
# Starting from the speed at c = 1, the prediction for c = 1.25 is 3 % too high, and that for c = 2 is 10 % too low. The
# speed of MoE-Base does not even fall steadily with c: it is lower at 1.25 than at 2. So something other than FLOPs
# matters there.
#
# Switch-Base reaches the quality of T5-Large 2.1 times sooner. Both need about the same number of examples for it
# (hours times speed), but Switch-Base computes 2.1 times as many of them in an hour. T5-Base is 1.6 times as fast as
# Switch-Base, so routing is not free. It did not reach this quality.
#
# ## Tokens travel, experts stay
#
# Experts have most of the parameters, so they are spread over ranks. With **expert parallelism**, rank r has the r-th
# part of the experts. Each rank also has tokens of its own, as in data parallelism. A layer then takes four steps:
#
# 1. **Dispatch.** Each rank sorts its tokens by expert. A small all-to-all tells each rank how many tokens will come.
#    Then a larger one sends the tokens to the ranks of their experts.
# 2. The experts compute.
# 3. **Combine.** Another all-to-all sends the results back.
# 4. Each rank puts the results back in the order of its tokens, multiplies them by the probabilities, and adds up the k
#    results of each token.
#
# The backward of an all-to-all is an all-to-all in the opposite direction.

# %%
tokens = torch.randn(24, 8, dtype=torch.float64)


def on_ranks(comm, k=2):
    """Return this rank's results, the gradient of its tokens, and how many rows go to each rank."""
    torch.manual_seed(1)  # the same layer on all ranks
    layer = Mixture(comm, 8, 16, 8, k).double()
    own = tokens.chunk(comm.size)[comm.rank].clone().requires_grad_()
    mixed = layer(own)
    mixed.out.square().sum().backward()
    to = torch.bincount(mixed.routing.chosen.flatten() * comm.size // 8, minlength=comm.size)
    return mixed.out.detach(), own.grad, to.tolist()


(whole,) = run(on_ranks, 1).results
for size in (2, 4, 8):
    parts = run(on_ranks, size).results
    off = max((torch.cat([part[i] for part in parts]) - whole[i]).abs().max() for i in (0, 1))
    print(f"{size} ranks: results and gradients of tokens off by {off:.0e} at most")
sent = [to for *_, to in run(on_ranks, 4).results]
title = "How many rows each rank sends to each rank"
plot.matrix({"choices of 6 tokens a rank, k = 2": sent}, "to rank", "from rank", title)
None


# %% [markdown]
# A row is one token on its way to one expert. In the figure, the rows on the diagonal stay on their rank. If all
# experts have equally many tokens, a rank sends T k h (p - 1) / p numbers in a dispatch, where h is the width and p the
# number of ranks. A layer sends this amount twice in the forward pass, for dispatch and combine, and twice in the
# backward pass. The numbers in the figure are not equal: rank 2 receives most rows, and all other ranks wait for it.
#
# Exercise [`e14_dispatch`](../exercises/e14_dispatch.py): write the exchange with its backward, and the layer around
# it.

# %% tags=["nbval-ignore-output", "remove-output"]
# !mpcourse check e14_dispatch

# %% [markdown]
# ## Whose gradients are averaged?
#
# Every rank computes the mean loss of its own tokens. Take 4 ranks. The experts are split between ranks 0 and 1. Ranks
# 2 and 3 hold a second copy, split in the same way.
#
# **Predict first.** The gradient of an attention weight is the sum over 4 ranks, divided by 4. Rank 0 and rank 2 have
# the same expert. Its gradients on these two ranks are added up. What number must this sum be divided by?

# %% tags=["answer"]
# answer
def gradient_of_expert(comm, divided_by=None):
    """Return the gradient of expert 0's first weight after averaging, on this rank."""
    experts, replicas = comm.Split(comm.rank // 2, comm.rank), comm.Split(comm.rank % 2, comm.rank)
    torch.manual_seed(1)
    layer = Mixture(experts, 8, 16, 4).double()
    layer(tokens.chunk(comm.size)[comm.rank]).out.square().sum(1).mean().backward()
    average_gradients(comm, replicas, layer)
    return layer.experts.first.grad[0, 0, 0].item()


torch.manual_seed(1)
plain = Mixture(None, 8, 16, 4).double()
plain(tokens).out.square().sum(1).mean().backward()
found = run(gradient_of_expert, 4).results
print(f"one process {plain.experts.first.grad[0, 0, 0]:.6f}, on ranks 0 and 2 {found[0]:.6f} and {found[2]:.6f}")

# %% tags=["checked"]
# checked: the gradient of one process on both ranks that have the expert
assert max(abs(found[rank] - plain.experts.first.grad[0, 0, 0].item()) for rank in (0, 2)) < 1e-12


# %% [markdown]
# <details><summary>Why</summary>
#
# By 4. The expert on rank 0 has met tokens of ranks 0 and 1, so its gradient is a sum over two ranks already. The sum
# over both copies contains the tokens of all four ranks, each with the mean loss of its rank. So it is divided by 4,
# the number of all ranks, as every other gradient. Dividing by 2, the number of copies, doubles the gradient. This was
# reported as wrong gradients in PyTorch's list of issues [3].
#
# </details>
#
# Exercise [`e14_expert_gradients`](../exercises/e14_expert_gradients.py): average both kinds of gradients.

# %% tags=["nbval-ignore-output", "remove-output"]
# !mpcourse check e14_expert_gradients

# %% [markdown]
# ## How long do the messages take?
#
# DeepSeek published how long a dispatch and a combine take with its library DeepEP [4]. The kernels are made for
# inference with a low latency. Each rank has 128 tokens of width 7168, which go to 8 experts each. For each choice,
# dispatch sends 7392 bytes (float8 numbers and their scales), and combine 14 336 (bfloat16). Eight H800s in a machine
# are joined by NVLink, over which DeepEP reaches 160 GB/s at most. Each has a network card of 50 GB/s. The simplest
# model is a latency plus a transfer time: the bytes that leave the machine divided by 50 GB/s. With eight ranks nothing
# leaves the machine. There, the transfer time is the bytes that leave the GPU divided by 160 GB/s. We take the latency
# from a single number, the dispatch over 16 ranks, and predict the other eleven.

# %%
def predicted(ranks, of_token, latency):
    nbytes = 128 * 8 * of_token
    if ranks == 8:
        return latency + nbytes * 7 / 8 / 160e9
    return latency + nbytes * (ranks - 8) / ranks / 50e9


latency = DEEPEP_DISPATCH[16] * 1e-6 - predicted(16, 7392, 0.0)
print(f"latency {1e6 * latency:.0f} µs")
errors = {}
for name, of_token, published in (("dispatch", 7392, DEEPEP_DISPATCH), ("combine", 2 * 7168, DEEPEP_COMBINE)):
    for ranks, measured in published.items():
        ours = 1e6 * predicted(ranks, of_token, latency)
        errors[name, ranks] = ours / measured - 1
        print(f"{name:8} {ranks:3} ranks: predicted {ours:3.0f} µs, published {measured} ({errors[name, ranks]:+.0%})")

# %% tags=["checked"]
# checked: dispatch within 9 %, combine within 9 % up to 64 ranks; beyond, it takes 16 and 10 % longer than predicted
assert all(abs(error) < 0.09 for (name, ranks), error in errors.items() if name == "dispatch" or ranks <= 64)
longer = [round(100 * (1 / (1 + errors["combine", ranks]) - 1)) for ranks in (128, 256)]
assert longer == [16, 10]

# %% [markdown]
# With this one latency, the model predicts every dispatch within 9 %, and the combines up to 64 ranks, too. With 128
# and 256 ranks, combine takes 16 and 10 % longer than predicted (the predictions are 14 and 9 % too low). DeepSeek's
# table does not say why. Its rows for 128 and 256 ranks come from an older version of the library, whose kernels did
# not use NVLink yet.
#
# **Node-limited routing.** These kernels send a message for each expert. Kernels for training send a token to each
# machine only once, and NVLink forwards it to the other GPUs there. A token with 8 experts could still need 8 machines.
# DeepSeek-V3 has 256 experts to choose from in most layers, over 8 machines, and lets a token go to at most 4 machines
# [5].

# %%
print(f"8 of 256 experts, chosen at random, are on {chosen_nodes(8, 256, 8):.2f} of 8 machines on average")
print(f"NVLink at 160 GB/s passes on {160 / 50:.1f} copies while the network at 50 GB/s brings one")
print(f"so 4 machines reach 4 x 3.2 = {4 * 160 / 50:.1f} experts in the time of 4 messages")


# %% [markdown]
# So a token could go to about 13 experts on 4 machines before NVLink became slower than the network. The paper states
# the same number.
#
# Move the sliders: beyond how many ranks does a dispatch hardly grow?

# %% tags=["nbval-ignore-output"]
def try_it(k=8, tokens=4096):
    ranks = [2, 4, 8, 16, 32, 64, 128]
    megabytes = [sent_by_dispatch(tokens, k, size, 7168, 2) / 1e6 for size in ranks]
    title = f"A dispatch of {tokens} tokens a rank, width 7168, 16 bits, k = {k}"
    figure = plot.lines(ranks, {"sent by a rank": megabytes}, "ranks", "MB", title)
    figure.axes[0].set_ylim(0)
    return figure


plot.sliders(try_it, k=[1, 2, 4, 8], tokens=[1024, 4096, 16_384])

# %% [markdown]
# With 8 ranks, 7/8 of the choices leave their rank. However many ranks there are, no more than all of them can leave.
#
# ## On real ranks
#
# One process and two processes train the GPT with 8 experts in each layer. Experts have no capacity limit here. (With
# one, the number of ranks would decide which tokens are dropped.) So the losses agree.

# %% tags=["nbval-ignore-output"]
Path("scratch").mkdir(exist_ok=True)

# %% tags=["nbval-ignore-output"]
# %%writefile scratch/experts.py
import torch
from mpi4py import MPI

from mpcourse.data.text import course_text, draw_batch
from mpcourse.experts import MixtureGPT, average_gradients
from mpcourse.models.gpt import SMALL, token_loss

comm = MPI.COMM_WORLD
torch.set_num_threads(1)
torch.manual_seed(0)  # the same model on all ranks
model = MixtureGPT(SMALL, 8, comm)
optimizer = torch.optim.AdamW(model.parameters(), 3e-3)
draw = torch.Generator().manual_seed(0)
for step in range(31):
    x, target = (each.chunk(comm.size)[comm.rank] for each in draw_batch(course_text().train, 16, SMALL.length, draw))
    optimizer.zero_grad()
    logits, balance = model(x)
    loss = token_loss(logits, target) + 0.01 * balance
    loss.backward()
    average_gradients(comm, None, model)
    optimizer.step()
    mean = comm.allreduce(loss.item()) / comm.size
    if comm.rank == 0 and step % 10 == 0:
        print(f"{comm.size} rank(s), step {step:2}: loss {mean:.4f}")

# %%
# !mpirun -np 1 python scratch/experts.py
# !mpirun -np 2 python scratch/experts.py

# %% [markdown]
# ## The same in PyTorch
#
# `all_to_all_single_autograd` is an all-to-all that autograd sees. (It is in a private module, so it may move.) Two
# processes send their tokens to four experts, which here multiply by 1, 2, 3 and 4.

# %% tags=["nbval-ignore-output"]
# %%writefile scratch/dispatch.py
import time

import torch
import torch.distributed as dist
from torch.distributed._functional_collectives import all_to_all_single_autograd

dist.init_process_group("gloo")  # on GPUs "nccl"
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)  # the same router and the same tokens on all ranks
router = torch.randn(8, 4, dtype=torch.float64)
x = torch.randn(size, 16, 8, dtype=torch.float64)[rank].requires_grad_()  # this rank's tokens
weights, chosen = (x @ router).softmax(-1).max(-1)
order, counts = chosen.argsort(stable=True), torch.bincount(chosen, minlength=4)
arriving = torch.empty_like(counts)  # from each rank, for each of this rank's two experts
dist.all_to_all_single(arriving, counts)
sent, received = (each.view(size, -1).sum(1).tolist() for each in (counts, arriving))
rows = all_to_all_single_autograd(x[order], received, sent, dist.group.WORLD)
expert = torch.arange(2 * rank, 2 * rank + 2).repeat(size).repeat_interleave(arriving)
results = rows * (1 + expert)[:, None]
back = all_to_all_single_autograd(results, sent, received, dist.group.WORLD)
y = torch.zeros_like(x).index_add(0, order, back * weights[order, None])
y.square().sum().backward()
squares = torch.stack([y.detach().square().sum(), x.grad.square().sum()])
dist.all_reduce(squares)
if rank == 0:
    print("sums of squares of the results and of the tokens' gradients:", *(f"{each:.6f}" for each in squares))
time.sleep(0.1)  # gloo's threads free their tensors; while Python exits, they would abort it
dist.destroy_process_group()

# %%
# !torchrun --local-addr localhost --nproc-per-node 2 scratch/dispatch.py 2> scratch/torchrun.log

# %%
torch.manual_seed(0)
router, x = torch.randn(8, 4, dtype=torch.float64), torch.randn(2, 16, 8, dtype=torch.float64)


def ours(comm):
    layer = Mixture(comm, 8, 8, 4).double()
    layer.router.weight.data = router.T.clone()
    first = 2 * comm.rank  # of this rank's experts
    factors = torch.arange(1 + first, 3 + first)
    layer.experts.forward = lambda rows, n: rows * factors.repeat_interleave(torch.tensor(n))[:, None]
    own = x[comm.rank].clone().requires_grad_()
    out = layer(own).out
    out.square().sum().backward()
    return out.detach().square().sum().item(), own.grad.square().sum().item()


print("ours, two virtual ranks:", *(f"{sum(parts):.6f}" for parts in zip(*run(ours, 2).results)))

# %% [markdown]
# ## The reference implementation

# %%
from mpcourse.common.source import reference
from mpcourse.experts.dispatch import exchange

reference(route, exchange, average_gradients)

# %% [markdown]
# ## What production systems call it
#
# | here | there |
# |---|---|
# | `route`, `k` | gate; `moe_router_topk` in Megatron-LM |
# | capacity factor | `moe_expert_capacity_factor`; "dropless" where it is None (MegaBlocks) |
# | `balance_loss` | auxiliary loss; `moe_aux_loss_coeff`. DeepSeek-V3 mainly adds a bias to the scores that choose |
# | `exchange` | dispatch and combine; DeepEP; `all_to_all_single` |
# | tokens sorted by expert | grouped products: `torch.nn.functional.grouped_mm`, grouped GEMM |
# | ranks that share the experts | expert axis, EP; `--expert-model-parallel-size` |
#
# 1. William Fedus and others, *Switch Transformers*, 2021, <https://arxiv.org/abs/2101.03961>, table 1, which we know
#    from quotations
# 2. Noam Shazeer and others, *Outrageously Large Neural Networks*, 2017, <https://arxiv.org/abs/1701.06538>
# 3. Issues of pytorch/pytorch, 160285, and of NVIDIA/Megatron-LM, 1652 and 3672, on GitHub
# 4. DeepSeek, *DeepEP*, 2025, <https://github.com/deepseek-ai/DeepEP>, `docs/legacy.md`
# 5. DeepSeek, *DeepSeek-V3 Technical Report*, 2024, <https://arxiv.org/abs/2412.19437>
#
# ## Problems
#
# **1.** A layer has a width of 4096 and 64 experts, each with two matrices of 4096 x 16 384. How many parameters do the
# experts have, and how many does a token with k = 2 use? The model has 32 such layers, and experts are spread over 64
# GPUs. How many GB of experts' weights does a GPU hold in 16 bits?
#
# **2.** Now 8 ranks share the experts of such a layer. Each rank has 8192 tokens, and k = 2. How many MB does a rank
# send in one dispatch in 16 bits? How long do the two exchanges of the forward pass take at 50 GB/s, and how long do
# the experts compute at 500 TFLOP/s?

# %% tags=["answer"]
# answer
each = 2 * 4096 * 16_384
print(f"1. {64 * each / 1e9:.1f} billion; a token uses {2 * each / 1e9:.2f} billion;", end=" ")
print(f"{32 * 64 * each * 2 / 64 / 1e9:.1f} GB on a GPU")
nbytes = sent_by_dispatch(8192, 2, 8, 4096, 2)
computing = 2 * each * 2 * 8192 / 500e12
print(f"2. {nbytes / 1e6:.0f} MB; {2e3 * nbytes / 50e9:.1f} ms of messages, {1e3 * computing:.1f} ms of experts")

# %% [markdown]
# ## What you found
#
# - A token uses k of E experts. So the parameters grow with E, and the FLOPs of a token with k.
# - With capacity factor 1 and random choices of 512 tokens, 5 % are dropped, and hardly any with 1.25.
# - The balance loss spreads tokens more evenly. With it, 8 experts lowered the loss of the small GPT by 0.06 at equal
#   FLOPs. Without it, nothing was gained after 800 steps.
# - Expert parallelism sends each token to the ranks of its experts, and the results back. Results and gradients equal
#   those of one process.
# - On each rank, an expert's gradient is already a sum over the tokens of all ranks among which the experts are
#   divided. It is added up over the expert's copies, and divided by the number of all ranks.
# - A latency and a bandwidth predict DeepEP's dispatch, and combine up to 64 ranks, within 9 %. On more ranks, combine
#   takes up to 16 % longer.
#
# Next, plan a training run: `mpcourse plan --model mixtral-8x7b --gpus 64 --gpu H100-SXM --batch 256 --expert 8`.
