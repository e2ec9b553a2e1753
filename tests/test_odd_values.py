"""Whatever an answer returns, the verdict is about the answer: never a fault of the checker, never "passed"."""

import json
import os
import subprocess

import pytest

from mpcourse.check.manifest import load_course
from tests.conftest import ROOT, python

COURSE = load_course(ROOT)


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
    assert all(len(part) < 700 for kind, *rest in told if kind == "wrong" for part in rest[:3])
