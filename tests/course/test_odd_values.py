"""Whatever an answer returns, the verdict is about the answer: never a fault of the checker, never "passed"."""

import json
import os
import subprocess

import pytest

from mpcourse.course.check.manifest import load_course
from tests.conftest import ROOT, python
from tests.odd_values import odd_values

COURSE = load_course(ROOT)
PLACE_OF_NONE = next(at for at, make in enumerate(odd_values()) if make() is None)


@pytest.mark.parametrize("exercise", COURSE.exercises, ids=lambda e: e.name)
def test_two_hundred_odd_values_are_called_wrong(exercise):
    program = ROOT / "tests" / "programs" / "odd_answers.py"
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        python(program, exercise.name), capture_output=True, text=True, timeout=280, cwd=ROOT, env=environment
    )
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert len(told) >= 200
    odd = [(at, *rest) for at, (kind, *rest) in enumerate(told) if kind not in ("wrong", "raised", "between ranks")]
    assert not odd
    # What can be looked at is told for what it is; the general words are for what cannot.
    general = [at for at, (kind, asked, *rest) in enumerate(told) if asked.endswith("of that type")]
    assert len(general) <= 9 and not {0, 1, 2, 3, 4, 5, 6, PLACE_OF_NONE} & set(general)
    assert all(len(part) < 700 for kind, *rest in told if kind == "wrong" for part in rest[:3])
