"""A learner's folder: what `mpcourse init` makes and refuses, and that `mpcourse update` loses nothing."""

import itertools
import json
import os
import random
import shutil
import subprocess
import sys

import nbformat
import pytest

from mpcourse import __version__
from mpcourse.common.errors import UserError
from mpcourse.common.source import reference
from mpcourse.course.check.manifest import load_course
from mpcourse.course.check.stubs import make_stub
from mpcourse.course.cli import main
from mpcourse.course.learner import folder as folders
from mpcourse.course.learner import init, moves, update
from mpcourse.course.learner.merge import merge_text
from mpcourse.course.learner.notebooks import merge_books
from mpcourse.course.learner.originals import originals
from mpcourse.split import copy
from tests.conftest import ROOT
from tests.learner_folders import (
    NEW,
    NOT_REACHED,
    OLD,
    at_step,
    book,
    cell,
    full,
    sources,
    stub,
)


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
    monkeypatch.setattr("mpcourse.course.learner.run._link", lambda root: None)


@pytest.fixture
def course(tmp_path):
    """Make a learner's folder of OLD."""
    init(tmp_path / "course", OLD)
    return tmp_path / "course"


def test_every_kind_of_change_is_merged_or_kept_beside_and_named(course, capsys):
    answered(course)
    mine = written(course)
    assert len(mine) == 14
    capsys.readouterr()
    assert update(course, NEW) == 0
    said = capsys.readouterr().out
    assert written(course) >= mine
    now = contents(course)
    # An answer in its place, the rest renewed.
    assert (
        b"return 'e91_head'  # mine" in now["exercises/e91_head.py"] and b"other words" in now["exercises/e91_head.py"]
    )
    assert b"return 'e92_task'  # mine" in now["exercises/e92_task.py"] and b"raise" not in now["exercises/e92_task.py"]
    assert b"return 'e90_same'  # mine" in now["exercises/e90_same.py"]
    # The same line: the learner's stays, the new file is beside it. Likewise where a new one is in the way.
    for name in ("e93_line", "e95_more"):
        assert now[f"exercises/{name}.new-{__version__}.py"] == NEW.files[f"exercises/{name}.py"]
        assert f"exercises/{name}.new-{__version__}.py" in said
    assert b"import numpy  # mine" in now["exercises/e93_line.py"] and b"cmath" not in now["exercises/e93_line.py"]
    # A lesson is the new one, with notes; of a cell that both changed, the learner's is in the file beside it.
    assert sources(now["lessons/00_same.ipynb"]) == ["0", "1", "a note, mine 00_same", "2", "3", "4 mine 00_same", "5"]
    assert sources(now["lessons/01_new.ipynb"]) == ["0", "~1", "a note, mine 01_new", "2", "3", "~4", "5"]
    assert "4 mine 01_new" in sources(now["lessons/01_new.yours-0.0.1.ipynb"])
    assert "lessons/01_new.yours-0.0.1.ipynb" in said
    # What the course no longer has stays where somebody worked in it. What was renamed comes anew.
    assert "e94_gone" in said and "exercises/e94_gone.py" in now and "lessons/02_gone.ipynb" in now
    assert (
        now["docs/glossary.md"] == NEW.files["docs/glossary.md"]
        and now["words_mine.md"] == OLD.files["docs/glossary.md"]
    )
    assert now["lessons/03_more.ipynb"] == NEW.files["lessons/03_more.ipynb"]
    assert json.loads((course / ".mpcourse/installed.json").read_text())["version"] == __version__
    assert update(course, NEW) == 0 and contents(course) == now  # nothing is left to be done
    assert "conflict" not in capsys.readouterr().out


def test_what_nobody_touched_is_replaced_or_removed_and_what_was_deleted_comes_back(course):
    (course / "lessons/00_same.ipynb").unlink()
    update(course, NEW)
    assert contents(course) == dict(NEW.files)
    assert {path.name for path in (course / ".mpcourse/originals").iterdir()} == {
        folders.digest(text) for text in NEW.files.values()
    }


def test_a_folder_with_a_damaged_manifest_or_without_originals_is_mended_by_an_update(course):
    update(course, NEW)
    answered_file = course / "exercises/e90_same.py"
    answered_file.write_text("# mine\n")
    (course / "exercises/manifest.toml").write_text("[[lesson")
    shutil.rmtree(course / ".mpcourse/originals")
    update(course, NEW)
    now = contents(course)
    assert now["exercises/manifest.toml"] == NEW.files["exercises/manifest.toml"]
    assert now["exercises/e90_same.py"] == b"# mine\n"
    assert now[f"exercises/e90_same.new-{__version__}.py"] == NEW.files["exercises/e90_same.py"]
    assert len(list((course / ".mpcourse/originals").iterdir())) == len(set(NEW.files.values()))


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


def test_an_update_that_is_killed_at_any_step_loses_nothing_and_the_next_one_completes_it(course, tmp_path, each_step):
    """Also where the learner goes on to write before that."""
    answered(course)
    shutil.copytree(course, tmp_path / "before", symlinks=True)
    before, mine = contents(course), written(course)
    update(course, NEW)
    after = contents(course)
    halves = 0
    prepare = lambda: shutil.copytree(tmp_path / "before", course, symlinks=True)  # noqa: E731
    for number, status, _ in each_step("killed", prepare, "update", course):
        assert status == 9
        assert written(course) >= mine, number
        halves += contents(course) not in (before, after)
        with (course / "exercises/e91_head.py").open("a") as file:
            file.write("# mine: later\n")
        update(course, NEW)
        assert contents(course) == after | {
            "exercises/e91_head.py": after["exercises/e91_head.py"] + b"# mine: later\n"
        }, number
        assert sorted(path.name for path in (course / ".mpcourse").iterdir()) == ["installed.json", "originals"]
    assert number > 40 and halves > 10


def test_a_disk_that_is_full_at_any_step_leaves_the_folder_as_it_was_or_an_update_that_is_completed(
    course, tmp_path, each_step
):
    answered(course)
    shutil.copytree(course, tmp_path / "before", symlinks=True)
    before, mine = contents(course), written(course)
    update(course, NEW)
    after = contents(course)
    as_it_was = 0
    prepare = lambda: shutil.copytree(tmp_path / "before", course, symlinks=True)  # noqa: E731
    for _, status, error in each_step("full", prepare, "update", course):
        if not status:  # what could not be written is a convenience, or is written another time
            assert contents(course) == after
            continue
        assert status == 2 and "\n" not in error and "No space left" in error, error
        assert written(course) >= mine
        if "completes it" not in error:
            assert contents(course) == before and not (course / moves.PART).exists(), error
            as_it_was += 1
        update(course, NEW)
        assert contents(course) == after
    assert as_it_was > 15


@pytest.mark.parametrize("act, status, there", [("killed", 9, True), ("full", 2, False)])
def test_an_init_that_stops_at_any_step_can_be_called_again(tmp_path, each_step, act, status, there):
    root = tmp_path / "one" / "course"
    prepare = (lambda: root.mkdir(parents=True)) if there else (lambda: shutil.rmtree(root.parent, ignore_errors=True))
    for number, ended, error in each_step(act, prepare, "init", root):
        assert ended in (status, 0), (number, error)
        if ended == 2 and "completes it" not in error:
            assert list(root.iterdir()) == [] if there else not root.parent.exists(), error
        if "holds the course already" in attempt(lambda: init(root, OLD)):
            update(root, OLD)
        assert contents(root) == dict(OLD.files)
    assert number > 20


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
        assert "is of mpcourse 999.0" in said.err and "install that version" in said.err
    assert contents(course) == before
    edit(record, '"999.0"', '"0.0.1"')  # the same of one that was half updated to it
    moves.stage(course, [], folders.Installed("999.0"), {})
    refused(lambda: update(course, NEW), "is of mpcourse 999.0")


def test_a_folder_in_the_way_and_a_second_update_are_named(course):
    (course / "lessons/03_more.ipynb").mkdir()
    before = contents(course)
    refused(lambda: update(course, NEW), "03_more.ipynb cannot be read (Is a directory)", "rename it")
    assert contents(course) == before
    (course / "lessons/03_more.ipynb").rmdir()
    with folders.locked(course):
        refused(lambda: update(course, NEW), "another `mpcourse update`")
    update(course, NEW)


def test_a_folder_without_write_permission_is_left_as_it_was(course, tmp_path):
    """As an ordinary user, for root may write everywhere."""
    before = contents(course)
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

    for closed in ("lessons", ".mpcourse", "docs"):
        (course / closed).chmod(0o555)
        status, error = at_step(0, full, lambda: as_user(lambda: update(course, NEW)), course)
        (course / closed).chmod(0o755)
        assert status == 2 and "\n" not in error and "nothing was changed" in error, error
        assert contents(course) == before and not (course / moves.PART).exists()
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
    assert {"split", "collectives", "one_device"} <= shown and "course" not in shown
    assert "exercises/e00_hello.py" in said("next", place=root / "lessons" / "twins")
    monkeypatch.chdir(root / "lessons")
    assert "](../library/split/copy.py)" in reference(copy).data
    edit(root / ".mpcourse/installed.json", f'"{__version__}"', '"0.0.1"')
    assert "`mpcourse update` renews it" in said("list")
    assert json.loads(said("next", "--json"))["exercise"] == "e00_hello"
    assert "comm.gather" in said("solution", "e00", "--spoil", place=root / "lessons")
    assert json.loads((root / ".mpcourse" / "progress.json").read_text())["e00_hello"]["spoiled"]
    assert "is of mpcourse" in said("update", place=root / "exercises")
    readme = (root / "README.md").read_text()
    assert "LESSONS" not in readme and "tutor" in (root / "AGENTS.md").read_text()
    for link in (
        "docs/glossary.md",
        "docs/several_machines.md",
        "AGENTS.md",
        *(f"lessons/{x.id}.ipynb" for x in made.lessons),
    ):
        assert f"]({link})" in readme and (root / link).is_file()


def random_edits(cells, word, rng):
    """Change, remove, add and swap some cells."""
    made = []
    for one in cells:
        kind = rng.choice(["keep"] * 6 + ["change", "remove", "add"])
        if kind == "change":
            made.append(
                one
                | {"source": f"{word} {rng.random()}"}
                | ({} if word == "mine" else {"id": f"n{rng.getrandbits(64)}"})
            )
        elif kind != "remove":
            made.append(one)
        if kind == "add":
            made.append(cell(f"{word} {rng.random()}", rng.getrandbits(64)))
    if word == "mine" and len(made) > 2 and rng.random() < 0.3:
        made.append(made.pop(0))
    return made


def test_a_merged_notebook_is_valid_and_holds_all_that_a_learner_wrote_or_says_that_it_conflicts():
    seed = random.randrange(10**6)
    rng = random.Random(seed)
    clean = 0
    for _ in range(300):
        cells = [cell(f"{n}", n) for n in range(rng.randrange(12))]
        mine, new = random_edits(cells, "mine", rng), random_edits(cells, "new", rng)
        merged, conflict = merge_books(book(*cells), book(*mine), book(*new))
        nbformat.validate(nbformat.reads(merged.decode(), as_version=4))
        told = sources(merged)
        lost = {one["source"] for one in mine if "mine" in one["source"]} - set(told)
        assert bool(lost) == conflict, seed
        assert {one["source"] for one in new if "new" in one["source"]} <= set(told), seed
        clean += not conflict
        if mine == cells:
            assert told == sources(book(*new))
        if new == cells:
            assert told == sources(book(*mine))
    assert clean > 30


def test_a_cell_that_was_run_keeps_its_outputs_unless_the_new_lesson_has_another_one():
    def code(source, number, output):
        made = [{"output_type": "stream", "name": "stdout", "text": output}]
        return cell(source, number, cell_type="code", execution_count=1, outputs=made)

    base = book(code("a", 1, "old"), code("b", 2, "old"), code("c", 3, "old"))
    mine = book(code("a", 1, "run"), code("b", 2, "run"), code("c", 3, ["o", "ld"]))
    new = book(code("a", 1, "new"), code("b!", 4, "new"), code("c", 3, "new"))
    merged, conflict = merge_books(base, mine, new)
    assert [one["outputs"][0]["text"] for one in json.loads(merged)["cells"]] == ["run", "new", "new"] and not conflict


@pytest.mark.parametrize(
    "broken", [b"", b"{", b"[]", b'{"nbformat": 3, "cells": []}', b'{"nbformat": 4, "cells": [1]}']
)
def test_a_lesson_that_is_no_notebook_any_more_is_kept_beside_the_new_one(course, broken):
    (course / "lessons/01_new.ipynb").write_bytes(broken)
    update(course, NEW)
    assert (course / "lessons/01_new.ipynb").read_bytes() == NEW.files["lessons/01_new.ipynb"]
    assert (course / "lessons/01_new.yours-0.0.1.ipynb").read_bytes() == broken


def test_a_merged_text_holds_every_line_of_an_answer():
    seed = random.randrange(10**6)
    rng = random.Random(seed)

    def edited(lines, word):
        made = []
        for line in lines:
            kind = rng.choice(["keep"] * 6 + ["change", "remove", "add"])
            made += {"keep": [line], "change": [f"{word}{rng.random()}\n"], "remove": []}.get(
                kind, [line, f"{word}{rng.random()}\n"]
            )
        return made

    clean = 0
    for _ in range(500):
        base = [f"{rng.randrange(8)}\n" for _ in range(rng.randrange(15))]
        mine, new = edited(base, "mine"), edited(base, "new")
        texts = ["".join(lines).encode() for lines in (base, mine, new)]
        merged, conflict = merge_text(*texts)
        lines = merged.decode().splitlines(keepends=True)
        assert [line for line in mine if "mine" in line] == [line for line in lines if "mine" in line], seed
        if not conflict:
            clean += 1
            assert [line for line in new if "new" in line] == [line for line in lines if "new" in line], seed
    assert clean > 100


def test_an_answer_beside_what_the_new_version_adds_does_not_conflict():
    base, new = stub(), stub(task="say more", more="\n\ndef g():\n    return 2\n", head="Says more.")
    mine = base.replace(b'    raise NotImplementedError("e90: say it")\n', b"    y = x\n    return y\n")
    merged, conflict = merge_text(base, mine, new)
    assert not conflict and b"    y = x\n    return y\n\n\ndef g():" in merged and b"Says more." in merged
    assert b"raise" not in merged
    assert merge_text(base, b"\xff\n" + mine, new) == (b"\xff\n" + merged, False)  # whatever its encoding
