"""The time of fused attention: its two products, and the softmax between them, which tensor cores cannot compute.

There are three kernels: cuDNN's, FlashAttention-2, and CUTLASS's ("efficient"). Products run at the rate of other
products; FlashAttention-2's on Hopper and later run at less than half of it, because it uses the instructions of an
A100. In addition, each score, of a query and a key, costs some float32 operations. Their number was fitted to published
kernels with long sequences, in TFLOP/s with head dimensions of 64 and 128:

| kernel | GPU | published | ours |
|---|---|---|---|
| FlashAttention-2, forward | A100 | -, 228 | 197, 228 |
| FlashAttention-2, forward and backward | A100 | 176, 203 | 169, 208 |
| CUTLASS, forward and backward | A100 | 75, 98 | 70, 111 |
| FlashAttention-2, forward | H100 | -, 346 | 321, 344 |
| FlashAttention-2, forward and backward | H100 | -, 335 | 296, 328 |
| cuDNN, forward | H100 | 413, 595 | 422, 550 |
| cuDNN, backward | H100 | 433, 516 | 428, 555 |

Sources: Dao 2023, FlashAttention-2 (73 % of the peak forward; the figures of both passes are in the repository's
README: CUTLASS's kernel is called xformers there, and an H100 reaches up to 335 TFLOP/s); Shah et al. 2024,
FlashAttention-3 (FlashAttention-2 reaches 35 % of an H100's peak), figures 5 and 6 (cuDNN). On other GPUs a score is
assumed to need as many operations, at their own peak of float32.
"""

import math
from collections.abc import Sequence

import torch

from mpcourse.virtual.specs import GPU

# Float32 operations for each score in addition to the products, forward and backward.
SOFTMAX = {"flash": (7, 32), "cudnn": (19, 46), "efficient": (55, 130)}
# The part of the rate of other products that FlashAttention-2's reach on Hopper and later.
OLD_INSTRUCTIONS = 0.47
# A short sequence is slower, as if each query saw this many more keys, forward and backward, without and with a causal
# mask: the kernel begins and ends once for each block of queries, and computes a block on the diagonal whole.
MORE_KEYS = ((100, 180), (250, 310))


def attention_seconds(
    gpu: GPU, kernel: str, dtype: torch.dtype, query: Sequence[int], flops: int, *, backward: bool, causal: bool,
    tf32: bool,
) -> float:  # fmt: skip
    """Return the seconds on the device, without a kernel's minimum.

    kernel: a key of SOFTMAX. dtype: of query, key and value. query: its shape, (batch, heads, queries, head
    dimension). flops: of all products, without those of scores under a causal mask.
    """
    width = query[-1]
    scores = flops / ((10 if backward else 4) * width)
    part = OLD_INSTRUCTIONS if kernel == "flash" and gpu.capability >= (9, 0) else 1.0
    seconds = flops / (part * gpu.rate(dtype, tf32=tf32)) + scores * SOFTMAX[kernel][backward] / gpu.flops
    more = MORE_KEYS[backward][causal] * math.prod(query[:-1])
    return seconds * (1 + more / scores)
