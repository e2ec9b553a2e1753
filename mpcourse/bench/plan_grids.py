"""Which grid is the fastest: published choices beside the planner's.

- The published grid of table 1 of Narayanan et al. 2021 is among the three that we find fastest in eight of ten rows.
  With 18.4 and 39.1 billion parameters it is sixth and eighth, 12 and 21 % behind the first. The paper chose its grids
  by the rule of its section 3, a whole node for the tensor axis before a pipeline is cut; by our count a smaller tensor
  axis with an interleaved pipeline is faster. The paper shows no other grid for these two models.
- NVIDIA's later configurations do, for models of nearly these sizes on twice as many GPUs. From January 2023 on, 20
  billion parameters went from a tensor axis of 4 to one of 2, 40 billion from one of 8 without a pipeline to one of 2
  with 4 stages, 175 billion from 16 stages of 8 GPUs to 8 stages of 4. By our count the last grids are the fastest,
  or, with 40 billion, 0.1 % behind it; the first were third, eleventh and sixth. That is on A100s; some of the last
  were tuned for H100s. Their layers also share activations along the tensor axis, which ours do not.
- Where the paper compares grids of one model (figure 13: 162.2 billion parameters on 64 GPUs), it is as by our count:
  a tensor axis as wide as a node is the fastest, with 32 and with 128 sequences.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from mpcourse.bench.plan import CHUNKS, layers_of, machines_of, predicted
from mpcourse.bench.record import Record
from mpcourse.data.published_plans import NEMO_GPT, PTD_P, Configured, Sizes, Trained
from mpcourse.plan import MEGATRON_2021, Asked, Layers, Machines, Pricing, Software, search

NEMO = Software(gradients=4, split_transfers=True, equal=True)
# Its script (examples/sc21/run_figure_13.sh) tells all but the speed, which the paper draws.
FIGURE_13 = Trained(162.2, 128, 20_480, 32, 8, 8, 64, 128, 0, microbatch=1, chunks=1)


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
    return _places(pricing, Asked(chunks=CHUNKS, checkpoints=(True,), zeros=(0,)), [row.grid])[0]


def places_today(row: Configured) -> dict[str, Place]:
    """Of each grid that a configuration had, by month, on A100s: with or without checkpoints and ZeRO's stage 1."""
    pricing = Pricing(layers_of(row, fused=True), Machines.named(row.gpus, "A100-SXM4"), row.batch, NEMO)
    return dict(
        zip(row.grids, _places(pricing, Asked(chunks=CHUNKS, zeros=(0, 1)), list(row.grids.values())), strict=True)
    )


def _places(pricing: Pricing, asked: Asked, grids: Sequence[Sizes]) -> list[Place]:
    best = search(pricing, asked, best=12).best  # more take longer, and all that we ask for are among these
    places = {plan.candidate.grid: i for i, plan in enumerate(best)}
    return [Place(g, places[g] + 1, 100 * (best[places[g]].seconds.total / best[0].seconds.total - 1)) for g in grids]


def figure_13(batch: int) -> dict[Sizes, float]:
    """Seconds of a step of figure 13's model on each grid whose tensor axis stays in a node.

    batch: sequences.
    """
    layers = layers_of(FIGURE_13)
    rows = [replace(FIGURE_13, tensor=tensor, pipeline=64 // tensor, batch=batch) for tensor in (8, 4, 2)]
    plans = [predicted(row, layers).plan for row in rows]
    return {plan.candidate.grid: plan.seconds.total for plan in plans if plan is not None}


def plan_grids(runs: int = 1) -> Iterator[Record]:
    """The place of each published grid. Time there is arithmetic, so that one run is enough."""
    for row in PTD_P:
        yield _record(f"PTD-P, {row.parameters:g} B", place(row, layers_of(row)))
    for configured in NEMO_GPT:
        for since, found in places_today(configured).items():
            yield _record(f"NVIDIA's configuration, {configured.name}, since {since}", found)
    for batch in (32, 128):
        for grid, seconds in figure_13(batch).items():
            yield Record(f"figure 13, 162.2 B, {batch} sequences, {_text(grid)}", [seconds], "s")


def _record(name: str, found: Place) -> Record:
    return Record(f"{name}, {_text(found.grid)}: place; {found.longer:.1f} % behind the first", [found.number], "")


def _text(grid: Sizes) -> str:
    return " x ".join(map(str, grid))
