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
