"""SLURM on the hosts of a test: a controller on the first of them, and all of them its nodes."""

import contextlib
import os
import shutil
import time
from collections.abc import Iterator, Sequence

from tests.hosts import Host, NotMade

WHERE = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin"))
TOOLS = {name: shutil.which(name, path=WHERE) for name in ("munged", "slurmctld", "slurmd", "srun", "sbatch")}
MISSING = [name for name, path in TOOLS.items() if not path]

# Nothing that needs control groups, which a container may not have. TmpFS: sockets in it are named by the job alone.
CONFIGURATION = """
ClusterName=test
SlurmctldHost={controller}
SlurmUser=root
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
TmpFS=/run
NodeName={names} CPUs=2 RealMemory=100 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES State=UP
"""


@contextlib.contextmanager
def slurm(nodes: Sequence[Host]) -> Iterator[dict[str, str]]:
    """Start it; the environment in which its commands find it. It ends with the hosts."""
    folder = nodes[0].keys / "slurm"
    (folder / "state").mkdir(parents=True)
    names = ",".join(node.name for node in nodes)
    (folder / "slurm.conf").write_text(CONFIGURATION.format(controller=nodes[0].name, folder=folder, names=names))
    (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
    key = folder / "munge.key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o600)
    environment = {"SLURM_CONF": str(folder / "slurm.conf")}
    given = f"export SLURM_CONF={environment['SLURM_CONF']}; "
    for node in nodes:
        own = f"--seed-file={node.folder}/seed --log-file={node.folder}/munge.log --pid-file=/run/munge.pid"
        node.do(f"mkdir /run/munge && {TOOLS['munged']} --force --key-file={key} {own}")
    nodes[0].do(given + str(TOOLS["slurmctld"]))
    for node in nodes:
        node.do(f"{given}{TOOLS['slurmd']} -N {node.name}")
    deadline = time.monotonic() + 30
    while nodes[0].do(f"{given}sinfo --noheader --Node --format=%t").split() != ["idle"] * len(nodes):
        if time.monotonic() > deadline:
            raise NotMade(f"SLURM's nodes are not ready: {nodes[0].do(f'{given}sinfo --Node')}")
        time.sleep(0.2)
    yield environment
