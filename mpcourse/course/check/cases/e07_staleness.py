"""What e07_staleness is asked: the age of each gradient, in updates, and an error where nothing was pulled."""

import functools
import random
from collections.abc import Callable
from typing import Any

from mpcourse.common.words import counted
from mpcourse.course.check.answer import Answer
from mpcourse.course.check.explain import explanation, gives, probed
from mpcourse.course.check.facts.calls import one_by_one
from mpcourse.course.check.seeding import drawing
from mpcourse.course.check.status_page import HasStatusPage
from mpcourse.course.check.wrong import Wrong, short

History = list[tuple[str, int]]


def _read(text: str) -> History:
    """ "+2 -1": worker 2 pulls, worker 1 pushes."""
    return [("pull" if event[0] == "+" else "push", int(event[1:])) for event in text.split()]


# Short ones first, so that a mistake is told on a few events. Each tells some wrong rule from the right one.
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
PROBES = [(history,) for history in FIXED]


def right(history: History) -> list[int]:
    """The staleness of each push: how many pushes stand between the last pull of its worker and itself."""
    return _of_each_push(_since, history)


def check(answer: Answer, comm: HasStatusPage) -> None:
    """Every rank may call this; ranks do not talk."""
    draw = drawing()
    histories = list(FIXED)
    for workers in (1, 2, 4, 8):
        histories += [_drawn(draw, workers, 60) for _ in range(5)]
        turns = range(1, workers + 1)
        histories += [[("pull", w) for w in turns] + [(k, w) for w in 3 * [*turns] for k in ("push", "pull")]]
    checks: list[Callable[[Answer], None]] = [functools.partial(_one, history=history) for history in histories]
    for text, worker in (("-5", 5), ("+1 -1 -0", 0), ("+1 +2 -2 -7 +7 -7", 7), ("-4 +4", 4)):
        checks.append(functools.partial(_refused, history=_read(text), worker=worker))
    one_by_one(answer, checks)


def _drawn(draw: random.Random, workers: int, events: int) -> History:
    names = draw.sample(range(100), workers)
    history = [("pull", w) for w in names]
    return history + [(draw.choice(("pull", "push", "push")), draw.choice(names)) for _ in range(events)]


def _text(history: History) -> str:
    text = ", ".join(f"{kind} {worker}" for kind, worker in history)
    return text if len(text) < 100 else f"{text[:100]} ..."


def _call(answer: Answer, history: History) -> Any:
    return answer.call("staleness", list(history))


def _list(answer: Answer, history: History) -> list[int]:
    return list(_call(answer, history))


def _length(answer: Answer, history: History) -> int:
    return len(_call(answer, history))


def _one(answer: Answer, history: History) -> None:
    want = right(history)
    try:
        got = _call(answer, history)
    except ValueError as error:
        why = "Only a worker that has never pulled is refused. It may push twice after one pull."
        if not _pushes_twice(history):
            why = (
                "Each worker that pushes here has pulled. Is 0 taken for nothing? `not seen.get(worker)` is true of "
                "version 0, too: ask `worker not in seen`."
            )
        raise Wrong(f"no error for {_text(history)}: {want}", f"ValueError: {error}", why) from None
    except IndexError as error:
        why = "A list that is indexed by workers needs workers 0, 1, 2, ... Here they have any numbers: take a dict."
        raise Wrong(f"no error for {_text(history)}: {want}", f"IndexError: {error}", why) from None
    asked = f"{short(want)} for {_text(history) or 'an empty history'}"
    numbers = _ints(answer, got, history, want, asked)
    if numbers != want:
        i = next(i for i, (f, w) in enumerate(zip(numbers, want, strict=True)) if f != w)
        why = _why(answer, history, numbers)
        got = f"{short(numbers)}: {numbers[i]} for push number {i + 1}" if len(want) > 1 else short(numbers)
        raise Wrong(asked, got, why)


def _pushes_twice(history: History) -> bool:
    last: dict[int, str] = {}
    for kind, worker in history:
        if kind == last.get(worker) == "push":
            return True
        last[worker] = kind
    return False


def _ints(answer: Answer, got: object, history: History, want: list[int], asked: str) -> list[int]:
    """`got`, if it is a list of as many ints as there are pushes; else Wrong."""
    if got is None:
        raise Wrong(asked, "None", "Nothing came back: is the list returned?")
    if isinstance(got, dict):
        why = "A worker pushes more than once: a list is asked, with one int for each push, in the order of the pushes."
        raise Wrong(asked, short(got), why)
    if hasattr(got, "__next__"):
        raise Wrong(asked, "a generator", "Return a list: list(...) runs through a generator and keeps what it yields.")
    if not isinstance(got, list | tuple):
        why = "Return a list of ints."
        if isinstance(got, int | float):
            why = "That is one number, e.g. a mean or the largest. One int for each push is asked."
        raise Wrong(asked, short(got), why)
    if any(isinstance(n, list | tuple | dict) for n in got):
        raise Wrong(asked, short(got), "One int for each push, in their order: not pairs, and no lists by worker.")
    if len(got) != len(want):
        seen = [((history,), len(got)), *probed(answer, _length, PROBES)]
        why = explanation(LENGTHS, seen, gives()) or (
            "One int for each push is asked. Was one left out, e.g. the first or the last, or was one told twice?"
        )
        raise Wrong(asked, f"{short(got)}: {counted(len(got), 'element')}", why)
    for n in got:
        if isinstance(n, bool) or not hasattr(n, "__index__"):
            why = "Staleness is a number of pushes: an int. Nothing is divided, and no push goes without one."
            raise Wrong(asked, short(got), why)
    return [int(n) for n in got]


def _refused(answer: Answer, history: History, worker: int) -> None:
    """A push without a pull must raise ValueError."""
    asked = f"ValueError with {worker} in its text for {_text(history)}"
    why = (
        "A worker that has never pulled has no weights to compute a gradient at: raise ValueError(f'... {worker} ...')."
    )
    try:
        got = _call(answer, history)
    except (Wrong, NotImplementedError):
        raise
    except ValueError as error:
        if str(worker) not in str(error):
            why = "Who reads the error wants to know which worker it was: put its number into the text."
            raise Wrong(asked, f"ValueError: {error}", why) from None
        return
    except (KeyError, IndexError, TypeError, AttributeError, UnboundLocalError, AssertionError) as error:
        why = f"{type(error).__name__} came by itself, where something was missing. {why}"
        if isinstance(error, AssertionError):
            why = "An assert is for what cannot happen. Who calls this with a wrong history is told by a ValueError."
        raise Wrong(asked, f"{type(error).__name__}: {error}", why) from None
    if any(event == ("pull", worker) for event in history):
        why += " A pull that comes later does not help."
    raise Wrong(asked, short(got), why)


def _why(answer: Answer, history: History, numbers: list[int]) -> str:
    """The misconception that explains this answer, and what the same function answers elsewhere."""
    seen = [((history,), numbers), *probed(answer, _list, PROBES)]
    misconceptions = {why: functools.partial(_of_each_push, rule) for why, rule in RULES.items()}
    if why := explanation(misconceptions, seen, gives()):
        return why
    if sorted(numbers) == sorted(right(history)):
        return "These are the right numbers in another order. They are asked in the order of the pushes."
    return (
        "Number the weights: version 0 before the first push, one more with each push of anybody. Staleness is the "
        "version there is when the gradient arrives, minus the version that its worker pulled last."
    )


Rule = Callable[[History, int, int], int]


def _of_each_push(rule: Rule, history: History) -> list[int]:
    """What `rule(history, at, pulled)` says of each push: where it stands, and where the last pull of its worker."""
    numbers = []
    for at, (kind, worker) in enumerate(history):
        if kind == "push":
            pulled = max(i for i in range(at) if history[i] == ("pull", worker))
            numbers.append(rule(history, at, pulled))
    return numbers


def _pushes(events: History, but: int | None = None) -> list[int]:
    return [w for k, w in events if k == "push" and w != but]


def _since(h: History, at: int, pulled: int) -> int:
    return len(_pushes(h[pulled:at]))


def _latest(h: History, at: int, *events: tuple[str, int]) -> int:
    return max((i for i in range(at) if h[i] in events), default=-1)


def _first_since_push(h: History, at: int, pulled: int) -> int:
    """The first pull of the worker since its last push; its last one where there is none."""
    begin = _latest(h, at, ("push", h[at][1])) + 1
    return next((i for i in range(begin, at) if h[i] == ("pull", h[at][1])), pulled)


def _workers(h: History) -> int:
    return len({w for _, w in h})


LENGTHS: dict[str, Callable[[History], int]] = {  # for how many elements there are
    "That is one for each event. A pull has no staleness: leave pulls out, and put no 0 or None there.": len,
    "That is one for each pull. A gradient's staleness is known when it is pushed: one for each push.": (
        lambda h: len(h) - len(_pushes(h))
    ),
    "That is one for each worker. A worker pushes more than once: one int for each push is asked.": (
        lambda h: len(set(_pushes(h)))
    ),
}
OWN = "A worker's own earlier push counts, too, if it stands after its last pull: it changed the weights."
RULES: dict[str, Rule] = {
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
