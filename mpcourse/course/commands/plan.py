"""`mpcourse plan`: how to train a person's own model on many GPUs."""

import argparse
import json

from mpcourse.common.errors import UserError
from mpcourse.plan import Asked, Input, Machines, plan
from mpcourse.plan.show import lacking, show
from mpcourse.predict import find_maker


def run(options: argparse.Namespace) -> int:
    """Run `mpcourse plan`. Returns exit status 0, or 1 where nothing fits."""
    if options.length is not None and options.input is not None:
        raise UserError("--length is for tokens and --input for floats: an example is one of them")
    shape = tuple(options.input or (2048 if options.length is None else options.length,))
    if min(shape) < 1:
        raise UserError(f"an example of {'x'.join(map(str, shape))} has nothing in it")
    if min(options.chunks) < 1:
        raise UserError(f"--chunks {' '.join(map(str, options.chunks))}: a stage has 1 part or more")
    machines = Machines.named(
        options.gpus, options.gpu, min(options.gpus_per_node, options.gpus), options.inside, options.between
    )
    asked = Asked(options.data, options.pipeline, options.tensor, options.chunks)
    plans = plan(find_maker(options.maker), machines, options.batch, Input(shape, options.input is None), asked)
    if options.json:
        record = {"model": options.maker, "gpus": options.gpus, "gpu": machines.gpu.name} | plans.as_dict()
        print(json.dumps(record | ({"missing": lacking(plans, machines)} if plans.smallest else {}), indent=1))
    else:
        show(plans, machines)
    return 1 if plans.smallest else 0
