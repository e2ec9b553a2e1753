"""Tensor parallelism: each rank has a part of every layer, and all ranks compute one training step together.

Read `mappings.py` first, then `linear.py`, `layers.py`, `vocabulary.py` and `transformer.py`.

    import torch
    from mpcourse.models.gpt import SMALL
    from mpcourse.tensor_parallel import parallel_gpt, vocabulary_loss
    from mpcourse.virtual import run

    def program(comm):  # under mpirun the same works with mpi4py's MPI.COMM_WORLD
        model = parallel_gpt(SMALL, comm)
        tokens = torch.arange(64).reshape(2, 32)
        loss = vocabulary_loss(comm, model(tokens), tokens.T, SMALL.vocabulary)
        loss.backward()
        return loss.item()

    print(run(program, 2).results)
"""

from mpcourse.collectives.tensors import own_rows
from mpcourse.tensor_parallel.devices import over_devices
from mpcourse.tensor_parallel.layers import ParallelAttention, ParallelMLP
from mpcourse.tensor_parallel.linear import ColumnParallelLinear, RowParallelLinear
from mpcourse.tensor_parallel.mappings import copy_in, gather_in, scatter_out, sum_out
from mpcourse.tensor_parallel.parts import (
    ParallelLayer,
    load_whole_state,
    sharded_parameters,
    sum_partial_gradients,
    whole_state,
)
from mpcourse.tensor_parallel.random_numbers import Generators, dropout
from mpcourse.tensor_parallel.recompute import recompute
from mpcourse.tensor_parallel.transformer import Options, ParallelBlock, parallel_gpt
from mpcourse.tensor_parallel.vocabulary import VocabularyEmbedding, vocabulary_loss

__all__ = [
    "ColumnParallelLinear",
    "Generators",
    "Options",
    "ParallelAttention",
    "ParallelBlock",
    "ParallelLayer",
    "ParallelMLP",
    "RowParallelLinear",
    "VocabularyEmbedding",
    "copy_in",
    "dropout",
    "gather_in",
    "load_whole_state",
    "over_devices",
    "own_rows",
    "parallel_gpt",
    "recompute",
    "scatter_out",
    "sharded_parameters",
    "sum_out",
    "sum_partial_gradients",
    "vocabulary_loss",
    "whole_state",
]
