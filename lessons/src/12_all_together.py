# %% [markdown]
# # 12 All of it together
#
# **Which cut belongs on which wire?** About 55 minutes to read, and 90 for its exercises.
#
# In 2021 Narayanan and others trained a GPT of 174.6 billion parameters on A100s in two ways [1]. With ZeRO-3 (lesson
# 10), training on 300 billion tokens takes 74 days on 768 GPUs, and also 74 days on 1536. The second way, PTD-P,
# combines pipeline, tensor and data parallelism. It takes 43 days on 768 GPUs and 23 days on 1536.
#
# After this lesson you can
#
# - arrange ranks in a grid, with one communicator for each axis, so that most bytes stay inside a machine;
# - compute how many bytes a GPU sends along each axis in a training step;
# - train a transformer on a grid: backpropagate through messages, and correctly compute the norm of the whole gradient
#   and a mean over tokens;
# - predict the step time of a published training run, and find the fastest grid for a model of your own;
# - build the same grid in PyTorch with `DeviceMesh`, `parallelize_module` and `fully_shard`.

# %% tags=["nbval-ignore-output", "remove-cell"]
from mpcourse.course.learner import panel

panel.show("12_all_together")

# %% tags=["nbval-ignore-output"]
# %config InlineBackend.print_figure_kwargs = {"dpi": 110}
from itertools import permutations
from pathlib import Path

import numpy as np
import torch

from mpcourse import plot
from mpcourse.data.published_plans import LLAMA_3, NEMO_GPT, PTD_P_BESIDE_ZERO, ZERO_3
from mpcourse.data.text import course_text, draw_batch
from mpcourse.grid import AXES, Grid, GridTrainer, Shape, global_norm, stage, traffic_by_axis, transformer
from mpcourse.models.gpt import SMALL, token_loss
from mpcourse.pipeline import one_f_one_b
from mpcourse.virtual import MPI, Topology, compute, run

torch.set_num_threads(1)

# %% [markdown]
# ## Two ways on the same GPUs
#
# The paper gives the FLOP/s that each GPU reached. A training step of a transformer with P parameters costs 8 P FLOPs
# for each token: 2 P for the forward pass, 4 P for the backward pass, and 2 P for computing all activations again
# (lesson 03). These two numbers give the time of a step, in which the model sees 1536 sequences of 2048 tokens. The
# count leaves out attention, so our times are a few percent too short.

# %%
P, TOKENS = 174.6e9, 1536 * 2048
for way, rows in (("ZeRO-3", ZERO_3[:3]), ("PTD-P", PTD_P_BESIDE_ZERO[:3])):
    for row in rows:
        seconds = 8 * P * TOKENS / (row.gpus * row.teraflops * 1e12)
        days = 300e9 / TOKENS * seconds / 86_400
        print(f"{way:6} on {row.gpus:4} GPUs: {seconds:4.1f} s a step, {days:3.0f} days; published {row.days} days")

# %% [markdown]
# Lesson 10 covers the ZeRO-3 runs. In each step, the GPUs gather all parameters twice and reduce-scatter the gradients.
# Each GPU sends 3 P values of 2 bytes, 1048 GB, whatever the number of GPUs. In 65 s, this is an effective rate of 16.1
# GB/s. It is not known why the rate was not higher, but the number of bytes is certain.
#
# PTD-P cuts the same model into 12 stages of a pipeline (lesson 04), and each layer into 8 parts (lesson 11). So a
# replica of the model needs 96 GPUs. On 384, 768 and 1536 GPUs, there are 4, 8 and 16 replicas, which share the 1536
# sequences. Each GPU sends three kinds of messages:
#
# - **along the tensor axis**: six all-reduces of each layer's activations for each sequence, over NVLink. Two belong to
#   the forward pass, two to the backward pass, and two to the recomputation;
# - **along the pipeline axis**: one activation and one gradient for each sequence, over the network. Each of the 8 GPUs
#   that share a layer sends an eighth;
# - **along the data axis**: one all-reduce of the gradients of its own parameters in each step, over the network.
#
# **Predict first.** Which of the three kinds has the most bytes? For which of them does each GPU send fewer bytes if
# there are twice as many GPUs?

# %% tags=["answer"]
# answer
GB = {"ZeRO-3": 3 * P * 2 / 1e9}
for row in PTD_P_BESIDE_ZERO[:3]:
    data, pipeline, tensor = row.grid
    sequences, activation = row.batch / data, 2 * 2048 * row.width  # for each replica; bytes for each sequence
    along_tensor = 6 * 2 * (tensor - 1) / tensor * activation * row.layers / pipeline * sequences
    along_pipeline = 2 * activation / tensor * sequences
    along_data = 2 * (data - 1) / data * 2 * P / (pipeline * tensor)
    GB[row.gpus] = [n / 1e9 for n in (along_tensor, along_pipeline, along_data)]
    print("{:4} GPUs: tensor {:4.0f} GB, pipeline {:.1f} GB, data {:.1f} GB".format(row.gpus, *GB[row.gpus]))
network = GB[1536][1] + GB[1536][2]
print(f"over the network on 1536 GPUs: PTD-P {network:.0f} GB, ZeRO-3 {GB['ZeRO-3']:.0f} GB")

# %% tags=["checked"]
# checked: 8 P FLOPs a token give the published days to 4 %, and ZeRO-3 sends more than 100 times as much
for row in (*ZERO_3[:3], *PTD_P_BESIDE_ZERO[:3]):
    assert abs(300e9 * 8 * P / (row.gpus * row.teraflops * 1e12) / 86_400 / row.days - 1) < 0.04
assert GB[384][0] > GB["ZeRO-3"] > 100 * network and round(GB["ZeRO-3"] / 65.0, 1) == 16.1
assert GB[384][2] < GB[768][2] < GB[1536][2] < 2 * 2 * P / 96 / 1e9

# %% [markdown]
# <details><summary>Why</summary>
#
# The tensor axis carries by far the most bytes. On 384 GPUs, it carries even more than ZeRO-3 sends. These bytes are
# activations. With twice the GPUs, each replica sees half as many sequences, so these bytes halve. The pipeline's
# messages halve too. Only the gradients' messages grow a little, but never beyond 2 n bytes for n bytes of gradients
# (lesson 05).
#
# ZeRO-3 sends parameters. A GPU needs all of them, however few sequences it processes.
#
# </details>
#
# This difference remains, whatever limited the rate of ZeRO-3 to 16.1 GB/s. On 1536 GPUs, each GPU sends 8 GB over the
# network with PTD-P, and 1048 GB with ZeRO-3. PTD-P sends another 406 GB, but over NVLink. This lesson builds a grid
# like PTD-P's.
#
# ## A grid of ranks
#
# A grid has three axes: data (replicas of the model), pipeline (stages), and tensor (parts of each layer). Each rank
# has a coordinate on each axis. For each axis, it has a communicator with the ranks that differ from it only in this
# coordinate. `comm.Split(color, key)` makes these communicators. The next cell arranges eight ranks on two machines,
# with two ranks along each axis. (The figure calls a machine a node.)

# %%
NODES = Topology(nodes=[rank // 4 for rank in range(8)], inside="NVLink 3", between="InfiniBand HDR")
grid = run(lambda comm: Grid(comm, data=2, pipeline=2, tensor=2), 8, NODES).results[0]
plot.groups({axis: grid.groups(axis) for axis in AXES}, grid.nodes, "Ranks with the same letter share a communicator")
None

# %% tags=["checked"]
# checked: the groups that the next paragraph names
assert (4, 5) in grid.groups("tensor") and (5, 7) in grid.groups("data") and (1, 5) in grid.groups("pipeline")

# %% [markdown]
# Each rank is in three groups. Rank 5 has the same layers as rank 4, but the other half of each. It has the same
# weights as rank 7, but sees different examples. It gets its activations from rank 1.
#
# The ranks are numbered axis by axis. Along the **innermost axis**, neighbours have consecutive numbers, so a launcher
# puts them on the same machine. Along the **outermost axis**, the numbers are farthest apart. In Megatron-LM, NVIDIA's
# library for large transformers, tensor is the innermost axis, data the middle one, and pipeline the outermost. For
# Llama 3, data is the outermost axis [2].
#
# Exercise [`e12_grid`](../exercises/e12_grid.py): make the three communicators. (The verdicts call the innermost axis
# the fastest, because its coordinate changes fastest.)

# %% tags=["nbval-ignore-output", "remove-output"]
# !mpcourse check e12_grid

# %% [markdown]
# ## One model in three dimensions
#
# The model is the course's small GPT (lesson 01), which reads the course's text. It has an embedding, four layers of
# attention and MLP, and a head that uses the embedding's weight again to turn the last activations into logits. This
# weight is *tied*: the first and the last stage each have a copy, and the gradients of both copies are added. A step on
# the grid consists of four parts:
#
# - Along the tensor axis, each layer performs two all-reduces in the forward pass and two in the backward pass.
# - Along the pipeline axis, activations go forward and their gradients go back.
# - Along the data axis, the gradients are averaged at the end of the step.
# - Then the gradient is clipped by its norm, and each rank's optimizer updates the rank's own parameters.

# %%
BATCH, MICROBATCHES, CLIP = 16, 4, 0.2
X, TARGET = draw_batch(course_text().train, BATCH, SMALL.length, torch.Generator().manual_seed(0))
ORDER = ("pipeline", "data", "tensor")  # from the outermost to the innermost


def trainer_on(comm, sizes, order=ORDER, dtype=torch.float32, clip=CLIP):
    """Return this rank's part of a training on a grid, and its share of the batch."""
    grid = Grid(comm, **dict(zip(AXES, sizes)), order=order)
    stages = grid.pipeline.size
    part, tied = stage(transformer(SMALL, grid.tensor).to(dtype), stages, grid.pipeline.rank)
    schedule = one_f_one_b(stages, MICROBATCHES)
    trainer = GridTrainer(grid, part, schedule, token_loss, lambda p: torch.optim.AdamW(p, 1e-2), tied=tied, clip=clip)
    each = BATCH // grid.data.size
    share = slice(grid.data.rank * each, (grid.data.rank + 1) * each)
    return trainer, X[share], TARGET[share]


def norms_of_three_steps(comm, sizes):
    trainer, x, target = trainer_on(comm, sizes, dtype=torch.float64)
    return [trainer.step(x, target).norm for _ in range(3)]


model = transformer(SMALL).double()
optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
alone = []
for _ in range(3):
    optimizer.zero_grad()
    token_loss(model(X), TARGET).backward()
    alone.append(torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP).item())
    optimizer.step()
found = {"one process": alone}
for sizes in ((2, 2, 2), (1, 4, 2)):
    name = "data {} x pipeline {} x tensor {}".format(*sizes)
    found[name] = run(lambda comm, sizes=sizes: norms_of_three_steps(comm, sizes), 8).results[0]
print("norm of the gradient in three steps, before it is clipped")
for name, norms in found.items():
    print(f"{name:31}", ", ".join(f"{norm:.12f}" for norm in norms))

# %% tags=["checked"]
# checked: all norms are equal, and each of them is clipped
assert all(np.allclose(norms, alone, rtol=1e-12) for norms in found.values()) and min(alone) > CLIP


# %% [markdown]
# The norms in one process and on both grids agree to twelve digits. The second and the third norm are computed after
# clipped gradients have changed the weights, so the steps agree too.
#
# ## Bytes on each wire
#
# **Predict first.** Along which axis do the ranks of the 2 x 2 x 2 grid send the most bytes in a step, and along which
# the fewest? Which messages must a rank wait for before it can continue computing?

# %% tags=["answer"]
# answer
def one_step(comm, sizes, order=ORDER, seconds=0.0):
    """Run a step. Return the grid, and when the step began and ended.

    seconds: what a layer computes forward; backward takes twice as long.
    """
    trainer, x, target = trainer_on(comm, sizes, order)
    for block in (layer for layer in trainer.part if hasattr(layer, "mlp") and seconds):
        block.register_forward_pre_hook(lambda *_: compute(comm, seconds, "forward"))
        block.register_full_backward_pre_hook(lambda *_: compute(comm, 2 * seconds, "backward"))
    comm.Barrier()
    begin = MPI.Wtime()
    trainer.step(x, target)
    return trainer.grid, begin, MPI.Wtime()


done = run(lambda comm: one_step(comm, (2, 2, 2), seconds=10e-6), 8, NODES)
grid, begin, end = done.results[0]
sent = traffic_by_axis(grid, done.traffic)
for axis, (total, away) in sent.items():
    print(f"{axis:9} {total / 1e6:5.2f} MB a step, {away / 1e6:5.2f} MB of them between machines")
neighbours = [grid.rank_at(**{"data": 0, "pipeline": 0, "tensor": 0, axis: 1}) for axis in AXES[::-1]]
lanes = ["rank 0", *(f"rank 0 -> rank {rank}" for rank in neighbours)]
plot.timeline(done.events, "Rank 0 sends most to rank 1 (tensor), and computes nothing meanwhile", begin, end, lanes)
None

# %% tags=["checked"]
# checked: four all-reduces of activations in each layer on two ranks, and how the axes compare
activations = 4 * BATCH * SMALL.length * SMALL.width
assert sent["tensor"].nbytes == 4 * SMALL.layers * activations * 2
assert 4 < sent["tensor"].nbytes / sent["data"].nbytes < 5
assert 7.5 < sent["tensor"].nbytes / sent["pipeline"].nbytes < 8.5


# %% [markdown]
# <details><summary>Why</summary>
#
# Along the tensor axis, the ranks send more than four times as many bytes as along the data axis, and eight times as
# many as along the pipeline axis. Each layer performs four all-reduces of all its activations, and a rank waits for
# each of them, because the next computation needs the result. (Here a layer computes for 10 us forward and 20 us
# backward.) Along the pipeline axis, the ranks send only the activations at the one cut and their gradients. The
# all-reduce of the gradients comes once, at the end of the step.
#
# </details>
#
# That is why tensor parallelism belongs inside a machine. What if the ranks are numbered in another order? The model,
# the grid's sizes and the bytes stay the same. What changes is which ranks share a machine.
#
# **Predict first.** There are six orders of the axes. How many different step times do they give?

# %% tags=["answer"]
# answer
def communication(order, between="InfiniBand HDR", sizes=(2, 2, 2)):
    """Return the milliseconds of a step without computing; by axis the megabytes inside and between machines."""
    done = run(lambda comm: one_step(comm, sizes, order), 8, Topology(NODES.nodes, NODES.inside, between))
    sent = traffic_by_axis(done.results[0][0], done.traffic)
    seconds = max(end for *_, end in done.results) - min(begin for _, begin, _ in done.results)
    return 1e3 * seconds, {
        axis: {"inside machines": (of.nbytes - of.between_nodes) / 1e6, "between machines": of.between_nodes / 1e6}
        for axis, of in sent.items()
    }


took = {}
for order in permutations(AXES):
    took[order], megabytes = communication(order)
    crosses = {axis: mb["between machines"] for axis, mb in megabytes.items() if mb["between machines"]}
    crossing = ", ".join(f"{axis} {mb:.2f} MB" for axis, mb in crosses.items())
    print(f"{' > '.join(order):24} {took[order]:.2f} ms; between machines: {crossing}")
for outermost in AXES:
    order = (outermost, *(axis for axis in ORDER if axis != outermost))
    took[outermost], _ = communication(order, between="10 GbE")
    print(f"over 10 GbE, {outermost:8} outermost: {took[outermost]:.2f} ms")

# %% tags=["checked"]
# checked: three times; over InfiniBand pipeline is the best outermost axis, over 10 GbE data is
by_outermost = {axis: {round(t, 6) for order, t in took.items() if order[0] == axis} for axis in AXES}
assert all(len(times) == 1 for times in by_outermost.values())
assert max(by_outermost["pipeline"]) < min(by_outermost["data"]) < min(by_outermost["tensor"])
assert took["data"] < took["pipeline"] < 0.5 * took["tensor"]


# %% [markdown]
# <details><summary>Why</summary>
#
# Here a machine's four ranks fill the two inner axes (2 x 2). So only messages along the outermost axis cross between
# machines, and the order of the other two does not matter. This leaves three different times. A step is slowest if the
# tensor axis is outermost, and by far the slowest over 10 GbE.
#
# The fewest bytes cross between machines if the pipeline axis is outermost. Over InfiniBand, this is also the fastest
# order. Over 10 GbE, the data axis is the better outermost axis, although it sends more bytes. Its all-reduce sends in
# both directions simultaneously, and only once a step. A pipeline sends many messages forward and then back. Each of
# them adds its latency, which no computation hides here.
#
# </details>
#
# Try other sizes with the sliders.

# %%
def by_order(outermost="tensor", between="10 GbE", sizes="2 x 2 x 2"):
    order = (outermost, *(axis for axis in ORDER if axis != outermost))
    each = [int(n) for n in sizes.split(" x ")]
    milliseconds, megabytes = communication(order, between, each)
    rows = {f"{axis} {n}": megabytes[axis] for axis, n in zip(AXES, each)}
    return plot.parts(rows, "MB a step", f"{outermost.capitalize()} outermost, {between}: {milliseconds:.2f} ms a step")


plot.sliders(
    by_order,
    outermost=["pipeline", "data", "tensor"],
    between=["InfiniBand HDR", "100 GbE", "10 GbE"],
    sizes=["2 x 2 x 2", "1 x 4 x 2", "4 x 1 x 2", "1 x 2 x 4", "2 x 1 x 4"],
)


# %% [markdown]
# ## What backward does at a wire
#
# A rank's autograd knows only what this rank has computed. So each message and each collective needs a backward
# function of its own. Two such functions are enough for a tensor-parallel layer, in which all ranks have the same input
# and compute the same loss [3]:
#
# | | forward | backward |
# |---|---|---|
# | `copy_in`, before the layer | nothing: each rank has x | all-reduce of partial gradients of x |
# | `sum_out`, after it | all-reduce of partial results | nothing: each rank has the whole gradient |
#
# The backward of `sum_out` is right only if all ranks receive the same gradient. If the ranks compute different losses
# and training minimises their sum, other rules hold. The appendix [12, parts in any graph](appendix/12_any_graph.ipynb)
# lists them.
#
# A pipeline needs a send and a receive through which autograd can propagate gradients. The backward of `recv` sends the
# gradient, and the backward of `send` receives it. A rank that has sent its activation away has no loss on which it
# could call `backward()`. So `send` returns a **delegate**, the number 0 with a graph behind it. The delegate's
# `backward()` waits for the gradient.
#
# Exercise [`e12_send_recv`](../exercises/e12_send_recv.py): write `send` and `recv`.

# %% tags=["nbval-ignore-output", "remove-output"]
# !mpcourse check e12_send_recv

# %% [markdown]
# ## Two numbers that no rank has
#
# **The norm of the gradient.** Clipping needs the square root of the sum of the squares of all gradients. Along the
# tensor axis, each rank has the gradient of a different part of a sharded weight, but all ranks have the same gradient
# of a layer norm. Along the data axis, all gradients are the same. A sum over all ranks of the grid therefore counts
# the sharded weights once for each replica, and the layer norms even more often.

# %%
def three_norms(comm):
    trainer, x, target = trainer_on(comm, (2, 2, 2), dtype=torch.float64)
    trainer.step(x, target)  # afterwards the gradients are still there, clipped
    whole = global_norm(trainer.grid, trainer.parameters, trainer.sharded, trainer.counted_elsewhere)
    own = sum(float(p.grad.square().sum()) for p in trainer.parameters)
    return whole, own**0.5, sum(comm.allgather(own)) ** 0.5


whole, own, everything = run(three_norms, 8).results[0]
print(f"norm of the clipped gradient {whole:.6f}; of rank 0's part {own:.6f}; of all ranks' parts {everything:.6f}")

# %% [markdown]
# Clipping reduced the norm to 0.2, so the first norm is right. The second is too small and the third is too large.
#
# **The number of tokens.** Sequences have different lengths, and padding has no loss. The loss of a batch is the mean
# over its tokens. If we average the means of the micro-batches, a token of a short micro-batch counts more than a token
# of a long one. Hugging Face's Trainer had this fault until October 2024: for the same batch it minimised a different
# loss with gradient accumulation than without [4]. A mean over ranks can be wrong in the same way.

# %%
lengths, losses = np.array([100, 4]), np.array([2.0, 6.0])  # two micro-batches: tokens, and the mean loss over them
print(f"mean of means {losses.mean():.2f}, mean over tokens {(lengths * losses).sum() / lengths.sum():.2f}")

# %% [markdown]
# Exercises [`e12_clip`](../exercises/e12_clip.py) and [`e12_tokens`](../exercises/e12_tokens.py): compute the norm and
# the mean.

# %% tags=["nbval-ignore-output", "remove-output"]
# !mpcourse check e12_clip
# !mpcourse check e12_tokens

# %% [markdown]
# ## Both ways predicted
#
# The planner of this course, `mpcourse.plan`, predicts the time of a step. For each size of the tensor axis, it runs
# the model's own layers on a virtual GPU whose tensors hold no data. It counts what their all-reduces send, and replays
# the pipeline's schedule. It computes the time of a matrix product from the product's shape, with constants fitted to
# others' measurements. Only one number is fitted to the paper: the 16.1 GB/s of ZeRO-3.
#
# **Predict first.** On 1536 GPUs, what share of a step is computation in PTD-P, and what share in ZeRO-3?

# %% tags=["answer"]
# answer
from mpcourse.plan.published import GATHERS, layers_of, llama_layers, places_today, predicted, predicted_llama

layers = layers_of(ZERO_3[0])
rows = {f"PTD-P, {row.gpus} GPUs": predicted(row, layers) for row in PTD_P_BESIDE_ZERO[:3]}
rows |= {f"ZeRO-3, {row.gpus} GPUs": predicted(row, layers, zero=3, between=GATHERS) for row in ZERO_3[:3]}
parts, published = {}, {}
for name, row in rows.items():
    of = row.plan.seconds
    parts[name] = {"computing": of.compute + of.update, "bubble": of.bubble, "tensor axis": of.tensor}
    parts[name] |= {"pipeline axis": of.pipeline, "data axis": of.data}
    published[name] = of.total * row.teraflops / row.published.teraflops
    share = parts[name]["computing"] / of.total
    print(f"{name:17} {of.total:4.1f} s, {share:.0%} computing; {row.teraflops:.0f} TFLOP/s,", end=" ")
    print(f"published {row.published.teraflops} ({row.miss:+.0f} %)")
plot.parts(parts, "seconds a step", "Beyond 768 GPUs, more GPUs shorten a step of PTD-P, but not of ZeRO-3", published)
None

# %% tags=["checked"]
# checked: PTD-P and two rows of ZeRO-3 are within 3 %, and a step of ZeRO-3 on 384 GPUs is predicted too short
miss = {name: row.miss for name, row in rows.items()}
assert all(abs(of) < 3 for name, of in miss.items() if name != "ZeRO-3, 384 GPUs")
first, ptd_p, zero = (parts[name] for name in ("ZeRO-3, 384 GPUs", "PTD-P, 1536 GPUs", "ZeRO-3, 1536 GPUs"))
assert 53 < first["computing"] < 53.5 and first["computing"] < 65 < published["ZeRO-3, 384 GPUs"] < 53 + 65
assert ptd_p["computing"] > 0.8 * sum(ptd_p.values()) and zero["computing"] < 0.25 * sum(zero.values())
assert abs(published["ZeRO-3, 768 GPUs"] / 65.0 - 1.026) < 0.001

# %% [markdown]
# <details><summary>Why</summary>
#
# PTD-P computes during four fifths of its step. Most of the rest is communication along the tensor axis. ZeRO-3
# computes for 14 of 65 seconds. (Its data axis shows only the messages that computing does not hide.) The black marks
# show the step times that follow from the published FLOP/s. They use the paper's count of FLOPs, which includes
# attention and is 2.6 % above 8 P for each token.
#
# </details>
#
# Five of the six predictions are within 3 % of the paper. But we fitted the 16.1 GB/s to two of these five, ZeRO-3 on
# 768 and on 1536 GPUs. (Both give the same rate.) On 384 GPUs, the step that we predict for ZeRO-3 is too short. By our
# count, these GPUs compute for 53 s and send for 65 s. The planner assumes that the shorter part is hidden completely.
# The published step took about 80 s. If both of our numbers are right, which is not certain, computing hid little more
# than half of the sending.
#
# In a clone of the course, `python -m tests.validation plans` prints all rows of the paper's two tables.
#
# ## H100s and long sequences
#
# Meta trained Llama 3, with 405 billion parameters, on H100s [2]. One row of the paper's table has sequences of 131 072
# tokens. In this run, 16 ranks share each sequence and form a **context axis**. It works like a data axis, but in each
# layer its ranks gather the keys and values of the whole sequence.

# %%
short, long = LLAMA_3[0], LLAMA_3[2]
llama = {row: llama_layers(row) for row in (short, long)}
asked = ((short, False), (long, False), (long, True))
counts = {(row, masked): predicted_llama(row, llama[row], masked) for row, masked in asked}
for (row, masked), ours in counts.items():
    print(
        f"{row.gpus:5} H100s, {row.length:6} tokens, context {row.context:2}: published {row.teraflops} TFLOP/s, "
        f"predicted {ours.teraflops:.0f}{', if attention is counted under its mask' * masked}"
    )

# %% tags=["checked"]
# checked: within 10 % of both rows, if the mask is counted in the second; otherwise more than a third too fast
assert abs(counts[short, False].miss) < 10 and abs(counts[long, True].miss) < 10
assert 34 < counts[long, False].miss < 40

# %% [markdown]
# With long sequences, most FLOPs belong to attention. With a causal mask, only half of these FLOPs are needed, and the
# paper does not say whether its 380 TFLOP/s include the masked half. If they do, our prediction is 35 % too fast. If
# they do not, it is 4 % too slow.
#
# ## Which grid would the planner have chosen?
#
# In the PTD-P paper, the tensor axis fills a whole machine before the model is cut into stages. NVIDIA's configuration
# for a GPT of 40 billion parameters on 1024 GPUs did the same in January 2023, with data x pipeline x tensor = 128 x 1
# x 8. In February 2024, NVIDIA changed this grid [5].
#
# **Predict first.** Which axis became smaller, and which became larger?

# %% tags=["answer"]
# answer
places = places_today(NEMO_GPT[2])
for since, place in places.items():
    sizes = " x ".join(map(str, place.grid))
    print(f"since {since}, {sizes}: number {place.number} by our count, {place.longer:.0f} % longer than number 1")

# %% tags=["checked"]
# checked: the new grid is among our best three, and the old one takes 15 to 25 % longer
old, new = places.values()
assert new.number <= 3 < old.number and new.longer < 1 and 15 < old.longer < 25

# %% [markdown]
# <details><summary>Why</summary>
#
# With a tensor axis of 8, ranks send and wait several times in each layer, which costs time even over NVLink. The
# narrower products cost less (lesson 11). A step takes 16 % less time with a tensor axis of 2 and a pipeline of 4
# stages.
#
# </details>
#
# Our count differs from NVIDIA's programs in two ways. First, it assumes A100s. NVIDIA's examples of January 2024 use a
# tensor axis of 2 with 4 stages on A100s and on H100s. The later configurations of two other sizes, 20 and 175 billion,
# contain settings for the H100. Second, all configurations above 5 billion parameters, old and new, use **sequence
# parallelism**: the ranks of the tensor axis also divide the tokens of the layer norms among themselves [6]. The
# messages have 1.25 times as many bytes (lesson 11), but the additional ones can be hidden. The layer norms take less
# memory and time on each rank, and a wider tensor axis saves more. So the old grid may be a little better than our
# count says.
#
# A tensor axis as wide as a machine is a good first guess, above all if a batch has too few sequences to fill a longer
# pipeline. `python -m tests.validation grids` prints each published grid's place in the planner's list of the fastest
# grids.
#
# ## A plan for your own model
#
# `mpcourse plan` tries all grids, micro-batches, kinds of recomputation and stages of ZeRO. It prints the fastest ten
# that fit, and how far published trainings were from such predictions. It takes a function that returns any `nn.Module`
# (`file.py:make_model`), or a name (`--model llama-3.1-8b`). If the function takes the tensor axis's communicator, the
# model can be cut along this axis, too. The next cell plans a GPT of 7.5 billion parameters.
#
# **Predict first.** On A100s with network cards of 25 GB/s (InfiniBand HDR), ZeRO-3 on all GPUs is the fastest plan.
# Replace each A100 with an H100, which computes about three times as fast, and keep the network. Is that plan still the
# fastest? And what is the fastest plan, with either GPU, if each network card has only 10 Gbit/s?

# %% tags=["answer"]
# answer
from mpcourse.plan import Asked, Input, Layers, Machines, Pricing, search
from mpcourse.virtual import GPUS


def make_model(comm=None):
    return transformer(Shape(vocabulary=51_200, length=2048, width=4096, heads=32, layers=36), comm)


best = {}
for gpu in ("A100-SXM4", "H100-SXM"):
    layers = Layers(make_model, Input((2048,), True), GPUS[gpu])
    for between in ("InfiniBand HDR", "10 GbE"):
        pricing = Pricing(layers, Machines.named(64, gpu, between=between), 64)
        plans = search(pricing, Asked(), best=2).best
        best[gpu, between] = plans[0].candidate
        for plan in plans:
            way, of = plan.candidate, plan.seconds
            print(f"{gpu:9} {between:14} {way}, ZeRO {way.zero}: {of.total:.2f} s, {of.compute:.2f} s computing")

# %% tags=["checked"]
# checked: the grids that the text below names
grids = [plan.grid for plan in best.values()]
assert grids == [(64, 1, 1), (8, 8, 1), (32, 1, 2), (8, 8, 1)] and best["A100-SXM4", "InfiniBand HDR"].zero == 3

# %% [markdown]
# <details><summary>Why</summary>
#
# On A100s, computing hides ZeRO-3's messages, which slow it down a little. (The planner assumes that each of a
# machine's eight network cards carries an eighth of the gathered parameters, at its full rate. In 2021, the rate was
# lower and the model larger.) H100s would wait for the network. With a tensor axis of 2, over NVLink, each GPU gathers
# half as many parameters. This is the fastest plan.
#
# Over 10 Gbit/s, the fastest plan is a pipeline of eight machines with data parallelism inside each. Here the data axis
# has the most bytes, and it runs over NVLink. Only the activations at the cuts and their gradients cross the network.
#
# </details>
#
# **So which cut belongs on which wire?** Of the cuts whose messages make ranks wait, the one with the most bytes
# belongs on the fastest wire. Which cut this is depends on the model, the batch, the GPU and the network, and can be
# computed. The next cell plans Llama 3.1 8B on 16 H100s. Put your own model in its place.

# %%
# !TERM=dumb mpcourse plan --model llama-3.1-8b --gpus 16 --gpu H100-SXM --batch 64 --length 8192 | sed -n "4,7p"

# %% [markdown]
# ## The same in PyTorch
#
# `init_device_mesh` makes the communicators of a grid, and names its axes. `parallelize_module` cuts linear layers
# along one axis: `ColwiseParallel` and `RowwiseParallel` do what `copy_in` and `sum_out` do. `fully_shard` is ZeRO-3
# along another axis. Four real processes train the small GPT for three steps on a mesh of 2 x 2.

# %% tags=["nbval-ignore-output"]
Path("scratch").mkdir(exist_ok=True)

# %% tags=["nbval-ignore-output"]
# %%writefile scratch/mesh.py
import time

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from mpcourse.data.text import course_text, draw_batch
from mpcourse.models.gpt import SMALL, gpt, token_loss

mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor"))  # on GPUs "cuda"
torch.manual_seed(0)  # the same model on all ranks
model = gpt(SMALL).double()
model[-1].linear.weight = model[0].weight  # tied
for block in model[1:-1]:
    parallelize_module(block, mesh["tensor"], {"first": ColwiseParallel(), "second": RowwiseParallel()})
    fully_shard(block, mesh=mesh["data"])
fully_shard(model, mesh=mesh["data"])
optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
batch = draw_batch(course_text().train, 16, SMALL.length, torch.Generator().manual_seed(0))
x, target = (whole.chunk(2)[mesh["data"].get_local_rank()] for whole in batch)
for _ in range(3):
    optimizer.zero_grad()
    token_loss(model(x), target).backward()
    optimizer.step()
total = sum(p.full_tensor().square().sum().item() for p in model.parameters())
if dist.get_rank() == 0:
    print(f"sum of the squares of all parameters: {total:.10f}")
time.sleep(0.1)  # gloo's threads free their tensors; while Python exits, they would abort it
dist.destroy_process_group()


# %%
# !torchrun --local-addr localhost --nproc-per-node 4 scratch/mesh.py 2> scratch/torchrun.log

# %%
def ours(comm):
    trainer, x, target = trainer_on(comm, (2, 1, 2), dtype=torch.float64, clip=None)
    for _ in range(3):
        trainer.step(x, target)
    split = {id(p) for p in trainer.sharded}
    own = [sum(p.square().sum().item() for p in trainer.parameters if (id(p) in split) == of) for of in (True, False)]
    return trainer.grid.tensor.allreduce(own[0]) + own[1]


print(f"ours, data 2 x tensor 2:              {run(ours, 4).results[0]:.10f}")

# %% [markdown]
# The two sums agree to ten decimals. There are three differences from our grid.
#
# - Here PyTorch cuts only the MLPs along the tensor axis. With separate matrices for queries, keys and values,
#   attention can be cut like them (lesson 11).
# - Along the data axis, `fully_shard` also shards the parameters, whereas our `GridTrainer` keeps them whole. This
#   changes memory and messages, but not the result.
# - `torch.nn.utils.clip_grad_norm_` computes the norm over a mesh by itself, if all parameters are on the same mesh.
#   Here the layer norms are only on the data axis, so the call would raise an error.
#
# ## The reference implementation
#
# The layers that are cut along the tensor axis are those of lesson 11.

# %%
from mpcourse.common.source import reference

reference(Grid, global_norm)

# %% [markdown]
# ## What production systems call it
#
# | here | there |
# |---|---|
# | `Grid(comm, data=, pipeline=, tensor=)` | 3D parallelism; `DeviceMesh`, JAX's `Mesh` |
# | tensor axis | TP; Megatron-LM's `tensor_model_parallel_size` |
# | pipeline axis | PP; `pipeline_model_parallel_size`; `torch.distributed.pipelining` |
# | data axis | DP; `DistributedDataParallel`, or `fully_shard` for ZeRO |
# | context axis | CP, context parallelism |
# | the order of the axes | Megatron-LM's `--use-tp-pp-dp-mapping`; Llama 3's [TP, CP, PP, DP] |
# | `ParallelMLP` from `copy_in` and `sum_out` | `parallelize_module` with a plan, on tensors of type `DTensor` |
# | collectives with a backward | `torch.distributed.nn.functional` |
# | delegate | ChainerMN's `delegate_variable`; mpi4jax's tokens |
#
# The appendix [12, ours and PyTorch's](appendix/12_twins.ipynb) trains the same model both ways, compares the
# parameters, and measures the time of a step. This lesson leaves out experts (lesson 14).
#
# 1. Deepak Narayanan and others, *Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM*,
#    2021, <https://arxiv.org/abs/2104.04473>, table 2
# 2. Llama Team, *The Llama 3 Herd of Models*, 2024, <https://arxiv.org/abs/2407.21783>, table 4
# 3. Mohammad Shoeybi and others, *Megatron-LM: Training Multi-Billion Parameter Language Models Using Model
#    Parallelism*, 2019, <https://arxiv.org/abs/1909.08053>
# 4. Hugging Face, *Fixing Gradient Accumulation*, 2024, <https://huggingface.co/blog/gradient_accumulation>
# 5. NVIDIA, *NeMo Framework Launcher*, 2023 and 2024, `launcher_scripts/conf/training/gpt3/40b.yaml` and
#    `examples/training/gpt`, <https://github.com/NVIDIA/NeMo-Framework-Launcher>
# 6. Vijay Korthikanti and others, *Reducing Activation Recomputation in Large Transformer Models*, 2022,
#    <https://arxiv.org/abs/2205.05198>
#
# ## Problems
#
# **1.** An H100 has 989 TFLOP/s and NVLink 4 with 450 GB/s in each direction. An A100 has 312 TFLOP/s and NVLink 3 with
# 300 GB/s. In the forward pass, a layer of width 12 288 costs 24 x 12 288² FLOPs for each token, and needs two
# all-reduces of 12 288 values of 2 bytes. The layer is split across 8 GPUs. Assume half of the peak FLOP/s and the full
# bandwidth. What share of the forward pass is communication?
#
# **2.** A GPT has 70 billion parameters, 80 layers and a width of 8192. It is trained on 512 GPUs with 512 sequences of
# 8192 tokens a step, in bfloat16. How many bytes per step does a GPU send over the network with ZeRO-3, and how many
# with data 8 x pipeline 8 x tensor 8? Split the pipeline's messages over the tensor axis, and leave out recomputation.

# %% tags=["answer"]
# answer
for gpu, flops, bandwidth in (("A100", 312e12, 300e9), ("H100", 989e12, 450e9)):
    computing = 24 * 12_288**2 / 8 / (flops / 2)
    sending = 2 * 2 * 7 / 8 * 12_288 * 2 / bandwidth
    print(f"1. {gpu}: {1e9 * computing:.0f} ns computing, {1e9 * sending:.0f} ns sending for each token,", end=" ")
    print(f"so {sending / (computing + sending):.0%} communication")
print(f"2. ZeRO-3: 3 * 70e9 * 2 bytes = {3 * 70e9 * 2 / 1e9:.0f} GB")
along_pipeline, along_data = 2 * 8192 * 8192 * 2 / 8 * 512 / 8, 2 * 7 / 8 * 2 * 70e9 / 64
print(f"   grid: pipeline {along_pipeline / 1e9:.1f} GB + data {along_data / 1e9:.1f} GB")

# %% [markdown]
# ## What you found
#
# - A grid gives each rank a communicator for each axis. The innermost axis stays inside a machine. It should be the
#   axis with the most bytes for which ranks must wait, usually the tensor axis.
# - Along the tensor and the pipeline axis, a GPU sends activations, which become fewer if more replicas share the
#   batch. ZeRO-3 sends parameters, and their number stays the same.
# - Each message needs a backward function of its own. A sum over ranks must count each element of the gradient once,
#   and a mean must count each token once.
# - The planner predicts five of six published steps within 3 %. It is not known how much of ZeRO-3's sending was hidden
#   on 384 GPUs, nor why it reached only 16.1 GB/s. The fastest grid changes with the GPU and with the network.
# - PyTorch's mesh, `parallelize_module` and `fully_shard` lead to the same parameters as our grid.
#
# Next comes lesson 13, [Long sequences](13_long_sequences.ipynb). What if a sequence does not fit?
