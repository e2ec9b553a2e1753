"""The originals that tests of a learner's folder update, and what becomes of an update that stops at one of its steps.

As a program it forks for each step, and has imported so little that a fork is cheap: see `each_step` in
test_learner.py. It reads lines of JSON, [number, act, run, folder], and answers each by [status, error].
"""

import errno
import json
import os
import sys
import traceback
from pathlib import Path

from mpcourse import __version__
from mpcourse.common.errors import UserError
from mpcourse.course.check.stubs import make_stub
from mpcourse.course.learner import folder as folders
from mpcourse.course.learner import init, update
from mpcourse.course.learner.originals import Originals

ROOT = Path(__file__).resolve().parents[1]
MANIFEST = (ROOT / "tests" / "small_course" / "exercises" / "manifest.toml").read_bytes()


def solution(task="say it", head="Says it.", more="", name="e90"):
    """Return an exercise's source."""
    answer = f"    # solution: {task}\n    return 1\n    # end of solution\n"
    return f'"""Exercise.\n\n{head}\n"""\n\nimport math\n\n\ndef f(x):\n    """Doc."""\n{answer}{more}'


def stub(**words):
    return make_stub("e90", solution(**words)).encode()


def cell(source, number=None, **more):
    return {"cell_type": "markdown", "id": f"c{number or abs(hash(source))}", "metadata": {}, "source": source} | more


def book(*cells):
    made = {"cells": list(cells), "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    return (json.dumps(made, indent=1) + "\n").encode()


def sources(contents):
    return ["".join(cell["source"]) for cell in json.loads(contents)["cells"]]


def lesson(*changed):
    """Six cells; with "~" before the text of those that a version has changed."""
    return book(*(cell(f"~{n}" if n in changed else f"{n}", f"{n}{'x' * (n in changed)}") for n in range(6)))


OLD = Originals(
    "0.0.1",
    {
        "exercises/manifest.toml": MANIFEST,
        **{f"exercises/{name}.py": stub() for name in ("e90_same", "e91_head", "e92_task", "e93_line", "e94_gone")},
        **{f"lessons/{name}.ipynb": lesson() for name in ("00_same", "01_new", "02_gone")},
        "docs/glossary.md": b"one\ntwo\nthree\n",
    },
)
NEW = Originals(
    __version__,
    {
        "exercises/manifest.toml": MANIFEST + b"# new\n",
        "exercises/e90_same.py": stub(),
        "exercises/e91_head.py": stub(head="Says it in other words."),
        "exercises/e92_task.py": stub(task="say it now"),
        "exercises/e93_line.py": stub().replace(b"import math", b"import cmath"),
        "exercises/e95_more.py": stub(more="\n\ndef g():\n    return 2\n"),
        "lessons/00_same.ipynb": lesson(),
        "lessons/01_new.ipynb": lesson(1, 4),
        "lessons/03_more.ipynb": lesson(5),
        "docs/glossary.md": b"one\n2\nthree\n",
    },
)


CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir"}
NOT_REACHED = 7


def at_step(number, act, run, root):
    """Run in a process of its own, whose step of that number in `root` is `act()`. Its exit status, and its error.

    A step is a call of the system that writes a file, or renames, removes or makes one. Status: 2 for a UserError.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child:
        os.close(writing)
        with open(reading) as pipe:
            error = pipe.read()
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), error
    steps = 0

    def hook(event, arguments):
        nonlocal steps
        writes = event == "open" and arguments[2] & (os.O_WRONLY | os.O_RDWR)
        if (writes or event in CHANGES) and str(root) in str(arguments[0]):
            steps += 1
            if steps == number:
                act()

    status = 3
    try:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115, the process ends by os._exit
        sys.addaudithook(hook)
        run()
        status = 0 if steps >= number else NOT_REACHED
    except UserError as error:
        os.write(writing, str(error).encode())
        status = 2
    except BaseException:
        os.write(writing, traceback.format_exc().encode())
    finally:
        os._exit(status)


def full():
    raise OSError(errno.ENOSPC, "No space left on device")


ACTS = {"killed": lambda: os._exit(9), "full": full}
RUNS = {"update": lambda root: update(root, NEW), "init": lambda root: init(root, OLD)}


def main():
    os.fsync = lambda handle: None  # as `without_waiting` in test_learner.py
    folders._link = lambda root: None
    for line in sys.stdin:
        number, act, run, folder = json.loads(line)
        root = Path(folder)
        print(json.dumps(at_step(number, ACTS[act], lambda run=run, root=root: RUNS[run](root), root)), flush=True)


if __name__ == "__main__":
    main()
