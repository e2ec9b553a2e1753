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
