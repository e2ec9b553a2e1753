"""Published trainings over many GPUs, predicted by the planner, and the place of published grids among its own.

No efficiency is fitted to these trainings. What a GPU reaches is measured products by their shape, NVLink what NCCL was
measured to reach, InfiniBand its line rate. Grids are the published ones, and so are micro-batches and chunks; where
these were not published, they are the fastest that fit. `python -m tests.validation plans` prints all rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from mpcourse.data.published_plans import LENGTH, VOCABULARY, Configured, Llama, Sizes, Trained
from mpcourse.plan.candidate import Candidate, Plan
from mpcourse.plan.counting import CountingComm
from mpcourse.plan.flops import model_flops, recomputed_flops
from mpcourse.plan.layers import Layers
from mpcourse.plan.machines import Machines
from mpcourse.plan.price import Pricing
from mpcourse.plan.published_models import llama, megatron
from mpcourse.plan.search import Asked, search
from mpcourse.plan.software import MEGATRON_2021, Software
from mpcourse.predict.inputs import Input
from mpcourse.virtual.specs import GPUS, LINKS, Link

CHUNKS = range(1, 9)
GATHERS = replace(LINKS["InfiniBand HDR"], bandwidth=16.1e9)  # the one bandwidth that is fitted: ZeRO-3's
LLAMA_405B: dict[str, Any] = {
    "width": 16_384,
    "heads": 128,
    "groups": 8,
    "hidden": 53_248,
    "layers": 126,
    "vocabulary": 128_256,
}
# FSDP sums gradients in float32, and each weight's is on its own rank.
LLAMA_SOFTWARE = Software(gradients=4)
NEMO = Software(gradients=4, split_transfers=True, equal=True)


@dataclass(frozen=True)
class Row:
    """A published row and our plan of its grid; None where it does not fit. teraflops: of each GPU."""

    published: Trained | Llama
    plan: Plan | None
    teraflops: float

    @property
    def miss(self) -> float:
        """Percent; positive where ours is faster."""
        return 100 * (self.teraflops / self.published.teraflops - 1)


def layers_of(row: Trained | Configured, fused: bool = False) -> Layers:
    """Of a row's GPT on an A100. fused: attention is one kernel."""
    make = partial(
        megatron, width=row.width, heads=row.heads, layers=row.layers, vocabulary=VOCABULARY, length=LENGTH, fused=fused
    )
    return Layers(make, Input((LENGTH,), True), GPUS["A100-SXM4"], selective=False)


def machines_of(row: Trained, between: Link | None = None) -> Machines:
    """On which a row of Narayanan's tables was trained. between: a GPU's network card, for an HDR one."""
    machines = Machines.named(row.gpus, "A100-SXM4")
    return machines if between is None else replace(machines, between=between)


def predicted(row: Trained, layers: Layers, zero: int = 0, between: Link | None = None) -> Row:
    """Return a row of Narayanan's tables. zero: ZeRO's stage. between: a GPU's network card, for an HDR one."""
    data, pipeline, tensor = row.grid
    sizes, chunks = (row.microbatch,) if row.microbatch else None, (row.chunks,) if row.chunks else CHUNKS
    asked = Asked(data, pipeline, tensor, chunks, recomputations=("full",), zeros=(zero,), microbatches=sizes)
    plans = search(Pricing(layers, machines_of(row, between), row.batch, MEGATRON_2021), asked, best=1).best
    plan = plans[0] if plans else None
    flops = recomputed_flops(row.batch, LENGTH, row.layers, row.width, VOCABULARY)
    return Row(row, plan, flops / plan.seconds.total / row.gpus / 1e12 if plan else 0.0)


def predicted_llama(row: Llama, layers: Layers, masked: bool = False) -> Row:
    """Return a row of Llama 3's table, with the best number of chunks.

    layers: made for the row's context axis. masked: FLOPs of attention are counted as a causal mask leaves them.

    Its time, whether or not it fits: Llama's layers also share activations along the tensor axis, which ours do not.
    """
    machines = Machines.named(row.gpus, "H100-SXM", between="RoCE 400")
    replicas = row.data * row.context
    pricing = Pricing(layers, machines, row.batch * replicas, LLAMA_SOFTWARE)
    tried = [Candidate(replicas, row.pipeline, row.tensor, 1, "none", 2, v) for v in CHUNKS]
    plan = min((pricing.price(c) for c in tried), key=lambda p: p.seconds.total)
    tokens = row.batch * row.data * row.length
    flops = model_flops(layers.count(), LLAMA_405B["layers"], LLAMA_405B["width"], row.length, tokens, masked)
    return Row(row, plan, flops / plan.seconds.total / row.gpus / 1e12)


def llama_layers(row: Llama) -> Layers:
    """Of Llama 3 405B on an H100, with a row's length of sequences and context axis."""
    context = CountingComm(row.context) if row.context > 1 else None
    make = partial(llama, **LLAMA_405B, context=context)
    return Layers(make, Input((row.length // row.context,), True), GPUS["H100-SXM"], context, selective=False)


@dataclass(frozen=True)
class Place:
    """Where a grid is among all, the fastest first, by our count.

    grid: sizes of data, pipeline and tensor.
    number: 1 for the fastest.
    longer: percent by which its step takes longer than the fastest's.
    """

    grid: Sizes
    number: int
    longer: float


def place(row: Trained, layers: Layers) -> Place:
    """Of the published grid among all grids of its GPUs, each with the micro-batch and the chunks that are best for it.

    layers: of the row's model.
    """
    pricing = Pricing(layers, machines_of(row), row.batch, MEGATRON_2021)
    return _places(pricing, Asked(chunks=CHUNKS, recomputations=("full",), zeros=(0,)), [row.grid])[0]


def places_today(row: Configured) -> dict[str, Place]:
    """Of each grid that a configuration had, by month, on A100s: with or without checkpoints and ZeRO's stage 1."""
    pricing = Pricing(layers_of(row, fused=True), Machines.named(row.gpus, "A100-SXM4"), row.batch, NEMO)
    return dict(
        zip(
            row.grids,
            _places(
                pricing, Asked(chunks=CHUNKS, recomputations=("none", "full"), zeros=(0, 1)), list(row.grids.values())
            ),
            strict=True,
        )
    )


def _places(pricing: Pricing, asked: Asked, grids: Sequence[Sizes]) -> list[Place]:
    best = search(pricing, asked, best=12).best  # more take longer, and all that we ask for are among these
    places = {plan.candidate.grid: i for i, plan in enumerate(best)}
    return [Place(g, places[g] + 1, 100 * (best[places[g]].seconds.total / best[0].seconds.total - 1)) for g in grids]
