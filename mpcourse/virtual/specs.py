"""Published hardware: what a GPU computes, holds and moves, and how fast a link is.

Peaks are the vendors' data-sheet figures. Few programs reach them: `product_efficiency`, `convolution_efficiency` and
`memory_efficiency` are the parts of a peak that operations are assumed to reach. They are what others measured (the
table names the source), and 0.8 where we know of no measurement. `fitted` replaces them by measurements on one GPU.
"""

import difflib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from mpcourse.common.errors import UserError

if TYPE_CHECKING:
    import torch

MiB = 2**20


@dataclass(frozen=True)
class GPU:
    """A GPU as the virtual clock and ledger see it.

    name: as in the table.
    flops: peak of float32, in FLOP/s.
    bandwidth: of its memory, bytes/s.
    memory: bytes.
    float64, float16, tf32: peaks in FLOP/s, with tensor cores where the GPU has them; 0: it has none.
    int8: peak in operations/s; 0: it has none.
    host_link: name of the link to its host.
    capability: CUDA's compute capability.
    product_efficiency: part of a peak that matrix products reach, above 1 where a card boosts above its data sheet.
    float32_efficiency: likewise without tensor cores; 0: as with them.
    convolution_efficiency: part of a peak that convolutions reach on tensor cores (without them they reach as much as
    products).
    memory_efficiency: part of the memory's bandwidth that operations reach.
    launch: seconds of the host for one operation (Python, dispatcher and driver).
    kernel: least seconds of one operation on the device.
    context: bytes that the driver and the CUDA libraries take before the first tensor.
    workspace: bytes of cuBLAS's workspace, which the caching allocator holds from a thread's first matrix product on.
    multiprocessors: their number; 0: not in the table.
    peers: whether two GPUs of this kind copy to each other over PCIe. False: only over an NVLink bridge, else through
    the host.
    by_shape: whether small and thin products reach less than large ones (products.py). False: all reach
    `product_efficiency`, as tables and lessons before the planner assume.
    """

    name: str
    flops: float
    bandwidth: float
    memory: int
    float64: float
    float16: float
    tf32: float = 0.0
    int8: float = 0.0
    host_link: str = "PCIe 3.0 x16"
    capability: tuple[int, int] = (8, 0)
    product_efficiency: float = 0.8
    float32_efficiency: float = 0.0
    convolution_efficiency: float = 0.77
    memory_efficiency: float = 0.8
    launch: float = 8e-6
    kernel: float = 3e-6
    context: int = 450 * MiB
    workspace: int = 8 * MiB + 128 * 1024
    multiprocessors: int = 0
    peers: bool = True
    by_shape: bool = False

    def peak(self, dtype: "torch.dtype", tf32: bool = False) -> tuple[float, bool]:
        """Return the FLOP/s of matrix products, and whether tensor cores compute them.

        dtype: of the factors.
        tf32: whether float32 may be rounded to it.

        In torch, products in half precision add up in float32; so without tensor cores they are as fast as float32's.
        """
        import torch  # callers have it; virtual ranks, which take links from here, start without it

        peaks = {torch.float64: self.float64, torch.complex128: self.float64}
        if self.capability >= (7, 0):
            peaks[torch.float16] = self.float16
        if self.capability >= (8, 0):
            peaks[torch.bfloat16] = self.float16
            if tf32:
                peaks[torch.float32] = peaks[torch.complex64] = self.tf32
        if dtype.itemsize == 1 and dtype != torch.bool:  # float8 is as fast as int8
            peaks[dtype] = self.int8
        rate = peaks.get(dtype) or self.flops
        return rate, rate > self.flops and dtype not in (torch.float64, torch.complex128)

    def rate(self, dtype: "torch.dtype", convolution: bool = False, tf32: bool = False) -> float:
        """Return the FLOP/s that an operation is assumed to reach.

        dtype: of its inputs.
        convolution: whether it is one. False: a matrix product.
        tf32: whether float32 may be rounded to it.
        """
        peak, tensor_cores = self.peak(dtype, tf32)
        if not tensor_cores:
            return peak * (self.float32_efficiency or self.product_efficiency)
        return peak * (self.convolution_efficiency if convolution else self.product_efficiency)

    def fitted(self, runs: Iterable[tuple[float, float, int, float]]) -> "GPU":
        """Return this GPU with the efficiencies, and the cost of an operation, that explain measured runs best.

        runs: of programs long enough for the device to be the bottleneck, (FLOPs, bytes, operations, seconds) each; at
        least three that differ in kind. Least squares on seconds = FLOPs / (a peak) + bytes / (b peak) + operations c,
        relative to each run's seconds, with the peak of float32. Convolutions are assumed to be as fast as products.
        Raises UserError where the runs do not determine a, b and c.
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
        reached = dict.fromkeys(("product_efficiency", "float32_efficiency", "convolution_efficiency"), 1 / compute)
        return replace(self, **reached, memory_efficiency=1 / memory, kernel=kernel)


@dataclass(frozen=True)
class Link:
    """A connection whose two directions work at once.

    name: as in the table.
    bandwidth: bytes/s in one direction.
    latency: seconds per copy.
    pageable: part of the bandwidth that copies reach between a GPU and host memory that is not pinned, which the driver
    first copies to a pinned buffer of its own.
    """

    name: str
    bandwidth: float
    latency: float = 10e-6
    pageable: float = 1.0

    def seconds(self, nbytes: float, pageable: bool = False) -> float:
        """Return the time of one copy (Hockney's model: latency + bytes / bandwidth).

        nbytes: size of the copy.
        pageable: whether the host's memory is not pinned.
        """
        return self.latency + nbytes / (self.bandwidth * (self.pageable if pageable else 1.0))


@dataclass(frozen=True)
class Host:
    """The processor that enqueues work and computes what stays on "cpu".

    flops: FLOP/s.
    bandwidth: bytes/s.
    call: seconds of one call.
    """

    flops: float = 1e11
    bandwidth: float = 2e10
    call: float = 2e-6


# TFLOP/s (TOP/s) without sparsity, GB/s and MiB of NVIDIA's data sheets (P40, P100, V100, T4, A10, A100 of 2021, L4,
# L40S, H100, H200, HGX B200), product pages (GTX) and architecture white papers (GA102: RTX 3090; Ada: RTX 4090; where
# a sheet has no float64, the chip's 1/32 or 1/64 of float32). float64 and float16 are those of tensor cores where there
# are any, with sums in float32. Where ECC or the driver takes a part of the memory, MiB is what nvidia-smi shows.
# Then CUDA's compute capability, PCIe's generation, and the part of the peak that products reach at best, with its
# source. d: DeepBench (baidu-research/DeepBench, results/train, the fastest product; P40: of a TITAN Xp, which has its
# chip; a card that boosts above the clock of its sheet: 1). m: Maximum Achievable Matmul FLOPS (stas00/ml-engineering,
# in bfloat16; there an H200 is as fast as an H100). t: zzc0721/torch-performance-test-data, in float16. "": no
# measurement is known to us; 0.8 is what the newer ones reach.
# fmt: off
_GPUS: list[tuple] = [
    # name                    fp32   tf32   fp16   int8    fp64   GB/s  MiB     capable     PCIe  products
    ("GTX TITAN X (Maxwell)",  6.6,   0,     6.6,   0,      0.206, 336,  12288,  (5, 2),     3,    1.0,     "d"),
    ("GTX 1080",               8.9,   0,     0.139, 35.5,   0.277, 320,  8192,   (6, 1),     3,    0.8,     ""),
    ("GTX 1080 Ti",            11.3,  0,     0.177, 45.4,   0.354, 484,  11264,  (6, 1),     3,    1.0,     "d"),
    ("Tesla P40",              11.8,  0,     0.183, 47,     0.367, 346,  22919,  (6, 1),     3,    0.94,    "d"),
    ("Tesla P100-SXM2",        10.6,  0,     21.2,  0,      5.3,   732,  16384,  (6, 0),     3,    0.86,    "d"),
    ("Tesla V100-SXM2",        15.7,  0,     125,   62.8,   7.8,   900,  32768,  (7, 0),     3,    0.90,    "d"),
    ("Tesla V100-SXM2-16GB",   15.7,  0,     125,   62.8,   7.8,   900,  16384,  (7, 0),     3,    0.90,    "d"),
    ("Tesla T4",               8.1,   0,     65,    130,    0.254, 320,  15360,  (7, 5),     3,    0.72,    "d"),
    ("RTX 3090",               35.6,  35.6,  71,    284,    0.556, 936,  24576,  (8, 6),     4,    1.07,    "t"),
    ("A10",                    31.2,  62.5,  125,   250,    0.488, 600,  23040,  (8, 6),     4,    0.8,     ""),
    ("A100-SXM4",              19.5,  156,   312,   624,    19.5,  2039, 81920,  (8, 0),     4,    0.87,    "m"),
    ("A100-SXM4-40GB",         19.5,  156,   312,   624,    19.5,  1555, 40960,  (8, 0),     4,    0.87,    "m"),
    ("RTX 4090",               82.6,  82.6,  165.2, 660.6,  1.29,  1008, 24576,  (8, 9),     4,    1.0,     "t"),
    ("L4",                     30.3,  60,    121,   242.5,  0.473, 300,  23040,  (8, 9),     4,    0.58,    "t"),
    ("L40S",                   91.6,  183,   362,   733,    1.43,  864,  46080,  (8, 9),     4,    0.74,    "t"),
    ("H100-PCIe",              51,    378,   756,   1513,   51,    2000, 81559,  (9, 0),     5,    0.8,     ""),
    ("H100-SXM",               67,    494,   989,   1979,   67,    3350, 81559,  (9, 0),     5,    0.80,    "m"),
    ("H200-SXM",               67,    494,   989,   1979,   67,    4800, 143771, (9, 0),     5,    0.80,    "m"),
    ("B200-SXM",               75,    1100,  2250,  4500,   37,    7700, 183359, (10, 0),    5,    0.78,    "m"),
]
# fmt: on

# Products of float32 without tensor cores where they reach less: 24.7, 54, 15.4 and 46.9 TFLOP/s in the same data (t).
_FLOAT32 = {"RTX 3090": 0.69, "RTX 4090": 0.65, "L4": 0.51, "L40S": 0.51}
# The part of the memory's bandwidth that a multiplication of long vectors reaches (mli/transformers-benchmarks; an RTX
# 3090 is assumed to be like a 3090 Ti, which has the same kind of memory).
_MEMORY = {
    "Tesla V100-SXM2": 0.87,
    "Tesla V100-SXM2-16GB": 0.87,
    "A100-SXM4": 0.79,
    "A100-SXM4-40GB": 0.79,
    "RTX 3090": 0.92,
    "RTX 4090": 0.93,
}
# Convolutions on tensor cores: the best of DeepBench in mixed precision, 95.9 TFLOP/s of 125 on a V100 and 42.2 of 65
# on a T4. For later GPUs no measurements of single convolutions have been published; they are assumed to fall as far
# behind products as on a V100.
_CONVOLUTIONS = {"Tesla V100-SXM2": 0.77, "Tesla V100-SXM2-16GB": 0.77, "Tesla T4": 0.65}
_BEHIND = 0.77 / 0.90
# Streaming multiprocessors, from NVIDIA's architecture white papers.
_MULTIPROCESSORS = {
    "GTX TITAN X (Maxwell)": 24,
    "GTX 1080": 20,
    "GTX 1080 Ti": 28,
    "Tesla P40": 30,
    "Tesla P100-SXM2": 56,
    "Tesla T4": 40,
    "RTX 3090": 82,
    "A10": 72,
    "RTX 4090": 128,
    "L4": 58,
    "L40S": 142,
    "Tesla V100-SXM2": 80,
    "Tesla V100-SXM2-16GB": 80,
    "A100-SXM4": 108,
    "A100-SXM4-40GB": 108,
    "H100-PCIe": 114,
    "H100-SXM": 132,
    "H200-SXM": 132,
    "B200-SXM": 148,
}


def _gpu(name: str, *row: Any) -> GPU:
    fp32, tf32, fp16, int8, fp64, bandwidth, memory, capability, pcie, products, _ = row
    return GPU(
        name, fp32 * 1e12, bandwidth * 1e9, memory * MiB, fp64 * 1e12, fp16 * 1e12, tf32 * 1e12, int8 * 1e12,
        f"PCIe {pcie}.0 x16", capability, products,
        float32_efficiency=_FLOAT32.get(name, 0.0),
        convolution_efficiency=_CONVOLUTIONS.get(name, products * _BEHIND),
        memory_efficiency=_MEMORY.get(name, GPU.memory_efficiency),
        # torch gives cuBLAS more on Hopper and later (c10/cuda, ATen/cuda/CublasHandlePool.cpp).
        workspace=32 * MiB if capability >= (9, 0) else GPU.workspace,
        multiprocessors=_MULTIPROCESSORS.get(name, 0),
        # GeForce from Turing on: an RTX 2080 Ti and a 3090 need a bridge (tensorflow issue 24677, nccl issue 1127), and
        # for a 4090 there is none (nccl-tests issue 117). Pascal and older cards, and data-centre cards, have peers.
        peers=not name.startswith("RTX "),
    )  # fmt: skip


GPUS = {row[0]: _gpu(*row) for row in _GPUS}

# GB/s in one direction. PCIe: what a copy between pinned memory and a GPU reaches of 15.75, 31.5 and 63. NVLink: the
# links' own rate. InfiniBand: the rate of the data, after the line code. Ethernet: what TCP leaves of the line's rate.
# Through the host: two GPUs without peer access. p2pBandwidthLatencyTest shows 6.3 GB/s between two RTX 4090 (reported
# to tinygrad/open-gpu-kernel-modules), users of RTX 3090 measured 5 to 6; some servers reach 20 (nccl issue 814).
THROUGH_HOST = "through the host"
# Copies to and from memory that is not pinned: 5 to 6 of 11 to 12 GB/s on PCIe 3.0 (rapidsai/dask-cuda, pull request
# 98), 10.0 and 10.8 of 25.8 on an A100's PCIe 4.0, 12.9 of 23.9 on an RTX 4090's (NVlabs/cuda-oxide, pull request 976),
# by bandwidthTest or a similar program; 2.3 of 5.8 to 5.4 of 6.2 on PCIe 2.0 (Harris 2012, How to Optimize Data
# Transfers in CUDA C/C++).
PAGEABLE = 0.45
LINKS = {
    name: Link(name, gb * 1e9, latency, PAGEABLE if name.startswith("PCIe") else 1.0)
    for name, gb, latency in [
        ("PCIe 3.0 x16", 12, 10e-6),
        ("PCIe 4.0 x16", 24, 10e-6),
        ("PCIe 5.0 x16", 48, 10e-6),
        (THROUGH_HOST, 6, 20e-6),
        ("NVLink 1", 20, 8e-6),  # one of a P100's four, which joins two GPUs of a DGX-1
        ("NVLink 2", 150, 8e-6),  # from here on all of a GPU's links, over switches: 6 x 25 of a V100's in a DGX-2
        ("NVLink 3", 300, 5e-6),  # 12 x 25: A100
        ("NVLink 4", 450, 5e-6),  # 18 x 25: H100 and H200
        ("NVLink 5", 900, 5e-6),  # 18 x 50: B200
        ("1 GbE", 0.118, 50e-6),
        ("10 GbE", 1.18, 30e-6),
        ("25 GbE", 2.95, 30e-6),
        ("100 GbE", 11.8, 30e-6),
        ("InfiniBand FDR", 6.8, 2e-6),
        ("InfiniBand EDR", 12.5, 1.5e-6),
        ("InfiniBand HDR", 25, 1.5e-6),
        ("InfiniBand NDR", 50, 1.5e-6),
        ("RoCE 400", 50, 3e-6),  # RDMA over Ethernet of 400 Gbit/s, one card per GPU: Llama 3's clusters
    ]
}


def find_gpu(spec: str | GPU) -> GPU:
    """Return the GPU of a name, or of the beginning of one; a GPU is returned as it is.

    spec: a name of GPUS, or a GPU.
    Raises UserError with the list of names for an unknown name.
    """
    return spec if isinstance(spec, GPU) else _find(spec, GPUS, "GPU")


def find_link(link: str | Link) -> Link:
    """Return the link of a name, or of the beginning of one; a Link is returned as it is.

    link: a name of LINKS, or a Link.
    Raises UserError with the list of names for an unknown name.
    """
    return link if isinstance(link, Link) else _find(link, LINKS, "link")


def link_between(gpus: Iterable[GPU], link: str | Link | None) -> Link:
    """Return the link over which GPUs of one machine copy to each other.

    gpus: all of them.
    link: a name of LINKS, or a Link; None: "NVLink 1", or through the host if one of the GPUs has no peers. In that
    case PCIe also means through the host.
    Raises UserError with the list of names for an unknown name.
    """
    peers = all(gpu.peers for gpu in gpus)
    if link is None:
        return LINKS["NVLink 1" if peers else THROUGH_HOST]
    found = find_link(link)
    return LINKS[THROUGH_HOST] if isinstance(link, str) and found.name.startswith("PCIe") and not peers else found


def _find(name: str, table: dict[str, Any], noun: str) -> Any:
    """Return the entry of that name, or of the shortest name that begins so if all others that do extend it."""
    begun = sorted((known for known in table if known.startswith(str(name)) and name), key=len)
    if name not in table and begun and all(known.startswith(begun[0]) for known in begun):
        name = begun[0]  # "A100" means the A100-SXM4; "H100" may mean two cards
    if name not in table:
        near = [n for n in table if n.lower().startswith(str(name).lower())]
        near = near or difflib.get_close_matches(str(name), table, 1, 0.5)
        meant = f" (did you mean {near[0]!r}?)" if near else ""
        raise UserError(
            f"unknown {noun} {name!r}{meant}: choose one of {', '.join(map(repr, table))}, or pass a {noun}"
        )
    return table[name]
