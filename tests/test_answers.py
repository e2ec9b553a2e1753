"""Every plausible wrong answer is named as what it is, and every right one passes, however unusual it is.

What an answer is, and where it is written down, is told in answers.py. One exercise, or one answer:

    make test TEST_ARGS="-k e05_exchange"    make test TEST_ARGS="-k bare_except_retry"
"""

from types import SimpleNamespace

import pytest

from mpcourse.common.launch import mpirun
from mpcourse.course.check import monitor
from mpcourse.course.check.manifest import load_course
from mpcourse.course.check.supervisor import check
from tests.answers import answers_to, head_of, read
from tests.conftest import ROOT, forks
from tests.explanations import SAID, Reached, explanations, unreached

COURSE = load_course(ROOT)
HEADS = {exercise.name: head_of(COURSE, exercise) for exercise in COURSE.exercises}


def answers(right):
    return [
        pytest.param(exercise, answer, id=f"{exercise.name}-{answer.name}")
        for exercise in COURSE.exercises
        for answer in answers_to(exercise, right)
    ]


@pytest.fixture
def verdict_on(tmp_path, monkeypatch):
    """The verdict on an answer, whose file is the learner's own.

    Ranks are called blocked, or without progress, sooner than usual; but later than a check ends what it limits itself,
    and has a better reason for: virtual ranks after 1.5 s of computing, a pipeline's step after 2.
    """

    def judged(exercise, answer, sizes=None):
        monkeypatch.setattr(monitor, "BLOCKED", 0.7)
        monkeypatch.setattr(monitor, "STILL", 2.5)
        file = tmp_path / f"{exercise.name}.py"
        file.write_text(answer.text(HEADS[exercise.name]), encoding="utf-8")
        return check(exercise, file, sizes, forks())

    return judged


def said(verdict):
    return "\n".join([verdict.headline, *verdict.details, verdict.why])


@pytest.mark.parametrize("exercise, answer", answers(right=False))
def test_a_wrong_answer_is_named(exercise, answer, verdict_on, record_property):
    if answer.needs and mpirun().implementation != answer.needs:
        pytest.skip("this MPI buffers a message to oneself, so the answer works here")
    verdict = verdict_on(exercise, answer)
    record_property(SAID, said(verdict))
    assert not verdict.passed
    assert answer.phrase(HEADS[exercise.name]) in said(verdict)
    if exercise.virtual:
        assert verdict.virtual != answer.on_real_ranks, "`# on: real ranks` is for what virtual ranks let pass"


@pytest.mark.parametrize("exercise, answer", answers(right=True))
def test_a_right_answer_passes(exercise, answer, verdict_on):
    # Three ranks are the least at which order and roots can differ. Virtual ranks, which come before, tell most.
    verdict = verdict_on(exercise, answer, None if exercise.sizes == [1] else [3])
    assert verdict.passed, said(verdict)


@pytest.mark.parametrize("exercise", COURSE.exercises, ids=lambda e: e.short)
def test_each_exercise_has_at_least_six_wrong_answers_and_all_say_what_the_learner_thinks(exercise):
    wrong = answers_to(exercise, right=False)
    assert len(wrong) >= 6
    assert all(answer.thinks for answer in [*wrong, *answers_to(exercise, right=True)])


def test_no_answer_was_lost_when_they_became_data():
    counts = [sum(len(answers_to(exercise, right)) for exercise in COURSE.exercises) for right in (False, True)]
    assert counts[0] >= 899 and counts[1] >= 225


@pytest.mark.parametrize(
    "text",
    ["# %% a\n# thinks: no phrase.\nx = 1\n", "# %% a\n# says: x\n", "# %% a\n# says: x\n# why: y\nx = 1\n"]
    + ["# %% a\n# says: x\ny = 1\n\n\n# %% a\n# says: x\ny = 2\n"],
)
def test_a_cell_that_is_no_wrong_answer_is_refused(text):
    with pytest.raises(ValueError, match="e99, a: "):
        list(read(text, "e99", right=False))


def test_explanations_are_the_sentences_of_a_file_but_docstrings_and_short_ones(tmp_path):
    file = tmp_path / "case.py"
    file.write_text(
        '"""A docstring that is longer than thirty characters."""\n'
        'NAME, ONE = "short", "An explanation that is long enough to count."\n'
        'two = f"{NAME} and {NAME} are the values in this longer text, {NAME}."\n'
        'three = "As {} says, there are two ways to put a value in.", r"(a pattern|of somebody else.s message)"\n'
    )
    assert [(found.line, found.text) for found in explanations(file)] == [
        (2, "An explanation that is long enough to count."),
        (3, "are the values in this longer text,"),
        (4, "says, there are two ways to put a value in."),
    ]
    assert [found.line for found in unreached([file], ["asked: are the values in this longer text, no."])] == [2, 4]


@pytest.mark.parametrize("left_out, status, wanted", [(0, 0, 1), (1, 0, 0), (0, 2, 2)])
def test_a_run_of_all_wrong_answers_fails_where_an_explanation_is_not_reached(left_out, status, wanted):
    reached, session = Reached(ROOT), SimpleNamespace(exitstatus=status)
    for parameters in answers(right=False)[left_out:]:
        nodeid = f"tests/test_answers.py::test_a_wrong_answer_is_named[{parameters.id}]"
        reached.pytest_runtest_logreport(SimpleNamespace(when="call", nodeid=nodeid, user_properties=[(SAID, "no")]))
    reached.pytest_sessionfinish(session)
    assert (session.exitstatus, bool(reached.unreached)) == (wanted, not left_out)
