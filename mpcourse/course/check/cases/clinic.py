"""Share among the clinic's exercises: first the diagnosis, then the mended program."""

from collections.abc import Mapping

from mpcourse.course.check.answer import Answer
from mpcourse.course.check.wrong import Wrong, short


def demand_diagnosis(answer: Answer, cause: str, refuted: Mapping[str, str]) -> None:
    """Raise Wrong unless `diagnose` returns the cause.

    refuted: for each other cause that the task names, the evidence that speaks against it.
    """
    returned = answer.returned
    answer.returned = lambda: None  # it waits for all ranks, and check_virtually calls this on rank 0 alone
    try:
        got = answer.call("diagnose")
    finally:
        answer.returned = returned
    if isinstance(got, str) and got == cause:
        return
    if isinstance(got, str) and got in refuted:
        raise Wrong("the cause that fits all of the evidence", f'"{got}"', refuted[got])
    names = ", ".join(f'"{name}"' for name in sorted([cause, *refuted]))
    raise Wrong(f"one of {names}", short(got), "Return one of the names that the docstring of diagnose lists.")
