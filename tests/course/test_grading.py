"""`mpcourse grade`: a class of three, one of them hostile, gets its verdicts, each answer by itself."""

import csv
import json
import os
import re
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest

from mpcourse.common.errors import UserError
from mpcourse.course.check.manifest import load_course
from mpcourse.course.check.stubs import hollow, make_stub
from mpcourse.course.check.supervisor import check
from mpcourse.course.check.verdict import Verdict
from mpcourse.course.cli import _parser
from mpcourse.course.grading import run as grading_run
from mpcourse.course.grading import sandbox as sandbox_module
from mpcourse.course.grading.command import run
from mpcourse.course.grading.report import Report, as_html, counts
from mpcourse.course.grading.run import Graded, Grader
from mpcourse.course.grading.sandbox import why_none
from mpcourse.course.grading.similar import Copy, copies, similar
from mpcourse.course.grading.submissions import find_submissions
from tests.answers import answers_to
from tests.conftest import ROOT, forks, started_here

RIGHT = "def mean(comm, x):\n    return comm.allreduce(x) / comm.size\n"
WRONG = "def mean(comm, x):\n    return comm.allreduce(x)  # <b>the sum</b>\n"
# What an answer sees is told by the exception that it raises. It only reads.
SPY = """
import os, socket

def mean(comm, x):
    seen = []
    for coded in {places}:  # the check refuses an answer whose text speaks of solutions
        place = bytes.fromhex(coded).decode()
        if os.path.isfile(place) or os.path.isdir(place) and os.listdir(place):
            seen.append(os.path.basename(place))
    with socket.socket() as s:
        s.settimeout(1)
        try:
            s.connect(("127.0.0.1", {port}))
            seen.append("network")
        except OSError:
            pass
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) > 300 and "processes" not in seen:
            seen.append("processes")
    if any(os.access(file, os.W_OK) for file in (os.__file__, {library!r}, "/proc/sys/vm/swappiness")):
        seen.append("writes")
    raise ValueError(f"seen: {{seen}}")
"""


@pytest.fixture
def two_exercises(small_course):
    """Return the small course with a second exercise, checked alike."""
    manifest = small_course / "exercises" / "manifest.toml"
    text = manifest.read_text()
    manifest.write_text(text + text[text.index("[[exercise]]") :].replace("e90_mean", "e91_mean"))
    solutions = small_course / "solutions"
    (solutions / "e91_mean.py").write_text((solutions / "e90_mean.py").read_text().replace("e90", "e91"))
    return small_course


@pytest.fixture
def group(tmp_path):
    """Return a function that makes folders of students, as in `group(ada={"e90_mean": RIGHT})`, and returns theirs."""
    folder = tmp_path / "class"

    def make(**students):
        for student, answers in students.items():
            for name, text in answers.items():
                (folder / student / "week 1").mkdir(parents=True, exist_ok=True)
                (folder / student / "week 1" / f"{name}.py").write_text(text)
        return folder

    return make


@pytest.fixture
def graded(tmp_path):
    """Return a function that runs `mpcourse grade`: exit status, rows of the CSV file by student, page."""

    def run_it(folder, *options):
        files = [
            "--csv",
            str(tmp_path / "g.csv"),
            "--html",
            str(tmp_path / "g.html"),
            "--state",
            str(tmp_path / "state"),
        ]
        given = _parser().parse_args(["grade", str(folder), *files, "--junit", str(tmp_path / "junit"), *options])
        status = run(given)
        with (tmp_path / "g.csv").open() as file:
            rows = {row["student"]: row for row in csv.DictReader(file)}
        return status, rows, (tmp_path / "g.html").read_text()

    return run_it


@pytest.fixture(scope="session")
def sandbox():
    if reason := why_none():
        pytest.skip(f"no sandbox can be made here: {reason}")


def test_a_class_gets_its_verdicts_and_a_second_run_checks_nothing(two_exercises, group, graded, sandbox, capsys):
    folder = group(
        ada={"e90_mean": RIGHT, "e91_mean": RIGHT},
        mallory={
            "e90_mean": "import os, time\nos.kill(os.getppid(), 9)\ntime.sleep(9)\n",
            "e91_mean": "import os\nwhile True:\n    os.fork()\n",
        },
        zoe={"e90_mean": WRONG},
    )
    status, rows, page = graded(folder)
    assert status == 0
    kinds = {student: (row["e90_mean"], row["e91_mean"], row["passed"]) for student, row in rows.items()}
    assert kinds == {
        "ada": ("passed", "passed", "2"),
        "mallory": ("vanished", "too many processes", "0"),
        "zoe": ("wrong answer", "not handed in", "0"),
    }
    assert "sandbox: bubblewrap (5)" in page and "<b>the sum" not in page and "week 1/e90_mean.py" in page
    suite = ElementTree.parse(Path(folder.parent, "junit", "mallory.xml")).getroot()
    assert [case.find("failure").get("type") for case in suite] == ["vanished", "too many processes"]
    capsys.readouterr()
    again = graded(folder)
    assert again[:2] == (status, rows)
    assert "5 answers, 5 of them different; 5 were checked before" in capsys.readouterr().err


def test_an_answer_sees_neither_others_nor_solutions_nor_the_network_nor_processes_and_changes_no_library(
    two_exercises, group, graded, sandbox, tmp_path
):
    import socket

    folder = group(ada={"e90_mean": RIGHT})
    places = [folder, folder / "ada" / "week 1" / "e90_mean.py", two_exercises / "solutions" / "e90_mean.py"]
    places += [ROOT / "solutions", ROOT / "tests", tmp_path / "state", Path.home() / ".bashrc", Path("/etc/shadow")]
    with socket.create_server(("127.0.0.1", 0)) as server:
        text = SPY.format(
            places=[str(place).encode().hex() for place in places],
            port=server.getsockname()[1],
            library=str(ROOT / "mpcourse" / "__init__.py"),
        )
        _, rows, page = graded(group(eve={"e90_mean": text}), "--only", "e90")
        # Outside of a sandbox it would see them.
        _, _, outside = graded(folder, "--only", "e90", "--no-sandbox", "--state", str(tmp_path / "other"))
    assert all(f"&#x27;{name}&#x27;" in outside for name in ("class", "solutions", "network", "writes"))
    assert rows["eve"]["e90_mean"] == "exception" and "ValueError: seen: []" in page.replace("&#x27;", "'")


@pytest.mark.parametrize(
    "text, kind",
    [
        ("import os\nos._exit(0)\n", "vanished"),
        ("while True:\n    print('x' * 10000)\n", "output flood"),
        ("x = bytearray(5 << 30)\n", "exception"),
        (
            "import os, signal, time\nos.kill(-1, signal.SIGKILL)\ntime.sleep(9)\n",
            "vanished",
        ),  # its parent's end ends it
        ("import time\ntime.sleep(1000)\n", "no progress"),
    ],
)
def test_an_answer_that_attacks_its_check_gets_a_verdict(two_exercises, text, kind, sandbox):
    grader = Grader(load_course(two_exercises), [])
    found, where = grader.check(grader.course.find("e90"), text)
    assert (found["verdict"]["kind"], where) == (kind, "bubblewrap")
    found, _ = grader.check(grader.course.find("e90"), RIGHT)  # and the next is not touched
    assert found["verdict"]["passed"]


@pytest.mark.parametrize("text", [WRONG, "def mean(comm, x):\n    raise NotImplementedError('e90_mean')\n", "x = (\n"])
def test_the_verdict_is_that_of_check(two_exercises, text, sandbox, tmp_path):
    course = load_course(two_exercises)
    exercise = course.find("e90")
    (tmp_path / "e90_mean.py").write_text(text)
    wanted = check(exercise, tmp_path / "e90_mean.py", None, forks()).as_dict()
    found, _ = Grader(course, []).check(exercise, text)
    for name in ("kind", "np", "headline", "details", "rank", "line"):
        assert found["verdict"][name] == wanted[name]


@pytest.mark.parametrize("isolated", [True, False])
def test_a_check_that_does_not_end_is_stopped_and_leaves_no_process(two_exercises, sandbox, isolated):
    grader = Grader(load_course(two_exercises), [], isolated=isolated)
    soon = replace(grader.course.find("e90"), seconds=-5.7)  # it may take 60 s and 10 times as many
    found, _ = grader.check(soon, "import time\ntime.sleep(1000)\n")
    said = (found["verdict"]["kind"], found["verdict"]["headline"])
    assert said == ("too slow", "the check had not ended after 3 s, and was stopped")
    deadline = time.monotonic() + 20
    while started_here() and time.monotonic() < deadline:  # the kernel ends a sandbox's processes a moment later
        time.sleep(0.02)


def test_without_a_sandbox_the_report_says_so(two_exercises, group, graded):
    _, rows, page = graded(group(ada={"e90_mean": RIGHT}), "--no-sandbox", "--only", "e90")
    assert rows["ada"]["e90_mean"] == "passed" and "none: it was switched off by --no-sandbox (1)" in page


@pytest.mark.skipif(sys.platform != "linux", reason="bubblewrap only exists for Linux")
def test_without_bubblewrap_root_is_refused_and_others_go_on(two_exercises, group, graded, monkeypatch):
    monkeypatch.setattr(sandbox_module, "shutil", SimpleNamespace(which=lambda name: None))
    folder = group(ada={"e90_mean": RIGHT})
    monkeypatch.setattr(grading_run.os, "geteuid", lambda: 0)
    with pytest.raises(UserError, match=r"\(bubblewrap is not installed: sudo apt-get.*\), and you are root: "):
        graded(folder, "--only", "e90")
    monkeypatch.setattr(grading_run.os, "geteuid", lambda: 1000)
    _, rows, page = graded(folder, "--only", "e90")
    assert rows["ada"]["e90_mean"] == "passed" and "sandbox: none: bubblewrap is not installed" in page


@pytest.mark.skipif(sys.platform != "linux", reason="bubblewrap only exists for Linux")
def test_what_bubblewrap_says_is_the_reason_where_it_is_refused(tmp_path, monkeypatch):
    (tmp_path / "bwrap").write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n")
    (tmp_path / "bwrap").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert why_none() == "bwrap: No permissions to create new namespace"


def test_a_run_that_is_interrupted_goes_on(two_exercises, group, graded, monkeypatch, capsys):
    folder = group(ada={"e90_mean": RIGHT, "e91_mean": RIGHT})
    checked = []

    def interrupted(self, exercise, answer):
        checked.append(exercise.name)
        if len(checked) == 2:
            raise KeyboardInterrupt
        return {"verdict": {"exercise": exercise.name, "kind": "passed", "np": 2, "headline": "passed"}}, "bubblewrap"

    monkeypatch.setattr(grading_run.Grader, "check", interrupted)
    with pytest.raises(KeyboardInterrupt):
        graded(folder, "--jobs", "1")
    _, rows, _ = graded(folder, "--jobs", "1")
    assert checked == ["e90_mean", "e91_mean", "e91_mean"] and rows["ada"]["passed"] == "2"


def test_what_could_not_be_checked_is_tried_again(two_exercises, group, graded, monkeypatch):
    folder = group(ada={"e90_mean": RIGHT})
    monkeypatch.setattr(grading_run.Grader, "check", lambda *args: ({"fault": "no mpirun"}, "bubblewrap"))
    status, rows, page = graded(folder, "--only", "e90")
    assert (status, rows["ada"]["e90_mean"]) == (1, "not checked") and "no mpirun" in page
    monkeypatch.undo()
    assert not json.loads((folder.parent / "state").read_text())["verdicts"]


ANSWER = '''
def ring(comm, x):
    """Sum."""
    total = x.copy()
    message = x.copy()
    for step in range(comm.size - 1):
        received = comm.sendrecv(message, dest=(comm.rank + 1) % comm.size, source=(comm.rank - 1) % comm.size)
        total = total + received
        message = received
    if total.size == 0:
        return total.reshape(x.shape)
    return total
'''


def test_a_copy_with_other_names_and_comments_is_similar_and_another_way_is_not():
    copied = re.sub(r"\btotal\b", "s", ANSWER.replace('"""Sum."""', "# mine"))
    copied = re.sub(r"\bmessage\b", "out", copied)
    other = "def ring(comm, x):\n    parts = comm.allgather(x)\n" + "".join(
        f"    y{i} = parts[{i} % len(parts)] * {i}\n" for i in range(12)
    )
    found = similar("e", [("ada", ANSWER), ("bob", copied), ("eve", other), ("zoe", "not ( python")], [])
    assert [(pair.students, pair.share) for pair in found] == [(("ada", "bob"), 1.0)]
    assert not similar("e", [("ada", ANSWER), ("bob", copied)], [ANSWER])  # as the solution


def test_what_most_of_a_class_writes_is_not_similar():
    students = [(f"s{i}", ANSWER) for i in range(7)]
    assert not similar("e", students, [])


def test_a_copy_of_the_solution_with_other_names_is_one_and_no_right_answer_of_the_tests_is():
    course = load_course(ROOT)
    told = 0
    for exercise in course.exercises:
        solution = course.solution_file(exercise).read_text()
        stub = make_stub(exercise.name, solution)
        own_shape = "|shape" if re.search(r"\bshape =", solution) else ""  # otherwise it is a tensor's
        renamed = re.sub(rf"\b(grads|chunk|total|devices{own_shape})\b", r"my_\1", solution) + "# mine\n"
        own = [(answer.name, answer.text) for answer in answers_to(exercise, right=True)]
        found = copies(exercise.name, [("ada", solution), ("bob", renamed), ("eve", stub), *own], stub, solution)
        assert [copy.student for copy in found] in (["ada", "bob"], []), exercise.name
        told += len(found) == 2
    assert told >= 31, "only e00_hello has a solution of a line"


def made_up(students, exercises):
    """Make a report of a class in which the first student copied the solutions, and the last handed in nothing."""
    graded, copied = [], []
    for number, student in enumerate(students):
        for place, exercise in enumerate(exercises):
            kind = ["passed", "deadlock", "not handed in"][(number * place) % 7 // 3]
            kind = "not handed in" if number == len(students) - 1 else kind
            graded.append(Graded(student, Verdict(exercise.name, kind, 2, "rank 0 waits"), "bubblewrap"))
            if number == 0:
                copied.append(Copy(exercise.name, student, 1.0))
    return Report(exercises, graded, [], copied, ["12 students", "sandbox: bubblewrap"])


def test_a_class_report_marks_copies_and_says_who_handed_in_nothing():
    exercises = load_course(ROOT).exercises
    page = as_html(made_up(["ada", "bob", "zoe"], exercises))
    text = re.sub(r"<[^>]*>", " ", page)
    heads = re.findall(r'<th scope="col">(.*?)</th>', page)[: 2 + 13]
    assert heads == ["student", "passed", *(f"{lesson:02}" for lesson in range(13))]
    assert re.search(r"zoe\s+handed in nothing", text) and re.search(r"zoe\s+Handed in nothing\.", text)
    assert re.search(r"ada\s+Nothing failed\.", text) and f"ada  {len(exercises)} of {len(exercises)}" in text
    assert page.count("100% like the course&#x27;s solution") == 2 * len(exercises), "a title, and a name for readers"
    assert "e05_exchange: deadlock" in page


def test_files_are_found_anywhere_and_of_a_whole_course_only_its_exercises(tmp_path):
    exercises = load_course(ROOT).exercises
    for name in ("exercises", "solutions", ".mpcourse", "mpcourse/course/check/cases"):
        (tmp_path / "ada" / "clone" / name).mkdir(parents=True)
        (tmp_path / "ada" / "clone" / name / "e00_hello.py").write_text(name)
    (tmp_path / "ada" / "clone" / "exercises" / "manifest.toml").touch()
    (tmp_path / "bob" / "deep" / "er").mkdir(parents=True)
    (tmp_path / "bob" / "deep" / "er" / "e00_hello.py").write_bytes(b"\xff\r\n")
    (tmp_path / "bob" / "deep" / "link").symlink_to("er/e00_hello.py")
    ada, bob = find_submissions(tmp_path, exercises)
    assert ada.answers == {"e00_hello": "exercises"} and ada.files == {"e00_hello": "clone/exercises/e00_hello.py"}
    assert bob.answers["e00_hello"].encode("utf-8", "surrogateescape") == b"\xff\r\n"


def _two(folder):
    for name in ("a", "b"):
        (folder / "ada" / name).mkdir(parents=True)
        (folder / "ada" / name / "e00_hello.py").touch()


def _link(folder):
    (folder / "ada").mkdir()
    (folder / "ada" / "e00_hello.py").symlink_to(ROOT / "solutions" / "e00_hello.py")


def _folder_link(folder):
    (folder / "ada").mkdir()
    (folder / "ada" / "mine").symlink_to(folder.parent)


def _student_link(folder):
    (folder / "ada").symlink_to(ROOT)


def _locked(folder):
    if os.geteuid() == 0:
        pytest.skip("root may read every folder")
    (folder / "ada" / "locked").mkdir(parents=True)
    (folder / "ada" / "locked").chmod(0)


@pytest.mark.parametrize(
    "make, said",
    [
        (lambda folder: None, "holds no folders"),
        (lambda folder: folder.rmdir(), "cannot be read (No such file"),
        (_two, "several files for e00_hello: a/e00_hello.py and b/e00_hello.py"),
        (_link, "leads out of the student's folder"),
        (_folder_link, "leads out of the student's folder"),
        (_student_link, "is a link"),
        (_locked, "cannot be read (Permission denied)"),
    ],
)
def test_a_class_that_cannot_be_graded_is_refused(tmp_path, make, said):
    folder = tmp_path / "class"
    folder.mkdir()
    make(folder)
    with pytest.raises(UserError, match=re.escape(said)):
        find_submissions(folder, load_course(ROOT).exercises)


@pytest.mark.parametrize("option", ["--csv", "--html", "--state", "--junit"])
def test_an_output_that_cannot_be_written_is_one_line_and_exit_status_2(cli, group, option, tmp_path):
    folder = group(ada={"e00_hello": ""})
    (tmp_path / "file").touch()
    done = cli("grade", folder, "--state", tmp_path / "s", option, tmp_path / "file" / "x")
    assert done.returncode == 2 and not done.stdout
    assert done.stderr.count("\n") == 1 and f"{tmp_path}/file/x" in done.stderr


def test_a_state_that_is_none_is_refused(two_exercises, group, graded, tmp_path):
    (tmp_path / "state").write_text('{"verdicts": {"a": 1}}')
    with pytest.raises(UserError, match="is no state"):
        graded(group(ada={"e90_mean": RIGHT}))


def test_names_and_texts_of_students_stay_texts(two_exercises, group, graded, monkeypatch):
    verdict = {"exercise": "e90_mean", "kind": "exception", "np": 2, "headline": "<script>\x00\ud800"}
    monkeypatch.setattr(grading_run.Grader, "check", lambda *args: ({"verdict": verdict}, "bubblewrap"))
    _, rows, page = graded(group(**{"=1+1": {"e90_mean": "a"}, "<i>": {"e90_mean": "a"}}), "--only", "e90")
    assert set(rows) == {"'=1+1", "<i>"} and "<script>" not in page and "<i>" not in page and "&lt;script&gt;" in page


def test_counts_are_by_exercise_and_misconception(two_exercises, group, graded, monkeypatch):
    found = []
    monkeypatch.setattr(
        "mpcourse.course.grading.report.counts", lambda graded: found.append(counts(graded)) or found[-1]
    )
    verdict = {"exercise": "e90_mean", "kind": "wrong answer", "np": 2, "headline": "rank 0", "why": "Divide."}
    monkeypatch.setattr(grading_run.Grader, "check", lambda *args: ({"verdict": verdict}, "bubblewrap"))
    graded(group(ada={"e90_mean": "a"}, bob={"e90_mean": "b"}, zoe={"e91_mean": "a"}), "--only", "e90")
    assert found[-1] == [("e90_mean", "wrong answer", "Divide.", 2)]


def test_counts_are_of_misconceptions_whatever_numbers_their_sentences_hold():
    def answer(student, why, kind="wrong answer"):
        return Graded(student, Verdict("e90_mean", kind, 2, "rank 0", why=why), "bubblewrap")

    graded = [
        answer("ada", "Rank 1 divides by 3."),
        answer("bob", "Rank 0 divides by 12."),
        answer("zoe", "", "passed"),
    ]
    assert counts(graded) == [
        ("e90_mean", "wrong answer", "Rank 1 divides by 3.", 2),
        ("e90_mean", "passed", "", 1),
    ]


@pytest.mark.parametrize("exercise", load_course(ROOT).exercises, ids=lambda e: e.short)
def test_a_hollow_solution_has_the_same_stub_and_gives_nothing_away(exercise):
    solution = load_course(ROOT).solution_file(exercise).read_text()
    assert make_stub(exercise.name, hollow(solution)) == make_stub(exercise.name, solution)
    kept = re.sub(r"^ *# found:.*\n", "", hollow(solution), flags=re.MULTILINE)  # which the exercise shows
    assert not re.search(r"# solution: .*\n(?!\s*# end of solution)", kept)
