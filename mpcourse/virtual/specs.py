"""Published hardware: what a GPU computes, holds and moves, and how fast a link is.

Peaks are the vendors' data-sheet figures. No program reaches them: `compute_efficiency` and `memory_efficiency` say
which part of a peak an operation is taken to reach. They are assumptions, the same for all GPUs, until `fitted`
replaces them by what was measured on one.
"""

import difflib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from mpcourse.errors import UserError

if TYPE_CHECKING:
    import torch

MiB, GiB = 2**20, 2**30


@dataclass(frozen=True)
class GPU:
    """A GPU as the virtual clock and ledger see it.

    flops: peak of float32, in FLOP/s; float64, float16 (with tensor cores where there are some) and tf32 (which cuDNN's
    convolutions use for float32 by default; 0: it has none) likewise. bandwidth: of its memory, bytes/s. memory: bytes.
    launch: seconds of the host for one operation (Python, dispatcher and driver). kernel: least seconds of one
    operation on the device. context: bytes that the driver and the CUDA libraries take before the first tensor.
    workspace: bytes of cuBLAS's workspace, which the caching allocator holds from a thread's first matrix product on.
    """

    name: str
    flops: float
    bandwidth: float
    memory: int
    float64: float
    float16: float
    tf32: float = 0.0
    compute_efficiency: float = 0.7
    memory_efficiency: float = 0.8
    launch: float = 8e-6
    kernel: float = 3e-6
    context: int = 450 * MiB
    workspace: int = 8 * MiB + 128 * 1024

    def rate(self, dtype: "torch.dtype", convolution: bool = False) -> float:
        """FLOP/s that an operation on `dtype` is taken to reach."""
        import torch  # whoever asks has it; virtual ranks, which take links from here, start without

        if dtype == torch.float64:
            peak = self.float64
        elif dtype in (torch.float16, torch.bfloat16):
            peak = self.float16
        else:
            peak = self.tf32 if convolution and self.tf32 else self.flops
        return peak * self.compute_efficiency

    def fitted(self, runs: Iterable[tuple[float, float, int, float]]) -> "GPU":
        """This GPU with the efficiencies, and the cost of an operation, that explain measured runs best.

        runs: of programs long enough for the device to be the bottleneck, (FLOPs, bytes, operations, seconds) each; at
        least three that differ in kind. Least squares on seconds = FLOPs / (a peak) + bytes / (b peak) + operations c,
        relative to each run's seconds. Raises UserError where the runs do not determine a, b and c.
        """
        import torch

        rows = [(f / self.flops / s, b / self.bandwidth / s, n / s) for f, b, n, s in runs]
        matrix = torch.tensor(rows, dtype=torch.float64).reshape(-1, 3)
        scale = matrix.norm(dim=0).clamp_min(1e-300)
        if torch.linalg.matrix_rank(matrix / scale, rtol=1e-6) < 3:
            raise UserError("fitting a GPU needs three runs or more that differ in FLOPs, bytes and operations")
        x = torch.linalg.lstsq(matrix / scale, torch.ones(len(matrix), 1, dtype=torch.float64)).solution[:, 0] / scale
        compute, memory, kernel = x.tolist()
        if not (compute > 0 and memory > 0 and kernel >= 0):
            raise UserError(f"these runs fit no GPU: 1/efficiency {compute:.3g} and {memory:.3g}, {kernel:.3g} s an op")
        return replace(self, compute_efficiency=1 / compute, memory_efficiency=1 / memory, kernel=kernel)


@dataclass(frozen=True)
class Link:
    """A connection. bandwidth: bytes/s in one direction; both directions work at once. latency: seconds a copy."""

    name: str
    bandwidth: float
    latency: float = 10e-6

    def seconds(self, nbytes: float) -> float:
        """Time of one copy of `nbytes` bytes (Hockney's model: latency + bytes / bandwidth)."""
        return self.latency + nbytes / self.bandwidth


@dataclass(frozen=True)
class Host:
    """The processor that enqueues work and computes what stays on "cpu". flops in FLOP/s, bandwidth in bytes/s."""

    flops: float = 1e11
    bandwidth: float = 2e10
    call: float = 2e-6


# Data sheets: float32, float64 and float16 TFLOP/s, memory GB/s and GiB, TF32 TFLOP/s (0: none).
_GPUS: list[tuple[str, tuple[float, ...]]] = [
    ("GTX TITAN X (Maxwell)", (6.6, 0.206, 6.6, 336, 12, 0)),
    ("GTX 1080", (8.9, 0.277, 0.139, 320, 8, 0)),
    ("GTX 1080 Ti", (11.3, 0.354, 0.177, 484, 11, 0)),
    ("Tesla P40", (11.8, 0.367, 0.183, 346, 24, 0)),
    ("Tesla P100-SXM2", (10.6, 5.3, 21.2, 732, 16, 0)),
    ("Tesla V100-SXM2", (15.7, 7.8, 125, 900, 32, 0)),
    ("A100-SXM4", (19.5, 9.7, 312, 2039, 80, 156)),
    ("H200-SXM", (67, 34, 989, 4800, 141, 494)),
]
GPUS = {
    name: GPU(name, f32 * 1e12, gb * 1e9, int(gib) * GiB, f64 * 1e12, f16 * 1e12, tf32 * 1e12)
    for name, (f32, f64, f16, gb, gib, tf32) in _GPUS
}
GPUS["H200-SXM"] = replace(GPUS["H200-SXM"], workspace=32 * MiB)  # torch gives cuBLAS more on Hopper
LINKS = {
    name: Link(name, gb * 1e9, latency)
    for name, gb, latency in [
        ("PCIe 3.0 x16", 12, 10e-6),
        ("NVLink 1", 20, 8e-6),  # one of a P100's four
        ("NVLink 4", 450, 5e-6),
        ("1 GbE", 0.118, 50e-6),
        ("10 GbE", 1.18, 30e-6),
        ("InfiniBand FDR", 6.8, 2e-6),
        ("InfiniBand HDR", 25, 1.5e-6),
    ]
}


def find_gpu(spec: str | GPU) -> GPU:
    """The GPU called `spec`; a GPU passes through. Raises UserError with the list of names for an unknown one."""
    return spec if isinstance(spec, GPU) else _find(spec, GPUS, "GPU")


def find_link(link: str | Link) -> Link:
    """The link called `link`; a Link passes through. Raises UserError with the list of names for an unknown one."""
    return link if isinstance(link, Link) else _find(link, LINKS, "link")


def _find(name: str, table: dict[str, Any], noun: str) -> Any:
    if name not in table:
        near = difflib.get_close_matches(str(name), table, 1, 0.5)
        meant = f" (did you mean {near[0]!r}?)" if near else ""
        raise UserError(
            f"unknown {noun} {name!r}{meant}: choose one of {', '.join(map(repr, table))}, or pass a {noun}"
        )
    return table[name]
