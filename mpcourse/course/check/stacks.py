"""Where the threads of a rank are: the rank writes it down, the watching process asks for it and reads it.

It is asked in two ways. A thread of the rank answers first. It has Python's lock while it writes, so the stacks that
it walks stand still. Where no answer comes, something holds that lock (C code in a loop without end), and a signal
asks once more: its handler needs no lock. The signal is not sent first, for it interrupts one thread and reads the
stacks of those that run on: of a busy virtual rank one such reading in twenty was a segmentation fault.
"""

import _thread
import contextlib
import faulthandler
import os
import re
import signal
import time
from collections.abc import Mapping
from pathlib import Path

from mpcourse.course.check.granted_time import GrantedTime

PATIENCE = 1.0  # seconds for an answer, of those that the rank is granted
QUIET = 0.05  # seconds in which a handler that has begun writes more
_TURNS = os.path.join("ranks", "threads.py")  # where a virtual rank waits for its turn


def answer(folder: Path, number: int) -> None:
    """Let rank `number`, this process, say in `folder` where it is when asked, and where it crashed."""
    crashed = (folder / f"rank{number}.stack").open("w")
    faulthandler.enable(crashed)
    faulthandler.register(signal.SIGUSR1, crashed)
    part, where = folder / f"rank{number}.where-part", folder / f"rank{number}.where"
    try:
        os.mkfifo(folder / f"rank{number}.ask")
        asked = os.open(folder / f"rank{number}.ask", os.O_RDWR)  # for writing, too: else a read ends with its writer
    except OSError:
        return  # not on this file system: then the signal asks alone

    def begun() -> int:
        return os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)

    def write(file: int) -> None:
        with contextlib.suppress(OSError):  # the folder is gone; or the learner has closed all files
            while True:
                os.read(asked, 1)
                faulthandler.dump_traceback(file)
                part.replace(where)
                os.close(file)
                file = begun()  # not when it is asked: each call lets others run
        with contextlib.suppress(OSError):
            os.close(asked)  # so that no process waits for an answer

    # The first file is made now: who is never asked, and done at once, makes none while its folder is removed.
    _thread.start_new_thread(write, (begun(),))  # not threading's, which the learner's code can list, and wait for


def lines(folder: Path, ranks: Mapping[int, int], file: str, ask: bool = True) -> dict[int, int]:
    """Return the line of each rank that is in `file`; of virtual ranks, the line of the one that runs.

    ranks: the process id of each rank, by its number. ask: False reads only what crashed ranks have left.
    """
    stacks = {}
    if ask:
        stacks = _written(folder, {i: pid for i, pid in ranks.items() if _ask(folder, i)})
        silent = {i: pid for i, pid in ranks.items() if i not in stacks}
        stacks |= _signalled(folder, silent)
    else:
        stacks = {i: _read(folder / f"rank{i}.stack") for i in ranks}
    return {i: line for i, stack in stacks.items() if (line := _line(stack, file))}


def _ask(folder: Path, number: int) -> bool:
    """Return whether the rank's thread was asked; not if it has ended, or not begun."""
    (folder / f"rank{number}.where").unlink(missing_ok=True)
    try:
        question = os.open(folder / f"rank{number}.ask", os.O_WRONLY | os.O_NONBLOCK)
        with open(question, "wb", buffering=0) as pipe:
            pipe.write(b"?")
    except OSError:
        return False
    return True


def _written(folder: Path, asked: Mapping[int, int]) -> dict[int, str]:
    """Collect the answers of the ranks' threads that come in time."""
    paths = {i: folder / f"rank{i}.where" for i in asked}
    waited = GrantedTime(asked.values())
    while not all(path.exists() for path in paths.values()) and waited.seconds() < PATIENCE:
        time.sleep(0.005)
    return {i: _read(path) for i, path in paths.items() if path.exists()}


def _signalled(folder: Path, ranks: Mapping[int, int]) -> dict[int, str]:
    """Read what the signal's handler, which appends, wrote in each rank that writes in time."""
    paths = {i: folder / f"rank{i}.stack" for i in ranks}
    known = {i: len(_read(path)) for i, path in paths.items()}
    for i, pid in ranks.items():
        try:
            os.kill(pid, signal.SIGUSR1)
        except OSError:
            del paths[i]  # it ended just now
    texts = before = dict.fromkeys(paths, "")
    waited = GrantedTime(ranks[i] for i in paths)
    while (texts != before or not all(texts.values())) and waited.seconds() < PATIENCE:  # till no rank writes any more
        time.sleep(QUIET)
        before, texts = texts, {i: _read(path)[known[i] :] for i, path in paths.items()}
    return texts


def _line(stack: str, file: str) -> int | None:
    threads = re.split(r"^(?:Current t|T)hread ", stack, flags=re.MULTILINE)
    threads.sort(key=lambda text: _TURNS in text)  # of virtual ranks the one that runs, not those that wait
    matches = (re.search(rf'File "{re.escape(file)}", line (\d+)', text) for text in threads)
    match = next(filter(None, matches), None)
    return int(match[1]) if match else None


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
