"""What e15_replay is asked: whose replica differs by a bit, and who computes wrongly, without sending any tensor."""

import functools
import operator
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any, ClassVar, NamedTuple

import torch

from mpcourse.common.words import counted, named
from mpcourse.course.check.answer import Answer
from mpcourse.course.check.cases.on_models import Case, Finding, all_on_real, all_on_virtual
from mpcourse.course.check.facts.messages import THROUGH_WORLD, Sent, counting, is_virtual, other_than_world
from mpcourse.course.check.facts.ranks import Hash
from mpcourse.course.check.rules import Test, filled, judge, rules, tests
from mpcourse.course.check.seeding import drawing
from mpcourse.course.check.status_page import HasStatusPage
from mpcourse.course.check.wrong import short
from mpcourse.data_parallel.resilience.corruption import flip

Tensors = list[torch.Tensor]
SIZES = (3, 2, 4, 5, 9, 1)  # two ranks show less than three; a set of ranks below 8 happens to be sorted

# -- inputs --


def _model(draw: torch.Generator, fill: float = 0.0) -> Tensors:
    """Draw two tensors of float32 and one of float64: more bytes than a rank may send. fill: begins each row.

    The numbers have 8 binary digits: in any order, their sum and that of their squares are the same to the last bit.
    """
    rows = torch.randint(128, 256, (3, 8, 16), generator=draw) / 128
    rows[..., :2] = fill
    return [rows[0], rows[1], rows[2].double()]


class Change(NamedTuple):
    """How the tensors of a wrong rank differ.

    what: in words. why: said of answers that do not see it. change: makes the n-th of several; None: nothing differs.
    """

    what: str
    why: str
    change: Callable[[Tensors, int], Any] | None
    make: Callable[[torch.Generator], Tensors] = _model


def _flip(tensor: int, number: int, bit: int) -> Callable[[Tensors, int], None]:
    return lambda x, n: flip(x[tensor], number, bit + 1 - n)


EVERY = "All tensors count. Does the checksum of the first one, or that of the last one, take the place of all others?"
ORDER = (
    "A sum, a mean, a norm, an XOR or a set is the same in any order. One checksum can go through all bytes in their "
    "order: zlib.crc32(bits, before) goes on from the number before."
)
LOWEST = (
    "The lowest bit is lost if a number is rounded, compared with a tolerance, converted to another dtype, or written "
    "as text: str(x) shows four digits. Compare bits: x.view(torch.uint8) shows them, and converts nothing."
)
EQUAL = (
    "Numbers do not show all bits: 0.0 == -0.0 is True, NaN == NaN is False, and the text of each NaN is nan. hash() "
    "of a number goes by ==. Compare bits, not numbers."
)
ANY = (
    "A tensor may have any dtype and any shape, and the list may be empty. x.reshape(-1).view(torch.uint8) shows the "
    "bytes of each tensor, and no bytes have a checksum, too."
)
FIRST = Change("one bit of the first tensor differs", EVERY, _flip(0, 5, 24))
NAN = Change("some numbers are NaN", EQUAL, None, functools.partial(_model, fill=torch.nan))
CHANGES = [  # for both functions
    Change("one bit of the second tensor differs", EVERY, _flip(1, 5, 24)),
    Change("numbers of a tensor have changed places", ORDER, lambda x, n: x[1][3].copy_(x[1][3].roll(1))),
    Change("two tensors have changed places", ORDER, lambda x, n: x.insert(0, x.pop(1))),
    Change("one number has another lowest bit", LOWEST, _flip(1, 5, 0)),
    Change("one float64 has another lowest bit", LOWEST, _flip(2, 5, 0)),
    NAN,
    Change("a zero has another sign", EQUAL, _flip(1, 0, 31)),
    Change("a NaN has another lowest bit", EQUAL, _flip(1, 0, 0), NAN.make),
    Change("one bit of 300 tensors differs", EVERY, _flip(200, 1, 24), lambda draw: [*torch.ones(300, 3)]),
]
ODD = [  # for differing_ranks alone: what an answer may stumble over
    Change("one int64 has another lowest bit", LOWEST, _flip(0, 2, 0), lambda draw: [torch.arange(5) + (1 << 60)]),
    Change("one bit of a bfloat16 differs", ANY, _flip(0, 3, 0), lambda draw: [torch.ones(9).bfloat16()]),
    Change("a tensor without dimensions differs", ANY, _flip(1, 0, 9), lambda draw: [torch.ones(0, 3), torch.ones(())]),
    Change("there are no tensors", ANY, None, lambda draw: []),
]
PATTERNS = ["A", "AAB", "BAAAAAAAA", "ABCDEFGHI", "AB", "AABCAAABA", "ABB"]  # of bits by rank, again and again
FAULTS = {  # whether a rank computes wrongly at first, and when it computes another rank's gradients again
    "where all ranks compute correctly": (False, False),
    "where rank {who} has once computed its own gradients wrongly": (True, False),
    "where rank {who} has once computed the gradients of rank {after_who} wrongly": (False, True),
    "where rank {who} always computes wrongly": (True, True),
}


class Seen(NamedTuple):
    """What a call on one rank returned and did.

    kept: whether the tensors are as they were. hashed: whether hash() was asked of bytes. sent: says what was sent,
    once the run has ended; None on real ranks. called: the arguments of gradients_of.
    """

    got: Any
    kept: bool
    hashed: bool
    sent: Callable[[], Sent] | None
    called: Sequence[int] = ()


@dataclass(frozen=True)
class Input(Case):
    """What the inputs of both functions have in common. seed: of the tensors."""

    change: Change
    seed: int
    sizes: Sequence[int] = SIZES

    name: ClassVar[str]

    def tensors(self, batch: int, version: int, rank: int) -> Tensors:
        """Return what `rank` has for a batch, as parts of larger buffers. version: of the change; 0: without it."""
        tensors = self.change.make(torch.Generator().manual_seed(self.seed + batch))
        if version and self.change.change:
            self.change.change(tensors, version)
        buffers = [torch.nn.functional.pad(x.reshape(-1), (8, 8), value=rank + 2) for x in tensors]
        return [buffer[8:-8].view(x.shape) for buffer, x in zip(buffers, tensors, strict=True)]

    def call(self, own: Answer, comm: Any, tensors: Tensors, *more: Any) -> Seen:
        own_hash = vars(own.module).setdefault("hash", Hash(str(comm.rank)))  # unless the file has one of its own
        comm, bits = other_than_world(comm), _bits(tensors)
        sent = counting(comm) if is_virtual(comm) else None
        got = own.call(self.name, comm, tensors, *more, changes=(tensors,))
        return Seen(got, bits == _bits(tensors), getattr(own_hash, "salted", False), sent)

    def stumbled(self, size: int) -> tuple[str, str] | None:
        asked = f"{self.name} to return a list on {counted(size, 'rank')}, where {self.change.what}"
        return (asked, self.change.why) if self.change in ODD else None


def _bits(tensors: Tensors) -> list[bytes]:
    return [x.detach().reshape(-1).view(torch.uint8).numpy().tobytes() for x in tensors]


@dataclass(frozen=True)
class Replicas(Input):
    """An input of differing_ranks. pattern: one of PATTERNS."""

    pattern: str = "AB"

    name = "differing_ranks"

    def labels(self, size: int) -> str:
        """Return a letter for each rank, alike where the bits are. B, C, ...: those with the change."""
        return (self.pattern * size)[:size] if self.change.change else "A" * size

    def program(self, own: Answer, comm: Any) -> Seen:
        tensors = self.tensors(0, ord(self.labels(comm.size)[comm.rank]) - ord("A"), comm.rank)
        return self.call(own, comm, [torch.nn.Parameter(x) if x.is_floating_point() else x for x in tensors])

    def findings(self, seen: Sequence[Seen]) -> Iterator[Finding | None]:
        yield judge(REPLICAS, *(OfReplicas(rank, self, seen) for rank in range(len(seen))))


@dataclass(frozen=True)
class Replay(Input):
    """An input of suspects. fault: one of FAULTS. place: the wrong rank, but for a multiple of the number of ranks."""

    fault: str = ""
    place: int = 0

    name = "suspects"

    def program(self, own: Answer, comm: Any) -> Seen:
        called: list[int] = []
        rank, size = comm.rank, comm.size
        at_first, again = (wrong and rank == self.place % size for wrong in FAULTS[self.fault])
        computed = [self.tensors(r, again, rank) for r in range(size)]  # now: an answer is not to call the library

        def gradients_of(r: int) -> Tensors:
            called.append(operator.index(r))
            return computed[called[-1] % size]

        return self.call(own, comm, self.tensors(rank, at_first, rank), gradients_of)._replace(called=called)

    def findings(self, seen: Sequence[Seen]) -> Iterator[Finding | None]:
        yield judge(REPLAY, *(OfReplay(rank, self, seen) for rank in range(len(seen))))


def _cases(draw: random.Random) -> list[Case]:
    seed = functools.partial(draw.getrandbits, 50)
    cases: list[Case] = [Replicas(FIRST, seed(), pattern=pattern) for pattern in PATTERNS]
    cases += [Replicas(change, seed(), (3, 2), draw.choice(["ABA", "BAA"])) for change in (*CHANGES, *ODD)]
    cases += [Replay(FIRST, seed(), fault=fault, place=place) for fault in FAULTS for place in (1, 0, -1)]
    correct, *_, always = FAULTS
    return cases + [Replay(change, seed(), (3, 2), always if change.change else correct) for change in CHANGES]


check = functools.partial(all_on_real, cases=_cases(random.Random(15)))  # the same on all ranks


def check_virtually(answer: Answer, comm: HasStatusPage) -> None:
    """Check the answer on virtual ranks; one process calls this."""
    all_on_virtual(answer, comm, _cases(drawing()))


# -- facts --


@dataclass(frozen=True)
class Facts:
    """What all ranks returned. rank: the one that a verdict is about. A subclass says what is right."""

    rank: int
    case: Any
    seen: Sequence[Seen]

    want: ClassVar[Any]

    size = property(lambda self: len(self.seen))
    ranks = property(lambda self: range(self.size))
    mine = property(lambda self: self.seen[self.rank])
    got = property(lambda self: self.mine.got)
    touched = property(lambda self: not self.mine.kept)
    good = property(lambda self: [r for r in self.ranks if not replace(self, rank=r).other])
    sent = functools.cached_property(lambda self: self.mine.sent and self.mine.sent())
    too_much = property(lambda self: self.sent and self.size > 1 and self.sent.nbytes > 1000 * (self.size - 1))

    @property
    def no_ranks(self) -> bool:
        got = self.got if isinstance(self.got, list) else [None]
        return not all(isinstance(r, Integral) and not isinstance(r, bool) for r in got)

    other = property(lambda self: self.no_ranks or self.got != self.want)
    hashed = property(lambda self: self.mine.hashed)
    in_disorder = property(lambda self: sorted({*self.got}) == self.want)
    plain = property(lambda self: self.case.change is FIRST)
    false_alarm = property(lambda self: self.want == [])

    shown = property(lambda self: "a generator" if hasattr(self.got, "__next__") else short(self.got))
    good_have = property(lambda self: f"{named(self.good).capitalize()} {'has' if len(self.good) == 1 else 'have'}")


class OfReplicas(Facts):
    """What differing_ranks returned."""

    labels = property(lambda self: self.case.labels(self.size))
    times = property(lambda self: [self.labels.count(label) for label in self.labels])
    most = property(lambda self: max(self.times))
    undecided = property(lambda self: 2 * self.most <= self.size)
    want = property(lambda self: [r for r in self.ranks if self.undecided or self.times[r] < self.most])

    @property
    def asked(self) -> str:
        if self.most < self.size:
            return f"{self.want} for ranks with the bits {', '.join(self.labels)}, where in B {self.case.change.what}"
        special = "" if self.case.change.change else f", and {self.case.change.what}"
        return f"[] for {counted(self.size, 'rank')}, where all bits are the same{special}"

    # What known mistakes make of it.

    unseen = property(lambda self: (self.got == [] and not self.undecided) or self.case.change is NAN)
    unlike_zero = property(lambda self: [r for r in self.ranks if self.labels[r] != self.labels[0]])
    unlike_left = property(lambda self: [r for r in self.ranks if self.labels[r] != self.labels[r - 1]])
    ways = property(lambda self: [self.unlike_zero, self.unlike_left, [r for r in self.unlike_left if r > 0]])
    compared = property(lambda self: self.got in self.ways and not self.undecided)


class OfReplay(Facts):
    """What suspects returned."""

    who = property(lambda self: self.case.place % self.size)
    after_who = property(lambda self: self.after(self.who))
    next = property(lambda self: self.after(self.rank))

    def after(self, rank: int) -> int:
        return (rank + 1) % self.size

    @property
    def differing(self) -> list[int]:
        """The ranks that computed other gradients than the next rank has."""
        at_first, again = ([wrong and r == self.who for r in self.ranks] for wrong in FAULTS[self.case.fault])
        return [r for r in self.ranks if at_first[self.after(r)] != again[r]]

    times = property(lambda self: [sum(r in {d, self.after(d)} for d in self.differing) for r in self.ranks])
    want = property(lambda self: [r for r in self.ranks if self.times[r] == max(self.times) > 0])

    @property
    def asked(self) -> str:
        special = "" if self.plain else f", and {self.case.change.what}"
        return f"{self.want} for {counted(self.size, 'rank')}, {filled(self.case.fault, self)}{special}"

    # What known mistakes make of it.

    called = property(lambda self: self.mine.called)
    calls = property(lambda self: ", ".join(f"gradients_of({r})" for r in self.called) or "no call")
    miscalled = property(lambda self: [*self.called] != [self.next])
    no_call = property(lambda self: not self.called)
    many_calls = property(lambda self: len(self.called) > 1)
    of_own = property(lambda self: self.called[0] == self.rank)
    unseen = property(lambda self: (self.got == [] and not self.plain) or self.case.change is NAN)
    pair = property(lambda self: (self.differing[0], self.after(self.differing[0])))
    one_of_two = property(lambda self: len(self.want) == 2 and {*self.got} < {*self.want} and self.plain)
    too_many = property(lambda self: self.want == [self.who] and self.who in self.got)


# -- what is said --


def _tests(false_alarm: str, otherwise: str, **known: str) -> list[Test]:
    """Return what both functions are asked. known: what is said of the mistakes that only one of them has."""
    whys = rules(
        good="{good_have} the right list, and this rank has not. Did gather bring the numbers to one rank alone, or "
        "does each rank return what it found itself? allgather brings the numbers to all ranks.",
        no_ranks="Return a list of ints, such as [0, 2]: no pairs, and not a bool for each rank. sorted(...) makes a "
        "list of a set, or of what a generator gives.",
        in_disorder="Those are the right ranks. They are asked in ascending order, each once: sorted(set(...)).",
        hashed="hash() of bytes or of a text is another number in each process, so no two ranks agree. zlib.crc32, "
        "and a hash of hashlib, are the same on all ranks.",
        **known,
        unseen="{case.change.why}",
        false_alarm=false_alarm,
        otherwise=otherwise,
    )
    given = tests(
        touched=(
            "the list of tensors, and their bits, to stay as they are",
            "other bits, or another list",
            "They belong to the caller, who goes on with them. Look at their bits, and change nothing.",
        ),
        other=("{asked}", "{shown}", whys),
        too_much=(
            "rank {rank} of {size} to send at most 1000 bytes to each other rank",
            "{sent.nbytes} bytes in all",
            "A model has gigabytes of parameters, in thousands of tensors. One checksum of 4 bytes can go through "
            "them all: zlib.crc32(bits, before) goes on from the number before.",
        ),
    )
    return [THROUGH_WORLD, *given]


REPLICAS = _tests(
    compared="Each rank was compared with one rank, such as rank 0 or a neighbour, and that one may be wrong. Which "
    "bits do more than half of the ranks have?",
    false_alarm="All ranks have the same bits, and what is compared must depend on these alone. The address of a "
    "tensor does not, and its storage may be larger than the tensor. pickle writes both.",
    otherwise="The largest group with the same bits has {most} of {size} ranks. If that is more than half, the list "
    "has the other ranks. If not, it is not known who is right, and the list has all ranks.",
)
CALLS = tests(
    miscalled=(
        "rank {rank} of {size} to call gradients_of({next}), once",
        "{calls}",
        rules(
            no_call="Without this call, the gradients of rank {next} are not checked. All ranks take part, and a "
            "rank that is alone computes its own again.",
            many_calls="Each call takes as long as a step. It is enough if each rank computes the gradients of one "
            "other rank again, once: then two ranks have computed each of them.",
            of_own="A rank that always computes wrongly gets the same wrong gradients again, and agrees with "
            "itself. Another rank has to compute them.",
            otherwise="Rank r computes the gradients of rank r + 1 again, not those of the rank before it. After "
            "the last rank comes rank 0: (rank + 1) % size.",
        ),
    )
)
REPLAY = CALLS + _tests(
    one_of_two="What gradients_of({pair[1]}) returned on rank {pair[0]} differs from what rank {pair[1]} computed "
    "at first. Either of these two ranks may be the wrong one, so both are suspects.",
    too_many="Rank {who} is in two of the pairs that differ. If another rank were wrong, one of these pairs would "
    "not differ. So rank {who} is the only suspect.",
    false_alarm="Nothing is wrong. What gradients_of({next}) returned on rank {rank} belongs to the batch of rank "
    "{next}. Compare it with what that rank computed at first from this batch.",
    otherwise="Count in how many of the pairs that differ each rank is. Those that are in most of them are the "
    "suspects. A rank that is alone makes a pair with itself.",
)
