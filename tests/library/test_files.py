"""Files that are written whole or not at all."""

import os
import random
import signal
import stat
import subprocess

import pytest

from mpcourse.common.files import remove_parts, write_atomically
from tests.conftest import ROOT, python


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("sync", [False, True])
@pytest.mark.parametrize(
    "contents", ["words: \u00e4\n", b"\x00\r\n", lambda file: [file.write(b"one"), file.write(b"two")]]
)
def test_text_bytes_and_what_a_function_writes_become_the_file(tmp_path, contents, sync):
    path = tmp_path / "file.txt"
    path.write_text("old")
    write_atomically(path, contents, sync)
    wanted = contents if isinstance(contents, bytes) else contents.encode() if isinstance(contents, str) else b"onetwo"
    assert path.read_bytes() == wanted and names(tmp_path) == ["file.txt"]


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_a_write_that_fails_half_way_leaves_the_old_file_and_nothing_else(tmp_path, error):
    path = tmp_path / "file"

    def half(file):
        file.write(bytes(random.randrange(1, 100_000)))
        raise error("half way")

    for before in ([], ["file"]):
        with pytest.raises(error, match="half way"):
            write_atomically(path, half)
        assert names(tmp_path) == before
        path.write_text("old")
    assert path.read_text() == "old"


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_disk_that_fails_at_the_end_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, call):
    path = tmp_path / "file"
    path.write_text("old")

    def fail(*_):
        assert path.read_text() == "old"
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, call, fail)
    with pytest.raises(OSError, match="No space left"):
        write_atomically(path, "new", sync=True)
    assert path.read_text() == "old" and names(tmp_path) == ["file"]


def test_contents_are_on_the_disk_before_the_file_has_its_name(tmp_path, monkeypatch):
    path, calls, fsync, replace = tmp_path / "file", [], os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda file: [calls.append(os.fstat(file).st_size), fsync(file)])
    monkeypatch.setattr(os, "replace", lambda *paths: [calls.append("replace"), replace(*paths)])
    write_atomically(path, "seven..", sync=True)
    assert calls == [7, "replace"]
    write_atomically(path, "eight...")
    assert calls == [7, "replace", "replace"]


def test_a_file_that_cannot_be_written_raises(tmp_path):
    with pytest.raises(FileNotFoundError):
        write_atomically(tmp_path / "no folder" / "file", "")
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError):
        write_atomically(tmp_path / "folder", "")
    assert names(tmp_path) == ["folder"]


def test_the_file_has_the_permissions_of_any_new_file(tmp_path):
    write_atomically(tmp_path / "ours", "")
    (tmp_path / "plain").touch()
    modes = {stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("ours", "plain")}
    assert len(modes) == 1


def test_a_killed_process_leaves_the_old_file_and_a_part_that_can_be_removed(tmp_path):
    code = (
        "import os, signal\n"
        "from pathlib import Path\n"
        "from mpcourse.common.files import write_atomically\n"
        f"folder = Path({str(tmp_path)!r})\n"
        "write_atomically(folder / 'file', 'old')\n"
        "def dies(file):\n"
        "    file.write(bytes(100_000))\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "write_atomically(folder / 'file', dies)\n"
    )
    done = subprocess.run(python("-c", code), cwd=ROOT, timeout=60)
    assert done.returncode == -signal.SIGKILL
    assert (tmp_path / "file").read_text() == "old" and len(names(tmp_path)) == 2
    remove_parts(tmp_path, "another")
    assert len(names(tmp_path)) == 2
    remove_parts(tmp_path, "fil?")
    assert names(tmp_path) == ["file"]
