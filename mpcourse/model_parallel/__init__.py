"""Model parallelism over ranks, as ChainerMN had it: messages and collective calls that autograd sees.

`point_to_point.py` is to be read first, then `chain_list.py`, which is made of it.
"""

from mpcourse.model_parallel.chain_list import MultiNodeChainList
from mpcourse.model_parallel.collective import all_to_all, allgather, allreduce, bcast
from mpcourse.model_parallel.point_to_point import pseudo_connect, recv, send

__all__ = ["MultiNodeChainList", "all_to_all", "allgather", "allreduce", "bcast", "pseudo_connect", "recv", "send"]
