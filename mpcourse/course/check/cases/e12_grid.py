"""What e12_grid is asked: who is in each communicator, under which number; a ValueError where sizes do not fit."""

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from mpcourse.common.words import named
from mpcourse.course.check.answer import Answer
from mpcourse.course.check.cases.on_models import Finding, Program, on_real, on_virtual, one_line
from mpcourse.course.check.facts.grids import AXES, ORDER, GridSizes, grids_of, members
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
from mpcourse.course.check.rules import judge, rules, tests
from mpcourse.course.check.status_page import HasStatusPage
from mpcourse.course.check.wrong import short

if TYPE_CHECKING:
    from mpcourse.course.check.traced_mpi import TracedComm

NAME = "grid"

# -- inputs --

# First one on which every mistake shows for what it is: with one rank along an axis, different ones look the same.
GRIDS = [
    *(GridSizes(3, 2, 2), GridSizes(1, 1, 2), GridSizes(2, 1, 1), GridSizes(1, 2, 1), GridSizes(2, 1, 3)),
    *(GridSizes(3, 2, 1), GridSizes(1, 2, 3), GridSizes(2, 2, 2), GridSizes(2, 3, 2), GridSizes(1, 2, 5)),
    GridSizes(1, 1, 1),
]
REFUSED = [(GridSizes(2, 2, 2), 4), (GridSizes(1, 1, 2), 3), (GridSizes(2, 1, 1), 1), (GridSizes(1, 1, 1), 3)]


def check(answer: Answer, comm: "TracedComm") -> None:
    """Check the answer on real ranks; every rank must call this."""
    others = turned(comm)
    # All ranks make equally many calls, for they meet after each of them.
    for ranks, grids in ((comm, grids_of(comm.size)), (others, grids_of(others.size)[:1])):
        for sizes in grids:
            on_real(answer, ranks, _program(sizes), _judge)
        wrong = GridSizes(1, 2, ranks.size)
        on_real(answer, ranks, _program(wrong), _judge_refused)


def check_virtually(answer: Answer, comm: HasStatusPage) -> None:
    """Check the answer on virtual ranks; one process calls this."""
    for sizes in GRIDS:
        on_virtual(answer, comm, sizes.ranks, _program(sizes), _judge)
    for sizes, ranks in REFUSED:
        asked = REFUSAL.format(sizes=sizes, needed=sizes.ranks, ranks=ranks)
        stumbled = (asked, "Look at the sizes before the first Split: all ranks see the same three.")
        on_virtual(answer, comm, ranks, _program(sizes), _judge_refused, stumbled)
    sizes = GridSizes(2, 2, 1)
    stumbled = (f"a grid of the same sizes, {sizes}, over ranks in another order", AGAIN)
    on_virtual(answer, comm, 4, _program(sizes, again=True), _judge, stumbled)


# -- observation --


def _program(sizes: GridSizes, again: bool = False) -> Program:
    """Return the program that makes a grid of these sizes and observes it.

    again: a grid of these sizes was made before, over the same ranks in the opposite order.
    """

    def program(own: Answer, comm: Any) -> Facts:
        rank, comm = comm.rank, other_than_world(comm)
        if again:
            own.call(NAME, comm, *sizes)
            comm = comm.Split(0, -comm.rank)
        if is_virtual(comm) and comm.size != sizes.ranks and comm.rank == comm.size - 1:
            comm.compute(LATE)
        sent, began = counting(comm), clock(comm)
        facts = functools.partial(Facts, rank, sizes, comm.rank, again)
        try:
            result = own.call(NAME, comm, *sizes)
        except (ValueError, AssertionError) as error:
            if comm.size == sizes.ranks and isinstance(error, AssertionError):
                raise
            own.returned()
            return facts(error=error, waited=clock(comm) - began, sent=sent())
        if comm.size != sizes.ranks or not isinstance(result, tuple | list) or len(result) != 3:
            return facts(shown=short(result), sent=sent())
        if strange := [short(each) for each in result if not hasattr(each, "allgather")]:
            return facts(shown=f"{strange[0]}, which is no communicator", sent=sent())
        made = [(_numbers(comm, each), each.rank) for each in result]
        calls = comm.world.collectives[comm.me] if is_virtual(comm) else []
        return facts(made, sent=sent(), split_least=min((call.size for call in calls), default=math.inf))

    return program


def _numbers(comm: Any, made: Any) -> list[int]:
    """Return the numbers in `comm` of the ranks of a communicator, without a call that waits for them."""
    if is_virtual(comm):
        return [comm.ranks.index(rank) for rank in made.ranks]
    group = made.Get_group()
    return list(type(group).Translate_ranks(group, range(made.size), comm.Get_group()))


@dataclass(frozen=True)
class Facts:
    """What a call on `rank` did. again: as _program has it. axis: the one that is looked at.

    number: the rank's, in the communicator that it was given. made: of each axis its ranks, as numbers of that
    communicator, and this rank's number there; None where no three communicators came. shown: what came instead.
    error: the ValueError or AssertionError that was raised. waited: seconds until then. sent: known of virtual ranks.
    split_least: the ranks of the smallest communicator that was split; infinity where it is not known.
    """

    rank: int
    sizes: GridSizes
    number: int
    again: bool
    made: list[tuple[list[int], int]] | None = None
    shown: str = ""
    error: Exception | None = None
    waited: float = 0.0
    sent: Sent | None = None
    split_least: float = math.inf
    everyone: Sequence["Facts"] = ()
    axis: int = 0

    size = property(lambda self: len(self.everyone))
    ranks = property(lambda self: self.sizes.ranks)
    coordinates = property(lambda self: self.sizes.coordinates(self.number))
    name = property(lambda self: AXES[self.axis])
    want = property(lambda self: members(self.sizes, self.number, self.name))

    @functools.cached_property
    def groups(self) -> list[list[list[int]]]:
        """By number of each rank: of each axis the ranks."""
        return [[group for group, _ in facts.made or ()] for facts in sorted(self.everyone, key=lambda f: f.number)]

    group = property(lambda self: self.groups[self.number][self.axis])

    def along(self, axes: Sequence[str] = AXES, order: Sequence[str] = ORDER) -> list[list[list[int]]]:
        """Return the groups along these axes of a grid whose axes are counted up in this order."""
        return [[members(self.sizes, rank, axis, order) for axis in axes] for rank in range(self.ranks)]

    # Tests.

    no_communicators = property(lambda self: self.made is None)
    other_ranks = property(
        lambda self: self.group != self.want or self.made[self.axis][1] != self.want.index(self.number)
    )
    not_refused = property(lambda self: not isinstance(self.error, ValueError))
    late = property(lambda self: self.waited >= LATE)

    # What known mistakes make of communicators.

    other_keys = property(lambda self: sorted(self.group) == sorted(self.want))
    all_for_one = property(lambda self: len(self.want) == 1 and len(self.group) == self.ranks)
    one_color = property(lambda self: len(self.group) == self.ranks > len(self.want))

    @functools.cached_property
    def color(self) -> tuple[str, int, str, int]:
        """Return how a color gives this group, if by too small a factor: (axis, factor, other axis, its size)."""
        at = [dict(zip(AXES, self.sizes.coordinates(rank), strict=True)) for rank in range(self.ranks)]
        for one, other in itertools.permutations([axis for axis in AXES if axis != self.name]):
            for factor in range(2, getattr(self.sizes, other)):
                colors = [here[one] * factor + here[other] for here in at]
                if sorted(self.group) == [r for r in range(self.ranks) if colors[r] == colors[self.number]]:
                    return one, factor, other, getattr(self.sizes, other)
        return "", 0, "", 0

    small_factor = property(lambda self: set(self.want) < set(self.group) and self.color[0])
    several_groups = property(lambda self: set(self.want) < set(self.group))
    all_alone = property(lambda self: all(len(each[self.axis]) == 1 for each in self.groups))
    alone_in_part = property(lambda self: self.all_alone and self.split_least < self.size)

    @property
    def of_earlier_call(self) -> bool:
        """Whether all communicators are those of the grid that was made before, over ranks in the opposite order."""
        before = [[[self.ranks - 1 - r for r in group] for group in each] for each in self.along()[::-1]]
        return self.again and self.groups == before

    @property
    def other_order(self) -> str:
        """The order of three right communicators, if it is another one."""
        orders = (axes for axes in itertools.permutations(AXES) if axes != AXES and self.groups == self.along(axes))
        return ", ".join(next(orders, ()))

    @property
    def counted(self) -> tuple[str, ...]:
        """The axes from the outermost to the innermost, where ranks are counted otherwise; empty where they are not."""

        def in_any_order(groups: list[list[list[int]]]) -> list[list[list[int]]]:
            return [[sorted(group) for group in each] for each in groups]

        made = in_any_order(self.groups)
        orders = (o for o in itertools.permutations(ORDER) if o != ORDER and made == in_any_order(self.along(order=o)))
        return next(orders, ())

    @property
    def same_coordinate(self) -> bool:
        """Whether these are the ranks with the same coordinate in this axis."""
        at = [self.sizes.coordinates(r)[self.axis] for r in range(self.ranks)]
        return sorted(self.group) == [r for r in range(self.ranks) if at[r] == at[self.number]]

    @property
    def stranger(self) -> str:
        """A rank of this communicator that has another one along this axis."""
        return next((str(r) for r in self.group if self.groups[r][self.axis] != self.group), "")

    # Of sizes that do not fit.

    others = property(
        lambda self: [rank for rank, facts in enumerate(self.everyone) if not isinstance(facts.error, ValueError)]
    )
    some_refused = property(lambda self: len(self.others) < self.size)
    asserted = property(lambda self: isinstance(self.error, AssertionError))

    # What sentences show.

    refusal = property(lambda self: REFUSAL.format(sizes=self.sizes, needed=self.ranks, ranks=self.size))
    instead = property(lambda self: self.shown or str(self.error))
    nothing = property(lambda self: self.shown == "None")
    shown_error = property(lambda self: one_line(self.error))
    who_else = property(lambda self: named(self.others))
    who = property(lambda self: named(self.group))
    right_who = property(lambda self: named(self.want))


def _judge(results: Sequence[Facts]) -> Finding | None:
    everyone = [replace(facts, everyone=results, axis=axis) for axis in range(3) for facts in results]
    return judge(FORM, *results) or judge(GROUPS, *everyone)


def _judge_refused(results: Sequence[Facts]) -> Finding | None:
    return judge(REFUSALS, *(replace(facts, everyone=results) for facts in results))


# -- what is said --

REFUSAL = "a ValueError on all ranks: {sizes} is a grid of {needed} ranks, and there are {ranks}"
COMPARED = (
    "The product of the sizes has to equal comm.size: with more ranks some have no place on the grid, and with fewer "
    "some places have no rank."
)
AGAIN = (
    "comm has other ranks than in an earlier call with these sizes: make communicators anew, of the comm that is given."
)
DIGITS = "Coordinates are digits of the rank: rank % tensor, rank // tensor % data, rank // (tensor x data)."
ONE_AXIS = "The color is one number that the ranks of a group share and no others have: of both other coordinates."
WHYS_NO_GRID = rules(
    nothing="Nothing came back: are they returned?", otherwise="comm.Split returns one, also for one rank."
)
FORM = [
    THROUGH_WORLD,
    *tests(
        error=("communicators: {sizes} is a grid of all {ranks} ranks", "{shown_error}", COMPARED),
        no_communicators=("a tuple of three communicators, (data, pipeline, tensor)", "{shown}", WHYS_NO_GRID),
    ),
]
WHYS_GROUP = rules(
    of_earlier_call=AGAIN,
    other_keys=f"The right ranks, with the wrong numbers: the key of Split is the coordinate in this axis. {DIGITS}",
    other_order=("Three right communicators in another order, ({other_order}): (data, pipeline, tensor) was asked."),
    counted=(
        "That is a grid with {counted[2]} as its innermost axis and {counted[0]} as its outermost. Here a rank is "
        "(pipeline x data's size + data) x tensor's size + tensor: neighbours differ in tensor."
    ),
    stranger=(
        "Rank {stranger} is in this communicator, and has another one as its {name} axis. Splits belong together by "
        "their order: every rank makes those of the three axes in the same one."
    ),
    all_for_one="The {name} axis has one rank here, and this has all of them: an axis of one is a Split, too.",
    same_coordinate=(
        "These are the ranks with the same {name} coordinate. A communicator along an axis has those that differ in "
        "it: the color is what they have in common, the two other coordinates, and the key this one."
    ),
    one_color=f"All ranks got one color. {ONE_AXIS}",
    small_factor=(
        "Ranks of several groups got one color, as {color[0]} x {color[1]} + {color[2]} makes it: the {color[2]} axis "
        "has {color[3]} ranks here, so the factor has to be {color[3]} or more. Take it from the sizes that are passed."
    ),
    several_groups=f"Ranks of several groups got one color. {ONE_AXIS}",
    alone_in_part=(
        "A part of comm was split, in which other ranks of this axis may be missing. Each axis is a Split of comm "
        "itself."
    ),
    all_alone=f"Every rank has a color of its own. {ONE_AXIS}",
    otherwise=f"{DIGITS} Ranks that differ in one of them alone share the color that the two others make.",
)
GROUPS = tests(
    other_ranks=(
        "{name} of rank {number} ({coordinates}) to be {right_who}, in this order, with {sizes}",
        "{who}",
        WHYS_GROUP,
    )
)
WHYS_REFUSED = rules(
    some_refused="All ranks see the same sizes, so all of them refuse. One that goes on waits for the others.",
    asserted="An assert raises an AssertionError, and under `python -O` nothing: raise a ValueError.",
    otherwise=COMPARED,
)
REFUSALS = tests(
    not_refused=("{refusal}", "{instead} on {who_else}", WHYS_REFUSED),
    late=(
        "{refusal}, before any rank waits for another",
        "one on rank {rank} after {waited:.3g} s, once the last rank had come, too",
        "Each rank knows the sizes and the number of ranks by itself: it raises before the first Split, and asks no "
        "other rank.",
    ),
)
