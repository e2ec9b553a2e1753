"""All ways to train on given machines, and the best of them."""

import heapq
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from mpcourse.common.errors import UserError
from mpcourse.plan.candidate import MOST, OFFLOADS, PARTS, RECOMPUTATIONS, Candidate, Plan, candidates, divisors
from mpcourse.plan.counting import CountingComm
from mpcourse.plan.layers import Indivisible, Layers
from mpcourse.plan.machines import Machines
from mpcourse.plan.price import Pricing
from mpcourse.plan.software import Software
from mpcourse.plan.states import states
from mpcourse.predict.inputs import Example, Input
from mpcourse.predict.loss import UsualLoss

BEST = 10
WORDS = {
    "compute": "computing",
    "bubble": "bubble",
    "tensor": "messages of the tensor axis",
    "context": "messages of the context axis",
    "expert": "messages of the expert axis",
    "pipeline": "messages of the pipeline",
    "data": "messages between replicas",
    "host": "copies to and from the host",
    "update": "of the optimizer's update",
}
MOST_EXAMPLES = 1_000_000_000
PER_STAGE = 0.01  # by so much of a step each stage of ZeRO must be faster than the one before: no prediction is closer


@dataclass(frozen=True)
class Asked:
    """What may be tried.

    data, pipeline, tensor: a fixed size; None: any.
    chunks: parts per stage, 1 for plain 1F1B.
    recomputations: kinds of recomputation.
    zeros: stages of ZeRO.
    microbatches: examples of a micro-batch; None: all divisors of a replica's batch, up to MOST.
    offload: one of OFFLOADS, of all candidates.
    """

    data: int | None = None
    pipeline: int | None = None
    tensor: int | None = None
    chunks: Sequence[int] = (1,)
    recomputations: Sequence[str] = RECOMPUTATIONS
    zeros: Sequence[int] = (0, 1, 2, 3)
    microbatches: Sequence[int] | None = None
    offload: str = "none"


@dataclass(frozen=True)
class Plans:
    """The result of a search.

    best: the fastest plan of each of the fastest grids.
    smallest: where nothing fits, the plan that needs least memory.
    considered: number of candidates.
    fit: number of candidates that have enough memory.
    replayed: number of pipelines that were replayed; no other can be among the best.
    layers_run: layers of the model that were run.
    parameters: of the whole model, that are trained.
    frozen: parameters that are not trained.
    batch: examples of a step.
    tokens: in an example; 0 where it holds none.
    parts: names of the parts between which a pipeline may cut; "" is what lies around blocks.
    loss: its name; "" where it is left out.
    precision: its name.
    optimizer: its name; "" where only its bytes are known.
    bytes_of_one: of a trained parameter's weight, gradient and state.
    seconds: that the search took.
    refused: tensor sizes that the model cannot have, and why.
    """

    best: list[Plan]
    smallest: Plan | None
    considered: int
    fit: int
    replayed: int
    layers_run: int
    parameters: int
    frozen: int
    batch: int
    tokens: int
    parts: list[str]
    loss: str
    precision: str
    optimizer: str
    bytes_of_one: float
    seconds: float
    refused: dict[int, str] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Return plain numbers, for JSON."""
        plain = {key: value for key, value in vars(self).items() if key not in ("best", "smallest")}
        return plain | {
            "best": [plan.as_dict() for plan in self.best],
            "smallest": None if self.smallest is None else self.smallest.as_dict(),
            "why": why(self.best),
        }


def plan(
    make: Callable[..., object],
    machines: Machines,
    batch: int,
    example: Example,
    asked: Asked | None = None,
    software: Software | None = None,
    best: int = BEST,
    blocks: Sequence[str] = (),
    precision: str = "mixed",
    optimizer: str = "adamw",
    gradient: int | None = None,
    context: int = 1,
    expert: int = 1,
) -> Plans:
    """Find the fastest ways to train a model.

    make: takes the communicator of the tensor axis, or None, and returns an nn.Module.
    machines: the model is trained on them.
    batch: examples of a step, on all replicas together.
    example: one example of the input.
    asked: what may be tried; None: everything except several chunks.
    software: what a training system does; None: what is usual today.
    best: number of plans to find, with different grids.
    blocks: names of the model's blocks, or of lists of them, between which a pipeline may cut; empty: they are found.
    precision: one of PRECISIONS (states.py).
    optimizer: one of MOMENTS (states.py).
    gradient: bytes in which a gradient adds up and is sent; None: as many as of a weight.
    context: size of a context axis, whose ranks share the tokens of each example. `make` then also takes its
    communicator, and gathers keys and values with it, as `configured` does.
    expert: size of an expert axis, whose ranks share the experts of each layer; it divides the data axis. `make` then
    also takes its communicator, and makes one rank's experts.
    Raises UserError for what is impossible, whatever the memory.
    """
    bytes_of = states(precision, optimizer, gradient)
    loss, comm, experts = UsualLoss(example.tokens), None, None
    if context < 1:
        raise UserError(f"--context {context}: a context axis has 1 rank or more")
    if context > 1:
        if not example.tokens or example.length % (2 * context):
            raise UserError(f"--context {context} needs tokens, a multiple of {2 * context} in each example")
        example, comm = Input((example.length // context,), True), CountingComm(context)
        make = partial(make, context=comm)
    if expert < 1:
        raise UserError(f"--expert {expert}: an expert axis has 1 rank or more")
    if expert > 1:
        experts = CountingComm(expert)
        make = partial(make, expert=experts)
    layers = Layers(make, example, machines.gpu, comm, experts, loss=loss, blocks=blocks, precision=precision)
    return search(Pricing(layers, machines, batch * context, software, bytes_of), asked or Asked(), best)


def search(pricing: Pricing, asked: Asked, best: int = BEST) -> Plans:
    """Find the fastest ways to train a model whose layers' costs may already be known.

    pricing: of the model on its machines, with its batch.
    asked: what may be tried.
    best: number of plans to find, with different grids.
    Raises UserError for what is impossible, whatever the memory.
    """
    begin = time.perf_counter()
    if not 1 <= pricing.batch <= MOST_EXAMPLES:
        raise UserError(f"--batch {pricing.batch}: a step has 1 to {MOST_EXAMPLES} examples")
    refused: dict[int, str] = {}
    context = pricing.layers.ranks_of_a_sequence
    candidates = list(_all(pricing, asked, refused))
    if not candidates:
        raise UserError(_nothing(pricing, asked, refused))
    fitting = [c for c in candidates if pricing.fits(c)]
    ranked, replayed = _fastest(pricing, fitting, best)
    smallest = None if fitting else pricing.price(min(candidates, key=lambda c: sum(pricing.memory(c).values())))
    return Plans(
        ranked, smallest, len(candidates), len(fitting), replayed, pricing.layers.runs, pricing.layers.count(),
        pricing.layers.frozen(), pricing.batch // context, pricing.layers.example.length * context,
        [part.name for part in pricing.layers.parts(1, 1)], getattr(pricing.layers.loss, "name", ""),
        pricing.layers.precision, pricing.states.optimizer, pricing.states.whole, time.perf_counter() - begin, refused,
    )  # fmt: skip


def why(best: Sequence[Plan], of: int = 3) -> list[str]:
    """Explain, in one line each, why the plans after the fastest are slower.

    best: plans, the fastest first.
    of: how many of them to explain.
    """
    return [_why(best[0], slower) for slower in best[1 : 1 + of]]


def _why(first: Plan, second: Plan) -> str:
    more = {part: getattr(second.seconds, part) - getattr(first.seconds, part) for part in PARTS}
    lost = max(more, key=lambda part: more[part])
    won = min(more, key=lambda part: more[part])
    whole = first.seconds.total
    text = f"{second.candidate} takes {100 * (second.seconds.total / whole - 1):.1f} % longer: "
    text += f"{more[lost]:.3g} s more {WORDS[lost]}"
    if -more[won] > 0.001 * whole:
        text += f", and only {-more[won]:.3g} s less {WORDS[won]}"
    return text + "."


def _all(pricing: Pricing, asked: Asked, refused: dict[int, str]) -> Iterator[Candidate]:
    machines, layers = pricing.machines, pricing.layers
    context, expert = layers.ranks_of_a_sequence, layers.ranks_of_experts
    _check(machines, asked, context, expert)
    for tensor in [asked.tensor] if asked.tensor else divisors(math.gcd(machines.gpus, machines.per_node)):
        try:
            count = len(layers.parts(tensor, 1))
        except Indivisible as error:
            refused[tensor] = str(error)
            continue
        for pipeline in [asked.pipeline] if asked.pipeline else divisors(machines.gpus // tensor):
            data, over = divmod(machines.gpus // tensor, pipeline)
            if over or not data or pipeline > count or data % context or data % expert or pricing.batch % data:
                continue
            if asked.data and data != asked.data * context:
                continue
            grid = (data, pipeline, tensor)
            most = max(asked.chunks) if pipeline >= pricing.software.interleaved else 1
            chunks = [v for v in asked.chunks if v <= most and pricing.cut(tensor, pipeline * v)]
            for size in asked.microbatches or divisors(pricing.batch // data):
                if (pricing.batch // data) % size or (size > MOST and not asked.microbatches):
                    continue
                tried = list(
                    candidates(
                        grid, pricing.batch, size, chunks, asked.recomputations, asked.zeros, asked.offload, context
                    )
                )
                yield from tried
                if not any(pricing.fits(c) for c in tried):
                    break  # larger micro-batches would not fit either


def _check(machines: Machines, asked: Asked, context: int, expert: int) -> None:
    if asked.offload not in OFFLOADS:
        raise UserError(f"--offload {asked.offload}: choose from {', '.join(OFFLOADS)}")
    for axis in ("data", "pipeline", "tensor"):
        size = getattr(asked, axis)
        if size is not None and (size < 1 or machines.gpus % size):
            raise UserError(f"--{axis} {size} does not divide {machines.gpus} GPUs: no grid has it")
    if machines.gpus % context:
        raise UserError(f"--context {context} does not divide {machines.gpus} GPUs: no grid has it")
    if machines.gpus % expert or (asked.data and asked.data * context % expert):
        whole = "the data axis" if asked.data else f"{machines.gpus} GPUs"
        raise UserError(f"--expert {expert} does not divide {whole}: no grid has it")
    given = {axis: size for axis in ("data", "pipeline", "tensor") if (size := getattr(asked, axis))}
    complete = len(given) == 3
    given |= {"context": context} if context > 1 else {}
    product = math.prod(given.values())
    if machines.gpus % product or (complete and product != machines.gpus):
        sizes = " x ".join(f"{axis} {size}" for axis, size in given.items())
        raise UserError(f"{sizes} is a grid of {product} GPUs, which does not make up {machines.gpus}")
    if asked.tensor and machines.per_node % asked.tensor:
        raise UserError(
            f"--tensor {asked.tensor} straddles nodes of {machines.per_node} GPUs: give a divisor of that, for the "
            "tensor axis sends several times in each layer"
        )


def _nothing(pricing: Pricing, asked: Asked, refused: dict[int, str]) -> str:
    """Explain why there is no candidate."""
    if asked.tensor in refused:
        return f"--tensor {asked.tensor}: {refused[asked.tensor]}"
    gpus, count = pricing.machines.gpus, len(pricing.layers.parts(1, 1))
    if asked.pipeline and asked.pipeline > count:
        return f"--pipeline {asked.pipeline}: the model has {count} layers, and a stage needs one at least"
    if asked.microbatches and all(pricing.batch % size for size in asked.microbatches):
        return f"--microbatch {asked.microbatches[0]} does not divide a batch of {pricing.batch}"
    chunks = min(asked.chunks)
    if chunks > 1 and 2 * chunks > count:
        return f"--chunks {chunks}: two stages would have {2 * chunks} parts, and the model has {count} layers"
    return (
        f"--batch {pricing.batch} cannot be cut into micro-batches for any grid of {gpus} GPUs: the number of replicas "
        f"must divide it, and the model's {count} layers allow {count} stages at most"
    )


def _fastest(pricing: Pricing, fitting: Sequence[Candidate], best: int) -> tuple[list[Plan], int]:
    """Return the fastest plan of each of the fastest grids, and how many pipelines were replayed.

    Of equally fast plans, the one that needs less memory is taken; plans are equally fast if a stage of ZeRO more saves
    PER_STAGE. Candidates are visited in the order of a lower bound of their time: as soon as that is more than the best
    ones take, no later candidate can be among them.
    """
    heap = [(pricing.least(c) * _handicap(c), i, c) for i, c in enumerate(fitting)]
    heapq.heapify(heap)
    known: dict[tuple[int, int, int], tuple[float, float, Candidate]] = {}
    replayed: set[int] = set()
    while heap:
        at_least, _, c = heapq.heappop(heap)
        if len(known) >= best and at_least > sorted(known.values(), key=lambda k: k[:2])[best - 1][0]:
            break
        if c.grid in known and at_least > known[c.grid][0]:
            continue
        replayed.add(id(pricing.pipeline(c)))
        price = (pricing.total(c) * _handicap(c), sum(pricing.memory(c).values()), c)
        if c.grid not in known or price[:2] < known[c.grid][:2]:
            known[c.grid] = price
    ranked = sorted(known.values(), key=lambda k: k[:2])[:best]
    return sorted((pricing.price(c) for _, _, c in ranked), key=lambda plan: plan.seconds.total), len(replayed)


def _handicap(c: Candidate) -> float:
    return 1 + PER_STAGE * c.zero
