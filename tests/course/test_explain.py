"""The engine behind explanations: the first misconception that explains all that was seen, and no other."""

import math
import operator

import pytest

from mpcourse.course.check.answer import Answer
from mpcourse.course.check.explain import explanation, explanation_of, gives, holds, probed
from mpcourse.course.check.facts.calls import Called, programs
from mpcourse.course.check.rules import why_of

DOUBLES, SQUARES, ADDS = "It doubles.", "It squares.", "It adds 2."
RULES = {DOUBLES: lambda x: 2 * x, SQUARES: lambda x: x * x, ADDS: lambda x: x + 2}


def test_the_first_misconception_that_explains_all_that_was_seen_is_told():
    assert explanation(RULES, [((2,), 4)], gives()) == DOUBLES
    assert explanation(RULES, [((2,), 4), ((3,), 9)], gives()) == SQUARES
    assert explanation(reversed(RULES.items()), [((2,), 4)], gives()) == ADDS


def test_nothing_is_said_where_no_misconception_explains_all():
    assert explanation(RULES, [((2,), 4), ((3,), 9), ((4,), 8)], gives()) == ""


def test_a_rule_may_be_compared_with_a_tolerance():
    seen = [((2,), 4 + 1e-12)]
    assert explanation(RULES, seen, gives()) == ""
    assert explanation(RULES, seen, gives(math.isclose)) == DOUBLES


def test_a_rule_that_divides_by_zero_explains_nothing_and_another_error_is_our_own():
    assert explanation({"It divides.": lambda x: 1 / x}, [((0,), 1)], gives()) == ""
    with pytest.raises(KeyError):
        explanation({"It looks up.": lambda x: {}[x]}, [((0,), 1)], gives())


def test_a_rule_may_be_a_test_of_what_came_and_a_sentence_may_have_several():
    tests = [("It is wrong by one.", lambda a, b, got, off=off: got == a + b + off) for off in (-1, 1)]
    assert explanation(tests, [((1, 2), 4), ((3, 4), 8)], holds) == "It is wrong by one."
    assert explanation(tests, [((1, 2), 4), ((3, 4), 6)], holds) == ""


def test_one_result_is_explained_by_the_first_value_that_it_is_and_later_ones_are_not_computed():
    def values():
        yield DOUBLES, 4.0
        yield SQUARES, 4.0 + 1e-12
        raise AssertionError

    assert explanation_of(4.0, values()) == DOUBLES
    assert explanation_of(4.0 + 1e-12, values()) == SQUARES
    assert explanation_of(4.0 + 2e-12, values(), math.isclose) == DOUBLES
    assert explanation_of(5.0, [(DOUBLES, 4.0)]) == ""


def test_inputs_for_which_an_answer_raises_are_left_out_and_its_line_stays(tmp_path):
    file = tmp_path / "answer.py"
    file.write_text("def inverse(x):\n    if x < 0:\n        return -1\n    return 1 / x\n")
    answer = Answer.load(file)
    answer.call("inverse", 2)
    line = answer.line
    seen = probed(answer, lambda answer, x: answer.call("inverse", x), [(0,), (4,), (-4,)])
    assert seen == [((4,), 0.25), ((-4,), -1)]
    assert answer.line == line == 4


class Halved(Called):
    """A call of a function that is to return half of its argument."""

    call = staticmethod(lambda answer, x: answer.call("half", x))
    right = staticmethod(lambda x: x / 2)
    same = staticmethod(operator.eq)
    probes = ((3,), (1,), (0,))


WAYS = {"It is whole.": lambda x: x // 2, "It subtracts 2.": lambda x: x - 2, "It is upside down.": lambda x: 4 / x}


def halved(folder, line):
    file = folder / "answer.py"
    file.write_text(f"def half(x):\n    return {line}\n")
    answer = Answer.load(file)
    return Halved(answer, (4,), answer.call("half", 4))


@pytest.mark.parametrize(
    "line, why",
    [("x // 2", "It is whole."), ("x - 2", "It subtracts 2."), ("4 / x", "It is upside down."), ("2 + 0 * x", "")],
)
def test_a_misconception_explains_a_call_if_its_program_gives_all_that_was_seen(tmp_path, line, why):
    assert why_of(programs(WAYS), halved(tmp_path, line)) == why


def test_a_program_may_have_to_explain_some_calls_only(tmp_path):
    assert why_of(programs(WAYS, lambda facts: facts.seen[:1]), halved(tmp_path, "x - 2")) == "It is whole."


def test_numbers_of_all_calls_tell_that_they_were_rounded(tmp_path):
    assert halved(tmp_path, "5 * float(__import__('numpy').float32(0.1 * x))").shorter == "float32"
    assert halved(tmp_path, "0.50000002 * x").shorter == ""
