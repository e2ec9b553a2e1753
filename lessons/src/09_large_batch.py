# %% [markdown]
# # 09 Large batches
#
# **What does a bigger batch do to learning?** About 55 minutes to read, and 65 for its exercises.
#
# With p GPUs, a data-parallel batch is p times as large as with one, so an epoch has p times fewer updates. A talk of
# 2017 about ChainerMN showed the effect (we know the talk from a listener's notes). With 128 GPUs, the network still
# learned, but its learning curve ended a little below the curve for 8 GPUs. In the same year, Goyal et al. trained
# ResNet-50 on 256 GPUs in one hour, with a batch of 8192 images and no loss of accuracy [1]. Today, batches are counted
# in tokens. Llama 3 with 405 billion parameters began with 4 million tokens in a batch and ended with 16 million [2].
#
# How large may a batch be, and what has to change with it?
#
# After this lesson you can
#
# - choose the learning rate of a larger batch by a scaling rule, warm up to it, and say where the rule fails;
# - measure the batch size beyond which more examples save few updates;
# - estimate this batch size from the gradients that the ranks compute in training;
# - say how many GPUs data parallelism can use, and what a throughput benchmark leaves out.

# %% tags=["nbval-ignore-output", "remove-cell"]
from mpcourse.course.learner import panel

panel.show("09_large_batch")

# %% tags=["nbval-ignore-output"]
# %config InlineBackend.print_figure_kwargs = {"dpi": 110}
from pathlib import Path
from statistics import mean, stdev

import torch
import torch.nn.functional as F
from scipy.stats import ttest_rel

from mpcourse import plot
from mpcourse.data import digits
from mpcourse.data_parallel import MultiNodeOptimizer, create_communicator
from mpcourse.large_batch import RankNoise, Schedule
from mpcourse.large_batch.critical import critical_batch, noise_until, tuned
from mpcourse.models import mlp
from mpcourse.predict.scaling import Machines, sum_seconds
from mpcourse.studies import StackedRuns
from mpcourse.studies.compare import difference, mean_of
from mpcourse.studies.shipped import names, shipped, shipped_noise
from mpcourse.virtual import run

DATA = digits()
EXAMPLES = len(DATA.train)
torch.set_num_threads(1)  # for matrices as small as these, starting a second thread takes longer than it saves


# %% [markdown]
# ## Fewer updates
#
# We train an MLP of 64-32-10 units on 1437 real images of digits for 20 epochs, by SGD with momentum 0.9. All batch
# sizes use the same learning rate. A single run takes a second, and we need many. `mpcourse.studies.StackedRuns` trains
# the runs of one batch size together. It stacks their weights, so one batched matrix product does the work of all runs.

# %%
def train(batch, schedule, seeds):
    """Return a learning curve for each seed, of 20 epochs on the digits."""
    steps = 20 * -(-EXAMPLES // batch)
    rates = torch.tensor([[schedule(step)] * len(seeds) for step in range(steps)])
    every = max(1, min(8, steps // 40))
    return StackedRuns((64, 32, 10), DATA, batch, seeds, rates, momentum=0.9, record_every=every).finish()


def at_end(curves):
    """Return the test accuracy of each run after its last epoch, in percent."""
    return [100 * curve.test_accuracy[-1] for curve in curves]


reached = {batch: mean(at_end(train(batch, Schedule(0.04), range(5)))) for batch in (16, 64, 256, 1024)}
for batch, accuracy in reached.items():
    print(f"batch {batch:4}: {20 * -(-EXAMPLES // batch):4} updates, test accuracy {accuracy:.1f} %")

# %% tags=["checked"]
# checked: the accuracy falls by more than ten points
assert reached[1024] < reached[16] - 10

# %% [markdown]
# With the same number of epochs and the same learning rate, training with a batch of 1024 ends 17 points below training
# with a batch of 16. It makes 40 updates instead of 1800. An update with more examples is not a larger update, because
# the gradient is a mean over the batch and not a sum.
#
# ## A study of 1575 runs
#
# For larger batches, the 1437 digits are too few. Most other results come from a study of 60 000 glyphs (images of 28 x
# 28 pixels, drawn from fonts). We trained an MLP of 784-64-10 units with ten batch sizes from 32 to 16 384, each at
# five to nine learning rates, with five seeds each. The results come with the course. Figures show the mean of five
# seeds and a band of two standard errors to each side. In tables, the number after `+-` is one standard error.

# %%
glyphs = {name.removeprefix("glyphs-"): shipped(name) for name in names() if name.startswith("glyphs")}
print(sum(len(study.rows) for study in glyphs.values()), "runs on glyphs")


def percent(rows):
    return [100 * row["final_accuracy"] for row in rows]


def errors(rows):
    return [100 - accuracy for accuracy in percent(rows)]


# %% [markdown]
# ## The best rate depends on the batch
#
# Now we train with each batch size at nine learning rates, for ten epochs. A cosine schedule lowers the rate to zero.
# The next figure shows four of the batch sizes.

# %%
epochs = glyphs["epochs"]
best = tuned(epochs.rows, "final_accuracy")
SIZES, RATES = list(best), epochs.study.rate
figure = plot.lines(
    RATES,
    {f"batch {b}": [errors(epochs.chosen(batch=b, rate=rate)) for rate in RATES] for b in (32, 256, 1024, 8192)},
    "initial learning rate",
    "test error after ten epochs (%)",
    "The best rate moves to the right with the batch, up to 0.32",
    log_y=True,
)
figure.axes[0].legend(fontsize=8, frameon=False, ncols=2, loc="upper center")
for batch in SIZES:
    print(f"batch {batch:5}: best rate {best[batch][0]['rate']:.2f}, accuracy {mean_of(percent(best[batch]))} %")

# %% tags=["checked"]
# checked: the best rate doubles up to 256; at 8192 the rates 0.64 and 0.32 do not differ significantly
assert [best[batch][0]["rate"] for batch in SIZES[:4]] == [0.04, 0.08, 0.16, 0.32]
assert {best[batch][0]["rate"] for batch in SIZES[4:] if batch != 8192} == {0.32}
high, low = (percent(epochs.chosen(batch=8192, rate=rate)) for rate in (0.64, 0.32))
assert not difference(high, low, paired=True).told_apart

# %% [markdown]
# The best rate doubles with the batch from 32 to 256. The gradient of a larger batch has less noise, so training can
# take longer steps. From 256 on, the best rate stays at 0.32 (at 8192, the rates 0.32 and 0.64 do not differ
# significantly). A step that is too long makes training diverge even if its gradient has no noise, and this limit does
# not depend on the batch. For batches up to 512, ten epochs are enough to reach at least 97.5 %. For a batch of 16 384,
# ten epochs are only 40 updates, too few at every learning rate. (The rates were chosen by the accuracy on the test
# set, so all best accuracies are a little too high.)
#
# ## Two scaling rules
#
# A search over rates is expensive. If a good rate is known for one batch, two rules give the rate for a batch that is k
# times as large.
#
# - The **linear scaling rule** multiplies the rate by k [1]. If the gradient hardly changes within k small steps, one
#   step that is k times as long goes equally far.
# - The **square-root scaling rule** multiplies the rate by √k [3]. The mean of k times as many gradients has 1/k of the
#   variance, so with this rule the variance of a step stays the same. This is also the rule for Adam [4].
#
# Here, both rules start from the best rate of batch 32, which is 0.04.
#
# **Predict first.** At which batch does the linear rule fail? Does the square-root rule fail, too?

# %% tags=["answer"]
# answer
rules = glyphs["rules"]
linear, square_root = ({b: rules.chosen(batch=b, rule=r, warmup=0) for b in SIZES} for r in ("linear", "sqrt"))
compared = {"linear rule": linear, "square-root rule": square_root, "best rate of the search": best}
plot.lines(
    SIZES,
    {name: [errors(rows[batch]) for batch in SIZES] for name, rows in compared.items()},
    "batch",
    "test error after ten epochs (%)",
    "The linear rule holds up to eight times the batch, and diverges at 32 times",
    log_y=True,
)
for batch in SIZES:
    row = ", ".join(f"{name} {mean(percent(rows[batch])):.1f} %" for name, rows in compared.items())
    print(f"batch {batch:5}: {row}")
print("linear rule at 1024, each seed:", [round(accuracy) for accuracy in percent(linear[1024])])

# %% tags=["checked"]
# checked: at 256 the linear rule's rate is the best one; the square-root rule loses at most 0.6 points up to 8192
assert percent(linear[256]) == percent(best[256]) and mean(percent(linear[1024])) < 60
lost = [mean(percent(best[batch])) - mean(percent(square_root[batch])) for batch in SIZES if batch <= 8192]
assert max(lost) < 0.6

# %% [markdown]
# <details><summary>Why</summary>
#
# Up to 256, the linear rule gives the best rate of the search. At 512, it loses 2.4 points. At 1024, it asks for a rate
# of 1.28 and reaches 35 % on average; the five runs end between 10 and 74 %. The square-root rule asks for smaller
# rates. Training never diverges with it, and up to 8192, the rule loses at most 0.6 points. With the linear rule, Goyal
# et al. saw the same pattern on ImageNet: the accuracy did not fall up to a batch of 8192 images, and the error grew
# beyond it.
#
# </details>
#
# ## Warm-up
#
# The weights change fastest in the first steps, so a large rate is most dangerous then. **Warm-up** begins with the
# rate of the small batch and raises it with each step. The next cell trains on the digits with a batch of 256 and a
# rate of 1.4, once at this rate from the first step and once with a warm-up over five epochs. Single runs differ
# widely, so we need 32 seeds.

# %% tags=["nbval-ignore-output"]
per_epoch = -(-EXAMPLES // 256)
at_once, warmed = (train(256, rate, range(32)) for rate in (Schedule(1.4), Schedule(1.4, 5 * per_epoch, 0.04)))
plot.each_run({"at once": at_once, "warm-up over 5 epochs": warmed}, "Rate 1.4 at batch 256, with 32 seeds each")
print(f"at once {mean_of(at_end(at_once))} %, with warm-up {mean_of(at_end(warmed))} %")

# %% tags=["checked"]
# checked: warm-up helps, by more than chance
helps = difference(at_end(warmed), at_end(at_once), paired=True)
assert helps.told_apart and helps.mean > 10

# %% [markdown]
# With warm-up, far fewer runs fail. Does it also save the linear rule on the glyphs? The next cell compares runs at the
# same rate, with and without a warm-up over two epochs.

# %%
warm = {batch: rules.chosen(batch=batch, rule="linear", warmup=2) for batch in SIZES}
for batch in (512, 1024, 2048):
    without, with_it = mean(percent(linear[batch])), mean(percent(warm[batch]))
    print(f"batch {batch:4}, rate {0.04 * batch / 32:.2f}: {without:.1f} % without warm-up, {with_it:.1f} % with it")
print(f"best rate of the search without warm-up: {mean(percent(best[512])):.1f} %, {mean(percent(best[1024])):.1f} %")

# %% [markdown]
# At 512 and 1024, the rule works with warm-up, and reaches a higher accuracy than any rate without it. In each line of
# the output, both runs have the same highest rate, so warm-up makes the difference. A search over larger rates without
# warm-up would not have reached this accuracy. At 2048, warm-up helps little, because the rate of 2.56 is too large
# even after it.
#
# Exercise [`e09_warmup`](../exercises/e09_warmup.py): compute the rate of every step.

# %% tags=["nbval-ignore-output", "remove-output"]
# !mpcourse check e09_warmup

# %% [markdown]
# ## LARS
#
# One rate may be too large for one layer and too small for another. **LARS**, layer-wise adaptive rate scaling [5],
# makes the step of every layer the same fraction of the layer's weights:
#
# $$ w \leftarrow w - \gamma \;
# \frac{\eta \, \lVert w \rVert}{\lVert g \rVert + \beta \lVert w \rVert} \; (g + \beta w) $$
#
# Here $w$ is a layer's weights, $g$ their gradient, $\gamma$ the rate, $\beta$ the weight decay and $\eta$ the *trust
# coefficient*. Without momentum and weight decay, a step changes $w$ by the fraction $\gamma \eta$ of its norm, however
# large the gradient is.

# %%
best_warm, lars = (tuned(glyphs[name].rows, "final_accuracy") for name in ("warmup", "lars"))
LARGE = list(lars)
compared = {"SGD": best, "SGD with warm-up": best_warm, "LARS": lars}
plot.lines(
    LARGE,
    {name: [errors(rows[batch]) for batch in LARGE] for name, rows in compared.items()},
    "batch",
    "test error after ten epochs (%)",
    "From 2048 on LARS loses least (each batch at its best rate)",
    log_y=True,
)
pairs = {"linear rule at 512: best rate - rule": (best[512], linear[512])}
pairs |= {f"linear rule at {b}: warm-up - none": (warm[b], linear[b]) for b in (512, 1024)}
pairs |= {f"{b}: LARS - SGD with warm-up": (lars[b], best_warm[b]) for b in (2048, 4096, 8192)}
corrected = {}
for name, (one, other) in pairs.items():
    gain = difference(percent(one), percent(other), paired=True)
    corrected[name] = min(1.0, len(pairs) * ttest_rel(percent(one), percent(other)).pvalue)
    print(f"{name:38} {gain.mean:+6.2f} +- {gain.error:.2f} points, corrected p = {corrected[name]:.3f}")

# %% tags=["checked"]
# checked: all of them but the first are significant at 5 %
assert [p < 0.05 for p in corrected.values()] == [False] + 5 * [True]

# %% [markdown]
# At batch sizes from 2048 to 8192, LARS is 2.5 to 8.9 points better than SGD with warm-up. The table tests the six
# differences that this lesson relies on. Each test compares runs with the same seeds. If one runs many tests, some come
# out significant by chance, so each p-value is multiplied by six (Bonferroni's correction). Five differences remain
# significant. The linear rule's lower accuracy at 512 may be chance. The appendix [09, the study
# again](appendix/09_study_again.ipynb) shows that LARS gains nothing on the digits, and that its gain on the glyphs
# does not come from trying more settings.
#
# Exercise [`e09_lars`](../exercises/e09_lars.py): write LARS.

# %% tags=["nbval-ignore-output", "remove-output"]
# !mpcourse check e09_lars

# %% [markdown]
# ## Equal updates
#
# Is a large batch itself the problem, or the small number of updates? The next cell gives each batch size 600 updates
# at its best constant rate. With a batch of 32, 600 updates make up a third of an epoch, and with 16 384, they make up
# 150 epochs.
#
# **Predict first.** Which batch has the highest test accuracy after 600 updates: 32, 512, 1024, 8192 or 16 384?

# %% tags=["answer"]
# answer
steps = glyphs["steps"]
best_of_600 = tuned(steps.rows, "final_accuracy")
for batch in (32, 512, 1024, 8192, 16384):
    runs = percent(best_of_600[batch])
    less = difference(percent(best_of_600[8192]), runs, paired=True)
    print(f"batch {batch:5}: {mean_of(runs)} %; 8192 less this: {less.mean:+.2f} +- {less.error:.2f}")

# %% [markdown]
# <details><summary>Why</summary>
#
# The order is now reversed. With the same number of updates, a larger batch is better, because its gradients have less
# noise. From 32 to 512, the accuracy gains nine points. From 512 to 8192, it gains half a point for 16 times the
# examples, because little noise is left. At 16 384, it loses half a point again.
#
# </details>
#
# ## Updates to 95 %
#
# How many updates does each batch size need to reach a test accuracy of 95 %, at the rate that reaches it soonest?

# %%
small = glyphs["small"]  # four epochs of the batches that need more than 600 updates
quickest = tuned(steps.rows, "steps_to_target", least=True) | tuned(small.rows, "steps_to_target", least=True)
counted = {batch: [row["steps_to_target"] for row in quickest[batch]] for batch in SIZES}
updates = {batch: mean(counts) for batch, counts in counted.items()}
critical = critical_batch(updates)
figure = plot.lines(
    SIZES,
    {"updates to 95 %": list(counted.values())},
    "batch",
    "updates",
    "Updates to 95 %: first halved, then somewhat fewer, then no fewer",
    formulas={
        "twice the batch, half the updates": [updates[32] * 32 / batch for batch in SIZES],
        "fit: least updates (1 + critical batch / batch)": [critical.steps(batch) for batch in SIZES],
    },
    log_y=True,
    verticals={f"critical batch {critical.batch:.0f}": critical.batch},
)
figure.axes[0].set_ylim(100, 4000)
print(", ".join(f"{batch}: {count:.0f}" for batch, count in updates.items()))


# %% [markdown]
# These are the three regimes of Shallue et al. [6].
#
# - **Perfect scaling** up to 256: doubling the batch nearly halves the updates.
# - **Diminishing returns** from 256 to 1024: the first doubling of the batch saves a third of the updates, and the
#   second saves a quarter.
# - **Maximal data parallelism** beyond 1024: the number of updates stays between 176 and 208.
#
# McCandlish et al. describe all three regimes by one curve with two parameters [7]:
#
# $$ S(B) = S_{\min} \left( 1 + \frac{B_{\text{crit}}}{B} \right), \qquad
# E(B) = B \, S(B) = E_{\min} \left( 1 + \frac{B}{B_{\text{crit}}} \right) $$
#
# $S$ is the number of updates, on which the time depends, and $E$ is the number of examples, on which the compute
# depends. At the **critical batch**, both are twice their least value. How precisely does the study determine this
# batch?

# %%
def jackknife(left_out):
    """Return the standard error of a mean from the results without one part each."""
    return (len(left_out) - 1) / len(left_out) ** 0.5 * stdev(left_out)


no_seed = [critical_batch({b: mean(c[:i] + c[i + 1 :]) for b, c in counted.items()}).batch for i in range(5)]
no_batch = [critical_batch({b: s for b, s in updates.items() if b != left}).batch for left in SIZES]
off = [updates[batch] / critical.steps(batch) - 1 for batch in SIZES]
print(f"critical batch {critical.batch:.0f}, least updates {critical.least_steps:.0f}")
print(f"standard error {jackknife(no_seed):.0f} from the seeds, {jackknife(no_batch):.0f} from the batch sizes")
print(f"measured updates differ from the curve by {min(off):+.0%} to {max(off):+.0%}")

# %% tags=["checked"]
# checked: the regimes are as described
saved = {batch: 1 - updates[2 * batch] / updates[batch] for batch in SIZES[:-1]}
assert all(saved[batch] > 0.4 for batch in (32, 64, 128)) and 0.3 < saved[256] < 0.4 and 0.2 < saved[512] < 0.3
assert all(175 < updates[batch] < 209 for batch in SIZES[5:])


# %% [markdown]
# The first error comes from five fits, each without one of the seeds. It does not account for how far the points lie
# from the fitted curve. The second error comes from ten fits, each without one of the batch sizes, and does account for
# these deviations. So the critical batch is 387, with a standard error of about 50.
#
# The next figure shows both costs, each divided by its least value. The horizontal axis shows updates, and the vertical
# axis shows examples. Small batches are on the right, and large batches are at the top. Move the slider to find the
# largest batch that needs at most twice the least number of examples.

# %%
def try_it(batch=512):
    needed = {size: (updates[size], size * updates[size]) for size in SIZES}
    more, examples = 1 + critical.batch / batch, 1 + batch / critical.batch
    title = f"Batch {batch}: {more:.1f} times the least updates, {examples:.1f} times the least examples"
    return plot.tradeoff(needed, critical.least_steps, critical.least_steps * critical.batch, title, batch)


plot.sliders(try_it, batch=[32, 128, 387, 512, 2048, 8192])


# %% [markdown]
# ## The noise scale
#
# We tried ten batch sizes to find one critical batch. Is a single training run enough? The gradient $G_B$ over $B$
# examples is the true gradient $G$ plus noise, whose variance shrinks as $1/B$:
#
# $$ \mathbb{E} \lVert G_B \rVert^2 = \lVert G \rVert^2 + \frac{\operatorname{tr} \Sigma}{B} $$
#
# $\Sigma$ is the covariance of the gradient of a single example. As long as the second term is the larger one, more
# examples help. Both terms are equal if $B$ is the **noise scale** $\operatorname{tr} \Sigma / \lVert G \rVert^2$,
# which should therefore be near the critical batch [7].
#
# Two batch sizes give two equations for the two unknowns. Ranks that train together have two batch sizes anyway: the
# $b$ examples of a single rank, and the $pb$ examples of all p ranks. Let $n_b$ be the mean of $\lVert G_b \rVert^2$
# over the ranks, and $n_{pb}$ the squared norm of the averaged gradient. Then
#
# $$ \lVert G \rVert^2 \approx \frac{p \, n_{pb} - n_b}{p - 1}, \qquad
# \operatorname{tr} \Sigma \approx \frac{pb \, (n_b - n_{pb})}{p - 1} . $$
#
# The extra cost is an all-reduce of one number in each step. In a single step, both estimates are mostly noise, so each
# is averaged over about 20 steps before the ratio is taken. In the next cell, two virtual ranks train on the digits,
# with 16 examples each.

# %%
def program(comm):
    torch.manual_seed(comm.rank)
    model = mlp((64, 32, 10))
    batches = torch.randint(EXAMPLES, (100, 16))
    sgd = torch.optim.SGD(model.parameters(), 0.08, momentum=0.9)
    optimizer = MultiNodeOptimizer(sgd, create_communicator("flat", comm))
    noise = RankNoise(optimizer.communicator, model.parameters(), decay=0.95)
    found = []
    for chosen in batches:
        optimizer.zero_grad()
        F.cross_entropy(model(DATA.train.images[chosen]), DATA.train.labels[chosen]).backward()
        optimizer.mean_gradients()
        found.append(noise.update(16))
        optimizer.step()
    return found


live = run(program, 2).results[0]
print("this run:", ", ".join(f"{live[step - 1]:.1f} examples after {step} steps" for step in (20, 40, 100)))
rows = [row for row in shipped_noise("digits-noise") if (row["batch"], row["rate"]) == (64, 0.08)]
for step in (20, 100, 200):
    near = [[r for r in rows if r["seed"] == seed and step - 20 < r["step"] <= step] for seed in range(10)]
    scales = [mean(r["trace"] for r in each) / mean(r["gradient_square"] for r in each) for each in near]
    print(f"ten shipped runs with a batch of 64, steps {step - 19:3} to {step:3}: {mean_of(scales)} examples")

# %% [markdown]
# The noise scale grows during training, because the gradient shrinks while its noise remains. So later in training, a
# larger batch is worth more. Does the noise scale predict the critical batch of the glyphs? We measured it during runs
# with four batch sizes. The next cell shows its mean over the updates before the accuracy reaches 95 %.

# %%
ratios = {}
for batch in (128, 256, 512, 1024):
    measured = [r for r in shipped_noise() if r["batch"] == batch and r["rate"] == quickest[batch][0]["rate"]]
    scale = noise_until(measured, 0.95)
    ratios[batch] = scale / critical.batch
    print(f"batch {batch:4}: noise scale {scale:3.0f}, {ratios[batch]:.2f} times the critical batch")
slow = noise_until([r for r in shipped_noise() if r["batch"] == 1024 and r["rate"] == 0.1], 0.95)
print(f"batch 1024 at the rate 0.1 instead of {quickest[1024][0]['rate']}: noise scale {slow:.0f}")
assert all(0.5 < ratio < 2 for ratio in ratios.values())

# %% [markdown]
# At a good learning rate, the noise scale agrees with the critical batch to within a factor of two. At a rate that is
# three times too small, it does not.
#
# Exercise [`e09_noise_scale`](../exercises/e09_noise_scale.py): compute the noise scale.

# %% tags=["nbval-ignore-output", "remove-output"]
# !mpcourse check e09_noise_scale

# %% [markdown]
# ## Language models
#
# OpenAI measured the noise scale of GPT-3 during training, and used it to choose the batch size [8]. Two later studies
# measured the critical batch itself.
#
# - Zhang et al. trained models of 85 million to 1.2 billion parameters. The critical batch grew with the number of
#   training tokens, but hardly with the size of the model [9].
# - Merrill et al. measured the critical batch at several points of the training of OLMo [10]. From a checkpoint, they
#   continued with several batch sizes, and chose the largest one whose loss did not get worse. This batch size was near
#   zero at the beginning, rose within about 50 billion tokens, and then stayed near 4096 sequences of 4096 tokens, for
#   models of 1 billion and of 7 billion parameters. So they began with a small batch and doubled it twice, which saved
#   43 % of the updates. Llama 3's batch grew in the same way. For OLMo, however, the noise scale was orders of
#   magnitude smaller than the critical batch. The derivation of the noise scale assumes SGD, whereas these models are
#   trained with Adam.
#
# The critical batch limits how many GPUs plain data parallelism can use, because each GPU needs at least one sequence.
#
# **Predict first.** Let the critical batch be 4096 x 4096 tokens, as for OLMo, and let a sequence have 8192 tokens. In
# the training of a model with 8 billion parameters, one H100 processes 5762 tokens per second [11], and one A100 2973
# [12]. How many GPUs can share the batch? What is the shortest possible time for one update, and for training on 15
# trillion tokens?

# %% tags=["answer"]
# answer
batch_tokens = 4096 * 4096
most = batch_tokens // 8192
print(f"{batch_tokens / 1e6:.1f} million tokens: at most {most} GPUs, with one sequence each")
for gpu, rate in (("H100", 5762), ("A100", 2973)):
    days = 15e12 / (most * rate) / 86400
    print(f"{gpu}: an update takes {8192 / rate:.1f} s or more, 15 trillion tokens {days:.0f} days or more")

# %% [markdown]
# <details><summary>Why</summary>
#
# The batch has 2048 sequences, so a 2049th GPU has nothing to do. To use more GPUs, one can raise the batch beyond the
# critical one, but then most additional examples save no updates. Alternatively, several GPUs can share a sequence
# (lessons 11 to 13).
#
# </details>
#
# ## By epoch, by update, by time
#
# We return to the glyphs and predict times on 16 machines with one core each and links of 10 Gbit/s, as in lesson 08.
# On an idle machine, we measured how long a machine takes to compute its share of an update. The time of the all-reduce
# is predicted.
#
# **Predict first.** Compare the batches 64, 1024 and 16 384 with 600 updates each. Which learns fastest per epoch,
# which per update, and which per second? Which processes the most examples per second?

# %% tags=["answer"]
# answer
parameters = sum(p.numel() for p in mlp((784, 64, 10)).parameters())
summing = sum_seconds("flat", [parameters], Machines(16, 16, between="10 GbE"))
timed = {batch: glyphs["time"].chosen(batch=batch // 16) for batch in SIZES}
took = {batch: mean(row["seconds"] / row["steps"] for row in rows) + summing for batch, rows in timed.items()}
drawn = {"epochs": {}, "updates": {}, "predicted seconds, 16 machines": {}}
for batch in (64, 1024, 16384):
    curves = steps.curves_of(best_of_600[batch])  # all seeds were recorded at the same steps
    seconds = [took[batch] * step for step in curves[0].step]
    height = [100 * mean(values) for values in zip(*(curve.test_accuracy for curve in curves))]
    for along, x in zip(drawn.values(), (curves[0].epoch, curves[0].step, seconds)):
        along[f"batch {batch}"] = x, height
plot.panels(drawn, "test accuracy (%)", "The same curves: which batch is best depends on what is counted")
for batch in (64, 1024, 16384):
    rate, to_target = batch / took[batch] / 1e6, updates[batch] * took[batch]
    print(f"batch {batch:5}: {rate:.2f} million examples/s, {to_target:.2f} s to 95 % at its best rate")

# %% tags=["checked"]
# checked: the largest batch has more than five times the throughput of 1024 and needs more than three times as long
assert 16384 / took[16384] > 5 * 1024 / took[1024]
assert min(SIZES, key=lambda b: updates[b] * took[b]) == 1024 and updates[16384] * took[16384] > 0.6

# %% [markdown]
# <details><summary>Why</summary>
#
# Per epoch, the small batch is far ahead. Per update, both large batches are ahead. Per second, the batch of 1024 is
# ahead. With 64, communication takes most of the time. With 16 384, most of the additional examples do not reduce the
# number of updates. The largest batch processes 5.8 times as many examples per second as the batch of 1024, but takes
# three times as long to reach 95 %.
#
# </details>
#
# So ask these questions about any benchmark:
#
# - Does it show throughput, or the time to reach an accuracy? Examples per second grow with the batch.
# - How large is the batch? Far above the critical batch, most of the additional examples do not reduce the number of
#   updates.
# - Was the learning rate tuned for each batch size? How many seeds are there, and what is the standard error?
# - Is the number of epochs equal, or the number of updates? Equal epochs favour small batches, and equal updates favour
#   large ones.
#
# For these reasons, MLPerf's training benchmark measures the time to reach a given quality [13].
#
# ## The generalisation gap
#
# So far, larger batches were worse because they made fewer updates, and their training loss was higher, too. Keskar et
# al. describe another effect [14]: at an equal training loss, a large batch may have a lower test accuracy. This is the
# **generalisation gap**. Shallue et al. found none in 35 workloads when the settings of each batch were tuned [6]. The
# appendix [09, the generalisation gap](appendix/09_generalisation_gap.ipynb) looks for it where examples are few, and
# in the largest batch of the glyphs.
#
# ## The same in PyTorch
#
# `SequentialLR` joins a linear warm-up and a cosine schedule.

# %%
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, SequentialLR

optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], 0.08)
warm_up = LinearLR(optimizer, start_factor=0.5, total_iters=20)
decay = CosineAnnealingLR(optimizer, T_max=80)
rates = SequentialLR(optimizer, [warm_up, decay], milestones=[20])

# %% tags=["checked"]
# checked: the rates of 100 steps are those of our `Schedule`
ours = Schedule(0.08, warmup_steps=20, start=0.04, decay="cosine", steps=100)
for step in range(100):
    assert abs(rates.get_last_lr()[0] - ours(step)) < 1e-12
    optimizer.step()
    rates.step()

# %% [markdown]
# The next two files repeat the run of the two virtual ranks above with real processes. A communication hook sees the
# rank's own gradient before `DistributedDataParallel` averages it, and keeps its squared norm. `estimates` computes
# $\lVert G \rVert^2$ and $\operatorname{tr} \Sigma$.

# %% tags=["nbval-ignore-output"]
Path("scratch").mkdir(exist_ok=True)
torch.save((DATA.train.images, DATA.train.labels), "scratch/digits.pt")

# %% tags=["nbval-ignore-output"]
# %%writefile scratch/noise.py
import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook


def look(squares, bucket):
    squares.append(bucket.buffer().square().sum())  # of this rank's own gradients
    return allreduce_hook(None, bucket)


def estimates(squares, model, b):
    p = dist.get_world_size()
    dist.all_reduce(small := sum(squares) / p)
    squares.clear()
    big = sum(parameter.grad.square().sum() for parameter in model.parameters())
    return torch.stack([(p * big - small) / (p - 1), p * b * (small - big) / (p - 1)])


# %% tags=["nbval-ignore-output"]
# %%writefile scratch/train.py
import torch
import torch.distributed as dist
import torch.distributed.nn  # before there is a process group, which its functions would keep
from noise import estimates, look

from mpcourse.models import mlp

dist.init_process_group("gloo")  # or "nccl", with the model and its data on the GPU of this rank
torch.manual_seed(dist.get_rank())
model = torch.nn.parallel.DistributedDataParallel(mlp((64, 32, 10)))
model.register_comm_hook(squares := [], look)
optimizer = torch.optim.SGD(model.parameters(), 0.08, momentum=0.9)
images, labels = torch.load("scratch/digits.pt")
found = []
for chosen in torch.randint(len(images), (100, 16)):
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(images[chosen]), labels[chosen]).backward()
    found.append(estimates(squares, model, 16))
    optimizer.step()
torch.save(torch.stack(found), f"scratch/noise{dist.get_rank()}.pt")
del model, optimizer  # or else gloo's threads outlive the group, and may abort Python's exit
dist.destroy_process_group()

# %% tags=["nbval-ignore-output"]
# !torchrun --local-addr localhost --nproc-per-node 2 scratch/train.py 2> scratch/torchrun.log

# %% tags=["checked"]
# checked: the processes find the same noise scales as the two virtual ranks
average = torch.zeros(2)
for step, both in enumerate(torch.load("scratch/noise0.pt"), start=1):
    average = 0.95 * average + 0.05 * both
    if step in (20, 40, 100):
        print(f"{average[1] / average[0]:.1f} examples after {step} steps")
        assert f"{average[1] / average[0]:.1f}" == f"{live[step - 1]:.1f}"

# %% [markdown]
# The folded cell averages the estimates, and finds the same noise scales as our run above.
#
# ## The reference implementation
#
# These are the library's functions, without their docstrings. The links open the files.

# %%
from mpcourse.common.source import reference
from mpcourse.large_batch.lars import LARS, trust_ratio

reference(trust_ratio, LARS.step)

# %% [markdown]
# ## What production systems call it
#
# | here | there |
# |---|---|
# | linear scaling, warm-up | `LinearLR`, `SequentialLR` in torch; `warmup_steps` in most trainers |
# | `LARS`, `LAMB` (LARS for Adam) | LARC and FusedLAMB in NVIDIA's Apex |
# | noise scale, critical batch | gradient noise scale (GNS), critical batch size (CBS) |
# | a batch that grows during training | batch-size warm-up; `rampup_batch_size` in Megatron-LM |
#
# 1. Priya Goyal et al., [*Accurate, Large Minibatch SGD: Training ImageNet in 1
#    Hour*](https://arxiv.org/abs/1706.02677), 2017
# 2. Aaron Grattafiori et al., [*The Llama 3 Herd of Models*](https://arxiv.org/abs/2407.21783), 2024, section 3.4.1
# 3. Elad Hoffer, Itay Hubara and Daniel Soudry, [*Train longer, generalize better*](https://arxiv.org/abs/1705.08741),
#    2017
# 4. Sadhika Malladi et al., [*On the SDEs and Scaling Rules for Adaptive Gradient
#    Algorithms*](https://arxiv.org/abs/2205.10287), 2022
# 5. Yang You, Igor Gitman and Boris Ginsburg, [*Large Batch Training of Convolutional
#    Networks*](https://arxiv.org/abs/1708.03888), 2017
# 6. Christopher Shallue et al., [*Measuring the Effects of Data Parallelism on Neural Network
#    Training*](https://jmlr.org/papers/v20/18-789.html), 2019
# 7. Sam McCandlish, Jared Kaplan, Dario Amodei et al., [*An Empirical Model of Large-Batch
#    Training*](https://arxiv.org/abs/1812.06162), 2018
# 8. Tom Brown et al., [*Language Models are Few-Shot Learners*](https://arxiv.org/abs/2005.14165), 2020, section 2.3
# 9. Hanlin Zhang et al., [*How Does Critical Batch Size Scale in Pre-training?*](https://arxiv.org/abs/2410.21676),
#    2024
# 10. William Merrill et al., [*Critical Batch Size Revisited*](https://arxiv.org/abs/2505.23971), 2025
# 11. torchtitan, [*Llama 3.1 on
#     H100*](https://github.com/pytorch/torchtitan/blob/main/benchmarks/llama3_h100_202412_torchtitan.md), 2024, table 1
# 12. torchtitan,
#     [*Performance*](https://github.com/pytorch/torchtitan/blob/041336434916bdc0f88c1f89fda176fd3c2092e4/docs/performance.md),
#     2024, Llama 3 on 64 A100
# 13. Peter Mattson et al., [*MLPerf Training Benchmark*](https://arxiv.org/abs/1910.01500), 2019
# 14. Nitish Shirish Keskar et al., [*On Large-Batch Training for Deep Learning: Generalization Gap and Sharp
#     Minima*](https://arxiv.org/abs/1609.04836), 2017
#
# ## Problem
#
# You train at the critical batch and want to halve the time once more, with more GPUs and a larger batch. Can you? What
# does it take to come within 10 % of the least number of updates?

# %% tags=["answer"]
# answer
k = 1 / 0.1  # 1 + 1 / k = 1.1
print("No: at the critical batch you make twice the least updates, and only an infinite batch reaches the least.")
print(f"1 + 1 / k = 1.1 needs {k:.0f} critical batches and 1 + k = {1 + k:.0f} times the least examples. This is")
print(f"{(1 + k) / 2:.1f} times the compute of the critical batch, to save {1 - 1.1 / 2:.0%} of its time.")

# %% [markdown]
# ## What you found
#
# - The linear scaling rule gives the best rate up to eight times the original batch, and with warm-up, it works up to
#   32 times. At 64 times, its rate is too large even after a warm-up.
# - The critical batch of the glyphs is 387, with a standard error of about 50. Up to 256, doubling the batch nearly
#   halves the updates. Beyond 1024, a larger batch saves hardly any.
# - Ranks that train together can estimate this batch from their own gradients. With SGD at a good rate, the estimate is
#   right to within a factor of two. For language models that are trained with Adam, the critical batch must be measured
#   directly.
# - The critical batch, divided by the length of a sequence, limits how many GPUs data parallelism can use. A benchmark
#   in examples per second hides how many of these examples save updates.
#
# Next comes [lesson 10, ZeRO](10_zero.ipynb), in which the ranks divide the optimizer's state, the gradients and the
# parameters.
