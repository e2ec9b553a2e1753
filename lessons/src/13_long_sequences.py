# %% [markdown]
# # 13 Long sequences
#
# **What if the sequence does not fit?** About 55 minutes to read, and 115 for its exercises.
#
# In 2024 Zilin Zhu measured attention over eight GPUs, which share the tokens of one long sequence [1]. The ideal is
# eight times the speed of one GPU. With plain **ring attention**, eight H800s reached 52 % of it in the forward pass.
# With another division of the tokens, called **zigzag**, they reached 85 %. The GPUs, the links, the number of tokens
# and the result are the same. Where did the other half go?
#
# After this lesson you can
#
# - compute attention for one block of keys at a time, forward and backward;
# - let ranks share the tokens of a sequence, and count what they send;
# - divide the tokens so that all ranks have equally much to do in each step;
# - say from which length on messages cost no time, and how long a sequence fits;
# - choose among ring attention, gathered keys, and attention by heads;
# - do this in PyTorch.
#
# | symbol | meaning |
# |---|---|
# | p, n | ranks that share a sequence; bytes of one rank's keys and values |
# | c, d | tokens of a rank; elements of a head |
# | h, L | width and layers of the model |
# | F, B | FLOP/s of a GPU; bytes a second of a link |

# %% tags=["nbval-ignore-output", "remove-cell"]
from mpcourse.course.learner import panel

panel.show("13_long_sequences")

# %% tags=["nbval-ignore-output"]
# %config InlineBackend.print_figure_kwargs = {"dpi": 110}
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F

from mpcourse import plot
from mpcourse.context_parallel import (
    SharedSequence,
    block,
    contiguous,
    gathered_attention,
    mean_token_loss,
    merge,
    ring_attention,
    ulysses_attention,
    zigzag,
)
from mpcourse.context_parallel.costs import causal_share, hidden_from, sent_by_attention
from mpcourse.data.published_contexts import FLASH_ON_ONE, RING_FLASH_ATTENTION, RING_TABLE_3, TORCHTITAN_8B
from mpcourse.tensor_parallel import over_devices
from mpcourse.virtual import LINKS, run, virtual_gpus

torch.set_num_threads(1)

# %% [markdown]
# ## Attention, one block of keys at a time
#
# For one query q, attention computes a score s = q · k / √d for each key k. Its result is the mean of the values v with
# the weights e^s / Σ e^s. Both sums run over all keys. If the keys come in blocks, we need a way to merge the results
# of two blocks.
#
# For each query, a block returns two things: its own result, and the logarithm of its own Σ e^s, which we call **lse**
# (log of the sum of exponentials). Let two blocks have the results o₁ and o₂, with a = lse₁ and b = lse₂. Block 2 holds
# the share e^b / (e^a + e^b) of the total weight. So the merged result is
#
# o = o₁ + (o₂ - o₁) · sigmoid(b - a), with lse = log(e^a + e^b).
#
# This is the **online softmax** [2]. The sigmoid lies between 0 and 1, and takes only b - a, so we never compute e^a or
# e^b, which could overflow. `torch.logaddexp` computes the new lse without overflow. FlashAttention [3] uses the same
# method inside one GPU. The order of merging does not matter. To show this, the cell merges the blocks in random order.

# %%
torch.manual_seed(0)
q, k, v = (torch.randn(1, 2, 96, 16, dtype=torch.float64) for _ in range(3))  # (batch, heads, tokens, head)
whole = F.scaled_dot_product_attention(200 * q, k, v)
for size in (96, 32, 5):
    blocks = [block(200 * q, *keys_and_values) for keys_and_values in zip(k.split(size, 2), v.split(size, 2))]
    first, *others = torch.randperm(len(blocks))
    out, lse = blocks[first]
    for other in others:
        merge(out, lse, *blocks[other])
    print(f"blocks of {size:2} keys: off by {(out - whole).abs().max():.0e}, largest lse {lse.max():.0f}")

# %% [markdown]
# The largest lse is far above 709, beyond which exp overflows in float64, and the results still agree.
#
# Now consider the backward pass. Let lse now be the logarithm of Σ e^s over all keys, which the forward pass has saved.
# Then w = e^(s - lse) is a key's weight in the whole softmax, so a block computes its weights without the other blocks.
# Let o be the result, and g its gradient. The gradient of the score of key j is
#
# w_j (g · v_j - Σ_i w_i g · v_i).
#
# The sum runs over all keys. But Σ_i w_i v_i is the result o, so the sum equals g · o, which every block can compute.
# So no block needs the keys or values of another block.
#
# Exercise [`e13_online_softmax`](../exercises/e13_online_softmax.py): write a block, the merge, and a block's
# gradients.

# %% tags=["nbval-ignore-output", "remove-output"]
# !mpcourse check e13_online_softmax

# %% [markdown]
# ## The ring
#
# In a transformer, only attention needs several tokens at once. Layer norms, linear layers, dropout and the loss treat
# each token by itself. So the ranks can divide the tokens of every sequence among themselves in all layers. This is
# **context parallelism**. Each rank computes with all weights, and an all-reduce adds up their gradients. (The weights
# may still be stored in shards, as with FSDP.)
#
# Attention still needs the keys and values of other ranks. In ring attention [4], every rank keeps its queries. There
# are p steps. In each step, a rank computes attention to the keys and values that it holds. In all steps but the last,
# it also sends them to the next rank, and receives those of the previous rank.
#
# **Predict first.** Keys and values have n bytes on each rank, in float64. A rank sends (p - 1) n bytes in the forward
# pass. How many does it send in the backward pass?

# %% tags=["answer"]
# answer
x = [torch.randn(1, 2, 96, 16, dtype=torch.float64).requires_grad_() for _ in range(3)]
alone = F.scaled_dot_product_attention(*x, is_causal=True)
alone.square().sum().backward()


def over_ranks(comm, backward=True, attend=ring_attention, layout="contiguous"):
    """Return this rank's difference from one process, of the result and of the gradients of q, k and v."""
    tokens = SharedSequence(comm, 96, layout)  # contiguous: rank 0 has the first tokens, rank 1 the next ones, ...
    own = [tokens.own(each.detach(), 2).requires_grad_() for each in x]
    out = attend(tokens, *own)
    if backward:
        out.square().sum().backward()
    pairs = [(out, alone), *((a.grad, b.grad) for a, b in zip(own, x) if backward)]
    return max((a - tokens.own(b, 2)).abs().max().item() for a, b in pairs)


for size in (1, 2, 3, 4, 8):
    n = 2 * 96 // size * 2 * 16 * 8  # bytes
    forward, both = (run(partial(over_ranks, backward=back), size) for back in (False, True))
    times = [done.traffic.sum(1)[0] / n for done in (forward, both)]
    print(f"{size} ranks: off by {max(both.results):.0e} at most;", end=" ")
    print(f"a rank sends {times[0]:g} n forward and {times[1] - times[0]:g} n backward")

# %% tags=["checked"]
# checked: equal to one process, (p - 1) n forward, twice as many backward, and three times as many in 16 bits
assert max(both.results) < 1e-12 and times == [7, 21]
sent, sent_backward = sent_by_attention("ring", 8, 131_072, 1, 32, 8, 128, 2)
assert sent_backward == 3 * sent

# %% [markdown]
# <details><summary>Why</summary>
#
# Twice as many. In the backward pass, keys and values go round the ring once more, because no rank has kept those of
# the others. The gradients of keys and values must come to the rank that has these keys. They travel behind the keys:
# each rank adds its own part, and passes the sum on. So 2 n bytes travel p - 1 times.
#
# If keys and values have 16 bits, a rank sends 3 (p - 1) n bytes in the backward pass: n for keys and values, and 2 n
# for their gradients, which travel in float32.
#
# </details>
#
# Short documents are often packed into one long sequence. A token then sees only tokens of its own document. Every rank
# knows the document of each token, so it can make the mask for its queries and for keys of any rank. (Our code computes
# masked blocks in full, and without the flash kernel.)

# %%
documents = torch.tensor([0] * 30 + [1] * 50 + [-1] * 16)  # -1 is padding


def packed(comm):
    tokens = SharedSequence(comm, 96, "contiguous", documents)
    return tokens.whole(ring_attention(tokens, *(tokens.own(each.detach(), 2) for each in x)), dim=2)


out = run(packed, 4).results[0]
for document, place in ((0, slice(0, 30)), (1, slice(30, 80))):
    alone_too = F.scaled_dot_product_attention(*(each[:, :, place] for each in x), is_causal=True)
    print(f"document {document}: off by {(out[:, :, place] - alone_too).abs().max():.0e} from attention to it alone")
print(f"padding: {out[:, :, 80:].abs().max():g}")

# %% [markdown]
# The ranks may have different numbers of tokens that count in the loss, for example because of padding. So we add up
# the losses of all tokens on all ranks, and divide by the number of tokens that count. The mean of the ranks' means
# would be wrong.

# %%
logits, targets = torch.randn(1, 8, 5), torch.tensor([[0, 1, 2, 3, 4, -100, -100, -100]])  # -100 does not count


def two_means(comm):
    own = slice(4 * comm.rank, 4 * comm.rank + 4)
    mean = F.cross_entropy(logits[0, own], targets[0, own]).item()
    return mean_token_loss(comm, logits[:, own], targets[:, own]).item(), mean


right, means = zip(*run(two_means, 2).results)
print(f"one process {F.cross_entropy(logits[0], targets[0]):.4f}, mean_token_loss {right[0]:.4f}", end=", ")
print(f"mean of the two means {sum(means) / 2:.4f}")

# %% [markdown]
# Exercise [`e13_ring_attention`](../exercises/e13_ring_attention.py): write the ring, forward and backward.

# %% tags=["nbval-ignore-output", "remove-output"]
# !mpcourse check e13_ring_attention

# %% [markdown]
# ## Where the other half goes
#
# In a language model, a query sees no later key (a causal mask). So about half of all pairs of a query and a key need
# not be computed, and each rank can leave out the keys that none of its queries may see. So far, rank 0 had the first
# tokens, rank 1 the next ones, and so on. This division is called contiguous.
#
# **Predict first.** Which rank finishes last? How fast are 8 ranks, compared with 8 ranks that share the work equally?

# %% tags=["answer"]
# answer
for size in (2, 4, 8):
    share = causal_share("contiguous", size, 8192 * size)
    print(f"{size} ranks: {share:.1%} by counting pairs, p / (2p - 1) = {size / (2 * size - 1):.1%}")

# %% tags=["checked"]
# checked: the closed form, and what eight ranks reach
assert abs(causal_share("contiguous", 8, 65536) - 8 / 15) < 1e-3

# %% [markdown]
# <details><summary>Why</summary>
#
# Call all pairs of one rank's queries and one rank's keys a square. The last rank has half a square with its own keys,
# and a whole square with the keys of each of the p - 1 other ranks: p - 1/2 squares. All ranks together have p²/2
# squares, so an equal division gives p/2 to each. The ratio is p / (2p - 1). With 8 ranks it is 53.3 %. Zhu measured
# 52.1 % in the forward pass. This is the other half. (With the backward pass, the table has 53.9 %, a little more than
# 53.3 %. This is possible, because kernels compute whole squares at a higher speed than squares with a causal mask, and
# the ratio counts only pairs.)
#
# </details>
#
# Zigzag cuts the sequence into 2 p pieces, and gives rank r the pieces r and 2p - 1 - r, an early one and a late one
# [1]. (`SharedSequence` does this unless we name another layout.) The next figure shows which rank computes which pairs
# of pieces. The number in each rectangle is the step of the ring. In step 0, a rank has its own keys. The second figure
# shows when the GPUs compute.

# %%
H800 = replace(LINKS["NVLink 4"], name="NVLink of H800", bandwidth=200e9)  # 400 GB/s, both directions together


def events_of(layout, size=4, length=8192):
    def program(comm):
        tokens = SharedSequence(comm, length * size, layout)
        own = (torch.empty(1, heads, length, 128, dtype=torch.bfloat16, device=comm.device) for heads in (32, 8, 8))
        ring_attention(tokens, *own)
        comm.synchronize()

    with virtual_gpus(size, "H100-SXM", H800, dry=True) as box:
        over_devices(program)
        return list(box.events)


layouts = {"contiguous": contiguous(64, 4), "zigzag": zigzag(64, 4)}
plot.attention(layouts, "With zigzag, every rank has two rectangles in each of the steps 1 to 3")
title = "Four H800s, forward: with zigzag, all GPUs compute almost until the end"
plot.timeline({name: events_of(name) for name in layouts}, title, lanes=[f"vgpu:{i}" for i in range(4)])
None

# %% tags=["checked"]
# checked: zigzag computes the same; its first GPU is busy for over 90 % of the time, and contiguous's for under 20 %
assert max(run(partial(over_ranks, layout="zigzag"), 4).results) < 1e-12
busy = {}
for name in layouts:
    events = events_of(name)
    begin, end = min(e.start for e in events), max(e.end for e in events)
    busy[name] = sum(e.seconds for e in events if e.lane == "vgpu:0" and e.kind == "compute") / (end - begin)
assert busy["zigzag"] > 0.9 and busy["contiguous"] < 0.2


# %% [markdown]
# Our code joins the two rectangles of a step into one, and calls one kernel for it.
#
# Move the sliders: for which numbers of ranks do all ranks compute equally many rectangles in every step?

# %% tags=["nbval-ignore-output"]
def try_it(ranks=4, layout="zigzag"):
    cut = {"contiguous": contiguous, "zigzag": zigzag}[layout]
    title = f"{layout}: at best {causal_share(layout, ranks, 96 * ranks):.0%} of an equal division"
    return plot.attention({layout: cut(96, ranks)}, title)


plot.sliders(try_it, ranks=[2, 3, 4, 6, 8], layout=["contiguous", "zigzag"])

# %% [markdown]
# With zigzag, every rank has equally many pairs in each step, for every number of ranks. **Striped** attention [5]
# divides the work almost as equally: rank r has the tokens r, r + p, r + 2p and so on.
#
# Exercise [`e13_zigzag`](../exercises/e13_zigzag.py): divide the tokens, and list the rectangles that are computed.

# %% tags=["nbval-ignore-output", "remove-output"]
# !mpcourse check e13_zigzag

# %% [markdown]
# How much of the ideal is left on real GPUs? We predict all rows of the first half of the published table with virtual
# GPUs. (The second half is for functions that take packed documents.) Each of the eight GPUs has 8192 tokens. The whole
# sequence has 64 times as many pairs as these 8192 tokens have alone, and eight GPUs share them. So the ideal time is 8
# times that of one GPU with 8192 tokens. Nothing was fitted to this table. (The published table does not say which
# version of FlashAttention was used.)

# %%
GPUS = {"H800": ("H100-SXM", H800), "A100": ("A100-SXM4", "NVLink 3")}


def seconds(gpu, link, c, layout="zigzag", attend=ring_attention, size=8, heads=(32, 8, 8), causal=True, backward=True):
    """Return the seconds of attention forward and backward, with `c` tokens on each GPU."""

    def program(comm):
        tokens = SharedSequence(comm, c * size, layout)
        options = {"dtype": torch.bfloat16, "device": comm.device, "requires_grad": True}
        own = [torch.empty(1, number, c, 128, **options) for number in heads]
        begin = comm.synchronize()
        out = attend(tokens, *own, causal=causal)
        middle = comm.synchronize()
        if backward:
            out.backward(torch.empty_like(out))
        return middle - begin, comm.synchronize() - middle

    with virtual_gpus(size, gpu, link, dry=True, record=False):
        return over_devices(program)[0]


def flash(gpu):
    """Return the seconds of torch's flash kernel on one GPU with 8192 tokens, forward and backward."""
    kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    with virtual_gpus(1, gpu, dry=True, record=False) as box, torch.device(box.devices[0]):
        q, k, v = (torch.empty(1, heads, 8192, 128, dtype=torch.bfloat16) for heads in (32, 8, 8))
        begin = box.synchronize()
        out, lse = kernel(q, k, v, 0.0, True)
        middle = box.synchronize()
        torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(out, q, k, v, out, lse, 0.0, True)
        return middle - begin, box.synchronize() - middle


ideal = {name: flash(gpu) for name, (gpu, _) in GPUS.items()}
for name, (forward, backward) in ideal.items():
    rates = f"{1 / forward:.0f} and {1 / (forward + backward):.0f}"
    print(f"one {name}, forward, forward and backward: {rates} a second, published {FLASH_ON_ONE[name]}")
print("% of the ideal           forward, published    both, published")
reached = {}
for row in RING_FLASH_ATTENTION:
    took = seconds(*GPUS[row.gpu], 8192, row.layout)
    reached[row] = 800 * ideal[row.gpu][0] / took[0], 800 * sum(ideal[row.gpu]) / sum(took)
    forward, both = reached[row]
    print(f"{row.gpu} {row.layout:12} {forward:13.1f} {row.forward:8.1f} {both:12.1f} {row.both:8.1f}")

# %% tags=["checked"]
# checked: contiguous and zigzag within 4 points; striped 11 to 15 points too fast forward, 4 to 5 with backward
for row, (forward, both) in reached.items():
    assert (abs(forward - row.forward) < 4 and abs(both - row.both) < 3) or row.layout == "striped"
stripes = [(f - row.forward, b - row.both) for row, (f, b) in reached.items() if row.layout == "striped"]
assert all(10.5 < f < 15.5 and 4 < b < 5 for f, b in stripes)

# %% [markdown]
# The predictions of contiguous and zigzag are within 4 points. We predict that striped is almost as fast as zigzag, but
# its measured forward pass is 11 to 15 points below our prediction. We can only guess why: its kernels have a causal
# mask in every step, and may lose more by this than our model says.
#
# ## When messages take no time
#
# Keys and values travel while the rank computes. Without a causal mask, a step takes 4 c² h FLOPs. Keys and values have
# 4 c h bytes in 16 bits, if there are as many heads of keys as of queries. The time to compute grows with c², and the
# time of the message with c. So computation hides the message if c ≥ F / B [4].
#
# A causal mask leaves half of the FLOPs, so it doubles this bound. If each head of keys serves four heads of queries,
# the bound is a quarter.

# %%
lengths = [512, 1024, 2048, 4096, 8192, 16_384, 32_768, 65_536]
free = replace(LINKS["NVLink 3"], name="free", bandwidth=1e15, latency=0.0)
cases = {
    "NVLink 3": ("NVLink 3", 32, False),
    "InfiniBand EDR": ("InfiniBand EDR", 32, False),
    "InfiniBand EDR, causal mask": ("InfiniBand EDR", 32, True),
    "InfiniBand EDR, causal mask, 8 heads of keys": ("InfiniBand EDR", 8, True),
}
times = {}
for name, (link, groups, causal) in cases.items():
    options = {"heads": (32, groups, groups), "causal": causal, "backward": False}
    took, at_best = ([seconds("A100-SXM4", wire, c, **options)[0] for c in lengths] for wire in (LINKS[link], free))
    times[name] = [a / b for a, b in zip(took, at_best)]
    if name == "NVLink 3":
        rate = 8 * 4 * 16_384**2 * 4096 / at_best[lengths.index(16_384)]
        print(f"with 16 384 tokens on each, our virtual A100s compute {rate / 1e12:.0f} TFLOP/s each")
bounds = {name: hidden_from(312e12, LINKS[name].bandwidth) for name in ("NVLink 3", "InfiniBand EDR")}
for name, bound in bounds.items():
    print(f"{name}: F / B = {bound:,.0f} tokens; with {rate / 1e12:.0f} TFLOP/s {bound * rate / 312e12:,.0f}")
plot.lines(
    lengths,
    times,
    "tokens on each of 8 A100s, forward pass",
    "time / time with free messages",
    "Over NVLink, messages are hidden; over InfiniBand, only with long blocks",
    verticals={f"{name}:\nF/B = {bound:,.0f}": bound for name, bound in bounds.items()},
)
None

# %% tags=["checked"]
# checked: the published 6.2K and 149.5K are six blocks, to 1 %; NVLink hides all, EDR from about 17 000 tokens on
assert all(abs(6 * bound / said - 1) < 0.01 for bound, said in zip(bounds.values(), (6200, 149_500)))
nvlink, edr, masked, grouped = (dict(zip(lengths, each)) for each in times.values())
assert max(nvlink.values()) < 1.02 and edr[8192] > 1.8 and 1.03 < edr[16_384] < 1.08 and edr[32_768] < 1.01
assert masked[16_384] > 1.8 and 1.03 < masked[32_768] < 1.08 and grouped[4096] > 1.4 and grouped[8192] < 1.01
wires = LINKS["InfiniBand EDR"], free
backward = [seconds("A100-SXM4", wire, 16_384, heads=(32, 32, 32), causal=False)[1] for wire in wires]
assert 1.1 < backward[0] / backward[1] < 1.16

# %% [markdown]
# The paper divides by the peak of 312 TFLOP/s. It multiplies the result by six, because a GPU holds six blocks: its
# queries, keys and values, the keys and values that arrive, and the result. This gives the 6.2 and 149.5 thousand
# tokens of its table, to 1 %.
#
# Our virtual A100s are slower than their peak, most of all with short blocks. So NVLink hides its messages with all
# lengths here, and InfiniBand with about 17 000 tokens or more, if there is no mask. With a causal mask we need twice
# as many. With a causal mask and Llama 3's 8 heads of keys, 8192 tokens are enough. In the backward pass, InfiniBand's
# messages cost more: with 16 384 tokens and no mask, it takes about 13 % longer than with free messages.
#
# ## Two other ways
#
# - **Gathered keys.** Every rank gathers all keys and values first, and sums their gradients by a reduce-scatter. Llama
#   3 was trained this way [6], with zigzag's division. The bytes are those of the ring, but no computation hides them.
#   In return, one kernel can compute attention to all keys, and masks for documents are simple. (Our code still calls
#   one kernel for the keys of each rank.)
# - **By heads** (DeepSpeed Ulysses [7]). An all-to-all gives each rank all tokens of some heads, and another one brings
#   the results back. Each rank sends (p - 1) / p of its queries, keys, values and results. Each rank has whole heads,
#   so p must divide the number of heads of queries. If there are fewer heads of keys than ranks, each of them is sent
#   to several ranks.
#
# **Predict first.** Llama 3 8B has 32 heads of queries and 8 of keys and values. On 8 ranks, which of the three ways
# sends the fewest bytes? And on 2 ranks? Which way is impossible on 64 ranks?

# %% tags=["answer"]
# answer
for size in (2, 8, 32):
    rows = {way: sent_by_attention(way, size, 131_072, 1, 32, 8, 128, 2) for way in ("ring", "gather", "ulysses")}
    text = ", ".join(f"{way} {sum(sent) / 1e6:5.0f} MB" for way, sent in rows.items())
    print(f"{size:2} ranks, 131 072 tokens, one layer: {text}")
ways = {"ring": ring_attention, "gathered keys": gathered_attention, "by heads": ulysses_attention}
for name, attend in ways.items():
    h800, a100 = (1e3 * sum(seconds(*gpus, 8192, attend=attend)) for gpus in GPUS.values())
    print(f"{name:13} 65 536 tokens, forward and backward: 8 H800s {h800:.1f} ms, 8 A100s {a100:.1f} ms")
    assert max(run(partial(over_ranks, attend=attend), 2).results) < 1e-12
torch.backends.cuda.enable_cudnn_sdp(False)
print(f"by heads, 8 H800s without cuDNN: {1e3 * sum(seconds(*GPUS['H800'], 8192, attend=ulysses_attention)):.1f} ms")
torch.backends.cuda.enable_cudnn_sdp(True)

# %% [markdown]
# <details><summary>Why</summary>
#
# On 8 ranks, attention by heads sends the fewest bytes. A rank sends only its own tokens, and with more ranks these are
# fewer. With the ring and with gathered keys, each rank sends (p - 1) / p of all keys and values, which is nearly all
# of them on many ranks. On 2 ranks, attention by heads sends the most, because it also sends queries and results, which
# have four times as many heads.
#
# On 64 ranks, attention by heads is impossible, because there are 32 heads.
#
# Attention by heads is also faster here. On the H800, the main cause is the kernel: for attention by heads, PyTorch
# chooses cuDNN's. Our ring calls the flash kernel, which also returns the lse. Without cuDNN's kernel, attention by
# heads takes 51 ms, and the ring 56 ms. (Attention by heads has no blocks to merge.)
#
# </details>
#
# | | ring | gathered keys | by heads |
# |---|---|---|---|
# | bytes that a rank sends forward | (p - 1) n | (p - 1) n | (p - 1) / p of q, k, v and result |
# | messages are hidden | with long blocks | no | no |
# | p | any number | any number | divides the number of heads |
# | documents | a mask in each step | one mask | one mask |
# | choose it for | long blocks, or more ranks than heads | packed documents, fast links | fast links |
#
# ## How long a sequence fits
#
# With the ring, each GPU holds a p-th of all activations. The paper of ring attention lists the longest sequences that
# fit [4]. There, the weights, gradients and optimizer states are divided among all GPUs (ZeRO-3, lesson 10), and each
# layer is recomputed. We predict the length from three terms:
#
# - 16 bytes for each parameter, divided by the number of GPUs;
# - 2 L h + 34 h bytes for each token of a rank: the inputs of L layers, and all activations of one layer (lesson 03);
# - 8 bytes for each logit, with a vocabulary of 32 000.

# %%
print("thousands of tokens    not shared: predicted, published     shared by the ring: predicted, published")
for row in RING_TABLE_3:
    memory = {"A100": 80, "TPUv4": 32}[row.name] * 2**30
    room = 0.95 * memory - 16e9 * row.parameters / row.gpus  # 5 % for the context and what is fragmented
    of_token = (2 * row.layers + 34) * row.width + 8 * 32_000
    local = 2 ** (int(room / of_token).bit_length() - 1) // 1024  # the paper tried powers of two
    print(f"{row.gpus:4} {row.name:5} {row.parameters:2} billion {local:20} {row.blockwise:10}", end="")
    print(f" {row.gpus * local:30} {row.ring:10} = {row.ring // row.blockwise} x {row.blockwise}")

# %% tags=["checked"]
# checked: with the ring, the published lengths are exactly p times those without sharing
assert all(row.ring == row.gpus * row.blockwise for row in RING_TABLE_3)

# %% [markdown]
# In all six published rows, p GPUs with ring attention reach exactly p times the length that one GPU reaches with
# attention in blocks. Without sharing the sequence, our three terms predict between half and four times the published
# length. Memory alone does not explain the published lengths. With 7 billion parameters, going from 8 to 32 GPUs frees
# 10 GB on each GPU, an eighth of its memory, but the published length grows by a factor of 4.
#
# Longer sequences also take longer, because the work of attention grows with the square of the length. torchtitan
# measured Llama 3.1 8B on eight H100s, with 32 768 tokens on each GPU [8].

# %%
with virtual_gpus(1, "H100-SXM", dry=True, record=False) as box, torch.device(box.devices[0]):
    x, weight = torch.empty(32_768, 4096, dtype=torch.bfloat16), torch.empty(14_336, 4096, dtype=torch.bfloat16)
    begin = box.synchronize()
    F.linear(x, weight)
    rate = 2 * x.numel() * len(weight) / (box.synchronize() - begin)
products = 8 * 8e9 * 32_768 / rate  # forward twice, because it is recomputed, and backward
ratios = {"zigzag": [], "contiguous": []}  # of predicted and published rates
for row in TORCHTITAN_8B:
    print(f"{row.context} x {row.length // row.context} tokens: published {row.rate} tokens/s on each GPU", end="")
    for layout, found in ratios.items():
        forward, backward = seconds("H100-SXM", "NVLink 4", 32_768, layout, size=row.context)
        predicted = 32_768 / (products + 32 * (2 * forward + backward))
        found.append(predicted / row.rate)
        print(f"; {layout} predicted {predicted:.0f} ({found[-1]:.2f} times)", end="")
    print()

# %% tags=["checked"]
# checked: with zigzag, 1.2 to 1.35 times as fast as measured with axes of 1 and 2, and 1.6 to 1.8 times with 4 and 8
small, large = ratios["zigzag"][:2], ratios["zigzag"][2:]
assert all(1.2 < each < 1.35 for each in small) and all(1.6 < each < 1.8 for each in large)
assert 0.85 < ratios["contiguous"][1] < 0.93 and all(0.95 < each < 1.05 for each in ratios["contiguous"][2:])

# %% [markdown]
# With zigzag, our predicted rates are too high in all four rows. Two reasons are known, but not how much each explains.
# These H100s were limited to 500 W, and ours have 700 W. Their memory has 2.4 TB/s, and ours 3.35 TB/s. (On the other
# hand, they computed linear layers in float8.)
#
# With context axes of 4 and 8, the prediction is 1.7 times the measured rate. The report says neither how the tokens
# were divided nor how keys and values were exchanged. With a contiguous division, we would predict these two rows well,
# but too low a rate with an axis of 2. So this does not explain the table.
#
# ## On real ranks
#
# We train the small GPT with one process, and then with two that share each sequence. The losses agree.

# %% tags=["nbval-ignore-output"]
Path("scratch").mkdir(exist_ok=True)

# %% tags=["nbval-ignore-output"]
# %%writefile scratch/long.py
import torch
from mpi4py import MPI

from mpcourse import context_parallel as cp
from mpcourse.data.text import course_text, draw_batch
from mpcourse.models.gpt import SMALL

comm = MPI.COMM_WORLD
torch.set_num_threads(1)
torch.manual_seed(0)  # the same model on all ranks
model, tokens = cp.ContextGPT(SMALL), cp.SharedSequence(comm, SMALL.length)
optimizer = torch.optim.AdamW(model.parameters(), 3e-3)
draw = torch.Generator().manual_seed(0)
for step in range(31):
    x, target = (tokens.own(each) for each in draw_batch(course_text().train, 16, SMALL.length, draw))
    optimizer.zero_grad()
    loss = cp.mean_token_loss(comm, model(x, tokens), target)
    loss.backward()
    cp.sum_gradients(comm, model.parameters())
    optimizer.step()
    if comm.rank == 0 and step % 10 == 0:
        print(f"{comm.size} rank(s), step {step:2}: loss {loss.item():.4f}")

# %%
# !mpirun -np 1 python scratch/long.py
# !mpirun -np 2 python scratch/long.py

# %% [markdown]
# ## The same in PyTorch
#
# On GPUs, `context_parallel` of `torch.distributed.tensor.experimental` replaces attention within a `with` block. It
# divides tokens by zigzag. Each rank gathers all keys and values, and only their gradients go round a ring. After
# `set_rotate_method("alltoall")`, keys and values go round a ring, too:
#
# ```python
# mesh = init_device_mesh("cuda", (8,))
# set_rotate_method("alltoall")
# count = (target != -100).sum()  # in the whole sequence
# with context_parallel(mesh, buffers=[x, target, positions], buffer_seq_dims=[1, 1, 0]):  # cuts all three, in place
#     logits = model(x, positions)
#     loss = F.cross_entropy(logits.flatten(0, 1), target.flatten(), reduction="sum") / count  # this rank's part
#     loss.backward()
# for parameter in model.parameters():
#     dist.all_reduce(parameter.grad)
# ```
#
# `buffers` must contain every tensor that depends on the position, such as `positions` or the tables of rotary
# embeddings. If one is missing, PyTorch may raise no error, and the result is wrong. PyTorch's source calls this
# function a legacy API, and says that it will be deprecated.
#
# In PyTorch 2.13, `context_parallel` needs CUDA's kernels. The functions that it calls also run on the CPU, if we pass
# them the CPU's kernel. (Their names begin with an underscore: they may change.)

# %% tags=["nbval-ignore-output"]
# %%writefile scratch/ring.py
import time

import torch
import torch.distributed as dist
from torch.distributed.tensor.experimental._context_parallel import _attention as cp

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)  # the same q, k, v and gradient on all ranks
whole = [torch.randn(1, 4, 64, 16, dtype=torch.float64) for _ in range(4)]
pieces = [each.chunk(2 * size, dim=2) for each in whole]
q, k, v, gradient = (torch.cat([each[rank], each[2 * size - 1 - rank]], dim=2) for each in pieces)
cp._cp_options.convert_to_f32 = False  # or else it would add up in float32
cp.set_rotate_method("alltoall")  # a ring
group, kernels = dist.group.WORLD, torch.ops.aten
out, lse = cp._templated_ring_attention(
    group, 2, kernels._scaled_dot_product_flash_attention_for_cpu, q, k, v, is_causal=True
)
gradients = cp._templated_ring_attention_backward(
    group, 2, kernels._scaled_dot_product_flash_attention_for_cpu_backward,
    gradient, "grad_out", q, k, v, out, lse, is_causal=True, dropout_p=0.0,
)  # fmt: skip
squares = torch.stack([each.square().sum() for each in (out, *gradients[:3])])
dist.all_reduce(squares)
if rank == 0:
    print("sums of squares of the result and the gradients:", *(f"{each:.6f}" for each in squares))
time.sleep(0.1)  # gloo's threads free their tensors; while Python exits, they would abort it
dist.destroy_process_group()

# %%
# !torchrun --local-addr localhost --nproc-per-node 2 scratch/ring.py 2> scratch/torchrun.log

# %%
torch.manual_seed(0)
whole = [torch.randn(1, 4, 64, 16, dtype=torch.float64) for _ in range(4)]


def ours(comm):
    tokens = SharedSequence(comm, 64)
    q, k, v, gradient = (tokens.own(each, 2).requires_grad_() for each in whole)
    out = ring_attention(tokens, q, k, v)
    return [each.square().sum().item() for each in (out, *torch.autograd.grad(out, (q, k, v), gradient))]


print("ours, two virtual ranks:", *(f"{sum(parts):.6f}" for parts in zip(*run(ours, 2).results)))

# %% [markdown]
# ## The reference implementation

# %%
from mpcourse.common.source import reference
from mpcourse.context_parallel.ring import _RingAttention

reference(block, merge, _RingAttention)

# %% [markdown]
# ## What production systems call it
#
# | here | there |
# |---|---|
# | `SharedSequence` | `context_parallel` in PyTorch |
# | `ring_attention` | `set_rotate_method("alltoall")` in PyTorch; `zigzag_ring_flash_attn_func` [1] |
# | `gathered_attention` | `set_rotate_method("allgather")`, PyTorch's default; `llama3_flash_attn_varlen_func` [1] |
# | `ulysses_attention` | DeepSpeed's `DistributedAttention`; `--cp-comm-type a2a` in Megatron-LM |
# | documents | `cu_seqlens`; variable-length attention |
# | context axis | `--context-parallel-size` in Megatron-LM |
#
# 1. Zilin Zhu, *ring-flash-attention*, 2024, <https://github.com/zhuzilin/ring-flash-attention>, and its issue 2
# 2. Maxim Milakov and Natalia Gimelshein, *Online normalizer calculation for softmax*, 2018,
#    <https://arxiv.org/abs/1805.02867>
# 3. Tri Dao and others, *FlashAttention*, 2022, <https://arxiv.org/abs/2205.14135>
# 4. Hao Liu and others, *Ring Attention with Blockwise Transformers for Near-Infinite Context*, 2023,
#    <https://arxiv.org/abs/2310.01889>, tables 2 and 3. We read them in a transcription.
# 5. William Brandon and others, *Striped Attention*, 2023, <https://arxiv.org/abs/2311.09431>
# 6. Llama team, *The Llama 3 Herd of Models*, 2024, <https://arxiv.org/abs/2407.21783>, section 3.3.2
# 7. Sam Ade Jacobs and others, *DeepSpeed Ulysses*, 2023, <https://arxiv.org/abs/2309.14509>
# 8. PyTorch team, *torchtitan*, 2024, `benchmarks/llama3_h100_202412_torchtitan.md`,
#    <https://github.com/pytorch/torchtitan>, table 2
#
# ## Problems
#
# **1.** Llama 3 405B has 126 layers, 128 heads of queries and 8 of keys and values, each of 128 elements. It was
# trained with 131 072 tokens over 16 ranks of a context axis. How many MB does a rank receive for one layer's forward
# pass if it gathers all keys and values in 16 bits? Tensor parallelism over 8 GPUs divides the heads. How long does
# this take at 50 GB/s?
#
# **2.** From which length of the sequence on does attention take more FLOPs than all linear layers of a transformer
# layer of width h? A linear layer takes 2 FLOPs for each weight and token, and the layer has 12 h² weights. A causal
# mask halves the pairs.

# %% tags=["answer"]
# answer
received = 15 / 16 * 131_072 * 2 * 8 / 8 * 128 * 2
print(f"1. {received / 1e6:.0f} MB, {1e3 * received / 50e9:.1f} ms")
print("2. linear layers: 24 h² a token; attention: 4 s h / 2 a token; equal at s = 12 h, e.g. 49 152 for h = 4096")

# %% [markdown]
# ## What you found
#
# - A block of keys returns its result and its lse. With these two, blocks can be merged in any order, and gradients are
#   computed block by block.
# - In a ring of p ranks, a rank sends its keys and values p - 1 times in the forward pass. It sends twice as many bytes
#   in the backward pass, and three times as many with 16 bits. The result equals that of one process.
# - With contiguous tokens and a causal mask, the ranks reach at most p / (2p - 1) of the speed of an equal division: 53
#   % on eight GPUs. With zigzag, all ranks have equally many pairs in each step. We predicted 8 of 12 published figures
#   to within 4 points, and striped attention 4 to 15 points too fast.
# - Without a causal mask, computation hides the messages of the forward pass if each GPU has at least about F / B
#   tokens. A causal mask doubles this bound. If each head of keys serves g heads of queries, the bound is a g-th.
# - p GPUs hold a sequence p times as long. With 32 768 tokens on each GPU, our predictions are 1.2 to 1.8 times as fast
#   as torchtitan's measurements.
# - Gathering the keys sends as many bytes as the ring, but no computation hides them. On many ranks, attention by heads
#   sends the fewest bytes. The number of ranks must divide the number of heads.
# - PyTorch's `context_parallel` gathers keys and values, or sends them round a ring. The results and gradients of this
#   ring have the same sums of squares as ours.
#
# Next comes lesson 14, [Experts](14_experts.ipynb), in which most of the model is idle.
