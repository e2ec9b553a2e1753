"""Figures that others published and that the course replays, each with its source and its setting."""

from dataclasses import dataclass


@dataclass(frozen=True)
class MemoryTable:
    """What nvidia-smi showed of each GPU while a model was trained. MiB: in use; utilisation: percent."""

    source: str
    setting: str
    MiB: tuple[int, ...]
    utilisation: tuple[int, ...]


TWO_P100 = MemoryTable(
    source="an article of 2020-03-29 on ResNet-50 over two GPUs, torch 1.1",
    setting="2 x Tesla P100-SXM2, NVLink; batch 10x3x1024x1024, MSELoss, SGD; conv1..layer2 | layer3..fc",
    MiB=(14637, 6657),
    utilisation=(48, 80),
)


@dataclass(frozen=True)
class SplitSizes:
    """Seconds of a run, by how many examples a split of the batch has; and on one GPU, and unsplit on two."""

    source: str
    setting: str
    single: float
    model_parallel: float
    pipelined: dict[int, float]


PIPELINE_TUTORIAL = SplitSizes(
    source="PyTorch's tutorial on single-machine model parallelism (2019); its curve read off the figure",
    setting="ResNet-50 cut after layer2, 3 batches of 120x3x128x128, MSELoss, SGD; 2 GPUs, which are not named",
    single=3.75,
    model_parallel=4.02,
    pipelined={1: 8.25, 3: 3.75, 5: 2.95, 8: 2.64, 10: 2.50, 12: 2.43, 20: 2.51, 40: 2.87, 60: 3.13},
)


@dataclass(frozen=True)
class Pipelined:
    """A row of a table. balance: layers of each partition. chunks: micro-batches a batch. rate: examples/s."""

    balance: tuple[int, ...]
    batch: int
    chunks: int
    rate: float


@dataclass(frozen=True)
class Partitions:
    """Examples/s of a model on one GPU without a pipeline, and by number of partitions of a pipeline, one a GPU."""

    source: str
    setting: str
    shape: tuple[int, ...]
    alone: Pipelined
    rows: tuple[Pipelined, ...]


_TORCHGPIPE = "torchgpipe, docs/benchmarks.rst (Kim et al. 2020)"
_P40 = "8 x Tesla P40, PyTorch 1.3, float32, GPipe with all micro-batches but the last one checkpointed"
TORCHGPIPE_RESNET101 = Partitions(
    _TORCHGPIPE,
    f"ResNet-101; {_P40}",
    (3, 224, 224),
    Pipelined((370,), 118, 1, 95.862),
    (
        Pipelined((370,), 220, 2, 81.796),
        Pipelined((135, 235), 25000, 1667, 135.539),
        Pipelined((44, 92, 124, 110), 5632, 256, 265.958),
        Pipelined((26, 22, 33, 44, 44, 66, 66, 69), 5400, 150, 411.662),
    ),
)
TORCHGPIPE_UNET = Partitions(
    _TORCHGPIPE,
    f"U-Net of 5 levels, 5 convolutions each, 64 channels; {_P40}",
    (3, 192, 192),
    Pipelined((241,), 40, 1, 28.500),
    (
        Pipelined((241,), 80, 2, 24.456),
        Pipelined((104, 137), 512, 32, 35.502),
        Pipelined((30, 66, 84, 61), 512, 16, 67.042),
        Pipelined((16, 27, 31, 44, 22, 57, 27, 17), 640, 40, 88.497),
    ),
)


@dataclass(frozen=True)
class Mirrored:
    """Seconds of so many steps, on one GPU and on two that share each batch, and the test accuracy after them."""

    source: str
    setting: str
    steps: int
    batch: int
    seconds: tuple[float, float]
    accuracy: tuple[float, float]


MIRRORED_STRATEGY = Mirrored(
    source="an article of 2018 on TensorFlow's MirroredStrategy",
    setting="MNIST CNN tutorial, GeForce GTX 1080; 100 examples a step: 100 on one GPU, 50 on each of two",
    steps=10_000,
    batch=100,
    seconds=(68.0, 90.6),
    accuracy=(0.9511, 0.9515),
)
