"""BERT-large on a V100 as Hugging Face measured it in 2022 ("Anatomy of model's memory"), on a virtual one.

Their torch kept gradients as zeros between steps, attention was made of single operations, and AdamW took one parameter
at a time; so it is here. The CUDA context is taken from them. It needs the library `transformers`.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any

import torch

from mpcourse.virtual import virtual_gpus
from mpcourse.virtual.specs import GPUS
from tests.validation.memory_models import load_torchvision

MiB = 2**20
V100 = replace(GPUS["Tesla V100-SXM2-16GB"], context=1343 * MiB)
TOKENS = 512
LARGE: dict[str, Any] = {
    "hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096,
    "attn_implementation": "eager", "use_cache": False,
}  # fmt: skip


@dataclass(frozen=True)
class Row:
    """A run. MiB: what nvidia-smi showed; rate: examples a second; both as published."""

    what: str
    batch: int
    parts: int
    MiB: int
    rate: float
    checkpoints: bool = False
    half: bool = False


ROWS = (
    Row("batch 4", 4, 1, 14949, 8.86),
    Row("batch 1, four times", 1, 4, 8681, 7.75),
    Row("and with checkpoints", 1, 4, 6775, 5.99, checkpoints=True),
    Row("batch 4, float16 by autocast", 4, 1, 13939, 18.64, half=True),
)


def predicted(row: Row) -> tuple[float, float]:
    """Return what nvidia-smi would show, in MiB, and examples a second."""
    if find_spec("torchvision"):  # transformers imports it where it is
        load_torchvision()
    from transformers import BertConfig, BertForSequenceClassification

    large = BertConfig(**LARGE)
    with virtual_gpus(1, V100, dry=True, record=False) as box:
        net: torch.nn.Module = BertForSequenceClassification(large)
        net.to("vgpu:0").train()
        if row.checkpoints:
            net.gradient_checkpointing_enable({"use_reentrant": False})
        optimizer = torch.optim.AdamW(net.parameters(), lr=5e-5, foreach=False)
        words = torch.zeros(row.batch, TOKENS, dtype=torch.int64, device="vgpu:0")
        scaler = torch.amp.GradScaler("vgpu", enabled=row.half)
        for _ in range(2):  # the first step makes the optimizer's state
            start = box.synchronize()
            for _ in range(row.parts):
                with torch.autocast("vgpu", torch.float16, enabled=row.half):
                    loss = net(input_ids=words, labels=words[:, 0]).loss / row.parts
                scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad(set_to_none=False)
        seconds = box.synchronize() - start
        reserved = torch.get_device_module("vgpu").max_memory_reserved(0)
        return (reserved + V100.context) / MiB, row.batch * row.parts / seconds


def table() -> Iterator[str]:
    """Yield the lines of a table in Markdown: published, virtual, and by how much that is off."""
    yield "| BERT-large, 512 tokens, on a V100 | MiB | virtual | off | examples/s | virtual | off |"
    yield "|---" * 7 + "|"
    for row in ROWS:
        mib, rate = predicted(row)
        memory = f"{row.MiB} | {mib:.0f} | {100 * (mib / row.MiB - 1):+.0f} %"
        yield f"| {row.what} | {memory} | {row.rate} | {rate:.2f} | {100 * (rate / row.rate - 1):+.0f} % |"
