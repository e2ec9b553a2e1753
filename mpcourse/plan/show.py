"""Plans as a table."""

import math
import sys

import torch
from rich.console import Console
from rich.table import Table

from mpcourse.plan.candidate import PARTS, Plan
from mpcourse.plan.machines import Machines
from mpcourse.plan.misses import MISSES, Miss, kind_of
from mpcourse.plan.price import HOST_MEMORY
from mpcourse.plan.search import Plans, why
from mpcourse.virtual.gpus.ledger import size

NOTE = (
    "Not in the memory: NCCL's buffers, and gaps in what is allocated. Time: the model's own code on a virtual GPU, "
    "products by their shape, and a replayed 1F1B pipeline; not in it: loading of data, and ranks that wait for "
    "slower ones."
)

COLUMNS = (
    "grid: data x pipeline x tensor (with --context: data x context x pipeline x tensor), of each the fastest plan. "
    "micro: examples of a micro-batch. again: what backward computes again, none, selective (all but products and "
    "attention) or full. GiB: of the fullest GPU. step: its "
    "{unit}, then its parts: computing, bubble, messages of each axis that nothing hides, and the optimizer's update."
)


def show(plans: Plans, machines: Machines) -> None:
    """Print the best plans, or what the smallest one lacks.

    plans: the search's result.
    machines: the machines that it was made for.
    """
    out = Console(file=sys.stdout, highlight=False, width=None if sys.stdout.isatty() else 100)
    gpus = f"{machines.gpus} {machines.gpu.name}, {min(machines.per_node, machines.gpus)} a node"
    frozen = f", and {_many(plans.frozen)} that are frozen," if plans.frozen else ""
    out.print(f"{_many(plans.parameters)} parameters{frozen} on {gpus}", soft_wrap=True)
    assumed = f"Assumed: precision {plans.precision}, {plans.optimizer}, loss: {plans.loss or 'left out'}"
    out.print(f"{assumed}; {plans.bytes_of_one:.4g} bytes a trained parameter.", soft_wrap=True)
    out.print(_cuts(plans.parts), soft_wrap=True)
    if plans.smallest is not None:
        out.print(lacking(plans, machines), soft_wrap=True)
    else:
        out.print(_table(plans))
        out.print(COLUMNS.format(unit=_unit(plans)[1]), soft_wrap=True)
        out.print(rate(plans, machines), soft_wrap=True)
        out.print(f"Its fullest GPU holds {held(plans.best[0])}.", soft_wrap=True)
        if plans.best[0].wrapping:
            out.print(wrapping(plans.best[0], machines), soft_wrap=True)
        if plans.best[0].host:
            of_node = f"The memory of each node holds {size(round(plans.best[0].host))} for the fastest"
            out.print(f"{of_node}, which its processors update at {HOST_MEMORY / 1e9:.0f} GB/s.", soft_wrap=True)
        if plans.best[0].seconds.expert:
            out.print("Experts get equally many tokens here: others would wait for a busier one.", soft_wrap=True)
        out.print(error(plans, machines), soft_wrap=True)
        for line in why(plans.best):
            out.print(line, soft_wrap=True)
    out.print(
        f"{plans.considered} ways tried, {plans.fit} fit, {plans.replayed} pipelines replayed, "
        f"{plans.layers_run} layers run, {plans.seconds:.1f} s.",
        soft_wrap=True,
    )
    for reason in dict.fromkeys(plans.refused.values()):
        sizes = ", ".join(str(tensor) for tensor, text in plans.refused.items() if text == reason)
        out.print(f"Not tried: tensor {sizes} ({reason}).", soft_wrap=True, markup=False)
    out.print(NOTE, soft_wrap=True)


def rate(plans: Plans, machines: Machines) -> str:
    """Say what each GPU reaches with the best plan, and what all of them do in a second.

    plans: of a search in which something fits.
    machines: the machines that it was made for.
    """
    best = plans.best[0]
    peak, _ = machines.gpu.peak(torch.float32 if plans.precision == "float32" else torch.bfloat16)
    done, what = (plans.tokens, "tokens") if plans.tokens else (1, "examples")
    speed = done * plans.batch / best.seconds.total
    return (
        f"The fastest reaches {best.rate / 1e12:.0f} TFLOP/s a GPU, {100 * best.rate / peak:.0f} % of the peak (MFU): "
        f"{_spaced(speed)} {what}/s, {_spaced(speed / machines.gpus)} a GPU."
    )


def error(plans: Plans, machines: Machines) -> str:
    """Say what published trainings like the fastest plan took, in parts of what was predicted for them.

    plans: of a search in which something fits.
    machines: the machines that it was made for.
    """
    found, step = miss(plans, machines), plans.best[0].seconds.total
    scale, unit = _unit(plans)
    least, most = (f"{scale * step * part:.3g}" for part in (found.least, found.most))
    return (
        f"Error: four of five published trainings of this kind ({found.kind}; {found.rows} rows of "
        f"{found.publications} publications) took {found.least} to {found.most} times the predicted time, the median "
        f"{found.median}: here {least} to {most} {unit} a step."
    )


def miss(plans: Plans, machines: Machines) -> Miss:
    """Return what published trainings of the same kind took, in parts of what was predicted for them.

    plans: of any search.
    machines: the machines that it was made for.
    """
    return MISSES[kind_of(plans.parameters + plans.frozen, machines.gpus, machines.per_node)]


def wrapping(plan: Plan, machines: Machines) -> str:
    """Say what a plan of ZeRO-3 needs where all weights are put on each GPU before they are sharded.

    plan: of ZeRO-3.
    machines: the machines that it was made for.
    """
    fits = plan.wrapping + machines.gpu.context <= machines.gpu.memory
    text = f"All weights on each GPU, and then sharded, are {size(round(plan.wrapping))} for a moment"
    return f"{text}." if fits else f"{text}, which does not fit: make the model on the host, or without data."


def _spaced(number: float) -> str:
    """Write a number with three digits or more, thousands apart."""
    return f"{number:,.0f}".replace(",", " ") if number >= 100 else f"{number:.3g}"


def _cuts(parts: list[str]) -> str:
    """Say where a pipeline may cut."""
    blocks = [name for name in parts if name]
    if not blocks:
        return "No repeated blocks were found: no pipeline. Name blocks by --blocks."
    return (
        f"A pipeline may cut between {len(parts)} parts: blocks {blocks[0]} to {blocks[-1]}, and what is around them."
    )


def _many(count: int) -> str:
    return f"{count / 1e9:.4g} billion" if count >= 1e9 else f"{count / 1e6:.4g} million"


def lacking(plans: Plans, machines: Machines) -> str:
    """Say what the smallest plan needs, and what a GPU lacks for it.

    plans: of a search in which nothing fits.
    machines: the machines that it was made for.
    """
    plan = plans.smallest
    assert plan is not None
    missing = plan.nbytes - machines.gpu.memory
    return (
        f"Nothing fits. The smallest need is {size(round(plan.nbytes))} a GPU ({_how(plan)}): {held(plan)}. "
        f"{size(machines.gpu.memory)} are there ({machines.gpu.name}): {size(round(missing))} are missing."
    )


def held(plan: Plan) -> str:
    """Say what a plan's fullest GPU holds, by kind, the largest first.

    plan: any.
    """
    kinds = sorted(plan.memory.items(), key=lambda kind: -kind[1])
    return ", ".join(f"{kind} {size(round(nbytes))}" for kind, nbytes in kinds)


def _how(plan: Plan) -> str:
    c = plan.candidate
    offload = f", offload {c.offload}" if c.offload != "none" else ""
    return f"{c}, micro-batch {c.microbatch}, recomputation {c.recompute}, ZeRO {c.zero}{offload}"


def _unit(plans: Plans) -> tuple[float, str]:
    """Return the unit of a step's time, and how many of it a second has."""
    return (1.0, "seconds") if plans.best[0].seconds.total >= 1 else (1e3, "milliseconds")


def _table(plans: Plans) -> Table:
    """Make a table. Parts that take no time have no column."""
    chunks = any(plan.candidate.chunks > 1 for plan in plans.best)
    parts = [part for part in PARTS if any(getattr(plan.seconds, part) for plan in plans.best)]
    columns = ["grid", *(["chunks"] if chunks else []), "micro", "again", "ZeRO", "GiB", "step", *parts]
    table = Table(*columns, box=None, padding=(0, 1, 0, 0))
    for column in table.columns:
        column.justify = "right"
    scale, _ = _unit(plans)
    digits = max(1, 3 - math.floor(math.log10(scale * plans.best[0].seconds.total)))
    for plan in plans.best:
        c = plan.candidate
        cells = [c.shown, *([c.chunks] if chunks else []), c.microbatch]
        cells += [c.recompute, c.zero, f"{plan.nbytes / 2**30:.1f}"]
        seconds = [plan.seconds.total, *(getattr(plan.seconds, part) for part in parts)]
        table.add_row(*map(str, cells), *(f"{scale * value:.{digits}f}" for value in seconds))
    return table
