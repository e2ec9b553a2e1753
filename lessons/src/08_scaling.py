# %% [markdown]
# # 08 More machines
#
# **When do more machines make it slower?** About 55 minutes to read, and 20 for its exercise.
#
# A tutorial of 2018 trains a small network on MNIST with ChainerMN, a library for data parallelism (lesson 06) [1]. The
# tutorial's machines stand in an office and have two GPUs each. One GPU takes 80.6 s. Two GPUs of the same machine take
# 45.1 s. Two GPUs in different machines take 418.2 s, nine times as long.
#
# The tutorial gives three possible reasons: synchronisation between machines, work that is done once per epoch, and the
# small number of GPUs. It does not mention the bytes that travel over the Ethernet. This lesson computes how long it
# takes to send these bytes. Then it predicts how well larger clusters scale: 128 GPUs in 2017, 512 GPUs in 2018, and
# 128 H100s in 2024.
#
# After this lesson you can
#
# - predict the time of a data-parallel step from its computation, its bytes and its links;
# - say which of two kinds of speedup a publication reports, and what share of the GPUs' time was useful work;
# - compare a prediction with a published speedup, and find out which assumption is wrong;
# - start a PyTorch program on several machines, and measure how it scales.

# %% tags=["nbval-ignore-output", "remove-cell"]
from mpcourse.course.learner import panel

panel.show("08_scaling")

# %% tags=["nbval-ignore-output"]
# %config InlineBackend.print_figure_kwargs = {"dpi": 110}
from pathlib import Path
from statistics import mean

import torch

from mpcourse import plot
from mpcourse.collectives.cost import Cost, seconds
from mpcourse.course.bench.scaling import load, medians
from mpcourse.course.bench.two_hosts import as_measured
from mpcourse.data.published import CHAINERMN_128, CHAINERMN_TUTORIAL, HOROVOD_512, TORCHTITAN_8B
from mpcourse.data.published import IMAGES_PER_SECOND as MEASURED
from mpcourse.models import VGG16, ResNet50
from mpcourse.models.flat import flat_resnet101
from mpcourse.predict.overlap import Backward, backward_of, overlapped
from mpcourse.predict.scaling import Machines, StepTime, step, steps_of_epoch, sum_seconds
from mpcourse.predict.tutorial import gpu_rows, step_of
from mpcourse.studies.compare import difference
from mpcourse.virtual import GPUS, Link

torch.set_num_threads(1)  # for arrays as small as these, starting a second thread takes longer than it saves

# %% [markdown]
# ## From seconds to one step
#
# The tutorial trains for 20 epochs of 60 000 images, and each GPU takes batches of 100. With p GPUs, an epoch has 60
# 000 / (100 p) steps. So we can compute the time of one step from each row of the tutorial's table. (The tutorial
# mentions 1000 images, but its times fit the 60 000 of MNIST.)

# %%
for row in CHAINERMN_TUTORIAL.gpu:
    steps = 20 * steps_of_epoch(60_000, 100, row.processes)
    what = f"{row.processes} GPUs on {row.nodes} machines"
    print(f"{what}: {row.seconds:6.2f} s, {steps:6} steps of {1e3 * step_of(row):5.2f} ms")

# %% [markdown]
# In each step, the GPUs sum their gradients in an all-reduce (lesson 05). The network has 1 796 010 parameters, so its
# gradients take up 7.18 MB in float32. With two GPUs, each sends its 7.18 MB once. The tutorial does not say how fast
# its Ethernet is. We assume 1 Gbit/s. Such a link carries 118 MB per second.
#
# **Predict first.** How long does the all-reduce take over this link? Does it explain the step of 69.7 ms?

# %% tags=["answer"]
# answer
gradients = 4 * sum(CHAINERMN_TUTORIAL.parameters)
ethernet = gradients / 118e6
print(f"{gradients / 1e6:.2f} MB at 118 MB/s take {1e3 * ethernet:.1f} ms")
print(f"with the 7.5 ms of two GPUs in one machine: {1e3 * ethernet + 7.5:.1f} ms a step")
print(f"6000 steps take {6000 * (ethernet + 7.5e-3):.0f} s. Published: 418 s")

# %% [markdown]
# <details><summary>Why</summary>
#
# The all-reduce takes nine times as long as the computation. Together they predict the published time to within 2 %. A
# step that computes for 7 ms gains nothing from a second machine if its all-reduce takes 61 ms.
#
# </details>
#
# ## A predictor
#
# `step` predicts the time of a step with any number of ranks and machines, and with any communicator of lesson 06. This
# time is the computing time of a rank plus the time of the all-reduce. For the all-reduce, `step` uses no formula, but
# runs the communicator's own code on virtual ranks, where each message takes latency + bytes / bandwidth of its link.
# All ranks of a machine share the link that joins this machine to the network. If the network card cannot read a GPU's
# memory, gradients that leave a machine are first copied to the host, and the sum is copied back. The predictions for
# the tutorial below include these copies ("to the host" in the figure).

# %%
machines = Machines(4, nodes=2, inside="PCIe 3.0 x16", between="1 GbE")
predicted = step(6.72e-3, CHAINERMN_TUTORIAL.parameters, machines, "hierarchical")
print(predicted)
print(f"{1e3 * predicted.seconds:.1f} ms a step, of which the all-reduce takes {1e3 * predicted.sum:.1f} ms")

# %% [markdown]
# ## The tutorial's table, predicted
#
# Two numbers are not known: the time that a GPU computes in a step, and the bandwidth inside a machine. We fit them to
# the two rows of one machine, so these two rows agree by construction. The rows of two machines are predictions.
#
# ChainerMN usually used its `hierarchical` communicator. First, the GPUs of each machine add their gradients on one
# GPU, the machine's leader. Then the leaders exchange their sums over the network. Last, each leader broadcasts the
# total inside its machine.
#
# **Predict first.** On two machines with one GPU each, the training takes 418 s. How long does it take on two machines
# with two GPUs each?

# %% tags=["answer"]
# answer
rows = gpu_rows()
for row in rows:
    processes, nodes, published = row.published.processes, row.published.nodes, row.published.seconds
    print(f"{processes} on {nodes}: predicted {row.seconds:6.1f} s, published {published:6.2f} s, {row.off:+7.1%}")


def in_parts(row):
    steps = row.seconds / row.step.seconds
    found = {"compute": row.step.compute, "all-reduce": row.step.sum, "to the host": row.step.staging}
    return {name: steps * taken for name, taken in found.items() if taken}


names = [f"{row.published.processes} on {row.published.nodes}" for row in rows]
plot.parts(
    {name: in_parts(row) for name, row in zip(names, rows)},
    "seconds of the whole training (GPUs on machines)",
    "On two machines nearly all of the time is the all-reduce over Ethernet",
    {name: row.published.seconds for name, row in zip(names, rows)},
)
left = 1e3 * (step_of(rows[3].published) - rows[3].step.seconds)
print(f"the last row's step is {left:.1f} ms longer than predicted")

# %% tags=["checked"]
# checked: one row of two machines is predicted to 5 %, the other one to 20 %
assert abs(rows[2].off) < 0.05 and abs(rows[3].off) < 0.20

# %% [markdown]
# <details><summary>Why</summary>
#
# Each machine sends one sum of gradients, 7.18 MB, whether it has one GPU or two. So a step takes about as long with
# four GPUs as with two. But four GPUs need only half as many steps, so the predicted time is halved to 208 s.
#
# The published time is 252 s, so 14.9 ms of each step are not explained. Perhaps the two processes of a machine wait
# for each other, or their simultaneous copies to the host are slow, or the work done once per epoch takes this time.
#
# </details>
#
# The appendix [08, harder rows](appendix/08_harder_rows.ipynb) looks for the missing time, and predicts the tutorial's
# table of CPUs and a training run on 1024 GPUs.
#
# Exercise [`e08_predict_epoch`](../exercises/e08_predict_epoch.py): predict an epoch from a few numbers, with a ring.

# %% tags=["nbval-ignore-output", "remove-output"]
# !mpcourse check e08_predict_epoch

# %% [markdown]
# ## Speedup and efficiency
#
# A speedup is the time that one GPU needs, divided by the time that p GPUs need for the same work. The **efficiency**
# is the speedup divided by p. "The same work" can mean two things.
#
# - **Strong scaling**: the whole batch stays constant, and each GPU takes 1/p of it.
# - **Weak scaling**: the batch of each GPU stays constant, and the whole batch grows with p. The speedup is the number
#   of images per second on p GPUs, divided by the number on one GPU.
#
# Each kind of speedup has its own law. Let s be the share of the time spent on work that is not divided among the GPUs.
#
# - **Amdahl's law** [2] is about strong scaling. If s is measured on one GPU, p GPUs have a speedup of 1 / (s + (1 - s)
#   / p). It never exceeds 1 / s.
# - **Gustafson's law** [3] is about weak scaling. If s is measured on p GPUs, their speedup is s + (1 - s) p.
#
# Consider ResNet-50 on P100 GPUs, four in a machine. InfiniBand FDR joins the machines at 6.8 GB/s, and PCIe joins the
# GPUs of a machine at 12 GB/s. For strong scaling, the whole batch has 64 images, and for weak scaling, each GPU takes
# 64. One GPU computes a batch of 64 in 256 ms. The all-reduce takes 17 ms on two GPUs.
#
# **Predict first.** What is the speedup of 64 GPUs with strong scaling, and with weak scaling: about 4, 16 or 50?

# %% tags=["answer"]
# answer
COUNTS = [1, 2, 4, 8, 16, 32, 64]


def timed(make, batch, gpu):
    with torch.device("meta"):  # parameters without values, which the clock does not need
        model = make()
    return backward_of(model, (batch, 3, 224, 224), gpu)


resnet = {batch: timed(ResNet50, batch, "Tesla P100-SXM2") for batch in COUNTS}
lengths = [n for _, n in resnet[64].ready]
sums = [sum_seconds("hierarchical", lengths, Machines(p, max(1, p // 4), between="InfiniBand FDR")) for p in COUNTS]
of_one = resnet[64].seconds
strong = [of_one / (resnet[64 // p].seconds + summing) for p, summing in zip(COUNTS, sums)]
weak = [p * of_one / (of_one + summing) for p, summing in zip(COUNTS, sums)]
print("GPUs  all-reduce   strong: compute  speedup  efficiency   weak: speedup  efficiency")
for p, summing, fixed, grown in zip(COUNTS, sums, strong, weak):
    compute = f"{1e3 * resnet[64 // p].seconds:15.0f}"
    print(f"{p:4}{1e3 * summing:9.0f} ms{compute} ms{fixed:9.2f}{fixed / p:12.0%}{grown:16.2f}{grown / p:12.0%}")
share = sums[-1] / (of_one + sums[-1])
print(f"64 GPUs, weak: s = {share:.3f}, so Gustafson's law says {share + (1 - share) * 64:.1f}")
figure = plot.lines(
    COUNTS,
    {"weak: 64 images each": weak, "strong: 64 images in all": strong},
    "GPUs",
    "speedup",
    "ResNet-50 on P100: two meanings of the same work",
    formulas={"Amdahl, s = 0.26": [1 / (0.26 + 0.74 / p) for p in COUNTS], "ideal": COUNTS},
)
figure.axes[0].set_yscale("log", base=2)
figure.axes[0].set_yticks(COUNTS, COUNTS)
None

# %% tags=["checked"]
# checked: strong scaling ends below 4, weak scaling above 50, and Amdahl's law with s = 0.26 gives the same end
assert strong[-1] < 4 and weak[-1] > 50 and abs(strong[-1] * (0.26 + 0.74 / 64) - 1) < 0.02

# %% [markdown]
# <details><summary>Why</summary>
#
# With strong scaling, 64 GPUs are only 1.2 times as fast as eight. The computation shrinks from 256 ms to 6 ms, while
# the all-reduce grows to 62 ms. It would grow little further on more machines, because the leader of a machine never
# sends more than twice the size of the gradients. Amdahl's law with s = 0.26 gives the same speedup for 64 GPUs, but it
# does not fit fewer GPUs. The law assumes a constant s, but this all-reduce grows.
#
# With weak scaling, the efficiency falls to 84 % on eight GPUs, and then only to 80 % on 64. The all-reduce is a fifth
# of a step. With s = 0.196, Gustafson's law predicts 51.7. We get 51.5. (The law assumes that one GPU also spends time
# on the share s, although it needs no all-reduce.) Since weak scaling stays efficient, large clusters train with large
# batches.
#
# </details>
#
# ## When do more machines pay off?
#
# More machines pay off if the computation of a step takes long compared with its all-reduce. Four changes help: a
# network with more FLOPs per byte of gradients, a larger batch, a faster link, and an all-reduce that overlaps with the
# backward pass (lesson 06). An all-reduce can hide only behind the backward pass, which is about two thirds of the
# computation. The sliders show the tutorial's network, with two GPUs in each machine.

# %% tags=["nbval-ignore-output"]
LINES, SIZES = ["1 GbE", "10 GbE", "InfiniBand FDR", "InfiniBand HDR"], [2, 8, 32]


def try_it(compute_ms=20.0, between="10 GbE", overlap="none"):
    hidden, speedups = 2 / 3 * compute_ms / 1e3 if overlap == "all of backward" else 0.0, []
    for p in SIZES:
        summing = sum_seconds("hierarchical", CHAINERMN_TUTORIAL.parameters, Machines(p, p // 2, between=between))
        speedups.append(p * StepTime(compute_ms / 1e3, 0.0, max(0.0, summing - hidden)).efficiency)
    title = f"{compute_ms:g} ms of computing, {between}, overlap: {overlap}. 32 GPUs: a speedup of {speedups[-1]:.1f}"
    figure = plot.lines(SIZES, {between: speedups}, "GPUs", "speedup", title, formulas={"ideal": SIZES})
    figure.axes[0].set_yscale("log", base=2)
    figure.axes[0].set_yticks([0.5, 1, *SIZES], ["0.5", "1", *SIZES])
    return figure


plot.sliders(try_it, compute_ms=[6.72, 20.0, 60.0, 200.0, 600.0], between=LINES, overlap=["none", "all of backward"])

# %% [markdown]
# ## 128 GPUs in 2017
#
# In February 2017, the authors of ChainerMN announced that it trains ResNet-50 about 100 times as fast on 128 GPUs as
# on one [4]. There were 32 machines with four GTX TITAN X each, joined by InfiniBand FDR. Each GPU took 32 images per
# step. Nothing is fitted in this prediction: the computing time comes from a virtual GPU, and the bandwidths from data
# sheets.
#
# The virtual GPU always computes at the highest speed that matrix products reach. Its step takes 207 ms. At the speed
# of a real TITAN X, measured in 2016 [5], a step takes 342 ms.
#
# **Predict first.** With the virtual GPU, the step is too short. Does that make the predicted efficiency too low or too
# high?

# %% tags=["answer"]
# answer
titan = timed(ResNet50, 32, "GTX TITAN X (Maxwell)")
parameters, sizes = [n for _, n in titan.ready], [4, 8, 32, 128]
real = 32 / MEASURED["ResNet-50", "GTX TITAN X (Maxwell)"]  # seconds of a step, at the measured images per second
print(f"a step: virtual {1e3 * titan.seconds:.0f} ms, measured {1e3 * real:.0f} ms. {4 * sum(parameters) / 1e6:.0f} MB")
found = {}
both = {"measured": real, "virtual": titan.seconds}
for line, gpus in (("InfiniBand FDR", both), ("10 GbE", {"virtual": titan.seconds})):
    summing = [sum_seconds("hierarchical", parameters, Machines(p, p // 4, between=line)) for p in sizes]
    for name, compute in gpus.items():
        found[f"{line}, {name} GPU"] = [100 * compute / (compute + each) for each in summing]
for name, efficiency in found.items():
    print(f"128 GPUs, {name}: {efficiency[-1]:.0f} %, a speedup of {1.28 * efficiency[-1]:.0f}")
figure = plot.lines(
    sizes,
    found,
    "GPUs, four in a machine, 32 images each",
    "efficiency (%)",
    "ResNet-50 on TITAN X: three predictions and two publications",
    single={
        "published: paper, 115": (128, 100 * CHAINERMN_128["paper"].efficiency),
        "published: announcement, about 100": (128, 100 * CHAINERMN_128["announcement"].efficiency),
    },
)
figure.axes[0].set_ylim(0, 100)
figure.axes[0].legend(fontsize=8, frameon=False, loc="lower left", ncols=2)
None

# %% tags=["checked"]
# checked: both predictions lie near the announcement, and below the paper
too_fast, measured_gpu = (1.28 * found[f"InfiniBand FDR, {name} GPU"][-1] for name in ("virtual", "measured"))
assert 90 < too_fast < 100 < measured_gpu < 128 * CHAINERMN_128["paper"].efficiency


# %% [markdown]
# <details><summary>Why</summary>
#
# Too low. The all-reduce takes the same time in both cases, so it is a larger share of the shorter step. A slow GPU
# scales better than a fast one. With the virtual GPU, the predicted speedup is 98. This agrees with the announcement
# only because two errors cancel: the GPU is too fast, and something else in the announced training was slower than
# predicted. With the measured GPU, the predicted speedup is 108. The authors' paper of October 2017 reports an
# efficiency of 90 %, which is a speedup of 115 [6]. So the better prediction is 6 % too low.
#
# </details>
#
# ## 512 GPUs in 2018, with overlap
#
# The authors of Horovod, another library for data parallelism, report efficiencies on 512 GPUs: 90 % for ResNet-101 and
# 68 % for VGG-16 [7]. Horovod's all-reduces overlap with the backward pass. They use a ring and buffers of 64 MiB, over
# links of 25 Gbit/s. The authors call the GPUs "Pascal", and we assume P100s. A backward pass on a virtual P100 shows
# when each gradient is ready. For VGG-16, the virtual P100 is too slow: it reaches 90 images per second, whereas
# TensorFlow's benchmark measured 154 [8]. (cuDNN computes 3x3 convolutions with fewer FLOPs than the model counts.) The
# next cell scales the times of VGG-16 to the measured speed.

# %%
def ring_of_512(numbers):
    return seconds("ring", 512, 4 * numbers, Cost(10e-6, 8 / 25e9))  # RDMA: nearly all of the line's rate


vgg = timed(VGG16, 64, "Tesla P100-SXM2")
factor = 64 / MEASURED["VGG-16", "Tesla P100-SXM2"] / vgg.seconds
vgg = Backward([(at * factor, n) for at, n in vgg.ready], vgg.backward * factor, vgg.seconds * factor)
bars, published = {}, {}
for name, backward in {"ResNet-101": timed(flat_resnet101, 64, "Tesla P100-SXM2"), "VGG-16": vgg}.items():
    numbers, public = sum(n for _, n in backward.ready), HOROVOD_512[name].efficiency
    behind = StepTime(backward.seconds, 0.0, ring_of_512(numbers))
    during = overlapped(backward, 64 << 18, ring_of_512)
    for what, made in (("after backward", behind), ("overlapped", during)):
        bars[f"{name}, {what}"] = {"compute": made.compute, "exposed all-reduce": made.sum}
        published[f"{name}, {what}"] = made.compute / public
    rate = 4e-6 * numbers / backward.seconds
    print(f"{name}: {64 / backward.seconds:.0f} images/s, {rate:.0f} MB of gradients per second of computing")
    takes = f"backward about {2 / 3 * backward.seconds:.2f} s"
    print(f"  {takes}, all-reduce {behind.sum:.2f} s, exposed {during.sum:.2f} s")
    print(f"  after backward {behind.efficiency:.0%}, overlapped {during.efficiency:.0%}, published {public:.0%}")
plot.parts(bars, "seconds a step", "512 P100: two predictions and the published step", published)
None

# %% [markdown]
# In a ring, each link carries nearly twice the size of the gradients, at 3.1 GB/s. For ResNet-101, this takes 0.12 s,
# and the backward pass of 0.30 s hides two thirds of it. The predicted efficiency of 92 % is close to the published 90
# %. For VGG-16, the all-reduce takes 0.36 s, but the backward pass only 0.28 s. So overlap cannot hide the whole
# all-reduce, and the predicted efficiency is 79 %.
#
# The published 68 % lies about halfway between the predictions with and without overlap, 79 % and 53 %. So about half
# of the gain from overlap was lost, and our model does not say why. Perhaps the GPU computes more slowly while it also
# adds and copies for the ring. This slowdown would cost VGG-16 more than ResNet-101, because for each second of
# computation, VGG-16 sends more than three times as many bytes of gradients.
#
# ## 128 H100s in 2024
#
# torchtitan is PyTorch's program for training language models. Its authors published the throughput of Llama 3.1 8B on
# one machine with eight H100s and on 16 such machines [9]. Each GPU trains on two sequences of 8192 tokens per step, so
# this is weak scaling.
#
# torchtitan uses FSDP (lesson 10), which divides the parameters among the GPUs. In each step, FSDP gathers the
# parameters twice, in bfloat16, and reduce-scatters the gradients in float32. Per parameter this moves 2 + 2 + 4 bytes,
# as many as an all-reduce of float32 gradients, which moves 4 bytes twice. So our predictor of an all-reduce serves
# here as well. NVLink 4 carries 450 GB/s between the GPUs of a machine. Each GPU has a network card of 400 Gbit/s, so
# each machine has eight cards and 400 GB/s.
#
# **Predict first.** There are 8.03 billion parameters. A step on eight GPUs takes 2.84 s. How much longer does it take
# on 128 GPUs, if nothing overlaps?

# %% tags=["answer"]
# answer
links = {"8 cards of 400 Gbit/s": Link("", 8 * 50e9, 3e-6), "a link of 25 Gbit/s": Link("", 25e9 / 8, 10e-6)}
N = 8_030_000_000
inside = sum_seconds("flat", [N], Machines(8, 1, "NVLink 4"))
added = {name: sum_seconds("flat", [N], Machines(128, 16, "NVLink 4", link)) - inside for name, link in links.items()}
for name, more in added.items():
    print(f"on 16 machines with {name} each: {more:.2f} s more")
print("efficiency of 128 GPUs against 8     step on 8   nothing overlaps   published")
for name, (on_8, on_128) in TORCHTITAN_8B.rates.items():
    took = 2 * 8192 / on_8
    exposed = took / (took + added["8 cards of 400 Gbit/s"])
    print(f"{name:34}{took:10.2f} s{exposed:17.1%}{on_128 / on_8:14.1%}")

# %% tags=["checked"]
# checked: each published efficiency lies between the prediction without overlap and 1
# and an H100 has 93 times the FLOP/s of a P100, its machine 128 times the bandwidth
assert round(GPUS["H100-SXM"].float16 / GPUS["Tesla P100-SXM2"].flops) == 93 and 8 * 400 / 25 == 128
for on_8, on_128 in TORCHTITAN_8B.rates.values():
    assert 1 / (1 + added["8 cards of 400 Gbit/s"] * on_8 / 2 / 8192) < on_128 / on_8 < 1

# %% [markdown]
# <details><summary>Why</summary>
#
# Each machine sends about 60 GB at 400 GB/s, so the step takes 0.15 s longer, or 5 %. Overlap can hide all of this
# time. The published efficiencies, 97 to 98 %, lie between the predictions without overlap and with perfect overlap.
# Our model does not explain this loss of 2 to 3 %. It ignores that the 128 GPUs differ in speed and that all of them
# wait for the slowest. It also predicts that faster variants of the program lose more efficiency, but in the published
# results they lose less.
#
# In Horovod's cluster, the GPUs of a machine shared one link of 25 Gbit/s. Over such links, this step would take 19 s
# longer. According to the data sheets, an H100 has 93 times the FLOP/s of a P100, and its machine has 128 times the
# bandwidth to the network. So the network has kept pace with the GPUs.
#
# </details>
#
# ## On this machine
#
# `mpcourse bench scaling` trains the tutorial's network on one to four ranks, each with one thread. With weak scaling,
# each rank takes 100 images, and with strong scaling, all ranks share 400. The figure also shows an upper limit: the
# speedup of the same number of processes that do not communicate. These are the authors' measurements, ten runs of each
# case on two cores. To measure your own machine, run `mpcourse bench scaling --save scaling.csv`.
#
# **Predict first.** The machine has two cores. Which is slowest: two, three or four ranks?

# %% tags=["answer"]
# answer
rows = load()
print(f"{rows[0].date}, {rows[0].machine}, {rows[0].cores} cores, torch {rows[0].torch}, {rows[0].mpi}")
speeds = {
    (kind, case.ranks, case.threads, case.bound, side): value for (kind, case, side), value in medians(rows).items()
}
ranks = [1, 2, 3, 4]
figure = plot.lines(
    ranks,
    {
        f"{kind}, {name}": [speeds[kind, p, 1, True, side] / speeds[kind, 1, 1, True, "alone"] for p in ranks]
        for kind in ("weak", "strong")
        for side, name in (("ours", "trained together"), ("alone", "do not communicate"))
    },
    "ranks, one thread each, on two cores",
    "speedup over one rank alone",
    "Scaling measured on two cores",
    log=False,
)
figure.axes[0].set_ylim(0)
figure.axes[0].legend(fontsize=8, frameon=False, loc="lower right")
None

# %% tags=["checked"]
# checked: two ranks are faster than one, and four are no faster than two
assert speeds["weak", 2, 1, True, "ours"] > 1.3 * speeds["weak", 1, 1, True, "ours"]
assert speeds["weak", 4, 1, True, "alone"] < 1.05 * speeds["weak", 2, 1, True, "alone"]

# %% [markdown]
# <details><summary>Why</summary>
#
# Three ranks. With more ranks than cores (**oversubscription**), ranks share cores. With three ranks, two share a core
# and take twice as long, and a step ends when the slowest rank has finished. So three ranks are slower than two or
# four. Communication is not the cause, because processes that do not communicate show the same dip: with weak scaling,
# their speedup falls from 1.96 to 1.38, and that of ranks that train together from 1.55 to 1.04. (Even a single rank is
# 19 % slower with the all-reduce than without it, because it copies its gradients into buckets and back.)
#
# </details>
#
# ## Two machines, emulated
#
# The tutorial's effect can be reproduced without GPUs. With network namespaces, Linux can emulate two hosts on one
# machine. Each host has its own address and an ssh server, through which mpirun starts ranks. The link between the
# hosts is limited to 1 Gbit/s. `mpcourse bench two-hosts --hosts a,b` trains the tutorial's network, first with both
# ranks on one host, and then with one rank on each. The authors measured 15 runs of each.

# %%
emulated = as_measured()
times = {record["what"]: record["runs"] for record in emulated["records"]}
hosts = {what: mean(runs) for what, runs in times.items()}
one, two = hosts["one host: a step, flat"], hosts["two hosts: a step, flat"]
added = difference(times["two hosts: a step, flat"], times["one host: a step, flat"], paired=False)
bandwidth = hosts["two hosts: bandwidth"]  # MB/s
print(f"a step takes {one:.1f} ms on one host and {two:.1f} ms on two")
print(f"the link adds {added.mean:.1f} +- {added.error:.1f} ms; predicted with 118 MB/s: {1e3 * ethernet:.1f} ms")
print(f"predicted with the link's measured {bandwidth:.1f} MB/s: {1e3 * ethernet * 118 / bandwidth:.1f} ms")

# %% tags=["checked"]
# checked: the link adds more than predicted, by less than a tenth
assert 2 * added.error < added.mean - 1e3 * ethernet < 0.1 * added.mean

# %% [markdown]
# Both predictions are lower bounds, and explain more than nine tenths of the 64.6 ms that the link adds.
#
# For your own machines, follow [the guide to several machines](../docs/several_machines.md). `mpcourse doctor --hosts
# a,b` logs in to both machines, compares their versions and sends a message from one to the other. If one of these
# steps fails, it says what to type next.
#
# ## The same in PyTorch
#
# `torchrun` starts the processes of one machine. For several machines, run the same command on each. All processes
# first meet at the endpoint, a port of one machine. Under SLURM, the scheduler of many clusters, `srun` runs the
# command on each machine. For two machines `a` and `b` with eight GPUs each, type
#
# ```sh
# torchrun --nnodes 2 --nproc-per-node 8 --rdzv-backend c10d --rdzv-endpoint a:29500 --rdzv-id 1 train.py
#
# srun --nodes 2 --ntasks-per-node 1 torchrun --nnodes 2 --nproc-per-node 8 \
#     --rdzv-backend c10d --rdzv-endpoint $HEAD:29500 --rdzv-id $SLURM_JOB_ID train.py
# ```
#
# Here `HEAD` is the name of the job's first machine, which `scontrol show hostnames | head -n 1` prints. The program
# does not change. The next cell writes one that measures weak and strong scaling, with two processes on one machine. To
# measure one rank alone, it skips the all-reduce with `no_sync`.

# %% tags=["nbval-ignore-output"]
Path("scratch").mkdir(exist_ok=True)

# %% tags=["nbval-ignore-output"]
# %%writefile scratch/scaling.py
import time
from contextlib import nullcontext
from statistics import median

import torch
import torch.distributed as dist
import torch.distributed.nn  # before there is a process group, which its functions would keep
import torch.nn as nn

dist.init_process_group("gloo")  # or "nccl", with model and data on GPU int(os.environ["LOCAL_RANK"])
rank, size = dist.get_rank(), dist.get_world_size()
layers = (nn.Linear(784, 1000), nn.ReLU(), nn.Linear(1000, 1000), nn.ReLU(), nn.Linear(1000, 10))
model = nn.parallel.DistributedDataParallel(nn.Sequential(*layers))


def milliseconds(batch, together, steps=7):
    x, y, took = torch.randn(batch, 784), torch.randint(10, (batch,)), []
    for _ in range(steps):
        dist.barrier()  # all ranks begin together. On a GPU also: torch.cuda.synchronize()
        start = time.perf_counter()
        with nullcontext() if together else model.no_sync():
            nn.functional.cross_entropy(model(x), y).backward()
        took.append(1e3 * (time.perf_counter() - start))
    return median(took)


for kind, whole, of_one in (("weak", 100 * size, 100), ("strong", 400, 400)):
    alone, together = milliseconds(of_one, False), milliseconds(whole // size, True)
    faster = alone / together * whole / of_one
    if rank == 0:
        print(f"{kind}: one rank {alone:.1f} ms, {size} ranks {together:.1f} ms, speedup {faster:.2f}", end=", ")
        print(f"efficiency {faster / size:.0%}, threads {torch.get_num_threads()}")
del model  # or else gloo's threads outlive the group, and may abort Python's exit
dist.destroy_process_group()

# %% tags=["nbval-ignore-output"]
# said = !torchrun --local-addr localhost --nproc-per-node 2 scratch/scaling.py 2> scratch/torchrun.log
print("\n".join(said))

# %% tags=["checked"]
# checked: it measures both kinds of scaling, with one thread per rank
assert [line.split(":")[0] for line in said] == ["weak", "strong"] and all(line.endswith("threads 1") for line in said)

# %% [markdown]
# Three things differ from the measurement above. `DistributedDataParallel` sums gradients during the backward pass,
# whereas our communicators sum them afterwards. gloo sends through sockets even on one machine, whereas MPI uses shared
# memory. The step here has no optimizer.
#
# torchrun sets `OMP_NUM_THREADS` to 1 if it starts several processes and the variable is not set. mpirun and srun do
# not set it, so a rank starts a thread for each core that it may use. Our measurements show what this costs on two
# cores.

# %%
for count, threads, bound in ((2, 1, True), (2, 2, False), (4, 1, True), (4, 2, False)):
    speed = speeds["weak", count, threads, bound, "ours"]
    print(f"{count} ranks, threads per rank: {threads}. {speed:6.0f} images/s, {1e5 * count / speed:5.1f} ms a step")

# %% [markdown]
# Two ranks with two threads each take 2.5 times as long as with one thread each (1.9 to 3.9 in individual runs). Four
# ranks take 16 times as long with two threads as with one. A thread that has computed its part of a matrix product
# busy-waits for the others, on a core that they need. If your program needs more threads, set `OMP_NUM_THREADS` to the
# machine's number of cores divided by its number of ranks.
#
# ## The reference implementation
#
# These are the library's functions, without their docstrings. The links open the files.

# %%
from mpcourse.common.source import reference
from mpcourse.predict import scaling

reference(scaling.step, scaling.sum_seconds)

# %% [markdown]
# ## What production systems call it
#
# | here | there |
# |---|---|
# | ranks on nodes | `torchrun --nnodes`; `mpirun --hostfile`; SLURM's `srun` |
# | `hierarchical`, `two_dimensional` | NCCL's trees and rings, which it builds from the topology that it finds |
# | binding to cores | `mpirun --bind-to`, `torchrun --numa-binding`, `taskset`, `numactl` |
#
# 1. A tutorial on ChainerMN with MNIST, in Japanese, 2018. We have its text, but know neither its author nor its
#    address.
# 2. Gene Amdahl, [*Validity of the single processor approach to achieving large scale computing
#    capabilities*](https://doi.org/10.1145/1465482.1465560), 1967
# 3. John Gustafson, [*Reevaluating Amdahl's law*](https://doi.org/10.1145/42411.42415), 1988
# 4. Takuya Akiba, [*Performance of Distributed Deep Learning using
#    ChainerMN*](https://chainer.org/general/2017/02/08/Performance-of-Distributed-Deep-Learning-Using-ChainerMN.html),
#    2017
# 5. Justin Johnson, [*cnn-benchmarks*](https://github.com/jcjohnson/cnn-benchmarks), 2016
# 6. Takuya Akiba, Keisuke Fukuda and Shuji Suzuki, [*ChainerMN: Scalable Distributed Deep Learning
#    Framework*](https://arxiv.org/abs/1710.11351), 2017
# 7. Alexander Sergeev and Mike Del Balso, [*Horovod*](https://github.com/horovod/horovod), README, 2018
# 8. TensorFlow, [*Benchmarks*](https://www.tensorflow.org/performance/benchmarks), 2017
# 9. torchtitan,
#    [*llama3_h100_202412*](https://github.com/pytorch/torchtitan/blob/main/benchmarks/llama3_h100_202412_torchtitan.md),
#    2024
# 10. NVIDIA, [*ResNet50 v1.5 For
#     PyTorch*](https://github.com/NVIDIA/DeepLearningExamples/tree/master/PyTorch/Classification/ConvNets/resnet50v1.5),
#     2021
#
# ## Problems
#
# **1.** NVIDIA publishes the throughput of ResNet-50 on one and on eight A100s of a machine: 938 and 7248 images per
# second with TF32, 2470 and 16 621 with mixed precision [10]. Each GPU takes 256 images per step, and the table says
# "strong scaling". Which kind of scaling is it, and how large are the efficiencies? Does the all-reduce of 102 MB over
# NVLink 3 (300 GB/s) explain the loss?
#
# **2.** A step computes for 300 ms on each GPU, and the gradients take 1 GB. Each of many machines has one link of 100
# Gbit/s, which carries 11.8 GB/s. Nothing overlaps. What is the efficiency? By what factor must each GPU's batch grow
# for the efficiency to reach 90 %?

# %% tags=["answer"]
# answer
for name, on_one, on_eight in (("TF32", 938, 7248), ("mixed precision", 2470, 16_621)):
    lost = 256 / (on_eight / 8) - 256 / on_one
    print(f"1. weak scaling, {name}: {on_eight / 8 / on_one:.0%}; a step takes {1e3 * lost:.1f} ms longer on eight")
print(f"   The all-reduce takes 2 * 7/8 * 102 MB / 300 GB/s = {1e3 * 2 * 7 / 8 * 0.102 / 300:.1f} ms: too little.")
print("   Another cause must be larger, perhaps reading and decoding 16 621 images per second.")
summing = 2 * 1 / 11.8
print(f"2. 2 GB / 11.8 GB/s = {1e3 * summing:.0f} ms; 300 / (300 + {1e3 * summing:.0f}) = {0.3 / (0.3 + summing):.0%}")
print(f"   90 % needs 9 * {1e3 * summing:.0f} ms of computing, so a batch {9 * summing / 0.3:.1f} times as large")

# %% [markdown]
# ## What you found
#
# - A data-parallel step takes the time of its computation plus the time that its bytes need on the slowest link. This
#   sum explains the tutorial's 418 s to within 2 %, and two emulated hosts show the same effect.
# - Strong scaling ends when the all-reduce takes longer than the computation. Weak scaling continues, because a machine
#   never sends more than twice the size of the gradients, however many machines there are.
# - A prediction for a GPU that is too fast agreed with a published speedup only by accident. With the measured GPU, the
#   prediction is 6 % below the paper's speedup of 115. On H100s, the model leaves 2 to 3 % unexplained.
# - torchrun starts the same program on one machine or on many. Ranks need one thread each, or as many as their share of
#   the cores.
#
# Next comes lesson 09, [Large batches](09_large_batch.ipynb): what does a bigger batch do to learning?
