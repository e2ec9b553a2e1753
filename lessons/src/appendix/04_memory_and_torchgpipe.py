# %% [markdown]
# # Appendix 04: memory and torchgpipe
#
# **How many activations does a stage hold, and how near is a replay to published speedups?** This page belongs to
# lesson [04 Pipeline](../04_pipeline.ipynb). It takes about 10 minutes to read and a minute to run.

# %%
import torch
import torch.nn as nn

from mpcourse.data.published import TORCHGPIPE_RESNET101, TORCHGPIPE_UNET
from mpcourse.models.flat import flat_resnet101, flat_unet
from mpcourse.pipeline import SCHEDULES, pipeline_step, replay
from mpcourse.pipeline.tables import partition_costs, replayed_rates
from mpcourse.split import split
from mpcourse.virtual import virtual_gpus

# %% [markdown]
# ## Activations at the peak
#
# The memory trace of the virtual GPUs counts activations. A stage here is a linear layer and a tanh. It keeps two
# activations for each micro-batch, the input of the stage and the output of the tanh. (The input of the first stage is
# the batch, which is counted separately.)

# %%
ROWS = 2048
UNIT = ROWS * 64 * 4  # one activation of one micro-batch


def at_the_peak(schedule):
    """Return the activations that each GPU holds at its peak of memory, and the pass of the peak."""
    with virtual_gpus(4, "A100-SXM4", "NVLink 3", dry=True) as box:
        layers = nn.Sequential(*[nn.Sequential(nn.Linear(64, 64), nn.Tanh()) for _ in range(4)])
        parts = split(layers, [1, 1, 1, 1], [f"vgpu:{i}" for i in range(4)])
        x = torch.empty(8 * ROWS, 64)
        pipeline_step(parts, schedule, x, x, lambda output, target: output.sum())
        peaks = [box.ledger.peak(i) for i in range(4)]
    return [round(peak.kinds["activations"] / UNIT) for peak in peaks], [peak.phase for peak in peaks]


memory = {name: at_the_peak(SCHEDULES[name](4, 8)) for name in ("gpipe", "1f1b")}
for name, (held, passes) in memory.items():
    print(f"{name:6}" + ", ".join(f"{n:2} ({phase})" for n, phase in zip(held, passes)))
    assert replay(SCHEDULES[name](4, 8)).peak == ([8] * 4 if name == "gpipe" else [4, 3, 2, 1])
assert memory["1f1b"] == ([4 + 1, 2 * 3, 2 * 2, 2 * 1], ["forward"] + ["backward"] * 3)
assert memory["gpipe"] == ([8 - 1] + [2 * 8 - 1] * 3, ["backward"] * 4)

# %% [markdown]
# The peak counts memory of all kinds. A backward pass needs gradients and temporaries beside the activations, so most
# stages have their peak in a backward pass. With 1F1B the last three GPUs hold 6, 4 and 2 activations then, two for
# each micro-batch in flight. The first GPU keeps one activation for each of its 4 micro-batches. Its peak is in a
# forward pass, when the output of the linear layer is there as well, so it holds 5. With GPipe the last three GPUs keep
# 16 activations and the first GPU keeps 8. At the peak, in the first backward pass, one of these is already freed, so
# 15 and 7 are left.
#
# ## torchgpipe's speedups
#
# torchgpipe published the speedup of 1, 2, 4 and 8 partitions, its word for stages, over one GPU without a pipeline
# (Chiheon Kim and others, *torchgpipe: On-the-fly Pipeline Parallelism for Training Giant Models*, 2020,
# <https://arxiv.org/abs/2004.09910>; table in <https://github.com/kakaobrain/torchgpipe/blob/master/docs/benchmarks.rst>).
# With one partition the speedup is below 1, because torchgpipe uses activation checkpointing. It keeps only the inputs
# of partitions, and computes the forward pass again before the backward pass, for all micro-batches except the last.
# With one partition there are two micro-batches. If a backward pass takes twice as long as a forward pass, these take
# the time of 6 forward passes, and one more forward pass makes 7. The speedup is 6/7 = 0.86.
#
# We run the forward and backward pass of one micro-batch of each partition on virtual Tesla P40. Then we replay GPipe's
# schedule with these times and with torchgpipe's numbers of micro-batches. Nothing is fitted.

# %%
for name, make, table in (("ResNet-101", flat_resnet101, TORCHGPIPE_RESNET101), ("U-Net", flat_unet, TORCHGPIPE_UNET)):
    ours = replayed_rates(make, table, "Tesla P40", "PCIe 3.0 x16")
    off = ours[0] / table.alone.rate - 1
    print(f"{name}: alone {ours[0]:.0f} examples/s, published {table.alone.rate:.0f}  ({off:+.0%})")
    assert abs(off) < (0.29 if name == "ResNet-101" else 0.04)
    for rate, row in zip(ours[1:], table.rows):
        mine, theirs = rate / ours[0], row.rate / table.alone.rate
        parts = f"{len(row.balance)} partition{'s' * (len(row.balance) > 1)}"
        print(f"  {parts:12} {mine:.2f} times, published {theirs:.2f}  ({mine / theirs - 1:+.0%})")
        assert abs(mine / theirs - 1) < (0.17 if (name, len(row.balance)) == ("U-Net", 4) else 0.06)
costs = partition_costs(flat_unet, TORCHGPIPE_UNET, TORCHGPIPE_UNET.rows[2], "Tesla P40", "PCIe 3.0 x16")
took = [f + b for f, b in zip(costs.forward, costs.backward)]
print("a micro-batch on each of the U-Net's 4 partitions:", ", ".join(f"{1000 * t:.0f}" for t in took), "ms")
assert max(took) == took[1] and took[1] > 1.3 * sum(took) / 4

# %% [markdown]
# Seven of eight speedups are within 6 %. The rates themselves are less exact, because ResNet-101 alone is 28 % faster
# here. The speedup of the U-Net with 4 partitions is 17 % too low. torchgpipe's authors cut the network so that each
# partition took equally long on their GPUs. On ours the second partition takes a third longer than the mean. A possible
# reason is that almost all layers are 3x3 convolutions. cuDNN can compute these with fewer multiplications than the
# definition has (Winograd's algorithm), and how many fewer depends on the layer's shape. We count all multiplications.
#
# Batch sizes differ from row to row in torchgpipe's table, and so in ours. Our skip connections pass through all
# partitions between their ends, and torchgpipe copies them directly. `python -m tests.validation pipelines`, in a clone
# of the course, prints both tables in full.
