"""Context parallelism: ranks share the tokens of a sequence, and each computes attention to the keys of all.

Read `blocks.py` first, then `tokens.py`, `ring.py`, `gather.py` and `ulysses.py`.

    import torch
    from mpcourse.context_parallel import SharedSequence, ring_attention
    from mpcourse.virtual import run

    def program(comm):  # under mpirun the same works with mpi4py's MPI.COMM_WORLD
        tokens = SharedSequence(comm, 32, "zigzag")
        torch.manual_seed(0)
        q, k, v = (tokens.own(torch.randn(1, 4, 32, 8), 2) for _ in range(3))
        return tokens.whole(ring_attention(tokens, q, k, v), 2)

    print(run(program, 4).results[0].shape)
"""

from mpcourse.collectives.tensors import sum_gradients
from mpcourse.context_parallel.blocks import block, block_backward, blockwise_attention, merge
from mpcourse.context_parallel.gather import gathered_attention
from mpcourse.context_parallel.loss import mean_token_loss
from mpcourse.context_parallel.ring import ring_attention
from mpcourse.context_parallel.tokens import LAYOUTS, SharedSequence, contiguous, striped, zigzag
from mpcourse.context_parallel.transformer import ContextGPT
from mpcourse.context_parallel.ulysses import ulysses_attention

__all__ = [
    "LAYOUTS",
    "ContextGPT",
    "SharedSequence",
    "block",
    "block_backward",
    "blockwise_attention",
    "contiguous",
    "gathered_attention",
    "mean_token_loss",
    "merge",
    "ring_attention",
    "striped",
    "sum_gradients",
    "ulysses_attention",
    "zigzag",
]
