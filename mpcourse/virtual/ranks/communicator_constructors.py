"""Communicator constructors (MPI 4.1, section 7.4): methods that make copies, parts, groups and grids."""

import math
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mpcourse.virtual.ranks.collective_call import line_of, meet
from mpcourse.virtual.ranks.constants import CONGRUENT, ERR_ARG, ERR_COMM, IDENT, SIMILAR, UNDEFINED, UNEQUAL
from mpcourse.virtual.ranks.group import Group
from mpcourse.virtual.ranks.place import place

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable

    from mpcourse.virtual.ranks.comm import VirtualComm
    from mpcourse.virtual.ranks.world import World

NONE = (None, (), -1)  # for a rank that is in no communicator


class Constructors:
    """All ranks of a communicator make these calls together, except Create_group and Free."""

    world: "World"
    context: int
    rank: int
    me: int
    name: str
    ranks: tuple[int, ...]
    is_topo = False
    topology = UNDEFINED
    _groups: "Counter[Any]"
    _as_grid: "Callable[[Any, list[int], list[int]], Any]"  # gives a communicator coordinates; cart.py sets it

    def Dup(self, info: Any = None) -> "VirtualComm":
        return self._made("Dup", (0, self.rank))

    def Clone(self) -> "VirtualComm":
        return self._made("Clone", (0, self.rank))

    def Split(self, color: int = 0, key: int = 0) -> Any:
        return self._made("Split", (color, key))

    def Split_type(self, split_type: int, key: int = 0, info: Any = None) -> Any:
        """Split by node, with COMM_TYPE_SHARED."""
        node = UNDEFINED if split_type == UNDEFINED else self.world.topology.node(self.me)
        return self._made("Split_type", (node, key))

    def Create_cart(self, dims: Sequence[int], periods: Sequence[bool] | None = None, reorder: bool = False) -> Any:
        """Put the first ranks in a grid, row by row; COMM_NULL for the others. periods: which directions are rings."""
        dims = [dims] if isinstance(dims, int) else [int(d) for d in dims]
        rings = [0] * len(dims) if periods is None else [int(bool(p)) for p in _list(periods, len(dims))]
        if len(rings) != len(dims) or any(d < 1 for d in dims) or math.prod(dims) > len(self.ranks):
            self._misused(f"Create_cart({dims}, periods={periods}) does not fit {len(self.ranks)} ranks", ERR_ARG)
        inside = self.rank < math.prod(dims)
        return self._as_grid(self._made("Create_cart", (0 if inside else UNDEFINED, self.rank)), dims, rings)

    def Get_topology(self) -> int:
        return self.topology

    @property
    def group(self) -> Group:
        return Group.of(self.ranks, self.me)

    def Get_group(self) -> Group:
        return self.group

    def Create(self, group: Group) -> Any:
        """Make a communicator of the ranks of `group`, in its order; COMM_NULL for the others. All ranks call it."""
        members = self._members("Create", group)

        def finish(given: list[Any]) -> tuple[int, list[Any]]:
            context = {g: next(self.world.contexts) for g in sorted(set(given))}
            return 16, [(context[g], self._named(g), g.index(r)) if r in g else NONE for r, g in enumerate(given)]

        return self._part(*meet(self, "Create", members, finish, {}, line_of()))

    def Create_group(self, group: Group, tag: int = 0) -> Any:
        """Make a communicator of the ranks of `group`, in its order. The ranks of `group` call it, and no others."""
        members = self._members("Create_group", group)
        if self.rank not in members:
            self._misused("Create_group is called by the ranks of the group alone, and this one is not in it")
        self._groups[members, tag] += 1
        key = (self.context, members, tag, self._groups[members, tag])
        context = self.world.groups.setdefault(key, next(self.world.contexts))
        return self._part(context, self._named(members), members.index(self.rank))

    def Compare(self, comm: "VirtualComm") -> int:
        """Return MPI.IDENT, MPI.CONGRUENT (the same ranks), MPI.SIMILAR (in another order) or MPI.UNEQUAL."""
        if self.context == comm.context:
            return IDENT
        return {IDENT: CONGRUENT, SIMILAR: SIMILAR, UNEQUAL: UNEQUAL}[self.group.Compare(comm.group)]

    def Free(self) -> None:
        """Make the communicator unusable for this rank from now on."""
        if self.context < self.world.size + 1:
            self._misused(f"{self.name} is MPI's own, and not freed by a program", ERR_COMM)
        from mpcourse.virtual.ranks.comm import NullComm

        self.__class__ = NullComm

    Disconnect = Free

    def _made(self, name: str, color_and_key: tuple[int, int]) -> Any:
        def finish(given: list[Any]) -> tuple[int, list[Any]]:
            members: dict[int, list[tuple[int, int]]] = {c: [] for c in sorted({c for c, _ in given if c != UNDEFINED})}
            for r, (c, k) in enumerate(given):
                if c != UNDEFINED:
                    members[c].append((k, r))
            parts: list[tuple] = [NONE] * len(given)
            for of in members.values():  # ranks share one tuple, because to make one for each of a thousand takes long
                own = [r for _, r in sorted(of)]
                context, ranks = next(self.world.contexts), self._named(own)
                for new, r in enumerate(own):
                    parts[r] = context, ranks, new
            return 16, parts

        return self._part(*meet(self, name, color_and_key, finish, {}, line_of()))

    def _named(self, members: Sequence[int]) -> tuple[int, ...]:
        """Return the ranks in the world of ranks of this communicator."""
        return tuple([self.ranks[r] for r in members])

    def _part(self, context: int | None, ranks: tuple[int, ...], rank: int) -> Any:
        """Return the communicator of the world's ranks `ranks`, in which this rank has number `rank`, or COMM_NULL."""
        from mpcourse.virtual.ranks.comm import COMM_NULL, VirtualComm

        if context is None:
            return COMM_NULL
        return VirtualComm._of(self.world, context, ranks, rank)

    def _members(self, name: str, group: Group) -> tuple[int, ...]:
        """Return the ranks of `group` in this communicator."""
        place = {each: r for r, each in enumerate(self.ranks)}
        if missing := [r for r in group.ranks if r not in place]:
            self._misused(f"{name}: rank {missing[0]} of the world is in the group, and not in this communicator")
        return tuple(place[r] for r in group.ranks)

    def _misused(self, text: str, number: int | None = None) -> None:
        self.world.fail("misuse", f"rank {self.me}, {place(sys._getframe())}: {text}", number)


def _list(value: Any, length: int) -> list[Any]:
    """Return a list with one value for each of `length` directions, if only one is given."""
    return [value] * length if isinstance(value, bool | int) else list(value)
