"""What e10_grid is asked: who is in each communicator, under which number; a ValueError where sizes do not fit."""

import functools
import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mpcourse.common.words import named
from mpcourse.course.check.answer import Answer
from mpcourse.course.check.cases.on_models import Finding, Program, on_real, on_virtual, one_line
from mpcourse.course.check.cases.on_ranks import turned
from mpcourse.course.check.facts.grids import AXES, GridSizes, grids_of, members
from mpcourse.course.check.status_page import HasStatusPage
from mpcourse.course.check.wrong import Wrong, short

if TYPE_CHECKING:
    from mpcourse.course.check.traced_mpi import TracedComm

NAME = "grid"
# First one on which every mistake shows for what it is: with one rank along an axis, different ones look the same.
_GRIDS = [
    *(GridSizes(3, 2, 2), GridSizes(1, 1, 2), GridSizes(2, 1, 1), GridSizes(1, 2, 1), GridSizes(2, 1, 3)),
    *(GridSizes(3, 2, 1), GridSizes(1, 2, 3), GridSizes(2, 2, 2), GridSizes(2, 3, 2), GridSizes(1, 1, 1)),
]
_REFUSED = [(GridSizes(2, 2, 2), 4), (GridSizes(1, 1, 2), 3), (GridSizes(2, 1, 1), 1), (GridSizes(1, 1, 1), 3)]
_COMPARED = (
    "The product of the sizes has to be compared with comm.size: with another one some ranks have no place on the grid."
)
_DIGITS = "Coordinates are digits of the rank: rank % tensor, rank // tensor % data, rank // (tensor x data)."
_ONE_AXIS = "The color is one number that the ranks of a group share and no others have: of both other coordinates."


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
    for sizes in _GRIDS:
        on_virtual(answer, comm, sizes.ranks, _program(sizes), functools.partial(_judge, sizes))
    for sizes, ranks in _REFUSED:
        stumbled = (_refusal(sizes, ranks), "Look at the sizes before the first Split: all ranks see the same three.")
        judge = functools.partial(_judge_refused, sizes)
        on_virtual(answer, comm, ranks, _program(sizes), judge, stumbled)


def _program(sizes: GridSizes) -> Program:
    """Of each communicator its ranks, as numbers of comm, and this rank's number; or the ValueError."""
    fits = sizes.ranks

    def program(own: Answer, comm: Any) -> Any:
        try:
            result = own.call(NAME, comm, *sizes)
        except ValueError as error:
            if comm.size == fits:
                raise Wrong(
                    f"communicators: {sizes} is a grid of all {fits} ranks", one_line(error), _COMPARED
                ) from None
            own.returned()
            return error
        except AssertionError as error:
            if comm.size == fits:
                raise
            own.returned()
            return error
        if comm.size != fits:
            return short(result)
        if not isinstance(result, tuple | list) or len(result) != 3:
            return f"{short(result)}"
        if wrong := [short(each) for each in result if not hasattr(each, "allgather")]:
            return f"{wrong[0]}, which is no communicator"
        return [(each.allgather(comm.rank), each.rank) for each in result]

    return program


def _refusal(sizes: GridSizes, ranks: int) -> str:
    return f"a ValueError on all ranks: {sizes} is a grid of {sizes.ranks} ranks, and there are {ranks}"


def _judge_refused(sizes: GridSizes, results: Sequence[Any]) -> Finding | None:
    wrong = [rank for rank, result in enumerate(results) if not isinstance(result, ValueError)]
    if not wrong:
        return None
    if len(wrong) < len(results):
        why = "All ranks see the same sizes, so all of them refuse. One that goes on waits for the others."
    elif isinstance(results[0], AssertionError):
        why = "An assert raises an AssertionError, and under `python -O` nothing: raise a ValueError."
    else:
        why = _COMPARED
    got = f"{results[wrong[0]]} on {named(wrong)}"
    return Finding(wrong[0], _refusal(sizes, len(results)), got, why)


def _judge(sizes: GridSizes, results: Sequence[Any]) -> Finding | None:
    for rank, result in enumerate(results):
        if isinstance(result, str):
            why = (
                "Nothing came back: are they returned?"
                if result == "None"
                else "comm.Split returns one, also for one rank."
            )
            return Finding(rank, "a tuple of three communicators, (data, pipeline, tensor)", result, why)
    for axis in range(3):
        for rank, result in enumerate(results):
            group, number = result[axis]
            want = members(sizes, rank, AXES[axis])
            if group != want or number != want.index(rank):
                at = sizes.coordinates(rank)
                asked = f"{AXES[axis]} of rank {rank} ({at}) to be {named(want)}, in this order, with {sizes}"
                return Finding(rank, asked, named(group), _why(sizes, list(results), axis, rank))
    return None


def _why(sizes: GridSizes, results: list[list[tuple[list[int], int]]], axis: int, rank: int) -> str:
    """The misconception behind communicators that are not those of the grid."""
    groups = [[group for group, _ in result] for result in results]
    group, want = groups[rank][axis], members(sizes, rank, AXES[axis])
    if sorted(group) == sorted(want):
        return f"The right ranks, with the wrong numbers: the key of Split is the coordinate in this axis. {_DIGITS}"
    for order in itertools.permutations(range(3)):
        if order != (0, 1, 2) and all(
            each[i] == members(sizes, r, AXES[order[i]]) for r, each in enumerate(groups) for i in range(3)
        ):
            names = ", ".join(AXES[i] for i in order)
            return f"Three right communicators in another order, ({names}): (data, pipeline, tensor) was asked."
    for fastest in itertools.permutations(AXES):
        if fastest != ("tensor", "data", "pipeline") and all(
            sorted(each[i]) == sorted(_other_order(sizes, r, AXES[i], fastest))
            for r, each in enumerate(groups)
            for i in range(3)
        ):
            return (
                f"That is a grid with {fastest[0]} as its fastest axis and {fastest[2]} as its slowest. Here a rank is "
                "(pipeline x data's size + data) x tensor's size + tensor: neighbours differ in tensor."
            )
    if len(want) == 1 and len(group) == sizes.ranks:
        return f"The {AXES[axis]} axis has one rank here, and this has all of them: an axis of one is a Split, too."
    own = sizes.coordinates(rank)
    same = [r for r in range(sizes.ranks) if sizes.coordinates(r)[axis] == own[axis]]
    if sorted(group) == same:
        return (
            f"These are the ranks with the same {AXES[axis]} coordinate. A communicator along an axis has those that "
            "differ in it: the color is what they have in common, the two other coordinates, and the key this one."
        )
    if len(group) == sizes.ranks and len(want) < sizes.ranks:
        return f"All ranks got one color. {_ONE_AXIS}"
    if set(want) < set(group):
        return f"Ranks of several groups got one color. {_ONE_AXIS}"
    if len(group) == 1:
        return f"Every rank has a color of its own, or the others are not in what was split. {_ONE_AXIS}"
    return f"{_DIGITS} Ranks that differ in one of them alone share the color that the two others make."


def _other_order(sizes: GridSizes, rank: int, axis: str, fastest: tuple[str, ...]) -> list[int]:
    """The ranks along an axis on a grid whose axes are counted up in the order `fastest`."""

    def at(r: int) -> dict[str, int]:
        coordinates = {}
        for name in fastest:
            r, coordinates[name] = divmod(r, getattr(sizes, name))
        return coordinates

    own = at(rank)
    return [r for r in range(sizes.ranks) if all(at(r)[name] == own[name] for name in AXES if name != axis)]
