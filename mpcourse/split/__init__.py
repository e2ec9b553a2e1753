"""One model on several devices: by copies inside of a layer, or by whole layers.

`copy.py` is to be read first, then `layers.py`.

    import torch
    from torch import nn
    from mpcourse.split import balance, split
    from mpcourse.virtual import devices, virtual_gpus

    with virtual_gpus(2):
        layers = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64), nn.Linear(64, 2))
        sizes = balance([512, 0, 4096, 128], 2)  # layers of each stage, whose costs are as equal as can be
        model = split(layers, sizes, devices(2))
        model(torch.randn(5, 8)).sum().backward()
"""

from mpcourse.models.unet import UNet3D
from mpcourse.split.balance import all_cuts, balance
from mpcourse.split.copy import copy
from mpcourse.split.costs import LayerCost, layer_costs
from mpcourse.split.layers import ModelParallelResNet50, PipelinedResNet50, Split, split
from mpcourse.split.nin import NIN, HalvedNIN, ParallelNIN
from mpcourse.split.parallel_mlp import ParallelMLP
from mpcourse.split.tensor import (
    ColumnParallelLinear,
    RowParallelLinear,
    TensorParallelMLP,
)

__all__ = [
    "NIN",
    "ColumnParallelLinear",
    "HalvedNIN",
    "LayerCost",
    "ModelParallelResNet50",
    "ParallelMLP",
    "ParallelNIN",
    "PipelinedResNet50",
    "RowParallelLinear",
    "Split",
    "TensorParallelMLP",
    "UNet3D",
    "all_cuts",
    "balance",
    "copy",
    "layer_costs",
    "split",
]
