"""The options of the pipeline example, looked at before the training begins."""

import argparse

import torch

from mpcourse.common.errors import UserError
from mpcourse.common.words import counted
from mpcourse.course.commands.output import check_picture, check_writable


def check_batches(options: argparse.Namespace, examples: int) -> None:
    """Raise UserError where numbers make no sense, or batches of `examples` cannot be made, or not be cut."""
    batch, pieces = options.batch, counted(options.microbatches, "micro-batch")
    for name in ("epochs", "batch", "width"):
        if getattr(options, name) < 1:
            raise UserError(f"--{name} {getattr(options, name)}: 1 or more is needed")
    if not 0 < options.lr <= torch.finfo(torch.float32).max:
        raise UserError(f"--lr {options.lr:g}: a number of float32 above 0 is needed")
    if batch > examples:
        raise UserError(f"--batch {batch}: there are only {examples} examples to train on")
    if batch < options.microbatches:
        raise UserError(f"--batch {batch}: {counted(batch, 'example')} cannot make {pieces}")
    if 0 < (rest := examples % batch) < options.microbatches:
        raise UserError(
            f"--batch {batch}: of {examples} examples it leaves {rest} for the last batch of an epoch, which cannot "
            f"make {pieces}"
        )


def check_files(options: argparse.Namespace) -> None:
    """Raise UserError where the files of the end could not be written then. It leaves no file."""
    check_picture(options.save)
    if options.json:
        check_writable(options.json)
