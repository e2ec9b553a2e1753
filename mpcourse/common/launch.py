"""Find `mpirun` and start ranks with it, whichever MPI is installed."""

import functools
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mpcourse.common.errors import SETUP, SETUP_MPICH, UserError

MAX_RANKS = 32  # a laptop's limit: each rank that imports torch takes about 250 MB

# The variables in which a launcher gives each process the number of ranks. They are set before MPI starts, and they are
# right even if mpi4py uses another MPI than the launcher's.
SIZE_VARIABLES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE")
RANK_VARIABLES = ("PMI_RANK", "OMPI_COMM_WORLD_RANK")


@dataclass(frozen=True)
class Mpirun:
    """A launcher of ranks.

    path: where it is.
    implementation: "MPICH", "Open MPI", "Intel MPI" or "unknown".
    version: as the launcher prints it.
    """

    path: str
    implementation: str
    version: str


def identify(text: str) -> tuple[str, str]:
    """Return name and version of an MPI: ("MPICH", "4.2.3"), or ("unknown", "").

    text: what `mpirun --version` or `MPI.Get_library_version()` prints.
    """
    for name, pattern in (
        ("Open MPI", r"Open MPI\)?\s+v?(\d[\w.]*)"),
        ("Intel MPI", r"Intel\(R\) MPI Library.*?(\d[\w.]*)"),
        ("MPICH", r"(?:MPICH Version|HYDRA build details:\s+Version):\s+(\d[\w.]*)"),
    ):
        if match := re.search(pattern, text):
            return name, match[1].rstrip(".")
    return "unknown", ""


def find_mpirun() -> str:
    """Return the path of mpirun: $MPCOURSE_MPIRUN, else mpirun beside this Python, else mpirun on PATH.

    Raises UserError where there is none.
    """
    asked = os.environ.get("MPCOURSE_MPIRUN")
    if asked:
        path = shutil.which(asked)
        if not path:
            raise UserError(
                f"MPCOURSE_MPIRUN is {asked!r}, which is not a program: unset it or give mpirun's full path"
            )
        return path
    path = shutil.which("mpirun", path=str(Path(sys.executable).parent)) or shutil.which("mpirun")
    if not path:
        raise UserError(
            f"mpirun was not found beside this Python nor on PATH: {SETUP} installs one (MPICH, as a wheel); "
            "on a cluster, load its MPI module first"
        )
    return path


@functools.cache
def _identified(path: str) -> Mpirun:
    try:
        done = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=20, stdin=subprocess.DEVNULL)
        text = done.stdout + done.stderr
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UserError(f"{path} does not run ({error}): reinstall MPI, {SETUP_MPICH}") from None
    return Mpirun(path, *identify(text))


def mpirun() -> Mpirun:
    """Return the launcher in use. Raises UserError where there is none."""
    return _identified(find_mpirun())


def check_ranks(size: int) -> int:
    """Return `size` if one machine can be asked for that many ranks.

    size: ranks.
    Raises UserError unless it is from 1 to MAX_RANKS.
    """
    if not 1 <= size <= MAX_RANKS:
        raise UserError(f"-np {size}: the number of ranks must be between 1 and {MAX_RANKS} on one machine")
    return size


def mpirun_command(size: int, command: list[str]) -> list[str]:
    """Return the command line that starts ranks on this machine. Run it in `rank_environment()`.

    size: ranks.
    command: what each of them runs, in words.
    Raises UserError for a number of ranks out of range, and where there is no mpirun.
    """
    return [mpirun().path, "-np", str(check_ranks(size)), *command]


def hosts_command(hosts: Sequence[str], command: list[str], each: int = 1) -> list[str]:
    """Return the command line that starts ranks on several hosts by ssh; rank 0 is on the first host.

    hosts: names.
    command: what each rank runs, in words.
    each: number of ranks on a host.
    Raises UserError where there is no mpirun.
    """
    launcher = mpirun()
    if launcher.implementation == "Open MPI":
        # With OVERSUBSCRIBE, Open MPI would start all ranks on the first host.
        where = ["--host", ",".join(f"{host}:{each}" for host in hosts), "--map-by", f"ppr:{each}:node:oversubscribe"]
    else:  # Hydra is MPICH's launcher. Without these options it would ask a scheduler, where there is one.
        where = ["-launcher", "ssh", "-hosts", ",".join(hosts), "-ppn", str(each)]
    return [launcher.path, *where, "-np", str(each * len(hosts)), *command]


def with_ssh(program: str) -> dict[str, str]:
    """Return variables that make mpirun use a program instead of ssh: for MPICH, Open MPI 5 and Open MPI 4.

    program: its path.
    """
    return {name: program for name in ("HYDRA_LAUNCHER_EXEC", "PRTE_MCA_plm_ssh_agent", "OMPI_MCA_plm_rsh_agent")}


# Open MPI refuses to start more ranks than there are cores unless a variable allows it; versions 5 and 4 differ in it.
OVERSUBSCRIBE = {"PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe", "OMPI_MCA_rmaps_base_oversubscribe": "1"}
# It refuses to start as root without these two, and the only user of a container often is root.
ALLOW_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def mpi_environment() -> dict[str, str]:
    """Return this process's environment, changed so that a plain `mpirun -np 4 python ...` works in it."""
    environment = dict(os.environ)
    environment = ALLOW_ROOT | OVERSUBSCRIBE | environment
    # `python` in a command means this Python, and its own mpirun comes first, even if no environment is activated.
    environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), environment.get("PATH", os.defpath)])
    return environment


# The ways in which UCX, which MPICH and Open MPI may use, reaches another rank on this machine. Trying the network as
# well takes a rank 20 ms at its start.
ONE_MACHINE = {"UCX_TLS": "self,posix,sysv"}


def rank_environment(threads: int = 1, one_machine: bool = True) -> dict[str, str]:
    """Return the environment of ranks that the course itself starts.

    threads: of each rank, unless the user has set OMP_NUM_THREADS.
    one_machine: whether all ranks start on this machine.
    """
    return {"OMP_NUM_THREADS": str(threads)} | (ONE_MACHINE if one_machine else {}) | mpi_environment()


def launched_size() -> int:
    """Return the number of ranks that the launcher says it started, or 1 without a launcher. MPI is not asked."""
    return _from_environment(SIZE_VARIABLES, 1)


def launched_rank() -> int:
    """Return the rank that the launcher gave this process, or 0 without a launcher. MPI is not asked."""
    return _from_environment(RANK_VARIABLES, 0)


def _from_environment(names: tuple[str, ...], otherwise: int) -> int:
    return next((int(os.environ[name]) for name in names if os.environ.get(name, "").isdigit()), otherwise)
