"""Model parallelism over ranks, as in ChainerMN: messages and collective calls that autograd sees.

Read `point_to_point.py` first, then `chain_list.py`, which builds on it.

    import torch
    from mpcourse.model_parallel import recv, send
    from mpcourse.virtual import run

    def program(comm):  # under mpirun the same works with mpi4py's MPI.COMM_WORLD
        if comm.rank == 0:
            x = torch.ones(3, requires_grad=True)
            send(2 * x, comm, 1).backward()  # waits for the gradient of what was sent
            return x.grad
        recv(comm, 0).square().sum().backward()  # sends it back

    print(run(program, 2).results)  # rank 0 has the gradient, 8 everywhere
"""

from mpcourse.model_parallel.chain_list import MultiNodeChainList
from mpcourse.model_parallel.collective import all_to_all, allgather, allreduce, bcast
from mpcourse.model_parallel.point_to_point import pseudo_connect, recv, send

__all__ = ["MultiNodeChainList", "all_to_all", "allgather", "allreduce", "bcast", "pseudo_connect", "recv", "send"]
