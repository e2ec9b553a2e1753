# %% [markdown]
# # 07 Synchronous or asynchronous
#
# **Why does everyone wait for the slowest?** About 55 minutes to read, and 50 for its exercises.
#
# Eight workers train one model. Seven of them need 10 ms for a step, and one needs 40 ms. A worker that is slower than
# the others is a **straggler**. With data parallelism as in lesson 06, every step takes 40 ms, so seven workers wait
# for three quarters of their time. Why do they not go on without the straggler?
#
# They could, with a **parameter server**, a process that holds the weights for all workers. In 2017, Takuya Akiba, an
# author of ChainerMN (the library of lesson 06), gave a talk about this [1]. A listener's notes report: with
# **asynchronous** updates, no worker waits, so throughput rises. But the gradients are stale, that is, computed with
# older weights, and accuracy falls. How much does it cost, and are there other ways?
#
# After this lesson you can
#
# - write a parameter server, and say how stale each received gradient is;
# - choose how to deal with stragglers, judging by the time to a given accuracy and not by throughput;
# - say how rarely ranks may communicate, and which bandwidth they then need;
# - train in PyTorch so that the ranks average their parameters only rarely, and say after which steps.

# %% tags=["nbval-ignore-output", "remove-cell"]
from mpcourse.course.learner import panel

panel.show("07_sync_async")

# %% tags=["nbval-ignore-output"]
# %config InlineBackend.print_figure_kwargs = {"dpi": 110}
from collections import Counter
from functools import partial
from itertools import pairwise
from math import exp
from pathlib import Path
from statistics import mean

import torch
import torch.nn.functional as F
from scipy.stats import binom

from mpcourse import plot
from mpcourse.data import digits
from mpcourse.data.published_communication import BANDWIDTH, DILOCO, UTILISATION
from mpcourse.data_parallel import LocalOptimizer, MultiNodeOptimizer, create_communicator
from mpcourse.data_parallel.servers import Asynchronous, BoundedStaleness, Synchronous, train_with_servers
from mpcourse.models import mlp
from mpcourse.studies.compare import difference, mean_of
from mpcourse.studies.diloco import ALONE, LONGER, OUTERS, PERIODS, TOGETHER, shipped_diloco
from mpcourse.studies.staleness.shipped import shipped_staleness, shipped_ways
from mpcourse.studies.staleness.study import RATES, STALENESS
from mpcourse.virtual import compute, run

DATA = digits()
torch.set_num_threads(1)  # for matrices as small as these, starting a second thread takes longer than it saves


# %% [markdown]
# ## A server
#
# Rank 0 is the parameter server: it holds the model. The other ranks are workers. A worker receives the weights,
# computes a gradient on a batch of its own, sends the gradient, and receives new weights. In **synchronous** training,
# the server waits for the gradients of all workers before it answers. In asynchronous training, it applies each
# gradient on arrival and answers its sender.
#
# `train_with_servers` takes a policy, which decides when the server answers. In the next cell, eight workers train on
# handwritten digits until the server has used 320 gradients.

# %%
def train(workers, policy, gradients=320, rate=0.1, slow=0.01, seed=0):
    """Train on virtual ranks. Rank 1 needs `slow` seconds a step, and each other worker needs 10 ms."""
    per_update = workers - policy.backup if isinstance(policy, Synchronous) else 1  # gradients

    def program(comm):
        torch.manual_seed(seed)
        model = mlp((64, 32, 10))
        generator = torch.Generator().manual_seed(1000 * seed + comm.rank)

        def backward(step):
            chosen = torch.randint(len(DATA.train), (16,), generator=generator)
            loss = F.cross_entropy(model(DATA.train.images[chosen]), DATA.train.labels[chosen])
            loss.backward()
            compute(comm, slow if comm.rank == 1 else 0.01)
            return loss.item()

        sgd = partial(torch.optim.SGD, lr=rate)
        return train_with_servers(comm, model, sgd, backward, gradients // per_update, policy)

    done = run(program, workers + 1)
    served = done.results[0]
    last = max(push.seconds for push in served.pushes[0] if push.applied)
    return served, last, done


synchronous = train(8, Synchronous(), slow=0.04)
asynchronous = train(8, Asynchronous(), slow=0.04)
print(f"synchronous:  {synchronous[1]:.2f} s for 320 gradients")
print(f"asynchronous: {asynchronous[1]:.2f} s for 320 gradients")

# %% tags=["checked"]
# checked: 40 updates of 40 ms, and 320 of 725 gradients a second
assert abs(synchronous[1] / (0.04 * 320 / 8) - 1) < 0.01 and abs(asynchronous[1] / (320 / 725) - 1) < 0.04

# %% [markdown]
# The virtual clock computes how long the steps and the messages would take. Seven fast workers send 700 gradients in a
# second, and the slow worker sends 25. If no worker waits, 320 gradients take 320 / 725 = 0.44 s. If all wait, each
# update of eight gradients takes 40 ms.
#
# ## Staleness
#
# A worker computes its gradient with the weights that it received last. Before the gradient arrives, the server may
# have applied gradients of other workers. The number of these updates is the gradient's **staleness**. The server
# counts them. With each answer, it notes the number of its updates so far. When the worker's next gradient arrives, the
# server compares this number with the current one.
#
# The answer below shows the first 150 ms of both runs. Each bar is the computation of one gradient, and shows the
# gradient's staleness.
#
# **Predict first.** Which numbers appear in the bars of the slow worker, rank 1, in synchronous and in asynchronous
# training?

# %% tags=["answer"]
# answer
for name, (served, _, done) in (("Synchronous", synchronous), ("Asynchronous", asynchronous)):
    plot.pushes(done.events, served.pushes[0], f"{name}: the first 150 ms of eight workers", 0.15)
equal = train(8, Asynchronous())
trainings = {"synchronous": synchronous, "asynchronous": asynchronous, "asynchronous, all equally fast": equal}
for name, (served, *_) in trainings.items():
    common = Counter(served.staleness()).most_common(2)
    print(f"{name:31} " + ", ".join(f"staleness {number}: {count} gradients" for number, count in common))

# %% tags=["checked"]
# checked: the slow worker's gradients, the first of each other worker, and what is equal if all are equally fast
used = [push for push in asynchronous[0].pushes[0] if push.applied]
slow, *others = ([push.staleness for push in used if push.worker == worker] for worker in range(1, 9))
assert slow[0] == 21 and set(slow[1:]) == {28} and sorted(each[0] for each in others) == list(range(7))
assert set(synchronous[0].staleness()) == {0} and set(equal[0].staleness()[8:]) == {7}
assert [number for number, _ in Counter(asynchronous[0].staleness()).most_common(2)] == [6, 7]

# %% [markdown]
# <details><summary>Why</summary>
#
# In synchronous training, all gradients of an update were computed with the newest weights, so their staleness is 0. In
# asynchronous training, each of the seven fast workers sends four gradients while the slow worker computes one. So the
# slow worker's gradients have a staleness of 28. Only its first one has 21, because it arrives shortly before the
# fourth gradients of the others.
#
# The fast workers take turns, so most of their gradients have a staleness of 6. In every fourth round, the slow
# worker's gradient comes in between, and the staleness is 7. (All workers begin with the same weights, so the first
# seven gradients have a staleness of 0 to 6.) With p equally fast workers, the staleness is p - 1.
#
# </details>
#
# Exercise [`e07_staleness`](../exercises/e07_staleness.py): compute the staleness from a history of messages.

# %% tags=["nbval-ignore-output", "remove-output"]
# !mpcourse check e07_staleness

# %% [markdown]
# ## What staleness costs
#
# With more workers of equal speed, the gradients are staler. The next cell shows runs with 1 to 16 workers at three
# learning rates. Each run uses 320 gradients. Runs that differ only in their seed differ by several points of accuracy,
# so the figure shows means of 20 seeds. In this lesson's figures, a band or an error bar extends two standard errors to
# each side of the mean. In the tables, `+-` is one standard error. We made the runs beforehand with
# `lessons/studies/staleness.py`.
#
# **Predict first.** Which of the rates 0.05, 0.1 and 0.2 is the best without staleness? Which is the best at a
# staleness of 15?

# %% tags=["answer"]
# answer
stale = shipped_staleness()
by_rate = {f"rate {rate:g}": list(zip(*stale[rate])) for rate in RATES}
figure = plot.accuracy_against(
    {"staleness (workers - 1)": dict.fromkeys(by_rate, STALENESS)},
    by_rate,
    "The larger the learning rate, the less staleness it bears",
)
figure.axes[0].set(ylim=(0, 100), xticks=STALENESS)
print("staleness  " + "".join(f"{f'rate {rate:g}':>26}" for rate in RATES))
for i, staleness in enumerate(STALENESS):
    print(f"{staleness:9}  " + "".join(f"{str(mean_of(stale[rate][i])):>26}" for rate in RATES))

# %% tags=["checked"]
# checked: 0.2 is the best rate without staleness and 0.05 at 15, also with a correction for four comparisons
assert all(difference(stale[0.2][0], stale[rate][0], True, comparisons=4).low > 0 for rate in (0.05, 0.1))
assert all(difference(stale[0.05][-1], stale[rate][-1], True, comparisons=4).low > 0 for rate in (0.1, 0.2))
assert min(max(seeds) - min(seeds) for rate in RATES for seeds in stale[rate]) > 4
best = {staleness: max(mean(stale[rate][i]) for rate in RATES) for i, staleness in enumerate(STALENESS)}
assert 10 < best[0] - best[7] < 13

# %% [markdown]
# <details><summary>Why</summary>
#
# Without staleness, the largest of the three rates is the best, and at a staleness of 15, the smallest is. A stale
# gradient corrects an error that other updates have already corrected. So the weights move too far, and even farther
# with a larger rate. A smaller rate helps, but then the model learns less from 320 gradients, as the left end of the
# figure shows. Even at the best of the three rates, a staleness of 7 costs about 10 points here.
#
# </details>
#
# So throughput alone says little. The talk warned against benchmarks that report throughput without a learning curve.
#
# ## Five ways to deal with a straggler
#
# Now we compare time and accuracy. One of eight workers is always slow, and each run uses 640 gradients (637 with a
# backup worker).
#
# - Synchronous: an update is the mean of eight gradients.
# - **Backup workers** [2]: an update is the mean of the first seven gradients that arrive. The server drops the eighth,
#   so it never uses the slow worker's examples, and no gradient is stale.
# - Asynchronous: each gradient is an update.
# - **Bounded staleness** [3]: a worker waits as long as it is more than two steps ahead of the slowest worker. The
#   bound counts steps, not updates: a worker that is level with the slowest may take three steps before it has to wait.
#   So seven workers may make 21 updates during one step of the slowest.
# - **Local SGD**: without a server, each rank trains alone for four steps. Then an all-reduce averages the parameters
#   of all ranks.
#
# The learning rate is 0.1 if an update is one gradient, and 0.8 if it is a mean of seven or eight. Local SGD also uses
# 0.8. We did not tune these rates, so a difference of a point may come from the rate.
#
# With the sliders, choose one of the four ways that use a server, set how slow rank 1 is, and see how stale the
# gradients become.

# %% tags=["nbval-ignore-output"]
POLICIES = {
    "synchronous": Synchronous(), "1 backup worker": Synchronous(backup=1),
    "asynchronous": Asynchronous(), "bounded staleness 2": BoundedStaleness(2),
}  # fmt: skip


def try_it(policy="bounded staleness 2", slow_ms=40):
    served, last, done = train(8, POLICIES[policy], gradients=168, slow=slow_ms / 1e3)
    title = f"{policy}: 168 gradients in {last:.2f} s, with a mean staleness of {mean(served.staleness()):.1f}"
    return plot.pushes(done.events, served.pushes[0], title, 0.2)


plot.sliders(try_it, policy=list(POLICIES), slow_ms=[10, 20, 40, 80, 160])

# %% [markdown]
# We trained each way with 40 seeds, and measured the accuracy after every 32 gradients. The answer below shows how many
# updates, gradients and seconds each way needs until the measured accuracy first reaches 85 %.
#
# **Predict first.** Which of these three numbers differs least among the five ways?

# %% tags=["answer"]
# answer
one_slow = shipped_ways("one slow")
needed = {name: runs.needed(85) for name, runs in one_slow.items()}
counts = ("updates", "gradients", "seconds")
counts = {count: {name: by_seed[count] for name, by_seed in needed.items()} for count in counts}
for axis in plot.dots(counts, "One of eight workers is slow: what a training needs until 85 %").axes:
    axis.set_xlim(0)
for count, ways in counts.items():
    means = {name: mean(seeds) for name, seeds in ways.items()}
    most, least = max(means, key=means.get), min(means, key=means.get)
    print(f"{count:9} {means[most] / means[least]:4.1f} times as many with {most} as with {least}")

# %% tags=["checked"]
# checked: the ratios between the ways, and the seconds of the three that the text names
means = {count: {name: mean(seeds) for name, seeds in ways.items()} for count, ways in counts.items()}
ratios = [max(each.values()) / min(each.values()) for each in means.values()]
assert ratios[0] > 8 and 1.3 < ratios[1] < 1.5 and ratios[2] > 4
assert min(means["gradients"], key=means["gradients"].get) == "bounded staleness 2"
named = ("synchronous", "1 backup worker", "asynchronous")
assert [round(means["seconds"][name], 1) for name in named] == [1.4, 0.4, 0.4]


# %% [markdown]
# <details><summary>Why</summary>
#
# The ways differ least in the number of gradients, because in all of them a gradient comes from a batch of the same
# size and moves the weights about equally far. Still, the asynchronous way needs 1.4 times as many as bounded
# staleness. (Staleness alone does not explain this: the synchronous way, without staleness, also needs more than
# bounded staleness.) The ways differ most in updates, because an asynchronous update uses one gradient, whereas a
# synchronous update uses eight. With a backup worker or with asynchronous updates, training reaches 85 % in about 0.4
# s. The synchronous way needs 1.4 s, because each of its updates waits for the slow worker.
#
# </details>
#
# The next table lists how long the whole runs took, and their accuracy at the end. The more differences we test, the
# more likely it is that one of them looks real by chance. So each of the four comparisons with the synchronous way may
# report a difference by chance in at most 5 % / 4 = 1.25 % of all cases (**Bonferroni correction**).

# %%
def table(ways):
    print(f"{'':20} seconds in all  staleness  accuracy at the end (%), and minus synchronous")
    for name, runs in ways.items():
        took, final = mean_of(runs.took), mean_of(runs.final)
        stale = "-" if name.startswith("local") else f"{mean(runs.staleness):.1f}"  # it has no server
        row = f"{name:20}  {took.mean:4.2f} +- {took.error:4.2f} {stale:>9}   {final.mean:.2f} +- {final.error:.2f}"
        against = difference(runs.final, ways["synchronous"].final, paired=True, comparisons=4)
        print(row if name == "synchronous" else f"{row}   {against}")


table(one_slow)

# %% tags=["checked"]
# checked: with the correction only local SGD differs, without it two more ways would
plain, corrected = (
    {name: difference(runs.final, one_slow["synchronous"].final, True, n).told_apart for name, runs in one_slow.items()}
    for n in (1, 4)
)
assert {name for name, differs in corrected.items() if differs} == {"local SGD, 4 steps"}
assert {name for name in plain if plain[name] != corrected[name]} == {"asynchronous", "bounded staleness 2"}


# %% [markdown]
# According to this test, only local SGD differs significantly from the synchronous way in its final accuracy, which is
# 1.2 points lower. The asynchronous way is 1.4 points lower, but this may be chance. Without the correction, we would
# have called the asynchronous way worse, and bounded staleness better. A test that finds no difference does not prove
# that two ways are equal. With 40 seeds, the test can miss a difference of a point.
#
# If one machine is always slow, bounded staleness and local SGD proceed at its speed in the long run. Often machines
# are slow only now and then. The appendix [07, delays](appendix/07_delays.ipynb) compares the five ways with random
# delays. There, asynchronous training takes 1.4 s, bounded staleness 1.8 s, local SGD 2.2 s and synchronous training
# 3.0 s.
#
# Exercise [`e07_parameter_server`](../exercises/e07_parameter_server.py): write an asynchronous parameter server and
# its workers. You need `comm.Recv(row, MPI.ANY_SOURCE, status=status)`, with `status = MPI.Status()`. It receives the
# message that arrives first, and `status.Get_source()` is the rank that sent it.

# %% tags=["nbval-ignore-output", "remove-output"]
# !mpcourse check e07_parameter_server

# %% [markdown]
# ## The server's link
#
# In each synchronous step, the server receives p gradients and sends p answers, each as large as the model. While it
# sends one worker its answer, it receives the next gradient of another. Only the first gradient and the last answer
# overlap with nothing, so a step takes as long as p + 1 messages. In a ring all-reduce (lesson 05), each rank sends
# less than two such messages, whatever the number of ranks. So one server is a bottleneck. The appendix [07, the
# servers' links](appendix/07_servers.ipynb) measures this, and divides the model among several servers.
#
# ## Fewer messages
#
# Local SGD needs no server, and it also sends fewer messages. **Post-local SGD** [4] averages gradients in the first
# steps, in which the model changes fast, and then uses local SGD. In the next cell, four ranks have links of 1 Gbit/s,
# which carry 118 MB/s. The gradients take 0.89 MB, and in a ring all-reduce, each rank sends 3/2 of this. Computing a
# step takes 20 ms.

# %%
def locally(make, ranks=4, steps=32, widths=(64, 600, 300, 10), rate=0.2):
    def program(comm):
        torch.manual_seed(0)
        model = mlp(widths)
        for p in model.parameters():  # a gradient takes its time to compute
            p.register_post_accumulate_grad_hook(lambda p: compute(comm, 0.02 / 6))
        optimizer = make(torch.optim.SGD(model.parameters(), rate), create_communicator("flat", comm))
        generator = torch.Generator().manual_seed(comm.rank)
        for _ in range(steps):
            chosen = torch.randint(len(DATA.train), (16,), generator=generator)
            optimizer.zero_grad()
            F.cross_entropy(model(DATA.train.images[chosen]), DATA.train.labels[chosen]).backward()
            optimizer.step()
        return sum(p.double().square().sum() for p in model.parameters()).item()

    return run(program, ranks, "1 GbE", record=False)


makers = {
    "an all-reduce after each step": MultiNodeOptimizer,
    "local SGD, 4 steps": lambda o, c: LocalOptimizer(o, c, every=4),
    "local SGD, 16 steps": lambda o, c: LocalOptimizer(o, c, every=16),
    "16 steps together, then 16 local": lambda o, c: LocalOptimizer(o, c, every=16, begin=16),
}
ms, kB = {}, {}
for name, make in makers.items():
    done = locally(make)
    ms[name], kB[name] = 1e3 * done.seconds / 32, done.traffic[0].sum() / 32e3
    print(f"{name:33} {ms[name]:5.1f} ms and {kB[name]:6.1f} kB sent a step")

# %% tags=["checked"]
# checked: the all-reduce takes 12 ms; the gradients have 0.89 MB
first, four, sixteen, post = ms.values()
assert round(first - 20) == 12 and sixteen < four < post < first
gradients = 4e-3 * sum(p.numel() for p in mlp((64, 600, 300, 10)).parameters())
assert round(gradients / 1e3, 2) == 0.89 and round(kB["an all-reduce after each step"] - 1.5 * gradients) == 56

# %% [markdown]
# The all-reduce takes 3/2 x 0.89 MB / 118 MB/s = 11.3 ms, plus some latency, so a step takes 32 ms. With local SGD, the
# ranks still wait during each all-reduce, but there are fewer. (Of the bytes, 56 kB a step are the parameters that rank
# 0 sends before the first step, divided by 32 steps.)
#
# Two appendices show other ways to wait less. In [07, delays](appendix/07_delays.ipynb), the gradients of one step
# travel while the next are computed. In [07, gradient compression](appendix/07_compression.ipynb), a rank sends one bit
# for each number, or matrices of low rank.
#
# ## Hundreds of steps alone
#
# Between two continents, we would like ranks to communicate only once in 500 steps. In 2023, Arthur Douillard and
# others trained language models in this way, with a method called **DiLoCo** [6]. Each rank, or group of ranks, is a
# replica: it holds the whole model and draws batches of its own. All replicas begin with the same parameters. A replica
# trains alone for H steps with its **inner optimizer**, AdamW. Then an all-reduce averages the parameters of all
# replicas, as in local SGD. But DiLoCo does not continue from this mean. The difference
#
# (parameters at the beginning of the H steps) - (mean of the replicas' parameters at their end)
#
# is given to an **outer optimizer** as if it were a gradient. The outer optimizer is SGD with a learning rate of 0.7
# and Nesterov's momentum of 0.9. It steps from the parameters at the beginning of the H steps, and all replicas
# continue from its result. If its learning rate were 1 and its momentum 0, the result would be the mean, as in local
# SGD. With momentum, it goes farther in directions in which the replicas have moved again and again.

# %%
nesterov = partial(torch.optim.SGD, lr=0.7, momentum=0.9, nesterov=True)
diloco = locally(lambda o, c: LocalOptimizer(o, c, every=16, outer=nesterov))
print(f"DiLoCo, 16 steps: {diloco.traffic[0].sum() / 32e3:.1f} kB sent a step, as many as local SGD")

# %% tags=["checked"]
# checked: DiLoCo sends what local SGD sends
assert round(diloco.traffic[0].sum() / 32e3, 1) == round(kB["local SGD, 16 steps"], 1)

# %% [markdown]
# What does it cost? We trained a small GPT of 114 thousand parameters on the course's own text, with eight replicas,
# eight seeds, and H from 1 to 500. In each run, one replica first trains alone for 500 steps. Then eight replicas take
# 1000 steps each, with batches of 8 sequences. All replicas draw from the same text. All runs use the same learning
# rates, which were not tuned. We made the runs beforehand with `lessons/studies/diloco.py`. The figure shows DiLoCo
# beside *averaging*, that is, local SGD with the same AdamW. The dotted lines are three ways to train with neither:
#
# - *one replica* goes on alone for 1000 steps;
# - with *8 times the batch*, all replicas average their gradients in each step;
# - with *8 times the steps*, one replica goes on alone for 8000 steps, which takes 8 times as long.
#
# **Predict first.** In which order are the three dotted lines, from the highest loss to the lowest? For which H is the
# loss of DiLoCo the lowest: for 1, 10 or 500?

# %% tags=["answer"]
# answer
study = shipped_diloco()
final = {name: [run.final for run in runs] for name, runs in study.items()}
by_period = {name: [final[f"{name} {h}"] for h in PERIODS] for name in OUTERS}
dotted = {name: mean(final[name]) for name in (ALONE, TOGETHER, LONGER)}
title = "With H = 10, DiLoCo is slightly better than 8 times the batch"
plot.lines(PERIODS, by_period, "H, steps between two all-reduces", "loss on validation text", title, dotted)
print("   H   DiLoCo            averaging         sent by a replica")
for i, h in enumerate(PERIODS):
    losses = [mean_of(seeds[i]) for seeds in by_period.values()]
    shown = "   ".join(f"{loss.mean:.3f} +- {loss.error:.3f}" for loss in losses)
    print(f"{h:4}   {shown}   {study[f'DiLoCo {h}'][0].sent / 1e6:5.0f} MB")
halves = [mean(losses) for losses in zip(*(run.losses[1:] for run in study["DiLoCo 500"]))]
print("DiLoCo with H = 500, after its first and second outer step: " + ", ".join(f"{loss:.2f}" for loss in halves))

# %% tags=["checked"]
# checked: the best H, what averaging loses, and DiLoCo's last outer step with H = 500
assert min(PERIODS, key=lambda h: mean(final[f"DiLoCo {h}"])) == 10
averaged = [mean(final[f"averaging {h}"]) for h in PERIODS]
assert averaged == sorted(averaged) and averaged[-1] < dotted[ALONE]
assert difference(final["DiLoCo 20"], final[TOGETHER], True, comparisons=3).low > 0
assert all(run.losses[1] < run.losses[2] for run in study["DiLoCo 500"])
assert min(mean(final["DiLoCo 1"]), mean(final["DiLoCo 500"])) > dotted[ALONE]

# %% [markdown]
# <details><summary>Why</summary>
#
# One replica has the highest loss, and 8 times the steps the lowest. With averaging, the loss grows slowly with H. Even
# with H = 1, it is above that of 8 times the batch. Probably this is because each replica's AdamW divides its steps by
# the size of its own noisy gradients, and not by that of their mean.
#
# DiLoCo is best with H = 10. Momentum adds up outer steps: if they all have the same direction, each change moves the
# parameters 0.7 / (1 - 0.9) = 7 times as far in the end. With H = 1, this is probably as if the learning rate were far
# too large. With larger H, the noise of the single steps is averaged out within a period, and what is left is worth
# repeating. With H = 500, each change is large, and there are only two outer steps. The second one adds momentum from
# the first, and the loss rises from 2.00 to 2.11.
#
# </details>
#
# The paper compares the same four ways by their **perplexity**, e^loss, with a model of 150 million parameters and H =
# 500 [6]. Its runs are so long that there are many outer steps with this H. For our small scale we take H = 10, the
# best of our eight values of H on the same validation text.

# %%
print(f"{'':20} published    here   sent by a replica")
for name, published in DILOCO.items():
    way = "DiLoCo 10" if name == "DiLoCo" else name
    print(f"{way:20} {published:9.2f} {exp(mean(final[way])):7.2f}   {study[way][0].sent / 1e6:5.0f} MB")

# %% tags=["checked"]
# checked: the order is the paper's, and each way differs significantly from the next
order = [final["DiLoCo 10" if name == "DiLoCo" else name] for name in DILOCO]
assert all(difference(worse, better, True, comparisons=3).low > 0 for worse, better in pairwise(order))


# %% [markdown]
# The order is the same in both. But this depends on H: with H = 20, our DiLoCo is behind 8 times the batch. And with
# another learning rate, 8 times the batch might come out better.
#
# ## How slow may the link be?
#
# DiLoCo with H = 100 sends a hundredth of the bytes. Does a hundredth of the bandwidth suffice? The **compute
# utilisation** u is the share of the time in which a replica computes. Suppose that a step computes for t seconds. H
# steps compute for H t seconds, and at a utilisation of u they last H t / u. This leaves H t (1 / u - 1) for waiting.
# In a simulation, Douillard and others let messages also travel during one backward pass [7], which takes about 2/3 of
# t. We assume two replicas. In an all-reduce, each of them sends all N parameters, with 16 bits each. So the bandwidth
# in bit/s has to be
#
# 16 N / (H t (1 / u - 1) + 2/3 t).
#
# The figure shows the bandwidths that the simulation found, for models of 10 billion parameters (0.8 s a step) and of
# 405 billion (26 s), and our formula.
#
# **Predict first.** A model of 10 billion parameters takes 0.8 s a step. With gradients averaged in each step (H = 1),
# it needs 104.8 Gbit/s for a utilisation of 50 %, and 390.7 Gbit/s for 99 %. How many times less does it need with H =
# 100, for 50 % and for 99 %?

# %% tags=["answer"]
# answer
def bandwidth(billions, t, h, u):
    """Return the Gbit/s that a compute utilisation of u needs."""
    return 16 * billions / (h * t * (1 / u - 1) + 2 / 3 * t)


by_formula = {key: [bandwidth(*key, u / 100) for u in UTILISATION] for key in BANDWIDTH}
names = {key: f"{key[0]} billion, H = {key[2]}" for key in BANDWIDTH}
figure = plot.lines(
    UTILISATION,
    {names[key]: row for key, row in BANDWIDTH.items()},
    "compute utilisation (%)",
    "Gbit/s",
    "The higher the utilisation, the less bandwidth is saved by H = 100",
    log=False,
    log_y=True,
    formulas={"formula": by_formula[10, 0.8, 1]},
)
for row in list(by_formula.values())[1:]:
    figure.axes[0].plot(UTILISATION, row, "--", color="grey", linewidth=1.5)
figure.axes[0].legend(loc="lower right", ncols=2, fontsize=8, frameon=False)
for u, one, hundred in zip(UTILISATION, BANDWIDTH[10, 0.8, 1], BANDWIDTH[10, 0.8, 100]):
    print(f"{u} %: {one:5.1f} and {hundred:4.1f} Gbit/s, {one / hundred:4.1f} times less")
ratios = sorted(o / p for key in BANDWIDTH for o, p in zip(by_formula[key], BANDWIDTH[key]))
print(f"formula / published: {ratios[0]:.2f} to {ratios[-1]:.2f}, median {ratios[12]:.2f}")

# %% tags=["checked"]
# checked: 75 times less for 50 %, 4.5 times for 99 %; one of 25 figures is predicted too low, none 1.5 times too high
assert round(104.8 / 1.4) == 75 and round(390.7 / 86.8, 1) == 4.5
assert len(ratios) == 25 and ratios[0] > 0.75 and ratios[1] > 1 and ratios[-1] < 1.5
of_ten = [row[0] / row[1] for row in zip(by_formula[10, 0.8, 1], by_formula[10, 0.8, 100])]
assert [round(of_ten[0]), round(of_ten[-1], 1)] == [60, 2.5]

# %% [markdown]
# <details><summary>Why</summary>
#
# For 50 %, H = 100 needs 75 times less in the simulation, but for 99 % only 4.5 times less. Our formula gives 60 and
# 2.5 times. DiLoCo sends all parameters at once. At a utilisation of 99 %, a hundred steps may wait for 0.8 s in all.
# Together with the backward pass of 0.5 s, this leaves 1.3 s for the whole message. It does not help that the link is
# idle during the other 99 steps. So the authors' next method, Streaming DiLoCo [7], sends the parameters in parts, and
# each part while the following steps are computed.
#
# Our formula asks for 1.07 to 1.45 times the published bandwidth in 24 of 25 cases, and for 0.76 times in one. We do
# not know the details of the simulation. It seems to have tried bandwidths in steps of 21 %, for only such values
# occur.
#
# </details>
#
# ## The same in PyTorch
#
# In PyTorch, post-local SGD consists of three parts. A hook of `DistributedDataParallel` averages gradients in the
# first steps only. An averager decides after which steps the parameters are averaged. An optimizer calls the averager
# after each of its steps. Two real processes run the program with gloo. They compute what our `LocalOptimizer` computes
# on virtual ranks.

# %% tags=["nbval-ignore-output"]
Path("scratch").mkdir(exist_ok=True)

# %% tags=["nbval-ignore-output"]
# %%writefile scratch/post_local.py
import time

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import PostLocalSGDState, post_localSGD_hook
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.distributed.optim import PostLocalSGDOptimizer

from mpcourse.data import digits
from mpcourse.models import mlp

dist.init_process_group("gloo")  # or "nccl", with the model and the data on the GPU of this rank
torch.manual_seed(0)
model, data = mlp((64, 32, 10)), digits().train
parallel = torch.nn.parallel.DistributedDataParallel(model)
state = PostLocalSGDState(None, None, start_localSGD_iter=8, post_local_gradient_allreduce=False)
parallel.register_comm_hook(state, post_localSGD_hook)
averager = PeriodicModelAverager(period=4, warmup_steps=8 + 3)
optimizer = PostLocalSGDOptimizer(torch.optim.SGD(model.parameters(), 0.2), averager)
generator = torch.Generator().manual_seed(dist.get_rank())
for _ in range(24):
    chosen = torch.randint(len(data), (16,), generator=generator)
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(parallel(data.images[chosen]), data.labels[chosen]).backward()
    optimizer.step()
if dist.get_rank() == 0:
    print(sum(p.double().square().sum() for p in model.parameters()).item())
time.sleep(0.1)  # gloo's threads free their tensors; while Python exits, they would abort it
dist.destroy_process_group()

# %%
# said = !torchrun --local-addr localhost --nproc-per-node 2 scratch/post_local.py 2> scratch/torchrun.log
ours = locally(lambda o, c: LocalOptimizer(o, c, every=4, begin=8), ranks=2, steps=24, widths=(64, 32, 10))
assert said == [str(ours.results[0])]
print("the sum of all squared weights is equal, bit for bit")

# %% [markdown]
# Check three settings.
#
# - `PeriodicModelAverager` averages after steps `warmup_steps` + 1, `warmup_steps` + 1 + `period`, and so on. If we set
#   `warmup_steps=8` to match the hook's `start_localSGD_iter=8`, it would first average after a single local step, and
#   then after every fourth step. Our `LocalOptimizer` first averages after four local steps, so we set the averager's
#   `warmup_steps` to 8 + 3.
# - With `post_local_gradient_allreduce=True`, the default, the ranks of one machine go on averaging their gradients in
#   every step. Only averaging between machines becomes less frequent.
# - Without the hook, `DistributedDataParallel` averages all gradients in every step, and local SGD saves nothing.
#
# PyTorch has no parameter server of its own. To write one, call `dist.recv(x)` without a source: with gloo, it receives
# from the rank that sends first, and returns this rank's number. The appendix [07, a real
# server](appendix/07_real_server.ipynb) contains such a server. There, the order of arrival and thus the result change
# from run to run, so an error may not be reproducible.
#
# ## The reference implementation
#
# These are the library's classes, without their docstrings. The links open the files.

# %%
from mpcourse.common.source import reference
from mpcourse.data_parallel.servers.policies import AsynchronousTurn, BoundedTurn

reference(AsynchronousTurn, BoundedTurn)

# %% [markdown]
# ## What production systems call it
#
# | here | there |
# |---|---|
# | `train_with_servers` | DistBelief [5], MXNet's `dist_sync` and `dist_async`, TF's ParameterServerStrategy |
# | `Asynchronous` | [Hogwild](https://arxiv.org/abs/1106.5730) on one machine; Downpour SGD on many [5] |
# | `Synchronous(backup=...)` | TensorFlow's SyncReplicasOptimizer |
# | `BoundedStaleness` | stale synchronous parallel, in Petuum |
# | `LocalOptimizer` | PyTorch's post-local SGD; [federated averaging](https://arxiv.org/abs/1602.05629) |
# | `LocalOptimizer(outer=...)` | DiLoCo [6]; [torchft](https://docs.pytorch.org/torchft/local_sgd.html)'s `DiLoCo` |
#
# Today, most training is synchronous. Links have become faster and machines more alike, and results have to be
# reproducible. Where links are slow, as between continents, ranks average their parameters only rarely.
#
# 1. Takuya Akiba, *chainerMNによる分散学習* (Distributed training with ChainerMN), a talk on YouTube, 2017. We
#    know it only from a listener's notes, and have no link to the video.
# 2. Jianmin Chen and others, [*Revisiting Distributed Synchronous SGD*](https://arxiv.org/abs/1604.00981), 2016
# 3. Qirong Ho and others, [*More Effective Distributed ML via a Stale Synchronous Parallel Parameter
#    Server*](https://proceedings.neurips.cc/paper/2013/hash/b7bb35b9c6ca2aee2df08cf09d7016c2-Abstract.html), 2013
# 4. Tao Lin and others, [*Don't Use Large Mini-Batches, Use Local SGD*](https://arxiv.org/abs/1808.07217), 2020
# 5. Jeffrey Dean and others, [*Large Scale Distributed Deep
#    Networks*](http://www.cs.toronto.edu/~ranzato/publications/DistBeliefNIPS2012_withAppendix.pdf), 2012
# 6. Arthur Douillard and others, [*DiLoCo: Distributed Low-Communication Training of Language
#    Models*](https://arxiv.org/abs/2311.08105), 2023
# 7. Arthur Douillard and others, [*Streaming DiLoCo with overlapping communication*](https://arxiv.org/abs/2501.18512),
#    2025
#
# ## Problems
#
# **1.** Each of 1000 workers is slow in a step with a probability of 1 %, independently of the others. In what share of
# the steps does synchronous training wait? How many backup workers are needed so that it waits in at most 5 % of the
# steps?
#
# **2.** Two data centres train a model of a billion float32 parameters by local SGD. One link of 1 Gbit/s joins them,
# and carries 118 MB/s in each direction. Computing a step takes 1 s. How many steps must lie between two averages, so
# that averaging takes at most a tenth of the computing time?

# %% tags=["answer"]
# answer
print(f"1. It waits unless no worker is slow: 1 - 0.99^1000 = {1 - 0.99**1000:.3%} of the steps.")
print(f"   At most {binom.ppf(0.95, 1000, 0.01):.0f} workers are slow in 95 % of the steps: so many backup workers.")
average = 4e9 / 118e6
print(f"2. Each sends its 4 GB once: {average:.0f} s, so after {average / 0.1:.0f} steps or more")

# %% [markdown]
# ## What you found
#
# - Asynchronous updates raise throughput: with one slow worker, 640 gradients took 0.90 s instead of 3.22 s. What they
#   cost depends on the learning rate and on the length of the training. After 320 gradients, a staleness of 7 cost 10
#   points, even at the best of three rates. After 640 gradients, the asynchronous way was 1.4 points below the
#   synchronous one, which may be chance.
# - A backup worker saved nearly as much time, and no gradient was stale.
# - With p equally fast workers, the staleness is p - 1. The larger the learning rate, the more staleness harms
#   training.
# - The ways to deal with a straggler need similar numbers of gradients, but very different times.
# - Local SGD sends fewer messages, and lost 1.2 points here.
# - After the start, DiLoCo sends an H-th of the bytes of data parallelism. With H = 10, the best of eight values, a
#   small GPT learned slightly better than with 8 times the batch. With H = 1 and with H = 500, it learned worse than
#   one replica alone.
# - The bandwidth falls nearly as much as the bytes only if replicas may wait for much of the time. For a compute
#   utilisation of 99 %, a model of 10 billion parameters needs only 4.5 times less with H = 100 than with H = 1.
# - In PyTorch, a hook, an averager and an optimizer together implement post-local SGD. The first average comes after
#   step `warmup_steps` + 1.
#
# Next comes lesson 08, [More machines](08_scaling.ipynb), which asks when more machines make training slower.
