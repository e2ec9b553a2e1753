"""The random numbers of a check.

Each run draws others, so that an answer which only fits one example fails. Where SEED is set in the environment, each
run draws the same, so that a run can be repeated.
"""

import os
import random
import sys

SEED = "MPCOURSE_CHECK_SEED"


def drawing() -> random.Random:
    """Make a generator for one check, from SEED where it is set."""
    seed = os.environ.get(SEED)
    return random.SystemRandom() if seed is None else random.Random(seed)


def seed_torch() -> None:
    """Seed torch, if this process has imported it: one that was forked has the generator of its parent."""
    if torch := sys.modules.get("torch"):
        # Not torch.manual_seed, which also writes down where it was called, for GPUs to be seeded when they are used:
        # that reads so many objects that a process which was just forked gets 5 MB of memory of its own.
        torch.default_generator.manual_seed(drawing().getrandbits(60))
