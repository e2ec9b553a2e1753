"""The study that lesson 07 shows: what is trained, and for how long. lessons/studies/diloco.py trains it."""

from mpcourse.models.gpt import Shape

SHAPE = Shape(vocabulary=96, length=32, width=64, heads=4, layers=2)  # 114 432 parameters
REPLICAS, SEEDS = 8, 8
SEQUENCES = 8  # in a batch of one replica
BEFORE, STEPS, LOOK = 500, 1000, 100  # steps of one replica alone, then of each way, and between two validations
RATE, WEIGHT_DECAY = 1e-3, 0.1  # of AdamW, the inner optimizer; the rate falls to a tenth along a cosine
OUTER_RATE, OUTER_MOMENTUM = 0.7, 0.9  # the paper's, of SGD with Nesterov's momentum

PERIODS = (1, 5, 10, 20, 50, 100, 250, 500)  # H: inner steps between two outer steps
OUTERS = {"DiLoCo": True, "averaging": False}  # whether there is an outer optimizer; else parameters are averaged
ALONE, TOGETHER, LONGER = "one replica", "8 times the batch", "8 times the steps"
