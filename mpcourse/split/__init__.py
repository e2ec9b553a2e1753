"""One model on several devices: by copies inside of a layer, or by whole layers."""

from mpcourse.models.unet import UNet3D
from mpcourse.split.balance import balance
from mpcourse.split.copy import copy
from mpcourse.split.layers import ModelParallelResNet50, Split, split
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
    "ModelParallelResNet50",
    "ParallelMLP",
    "ParallelNIN",
    "RowParallelLinear",
    "Split",
    "TensorParallelAttention",
    "TensorParallelMLP",
    "UNet3D",
    "balance",
    "copy",
    "split",
]
