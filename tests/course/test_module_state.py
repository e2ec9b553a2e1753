"""What earlier calls have left is told as the reason where a call alone would be right, and only there."""

import pytest

from mpcourse.course.check.answer import Answer
from mpcourse.course.check.facts.calls import one_by_one
from mpcourse.course.check.wrong import Wrong

# How a function that is asked for range(n) may keep something, and where that is told to be.
KEEPS = {
    "`found` (made once": """
found = []
def f(n):
    found.extend(range(n))
    return found
""",
    "a default argument of f": """
def f(n, found=[]):
    found.extend(range(n))
    return found
""",
    "something is kept": """
def f(n):
    f.found = getattr(f, 'found', []) + list(range(n))
    return f.found
""",
    "`A.found`": """
class A:
    found = []
def f(n):
    A.found += range(n)
    return A.found
""",
    "`last`": """
last = None
def f(n):
    global last
    last = last or list(range(n))
    return last
""",
    "the cache of g": """
from functools import cache
@cache
def g():
    return []
def f(n):
    g().extend(range(n))
    return g()
""",
}
ALONE = """
calls = []
def f(n):
    calls.append(n)
    return [0, 1]
"""


def checks():
    def check(n):
        def one(answer):
            if (got := answer.call("f", n)) != list(range(n)):
                raise Wrong(f"{list(range(n))}", f"{got}", "the usual reason")

        return one

    return [check(n) for n in (2, 3, 4)]


def load(tmp_path, text):
    file = tmp_path / "answer.py"
    file.write_text(text + "\n")
    return Answer.load(file)


@pytest.mark.parametrize("where, text", KEEPS.items())
def test_what_is_kept_is_named_with_its_place(tmp_path, text, where):
    with pytest.raises(Wrong) as caught:
        one_by_one(load(tmp_path, text), checks())
    assert where in caught.value.why and "As a first call it is right" in caught.value.why


def test_an_error_that_only_a_later_call_raises_is_told_so_too(tmp_path):
    text = "left = [2]\ndef f(n):\n    left.pop()\n    return list(range(n))"
    with pytest.raises(Wrong) as caught:
        one_by_one(load(tmp_path, text), checks())
    assert "IndexError" in caught.value.got and "`left`" in caught.value.why


@pytest.mark.parametrize("text", ["def f(n):\n    return []", ALONE])
def test_an_answer_that_is_wrong_alone_keeps_its_usual_reason(tmp_path, text):
    with pytest.raises(Wrong) as caught:
        one_by_one(load(tmp_path, text), checks())
    assert caught.value.why == "the usual reason"
