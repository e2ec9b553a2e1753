"""Groups: some ranks in an order, from which a communicator can be made."""

from collections.abc import Iterable, Sequence
from typing import Any

from mpcourse.virtual.ranks.constants import ERR_GROUP, ERR_RANK, IDENT, PROC_NULL, SIMILAR, UNDEFINED, UNEQUAL
from mpcourse.virtual.ranks.errors import ClusterError
from mpcourse.virtual.ranks.refused import Offered, reduced


class Group(Offered):
    """Some ranks. ranks: of the world, in the group's order; None for MPI.GROUP_NULL. me: the holder, in the world."""

    theirs = "Group"
    given: tuple[int, ...] | None
    me: int

    def __new__(cls, group: "Group | None" = None) -> "Group":
        """Return another name for `group`, or for MPI.GROUP_NULL."""
        made = super().__new__(cls)
        made.given, made.me = (None, -1) if group is None else (group.given, group.me)
        return made

    @classmethod
    def of(cls, ranks: Iterable[int], me: int = -1) -> "Group":
        """Make a group of these ranks."""
        made = cls()
        made.given, made.me = tuple(ranks), me
        return made

    @property
    def ranks(self) -> tuple[int, ...]:
        if self.given is None:
            raise ClusterError("misuse", "this is MPI.GROUP_NULL, which is no group", number=ERR_GROUP)
        return self.given

    def __bool__(self) -> bool:
        return self.given is not None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Group) and self.given == other.given

    def __hash__(self) -> int:
        return hash(self.given)

    def __reduce__(self) -> Any:
        return reduced(self, {"GROUP_NULL": GROUP_NULL, "GROUP_EMPTY": GROUP_EMPTY})

    def __repr__(self) -> str:
        return f"<a group of {self.size} virtual ranks>" if self else "MPI.GROUP_NULL"

    @property
    def size(self) -> int:
        return len(self.ranks)

    @property
    def rank(self) -> int:
        """This rank's number in the group; MPI.UNDEFINED if it is not in it."""
        return self.ranks.index(self.me) if self.me in self.ranks else UNDEFINED

    def Get_size(self) -> int:
        return self.size

    def Get_rank(self) -> int:
        return self.rank

    def Incl(self, ranks: Sequence[int]) -> "Group":
        return Group.of([self.ranks[r] for r in self._checked("Incl", ranks)], self.me)

    def Excl(self, ranks: Sequence[int]) -> "Group":
        out = set(self._checked("Excl", ranks))
        return Group.of([each for r, each in enumerate(self.ranks) if r not in out], self.me)

    def Range_incl(self, ranks: Sequence[Sequence[int]]) -> "Group":
        """Make a group of ranges. ranks: (first, last, step) each, including the last."""
        return self.Incl(_ranges(ranks))

    def Range_excl(self, ranks: Sequence[Sequence[int]]) -> "Group":
        return self.Excl(_ranges(ranks))

    def Translate_ranks(self, ranks: Sequence[int] | None = None, group: "Group | None" = None) -> list[int]:
        """Return the numbers of ranks of this group in another one."""
        other = self if group is None else group
        asked = list(range(self.size)) if ranks is None else [int(r) for r in ranks]
        self._checked("Translate_ranks", [r for r in asked if r != PROC_NULL])
        place = {each: r for r, each in enumerate(other.ranks)}
        return [PROC_NULL if r == PROC_NULL else place.get(self.ranks[r], UNDEFINED) for r in asked]

    @classmethod
    def Union(cls, group1: "Group", group2: "Group") -> "Group":
        return cls.of(dict.fromkeys(group1.ranks + group2.ranks), group1.me)

    @classmethod
    def Intersection(cls, group1: "Group", group2: "Group") -> "Group":
        return cls.of((r for r in group1.ranks if r in group2.ranks), group1.me)

    @classmethod
    def Difference(cls, group1: "Group", group2: "Group") -> "Group":
        return cls.of((r for r in group1.ranks if r not in group2.ranks), group1.me)

    def Compare(self, group: "Group") -> int:
        """Return MPI.IDENT, MPI.SIMILAR (in another order) or MPI.UNEQUAL."""
        if self.ranks == group.ranks:
            return IDENT
        return SIMILAR if sorted(self.ranks) == sorted(group.ranks) else UNEQUAL

    def Dup(self) -> "Group":
        return Group.of(self.ranks, self.me)

    def Free(self) -> None:
        """Turn the group into MPI.GROUP_NULL."""
        if self is GROUP_EMPTY or not self:
            raise ClusterError("misuse", f"{self!r} is not freed by a program", number=ERR_GROUP)
        self.given = None

    def _checked(self, name: str, ranks: Sequence[int]) -> list[int]:
        numbers = [int(r) for r in ranks]
        repeated = name != "Translate_ranks" and len(set(numbers)) != len(numbers)
        if repeated or not all(0 <= r < self.size for r in numbers):
            raise ClusterError(
                "misuse", f"Group.{name}({numbers}): different ranks are needed, 0 to {self.size - 1}", number=ERR_RANK
            )
        return numbers


def _ranges(ranks: Sequence[Sequence[int]]) -> list[int]:
    numbers: list[int] = []
    for first, last, step in ranks:
        numbers += range(first, last + (1 if step > 0 else -1), step)
    return numbers


GROUP_NULL, GROUP_EMPTY = Group(), Group.of(())
