"""A learner's folder: what `mpcourse init` makes and refuses, and that `mpcourse update` loses nothing."""

import itertools
import json
import os
import shutil
import subprocess
import sys

import pytest

from mpcourse import __version__
from mpcourse.common.errors import UserError
from mpcourse.common.source import reference
from mpcourse.course.check.manifest import load_course
from mpcourse.course.check.stubs import make_stub
from mpcourse.course.cli import main
from mpcourse.course.learner import folder as folders
from mpcourse.course.learner import init, update
from mpcourse.course.learner.originals import Originals, originals
from mpcourse.split import copy
from tests.conftest import ROOT
from tests.learner_folders import NEW, NOT_REACHED, OLD, at_step, cell, full, sources, stub


def edit(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def answered(root):
    """Do what a learner does to a folder, of every kind. All that is written holds the word `mine`."""
    exercises, lessons = root / "exercises", root / "lessons"
    for name in ("e90_same", "e91_head", "e92_task", "e94_gone"):
        text = (exercises / f"{name}.py").read_text()
        (exercises / f"{name}.py").write_text(text[: text.index("    raise")] + f"    return {name!r}  # mine\n")
    edit(exercises / "e93_line.py", "import math", "import numpy  # mine")
    (exercises / "e95_more.py").write_text("# mine: a file that a new one is in the way of\n")
    (exercises / "e91_head_mine.py").write_text("# mine: a copy\n")
    for name in ("00_same", "01_new", "02_gone"):
        made = json.loads((lessons / f"{name}.ipynb").read_text())
        made["cells"][4]["source"] = [f"4 mine {name}"]
        made["cells"].insert(2, cell(f"a note, mine {name}"))
        (lessons / f"{name}.ipynb").write_text(json.dumps(made))
    (lessons / "scratch").mkdir()
    (lessons / "scratch" / "try.py").write_text("# mine: an experiment\n")
    (root / "docs/glossary.md").rename(root / "words_mine.md")


def contents(root):
    """Return what is in a folder, without its own records."""
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and folders.OWN.name not in path.parts and "library" not in path.parts
    }


def written(root):
    """Each line with the word `mine`, wherever it is."""
    found = set()
    for path, text in contents(root).items():
        lines = sources(text) if path.endswith(".ipynb") else text.decode().splitlines()
        found |= {line for line in lines if "mine" in line}
    return found


@pytest.fixture(autouse=True)
def without_waiting(monkeypatch):
    """Hundreds of updates need not wait for a disk, nor make links."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    monkeypatch.setattr("mpcourse.course.learner.folder._link", lambda root: None)


@pytest.fixture
def course(tmp_path):
    """Make a learner's folder of OLD."""
    init(tmp_path / "course", OLD)
    return tmp_path / "course"


def test_what_was_edited_stays_and_the_new_version_is_beside_it_and_named(course, capsys):
    answered(course)
    before, mine = contents(course), written(course)
    assert len(mine) == 14
    capsys.readouterr()
    assert update(course, NEW) == 0
    said = capsys.readouterr().out
    now = contents(course)
    assert written(course) == mine
    for path, beside in {
        "exercises/e91_head.py": "exercises/e91_head.new.py",
        "exercises/e92_task.py": "exercises/e92_task.new.py",
        "exercises/e93_line.py": "exercises/e93_line.new.py",
        "exercises/e95_more.py": "exercises/e95_more.new.py",  # a new file where the learner has one of that name
        "lessons/01_new.ipynb": "lessons/01_new.new.ipynb",
    }.items():
        assert now[path] == before[path] and now[beside] == NEW.files[path]
        assert f"{path}: you have changed it; the new version is {beside}" in said
    # What the new version has not changed has no copy beside it.
    assert not [path for path in now if path.startswith(("exercises/e90_same.new", "lessons/00_same.new"))]
    # What the course no longer has stays where somebody worked in it. What was renamed comes anew.
    assert "e94_gone" in said and "exercises/e94_gone.py" in now and "lessons/02_gone.ipynb" in now
    assert now["docs/glossary.md"] == NEW.files["docs/glossary.md"]
    assert now["words_mine.md"] == OLD.files["docs/glossary.md"]
    assert now["lessons/03_more.ipynb"] == NEW.files["lessons/03_more.ipynb"]
    assert json.loads((course / ".mpcourse/installed.json").read_text())["version"] == __version__
    assert update(course, NEW) == 0 and contents(course) == now  # nothing is left to be done
    assert "nothing else is to be done" in capsys.readouterr().out


def test_what_nobody_touched_is_replaced_or_removed_and_what_was_deleted_comes_back(course):
    (course / "lessons/00_same.ipynb").unlink()
    update(course, NEW)
    assert contents(course) == dict(NEW.files)


def test_a_lesson_that_was_only_run_is_replaced(course):
    file = course / "lessons/01_new.ipynb"
    made = json.loads(file.read_text())
    for one in made["cells"]:
        one |= {"outputs": ["run"], "execution_count": 3, "source": [one["source"]]}
    file.write_text(json.dumps(made))
    update(course, NEW)
    assert file.read_bytes() == NEW.files["lessons/01_new.ipynb"] and not list(course.rglob("*.new.*"))


def test_a_copy_of_the_new_version_is_not_replaced_by_a_newer_one(course):
    (course / "exercises/e91_head.py").write_text("# mine\n")
    update(course, NEW)
    beside = course / "exercises/e91_head.new.py"
    beside.write_text(beside.read_text() + "# mine, too\n")
    newer = Originals(__version__, {**NEW.files, "exercises/e91_head.py": stub(head="Says it in a third way.")})
    update(course, newer)
    assert beside.read_text().endswith("# mine, too\n")
    assert (course / "exercises/e91_head.new2.py").read_bytes() == newer.files["exercises/e91_head.py"]


def test_a_damaged_manifest_is_mended_by_an_update_and_kept_beside(course):
    update(course, NEW)
    (course / "exercises/manifest.toml").write_text("[[lesson")
    update(course, NEW)
    now = contents(course)
    assert now["exercises/manifest.toml"] == NEW.files["exercises/manifest.toml"]
    assert now["exercises/manifest.yours.toml"] == b"[[lesson"


@pytest.fixture
def each_step():
    """Run steps in a process that has imported next to nothing, whose forks take a tenth of this one's time."""
    command = [sys.executable, "-m", "tests.learner_folders"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:

        def each_step(act, prepare, run, root):
            """Let each step of `run` be `act` once, on a folder that is prepared anew: number, status, error, in order.

            act, run: their names in learner_folders.py.
            """
            for number in itertools.count(1):
                shutil.rmtree(root, ignore_errors=True)
                prepare()
                print(json.dumps([number, act, run, str(root)]), file=process.stdin, flush=True)
                status, error = json.loads(process.stdout.readline())
                if status == NOT_REACHED:
                    return
                yield number, status, error

        yield each_step


@pytest.mark.parametrize("act, status", [("killed", 9), ("full", 2)])
def test_an_update_that_stops_at_any_step_loses_nothing_and_the_next_one_does_the_rest(
    course, tmp_path, each_step, act, status
):
    """act: what happens at that step: the process is killed, or the disk is full."""
    answered(course)
    shutil.copytree(course, tmp_path / "before", symlinks=True)
    before, mine = contents(course), written(course)
    update(course, NEW)
    after = contents(course)
    halves = 0
    prepare = lambda: shutil.copytree(tmp_path / "before", course, symlinks=True)  # noqa: E731
    for number, ended, error in each_step(act, prepare, "update", course):
        if not ended:  # the step was the lock, or a folder that is there
            assert contents(course) == after
            continue
        assert ended == status and "\n" not in error and ("does the rest" in error) == (act == "full"), error
        assert written(course) == mine, number
        halves += contents(course) not in (before, after)
        update(course, NEW)
        assert contents(course) == after, number
        assert [path.name for path in (course / ".mpcourse").iterdir()] == ["installed.json"]
    assert number > 20 and halves > 10


def test_what_a_learner_writes_after_an_update_was_interrupted_stays(course, tmp_path, each_step):
    prepare = lambda: init(course, OLD)  # noqa: E731
    for number, _, _ in each_step("killed", prepare, "update", course):
        file = course / "exercises/e91_head.py"
        file.write_text(file.read_text() + "# mine\n")
        update(course, NEW)
        assert file.read_text().endswith("# mine\n"), number


@pytest.mark.parametrize("act", ["killed", "full"])
def test_an_init_that_stops_at_any_step_is_completed(tmp_path, each_step, act):
    """By `mpcourse update` once the folder is known as one of the course, else by another `init`."""
    root = tmp_path / "one" / "course"
    for number, _, _ in each_step(act, lambda: None, "init", root):
        if (root / ".mpcourse/installed.json").exists():
            update(root, OLD)
        else:
            shutil.rmtree(root, ignore_errors=True)
            init(root, OLD)
        assert contents(root) == dict(OLD.files), number
    assert number > 10


def attempt(run):
    """Return the error of `run`; empty for none."""
    try:
        run()
    except UserError as error:
        return str(error)
    return ""


def refused(run, *phrases):
    said = attempt(run)
    assert said and "\n" not in said and not [phrase for phrase in phrases if phrase not in said], said


def test_init_refuses_what_is_not_empty_and_changes_nothing(course, tmp_path):
    before = contents(tmp_path)
    refused(lambda: init(course, OLD), "holds the course already", "mpcourse update")
    refused(lambda: init(course / "lessons", OLD), "is not empty", "00_same.ipynb")
    refused(lambda: init(course / "docs/glossary.md", OLD), "name a folder that can be made")
    refused(lambda: init(course / "docs/glossary.md" / "x" / "y", OLD), "name a folder that can be made")
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden" / ".mpcourse").mkdir()
    (tmp_path / "hidden" / ".mpcourse" / "progress.json").write_text("{}")
    refused(lambda: init(tmp_path / "hidden", OLD), "is not empty")
    assert contents(tmp_path) == before


def test_update_refuses_what_is_no_learners_folder(course, tmp_path, monkeypatch):
    monkeypatch.delenv("MPCOURSE_ROOT", raising=False)
    monkeypatch.chdir(tmp_path)
    refused(update, "no course was found here", "mpcourse init DIR")
    monkeypatch.chdir(ROOT / "lessons")
    refused(update, "is a clone of the course", "git pull")
    monkeypatch.chdir(course / "lessons")
    (course / ".mpcourse/installed.json").write_text("{")
    refused(lambda: update(new=NEW), "installed.json is damaged")
    (course / ".mpcourse/installed.json").write_text('{"version": "0.0.1", "files": [1]}')
    refused(lambda: update(new=NEW), "installed.json is damaged")
    (course / ".mpcourse/installed.json").unlink()
    refused(lambda: update(new=NEW), "holds no .mpcourse/installed.json")


def test_an_old_mpcourse_refuses_a_newer_folder(course, monkeypatch, capsys):
    record = course / ".mpcourse/installed.json"
    edit(record, '"0.0.1"', '"999.0"')
    monkeypatch.delenv("MPCOURSE_ROOT", raising=False)
    monkeypatch.chdir(course / "lessons")
    before = contents(course)
    capsys.readouterr()
    for words in (["update"], ["list"], ["check", "e90"], ["next"]):
        with pytest.raises(SystemExit) as ended:
            main(words)
        said = capsys.readouterr()
        assert ended.value.code == 2 and said.out == "" and said.err.count("\n") == 1
        assert "was made by mpcourse 999.0" in said.err and "install 999.0" in said.err
    assert contents(course) == before


def test_a_folder_in_the_way_is_named(course):
    (course / "lessons/03_more.ipynb").mkdir()
    refused(lambda: update(course, NEW), "03_more.ipynb: Is a directory", "does the rest")
    (course / "lessons/03_more.ipynb").rmdir()
    update(course, NEW)
    assert contents(course) == dict(NEW.files)


def test_a_folder_without_write_permission_is_named(course, tmp_path):
    """As an ordinary user, for root may write everywhere."""
    for path in (tmp_path, *tmp_path.parents):
        if os.geteuid() == 0 and path.owner() == "root" and not path.stat().st_mode & 0o001:
            path.chmod(path.stat().st_mode | 0o011)
    if os.geteuid() == 0:
        for path in (course, *course.rglob("*")):
            os.lchown(path, 65534, 65534)

    def as_user(run):
        if os.geteuid() == 0:
            os.setgroups([])
            os.setresuid(65534, 65534, 65534)
        run()

    for closed in ("lessons", ".mpcourse"):
        (course / closed).chmod(0o555)
        status, error = at_step(0, full, lambda: as_user(lambda: update(course, NEW)), course)
        (course / closed).chmod(0o755)
        assert status == 2 and "\n" not in error and "Permission denied" in error and closed in error, error
    tmp_path.chmod(0o555 | 0o111)
    status, error = at_step(0, full, lambda: as_user(lambda: init(tmp_path / "a" / "b", NEW)), course)
    tmp_path.chmod(0o755)
    assert status == 2 and "Permission denied" in error and not (tmp_path / "a").exists()


def test_a_link_that_a_learner_made_is_followed(course, tmp_path):
    mine = tmp_path / "elsewhere.py"
    (course / "exercises/e91_head.py").rename(mine)
    (course / "exercises/e91_head.py").symlink_to(mine)
    update(course, NEW)
    assert (course / "exercises/e91_head.py").is_symlink() and mine.read_bytes() == NEW.files["exercises/e91_head.py"]


def test_the_folder_of_the_real_course_works_like_a_clone_but_for_solutions(tmp_path, monkeypatch, capsys):
    monkeypatch.undo()  # with its links
    monkeypatch.delenv("MPCOURSE_ROOT", raising=False)
    monkeypatch.delenv("MPCOURSE_HOME", raising=False)
    root = tmp_path / "course"

    def said(*words, place=root, status=0):
        monkeypatch.chdir(place)
        with pytest.raises(SystemExit) as ended:
            main(words)
        assert ended.value.code == status
        return capsys.readouterr().out

    assert "mpcourse lab" in said("init", str(root), place=tmp_path)
    clone, made = load_course(ROOT), load_course(root)
    assert [e.name for e in made.exercises] == [e.name for e in clone.exercises] and not (root / "solutions").exists()
    for exercise in clone.exercises:
        solved = clone.solution_file(exercise).read_text()
        assert made.exercise_file(exercise).read_text() == make_stub(exercise.name, solved)
    assert not [path for path, text in originals().files.items() if b"](../mpcourse/" in text]
    shown = {path.name for path in (root / "library").iterdir()}
    assert {"split", "collectives", "models"} <= shown and "course" not in shown
    assert "exercises/e00_hello.py" in said("next", place=root / "lessons" / "twins")
    monkeypatch.chdir(root / "lessons")
    assert "](../library/split/copy.py)" in reference(copy).data
    edit(root / ".mpcourse/installed.json", f'"{__version__}"', '"0.0.1"')
    assert "`mpcourse update` renews it" in said("list")
    assert json.loads(said("next", "--json"))["exercise"] == "e00_hello"
    assert "comm.gather" in said("solution", "e00", "--spoil", place=root / "lessons")
    assert json.loads((root / ".mpcourse" / "progress.json").read_text())["e00_hello"]["spoiled"]
    assert "now belongs to mpcourse" in said("update", place=root / "exercises")
    readme = (root / "README.md").read_text()
    assert "LESSONS" not in readme and "tutor" in (root / "AGENTS.md").read_text()
    for link in (
        "docs/glossary.md",
        "docs/several_machines.md",
        "AGENTS.md",
        *(f"lessons/{x.id}.ipynb" for x in made.lessons),
    ):
        assert f"]({link})" in readme and (root / link).is_file()
