"""An answer that calls what it should write itself is refused, and innocent code is let alone."""

import sys
from pathlib import Path

import pytest

from mpcourse.course.check.answer import Answer
from mpcourse.course.check.forbidden_calls import PACKAGE, ForbiddenCalls
from mpcourse.course.check.manifest import load_course
from mpcourse.course.check.wrong import Wrong
from tests.conftest import ROOT

COURSE = load_course(ROOT)


@pytest.fixture
def loaded(tmp_path):
    def load(text, modules=("mpcourse.split.balance:balance",)):
        file = tmp_path / "e03_balance.py"
        file.write_text(text)
        return Answer.load(file, forbidden=ForbiddenCalls.of("e03_balance", modules))

    return load


@pytest.mark.parametrize(
    "innocent",
    [
        "import collections\nP = collections.namedtuple('P', 'a')",
        "import dataclasses\n@dataclasses.dataclass\nclass D:\n    x: int = 1",
        "import logging\nlogging.getLogger('x').info('y')",
        "import traceback\ntry:\n    1 / 0\nexcept ZeroDivisionError:\n    traceback.format_exc()",
        "import inspect\ninspect.signature(print)",
        "import math\ndef sum(x): return 0\nmath_sqrt = math.sqrt",
        "from mpcourse.split import balance as of_the_library",  # and never called
    ],
)
def test_innocent_code_is_let_alone(loaded, innocent):
    answer = loaded(f"{innocent}\ndef balance(costs, stages):\n    return [1]\n")
    assert answer.call("balance", [1], 1) == [1]


@pytest.mark.parametrize(
    "way",
    [
        "from mpcourse.split import balance as b; return b(costs, stages)",
        "import mpcourse.split.balance, sys; return sys.modules['mpcourse.split.balance'].balance(costs, stages)",
        "import mpcourse.split as s, functools; return list(map(functools.partial(s.balance, costs), [stages]))",
    ],
)
def test_whatever_way_the_librarys_own_is_called_it_is_named(loaded, way):
    answer = loaded(f"def balance(costs, stages):\n    {way}\n")
    with pytest.raises(Wrong) as caught:
        answer.call("balance", [1, 2], 1)
    assert caught.value.got == "it runs balance of mpcourse.split.balance"


def test_a_call_of_the_solution_is_named(loaded):
    solution = COURSE.solution_file(COURSE.find("e03_balance"))
    answer = loaded(f"import runpy\ntheirs = runpy.run_path({str(solution)!r})\nbalance = theirs['balance']\n")
    with pytest.raises(Wrong) as caught:
        answer.call("balance", [1, 2], 1)
    assert caught.value.got == "it runs solutions/e03_balance.py"


def test_an_answers_lines_are_followed_though_code_of_no_file_has_its_variables(loaded):
    answer = loaded(
        "exec('def g(): return 1', globals())\ndef balance(costs, stages):\n    g()\n    return h(costs)\n"
        "def h(costs):\n    costs.append(g())\n    return [1]\n"
    )
    with pytest.raises(Wrong, match="to leave its arguments as they are"):
        answer.call("balance", [1], 1)
    assert answer.line == 6


@pytest.mark.parametrize("exercise", COURSE.exercises, ids=lambda e: e.name)
def test_the_manifest_names_what_the_library_has(exercise):
    forbidden = ForbiddenCalls.of(exercise.name, exercise.forbidden_modules)
    assert len(forbidden.sources) + len(forbidden.functions) == len(exercise.forbidden_modules)
    for place in [*forbidden.sources, *(file for file, _ in forbidden.functions)]:
        assert Path(place).exists() and Path(place).is_relative_to(PACKAGE)
        assert place.endswith(".py") or list(Path(place).rglob("*.py"))
    for file, function in forbidden.functions:
        assert f"def {function}(" in Path(file).read_text()


def test_the_package_is_what_is_imported():
    assert Path(sys.modules["mpcourse"].__file__).parent == PACKAGE
