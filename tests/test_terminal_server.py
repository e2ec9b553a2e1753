"""The fork server that the commands of a terminal share."""

import contextlib
import os
import pty
import re
import select
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from mpcourse.course.forkserver import ADDRESS, offered
from tests.conftest import ROOT

pytestmark = pytest.mark.skipif(
    not offered() or not hasattr(os, "pidfd_open"), reason="no server can outlive a command on this system"
)

SECONDS = 60
TYPED = Path(__file__).with_name("programs") / "typed.py"


class Terminal:
    """A shell in a terminal of its own, which runs a line at a time."""

    def __init__(self, folder, course=ROOT):
        self.keyboard, screen = pty.openpty()
        environment = {k: v for k, v in os.environ.items() if k != ADDRESS}
        self.shell = subprocess.Popen(
            ["sh"], stdin=screen, stdout=subprocess.PIPE, start_new_session=True, cwd=folder,
            env=environment | {"TMPDIR": str(folder), "PYTHONPATH": f"{course}:{ROOT}"},
        )  # fmt: skip
        os.close(screen)

    def types(self, line):
        """Run `line`; what it has written, to the end of its output, for which nothing may be left that holds that."""
        os.write(self.keyboard, f"({line}) | cat; echo .\n".encode())
        written = ""
        while not written.endswith(".\n"):
            assert select.select([self.shell.stdout], [], [], SECONDS)[0], f"no end of the output, after {written!r}"
            written += os.read(self.shell.stdout.fileno(), 4096).decode()
        return written.split()[:-1]

    def command(self, *arguments):
        """Run a command that asks for the server; "none", or that server's process, and what it has imported."""
        return self.types(" ".join([sys.executable, str(TYPED), *arguments]))

    def close(self):
        self.shell.kill()
        self.shell.communicate()
        os.close(self.keyboard)


@pytest.fixture
def terminals():
    """Terminals with a folder for their servers, whose path is short enough for a socket's."""
    opened = []
    with tempfile.TemporaryDirectory(prefix="t") as folder:

        def another(course=ROOT):
            opened.append(Terminal(folder, course))
            return opened[-1]

        another.folder = Path(folder)
        yield another
        for terminal in opened:
            terminal.close()
        _wait(lambda: not _servers(folder) and not list(Path(folder).glob("mpcourse-fork-*")), "a server is left")


def _wait(what, why):
    deadline = time.monotonic() + SECONDS
    while not what():
        assert time.monotonic() < deadline, why
        time.sleep(0.02)


def _servers(folder):
    """The processes of servers whose socket is in `folder`."""
    found = set()
    for process in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if f"--idle=\0{folder}" in re.sub("--idle=[^\0]*", "--idle=", Path(f"/proc/{process}/cmdline").read_text()):
                found.add(int(process))
    return found


def test_commands_of_one_terminal_share_a_server_which_ends_with_it(terminals):
    one, another = terminals(), terminals()
    first = one.command("mailbox")
    assert first[1] == "mailbox"
    assert one.command("mailbox") == first
    assert one.command("wave") == one.command("mailbox") == [first[0], "mailbox", "wave"]
    assert another.command("mailbox")[0] != first[0]
    one.shell.kill()
    _wait(lambda: int(first[0]) not in _servers(terminals.folder), "the server outlives its terminal")


def test_two_commands_at_a_time_start_one_server(terminals):
    command = f"{sys.executable} {TYPED} mailbox"
    both = terminals().types(f"exec 3<&0; {command} <&3 & {command}; wait")  # & alone takes the terminal away
    assert len(both) == 4
    assert len(set(both)) == 2
    assert _servers(terminals.folder) == {int(both[0])}


def test_a_server_of_a_course_that_was_changed_makes_room_for_another(terminals):
    shutil.copytree(
        ROOT / "mpcourse", terminals.folder / "mpcourse", ignore=shutil.ignore_patterns("measured", "__pycache__")
    )
    terminal = terminals(terminals.folder)
    first = terminal.command("mpcourse.common.errors")
    assert terminal.command("mpcourse.common.errors") == first
    (terminals.folder / "mpcourse" / "errors.py").touch()
    second = terminal.command("mpcourse.common.errors")
    assert second != first
    _wait(lambda: int(first[0]) not in _servers(terminals.folder), "the first server is left")
    assert terminal.command("mpcourse.common.errors") == second


def test_a_server_that_was_killed_is_followed_by_another(terminals):
    terminal = terminals()
    first = terminal.command("mailbox")
    os.kill(int(first[0]), 9)
    assert terminal.command("mailbox")[0] not in (first[0], "none")


def test_a_server_that_nobody_asks_ends(terminals):
    terminal = terminals()
    first = terminal.command("mailbox", "0.2")
    _wait(lambda: int(first[0]) not in _servers(terminals.folder), "the server is left")
    assert not list(terminals.folder.glob("mpcourse-fork-*"))


def test_where_no_server_can_be_shared_there_is_none(terminals):
    terminal, command = terminals(), f"{sys.executable} {TYPED} mailbox"
    assert terminal.types(f"{command} < /dev/null") == ["none"]
    deep = f"{terminals.folder}/{90 * 'x'}"  # too long for a socket's path
    assert terminal.types(f"mkdir {deep}; TMPDIR={deep} {command}") == ["none"]
    assert terminal.types(f"setsid -w {command}") == ["none"]  # the only process of its session


def test_a_folder_that_others_can_write_to_is_not_used(terminals):
    terminal = terminals()
    assert terminal.command("mailbox")[0] != "none"
    (folder,) = terminals.folder.glob("mpcourse-fork-*")
    folder.chmod(0o777)
    assert terminal.command("mailbox") == ["none"]
    folder.chmod(0o700)
