"""What e16_accuracy is asked: sums over all ranks of each metric that any rank has, in no more calls and bytes.

Rebuilt from four reports: collective calls in the order of a dictionary (https://github.com/NVIDIA/apex/issues/19) and
of a set (https://github.com/NVIDIA/nvalchemi-toolkit/pull/143); metrics logged in different orders, which gives wrong
numbers without an error (https://github.com/Lightning-AI/pytorch-lightning/issues/20946); metrics that a rank lacks
(https://github.com/Lightning-AI/pytorch-lightning/issues/19106).
"""

import functools
import itertools
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import nn

from mpcourse.common.words import counted
from mpcourse.course.check.answer import Answer
from mpcourse.course.check.cases.clinic import demand_diagnosis
from mpcourse.course.check.cases.on_models import on_real
from mpcourse.course.check.facts.gloo import Sent, group
from mpcourse.course.check.facts.ranks import turned
from mpcourse.course.check.rules import Finding, Test, always, judge
from mpcourse.course.check.seeding import drawing
from mpcourse.course.check.wrong import short

if TYPE_CHECKING:
    from mpcourse.course.check.traced_mpi import TracedComm

Photo = tuple[torch.Tensor, int, str]  # scores, label, light

CLASSES = 20
LIGHTS = {"d": "day", "u": "dusk", "n": "night", "s": "day"}
SHAPES: dict[str, tuple[int, ...]] = {"confusion": (CLASSES, CLASSES), "misses": (CLASSES,)}
SHAPES |= {f"{light} {what}": (1,) for light in LIGHTS.values() for what in ("photos", "loss", "hits")}
CALLS = len(SHAPES) + 5
BYTES = sum(8 * int(np.prod(shape)) + 100 for shape in SHAPES.values())

REFUTED = {
    "crash": "On day 12003 of ranks.log, no rank has ended, and numbers are wrong. What was each rank about to sum "
    "when the error of day 46 came?",
    "race": "all_reduce returns when the sum is there, unless async_op=True is given. And detail.txt says what the "
    "ranks disagree about.",
    "reset": "With sums of epoch 0, epoch 1 would have twice as many photographs. In ranks.log it has as many as in "
    "one.log.",
    "shares": "In ranks.log, the two ranks together have as many photographs as the one process in one.log.",
    "timeout": "detail.txt speaks of two calls that do not fit together, and not of a time that is over.",
}

# The photographs of each rank: a letter of LIGHTS is one that is missed, a capital letter is a hit. S is a hit by day,
# so sure that its loss is 0.
ROWS = (
    ("DdNn", "DDdNn"),  # in the same order, and all have the same
    ("DdUuNn", "dDnNuU", "NnDdUu"),
    ("dDNn", "dnNDd", "dDnN"),  # shapes agree, and metrics do not
    ("DdU", "DdN", "Dd"),  # each rank has something that the others lack
    ("DD", "DDd", "D"),
    ("", "nDD", "Dd"),
    ("N", "", "u"),
    ("S", "", "S"),
    ("", ""),
)


def check(answer: Answer, comm: "TracedComm") -> None:
    """Check the answer on real ranks; every rank must call this."""
    demand_diagnosis(answer, "order", REFUTED)
    seed = comm.bcast(drawing().getrandbits(30))
    for ranks in (comm, turned(comm)):
        with group(answer, ranks, DIFFERENT) as sent:
            for rows in ROWS:
                case = [_photos(rows[rank % len(rows)], seed + rank) for rank in range(ranks.size)]
                on_real(answer, ranks, functools.partial(_program, case, sent), functools.partial(_judge, case))


def _photos(row: str, seed: int) -> list[Photo]:
    """Draw a rank's photographs: those of the row first, then more of the same kinds."""
    draw, photos = random.Random(seed), []
    for letter in row + "".join(draw.choices(row, k=draw.randrange(20)) if row else ()):
        scores = [draw.gauss(0, 1) for _ in range(CLASSES)]
        scores[0] += 1000 * (letter == "S")
        guess = max(range(CLASSES), key=scores.__getitem__)
        others = [label for label in range(CLASSES) if label != guess]
        label = guess if letter.isupper() else draw.choice(others)
        photos.append((torch.tensor(scores, dtype=torch.float64), label, LIGHTS[letter.lower()]))
    return photos


# -- observation --


class Set(set):
    """A set as a process of its own has it: its order is another one. The processes of a fork server are too alike."""

    backwards = False

    def __iter__(self) -> Iterator[Any]:
        return iter(sorted(super().__iter__(), key=repr, reverse=self.backwards))

    def union(self, *others: Any) -> "Set":
        return Set(super().union(*others))

    __or__ = __ror__ = union


class Seen(NamedTuple):
    """What validate returned on a rank, and what the rank sent."""

    got: Any
    sent: list[Sent]


def _program(case: list[list[Photo]], sent: list[Sent], own: Answer, comm: "TracedComm") -> Seen:
    photos = list(case[comm.rank])
    sent.clear()
    Set.backwards = comm.rank % 2 == 1
    vars(own.module).setdefault("set", Set)  # unless the file has one of its own
    got = own.call("validate", nn.Identity(), photos, changes=(photos,))
    return Seen(got, list(sent))


Sums = dict[str, np.ndarray]


def _sums(photos: list[Photo]) -> Sums:
    """Sum the metrics of photographs, in one process."""
    sums: Sums = {}
    for x, label, light in photos:
        scores = x.numpy()
        guess = int(scores.argmax())
        one_of_each, of_label = np.zeros((CLASSES, CLASSES)), np.eye(CLASSES)[label]
        one_of_each[label, guess] = 1
        loss = np.log(np.exp(scores - scores[guess]).sum()) + scores[guess] - scores[label]
        added = {"confusion": one_of_each, f"{light} photos": np.ones(()), f"{light} loss": loss}
        added |= {f"{light} hits": np.ones(())} if guess == label else {"misses": of_label}
        for name, value in added.items():
            sums[name] = sums.get(name, np.zeros(SHAPES[name])) + value
    return sums


@dataclass(frozen=True)
class Facts:
    """What was seen on a rank and on everyone, and the sums of each rank alone."""

    rank: int
    seen: Seen
    alone: Sequence[Sums]
    everyone: Sequence[Seen]

    got = property(lambda self: self.seen.got)
    shown = property(lambda self: short(self.got))
    size = property(lambda self: len(self.alone))
    what = property(lambda self: f"the photographs of {counted(self.size, 'rank')}")
    own = property(lambda self: self.alone[self.rank])
    names = property(lambda self: sorted(set().union(*self.alone)))
    lacking = property(lambda self: _listed(name for name in self.names if name not in self.got))
    more = property(lambda self: _listed(name for name in self.got if name not in self.names))
    listed = property(lambda self: _listed(self.names))
    got_listed = property(lambda self: _listed(self.got))
    zeros_lack = property(lambda self: not any(self.want(name).any() for name in set(self.names) - set(self.got)))
    common = property(lambda self: set.intersection(*map(set, self.alone)))
    own_names = property(lambda self: all(set(s.got) == set(a) for s, a in zip(self.everyone, self.alone, strict=True)))
    calls = property(lambda self: len(self.seen.sent))
    nbytes = property(lambda self: sum(c.nbytes for c in self.seen.sent if c.name != "reduce"))  # to one rank
    by = property(lambda self: ", ".join(f"{n} x {call}" for call, n in Counter(self.seen.sent).most_common(4)))

    @property
    def is_dict(self) -> bool:
        """Whether a dictionary of tensors was returned."""
        return isinstance(self.got, dict) and all(isinstance(total, torch.Tensor) for total in self.got.values())

    def want(self, name: str) -> np.ndarray:
        return np.sum([sums[name] for sums in self.alone if name in sums], axis=0)

    @property
    def other_form(self) -> str:
        """The first name whose metric has another shape or dtype; empty for none."""
        forms = ((name, tuple(total.shape), total.dtype) for name, total in self.got.items())
        return next((name for name, *form in forms if form != [SHAPES[name], torch.float64]), "")

    @property
    def form(self) -> str:
        total = self.got[self.other_form]
        return f"{total.dtype} of shape {tuple(total.shape)}"

    shape = property(lambda self: SHAPES[self.other_form])

    @property
    def wrong(self) -> str:
        """The first name with another sum; empty for none."""
        return next((name for name in self.names if not self.is_like(name, self.want(name))), "")

    def is_like(self, name: str, value: Any, rtol: float = 1e-12) -> bool:
        return bool(np.allclose(self.got[name].detach().numpy(), value, rtol=rtol, atol=0.0))

    wanted_sum = property(lambda self: float(self.want(self.wrong).sum()))
    got_sum = property(lambda self: float(self.got[self.wrong].sum()))

    @property
    def mixed(self) -> bool:
        """Whether a wrong sum has this rank's numbers of the metric, and those of another metric of other ranks."""
        others = [
            [value for name, value in sums.items() if SHAPES[name] == SHAPES[self.wrong]]
            for rank, sums in enumerate(self.alone)
            if rank != self.rank
        ]
        own = self.own.get(self.wrong, 0.0)
        return any(self.is_like(self.wrong, own + sum(each)) for each in itertools.product(*others))


def _listed(names: Any) -> str:
    return ", ".join(map(repr, names)) or "no names"


def _judge(case: list[list[Photo]], everyone: Sequence[Seen]) -> Finding | None:
    alone = [_sums(photos) for photos in case]
    return judge(TESTS, *(Facts(rank, seen, alone, everyone) for rank, seen in enumerate(everyone)))


# -- what is said --

DIFFERENT = (
    "The n-th call of a rank meets the n-th calls of the others, whatever they are meant to sum. So all ranks need the "
    "same list of metrics in the same order. It must not depend on the photographs that a rank has seen, nor on a set "
    "of names, whose order is another one in each process."
)
TESTS = [
    Test(
        "no dictionary",
        lambda f: not f.is_dict,
        "a dictionary of tensors for {what}, on rank {rank}",
        "{shown}",
        "Return the sums on all ranks, as the program did.",
    ),
    Test(
        "names are missing",
        lambda f: set(f.names) - set(f.got),
        "{listed} for {what}",
        "rank {rank} lacks {lacking}",
        {
            "Metrics whose sum is 0 are left out. But the loss of a photograph may be 0, and this metric was added to. "
            "Let ranks tell each other which metrics they have.": lambda f: f.zeros_lack,
            "Only metrics that all ranks have are in the result. A rank that has met no such photograph adds zeros.": (
                lambda f: set(f.got) == f.common
            ),
            "Each rank has only its own metrics in the result. It has each metric on all ranks if any rank has it.": (
                lambda f: f.own_names
            ),
            "Only metrics that rank 0 has are in the result. The other ranks may have met something else.": (
                lambda f: set(f.got) == set(f.alone[0])
            ),
            "A metric belongs to the result if any rank has it, with zeros of ranks that have met no such "
            "photograph.": always,
        },
    ),
    Test(
        "more names",
        lambda f: set(f.got) - set(f.names),
        "{listed} for {what}",
        "also {more} on rank {rank}",
        "No rank has added to these. Ranks learn from each other which metrics there are: a number for each name, "
        "summed along with the metrics, is enough.",
    ),
    Test(
        "order of names",
        lambda f: list(f.got) != f.names,
        "the names {listed} in this order",
        "{got_listed} on rank {rank}",
        "The names in the result are sorted, so that they are in the same order on all ranks.",
    ),
    Test(
        "other form",
        lambda f: f.other_form,
        "{other_form!r} to be torch.float64 of shape {shape}",
        "{form} on rank {rank}",
        "Metrics keep their dtype and the shape that SHAPES names.",
    ),
    Test(
        "other sums",
        lambda f: f.wrong,
        "the numbers of {wrong!r} for {what} to add up to {wanted_sum}",
        "{got_sum} on rank {rank}",
        {
            "These numbers are rounded. Sum them as float64.": lambda f: f.is_like(f.wrong, f.want(f.wrong), 1e-5),
            "These are this rank's own numbers. All ranks get the sum over ranks.": (
                lambda f: f.is_like(f.wrong, f.own.get(f.wrong, 0.0))
            ),
            "That is the mean over ranks, and the sum is asked.": (
                lambda f: all(f.is_like(name, f.want(name) / f.size) for name in f.names)
            ),
            "Numbers of another metric are in this sum. Calls of equal shape are summed without an error, but the "
            "ranks were in calls about different metrics. All of them need the same order.": lambda f: f.mixed,
            "Each metric is the sum over the photographs of all ranks, and each photograph counts once.": always,
        },
    ),
    Test(
        "more calls",
        lambda f: f.calls > CALLS,
        f"at most {CALLS} collective calls in a call of validate",
        "{calls} on rank {rank}, by {by}",
        "Each call takes time and lets the ranks wait for the slowest one. Calls in the same order on all ranks need "
        "no other calls to keep them together.",
    ),
    Test(
        "more bytes",
        lambda f: f.nbytes > BYTES,
        f"at most {BYTES} bytes for a rank in a call of validate",
        "{nbytes} on rank {rank}, by {by}",
        "A rank needs the sums, and not what each other rank has: an all-reduce sends each metric once. Names alone "
        "may be gathered.",
    ),
]
