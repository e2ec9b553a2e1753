"""What is on a GPU goes to a CUDA-aware MPI as it lies, and to any other through the host's memory."""

from types import SimpleNamespace

import pytest
import torch

from mpcourse.data_parallel import batch_norm, communicator, host_staging
from mpcourse.data_parallel.overlap import requests

IN_PLACE = object()


class OnGpu(torch.Tensor):
    """A CPU tensor that says it is on a GPU, for this machine has none."""

    device = torch.device("cuda:0")


@pytest.fixture
def said(monkeypatch):
    """Record what ranks say, in order, to an MPI that calls itself CUDA-aware."""
    said = []
    stream = SimpleNamespace(synchronize=lambda: said.append("synchronized"))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: stream)
    monkeypatch.setattr(host_staging, "cuda_aware", lambda: True)
    for module in (host_staging, communicator, requests, batch_norm):
        monkeypatch.setattr(module, "mpi_of", lambda comm: SimpleNamespace(IN_PLACE=IN_PLACE))
    return said


def ranks(said):
    return SimpleNamespace(Allreduce=lambda *given: said.append(given))


@pytest.mark.ranks
def test_ranks_find_out_that_mpi_from_pypi_is_not_cuda_aware(mpirun):
    done = mpirun(1, "-c", "from mpcourse.common.cuda_aware import cuda_aware; print(cuda_aware())")
    assert done.stdout.split() == ["False"], done.stderr


def test_mpi_sums_what_is_on_a_gpu_after_the_gpu_is_done(said):
    row = torch.ones(5).as_subclass(OnGpu)
    communicator.Communicator.allreduce(SimpleNamespace(comm=ranks(said)), row)
    assert said[0] == "synchronized" and len(said) == 2
    assert said[1][0] is IN_PLACE and said[1][1] is row


def test_mpi_sums_buckets_and_statistics_there_too(said):
    row, asked = torch.ones(5).as_subclass(OnGpu), []
    request = SimpleNamespace(Test=lambda: True, Wait=lambda: asked.append("waited"))
    rows = requests.BufferAllreduces(SimpleNamespace(Iallreduce=lambda *given: said.append(given) or request), [row])
    assert rows.test()
    rows.wait()
    assert asked == ["waited"]
    batch_norm._sum(SimpleNamespace(comm=ranks(said), exchange=said.append), row)
    assert [said[0], *said[2:4]] == ["synchronized", "normalises batches", "synchronized"]
    assert all(given[0] is IN_PLACE and given[1] is row for given in (said[1], said[4])) and len(said) == 5


def test_what_mpi_does_not_read_goes_through_pinned_memory_and_that_is_said_once(monkeypatch):
    pinned, empty = [], torch.empty

    def recorded(n, dtype, pin_memory):
        pinned.append(pin_memory)
        return empty(n, dtype=dtype)

    monkeypatch.setattr(torch, "empty", recorded)
    monkeypatch.setattr(host_staging, "_warned", False)
    row = torch.arange(5.0).as_subclass(OnGpu)
    with pytest.warns(UserWarning, match="what is on cuda:0 travels through the host's memory") as told:
        for _ in range(2):
            with host_staging.on_host(row) as there:
                there *= 2
    assert row.tolist() == [0.0, 4.0, 8.0, 12.0, 16.0]
    assert pinned == [True, True] and len(told) == 1


@pytest.mark.parametrize(
    "row", [torch.ones(5), torch.ones(5).bfloat16().as_subclass(OnGpu), torch.ones(4, 4).t()[1:].as_subclass(OnGpu)]
)
def test_what_is_on_the_cpu_or_has_no_datatype_or_holes_is_not_read_there(said, row):
    assert not host_staging.readable_by_mpi(ranks(said), row) and not said


def test_an_mpi_that_is_not_cuda_aware_reads_no_gpu(said, monkeypatch):
    monkeypatch.setattr(host_staging, "cuda_aware", lambda: False)
    assert not host_staging.readable_by_mpi(ranks(said), torch.ones(5).as_subclass(OnGpu)) and not said
