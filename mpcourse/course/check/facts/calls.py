"""Calls: whether one is wrong only for what earlier calls have left; for checks that call an answer again and again."""

from collections.abc import Callable, Iterable

from mpcourse.course.check import module_state as kept
from mpcourse.course.check.answer import Answer
from mpcourse.course.check.wrong import Wrong, short


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
    """Why `check`, which has failed, passes when the file has been loaded anew; empty where it does not."""
    try:
        check(Answer.load(answer.path, answer.returned, forbidden=answer.forbidden))
    except Exception:
        return ""
    return kept.why(answer.left())


def _asked_and_got(answer: Answer, error: Exception) -> tuple[str, str]:
    if isinstance(error, Wrong):
        return error.asked, error.got
    return f"{answer.doing} to return", f"{type(error).__name__}: {short(str(error), 150)}"
