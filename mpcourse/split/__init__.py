"""One model on several devices: by copies inside of a layer, or by whole layers."""

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
    TensorParallelAttention,
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
    "TensorParallelAttention",
    "TensorParallelMLP",
    "UNet3D",
    "all_cuts",
    "balance",
    "copy",
    "layer_costs",
    "split",
]
