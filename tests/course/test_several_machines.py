"""The guide to several machines: every command in it that can run on hosts of namespaces is run there."""

import re
import shlex
from pathlib import Path

import pytest

from mpcourse.common import launch
from mpcourse.course.check.verdict import clean
from mpcourse.course.doctor.hosts import INTERFACE, PORTS
from tests.conftest import ROOT
from tests.hosts import PASSWORD, Host, hosts, not_allowed
from tests.hosts_forks import forks
from tests.hosts_slurm import MISSING, slurm

GUIDE = (ROOT / "docs/several_machines.md").read_text()
BLOCKS = re.findall(r"^```(\S+)\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)
OURS = {"MPICH": "mpich", "Open MPI": "openmpi"}.get(launch.mpirun().implementation, "other")
on_hosts = pytest.mark.skipif(bool(not_allowed()), reason=not_allowed())


def blocks(*kinds: str) -> list[str]:
    """Return the guide's blocks of these kinds, in their order."""
    return [text for kind, text in BLOCKS if kind in kinds]


def try_block(host: Host, block: str, folder: Path, environment: dict[str, str]) -> tuple[bool, str]:
    """Whether a block, run as a script on `host` in `folder`, does and prints what it says; what it printed."""
    given = [f"{name}={value}" for name, value in environment.items()]
    done = host.run("env", "-C", folder, *given, "sh", "-e", "-c", block, timeout=150)
    printed = clean(done.stdout) + done.stderr
    expected = re.findall(r"^\S.* {2,}# (.*)$", block, re.MULTILINE)
    return done.returncode == 0 and all(text in printed for text in expected), f"{block}\n{printed}"


@pytest.fixture
def environment():
    """As after `source .venv/bin/activate`, by a user who is root, as in a container."""
    allowed = {name: "1" for name in ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM")}
    return allowed | {"PATH": launch.rank_environment()["PATH"], "PYTHONUNBUFFERED": ""}


def test_every_block_of_the_guide_is_of_a_kind_that_is_run_or_needs_another_root():
    kinds = {kind for kind, _ in BLOCKS}
    assert kinds == {"sh", "mpich", "openmpi", "root", "slurm", "slurm-mpich", "slurm-openmpi"}
    assert GUIDE.count("```") == 2 * len(BLOCKS)
    assert not [text for kind, text in BLOCKS if "sudo" in text and kind != "root"]


def test_the_guide_and_the_doctor_name_the_same_cures():
    assert all(f"{setting}=eth0" in GUIDE for setting in INTERFACE.values())
    assert all(setting in GUIDE for settings in PORTS.values() for setting in settings.split())


@pytest.mark.timeout(400)
@pytest.mark.ranks
@on_hosts
def test_every_step_of_the_guide_prints_what_it_says(tmp_path, environment):
    with hosts(2) as (a, b), forks([a, b]) as found:
        (a.home / ".ssh/id_ed25519").unlink()  # the guide makes one, and takes it to b
        asked = a.folder / "askpass"
        asked.write_text(f"#!/bin/sh\necho {shlex.quote(PASSWORD)}\n")
        asked.chmod(0o700)
        environment |= found | {"SSH_ASKPASS": str(asked), "SSH_ASKPASS_REQUIRE": "force"}
        (b.home / ".bashrc").write_text(f"PATH={environment['PATH']}\ncase $- in *i*) ;; *) return;; esac\n")
        doctor, *steps = blocks("sh", OURS)
        assert not try_block(a, doctor, tmp_path, environment)[0]
        for step in (*steps, doctor):
            well, printed = try_block(a, step, tmp_path, environment)
            assert well, printed


@pytest.mark.ranks
@pytest.mark.skipif(bool(MISSING), reason=f"{', '.join(MISSING)} not found: apt-get install slurmctld slurmd munge")
@on_hosts
def test_slurm_starts_ranks_as_the_guide_says(tmp_path, environment):
    with hosts(2) as nodes, slurm(nodes) as found:
        environment |= found
        (job,), (direct,) = blocks("slurm"), blocks(f"slurm-{OURS}")
        well, printed = try_block(nodes[0], job, tmp_path, environment)
        assert well, printed
        well, printed = try_block(nodes[0], direct, tmp_path, environment)
        if OURS == "openmpi" and "Invalid MPI type" in printed:
            pytest.skip("mpirun works, but this SLURM was built without PMIx: apt-get install libpmix-dev")
        assert well, printed
