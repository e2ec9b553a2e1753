"""Published trainings over many GPUs, predicted by the planner: ours beside theirs, row by row.

No efficiency is fitted to these rows. What a GPU reaches is measured products by their shape, NVLink what NCCL was
measured to reach, InfiniBand its line rate. Grids are the published ones, and so are micro-batches and chunks; where
nobody published these, they are the fastest that fit. Which grids the planner would have chosen is in plan_grids.py.

What is off, and why, as far as we know:
- PTD-P is predicted from 2 % too slow to 8 % too fast. Not in it: loading of data, clipping, the loss scale's check,
  and that a GPU computes more slowly while it sends. Left to choose the micro-batch, the planner takes the published
  one for five of the ten models of table 1.
- ZeRO-3 is predicted flat from 768 to 1536 GPUs, and from 1120 to 2240, as published, for each GPU's traffic is the
  same. But at the card's rate all steps are a third shorter than published. On the two flat rows of 174.6 billion
  parameters DeepSpeed reached 16.1 of 25 GB/s; with this one bandwidth, fitted to these two, the flat rows of 529.6
  billion are 7 and 9 % off. Where the traffic does not decide, on the fewest GPUs, ours stays a quarter too fast: it
  hides all of the traffic behind computing.
- Llama 3's layers also share activations along the tensor axis, which ours do not: its time is predicted, its memory
  would not fit by our count.
- Its row of 131 072 tokens on a context axis of 16 is 36 % too fast if FLOPs are counted as the paper's source does,
  without a causal mask, and 3 % too slow if attention counts as the mask leaves it: most of the FLOPs are attention's
  there. The paper does not tell which count its 380 TFLOP/s are. The step is the same: 11.2 s by our count, 15.3 s or
  10.9 s by its own. Ranks are taken to be evenly loaded, and their gathers of keys and values to be hidden by nothing.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from mpcourse.bench.plan_models import llama, megatron
from mpcourse.bench.record import Record
from mpcourse.data.published_plans import (
    LENGTH,
    LLAMA_3,
    PTD_P,
    PTD_P_BESIDE_ZERO,
    VOCABULARY,
    ZERO_3,
    Configured,
    Llama,
    Trained,
)
from mpcourse.plan import MEGATRON_2021, Asked, Candidate, Input, Layers, Machines, Plan, Pricing, Software, search
from mpcourse.plan.counting import CountingComm
from mpcourse.plan.flops import model_flops, recomputed_flops
from mpcourse.virtual.specs import GPUS, LINKS, Link

PROMISE = 15.0  # percent by which a row of PTD-P may be off
ENOUGH = 10.0  # seconds for 10 000 candidates
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
    return Layers(make, Input((LENGTH,), True), GPUS["A100-SXM4"])


def machines_of(row: Trained, between: Link | None = None) -> Machines:
    """On which a row of Narayanan's tables was trained. between: a GPU's network card, for an HDR one."""
    machines = Machines.named(row.gpus, "A100-SXM4")
    return machines if between is None else replace(machines, between=between)


def predicted(row: Trained, layers: Layers, zero: int = 0, between: Link | None = None) -> Row:
    """A row of Narayanan's tables. zero: ZeRO's stage. between: a GPU's network card, for an HDR one."""
    data, pipeline, tensor = row.grid
    sizes, chunks = (row.microbatch,) if row.microbatch else None, (row.chunks,) if row.chunks else CHUNKS
    asked = Asked(data, pipeline, tensor, chunks, checkpoints=(True,), zeros=(zero,), microbatches=sizes)
    plans = search(Pricing(layers, machines_of(row, between), row.batch, MEGATRON_2021), asked, best=1).best
    plan = plans[0] if plans else None
    flops = recomputed_flops(row.batch, LENGTH, row.layers, row.width, VOCABULARY)
    return Row(row, plan, flops / plan.seconds.total / row.gpus / 1e12 if plan else 0.0)


def predicted_llama(row: Llama, layers: Layers, masked: bool = False) -> Row:
    """A row of Llama 3's table, with the best number of chunks.

    layers: made for the row's context axis. masked: FLOPs of attention are counted as a causal mask leaves them.

    Its time, whether or not it fits: Llama's layers also share activations along the tensor axis, which ours do not.
    """
    machines = Machines.named(row.gpus, "H100-SXM", between="RoCE 400")
    replicas = row.data * row.context
    pricing = Pricing(layers, machines, row.batch * replicas, LLAMA_SOFTWARE)
    tried = [Candidate(replicas, row.pipeline, row.tensor, 1, False, 2, v) for v in CHUNKS]
    plan = min((pricing.price(c) for c in tried), key=lambda p: p.seconds.total)
    tokens = row.batch * row.data * row.length
    flops = model_flops(layers.count(), LLAMA_405B["layers"], LLAMA_405B["width"], row.length, tokens, masked)
    return Row(row, plan, flops / plan.seconds.total / row.gpus / 1e12)


def llama_layers(row: Llama) -> Layers:
    """Of Llama 3 405B on an H100, with a row's length of sequences and context axis."""
    context = CountingComm(row.context) if row.context > 1 else None
    make = partial(llama, **LLAMA_405B, context=context)
    return Layers(make, Input((row.length // row.context,), True), GPUS["H100-SXM"], context)


def plan(runs: int = 1) -> Iterator[Record]:
    """All rows, and how long the search takes. Time there is arithmetic."""
    for row in PTD_P:
        name = f"PTD-P, {row.parameters:g} B on {row.gpus}, {' x '.join(map(str, row.grid))}"
        yield from _beside(name, predicted(row, layers_of(row)), PROMISE)
    for rows in (PTD_P_BESIDE_ZERO[:3], PTD_P_BESIDE_ZERO[3:]):
        layers = layers_of(rows[0])
        for row in rows:
            yield from _beside(f"PTD-P, {row.parameters:g} B on {row.gpus}", predicted(row, layers), PROMISE)
        for row in (r for r in ZERO_3 if r.width == rows[0].width):
            name = f"ZeRO-3, {row.parameters:g} B on {row.gpus}"
            yield from _beside(f"{name}, card's rate", predicted(row, layers, 3))
            yield from _beside(f"{name}, 16.1 GB/s", predicted(row, layers, 3, GATHERS))
    for trained in LLAMA_3:
        layers, name = llama_layers(trained), f"Llama 3, 405 B on {trained.gpus}, {trained.length} tokens"
        yield from _beside(name, predicted_llama(trained, layers))
        if trained.context > 1:
            yield from _beside(f"{name}, FLOPs under the mask", predicted_llama(trained, layers, masked=True))
    yield _search_time()


def _beside(name: str, row: Row, promise: float | None = None) -> Sequence[Record]:
    if row.plan is None:
        return [Record(f"{name}: does not fit by our count (published {row.published.teraflops:g})", [0], "TFLOP/s")]
    return [
        Record(f"{name}: ours (published {row.published.teraflops:g})", [row.teraflops], "TFLOP/s a GPU"),
        Record(f"{name}: off by", [abs(row.miss)], "%", promise),
    ]


def _search_time() -> Record:
    """Seconds of a core for 10 000 candidates, with the runs of layers, but without making the models."""
    row = PTD_P[6]
    layers = layers_of(row)
    for tensor in (1, 2, 4, 8):
        layers.parameters(tensor)
    begin = time.process_time()
    plans = search(Pricing(layers, machines_of(row), row.batch), Asked(chunks=CHUNKS))
    seconds = (time.process_time() - begin) * 10_000 / plans.considered
    what = f"plan of {row.parameters:g} B on {row.gpus}: 10 000 candidates, by the time of {plans.considered}"
    return Record(what, [seconds], "s of a core", ENOUGH)
