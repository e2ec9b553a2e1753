"""The engine of rules: the first test that fails makes the verdict, and the first rule that holds explains it."""

from types import SimpleNamespace

import pytest
import torch

from mpcourse.course.check.facts.tensors import ROUNDED, THREE_DIGITS, equal
from mpcourse.course.check.rules import Finding, Rule, Test, always, demand, judge, rules, tests
from mpcourse.course.check.wrong import Wrong

WHYS = [
    Rule("half", lambda f: 1 / f.got == 2, "It is half."),
    {lambda f: f"It is {f.got:.1f}.": lambda f: f.got == 0},
    "It is not {want}.",
]
TESTS = [
    Test("negative", lambda f: f.got < 0, "{want} on rank {rank}", "{got}", "It is negative."),
    Test("value", lambda f: f.got != f.want, "{want} on rank {rank}", lambda f: f"{f.got:.2f}", WHYS),
]


def facts(got, rank=0):
    return SimpleNamespace(got=got, want=1, rank=rank)


@pytest.mark.parametrize(
    "got, shown, why",
    [
        (-1, "-1", "It is negative."),
        (0.5, "0.50", "It is half."),
        (0, "0.00", "It is 0.0."),
        (3, "3.00", "It is not 1."),
    ],
)
def test_the_first_rule_that_holds_explains_the_first_test_that_fails(got, shown, why):
    assert judge(TESTS, facts(1), facts(got, rank=2)) == Finding(2, "1 on rank 2", shown, why)


def test_facts_that_a_test_cannot_be_asked_of_fail_it():
    overflows = Test("far", lambda f: abs(float(f.got) - f.want) > 1, "{want}", "too much", "It is far too large.")
    assert judge([overflows], facts(10**400)).why == "It is far too large."


def test_rules_without_names_are_a_mapping_from_sentences():
    whys = {"It is half.": lambda f: 1 / f.got == 2, "It is not {want}.": always}
    tests = [Test("value", lambda f: f.got != f.want, "", "", whys)]
    assert [judge(tests, facts(got)).why for got in (0.5, 0)] == ["It is half.", "It is not 1."]


def test_facts_that_fail_no_test_are_right():
    assert judge(TESTS, facts(1), facts(1, rank=2)) is None
    demand(TESTS, facts(1))


def test_rows_ask_for_the_attributes_that_they_are_named_after():
    whys = rules(half="It is half.", none="It is {got}.", otherwise="Else.")
    table = tests(fits=("three", "{got}", ""), wrong=("one", "{got}", whys))

    def why(**attributes):
        return judge(table, SimpleNamespace(got=0, fits=False, wrong=1, **attributes)).why

    assert why(half=True, none=True) == "It is half."
    assert why(half=False, none=[0]) == "It is 0."
    assert why(half=False, none=None) == "Else."
    assert rules(half="It is half.")[-1].name == "half"


def test_what_is_demanded_is_raised():
    with pytest.raises(Wrong) as raised:
        demand(TESTS, facts(3))
    assert (raised.value.asked, raised.value.got, raised.value.why) == ("1 on rank 0", "3.00", "It is not 1.")


def test_facts_without_a_rank_are_about_all_ranks():
    assert judge(TESTS[1:], SimpleNamespace(got=3, want=1, rank=None)).rank is None
    assert judge([Test("short", lambda text: len(text) < 3, "more", "less")], "ab") == Finding(None, "more", "less", "")


def test_a_tensor_that_was_rounded_is_said_to_be_so_before_any_other_cause():
    want = torch.randn(40)
    half = want.half().float()
    for rtol, why in ((0.0, ROUNDED.format("float16")), (1e-4, THREE_DIGITS)):
        with pytest.raises(Wrong) as raised:
            equal(half, want, "x", "It is another tensor.", rtol)
        assert raised.value.why == why
    with pytest.raises(Wrong) as raised:
        equal(want + 1, want, "x", "It is another tensor.")
    assert raised.value.why == "It is another tensor."
