"""Ranks that tell where they are; where there are two, they play ping-pong: `mpirun -hosts a,b python hosts_ranks.py`.

Hosts may share no folder, so each rank prints. A line is written in one piece and carries a tag, as the lines of
several ranks, and what a login shell prints, can run into each other.
"""

import json
import os
import re
import socket
import sys
from typing import Any

TAG = "mpcourse-rank "


def read_facts(output: str) -> list[dict[str, Any]]:
    """Return what ranks have written to `output`, in any order."""
    return [json.loads(text) for text in re.findall(rf"{TAG}(\{{.*?\}})", output)]


def write_facts(**facts: object) -> None:
    """Write a line that `read_facts` finds in the output of all ranks."""
    os.write(sys.stdout.fileno(), f"{TAG}{json.dumps(facts)}\n".encode())


def main() -> None:
    """Write this rank's host and number, and then measure, with two ranks, what a message takes.

    The first line is written before this rank waits for any other, but MPI_Init may have waited.
    """
    from mpi4py import MPI

    from mpcourse.course.doctor.ranks import LARGE, SMALL, half_round_trip

    comm = MPI.COMM_WORLD
    write_facts(rank=comm.rank, size=comm.size, host=socket.gethostname())
    if comm.size != 2:
        return
    small = half_round_trip(comm, SMALL, at_most=2000, seconds=0.3)
    large = half_round_trip(comm, LARGE, at_most=50, seconds=0.5)
    if comm.rank == 0:
        write_facts(latency=small, bandwidth=LARGE / large)


if __name__ == "__main__":
    main()
