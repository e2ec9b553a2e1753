"""An answer is the learner's own: what it replaces, borrows or forges is seen, and innocent code is let alone."""

import json
import math
import sys
from pathlib import Path

import pytest

from mpcourse.course.check import dict_version, intact
from mpcourse.course.check.answer import Answer
from mpcourse.course.check.fair import Fair
from mpcourse.course.check.forbidden_calls import PACKAGE, ForbiddenCalls
from mpcourse.course.check.manifest import load_course
from mpcourse.course.check.rank import Report, taken_key
from mpcourse.course.check.supervisor import run_alone
from mpcourse.course.check.wrong import Wrong
from tests.conftest import ROOT, forks

COURSE = load_course(ROOT)


@pytest.fixture
def loaded(tmp_path):
    def load(text, holds=("mpcourse.split.balance:balance",)):
        file = tmp_path / "e03_balance.py"
        file.write_text(text)
        return Answer.load(file, fair=Fair(file, "e03_balance", holds))

    return load


def test_what_is_replaced_is_named_and_put_back():
    replaced, before = intact.guard(), math.sqrt
    math.sqrt = abs
    try:
        assert replaced(False) == "math.sqrt" and math.sqrt is before
    finally:
        math.sqrt = before
    assert replaced(True) == ""


def test_what_is_replaced_a_second_time_is_named_again():
    replaced, before = intact.guard(), math.sqrt
    try:
        for other in (abs, math.cos):
            math.sqrt = other
            assert replaced(False) == "math.sqrt" and math.sqrt is before and replaced(False) == ""
        math.unknown = 1  # another version of the namespace, with all that it had
        assert replaced(False) == ""
        math.sqrt = abs
        assert replaced(False) == "math.sqrt" and math.sqrt is before
        del math.sqrt
        assert replaced(False) == "math.sqrt" and math.sqrt is before
    finally:
        math.sqrt = before
        del math.unknown


def test_what_is_replaced_is_found_where_python_keeps_no_versions(monkeypatch):
    monkeypatch.setattr(dict_version, "_kept", lambda: False)
    monkeypatch.setattr(intact, "_seen", set())
    monkeypatch.setattr(intact, "_parts", [intact.Part(), intact.Part()])
    replaced, before = intact.guard(), math.sqrt
    assert replaced(True) == ""
    math.sqrt = abs
    try:
        assert replaced(False) == "math.sqrt" and math.sqrt is before and replaced(False) == ""
    finally:
        math.sqrt = before


class Something:
    value = 1


def test_a_dictionary_has_another_version_after_each_change():
    names = {"a": 1}
    for namespace, change in (
        (names, lambda: names.update(b=2)),
        (names, lambda: names.pop("b")),
        (names, lambda: names.update(a=3)),
        (vars(Something), lambda: setattr(Something, "value", 2)),
        (vars(Something), lambda: delattr(Something, "value")),
        (vars(math), lambda: setattr(math, "unknown", 1)),
        (vars(math), lambda: delattr(math, "unknown")),
    ):
        version = dict_version.version_of(namespace)
        then = version[0]
        assert (version[0] == then) == dict_version._kept()
        change()
        assert version[0] != then


def test_what_is_replaced_of_the_course_is_seen_at_the_end():
    replaced, before = intact.guard(), vars(Fair)["judge"]
    Fair.judge = lambda self: None
    try:
        assert replaced(False) == "" and replaced(True) == "mpcourse.course.check.fair.Fair.judge"
        assert vars(Fair)["judge"] is before
    finally:
        Fair.judge = before


@pytest.mark.parametrize("name", ["e03_balance", "e05_exchange"])  # without ranks, and on virtual ones
def test_an_answer_that_replaces_the_judge_is_judged(tmp_path, name):
    exercise = COURSE.find(name)
    file = tmp_path / f"{exercise.name}.py"
    replaces = "from mpcourse.course.check.fair import Fair\nFair.judge = lambda self, course_too=True: None\n"
    file.write_text(replaces + (ROOT / "solutions" / file.name).read_text())
    verdict = run_alone(exercise, file, forks())
    assert not verdict.passed and "mpcourse.course.check.fair.Fair.judge to be left as it is" in "\n".join(
        verdict.details
    )


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
    answer.fair.judge()


@pytest.mark.parametrize(
    "way",
    [
        "from mpcourse.split import balance as b; return b(costs, stages)",
        "import mpcourse.split.balance, sys; return sys.modules['mpcourse.split.balance'].balance(costs, stages)",
        "import mpcourse.split as s, functools; return list(map(functools.partial(s.balance, costs), [stages]))",
        "import mpcourse.split.balance, sys, textwrap\n    m = sys.modules['mpcourse.split.balance']\n"
        "    textwrap.dedent('')\n    m.__name__, name = 'textwrap', m.__name__\n"
        "    try: return m.balance(costs, stages)\n    finally: m.__name__ = name",
    ],
)
def test_whatever_way_the_librarys_own_is_called_it_is_named(loaded, way):
    answer = loaded(f"def balance(costs, stages):\n    {way}\n")
    with pytest.raises(Wrong) as caught:
        answer.call("balance", [1, 2], 1)
    assert caught.value.got == "it runs balance of mpcourse.split.balance"


def test_an_answers_lines_are_followed_though_code_of_no_file_has_its_variables(loaded):
    answer = loaded(
        "exec('def g(): return 1', globals())\ndef balance(costs, stages):\n    g()\n    return h(costs)\n"
        "def h(costs):\n    costs.append(g())\n    return [1]\n"
    )
    with pytest.raises(Wrong, match="to leave its arguments as they are"):
        answer.call("balance", [1], 1)
    assert answer.line == 6


def test_a_caught_refusal_counts_all_the_same(loaded):
    answer = loaded(
        "import sys\ndef balance(costs, stages):\n    try:\n        return sys._getframe().f_back\n"
        "    except BaseException:\n        return [1]\n"
    )
    with pytest.raises(Wrong, match="looks at the program that called it"):
        answer.call("balance", [1], 1)


def test_a_report_is_believed_only_with_its_key(tmp_path):
    (tmp_path / "rank3.key").write_text("secret")
    assert taken_key(tmp_path, 3) == "secret" and taken_key(tmp_path, 3) == ""
    Report("passed", 3).write(tmp_path, 3, "secret")
    file = tmp_path / "rank3.json"
    assert Report.read(file, "secret").kind == "passed"
    Report("passed", 3).write(tmp_path, 3, "another")
    assert Report.read(file, "secret").kind == "wrong"
    for text in ("", "{}", json.dumps({"kind": "passed", "rank": 3}), "\n" + json.dumps({"kind": "passed"})):
        file.write_text(text)
        forged = Report.read(file, "secret")
        assert (forged.kind, forged.rank) == ("wrong", 3) and "written by the answer" in forged.got


@pytest.mark.parametrize("exercise", COURSE.exercises, ids=lambda e: e.name)
def test_the_manifest_names_what_the_library_has(exercise):
    held = ForbiddenCalls.of(Path("x.py"), exercise.name, exercise.forbidden_modules)
    assert len(held.sources) + len(held.functions) == len(exercise.forbidden_modules)
    for place in [*held.sources, *(file for file, _ in held.functions)]:
        assert Path(place).exists() and Path(place).is_relative_to(PACKAGE)
        assert place.endswith(".py") or list(Path(place).rglob("*.py"))
    for file, function in held.functions:
        assert f"def {function}(" in Path(file).read_text()


def test_the_package_is_what_is_imported():
    assert Path(sys.modules["mpcourse"].__file__).parent == PACKAGE


def test_what_a_box_of_virtual_gpus_puts_into_torch_is_no_answers_doing():
    import torch

    from mpcourse.virtual import virtual_gpus

    replaced = intact.guard()
    with virtual_gpus(1):
        assert torch.ones(2, device="vgpu:0").sum().item() == 2 and replaced(True) == ""
