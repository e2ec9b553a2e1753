# %% [markdown]
# # 09 Large batches
#
# **What does a bigger batch do to learning?** About 60 minutes, and 65 for its exercises.
#
# With p GPUs at work the batch is p times as large. Lesson 08 asked how fast that is. But an epoch then has p times
# fewer updates. The notes on the ChainerMN talk of 2017 say what came of it: with 128 GPUs the learning curve still
# rises, and ends a little below the one of eight.
#
# The same year Goyal et al. trained ResNet-50 in an hour with a batch of 8192, at no loss. Akiba et al. needed 15
# minutes with 32 768. What did they do about it?

# %% tags=["nbval-ignore-output"]
# %config InlineBackend.print_figure_kwargs = {"dpi": 110}
from statistics import mean

import torch
import torch.nn.functional as F

from mpcourse import plot
from mpcourse.data import digits
from mpcourse.data_parallel import MultiNodeOptimizer, create_communicator
from mpcourse.large_batch import ManyRuns, RankNoise, Schedule, linear_scaling, sqrt_scaling
from mpcourse.models import mlp
from mpcourse.virtual import run

DATA = digits()
EXAMPLES = len(DATA.train)
BATCHES, BASE, BASE_RATE = [16, 64, 256, 1024], 16, 0.04
SEEDS = [0, 1, 2, 3, 4]
torch.set_num_threads(1)  # for matrices as small as these, starting a second thread takes longer than it saves


# %% [markdown]
# ## Many runs at once
#
# 1437 real digits, an MLP of 64-32-10, SGD with momentum 0.9, 20 epochs. One such run takes a second. We need hundreds:
# four batch sizes, nine learning rates, five seeds each. So all runs of one batch size are trained together. Their
# weights are stacked, and a step of 45 networks is a few batched products (`mpcourse.large_batch.ManyRuns`). Each run
# is what it would be alone, but for rounding.

# %%
def train(batch, schedules, epochs=20, **options):
    """The learning curves of each schedule, one for each seed, with 20 epochs of batches of that size."""
    steps = epochs * -(-EXAMPLES // batch)
    rates = torch.tensor([[schedule(step) for schedule in schedules for _ in SEEDS] for step in range(steps)])
    every = max(1, min(8, steps // 40))
    runs = ManyRuns(
        (64, 32, 10), DATA, batch, SEEDS * len(schedules), rates, momentum=0.9, record_every=every, **options
    )
    curves = runs.finish()
    return [curves[i : i + len(SEEDS)] for i in range(0, len(curves), len(SEEDS))]


def accuracy(curves):
    return 100 * mean(curve.test_accuracy[-1] for curve in curves)


RATES = [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56]
found = {batch: dict(zip(RATES, train(batch, [Schedule(rate) for rate in RATES]))) for batch in BATCHES}
for batch in BATCHES:
    updates = 20 * -(-EXAMPLES // batch)
    reached = accuracy(found[batch][BASE_RATE])
    print(f"batch {batch:4}, rate {BASE_RATE}: {updates:4} updates in 20 epochs, {reached:.1f} % right")
assert accuracy(found[1024][BASE_RATE]) < accuracy(found[16][BASE_RATE]) - 10

# %% [markdown]
# Same epochs, same rate: from 97 % down to 80. With a batch of 1024 there are 40 updates in place of 1800, and each
# goes no further than the small ones did.
#
# ## The rate belongs to the batch
#
# So let each batch have its own rate.

# %%
plot.lines(
    RATES,
    {f"batch {batch}": [accuracy(found[batch][rate]) for rate in RATES] for batch in BATCHES},
    "learning rate",
    "test accuracy after 20 epochs, percent",
    "Larger batches bear larger rates, and need them",
)
best = {batch: max(RATES, key=lambda rate: accuracy(found[batch][rate])) for batch in BATCHES}
print("best rate:", best)
assert best[16] < best[64] <= best[256] and best[1024] <= best[256]
assert all(accuracy(found[batch][best[batch]]) > 96 for batch in BATCHES)
None

# %% [markdown]
# With its own rate every batch reaches 96 % or more in the same 20 epochs. And look at the right: from 256 to 1024 the
# best rate does not grow any more. Beyond some rate every training breaks, whatever its batch.
#
# ## Three rules
#
# To tune each batch is expensive. Can the rate be told from that of a small batch?
#
# - **Linear** (Goyal et al., 2017): k times the batch, k times the rate. One step then goes as far as k small ones.
# - **Square root** (Hoffer et al., 2017): k times the batch, sqrt(k) times the rate. That keeps the noise of a step.
# - **None**: the rate stays.

# %%
rules = {
    "linear": [linear_scaling(BASE_RATE, batch, BASE) for batch in BATCHES],
    "square root": [sqrt_scaling(BASE_RATE, batch, BASE) for batch in BATCHES],
    "none": [BASE_RATE for _ in BATCHES],
    "tuned": [best[batch] for batch in BATCHES],
}
by_rule = {
    rule: [accuracy(found[batch][round(rate, 2)]) for batch, rate in zip(BATCHES, rates)]
    for rule, rates in rules.items()
}
plot.lines(
    BATCHES,
    by_rule,
    "batch",
    "test accuracy after 20 epochs, percent",
    "Linear is right up to 16 times the batch, and then breaks",
)
assert by_rule["linear"][2] > 97 and by_rule["linear"][3] < 30
assert by_rule["none"][3] < by_rule["square root"][3] < by_rule["tuned"][3]
None

# %% [markdown]
# Up to 256, 16 times the batch, the linear rule is as good as tuning. At 1024 it asks for 2.56, and nothing is learned.
# The square root is careful: never wrong here, and never the best.
#
# Goyal's curve has the same shape: no loss up to 8192, and 27.6 % of error in place of 23.6 at 32 768. (These two are
# recalled, not read again for this lesson.)
#
# ## Warm-up
#
# Large rates break training in the beginning, when the weights change fastest. So begin with the small batch's rate,
# and grow with each step, over five epochs. A batch of 256 at twice the linear rule, five seeds:

# %%
per_epoch = -(-EXAMPLES // 256)
at_once, warmed = train(256, [Schedule(1.28), Schedule(1.28, 5 * per_epoch, BASE_RATE)])
plot.learning_curves(
    {"at once": at_once, "warm-up over 5 epochs": warmed}, "Rate 1.28 at batch 256: warm-up saves it", accuracy_from=0
)
print(f"at once {accuracy(at_once):.0f} %, with warm-up {accuracy(warmed):.0f} %")
assert accuracy(warmed) > accuracy(at_once) + 20
(too_much,) = train(1024, [Schedule(2.56, 10, BASE_RATE)])
print(f"batch 1024 at the linear rule's 2.56, with warm-up: {accuracy(too_much):.0f} %")
assert accuracy(too_much) < 30

# %% [markdown]
# It helps against a bad beginning. It does not help against a rate that is too large for good.
#
# Exercise `e09_warmup`: the rate of every step.

# %% tags=["nbval-ignore-output"]
# !mpcourse check e09_warmup

# %% [markdown]
# ## LARS
#
# Why does it break? In one layer the step is larger than the weights, while another hardly moves. LARS (You et al.,
# 2017) gives each layer a rate of its own, so that its step is a fixed part of its weights.

# %%
lars = train(1024, [Schedule(rate) for rate in (0.5, 1.0, 2.0)], trust_coefficient=0.02)
for rate, curves in zip((0.5, 1.0, 2.0), lars):
    print(f"LARS, batch 1024, rate {rate}: {accuracy(curves):.1f} %")
print(f"SGD, batch 1024, tuned: {accuracy(found[1024][best[1024]]):.1f} %")
assert max(map(accuracy, lars)) > 94


# %% [markdown]
# Here it gains nothing: in an MLP of two layers these do not differ much. LARS was made for deep networks, at batches
# of 8192 and more. Of any table that shows a gain by it, ask: was the other side tuned as well?
#
# Exercise `e09_lars`: write it.

# %% tags=["nbval-ignore-output"]
# !mpcourse check e09_lars

# %% [markdown]
# ## Steps to a target
#
# Epochs are what it costs, steps are how long it takes: with enough GPUs a step of a large batch takes no longer than
# one of a small batch. How many steps are needed for 90 %, at the best rate for that?

# %%
def steps_to(curves, target=0.9):
    """The mean over seeds of the first recorded step at which a curve is there; None where one never is."""
    steps = [next((s for s, a in zip(c.step, c.test_accuracy) if a >= target), None) for c in curves]
    return None if None in steps else mean(steps)


needed = [min(s for s in map(steps_to, found[batch].values()) if s is not None) for batch in BATCHES]
plot.lines(
    BATCHES,
    {
        "steps to 90 %, at the best rate": needed,
        "half as many for twice the batch": [needed[0] / (b / 16) for b in BATCHES],
    },
    "batch",
    "steps",
    "Twice the batch takes fewer steps, but not half as many",
)
for batch, steps in zip(BATCHES, needed):
    print(f"batch {batch:4}: {steps:4.0f} steps, {steps * batch:6.0f} examples")
assert needed == sorted(needed, reverse=True) and needed[0] * BATCHES[0] < needed[3] * BATCHES[3]
None


# %% [markdown]
# 64 times the batch takes a sixth of the steps, and ten times the examples. Large-batch studies find three regimes
# (Shallue et al., 2019): in the beginning twice the batch is half the steps; then less is gained; in the end nothing.
# These digits are few and clean, so that even 16 examples are in the second one.
#
# ## The noise scale
#
# Could one know where that is, without trying? A gradient over B examples is the true one plus noise, whose square
# shrinks as 1/B. While noise is the larger part, more examples help. The batch at which both are equal is the **noise
# scale** (McCandlish et al., 2018). Two batch sizes tell it, and ranks that train together have two: their own, and
# that of all. It costs one number more in each step.

# %%
def program(comm):
    torch.manual_seed(0)
    model = mlp((64, 32, 10))
    optimizer = MultiNodeOptimizer(
        torch.optim.SGD(model.parameters(), 0.1, momentum=0.9), create_communicator("flat", comm)
    )
    noise = RankNoise(optimizer.communicator, model.parameters(), decay=0.95)
    generator = torch.Generator().manual_seed(comm.rank)
    told = []
    for _ in range(200):
        chosen = torch.randint(EXAMPLES, (16,), generator=generator)
        optimizer.zero_grad()
        F.cross_entropy(model(DATA.train.images[chosen]), DATA.train.labels[chosen]).backward()
        optimizer.mean_gradients()
        told.append(noise.update(16))
        optimizer.step()
    return told


told = run(program, 4).results[0]
shown = list(range(20, 201, 20))
plot.lines(
    shown,
    {"noise scale, examples": [told[step - 1] for step in shown]},
    "steps, of 4 ranks with 16 examples each",
    "examples",
    "The further training is, the larger a batch pays",
    log=False,
)
print(f"after 20 steps {told[19]:.0f} examples, after 200 {told[199]:.0f}")
assert 16 < told[19] < 256 and 16 < told[199] < 512
None

# %% [markdown]
# From 16 to 64 examples four times the batch halved the steps; from 256 to 1024 it saved a third. The noise scale, 30
# to 150 examples, lies between. It grows as the gradient shrinks: late in training larger batches pay.
#
# Exercise `e09_noise_scale`.

# %% tags=["nbval-ignore-output"]
# !mpcourse check e09_noise_scale

# %% [markdown]
# ## What production systems call it
#
# | here | there |
# |---|---|
# | `linear_scaling`, `warmup` | ImageNet recipes since 2017; `LinearLR` and `SequentialLR` in torch |
# | `LARS`, `LAMB` | LARC and FusedLAMB in NVIDIA's Apex; LAMB trained BERT in 76 minutes |
# | noise scale | "critical batch size"; OpenAI sized GPT-3's batches by it |
# | `GhostBatchNorm` | batch norm on each GPU's own examples, which is what DDP does unless told otherwise |
#
# The same questions for 60 000 glyphs, with batches up to 16 384, are a study of their own:
# `mpirun -np 2 python -m mpcourse.large_batch.study` runs one from a file, and goes on where it was killed.
#
# Next comes lesson 10: how do all of these combine? It is being written.
