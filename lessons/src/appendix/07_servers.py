# %% [markdown]
# # Appendix 07: the servers' links
#
# **Is a parameter server a bottleneck?** This page belongs to lesson [07 Synchronous or
# asynchronous](../07_sync_async.ipynb). It takes about 15 minutes to read.
#
# In a talk of 2017, Takuya Akiba made two statements about parameter servers. We know them from a listener's notes.
#
# 1. A parameter server is a bottleneck.
# 2. TensorFlow was slow with an even number of parameter servers.

# %% tags=["nbval-ignore-output"]
# %config InlineBackend.print_figure_kwargs = {"dpi": 110}
import torch

from mpcourse import plot
from mpcourse.data_parallel.servers import Shards, Synchronous, train_with_servers
from mpcourse.models import mlp
from mpcourse.virtual import LINKS, run

torch.set_num_threads(1)


# %% [markdown]
# ## One server
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
# ## Several servers
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
# less than 30 % of the time. A message needs the links of its sender and of its receiver at once. With more servers,
# one of these two links is more often busy with another message.
#
# </details>
#
# So the first statement is right for one server: with 16 workers, a step takes 6.5 times as long as with a ring. The
# talk gave no reason for the second. Round-robin explains it for two servers, but not for four. Later, TensorFlow
# offered a strategy that assigns parameters by their size.
