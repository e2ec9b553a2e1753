"""An answer that puts its own functions in the place of a library's is refused."""

import builtins

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from mpcourse.course.check.replaced import refuse_replaced
from mpcourse.course.check.wrong import Wrong

PLACES = {
    "builtins.sum": (builtins, "sum"),
    "numpy.mean": (np, "mean"),
    "torch.split": (torch, "split"),
    "torch.nn.functional.linear": (F, "linear"),
    "torch.nn.Linear.forward": (nn.Linear, "forward"),
    "torch.Tensor.backward": (torch.Tensor, "backward"),
    "torch.optim.SGD.step": (torch.optim.SGD, "step"),
}


@pytest.mark.parametrize("name", PLACES)
def test_a_function_of_the_answer_in_the_place_of_a_librarys_is_named(name, monkeypatch):
    names = {}
    exec(compile("def mine(*args):\n    return args\n", "answer.py", "exec"), names)
    monkeypatch.setattr(*PLACES[name], names["mine"])
    with pytest.raises(Wrong, match=f"{name} to be left as it is"):
        refuse_replaced("answer.py")
    monkeypatch.undo()
    refuse_replaced("answer.py")
