"""Every plausible wrong answer is named as what it is, and every right one passes, however unusual it is.

The first line of a wrong answer says what the verdict must say: `# says: <phrase>`.
"""

import functools
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mpcourse.check import watch
from mpcourse.check.manifest import load_course
from mpcourse.check.supervisor import check
from mpcourse.launch import mpirun

ROOT = Path(__file__).resolve().parents[1]
COURSE = load_course(ROOT)
pytestmark = pytest.mark.timeout(300)  # the first test of an exercise waits for the verdicts on all its answers
# Judged in one process, for they import torch; those on virtual ranks, too, unless an answer asks for real ones.
ALONE = [e for e in COURSE.exercises if e.sizes == [1] or e.virtual]
TOGETHER = [e for e in COURSE.exercises if e.sizes != [1]]


def answers(folder, exercises, real=False):
    """real: of exercises on virtual ranks those answers that say `# on real ranks`, which show what they are there."""
    return [
        pytest.param(exercise, file, id=f"{exercise.short}-{file.stem}")
        for exercise in exercises
        for file in sorted((ROOT / "tests" / folder / exercise.name).glob("*.py"))
        if not exercise.virtual or real == ("# on real ranks" in file.read_text())
    ]


def said(verdict):
    return "\n".join([verdict["headline"], *verdict["details"], verdict["why"]])


def phrase_of(file):
    first = file.read_text().splitlines()[0]
    assert first.startswith("# says: "), f"{file} must begin with `# says: <what the verdict must say>`"
    return first.removeprefix("# says: ")


@functools.cache
def judged(name):
    """Verdicts on all answers of a one-rank exercise, by file; they are made in one process."""
    exercise = COURSE.find(name)
    files = [p.values[1] for folder in ("wrong_answers", "right_answers") for p in answers(folder, [exercise])]
    command = [sys.executable, str(ROOT / "tests" / "judge_many.py"), exercise.name, *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    return dict(zip(files, json.loads(done.stdout.splitlines()[-1]), strict=True))


@pytest.mark.parametrize("exercise, file", answers("wrong_answers", ALONE))
def test_a_wrong_answer_of_one_rank_is_named(exercise, file):
    verdict = judged(exercise.name)[file]
    assert not verdict["passed"]
    assert phrase_of(file) in said(verdict)


@pytest.mark.parametrize("exercise, file", answers("right_answers", ALONE))
def test_a_right_answer_of_one_rank_passes(exercise, file):
    verdict = judged(exercise.name)[file]
    assert verdict["passed"], said(verdict)


@pytest.fixture(scope="module")
def checked(request):
    """Verdicts on the answers that `test` asks for, by file. Two checks run at once, for they mostly wait."""

    def check_all(test, sizes=None):
        items = [i for i in request.session.items if i.parent is request.node and i.originalname == test]
        asked = [i.callspec.params for i in items]
        with ThreadPoolExecutor(2) as pool:
            verdicts = list(pool.map(lambda a: check(a["exercise"], a["file"], sizes).as_dict(), asked))
        return dict(zip([a["file"] for a in asked], verdicts, strict=True))

    return check_all


@pytest.fixture(scope="module")
def wrong(checked):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(watch, "BLOCKED", 0.7)
        return checked("test_a_wrong_answer_is_named")


@pytest.fixture(scope="module")
def right(checked):
    return checked("test_a_right_answer_passes", [3])  # the least number at which order and roots can differ


@pytest.mark.parametrize("exercise, file", answers("wrong_answers", TOGETHER, real=True))
def test_a_wrong_answer_is_named(exercise, file, wrong):
    if "# needs: MPICH" in file.read_text() and mpirun().implementation != "MPICH":
        pytest.skip("this MPI buffers a message to oneself, so the answer works here")
    assert not wrong[file]["passed"]
    assert phrase_of(file) in said(wrong[file])


@pytest.mark.parametrize("exercise, file", answers("right_answers", TOGETHER, real=True))
def test_a_right_answer_passes(exercise, file, right):
    assert right[file]["passed"], said(right[file])


@pytest.mark.parametrize("exercise", COURSE.exercises, ids=lambda e: e.short)
def test_each_exercise_has_at_least_six_wrong_answers(exercise):
    assert len(answers("wrong_answers", [exercise])) >= 6
