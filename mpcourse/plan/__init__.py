"""How to train a user's own model on many GPUs: which grid, micro-batch, checkpoints and ZeRO stage, before renting.

A layer's cost is that of its own code on a virtual GPU (layers.py), with the tensor axis's sums counted (counting.py).
Layers make stages (stages.py), and a replayed pipeline gives their time (timing.py). Links and nodes are in
machines.py, and what a training system adds is in software.py. What a candidate holds and takes is in price.py, and the
search in search.py.

    from functools import partial
    from mpcourse.grid import Shape, transformer
    from mpcourse.plan import Input, Machines, plan
    from mpcourse.plan.show import show

    make = partial(transformer, Shape(vocabulary=1000, width=64, layers=2, heads=4, length=16))
    machines = Machines.named(8, "A100-SXM4")
    show(plan(make, machines, batch=64, example=Input((16,), tokens=True)), machines)

`mpcourse plan model.py:make_model --gpus 8 --gpu A100-SXM4 --batch 64` does the same.
"""

from mpcourse.plan.candidate import Candidate, Plan, Seconds
from mpcourse.plan.cost import LayerCost
from mpcourse.plan.counting import CountingComm
from mpcourse.plan.layers import Layers
from mpcourse.plan.machines import Machines
from mpcourse.plan.price import Pricing
from mpcourse.plan.search import Asked, Plans, plan, search, why
from mpcourse.plan.software import MEGATRON_2021, Software
from mpcourse.predict.inputs import Input, Inputs

__all__ = [
    "MEGATRON_2021",
    "Asked",
    "Candidate",
    "CountingComm",
    "Input",
    "Inputs",
    "LayerCost",
    "Layers",
    "Machines",
    "Plan",
    "Plans",
    "Pricing",
    "Seconds",
    "Software",
    "plan",
    "search",
    "why",
]
