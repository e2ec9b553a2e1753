"""Every public name of torch.cuda, where a box's devices answer to it: offered, or refused in one line of ours."""

import importlib
import io
import types

import pytest
import torch
from torch import nn

from mpcourse.virtual import virtual_gpus
from mpcourse.virtual.gpus.as_cuda import KEPT

MODULES = {
    "torch.cuda": {
        *("Event", "Stream", "can_device_access_peer", "current_device", "current_stream", "default_stream", "device"),
        *("device_count", "device_of", "empty_cache", "get_arch_list", "get_device_capability", "get_device_name"),
        *("get_device_properties", "get_per_process_memory_fraction", "get_rng_state", "get_rng_state_all", "init"),
        *("initial_seed", "ipc_collect", "is_available", "is_bf16_supported", "is_current_stream_capturing"),
        *("is_tf32_supported", "manual_seed", "manual_seed_all", "max_memory_allocated", "max_memory_cached"),
        *("max_memory_reserved", "mem_get_info", "memory_allocated", "memory_cached", "memory_reserved"),
        *("memory_stats", "memory_stats_as_nested_dict", "memory_summary", "reset_max_memory_allocated"),
        *("reset_max_memory_cached", "reset_peak_memory_stats", "seed", "seed_all", "set_device"),
        *("set_per_process_memory_fraction", "set_rng_state", "set_rng_state_all", "set_stream", "stream"),
        "synchronize",
    },
    "torch.cuda.comm": {
        *("broadcast", "broadcast_coalesced", "gather", "reduce_add", "reduce_add_coalesced", "scatter"),
    },
    **{
        f"torch.cuda.{name}": None  # offered where torch.cuda has the same
        for name in ("memory", "random", "nccl", "nvtx", "graphs", "profiler", "streams", "tunable", "sparse", "gds")
    },
}


def names(module):
    for name in dir(module):
        value = getattr(module, name)
        public = not name.startswith("_") and not isinstance(value, types.ModuleType) and callable(value)
        if public and (getattr(value, "__module__", "") or "").startswith(("torch.", "mpcourse.")):
            yield name


@pytest.mark.parametrize("path", MODULES)
def test_a_name_of_torch_cuda_is_offered_or_refused_in_one_line(path):
    module = importlib.import_module(path)
    before = {name: getattr(module, name) for name in names(module)}
    offered = MODULES[path] or (set() if path.endswith("nccl") else MODULES["torch.cuda"])
    with virtual_gpus(2, as_cuda=True):
        for name in before:
            if name in offered or name in KEPT:
                continue
            with pytest.raises(RuntimeError) as error:
                getattr(module, name)()
            assert str(error.value).startswith(f"virtual GPUs do not offer {path}.{name}")
            assert "\n" not in str(error.value)
    assert {name: getattr(module, name) for name in names(module)} == before


def test_what_torch_cuda_offers_answers_for_the_box():
    cuda = torch.cuda
    with virtual_gpus(2, "A100-SXM4", as_cuda=True) as box:
        x = torch.randn(3, device="cuda:1")
        made = {
            name: getattr(cuda, name)()
            for name in sorted(MODULES["torch.cuda"])
            if name
            not in {
                *("can_device_access_peer", "device", "device_of", "manual_seed", "manual_seed_all", "set_device"),
                *("set_rng_state", "set_rng_state_all", "set_stream", "stream", "set_per_process_memory_fraction"),
            }
        }
        assert made["is_available"] and made["device_count"] == 2 and made["get_arch_list"] == ["sm_80"]
        assert made["get_device_properties"].multi_processor_count == 108 and made["is_tf32_supported"]
        with cuda.device_of(x):
            assert cuda.current_device() == 1
        cuda.set_per_process_memory_fraction(0.25, 1)
        assert cuda.get_per_process_memory_fraction(1) == pytest.approx(0.25)
        with pytest.raises(torch.OutOfMemoryError):
            torch.empty(box.gpus[1].memory // 8, device="cuda:1")
        assert cuda.memory_stats_as_nested_dict(1)["allocated_bytes"]["all"]["current"] == 512
        with pytest.raises(AttributeError, match="do not know L2_cache_size"):
            _ = cuda.get_device_properties(0).L2_cache_size
        assert isinstance(x, cuda.FloatTensor) and not isinstance(x.half(), cuda.FloatTensor)
        for name in ("cublas_workspace_size", "cufft_plan_cache"):
            with pytest.raises(RuntimeError, match=f"do not offer torch.backends.cuda.{name}"):
                _ = getattr(torch.backends.cuda, name)() and None


@pytest.mark.parametrize("dry", [False, True])
def test_torchs_own_streams_and_methods_know_virtual_devices(dry):
    with virtual_gpus(2, dry=dry):
        x = torch.randn(3).vgpu(1)
        assert x.device == torch.device("vgpu:1") == x.untyped_storage().device
        assert nn.Linear(2, 2).vgpu().weight.device == torch.device("vgpu:0")
        with torch.Stream(device="vgpu:1") as stream:
            assert isinstance(stream, torch.Stream) and torch.vgpu.current_device() == 1
        begin, end = torch.Event("vgpu", enable_timing=True), torch.Event(enable_timing=True)
        begin.record()
        (x * x).sum()
        end.record(stream)
        assert begin.elapsed_time(end) > 0
        if not dry:
            file = io.BytesIO()
            torch.save(x, file)
            file.seek(0)
            assert torch.equal(torch.load(file), x)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(4, 8), nn.LayerNorm(8), nn.Linear(8, 3)

    def forward(self, x, scale=1.0):
        return self.last(torch.relu(self.norm(self.first(x)))) * scale


@pytest.mark.parametrize("as_cuda", [False, True])
@pytest.mark.parametrize("n", [1, 2, 3])
def test_data_parallel_gives_the_gradients_of_one_device(n, as_cuda):
    def gradients(net, run):
        run(torch.arange(28.0).reshape(7, 4)).square().sum().backward()
        return [p.grad.cpu() for p in net.parameters()]

    torch.manual_seed(0)
    plain = Net()
    expected = gradients(plain, lambda x: plain(x, scale=0.5))
    with virtual_gpus(n, as_cuda=as_cuda) as box:
        torch.manual_seed(0)
        net = Net().to(box.devices[0])
        parallel = nn.DataParallel(net)
        got = gradients(net, lambda x: parallel(x.to(box.devices[0]), scale=0.5))
        assert all(map(torch.allclose, got, expected))
        assert {e.lane for e in box.events if e.name == "addmm" and e.kind == "compute"} == set(box.names)


def test_data_parallel_copies_the_model_to_each_device_without_data_too():
    with virtual_gpus(2, dry=True) as box:
        net = Net().to("vgpu:0")
        size = box.ledger.used[0]
        y = nn.DataParallel(net)(torch.randn(8, 4, device="vgpu:0"))
        assert y.shape == (8, 3) and y.device == torch.device("vgpu:0") and box.ledger.most[1] > size
        y.sum().backward()
        assert net.first.weight.grad.shape == (8, 4)


def test_comm_scatters_gathers_and_adds():
    with virtual_gpus(3):
        comm, x = torch.cuda.comm, torch.arange(9.0, device="vgpu:0")
        pieces = comm.scatter(x, [0, 1, 2])
        assert [p.device.index for p in pieces] == [0, 1, 2]
        assert torch.equal(comm.gather(pieces, destination=2).cpu(), torch.arange(9.0))
        copies = comm.broadcast(x, [0, 1, 2])
        assert torch.equal(comm.reduce_add(copies, 1).cpu(), 3 * torch.arange(9.0))


def refused():
    x, labels = torch.randn(4, 4, device="vgpu:0"), torch.tensor([0, 1, 2, 3]).to("vgpu:0")
    return {
        "nonzero": lambda: x.nonzero(),
        "where": lambda: torch.where(x > 0),
        "index": lambda: x[x > 0],
        "masked_select": lambda: x.masked_select(x > 0),
        "equal": lambda: torch.equal(x, x),
        "allclose": lambda: torch.allclose(x, x),
        "unique": lambda: x.unique(),
        "bincount": lambda: labels.bincount(),
        "lstsq": lambda: torch.linalg.lstsq(x, x),
        "item": lambda: labels.sum().item(),
        "if": lambda: bool((x > 0).any()),
        "tolist": lambda: x.tolist(),
        "repeat_interleave": lambda: x.repeat_interleave(labels, 0),
        "one_hot": lambda: torch.nn.functional.one_hot(labels),
    }


def test_what_needs_values_in_a_dry_box_is_refused_in_one_line_that_says_what_to_do():
    with virtual_gpus(1, dry=True):
        for name, call in refused().items():
            with pytest.raises(RuntimeError) as error:
                call()
            text = str(error.value)
            assert "test_cuda_names.py" in text and "a dry box holds no data" in text, name
            assert "leave out `dry=True`" in text and "\n" not in text, name


@pytest.mark.parametrize("dry", [False, True])
def test_what_torch_does_on_cuda_without_values_is_not_refused(dry):
    with virtual_gpus(1, dry=dry):
        x = torch.randn(6, 5, device="vgpu:0", requires_grad=True)
        labels = torch.tensor([0, 1, 2, 3, 4, 0]).to("vgpu:0")
        nn.MultiMarginLoss()(x, labels).backward()
        assert x.grad.shape == x.shape
        y = x.detach().clone()
        y[y > 0] = 0.0  # CUDA fills by the mask, and asks for no values
        assert torch.quantile(y, 0.3).device == torch.device("vgpu:0")
        assert torch.unravel_index(labels, (2, 3))[0].device == torch.device("vgpu:0")
        with pytest.raises(RuntimeError, match="to be on cpu, but it's on vgpu:0"):
            torch.tensor_split(y, labels)
