"""The picture of a training step's copies: each beside the copy that its gradient takes back."""

import matplotlib
import pytest
import torch

from mpcourse import plot
from mpcourse.plot.copies import twins
from mpcourse.split import copy
from mpcourse.virtual import virtual_gpus

matplotlib.use("agg")


def step(trained):
    """Copy x to vgpu:1 and on to vgpu:2. `trained`: it requires a gradient, else what is multiplied with it does."""
    with virtual_gpus(3) as box:
        x = torch.ones(4, device="vgpu:0", requires_grad=trained)
        w = torch.ones(4, device="vgpu:1", requires_grad=True)
        copy(copy(x, "vgpu:1") * w, "vgpu:2").sum().backward()
        return [e for e in box.events if e.kind == "copy"]


def test_each_copy_has_the_one_that_its_gradient_takes():
    both = [(e.lane, back and back.lane) for e, back in twins(step(True))]
    assert both == [("vgpu:0 -> vgpu:1", "vgpu:1 -> vgpu:0"), ("vgpu:1 -> vgpu:2", "vgpu:2 -> vgpu:1")]


def test_a_copy_whose_gradient_nobody_needs_has_none():
    assert [back and back.lane for _, back in twins(step(False))] == [None, "vgpu:2 -> vgpu:1"]


def test_it_is_drawn_and_told_in_words():
    made = plot.copies(step(False), "one has none")
    told = [text.get_text() for text in made.axes[0].texts]
    assert "none for 1" in told and "back of 2" in told and "vgpu:2" in told
    with pytest.raises(ValueError, match="no copies"):
        plot.copies([e for e in step(True) if e.phase == "backward"], "nothing")
