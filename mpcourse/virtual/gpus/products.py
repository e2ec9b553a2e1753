"""The time of a matrix product by its shape: tensor cores work on tiles, and tiles run in waves.

A product (m, k) x (k, n) is cut into tiles of the result, one for each multiprocessor at a time. A tile that extends
beyond the edge costs as much as a whole one, and a last wave that occupies few multiprocessors as much as a full one
(NVIDIA, Matrix Multiplication Background User's Guide: tile and wave quantization). Before a tile's first sum its
operands must arrive, which a long inner dimension hides. cuBLAS picks the best of several tiles, and cuts the inner
dimension where there are too few tiles; so does this module.

The constants are fitted to A100 products of linear layers (`mpcourse.data.published_plans.A100_PRODUCTS`). They also
hold for products that were not fitted, for an H100's with its own number of multiprocessors and peak, and for
convolutions as products (implicit GEMM): DeepBench's forward kernels on a V100's tensor cores (results/train) take 1.06
times as long as here, 9 of 10 of those above a GFLOP between 0.9 and 1.3 times; backward kernels 1.2 times.
"""

import math
from functools import lru_cache
from typing import Any

from mpcourse.virtual.specs import GPU

# Rows and columns of a tile, and the part of the best rate that it reaches: small ones read more for each FLOP.
TILES = ((256, 128, 1.0), (128, 256, 1.0), (128, 128, 0.97), (128, 64, 0.92), (64, 128, 0.92), (64, 64, 0.65))
SPLITS = (1, 2, 4, 8)  # numbers of parts into which the inner dimension may be cut
RAMP = 96  # steps of the inner dimension that the first operands' arrival takes
TYPICAL = 0.92  # part of the best product's rate that well-shaped products reach (`GPU.product_efficiency`)


def shape_of(name: str, args: tuple) -> tuple[int, int, int, int] | None:
    """Return (batch, m, n, k) of an aten product, from its arguments; None for another operation."""
    first = {"mm": 0, "bmm": 0, "addmm": 1, "baddbmm": 1}.get(name)
    if first is None:
        return None
    a: Any = args[first]
    return math.prod(a.shape[:-2]), a.shape[-2], args[first + 1].shape[-1], a.shape[-1]


@lru_cache(4096)
def product_seconds(gpu: GPU, reached: float, batch: int, m: int, n: int, k: int, itemsize: int = 2) -> float:
    """Return the seconds of `batch` products (m, k) x (k, n) on tensor cores, without reading the operands.

    reached: FLOP/s of large products that fill tiles and waves. itemsize: bytes of an element.
    """
    rate = reached / gpu.multiprocessors
    fastest = math.inf
    for rows, columns, part in TILES:
        tiles = batch * math.ceil(m / rows) * math.ceil(n / columns)
        for split in SPLITS:
            waves = math.ceil(tiles * split / gpu.multiprocessors)
            seconds = waves * 2 * rows * columns * (k / split + RAMP) / (rate * part)
            if split > 1:  # partial results are written and read once more
                seconds += 2 * split * batch * m * n * itemsize / (gpu.bandwidth * gpu.memory_efficiency)
            fastest = min(fastest, seconds)
    return fastest
