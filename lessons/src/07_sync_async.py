# %% [markdown]
# # 07 Synchronous or asynchronous
#
# **Why does everyone wait for the slowest?** About 65 minutes to read, and 50 for its exercises.
#
# Eight workers train one model. Seven need 10 ms for a step, and one needs 40 ms: a **straggler**. With data
# parallelism as in lesson 06 all eight need 40 ms, and seven of them wait three quarters of their time. So why wait?
#
# A talk of 2017 about ChainerMN had an answer. **Asynchronous** updates, for which no worker waits, raise throughput.
# But they use stale gradients, computed with older weights, and that costs accuracy. The talk also said that a
# **parameter server**, a process that holds the weights for all workers, is a bottleneck, and that an even number of
# servers was slower. We test these three statements.

# %% tags=["nbval-ignore-output", "remove-cell"]
from mpcourse.course.learner import panel

panel.show("07_sync_async")

# %% tags=["nbval-ignore-output"]
# %config InlineBackend.print_figure_kwargs = {"dpi": 110}
import json
from collections import Counter
from pathlib import Path
from statistics import mean

import torch
import torch.nn.functional as F

from mpcourse import plot
from mpcourse.data import digits
from mpcourse.data_parallel import DoubleBufferedOptimizer, LocalOptimizer, MultiNodeOptimizer, create_communicator
from mpcourse.data_parallel.servers import Asynchronous, BoundedStaleness, Shards, Synchronous, train_with_servers
from mpcourse.models import mlp
from mpcourse.studies.compare import difference, mean_of
from mpcourse.studies.staleness.shipped import shipped_delay, shipped_staleness, shipped_ways
from mpcourse.studies.staleness.study import RATES, STALENESS, WAYS
from mpcourse.studies.staleness.training import now_and_then, one_slow
from mpcourse.studies.staleness.training import train as train_way
from mpcourse.virtual import LINKS, compute, run

DATA = digits()
torch.set_num_threads(1)  # for matrices as small as these, starting a second thread takes longer than it saves


# %% [markdown]
# ## A server
#
# One rank, the parameter server, holds the model. The others are workers. A worker receives the weights, computes a
# gradient on a batch of its own, sends it, and receives new weights. Training is **synchronous** if the server waits
# for the gradients of all workers before it answers, and asynchronous if it answers each gradient at once.
#
# `train_with_servers` is told by a policy when to answer. Here eight workers train on handwritten digits, until 320
# gradients have been used in all.

# %%
def accuracy(model):
    with torch.no_grad():
        return 100 * (model(DATA.test.images).argmax(1) == DATA.test.labels).double().mean().item()


def train(workers, policy, gradients=320, rate=0.1, slow=0.01, seed=0):
    """gradients: to be used, over all workers. slow: seconds of a step of rank 1; of others it takes 10 ms."""
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

        def sgd(row):
            return torch.optim.SGD(row, rate)

        served = train_with_servers(comm, model, sgd, backward, gradients // per_update, policy)
        return served, accuracy(model)

    done = run(program, workers + 1)
    served, reached = done.results[0]
    last = max(push.seconds for push in served.pushes[0] if push.applied)
    return served, reached, last, done


synchronous = train(8, Synchronous(), slow=0.04)
asynchronous = train(8, Asynchronous(), slow=0.04)
print(f"synchronous:  {synchronous[2]:.2f} s for 320 gradients")
print(f"asynchronous: {asynchronous[2]:.2f} s for 320 gradients")
assert abs(synchronous[2] / (0.04 * 320 / 8) - 1) < 0.01 and abs(asynchronous[2] / (320 / 725) - 1) < 0.04


# %% [markdown]
# Both are seconds on the clock of virtual ranks. Seven fast workers bring 700 gradients in a second, and the slow one
# brings 25: without waiting 320 gradients take 0.44 s. With waiting, each update of eight takes 40 ms.
#
# ## Staleness
#
# A worker computes a gradient with the weights that it was sent. When the gradient arrives, gradients of other workers
# may have changed the server's weights. The number of updates in between is the gradient's **staleness**. It is not
# assumed here: the server records, with each answer, how many updates it had made, and counts again when the gradient
# arrives.
#
# The figures show the first 150 ms, with the staleness of each gradient in the bar of its computation.
#
# **Predict first.** Which numbers will stand in the bars of the slow worker, rank 1, in each of the two figures?

# %%
def first_150_ms(training, title):
    served, _, _, done = training
    plot.pushes(done.events, served.pushes[0], title, 0.15)


first_150_ms(synchronous, "Synchronous: seven workers wait for rank 1, nothing is stale")

# %%
first_150_ms(asynchronous, "Asynchronous: nobody waits, nearly everything is stale")

# %%
alike = train(8, Asynchronous())
figure = plot.counts(
    {
        "synchronous": synchronous[0].staleness(),
        "asynchronous, all alike": alike[0].staleness(),
        "asynchronous, one slow": asynchronous[0].staleness(),
    },
    "staleness",
    "gradients",
    "Eight workers: most asynchronous gradients are six or seven updates old",
)
figure.axes[0].set(xlim=(-1, 30), xticks=range(0, 29, 7), ylim=(0, 105))
assert set(synchronous[0].staleness()) == {0} and set(alike[0].staleness()[8:]) == {7}
assert [number for number, _ in Counter(asynchronous[0].staleness()).most_common(2)] == [6, 7]
used = [push for push in asynchronous[0].pushes[0] if push.applied]
slow, *others = ([push.staleness for push in used if push.worker == worker] for worker in range(1, 9))
assert slow[0] == 21 and set(slow[1:]) == {28} and sorted(each[0] for each in others) == list(range(7))
None

# %% [markdown]
# With p equally fast workers the staleness is p - 1: between two gradients of a worker comes one of each other worker.
# With one slow worker most gradients have a staleness of 6, for seven workers take turns. In every fourth round the
# slow worker's gradient comes in between, and then it is 7.
#
# The slow worker's gradients have a staleness of 28: while it computes one, each of seven others brings four. Only its
# first one has 21, for it arrives shortly before their fourth gradients. All workers began with the same weights, so
# in the first column the staleness is the order of arrival, 0 to 6.
#
# Exercise [`e07_staleness`](../exercises/e07_staleness.py): compute the staleness from a history of messages.

# %% tags=["nbval-ignore-output", "remove-output"]
# !mpcourse check e07_staleness

# %% [markdown]
# ## What staleness costs
#
# With more workers of equal speed the staleness is larger. Here 1 to 16 workers use 320 gradients in all, at three
# learning rates. One training says little: those that differ in their seed alone differ by several points. So each
# point is the mean of 20 seeds, and the band has two standard errors to each side, as in all figures here. They were
# trained before, by `lessons/studies/staleness.py` in the course's repository, which takes some minutes.
#
# **Predict first.** Which of the three rates will be best without staleness, and which at a staleness of 15?

# %%
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
best = {staleness: max(RATES, key=lambda rate: mean(stale[rate][i])) for i, staleness in enumerate(STALENESS)}
assert best[0] == 0.2 and best[15] == 0.05
assert all(difference(stale[0.2][0], stale[rate][0], paired=True).low > 0 for rate in (0.05, 0.1))
assert all(difference(stale[0.05][-1], stale[rate][-1], paired=True).low > 0 for rate in (0.1, 0.2))
assert min(max(seeds) - min(seeds) for rate in RATES for seeds in stale[rate]) > 4

# %% [markdown]
# Without staleness the largest rate is the best of the three, and at a staleness of 15 the smallest. A stale gradient
# corrects an error that other updates have corrected meanwhile. So the parameters overshoot, and the more so the larger
# the rate is. A smaller rate helps, but learns less from 320 gradients, as the left end shows. So throughput alone says
# little. The talk said that, too: a throughput benchmark without a learning curve proves little.
#
# ## Five ways, as learning curves
#
# So time and accuracy are compared together. Each training has eight workers, one of which is always slow, and uses 640
# gradients (637 with a backup worker, which are 91 updates of seven).
#
# - Synchronous: an update is the mean of eight gradients, at eight times the learning rate of a single gradient.
# - **Backup workers** (Chen et al., 2016): an update is the mean of the first seven gradients to arrive. The eighth is
#   dropped. No gradient is stale, and the slow worker's examples are never used.
# - Asynchronous: each gradient is an update, at an eighth of the rate.
# - **Bounded staleness** (Ho et al., 2013): no worker begins a step while it is more than two ahead of the slowest. The
#   bound is in steps of a worker, not in updates: seven others may make three each meanwhile, 21 updates.
# - **Local SGD**: no server. Each rank trains alone for four steps; then all average their parameters by an all-reduce.
#
# The rate is 0.1 where one gradient is an update, and 0.8 for the other ways: with a backup worker that is 0.8 for a
# mean of seven, and in local SGD each rank uses 0.8 for its own gradients. None of the rates was tuned for its way, so
# a difference of a point may come from the rate. The sliders show the four ways that have a server. Choose how slow
# rank 1 is, and see what happens to its gradients.

# %% tags=["nbval-ignore-output"]
POLICIES = {
    "synchronous": Synchronous(), "1 backup worker": Synchronous(backup=1),
    "asynchronous": Asynchronous(), "bounded staleness 2": BoundedStaleness(2),
}  # fmt: skip


def try_it(policy="bounded staleness 2", slow_ms=40):
    served, _, last, done = train(8, POLICIES[policy], gradients=168, slow=slow_ms / 1e3)
    title = f"{policy}: 168 gradients in {last:.2f} s, of a staleness of {mean(served.staleness()):.1f} on average"
    return plot.pushes(done.events, served.pushes[0], title, 0.2)


plot.sliders(try_it, policy=list(POLICIES), slow_ms=[10, 20, 40, 80, 160])


# %% [markdown]
# The learning curves are means of 40 seeds. In the tables `+-` is one standard error, as in lesson 01. The accuracy is
# computed after every 32 gradients, so the time until 85 % is known to one such interval.
#
# **Predict first.** The figure has three x axes: updates, gradients, seconds. Over which of them will the curves of the
# five ways lie closest together?

# %%
def curves(slowness, title):
    ways = shipped_ways(slowness)
    axes = {
        "updates": {name: runs.updates for name, runs in ways.items()},
        "gradients": {name: runs.gradients for name, runs in ways.items()},
        "seconds": {name: runs.seconds for name, runs in ways.items()},
    }
    made = plot.accuracy_against(axes, {name: runs.accuracy for name, runs in ways.items()}, title, log=["updates"])
    made.axes[2].set_xlim(0, 3.4)  # the same in both figures
    return made


def table(slowness):
    ways = shipped_ways(slowness)
    print(f"{'':20}  until 85 %  in all  staleness  accuracy in the end    minus synchronous")
    for name, runs in ways.items():
        compared = difference(runs.final, ways["synchronous"].final, paired=True)
        told = "" if name == "synchronous" else f"{compared}"
        stale = "-" if name.startswith("local") else f"{runs.staleness:.1f}"  # it has no server
        row = f"{name:20}{runs.seconds_to(85):10.2f} s{runs.seconds[-1]:6.2f} s{stale:>11}"
        print(f"{row}  {mean_of(runs.final)}  {told}")
    return ways


curves("one slow", "One of eight is slow: by gradients the ways are closer than by updates or by time")
ways = table("one slow")
for name in ("1 backup worker", "asynchronous"):
    assert 3 * ways[name].seconds_to(85) < ways["synchronous"].seconds_to(85)
differ = {n: difference(r.final, ways["synchronous"].final, paired=True).told_apart for n, r in ways.items()}
assert [name for name, told in differ.items() if not told] == ["synchronous", "1 backup worker"]


def until_85(count):
    """How many updates, gradients or seconds each way needs until the mean accuracy is 85 %."""
    first = {name: next(i for i, looks in enumerate(zip(*r.accuracy)) if mean(looks) >= 85) for name, r in ways.items()}
    return {name: getattr(runs, count)[first[name]] for name, runs in ways.items()}


needed = {count: until_85(count) for count in ("updates", "gradients", "seconds")}
ratio = {count: max(each.values()) / min(each.values()) for count, each in needed.items()}
print("most to least until 85 %: " + ", ".join(f"{count} {value:.1f}" for count, value in ratio.items()))
assert ratio["gradients"] < 1.3 and ratio["updates"] > 8 and ratio["seconds"] > 4
bounded, free = ways["bounded staleness 2"], ways["asynchronous"]
after_160 = [[seed[runs.gradients.index(160)] for seed in runs.accuracy] for runs in (bounded, free)]
apart = difference(*after_160, paired=True)
print(f"after 160 gradients, bounded staleness minus asynchronous: {apart}")
assert apart.low > 10 and ways["1 backup worker"].gradients[-1] == 637

# %% [markdown]
# By gradients the five curves are closest. They are not the same: after 160 gradients the asynchronous way is 17 points
# below bounded staleness, whose gradients are less stale (3.6 on average, against 7.0). By updates the curves are far
# apart, for an asynchronous update consists of one gradient and not of eight. By seconds the order changes: with a
# backup worker or asynchronously, 85 % is reached in less than a third of the synchronous way's time, for nobody waits
# for the slow worker.
#
# In the end, with 40 paired seeds, the asynchronous way and local SGD are 1.4 and 1.2 points below the synchronous way,
# and bounded staleness is 0.7 above it. The way with a backup worker is not told apart from the synchronous one. That
# does not prove them equal: with 40 seeds a difference of a point can be missed.

# %% [markdown]
# With one machine that is always slow, bounded staleness and local SGD gain no throughput: in the long run they proceed
# at its speed, 3.1 and 3.2 s for 640 gradients. (Bounded staleness reaches 85 % sooner than the synchronous way all the
# same, for it needs fewer gradients until then.) Delays that come and go are different. Now each step of each worker is
# slow, 40 ms, with a probability of a quarter.
#
# **Predict first.** Which of the five ways end sooner now than with one slow worker, and which later?

# %%
curves("now and then", "Each is slow at random: the less often a way waits, the sooner it ends")
before, ways = ways, table("now and then")
order = ["asynchronous", "bounded staleness 2", "local SGD, 4 steps", "1 backup worker", "synchronous"]
assert sorted(ways, key=lambda name: ways[name].seconds[-1]) == order
assert abs(ways["asynchronous"].seconds[-1] / (80 * 0.0175) - 1) < 0.05
sooner = [name for name in ways if ways[name].seconds[-1] < before[name].seconds[-1]]
assert sooner == ["synchronous", "bounded staleness 2", "local SGD, 4 steps"]
some_slow = sum(any(now_and_then(worker, step) > 0.01 for worker in range(8)) for step in range(80))
assert some_slow == 65 and abs(ways["synchronous"].seconds[-1] - (0.04 * 65 + 0.01 * 15)) < 0.03
print(f"at least one worker is slow in {some_slow} of 80 steps; expected are {80 * (1 - 0.75**8):.0f}")

# %% [markdown]
# Bounded staleness and local SGD end much sooner than before, and the synchronous way a little. The other two end
# later, for now there are more slow steps. The asynchronous way is as fast as a worker's mean step, 17.5 ms. The
# synchronous way takes twice as long, for in most steps at least one of eight workers is slow. The other ways lie in
# between, in the order of how often a worker waits. With bounded staleness it waits for a worker that is more than two
# steps behind. In local SGD all wait for the slowest after every four steps, and the sum of four steps varies less, in
# proportion, than one step. With one backup worker an update waits where two are slow; it has seven gradients only, so
# that more updates are needed.

# %% [markdown]
# Would your machine find the same? One of the trainings is repeated here:

# %%
again, shipped = train_way(WAYS["asynchronous"], one_slow, seed=3), shipped_ways("one slow")["asynchronous"]
off = max(abs(a - b) for a, b in zip(again.accuracy, shipped.accuracy[3]))
assert again.seconds == shipped.seconds and off < 3
print("asynchronous, seed 3: the same virtual times, and the same accuracy within 3 points")


# %% [markdown]
# Exercise [`e07_parameter_server`](../exercises/e07_parameter_server.py): write an asynchronous parameter server and
# its workers. It needs something new: with `status = MPI.Status()`, `comm.Recv(row, MPI.ANY_SOURCE, status=status)`
# receives the message that arrives first, and `status.Get_source()` is the rank that sent it.

# %% tags=["nbval-ignore-output", "remove-output"]
# !mpcourse check e07_parameter_server

# %% [markdown]
# ## The server's link
#
# All weights and all gradients pass through the server. The first figure shows what the link of the server, rank 0,
# carries with four workers and four updates: to each worker the first weights and four answers, from each worker four
# gradients. The second figure shows the time of a step with more workers. Computing takes no time here. The model is an
# MLP of 784 inputs, two layers of 300 units and 10 outputs, 1.25 MiB. The link has 10 Gbit/s, of which 1.18 GB/s are
# payload (lesson 05).

# %%
def exchange(workers, servers=1, how="even", updates=4):
    def program(comm):
        with torch.device("meta"):
            shapes = [p.shape for p in mlp((784, 300, 300, 10)).parameters()]
        model = torch.nn.ParameterList([torch.nn.Parameter(torch.zeros(shape)) for shape in shapes])

        def backward(step):
            for p in model:
                p.grad = torch.ones_like(p)
            return 0.0

        return train_with_servers(
            comm, model, lambda p: torch.optim.SGD(p, 0.1), backward, updates, Synchronous(), servers, how
        )

    done = run(program, workers + servers)
    times = [push.seconds for push in done.results[0].pushes[0]]
    return (times[-1] - times[workers - 1]) / (updates - 1), done  # a step, from the first update to the last


step, done = exchange(4)
answers = ("tag 1", "tag 2")  # what a server sends; without the broadcasts before and after
passed = [e for e in done.events if e.lane.endswith("-> rank 0") or e.name in answers]
plot.traffic(passed, "Four updates: everything passes the server, rank 0")
None

# %%
COUNTS = [2, 4, 8, 16]
by_server = [1e3 * exchange(p)[0] for p in COUNTS]
numbers = sum(p.numel() for p in mlp((784, 300, 300, 10)).parameters())
one_way = 4 * numbers / LINKS["10 GbE"].bandwidth
by_ring = [1e3 * (2 * (p - 1) / p * one_way + 2 * (p - 1) * LINKS["10 GbE"].latency) for p in COUNTS]
figure = plot.lines(
    COUNTS,
    {"one server": by_server},
    "p workers",
    "milliseconds a step",
    "With one server a step takes the time of p + 1 messages, with a ring of less than three",
    log=False,
    formulas={"p + 1 messages": [1e3 * one_way * (p + 1) for p in COUNTS], "ring all-reduce, by formula": by_ring},
)
figure.axes[0].set_ylim(0)
assert round(4 * numbers / 2**20, 2) == 1.25 and LINKS["10 GbE"].bandwidth == 1.18e9
assert all(1 < ms / (1e3 * one_way * (p + 1)) < 1.05 for p, ms in zip(COUNTS, by_server))
assert max(by_ring) < 3e3 * one_way and LINKS["10 GbE"].latency == 30e-6
None

# %% [markdown]
# With one worker a step takes the time of two messages as large as the model: its gradient, then the answer. With p
# workers one expects the time of 2 p: p gradients in, then p answers out. But a link carries both directions at once.
# When the first worker has its answer, its next gradient, which takes no time to compute here, comes in while the
# second answer goes out. So a step takes the time of p + 1 messages. A ring all-reduce (lesson 05) moves less than two
# such messages over each link, however many ranks there are. Only its latency grows: 2 (p - 1) times 30 microseconds.
#
# The server's time grows with every worker. Several servers share the load: each holds a part of the model. In
# TensorFlow, whole parameters were assigned to servers **round-robin**: the first to the first server, the second to
# the second, and so on.
#
# **Predict first.** The parameters of an MLP are weight, bias, weight, bias. Are two servers twice as fast as one?

# %%
SERVERS = [1, 2, 3, 4, 5]
steps = {how: [1e3 * exchange(6, s, how)[0] for s in SERVERS] for how in ("round_robin", "even")}
figure = plot.lines(
    SERVERS,
    {"whole parameters, round-robin": steps["round_robin"], "equal cuts": steps["even"]},
    "servers",
    "milliseconds a step",
    "Six workers: round-robin, two servers are no better than one",
    log=False,
)
figure.axes[0].set_ylim(0)
layers = list(mlp((784, 300, 300, 10)).parameters())
for servers in SERVERS:
    print(f"{servers} servers, round-robin: {Shards(layers, servers, 'round_robin').lengths} elements")
dealt, even = steps["round_robin"], steps["even"]
assert dealt[1] > 0.95 * dealt[0] and dealt[1] > 1.3 * dealt[2] and even[1] < 0.75 * even[0]
assert min(dealt[3:]) > 0.99 * dealt[2] and layers[0].numel() == 235_200 and even[3] < even[4]
in_use = [6 * 1e3 * one_way / servers / ms for servers, ms in zip(SERVERS, even)]
print("equal cuts, each direction of a server's link in use: " + ", ".join(f"{100 * part:.0f} %" for part in in_use))
assert in_use[4] < 0.3 < 0.5 < in_use[3]
None


# %% [markdown]
# An even number of servers was slower, the talk said, and gave no reason. Here is one that fits. Of two servers, one
# gets all weights and the other all biases. Three servers are faster than two. Four or five are no faster than three:
# one of them holds the first layer's 235,200 weights, and all wait for it. So this explains why two servers are slow,
# but not four.
#
# With equal cuts the effect disappears. (TensorFlow later offered a strategy that assigns by size.) With five servers
# equal cuts become slower again, although bandwidth is left: each server's link is in use for less than 30 % of the
# time. But a message needs the links of its sender and its receiver at once. The more servers there are, the more often
# one of the two is busy with another message.

# %% [markdown]
# ## Fewer messages, or later ones
#
# Here there is no server. Ranks use all-reduces, as in lesson 06. Local SGD averages parameters after every H steps,
# and so sends less. **Post-local SGD** (Lin et al., 2020) averages gradients in the beginning, when the model
# changes fast, and is local afterwards. ChainerMN's **double buffering** sends as much, but later: while the all-reduce
# of this step's gradients runs, the next ones are computed. So each step applies the mean gradient of the step before,
# and all gradients have a staleness of 1.
#
# **Predict first.** Four ranks have a link of 1 Gbit/s each. The gradients are 0.89 MB, and a step computes for 20 ms,
# all of it counted in the backward pass. How long does a step take if the all-reduce comes after it, and how long at
# best?

# %%
def locally(name, make, steps=48, rate=0.2):
    def program(comm):
        torch.manual_seed(0)
        model = mlp((64, 600, 300, 10))
        for p in model.parameters():  # a gradient takes its time to compute
            p.register_post_accumulate_grad_hook(lambda p: compute(comm, 0.02 / 6))
        optimizer = make(torch.optim.SGD(model.parameters(), rate), create_communicator("flat", comm))
        generator = torch.Generator().manual_seed(comm.rank)
        for _ in range(steps):
            chosen = torch.randint(len(DATA.train), (16,), generator=generator)
            optimizer.zero_grad()
            F.cross_entropy(model(DATA.train.images[chosen]), DATA.train.labels[chosen]).backward()
            optimizer.step()
        optimizer.finish() if hasattr(optimizer, "finish") else None

    done = run(program, 4, "1 GbE", record=False)
    kilobytes = done.traffic[0].sum() / 1000 / steps
    print(f"{name:34} {1e3 * done.seconds / steps:5.1f} ms and {kilobytes:6.1f} kB sent a step")
    return done.seconds / steps, kilobytes


told = {
    "each step": locally("an all-reduce after each step", MultiNodeOptimizer),
    "double buffering": locally("double buffering", DoubleBufferedOptimizer),
    "local, H = 4": locally("local SGD, H = 4", lambda o, c: LocalOptimizer(o, c, every=4)),
    "local, H = 16": locally("local SGD, H = 16", lambda o, c: LocalOptimizer(o, c, every=16)),
    "post-local": locally("16 steps together, then H = 16", lambda o, c: LocalOptimizer(o, c, every=16, begin=16)),
}
ms = {name: 1e3 * seconds for name, (seconds, _) in told.items()}
assert ms["double buffering"] < 1.1 * 20 < 0.8 * ms["each step"] and round(ms["each step"] - 20) == 12
assert ms["local, H = 16"] < ms["local, H = 4"] < ms["post-local"] < ms["each step"]
gradients = 4e-3 * sum(p.numel() for p in mlp((64, 600, 300, 10)).parameters())  # kB; a ring sends 3/2 of them
assert round(gradients / 1e3, 2) == 0.89 and round(told["each step"][1] - 1.5 * gradients) == 37

# %% [markdown]
# An all-reduce takes 12 ms here. With double buffering it overlaps with the computation of the next step. Local SGD has
# no overlap, but fewer all-reduces. (The kilobytes contain the broadcast of the first weights, 37 kB when divided by 48
# steps.) The buckets of lesson 06 overlap, too, with the backward pass of the same step and without staleness. But the
# all-reduce of the last bucket is never hidden.
#
# Local SGD and double buffering cost accuracy. For local SGD at a rate of 0.8 the tables above say how much. For double
# buffering, eight ranks learned the digits with and without it, with 40 seeds at each of three learning rates. Of these
# 0.8 is the rate of the synchronous way above.
#
# **Predict first.** How many points does a delay of one step cost at a rate of 0.8: one, ten or forty?

# %%
print("rate of the mean     no delay             double buffering     no delay minus double buffering")
for rate, found in shipped_delay().items():
    compared = difference(found["no delay"], found["double buffering"], paired=True)
    means = "".join(f"{str(mean_of(runs)):>25}" for runs in found.values())
    print(f"{rate:16} {means}  {compared}")
late = {rate: difference(*found.values(), paired=True) for rate, found in shipped_delay().items()}
assert late[0.8].low > late[0.4].high and late[0.4].low > late[0.2].high
on_time = {rate: found["no delay"] for rate, found in shipped_delay().items()}
delayed = {rate: found["double buffering"] for rate, found in shipped_delay().items()}
print(f"0.8 with double buffering: single seeds from {min(delayed[0.8]):.0f} to {max(delayed[0.8]):.0f} %")
two_rates = difference(delayed[0.4], delayed[0.2], paired=True)
print(f"double buffering, 0.4 minus 0.2: {two_rates}")
assert not two_rates.told_apart and difference(delayed[0.2], delayed[0.8], paired=True).low > 20
assert all(difference(on_time[0.8], on_time[rate], paired=True).low > 0 for rate in (0.2, 0.4))

# %% [markdown]
# At 0.2 the delay costs a point, at 0.4 six, and at 0.8 nearly forty: the cost grows much faster than the rate. At 0.8
# single trainings also differ widely, from 18 to 87 %. The mean of eight gradients allows a large rate only if it is
# applied at once. With double buffering the learning rate has to be tuned again: without it 0.8 is the best of the
# three, and with it 0.2 and 0.4 are not told apart, and far better than 0.8.

# %% [markdown]
# ## Real processes
#
# Now three real processes, which mpirun starts, are one server and two workers. In each step rank 1 sleeps for 20 ms,
# and rank 2 for 5 ms.

# %%
Path("scratch").mkdir(exist_ok=True)
Path("scratch/servers.py").write_text("""
import json
import sys
import time
from collections import Counter

import torch
import torch.nn.functional as F
from mpi4py import MPI

from mpcourse.data import digits
from mpcourse.data_parallel.servers import Asynchronous, Synchronous, train_with_servers
from mpcourse.models import mlp

torch.set_num_threads(1)
comm, data = MPI.COMM_WORLD, digits()
told = {}
for policy, updates in ((Synchronous(), 40), (Asynchronous(), 80)):
    torch.manual_seed(0)
    model = mlp((64, 32, 10))
    generator = torch.Generator().manual_seed(comm.rank)

    def backward(step):
        chosen = torch.randint(len(data.train), (16,), generator=generator)
        loss = F.cross_entropy(model(data.train.images[chosen]), data.train.labels[chosen])
        loss.backward()
        time.sleep(0.02 if comm.rank == 1 else 0.005)
        return loss.item()

    served = train_with_servers(comm, model, lambda p: torch.optim.SGD(p, 0.05), backward, updates, policy)
    if comm.rank == 0:
        used = [push for push in served.pushes[0] if push.applied]
        by = Counter(push.worker for push in used)
        print(f"{policy}: {used[-1].seconds:.2f} s for {len(used)} gradients, by worker {dict(sorted(by.items()))}, "
              f"staleness {sum(served.staleness()) / len(used):.1f} on average")
        told[str(policy)] = by
if comm.rank == 0:
    json.dump(told, open(sys.argv[1], "w"))
""")
None

# %% tags=["nbval-ignore-output"]
Path("scratch/servers.json").unlink(missing_ok=True)
# !mpirun -np 3 python scratch/servers.py scratch/servers.json
together, apart = json.loads(Path("scratch/servers.json").read_text()).values()
assert together == {"1": 40, "2": 40} and sum(apart.values()) == 80 and apart["2"] > apart["1"]

# %% [markdown]
# With real processes the order of arrival may change from run to run, and so may the results. That is another cost of
# asynchronous training: two runs are no longer sure to be equal, and an error may not come again. On virtual ranks two
# runs are equal:

# %%
again = train(8, Asynchronous(), slow=0.04)
assert [push.worker for push in again[0].pushes[0]] == [push.worker for push in asynchronous[0].pushes[0]]
assert again[1] == asynchronous[1]
print("by worker:", dict(sorted(Counter(push.worker for push in again[0].pushes[0] if push.applied).items())))

# %% [markdown]
# ## The reference implementation
#
# What the library does, without its docstrings. The links open the files.

# %%
from mpcourse.common.source import reference
from mpcourse.data_parallel.servers.policies import AsynchronousTurn, BoundedTurn

reference(AsynchronousTurn, BoundedTurn)

# %% [markdown]
# ## What production systems call it
#
# | here | there |
# |---|---|
# | `train_with_servers` | DistBelief (2012), MXNet's `dist_sync` and `dist_async`, TF's ParameterServerStrategy |
# | `Asynchronous` | Hogwild on one machine; Downpour SGD over many |
# | `Synchronous(backup=...)` | TensorFlow's SyncReplicasOptimizer |
# | `BoundedStaleness` | Petuum's stale synchronous parallel |
# | `LocalOptimizer` | torch's PostLocalSGDOptimizer; DiLoCo and federated averaging, with an outer optimizer |
# | `DoubleBufferedOptimizer` | ChainerMN; the one-step delay of pipelines such as PipeDream-2BW |
#
# An outer optimizer treats the ranks' mean change since the last average as a gradient.
#
# Today most training is synchronous: links became faster, machines more alike, and results have to be reproducible.
# Where links are slow, as between continents, ranks average seldom, as in local SGD. Asynchronous updates are used in
# reinforcement learning, where the workers' data are stale anyway.
#
# Next comes lesson 08: when do more machines make it slower?
