"""Groups: some ranks in an order, of which a communicator can be made."""

from collections.abc import Iterable, Sequence

from mpcourse.virtual.cluster.errors import ClusterError
from mpcourse.virtual.cluster.several import UNDEFINED

IDENT, CONGRUENT, SIMILAR, UNEQUAL = range(4)  # MPICH's numbers


class Group:
    """ranks: of the world, in the group's order. me: the rank that holds it, of the world."""

    def __init__(self, ranks: Iterable[int] = (), me: int = -1) -> None:
        self.ranks, self.me = tuple(ranks), me

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Group) and self.ranks == other.ranks

    def __hash__(self) -> int:
        return hash(self.ranks)

    def __repr__(self) -> str:
        return f"<a group of {self.size} virtual ranks>"

    @property
    def size(self) -> int:
        return len(self.ranks)

    @property
    def rank(self) -> int:
        """MPI.UNDEFINED where this rank is not in it."""
        return self.ranks.index(self.me) if self.me in self.ranks else UNDEFINED

    def Get_size(self) -> int:
        return self.size

    def Get_rank(self) -> int:
        return self.rank

    def Incl(self, ranks: Sequence[int]) -> "Group":
        return Group([self.ranks[r] for r in self._checked("Incl", ranks)], self.me)

    def Excl(self, ranks: Sequence[int]) -> "Group":
        out = set(self._checked("Excl", ranks))
        return Group([each for r, each in enumerate(self.ranks) if r not in out], self.me)

    def Range_incl(self, ranks: Sequence[Sequence[int]]) -> "Group":
        """ranks: (first, last, step) each; the last belongs to it."""
        return self.Incl(_ranges(ranks))

    def Range_excl(self, ranks: Sequence[Sequence[int]]) -> "Group":
        return self.Excl(_ranges(ranks))

    def Translate_ranks(self, ranks: Sequence[int] | None = None, group: "Group | None" = None) -> list[int]:
        """What ranks of this group are called in another one."""
        other = self if group is None else group
        asked = range(self.size) if ranks is None else self._checked("Translate_ranks", ranks)
        place = {each: r for r, each in enumerate(other.ranks)}
        return [place.get(self.ranks[r], UNDEFINED) for r in asked]

    @classmethod
    def Union(cls, group1: "Group", group2: "Group") -> "Group":
        return cls(dict.fromkeys(group1.ranks + group2.ranks), group1.me)

    @classmethod
    def Intersection(cls, group1: "Group", group2: "Group") -> "Group":
        return cls((r for r in group1.ranks if r in group2.ranks), group1.me)

    @classmethod
    def Difference(cls, group1: "Group", group2: "Group") -> "Group":
        return cls((r for r in group1.ranks if r not in group2.ranks), group1.me)

    @classmethod
    def Compare(cls, group1: "Group", group2: "Group") -> int:
        """MPI.IDENT, MPI.SIMILAR (in another order) or MPI.UNEQUAL."""
        if group1.ranks == group2.ranks:
            return IDENT
        return SIMILAR if sorted(group1.ranks) == sorted(group2.ranks) else UNEQUAL

    def Dup(self) -> "Group":
        return Group(self.ranks, self.me)

    def Free(self) -> None:
        """Nothing is kept."""

    def _checked(self, name: str, ranks: Sequence[int]) -> list[int]:
        found = [int(r) for r in ranks]
        repeated = name != "Translate_ranks" and len(set(found)) != len(found)
        if repeated or not all(0 <= r < self.size for r in found):
            raise ClusterError("misuse", f"Group.{name}({found}): different ranks are needed, 0 to {self.size - 1}")
        return found


def _ranges(ranks: Sequence[Sequence[int]]) -> list[int]:
    found: list[int] = []
    for first, last, step in ranks:
        found += range(first, last + (1 if step > 0 else -1), step)
    return found
