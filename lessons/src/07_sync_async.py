# %% [markdown]
# # 07 Synchronous or asynchronous
#
# **Why does everyone wait for the slowest?** About 55 minutes to read, and 50 for its exercises.
#
# Eight workers train one model. Seven of them need 10 ms for a step, and one needs 40 ms. A worker that is slower than
# the others is a **straggler**. With data parallelism as in lesson 06, every step takes 40 ms, so seven workers wait
# for three quarters of their time. Why do they not go on without the straggler?
#
# In 2017, Takuya Akiba, an author of ChainerMN (the library of lesson 06), gave an answer in a talk [1]. We test three
# statements from a listener's notes.
#
# 1. With **asynchronous** updates, no worker waits. This raises throughput. But the gradients are stale, that is,
#    computed with older weights, and this costs accuracy.
# 2. A **parameter server**, a process that holds the weights for all workers, is a bottleneck.
# 3. TensorFlow was slow with an even number of parameter servers.
#
# After this lesson you can
#
# - write a parameter server, and say how stale each received gradient is;
# - choose how to deal with stragglers, judging by the time to a given accuracy and not by throughput;
# - compute the load of a server's link, and divide a model among several servers;
# - train in PyTorch so that the ranks average their parameters only rarely, and say after which steps.

# %% tags=["nbval-ignore-output", "remove-cell"]
from mpcourse.course.learner import panel

panel.show("07_sync_async")

# %% tags=["nbval-ignore-output"]
# %config InlineBackend.print_figure_kwargs = {"dpi": 110}
from collections import Counter
from functools import partial
from pathlib import Path
from statistics import mean

import torch
import torch.nn.functional as F
from scipy.stats import binom

from mpcourse import plot
from mpcourse.data import digits
from mpcourse.data_parallel import DoubleBufferedOptimizer, LocalOptimizer, MultiNodeOptimizer, create_communicator
from mpcourse.data_parallel.servers import Asynchronous, BoundedStaleness, Shards, Synchronous, train_with_servers
from mpcourse.models import mlp
from mpcourse.studies.compare import difference, mean_of
from mpcourse.studies.staleness.shipped import shipped_delay, shipped_staleness, shipped_ways
from mpcourse.studies.staleness.study import RATES, STALENESS
from mpcourse.virtual import LINKS, compute, run

DATA = digits()
torch.set_num_threads(1)  # for matrices as small as these, starting a second thread takes longer than it saves


# %% [markdown]
# ## A server
#
# Rank 0 is the parameter server and holds the model. The other ranks are workers. A worker receives the weights,
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
# - **Backup workers** [2]: an update is the mean of the first seven gradients that arrive. The server drops the
#   eighth, so it never uses the slow worker's examples, and no gradient is stale.
# - Asynchronous: each gradient is an update.
# - **Bounded staleness** [3]: a worker waits as long as it is more than two steps ahead of the slowest worker. The
#   bound counts steps, not updates: during one step of the slowest worker, the seven others may each take three steps,
#   which makes 21 updates.
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
# staleness, because its gradients are staler. The ways differ most in updates, because an asynchronous update uses one
# gradient, whereas a synchronous update uses eight. With a backup worker or with asynchronous updates, training reaches
# 85 % in about 0.4 s. The synchronous way needs 1.4 s, because each of its updates waits for the slow worker.
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
# If one machine is always slow, bounded staleness and local SGD proceed at its speed in the long run. Now let the
# delays be random: each step of each worker takes 40 ms with a probability of a quarter, and 10 ms otherwise. Each seed
# has its own delays.
#
# **Predict first.** With which of the five ways does training now end sooner than it did with one slow worker, and with
# which does it end later?

# %% tags=["answer"]
# answer
at_random = shipped_ways("now and then")
figure = plot.dots(
    {
        "seconds, one slow": {name: runs.took for name, runs in one_slow.items()},
        "seconds, random delays": {name: runs.took for name, runs in at_random.items()},
        "accuracy (%), random delays": {name: runs.final for name, runs in at_random.items()},
    },
    "640 gradients with one slow worker, and with random delays",
)
for axis in figure.axes[:2]:
    axis.set_xlim(0, 3.5)
table(at_random)

# %% tags=["checked"]
# checked: the order of the ways, which of them end sooner, and the closed forms of two times
order = ["asynchronous", "bounded staleness 2", "local SGD, 4 steps", "1 backup worker", "synchronous"]
assert sorted(at_random, key=lambda name: mean(at_random[name].took)) == order
sooner = [name for name in order if mean(at_random[name].took) < mean(one_slow[name].took)]
assert sooner == ["bounded staleness 2", "local SGD, 4 steps", "synchronous"]
assert abs(mean(at_random["asynchronous"].took) / (80 * 0.0175) - 1) < 0.05
waits = 1 - 0.75**8  # the chance that at least one of eight workers is slow
assert abs(mean(at_random["synchronous"].took) / (80 * (0.01 + 0.03 * waits)) - 1) < 0.03


# %% [markdown]
# <details><summary>Why</summary>
#
# With bounded staleness and local SGD, training ends much sooner than before, and with synchronous updates, a little
# sooner. Asynchronous training and training with a backup worker end later, because there are more slow steps now.
#
# In asynchronous training, each worker takes 17.5 ms a step on average. Synchronous training takes twice as long,
# because at least one of eight workers is slow with a probability of 1 - 0.75⁸ = 90 %. The other ways lie in between.
# With bounded staleness, a worker waits only for workers that are more than two steps behind. In local SGD, all ranks
# wait after every four steps, and the time of four steps varies less, relative to its mean, than the time of one. With
# a backup worker, an update waits only if at least two workers are slow, but it uses seven gradients, so more updates
# are needed.
#
# </details>
#
# Exercise [`e07_parameter_server`](../exercises/e07_parameter_server.py): write an asynchronous parameter server and
# its workers. You need `comm.Recv(row, MPI.ANY_SOURCE, status=status)`, with `status = MPI.Status()`. It receives the
# message that arrives first, and `status.Get_source()` is the rank that sent it.

# %% tags=["nbval-ignore-output", "remove-output"]
# !mpcourse check e07_parameter_server

# %% [markdown]
# ## The server's link
#
# In each step, the server receives p gradients and sends p answers. The next cell runs synchronous steps in which
# computing takes no time. The model is an MLP with 784 inputs, two hidden layers of 300 units and 10 outputs. Its
# parameters take 1.3 MB. Each rank has a link of 10 Gbit/s, which carries 1.18 GB/s in each direction (lesson 05).

# %%
def exchange(workers, servers=1, how="even", updates=3):
    """Return the seconds of a synchronous step in which computing takes no time."""

    def program(comm):
        model = mlp((784, 300, 300, 10))

        def backward(step):
            for p in model.parameters():
                p.grad = torch.ones_like(p)
            return 0.0

        return train_with_servers(comm, model, torch.optim.SGD, backward, updates, Synchronous(), servers, how)

    done = run(program, workers + servers, record=False)
    times = [push.seconds for push in done.results[0].pushes[0]]
    return (times[-1] - times[workers - 1]) / (updates - 1)  # from the first update to the last


COUNTS = [2, 4, 8, 16]
by_server = [1e3 * exchange(p) for p in COUNTS]
layers = [p.numel() for p in mlp((784, 300, 300, 10)).parameters()]
one_way = 1e3 * 4 * sum(layers) / LINKS["10 GbE"].bandwidth  # milliseconds of a message as large as the model
latency = 1e3 * LINKS["10 GbE"].latency
by_ring = [2 * (p - 1) / p * one_way + 2 * (p - 1) * latency for p in COUNTS]
figure = plot.lines(
    COUNTS,
    {"one server": by_server},
    "p workers",
    "milliseconds a step",
    "With one server the time of a step grows with every worker",
    log=False,
    formulas={"p + 1 messages": [one_way * (p + 1) for p in COUNTS], "ring all-reduce, by formula": by_ring},
)
figure.axes[0].set_ylim(0)
print(f"16 workers: {by_server[-1] / by_ring[-1]:.1f} times as long with one server as with a ring")

# %% tags=["checked"]
# checked: the model's size, p + 1 messages to within 5 %, and the ring below three
assert round(4e-6 * sum(layers), 1) == 1.3 and LINKS["10 GbE"].bandwidth == 1.18e9
assert all(1 < ms / (one_way * (p + 1)) < 1.05 for p, ms in zip(COUNTS, by_server))
assert max(by_ring) < 3 * one_way

# %% [markdown]
# One might expect that a step takes as long as 2 p messages of the model's size, p gradients and then p answers. But a
# link carries messages in both directions at once. When the first worker has its answer, its next gradient travels to
# the server while the second worker's answer is sent. So a step takes as long as p + 1 messages. A ring all-reduce
# (lesson 05) moves less than two such messages over each link, whatever the number of ranks. Only its total latency
# grows with this number.
#
# Several servers can share the load, if each holds a part of the model. TensorFlow assigned whole parameters to servers
# [**round-robin**](https://tensorflow.org/versions/r1.15/api_docs/python/tf/train/replica_device_setter): the first to
# the first server, the second to the second, and so on.
#
# **Predict first.** The parameters of this MLP are weight, bias, weight, bias, weight, bias. Are two servers with
# round-robin twice as fast as one?

# %% tags=["answer"]
# answer
SERVERS = [1, 2, 3, 4, 5]
steps = {how: [1e3 * exchange(6, s, how) for s in SERVERS] for how in ("round_robin", "even")}
figure = plot.lines(
    SERVERS,
    {"whole parameters, round-robin": steps["round_robin"], "equal cuts": steps["even"]},
    "servers",
    "milliseconds a step",
    "Six workers: with round-robin two servers are no better than one",
    log=False,
)
figure.axes[0].set_ylim(0)
model = list(mlp((784, 300, 300, 10)).parameters())
for servers in SERVERS:
    print(f"{servers} servers, round-robin: {Shards(model, servers, 'round_robin').lengths} elements")
in_use = [6 * one_way / servers / ms for servers, ms in zip(SERVERS, steps["even"])]
print("equal cuts, share of time in which a server's link is in use: " + ", ".join(f"{part:.0%}" for part in in_use))

# %% tags=["checked"]
# checked: two servers gain less than 5 % with round-robin and a quarter with equal cuts; four gain nothing on three
dealt, even = steps["round_robin"], steps["even"]
assert dealt[1] > 0.95 * dealt[0] and dealt[1] > 1.3 * dealt[2] and even[1] < 0.75 * even[0]
assert min(dealt[3:]) > 0.99 * dealt[2] and layers[0] == 235_200 and even[3] < even[4]
assert in_use[4] < 0.3 < 0.5 < in_use[3]


# %% [markdown]
# <details><summary>Why</summary>
#
# One of the two servers gets all weights, and the other gets all biases, which are few. Three servers are faster than
# two. Four or five are no faster than three, because one server holds the 235,200 weights of the first layer, and all
# ranks wait for it.
#
# With equal cuts, two servers are faster than one. Five are slower than four, although each server's link is in use for
# less than 30 % of the time. A message needs the links of its sender and of its receiver at once. The more servers
# there are, the more often one of these two links is busy with another message.
#
# </details>
#
# The talk gave no reason why an even number of servers was slow. Round-robin explains it for two servers, but not for
# four. Later, TensorFlow offered a strategy that assigns parameters by their size.
#
# ## Fewer messages, or later ones
#
# Two further ways need no server. **Post-local SGD** [4] averages gradients in the first steps, in which the model
# changes fast, and then uses local SGD. With ChainerMN's **double buffering**, the all-reduce of one step's gradients
# runs while the ranks compute the next gradients. So each update applies the gradients of the previous step, and their
# staleness is 1.
#
# In the next cell, four ranks have links of 1 Gbit/s, which carry 118 MB/s. The gradients take 0.89 MB, and in a ring
# all-reduce, each rank sends 3/2 of this. Computing a step takes 20 ms.

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
        getattr(optimizer, "finish", lambda: None)()
        return sum(p.double().square().sum() for p in model.parameters()).item()

    return run(program, ranks, "1 GbE", record=False)


makers = {
    "an all-reduce after each step": MultiNodeOptimizer,
    "double buffering": DoubleBufferedOptimizer,
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
# checked: the all-reduce takes 12 ms and hides behind computing; the gradients have 0.89 MB
first, double, four, sixteen, post = ms.values()
assert double < 1.1 * 20 < 0.8 * first and round(first - 20) == 12 and sixteen < four < post < first
gradients = 4e-3 * sum(p.numel() for p in mlp((64, 600, 300, 10)).parameters())
assert round(gradients / 1e3, 2) == 0.89 and round(kB["an all-reduce after each step"] - 1.5 * gradients) == 56

# %% [markdown]
# The all-reduce takes 3/2 x 0.89 MB / 118 MB/s = 11.3 ms, plus some latency. If it begins after the computation, a step
# takes 32 ms. With double buffering, it overlaps with the next computation, so a step takes little more than 20 ms. The
# all-reduces of lesson 06's buckets also overlap with computation, in the same step and without staleness, but nothing
# hides the last of them. Local SGD hides none of its all-reduces, but performs fewer.
#
# What does double buffering cost? We trained eight ranks on the digits with and without it, with 40 seeds at each of
# three learning rates.

# %%
print("rate of the mean     no delay             double buffering     no delay minus double buffering")
for rate, found in shipped_delay().items():
    compared = difference(*found.values(), paired=True, comparisons=3)
    means = "".join(f"{str(mean_of(runs)):>25}" for runs in found.values())
    print(f"{rate:16} {means}  {compared}")
late = {rate: found["double buffering"] for rate, found in shipped_delay().items()}
print(f"double buffering, 0.4 minus 0.2: {difference(late[0.4], late[0.2], paired=True)}")

# %% tags=["checked"]
# checked: the cost grows with the rate; 0.8 is the best rate without a delay, and far worse than 0.2 with it
costs = [difference(*found.values(), paired=True, comparisons=3) for found in shipped_delay().values()]
assert 0 < costs[0].low and costs[0].high < costs[1].low and costs[1].high < costs[2].low
on_time = {rate: found["no delay"] for rate, found in shipped_delay().items()}
assert all(difference(on_time[0.8], on_time[rate], True, comparisons=3).low > 0 for rate in (0.2, 0.4))
assert difference(late[0.2], late[0.8], True, comparisons=3).low > 20
assert [round(cost.mean) for cost in costs] == [1, 6, 38]

# %% [markdown]
# At a rate of 0.2, the delay of one step costs a point, at 0.4 six points, and at 0.8 nearly forty. The mean of eight
# gradients allows a large rate only if it is applied at once. Of the three rates, 0.8 is the best without the delay,
# but 0.2 and 0.4 are far better with it. So double buffering needs a learning rate of its own.
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
# | `LocalOptimizer` | PyTorch's post-local SGD; [federated averaging](https://arxiv.org/abs/1602.05629); DiLoCo [6] |
# | `DoubleBufferedOptimizer` | ChainerMN; the delay of one step in [PipeDream-2BW](https://arxiv.org/abs/2006.09503) |
#
# DiLoCo also has an outer optimizer, which takes a step with momentum. Its gradient is the mean change of the ranks'
# parameters since the last averaging. Federated averaging has no outer optimizer.
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
#
# ## Problems
#
# **1.** Each of 1000 workers is slow in a step with a probability of 1 %, independently of the others. In what share of
# the steps does synchronous training wait? How many backup workers are needed so that it waits in at most 5 % of the
# steps?
#
# **2.** Two data centres train a model of a billion float32 parameters by local SGD. One link of 1 Gbit/s joins them,
# and carries 118 MB/s in each direction. Computing a step takes 1 s. How many steps must lie between two averages, so
# that averaging takes at most a tenth of the computing time? (DiLoCo with 8 workers communicated 500 times less than
# synchronous training [6].)

# %% tags=["answer"]
# answer
print(f"1. It waits unless no worker is slow: 1 - 0.99^1000 = {1 - 0.99**1000:.3%} of the steps.")
print(f"   At most {binom.ppf(0.95, 1000, 0.01):.0f} workers are slow in 95 % of the steps: so many backup workers.")
average = 4e9 / 118e6
print(f"2. Each sends its 4 GB once: {average:.0f} s, so after {average / 0.1:.0f} steps or more")

# %% [markdown]
# ## What you found
#
# The three statements:
#
# 1. *Asynchronous updates raise throughput and cost accuracy.* The first half is right: with one slow worker, 640
#    gradients took 0.90 s instead of 3.22 s. The second half depends on the learning rate and on the length of the
#    training. After 320 gradients, a staleness of 7 cost 10 points, even at the best of three rates. After 640
#    gradients, the asynchronous way was 1.4 points below the synchronous one, which may be chance. A backup worker
#    saved nearly as much time, and no gradient was stale.
# 2. *A parameter server is a bottleneck.* This is right for one server, with which a step takes as long as p + 1
#    messages. With 16 workers, a ring was 6.5 times as fast. Servers that hold equal parts of the model share the load.
# 3. *An even number of servers is slow.* With round-robin, one of two servers gets all weights. This explains the
#    statement for two servers, but not for four.
#
# And for your own training:
#
# - With p equally fast workers, the staleness is p - 1. The larger the learning rate, the more staleness harms
#   training.
# - The ways to deal with a straggler need similar numbers of gradients, but very different times.
# - Local SGD sends fewer messages, and lost 1.2 points here. Double buffering hides messages behind computing, but lost
#   38 points at the rate that was best without a delay.
# - In PyTorch, a hook, an averager and an optimizer together implement post-local SGD. The first average comes after
#   step `warmup_steps` + 1.
#
# Next comes lesson 08, [More machines](08_scaling.ipynb), which asks when more machines make training slower.
