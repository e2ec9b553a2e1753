"""Virtual GPUs answer and refuse as real ones do."""

import threading
import warnings

import numpy as np
import pytest
import torch
from torch import nn

from mpcourse.common.errors import UserError
from mpcourse.models import mlp
from mpcourse.virtual import GPUS, devices, virtual_gpus


@pytest.fixture
def box():
    with virtual_gpus(2) as made:
        yield made


def on(device, *shape):
    return torch.ones(*shape or (3,), device=device)


def test_a_tensor_knows_its_device(box):
    x = on("vgpu:1")
    assert x.device == torch.device("vgpu:1") and x.get_device() == 1
    assert not x.is_cpu and not x.is_cuda
    assert torch.ones(1).device == torch.device("cpu") and torch.ones(1).is_cpu
    assert x.view(3, 1).device == x[1:].device == x.detach().device == (x + 1).device == x.device
    assert torch.zeros_like(x).device == x.new_empty(2).device == x.device
    assert torch.zeros_like(x, device="cpu").is_cpu
    assert torch.tensor([1, 2], device="vgpu:1").device == torch.as_tensor([1.0], device=x.device).device == x.device
    assert "device='vgpu:1'" in repr(x)


@pytest.mark.parametrize(
    ("arguments", "keywords"),
    [
        (("vgpu:1",), {}),
        ((torch.device("vgpu", 1),), {}),
        ((1,), {}),
        ((), {"device": "vgpu:1"}),
        (("vgpu:1", torch.float64), {}),
        (("vgpu:1",), {"dtype": torch.float64, "non_blocking": True}),
    ],
)
def test_to_takes_what_torch_takes(box, arguments, keywords):
    y = torch.arange(3.0).to(*arguments, **keywords)
    assert y.device == torch.device("vgpu:1") and y.tolist() == [0, 1, 2]
    assert (y.dtype == torch.float64) == (torch.float64 in (*arguments, *keywords.values()))


def test_to_another_tensor_takes_its_device_and_dtype(box):
    other = torch.ones(1, device="vgpu:1", dtype=torch.float64)
    assert (torch.ones(2).to(other).device, torch.ones(2).to(other).dtype) == (other.device, other.dtype)


def test_to_where_it_is_already_copies_nothing(box):
    x = on("vgpu:0")
    box.reset()
    assert x.to("vgpu:0") is x and x.to(x.device, x.dtype) is x and torch.ones(1).cpu().is_cpu
    assert not box.copies
    copied = x.to("vgpu:0", copy=True)
    assert copied is not x and copied.data_ptr() != x.data_ptr()


def test_a_change_of_dtype_stays_on_the_device(box):
    assert on("vgpu:1").to(torch.float64).device == on("vgpu:1").double().device == torch.device("vgpu:1")
    assert on("vgpu:1").to(torch.float64).dtype == torch.float64


def test_a_plain_vgpu_is_the_current_device(box):
    assert torch.ones(1, device="vgpu").device.index == 0
    with torch.vgpu.device(1):
        assert torch.ones(1).to("vgpu").device.index == 1
    assert torch.vgpu.current_device() == 0
    torch.vgpu.set_device("vgpu:1")
    assert torch.ones(1).to("vgpu").device.index == 1


def test_a_module_moves_as_a_whole_and_in_parts(box):
    model = mlp([4, 5, 6, 2])
    assert model.to("vgpu:1") is model
    assert {p.device.index for p in model.parameters()} == {1}
    model[1].to("vgpu:0")
    assert [p.device.index for p in model.parameters()] == [0, 0, 1, 1, 1, 1]
    assert {p.device.type for p in model.cpu().parameters()} == {"cpu"}


def test_a_module_moves_with_its_gradients(box):
    layer = nn.Linear(2, 3)
    layer(torch.ones(1, 2)).sum().backward()
    layer.to("vgpu:1")
    assert layer.weight.grad.device == torch.device("vgpu:1") and layer.weight.grad.tolist() == [[1, 1]] * 3
    assert layer.bias.grad.device == torch.device("vgpu:1")
    assert box.ledger.kinds(1) == {"parameters": 36, "gradients": 36}


def test_the_default_device_can_be_a_virtual_one(box):
    with torch.device("vgpu:1"):
        assert nn.Linear(2, 3).weight.device == torch.ones(2).device == torch.device("vgpu:1")


@pytest.mark.parametrize(
    ("operation", "method"),
    [
        (lambda a, b: a + b, None),
        (lambda a, b: a.mul_(b), None),
        (lambda a, b: torch.where(a > 0, a, b), None),
        (lambda a, b: torch.nn.functional.mse_loss(a, b), None),
        (lambda a, b: a @ b, "mm"),
        (lambda a, b: torch.cat([a, b]), "cat"),
        (lambda a, b: torch.nn.functional.linear(a, b), "mm"),
        (lambda a, b: torch.nn.functional.cross_entropy(a, b[0].long()), "nll_loss_forward"),
        (lambda a, b: torch.nn.functional.layer_norm(a, (3,), b[0]), "native_layer_norm"),
    ],
)
@pytest.mark.parametrize("second", ["vgpu:1", "cpu"])
def test_mixed_devices_are_refused_in_torchs_words(box, operation, method, second):
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device, but") as caught:
        operation(on("vgpu:0", 3, 3), on(second, 3, 3))
    text = str(caught.value)
    if method is None:
        first, other = sorted(["vgpu:0", second], key=text.index)
        assert f"but found at least two devices, {first} and {other}!" in text
    else:
        assert f"is on {second}, different from other tensors on vgpu:0" in text and f"_{method})" in text
    assert "test_devices.py:" in text  # where the tensors come from


def test_a_number_from_the_cpu_may_mix(box):
    x = on("vgpu:0")
    assert (x * torch.tensor(2.0)).tolist() == [2, 2, 2]
    with pytest.raises(RuntimeError, match="same device"):
        x * torch.tensor(2.0, device="vgpu:1")  # a number on another GPU may not


def test_indices_may_be_on_the_cpu_as_on_cuda(box):
    x = torch.arange(4.0, device="vgpu:0")
    assert x[torch.tensor([1, 3])].tolist() == [1, 3]
    assert x[torch.tensor([True, False, False, True])].tolist() == [0, 3]
    x[torch.tensor([0])] = 9
    assert x[0].item() == 9
    with pytest.raises(RuntimeError, match="same device"):
        x[torch.tensor([1], device="vgpu:1")]


def test_a_forgotten_copy_at_a_cut_is_refused(box):
    model = mlp([4, 5, 2])
    model[1].to("vgpu:0")
    model[3].to("vgpu:1")
    with pytest.raises(RuntimeError, match=r"mat1 is on vgpu:0, different from other tensors on vgpu:1"):
        model(on("vgpu:0", 2, 4))


class NoWayBack(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.detach().to("vgpu:1")

    @staticmethod
    def backward(ctx, gradient):
        return gradient


def test_a_copy_whose_backward_forgets_the_way_back_is_refused_in_backward(box):
    layer = nn.Linear(3, 3).to("vgpu:0")
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        NoWayBack.apply(layer(on("vgpu:0", 2, 3)).tanh()).sum().backward()


def test_a_gradient_on_another_device_than_its_leaf_is_refused_when_it_is_read(box):
    x = on("vgpu:0").requires_grad_()
    NoWayBack.apply(x).sum().backward()
    with pytest.raises(RuntimeError, match="invalid gradient, expected device vgpu:0"):
        _ = x.grad


def test_the_gradient_of_a_copy_comes_back(box):
    x = on("vgpu:0").requires_grad_()
    (x.to("vgpu:1") * 2).cpu().sum().backward()
    assert x.grad.device == x.device and x.grad.tolist() == [2, 2, 2]
    assert [e.lane for e in box.copies] == [
        "vgpu:0 -> vgpu:1",
        "vgpu:1 -> cpu",
        "cpu -> vgpu:1",
        "vgpu:1 -> vgpu:0",
    ]


def test_numpy_is_refused_in_torchs_words_until_the_tensor_is_on_the_cpu(box):
    x = on("vgpu:0")
    message = "can't convert vgpu:0 device type tensor to numpy. Use Tensor.cpu()"
    for read in (x.numpy, lambda: np.asarray(x)):
        with pytest.raises(TypeError, match=message):
            read()
    assert x.cpu().numpy().tolist() == [1, 1, 1]


def test_torch_vgpu_speaks_as_torch_cuda_does(box):
    assert torch.vgpu.is_available() and torch.vgpu.device_count() == 2
    assert torch.vgpu.get_device_name(1) == torch.vgpu.get_device_properties(1).name == "Tesla P100-SXM2"
    free, total = torch.vgpu.mem_get_info(0)
    assert total == GPUS["Tesla P100-SXM2"].memory and total - free == GPUS["Tesla P100-SXM2"].context
    start, end = torch.vgpu.Event(enable_timing=True), torch.vgpu.Event(enable_timing=True)
    start.record()
    on("vgpu:0", 1024, 1024) @ on("vgpu:0", 1024, 1024)
    end.record()
    assert not end.query()
    torch.vgpu.synchronize()
    assert end.query() and start.elapsed_time(end) > 1e3 * 2 * 1024**3 / 10.6e12
    with pytest.raises(ValueError, match="enable_timing"):
        torch.vgpu.Event().elapsed_time(end)
    with pytest.raises(ValueError, match="expected a vgpu device"):
        torch.vgpu.memory_allocated("cpu")


def test_devices_are_those_of_the_box(box):
    assert devices(2) == [torch.device("vgpu:0"), torch.device("vgpu:1")]
    assert devices(1) == [torch.device("vgpu:0")]
    with pytest.raises(RuntimeError, match=r"3 devices asked, but this box has vgpu:0, vgpu:1"):
        devices(3)


@pytest.mark.parametrize("make", [lambda: torch.ones(1, device="vgpu:7"), lambda: torch.ones(1).to("vgpu:7")])
def test_a_device_that_the_box_lacks(box, make):
    with pytest.raises(RuntimeError, match="invalid device ordinal: vgpu:7, but this box has vgpu:0, vgpu:1"):
        make()


def test_a_box_inside_a_box(box):
    with pytest.raises(RuntimeError, match="a box inside a box"), virtual_gpus(1):
        pass
    with pytest.raises(RuntimeError, match="entered already"), box:
        pass
    assert on("vgpu:1").device.index == 1  # the outer one goes on


def test_outside_of_a_box_there_is_none():
    for use in (
        lambda: torch.ones(1, device="vgpu:0"),
        lambda: torch.ones(1).to("vgpu:0"),
        lambda: devices(1),
        torch.vgpu.memory_allocated,
    ):
        with pytest.raises(RuntimeError, match=r"there is no box: `with virtual_gpus\(2\):`"):
            use()
    assert not torch.vgpu.is_available() and torch.vgpu.device_count() == 0


def test_torchs_profiler_works_where_there_is_no_box():
    with torch.profiler.profile() as profile:
        torch.ones(3) + 1
    assert "aten::add" in {row.key for row in profile.key_averages()}


def test_a_thread_has_no_box_until_it_enters_it(box):
    said = []

    def work():
        try:
            torch.ones(1, device="vgpu:0")
        except RuntimeError as error:
            said.append(str(error))
        with box.here():
            said.append(str(torch.ones(1, device="vgpu:1").device))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert said == ["this thread has no box: enter it here too, `with box.here():`", "vgpu:1"]


def test_a_tensor_of_a_box_that_was_left():
    with virtual_gpus(1) as box:
        x = on("vgpu:0")
    with virtual_gpus(1), pytest.raises(RuntimeError, match="on vgpu:0 of another box, which was left"):
        x + 1
    with box:  # the same one may be entered again, and remembers
        assert (x + 1).device == torch.device("vgpu:0")


def test_an_error_inside_leaves_no_box_behind():
    with pytest.raises(ZeroDivisionError), virtual_gpus(1):
        1 / 0  # noqa: B018
    with virtual_gpus(1):
        pass


def test_a_dry_box_has_no_values():
    with virtual_gpus(2, dry=True):
        x = on("vgpu:0").sum()
        for read in (x.tolist, lambda: bool(x > 0), x.long().item, x.cpu().tolist):
            with pytest.raises(RuntimeError, match=r"at test_devices.py:\d+: a dry box holds no data"):
                read()
        with pytest.warns(UserWarning, match=r"item\(\) at test_devices.py:\d+ is 0 instead of its value"):
            assert x.item() == 0.0
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # it was said once
            assert (float(x), x.cpu().item(), f"{x:.1f}") == (0.0, 0.0, "0.0")
        with pytest.raises(RuntimeError, match="a dry box holds no data"):
            torch.zeros(()).copy_(x)
        assert "size=()" in repr(x) and "vgpu:0" in repr(x)


@pytest.mark.parametrize("dry", [False, True])
@pytest.mark.parametrize("dtype", [None, torch.float32, torch.int32])
@pytest.mark.parametrize(
    "bounds", [(7,), (7.5,), (True,), (0,), (0, 7, 2), (1, 9, 3), (3, -3, -1), (3, -3, -2.5), (1, 2, 0.1), (2, 2)]
)
def test_a_range_is_as_long_as_torchs(dry, dtype, bounds):
    want = torch.arange(*bounds, dtype=dtype)
    with virtual_gpus(1, dry=dry):
        got = torch.arange(*bounds, dtype=dtype, device="vgpu:0")
        assert (got.shape, got.dtype, got.device.index) == (want.shape, want.dtype, 0)


@pytest.mark.parametrize("dry", [False, True])
def test_a_range_that_cannot_be(dry):
    with virtual_gpus(1, dry=dry):
        with pytest.raises(RuntimeError, match="step must be nonzero"):
            torch.arange(0, 1, 0, device="vgpu:0")
        with pytest.raises(RuntimeError, match="inconsistent with step sign"):
            torch.arange(3, 1, device="vgpu:0")
        with pytest.raises(torch.OutOfMemoryError, match=r"745.06 GiB asked"):
            torch.arange(10**11, device="vgpu:0")


@pytest.mark.parametrize(
    ("arguments", "keywords", "error", "message"),
    [
        ((2, "P100"), {}, UserError, r"unknown GPU 'P100'.*'Tesla P100-SXM2'"),
        ((2, "GTX 1080 TI"), {}, UserError, r"did you mean 'GTX 1080 Ti'\?"),
        ((2,), {"link": "NVLink"}, UserError, r"unknown link 'NVLink'.*'PCIe 3.0 x16'"),
        ((2,), {"host_link": "USB"}, UserError, "unknown link 'USB'"),
        ((0,), {}, ValueError, "one device or more, not 0"),
        ((3, ["Tesla P40", "GTX 1080"]), {}, ValueError, "3 devices need one spec for all or 3 specs, not 2"),
    ],
)
def test_bad_input_is_told(arguments, keywords, error, message):
    with pytest.raises(error, match=message):
        virtual_gpus(*arguments, **keywords)


def test_meta_tensors_are_what_they_are_beside_a_box(box):
    with torch.device("meta"):
        x, norm = torch.tensor([1.0, 2.0], requires_grad=True), nn.BatchNorm1d(3)
    assert x.device.type == norm.num_batches_tracked.device.type == torch.as_tensor([1], device="meta").device.type
    assert x.device.type == "meta" and x.is_meta and not x.is_cpu and x.requires_grad
    assert {t.device for t in norm.to_empty(device="vgpu:1").state_dict().values()} == {torch.device("vgpu:1")}


def test_devices_may_differ():
    with virtual_gpus(2, ["Tesla P40", "GTX 1080"]):
        assert [torch.vgpu.get_device_name(i) for i in (0, 1)] == ["Tesla P40", "GTX 1080"]


def test_vmap_runs_in_a_dry_box_that_assumes_values_and_its_result_is_on_the_device():
    with virtual_gpus(1, dry=True) as box:
        box.assumes = True
        x, mask = torch.ones(3, 4, device="vgpu:0"), torch.ones(3, device="vgpu:0")
        before = box.ledger.used[0]
        out = torch.vmap(lambda row, one: row.sin() * one + mask[0])(x, mask)
        assert out.device == x.device and out.shape == (3, 4) and box.ledger.used[0] - before == 48
        assert (out + x).device == x.device
    for dry in (False, True):
        with virtual_gpus(1, dry=dry), pytest.raises(RuntimeError, match="vmap are not offered"):
            torch.vmap(torch.sin)(torch.ones(3, device="vgpu:0"))


def test_a_dry_box_that_assumes_takes_all_as_true_and_any_as_false():
    with virtual_gpus(1, dry=True) as box:
        x = torch.ones(3, device="vgpu:0")
        with pytest.raises(RuntimeError, match="holds no data"):
            bool((x == 1).all())
        box.assumes = True
        assert bool((x == 1).all()) and not bool((x == 1).any()) and 2 not in x.long()
        with pytest.raises(RuntimeError, match="holds no data"):
            bool(x[0] == 1)
