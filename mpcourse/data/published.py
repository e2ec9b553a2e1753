"""Figures that others published and that the course replays, each with its source and its setting."""

from dataclasses import dataclass


@dataclass(frozen=True)
class MemoryTable:
    """What nvidia-smi showed for each GPU while a model was trained.

    MiB: in use; utilisation: percent; watts: consumed; watts_allowed: each GPU's power limit.
    """

    source: str
    setting: str
    MiB: tuple[int, ...]
    utilisation: tuple[int, ...]
    watts: tuple[int, ...]
    watts_allowed: int


TWO_P100 = MemoryTable(
    source="Takehiro Ajioka, PyTorchで大きなネットワークを複数のGPUに分散して学習する (How to train a "
    "large network in parts on several GPUs with PyTorch), 2020, https://qiita.com/takeajioka/items/26439b848f66f43bb1d3",
    setting="torch 1.1; 2 x Tesla P100-SXM2, NVLink; batch 10x3x1024x1024, MSELoss, SGD; conv1..layer2 | layer3..fc",
    MiB=(14637, 6657),
    utilisation=(48, 80),
    watts=(46, 241),
    watts_allowed=300,
)


@dataclass(frozen=True)
class SplitSizes:
    """Seconds of a run, by the number of examples in a split of the batch; also on one GPU, and unsplit on two."""

    source: str
    setting: str
    single: float
    model_parallel: float
    pipelined: dict[int, float]


PIPELINE_TUTORIAL = SplitSizes(
    source="Shen Li, Model Parallel Best Practices (2019), https://github.com/pytorch/tutorials/blob/"
    "03b277366b12fc14f56a387cc5ec4cdf1ede744a/intermediate_source/model_parallel_tutorial.py; its curve",
    setting="ResNet-50 cut after layer2, 3 batches of 120x3x128x128, MSELoss, SGD; 2 GPUs, which are not named",
    single=3.75,
    model_parallel=4.02,
    pipelined={1: 8.25, 3: 3.75, 5: 2.95, 8: 2.64, 10: 2.50, 12: 2.43, 20: 2.51, 40: 2.87, 60: 3.13},
)


@dataclass(frozen=True)
class Pipelined:
    """A row of a table. balance: layers of each partition. chunks: micro-batches in a batch. rate: examples/s."""

    balance: tuple[int, ...]
    batch: int
    chunks: int
    rate: float


@dataclass(frozen=True)
class Partitions:
    """Examples/s of a model on one GPU without a pipeline, and by the number of partitions, one on each GPU."""

    source: str
    setting: str
    shape: tuple[int, ...]
    alone: Pipelined
    rows: tuple[Pipelined, ...]


_TORCHGPIPE = "Chiheon Kim et al., torchgpipe (2020), https://arxiv.org/abs/2004.09910; docs/benchmarks.rst"
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
    """Seconds of a number of steps, on one GPU and on two that share each batch, and the test accuracy afterwards."""

    source: str
    setting: str
    steps: int
    batch: int
    seconds: tuple[float, float]
    accuracy: tuple[float, float]


MIRRORED_STRATEGY = Mirrored(
    source="shu-yusa, TensorFlow MirroredStrategy sample, 2018, "
    "https://github.com/shu-yusa/tensorflow-mirrored-strategy-sample",
    setting="MNIST CNN tutorial, GeForce GTX 1080; 100 examples a step: 100 on one GPU, 50 on each of two",
    steps=10_000,
    batch=100,
    seconds=(68.0, 90.6),
    accuracy=(0.9511, 0.9515),
)


@dataclass(frozen=True)
class Processes:
    """A row of a table: the seconds that a number of processes on a number of nodes took."""

    processes: int
    nodes: int
    seconds: float


@dataclass(frozen=True)
class Scaling:
    """Seconds of a whole training, by processes and nodes.

    parameters: number of elements in each of the model's parameters. batch: of each process. examples: of the training
    set, which all processes share.
    """

    source: str
    setting: str
    parameters: tuple[int, ...]
    examples: int
    batch: int
    epochs: int
    gpu: tuple[Processes, ...]
    cpu: tuple[Processes, ...]


CHAINERMN_TUTORIAL = Scaling(
    source="a tutorial on ChainerMN with MNIST, in Japanese, 2018; its author and address are not known to us",
    setting="nodes of one Core i7-6950X and two GeForce GTX 1080 Ti; an office's Ethernet, taken as 1 Gbit/s",
    parameters=(784_000, 1000, 1_000_000, 1000, 10_000, 10),
    examples=60_000,
    batch=100,
    epochs=20,
    gpu=(Processes(1, 1, 80.64), Processes(2, 1, 45.10), Processes(2, 2, 418.23), Processes(4, 2, 252.48)),
    cpu=(
        Processes(1, 1, 2670.08),
        Processes(2, 1, 2117.98),
        Processes(4, 1, 687.73),
        Processes(6, 1, 614.60),
        Processes(10, 1, 583.00),
        Processes(2, 2, 2504.24),
        Processes(4, 2, 567.44),
        Processes(6, 2, 554.23),
        Processes(10, 2, 512.01),
    ),
)


@dataclass(frozen=True)
class Cluster:
    """A training on very many GPUs, as far as its source describes it.

    efficiency: of each GPU, compared with one alone. seconds: of a whole training of `epochs` epochs.
    """

    source: str
    setting: str
    gpus: int
    per_node: int
    batch: int
    efficiency: float | None = None
    epochs: int | None = None
    seconds: float | None = None


CHAINERMN_128 = {
    name: Cluster(
        source=source,
        setting="ResNet-50 on ImageNet; 32 nodes of 4 GeForce GTX TITAN X (Maxwell), InfiniBand FDR",
        gpus=128,
        per_node=4,
        batch=32,
        efficiency=efficiency,
    )
    for name, efficiency, source in (
        (
            "announcement",
            100 / 128,
            "Takuya Akiba, Performance of Distributed Deep Learning using ChainerMN, February 2017, "
            "https://chainer.org/general/2017/02/08/Performance-of-Distributed-Deep-Learning-Using-ChainerMN.html",
        ),
        (
            "paper",
            0.90,
            "Takuya Akiba, Keisuke Fukuda and Shuji Suzuki, ChainerMN: Scalable Distributed Deep Learning Framework, "
            "October 2017, https://arxiv.org/abs/1710.11351",
        ),
    )
}
AKIBA_1024 = Cluster(
    source="Takuya Akiba, Shuji Suzuki and Keisuke Fukuda, Extremely Large Minibatch SGD: Training ResNet-50 on "
    "ImageNet in 15 Minutes, 2017, https://arxiv.org/abs/1711.04325",
    setting="ResNet-50 on ImageNet, 128 nodes of 8 Tesla P100, InfiniBand FDR",
    gpus=1024,
    per_node=8,
    batch=32,
    epochs=90,
    seconds=15 * 60,
)
HOROVOD_512 = {
    name: Cluster(
        source="Alexander Sergeev and Mike Del Balso, Horovod, README, 2018, https://github.com/horovod/horovod",
        setting=f"{name} on ImageNet; 128 nodes of 4 Pascal GPUs, 25 Gbit/s Ethernet with RDMA",
        gpus=512,
        per_node=4,
        batch=64,
        efficiency=efficiency,
    )
    for name, efficiency in (("ResNet-101", 0.90), ("VGG-16", 0.68))
}
IMAGENET = 1_281_167  # training examples
# Images per second that one GPU trained on, as others measured it, by network and GPU. P100: TensorFlow, Benchmarks,
# May 2017, https://www.tensorflow.org/performance/benchmarks (DGX-1, synthetic data; batches of 32 and of 64). TITAN X:
# Justin Johnson, cnn-benchmarks, 2016, https://github.com/jcjohnson/cnn-benchmarks (Torch, cuDNN 5), forward and
# backward of 16 images in 171.02 ms.
IMAGES_PER_SECOND = {
    ("ResNet-50", "Tesla P100-SXM2"): 195.0,
    ("VGG-16", "Tesla P100-SXM2"): 154.0,
    ("ResNet-50", "GTX TITAN X (Maxwell)"): 16 / 0.17102,
}


@dataclass(frozen=True)
class Throughput:
    """Tokens per second and GPU, by variant of the program, on each of two numbers of GPUs."""

    source: str
    setting: str
    gpus: tuple[int, int]
    rates: dict[str, tuple[int, int]]


TORCHTITAN_8B = Throughput(
    source="torchtitan, llama3_h100_202412, 2024, "
    "https://github.com/pytorch/torchtitan/blob/main/benchmarks/llama3_h100_202412_torchtitan.md",
    setting="Llama 3.1 8B, FSDP, 2 sequences of 8192 tokens a GPU; nodes of 8 H100, 400 Gbit/s per GPU between nodes",
    gpus=(8, 128),
    rates={"FSDP": (5762, 5605), "and torch.compile": (6667, 6514), "and float8": (8532, 8380)},
)


@dataclass(frozen=True)
class ShardedMemory:
    """A row of a table: parameters, ranks, and gigabytes per rank in ZeRO's stages 1, 2 and 3, as printed."""

    parameters: float
    ranks: int
    gigabytes: tuple[str, str, str]


# Samyam Rajbhandari and others, ZeRO: Memory Optimizations Toward Training Trillion Parameter Models, 2020, table 1,
# https://arxiv.org/abs/1910.02054: Adam in mixed precision, 16 bytes per parameter; 120 GB and 16 TB without sharding.
# Taken from transcriptions of the paper.
ZERO_TABLE_1 = (
    ShardedMemory(7.5e9, 4, ("52.5", "41.3", "30")),
    ShardedMemory(7.5e9, 16, ("35.6", "21.6", "7.5")),
    ShardedMemory(7.5e9, 64, ("31.4", "16.6", "1.88")),
    ShardedMemory(7.5e9, 1024, ("30.1", "15.1", "0.12")),
    ShardedMemory(1e12, 1024, ("4011", "2013", "15.6")),
)
