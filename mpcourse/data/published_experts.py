"""Published measurements of mixtures of experts, each with its source and its setting."""

from typing import NamedTuple


class Switch(NamedTuple):
    """A row of Switch Transformer's table 1.

    name: of the model. capacity: its factor; None: a dense model. quality: negative log perplexity after 100 000 steps.
    hours: until it reaches -1.50; None: it did not. rate: examples a second.
    """

    name: str
    capacity: float | None
    quality: float
    hours: float | None
    rate: float


# William Fedus and others, Switch Transformers, 2021, table 1, https://arxiv.org/abs/2101.03961, as others quote it: 32
# TPUv3 cores, 128 experts in every other feed-forward layer. MoE sends a token to two experts, Switch to one.
SWITCH = (
    Switch("T5-Base", None, -1.731, None, 1600),
    Switch("T5-Large", None, -1.550, 131.1, 470),
    Switch("MoE-Base", 2.0, -1.547, 68.7, 840),
    Switch("Switch-Base", 2.0, -1.554, 72.8, 860),
    Switch("MoE-Base", 1.25, -1.559, 80.7, 790),
    Switch("Switch-Base", 1.25, -1.553, 65.0, 910),
    Switch("MoE-Base", 1.0, -1.572, 80.1, 860),
    Switch("Switch-Base", 1.0, -1.561, 62.8, 1000),
    Switch("Switch-Base+", 1.0, -1.534, 67.6, 780),
)

# DeepSeek, DeepEP, docs/legacy.md, 2025, https://github.com/deepseek-ai/DeepEP, low-latency kernels: H800 with a
# ConnectX-7 card each, 128 tokens a rank, 8 experts a token, width 7168. Dispatch sends float8 with scales, 7392 bytes
# a token, combine bfloat16. Microseconds by the number of ranks.
DEEPEP_DISPATCH = {8: 77, 16: 118, 32: 155, 64: 173, 128: 192, 256: 194}
DEEPEP_COMBINE = {8: 114, 16: 195, 32: 273, 64: 314, 128: 369, 256: 360}
