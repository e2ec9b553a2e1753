"""A prediction as a table."""

import sys

from rich.console import Console
from rich.table import Table

from mpcourse.predict.step import Prediction
from mpcourse.virtual.gpus.ledger import KINDS, size

NOTE = (
    "Not predicted: cuDNN's workspaces. Modelled: the caching allocator, and time by the roofline, at assumed parts of "
    "the peaks that data sheets give."
)


def show(p: Prediction) -> None:
    """Print what each device holds, whether it fits, and how long a step takes.

    p: the prediction.
    """
    out = Console(file=sys.stdout, highlight=False)
    table = Table("at its fullest", *(d.device for d in p.devices))
    for column in table.columns[1:]:
        column.justify = "right"
    for kind in KINDS:
        if any(kind in d.peak for d in p.devices):
            table.add_row(kind, *(size(d.peak.get(kind, 0)) for d in p.devices))
    table.add_section()
    table.add_row("allocated", *(size(d.allocated) for d in p.devices))
    table.add_row("reserved by the allocator", *(size(d.reserved) for d in p.devices))
    table.add_row("CUDA context", *(size(d.context) for d in p.devices))
    table.add_row("total, as nvidia-smi shows it", *(size(d.total) for d in p.devices))
    table.add_row(f"a {p.gpu} has", *(size(d.capacity) for d in p.devices))
    table.add_row("fits", *("yes" if d.fits else "does not fit" for d in p.devices))
    table.add_section()
    table.add_row("busy during the step", *("-" if d.busy is None else f"{d.busy:.0%}" for d in p.devices))
    out.print(table)
    if len(p.devices) > 1:
        how = ", chosen so that the fullest device holds as little as can be" if p.chosen else ""
        out.print(f"Cut after {', '.join(p.cut)}{how}.", soft_wrap=True)
    if p.seconds is not None:
        took = f"{p.seconds:.3g} s" if p.seconds >= 1 else f"{1e3 * p.seconds:.3g} ms"
        out.print(f"A step of {p.optimizer} takes {took}. Assumed: {p.precision}, loss: {p.loss}.", soft_wrap=True)
        rate = sum(d.flops for d in p.devices) / p.seconds
        out.print(
            f"That is {rate / 1e12:.3g} TFLOP/s, {rate / p.peak:.0%} of the peak, and {p.batch[0] / p.seconds:.4g} "
            "examples/s.",
            soft_wrap=True,
        )
    if len(p.devices) > 1:
        lanes = ", ".join(f"{lane} {size(nbytes)}" for lane, nbytes in p.copies.items())
        out.print(f"{size(p.across_cut)} cross the cut in a step ({lanes}).", soft_wrap=True)
    if p.zero:
        sent = " and ".join(f"{size(nbytes)} by {name}" for name, nbytes in p.sent.items()) or "nothing"
        out.print(
            f"This is one of {p.ranks} ranks at ZeRO stage {p.zero}. In a step it sends {sent}; the seconds above "
            "do not include that.",
            soft_wrap=True,
        )
    if p.out_of_memory:
        out.print(
            f"It does not fit; the bytes above are what it would need.\n{p.out_of_memory}", markup=False, soft_wrap=True
        )
    out.print(NOTE, soft_wrap=True)
