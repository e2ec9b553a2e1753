"""JupyterLab as `make lab` opens it: on the learner's next lesson, with mpirun and mpcourse at hand."""

import json
import os
import re
import sys
import time
import urllib.request
from uuid import uuid4

import pytest

from mpcourse.course.check.manifest import load_course
from mpcourse.course.check.progress import Progress
from mpcourse.course.check.verdict import Verdict
from mpcourse.course.forkserver import ADDRESS, offered
from mpcourse.course.jupyter.lab import next_lesson
from tests.conftest import ROOT, jupyterlab, keep


def test_lab_opens_the_lesson_of_the_next_exercise(tmp_path, monkeypatch):
    monkeypatch.setenv("MPCOURSE_HOME", str(tmp_path))
    course = load_course(ROOT)
    opened = [next_lesson(course)]
    for exercise in course.exercises:
        Progress(course).note_check(exercise, Verdict(exercise.name, "passed", 2, "rank 0"))
        opened.append(next_lesson(course))
    assert opened == [exercise.lesson for exercise in course.exercises] + [course.lessons[-1].id]
    (tmp_path / "progress.json").write_text("damaged")
    assert next_lesson(course) == course.lessons[0].id


@pytest.fixture(scope="module")
def lab(tmp_path_factory, time_to_end):
    """Start a JupyterLab without a browser, as from a shell in which nothing was activated."""
    home = tmp_path_factory.mktemp("home")
    own = home / "own" / "labconfig"
    own.mkdir(parents=True)
    (own / "page_config.json").write_text('{"disabledExtensions": {"example-extension": true}}')
    environment = {
        **os.environ,
        ADDRESS: "",
        "PATH": "/usr/bin:/bin",
        "HOME": str(home),
        "JUPYTER_CONFIG_PATH": str(own.parent),
        "MPCOURSE_HOME": str(home / "progress"),
    }
    log = home / "lab.log"
    (home / "progress").mkdir()
    passed = {"e04_pipeline_step": {"passed_at": "2026-01-01T12:00:00+00:00"}}
    (home / "progress" / "progress.json").write_text(json.dumps(passed))
    command = [sys.executable, "-m", "mpcourse.course.cli", "lab", "--port=0", "--no-browser"]
    with jupyterlab(command, environment, log) as (address, token):
        keep(and_what_they_start=True)
        yield address, token, log


def ask(lab, path, data=None):
    address, token, _ = lab
    request = urllib.request.Request(
        f"{address}{path}",
        headers={"Authorization": f"token {token}"},
        data=None if data is None else json.dumps(data).encode(),
    )
    with urllib.request.urlopen(request, timeout=20) as response:
        body = response.read()
    return json.loads(body) if body[:1] in (b"{", b"[") else body.decode()


def execute(lab, kernel, code):
    """Return what the code prints in a kernel, asked as the page asks: through the server, which follows restarts.

    A kernel may start twice, for the ports that are chosen for it can be another's by the time it opens them.
    """
    import websocket

    def message(kind, content):
        header = {"msg_id": uuid4().hex, "msg_type": kind, "username": "", "session": "tests", "version": "5.3"}
        return {"header": header, "parent_header": {}, "metadata": {}, "content": content, "channel": "shell"}

    def received():
        while time.monotonic() < deadline:
            try:
                yield json.loads(socket.recv())
            except websocket.WebSocketTimeoutException:
                return

    address = lab[0].replace("http", "ws")
    deadline = time.monotonic() + 60
    socket = websocket.create_connection(f"{address}/api/kernels/{kernel}/channels?token={lab[1]}", timeout=5)
    try:
        ready = False
        while not ready and time.monotonic() < deadline:  # a question to a kernel that is about to end is lost
            socket.send(json.dumps(message("kernel_info_request", {})))
            ready = any(heard["msg_type"] == "kernel_info_reply" for heard in received())
        run = message("execute_request", {"code": code, "silent": False, "stop_on_error": True})
        socket.send(json.dumps(run))
        printed = ""
        while time.monotonic() < deadline:
            for heard in received():
                if heard["parent_header"].get("msg_id") == run["header"]["msg_id"]:
                    printed += heard["content"].get("text", "")
                    if heard["msg_type"] == "execute_reply":
                        return printed
        raise AssertionError(f"no reply within a minute; printed: {printed!r}")
    finally:
        socket.close()


def test_lab_prints_its_address_and_serves_the_lessons_with_mpirun_in_their_kernels(lab):
    names = [entry["name"] for entry in ask(lab, "/api/contents/lessons")["content"]]
    assert "00_start_here.ipynb" in names
    assert "/lab/tree/lessons/05_mpi_allreduce.ipynb" in lab[2].read_text(), "lesson 04's last exercise has passed"
    kernel = ask(lab, "/api/kernels", {"name": "python3", "path": "lessons"})
    printed = execute(
        lab,
        kernel["id"],
        "print(type(get_ipython().kernel))\n"
        "program = 'from mpi4py import MPI; print(MPI.COMM_WORLD.size)'\n"
        "lines = !mpirun -np 2 python -c '{program}' && mpcourse --version\n"
        "print(lines)\n"
        "from mpcourse.course.forkserver import Plain, offered, python\n"
        "print('forks' if offered() > isinstance(python(), Plain) else 'forks not')",
    )
    assert ("forks\n" in printed) == offered()
    assert "'2', '2', 'mpcourse " in printed, printed
    assert "mpcourse.course.jupyter.kernel.LessonKernel" in printed


def test_a_terminal_finds_the_course_though_start_up_files_reset_the_path(lab):
    import websocket

    (lab[2].parent / ".bashrc").write_text("export PATH=/usr/bin:/bin\n")
    name = ask(lab, "/api/terminals", {})["name"]
    address = lab[0].replace("http", "ws")
    socket = websocket.create_connection(f"{address}/terminals/websocket/{name}?token={lab[1]}", timeout=20)
    try:
        socket.send(json.dumps(["stdin", "mpcourse --version; which mpirun python; echo d''one\r"]))
        seen, deadline = "", time.monotonic() + 20
        while "\ndone" not in seen and time.monotonic() < deadline:
            kind, *content = json.loads(socket.recv())
            seen += content[0] if kind == "stdout" else ""
    finally:
        socket.close()
    programs = os.path.dirname(sys.executable)
    assert "mpcourse 0." in seen and f"{programs}/mpirun" in seen and f"{programs}/python" in seen


def test_lab_answers_the_address_that_codespaces_forwards_and_no_other_site(tmp_path):
    import websocket

    environment = os.environ | {ADDRESS: "", "HOME": str(tmp_path), "CODESPACE_NAME": "fluffy-disco"}
    environment["GITHUB_CODESPACES_PORT_FORWARDING_DOMAIN"] = "app.github.dev"
    command = [sys.executable, "-m", "mpcourse.course.cli", "lab", "--port=0", "--no-browser"]
    with jupyterlab(command, environment, tmp_path / "lab.log") as lab:
        kernel = ask((*lab, None), "/api/kernels", {"name": "python3"})["id"]
        socket = f"{lab[0].replace('http', 'ws')}/api/kernels/{kernel}/channels"
        forwarded = "fluffy-disco-8888.app.github.dev"
        for host in (forwarded, lab[0].removeprefix("http://")):  # whichever the port's other end names
            page = urllib.request.Request(f"{lab[0]}/lab?token={lab[1]}", headers={"Host": host})
            with urllib.request.urlopen(page, timeout=20) as response:  # whose cookies a browser then sends
                cookie = "; ".join(part.partition(";")[0] for part in response.headers.get_all("Set-Cookie"))
            given = {"timeout": 20, "host": host, "cookie": cookie}
            websocket.create_connection(socket, origin=f"https://{forwarded}", **given).close()
            for other in ("https://else-8888.app.github.dev", f"https://{forwarded}.example.org"):
                with pytest.raises(websocket.WebSocketBadStatusException, match="403"):
                    websocket.create_connection(socket, origin=other, **given)


def test_lab_does_not_ask_about_news_and_keeps_the_users_own_settings(lab):
    page = ask(lab, "/lab")
    config = json.loads(re.search(r'id="jupyter-config-data"[^>]*>(.*?)</script>', page, re.DOTALL)[1])
    assert "@jupyterlab/apputils-extension:announcements" in config["disabledExtensions"]
    assert "example-extension" in config["disabledExtensions"]
