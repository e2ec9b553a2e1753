"""JupyterLab as `make lab` opens it: on the first lesson, with mpirun and mpcourse at hand."""

import json
import os
import re
import sys
import time
import urllib.request
from uuid import uuid4

import pytest

from mpcourse.forkserver import ADDRESS, offered
from tests.conftest import jupyterlab


@pytest.fixture
def lab(tmp_path):
    """A running JupyterLab without a browser, started as from a shell in which nothing was activated."""
    own = tmp_path / "own" / "labconfig"
    own.mkdir(parents=True)
    (own / "page_config.json").write_text('{"disabledExtensions": {"example-extension": true}}')
    environment = {
        **os.environ,
        ADDRESS: "",
        "PATH": "/usr/bin:/bin",
        "HOME": str(tmp_path),
        "JUPYTER_CONFIG_PATH": str(own.parent),
    }
    log = tmp_path / "lab.log"
    command = [sys.executable, "-m", "mpcourse.cli", "lab", "--port=0", "--no-browser"]
    with jupyterlab(command, environment, log) as (address, token):
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
    """What the code prints in a kernel, asked as the page asks: through the server, which follows a kernel's restarts.

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
    assert "/lab/tree/lessons/00_start_here.ipynb" in lab[2].read_text()
    kernel = ask(lab, "/api/kernels", {"name": "python3", "path": "lessons"})
    printed = execute(
        lab,
        kernel["id"],
        "program = 'from mpi4py import MPI; print(MPI.COMM_WORLD.size)'\n"
        "lines = !mpirun -np 2 python -c '{program}' && mpcourse --version\n"
        "print(lines)\n"
        "from mpcourse.forkserver import Plain, offered, python\n"
        "print('forks' if offered() > isinstance(python(), Plain) else 'forks not')",
    )
    assert ("forks\n" in printed) == offered()
    assert "'2', '2', 'mpcourse " in printed, printed


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


def test_lab_does_not_ask_about_news_and_keeps_the_users_own_settings(lab):
    page = ask(lab, "/lab")
    config = json.loads(re.search(r'id="jupyter-config-data"[^>]*>(.*?)</script>', page, re.DOTALL)[1])
    assert "@jupyterlab/apputils-extension:announcements" in config["disabledExtensions"]
    assert "example-extension" in config["disabledExtensions"]
