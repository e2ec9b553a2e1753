"""Run e16_memory as in the report: `python exercises/evidence/e16_memory/run.py`.

A first argument is the size of a batch, 256 by default, and a second one a file in which the GPU's memory is noted.
"""

import gc
import sys
import traceback
from collections import Counter
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

from mpcourse.virtual import GPUS, virtual_gpus

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from e16_memory import train

MiB = 2**20
CLASSES = 4000
GPU = replace(GPUS["Tesla P100-SXM2"], memory=826 * MiB)  # a GPU with little memory, so that the run is short

batch = int(sys.argv[1]) if len(sys.argv) > 1 else 256
notes = Path(sys.argv[2]).open("w", encoding="utf-8") if len(sys.argv) > 2 else sys.stdout  # noqa: SIM115
torch.manual_seed(1)


class Batches:
    """Two hundred random batches, and a look at the memory before each fourth one."""

    def __len__(self):
        return 200

    def __iter__(self):
        for step in range(len(self)):
            if step in (1, 2) or (step and step % 4 == 0):
                note(f"after step {step}")
            if step == 2:
                self.then = holders()
            self.step = step + 1
            x = torch.randn(batch, 64)
            yield x.to("vgpu:0"), (x[:, 0] > 0).long().to("vgpu:0")


def note(when):
    """Note the memory as nvidia-smi shows it, and what PyTorch's allocator says of it."""
    allocated, reserved = torch.vgpu.memory_allocated() / MiB, torch.vgpu.memory_reserved() / MiB
    shown = f"|   0  {GPU.name} | {reserved + GPU.context / MiB:5.0f}MiB / {GPU.memory / MiB:5.0f}MiB |"
    print(f"{when:16} {shown}  allocated {allocated:5.1f} MiB, reserved {reserved:3.0f} MiB", file=notes)


def holders():
    """Count the tensors on the GPU, by kind, by the operation that made them, and by shape."""
    return Counter((a.kind, a.name, a.shape, a.nbytes) for a in box.ledger.live.values())


with virtual_gpus(1, GPU) as box:
    layers = nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, CLASSES)
    model = nn.Sequential(*layers).to("vgpu:0")
    optimizer = torch.optim.Adam(model.parameters())
    batches = Batches()
    try:
        averages, losses, outputs = train(model, optimizer, batches, decay=0.98, target=0.1, every=8)
        print(f"ends after {len(averages)} steps")
    except torch.OutOfMemoryError as error:
        frames = traceback.extract_tb(error.__traceback__)
        print("Traceback (most recent call last, without the frames of libraries):")
        for frame in [f for f in frames if Path(f.filename).name in ("run.py", "e16_memory.py")]:
            print(f'  File "{Path(frame.filename).name}", line {frame.lineno}, in {frame.name}\n    {frame.line}')
        print(f"torch.OutOfMemoryError: {error}")
        note(f"error, step {batches.step}")
        gc.collect()
        note("gc.collect()")
        now = holders()
        print(f"\nThe tensors on the GPU, batch {batch}, in order of what they hold now:\n", file=notes)
        print(f"{'made by':26} {'shape':14} {'kind':16}     KiB each  after step 2  now", file=notes)
        for key in sorted(now, key=lambda key: -now[key] * key[3])[:14]:
            kind, name, shape, nbytes = key
            row = f"{name:26} {shape!s:14} {kind:16} {nbytes / 1024:12.2f}"
            print(f"{row} {batches.then[key]:13} {now[key]:4}", file=notes)
