"""Published failures of large trainings, each with its source and its setting."""

from typing import NamedTuple


class Cause(NamedTuple):
    """A row of Llama 3's table 5.

    component: what failed. category: of the component. times: interruptions. percent: of all, as printed.
    """

    component: str
    category: str
    times: int
    percent: float


# Llama team, The Llama 3 Herd of Models, 2024, table 5, https://arxiv.org/abs/2407.21783, as Glenn Lockwood quotes it
# in full (https://glennklockwood.com/garden/component-reliability): 54 days of training on 16 384 H100, 8 in a node.
# There were 466 interruptions, 47 of them planned. The text counts 58.7 % of the others as failures of GPUs.
LLAMA_3_DAYS, LLAMA_3_GPUS, LLAMA_3_UNPLANNED, LLAMA_3_OF_GPUS = 54, 16_384, 419, 58.7
LLAMA_3 = (
    Cause("faulty GPU", "GPU", 148, 30.1),
    Cause("GPU HBM3 memory", "GPU", 72, 17.2),
    Cause("software bug", "dependency", 54, 12.9),
    Cause("network switch or cable", "network", 35, 8.4),
    Cause("host maintenance", "unplanned maintenance", 32, 7.6),
    Cause("GPU SRAM memory", "GPU", 19, 4.5),
    Cause("GPU system processor", "GPU", 17, 4.1),
    Cause("NIC", "host", 7, 1.7),
    Cause("NCCL watchdog timeouts", "unknown", 7, 1.7),
    Cause("silent data corruption", "GPU", 6, 1.4),
    Cause("GPU thermal interface or sensor", "GPU", 6, 1.4),
    Cause("SSD", "host", 3, 0.7),
    Cause("power supply", "host", 3, 0.7),
    Cause("server chassis", "host", 2, 0.5),
    Cause("IO expansion board", "host", 2, 0.5),
    Cause("dependency", "dependency", 2, 0.5),
    Cause("CPU", "host", 2, 0.5),
    Cause("system memory", "host", 2, 0.5),
)

# Apostolos Kokolis and others, Revisiting Reliability in Large-Scale Machine Learning Research Clusters, 2024,
# https://arxiv.org/abs/2410.21680, as several authors quote it; the paper itself was not at hand. Hours between
# failures of a job, by its number of A100, 8 in a node: two measured, and two that the authors project from the
# failures of 1000 nodes in a day.
KOKOLIS_PER_1000_NODE_DAYS = 6.50
KOKOLIS_MEASURED = {8: 47.7 * 24, 1024: 7.9}
KOKOLIS_PROJECTED = {16_384: 1.8, 131_072: 0.23}

# Hugging Face, The Technology Behind BLOOM Training, 2022, https://huggingface.co/blog/bloom-megatron-deepspeed: "on
# average we were getting 1-2 GPU failures a week. We were saving a checkpoint every 3h". The 40 seconds to write a
# checkpoint are from the project's own notes.
BLOOM_GPUS, BLOOM_FAILURES_A_WEEK = 384, (1, 2)
BLOOM_EVERY, BLOOM_SAVE = 3 * 3600, 40  # seconds between two checkpoints, and to write one

# Ziheng Jiang and others, MegaScale, 2024, https://arxiv.org/abs/2402.15627: the longest times, in seconds, to find a
# fault and to catch up, and the least share of the time that trained the model.
MEGASCALE_GPUS, MEGASCALE_DETECT, MEGASCALE_CATCH_UP, MEGASCALE_EFFECTIVE = 12_288, 600, 900, 0.90
