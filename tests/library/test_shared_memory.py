"""Shared memory of dead MPI runs is found and removed; that of living ones is not touched."""

import mmap
import os
import sys
import time

import pytest

from mpcourse.common.shared_memory import abandoned, tidy
from mpcourse.course.doctor import leftovers

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="lists shared memory as Linux does")


def segment(folder, name, age=60.0, nbytes=4096):
    path = folder / name
    path.write_bytes(bytes(nbytes))
    os.utime(path, (time.time() - age,) * 2)
    return path


def test_what_nobody_has_mapped_goes_and_all_else_stays(tmp_path):
    dead = [segment(tmp_path, "mpich_shm_1a_0"), segment(tmp_path, "sm_segment.host.0.1.0", nbytes=100)]
    stays = [segment(tmp_path, "somebody_elses"), segment(tmp_path, "mpich_shm_2_0", age=-1.0)]
    living = segment(tmp_path, "mpich_shm_3b_0")
    with living.open("r+b") as file, mmap.mmap(file.fileno(), 4096):
        assert abandoned(folder=tmp_path) == {dead[0]: 4096, dead[1]: 100}
        assert tidy(folder=tmp_path) == 4196
    assert sorted(tmp_path.iterdir()) == sorted([*stays, living])


def test_what_was_made_a_moment_ago_goes_too(tmp_path):
    """A run that crashes at once is over before its segments count as settled."""
    new = segment(tmp_path, "mpich_shm_1_0", age=0)
    assert not abandoned(folder=tmp_path)
    assert tidy(folder=tmp_path) == 4096 and not new.exists()


def test_what_is_older_than_the_run_stays(tmp_path):
    old, new = segment(tmp_path, "mpich_shm_1_0", age=60), segment(tmp_path, "mpich_shm_2_0", age=10)
    assert tidy(time.time() - 30, tmp_path) == 4096
    assert old.exists() and not new.exists()


@pytest.mark.parametrize(("taken", "status"), [(0, "ok"), (2e6, "ok"), (3e9, "note")])
def test_the_doctor_tells_how_much_is_taken(monkeypatch, tmp_path, taken, status):
    found = {tmp_path / "mpich_shm_1_0": int(taken)} if taken else {}
    monkeypatch.setattr(leftovers.shared_memory, "abandoned", lambda: found)
    finding = leftovers.shared_memory_left()
    assert finding.status == status
    assert ("tidy()" in finding.command) == (status == "note")
    assert finding.value == f"{taken / 1e6:.0f} MB left by killed runs"
