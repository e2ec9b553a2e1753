"""Published measurements of long sequences on many GPUs, each with its source and its setting."""

from typing import NamedTuple


class Ring(NamedTuple):
    """Causal attention over 8 GPUs, in per cent of one GPU's speed times eight.

    gpu: of each; layout: of the tokens. forward; both: forward and backward.
    """

    gpu: str
    layout: str
    forward: float
    both: float


# Zilin Zhu, ring-flash-attention, README, 2024, https://github.com/zhuzilin/ring-flash-attention: 8192 tokens on each
# GPU, batch 1, 32 heads of 128 with 8 heads of keys and values, bfloat16. The reference is FlashAttention on one GPU
# with 8192 tokens, an eighth of the work that each GPU has in the ring.
RING_FLASH_ATTENTION = (
    Ring("H800", "contiguous", 52.1, 53.9),
    Ring("H800", "zigzag", 85.2, 90.2),
    Ring("H800", "striped", 74.4, 82.9),
    Ring("A100", "contiguous", 51.4, 52.5),
    Ring("A100", "zigzag", 81.7, 89.8),
    Ring("A100", "striped", 69.6, 82.6),
)
# FlashAttention's iterations a second on one GPU: forward, and forward and backward.
FLASH_ON_ONE = {"H800": (591.5, 154.7), "A100": (373.4, 94.7)}


class Longest(NamedTuple):
    """Longest sequences that could be trained, in thousands of tokens.

    gpus: their number; name: of them; parameters: billions; width, layers: of the model. attention: with all scores
    kept; efficient: without; blockwise: with a feed-forward network in blocks, too; ring: with ring attention.
    """

    gpus: int
    name: str
    parameters: float
    width: int
    layers: int
    attention: int
    efficient: int
    blockwise: int
    ring: int


# Hao Liu and others, Ring Attention with Blockwise Transformers, 2023, table 3, https://arxiv.org/abs/2310.01889. The
# widths and layers are those of LLaMA's models of these sizes. A TPUv4-1024 has 1024 cores on 512 chips of 32 GB.
RING_TABLE_3 = (
    Longest(8, "A100", 3, 3200, 26, 4, 32, 64, 512),
    Longest(8, "A100", 7, 4096, 32, 2, 16, 32, 256),
    Longest(8, "A100", 13, 5120, 40, 2, 4, 16, 128),
    Longest(32, "A100", 7, 4096, 32, 4, 64, 128, 4096),
    Longest(32, "A100", 13, 5120, 40, 4, 32, 64, 2048),
    Longest(512, "TPUv4", 7, 4096, 32, 4, 8, 16, 8192),
)


class Context(NamedTuple):
    """A training with a context axis.

    context: its size; length: tokens of a sequence. rate: tokens a second on each GPU; GiB: on the fullest one.
    """

    context: int
    length: int
    rate: float
    GiB: float


# PyTorch team, torchtitan, benchmarks/llama3_h100_202412_torchtitan.md, table 2, https://github.com/pytorch/torchtitan:
# Llama 3.1 8B on 8 H100 (96 GB, 500 W), batch 1, full recomputation, torch.compile, linear layers in float8.
TORCHTITAN_8B = (
    Context(1, 32_768, 3890, 83.9),
    Context(2, 65_536, 2540, 84.2),
    Context(4, 131_072, 1071, 84.0),
    Context(8, 262_144, 548, 84.5),
)
