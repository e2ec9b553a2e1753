"""Through how few functions a reader follows an array, or a model, in what the lessons show of the library."""

import sys

import numpy as np
import torch
from torch import nn

from mpcourse.collectives import ring_allreduce
from mpcourse.data_parallel.communicator import Communicator
from mpcourse.data_parallel.nodes import nodes_of
from mpcourse.virtual import run
from tests.conftest import ROOT

LIBRARY, CLUSTER = str(ROOT / "mpcourse"), str(ROOT / "mpcourse" / "virtual")


def followed(call, is_it):
    """Return the functions of the library that get what `is_it` recognises while `call` runs, without a rank's MPI.

    They are counted as this thread calls them: how long anything takes does not matter.
    """
    names = {}

    def look(frame, event, _):
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(LIBRARY) and not code.co_filename.startswith(CLUSTER):
            count = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & 4) + bool(code.co_flags & 8)
            if any(is_it(frame.f_locals.get(name)) for name in code.co_varnames[:count]):
                names[code.co_qualname] = None

    sys.setprofile(look)
    try:
        call()
    finally:
        sys.setprofile(None)
    return list(names)


def test_the_array_of_a_ring_all_reduce_is_given_to_four_functions_at_most():
    def program(comm):
        x = np.ones(10)
        return followed(
            lambda: ring_allreduce(comm, x),
            lambda a: isinstance(a, np.ndarray) and a.size == x.size and np.shares_memory(a, x),
        )

    for names in run(program, 3).results:
        assert names[0] == "ring_allreduce" and 1 < len(names) <= 4, names


def test_a_model_whose_gradients_are_averaged_is_given_to_six_functions_at_most():
    def program(comm):
        model = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))
        parameters = {id(p) for p in model.parameters()}
        communicator = Communicator(comm, nodes_of(comm))
        model(torch.ones(5, 4)).sum().backward()

        def is_it(a):
            """Return the model, a parameter, or a list or dictionary of them."""
            if isinstance(a, list | tuple | dict):
                return any(map(is_it, a.values() if isinstance(a, dict) else a))
            return a is model or id(a) in parameters

        return followed(lambda: communicator.mean_gradients(model), is_it)

    for names in run(program, 2).results:
        assert names[0] == "Communicator.mean_gradients" and 1 < len(names) <= 6, names
