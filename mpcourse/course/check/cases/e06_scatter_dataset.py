"""What e06_scatter_dataset is asked: every example once, evenly, in one order that the seed alone decides."""

import functools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch

from mpcourse.common.words import named
from mpcourse.course.check.answer import Answer
from mpcourse.course.check.cases.on_models import Case, all_on_real, all_on_virtual
from mpcourse.course.check.facts.ranks import Hash
from mpcourse.course.check.rules import Finding, Rule, Test, Whys, judge
from mpcourse.course.check.wrong import short

NAME = "scatter_indices"
LONG = 40  # chance leaves no row of as many examples sorted
CUT = "np.array_split cuts so that lengths differ by one at most, and gives empty pieces where there are too few."

# -- inputs --


@dataclass(frozen=True)
class Call(Case):
    """The arguments of a call, which is made twice, and then once more with another seed."""

    n: int
    shuffle: bool
    seed: int

    text = property(lambda self: f"{NAME}(comm, {self.n}, {self.shuffle}, {self.seed})")

    def program(self, own: Answer, comm: Any) -> "Seen":
        before = _states()
        processes = [Hash(f"{comm.rank}, {process}") for process in range(2)]

        def share(process: int, seed: int) -> Any:
            if vars(own.module).get("hash") in (None, *processes):  # unless the file has one of its own
                vars(own.module)["hash"] = processes[process]
            return own.call(NAME, comm, self.n, self.shuffle, seed)

        first = share(0, self.seed)
        changed = next((name for name, state in _states().items() if state != before[name]), "")
        again, other = share(1, self.seed), share(1, self.seed + 1)
        return Seen(first, again, other, changed, any(process.salted for process in processes))

    def findings(self, seen: "Sequence[Seen]") -> Iterator[Finding | None]:
        everyone = [Facts(rank, self, seen) for rank in range(len(seen))]
        yield judge(ARRAYS, *everyone)
        yield judge(EXAMPLES, *everyone)
        yield judge(COVER, Facts(None, self, seen))
        if not self.shuffle:
            yield judge(IN_ORDER, *everyone)
            return
        yield judge(AGAIN, *everyone)
        yield judge(RANDOM, everyone[0])
        yield judge(GLOBAL, *everyone)

    def stumbled(self, size: int) -> tuple[str, str] | None:
        few = f"Fewer examples than ranks: some shares are empty. {CUT}"
        return (f"shares of {self.n} examples for {size} ranks", few) if self.n < size else None


def _states() -> dict[str, Any]:
    """Return the states of the global generators, by the name of who owns them."""
    kind, keys, *rest = np.random.get_state(legacy=True)
    return {
        "np.random": (kind, np.asarray(keys).tobytes(), rest),
        "torch": torch.get_rng_state().numpy().tobytes(),
        "random": random.getstate(),
    }


_IN_ORDER = [Call(n, False, n % 2) for n in (12, 10, 7, 3, 2, 1, 0)]  # 0 is a seed like any other
_SHUFFLED = [Call(n, True, n % 2) for n in (41, 60, 2, 1, 0)]  # the first by seed 1: some take 0 for no seed
_REAL = [Call(11, False, 3), Call(50, True, 3), Call(50, True, 5), Call(50, False, 3), Call(1, True, 3)]
check = functools.partial(all_on_real, cases=_REAL)
check_virtually = functools.partial(all_on_virtual, cases=[*_IN_ORDER, *_SHUFFLED])

# -- facts --


class Seen(NamedTuple):
    """On one rank. own, again, other: its shares, of the other seed last. changed: whose global generator has changed.

    hashed: whether hash() was asked of a text.
    """

    own: Any
    again: Any
    other: Any
    changed: str
    hashed: bool


@dataclass(frozen=True)
class Facts:
    """What all ranks were given. rank: the one that a verdict is about; None: all of them."""

    rank: int | None
    case: Call
    seen: Sequence[Seen]

    # Of this rank.

    mine = property(lambda self: self.seen[self.rank])
    share, again = property(lambda self: self.mine.own), property(lambda self: self.mine.again)
    kind = property(lambda self: self.share.dtype.kind)
    outside = property(lambda self: self.share[(self.share < 0) | (self.share >= self.n)])
    begin = property(lambda self: sum(self.lengths[: self.rank]))  # if they are not shuffled
    end = property(lambda self: self.begin + len(self.share) - 1)

    # Of all ranks, once each share is an array of examples.

    n, size = property(lambda self: self.case.n), property(lambda self: len(self.seen))
    shares = property(lambda self: [seen.own for seen in self.seen])
    lengths = property(lambda self: [len(share) for share in self.shares])
    hashed = property(lambda self: any(seen.hashed for seen in self.seen))
    even = property(lambda self: max(self.lengths) - min(self.lengths) <= 1)
    times = property(lambda self: np.bincount(np.concatenate(self.shares), minlength=self.n))
    missing = property(lambda self: np.flatnonzero(self.times == 0))
    doubled = property(lambda self: np.flatnonzero(self.times > 1))
    alike = property(lambda self: all(_equal(np.sort(share), np.sort(self.shares[0])) for share in self.shares))
    doubled_in_one = property(lambda self: any(len(set(share.tolist())) < len(share) for share in self.shares))
    many = property(lambda self: self.n >= LONG)
    cut = property(lambda self: self.many and self.size > 1)
    same_for_other = property(lambda self: self.many and all(_equal(seen.own, seen.other) for seen in self.seen))
    ordered = property(lambda self: all((np.diff(share) > 0).all() for share in self.shares))
    runs = property(lambda self: self.cut and all(np.ptp(share) == len(share) - 1 for share in self.shares))
    dealt = property(lambda self: self.cut and all(len(set(share % self.size)) == 1 for share in self.shares))

    # What sentences show.

    last = property(lambda self: self.n - 1)
    type = property(lambda self: type(self.share).__name__)
    shown = property(lambda self: short(self.share))
    row = property(lambda self: short(self.share.tolist()))
    begins = property(lambda self: _begins(self.share))
    begins_again = property(lambda self: _begins(self.again))
    all_lengths = property(lambda self: ", ".join(map(str, self.lengths)))
    low, high = property(lambda self: min(self.share)), property(lambda self: max(self.share))
    whose_order = property(lambda self: "their" if self.ordered else "some")
    wanted = property(
        lambda self: f"on rank {self.rank} to hold examples 0 to {self.last}" if self.n else "to hold no example"
    )

    @property
    def lost(self) -> str:
        parts = []
        if len(self.missing):
            parts.append(f"{len(self.missing)} in no share ({short(self.missing.tolist(), 30)})")
        if len(self.doubled):
            i = int(self.doubled[0])
            holders = [r for r, share in enumerate(self.shares) for _ in range(int((share == i).sum()))]
            times = f"{len(holders)} times on rank {holders[0]}" if len(set(holders)) == 1 else f"on {named(holders)}"
            parts.append(f"{len(self.doubled)} more than once (example {i} {times})")
        return ", ".join(parts)


def _begins(share: Any) -> str:
    return short(share.tolist() if isinstance(share, np.ndarray) else share, 40)


def _equal(a: Any, b: Any) -> bool:
    return isinstance(b, np.ndarray) and np.array_equal(a, b)


# -- what is said --

HASH = Rule(
    "hash of a text",
    lambda f: f.hashed,
    "hash() of a text is another number in each process: make the generator from seed itself.",
)
SAME = (
    "Ranks cut different permutations: each draws one of its own. All need the same one: a generator made from seed "
    "alone, not from the rank and not the global one. Or rank 0 draws it and tells the others."
)
ARRAY = "{case.text} on rank {rank} to be a numpy array of int64 with one axis"
ARRAYS = [
    Test(
        "no array",
        lambda f: not isinstance(f.share, np.ndarray),
        ARRAY,
        "{shown}, of type {type}",
        [
            Rule("None", lambda f: f.share is None, "Nothing came back: is the share returned, on every rank?"),
            "np.array(x, dtype=np.int64) makes an array of a list, a range or a tensor.",
        ],
    ),
    Test("axes", lambda f: f.share.ndim != 1, ARRAY, "an array of shape {share.shape}", "A share is a row of indices."),
    Test(
        "dtype",
        lambda f: f.share.dtype != np.int64,
        ARRAY,
        "dtype {share.dtype}: {shown}",
        [
            Rule(
                "empty",
                lambda f: f.kind == "f" and len(f.share) == 0,
                "Indices are integers. np.array([]) is float64: say dtype=np.int64, for an empty share, too.",
            ),
            Rule(
                "floats",
                lambda f: f.kind == "f",
                "Indices are integers. Dividing by /, np.linspace and np.zeros give floats; // and dtype=np.int64 give "
                "integers.",
            ),
            "Indices are integers: .astype(np.int64), or dtype=np.int64 where the array is made.",
        ],
    ),
]
EXAMPLES = [
    Test(
        "no example",
        lambda f: len(f.outside) > 0,
        "{case.text} {wanted}",
        "{outside[0]} in {row}",
        "The first is number 0, the last one n - 1. Lengths of shares may differ: nothing is filled up.",
    )
]
WHYS_LOST: Whys = [
    Rule(
        "all empty",
        lambda f: sum(f.lengths) == 0,
        f"All shares are empty: n // p is 0 where ranks are more than examples. {CUT}",
    ),
    Rule(
        "all have all",
        lambda f: f.lengths == [f.n] * f.size and f.size > 1,
        "Every rank has all examples: the order has to be cut, and comm.rank says which piece is whose.",
    ),
    Rule(
        "alike",
        lambda f: f.size > 1 and f.alike,
        "All ranks have the same share: which piece is whose depends on comm.rank.",
    ),
    Rule(
        "the rest",
        lambda f: not len(f.doubled) and (len(f.missing) == f.n % f.size or f.n < f.size),
        f"n need not divide by the number of ranks: the last n % p examples are in no share. {CUT}",
    ),
    Rule(
        "gaps",
        lambda f: not len(f.doubled),
        "Does each share begin where the one before it ends, and does the last one end with the last example?",
    ),
    Rule(
        "filled up",
        lambda f: not len(f.missing) and set(f.lengths) == {-(-f.n // f.size)},
        f"Shares were made equally long by repeating examples, which then count twice. {CUT}",
    ),
    Rule(
        "overlap",
        lambda f: not len(f.missing),
        "Shares overlap: each begins where the one before it ends, and the end of a slice is not in it.",
    ),
    Rule(
        "with replacement",  # a share of a permutation has no example twice
        lambda f: f.case.shuffle and f.even and f.doubled_in_one,
        "Examples were drawn with replacement, as choice(n, n) and integers(0, n, n) do: one may come twice, and "
        "others never. A permutation has each of them once: np.random.default_rng(seed).permutation(n).",
    ),
    Rule("hash", lambda f: f.case.shuffle and f.even and f.hashed, HASH.sentence),
    Rule(
        "seed 0",
        lambda f: f.case.shuffle and f.even and f.case.seed == 0,
        f"{SAME} And seed 0 is a seed like any other: `if seed` and `seed or None` take it for none.",
    ),
    Rule("permutations", lambda f: f.case.shuffle and f.even, SAME),
    f"Each share begins where the one before it ends, whatever their lengths. {CUT}",
]
COVER = [
    Test(
        "lost or doubled",
        lambda f: f.lost,
        "each of the {case.n} examples in one rank's share, once, by {case.text}",
        "{lost}",
        WHYS_LOST,
    ),
    Test(
        "uneven",
        lambda f: not f.even,
        "shares of {case.n} examples for {size} ranks whose lengths differ by one at most",
        "lengths {all_lengths}",
        f"The rank with the longest share is waited for in every epoch. {CUT}",
    ),
]
FIRST = "Without shuffle rank 0 gets the first examples, rank 1 the next ones, each in their order."
IN_ORDER = [
    Test(
        "another order",
        lambda f: f.share.tolist() != [*range(f.begin, f.end + 1)],
        "examples {begin} to {end} on rank {rank}, by {case.text}: runs in the order of ranks",
        "{row}",
        [
            Rule(
                "dealt",
                lambda f: all(_equal(s.own, np.arange(r, f.case.n, len(f.seen))) for r, s in enumerate(f.seen)),
                f"[rank::size] deals examples out like cards. {FIRST}",
            ),
            Rule(
                "shuffled",
                lambda f: any((np.diff(seen.own) < 0).any() for seen in f.seen),
                f"Was this shuffled, although shuffle is False? {FIRST}",
            ),
            FIRST,
        ],
    )
]
AGAIN = [
    Test(
        "another share the second time",
        lambda f: not _equal(f.share, f.again),
        "the same from {case.text}, called twice",
        "{begins}, and then {begins_again}",
        [
            HASH,
            "The seed alone decides: np.random.default_rng(seed) begins anew in each call, a global one goes on.",
        ],
    )
]
THEN_CUT = "If a data set is sorted, a rank sees one kind only: shuffle, then cut."
RANDOM = [
    Test(
        "the same for another seed",
        lambda f: f.same_for_other,
        "another order for another seed",
        "{begins} for both on rank 0",
        [
            Rule(
                "not shuffled",
                lambda f: f.ordered,
                "Nothing was shuffled. Shuffle all n examples, then cut. random.shuffle(x) and its like return None.",
            ),
            "Nothing depends on the seed: make the generator from it, as np.random.default_rng(seed) does.",
        ],
    ),
    Test(
        "runs",
        lambda f: f.runs,
        "shares drawn from all {case.n} examples by {case.text}",
        "on rank 0 all of {low} to {high}, in {whose_order} order",
        [
            Rule(
                "places changed",
                lambda f: f.ordered,
                f"Only whole runs have changed places: each share is a run of the data set as it is. {THEN_CUT}",
            ),
            f"Each run was shuffled for itself. {THEN_CUT}",
        ],
    ),
    Test(
        "dealt",
        lambda f: f.dealt,
        "shares drawn from all {case.n} examples by {case.text}",
        "shares of every p-th example",
        "Examples were dealt out first, and each share shuffled for itself: shuffle all n, then cut.",
    ),
    Test(
        "sorted",
        lambda f: f.many and f.ordered,
        "a random order within the share, by {case.text}",
        "{row}",
        "A sorted share is gone through in the data set's order. Leave it in the order that was drawn.",
    ),
]
GLOBAL = [
    Test(
        "a global generator",
        lambda f: f.mine.changed,
        "{mine.changed}'s global generator to stay as it was",
        "another state of it",
        "Whoever draws from it afterwards, for dropout or for new parameters, gets other numbers than before, or the "
        "same ones on all ranks. np.random.default_rng(seed), torch.Generator and random.Random have numbers of their "
        "own.",
    )
]
