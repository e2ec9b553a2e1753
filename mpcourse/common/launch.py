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

# The variable by which a launcher tells a process how many ranks there are. It is there before MPI starts, and it
# tells the truth even when the MPI behind mpi4py is another one than the launcher's.
SIZE_VARIABLES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE")
RANK_VARIABLES = ("PMI_RANK", "OMPI_COMM_WORLD_RANK")


@dataclass(frozen=True)
class Mpirun:
    """A launcher.

    path: where it is.
    implementation: "MPICH", "Open MPI", "Intel MPI" or "unknown".
    version: as it says itself.
    """

    path: str
    implementation: str
    version: str


def identify(text: str) -> tuple[str, str]:
    """Name and version of an MPI: ("MPICH", "4.2.3"), or ("unknown", "").

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
    """Path of mpirun: $MPCOURSE_MPIRUN, else the one beside this Python (a virtual environment's), else on PATH."""
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
    """The launcher in use. Raises UserError where there is none."""
    return _identified(find_mpirun())


def check_ranks(size: int) -> int:
    """`size` itself if it is a number of ranks that one machine can be asked for.

    size: ranks.
    Raises UserError unless it is from 1 to MAX_RANKS.
    """
    if not 1 <= size <= MAX_RANKS:
        raise UserError(f"-np {size}: the number of ranks must be between 1 and {MAX_RANKS} on one machine")
    return size


def mpirun_command(size: int, command: list[str]) -> list[str]:
    """The command line that starts ranks on this machine; run it in `rank_environment()`.

    size: ranks.
    command: what each of them runs, in words.
    Raises UserError for a number of ranks out of range, and where there is no mpirun.
    """
    return [mpirun().path, "-np", str(check_ranks(size)), *command]


def hosts_command(hosts: Sequence[str], command: list[str], each: int = 1) -> list[str]:
    """The command line that starts ranks on several hosts, by ssh; rank 0 is on the first.

    hosts: names.
    command: what each rank runs, in words.
    each: ranks of a host.
    Raises UserError where there is no mpirun.
    """
    launcher = mpirun()
    if launcher.implementation == "Open MPI":
        # Told to oversubscribe, as OVERSUBSCRIBE does, it would start all of them on the first.
        where = ["--host", ",".join(f"{host}:{each}" for host in hosts), "--map-by", f"ppr:{each}:node:oversubscribe"]
    else:  # Hydra's, MPICH's launcher; left alone it would ask a scheduler, where there is one
        where = ["-launcher", "ssh", "-hosts", ",".join(hosts), "-ppn", str(each)]
    return [launcher.path, *where, "-np", str(each * len(hosts)), *command]


def with_ssh(program: str) -> dict[str, str]:
    """The environment in which mpirun uses a program instead of ssh: MPICH's, Open MPI 5's, Open MPI 4's.

    program: its path.
    """
    return {name: program for name in ("HYDRA_LAUNCHER_EXEC", "PRTE_MCA_plm_ssh_agent", "OMPI_MCA_plm_rsh_agent")}


# Open MPI counts slots and refuses more ranks than cores, unless told; versions 5 and 4 each by a variable of its own.
OVERSUBSCRIBE = {"PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe", "OMPI_MCA_rmaps_base_oversubscribe": "1"}


def mpi_environment() -> dict[str, str]:
    """This process's environment, made so that a plain `mpirun -np 4 python ...` works in it."""
    environment = dict(os.environ)
    # Open MPI refuses to start as root without these two; a container's only user often is root.
    environment.setdefault("OMPI_ALLOW_RUN_AS_ROOT", "1")
    environment.setdefault("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
    environment = OVERSUBSCRIBE | environment
    # `python` in a command is this Python, and its mpirun comes first, though nothing was activated.
    environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), environment.get("PATH", os.defpath)])
    return environment


# By what UCX, which MPICH and Open MPI may use, reaches another rank on this machine. To try the network, too, takes a
# rank 20 ms when it starts.
ONE_MACHINE = {"UCX_TLS": "self,posix,sysv"}


def rank_environment(threads: int = 1, one_machine: bool = True) -> dict[str, str]:
    """The environment of ranks that the course starts itself.

    threads: of each rank, unless the user set it.
    one_machine: whether all of them are started on this one.
    """
    return {"OMP_NUM_THREADS": str(threads)} | (ONE_MACHINE if one_machine else {}) | mpi_environment()


def launched_size() -> int:
    """Number of ranks that the launcher says it started (1 where there is no launcher), without asking MPI."""
    return _from_environment(SIZE_VARIABLES, 1)


def launched_rank() -> int:
    """This process's rank as the launcher says it (0 where there is no launcher), without asking MPI."""
    return _from_environment(RANK_VARIABLES, 0)


def _from_environment(names: tuple[str, ...], otherwise: int) -> int:
    return next((int(os.environ[name]) for name in names if os.environ.get(name, "").isdigit()), otherwise)
