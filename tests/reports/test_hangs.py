"""Public reports of hangs and silent faults over ranks and devices, rebuilt small, each with the right value."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from mpcourse.data_parallel import MultiNodeOptimizer, create_communicator
from mpcourse.model_parallel import all_to_all, allgather, allreduce, bcast
from mpcourse.pipeline import one_f_one_b
from mpcourse.pipeline.ranks import PipelineRank
from mpcourse.virtual import ClusterError, Deadlock, RankFailed, run, virtual_gpus
from mpcourse.zero import PrefetchedParameters, ShardedGradients, ShardedParameters

KINDS = pytest.mark.parametrize("kind", ["naive", "flat", "bucketed"])


def one_weight(comm, kind="bucketed"):
    """Return a weight of one number, 1, and its optimizer over ranks."""
    weight = nn.Parameter(torch.ones(1))
    return weight, MultiNodeOptimizer(torch.optim.SGD([weight], 1.0), create_communicator(kind, comm))


# -- MPI --


@pytest.mark.parametrize("room", [None, 1000])
def test_irecv_truncates_an_object_that_its_buffer_cannot_hold(room):
    """`irecv()` has room for 32 KiB unless it is given a buffer; a larger object is truncated, or crashes Python.

    https://github.com/mpi4py/mpi4py/issues/591, https://github.com/mpi4py/mpi4py/issues/389 and
    https://github.com/inducer/meshmode/pull/148
    """

    def program(comm):
        if comm.rank == 0:
            comm.send(np.zeros(10_000), 1)
            return None
        return len(comm.irecv(bytearray(room) if room else None, source=0).wait())

    with pytest.raises(ClusterError, match=f"truncated.*{room or 32768}"):
        run(program, 2)


def test_an_exception_on_one_rank_says_who_waits_for_it_where():
    """A test showed neither the exception nor who was waiting: it hung at a barrier.

    https://github.com/firedrakeproject/mpi-pytest/issues/12
    """

    def program(comm):
        if comm.rank == 0:
            raise ValueError("Test")
        comm.barrier()

    with pytest.raises(ValueError, match="Test") as raised:
        run(program, 2)
    assert any("rank 1" in note and "barrier()" in note for note in raised.value.__notes__)


# -- data parallelism --


@KINDS
def test_one_step_more_on_a_rank_names_the_step_and_its_line(kind):
    """Training hung where ranks had different numbers of batches.

    https://github.com/pytorch/pytorch/issues/38174 and https://github.com/microsoft/PyMarlin/issues/80
    """

    def program(comm):
        weight, optimizer = one_weight(comm, kind)
        for _ in range(3 - comm.rank):
            optimizer.zero_grad()
            weight.sum().backward()
            optimizer.step()

    with pytest.raises((Deadlock, RankFailed)) as raised:
        run(program, 2)
    assert "step()" in str(raised.value) and "control_channel" not in str(raised.value)


@KINDS
def test_a_batch_that_each_rank_leaves_out_elsewhere_is_not_averaged_with_another(kind):
    """A rank skipped a micro-batch that it could not use, another one later: windows of ranks came apart.

    https://github.com/NVIDIA-NeMo/Automodel/pull/2468
    """

    def program(comm):
        weight, optimizer = one_weight(comm, kind)
        for batch in range(4):
            optimizer.zero_grad()
            (weight * 10.0**batch).sum().backward()
            if batch != [3, 1][comm.rank]:
                optimizer.step()
        return weight.item()

    with pytest.raises((ValueError, RuntimeError), match=r"step|batch|drops"):
        run(program, 2)


def test_averaging_the_first_of_two_passes_is_told_as_such():
    """The first of two micro-batches was averaged, and the last was not.

    https://github.com/modelscope/FunASR/pull/3472
    """

    def program(comm):
        weight, optimizer = one_weight(comm)
        weight.sum().backward()
        with optimizer.no_sync():
            weight.sum().backward()
        optimizer.step()

    with pytest.raises(RuntimeError, match="no_sync") as raised:
        run(program, 2)
    assert "clip or unscale" not in str(raised.value)


@KINDS
def test_an_overflow_on_one_rank_halves_the_scale_on_all(kind):
    """An inf of rank 0 was not known on other ranks: there the scale stayed 2.0, where 1.0 is right.

    https://github.com/pytorch/pytorch/pull/115710
    """

    def program(comm):
        weight, optimizer = one_weight(comm, kind)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
        scaler.scale((weight * (float("inf") if comm.rank == 0 else 1.0)).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        return scaler.get_scale(), weight.item()

    assert run(program, 2).results == [(1.0, 1.0)] * 2


# -- ZeRO --


@pytest.mark.parametrize("stage", [ShardedGradients, ShardedParameters])
def test_torchs_clipping_of_sharded_gradients_is_refused_or_right(stage):
    """Clip over all ranks, where torch's clip_grad_norm_ found the norm of what this rank has, or did not clip.

    https://github.com/pytorch/pytorch/issues/170862 and https://github.com/pytorch/pytorch/issues/72548
    """

    def program(comm):
        model = nn.Sequential(nn.Linear(2, 1, bias=False))
        update = stage(lambda groups: torch.optim.SGD(groups, 1.0), model, comm)
        model(torch.tensor([[3.0, 4.0]])).sum().backward()
        try:
            norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0).item()
        except (RuntimeError, ValueError) as error:
            return "clip=" in str(error)
        return norm == 5.0 and update.step() <= 1.0

    assert run(program, 2).results == [True, True]


@pytest.mark.parametrize("stage", [ShardedParameters, PrefetchedParameters])
def test_an_expert_that_one_rank_skips_is_named(stage):
    """FSDP hung after some steps, where ranks ran different experts of a layer.

    https://github.com/pytorch/pytorch/issues/126616
    """

    def program(comm):
        model = nn.ModuleDict({"gate": nn.Linear(2, 2), "expert": nn.Linear(2, 2), "head": nn.Linear(2, 1)})
        stage(lambda groups: torch.optim.SGD(groups, 1.0), model, comm, list(model.values()))
        x = model["gate"](torch.ones(1, 2))
        model["head"](model["expert"](x) if comm.rank == 0 else x).sum().backward()

    with pytest.raises((RuntimeError, ValueError), match=r"(?s)expert.*head|head.*expert"):
        run(program, 2)


@pytest.mark.parametrize("stage", [ShardedParameters, PrefetchedParameters])
def test_layers_in_another_order_on_one_rank_are_named(stage):
    """Where ranks run a model's parts in different orders, results are wrong, or it hangs.

    https://github.com/pytorch/pytorch/issues/64629
    """

    def program(comm):
        torch.manual_seed(0)
        model = nn.ModuleDict({"left": nn.Linear(2, 2), "right": nn.Linear(2, 2)})
        stage(lambda groups: torch.optim.SGD(groups, 1.0), model, comm, list(model.values()))
        first, second = ("left", "right") if comm.rank == 0 else ("right", "left")
        model[second](model[first](torch.ones(1, 2))).sum().backward()

    with pytest.raises((RuntimeError, ValueError), match=r"(?s)left.*right|right.*left"):
        run(program, 2)


# -- models over ranks --


@pytest.mark.parametrize("call", ["allreduce", "allgather", "all_to_all"])
def test_ranks_whose_input_needs_no_gradient_take_part_in_backward(call):
    """A receiver waited for ever, because the sender's input needed no gradient; collective calls do the same.

    https://github.com/chainer/chainermn/pull/214
    """

    def program(comm):
        weight = nn.Parameter(torch.ones(1))
        x = weight * 3 if comm.rank == 1 else torch.ones(1)
        if call == "allreduce":
            y = allreduce(comm, x)
        elif call == "allgather":
            y = sum(allgather(comm, x))
        else:
            y = sum(all_to_all(comm, [x, x]))
        (y.sum() * (comm.rank + 1)).backward()
        return None if weight.grad is None else weight.grad.item()

    # Rank 0 counts once, rank 1 twice: 3 (1 + 2).
    assert run(program, 2).results == [None, 9.0]


@pytest.mark.parametrize("dropped", [True, False])
def test_pieces_that_only_the_root_uses_need_a_part_in_every_loss(dropped):
    """After gathering, only the root went on; the others' graphs were lost, and their backward did not take part.

    https://github.com/chainer/chainer/pull/5512
    """

    def program(comm):
        weight = nn.Parameter(torch.ones(1))
        pieces = allgather(comm, weight * (comm.rank + 1))
        mine = bcast(comm, sum(pieces) * 2 if comm.rank == 0 else None)
        if not dropped:
            mine = mine + 0 * sum(pieces)
        mine.sum().backward()
        return mine.item(), None if weight.grad is None else weight.grad.item()

    if dropped:
        with pytest.raises(
            (RankFailed, Deadlock), match=r"backward pass of allgather.*add 0 \* result.sum\(\) to the loss"
        ):
            run(program, 2)
    else:
        assert run(program, 2).results == [(6.0, 4.0), (6.0, 8.0)]


def test_a_tied_parameter_that_one_stage_alone_names_is_refused():
    """The copies of an embedding on the first and the last stage stay equal only if both take part in the sum.

    https://github.com/NVIDIA/Megatron-LM/issues/299
    """

    def program(comm):
        part = nn.Sequential(nn.Linear(2, 2, bias=False))
        tied = {"embedding": part[0].weight} if comm.rank == 0 else None
        PipelineRank(comm, part, one_f_one_b(2, 2), F.mse_loss, tied=tied).step(torch.ones(2, 2), torch.ones(2, 2))

    with pytest.raises(ValueError, match="embedding"):
        run(program, 2)


# -- CUDA --


def test_data_parallel_of_one_process_is_refused_in_our_words_or_works():
    """nn.DataParallel gathers all outputs on the first GPU, which runs out of memory first.

    https://github.com/pytorch/pytorch/issues/1893 and https://github.com/huggingface/transformers/issues/279
    """
    with virtual_gpus(2, as_cuda=True):
        try:
            model = nn.DataParallel(nn.Linear(3, 3).cuda())
            assert model(torch.ones(4, 3).cuda()).device == torch.device("cuda:0")
        except RuntimeError as error:  # not an AttributeError of torch's
            assert "DataParallel" in str(error) and "\n" not in str(error)


@pytest.mark.parametrize("spec", ["RTX 3090", "RTX 4090"])
def test_consumer_cards_have_no_peer_access(spec):
    """Report: "Device=0 CANNOT Access Peer Device=1": P2P could not be enabled in a server with 3090s.

    https://github.com/NVIDIA/nccl/issues/1127 and https://github.com/efeslab/Nanoflow/issues/22
    """
    with virtual_gpus(2, spec, "PCIe 4.0 x16", as_cuda=True):
        assert not torch.cuda.can_device_access_peer(0, 1)


def test_two_4090s_copy_through_the_host_at_6_gb_a_second():
    """Two RTX 4090 without peer access copy 6.34 GB/s, as p2pBandwidthLatencyTest measured.

    https://github.com/tinygrad/open-gpu-kernel-modules/issues/44
    """
    with virtual_gpus(2, "RTX 4090", "PCIe 4.0 x16", dry=True, as_cuda=True) as box:
        x = torch.empty(634 * 10**6, dtype=torch.uint8, device="cuda:0")
        torch.cuda.synchronize(0)
        before = box.now
        x.to("cuda:1")
        torch.cuda.synchronize(0)
        torch.cuda.synchronize(1)
        assert box.now - before == pytest.approx(0.1, rel=0.25)
