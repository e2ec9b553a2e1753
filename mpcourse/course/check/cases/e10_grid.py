"""What e10_grid is asked: who is in each communicator, under which number; a ValueError where sizes do not fit."""

import functools
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from mpcourse.common.words import named
from mpcourse.course.check.answer import Answer
from mpcourse.course.check.cases.on_models import Finding, Program, on_real, on_virtual, one_line
from mpcourse.course.check.facts.grids import AXES, GridSizes, grids_of, members
from mpcourse.course.check.facts.messages import (
    LATE,
    THROUGH_WORLD,
    Sent,
    clock,
    counting,
    is_virtual,
    other_than_world,
)
from mpcourse.course.check.facts.ranks import turned
from mpcourse.course.check.rules import Rule, Test, always, judge
from mpcourse.course.check.status_page import HasStatusPage
from mpcourse.course.check.wrong import short

if TYPE_CHECKING:
    from mpcourse.course.check.traced_mpi import TracedComm

NAME = "grid"

# -- inputs --

# First one on which every mistake shows for what it is: with one rank along an axis, different ones look the same.
GRIDS = [
    *(GridSizes(3, 2, 2), GridSizes(1, 1, 2), GridSizes(2, 1, 1), GridSizes(1, 2, 1), GridSizes(2, 1, 3)),
    *(GridSizes(3, 2, 1), GridSizes(1, 2, 3), GridSizes(2, 2, 2), GridSizes(2, 3, 2), GridSizes(1, 1, 1)),
]
REFUSED = [(GridSizes(2, 2, 2), 4), (GridSizes(1, 1, 2), 3), (GridSizes(2, 1, 1), 1), (GridSizes(1, 1, 1), 3)]


def check(answer: Answer, comm: "TracedComm") -> None:
    """On real ranks, every one of which must call this."""
    others = turned(comm)
    # All ranks make equally many calls, for they meet after each of them.
    for ranks, grids in ((comm, grids_of(comm.size)), (others, grids_of(others.size)[:1])):
        for sizes in grids:
            on_real(answer, ranks, _program(sizes), functools.partial(_judge, sizes))
        wrong = GridSizes(1, 2, ranks.size)
        on_real(answer, ranks, _program(wrong), functools.partial(_judge_refused, wrong))


def check_virtually(answer: Answer, comm: HasStatusPage) -> None:
    """On virtual ranks; one process calls this."""
    for sizes in GRIDS:
        on_virtual(answer, comm, sizes.ranks, _program(sizes), functools.partial(_judge, sizes))
    for sizes, ranks in REFUSED:
        asked = REFUSAL.format(sizes=sizes, needed=sizes.ranks, ranks=ranks)
        stumbled = (asked, "Look at the sizes before the first Split: all ranks see the same three.")
        on_virtual(answer, comm, ranks, _program(sizes), functools.partial(_judge_refused, sizes), stumbled)
    sizes = GridSizes(2, 2, 1)
    stumbled = (f"a grid of the same sizes, {sizes}, over ranks in another order", AGAIN)
    on_virtual(answer, comm, 4, _program(sizes, again=True), functools.partial(_judge, sizes, again=True), stumbled)


# -- observation --


class Seen(NamedTuple):
    """What a call on one rank did.

    number: the rank's, in the communicator that it was given. groups: of each axis its ranks, as numbers of that
    communicator, and this rank's number there; None where no three communicators came. shown: what came instead.
    error: the ValueError or AssertionError that was raised. waited: seconds until then. sent: known of virtual ranks.
    """

    number: int
    groups: list[tuple[list[int], int]] | None = None
    shown: str = ""
    error: Exception | None = None
    waited: float = 0.0
    sent: Sent | None = None


def _program(sizes: GridSizes, again: bool = False) -> Program:
    """again: a grid of these sizes was made before, over the same ranks in the opposite order."""

    def program(own: Answer, comm: Any) -> Seen:
        comm = other_than_world(comm)
        if again:
            own.call(NAME, comm, *sizes)
            comm = comm.Split(0, -comm.rank)
        if is_virtual(comm) and comm.size != sizes.ranks and comm.rank == comm.size - 1:
            comm.compute(LATE)
        sent, began = counting(comm) if is_virtual(comm) else lambda: None, clock(comm)
        try:
            result = own.call(NAME, comm, *sizes)
        except (ValueError, AssertionError) as error:
            if comm.size == sizes.ranks and isinstance(error, AssertionError):
                raise
            own.returned()
            return Seen(comm.rank, None, "", error, clock(comm) - began, sent())
        if comm.size != sizes.ranks or not isinstance(result, tuple | list) or len(result) != 3:
            return Seen(comm.rank, None, short(result), sent=sent())
        if strange := [short(each) for each in result if not hasattr(each, "allgather")]:
            return Seen(comm.rank, None, f"{strange[0]}, which is no communicator", sent=sent())
        return Seen(comm.rank, [(_numbers(comm, each), each.rank) for each in result], sent=sent())

    return program


def _numbers(comm: Any, made: Any) -> list[int]:
    """Return the numbers in `comm` of the ranks of a communicator, without a call that waits for them."""
    if is_virtual(comm):
        return [comm.ranks.index(rank) for rank in made.ranks]
    group = made.Get_group()
    return list(type(group).Translate_ranks(group, range(made.size), comm.Get_group()))


@dataclass(frozen=True)
class Facts:
    """What calls did, seen from `rank`. axis: the one that is looked at. again: as _program has it."""

    rank: int
    sizes: GridSizes
    everyone: Sequence[Seen]
    axis: int = 0
    again: bool = False

    seen = property(lambda self: self.everyone[self.rank])
    number = property(lambda self: self.seen.number)
    in_order = property(lambda self: sorted(self.everyone, key=lambda seen: seen.number))
    # By number: of each axis the ranks.
    groups = property(lambda self: [[group for group, _ in seen.groups] for seen in self.in_order])
    group = property(lambda self: self.groups[self.number][self.axis])
    name = property(lambda self: AXES[self.axis])
    want = property(lambda self: members(self.sizes, self.number, self.name))
    is_right = property(
        lambda self: self.group == self.want and self.seen.groups[self.axis][1] == self.want.index(self.number)
    )
    coordinates = property(lambda self: self.sizes.coordinates(self.number))
    ranks = property(lambda self: self.sizes.ranks)

    @property
    def alike(self) -> list[int]:
        """The ranks with the same coordinate in this axis."""
        at = self.sizes.coordinates
        return [r for r in range(self.ranks) if at(r)[self.axis] == self.coordinates[self.axis]]

    @property
    def other_order(self) -> str:
        """The order of three right communicators, if it is another one."""
        for order in itertools.permutations(range(3)):
            right = (
                each[i] == members(self.sizes, r, AXES[order[i]])
                for r, each in enumerate(self.groups)
                for i in range(3)
            )
            if order != (0, 1, 2) and all(right):
                return ", ".join(AXES[i] for i in order)
        return ""

    @property
    def counted(self) -> tuple[str, ...]:
        """The axes from the fastest to the slowest, where ranks are counted otherwise; empty where they are not."""
        for fastest in itertools.permutations(AXES):
            right = (
                sorted(each[i]) == sorted(_counted(self.sizes, r, AXES[i], fastest))
                for r, each in enumerate(self.groups)
                for i in range(3)
            )
            if fastest != ("tensor", "data", "pipeline") and all(right):
                return fastest
        return ()

    fastest = property(lambda self: self.counted[0])
    slowest = property(lambda self: self.counted[2])

    @property
    def stranger(self) -> int | None:
        """A rank of this communicator that has another one along this axis."""
        return next((r for r in self.group if self.groups[r][self.axis] != self.group), None)

    @property
    def of_earlier_call(self) -> bool:
        """Whether all communicators are those of the grid that was made before."""
        last = self.ranks - 1
        return self.again and all(
            each[i] == [last - r for r in members(self.sizes, last - number, AXES[i])]
            for number, each in enumerate(self.groups)
            for i in range(3)
        )

    # Of sizes that do not fit.

    error = property(lambda self: self.seen.error)
    refused = property(lambda self: isinstance(self.error, ValueError))
    not_refused = property(
        lambda self: [rank for rank, seen in enumerate(self.everyone) if not isinstance(seen.error, ValueError)]
    )
    size = property(lambda self: len(self.everyone))

    # What sentences show.

    sent = property(lambda self: self.seen.sent)
    refusal = property(lambda self: REFUSAL.format(sizes=self.sizes, needed=self.ranks, ranks=self.size))
    shown = property(lambda self: self.seen.shown or str(self.error))
    shown_error = property(lambda self: one_line(self.error))
    who_not_refused = property(lambda self: named(self.not_refused))
    who = property(lambda self: named(self.group))
    right_who = property(lambda self: named(self.want))


def _counted(sizes: GridSizes, rank: int, axis: str, fastest: tuple[str, ...]) -> list[int]:
    """Return the ranks along an axis on a grid whose axes are counted up in the order `fastest`."""

    def at(r: int) -> dict[str, int]:
        coordinates = {}
        for name in fastest:
            r, coordinates[name] = divmod(r, getattr(sizes, name))
        return coordinates

    own = at(rank)
    return [r for r in range(sizes.ranks) if all(at(r)[name] == own[name] for name in AXES if name != axis)]


def _judge(sizes: GridSizes, results: Sequence[Seen], again: bool = False) -> Finding | None:
    everyone = [[Facts(rank, sizes, results, axis, again) for rank in range(len(results))] for axis in range(3)]
    return judge(FORM, *everyone[0]) or judge(GROUPS, *itertools.chain(*everyone))


def _judge_refused(sizes: GridSizes, results: Sequence[Seen]) -> Finding | None:
    return judge(REFUSALS, *(Facts(rank, sizes, results) for rank in range(len(results))))


# -- what is said --

REFUSAL = "a ValueError on all ranks: {sizes} is a grid of {needed} ranks, and there are {ranks}"
COMPARED = (
    "The product of the sizes has to be compared with comm.size: with another one some ranks have no place on the grid."
)
AGAIN = (
    "comm has other ranks than in an earlier call with these sizes: make communicators anew, of the comm that is given."
)
DIGITS = "Coordinates are digits of the rank: rank % tensor, rank // tensor % data, rank // (tensor x data)."
ONE_AXIS = "The color is one number that the ranks of a group share and no others have: of both other coordinates."
WHYS_NO_GRID = [
    Rule("None", lambda f: f.shown == "None", "Nothing came back: are they returned?"),
    Rule("no communicators", always, "comm.Split returns one, also for one rank."),
]
FORM = [
    THROUGH_WORLD,
    Test(
        "refused", lambda f: f.error, "communicators: {sizes} is a grid of all {ranks} ranks", "{shown_error}", COMPARED
    ),
    Test(
        "no communicators",
        lambda f: f.seen.groups is None,
        "a tuple of three communicators, (data, pipeline, tensor)",
        "{shown}",
        WHYS_NO_GRID,
    ),
]
WHYS_GROUP = [
    Rule("of an earlier call", lambda f: f.of_earlier_call, AGAIN),
    Rule(
        "wrong numbers",
        lambda f: sorted(f.group) == sorted(f.want),
        f"The right ranks, with the wrong numbers: the key of Split is the coordinate in this axis. {DIGITS}",
    ),
    Rule(
        "another order",
        lambda f: f.other_order,
        "Three right communicators in another order, ({other_order}): (data, pipeline, tensor) was asked.",
    ),
    Rule(
        "counted otherwise",
        lambda f: f.counted,
        "That is a grid with {fastest} as its fastest axis and {slowest} as its slowest. Here a rank is (pipeline x "
        "data's size + data) x tensor's size + tensor: neighbours differ in tensor.",
    ),
    Rule(
        "Splits in another order",
        lambda f: f.stranger is not None,
        "Rank {stranger} is in this communicator, and has another one as its {name} axis. Splits belong together by "
        "their order: every rank makes those of the three axes in the same one.",
    ),
    Rule(
        "all for one",
        lambda f: len(f.want) == 1 and len(f.group) == f.ranks,
        "The {name} axis has one rank here, and this has all of them: an axis of one is a Split, too.",
    ),
    Rule(
        "the same coordinate",
        lambda f: sorted(f.group) == f.alike,
        "These are the ranks with the same {name} coordinate. A communicator along an axis has those that differ in "
        "it: the color is what they have in common, the two other coordinates, and the key this one.",
    ),
    Rule(
        "one color", lambda f: len(f.group) == f.ranks and len(f.want) < f.ranks, f"All ranks got one color. {ONE_AXIS}"
    ),
    Rule("several groups", lambda f: set(f.want) < set(f.group), f"Ranks of several groups got one color. {ONE_AXIS}"),
    Rule(
        "alone",
        lambda f: len(f.group) == 1,
        f"Every rank has a color of its own, or the others are not in what was split. {ONE_AXIS}",
    ),
    Rule(
        "other digits",
        always,
        f"{DIGITS} Ranks that differ in one of them alone share the color that the two others make.",
    ),
]
GROUPS = [
    Test(
        "other ranks",
        lambda f: not f.is_right,
        "{name} of rank {number} ({coordinates}) to be {right_who}, in this order, with {sizes}",
        "{who}",
        WHYS_GROUP,
    )
]
WHYS_REFUSED = [
    Rule(
        "only on some ranks",
        lambda f: len(f.not_refused) < f.size,
        "All ranks see the same sizes, so all of them refuse. One that goes on waits for the others.",
    ),
    Rule(
        "assert",
        lambda f: isinstance(f.error, AssertionError),
        "An assert raises an AssertionError, and under `python -O` nothing: raise a ValueError.",
    ),
    Rule("not compared", always, COMPARED),
]
REFUSALS = [
    Test("no ValueError", lambda f: not f.refused, "{refusal}", "{shown} on {who_not_refused}", WHYS_REFUSED),
    Test(
        "late",
        lambda f: f.seen.waited >= LATE,
        "{refusal}, before any rank waits for another",
        "one on rank {rank} after {seen.waited:.3g} s, once the last rank had come, too",
        "Each rank knows the sizes and the number of ranks by itself: it raises before the first Split, and asks no "
        "other rank.",
    ),
]
