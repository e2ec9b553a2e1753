"""Calls without MPI: what one returned, which misconception gives that, and whether earlier calls are the reason."""

import functools
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from mpcourse.course.check import module_state as kept
from mpcourse.course.check.answer import Answer
from mpcourse.course.check.explain import Input, probed
from mpcourse.course.check.facts.rounding import shorter_dtype
from mpcourse.course.check.rules import Predicate
from mpcourse.course.check.wrong import Wrong, short

Seen = Sequence[tuple[Input, Any]]  # inputs, each with what came of it


@dataclass(frozen=True)
class Called:
    """What a call of an answer gave. A subclass defines `call`, `same`, `right` and `probes`.

    given: its input. got: what it returned, or the error that it raised.
    call(answer, *input): what another call returns. same(got, value): whether results are alike. right(*input): the
    oracle. probes: other inputs, on which misconceptions differ.
    """

    answer: Answer
    given: Input
    got: Any

    call: ClassVar[Any]
    same: ClassVar[Any]
    right: ClassVar[Any]
    probes: ClassVar[Any]

    @functools.cached_property
    def want(self) -> Any:
        return self.right(*self.given)

    @functools.cached_property
    def seen(self) -> Seen:
        """This call, and calls for the other inputs."""
        return [(self.given, self.got), *probed(self.answer, self.call, self.probes)]

    @property
    def shorter(self) -> str:
        """The dtype that explains by its rounding what is wrong with the numbers returned; empty for none."""
        return shorter_dtype([got for _, got in self.seen], [self.right(*given) for given, _ in self.seen])

    # What sentences show.

    kind = property(lambda self: type(self.got).__name__)
    failed = property(lambda self: isinstance(self.got, Exception))

    @property
    def shown(self) -> str:
        if self.failed or hasattr(self.got, "__next__"):  # of an iterator, repr shows the address
            return f"{self.kind}: {self.got}" if self.failed else f"a {self.kind}"
        return short(self.got)


def programs(
    misconceptions: Mapping[str, Any], seen: Callable[[Any], Seen] = operator.attrgetter("seen")
) -> dict[str, Predicate]:
    """Return a table of reasons: each holds where a program that is written so gives all that was seen.

    misconceptions: sentences, each with a program, or a list of them. seen: of facts, the calls that are explained.
    """

    def explains(ways: list[Callable[..., Any]]) -> Predicate:
        return lambda f: any(all(f.same(got, way(*given)) for given, got in seen(f)) for way in ways)

    return {why: explains(ways if isinstance(ways, list) else [ways]) for why, ways in misconceptions.items()}


def returned(call: Callable[[], Any], *errors: type[Exception]) -> Any:
    """Return what `call` returns, or the error of one of these types that it raises."""
    try:
        return call()
    except Wrong:  # an AssertionError, too
        raise
    except errors as error:
        return error


ROUNDED: dict[str, Predicate] = {
    "Close, but rounded as {shorter} rounds: Python's floats, and float64, have 16 digits.": lambda f: f.shorter
}


def is_float(value: Any) -> bool:
    """Return whether it is a float, or an int that can be made one."""
    is_int = isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, float) or (is_int and abs(value) < 1 << 1023)


def one_by_one(answer: Answer, checks: Iterable[Callable[[Answer], None]]) -> None:
    """Run each of `checks`, which call functions of `answer` and raise what is wrong with them.

    One that fails, and passes when the file has been loaded anew, fails for what earlier calls have left: then Wrong
    says so, and where that is kept. For checks without MPI.
    """
    for number, check in enumerate(checks):
        try:
            check(answer)
        except Exception as error:
            if number and (why := as_first(answer, check)):
                asked, got = _asked_and_got(answer, error)
                raise Wrong(asked, got, why) from None
            raise


def as_first(answer: Answer, check: Callable[[Answer], None]) -> str:
    """Say why `check`, which has failed, passes when the file has been loaded anew; empty where it does not."""
    try:
        check(Answer.load(answer.path, answer.returned, forbidden=answer.forbidden))
    except Exception:
        return ""
    return kept.why(answer.left())


def _asked_and_got(answer: Answer, error: Exception) -> tuple[str, str]:
    if isinstance(error, Wrong):
        return error.asked, error.got
    return f"{answer.doing} to return", f"{type(error).__name__}: {short(str(error), 150)}"
