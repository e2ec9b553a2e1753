"""Training with large batches: learning rates, optimizers and norms for them, and how large a batch is worth its cost.

Post-local SGD (Lin et al. 2020) is `mpcourse.data_parallel.LocalOptimizer` with `begin`.

    import torch
    from mpcourse.large_batch import LARS

    model = torch.nn.Linear(4, 1)
    optimizer = LARS(model.parameters(), lr=1.0)  # each layer has a rate of its own
    model(torch.randn(512, 4)).square().mean().backward()
    optimizer.step()
"""

from mpcourse.large_batch.ghost_batch_norm import GhostBatchNorm
from mpcourse.large_batch.lamb import LAMB
from mpcourse.large_batch.lars import LARS, trust_ratio
from mpcourse.large_batch.noise_scale import NoiseScale, RankNoise, estimate
from mpcourse.large_batch.rmsprop_warmup import RMSpropWarmup, sgd_share
from mpcourse.large_batch.schedules import (
    SCALINGS,
    Schedule,
    cosine_decay,
    linear_scaling,
    no_scaling,
    scheduler,
    sqrt_scaling,
    step_decay,
    warmup,
)

__all__ = [
    "LAMB",
    "LARS",
    "SCALINGS",
    "GhostBatchNorm",
    "NoiseScale",
    "RMSpropWarmup",
    "RankNoise",
    "Schedule",
    "cosine_decay",
    "estimate",
    "linear_scaling",
    "no_scaling",
    "scheduler",
    "sgd_share",
    "sqrt_scaling",
    "step_decay",
    "trust_ratio",
    "warmup",
]
