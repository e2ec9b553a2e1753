"""The wheel: built twice it is the same, and installed elsewhere it is a course, from init to update."""

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from mpcourse.course.check.manifest import load_course
from mpcourse.course.check.verdict import clean
from mpcourse.course.learner.originals import originals
from tests.conftest import ROOT

SOURCES = ("setup.py", "pyproject.toml", "README.md", "LICENSE")
FOLDERS = ("mpcourse", "docs", "lessons", "exercises", "solutions")
(BUILD,) = re.findall(
    r"^\.venv/bin/pip (wheel .*?) *#", (ROOT / "docs/install.md").read_text(encoding="utf-8"), re.MULTILINE
)
RUN = """
import sys, nbformat
from nbclient import NotebookClient
NotebookClient(nbformat.read(sys.argv[1], 4), timeout=60, kernel_name="python3").execute()
"""


def run(command, status=0, **options):
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, **options)
    assert done.returncode == status, done.stdout + done.stderr
    return clean(done.stdout)


def build(folder, umask):
    """Make a wheel of a copy of the clone, by the command of docs/install.md, but with the installed setuptools."""
    for name in SOURCES:
        shutil.copyfile(ROOT / name, folder / name)  # without its date
    for name in FOLDERS:
        unwanted = shutil.ignore_patterns("__pycache__", ".ipynb_checkpoints", "scratch", "src")
        shutil.copytree(ROOT / name, folder / name, copy_function=shutil.copyfile, ignore=unwanted)
    (folder / "exercises" / "e00_hello.py").write_text("# somebody's answer\n")
    (folder / "lessons" / "mine_00.ipynb").write_text("somebody's notebook\n")
    environment = {k: v for k, v in os.environ.items() if k not in ("SOURCE_DATE_EPOCH", "PYTHONPATH")}
    command = [sys.executable, "-m", "pip", *BUILD.split(), "--no-build-isolation", "--disable-pip-version-check"]
    run(command, cwd=folder, env=environment, umask=umask)
    (made,) = (folder / "dist").glob("*.whl")
    return made


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    return build(tmp_path_factory.mktemp("sources"), 0o022)


def test_building_twice_makes_the_same_wheel(wheel, tmp_path):
    again = build(tmp_path, 0o077)
    assert again.name == wheel.name and again.read_bytes() == wheel.read_bytes()


def test_the_wheel_holds_what_a_clone_makes_a_folder_of_and_nobodys_work(wheel, tmp_path):
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    assert originals(tmp_path / "mpcourse" / "course" / "files").files == originals().files
    there = {path.relative_to(ROOT).as_posix() for path in (ROOT / "mpcourse").rglob("*.py")}
    assert there <= {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.py")}
    text = "mpcourse/data/course.txt"
    assert (tmp_path / text).read_bytes() == (ROOT / text).read_bytes()
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and b"somebody's " in path.read_bytes()[:100]]


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """Return a function that runs a command in an environment with the wheel, which sees this one's packages."""
    environment = tmp_path_factory.mktemp("environment")
    run([sys.executable, "-m", "venv", "--without-pip", environment])
    (packages,) = environment.glob("lib/python*/site-packages")
    (here,) = Path(sys.prefix).glob("lib/python*/site-packages")
    # A path alone: what other .pth files do there, such as to find the clone, is not done.
    (packages / "others.pth").write_text(f"{here}\n")
    python = environment / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python]
    run([*pip, "install", "--quiet", "--no-deps", "--no-index", wheel])
    unset = ("PYTHONPATH", "PYTHONUNBUFFERED", "MPCOURSE_ROOT", "MPCOURSE_HOME", "LD_LIBRARY_PATH")
    variables = {k: v for k, v in os.environ.items() if k not in unset}
    variables |= {
        "PATH": f"{environment / 'bin'}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "LD_LIBRARY_PATH": str(Path(sys.prefix) / "lib"),  # the libraries of MPI's wheel
    }

    def call(*command, cwd, status=0):
        return run([environment / "bin" / command[0], *command[1:]], status, cwd=cwd, env=variables)

    call.packages = packages / "mpcourse"
    return call


@pytest.mark.timeout(400)
def test_a_wheel_that_is_installed_elsewhere_runs_a_lesson_checks_answers_and_is_updated(installed, tmp_path):
    root = tmp_path / "my course"
    made = installed("mpcourse", "init", root, cwd=tmp_path)
    assert f"lessons and {len(load_course(ROOT).exercises)} exercises." in made
    where = installed("python", "-c", "import mpcourse; print(mpcourse.__file__)", cwd=root).strip()
    assert Path(where) == installed.packages / "__init__.py" and not (root / "solutions").exists()

    installed("python", "-c", RUN, "00_start_here.ipynb", cwd=root / "lessons")
    assert (root / "lessons" / "scratch" / "both_listen.py").is_file()

    answer = root / "exercises" / "e00_hello.py"
    stub = answer.read_text()
    head = stub[: stub.index("    raise NotImplementedError")]
    assert "not written yet" in installed("mpcourse", "check", cwd=root / "lessons" / "twins", status=1)
    answer.write_text(f"{head}    return ['rank 0 of 2', 'rank 1 of 2']\n")
    assert "asked: None on rank 1" in installed("mpcourse", "check", "e00", cwd=root, status=1)
    answer.write_text(f"{head}    return comm.gather(f'rank {{comm.rank}} of {{comm.size}}')\n")
    assert "e00_hello passed" in installed("mpcourse", "check", "e00", cwd=root / "exercises")
    assert "e00_hello passed" in installed("python", answer, cwd=tmp_path)  # checks itself, called from elsewhere
    assert "comm.gather" in installed("mpcourse", "solution", "e00", cwd=root)
    installed("mpcourse", "solution", "e01", cwd=root, status=2)

    # A newer wheel, as far as its files are concerned.
    for file, old, new in (
        ("__init__.py", '__version__ = "', '__version__ = "99.'),
        ("course/files/solutions/e00_hello.py", "Collect one greeting", "Gather one greeting"),
        ("course/files/lessons/00_start_here.ipynb", "## They share nothing", "## They have nothing in common"),
    ):
        text = (installed.packages / file).read_text(encoding="utf-8")
        assert old in text
        (installed.packages / file).write_text(text.replace(old, new), encoding="utf-8")
    book = json.loads((root / "lessons" / "00_start_here.ipynb").read_text(encoding="utf-8"))
    book["cells"].insert(1, {"cell_type": "markdown", "id": "mine", "metadata": {}, "source": ["my note"]})
    (root / "lessons" / "00_start_here.ipynb").write_text(json.dumps(book))
    assert "`mpcourse update` renews it" in installed("mpcourse", "next", cwd=root)
    told = installed("mpcourse", "update", cwd=root / "lessons")
    assert "2 kept" in told
    kept, new = (
        (root / "lessons" / f"00_start_here{end}").read_text(encoding="utf-8") for end in (".ipynb", ".new.ipynb")
    )
    assert "my note" in kept and "They share nothing" in kept and "have nothing in common" in new
    assert "return comm.gather" in answer.read_text()
    assert "Gather one greeting" in (root / "exercises" / "e00_hello.new.py").read_text()
    assert json.loads(installed("mpcourse", "list", "--json", cwd=root))[0]["passed"]
