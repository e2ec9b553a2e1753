"""Rules: what a check says of the facts that it has observed.

A case consists of inputs, an oracle, an observation and tables. The observation runs the learner's function and returns
a record, its `Facts`; it does not judge. The tables do, and hold all sentences that a learner may read:

    WHYS = [
        Rule("NaN", lambda f: math.isnan(f.got), "NaN is 0 / 0."),
        Rule("own share", lambda f: f.near(f.own), "That is this rank's own share: sum over all ranks first."),
    ]
    TESTS = [
        Test("nothing came back", lambda f: f.got is None, "{share}", "None", "Is the share returned?"),
        Test("another share", lambda f: not f.near(f.oracle), "{share}", "{shown}", WHYS),
    ]

Rules that need no name may be a mapping from sentences to predicates: {"NaN is 0 / 0.": lambda f: math.isnan(f.got)}.
`{share}` in a sentence stands for the facts' attribute of this name. Order matters: the first test that fails makes the
verdict, and the first of its rules that holds explains it. So what could be mistaken for something else comes first:
rounding before every other value.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from mpcourse.course.check.wrong import Wrong

Predicate = Callable[[Any], object]  # of facts; what it returns is taken as true or false
Text = str | Callable[[Any], str]  # a sentence with {attributes} of facts, or a function of facts


class Finding(NamedTuple):
    """What is wrong.

    rank: on which rank; None: on all of them.
    asked: what was asked.
    got: what came.
    why: the misconception behind it, or what to do.
    """

    rank: int | None
    asked: str
    got: str
    why: str


class Rule(NamedTuple):
    """A misconception: its name, whether it explains the facts, and what the learner is told."""

    name: str
    holds: Predicate
    sentence: Text


Why = str | Sequence[Rule] | Mapping[str, Predicate]  # a sentence, or rules


class Test(NamedTuple):
    """Something that an answer may get wrong.

    name: what is wrong. fails: whether it is.
    asked, got: what the task asks for and what the learner's code did, each a phrase of one line.
    why: a sentence, or rules; the first that holds explains it.
    """

    name: str
    fails: Predicate
    asked: Text
    got: Text
    why: Why = ""


def always(facts: Any) -> bool:
    """Hold for all facts: for the last row of a table."""
    return True


def judge(tests: Iterable[Test], *everyone: Any) -> Finding | None:
    """Return what is wrong with the first facts that fail a test, by the first test that they fail; None: nothing.

    everyone: facts, such as those of each rank. Their `rank` is the one that the verdict is about; none: all of them.
    """
    for facts in everyone:
        for test in tests:
            if _holds(test.fails, facts):
                rank = getattr(facts, "rank", None)
                return Finding(rank, filled(test.asked, facts), filled(test.got, facts), why_of(test.why, facts))
    return None


def demand(tests: Iterable[Test], *everyone: Any) -> None:
    """Raise Wrong for the first facts that fail a test: where no other rank has to be named."""
    if finding := judge(tests, *everyone):
        raise Wrong(finding.asked, finding.got, finding.why)


def why_of(why: Why, facts: Any) -> str:
    """Return the sentence of the first rule that holds; empty where none does."""
    if isinstance(why, str):
        return filled(why, facts)
    pairs = why.items() if isinstance(why, Mapping) else [(rule.sentence, rule.holds) for rule in why]
    return next((filled(sentence, facts) for sentence, holds in pairs if _holds(holds, facts)), "")


def filled(sentence: Text, facts: Any) -> str:
    """Put attributes of the facts into a sentence, as str.format does: {share}, {case.name}, {factor:.4g}."""
    if callable(sentence):
        return sentence(facts)
    return re.sub(r"\{[a-z_][^{} ]*\}", lambda field: f"{{0.{field[0][1:]}".format(facts), sentence)


def _holds(predicate: Predicate, facts: Any) -> bool:
    """A rule that divides by zero for these facts, or overflows, does not explain them."""
    try:
        return bool(predicate(facts))
    except ArithmeticError:
        return False
