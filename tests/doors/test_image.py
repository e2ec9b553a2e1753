"""The Dockerfile's instructions, carried out in order, and what containers of that image do without a network."""

import json
import os
import re
import shutil
import subprocess
import sys
import time

import psutil
import pytest

from mpcourse.course.check.verdict import clean
from tests.conftest import ROOT
from tests.doors.image import end

pytestmark = pytest.mark.timeout(900)
RUN = """
import sys, nbformat
from nbclient import NotebookClient
NotebookClient(nbformat.read(sys.argv[1], 4), timeout=120, kernel_name="python3").execute()
"""
ADDRESS = r"http://127\.0\.0\.1:8888/lab/tree/lessons/00_start_here\.ipynb\?token=(\w+)"
ASK = "import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1], timeout=20).read().decode())"


def said(done, status=0):
    """Return what a command printed, which ended with this status."""
    assert done.returncode == status, done.stdout
    return clean(done.stdout)


def test_the_build_ends_with_the_torch_that_it_took_and_with_sizes(build):
    torch = re.search(r"^torch==(.+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)[1]
    last = [text for text in build.image.log.values() if text.strip()][-1].strip().splitlines()[-1]
    assert re.fullmatch(
        rf"mpcourse: the image holds torch-{re.escape(torch)}\S*\.whl, [\d.]+G in the environment /opt/mpcourse and "
        r"[\d.]+[MG] in /wheels",
        last,
    )


def test_a_container_makes_the_course_once_and_checks_answers(container):
    first = said(container.run("mpcourse", "check", "e00"), 1)
    assert "/course holds" in first and "not written yet" in first
    answer = container.layer.files / "course/exercises/e00_hello.py"
    head = answer.read_text().partition("    raise NotImplementedError")[0]
    answer.write_text(f"{head}    return comm.gather(f'rank {{comm.rank}} of {{comm.size}}')\n")
    second = said(container.run("mpcourse", "check", "e00"))
    assert "e00_hello passed" in second and "holds" not in second
    assert json.loads(said(container.run("mpcourse", "list", "--json")))[0]["passed"]


def test_a_lesson_runs_in_a_container(container):
    said(container.run("sh", "-c", 'cd lessons && exec python -c "$0" 00_start_here.ipynb', RUN))
    assert (container.layer.files / "course/lessons/scratch/both_listen.py").is_file()


def test_a_container_has_no_network_and_sees_nothing_of_the_clone(container):
    connect = "import socket; socket.create_connection(('192.0.2.1', 80), 5)"
    assert "Network is unreachable" in said(container.run("python", "-c", connect), 1)
    where = said(container.run("python", "-c", "import mpcourse, torch; print(mpcourse.__file__, torch.__file__)"))
    assert where.count("/opt/mpcourse/lib/") == 2
    assert said(container.run("sh", "-c", 'test ! -e "$0"', str(ROOT))) == ""


def test_a_login_shell_finds_the_course(container):
    assert said(container.run("bash", "-lc", "which mpcourse mpirun")).count("/opt/mpcourse/bin/") == 2


def test_jupyterlab_answers_at_the_containers_port_from_outside(container, tmp_path):
    log = tmp_path / "log"
    lab = container.start(log)
    try:
        deadline = time.monotonic() + 90
        while not (
            token := re.search(r"http://127\.0\.0\.1:8888/lab/tree/lessons/00\S+\?token=(\w+)", log.read_text())
        ):
            assert time.monotonic() < deadline and lab.poll() is None, log.read_text()
            time.sleep(0.1)
        (inside,) = psutil.Process(lab.pid).children()
        enter = ["nsenter", "--target", str(inside.pid), "--net"]
        subprocess.run([*enter, "ip", "address", "add", "10.88.0.2/32", "dev", "lo"], check=True)
        address = f"http://10.88.0.2:{container.image.port}/api/contents/lessons?token={token[1]}"
        listed = subprocess.run(
            [*enter, sys.executable, "-c", ASK, address], capture_output=True, text=True, timeout=60
        )
        assert "00_start_here.ipynb" in listed.stdout, listed.stderr
    finally:
        end(lab)


def test_a_volume_of_another_user_is_named_with_the_option_that_helps(container):
    course = container.layer.files / "course"
    course.mkdir()
    os.chown(course, 4321, 4322)
    told = said(container.run("mpcourse", "list"), 2)
    (option,) = re.findall(r"^mpcourse: /course belongs .* add --user (\S+) to docker run", told)
    assert option == "4321:4322"
    assert "e00_hello" in said(container.run("mpcourse", "list", user=option))
    # Whoever has no entry among the image's users still has a home that Jupyter can write to, and a name for torch.
    facts = "import getpass, pathlib; (pathlib.Path.home() / 'x').touch(); print(getpass.getuser())"
    assert said(container.run("python", "-c", facts, user=option)).split()[-1] == "learner"
    assert "ok" in said(
        container.run("mpirun", "-np", "2", "python", "-c", "import torch._dynamo; print('ok')", user=option)
    )
    assert (course / "exercises/manifest.toml").stat().st_uid == 4321


def test_the_devcontainer_sets_up_a_clone_without_a_network(build, container, tmp_path):
    lines = (ROOT / ".devcontainer/devcontainer.json").read_text().splitlines()
    told = json.loads("\n".join(line for line in lines if not line.lstrip().startswith("//")))
    assert {told["build"][name] for name in ("dockerfile", "context")} == {"../Dockerfile", ".."}
    assert set(told["build"]["args"]) <= {i.text.partition("=")[0] for i in build.instructions if i.name == "ARG"}
    assert told["forwardPorts"] == [container.image.port]

    listed = ["git", "-C", ROOT, "ls-files", "--cached", "--others", "--exclude-standard"]
    for name in subprocess.run(listed, capture_output=True, text=True, check=True).stdout.splitlines():
        if (ROOT / name).is_file():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, tmp_path / name)
    folder, user = "/workspaces/mpcourse", told["remoteUser"]
    container.layer.copy(tmp_path, folder)
    container.layer.do("chown", "-R", f"{user}:{user}", folder)
    known = {"${containerWorkspaceFolder}": folder, "${containerEnv:PATH}": container.image.environment["PATH"]}
    environment = container.image.environment | told["remoteEnv"]
    for name, value in known.items():
        environment = {key: text.replace(name, value) for key, text in environment.items()}
    options = {"user": user, "folder": folder, "environment": environment}
    setup, cure = told["onCreateCommand"].split(" || ")
    assert cure in setup  # with a network
    made = said(container.layer.run("sh", "-c", setup, timeout=600, **options))
    assert "The course is set up" in made
    said(container.layer.run("sh", "-c", told["postCreateCommand"], **options))
    assert "not written yet" in said(container.layer.run("mpcourse", "check", "e00", **options), 1)
    found = said(container.layer.run("sh", "-c", "which mpcourse mpirun ruff pytest", **options)).split()
    assert found == [f"{folder}/.venv/bin/{name}" for name in ("mpcourse", "mpirun", "ruff", "pytest")]
