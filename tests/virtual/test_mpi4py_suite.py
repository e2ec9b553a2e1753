"""mpi4py's own tests on virtual ranks: what is right and what is refused is held, and nothing is wrong.

They come from the package index, in the version of constraints.txt, and are kept in the user's cache. 1 and 3 ranks are
run here, 1 to 5 by `make test-mpi4py`.
"""

import collections
import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SUITE = ROOT / "tests" / "programs" / "mpi4py_suite.py"
SIZES = [int(size) for size in os.environ.get("MPCOURSE_MPI4PY_SIZES", "1 3").split()]
# Of 2104 tests. The others are skipped, as by an MPI that has no such call or datatype.
RIGHT = {1: 478, 2: 480, 3: 480, 4: 480, 5: 480}
REFUSED = {1: 1189, 2: 1277, 3: 1277, 4: 1277, 5: 1277}
# What is not right, and why that is no fault of virtual ranks.
EXCUSED = {
    "test_msgspec.TestMessageVectorW.testMessageBytearray": "its own stand-in for Alltoallw, which is refused",
    "test_op.TestOp.testCreateMany": "there may be more than mpi4py's 32 operations of a program's own",
    "test_op.TestOp.testPickleUserDefined": "each rank imports the module for itself, and pickle finds none of them",
}


@pytest.fixture(scope="session")
def suite():
    """Return the folder `test` of mpi4py's source."""
    version = re.search(r"^mpi4py==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)[1]
    kept = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mpcourse" / f"mpi4py-{version}-tests"
    if not kept.exists():
        made = kept.with_name(f"{kept.name}.{os.getpid()}")
        made.mkdir(parents=True)
        try:
            pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "--retries=0", "download"]
            what = ["--no-deps", "--no-binary=mpi4py", "--no-build-isolation", "--dest", made, f"mpi4py=={version}"]
            done = subprocess.run([*pip, *what], capture_output=True, text=True, timeout=100)
            if done.returncode:
                pytest.skip(f"no package index gives mpi4py's source: {done.stderr.strip().splitlines()[-1:]}")
            with tarfile.open(next(made.glob("*.tar.gz"))) as archive:
                for member in archive:
                    if re.fullmatch(r"[^/]+/test/\w+\.py", member.name):
                        (made / Path(member.name).name).write_bytes(archive.extractfile(member).read())
            with contextlib.suppress(OSError):  # another run was faster
                made.rename(kept)
        finally:
            shutil.rmtree(made, ignore_errors=True)
    return kept


@pytest.mark.timeout(650)
@pytest.mark.parametrize("size", SIZES)
def test_mpi4pys_own_tests_are_right_or_refused(suite, size):
    done = subprocess.run(
        [sys.executable, SUITE, suite, str(size)], capture_output=True, text=True, timeout=600, cwd=ROOT
    )
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0, done.stderr[-2000:]
    assert [row for row in rows if row[1] == "wrong" and row[0] not in EXCUSED] == []
    counts = collections.Counter(outcome for _, outcome, _ in rows)
    assert counts["right"] >= RIGHT[size] and counts["refused"] <= REFUSED[size], counts
