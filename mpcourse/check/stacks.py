"""Where the threads of a rank are: the rank writes it down, whoever watches asks for it and reads it.

It is asked in two ways. A thread of the rank answers first. It has Python's lock while it writes, so the stacks that
it walks stand still. Where no answer comes, something holds that lock (C code in a loop without end), and a signal
asks once more: its handler needs no lock. The signal is not sent first, for it interrupts one thread and reads the
stacks of those that run on: of a busy virtual rank one such reading in twenty was a segmentation fault.
"""

import errno
import faulthandler
import os
import re
import signal
import threading
import time
from collections.abc import Mapping
from pathlib import Path

PATIENCE = 1.0  # seconds for the thread's answer: on a busy machine it waits for a core
SIGNALLED = 0.2  # seconds for the signal's
_TURNS = os.path.join("cluster", "turns.py")  # where a virtual rank waits for its turn


def answer(folder: Path, number: int) -> None:
    """From now on rank `number`, this process, says in `folder` where it is when asked, and where it crashed."""
    crashed = (folder / f"rank{number}.stack").open("w")
    faulthandler.enable(crashed)
    faulthandler.register(signal.SIGUSR1, crashed)
    question = folder / f"rank{number}.ask"
    os.mkfifo(question)
    asked = os.open(question, os.O_RDWR)  # open for writing, too: a read waits even if nobody else has it open

    def tell() -> None:
        part = folder / f"rank{number}.where-part"
        while os.read(asked, 1):
            try:
                with part.open("w") as file:
                    faulthandler.dump_traceback(file)
                part.replace(folder / f"rank{number}.where")
            except OSError:
                return  # the folder is gone: nobody asks any more

    threading.Thread(target=tell, name="tells where this rank is", daemon=True).start()


def lines(folder: Path, ranks: Mapping[int, int], file: str, ask: bool = True) -> dict[int, int]:
    """The line at which each rank is in `file`, of those that are in it; of virtual ranks the one that runs.

    ranks: the process id of each rank, by its number. ask: False reads only what crashed ranks have left.
    """
    stacks = {}
    if ask:
        stacks = _told(folder, [i for i in ranks if _ask(folder, i)])
        silent = {i: pid for i, pid in ranks.items() if i not in stacks}
        stacks |= _signalled(folder, silent)
    else:
        stacks = {i: _read(folder / f"rank{i}.stack") for i in ranks}
    return {i: line for i, stack in stacks.items() if (line := _line(stack, file))}


def _ask(folder: Path, number: int) -> bool:
    """Whether the rank's thread was asked; not if it has ended, or not begun."""
    (folder / f"rank{number}.where").unlink(missing_ok=True)
    try:
        question = os.open(folder / f"rank{number}.ask", os.O_WRONLY | os.O_NONBLOCK)
    except OSError as error:
        if error.errno in (errno.ENXIO, errno.ENOENT):
            return False
        raise
    try:
        os.write(question, b"?")
    finally:
        os.close(question)
    return True


def _told(folder: Path, asked: list[int]) -> dict[int, str]:
    """The answers of the ranks' threads, of those that come in time."""
    paths = {i: folder / f"rank{i}.where" for i in asked}
    deadline = time.monotonic() + PATIENCE
    while not all(path.exists() for path in paths.values()) and time.monotonic() < deadline:
        time.sleep(0.005)
    return {i: _read(path) for i, path in paths.items() if path.exists()}


def _signalled(folder: Path, ranks: Mapping[int, int]) -> dict[int, str]:
    """What the signal's handler wrote, which appends."""
    paths = {i: folder / f"rank{i}.stack" for i in ranks}
    known = {i: len(_read(path)) for i, path in paths.items()}
    for pid in ranks.values():
        try:
            os.kill(pid, signal.SIGUSR1)
        except OSError:
            pass  # it ended just now
    if ranks:
        time.sleep(SIGNALLED)
    return {i: _read(path)[known[i] :] for i, path in paths.items()}


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
