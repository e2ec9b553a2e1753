"""Every plausible wrong answer is named as what it is, and every right one passes, however unusual it is.

answers.py explains how answers are written down. One exercise, or one answer:

    make test TEST_ARGS="-k e05_exchange"    make test TEST_ARGS="-k bare_except_retry"
"""

from types import SimpleNamespace

import pytest

from mpcourse.common.launch import mpirun
from mpcourse.course.check import monitor
from mpcourse.course.check.manifest import load_course
from mpcourse.course.check.supervisor import check
from tests.answers import answers_to, edit_of, edited, main, read
from tests.conftest import ROOT, forks
from tests.explanations import SAID, Reached, explanations, unreached

COURSE = load_course(ROOT)
E05 = COURSE.find("e05_exchange")
CELL = "## a\nthinks: x\nsays: y\n"  # an answer without its code


def answers(right):
    return [
        pytest.param(exercise, answer, id=f"{exercise.name}-{answer.name}")
        for exercise in COURSE.exercises
        for answer in answers_to(exercise, right)
    ]


@pytest.fixture
def verdict_on(tmp_path, monkeypatch):
    """Return the verdict on an answer, whose file is the learner's own.

    Ranks are called blocked, or without progress, sooner than usual; but later than a check ends what it limits itself,
    and has a better reason for: virtual ranks after 1.5 s of computing, a pipeline's step after 2.
    """

    def judged(exercise, answer, sizes=None):
        monkeypatch.setattr(monitor, "BLOCKED", 0.7)
        monkeypatch.setattr(monitor, "STILL", 2.5)
        file = tmp_path / f"{exercise.name}.py"
        file.write_text(answer.text, encoding="utf-8")
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
    assert answer.says in said(verdict)
    if exercise.virtual and not answer.name.startswith("diagnosis"):  # that needs no ranks
        assert verdict.virtual != answer.on_real_ranks, "`on: real ranks` is for what virtual ranks let pass"


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


def test_no_answer_was_lost_when_they_became_edits():
    counts = [sum(len(answers_to(exercise, right)) for exercise in COURSE.exercises) for right in (False, True)]
    assert counts[0] >= 1781 and counts[1] >= 324


@pytest.mark.parametrize(
    "text, reason",
    [
        ("## a\nthinks: x\nz = 1\n", "must have `thinks` and `says`, or `right`, and it has thinks"),
        (f"{CELL}right: x\nz = 1\n", "must have"),
        (f"{CELL}why: z\nz = 1\n", "must have"),
        (CELL, "it has no code"),
        (f"{CELL}from: b\n-z = 1\n\n## b\nright: x\nz = 1\n", "no answer above"),
        (f"{CELL}z = 1\n\n{CELL}z = 2\n", "another answer has its name"),
        (f"{CELL}-    comm.Send(send)\n", "must be in the code once, and are there 0 times:\n    comm.Send"),
    ],
)
def test_an_answer_that_cannot_be_read_is_refused(text, reason):
    with pytest.raises(ValueError, match="e05_exchange, a: ") as refused:
        read(text, E05)
    assert reason in str(refused.value)


def test_an_answer_is_what_it_changes_in_the_solution_or_in_one_above_it():
    line = "    comm.Sendrecv(send, (comm.rank + 1) % comm.size, recvbuf=recv, source=(comm.rank - 1) % comm.size)"
    first, second = read(f"{CELL}-{line}\n+    pass\n\n## b\nright: z\nfrom: a\n     pass\n+    return\n", E05)
    assert (first.right, first.thinks, first.says) == (False, "x", "y")
    assert (second.right, second.thinks, second.says) == (True, "z", "")
    assert first.text.endswith("\n\n\ndef exchange(comm, send, recv):\n    pass\n")
    assert second.text == f"{first.text}    return\n"


def test_an_edit_shows_each_change_with_the_lines_that_make_its_place_clear():
    code, wanted = "a\nb\nc\na\nb\n\nd\n", "a\nb\nc\nA\nb\n\nnew\nd\ne\n"
    edit = " c\n-a\n+A\n@@\n+new\n d\n@@\n d\n+e\n"
    assert edit_of(code, wanted) == edit and edited(code, edit) == wanted
    with pytest.raises(ValueError, match="once, and are there 2 times"):
        edited(code, "-a\n+A\n")


def test_an_answer_is_printed_as_a_file_and_a_file_as_the_shortest_edit(tmp_path, monkeypatch, capsys):
    file = tmp_path / "e06_scatter_dataset_mine.py"
    monkeypatch.setattr("sys.argv", ["answers.py", "e06_scatter_dataset", "same_share"])
    main()
    file.write_text(capsys.readouterr().out.replace("seed):\n", 'seed):\n    """A docstring."""\n'))
    monkeypatch.setattr("sys.argv", ["answers.py", "--add", str(file)])
    main()
    assert capsys.readouterr().out == (
        "## NAME\nthinks: \nsays: \n"
        "-    return np.array_split(order, comm.size)[comm.rank].astype(np.int64)\n"
        "+    return np.array_split(order, comm.size)[0]\n"
    )


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
        nodeid = f"tests/course/test_answers.py::test_a_wrong_answer_is_named[{parameters.id}]"
        reached.pytest_runtest_logreport(SimpleNamespace(when="call", nodeid=nodeid, user_properties=[(SAID, "no")]))
    reached.pytest_sessionfinish(session)
    assert (session.exitstatus, bool(reached.unreached)) == (wanted, not left_out)
