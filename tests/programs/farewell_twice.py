"""Rank 1 ends. Rank 0 is told, goes on all the same, and is told again."""

import re

from mpi4py import MPI

from mpcourse.data_parallel import create_communicator, evaluate
from mpcourse.virtual import RankFailed

comm = MPI.COMM_WORLD
communicator = create_communicator("flat", comm)
evaluate(communicator, 1, 2)
if comm.rank == 0:
    told = []
    for _ in range(2):
        try:
            evaluate(communicator, 1, 2)
        except RankFailed as error:
            told += re.findall("rank 1 has ended after 1 calls", str(error))
    print(*told, sep="; ", end="", flush=True)
