"""`mpcourse plan`: how to train a person's own model on many GPUs."""

import argparse
import json

from mpcourse.common.errors import UserError
from mpcourse.plan import Asked, Input, Inputs, Machines, plan
from mpcourse.plan.candidate import RECOMPUTATIONS
from mpcourse.plan.configuration import configured, read
from mpcourse.plan.layers import Make
from mpcourse.plan.show import lacking, miss, show
from mpcourse.predict import beside, find_maker
from mpcourse.zero.model_states import STAGES


def run(options: argparse.Namespace) -> int:
    """Run `mpcourse plan`. Returns exit status 0, or 1 where nothing fits."""
    if (options.maker is None) == (options.model is None):
        raise UserError("give FILE:FUNCTION, which makes your model, or --model with a name or a config.json")
    if options.maker is not None and options.loss is not None:
        raise UserError("--loss is for --model: a model of your own computes its own loss, or takes the usual one")
    if options.maker is not None and options.lora:
        raise UserError("--lora is for --model: in a model of your own, freeze parameters and add adapters yourself")
    if options.maker is not None and options.context is not None:
        raise UserError("--context is for --model: a model of your own would have to gather keys and values itself")
    if options.expert is not None:
        _check_experts(options)
    if sum(given is not None for given in (options.length, options.input, options.inputs)) > 1:
        raise UserError("--length is for tokens, --input for floats, --inputs for what a function makes: give one")
    make, example = _named(options) if options.maker is None else (find_maker(options.maker), _example(options))
    if min(options.chunks) < 1:
        raise UserError(f"--chunks {' '.join(map(str, options.chunks))}: a stage has 1 part or more")
    machines = Machines.named(
        options.gpus, options.gpu, min(options.gpus_per_node, options.gpus), options.inside, options.between
    )
    asked = _asked(options)
    plans = plan(
        make, machines, options.batch, example, asked,
        blocks=options.blocks, precision=options.precision, optimizer=options.optimizer,
        gradient=_gradient(options.gradients), context=1 if options.context is None else options.context,
        expert=1 if options.expert is None else options.expert,
    )  # fmt: skip
    if options.json:
        record = {
            "model": options.maker or options.model,
            "gpus": options.gpus,
            "gpu": machines.gpu.name,
            "published / predicted": vars(miss(plans, machines)),
        } | plans.as_dict()
        print(json.dumps(record | ({"missing": lacking(plans, machines)} if plans.smallest else {}), indent=1))
    else:
        show(plans, machines)
    return 1 if plans.smallest else 0


def _check_experts(options: argparse.Namespace) -> None:
    if options.maker is not None:
        raise UserError("--expert is for --model: a model of your own would have to send tokens to experts itself")
    experts = read(options.model).experts
    if not experts:
        raise UserError(f"--expert {options.expert}: {options.model} has no experts")
    if options.expert > 0 and experts % options.expert:
        raise UserError(f"--expert {options.expert} does not divide the {experts} experts of {options.model}")
    if options.lora:
        raise UserError("--expert and --lora: adapters are not known along the expert axis")


def _gradient(name: str | None) -> int | None:
    sizes = {None: None, "half": 2, "float32": 4}
    if name not in sizes:
        raise UserError(f"--gradients {name}: choose half or float32")
    return sizes[name]


def _asked(options: argparse.Namespace) -> Asked:
    if options.recompute not in (None, *RECOMPUTATIONS):
        raise UserError(f"--recompute {options.recompute}: choose from {', '.join(RECOMPUTATIONS)}")
    if options.zero not in (None, *STAGES):
        raise UserError(f"--zero {options.zero}: ZeRO has stages 0 to 3")
    if options.microbatch is not None and options.microbatch < 1:
        raise UserError(f"--microbatch {options.microbatch}: a micro-batch has 1 example or more")
    return Asked(
        options.data, options.pipeline, options.tensor, options.chunks,
        RECOMPUTATIONS if options.recompute is None else (options.recompute,),
        STAGES if options.zero is None else (options.zero,),
        None if options.microbatch is None else (options.microbatch,), options.offload,
    )  # fmt: skip


def _named(options: argparse.Namespace) -> tuple[Make, Input]:
    if options.input is not None or options.inputs is not None:
        raise UserError("--model takes tokens: give --length")
    positions = read(options.model).positions
    length = options.length or min(2048, positions or 2048)
    if positions and length > positions:
        raise UserError(f"--length {length}: {options.model} has {positions} positions")
    rank, *layers = options.lora or ["0"]
    if not rank.isdecimal():
        raise UserError(f"--lora {rank}: give a rank, a whole number, and then names of layers")
    return configured(options.model, options.loss or "float32", int(rank), layers), Input((length,), True)


def _example(options: argparse.Namespace) -> Input | Inputs:
    if options.inputs is not None:
        return Inputs(beside(options.maker, options.inputs))
    shape = tuple(options.input or (2048 if options.length is None else options.length,))
    if min(shape) < 1:
        raise UserError(f"an example of {'x'.join(map(str, shape))} has nothing in it")
    return Input(shape, options.input is None)
