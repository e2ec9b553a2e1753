"""Kernels of notebooks, and the ranks that their cells start, forked from a server that has imported torch.

A kernel that starts from nothing imports for three seconds, and so does each rank of a cell's `!mpirun`, of which the
lessons have about thirty. What the cells do is the same.
"""

import contextlib
import json
import os
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

MODULES = ("ipykernel.kernelapp", "mpcourse.course.jupyter.kernel", "ipywidgets")  # that a kernel needs

# What `python -m ipykernel_launcher` does. A kernel names matplotlib's backend in its environment, which matplotlib has
# read by then, in the server; and the backend joins the shell that there is when it is imported.
KERNEL = """
import sys
import matplotlib
from ipykernel import kernelapp

matplotlib.rcParams["backend"] = "module://matplotlib_inline.backend_inline"
sys.modules.pop("matplotlib_inline.backend_inline", None)
kernelapp.launch_new_instance()
"""

# `python` of a cell, and of torchrun, which has it buffer nothing. What is no program, such as `python -V`, a server
# cannot fork.
PYTHON = """#!/bin/sh
if [ "$1" = -u ]; then shift; export PYTHONUNBUFFERED=1; fi
case "$1" in
    *.py|-c|-m) exec {forked} "$@" ;;
    *) exec {python} "$@" ;;
esac
"""
# PYTHON_EXEC: what torchrun starts ranks with. Ranks that are killed and started again have to be processes of its own.
TORCHRUN = """#!/bin/sh
case "$*" in *--max-restarts*) exec {python} -m torch.distributed.run "$@" ;; esac
PYTHON_EXEC="$(dirname "$0")/python" exec {forked} -m torch.distributed.run "$@"
"""
# The course's own command, of which the lessons have about forty.
MPCOURSE = """#!/bin/sh
exec {forked} -P -m mpcourse.course.cli "$@"
"""


def write_spec(folder: Path, command: list[str]) -> None:
    """Write to `folder` Jupyter's kernel python3 as one that `command`, with arguments of Python's, starts."""
    programs = folder / "bin"
    programs.mkdir()
    for name, text in (("python", PYTHON), ("torchrun", TORCHRUN), ("mpcourse", MPCOURSE)):
        program = programs / name
        program.write_text(text.format(forked=shlex.join(command), python=shlex.quote(sys.executable)))
        program.chmod(0o755)
    lesson_kernel = "--IPKernelApp.kernel_class=mpcourse.course.jupyter.kernel.LessonKernel"  # as `mpcourse lab` has it
    argv = [*command, "-c", KERNEL, lesson_kernel, "-f", "{connection_file}"]
    path = os.pathsep.join([str(programs), os.environ.get("PATH", os.defpath)])
    spec = folder / "kernels" / "python3" / "kernel.json"
    spec.parent.mkdir(parents=True)
    told = {"argv": argv, "display_name": "Python 3 (ipykernel)", "language": "python", "env": {"PATH": path}}
    spec.write_text(json.dumps(told))


@contextlib.contextmanager
def found_by_jupyter(folder: Path) -> Iterator[None]:
    """Within this context Jupyter takes kernels from `folder` first."""
    before = os.environ.get("JUPYTER_PATH")
    os.environ["JUPYTER_PATH"] = os.pathsep.join([str(folder), *filter(None, [before])])
    yield
    os.environ.pop("JUPYTER_PATH")
    if before is not None:
        os.environ["JUPYTER_PATH"] = before
