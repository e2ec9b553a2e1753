"""What e06_scatter_dataset is asked: every example once, evenly, in one order that the seed alone decides."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from mpcourse.common.words import named
from mpcourse.course.check.answer import Answer
from mpcourse.course.check.cases.on_models import SIZES, Finding, Judge, Program, on_real, on_virtual
from mpcourse.course.check.facts.ranks import turned
from mpcourse.course.check.status_page import HasStatusPage
from mpcourse.course.check.wrong import short

if TYPE_CHECKING:
    from mpcourse.course.check.traced_mpi import TracedComm

NAME = "scatter_indices"
LENGTHS = (12, 10, 7, 3, 2, 1, 0)
SHUFFLED = (41, 60, 2, 1, 0)  # the first by seed 1, which some take for a seed rather than 0

_CUT = "np.array_split cuts so that lengths differ by one at most, and gives empty pieces where there are too few."
_SAME = (
    "Ranks cut different permutations: each draws one of its own. All need the same one: a generator made from seed "
    "alone, not from the rank and not the global one. Or rank 0 draws it and tells the others."
)


_REPLACED = (
    "Examples were drawn with replacement, as choice(n, n) and integers(0, n, n) do: one may come twice, and others "
    "never. A permutation has each of them once: np.random.default_rng(seed).permutation(n)."
)


@dataclass(frozen=True)
class Shares:
    """What one rank was given. own, again: for the same seed; other: for the next one. changed: global generators."""

    own: Any
    again: Any
    other: Any
    changed: str


def check(answer: Answer, comm: "TracedComm") -> None:
    """On real ranks, every one of which must call this."""
    for ranks in (comm, turned(comm)):
        for n, shuffle, seed in ((11, False, 3), (50, True, 3), (50, True, 5), (50, False, 3), (1, True, 3)):
            on_real(answer, ranks, _program(n, shuffle, seed), _judge(n, shuffle, seed))


def check_virtually(answer: Answer, comm: HasStatusPage) -> None:
    """On virtual ranks; one process calls this."""
    few = "Fewer examples than ranks: some shares are empty. " + _CUT
    for shuffle, lengths in ((False, LENGTHS), (True, SHUFFLED)):
        for n in lengths:
            for size in SIZES:
                stumbled = (f"shares of {n} examples for {size} ranks", few) if n < size else None
                seed = n % 2  # 0 is a seed like any other
                on_virtual(answer, comm, size, _program(n, shuffle, seed), _judge(n, shuffle, seed), stumbled)


def _program(n: int, shuffle: bool, seed: int) -> Program:
    def program(own: Answer, comm: Any) -> Shares:
        before = _states()
        share = own.call(NAME, comm, n, shuffle, seed)
        changed = next((name for name, state in _states().items() if state != before[name]), "")
        again = own.call(NAME, comm, n, shuffle, seed)
        return Shares(share, again, own.call(NAME, comm, n, shuffle, seed + 1), changed)

    return program


def _states() -> dict[str, Any]:
    """Of the generators that a program has from the start, by the name of who owns them."""
    kind, keys, *rest = np.random.get_state(legacy=True)
    return {
        "np.random": (kind, np.asarray(keys).tobytes(), rest),
        "torch": torch.get_rng_state().numpy().tobytes(),
        "random": random.getstate(),
    }


def _judge(n: int, shuffle: bool, seed: int) -> Judge:
    def judge(facts: Sequence[Shares]) -> Finding | None:
        asked = f"scatter_indices(comm, {n}, {shuffle}, {seed})"
        finding = _shape(asked, [f.own for f in facts], n) or _cover(asked, [f.own for f in facts], n, shuffle, seed)
        return finding or (_shuffled(asked, facts, n) if shuffle else _in_order(asked, [f.own for f in facts], n))

    return judge


def _shape(asked: str, shares: Sequence[Any], n: int) -> Finding | None:
    for rank, share in enumerate(shares):
        what = f"{asked} on rank {rank} to be a numpy array of int64 with one axis"
        if not isinstance(share, np.ndarray):
            why = "np.array(x, dtype=np.int64) makes an array of a list, a range or a tensor."
            if share is None:
                why = "Nothing came back: is the share returned, on every rank?"
            return Finding(rank, what, f"{short(share)}, of type {type(share).__name__}", why)
        if share.ndim != 1:
            return Finding(rank, what, f"an array of shape {share.shape}", "A share is a row of indices.")
        if share.dtype != np.int64:
            why = "Indices are integers: .astype(np.int64), or dtype=np.int64 where the array is made."
            if share.dtype.kind == "f":
                why = "Indices are integers. " + (
                    "np.array([]) is float64: say dtype=np.int64, for an empty share, too."
                    if len(share) == 0
                    else "Dividing by /, np.linspace and np.zeros give floats; // and dtype=np.int64 give integers."
                )
            return Finding(rank, what, f"dtype {share.dtype}: {short(share)}", why)
    for rank, share in enumerate(shares):
        outside = share[(share < 0) | (share >= n)]
        if len(outside):
            what = f"{asked} on rank {rank} to hold examples 0 to {n - 1}" if n else f"{asked} to hold no example"
            why = "The first is number 0, the last one n - 1. Lengths of shares may differ: nothing is filled up."
            return Finding(rank, what, f"{outside[0]} in {short(share.tolist())}", why)
    return None


def _cover(asked: str, shares: Sequence[np.ndarray], n: int, shuffle: bool, seed: int) -> Finding | None:
    """Every example once, and evenly."""
    size, lengths = len(shares), [len(share) for share in shares]
    times = np.bincount(np.concatenate(shares), minlength=n)
    missing, doubled = np.flatnonzero(times == 0), np.flatnonzero(times > 1)
    if len(missing) or len(doubled):
        what = f"each of the {n} examples in one rank's share, once, by {asked}"
        got, why = _lost(shares, missing, doubled), _why_lost(shares, missing, doubled, n, shuffle)
        if why == _SAME and seed == 0:
            why += " And seed 0 is a seed like any other: `if seed` and `seed or None` take it for none."
        return Finding(None, what, got, why)
    if lengths and max(lengths) - min(lengths) > 1:
        what = f"shares of {n} examples for {size} ranks whose lengths differ by one at most"
        why = f"The rank with the longest share is waited for in every epoch. {_CUT}"
        return Finding(None, what, f"lengths {', '.join(map(str, lengths))}", why)
    return None


def _lost(shares: Sequence[np.ndarray], missing: np.ndarray, doubled: np.ndarray) -> str:
    parts = []
    if len(missing):
        parts.append(f"{len(missing)} in no share ({short(missing.tolist(), 30)})")
    if len(doubled):
        i = int(doubled[0])
        holders = [r for r, share in enumerate(shares) for _ in range(int((share == i).sum()))]
        times = f"{len(holders)} times on rank {holders[0]}" if len(set(holders)) == 1 else f"on {named(holders)}"
        parts.append(f"{len(doubled)} more than once (example {i} {times})")
    return ", ".join(parts)


def _why_lost(shares: Sequence[np.ndarray], missing: np.ndarray, doubled: np.ndarray, n: int, shuffle: bool) -> str:
    size, lengths = len(shares), [len(share) for share in shares]
    alike = size > 1 and all(np.array_equal(np.sort(share), np.sort(shares[0])) for share in shares)
    if sum(lengths) == 0:
        return f"All shares are empty: n // p is 0 where ranks are more than examples. {_CUT}"
    if lengths == [n] * size and size > 1:
        return "Every rank has all examples: the order has to be cut, and comm.rank says which piece is whose."
    if alike:
        return "All ranks have the same share: which piece is whose depends on comm.rank."
    if not len(doubled):
        if len(missing) == n % size or n < size:
            return f"n need not divide by the number of ranks: the last n % p examples are in no share. {_CUT}"
        return "Does each share begin where the one before it ends, and does the last one end with the last example?"
    if not len(missing):
        if set(lengths) == {-(-n // size)}:
            return f"Shares were made equally long by repeating examples, which then count twice. {_CUT}"
        return "Shares overlap: each begins where the one before it ends, and the end of a slice is not in it."
    if shuffle and max(lengths) - min(lengths) <= 1:
        # Where ranks draw permutations of their own, a share has no example twice.
        return _REPLACED if any(len(set(share.tolist())) < len(share) for share in shares) else _SAME
    return "Each share begins where the one before it ends, whatever their lengths. " + _CUT


def _in_order(asked: str, shares: Sequence[np.ndarray], n: int) -> Finding | None:
    """Without shuffle: runs, in the order of ranks."""
    size, scattered = len(shares), np.concatenate(shares)
    if np.array_equal(scattered, np.arange(n)):
        return None
    rank = next(r for r, share in enumerate(shares) if not np.array_equal(share, np.sort(scattered)[_place(shares, r)]))
    begin, end = _place(shares, rank).start, _place(shares, rank).stop
    what = f"examples {begin} to {end - 1} on rank {rank}, by {asked}: runs in the order of ranks"
    why = "Without shuffle rank 0 gets the first examples, rank 1 the next ones, each in their order."
    if all(np.array_equal(share, np.arange(r, n, size)) for r, share in enumerate(shares)):
        why = f"[rank::size] deals examples out like cards. {why}"
    elif any((np.diff(share) < 0).any() for share in shares):
        why = f"Was this shuffled, although shuffle is False? {why}"
    return Finding(rank, what, short(shares[rank].tolist()), why)


def _place(shares: Sequence[np.ndarray], rank: int) -> slice:
    begin = sum(len(share) for share in shares[:rank])
    return slice(begin, begin + len(shares[rank]))


def _shuffled(asked: str, facts: Sequence[Shares], n: int) -> Finding | None:
    """With shuffle: over all examples, by the seed and nothing else."""
    shares, size = [f.own for f in facts], len(facts)
    for rank, fact in enumerate(facts):
        if not _equal(fact.own, fact.again):
            why = "The seed alone decides: np.random.default_rng(seed) begins anew in each call, a global one goes on."
            got = f"{short(fact.own.tolist(), 40)}, and then {short(_list(fact.again), 40)}"
            return Finding(rank, f"the same from {asked}, called twice", got, why)
    long = n >= 40  # chance leaves no such row sorted
    if long and all(_equal(f.own, f.other) for f in facts):
        why = "Nothing depends on the seed: make the generator from it, as np.random.default_rng(seed) does."
        if all((np.diff(share) > 0).all() for share in shares):
            why = "Nothing was shuffled. Shuffle all n examples, then cut. random.shuffle(x) and its like return None."
        return Finding(0, "another order for another seed", f"{short(shares[0].tolist(), 40)} for both on rank 0", why)
    if long and size > 1 and all(np.ptp(share) == len(share) - 1 for share in shares):
        ordered = all((np.diff(share) > 0).all() for share in shares)
        got = f"on rank 0 all of {min(shares[0])} to {max(shares[0])}, in {'their' if ordered else 'some'} order"
        why = "Each run was shuffled for itself."
        if ordered:
            why = "Only whole runs have changed places: each share is a run of the data set as it is."
        why += " If a data set is sorted, a rank sees one kind only: shuffle, then cut."
        return Finding(None, f"shares drawn from all {n} examples by {asked}", got, why)
    if long and size > 1 and _dealt(shares):
        why = "Examples were dealt out first, and each share shuffled for itself: shuffle all n, then cut."
        return Finding(None, f"shares drawn from all {n} examples by {asked}", "shares of every p-th example", why)
    if long and all((np.diff(share) > 0).all() for share in shares):
        why = "A sorted share is gone through in the data set's order. Leave it in the order that was drawn."
        return Finding(0, f"a random order within the share, by {asked}", short(shares[0].tolist()), why)
    for rank, fact in enumerate(facts):
        if fact.changed:
            why = (
                "Whoever draws from it afterwards, for dropout or for new parameters, gets other numbers than before, "
                "or the same ones on all ranks. np.random.default_rng(seed), torch.Generator and random.Random have "
                "numbers of their own."
            )
            return Finding(rank, f"{fact.changed}'s global generator to stay as it was", "another state of it", why)
    return None


def _dealt(shares: Sequence[np.ndarray]) -> bool:
    return all(len(set((share % len(shares)).tolist())) == 1 for share in shares)


def _equal(a: Any, b: Any) -> bool:
    return isinstance(b, np.ndarray) and np.array_equal(a, b)


def _list(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else value
