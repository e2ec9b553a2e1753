"""What e07_staleness is asked: the age of each gradient, in updates, and an error where nothing was pulled."""

import functools
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mpcourse.common.words import counted
from mpcourse.course.check.answer import Answer
from mpcourse.course.check.facts.calls import Called, one_by_one, programs, returned
from mpcourse.course.check.rules import Test, always, demand
from mpcourse.course.check.seeding import drawing
from mpcourse.course.check.status_page import HasStatusPage
from mpcourse.course.check.wrong import short

History = list[tuple[str, int]]

# -- inputs --


def _read(text: str) -> History:
    """Read a history such as "+2 -1": worker 2 pulls, worker 1 pushes."""
    return [("pull" if event[0] == "+" else "push", int(event[1:])) for event in text.split()]


# Short ones first, so that a mistake is shown on a few events. Each tells some wrong rule from the right one.
FIXED = [
    _read(text)
    for text in (
        "",
        "+1",
        "+0 -0",
        "+1 +2 -2 -1",
        "+1 +2 -1 -2",
        "+1 -1 +1 -1",
        "+1 +2 -2 +1 -1",  # pulls twice
        "+1 -1 -1 -1",  # pushes three times
        "+1 +2 -2 +2 -2 +2 -2 -1",  # one fast worker, one slow
        "+1 +2 +3 -2 +2 -3 -1",
        "+1 -1 +2 -1 -2 +7 -1 -7",
        "+3 +1 +2 -1 -2 -3",  # a synchronous step
        "+4 +9 +2 +4 -9 -4 -2 -2 +9 -4 -9",
        "+1 +2 +3 -1 +1 -2 +2 -3 +3 -1 +1 -2 +2 -3 +3 -1",  # three workers in turn: 0, 1, 2, 2, 2, 2, 2
    )
]
REFUSED = (("-5", 5), ("+1 -1 -0", 0), ("+1 +2 -2 -7 +7 -7", 7), ("-4 +4", 4))  # and who pushes without a pull


def check(answer: Answer, comm: HasStatusPage) -> None:
    """Check the answer; every rank may call this, and ranks exchange nothing."""
    draw = drawing()
    histories = list(FIXED)
    for workers in (1, 2, 4, 8):
        histories += [_drawn(draw, workers, 60) for _ in range(5)]
        turns = range(1, workers + 1)
        histories += [[("pull", w) for w in turns] + [(k, w) for w in 3 * [*turns] for k in ("push", "pull")]]
    checks: list[Callable[[Answer], None]] = [functools.partial(_one, history=history) for history in histories]
    checks += [functools.partial(_refused, history=_read(text), worker=worker) for text, worker in REFUSED]
    one_by_one(answer, checks)


def _drawn(draw: random.Random, workers: int, events: int) -> History:
    names = draw.sample(range(100), workers)
    history = [("pull", w) for w in names]
    return history + [(draw.choice(("pull", "push", "push")), draw.choice(names)) for _ in range(events)]


def _one(answer: Answer, history: History) -> None:
    got = returned(lambda: _call(answer, history), ValueError, IndexError)
    demand(TESTS, Facts(answer, (history,), got))


def _refused(answer: Answer, history: History, worker: int) -> None:
    """Check that a push of `worker` without a pull raises ValueError."""
    errors = ValueError, KeyError, IndexError, TypeError, AttributeError, UnboundLocalError, AssertionError
    got = returned(lambda: _call(answer, history), *errors)
    demand(REFUSALS, Facts(answer, (history,), got, worker))


def _call(answer: Answer, history: History) -> Any:
    return answer.call("staleness", list(history))


# -- facts --


@dataclass(frozen=True)
class Facts(Called):
    """What staleness returned, or raised, for `given`, a history. worker: who pushes in it without a pull."""

    worker: int = -1

    call = staticmethod(lambda answer, history: list(_call(answer, history)))
    right = staticmethod(lambda history: _of_each_push(_since, history))
    same = staticmethod(lambda got, value: (got if isinstance(got, int) else [*got]) == value)
    probes = property(lambda self: [(history,) for history in FIXED])
    history = property(lambda self: self.given[0])
    is_list = property(lambda self: isinstance(self.got, list | tuple))
    nested = property(lambda self: self.is_list and any(isinstance(n, list | tuple | dict) for n in self.got))
    ints = property(lambda self: all(hasattr(n, "__index__") and not isinstance(n, bool) for n in self.got))
    lengths = property(lambda self: [(given, len(got)) for given, got in self.seen])
    pulls_later = property(lambda self: ("pull", self.worker) in self.history)
    named = property(lambda self: isinstance(self.got, ValueError) and str(self.worker) in str(self.got))

    @property
    def pushes_twice(self) -> bool:
        """Whether a worker pushes twice, with no pull of it in between."""
        of_each = [[kind for kind, w in self.history if w == worker] for _, worker in self.history]
        return any(("push", "push") in itertools.pairwise(kinds) for kinds in of_each)

    # What sentences show.

    events = property(lambda self: ", ".join(f"{k} {w}" for k, w in self.history) or "an empty history")
    text = property(lambda self: self.events if len(self.events) < 100 else f"{self.events[:100]} ...")
    asked = property(lambda self: f"{short(self.want)} for {self.text}")
    elements = property(lambda self: counted(len(self.got), "element"))

    @property
    def shown_numbers(self) -> str:
        i = next(i for i, n in enumerate(self.got) if n != self.want[i])
        return self.shown + (f": {self.got[i]} for push number {i + 1}" if len(self.want) > 1 else "")


# -- facts: what wrong rules say of each push --

Way = Callable[[History, int, int], int]


def _of_each_push(way: Way, history: History) -> list[int]:
    """Return `way(history, at, pulled)` of each push: `at` is its place, `pulled` that of its worker's last pull."""
    numbers = []
    for at, (kind, worker) in enumerate(history):
        if kind == "push":
            pulled = max(i for i in range(at) if history[i] == ("pull", worker))
            numbers.append(way(history, at, pulled))
    return numbers


def _pushes(events: History, but: int | None = None) -> list[int]:
    return [w for k, w in events if k == "push" and w != but]


def _since(h: History, at: int, pulled: int) -> int:
    return len(_pushes(h[pulled:at]))


def _latest(h: History, at: int, *events: tuple[str, int]) -> int:
    return max((i for i in range(at) if h[i] in events), default=-1)


def _first_since_push(h: History, at: int, pulled: int) -> int:
    """Find the first pull of the worker since its last push; its last pull where there is none."""
    begin = _latest(h, at, ("push", h[at][1])) + 1
    return next((i for i in range(begin, at) if h[i] == ("pull", h[at][1])), pulled)


def _workers(h: History) -> int:
    return len({w for _, w in h})


# -- what is said --

LENGTHS: dict[str, Callable[[History], int]] = {  # for how many elements there are
    "That is one for each event. A pull has no staleness: leave pulls out, and put no 0 or None there.": len,
    "That is one for each pull. A gradient's staleness is known when it is pushed: one for each push.": (
        lambda h: len(h) - len(_pushes(h))
    ),
    "That is one for each worker. A worker pushes more than once: one int for each push is asked.": (
        lambda h: len(set(_pushes(h)))
    ),
}
OWN = "A worker's own earlier push counts, too, if it comes after its last pull: it changed the weights."
WAYS: dict[str, Way] = {
    "That counts the push itself. How many others were applied between the pull and this push? Count it afterwards.": (
        lambda h, at, pulled: _since(h, at, pulled) + 1
    ),
    OWN: lambda h, at, pulled: len(_pushes(h[pulled:at], but=h[at][1])),
    "Those are distances in the list, which counts pulls, too. A pull changes no weights: count pushes only.": (
        lambda h, at, pulled: at - pulled
    ),
    "That counts pulls, too. A pull changes no weights: only pushes make them newer.": (
        lambda h, at, pulled: at - pulled - 1
    ),
    "That counts what others pulled. Weights change by pushes: count those.": (
        lambda h, at, pulled: sum(k == "pull" for k, _ in h[pulled + 1 : at])
    ),
    "That is the number of workers minus 1, which is right only in the long run, when they push in turn.": (
        lambda h, at, pulled: _workers(h) - 1
    ),
    "That is how many workers pushed in between. One that pushes three times changes the weights three times.": (
        lambda h, at, pulled: len(set(_pushes(h[pulled:at])))
    ),
    "That is how many other workers pushed in between. One that pushes twice counts twice, and so does its own push.": (
        lambda h, at, pulled: len(set(_pushes(h[pulled:at], but=h[at][1])))
    ),
    "That counts from the last pull of anybody. Each worker has weights of its own: from the pull of the one that "
    "pushes.": lambda h, at, pulled: _since(h, at, max(i for i in range(at) if h[i][0] == "pull")),
    "That counts from the worker's first pull. When it pulls again, it has newer weights: the last pull counts.": (
        lambda h, at, pulled: _since(h, at, h.index(("pull", h[at][1])))
    ),
    "That counts from the worker's first pull after its last push. When it pulls again before it pushes, it has newer "
    "weights: the last pull counts.": lambda h, at, pulled: _since(h, at, _first_since_push(h, at, pulled)),
    "That counts from the worker's previous push, or from the beginning. It is the pull that brings newer weights.": (
        lambda h, at, pulled: len(_pushes(h[_latest(h, at, ("push", h[at][1])) + 1 : at]))
    ),
    f"That begins again after each push of the worker, as if a push brought it new weights. Only a pull does. {OWN}": (
        lambda h, at, pulled: len(_pushes(h[_latest(h, at, ("push", h[at][1]), ("pull", h[at][1])) + 1 : at]))
    ),
    "That is how many pushes there were before, all in all: the version of the weights. Subtract the version that "
    "the worker pulled.": lambda h, at, pulled: len(_pushes(h[:at])),
    "That is the version that the worker pulled. Its age is asked: subtract it from the version there is now.": (
        lambda h, at, pulled: len(_pushes(h[:pulled]))
    ),
    "That has the other sign: the version there is now, minus the one that was pulled.": (
        lambda h, at, pulled: -_since(h, at, pulled)
    ),
    "That is how often the worker itself pushed. The pushes of all workers change the weights.": (
        lambda h, at, pulled: _pushes(h[:at]).count(h[at][1])
    ),
    "That counts this worker's pushes only. The pushes of all workers change the weights.": (
        lambda h, at, pulled: _pushes(h[pulled:at]).count(h[at][1])
    ),
    "That is 0 for all. Are pushes counted somewhere, and is the count of the last pull kept until the push?": (
        lambda h, at, pulled: 0
    ),
    "One too few: nothing is subtracted, for a push that is not counted yet does not count itself.": (
        lambda h, at, pulled: _since(h, at, pulled) - 1
    ),
    "One too few, and never below 0: a push that is not counted yet does not count itself.": (
        lambda h, at, pulled: max(0, _since(h, at, pulled) - 1)
    ),
}

WHYS_ERROR = {
    "An empty history has no first event, and no last one: it gives [].": lambda f: not f.history,
    "A list that is indexed by workers needs workers 0, 1, 2, ... Here they have any numbers: take a dict.": lambda f: (
        isinstance(f.got, IndexError)
    ),
    "Only a worker that has never pulled is refused. It may push twice after one pull.": lambda f: f.pushes_twice,
    "Each worker that pushes here has pulled. Is 0 taken for nothing? `not seen.get(worker)` is true of version 0, "
    "too: ask `worker not in seen`.": always,
}
WHYS_TYPE = {
    "Nothing came back: is the list returned?": lambda f: f.got is None,
    "A worker pushes more than once: a list is asked, with one int for each push, in the order of the pushes.": (
        lambda f: isinstance(f.got, dict)
    ),
    "Return a list: list(...) runs through a generator and keeps what it yields.": lambda f: hasattr(f.got, "__next__"),
    "That is one number, e.g. a mean or the largest. One int for each push is asked.": lambda f: isinstance(
        f.got, int | float
    ),
    "One int for each push, in their order: not pairs, and no lists by worker.": lambda f: f.nested,
    "Return a list of ints.": always,
}
WHYS_LENGTH = {
    **programs(LENGTHS, lambda f: f.lengths),
    "One int for each push is asked. Was one left out, e.g. the first or the last, or was one counted twice?": always,
}
WHYS = {
    "Staleness is a number of pushes: an int. Nothing is divided, and no push goes without one.": lambda f: not f.ints,
    **programs({why: functools.partial(_of_each_push, way) for why, way in WAYS.items()}),
    "These are the right numbers in another order. They are asked in the order of the pushes.": lambda f: (
        sorted(f.got) == sorted(f.want)
    ),
    "Number the weights: version 0 before the first push, one more with each push of anybody. Staleness is the "
    "version there is when the gradient arrives, minus the version that its worker pulled last.": always,
}
TESTS = [
    Test("an error", lambda f: f.failed, "no error for {text}: {want}", "{shown}", WHYS_ERROR),
    Test("no list", lambda f: not f.is_list or f.nested, "{asked}", "{shown}", WHYS_TYPE),
    Test("length", lambda f: len(f.got) != len(f.want), "{asked}", "{shown}: {elements}", WHYS_LENGTH),
    Test("no int", lambda f: not f.ints, "{asked}", "{shown}", WHYS),
    Test("value", lambda f: [*f.got] != f.want, "{asked}", "{shown_numbers}", WHYS),
]

RAISE = "A worker that has never pulled has no weights to compute a gradient at: raise ValueError(f'... {worker} ...')."
WHYS_REFUSED = {
    "Who reads the error wants to know which worker it was: put its number into the text.": lambda f: isinstance(
        f.got, ValueError
    ),
    "An assert is for what cannot happen. A wrong history is a mistake of the caller: raise a ValueError.": lambda f: (
        isinstance(f.got, AssertionError)
    ),
    lambda f: f"{f.kind} came by itself, where something was missing. {RAISE}": lambda f: f.failed,
    lambda f: f"{RAISE} A pull that comes later does not help.": lambda f: f.pulls_later,
    lambda f: RAISE: always,
}
REFUSALS = [
    Test(
        "not refused", lambda f: not f.named, "ValueError with {worker} in its text for {text}", "{shown}", WHYS_REFUSED
    )
]
