"""Open JupyterLab on the lessons, with mpirun and mpcourse at hand in its notebooks and terminals."""

import argparse
import os
import re
import shlex
import shutil
import socket
import sys
import webbrowser
from collections.abc import Sequence
from pathlib import Path

from mpcourse.common.errors import SETUP, WHEEL, UserError
from mpcourse.common.launch import mpi_environment, rank_environment
from mpcourse.course.check.manifest import Course, load_course
from mpcourse.course.check.progress import Progress
from mpcourse.course.check.supervisor import CHECKING
from mpcourse.course.forkserver import ADDRESS, attach, offered


def open_lab(arguments: Sequence[str]) -> int:
    """Replace this process by `jupyter lab`, opened on the learner's next lesson. `arguments` are passed on to it."""
    course = load_course()
    jupyter = shutil.which("jupyter-lab", path=str(Path(sys.executable).parent)) or shutil.which("jupyter-lab")
    if not jupyter:
        raise UserError(f"JupyterLab is not installed for this Python: {SETUP} installs it")
    arguments = [a for a in arguments if a != "--"]
    _check_port(arguments)
    command = [jupyter, f"--ServerApp.root_dir={course.root}"]
    command.append(f"--LabApp.default_url=/lab/tree/lessons/{next_lesson(course)}.ipynb")
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        command.append("--allow-root")
    if not _has_browser():
        command.append("--no-browser")  # JupyterLab then prints the address
    command += _codespace_options()
    command += _terminal_options(mpi_environment()["PATH"].partition(os.pathsep)[0])
    environment = mpi_environment()
    environment.pop("PYTHONUNBUFFERED", None)  # it makes the printed lines of ranks mix
    # JupyterLab would ask at its first start whether it may fetch news, and tell of versions newer than the pinned one.
    # No option of its own ends that; a page_config.json on this path does.
    ours = str(Path(__file__).parent)
    environment["JUPYTER_CONFIG_PATH"] = os.pathsep.join(filter(None, [ours, environment.get("JUPYTER_CONFIG_PATH")]))
    # Our kernel, LessonKernel, takes the place of Jupyter's own python3, but not of one that the user has put there.
    environment["JUPYTER_PATH"] = os.pathsep.join(filter(None, [environment.get("JUPYTER_PATH"), ours]))
    if offered():  # `mpcourse check` in a notebook or a terminal of this JupyterLab then waits for no import
        cases = {exercise.check for exercise in course.exercises}
        environment[ADDRESS] = attach([*CHECKING, "torch._dynamo", *sorted(cases)], rank_environment())
    sys.stdout.flush()
    os.execve(jupyter, [*command, *arguments], environment)


def next_lesson(course: Course) -> str:
    """Return the lesson of the exercise that `mpcourse next` names, or the last one where all have passed."""
    try:
        exercise = Progress(course).next(course)
    except UserError:  # the records cannot be read, which `mpcourse next` says, too: the course opens nevertheless
        return course.lessons[0].id
    return exercise.lesson if exercise else course.lessons[-1].id


def _check_port(arguments: Sequence[str]) -> None:
    """Raise UserError if the port that JupyterLab is to use is taken: by default it would pick another, unasked."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--port", "--ServerApp.port", dest="port", default="8888")
    parser.add_argument("--ip", "--ServerApp.ip", dest="ip", default="localhost")
    given, _ = parser.parse_known_args(arguments)
    if not given.port.isdigit() or not 0 <= int(given.port) < 65536:
        raise UserError(f"--port={given.port}: a port is a number from 0 (any free one) to 65535")
    port = int(given.port)
    with socket.socket() as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind(("" if given.ip in ("*", "0.0.0.0") else given.ip, port))
        except PermissionError:
            raise UserError(f"port {port} is not yours to use: choose one from 1024 on, `--port=8889`") from None
        except OSError:
            other = f"--port={port + 1 if port < 65535 else 8888}"
            raise UserError(
                f"port {port} is in use, perhaps by a JupyterLab that is still open: choose another with "
                + (f"`mpcourse lab {other}`" if WHEEL else f"`make lab LAB_ARGS={other}`")
            ) from None


def _codespace_options() -> list[str]:
    """Return options without which JupyterLab refuses what comes through the port that GitHub Codespaces forwards.

    A browser asks from the codespace's own address, which JupyterLab takes for another site's. Its token is asked for.
    """
    name, domain = (os.environ.get(key) for key in ("CODESPACE_NAME", "GITHUB_CODESPACES_PORT_FORWARDING_DOMAIN"))
    if not name or not domain:
        return []
    origin = rf"https://{re.escape(name)}-\d+\.{re.escape(domain)}\Z"
    return ["--ServerApp.allow_remote_access=True", f"--ServerApp.allow_origin_pat={origin}"]


def _terminal_options(programs: str) -> list[str]:
    """Return options by which JupyterLab's terminals find this environment's programs in the folder `programs`.

    By default a terminal is a login shell, and start-up files may put another Python first on PATH.
    """
    bash = shutil.which("bash")
    if not bash:
        return []
    start = Path(sys.prefix) / "mpcourse.bashrc"
    try:
        start.write_text(f'[ -f ~/.bashrc ] && . ~/.bashrc\nexport PATH={shlex.quote(programs)}:"$PATH"\n')
    except OSError:
        return []  # another user's environment: the terminals are then as Jupyter makes them
    return [f"--ServerApp.terminado_settings={ {'shell_command': [bash, '--init-file', str(start)]} }"]


def _has_browser() -> bool:
    """Whether a browser could show the page here: one is installed, and there is a screen for it."""
    if sys.platform.startswith("linux") and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        return False
    try:
        webbrowser.get()
    except webbrowser.Error:
        return False
    return True
