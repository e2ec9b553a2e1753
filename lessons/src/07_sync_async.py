# %% [markdown]
# # 07 Synchronous or asynchronous
#
# **Why does everyone wait for the slowest?** About 50 minutes, and 50 for its exercises.
#
# Eight workers. Seven need 10 ms for a step, one needs 40 ms. In data parallelism as lesson 06 has it, all eight need
# 40 ms: seven of them wait three quarters of their time. So why wait?
#
# The ChainerMN talk of 2017 had an answer. Asynchronous updates, where nobody waits, raise throughput. But they use
# stale gradients, which are of older weights, and that costs accuracy. It also said that a parameter server, the one
# process that holds the weights, is a bottleneck, and, in passing, that an even number of servers was slower. We try
# all of it.

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
from mpcourse.data_parallel import LocalOptimizer, MultiNodeOptimizer, create_communicator
from mpcourse.data_parallel.servers import Asynchronous, BoundedStaleness, Shards, Synchronous, train_with_servers
from mpcourse.models import mlp
from mpcourse.virtual import LINKS, compute, run

DATA = digits()
torch.set_num_threads(1)  # for matrices as small as these, starting a second thread takes longer than it saves


# %% [markdown]
# ## A server
#
# One rank holds the model: the **parameter server**. The others are workers. A worker takes the weights, computes a
# gradient on a batch of its own, sends it, and gets new weights. When does the server answer? That one decision makes
# it synchronous or asynchronous.
#
# `train_with_servers` takes it as a policy. Here eight workers train on real digits, for 320 gradients in all.

# %%
def accuracy(model):
    with torch.no_grad():
        return 100 * (model(DATA.test.images).argmax(1) == DATA.test.labels).double().mean().item()


def train(workers, policy, gradients=320, rate=0.1, slow=0.01, seed=0):
    """gradients: to be used, over all workers. slow: seconds of rank 1's steps; all others take 10 ms."""
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


waits = train(8, Synchronous(), slow=0.04)
goes_on = train(8, Asynchronous(), slow=0.04)
print(f"synchronous:  {waits[2]:.2f} s for 320 gradients")
print(f"asynchronous: {goes_on[2]:.2f} s for 320 gradients")
assert waits[2] > 3.5 * goes_on[2]

# %% [markdown]
# Both are seconds on the clock of virtual ranks: 1.61 against 0.45. What the first 150 ms look like:

# %%
lanes = [f"rank {r}" for r in range(1, 9)]
plot.timeline(waits[3].events, "Synchronous: seven wait for rank 1", 0.0, 0.15, lanes)
None

# %%
plot.timeline(goes_on[3].events, "Asynchronous: after the start nobody waits for rank 1", 0.0, 0.15, lanes)
None

# %% [markdown]
# ## Staleness
#
# A worker computes a gradient at the weights it was given. When the gradient arrives, others have changed them. The
# number of updates between is the gradient's **staleness**. It is not assumed here: the server notes, with each
# answer, how many updates it had made, and counts again when the gradient comes.

# %%
alike = train(8, Asynchronous())
figure = plot.counts(
    {
        "synchronous": waits[0].staleness(),
        "asynchronous, all alike": alike[0].staleness(),
        "asynchronous, one slow": goes_on[0].staleness(),
    },
    "staleness",
    "Eight workers: asynchronous gradients are about seven updates old",
)
for axis in figure.axes:
    axis.set(xlim=(-1, 30), xticks=range(0, 29, 7), ylim=(0, 105))
assert set(waits[0].staleness()) == {0} and set(alike[0].staleness()[8:]) == {7}
assert max(goes_on[0].staleness()) >= 25
None

# %% [markdown]
# With p workers that are alike it is p - 1: each comes back when all others have had their turn. With one slow, most
# are at 6, for seven take turns. In every fourth round the slow one comes between, and it is 7.
#
# The slow worker's gradients are about 28 updates old: seven others made four each meanwhile. It moves the model by
# what was right long ago.
#
# Exercise `e07_staleness`: count it.

# %% tags=["nbval-ignore-output"]
# !mpcourse check e07_staleness

# %% [markdown]
# ## What it costs
#
# More workers, the same 320 gradients, two learning rates. Two seeds each, which the thin lines join.

# %% tags=["nbval-ignore-output"]
WORKERS = [1, 4, 16]
reached = {
    rate: [[train(p, Asynchronous(), rate=rate, seed=seed)[1] for seed in (0, 1)] for p in WORKERS]
    for rate in (0.05, 0.2)
}
figure = plot.lines(
    [p - 1 for p in WORKERS],
    {f"rate {rate}": [mean(found) for found in row] for rate, row in reached.items()},
    "staleness (workers - 1)",
    "test accuracy, percent",
    "Rate 0.2 learns well without staleness, and nothing at 15",
    log=False,
)
for i, row in enumerate(reached.values()):
    for p, found in zip(WORKERS, row):
        figure.axes[0].plot([p - 1] * 2, found, color=plot.color(i), linewidth=1, alpha=0.5)
figure.axes[0].set_ylim(0, 100)
None

# %%
assert mean(reached[0.2][0]) > 88 and mean(reached[0.2][-1]) < 50
print("rate 0.2: fine with one worker, lost with sixteen")

# %% [markdown]
# At rate 0.2 one worker learns well, and sixteen learn nothing. Old gradients are like a thermostat that shows the
# temperature of an hour ago: it overshoots, and the more so the stronger it heats. A smaller rate helps, and then
# learning takes more gradients. So throughput alone says nothing. The talk's other remark: a throughput benchmark
# without a learning curve proves little.
#
# So look at time and accuracy together. Four ways, 640 gradients each, with eight workers, one of them slow. Two of the
# ways are explained below. A synchronous update is the mean of eight gradients, so it bears eight times the rate.
# (With a backup worker it is the mean of seven, at the same rate. 91 such updates take 637 gradients.)

# %%
table = {}
for name, policy, rate in (
    ("synchronous", Synchronous(), 0.8),
    ("1 backup worker", Synchronous(backup=1), 0.8),
    ("asynchronous", Asynchronous(), 0.1),
    ("bounded staleness 2", BoundedStaleness(2), 0.1),
):
    served, right, seconds, _ = train(8, policy, 640, rate, slow=0.04)
    stale = served.staleness()
    dropped = sum(not push.applied for push in served.pushes[0])
    table[name] = (seconds, 100 - right)
    print(
        f"{name:20} {seconds:5.2f} s, accuracy {right:4.1f} %, staleness {mean(stale):4.1f} on average, "
        f"{max(stale):2} at most, {dropped:2} dropped"
    )
title = "One of eight is slow: who does not wait for it needs a third of the time"
figure = plot.points(table, "seconds for 640 gradients", "test error, percent", title)
for mark in figure.axes[0].lines:
    mark.set_markersize(6)
figure.axes[0].legend(fontsize=8, frameon=False, loc="lower center")
assert table["1 backup worker"][0] < 0.4 * table["synchronous"][0]
assert table["asynchronous"][0] < table["bounded staleness 2"][0] < 1.1 * table["synchronous"][0]
None


# %% [markdown]
# - **Synchronous** takes the time of the slowest.
# - **Backup workers** (Chen et al., 2016): an update is made of the first seven gradients that are there. The eighth
#   comes too late and is dropped. Nothing is stale, and the slow worker's examples are never seen.
# - **Asynchronous** is the fastest, at an eighth of the rate. What is under way when training ends is dropped.
# - **Bounded staleness** (Ho et al., 2013): no worker begins a step while it is more than two ahead of the slowest. The
#   bound is in steps of a worker, not in updates: seven others may make three each meanwhile, 21 updates. In the long
#   run the pace is the slowest one's again. This helps where slowness comes and goes, not where one machine is slow.

# %% [markdown]
# Accuracy does not tell the four apart: the table's is of one seed and 360 test images. Over seeds 0 to 39 each of the
# four went from below 89 to above 97 percent. Their means, in the order of the table, are 94.7, 94.8, 93.6 and 95.4:
# within two points, where seeds differ by nine or more.

# %% [markdown]
# Exercise `e07_parameter_server`: write the asynchronous one, both sides. New in it: with `status = MPI.Status()`,
# `comm.Recv(row, MPI.ANY_SOURCE, status=status)` takes what comes first, and `status.Get_source()` is the rank it came
# from.

# %% tags=["nbval-ignore-output"]
# !mpcourse check e07_parameter_server

# %% [markdown]
# ## The server's link
#
# All weights and all gradients pass the server. Here is what rank 0's link carries with four workers and four updates:
# to each worker the first weights and four answers, from each four gradients. Then what a step takes with more workers.
# Computing costs nothing here, the MLP is 784-300-300-10, 1.25 MiB, and the link 10 Gbit/s: 1.18 GB/s of payload, as in
# lesson 05; headers take the rest.

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
COUNTS = [1, 2, 4, 8, 16]
by_server = [1e3 * exchange(p)[0] for p in COUNTS]
numbers = sum(p.numel() for p in mlp((784, 300, 300, 10)).parameters())
one_way = 4 * numbers / LINKS["10 GbE"].bandwidth
by_ring = [1e3 * (2 * (p - 1) / p) * one_way for p in COUNTS]
plot.lines(
    COUNTS,
    {"one server": by_server, "ring all-reduce, by formula": by_ring},
    "workers",
    "milliseconds to exchange",
    "One server: p workers take p + 1 models' time. A ring: two at most",
    log=False,
)
assert by_server[-1] > 5 * by_server[1]
assert all(1 < ms / (1e3 * one_way * (p + 1)) < 1.05 for p, ms in zip(COUNTS, by_server))
None

# %% [markdown]
# One worker takes two models' time: its gradient, then the answer. With p workers answers go out while gradients come
# in, so they take p + 1. The ring of lesson 05 never needs longer than two models take over one link.
#
# The server's time grows with every worker. More servers share the load: each holds a part of the model. How is it cut?
# In TensorFlow, whole parameters were dealt to servers in turn, like cards.

# %%
SERVERS = [1, 2, 3, 4, 5]
steps = {how: [1e3 * exchange(6, s, how)[0] for s in SERVERS] for how in ("round_robin", "even")}
figure = plot.lines(
    SERVERS,
    {"parameters dealt in turn": steps["round_robin"], "equal cuts": steps["even"]},
    "servers",
    "milliseconds to exchange",
    "Six workers: dealt in turn, two servers are no better than one",
    log=False,
)
figure.axes[0].set_ylim(0)
layers = list(mlp((784, 300, 300, 10)).parameters())
for servers in SERVERS:
    print(f"{servers} servers, dealt in turn: {Shards(layers, servers, 'round_robin').lengths} numbers")
dealt, even = steps["round_robin"], steps["even"]
assert dealt[1] > 0.95 * dealt[0] and dealt[1] > 1.3 * dealt[2] and even[1] < 0.75 * even[0]
None


# %% [markdown]
# **An even number of servers was slower**, the talk said, and gave no reason. Here is one that fits. A model's
# parameters come as weight, bias, weight, bias. Dealt to two servers, one gets all weights and the other all biases.
# Three do better than two, and four or five no better than three: one of them holds the first layer's 235,200 numbers,
# and all wait for it. So this explains two servers, not four.
#
# It goes away with equal cuts. (TensorFlow later dealt by size.) With equal cuts more than three servers get in each
# other's way: a worker's link, too, carries one message at a time.

# %% [markdown]
# ## Less talk
#
# Another way to wait less: talk less often. There is no server here, only ranks and all-reduces as in lesson 06. In
# **local SGD** each rank trains alone for H steps. Then all average their parameters. **Post-local SGD** (Lin et al.,
# 2020) averages gradients in the beginning, when the model changes fast, and is local afterwards. And **double
# buffering**, ChainerMN's, applies the mean of the step before while this one's is under way: staleness one, known in
# advance.

# %%
def locally(name, make, steps=96, rate=0.4):
    def program(comm):
        torch.manual_seed(0)
        model = mlp((64, 32, 10))
        optimizer = make(torch.optim.SGD(model.parameters(), rate), create_communicator("flat", comm))
        generator = torch.Generator().manual_seed(comm.rank)
        for step in range(steps):
            chosen = torch.randint(len(DATA.train), (16,), generator=generator)
            optimizer.zero_grad()
            F.cross_entropy(model(DATA.train.images[chosen]), DATA.train.labels[chosen]).backward()
            compute(comm, 0.04 if (step + comm.rank) % 4 == 0 else 0.01)  # each rank is slow now and then
            optimizer.step()
        optimizer.finish() if hasattr(optimizer, "finish") else None
        return accuracy(model)

    done = run(program, 4, record=False)
    kilobytes = done.traffic[0].sum() / 1000 / steps
    print(f"{name:34} {done.seconds:5.2f} s, {kilobytes:5.2f} kB sent a step, accuracy {done.results[0]:.1f} %")
    return done.seconds, done.results[0]


print("four ranks, 96 steps, each rank slow in every fourth step")
told = {
    "all steps together": locally("all steps together", MultiNodeOptimizer),
    "double buffering": locally("double buffering", lambda o, c: MultiNodeOptimizer(o, c, double_buffering=True)),
    "local, H = 4": locally("local, H = 4", lambda o, c: LocalOptimizer(o, c, every=4)),
    "local, H = 16": locally("local, H = 16", lambda o, c: LocalOptimizer(o, c, every=16)),
    "post-local": locally(
        "together for 32 steps, then H = 16", lambda o, c: LocalOptimizer(o, c, every=16, begin=32)
    ),
}
assert told["local, H = 4"][0] < 0.6 * told["all steps together"][0]
assert all(right > 80 for _, right in told.values())

# %% [markdown]
# Here slowness comes and goes, so meeting after every fourth step evens it out: by then every rank has been slow once.
# Who meets in each step is slow in each, for there is always one who is.

# %% [markdown]
# Double buffering gains no time here. It hides that of the sum, which is short for so small a model. The slow rank is
# still waited for: before each sum all ranks compare what they are about to sum. And it loses accuracy: 85.3 against
# 91.9, over 40 seeds 89.3 against 93.0 on average.
#
# It sends less, as it sums by a ring: 1.5 models a step. The others take recursive doubling for so short a row: two
# models.

# %% [markdown]
# ## Real processes
#
# The same under mpirun: one server, two workers. Rank 1 sleeps for 20 ms in each step, rank 2 for 5 ms.

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
# On real processes the order of arrival is never the same twice, and neither are the last bits. That is the other
# price of asynchrony: no two runs agree, and a bug in it cannot be run again. On virtual ranks it can.

# %%
again = train(8, Asynchronous(), slow=0.04)
assert [push.worker for push in again[0].pushes[0]] == [push.worker for push in goes_on[0].pushes[0]]
assert again[1] == goes_on[1]
print("by worker:", dict(sorted(Counter(push.worker for push in again[0].pushes[0] if push.applied).items())))

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
# | `double_buffering=True` | ChainerMN; the one-step delay of pipelines such as PipeDream-2BW |
#
# An outer optimizer takes the ranks' mean change since they last met for a gradient.
#
# Today most training waits: networks became faster, machines more alike, and nobody likes runs that cannot be
# repeated. Asynchrony came back where links are slow (training over continents) and in reinforcement learning, where
# what workers bring is stale anyway.
#
# Next comes lesson 08: when do more machines make it slower?
