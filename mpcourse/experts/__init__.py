"""Mixture of experts: each token uses a few of many feed-forward networks, which are spread over ranks.

Read `routing.py` first, then `dispatch.py` and `mixture.py`.

    import torch
    from mpcourse.experts import Mixture
    from mpcourse.virtual import run

    def program(comm):  # under mpirun the same works with mpi4py's MPI.COMM_WORLD
        torch.manual_seed(0)
        layer = Mixture(comm, width=8, hidden=16, number=4)
        mixed = layer(torch.randn(10, 8))
        return mixed.out.shape, layer.experts.first.shape

    print(run(program, 2).results[0])
"""

from mpcourse.experts.dispatch import exchange, exchange_counts
from mpcourse.experts.mixture import Experts, Mixed, Mixture, average_gradients
from mpcourse.experts.routing import Routing, balance_loss, room_for, route
from mpcourse.experts.transformer import MixtureBlock, MixtureGPT

__all__ = [
    "Experts",
    "Mixed",
    "Mixture",
    "MixtureBlock",
    "MixtureGPT",
    "Routing",
    "average_gradients",
    "balance_loss",
    "exchange",
    "exchange_counts",
    "room_for",
    "route",
]
