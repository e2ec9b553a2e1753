# %% [markdown]
# # 11 Tensor parallelism
#
# **Why 8 and not 16?** About 55 minutes to read, and 110 for its exercises.
#
# In 2022 Korthikanti and others ran four GPTs, of 22 billion to one trillion parameters, on 8 to 512 GPUs [1]. They
# chose a different number of pipeline stages for each model. But every model had its layers split over 8 GPUs, no fewer
# and no more. Each of their machines had 8 GPUs, so the usual answer is that the network between machines is too slow
# for 16. This lesson predicts how much of the loss with 16 GPUs the network causes, and what speaks against 4 GPUs.
#
# After this lesson you can
#
# - split a transformer's attention, MLP, embedding and loss over ranks, and count their messages;
# - derive how many bytes of activations a layer keeps, and which of them tensor parallelism divides;
# - divide the other activations among the ranks by tokens;
# - predict how long a layer takes on 1 to 16 GPUs, and say what speaks against 16 and against 4;
# - split a layer in PyTorch with `parallelize_module`.

# %% tags=["nbval-ignore-output", "remove-cell"]
from mpcourse.course.learner import panel

panel.show("11_tensor_parallel")

# %% tags=["nbval-ignore-output"]
# %config InlineBackend.print_figure_kwargs = {"dpi": 110}
from collections import Counter
from functools import partial
from math import ceil, nan
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

from mpcourse import plot
from mpcourse.data.published_plans import KORTHIKANTI, KORTHIKANTI_LAYER, NEMO_GPT
from mpcourse.models.gpt import SMALL, Block, Shape
from mpcourse.plan.machines import Machines
from mpcourse.tensor_parallel import Generators, Options, ParallelBlock, ParallelMLP, over_devices, vocabulary_loss
from mpcourse.tensor_parallel.costs import kept_by_layer, sent_by_layer
from mpcourse.virtual import run, virtual_gpus

torch.set_num_threads(1)

# %% [markdown]
# ## From one process to ranks
#
# In lesson 02, one process split two layers over several GPUs, H = GELU(X A) and Y = H B. It copied X to every GPU, and
# collected the partial results of Y on GPU 0. So GPU 0 sent more bytes than each other GPU.
#
# Now each GPU has a rank of its own, and all ranks run the same program. Every rank already has X, so nothing is copied
# in the forward pass. The partial results are summed by an all-reduce, so every rank gets Y and computes the same loss.
# Megatron-LM [2] places two functions at the borders of the split layers:
#
# | | forward | backward |
# |---|---|---|
# | **f**, before the first layer (`copy_in`) | does nothing | all-reduce |
# | **g**, after the second layer (`sum_out`) | all-reduce | does nothing |
#
# In the backward pass, every rank starts from the same gradient of Y, because all ranks have the same loss. So g passes
# this gradient on unchanged. Each rank then computes the part of X's gradient that comes from its own columns of A. The
# whole gradient is the sum of these parts, so f sums them.

# %%
torch.manual_seed(0)
first, second = nn.Linear(8, 32).double(), nn.Linear(32, 8).double()
x = torch.randn(5, 8, dtype=torch.float64)


def mlp_on_ranks(comm):
    """Return the result on this rank, the gradient of x, and the sizes of this rank's weights."""
    own_x = x.clone().requires_grad_()
    layer = ParallelMLP(comm, first, second)
    y = layer(own_x)
    y.square().sum().backward()
    return y.detach(), own_x.grad, [tuple(p.weight.shape) for p in (layer.first, layer.second)]


whole_x = x.clone().requires_grad_()
whole = second(F.gelu(first(whole_x)))
whole.square().sum().backward()
for size in (1, 2, 4):
    y, gradient, shapes = run(mlp_on_ranks, size).results[-1]
    off = max((y - whole).abs().max(), (gradient - whole_x.grad).abs().max())
    print(f"{size} ranks: weights {shapes[0]} and {shapes[1]}, off by {off:.0e} at most")


# %% [markdown]
# For each number of ranks, the result and the gradient equal those of one process, up to float64 rounding. (PyTorch
# stores a weight as (outputs, inputs), so a cut by columns of A divides the first number.)
#
# Exercise [`e11_f_and_g`](../exercises/e11_f_and_g.py): write both functions.

# %% tags=["nbval-ignore-output", "remove-output"]
# !mpcourse check e11_f_and_g

# %% [markdown]
# ## A whole layer
#
# A transformer's layer consists of attention and an MLP. Each begins with a layer norm and ends with dropout, and its
# result is added to its input. Attention consists of **heads**, which work independently: each has its own queries,
# keys and values. So the weight matrix that computes queries, keys and values is cut by columns, and each rank gets
# whole heads. The output matrix behind it is cut by rows.
#
# **Predict first.** How many all-reduces does a layer need in the forward pass, and how many in the backward pass?

# %% tags=["answer"]
# answer
def messages_of_layer(options, size=2, length=64, batch=64):
    """Count the bytes that each rank sends for a layer of the small GPT, forward and backward, in float32."""

    def program(comm):
        torch.manual_seed(0)
        block = ParallelBlock(comm, Block(SMALL), options)
        rows = length // comm.size if options.sequence else length
        block(torch.randn(rows, batch, SMALL.width, requires_grad=True)).sum().backward()

    return run(program, size).traffic.sum(1)


activation = 64 * 64 * SMALL.width * 4
sent = messages_of_layer(Options())
print(f"an activation has {activation:,} bytes; each of two ranks sends {sent[0]:,}: {sent[0] / activation:g} times")
plot.tensor_layer(2, "Each rank has half of the matrices and heads, and repeats what is grey")
None

# %% tags=["checked"]
# checked: four all-reduces; on two ranks each sends as many bytes as the activation has
assert sent.tolist() == [4 * activation] * 2

# %% [markdown]
# <details><summary>Why</summary>
#
# There are two in the forward pass, and two in the backward pass. Attention and MLP each have one f and one g. With t
# ranks, an all-reduce of n bytes makes each rank send 2 n (t - 1) / t bytes (lesson 05), so n bytes with two ranks.
#
# </details>
#
# The figure above shows this layer. The collective calls of the backward pass are in parentheses. Layer norms, dropout
# and additions are grey: every rank repeats them for all tokens.
#
# Where all ranks hold the same activations, dropout must drop the same elements on all of them. In the heads, which
# differ from rank to rank, it must drop different ones. So each rank has two generators of random numbers. One has the
# same seed on all ranks, the other a different seed on each. The initial weights should not depend on the number of
# ranks. So every rank draws the weights of the whole layer with the same seed, and keeps only its part.
#
# Exercise [`e11_attention_heads`](../exercises/e11_attention_heads.py): compute attention with each rank's heads.

# %% tags=["nbval-ignore-output", "remove-output"]
# !mpcourse check e11_attention_heads

# %% [markdown]
# ## What a layer keeps
#
# Between forward and backward, a layer keeps activations. Korthikanti and others count the bytes of activations in
# 16-bit precision. There are b sequences of s tokens, the width is h, attention has a heads, and t GPUs share the
# layer. A tensor of s b h elements takes 2 s b h bytes. A dropout mask takes one byte for each element. The next cell
# lists the tensors of one layer of the model with 22 billion parameters, on one GPU and on eight.

# %%
S, B, H, HEADS = 2048, 4, 6144, 64  # the model with 22 billion parameters
SBH = S * B * H
alone, of_eight = (kept_by_layer(S, B, H, HEADS, size) for size in (1, 8))
print("                                       bytes / (s b h)   on 8 GPUs")
for whole, part in zip(alone, of_eight):
    print(f"{whole.what:38} {whole.nbytes / SBH:10.2f} {part.nbytes / SBH:16.2f}")
print(f"{'sum':38} {sum(r.nbytes for r in alone) / SBH:10.2f} {sum(r.nbytes for r in of_eight) / SBH:16.2f}")


# %% [markdown]
# Three tensors are around softmax: its result, the mask of its dropout, and the result of its dropout. Each has a s² b
# elements, so together they take 5 a s² b bytes. The other rows add up to the 34 s b h of lesson 03. This gives the
# formula of the paper, s b h (34 + 5 a s / h).
#
# On eight GPUs, the sum is divided by only 5.3. Six tensors are not divided: the inputs of the two layer norms, the
# inputs of the two layers that are cut by columns, and the dropout masks after attention and after the MLP. These
# tensors **between the products** take 10 s b h bytes, 38 % of the sum.
#
# The next cell runs the layer on eight virtual A100s, and counts what GPU 0 holds after the forward pass.
# `over_devices` runs a program once for each GPU, as `run` does for ranks.

# %%
def layer_on_gpus(size, options, seconds=None, shape=(S, B, H, HEADS), gpu=("A100-SXM4", "NVLink 3")):
    """Return of a layer on `size` GPUs: bytes that GPU 0 keeps, seconds forward and backward."""
    length, batch, width, heads = shape

    def program(comm):
        with torch.device(comm.device):
            drawn = Generators(comm, 0, comm.device)
            block = ParallelBlock(comm, Block(Shape(9, length, width, heads, 1)), options, drawn).half()
            rows = length // comm.size if options.sequence else length
            x = torch.empty(rows, batch, width, dtype=torch.half, requires_grad=True)
        for p in block.parameters():
            p.grad = torch.empty_like(p)
        torch.ones(8, 8, device=comm.device) @ torch.ones(8, 8, device=comm.device)  # takes cuBLAS's workspace
        before, start = box.ledger.used[comm.index], comm.synchronize()
        y = block(x)
        kept, middle = box.ledger.used[comm.index] - before - y.nbytes + x.nbytes, comm.synchronize()
        y.backward(torch.empty_like(y))
        return kept, middle - start, comm.synchronize() - middle

    with virtual_gpus(size, *gpu, dry=True, record=False) as box:
        return over_devices(program, seconds)[0]


PAPER = partial(Options, dropout=0.1, fused=False)  # attention written out, with dropout
kept, *_ = layer_on_gpus(8, PAPER())
print(f"GPU 0 keeps {kept / SBH:.2f} s b h bytes; by the formula {10 + 24 / 8 + 5 * HEADS * S / (8 * H):.2f}")

# %% [markdown]
# ## Sequence parallelism
#
# Layer norm, dropout and addition treat each token by itself. So the ranks can divide the **tokens** among themselves
# there: rank r has the r-th part of every sequence. This is **sequence parallelism** [1]. Before the split layers, an
# all-gather gives every rank all tokens. Behind them, a reduce-scatter sums the partial results and gives each rank the
# sums for its own tokens.

# %%
plot.tensor_layer(2, "Between the split layers, each rank has its own tokens", sequence=True)
None

# %% [markdown]
# A rank keeps only its own tokens of the gathered input for the backward pass.
#
# **Predict first.** With sequence parallelism, does a rank send more bytes for a layer, fewer, or equally many?

# %% tags=["answer"]
# answer
of_sequence = messages_of_layer(Options(sequence=True))
print(f"each of two ranks sends {of_sequence[0]:,} bytes, {of_sequence[0] / sent[0]:g} times as many as without")

# %% tags=["checked"]
# checked: ten halves of an all-reduce instead of eight
assert of_sequence.tolist() == (sent * 10 / 8).tolist()

# %% [markdown]
# <details><summary>Why</summary>
#
# A ring all-reduce is a reduce-scatter followed by an all-gather (lesson 05). In the forward pass, the two halves are
# made at different places, but together send the same bytes. In the backward pass, a layer that is cut by columns needs
# all tokens for the gradient of its weights, but the rank has kept only its own tokens. So it gathers them once more,
# and sends ten halves of an all-reduce instead of eight. The two additional all-gathers can run while the input's
# gradient is computed.
#
# </details>
#
# A parameter of a layer norm is the same on all ranks. But with sequence parallelism, each rank computes the gradient
# of this parameter from its own tokens only. The same holds for the biases behind a layer that is cut by rows, and for
# the position embeddings. So these gradients must be summed over the ranks after the backward pass. Without this sum,
# the ranks' layer norms slowly diverge, without an error message.
#
# Exercise [`e11_sequence`](../exercises/e11_sequence.py): write the all-gather and the reduce-scatter, with their
# backward passes, and sum these gradients.

# %% tags=["nbval-ignore-output", "remove-output"]
# !mpcourse check e11_sequence

# %% [markdown]
# Now everything is divided by the number of GPUs. The largest tensors left are the three around softmax. Selective
# recomputation (lesson 03) drops these three, and computes them again from queries and keys in the backward pass.
# **Full recomputation** keeps only the layer's input. Here it is used without sequence parallelism, so every GPU keeps
# the whole input. The other tensors in the figure are split over the ranks even without sequence parallelism.

# %%
WAYS = {
    "tensor parallelism": PAPER(),
    "+ sequence parallelism": PAPER(sequence=True),
    "+ selective recomputation": PAPER(sequence=True, recompute="selective"),
    "full recomputation": PAPER(recompute="full"),
}
formulas, traces = {}, {}
for name, how in WAYS.items():
    formulas[name] = Counter()
    for row in kept_by_layer(S, B, H, HEADS, 8, sequence=how.sequence, recompute=how.recompute):
        formulas[name][row.kind] += row.nbytes / 1e9
    traces[name] = layer_on_gpus(8, how)[0] / 1e9
plot.parts(
    formulas, "GB on each of 8 GPUs", "What a layer keeps, by formula and on virtual GPUs", traces, "virtual GPUs"
)
None

# %% tags=["checked"]
# checked: the trace is within 2 % of the closed form in every row
assert all(abs(traces[name] / sum(formulas[name].values()) - 1) < 0.02 for name in traces)

# %% [markdown]
# The marks show what the virtual GPUs hold, which agrees with the formulas to within 2 %. With sequence parallelism and
# selective recomputation, a layer keeps 34 s b h / 8 bytes on each GPU, and 48 layers keep 10 GB. With tensor
# parallelism alone, they would keep 64 GB.
#
# ## How long a layer takes
#
# The paper measured this layer on eight A100s in five ways. Our prediction uses the data sheet, measured times of
# matrix products, and the measured bandwidth of NCCL's all-reduce inside a machine. Nothing was fitted to this table.

# %%
print("milliseconds              forward:  predicted, published      backward:  predicted, published")
for (name, options), published in zip(
    (
        ("tensor parallelism", PAPER()),
        ("with sequence parallelism", PAPER(sequence=True)),
        ("with full recomputation", PAPER(recompute="full")),
        ("with selective recomputation", PAPER(recompute="selective")),
        ("with sequence and selective", PAPER(sequence=True, recompute="selective")),
    ),
    KORTHIKANTI_LAYER,
):
    _, *ours = (1e3 * value for value in layer_on_gpus(8, options))
    both = [f"{o:5.1f}  {p:5.1f} ({o / p - 1:+4.0%})" for o, p in zip(ours, published)]
    print(f"{name:28}       {both[0]}               {both[1]}")

# %% tags=["checked"]
# checked: with full recomputation, backward takes longer by about a forward pass; overlapped, it takes 10.9 ms
*_, forward, backward = layer_on_gpus(8, PAPER())
assert abs((layer_on_gpus(8, PAPER(recompute="full"))[2] - backward) / forward - 0.94) < 0.02
assert round(1e3 * layer_on_gpus(8, PAPER(overlap=True))[2], 1) == 10.9

# %% [markdown]
# The predicted times are between 1 % and 12 % too long. Full recomputation repeats the forward pass with its
# all-reduces in the backward pass. Two things may explain the error. Megatron-LM computes dropout and addition in one
# kernel, and our layer takes several. In Megatron-LM's backward pass, the all-reduce runs while the weights' gradients
# are computed, and ours waits for it. (With `overlap=True`, ours does not wait, and backward takes 10.9 ms in the first
# row.)
#
# With m micro-batches and p pipeline stages, an iteration of L layers takes (m + p - 1) L / p times as long as a layer
# (lesson 04). With v chunks on each stage, the idle time is divided by v.

# %%
print("               full recomputation              sequence parallelism, selective recomputation")
for row in KORTHIKANTI:
    text = f"{row.name:5} {row.gpus:3} GPUs "
    for options, published in zip((PAPER(recompute="full"), WAYS["+ selective recomputation"]), row.seconds):
        _, forward, backward = layer_on_gpus(8, options, shape=(S, row.microbatch, row.width, row.heads))
        steps = row.batch / row.microbatch + (row.pipeline - 1) / row.chunks
        seconds = steps * row.layers / row.pipeline * (forward + backward)
        text += f"   {seconds:6.2f} s, published {published:6.2f} ({round(100 * (seconds / published - 1)):+3} %)"
    print(text)


# %% [markdown]
# The predicted times are up to 11 % too short. They leave out the embedding, the loss, messages between stages and the
# optimizer step. Our predicted layer times are a little too long, which hides part of this error.
#
# ## Why 8?
#
# Model FLOPs **utilisation** (MFU, lesson 01) leaves out FLOPs that are computed again. A layer then has
# 72 b s h² (1 + s / (6h)) FLOPs, forward and backward. We predict its utilisation for 1 to 16 GPUs, with sequence
# parallelism and selective recomputation. Up to eight GPUs are in one machine. For 16 GPUs in two machines, we assume
# that each GPU has a network card of 25 GB/s. A reduce-scatter first sums inside each machine. Then each GPU adds up an
# eighth of the result with one GPU of the other machine. An all-gather goes the opposite way.
#
# **Predict first.** From 8 to 16 GPUs, the utilisation falls from 44 % to 30 %. Replace the network between the two
# machines by NVLink, so that all 16 GPUs are in one machine. How much of the loss disappears?

# %% tags=["answer"]
# answer
def utilisation(size, seconds=None, shape=(S, B, H, HEADS), gpu=("A100-SXM4", "NVLink 3"), peak=312e12):
    length, batch, width, _ = shape
    _, forward, backward = layer_on_gpus(size, WAYS["+ selective recomputation"], seconds, shape, gpu)
    flops = 72 * batch * length * width**2 * (1 + length / (6 * width))
    return 100 * flops / (size * peak * (forward + backward))


machines = Machines.named(16, "A100-SXM4")
wires = {
    "messages that take no time": lambda size, nbytes: 0.0,
    "NVLink everywhere": None,
    "two machines, a card for each GPU": lambda size, nbytes: machines.sum_over(size, 1, nbytes),
    "two machines, one ring over a card each": lambda size, nbytes: machines.sum_over(size, 1, nbytes, one_ring=True),
}
sizes, lines = [1, 2, 4, 8, 16], {}
for wire, seconds in wires.items():
    inside = [nan, nan, nan, *lines.get("NVLink everywhere", [])[3:4]]  # up to 8 GPUs are in one machine
    if "two machines" not in wire:
        inside = [utilisation(size, seconds) for size in sizes[:-1]]
    lines[wire] = [*inside, utilisation(16, seconds)]
    print(f"16 GPUs, {wire}: {lines[wire][-1]:.0f} %")
for size in sizes[1:]:
    print(f"{size:2} GPUs: a GPU sends {sent_by_layer(S, B, H, size, 2, sequence=True) / 1e6:.0f} MB for a layer")
title = "From 8 to 16 GPUs, utilisation falls even over NVLink"
plot.lines(sizes, lines, "GPUs that share a layer", "utilisation (%)", title)
None

# %% tags=["checked"]
# checked: NVLink gives back 3 of 14 points, or 5 of 16 where the network reaches 70 %; a layer takes 21 and 14 ms
from dataclasses import replace

eight, (free, nvlink, cards, ring) = lines["NVLink everywhere"][3], (line[-1] for line in lines.values())
assert 14 < eight - cards < 14.5 and 2.5 < nvlink - cards < 3.5 and 56 < free < 57 and 10 < ring < 10.5
slower = replace(machines, between=replace(machines.between, bandwidth=0.7 * 25e9))
slow = utilisation(16, lambda size, nbytes: slower.sum_over(size, 1, nbytes))
assert 15.5 < eight - slow < 16.5 and 4.5 < nvlink - slow < 5.5
took = [round(1e3 * sum(layer_on_gpus(size, WAYS["+ selective recomputation"])[1:])) for size in (8, 16)]
assert took == [21, 14]


# %% [markdown]
# <details><summary>Why</summary>
#
# NVLink recovers only 3 of the 14 percentage points. So the network explains the smaller part of the loss. (We assume
# that the network reaches its full rate, and NVLink 70 %, as measured with NCCL. If the network also reached 70 %,
# NVLink would recover 5 of 16 points.)
#
# With 16 GPUs, each GPU computes half as much as with 8, but sends 944 MB for a layer, more than the 881 MB with 8. So
# messages take a larger share of the time, even over NVLink, where a layer takes 14 ms on 16 GPUs and 21 ms on 8. The
# products become narrower, too, but that costs little: if messages took no time, 16 GPUs would reach 57 %.
#
# If each machine has only one network card, and one ring over all 16 GPUs goes through it, the utilisation drops to
# 10 %.
#
# </details>
#
# The next figure shows which share of one GPU's utilisation is left. Move the sliders: which layers lose least?

# %% tags=["nbval-ignore-output"]
def share_left(sequences, gpu, sizes=sizes):
    link, shares = {"A100-SXM4": "NVLink 3", "H100-SXM": "NVLink 4"}[gpu], {}
    for width in (2048, 6144, 24576):
        found = [utilisation(size, None, (S, sequences, width, 64), (gpu, link)) for size in sizes]
        shares[f"width {width}"] = [100 * each / found[0] for each in found]
    return shares


def try_it(sequences=4, gpu="A100-SXM4"):
    title = f"Wide layers keep more of their utilisation ({gpu}, b = {sequences})"
    return plot.lines(sizes, share_left(sequences, gpu), "GPUs, over NVLink", "% of one GPU's utilisation", title)


plot.sliders(try_it, sequences=[1, 4], gpu=["A100-SXM4", "H100-SXM"])

# %% tags=["checked"]
# checked: what 16 GPUs keep, by width; one sequence keeps less, and so do H100s from a width of 6144 on
cases = ((4, "A100-SXM4"), (1, "A100-SXM4"), (4, "H100-SXM"))
left, few, fast = ([shares[-1] for shares in share_left(*case, sizes=(1, 16)).values()] for case in cases)
assert [round(share) for share in left] == [48, 56, 82]
assert all(less < 0.97 * more for less, more in zip([*few, *fast[1:]], [*left, *left[1:]])) and fast[0] > left[0]

# %% [markdown]
# Wide layers lose least: 16 A100s keep 82 % of one A100's utilisation with a width of 24 576, and 48 % with 2048. One
# sequence keeps less than four, mainly because the latency of a message is the same for few bytes. From a width of 6144
# on, H100s keep less than A100s: they compute three times as fast, but send less than twice as fast.
#
# So 16 GPUs use each GPU less well than 8, even over NVLink. Then why not 4, which reach 52 %? On equally many GPUs,
# the pipeline then has twice as many stages. The next cell compares both for the four models. It divides a layer's
# utilisation by 1 + (p - 1) / (v m), which accounts for the bubble (lesson 04). It also counts what the first stage
# holds on each GPU. An A100 has 80 GiB, which are 85.9 GB.
#
# - **Model states** take 18 bytes a parameter: 2 for itself, 4 for its gradient (here in float32), and 12 for Adam
#   (lesson 10). A layer has 12 h² parameters, and the embedding 51 200 h.
# - **Activations** take 34 s b h / t bytes for each layer and each micro-batch in flight. With 1F1B, p are in flight,
#   and with v > 1 chunks p + (p - 1) / v (lesson 04).

# %%
found = {}
for row in KORTHIKANTI:
    for tensor, stages, sequences in ((8, row.pipeline, row.microbatch), (4, 2 * row.pipeline, 1)):
        layers, chunks = ceil(row.layers / stages), min(row.chunks, row.layers // stages)
        reached = utilisation(tensor, None, (S, sequences, row.width, row.heads))
        reached /= 1 + (stages - 1) / (chunks * row.batch / sequences)
        reached *= row.layers / stages / layers  # the largest stage sets the pace
        states = 18 * (12 * row.width**2 * layers + 51_200 * row.width) / tensor / 1e9
        in_flight = stages + (stages - 1) / chunks * (chunks > 1)
        activations = 34 * S * sequences * row.width / tensor * layers * in_flight / 1e9
        found[row.name, tensor] = reached, states + activations
        print(f"{row.name:4} {tensor} GPUs x {stages:3} stage(s) of {layers:2} layer(s): {reached:.0f} %,", end=" ")
        print(f"{states:.0f} + {activations:.0f} = {states + activations:3.0f} GB of 85.9 GB")

# %% tags=["checked"]
# checked: what 4 GPUs a layer lack: a short pipeline for 22B, memory for 530B and 1T, and nothing for 175B
assert [name for name, tensor in found if found[name, tensor][1] > 85.9] == ["530B", "1T"]
assert found["22B", 4][0] < 39 and found["22B", 8][0] > 44 and found["175B", 4][0] > found["175B", 8][0] + 4
assert 44.5 < utilisation(4, None, (S, 1, 6144, 64)) / (1 + 1 / (4 * 4)) < 45.5
assert [tensor for *_, tensor in NEMO_GPT[3].grids.values()] == [8, 4]

# %% [markdown]
# With a trillion parameters and 4 GPUs for each layer, the first stage does not fit. With 530 billion, 105 layers
# cannot be divided equally among 70 stages. Stages of 2 layers set the pace, and do not fit at the beginning of the
# pipeline. With 22 billion, memory suffices, but the batch has only 4 sequences, so the bubble costs more than 4 GPUs
# gain. (With 4 chunks, they would reach 45 %.) With 175 billion, hardly anything speaks against 4. They are faster, and
# leave 7 GB for NCCL's buffers and for what a layer needs while it computes. NVIDIA's configuration for this size,
# which also shards the optimizer state, had 8 in January 2023, and 4 in June.
#
# **More GPUs for each layer lose more time to messages. Fewer GPUs need more memory each, or a longer pipeline.** By
# our count, 8 were needed for the two largest models, and close to the best for the others.
#
# ## A vocabulary in parts
#
# The embedding matrix and the head's matrix each have one vector of width h for each of the 51 200 tokens. Each rank
# has the vectors of some tokens. For a token whose vector is on another rank, the embedding returns zeros. The sum over
# the ranks is the embedding of all tokens.
#
# On each rank, the head computes the logits of the rank's own part of the vocabulary. With logits z and target y, the
# loss of one position is log Σⱼ exp(zⱼ) - z_y.
#
# **Predict first.** The model with 22 billion parameters has 8192 positions in a micro-batch. Gathering all logits in
# float32 would give every rank 1.7 GB. How many numbers for each position must a rank contribute to the loss instead?

# %% tags=["answer"]
# answer
torch.manual_seed(0)
logits, targets = 10 * torch.randn(100, 13), torch.randint(13, (100,))
whole = F.cross_entropy(logits, targets)


def loss_in_parts(comm):
    own = logits.tensor_split([13 * r // comm.size for r in range(1, comm.size)], dim=1)[comm.rank]
    return vocabulary_loss(comm, own, targets, 13).item()


done = run(loss_in_parts, 2)
numbers = done.traffic.sum(1)[0] / 4 / 100
print(f"two ranks: {done.results[0]:.6f}, cross_entropy: {whole:.6f}; each sends {numbers:g} numbers a position")


# %% [markdown]
# <details><summary>Why</summary>
#
# A rank contributes three numbers: the largest of its logits, the sum of its exponentials, and the target's logit (0 if
# another rank has it). The largest logit of all ranks is subtracted from all logits, so that no exponential overflows.
# It must be the same on all ranks, or their sums of exponentials could not be added. The gradient is the softmax, with
# 1 subtracted at the target. It needs no message.
#
# For 8192 positions, three numbers take 98 kB.
#
# </details>
#
# The parts need not have the same size. (Megatron-LM pads the vocabulary so that they have.)
#
# Exercise [`e11_vocabulary_loss`](../exercises/e11_vocabulary_loss.py): compute loss and gradient.

# %% tags=["nbval-ignore-output", "remove-output"]
# !mpcourse check e11_vocabulary_loss

# %% [markdown]
# ## Behind computation
#
# So far, a rank waits for every message. But the product after an all-gather can begin with the rank's own tokens, and
# go on with those of each other rank as they arrive. Before a reduce-scatter, a rank can send its partial result for
# one rank while it computes the one for the next. This is **asynchronous tensor parallelism** [3, 4].

# %%
def milliseconds(overlap, recompute):
    options, shape = Options(sequence=True, overlap=overlap, recompute=recompute), (8192, 1, 8192, 64)
    _, forward, backward = layer_on_gpus(8, options, shape=shape, gpu=("H100-SXM", "NVLink 4"))
    return 1e3 * (forward + backward)


print("a layer of width 8192 on 8 H100s")
for recompute in ("none", "full"):
    waiting, behind = (milliseconds(overlap, recompute) for overlap in (False, True))
    print(f"recomputation {recompute}: {waiting:4.1f} ms -> {behind:.1f} ms, {waiting / behind:.2f} times as fast")
print(f"torchtitan, Llama 70B on 256 H100s: 597.3 -> 652.4 tokens/s a GPU, {652.4 / 597.3:.2f} times as fast")

# %% [markdown]
# torchtitan measured a gain of 9 %, with full recomputation, for which we predict 14 %. But it measured a whole
# training step with 16 sequences and FSDP, on H100s limited to 500 W. And in our prediction, messages do not slow
# products down.
#
# ## On real ranks
#
# One process and two processes train the small GPT with sequence parallelism. The losses agree.

# %% tags=["nbval-ignore-output"]
Path("scratch").mkdir(exist_ok=True)

# %% tags=["nbval-ignore-output"]
# %%writefile scratch/tensor.py
import torch
from mpi4py import MPI

from mpcourse import tensor_parallel as tp
from mpcourse.data.text import course_text, draw_batch
from mpcourse.models.gpt import SMALL

comm = MPI.COMM_WORLD
torch.set_num_threads(1)
model = tp.parallel_gpt(SMALL, comm, tp.Options(sequence=True))
optimizer = torch.optim.AdamW(model.parameters(), 3e-3)
draw = torch.Generator().manual_seed(0)
for step in range(31):
    x, target = draw_batch(course_text().train, 16, SMALL.length, draw)
    optimizer.zero_grad()
    loss = tp.vocabulary_loss(comm, model(x), target.T, SMALL.vocabulary)
    loss.backward()
    tp.sum_partial_gradients(comm, model)
    optimizer.step()
    if comm.rank == 0 and step % 10 == 0:
        print(f"{comm.size} rank(s), step {step:2}: loss {loss.item():.4f}")

# %%
# !mpirun -np 1 python scratch/tensor.py
# !mpirun -np 2 python scratch/tensor.py

# %% [markdown]
# ## The same in PyTorch
#
# `parallelize_module` takes a plan, which says for each layer how it is cut. `ColwiseParallel` and `RowwiseParallel`
# cut a linear layer's weight, and `SequenceParallel` runs a layer norm on each rank's own tokens.
# `input_layouts=Shard(1)` says that the input is cut by tokens, so PyTorch gathers it. With `output_layouts=Shard(1)`,
# PyTorch reduce-scatters the result, so that each rank gets its own tokens. `model.py` is an ordinary layer.

# %% tags=["nbval-ignore-output"]
# %%writefile scratch/model.py
import torch.nn.functional as F
from torch import nn


class Layer(nn.Module):
    def __init__(self, width, head):
        super().__init__()
        self.head = head
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.q, self.k, self.v, self.out = (nn.Linear(width, width) for _ in range(4))
        self.first, self.second = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):  # (batch, length, width), or this rank's part of the length
        y = self.norm1(x)
        q, k, v = (part(y).unflatten(2, (-1, self.head)).transpose(1, 2) for part in (self.q, self.k, self.v))
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.second(F.gelu(self.first(self.norm2(x))))


# %% tags=["nbval-ignore-output"]
# %%writefile scratch/parallelized.py
import time

import model
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard
from torch.distributed.tensor.debug import CommDebugMode
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, SequenceParallel, parallelize_module

mesh = init_device_mesh("cpu", (2,))  # on GPUs "cuda"
torch.manual_seed(0)  # the same weights and the same x on all ranks
layer, x = model.Layer(64, 16).double(), torch.randn(4, 32, 64, dtype=torch.float64)
plan = dict.fromkeys(("norm1", "norm2"), SequenceParallel())
plan |= dict.fromkeys(("q", "k", "v", "first"), ColwiseParallel(input_layouts=Shard(1)))
plan |= dict.fromkeys(("out", "second"), RowwiseParallel(output_layouts=Shard(1)))
parallelize_module(layer, mesh, plan)
with CommDebugMode() as calls:
    layer(x.chunk(2, dim=1)[dist.get_rank()]).square().sum().backward()
norm = sum(p.grad.full_tensor().square().sum() for p in layer.parameters())
if dist.get_rank() == 0:
    print(f"squares of all gradients: {norm.item():.6f}, {calls.get_total_counts()} collective calls")
time.sleep(0.1)  # gloo's threads free their tensors; while Python exits, they would abort it
dist.destroy_process_group()

# %%
# !torchrun --local-addr localhost --nproc-per-node 2 scratch/parallelized.py 2> scratch/torchrun.log

# %%
import sys

sys.path.insert(0, "scratch")
import model

torch.manual_seed(0)
plain, x = model.Layer(64, 16).double(), torch.randn(4, 32, 64, dtype=torch.float64)
plain(x).square().sum().backward()
norm = sum(p.grad.square().sum().item() for p in plain.parameters())
print(f"one process:              {norm:.6f}")

# %% tags=["checked"]
# checked: our layer on two virtual ranks has the same sum of squares
from mpcourse.tensor_parallel import sharded_parameters, sum_partial_gradients

block = Block(Shape(9, 32, 64, 4, 1)).double()
state = plain.state_dict()
for name in ("weight", "bias"):
    state[f"qkv.{name}"] = torch.cat([state.pop(f"{part}.{name}") for part in "qkv"])
block.load_state_dict(state)


def ours(comm):
    layer = ParallelBlock(comm, block, Options(sequence=True))
    own = x.transpose(0, 1).chunk(comm.size)[comm.rank]
    layer(own).square().sum().backward()
    sum_partial_gradients(comm, layer)
    split = {id(p) for p in sharded_parameters(layer)}
    squares = {True: 0.0, False: 0.0}
    for p in layer.parameters():
        squares[id(p) in split] += p.grad.square().sum().item()
    return comm.allreduce(squares[True]) + squares[False]


assert all(abs(both / norm - 1) < 1e-12 for both in run(ours, 2).results)

# %% [markdown]
# The results agree. Our layer on two ranks gives the same sum, too. PyTorch marks the gradients of the layer norms as
# `Partial`, and sums them over the ranks each time they are used.
#
# PyTorch makes 12 collective calls, and our layer makes 10. Each of them sends half as much as an all-reduce. There are
# two differences. PyTorch keeps the gathered tokens for the backward pass. So it does not gather them again as our
# layer does, but holds more. And with this plan, it gathers the tokens separately for queries, keys and values.
# (torchtitan gathers them once, with `PrepareModuleInput`, which makes 8 calls.)
#
# ## The reference implementation

# %%
from mpcourse.common.source import reference
from mpcourse.tensor_parallel import ColumnParallelLinear, RowParallelLinear, copy_in, sum_out

reference(copy_in, sum_out, ColumnParallelLinear, RowParallelLinear)

# %% [markdown]
# ## What production systems call it
#
# | here | there |
# |---|---|
# | `copy_in`, `sum_out` | Megatron-LM's `copy_to_tensor_model_parallel_region`, `reduce_from_...` |
# | `ColumnParallelLinear`, `RowParallelLinear` | the same in Megatron-LM; `ColwiseParallel`, `RowwiseParallel` |
# | `Options(sequence=True)` | `--sequence-parallel`; `SequenceParallel` |
# | `recompute="selective"` | `--recompute-granularity selective` |
# | `Options(overlap=True)` | `--tp-comm-overlap`; torchtitan's asynchronous tensor parallelism |
# | `Generators` | Megatron-LM's `CudaRNGStatesTracker` |
# | `vocabulary_loss` | `vocab_parallel_cross_entropy`; `loss_parallel` |
#
# 1. Vijay Korthikanti and others, *Reducing Activation Recomputation in Large Transformer Models*, 2022,
#    <https://arxiv.org/abs/2205.05198>, tables 3 to 5
# 2. Mohammad Shoeybi and others, *Megatron-LM: Training Multi-Billion Parameter Language Models Using Model
#    Parallelism*, 2019, <https://arxiv.org/abs/1909.08053>
# 3. Shibo Wang and others, *Overlap Communication with Dependent Computation via Decomposition in Large Deep Learning
#    Models*, 2023, <https://doi.org/10.1145/3567955.3567959>
# 4. PyTorch team, *torchtitan*, 2025, `benchmarks/asyncTP_llama3_h100_2025-06_torchtitan.md`,
#    <https://github.com/pytorch/torchtitan>
#
# ## Problems
#
# **1.** A model has 70 billion parameters, 80 layers and a width of 8192. A micro-batch is one sequence of 8192 tokens.
# Tensor and sequence parallelism use 8 GPUs. Attention is fused, and there is no dropout. How many GB of activations
# does a GPU keep for all layers?
#
# **2.** How many tokens must a micro-batch have, so that the all-reduces of a layer of width 8192 on 8 H100s take less
# than a tenth of its products' time? Leave out the products inside attention. Assume half of 989 TFLOP/s, and 450 GB/s.

# %% tags=["answer"]
# answer
nbytes = 32 * 8192 * 8192 / 8  # 34, without the two masks of dropout
print(f"1. 32 s b h / t = {nbytes / 1e9:.2f} GB a layer, {80 * nbytes / 1e9:.0f} GB for 80 layers")
products = 72 * 8192**2 / 8 / (989e12 / 2)
messages = 4 * 2 * 7 / 8 * 8192 * 2 / 450e9
print(f"2. for each token, {1e9 * products:.0f} ns of products and {1e9 * messages:.0f} ns of messages;")
print(f"   the messages take less than a tenth from a width of {10 * messages / products * 8192:,.0f} on")

# %% [markdown]
# <details><summary>Why</summary>
#
# No number of tokens is enough, because FLOPs and bytes are both proportional to it. (This leaves out latency.) The
# width decides. Products grow with its square, and messages in proportion to it.
#
# </details>
#
# ## What you found
#
# - Two functions at the border of the split layers, f and g, make a layer on many ranks compute what one process
#   computes. A layer needs two all-reduces forward and two backward.
# - A layer keeps s b h (34 + 5 a s / h) bytes. Tensor parallelism divides all but 10 s b h.
# - Sequence parallelism divides these, too, for 1.25 times as many bytes sent. The gradients of the layer norms must be
#   summed.
# - The predicted layer times are within 12 % of those measured on eight A100s, in all five ways, and the iterations of
#   four models within 12 %.
# - From 8 to 16 GPUs, utilisation falls from 44 % to 30 %, because each GPU computes half as much, but sends about as
#   much as before. Where each GPU has a network card, the network between machines is the smaller part of this loss.
# - With 4 GPUs for each layer, and twice as many stages, the models of 530 billion and one trillion parameters do not
#   fit. For 22 billion, the bubble speaks against 4, and for 175 billion hardly anything.
# - With `parallelize_module`, PyTorch computes gradients with the same sum of squares as one process.
#
# Next comes [lesson 12](12_all_together.ipynb), in which tensor parallelism is one of three axes of a grid.
