"""Run e16_idle as in the report: `python exercises/evidence/e16_idle/run.py`. `run.py FILE` also writes a trace."""

import sys
from pathlib import Path

import torch

from mpcourse.models import mlp
from mpcourse.virtual import busy, virtual_gpus, write_chrome_trace

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from e16_idle import train

GPU, BATCH, STEPS, TRACED = "Tesla T4", 1280, 30, (24, 25)
starts = []  # of each step, on the host's clock


def report(step, loss, clipped):
    """Print a line of the log."""
    print(f"step {step}: loss {loss:.4f}, {clipped} steps clipped", flush=True)


torch.manual_seed(0)
with virtual_gpus(1, GPU, as_cuda=True) as box:
    model = mlp([64] + 12 * [256] + [10]).to("cuda")
    for layer in model[1::2]:
        torch.nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
    images = torch.randn(8 * BATCH, 64)
    labels = (images @ torch.randn(64, 10)).argmax(1)
    images, labels = images.to("cuda"), labels.to("cuda")
    model.register_forward_pre_hook(lambda *_: starts.append(box.now))
    box.reset()
    start = box.synchronize()
    train(model, images, labels, BATCH, STEPS, rate=0.05, limit=0.9, report=report)
    took = box.synchronize() - start
    of_host = {
        kind: sum(e.seconds for e in box.events if e.lane == "cpu" and e.kind == kind) for kind in ("enqueue", "wait")
    }
    kernels = sum(e.lane == "cuda:0" and e.kind == "compute" for e in box.events)
    peak, whole = torch.cuda.max_memory_reserved() >> 20, torch.cuda.get_device_properties(0).total_memory >> 20

print(f"{STEPS} steps on a virtual {GPU}, {1e3 * took / STEPS:.2f} ms and {kernels / STEPS:.0f} kernels a step")
print(f"the GPU computes:         {busy(box.events, 'cuda:0') / took:.0%} of the time")
print(f"the host launches:        {of_host['enqueue'] / took:.0%} of the time")
print(f"the host waits:           {of_host['wait'] / took:.0%} of the time")
print(f"copies from or to the host: {len(box.copies)}")
print(f"memory of the GPU:        at most {peak} of {whole} MiB reserved")
if sys.argv[1:]:
    first, last = starts[TRACED[0] - 1], starts[TRACED[1]]
    write_chrome_trace([e for e in box.events if first <= e.start < last], sys.argv[1])
