"""Communicator constructors (MPI 4.1, section 7.4): the methods that make copies and parts of a communicator."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mpcourse.virtual.ranks.collective_call import line_of, meet
from mpcourse.virtual.ranks.constants import ERR_COMM, UNDEFINED
from mpcourse.virtual.ranks.place import place

if TYPE_CHECKING:
    from mpcourse.virtual.ranks.comm import VirtualComm
    from mpcourse.virtual.ranks.world import World

NONE = (None, (), -1)  # for a rank that is in no communicator


class Constructors:
    """All ranks of a communicator make these calls together, but that of Free."""

    world: "World"
    context: int
    rank: int
    me: int
    name: str
    ranks: tuple[int, ...]

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

    def _misused(self, text: str, number: int | None = None) -> None:
        self.world.fail("misuse", f"rank {self.me}, {place(sys._getframe())}: {text}", number)
