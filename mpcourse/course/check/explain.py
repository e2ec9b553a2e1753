"""Which misconception explains a wrong answer: the first whose rule agrees with all that the answer was seen to give.

A case consists of an oracle, of inputs on which the answer must agree with it, and of misconceptions. A misconception
is a sentence for the learner and a rule: what a program that is written so gives for an input, or a test of what was
given. Several rules may fit one result by chance, so a wrong answer is asked for further inputs first:

    seen = [(given, got), *probed(answer, ask, PROBES)]
    raise Wrong(asked, f"{got:.6g}", explanation(MISCONCEPTIONS, seen, gives(close)) or "...")

An input is a tuple of arguments, and what is seen of an answer a pair of an input and what came of it.
"""

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from mpcourse.course.check.answer import Answer

Input = tuple[Any, ...]
Output = TypeVar("Output")
Rule = Callable[..., Any]
Misconceptions = Mapping[str, Rule] | Iterable[tuple[str, Rule]]  # pairs where a sentence has several rules
Fits = Callable[[Rule, Input, Any], bool]  # whether a rule explains what came of an input


def explanation(misconceptions: Misconceptions, seen: Sequence[tuple[Input, Any]], fits: Fits) -> str:
    """Return the sentence of the first misconception whose rule fits all that was seen; empty where none does.

    fits: `gives(...)` where rules compute values, `holds` where they are tests.
    """
    pairs = misconceptions.items() if isinstance(misconceptions, Mapping) else misconceptions
    return next((why for why, rule in pairs if all(fits(rule, given, got) for given, got in seen)), "")


def explanation_of(got: Any, values: Iterable[tuple[str, Any]], same: Callable[[Any, Any], bool] = operator.eq) -> str:
    """Return the sentence of the first of `values` that equals `got`; empty where none does.

    For one result whose input decides which misconceptions there are: `values` may be a generator, which computes what
    programs with them give for that input, and is left at the one that fits. same: whether `got`, its first argument,
    is one of the values.
    """
    return next((why for why, value in values if same(got, value)), "")


def gives(same: Callable[[Any, Any], bool] = operator.eq) -> Fits:
    """Judge rules that take an input's arguments and return what a program written so would.

    same: whether what came, its first argument, is the rule's value. A rule that divides by zero has no value there.
    """

    def fits(rule: Rule, given: Input, got: Any) -> bool:
        try:
            return same(got, rule(*given))
        except ArithmeticError:
            return False

    return fits


def holds(rule: Rule, given: Input, got: Any) -> bool:
    """Return whether a rule that takes an input's arguments and its result explains the result."""
    return bool(rule(*given, got))


def probed(answer: Answer, ask: Callable[..., Output], inputs: Iterable[Input]) -> list[tuple[Input, Output]]:
    """Return each of `inputs` with the result of ask(answer, *input); leave out inputs for which it raises.

    answer.line stays that of the result which is to be explained.
    """
    line, seen = answer.line, []
    for given in inputs:
        try:
            seen.append((given, ask(answer, *given)))
        except Exception:  # this input says nothing, and there is a wrong result to explain already
            continue
    answer.line = line
    return seen
