"""The study of gradient compression that lesson 07's appendix shows. lessons/studies/compression.py trains it."""

from collections.abc import Callable
from functools import partial

from mpcourse.common.comm import Comm
from mpcourse.data_parallel import Communicator, create_communicator
from mpcourse.data_parallel.compression import Compression, PowerSGD, Signs

REPLICAS, SEEDS = 8, 20
WIDTHS = (64, 128, 64, 10)  # of an MLP for handwritten digits, 17 226 parameters
BATCH, STEPS = 16, 160  # examples of a replica's batch; steps of a training
RATES = (0.2, 0.4, 0.8)  # of plain SGD

WAYS: dict[str, Callable[[Comm], Communicator | Compression]] = {
    "all-reduce": lambda comm: create_communicator("flat", comm),
    **{f"PowerSGD, rank {r}": partial(PowerSGD, columns=r) for r in (1, 2, 3, 4)},
    "PowerSGD, rank 1, no feedback": partial(PowerSGD, feedback=False),
    "signs": Signs,
    "signs, no feedback": partial(Signs, feedback=False),
}
