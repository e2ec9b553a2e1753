# %% [markdown]
# # 10 All of it together
#
# **Which cut belongs on which wire?** About 65 minutes to read, and 90 for its exercises.
#
# In 2021 Narayanan et al. trained a model of 174.6 billion parameters in two ways. With ZeRO-3, which shards all that
# data parallelism holds, 768 GPUs would have needed 74 days. 1536 GPUs would have needed 74 days. With data, pipeline
# and tensor parallelism at once, the same GPUs would have needed 43 days, and 23.
#
# Twice the GPUs, and not a day less: why? And what did the other way do about it?

# %% tags=["nbval-ignore-output", "remove-cell"]
from mpcourse.course.learner import panel

panel.show("12_all_together")

# %% tags=["nbval-ignore-output"]
# %config InlineBackend.print_figure_kwargs = {"dpi": 110}
from itertools import permutations

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from mpcourse import plot
from mpcourse.grid import (
    AXES,
    Grid,
    GridTrainer,
    ParallelMLP,
    Shape,
    copy_in,
    global_norm,
    stage,
    sum_out,
    traffic_by_axis,
    transformer,
)
from mpcourse.model_parallel import MultiNodeChainList, allreduce, send
from mpcourse.pipeline import one_f_one_b
from mpcourse.virtual import MPI, Topology, run
from mpcourse.virtual.ranks import Deadlock

torch.set_num_threads(1)

# %% [markdown]
# ## The riddle
#
# The paper gives the FLOP/s that each GPU reached. A training step of a transformer with P parameters costs 8 P FLOPs
# for each token: 2 forward, 4 backward, and 2 to compute the activations again (lesson 03). So the table tells the time
# of one step, in which 1536 sequences of 2048 tokens are seen. Times the number of steps, that is the paper's days
# to 4 %.

# %%
P, TOKENS = 174.6e9, 1536 * 2048
flops = {"ZeRO-3": {384: 144e12, 768: 88e12, 1536: 44e12}, "PTD-P": {384: 153e12, 768: 149e12, 1536: 141e12}}
seconds = {way: {n: 8 * P * TOKENS / (n * rate) for n, rate in row.items()} for way, row in flops.items()}
for way, row in seconds.items():
    print(f"{way:7}", ", ".join(f"{n} GPUs: {s:5.1f} s a step" for n, s in row.items()))
days = {"ZeRO-3": {384: 90, 768: 74, 1536: 74}, "PTD-P": {384: 84, 768: 43, 1536: 23}}  # published, of 300 G tokens
for way, row in seconds.items():
    assert all(abs(300e9 / TOKENS * s / 86_400 / days[way][n] - 1) < 0.04 for n, s in row.items())
assert round(seconds["ZeRO-3"][768], 1) == round(seconds["ZeRO-3"][1536], 1) == 65.0

# %% [markdown]
# **Predict first.** ZeRO-3 sends 3 P values in each step: each GPU gathers all parameters once forward and once
# backward, and the gradients are reduce-scattered (lesson 10 does it by hand). How many bytes is that on each GPU, how
# does it depend on the number of GPUs, and how many bytes a second are it in 65 seconds?

# %%
nbytes = 3 * P * 2  # float16; (n - 1) / n of it, which is nearly all
bandwidth = nbytes / seconds["ZeRO-3"][768]
print(f"{nbytes / 1e9:.0f} GB on each GPU, whatever their number: {bandwidth / 1e9:.1f} GB/s")
assert nbytes > 1e12 and bandwidth < 25e9
compute = {n: 8 * P * TOKENS / (n * 144e12) for n in (384, 768, 1536)}  # at the rate of 384 GPUs
for n, published in seconds["ZeRO-3"].items():
    print(f"{n:5} GPUs: computing {compute[n]:5.1f} s, sending 65.0 s; published {published:5.1f} s")
assert compute[384] > 65 > compute[768] > compute[1536]

# %% [markdown]
# Each GPU sends a terabyte in each step, however many GPUs there are. At 16 GB/s that takes 65 seconds. A network card
# of these machines carries 25 GB/s at best. With 384 GPUs the computation, at the rate that their row itself tells,
# takes longer than that, and may hide it. With 768 and 1536 GPUs it cannot. The batch is the same, so each GPU computes
# half as long, and sends as much.
#
# One bandwidth, which we took from one row, explains two. Does it explain the paper's other model, of 529.6 billion
# parameters? It predicts 197 s for 1120 and for 2240 GPUs.

# %%
P2, TOKENS2 = 529.6e9, 2240 * 2048
predicted = 3 * P2 * 2 / bandwidth
for n, rate in ((1120, 98e12), (2240, 48e12)):
    published = 8 * P2 * TOKENS2 / (n * rate)
    print(
        f"{n} GPUs: predicted {predicted:.0f} s, published {published:.0f} s, off by {predicted / published - 1:+.0%}"
    )
    assert abs(predicted / published - 1) < 0.12

# %% [markdown]
# So that answers the first question: the traffic of ZeRO-3 does not fall with the number of GPUs, and it goes over the
# slowest link. The other way cuts the model in three directions at once, and chooses for each cut the wire that it
# goes over.
#
# ## A grid of ranks
#
# Three axes: **data** (replicas of the model, lesson 06), **pipeline** (layers, lesson 04), **tensor** (parts of each
# layer, lesson 02). A rank has a coordinate in each, and for each axis a communicator of those ranks that differ from
# it in that coordinate alone. `comm.Split(color, key)` makes them (exercise [`e12_grid`](../exercises/e12_grid.py)).
# Eight ranks on two machines, two in each direction:

# %%
NODES = Topology(nodes=[rank // 4 for rank in range(8)], inside="NVLink 3", between="InfiniBand HDR")
grid = run(lambda comm: Grid(comm, data=2, pipeline=2, tensor=2), 8, NODES).results[0]
assert (4, 5) in grid.groups("tensor") and (5, 7) in grid.groups("data") and (1, 5) in grid.groups("pipeline")
plot.groups({axis: grid.groups(axis) for axis in AXES}, grid.nodes, "Ranks of one colour share a communicator")
None

# %% [markdown]
# Each rank is in three groups. Rank 5 has the layers of rank 4, of each the other half; it has the weights of rank 7,
# and sees other examples; and it gets its activations from rank 1.
#
# In which order the axes are counted decides who is a neighbour of whom. This is the order of Megatron-LM: tensor is
# the fastest axis, then data, and pipeline is the slowest. (Llama 3 has data slowest.)

# %% tags=["nbval-ignore-output", "remove-output"]
# !mpcourse check e12_grid

# %% [markdown]
# ## One model in three dimensions
#
# A small transformer: embedding, layers of attention and MLP, and the embedding's weight once more, which turns the
# last activations into logits. It is *tied*: the first and the last stage both have it, and their gradients are added.
# A step on the grid is made of what the lessons before have built:
#
# - Along the tensor axis each layer makes two all-reduces forward and two backward, of all activations.
# - Along the pipeline axis activations go forward, and their gradients back (`PipelineRank`, lesson 04).
# - Along the data axis gradients are averaged at the end of the step (lesson 06).
# - The gradient is clipped by its norm, and each rank's optimizer updates what the rank has.

# %%
SHAPE = Shape(vocabulary=50, length=64, width=64, heads=4, layers=4)
BATCH, MICROBATCHES, CLIP = 16, 4, 0.3
X, TARGET = torch.randint(SHAPE.vocabulary, (2, BATCH, SHAPE.length), generator=torch.Generator().manual_seed(0))


def mean_loss(logits, target):
    return F.cross_entropy(logits.flatten(0, 1), target.flatten())


def trainer_on(comm, sizes, order=("pipeline", "data", "tensor"), dtype=torch.float32):
    """This rank's part of a training on a grid, and its share of the batch."""
    grid = Grid(comm, **dict(zip(AXES, sizes)), order=order)
    stages = grid.pipeline.size
    part, tied = stage(transformer(SHAPE, grid.tensor).to(dtype), stages, grid.pipeline.rank)
    schedule = one_f_one_b(stages, MICROBATCHES)
    trainer = GridTrainer(grid, part, schedule, mean_loss, lambda p: torch.optim.AdamW(p, 1e-2), tied=tied, clip=CLIP)
    share = slice(grid.data.rank * BATCH // grid.data.size, (grid.data.rank + 1) * BATCH // grid.data.size)
    return trainer, X[share], TARGET[share]


def train(comm, sizes, steps=3):
    trainer, x, target = trainer_on(comm, sizes, dtype=torch.float64)
    return [trainer.step(x, target).norm for _ in range(steps)]


model = transformer(SHAPE).double()
optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
alone = []
for _ in range(3):
    optimizer.zero_grad()
    mean_loss(model(X), TARGET).backward()
    alone.append(torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP).item())
    optimizer.step()
print("norms of the gradient in three steps, before each is clipped")
print("one process:                   ", ", ".join(f"{norm:.12f}" for norm in alone))
for sizes in ((2, 2, 2), (1, 4, 2), (4, 1, 2)):
    norms = run(lambda comm, sizes=sizes: train(comm, sizes), 8).results[0]
    print("data {} x pipeline {} x tensor {}:".format(*sizes), ", ".join(f"{norm:.12f}" for norm in norms))
    assert np.allclose(norms, alone, rtol=1e-12)
assert min(alone) > CLIP


# %% [markdown]
# Equal to twelve digits, however the eight ranks are cut. The second and the third norm are of weights that clipped
# steps have changed, so these steps are equal, too.

# %% [markdown]
# ## Bytes on each wire
#
# **Predict first.** Along which axis do the ranks of this grid send the most bytes in a step, and along which the
# least?

# %%
def one_step(comm, sizes, order=("pipeline", "data", "tensor")):
    """A step of training after a first one, which sets things up: the grid, and when the step began and ended."""
    trainer, x, target = trainer_on(comm, sizes, order)
    trainer.step(x, target)
    comm.Barrier()
    begin = MPI.Wtime()
    trainer.step(x, target)
    return trainer.grid, begin, MPI.Wtime()


done = run(lambda comm: one_step(comm, (2, 2, 2)), 8, NODES)
sent = traffic_by_axis(done.results[0][0], done.traffic)
for axis, (total, away) in sent.items():
    print(f"{axis:9} {total / 2e6:5.2f} MB a step, {away / 2e6:5.2f} MB of them between nodes")
activations = 4 * BATCH * SHAPE.length * SHAPE.width
by_formula = 4 * SHAPE.layers * activations * 2
print(f"4 all-reduces in {SHAPE.layers} layers, {activations / 1e6:.2f} MB from 2 ranks: {by_formula / 1e6:.2f} MB")
assert sent["tensor"].nbytes == 2 * 4 * SHAPE.layers * activations * 2
assert 4.5 < sent["tensor"].nbytes / sent["data"].nbytes < 5
assert 7.5 < sent["tensor"].nbytes / sent["pipeline"].nbytes < 8.5

# %%
plot.traffic(done.events, "Two steps: pairs of neighbours send the most, over NVLink")
None

# %%
grid = done.results[0][0]
lanes = [f"rank 0 -> rank {grid.rank_at(**{'data': 0, 'pipeline': 0, 'tensor': 0, axis: 1})}" for axis in AXES[::-1]]
begin, end = min(r[1] for r in done.results), max(r[2] for r in done.results)
title = "Rank 0 sends most along tensor (to 1), and along data (to 2) once, at the end"
plot.timeline(done.events, title, begin, end, lanes)
None


# %% [markdown]
# The pairs along the tensor axis, 0 and 1, 2 and 3, and so on, send nearly five times as much as those along the data
# axis, and eight times as much as those along the pipeline. And a rank waits for each of these all-reduces: its result
# is the next layer's input. The gradients' all-reduce comes once, at the end. That is why tensor parallelism belongs
# inside a machine.
#
# What if the ranks are counted in another order? The model, the grid's sizes and the bytes stay as they are. Only who
# is on which machine changes.
#
# **Predict first.** There are six orders, but only three different times. Why?

# %%
def communication(order, inside="NVLink 3", between="InfiniBand HDR", sizes=(2, 2, 2)):
    """Milliseconds of a step in which ranks send and wait; by axis the megabytes sent inside and between nodes."""
    done = run(lambda comm: one_step(comm, sizes, order), 8, Topology(NODES.nodes, inside, between))
    sent = traffic_by_axis(done.results[0][0], done.traffic)
    seconds = max(end for *_, end in done.results) - min(begin for _, begin, _ in done.results)
    parts = {axis: (of.nbytes - of.between_nodes, of.between_nodes) for axis, of in sent.items()}  # of two steps
    return 1e3 * seconds, {axis: (inside / 2e6, between / 2e6) for axis, (inside, between) in parts.items()}


took, over_10_gbe = {}, {}
for order in permutations(AXES):
    took[order], across = communication(order)
    slow, _ = communication(order, between="10 GbE")
    ((axis, megabytes),) = [(axis, between) for axis, (_, between) in across.items() if between]
    print(
        f"slowest to fastest {', '.join(order):24}: {axis:8} crosses nodes, {megabytes:.2f} MB; "
        f"{took[order]:.2f} ms, over 10 GbE {slow:5.2f} ms"
    )
    assert axis == order[0]
    over_10_gbe[order] = slow
by_first = [("pipeline", "data", "tensor"), ("data", "pipeline", "tensor"), ("tensor", "data", "pipeline")]
assert len({round(t, 6) for t in took.values()}) == len({round(t, 6) for t in over_10_gbe.values()}) == 3
assert took[by_first[0]] < took[by_first[1]] < took[by_first[2]]
assert over_10_gbe[by_first[1]] < over_10_gbe[by_first[0]] < 0.5 * over_10_gbe[by_first[2]]


# %% [markdown]
# With two machines and two ranks in each direction the slowest axis crosses the machines, and the two others never do.
# Tensor parallelism across machines is the slowest, over 10 GbE by far. The fewest bytes cross if that axis is the
# pipeline's, and over InfiniBand this is also the fastest. Over 10 GbE it is not, although data parallelism sends more:
# an all-reduce sends both ways at once, and once a step. A pipeline's messages go forward and then back, each with its
# latency, and here nothing is computed meanwhile that would hide them.
#
# Move the sliders: which axis may be the slowest, over which link, with which sizes?

# %%
def by_order(slowest="pipeline", between="InfiniBand HDR", sizes="2 x 2 x 2"):
    order = (slowest, *(axis for axis in ("pipeline", "data", "tensor") if axis != slowest))
    data, pipeline, tensor = map(int, sizes.split(" x "))
    milliseconds, across = communication(order, between=between, sizes=(data, pipeline, tensor))
    return plot.parts(
        {
            f"{axis} {n}": dict(zip(("inside nodes", "between nodes"), across[axis]))
            for axis, n in zip(AXES, (data, pipeline, tensor))
        },
        "MB in a step",
        f"{slowest.capitalize()} slowest, over {between}: {milliseconds:.2f} ms of communication in a step",
    )


plot.sliders(
    by_order,
    slowest=["pipeline", "data", "tensor"],
    between=["InfiniBand HDR", "100 GbE", "10 GbE"],
    sizes=["2 x 2 x 2", "1 x 4 x 2", "4 x 1 x 2", "1 x 2 x 4", "2 x 1 x 4"],
)


# %% [markdown]
# ## What backward does at a wire
#
# Each rank's autograd knows what this rank computed, and no more. So every message and every collective call needs a
# backward of its own. Two functions make a tensor-parallel layer. All its ranks have the same input, and compute the
# same loss:
#
# | | forward | backward |
# |---|---|---|
# | `copy_in`, before the layer | nothing: each rank has x | all-reduce: each rank has a part of x's gradient |
# | `sum_out`, after it | all-reduce of partial results | nothing: each rank has the whole gradient |
#
# Where ranks compute different losses, of which the sum is minimised, the rules are others. They are ChainerMN's
# (`mpcourse.model_parallel`), and each follows from one question: in whose loss is my x?
#
# | forward | backward | for |
# |---|---|---|
# | `send` | receive the gradient | my x is in the other rank's loss |
# | `recv` | send the gradient | the other rank's x is in my loss |
# | `bcast` | reduce: the sum, to the root | the root's x is in all losses |
# | `allreduce` | all-reduce | each x is in each sum |
# | `allgather` | reduce-scatter | each x is in all losses |
# | `all_to_all` | all-to-all | each part goes back to where it came from |
#
# **Predict first.** Three ranks call `allreduce`, and rank r's loss is r + 1 times the sum. What is the gradient of
# each rank's x? What would it be by the rule of `sum_out`?

# %%
def gradient_of(f):
    def program(comm):
        x = torch.ones(1, requires_grad=True)
        ((comm.rank + 1) * f(comm, x)).sum().backward()
        return x.grad.item()

    return run(program, 3).results


print("allreduce:", gradient_of(allreduce), " sum_out:", gradient_of(sum_out))
assert gradient_of(allreduce) == [6, 6, 6] and gradient_of(sum_out) == [1, 2, 3]


# %% [markdown]
# 6 is right: x is in all three losses, 1 + 2 + 3 times. `sum_out` takes the gradient for the same on all ranks, and so
# is right only where it is.
#
# ## A model in any graph: MultiNodeChainList
#
# A pipeline is a chain. ChainerMN could do more: its `MultiNodeChainList` takes a model's parts in any graph over
# ranks, such as an encoder on one rank and a decoder on another, or branches that meet again. Each rank adds its own
# parts, and says where their inputs come from and where their outputs go. An MLP whose first and last part are on rank
# 0:

# %%
def parts():
    torch.manual_seed(0)
    return nn.Linear(4, 8), nn.Sequential(nn.Tanh(), nn.Linear(8, 8)), nn.Sequential(nn.Tanh(), nn.Linear(8, 3))


INPUT, LABELS = torch.randn(5, 4), torch.tensor([0, 2, 1, 1, 0])


def chained(comm, right_order=True):
    first, second, third = parts()
    model = MultiNodeChainList(comm)
    if comm.rank == 0:
        links = [(first, None, 1), (third, 1, None)]  # a part, where its input comes from, where its output goes
        for part, rank_in, rank_out in links if right_order else links[::-1]:
            model.add_link(part, rank_in, rank_out)
        F.cross_entropy(model(INPUT), LABELS).backward()
    else:
        model.add_link(second, rank_in=0, rank_out=0)
        delegate = model()
        delegate.backward()
    return [p.grad for p in model.parameters()]


chain = run(chained, 2)
one, two, three = parts()
F.cross_entropy(three(two(one(INPUT))), LABELS).backward()
whole = [p.grad for part in (one, three, two) for p in part.parameters()]
assert all(torch.equal(a, b) for a, b in zip(chain.results[0] + chain.results[1], whole))
print(f"{len(whole)} gradients, on two ranks, are bit for bit those of one process")

# %% [markdown]
# Rank 1 has no loss. What `model()` returns there is a **delegate**: the number 0, with a graph behind it. Its
# `backward()` waits for the gradient of what was sent away. On rank 0 the graph has two pieces, which only rank 1
# connects, so autograd would not see that they belong together. A **pseudo-connection** keeps them together: the first
# piece's delegate goes into the second piece, and adds nothing.
#
# ChainerMN's own three examples, this one, an encoder with its decoder, and a convolution whose channels are spread
# over ranks, are in `mpcourse/course/examples/model_parallel.py`. To start them:
# `mpirun -np 2 python -m mpi4py -m mpcourse.course.examples.model_parallel`.
#
# And if rank 0 adds its parts in the wrong order?

# %%
try:
    run(lambda comm: chained(comm, right_order=False), 2)
except Deadlock as deadlock:
    print(deadlock)
else:
    raise AssertionError("that should have been a deadlock")


# %% [markdown]
# Exercise [`e12_send_recv`](../exercises/e12_send_recv.py): write the pair, a send and a receive through which
# gradients flow back.

# %% tags=["nbval-ignore-output", "remove-output"]
# !mpcourse check e12_send_recv

# %% [markdown]
# ## Two numbers of which no rank has all
#
# **The norm of the gradient.** Clipping needs it, and it is the root of the sum of all squares. A sharded weight has
# another part on each rank of the tensor axis; a layer norm has the same gradient on all of them. Added up over all
# ranks of the grid, the first would be counted once for each replica, and the second more often.

# %%
def norms(comm):
    trainer, x, target = trainer_on(comm, (2, 2, 2), dtype=torch.float64)
    trainer.step(x, target)  # the gradients are still there, clipped
    whole = global_norm(trainer.grid, trainer.parameters, trainer.sharded, trainer.counted_elsewhere)
    own = sum(float(p.grad.square().sum()) for p in trainer.parameters)
    return whole, own**0.5, sum(comm.allgather(own)) ** 0.5


whole, own, everything = run(norms, 8).results[0]
print(f"the clipped gradient's norm {whole:.6f}; of rank 0's own {own:.6f}; summed over all ranks {everything:.6f}")
assert abs(whole - CLIP) < 1e-5 and own < whole < everything

# %% [markdown]
# **The number of tokens.** Sequences have different lengths, and padding has no loss. The loss of a batch is the mean
# over its tokens. If each rank, or each micro-batch, takes the mean over its own tokens, and the ranks take the mean of
# these, then the tokens of a short micro-batch count more. That was a bug of Hugging Face's Trainer until October 2024:
# training with gradient accumulation gave another loss than the same batch at once.

# %%
lengths, losses = np.array([100, 4]), np.array([2.0, 6.0])  # of two micro-batches: tokens, and the mean loss over them
print(f"mean of means {losses.mean():.2f}, mean over tokens {(lengths * losses).sum() / lengths.sum():.2f}")
assert losses.mean() == 4 and round((lengths * losses).sum() / lengths.sum(), 2) == 2.15

# %% [markdown]
# Exercises [`e12_clip`](../exercises/e12_clip.py) and [`e12_tokens`](../exercises/e12_tokens.py): compute the two
# numbers, the norm and the mean.

# %% tags=["nbval-ignore-output", "remove-output"]
# !mpcourse check e12_clip
# !mpcourse check e12_tokens

# %% [markdown]
# ## Both ways predicted
#
# What would a step take on 384, 768 and 1536 GPUs? The planner of this course (`mpcourse.plan`) runs the model's own
# layers on a virtual GPU, without data, for each size of the tensor axis; it counts what their all-reduces send, and
# replays the pipeline's schedule (lesson 04). Matrix products take what was measured for products of their shape, for
# small and thin ones reach a smaller part of the peak. One number is fitted: the 16.1 GB/s of ZeRO-3, from above.

# %%
from mpcourse.data.published_plans import PTD_P_BESIDE_ZERO, ZERO_3
from mpcourse.plan.published import GATHERS, layers_of, predicted

layers = layers_of(ZERO_3[0])
rows = {
    "PTD-P": [predicted(row, layers) for row in PTD_P_BESIDE_ZERO[:3]],
    "ZeRO-3": [predicted(row, layers, zero=3, between=GATHERS) for row in ZERO_3[:3]],  # GATHERS: 16.1 GB/s a GPU
}
gpus = [row.published.gpus for row in rows["PTD-P"]]
plot.lines(
    gpus,
    {f"{way}, published": [row.published.teraflops for row in of] for way, of in rows.items()},
    "A100s",
    "TFLOP/s of each",
    "From 768 to 1536 GPUs ZeRO-3 halves, a grid hardly falls",
    formulas={f"{way}, predicted": [row.teraflops for row in of] for way, of in rows.items()},
)
for way, of in rows.items():
    print(f"{way}: off by", ", ".join(f"{row.miss:+.0f} %" for row in of))
assert all(abs(row.miss) < 3 for row in rows["PTD-P"]) and all(abs(row.miss) < 3 for row in rows["ZeRO-3"][1:])
flat = [row.plan.seconds.total for row in rows["ZeRO-3"]]
assert abs(flat[1] / flat[2] - 1) < 0.01 and flat[0] < flat[1]
computed = rows["ZeRO-3"][0].plan.seconds.compute
print(f"ZeRO-3 on 384: predicted {flat[0]:.1f} s, of it {computed:.1f} s computing; published {compute[384]:.1f} s")
assert 20 < rows["ZeRO-3"][0].miss < 30 and flat[0] < compute[384] < computed + 65

# %% [markdown]
# The grid is within 3 %, and so are the two flat rows of ZeRO-3. Its row of 384 GPUs is predicted 26 % too fast. There
# computing takes 53 s by our count, and sending 65 s. We take all of the shorter one to be hidden. The published step
# is longer than either, and shorter than both one after the other: a part was hidden, and how much we do not know.
#
# In a clone of the course `python -m tests.validation plans` prints all rows of the paper's two tables. These are rows
# of Llama 3 on H100s:

# %%
from mpcourse.data.published_plans import LLAMA_3
from mpcourse.plan.published import llama_layers, predicted_llama

misses = []
for row in LLAMA_3:
    llama = llama_layers(row)
    counts = [predicted_llama(row, llama), predicted_llama(row, llama, masked=True)]
    misses.append([of.miss for of in counts])
    print(
        f"{row.gpus:5} GPUs, {row.length:6} tokens, context {row.context:2}: published {row.teraflops} TFLOP/s, "
        f"predicted {counts[0].teraflops:.0f}; with attention counted under its mask {counts[1].teraflops:.0f}"
    )
assert all(abs(plain) < 10 for plain, _ in misses[:2]) and 34 < misses[2][0] < 39
assert all(abs(under) < 10 for _, under in misses)


# %% [markdown]
# In the last row 16 ranks share each sequence. This **context axis** works as a data axis, whose ranks gather keys and
# values of the whole sequence in each layer. Most of the FLOPs are attention's there. A causal mask leaves half of
# them, and the paper does not tell how it counts them in its 380 TFLOP/s. By the count of the source that it cites,
# without the mask, ours is 38 % too fast; by the other, 1 % too slow.
#
# **Predict first.** On 1536 GPUs, which part of a step of each way is computation, and what is the rest?

# %%
def seconds_by_part(row):
    of = row.plan.seconds
    return {
        "computation": of.compute + of.update,
        "bubble": of.bubble,
        "tensor axis": of.tensor,
        "pipeline axis": of.pipeline,
        "data axis": of.data,
    }


plot.parts(
    {f"{way}, {n} GPUs": seconds_by_part(row) for way, of in rows.items() for n, row in zip(gpus, of)},
    "seconds in a step",
    "Twice the GPUs nearly halve a grid's step; ZeRO-3 only waits for longer",
)
for way, of in rows.items():
    print(f"{way}, 1536 GPUs:", ", ".join(f"{part} {s:.1f} s" for part, s in seconds_by_part(of[2]).items()))
grid_parts, zero_parts = (seconds_by_part(of[2]) for of in rows.values())
assert grid_parts["computation"] > 0.8 * sum(grid_parts.values()) and grid_parts["tensor axis"] > 2
assert zero_parts["computation"] < 0.25 * sum(zero_parts.values())
by_gpus = [seconds_by_part(row) for row in rows["PTD-P"]]
assert abs(by_gpus[1]["bubble"] / by_gpus[2]["bubble"] - 1) < 0.01
assert by_gpus[0]["data axis"] < by_gpus[1]["data axis"] < by_gpus[2]["data axis"] < 0.02 * sum(by_gpus[2].values())

# %% [markdown]
# On 1536 GPUs the grid computes four fifths of its step, and most of the rest are messages along the tensor axis.
# ZeRO-3 computes for 14 of 65 seconds: what is drawn of its data axis is what computing does not hide. Not all of the
# grid's parts shrink with more GPUs. The bubble stays from 768 on, and the gradients' all-reduce along the data axis
# grows a little; both are small.
#
# ## Which grid would the planner have chosen?
#
# The paper gives a whole node to the tensor axis before it cuts a pipeline. For a GPT of 40 billion parameters on 1024
# GPUs, NVIDIA's own configuration did so in 2023, data x pipeline x tensor = 128 x 1 x 8, and no longer in 2024.
#
# **Predict first.** Which axis has shrunk since, and which has grown?

# %%
from mpcourse.data.published_plans import NEMO_GPT
from mpcourse.plan.published import places_today

places = places_today(NEMO_GPT[2])
for since, place in places.items():
    grid = " x ".join(map(str, place.grid))
    print(f"since {since}, {grid}: number {place.number} by our count, {place.longer:.1f} % behind the first")
old, new = places.values()
assert new.number <= 3 < old.number and new.longer < 1 and 15 < old.longer < 25

# %% [markdown]
# Even over NVLink, a tensor axis of 8 sends and waits several times in each layer, and its products are an eighth as
# wide. One of 2 with a pipeline of 4 stages takes a sixth less time. A tensor axis as wide as a node is a good first
# guess, and stays one where a batch has few sequences to fill a pipeline. In eight of ten rows of the paper's table 1
# its grid is among our best three. `python -m tests.validation grids` prints all places, and those of NVIDIA's
# configurations.
#
# ## A planner for your own model
#
# `mpcourse plan` tries all grids, micro-batches, checkpoints and stages of ZeRO, and shows the ten fastest grids that
# fit, and why the second is not the first. A model is a function that takes the communicator of the tensor axis:

# %% tags=["nbval-ignore-output"]
from pathlib import Path

Path("scratch").mkdir(exist_ok=True)
Path("scratch/gpt.py").write_text("""
from mpcourse.grid import Shape, transformer


def make_model(comm=None):
    return transformer(Shape(vocabulary=51_200, length=2048, width=4096, heads=32, layers=36), comm)
""")
# !mpcourse plan scratch/gpt.py:make_model --gpus 64 --gpu A100 --batch 64

# %% [markdown]
# **Predict first.** The model has 7.5 billion parameters, and each GPU has a network card of 25 GB/s. With it ZeRO-3 on
# all GPUs is the fastest. What would be the fastest if each card were one of 10 Gbit/s?

# %%
from mpcourse.plan import Asked, Input, Layers, Machines, Pricing, search
from mpcourse.predict import find_maker
from mpcourse.virtual import GPUS

layers = Layers(find_maker("scratch/gpt.py:make_model"), Input((2048,), True), GPUS["A100-SXM4"])
best = {}
for between in ("InfiniBand HDR", "10 GbE"):
    found = search(Pricing(layers, Machines.named(64, "A100-SXM4", between=between), 64), Asked(), best=3).best
    best[between] = found[0].candidate
    for plan in found:
        way = plan.candidate
        print(f"{between:15} {way}, ZeRO stage {way.zero}: {plan.seconds.total:.2f} s a step")
assert best["InfiniBand HDR"].grid == (64, 1, 1) and best["InfiniBand HDR"].zero == 3
assert best["10 GbE"].grid == (8, 8, 1)

# %% [markdown]
# Over InfiniBand ZeRO-3 wins, against the riddle? The planner lets a machine's eight cards share what is gathered, as
# NCCL does today, so that each carries an eighth. DeepSpeed of 2021 is taken to gather over one ring, at the 16 GB/s of
# one card. Over the slow network ZeRO-3 on all GPUs loses.
#
# There the fastest is a pipeline of eight machines, each with data parallelism inside. The data axis, which sends the
# most here, has moved to NVLink, and the network carries what crosses the cuts alone. **So which cut belongs on which
# wire?** The one that sends the most, and is waited for, on the fastest. Which that is depends on the model, the batch
# and the network, and can be computed.
#
# ## You wrote, they ship
#
# Everything in this lesson exists in torch. `lessons/twins/theirs.py` trains one small model by torch's own tools,
# started by torchrun; `ours.py` does the same with this course's library. After three steps all parameters are
# those of one process.

# %%
import runpy

TWINS = "../lessons/twins"
one = runpy.run_path(f"{TWINS}/model.py")["one_process"]()
total = sum(float(p.square().sum()) for p in one.values())
print(f"one process      {len(one)} parameters, sum of squares {total:.12f}")
# !torchrun --local-addr localhost --nproc-per-node 2 {TWINS}/theirs.py data_parallel tensor_parallel pipeline 2>/dev/null
# !mpirun -np 2 python {TWINS}/ours.py data_parallel tensor_parallel pipeline

# %% [markdown]
# | you wrote | they ship |
# |---|---|
# | `mpirun` and `comm.rank` | `torchrun` and `dist.get_rank()` |
# | `Grid` and `comm.Split` | `init_device_mesh` and its slices |
# | `MultiNodeOptimizer` with buckets | `DistributedDataParallel` |
# | `ParallelMLP` of `copy_in` and `sum_out` | `parallelize_module` with a plan, on DTensor |
# | `PipelineRank` and schedules as lists | `torch.distributed.pipelining` |
# | `allreduce`, `allgather` with a backward | `torch.distributed.nn.functional` |
# | `MultiNodeChainList` | nothing: ChainerMN had it |
# | `clip_grad_norm` on a grid | `clip_grad_norm_` on DTensors |
# | the stages of ZeRO (lesson 10) | `ZeroRedundancyOptimizer`, FSDP2's `fully_shard` |
#
# What theirs does more, and what ours shows more:
#
# - `torchrun` can start all workers again after one has failed (`--max-restarts`), and let their number change
#   (elasticity). Ours shows who waits for whom.
# - `init_device_mesh` takes any number of axes, by name. Ours shows which groups cross nodes, and their
#   bytes.
# - `DistributedDataParallel` overlaps without calls of `progress`: NCCL runs on the GPU. Ours shows what is sent and
#   when, on one time axis.
# - `parallelize_module` cuts the linear layers and embeddings of a model by a plan; the collective calls follow from
#   the placements. Ours shows the two functions by themselves.
# - `torch.distributed.pipelining` can trace a model, and cut it where it is told (`pipeline`). Ours shows why a
#   schedule is illegal, and its replay.
# - `torch.distributed.nn.functional` runs over NCCL, too. Ours shows each rule in a line.
# - `clip_grad_norm_` on DTensors knows from the placements what is sharded. Ours shows what is counted, and where.
# - FSDP2's `fully_shard` comes with sharded checkpoints (`torch.distributed.checkpoint`). Ours
#   shows what ZeRO frees in each of its stages.
#
# torch can simulate ranks in one process, too: `LocalTensorMode` (`torch.distributed._local_tensor`, for debugging)
# holds the tensors of all ranks, and runs one program on all of them at once. It has no clock and no links, and ranks
# that do different things are not its subject. Virtual ranks run any program that calls MPI, with a clock, and name
# deadlocks; each is a thread, so they are slower.
#
# How long does a step take? Two ranks, one core each, ours over MPI and theirs over gloo, in turns:

# %% tags=["nbval-ignore-output"]
# !mpcourse bench twins --np 2 --runs 3

# %% [markdown]
# "torch / ours" above 1 means that ours took less time. The two do not send alike: MPI's ranks share memory, and gloo
# sends through sockets. So this tells nothing of GPUs, where torch sends by NCCL.
#
# ## The reference implementation
#
# The two functions of tensor parallelism, the communicators of a grid, and the norm of the whole gradient. Each file is
# in `mpcourse/grid`; messages and collectives that autograd sees are in `mpcourse/model_parallel`.

# %%
from mpcourse.common.source import reference

reference(copy_in, sum_out, ParallelMLP, Grid, global_norm, send)

# %% [markdown]
# ## What production systems call it
#
# | here | there |
# |---|---|
# | `Grid(comm, data=, pipeline=, tensor=)` | 3D parallelism (DeepSpeed, Megatron-LM); `DeviceMesh`, JAX's `Mesh` |
# | tensor axis | TP; Megatron's `tensor_model_parallel_size` |
# | pipeline axis | PP; `pipeline_model_parallel_size` |
# | data axis | DP; replicas |
# | context axis | CP, context parallelism |
# | the order of axes | Megatron's `--use-tp-pp-dp-mapping`; Llama 3's [TP, CP, PP, DP] |
# | delegate, pseudo-connection | ChainerMN's `delegate_variable`, `pseudo_connect`; mpi4jax's tokens |
#
# What is missing here: sequence parallelism along the tensor axis, experts (expert parallelism),
# and what ZeRO and FSDP do with the data axis.
#
# Next comes your own training. `mpcourse predict --zero 3 --ranks 64` says how much memory it needs, and
# `mpcourse plan` which grid and stage would be the fastest.
