"""Published trainings over many GPUs, and measurements that plans rest on, each with its source and its setting.

Narayanan's tables were checked against a transcription of the paper (arXiv 2104.04473, section 5), Llama 3's against
three (arXiv 2407.21783, section 3.3.2).
"""

from dataclasses import dataclass

VOCABULARY, LENGTH = 51_200, 2048  # of all of Narayanan's models: tokens, and tokens in a sequence
Sizes = tuple[int, int, int]  # of a grid: data, pipeline, tensor


@dataclass(frozen=True)
class Trained:
    """A row of a table.

    parameters: billions. batch: sequences in a step. teraflops: reached by each GPU. microbatch: sequences. chunks:
    parts of the model on each stage. days: of training on 300 billion tokens. None where the figure has not been
    published.
    """

    parameters: float
    heads: int
    width: int
    layers: int
    tensor: int
    pipeline: int
    gpus: int
    batch: int
    teraflops: float
    microbatch: int | None = None
    chunks: int | None = None
    days: float | None = None

    @property
    def grid(self) -> Sizes:
        """Sizes of data, pipeline and tensor."""
        return self.gpus // (self.pipeline * self.tensor), self.pipeline, self.tensor


# Narayanan et al. 2021, table 1: A100 80 GB, nodes of 8 with NVLink 3 and 8 InfiniBand HDR cards; 1F1B, scatter/gather
# of pipeline messages, all activations recomputed. Micro-batches and chunks are not in the table; they come from the
# authors' script for it (NVIDIA/Megatron-LM, examples/sc21/run_table_1.sh, commit 6985e58).
PTD_P = (
    Trained(1.7, 24, 2304, 24, 1, 1, 32, 512, 137, 16, 1),
    Trained(3.6, 32, 3072, 30, 2, 1, 64, 512, 138, 16, 1),
    Trained(7.5, 32, 4096, 36, 4, 1, 128, 512, 142, 16, 1),
    Trained(18.4, 48, 6144, 40, 8, 1, 256, 1024, 135, 8, 1),
    Trained(39.1, 64, 8192, 48, 8, 2, 512, 1536, 138, 4, 1),
    Trained(76.1, 80, 10_240, 60, 8, 4, 1024, 1792, 140, 2, 3),
    Trained(145.6, 96, 12_288, 80, 8, 8, 1536, 2304, 148, 2, 2),
    Trained(310.1, 128, 16_384, 96, 8, 16, 1920, 2160, 155, 1, 2),
    Trained(529.6, 128, 20_480, 105, 8, 35, 2520, 2520, 163, 1, 3),
    Trained(1008.0, 160, 25_600, 128, 8, 64, 3072, 3072, 163, 1, 1),
)


def _table_2(
    model: tuple[float, int, int, int], tensor: int, pipeline: int, *runs: tuple[int, int, int, float, float]
) -> tuple[Trained, ...]:
    parameters, heads, width, layers = model
    return tuple(
        Trained(parameters, heads, width, layers, tensor, pipeline, gpus, batch, teraflops, microbatch, days=days)
        for gpus, batch, microbatch, teraflops, days in runs
    )


# Table 2, the same machines. It gives only the product of tensor and pipeline (96 and 280): 8 x 12 and 8 x 35.
_175B, _530B = (174.6, 96, 12_288, 96), (529.6, 128, 20_480, 105)
ZERO_3 = (
    *_table_2(_175B, 1, 1, (384, 1536, 4, 144, 90), (768, 1536, 2, 88, 74), (1536, 1536, 1, 44, 74)),
    *_table_2(_530B, 1, 1, (640, 2560, 4, 138, 169), (1120, 2240, 2, 98, 137), (2240, 2240, 1, 48, 140)),
)
PTD_P_BESIDE_ZERO = (
    *_table_2(_175B, 8, 12, (384, 1536, 1, 153, 84), (768, 1536, 1, 149, 43), (1536, 1536, 1, 141, 23)),
    *_table_2(_530B, 8, 35, (560, 2240, 1, 171, 156), (1120, 2240, 1, 167, 80), (2240, 2240, 1, 159, 42)),
)


@dataclass(frozen=True)
class Configured:
    """A GPT for which NVIDIA ships a configuration: sequences of 2048 tokens, nodes of 8 GPUs.

    grids: the first and the last one in the file, by the month in which they were added.
    batch: sequences in a step.
    """

    name: str
    heads: int
    width: int
    layers: int
    gpus: int
    grids: dict[str, Sizes]
    batch: int = 2048


# NVIDIA/NeMo-Framework-Launcher, launcher_scripts/conf/training/gpt3/*.yaml, and their history. No checkpoints, or only
# of attention; the optimizer's state is sharded, and (except with 5 billion parameters) activations along the tensor
# axis.
NEMO_GPT = (
    Configured("5 B", 32, 4096, 24, 128, {"2023-01": (128, 1, 1)}),
    Configured("20 B", 48, 6144, 44, 512, {"2023-01": (128, 1, 4), "2024-04": (256, 1, 2)}),
    Configured("40 B", 64, 8192, 48, 1024, {"2023-01": (128, 1, 8), "2024-02": (128, 4, 2)}),
    Configured("175 B", 96, 12_288, 96, 1024, {"2023-01": (8, 16, 8), "2023-06": (32, 8, 4)}),
)


@dataclass(frozen=True)
class Llama:
    """A row of Llama 3's table 4: 405 B parameters, H100 80 GB, nodes of 8, RoCE of 400 Gbit/s per GPU.

    batch: sequences per replica and step. teraflops: of each GPU, without recomputation. The paper's formats: bfloat16,
    gradients summed in float32, FSDP that shards optimizer state and gradients; no checkpoints.
    """

    gpus: int
    tensor: int
    context: int
    pipeline: int
    data: int
    length: int
    batch: int
    teraflops: float


LLAMA_3 = (
    Llama(8192, 8, 1, 16, 64, 8192, 32, 430),
    Llama(16_384, 8, 1, 16, 128, 8192, 16, 400),
    Llama(16_384, 8, 16, 16, 8, 131_072, 16, 380),  # one print has 4 replicas; the product requires 8
)


@dataclass(frozen=True)
class Recomputed:
    """A row of Korthikanti's table 5, with its setting from table 3.

    name: of the model, by its parameters. chunks: parts of the model on each stage. seconds: of an iteration, with full
    recomputation, and with selective recomputation and sequence parallelism. utilisation: of the second, FLOP/s of the
    model over the peak, in per cent.
    """

    name: str
    heads: int
    width: int
    layers: int
    pipeline: int
    gpus: int
    batch: int
    microbatch: int
    chunks: int
    seconds: tuple[float, float]
    utilisation: float


# Korthikanti et al. 2022, tables 3 and 5: tensor 8, no data parallelism, sequences of 2048, 51 200 tokens, A100 80 GB.
KORTHIKANTI = (
    Recomputed("22B", 64, 6144, 48, 1, 8, 4, 4, 1, (1.42, 1.10), 41.5),
    Recomputed("175B", 96, 12288, 96, 8, 64, 64, 1, 3, (18.13, 13.75), 51.4),
    Recomputed("530B", 128, 20480, 105, 35, 280, 280, 1, 3, (49.05, 37.83), 56.0),
    Recomputed("1T", 160, 25600, 128, 64, 512, 512, 1, 1, (94.42, 71.49), 56.3),
)
# Table 4: a layer of the 22 B model on 8 GPUs, milliseconds forward and backward: tensor parallelism; with sequence
# parallelism; with full recomputation instead; with selective recomputation instead; with sequence parallelism and
# selective recomputation.
KORTHIKANTI_LAYER = ((7.7, 11.9), (7.2, 11.8), (7.7, 19.5), (7.7, 13.2), (7.2, 13.1))

# Microseconds of products (m, k) x (k, n) in float16, by (n, k), for m = ROWS[0], ROWS[1], ...: linear layers of
# language models, or their shares in tensor parallelism. microsoft/vidur, data/profiling/compute/*/*/mlp.csv (2024),
# medians. `mpcourse.virtual.gpus.products` was fitted neither to the models of NOT_FITTED nor to the H100's.
ROWS = (128, 512, 2048, 4096)
A100_PRODUCTS = {
    (10240, 8192): (135.0, 386.5, 1437.0, 2882.0),
    (8192, 8192): (120.0, 355.5, 1196.0, 2390.8),
    (57344, 8192): (720.0, 2133.0, 8028.8, 16037.5),
    (8192, 28672): (322.0, 1035.0, 4051.0, 8115.5),
    (1280, 8192): (26.0, 69.0, 195.0, 353.5),
    (8192, 1024): (20.0, 50.0, 158.5, 300.2),
    (7168, 8192): (103.0, 300.0, 1081.2, 1960.8),
    (8192, 3584): (55.0, 164.0, 549.5, 1062.2),
    (12288, 4096): (74.5, 234.0, 979.2, 1898.8),
    (4096, 4096): (32.0, 88.0, 301.0, 607.0),
    (22016, 4096): (157.0, 402.0, 1693.5, 3344.8),
    (4096, 11008): (88.0, 229.0, 850.5, 1594.5),
    (3072, 4096): (29.0, 57.0, 214.2, 414.8),
    (4096, 1024): (12.0, 26.0, 81.8, 151.5),
    (5504, 4096): (41.0, 126.0, 382.8, 780.2),
    (4096, 2752): (25.0, 65.0, 197.0, 393.8),
}
A100_PRODUCTS_NOT_FITTED = {
    (12288, 8192): (150.0, 500.0, 1872.8, 3553.8),
    (8192, 4096): (63.0, 209.0, 673.5, 1308.2),
    (24576, 8192): (277.5, 934.0, 3562.2, 6893.0),
    (8192, 12288): (151.5, 475.5, 1742.5, 3547.0),
    (3072, 8192): (63.5, 111.0, 470.5, 861.2),
    (8192, 1024): (19.0, 53.0, 161.0, 305.8),
    (6144, 8192): (94.0, 210.0, 885.8, 1769.2),
    (8192, 3072): (48.5, 144.5, 494.0, 957.2),
    (3840, 5120): (42.0, 99.0, 423.8, 746.5),
    (5120, 1280): (16.0, 39.0, 117.8, 233.2),
    (6912, 5120): (71.0, 136.0, 563.2, 1098.8),
    (5120, 3456): (33.0, 88.0, 282.2, 638.2),
    (2560, 8192): (46.0, 106.0, 433.5, 683.5),
    (8192, 2048): (35.0, 99.0, 311.5, 711.2),
    (11008, 8192): (138.0, 395.0, 1579.0, 2933.8),
    (8192, 5504): (81.0, 265.0, 769.8, 1533.5),
    (7680, 2560): (43.0, 101.0, 398.8, 655.8),
    (2560, 2560): (17.0, 38.0, 139.0, 237.5),
    (10240, 2560): (50.5, 126.0, 450.0, 872.5),
    (2560, 10240): (54.0, 129.5, 464.5, 805.0),
}
H100_PRODUCTS = {
    (10240, 8192): (66.0, 156.0, 537.2, 989.8),
    (8192, 8192): (52.0, 94.0, 394.5, 796.2),
    (57344, 8192): (327.0, 650.0, 2734.5, 5708.8),
    (8192, 28672): (166.0, 269.0, 1280.2, 2668.2),
    (1280, 8192): (15.0, 29.0, 83.5, 149.3),
    (8192, 1024): (11.0, 18.0, 50.2, 93.0),
    (7168, 8192): (52.0, 91.0, 334.0, 637.0),
    (8192, 3584): (27.0, 45.0, 152.0, 295.5),
    (12288, 4096): (41.0, 90.0, 280.5, 588.5),
    (4096, 4096): (20.0, 29.0, 95.0, 194.0),
    (22016, 4096): (71.0, 134.0, 492.5, 993.0),
    (4096, 11008): (48.0, 75.5, 215.5, 438.0),
    (12288, 8192): (78.0, 194.0, 574.5, 1148.2),
    (8192, 4096): (30.0, 51.0, 205.0, 393.8),
    (24576, 8192): (152.0, 310.0, 1149.2, 2349.8),
    (8192, 12288): (76.0, 123.0, 598.8, 1090.0),
    (3840, 5120): (20.0, 35.0, 116.0, 222.0),
    (5120, 1280): (11.0, 18.5, 44.5, 72.8),
    (6912, 5120): (35.0, 58.0, 213.5, 399.5),
    (5120, 3456): (20.0, 34.0, 114.0, 181.8),
}

# Microseconds of an all-reduce by NCCL inside a DGX, by GPUs and bytes. microsoft/vidur,
# data/profiling/network/{a100,h100}_dgx/all_reduce.csv (2024), medians.
A100_ALL_REDUCE = {
    2: {1048576: 47.0, 4194304: 63.0, 8388608: 95.0, 16777216: 139.0, 33554432: 247.0, 67108864: 430.0},
    4: {1048576: 64.0, 4194304: 85.0, 8388608: 123.0, 16777216: 200.5, 33554432: 319.0, 67108864: 603.0},
    8: {1048576: 64.0, 4194304: 99.0, 8388608: 155.0, 16777216: 274.5, 33554432: 411.0, 67108864: 675.0},
}
H100_ALL_REDUCE = {
    2: {1048576: 43.0, 4194304: 43.0, 8388608: 46.0, 16777216: 73.5, 33554432: 136.0, 67108864: 245.0},
    4: {1048576: 41.0, 4194304: 47.0, 8388608: 62.0, 16777216: 93.5, 33554432: 167.0, 67108864: 318.0},
    8: {1048576: 34.0, 4194304: 51.0, 8388608: 74.0, 16777216: 115.0, 33554432: 196.0, 67108864: 322.0},
}
