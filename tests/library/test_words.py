"""Numbers and lists in sentences."""

import pytest

from mpcourse.common.words import counted, named


@pytest.mark.parametrize(
    ("number", "noun", "text"),
    [
        (1, "rank", "1 rank"), (0, "rank", "0 ranks"), (2, "copy", "2 copies"), (2, "day", "2 days"),
        (3, "micro-batch", "3 micro-batches"), ("1", "stage", "1 stage"), ("1 or 2", "stage", "1 or 2 stages"),
    ],
)  # fmt: skip
def test_a_noun_has_its_number(number, noun, text):
    assert counted(number, noun) == text


@pytest.mark.parametrize(
    ("names", "text"), [([1], "rank 1"), ([0, 2], "ranks 0 and 2"), ([1, 2, 4], "ranks 1, 2 and 4")]
)
def test_several_are_listed_and_the_last_one_is_joined_by_and(names, text):
    assert named(names) == text
