"""What is said of a gradient that is not the mean over all ranks. Its facts are a `Gradient`."""

import numpy as np

from mpcourse.course.check.rules import Rule, Test

SHAPES = [  # .grad.data takes any
    Test(
        "shape",
        lambda f: f.reshaped,
        "{name}.grad of shape {shape} on rank {rank}",
        "shape {got.shape}",
        "A gradient has the shape of its parameter.",
    )
]
NO_RANK_HAS_ONE = (
    "No rank has a gradient for it, so it stays None. Zeros are something else: an optimizer passes None over, and "
    "with zeros weight decay and momentum still move the parameter."
)
COUNTS_AS_ZEROS = (
    "A gradient that is None here, but not on another rank, counts as zeros, and becomes the mean as everywhere: "
    "p.grad = torch.zeros_like(p) before the sum. Else the copies of the model drift apart."
)
NUMBERS = [  # asked first, for what is no number, or is rounded, is near to nothing else
    Rule(
        "NaN",
        lambda f: np.isnan(f.got).any(),
        "NaN is 0 / 0, or memory that was never written: torch.empty and np.empty hold anything.",
    ),
    Rule(
        "rounded",
        lambda f: f.rounded,
        "The mean was rounded to {rounded} on its way: sum each gradient in its own dtype, which need not be torch's "
        "default.",
    ),
]
REDUCED = Rule(
    "Reduce",
    lambda f: f.good and f.unchanged,
    "{good_have} the mean; all ranks need it, to take the same step. Reduce brings it to one rank only: Allreduce.",
)
FACTORS = [  # sums that are divided by too much or too little, or are not sums over ranks
    Rule(
        "divided by ranks that have one",
        lambda f: len(f.having) < f.size and f.near(f.total / len(f.having)),
        "Divided by the number of ranks that have a gradient. One that is None counts as zeros: divide by comm.size.",
    ),
    Rule(
        "sum",
        lambda f: f.near(f.total),
        "That is the sum over ranks. The mean is asked, which does not grow with their number: divide by comm.size.",
    ),
    Rule(
        "own, divided",
        lambda f: f.own is not None and f.near(f.own / f.size),
        "That is this rank's own gradient, divided by the number of ranks. The sum went elsewhere, or was never made: "
        "comm.Allreduce(MPI.IN_PLACE, x) leaves it in x, comm.Allreduce(x, y) in y.",
    ),
    Rule(
        "divided twice",
        lambda f: f.near(f.mean / f.size),
        "Divided by the number of ranks twice. Once is enough, before the sum or after it.",
    ),
    Rule(
        "added",
        lambda f: f.own is not None and f.near(f.own + f.mean, f.own + f.total),
        "The mean, or the sum, was added to the gradient that was there: put it in its place, p.grad.copy_(...) or "
        "p.grad = ...",
    ),
]
