# %% [markdown]
# # Appendix 03: a U-Net on two GPUs
#
# **Where does one cut a network that is not a chain?** This page belongs to lesson
# [03 Split by layers](../03_split_by_layers.ipynb). It takes about 5 minutes to read.
#
# In April 2020 Takehiro Ajioka published a 3-D U-Net with its encoder on one GPU and its decoder on the other
# (*3D-U-Net-pytorch-model-parallel*, 2020, <https://github.com/atakehiro/3D-U-Net-pytorch-model-parallel>). The encoder
# makes the image smaller, level by level, and the decoder makes it larger again. At each level a **skip connection**
# carries the encoder's activation directly to the decoder. All skip connections cross this cut. (His network has four
# levels, and ours has three.)

# %% tags=["nbval-ignore-output"]
# %config InlineBackend.print_figure_kwargs = {"dpi": 110}
import torch

from mpcourse import plot
from mpcourse.models import UNet3D
from mpcourse.split import copy
from mpcourse.virtual import GPUS, virtual_gpus

MiB = 2**20
P100 = GPUS["Tesla P100-SXM2"]

# %%
with virtual_gpus(2, P100, "NVLink 1", dry=True) as box:
    unet = UNet3D(devices=("vgpu:0", "vgpu:1"))
    volume = torch.empty(1, 1, 64, 128, 128, device="vgpu:0")
    box.reset()
    unet(volume).sum().backward()
    between_halves = box.ledger.most
    skips = [e.nbytes for e in box.copies if e.phase == "forward"]
plot.unet(skips[:-1], skips[-1], "All skips of a U-Net cross a cut between encoder and decoder")
None

# %% tags=["checked"]
# checked: the sizes of the three tensors that cross, and the widest is 16 times as large as the deepest
voxels = 64 * 128 * 128
assert skips == [4 * 32 * voxels, 4 * 64 * voxels // 8, 4 * 128 * voxels // 64] and skips[0] == 16 * skips[-1]

# %% [markdown]
# If the network were a chain, only the tensor of the deepest level would cross the cut. The widest skip connection is
# 16 times as large. But there are other cuts.
#
# **Predict first.** Put level 0 on GPU 0, both its encoder and its decoder, and all deeper levels on GPU 1. Which
# tensors cross the cut in the forward pass? Which GPU has the larger peak?

# %% tags=["answer"]
# answer
with virtual_gpus(2, P100, "NVLink 1", dry=True) as box:
    unet = UNet3D()
    (e0, e1, e2), pool = unet.encoder.levels, unet.encoder.pool
    (up1, up0), (d1, d0), out = unet.decoder.ups, unet.decoder.levels, unet.decoder.out
    for place, modules in {"vgpu:0": (e0, up0, d0, out), "vgpu:1": (e1, e2, up1, d1)}.items():
        for module in modules:
            module.to(place)
    volume = torch.empty(1, 1, 64, 128, 128, device="vgpu:0")
    box.reset()
    wide = e0(volume)
    skip = e1(copy(pool(wide), "vgpu:1"))
    deep = d1(torch.cat([skip, up1(e2(pool(skip)))], 1))
    out(d0(torch.cat([wide, up0(copy(deep, "vgpu:0"))], 1))).sum().backward()
    crossed = [e.nbytes for e in box.copies if e.phase == "forward"]
    between_levels = box.ledger.most
for name, nbytes, most in ("encoder | decoder", skips, between_halves), ("level 0 | below", crossed, between_levels):
    peaks = " and ".join(f"{peak / MiB:.0f}" for peak in most)
    print(f"{name:18}{sum(nbytes) / MiB:4.0f} MiB cross forward; peaks of {peaks} MiB")

# %% tags=["checked"]
# checked: less than a third of the bytes cross, and the larger peak is more than a quarter higher
assert crossed == [4 * 32 * voxels // 8, 4 * 64 * voxels // 8] and 3 * sum(crossed) < sum(skips)
assert max(between_levels) > 1.25 * max(between_halves)

# %% [markdown]
# <details><summary>Why</summary>
#
# Two tensors cross: the pooled activation of level 0 goes down, and the output of level 1 comes up. Together they have
# less than a third of the bytes. But level 0 holds most of the activations, so the peak of GPU 0 is a third higher than
# the larger peak before. The cut with the fewest bytes need not be the best balanced.
#
# </details>
