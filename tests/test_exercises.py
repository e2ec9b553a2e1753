"""Solutions, exercises, manifest, hints: the parts of the exercise machine are in step."""

import tomllib

import pytest

from mpcourse.check.manifest import load_course
from mpcourse.check.stubs import committed, make_stub, reset, solution_only, stub_of, write_stubs
from mpcourse.check.supervisor import check
from tests.conftest import ROOT

COURSE = load_course(ROOT)
EACH = pytest.mark.parametrize("exercise", COURSE.exercises, ids=lambda e: e.name)


@EACH
def test_the_exercise_is_what_the_solution_makes_of_it(exercise):
    stub = stub_of(COURSE, exercise)
    present = COURSE.exercise_file(exercise).read_text()
    # A learner's clone holds the learner's work: there the committed file is what must be in step.
    assert stub in (present, committed(COURSE, exercise)), "run `make exercises` and commit what it wrote"


@EACH
def test_the_untouched_exercise_fails_as_not_written_yet(exercise, tmp_path):
    file = tmp_path / f"{exercise.name}.py"
    file.write_text(stub_of(COURSE, exercise))
    verdict = check(exercise, file, exercise.sizes[:1])
    assert verdict.kind == "not written yet"
    assert verdict.headline.startswith(f"{exercise.name}: ")


@EACH
def test_the_solution_passes_at_every_size(exercise):
    verdict = check(exercise, COURSE.solution_file(exercise))
    assert verdict.passed, (verdict.headline, verdict.details)
    assert verdict.sizes == exercise.sizes


@EACH
def test_the_exercise_checks_itself_and_so_does_the_solution(exercise, tmp_path, mpirun):
    stub = tmp_path / f"{exercise.name}.py"
    stub.write_text(stub_of(COURSE, exercise))
    failed = mpirun(2, stub)
    assert failed.returncode == 1 and "not written yet" in failed.stdout
    passed = mpirun(2, COURSE.solution_file(exercise))
    assert passed.returncode == 0 and f"{exercise.name} passed with 2 ranks" in passed.stdout


@EACH
def test_hints_are_a_ladder_of_three_and_never_empty(exercise):
    assert len(exercise.hints) == 3
    assert all(len(hint) > 40 for hint in exercise.hints)
    assert 1 <= exercise.difficulty <= 5 and exercise.minutes > 0


@EACH
def test_the_exercise_belongs_to_a_lesson_that_speaks_of_it(exercise):
    assert exercise.lesson in [lesson.id for lesson in COURSE.lessons]
    lesson = (ROOT / "lessons" / "src" / f"{exercise.lesson}.py").read_text()
    assert exercise.name in lesson


def test_every_solution_is_in_the_manifest():
    files = {path.stem for path in (ROOT / "solutions").glob("e*.py")}
    assert files == {e.name for e in COURSE.exercises}


def test_names_are_unique_even_in_short():
    shorts = [e.name for e in COURSE.exercises]
    assert len(set(shorts)) == len(shorts)


def test_an_exercise_that_checks_itself_ends_a_deadlock_too(tmp_path, mpirun):
    file = tmp_path / "e00_hello.py"
    solution = COURSE.solution_file(COURSE.find("e00")).read_text()
    file.write_text(solution.replace("return comm.gather", "return comm.rank or comm.gather"))
    done = mpirun(2, file)
    assert done.returncode == 1
    assert "e00_hello: deadlock with 2 ranks" in done.stdout
    assert "rank 0 waits in gather(root=0)" in done.stdout


def test_an_exercise_that_checks_itself_ends_an_endless_loop_too(tmp_path, mpirun):
    file = tmp_path / "e00_hello.py"
    solution = COURSE.solution_file(COURSE.find("e00")).read_text()
    file.write_text(solution.replace("return comm.gather", "while comm.rank: pass\n    return comm.gather"))
    done = mpirun(2, file)
    assert done.returncode == 1
    assert "e00_hello: no progress with 2 ranks" in done.stdout and "rank 1" in done.stdout


def test_an_exercise_that_checks_itself_stops_a_flood_and_does_not_show_it(tmp_path, mpirun):
    file = tmp_path / "e00_hello.py"
    solution = COURSE.solution_file(COURSE.find("e00")).read_text()
    file.write_text(solution.replace("return comm.gather", "while comm.rank: print('x' * 99)\n    return comm.gather"))
    done = mpirun(2, file)
    assert done.returncode == 1
    assert "e00_hello: output flood with 2 ranks" in done.stdout and len(done.stdout) < 5000


def test_a_stub_names_its_task_and_keeps_the_rest():
    solution = "def f(x):\n    # solution: double x\n    y = 2 * x\n    return y\n    # end of solution\n\n\nprint(1)\n"
    stub = make_stub("e99_f", solution)
    assert stub == 'def f(x):\n    raise NotImplementedError("e99_f: double x")\n\n\nprint(1)\n'
    assert solution_only(solution) == "def f(x):\n    y = 2 * x\n    return y\n\n\nprint(1)\n"


@pytest.mark.parametrize(
    "solution",
    [
        "def f():\n    return 1\n",
        "    # solution: a\n    x\n",
        "# solution: a\nx\n    # end of solution\n",
        "# end of solution\n",
    ],
)
def test_unpaired_markers_are_refused(solution):
    with pytest.raises(ValueError, match="must come in pairs"):
        make_stub("e99_f", solution)


def test_make_exercises_never_overwrites_work(small_course):
    course = load_course()
    exercise = course.exercises[0]
    assert write_stubs(course) == ["e90_mean: written"]
    assert write_stubs(course) == ["e90_mean: unchanged"]
    course.exercise_file(exercise).write_text("mine = 1\n")
    assert "kept" in write_stubs(course)[0]
    assert course.exercise_file(exercise).read_text() == "mine = 1\n"


def test_reset_keeps_the_learners_text(small_course, tmp_path):
    course = load_course()
    exercise = course.exercises[0]
    course.exercise_file(exercise).write_text("mine = 1\n")
    kept = reset(course, exercise, tmp_path / "kept")
    assert kept.read_text() == "mine = 1\n"
    assert course.exercise_file(exercise).read_text() == stub_of(course, exercise)
    assert reset(course, exercise, tmp_path / "kept") is None  # nothing of the learner's is left to keep


def test_the_manifest_is_plain_toml_with_only_known_fields():
    table = tomllib.loads((ROOT / "exercises" / "manifest.toml").read_text())
    assert set(table) == {"lesson", "exercise"}
