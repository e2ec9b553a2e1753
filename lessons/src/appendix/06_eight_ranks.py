# %% [markdown]
# # Appendix 06: eight ranks on two machines
#
# **Which of the five communicators is the fastest if machines have several ranks?** This page belongs to lesson
# [06 Data parallelism](../06_data_parallel.ipynb). It takes about 10 minutes to read.

# %% tags=["nbval-ignore-output"]
# %config InlineBackend.print_figure_kwargs = {"dpi": 110}
from collections import Counter

import torch

from mpcourse import plot
from mpcourse.data_parallel import COMMUNICATORS, MultiNodeOptimizer, create_communicator
from mpcourse.models import mlp
from mpcourse.virtual import MPI, Topology, compute, run

torch.set_num_threads(1)

# %% [markdown]
# Lesson 06 has one rank on each machine. Here two machines have four ranks each. PCIe joins the ranks inside a machine,
# and a link of 10 Gbit/s joins the machines. The model is the lesson's MLP with 1.6 million parameters, whose gradients
# have n = 6.2 MB. On the virtual clock its forward pass takes 4 ms and its backward pass 8 ms. Two more communicators
# are made for such machines.
#
# - **hierarchical** sums inside each machine on one rank. These two ranks make an all-reduce between the machines. Then
#   each of them broadcasts the result inside its machine.
# - **two_dimensional** makes a reduce-scatter inside each machine. Then each rank makes an all-reduce of its part with
#   the rank of the other machine that has the same part. Last comes an all-gather inside each machine.
#
# **Predict first.** Which of the five is the fastest here, and which is the slowest?

# %% tags=["answer"]
# answer
NODES = Topology(nodes=[rank // 4 for rank in range(8)], inside="PCIe 3.0 x16", between="10 GbE")
LAYERS = (784, 600, 600, 600, 600, 10)
FORWARD, BACKWARD = 0.004, 0.008


def step_by(name, size=8, link=NODES, calls=1):
    """Run two steps. Return the run, and begin and end of the second step. calls: of `progress` for each gradient."""

    def program(comm):
        torch.manual_seed(0)
        model = mlp(LAYERS)
        n = sum(p.numel() for p in model.parameters())
        sizes = dict.fromkeys(("bucket_bytes", "first_bucket_bytes"), 1 << 20) if name == "bucketed" else {}
        communicator = create_communicator(name, comm, **sizes)

        def computed(p):
            for _ in range(calls):
                compute(comm, BACKWARD * p.numel() / n / calls, "backward")
                communicator.progress()

        for p in model.parameters():
            p.register_post_accumulate_grad_hook(computed)
        optimizer = MultiNodeOptimizer(torch.optim.SGD(model.parameters(), 0.1), communicator)
        for _ in range(2):
            comm.Barrier()
            begin = MPI.Wtime()
            optimizer.zero_grad()
            compute(comm, FORWARD, "forward")
            model(torch.ones(2, 784)).sum().backward()
            optimizer.step()
        return begin, MPI.Wtime(), [p.grad.clone() for p in model.parameters()]

    done = run(program, size, link)
    return done, min(r[0] for r in done.results), max(r[1] for r in done.results)


nbytes = 4 * sum(n * m + m for n, m in zip(LAYERS, LAYERS[1:]))
took, wire, senders, grads = {}, {}, {}, {}
for name in COMMUNICATORS:
    done, begin, end = step_by(name)
    took[name], grads[name] = end - begin, done.results[0][2]
    leaving = Counter()  # bytes from the first machine to the second, by rank
    for e in done.events:
        if e.kind == "copy" and e.start >= begin:
            source, target = int(e.lane.split()[1]), int(e.lane.split()[-1])
            leaving[source] += e.nbytes if source < 4 <= target else 0
    wire[name] = sum(leaving.values()) / nbytes
    senders[name] = sum(sent > 0.1 * nbytes for sent in leaving.values())
    print(
        f"{name:16} {1e3 * took[name]:6.1f} ms a step, {1e3 * (took[name] - FORWARD - BACKWARD):5.1f} ms for the mean; "
        f"{senders[name]} ranks send {wire[name]:.2f} n out of a machine"
    )

# %% tags=["checked"]
# checked: the order of the five, the bytes, and equal gradients
assert took["flat"] < 0.96 * took["hierarchical"] < took["naive"] < took["bucketed"]
assert abs(took["flat"] / took["two_dimensional"] - 1) < 0.02
assert abs(wire["flat"] - 1) < 0.02 and wire["bucketed"] > 1.7
assert senders["flat"] == senders["two_dimensional"] == 4 and senders["hierarchical"] == 1
first, *others = grads.values()
assert all(torch.allclose(a, b, rtol=0, atol=1e-4) for other in others for a, b in zip(first, other))

# %% [markdown]
# <details><summary>Why</summary>
#
# "flat" and "two_dimensional" are the fastest. Every communicator except "bucketed" sends about n bytes over the slow
# link, so they differ in the time inside the machines, before and after. With "hierarchical" one rank of each machine
# gets the whole sum, and has to send all n bytes of the result to the others. With "two_dimensional" the four ranks of
# a machine divide this work: each of them adds only its quarter, and sends only its quarter of the result. "flat" makes
# Rabenseifner's all-reduce (lesson 05), which divides the work in the same way. The partners for its long messages are
# near, and only its short messages go to the other machine. "naive" makes ten all-reduces and pays the latency of each.
#
# "bucketed" is the slowest, although its all-reduces overlap with the backward pass. It has two disadvantages here. Its
# all-reduces are rings, and a ring of eight ranks sends 7/4 n over the slow link. And each ring has 14 rounds. A rank
# begins a round only when it calls `progress`, here once for each gradient.
#
# </details>
#
# The next cell lets "bucketed" call `progress` more often.

# %%
print(f" 1 call for each gradient:  {1e3 * took['bucketed']:5.1f} ms a step")
for calls in (4, 16):
    done, begin, end = step_by("bucketed", calls=calls)
    print(f"{calls:2} calls for each gradient: {1e3 * (end - begin):5.1f} ms a step")
fastest = end - begin

# %% tags=["checked"]
# checked: with 16 calls "bucketed" is the fastest
assert fastest < 0.95 * min(took.values())

# %% [markdown]
# With 16 calls "bucketed" is the fastest. A library whose thread or device continues the rings needs no such calls.
#
# The last figure shows "hierarchical" on two machines with two ranks each. Rank 1 sends its gradients to rank 0. Then
# ranks 0 and 2 alone use the slow link. Then rank 0 sends the sum to rank 1. A hatched bar has the colour of its
# sender.

# %%
link = Topology(nodes=[0, 0, 1, 1], inside="PCIe 3.0 x16", between="10 GbE")
done, begin, end = step_by("hierarchical", 4, link)
lanes = ["rank 0", "rank 1 -> rank 0", "rank 0 -> rank 2", "rank 0 -> rank 1"]
plot.timeline(done.events, "hierarchical: inside a machine, between machines, inside", begin, end, lanes)
None
