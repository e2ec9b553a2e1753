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

`{share}` in a sentence stands for the facts' attribute of this name. Reasons that need no name may be a dictionary from
sentences to predicates:

    WHYS = {"NaN is 0 / 0.": lambda f: math.isnan(f.got), "Sum over all ranks, then divide.": always}

Where each row asks for one attribute of the facts, which it is named after, `rules` and `tests` make the tables:

    WHYS = rules(rounded="Rounded on the way.", own_share="That is this rank's own share.", otherwise="Divide once.")
    TESTS = tests(nothing=("{share}", "None", "Is the share returned?"), another_share=("{share}", "{shown}", WHYS))

Order matters: the first test that fails makes the verdict, and the first of its rules that holds explains it. So what
could be mistaken for something else comes first: rounding before every other value.
"""

import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
    """A misconception: its name, whether it explains the facts, and what to tell the learner."""

    name: str
    holds: Predicate
    sentence: Text


Table = Mapping[Any, Predicate]  # from sentences, each a Text, to whether they explain the facts
Whys = str | Table | Sequence["Rule | Table | str"]  # a sentence, or rules; a sentence among them always holds


class Test(NamedTuple):
    """Something that an answer may get wrong.

    name: what is wrong. fails: whether it is.
    asked, got: what the task asks for and what the learner's code did, each a phrase of one line.
    why: a sentence, or rules; the first that holds explains it. A sentence after them holds always.
    """

    name: str
    fails: Predicate
    asked: Text
    got: Text
    why: Whys = ""


def always(facts: Any) -> bool:
    """Hold for all facts: for the last row of a table."""
    return True


def rules(otherwise: Text = "", **sentences: Text) -> list[Rule]:
    """Return a rule for each sentence, in this order; each is named as the attribute of facts that says if it holds.

    otherwise: for facts that no other rule explains.
    """
    table = [Rule(name, operator.attrgetter(name), sentence) for name, sentence in sentences.items()]
    return [*table, Rule("otherwise", always, otherwise)] if otherwise else table


def tests(**rows: tuple[Text, Text, Whys]) -> list[Test]:
    """Return a test for each row, (asked, got, why); each is named as the attribute of facts that says if it fails."""
    return [Test(name, operator.attrgetter(name), *row) for name, row in rows.items()]


def judge(tests: Iterable[Test], *everyone: Any) -> Finding | None:
    """Return what is wrong with the first facts that fail a test, by the first test that they fail; None: nothing.

    everyone: facts, such as those of each rank. Their `rank` is the one that the verdict is about; none: all of them.
    """
    for facts in everyone:
        for test in tests:
            if _holds(test.fails, facts, doubtful=True):
                rank = getattr(facts, "rank", None)
                return Finding(rank, filled(test.asked, facts), filled(test.got, facts), why_of(test.why, facts))
    return None


def demand(tests: Iterable[Test], *everyone: Any) -> None:
    """Raise Wrong for the first facts that fail a test: where no other rank has to be named."""
    if finding := judge(tests, *everyone):
        raise Wrong(finding.asked, finding.got, finding.why)


def why_of(why: Whys, facts: Any) -> str:
    """Return the sentence of the first rule that holds; a sentence among the rules always does. Empty for none."""
    return next((filled(sentence, facts) for sentence, holds in _rows(why) if _holds(holds, facts)), "")


def _rows(why: Whys) -> Iterator[tuple[Text, Predicate]]:
    for row in [why] if isinstance(why, str | Mapping) else why:
        if isinstance(row, str):
            yield row, always
        elif isinstance(row, Mapping):
            yield from row.items()
        else:
            yield row.sentence, row.holds


def filled(sentence: Text, facts: Any) -> str:
    """Put attributes of the facts into a sentence, as str.format does: {share}, {case.name}, {factor:.4g}."""
    if callable(sentence):
        return sentence(facts)
    return re.sub(r"\{[a-z_][^{} ]*\}", lambda field: f"{{0.{field[0][1:]}".format(facts), sentence)


def _holds(predicate: Predicate, facts: Any, doubtful: bool = False) -> bool:
    """Apply a predicate; `doubtful` where it divides by zero for these facts, or overflows.

    Such a rule does not explain them, and such a test is failed.
    """
    try:
        return bool(predicate(facts))
    except ArithmeticError:
        return doubtful
