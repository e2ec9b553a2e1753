"""Solutions, exercises, manifest, hints: the parts of the exercise machine are in step."""

import json
import subprocess
import sys
import tomllib

import psutil
import pytest

from mpcourse.common import launch
from mpcourse.course.check.manifest import load_course
from mpcourse.course.check.stubs import committed, hollow, make_stub, reset, solution_only, stub_of, write_stubs
from mpcourse.course.check.supervisor import check
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
    assert "is as it was" in verdict.why  # though a stub may come with code beside the raise


@EACH
def test_the_solution_passes_at_every_size(exercise):
    verdict = check(exercise, COURSE.solution_file(exercise))
    assert verdict.passed, (verdict.headline, verdict.details)
    assert verdict.sizes == exercise.sizes


@EACH
def test_the_exercise_checks_itself_and_so_does_the_solution(exercise, tmp_path, mpirun):
    stub = tmp_path / f"{exercise.name}.py"
    stub.write_text(stub_of(COURSE, exercise))
    failed = mpirun(exercise.sizes[0], stub)
    assert failed.returncode == 1 and "not written yet" in failed.stdout
    passed = mpirun(2, COURSE.solution_file(exercise))
    assert passed.returncode == 0 and f"{exercise.name} passed with 2 ranks" in passed.stdout


def test_no_check_imports_much_while_a_learner_waits():
    """A fork server has imported the cases, and what they import, but nothing that only running them needs."""
    program = ROOT / "tests" / "programs" / "imports_of_checks.py"
    done = subprocess.run([sys.executable, "-P", program], capture_output=True, text=True, timeout=200, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-3000:]
    imported = json.loads(done.stdout)
    assert len(imported) > 20
    assert not {name: new for name, new in imported.items() if len(new) > 20}


@pytest.mark.skipif(launch.mpirun().implementation != "MPICH", reason="Open MPI ends all with the first that fails")
def test_mpirun_returns_1_however_far_apart_the_processes_leave(mpirun):
    """MPICH took the first to leave for a crash, killed the others, and at times returned 9."""
    done = mpirun(3, ROOT / "tests/programs/leaves_slowly.py", ROOT / "exercises/e00_hello.py")
    assert done.returncode == 1 and "not written yet" in done.stdout
    assert "BAD TERMINATION" not in done.stdout + done.stderr


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


@pytest.fixture
def checks_itself(tmp_path, monkeypatch, mpirun):
    """Run e00's solution, with one piece of it replaced, under mpirun; nothing may be left of it afterwards.

    It calls ranks stuck or blocked after less time than usual: `impatient` of test_checker.py says why.
    """
    file, temporary = tmp_path / "e00_hello.py", tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    solution = COURSE.solution_file(COURSE.find("e00")).read_text()

    def run(old, new):
        assert old in solution
        file.write_text(solution.replace(old, new))
        done = mpirun(2, ROOT / "tests" / "programs" / "impatient.py", file)
        assert not list(temporary.glob("mpcourse-*"))
        assert not [p for p in psutil.process_iter(["cmdline"]) if str(file) in " ".join(p.info["cmdline"] or ())]
        return done

    return run


@pytest.mark.parametrize(
    ("line", "head", "phrase"),
    [
        ("if comm.rank: return", "deadlock", "rank 0 waits in gather(root=0)"),
        ("while comm.rank: pass", "no progress", "rank 1"),
        ("while comm.rank: print('x' * 99)", "output flood", "rank 1 printed more than 1 MB"),
        ("comm.rank and os._exit(0)", "vanished", "rank 1"),
        ("comm.rank or os._exit(0)", "vanished", "rank 0"),
        ("comm.rank or os.kill(os.getpid(), 11)", "vanished", "rank 0"),
        ("comm.rank and comm.Abort(0)", "early exit", "rank 1 called comm.Abort(0)"),
        ("comm.rank or MPI.COMM_WORLD.Abort(3)", "early exit", "rank 0 called comm.Abort(3)"),
    ],
)
def test_an_exercise_that_checks_itself_explains_and_ends(checks_itself, line, head, phrase):
    before = f"    import os\n    from mpi4py import MPI\n    {line}\n"
    done = checks_itself("    return comm.gather", f"{before}    return comm.gather")
    assert done.returncode == 1, done.stderr
    assert f"e00_hello: {head} with 2 ranks" in done.stdout and phrase in done.stdout
    assert len(done.stdout) < 5000


def test_an_exercise_that_checks_itself_explains_a_hang_outside_of_any_function_too(checks_itself):
    done = checks_itself("def greet", "from mpi4py import MPI\n\nMPI.COMM_WORLD.recv()\n\n\ndef greet")
    assert done.returncode == 1
    assert "e00_hello: deadlock with 2 ranks" in done.stdout and "MPI.COMM_WORLD.recv()" in done.stdout


def test_an_exercise_that_checks_itself_wants_to_be_first(checks_itself):
    done = checks_itself("from mpcourse import check", "from mpi4py import MPI\nfrom mpcourse import check")
    assert done.returncode == 2
    said = [
        line for line in done.stderr.splitlines() if "mpcourse" in line
    ]  # Open MPI's launcher adds words of its own
    assert len(said) == 1 and "move the import below it" in said[0]


def test_a_stub_names_its_task_and_keeps_the_rest():
    solution = "def f(x):\n    # solution: double x\n    y = 2 * x\n    return y\n    # end of solution\n\n\nprint(1)\n"
    stub = make_stub("e99_f", solution)
    assert stub == 'def f(x):\n    raise NotImplementedError("e99_f: double x")\n\n\nprint(1)\n'
    assert solution_only(solution) == "def f(x):\n    y = 2 * x\n    return y\n\n\nprint(1)\n"


def test_a_program_to_mend_is_found_with_its_fault():
    solution = (
        "def f(x):\n    # solution: twice\n    # found: for y in x:\n    # found:     g(y)\n    # found:\n"
        "    g(2 * x)\n    # end of solution\n    return x\n"
    )
    assert make_stub("e99_f", solution) == "def f(x):\n    for y in x:\n        g(y)\n    return x\n"
    assert make_stub("e99_f", hollow(solution)) == make_stub("e99_f", solution) and "2 * x" not in hollow(solution)
    assert solution_only(solution) == "def f(x):\n    g(2 * x)\n    return x\n"


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
