# %% [markdown]
# # Appendix 07: delays
#
# **What if machines are slow only now and then, and what if gradients come a step late?** This page belongs to lesson
# [07 Synchronous or asynchronous](../07_sync_async.ipynb). It takes about 15 minutes to read.

# %% tags=["nbval-ignore-output"]
# %config InlineBackend.print_figure_kwargs = {"dpi": 110}
from statistics import mean

import torch
import torch.nn.functional as F

from mpcourse import plot
from mpcourse.data import digits
from mpcourse.data_parallel import DoubleBufferedOptimizer, MultiNodeOptimizer, create_communicator
from mpcourse.models import mlp
from mpcourse.studies.compare import difference, mean_of
from mpcourse.studies.staleness.shipped import shipped_delay, shipped_ways
from mpcourse.virtual import compute, run

DATA = digits()
torch.set_num_threads(1)

# %% [markdown]
# ## Random delays
#
# Lesson 07 compares five ways to deal with one worker of eight that is always slow. Now let the delays be random: each
# step of each worker takes 40 ms with a probability of a quarter, and 10 ms otherwise. Each of the 40 seeds has its own
# delays.
#
# **Predict first.** With which of the five ways does training now end sooner than it did with one slow worker, and with
# which does it end later?

# %% tags=["answer"]
# answer
one_slow, at_random = shipped_ways("one slow"), shipped_ways("now and then")
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
print(f"{'':20} seconds in all  staleness  accuracy at the end (%), and minus synchronous")
for name, runs in at_random.items():
    took, final = mean_of(runs.took), mean_of(runs.final)
    stale = "-" if name.startswith("local") else f"{mean(runs.staleness):.1f}"  # it has no server
    row = f"{name:20}  {took.mean:4.2f} +- {took.error:4.2f} {stale:>9}   {final.mean:.2f} +- {final.error:.2f}"
    against = difference(runs.final, at_random["synchronous"].final, paired=True, comparisons=4)
    print(row if name == "synchronous" else f"{row}   {against}")

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
# ## Gradients that come a step late
#
# With ChainerMN's **double buffering**, the all-reduce of one step's gradients runs while the ranks compute the next
# gradients. So each update applies the gradients of the step before, and their staleness is 1. In the next cell, four
# ranks have links of 1 Gbit/s, which carry 118 MB/s. The gradients take 0.89 MB, and in a ring all-reduce, each rank
# sends 3/2 of this. Computing a step takes 20 ms.

# %%
def milliseconds(make, steps=32):
    def program(comm):
        torch.manual_seed(0)
        model = mlp((64, 600, 300, 10))
        for p in model.parameters():  # a gradient takes its time to compute
            p.register_post_accumulate_grad_hook(lambda p: compute(comm, 0.02 / 6))
        optimizer = make(torch.optim.SGD(model.parameters(), 0.2), create_communicator("flat", comm))
        for _ in range(steps):
            optimizer.zero_grad()
            F.cross_entropy(model(DATA.train.images[:16]), DATA.train.labels[:16]).backward()
            optimizer.step()
        optimizer.finish()

    return 1e3 * run(program, 4, "1 GbE", record=False).seconds / steps


plain, buffered = milliseconds(MultiNodeOptimizer), milliseconds(DoubleBufferedOptimizer)
print(f"an all-reduce after each step: {plain:.1f} ms a step; double buffering: {buffered:.1f} ms")

# %% tags=["checked"]
# checked: the all-reduce takes 12 ms and hides behind computing
assert round(plain - 20) == 12 and buffered < 1.1 * 20

# %% [markdown]
# The all-reduce takes 3/2 x 0.89 MB / 118 MB/s = 11.3 ms, plus some latency. If it begins after the computation, a step
# takes 32 ms. With double buffering, it overlaps with the next computation, so a step takes little more than 20 ms.
# Lesson 06's buckets also overlap all-reduces with computation, without staleness. But the ranks wait for the last
# bucket.
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
