"""What programs for GPUs say works in a box as on CUDA, with the CPU's values, or is refused in a line that helps."""

import importlib.util
import io
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from mpcourse.virtual import virtual_gpus

PROGRAM = Path(__file__).parents[1] / "programs" / "idioms.py"
spec = importlib.util.spec_from_file_location("idioms", PROGRAM)
idioms = importlib.util.module_from_spec(spec)
spec.loader.exec_module(idioms)
IDIOMS, WORKS = idioms.IDIOMS, idioms.WORKS


def agrees(said, expected):
    return said == WORKS if expected == WORKS else expected in said and "\n" not in said.split("\n  vgpu:")[0]


@pytest.mark.parametrize("name", IDIOMS)
def test_an_idiom_gives_the_cpus_values_or_is_refused_in_one_line(name):
    program, expected, _ = IDIOMS[name]
    with virtual_gpus(2) as box:
        said, found = idioms.says(program, "vgpu:0")
        assert agrees(said, expected), said
        assert all(t.device in box.devices for t in found)
        found = [t.cpu() for t in found]
    if expected == WORKS:
        plainly, wanted = idioms.says(program, "cpu")
        assert plainly == WORKS and len(found) == len(wanted) > 0
        assert all(torch.equal(a, b) for a, b in zip(wanted, found, strict=True)), (wanted, found)


@pytest.mark.parametrize("name", IDIOMS)
def test_an_idiom_without_data_has_the_cpus_shapes_or_is_refused_in_one_line(name):
    program, _, expected = IDIOMS[name]
    with warnings.catch_warnings(), virtual_gpus(2, dry=True):
        warnings.simplefilter("ignore")  # that zeros stand in
        said, found = idioms.says(program, "vgpu:0")
        assert agrees(said, expected), said
        shapes = [(t.shape, t.dtype) for t in found]
    if expected == WORKS:
        assert shapes == [(t.shape, t.dtype) for t in idioms.says(program, "cpu")[1]]


def test_f_strings_name_the_device_as_repr_does():
    with virtual_gpus(2):
        x = torch.arange(2.0, device="vgpu:1")
        assert f"{x}" == "{}".format(x) == str(x) == repr(x) == "tensor([0., 1.], device='vgpu:1')"  # noqa: UP032
        assert (f"{x[1]}", f"{x[1]:.2f}") == ("1.0", "1.00")  # a number, as torch has it
        assert "device='vgpu:1'" in f"{nn.Parameter(x)}"


def test_dlpack_hands_out_no_data_of_a_device():
    with virtual_gpus(1):
        x = torch.ones(2, device="vgpu:0")
        for read in (np.from_dlpack, torch.from_dlpack, lambda t: t.__dlpack__(), torch.utils.dlpack.to_dlpack):
            with pytest.raises((BufferError, RuntimeError), match=r"Tensor\.cpu\(\)"):
                read(x)
        assert np.from_dlpack(x.cpu()).tolist() == np.from_dlpack(torch.ones(2)).tolist() == [1, 1]


def test_a_box_can_answer_to_cuda():
    assert not torch.cuda.is_available()
    with virtual_gpus(2, as_cuda=True):
        assert torch.cuda.is_available() and torch.cuda.device_count() == 2
        assert torch.cuda.get_device_name(1) == "Tesla P100-SXM2"
        x = torch.ones(3, device="cuda:1")
        assert x.device == torch.device("cuda:1") and x.is_cuda and x.type() == "torch.cuda.FloatTensor"
        assert repr(x) == "tensor([1., 1., 1.], device='cuda:1')"
        assert torch.ones(1).cuda().get_device() == 0 and torch.ones(1).cuda(1).get_device() == 1
        assert torch.ones(1).to("cuda").get_device() == torch.zeros_like(x, device="cuda:0").get_device() == 0
        with torch.device("cuda:1"):
            assert torch.ones(1).device == torch.device("cuda:1")
        torch.cuda.set_device(1)
        assert torch.ones(1, device="cuda").device == torch.tensor([1], device="cuda").device == x.device
        with pytest.raises(RuntimeError, match="found at least two devices, cuda:1 and cuda:0!"):
            x + torch.ones(3, device="cuda:0")
        with pytest.raises(TypeError, match="can't convert cuda:1 device type tensor to numpy"):
            x.numpy()
        file = io.BytesIO()
        torch.save(x, file)
    assert not torch.cuda.is_available()
    file.seek(0)
    assert torch.load(file, map_location="cpu").tolist() == [1, 1, 1]


def test_a_program_that_names_cuda_trains_to_the_cpus_bits():
    def train(device):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.1), nn.Linear(4, 2)).to(device)
        optimizer = torch.optim.AdamW(model.parameters())
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.randn(5, 3).to(device)).square().mean().backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            optimizer.step()
        return [p.detach().cpu() for p in model.parameters()]

    with virtual_gpus(1, as_cuda=True):
        found = train("cuda")
    assert all(torch.equal(a, b) for a, b in zip(train("cpu"), found, strict=True))


def test_what_was_compiled_before_runs_operation_by_operation():
    double = torch.compile(lambda t: t * 2, backend="eager")
    with virtual_gpus(1) as box:
        y = double(torch.ones(3, device="vgpu:0"))
        assert y.device == box.devices[0] and y.tolist() == [2, 2, 2]
