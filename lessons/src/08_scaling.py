# %% [markdown]
# # 08 More machines
#
# **When do more machines make it slower?** About 60 minutes to read, and 20 for its exercise.
#
# A tutorial on ChainerMN of 2018 trained a small network on MNIST, on machines with two GPUs each, in an office. One
# GPU: 80.6 s. Two GPUs of one machine: 45.1 s. Two GPUs of two machines: 418.2 s.
#
# With the second machine the training took nine times as long. The tutorial names reasons: synchronisation between
# nodes, work done once per epoch, few GPUs. We compute one that it does not name: the bytes that the Ethernet has to
# carry. First we predict the table, row by row, and then larger clusters: 128, 512 and 1024 GPUs.

# %% tags=["nbval-ignore-output", "remove-cell"]
from mpcourse.course.learner import panel

panel.show("08_scaling")

# %% tags=["nbval-ignore-output"]
# %config InlineBackend.print_figure_kwargs = {"dpi": 110}
from dataclasses import replace
from functools import partial
from statistics import mean

import torch

from mpcourse import plot
from mpcourse.collectives.cost import Cost, seconds
from mpcourse.course.bench.scaling import load, medians
from mpcourse.course.bench.two_hosts import as_measured
from mpcourse.data.published import AKIBA_1024, CHAINERMN_128, CHAINERMN_TUTORIAL, HOROVOD_512, IMAGENET
from mpcourse.data.published import IMAGES_PER_SECOND as MEASURED
from mpcourse.models import VGG16, ResNet50
from mpcourse.models.flat import flat_resnet101
from mpcourse.predict.overlap import Backward, backward_of, overlapped
from mpcourse.predict.scaling import Machines, StepTime, step, steps_of_epoch, sum_seconds
from mpcourse.predict.tutorial import MPICH_2018, OPEN_MPI_2018, cpu_rows, fitted, gpu_rows, step_of
from mpcourse.virtual import LINKS

torch.set_num_threads(1)  # for matrices as small as these, starting a second thread takes longer than it saves

# %% [markdown]
# ## From seconds to one step
#
# 60 000 images, 20 epochs, batches of 100 on each GPU. With p GPUs an epoch has 60 000 / (100 p) steps. So each row
# gives the time of one step, 7 to 84 ms. (The article says 1000 images. Its seconds fit MNIST's 60 000; 1000 is the
# number of units in a layer.)

# %%
for row in CHAINERMN_TUTORIAL.gpu:
    print(
        f"{row.processes} GPUs on {row.nodes} machines: {row.seconds:6.2f} s, "
        f"{20 * steps_of_epoch(60_000, 100, row.processes):6} steps of {1e3 * step_of(row):5.2f} ms"
    )
assert round(1e3 * step_of(CHAINERMN_TUTORIAL.gpu[2])) == 70

# %% [markdown]
# 6.7 ms with one GPU, 7.5 ms with two in one machine, 69.7 ms with two in two machines.
#
# Which bytes are sent? The gradients of 1 796 010 parameters, 7.18 MB. A ring of two sends all of it once (lesson 05).
# The article does not give the speed of its Ethernet. We assume 1 Gbit/s, which carries 118 MB of data a second.

# %%
gradients = 4 * sum(CHAINERMN_TUTORIAL.parameters)
ethernet = gradients / 118e6
print(
    f"{gradients / 1e6:.2f} MB take {1e3 * ethernet:.1f} ms; with 7.5 ms that is {1e3 * ethernet + 7.5:.1f} ms a step"
)
print(f"and {6000 * (ethernet + 7.5e-3):.0f} s in all. Published: 418")
assert abs(6000 * (ethernet + 7.5e-3) / 418.23 - 1) < 0.03

# %% [markdown]
# With that assumption the all-reduce explains the row: it takes nine times as long as the computation. A step that
# computes for 7 ms gains nothing from a second machine over a link on which its all-reduce takes 61.
#
# ## A predictor
#
# The same for any number of ranks and machines, and any communicator of lesson 06. A step takes the time that a rank
# computes, and that of the all-reduce of its gradients. The latter is no formula: the communicator's own code runs on
# virtual ranks, whose messages take latency + bytes / bandwidth of the link that they use. All ranks of one machine
# share its network link. Where the network cannot read a GPU's memory, gradients that leave a machine are first copied
# to the host's memory, and the sum is copied back (`staging`; "to the host" in the figures). It is in the tutorial's
# rows below. For the larger clusters we leave it out: their networks read a GPU's memory directly, we assume.

# %%
machines = Machines(4, nodes=2, inside="PCIe 3.0 x16", between="1 GbE")
predicted = step(6.72e-3, CHAINERMN_TUTORIAL.parameters, machines, "hierarchical")
print(predicted)
print(f"{1e3 * predicted.seconds:.1f} ms a step, an efficiency of {100 * predicted.efficiency:.0f} %")
assert predicted.sum > 0.85 * predicted.seconds

# %% [markdown]
# ## The GPU rows
#
# Two values are not known: how long a GPU computes in a step, and the bandwidth inside a machine. Both are fitted to
# the two rows of one machine, which are then right by construction. The other two rows are predictions.

# %%
compute, inside = fitted()
print(f"compute {1e3 * compute:.2f} ms a step; inside a machine {inside.bandwidth / 1e9:.1f} GB/s")
print(f"if the all-reduce inside a machine is a ring: {fitted(communicator=OPEN_MPI_2018)[1].bandwidth / 1e9:.1f} GB/s")
rows = gpu_rows()
for row in rows:
    print(
        f"{row.published.processes} on {row.published.nodes}: predicted {row.seconds:6.1f} s, "
        f"published {row.published.seconds:6.2f} s, {100 * row.off:+5.1f} %"
    )
assert abs(rows[2].off) < 0.05 and abs(rows[3].off) < 0.20


# %% [markdown]
# 18.5 GB/s is not possible: PCIe 3.0 x16 has 15.75, and these GPUs have no faster link. The model of the all-reduce
# inside a machine is wrong, which reduces and then broadcasts, one direction after the other. A ring uses both
# directions at once, and needs half of that bandwidth for the same row, which such a link has. For the bytes on the
# network of these rows it makes no difference.

# %%
def in_parts(row):
    steps = row.seconds / row.step.seconds
    found = {"compute": row.step.compute, "all-reduce": row.step.sum, "to the host": row.step.staging}
    return {name: steps * taken for name, taken in found.items() if taken}


def named(row):
    return f"{row.published.processes} on {row.published.nodes}"


plot.parts(
    {named(row): in_parts(row) for row in rows},
    "seconds of the whole training (processes on machines)",
    "Two machines: nearly all of it is the all-reduce over Ethernet",
    {named(row): row.published.seconds for row in rows},
)
None

# %% [markdown]
# Two on two machines: 1.7 % too low. Four on two: 17.7 % too low, 14.9 ms a step.
#
# ## Which all-reduce was it?
#
# The article does not name its communicator. Hierarchical was ChainerMN's usual one, and it is what was predicted. A
# flat one leaves the choice to MPI. What did MPI choose in 2018, for 7.18 MB? The sources are public. MPICH chose
# Rabenseifner's algorithm, nearest partners first. Open MPI chose a ring, in segments of 1 MiB. So there are three
# candidates, and a fourth: Rabenseifner with the farthest partners first, which is what the near order becomes if a
# launcher places ranks on machines in turn.
#
# **Predict first.** Does one of the four take 252 s?

# %%
four = CHAINERMN_TUTORIAL.gpu[3]
ways = {
    "hierarchical": "hierarchical",
    "MPICH, flat": MPICH_2018,
    "Open MPI, flat": OPEN_MPI_2018,
    "farthest first": partial(MPICH_2018, far_first=True),
}
found = {}
for name, way in ways.items():
    row = gpu_rows(communicator=way)[3]
    found[name] = in_parts(row)
    ms = 1e3 * row.step.sum
    print(f"{name:>15}: {row.seconds:5.0f} s, {100 * row.off:+5.1f} %; the all-reduce takes {ms:5.1f} ms a step")
    assert abs(row.off) > 0.15
left = step_of(four) - rows[3].step.compute - rows[3].step.staging
print(f"      published: {four.seconds:5.0f} s         ; it leaves    {1e3 * left:5.1f} ms a step")
plot.parts(
    found,
    "seconds of the whole training, 4 processes on 2 machines",
    "No all-reduce of 2018 explains the row: two are too fast, two too slow",
    dict.fromkeys(found, four.seconds),
)
None

# %% [markdown]
# None. Each machine has to send the sum of its gradients at least once, and that takes 61 ms. With hierarchical and
# MPICH's algorithm, which send no more, the prediction is 17 to 18 % too low. Open MPI's ring sends 3/2 of these bytes
# over the network; with it the prediction is 19 % too high. The published row lies between, and 15 ms a step are not
# explained. Possible reasons: two processes of a machine that wait for each other, their simultaneous copies to the
# host's memory, or the work done once per epoch, which the tutorial names and the model does not have. (The network
# itself is as fast as we assumed: the row with two processes shows that.)
#
# What holds is the bracket: any all-reduce over this link needs 3000 x (6.7 + 60.9) ms = 203 s at least, and a ring
# about 300 s.
#
# ## The CPU rows
#
# The same training without GPUs, on machines of ten cores (the article counts 20, with two hardware threads a core):

# %%
for row in CHAINERMN_TUTORIAL.cpu:
    print(f"{row.processes:2} on {row.nodes}: {row.seconds:7.2f} s, {1e3 * step_of(row):4.0f} ms a step")
one, two, four_on_one = (step_of(row) for row in CHAINERMN_TUTORIAL.cpu[:3])
assert two > 1.5 * one and four_on_one < 1.05 * one

# %% [markdown]
# On one machine, one process takes 223 ms a step. Two take 353 ms, each much slower than one alone, although the
# machine has ten cores. Four take 229 ms.
#
# One explanation fits. numpy's matrix products use all cores that a process may use. A launcher may bind processes to
# cores: Open MPI binds each process to one core if the whole job has at most two, and to a socket (a whole CPU, here
# all ten cores) if it has more. If the single process was started without mpirun, it was not bound and used all ten
# cores; each of two had one core, however many threads it started; four shared all ten. The article's MPI is Open MPI,
# but the article does not say how the single process was started.
#
# This can be checked. If two processes on one machine are slow for that reason, then so are two on two machines, and
# the Ethernet adds to that: 353 + 61 ms.

# %%
rows = cpu_rows(communicator=OPEN_MPI_2018)
for row in rows:
    published = row.published.seconds
    print(f"{named(row):>7}: predicted {row.seconds:7.1f} s, published {published:7.2f} s, {100 * row.off:+5.1f} %")
two_on_two = rows[5]
assert named(two_on_two) == "2 on 2" and abs(two_on_two.off) < 0.01

# %%
plot.parts(
    {named(row): in_parts(row) for row in rows if row.published.processes > 1},
    "seconds of the whole training (processes on machines)",
    "CPUs: two on two machines are two on one, and the Ethernet",
    {named(row): row.published.seconds for row in rows if row.published.processes > 1},
)
None

# %% [markdown]
# Two on two machines: 0.8 % off. Most of that time is the 353 ms that were measured on one machine. What is predicted
# is the rest: the second machine adds 64 ms, and we predict 61. So two processes are as slow on two machines as on one.
# They do not disturb each other; each is slow by itself.
#
# For four processes and more on one machine a straight line fits: 54 ms, and 43 ms for each process on the machine. On
# one core a step takes 353 ms; shared by ten cores, each process adds 35 ms of the 43. The shared memory bandwidth may
# be the rest. But not everything fits: the line gives 97 ms for one process, which took 223. So ten cores' threads must
# have been of little use to a single process with matrices as small as these.
#
# Which all-reduce was it here? Not the hierarchical one: it adds inside a machine by NCCL, which needs GPUs. Without
# GPUs ChainerMN had `naive`, which calls MPI for each parameter. If the binding is Open MPI's, then so is the ring. The
# cell treats the gradients as one buffer, which changes little. With the ring the prediction is 23 % too high for four
# on two machines, 3 % for six, and 11 % too low for ten. No choice is the best in all rows:

# %%
ways = {"Open MPI": OPEN_MPI_2018, "MPICH": MPICH_2018, "hierarchical": "hierarchical", "this course's": "naive"}
for name, way in ways.items():
    offs = {named(row): row.off for row in cpu_rows(communicator=way) if row.published.nodes == 2}
    print(f"{name:>13}:", ", ".join(f"{what} {100 * off:+3.0f} %" for what, off in offs.items()))

# %% [markdown]
# No rule fits all rows. The `naive` communicator of this course, which chooses an algorithm for each parameter by its
# size, has the smallest error in its worst row, 10 %. MPICH's algorithm first reduces six ranks to four. One of the two
# pairs lies on different machines: rank 2 sends all of its gradients to rank 3, and in the end gets the sum back. The
# ring's error falls with the number of ranks, from +23 to -11 %. One possible reason: processes that wait in MPI do not
# sleep but poll, and use memory bandwidth and cores that others need. We have not tested it.
#
# ## Your turn
#
# Exercise [`e08_predict_epoch`](../exercises/e08_predict_epoch.py): from a few numbers to an epoch, with a ring.

# %% tags=["nbval-ignore-output", "remove-output"]
# !mpcourse check e08_predict_epoch

# %% [markdown]
# ## Speedup and efficiency
#
# A speedup is the time of one GPU divided by that of p, for the same work, and the **efficiency** is speedup / p: the
# share of p GPUs that is of use. The same work can mean two things.
#
# - **Strong scaling**: the whole batch is constant, and each GPU has 1/p of it.
# - **Weak scaling**: the batch of each GPU is constant, and the whole one grows with p. The speedup is then that of the
#   throughput.
#
# Two laws go with them. **Amdahl's law** (1967): if a share s of one GPU's time cannot be divided, p GPUs have a
# speedup of 1 / (s + (1 - s) / p), and never more than 1 / s. **Gustafson's law** (1988): if the work grows with p, and
# a share s of the time on p GPUs is not divided work, the speedup is s + (1 - s) p.
#
# ResNet-50 on P100 GPUs, four a machine, InfiniBand FDR between machines (6.8 GB/s), PCIe inside (12 GB/s). Strong: a
# whole batch of 64. Weak: 64 each. The all-reduce is the part that is not divided. With two GPUs it takes 17 ms of a
# step in both cases.
#
# **Predict first.** Which speedup do 64 GPUs reach with strong scaling, and which with weak scaling: about 4, 16 or 50?

# %%
COUNTS = [1, 2, 4, 8, 16, 32, 64]
resnet = {batch: backward_of(ResNet50(), (batch, 3, 224, 224), "Tesla P100-SXM2") for batch in COUNTS}
lengths = [n for _, n in resnet[64].ready]
of_one = resnet[64].seconds


def on(p, batch):
    machines = Machines(p, max(1, p // 4), "PCIe 3.0 x16", "InfiniBand FDR")
    return step(resnet[batch].seconds, lengths, machines) if p > 1 else StepTime(of_one, 0.0, 0.0)


strong = [of_one / on(p, 64 // p).seconds for p in COUNTS]
weak = [p * of_one / on(p, 64).seconds for p in COUNTS]
print("GPUs  all-reduce   strong: speedup  efficiency  serial fraction   weak: speedup  efficiency")
for p, fixed, grown in zip(COUNTS[1:], strong[1:], weak[1:]):
    share, ms = (1 / fixed - 1 / p) / (1 - 1 / p), 1e3 * on(p, 64).sum
    strongly = f"{fixed:16.2f}{100 * fixed / p:10.0f} %{100 * share:15.0f} %"
    print(f"{p:4}{ms:9.0f} ms{strongly}{grown:17.2f}{100 * grown / p:10.0f} %")
assert strong[-1] < 4 and weak[-1] > 50

# %%
serial = (1 / strong[-1] - 1 / 64) / (1 - 1 / 64)
figure = plot.lines(
    COUNTS,
    {"weak: 64 images each": weak, "strong: 64 images in all": strong},
    "GPUs",
    "speedup",
    '64 GPUs: a speedup of 51 or of 3.7, by what "the same work" is',
    formulas={
        f"Amdahl, s = {serial:.2f}": [1 / (serial + (1 - serial) / p) for p in COUNTS],
        "ideal": COUNTS,
    },
)
figure.axes[0].set_yscale("log", base=2)
figure.axes[0].set_yticks(COUNTS, COUNTS)
None

# %% [markdown]
# With a fixed batch, 64 GPUs are only 1.2 times as fast as eight: the computation shrinks from 256 ms to 6, and the
# all-reduce grows. The column "serial fraction" is the **Karp-Flatt metric** (1990): the s for which Amdahl's law gives
# the measured speedup. If the all-reduce took the same time A for every p, and one GPU's step the time C, s would be A
# / C times p / (p - 1), for one GPU alone has no all-reduce: it would fall by half. It grows from 14 to 26 % instead,
# since the all-reduce grows from 17 to 62 ms. There it stays, for the one rank of each machine that exchanges with the
# others, its leader, never sends more than twice the gradients.
#
# With a growing batch the efficiency falls from 94 % to 84 % with eight GPUs, and then hardly changes: 80 % with 64.
# There the all-reduce takes a fifth of a step. If one puts that fifth as s into Gustafson's law, the law gives s + (1 -
# s) p, and the table has (1 - s) p. So large clusters train with large batches. What that does to learning is the
# question of lesson 09.
#
# ## When does it pay?
#
# More machines pay where a step computes for a long time compared with its all-reduce. Four things help: a neural
# network with more FLOPs for each byte of gradients, a larger batch, a faster link, and overlap of the all-reduce with
# the backward pass (lesson 06). The backward pass is about two thirds of the computation, and the all-reduce can run
# during that time and no longer; what it needs beyond that is exposed communication. Move the sliders. Two GPUs a
# machine, gradients of 7.18 MB:

# %% tags=["nbval-ignore-output"]
LINES = ["1 GbE", "10 GbE", "InfiniBand FDR", "InfiniBand HDR"]
GPUS = [2, 4, 8, 16, 32]
sums = {
    (p, line): sum_seconds("hierarchical", CHAINERMN_TUTORIAL.parameters, Machines(p, p // 2, between=line))
    for p in GPUS
    for line in LINES
}


def speedup(p, compute_ms, between, overlap):
    hidden = 2 / 3 * compute_ms / 1e3 if overlap == "all of backward" else 0.0
    return p * StepTime(compute_ms / 1e3, 0.0, max(0.0, sums[p, between] - hidden)).efficiency


def try_it(compute_ms=6.72, between="1 GbE", overlap="none"):
    speedups = [speedup(p, compute_ms, between, overlap) for p in GPUS]
    title = f"{compute_ms:g} ms of computing, {between}, overlap: {overlap}. 32 GPUs: a speedup of {speedups[-1]:.1f}"
    formulas = {"ideal": GPUS}
    figure = plot.lines(GPUS, {between: speedups}, "GPUs, two a machine", "speedup", title, formulas=formulas)
    figure.axes[0].set_yscale("log", base=2)
    figure.axes[0].set_yticks([0.5, 1, *GPUS], ["0.5", "1", *GPUS])
    return figure


plot.sliders(try_it, compute_ms=[6.72, 20.0, 60.0, 200.0, 600.0], between=LINES, overlap=["none", "all of backward"])

# %%
slow, fast = (speedup(32, 6.72, line, "none") for line in ("1 GbE", "InfiniBand HDR"))
print(f"32 GPUs: a speedup of {slow:.1f} over Ethernet, of {fast:.1f} over InfiniBand HDR")
assert slow < 3.5 and fast > 20

# %% [markdown]
# ## 128 GPUs
#
# ChainerMN's announcement of 2017: ResNet-50 on 128 GPUs, a speedup of about 100. 32 machines of four GTX TITAN X, with
# InfiniBand between them. Nothing is fitted here. The time of a GPU's computation comes from a virtual GPU, bandwidths
# from data sheets. A virtual GPU can be too fast, so the cell also takes a measured time: cnn-benchmarks, of 2016, has
# 171 ms for 16 images on a TITAN X.

# %%
titan = backward_of(ResNet50(), (32, 3, 224, 224), "GTX TITAN X (Maxwell)")
parameters = [n for _, n in titan.ready]
sizes = [4, 8, 16, 32, 64, 128]
by_link = {
    line: [100 * step(titan.seconds, parameters, Machines(p, p // 4, "PCIe 3.0 x16", line)).efficiency for p in sizes]
    for line in ("1 GbE", "10 GbE", "InfiniBand FDR")
}
print(f"a step computes for {1e3 * titan.seconds:.0f} ms; its all-reduce has {4 * sum(parameters) / 1e6:.0f} MB")
predicted = 1.28 * by_link["InfiniBand FDR"][-1]
slower = 32 / MEASURED["ResNet-50", "GTX TITAN X (Maxwell)"]  # seconds of a step, at the measured images a second
machines = Machines(128, 32, "PCIe 3.0 x16", "InfiniBand FDR")
measured_speed = 128 * step(slower, parameters, machines).efficiency
print(f"128 GPUs over InfiniBand FDR: a speedup of {predicted:.0f}")
print(f"with GPUs as slow as a measured one, {1e3 * slower:.0f} ms: {measured_speed:.0f}")
assert 90 < predicted < measured_speed < 128 * 0.9 and CHAINERMN_128.efficiency == 100 / 128

# %%
figure = plot.lines(
    sizes,
    by_link,
    "GPUs, four a machine, 32 images each",
    "efficiency (%)",
    "ResNet-50: the link between machines decides",
    single={"published, InfiniBand FDR": (128, 100 * CHAINERMN_128.efficiency)},
)
figure.axes[0].set_ylim(0, 100)
figure.axes[0].legend(fontsize=8, frameon=False, loc="upper right", bbox_to_anchor=(1, 0.42), ncols=2)
None

# %% [markdown]
# 98, and 108 with the measured time. The announcement of February 2017 said about 100, and the paper of October (Akiba,
# Fukuda & Suzuki, arXiv:1710.11351) an efficiency of 90 %, a speedup of 115. The predictions lie near the first and
# below the second.
#
# Over InfiniBand hardly anything is lost from eight to 128 GPUs; over slower links more is, for a machine's leader
# sends more: the whole gradient once between two machines, and nearly twice among 32. But no more than twice the bytes,
# however many machines there are, and the latencies are small beside them here. That is why data parallelism with a
# batch that grows scales.
#
# ## 1024 GPUs
#
# Akiba, Suzuki & Fukuda (2017): 90 epochs of ImageNet in 15 minutes, a batch of 32 768.

# %%
p100 = backward_of(ResNet50(), (32, 3, 224, 224), "Tesla P100-SXM2")
akiba = step(p100.seconds, parameters, Machines(1024, 128, "NVLink 1", "InfiniBand FDR"))
steps = AKIBA_1024.epochs * steps_of_epoch(IMAGENET, 32, 1024)
minutes = steps * akiba.seconds / 60
summing = 1e3 * akiba.sum
print(f"{steps} steps of {1e3 * akiba.seconds:.0f} ms, {summing:.0f} of them the all-reduce: {minutes:.1f} minutes")
fdr = LINKS["InfiniBand FDR"]
two_links = Machines(1024, 128, "PCIe 3.0 x16", replace(fdr, bandwidth=2 * fdr.bandwidth))
real = 32 / MEASURED["ResNet-50", "Tesla P100-SXM2"]
for told, of in (("as above", akiba), ("PCIe, two links", step(real, parameters, two_links))):
    slower = replace(of, compute=real)
    print(f"with a measured P100, {told}: {1e3 * slower.seconds:.0f} ms, {steps * slower.seconds / 60:.1f} minutes")
print(f"published: 15 minutes, {1e3 * AKIBA_1024.seconds / steps:.0f} ms a step")
assert 0.7 < 60 * minutes / AKIBA_1024.seconds < 1

# %% [markdown]
# 11.4 minutes, a quarter below 15. The largest reason is the GPU. The virtual one makes 248 images a second, with the
# best speed of matrix products; TensorFlow's benchmark of May 2017 has 195 for a P100 and a batch of 32. With that the
# prediction is about 13.5 minutes. We took NVLink inside a machine and one link of InfiniBand between; their cluster,
# MN-1, is described with PCIe and two links, which makes little difference. Not in the prediction: reading and cropping
# 128 000 images a second, batch norm's statistics, the evaluation, and the variation among 1024 GPUs, of which all wait
# for the slowest. In the other direction: their gradients had 16 bits, ours 32.
#
# How such a training reaches the accuracy is the subject of lesson 09.
#
# ## 512 GPUs, with overlap
#
# Horovod's README: with 512 GPUs an efficiency of 90 % for ResNet-101, of 68 % for VGG-16. Horovod's all-reduces
# overlap with the backward pass (lesson 06), in fusion buffers of 64 MiB (its default at that time; a larger gradient
# is sent alone), by a ring, over 25 Gbit/s. Virtual backward passes say when each gradient has been computed. The
# README names "Pascal" GPUs; we take the P100. For VGG-16 the virtual P100 is too slow: it makes 91 images a second,
# and TensorFlow's benchmark has 154. (cuDNN computes 3x3 convolutions by Winograd's algorithm, with fewer FLOPs than
# the model counts.) So the cell has VGG-16 a second time, with all times scaled to 154.

# %%
GIGABIT_25 = Cost(10e-6, 8 / 25e9)  # with RDMA: nearly all of the line's rate, and a short latency


def ring_of_512(numbers):
    return seconds("ring", 512, 4 * numbers, GIGABIT_25)


bars, published, rates = {}, {}, {}
virtual = {
    name: backward_of(make(), (64, 3, 224, 224), "Tesla P100-SXM2")
    for name, make in (("ResNet-101", flat_resnet101), ("VGG-16", VGG16))
}
factor = 64 / MEASURED["VGG-16", "Tesla P100-SXM2"] / virtual["VGG-16"].seconds  # a real P100 is faster
virtual["VGG-16, measured"] = Backward(
    [(at * factor, numbers) for at, numbers in virtual["VGG-16"].ready],
    virtual["VGG-16"].backward * factor,
    virtual["VGG-16"].seconds * factor,
)
for name, backward in virtual.items():
    public = HOROVOD_512[name.partition(",")[0]].efficiency
    numbers = sum(n for _, n in backward.ready)
    behind = StepTime(backward.seconds, 0.0, ring_of_512(numbers))
    during = overlapped(backward, 64 << 18, ring_of_512)
    rates[name] = 4 * numbers / backward.seconds
    for what, made in (("after backward", behind), ("overlapped", during)):
        bars[f"{name}, {what}"] = {"compute": made.compute, "exposed all-reduce": made.sum}
        published[f"{name}, {what}"] = made.compute / public
    print(
        f"{name}: {64 / backward.seconds:.0f} images/s, {4 * numbers / 1e6:.0f} MB, "
        f"{100 * behind.efficiency:.0f} % after backward, {100 * during.efficiency:.0f} % overlapped, "
        f"published {100 * public:.0f} %"
    )
    assert behind.efficiency - 0.03 < public < during.efficiency
plot.parts(bars, "seconds a step", "ResNet-101 is published as if all overlapped, VGG-16 as if about half", published)
None

# %% [markdown]
# For ResNet-101 the prediction with overlap agrees, 92 % against 90. VGG-16 is published at 68 %. With the virtual
# GPU's time that is what the prediction without overlap says, and one would ask why overlap did nothing. With the
# measured time it lies halfway between both predictions, 53 and 79 %. The wrong time of a GPU makes a wrong question.
# What is left to ask is why half of the overlap was lost.
#
# 495 of its 553 MB belong to three linear layers, whose gradients are computed first. So their all-reduce has the time
# of nearly the whole backward pass, and in our model it is hidden. One possible reason: a ring also uses the GPU, which
# adds, and reads and writes memory, while the backward pass does the same. In our model both run at full speed. That
# error would be the larger, the more bytes of gradients there are for each second of computing:

# %%
for name, rate in rates.items():
    print(f"{name}: {rate / 1e6:.0f} MB of gradients for each second of computing")
assert rates["VGG-16, measured"] > 3 * rates["ResNet-101"]

# %% [markdown]
# ## On this machine
#
# Scaling can be measured without a GPU, on one machine with two cores. `mpcourse bench scaling` trains the tutorial's
# network on 1 to 4 ranks of one thread each. Weak scaling: 100 images for each rank. Strong scaling: 400 for all
# together. Beside each is an upper limit: as many processes that do not communicate. These are the authors'
# measurements, of ten runs each. The file records the machine, the versions, the date, and how busy the machine was
# before each case. For yours run `mpcourse bench scaling --save scaling.csv`.

# %%
rows = load()
busy, spread = 100 * max(row.others for row in rows), 100 * max(row.spread for row in rows)
print(f"{rows[0].date}, {rows[0].machine}, {rows[0].cores} cores, torch {rows[0].torch}, {rows[0].mpi}")
print(f"other programs took {busy:.1f} % of its cores' time at most; a computation repeated varied by {spread:.0f} %")
measured = {
    (kind, case.ranks, case.threads, case.bound, side): value for (kind, case, side), value in medians(rows).items()
}
ranks = [1, 2, 3, 4]
one = {kind: measured[kind, 1, 1, True, "alone"] for kind in ("weak", "strong")}
figure = plot.lines(
    ranks,
    {
        f"{kind}, {told}": [measured[kind, p, 1, True, side] / one[kind] for p in ranks]
        for kind in ("weak", "strong")
        for side, told in (("ours", "trained together"), ("alone", "never talk"))
    },
    "ranks, one thread each, on two cores",
    "speedup over one rank alone",
    "Two cores: two ranks are the most that pays",
    log=False,
)
figure.axes[0].set_ylim(0)
figure.axes[0].legend(fontsize=8, frameon=False, loc="lower right")
assert measured["weak", 2, 1, True, "ours"] > 1.3 * measured["weak", 1, 1, True, "ours"]
assert measured["weak", 4, 1, True, "alone"] < 1.05 * measured["weak", 2, 1, True, "alone"]
None

# %% [markdown]
# With more ranks than cores (**oversubscription**) ranks share cores. Three are slower than two or four: one core has
# two of them, which take twice as long, and a step ends when the slowest rank has finished. Processes that do not
# communicate are faster, but have the same dip: from 1.96 to 1.38, against 1.55 to 1.04. So communication is not the
# cause of the dip. (One rank that trains "together" is already 19 % slower than one alone, for it copies its gradients
# into buckets and back.)
#
# Now threads. What if each rank starts as many as there are cores, as numpy and torch do by default?

# %%
for setting, case in (
    ("1 rank, 1 thread", (1, 1, True)),
    ("1 rank, 2 threads", (1, 2, False)),
    ("1 rank, 2 threads, bound to one core", (1, 2, True)),
    ("2 ranks, 1 thread each", (2, 1, True)),
    ("2 ranks, 2 threads each", (2, 2, False)),
    ("2 ranks, 2 threads each, a core a rank", (2, 2, True)),
    ("4 ranks, 1 thread each", (4, 1, True)),
    ("4 ranks, 2 threads each", (4, 2, False)),
):
    speed = measured["weak", *case, "ours"]
    runs = [r.examples_per_second for r in rows if (r.kind, *r.case, r.side) == ("weak", *case, "ours")]
    spread = f"({min(runs):.0f} to {max(runs):.0f})"
    print(f"{setting:38} {speed:6.0f} examples/s {spread:15} {1e5 * case[0] / speed:5.1f} ms a step")
free, crowded = measured["weak", 2, 1, True, "ours"], measured["weak", 2, 2, False, "ours"]
bound, unbound = measured["weak", 1, 2, True, "ours"], measured["weak", 1, 2, False, "ours"]
assert free > 2 * crowded and measured["weak", 4, 1, True, "ours"] > 10 * measured["weak", 4, 2, False, "ours"]
assert unbound > 1.5 * bound

# %% [markdown]
# Two ranks with two threads each, on two cores, take 2.5 times as long as with one thread each, in single runs 1.9 to
# 3.9 times. Four ranks take 16 times as long. A thread that has computed its part of a product busy-waits until the
# others have finished, on a core that these need. This is why the course sets `OMP_NUM_THREADS=1` for its ranks. (Bound
# to a core from the start, OpenMP sees one core, and its threads sleep instead.)
#
# A rank of two threads that is bound to one core needs 2.1 times as long as with two. The tutorial's two processes
# needed 1.6 times as long as one: 353 ms against 223. There it was one core against ten, so if the explanation above is
# right, the ten cores were of little use. It is possible, but not proved.

# %% [markdown]
# ## Two machines, emulated
#
# The tutorial's effect can be reproduced without GPUs. Two hosts are emulated on one machine by network namespaces
# (Linux's way to give processes a network of their own), each with an address and an ssh server, and a link between
# them that is limited to 1 Gbit/s. mpirun starts a rank on each by ssh; the neural network is the same, 7.18 MB a step.
# `mpcourse bench two-hosts --hosts a,b` trains with both ranks on one host, and then with one on each. These are the
# authors' measurements, too, of 15 runs each.

# %%
from mpcourse.studies.compare import difference

emulated = as_measured()
times = {record["what"]: record["runs"] for record in emulated["records"]}
hosts = {what: mean(runs) for what, runs in times.items()}
alone = hosts["one host: a step, alone"]
bars = {
    "both ranks on one host": {"compute": alone, "all-reduce": hosts["one host: a step, flat"] - alone},
    "a rank on each of two": {"compute": alone, "all-reduce": hosts["two hosts: a step, flat"] - alone},
}
by_formula = hosts["one host: a step, flat"] + 1e3 * ethernet
plot.parts(
    bars,
    "milliseconds a step, measured",
    "Two machines are slower, about as much as the formula says",
    {"a rank on each of two": by_formula},
    mark="predicted",
)
added = difference(times["two hosts: a step, flat"], times["one host: a step, flat"], paired=False)
on_this_link = 1e3 * ethernet * 118 / hosts["two hosts: bandwidth"]
print(f"one host {hosts['one host: a step, flat']:.1f} ms, two hosts {hosts['two hosts: a step, flat']:.1f} ms a step")
print(f"the link adds {added.mean:.1f} +- {added.error:.1f} ms; predicted with 118 MB/s {1e3 * ethernet:.1f} ms")
print(f"with the bandwidth measured on this link, {hosts['two hosts: bandwidth']:.1f} MB/s: {on_this_link:.1f} ms")
print(f"{emulated['machine']['date']}; other programs took {100 * emulated['noise']['others']:.1f} % of the cores")
assert 2 * added.error < added.mean - 1e3 * ethernet < 0.1 * added.mean

# %% [markdown]
# 64.6 ms (standard error 1.1), where 60.9 were predicted with the bandwidth that we assumed, and 58.5 with the one that
# was measured on this link. So the formula, which is a lower bound, explains all but a tenth. Two ranks on one host
# needed 9.8 ms a step, and on two hosts 74.4: more than seven times as much.
#
# To do this with machines of your own: [the guide to several machines](../docs/several_machines.md), stage by stage,
# with a hostfile or under SLURM. `mpcourse doctor --hosts a,b` logs in to both, compares versions, sends a message
# round, and names the next command where something fails.

# %% [markdown]
# ## The reference implementation
#
# What the library does, without its docstrings. The links open the files.

# %%
from mpcourse.common.source import reference
from mpcourse.predict import scaling

reference(scaling.step, scaling.sum_seconds)

# %% [markdown]
# ## What production systems call it
#
# | here | there |
# |---|---|
# | ranks on nodes | `torchrun --nnodes 2 --nproc-per-node 2`; `mpirun --hostfile`; SLURM's `srun` |
# | `hierarchical`, `two_dimensional` | NCCL's trees and rings, which it builds from the topology it finds |
# | efficiency at a fixed batch size per rank | weak scaling; at a fixed whole batch, strong scaling |
# | binding to cores | `mpirun --bind-to`, `taskset`, `numactl` |
# threads of a rank | `OMP_NUM_THREADS`; torchrun sets it to 1 for several processes, if it is not set |
#
# Next comes lesson 09: what does a bigger batch do to learning?
