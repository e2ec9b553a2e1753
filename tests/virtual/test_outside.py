"""Where a box is not: threads without it, tensors that outlive it; and what it keeps when it keeps no record."""

import collections
import contextlib
import copy
import gc
import io
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from mpcourse.virtual import virtual_gpus
from mpcourse.virtual.gpus.modes import outside
from tests.conftest import ROOT

NO_BOX = r"^this thread has no box: enter it here too, `with box.here\(\):`$"
LEFT = "is on vgpu:0 of another box, which was left: move it to the CPU before leaving a box"


@pytest.fixture
def box():
    with virtual_gpus(2) as made:
        yield made


@pytest.fixture
def elsewhere():
    """Call a function in another thread."""
    with ThreadPoolExecutor(1) as pool:
        yield lambda work: pool.submit(work).result()


def leaves(device):
    model = nn.Linear(3, 3).to(device)
    return model, torch.ones(3, device=device)


@pytest.mark.parametrize(
    "use",
    [
        lambda model, x: x + x,
        lambda model, x: x + torch.ones(3),
        lambda model, x: x.device,
        lambda model, x: x.tolist(),
        lambda model, x: x.numpy(),
        lambda model, x: x.cpu(),
        lambda model, x: torch.cat([torch.ones(3), x]),
        lambda model, x: torch.stack(tensors=[x, x]),
        lambda model, x: F.linear(torch.ones(3), model.weight),
        lambda model, x: model(torch.ones(3)),
        lambda model, x: (model.weight * 2).sum().backward(),
        lambda model, x: model.weight.grad,
        lambda model, x: torch.optim.SGD(model.parameters(), lr=1).zero_grad(),
        lambda model, x: model.to("cpu"),
        lambda model, x: torch.save(x, io.BytesIO()),
        lambda model, x: x.__setitem__(0, 1),
    ],
)
def test_a_tensor_is_refused_in_a_thread_without_its_box_and_after_it(use):
    box = virtual_gpus(2)
    with box, ThreadPoolExecutor(1) as pool:
        model, x = leaves("vgpu:0")
        with pytest.raises(RuntimeError, match=NO_BOX):
            pool.submit(use, model, x).result()
        assert pool.submit(lambda: (torch.ones(2) + 1).tolist()).result() == [2, 2]  # others work
    for _ in range(2):
        with pytest.raises(RuntimeError, match=LEFT):
            use(model, x)
        with virtual_gpus(1), pytest.raises(RuntimeError, match=LEFT):
            use(model, x)
    with box:
        assert (x + 1).tolist() == [2, 2, 2] and type(model.weight) is nn.Parameter and model(x).device == x.device


def test_loss_that_outlives_its_box_is_refused_in_every_thread():
    with virtual_gpus(1):
        model, x = leaves("vgpu:0")
        loss = model(x).sum()
    for run in (lambda use: use(), lambda use: ThreadPoolExecutor(1).submit(use).result()):
        with pytest.raises(RuntimeError, match=LEFT):
            run(loss.backward)
        with pytest.raises(RuntimeError, match=LEFT):
            run(loss.item)
    assert (repr(x), x.shape, x.dtype) == ("tensor(..., size=(3,), of a box that was left)", (3,), torch.float32)
    assert isinstance(model.weight, nn.Parameter) and len({x, x}) == 1


def test_a_backward_that_goes_through_a_box_is_refused_outside_of_it_and_done_in_it():
    """Of a loss on the CPU, which outlives the box, though its graph has copies from and to its devices."""

    def refused_by(run, text):
        with pytest.raises(RuntimeError, match=text):
            run(lambda: loss.backward(retain_graph=True))
        assert w.grad is None

    box, w = virtual_gpus(2), torch.ones(3, requires_grad=True)
    with box, ThreadPoolExecutor(1) as pool:
        loss = (w.to("vgpu:1") * 2).sum().cpu()
        refused_by(lambda call: pool.submit(call).result(), NO_BOX)
    left = "this backward copies to vgpu:1 of another box, which was left"
    refused_by(lambda call: call(), left)
    with ThreadPoolExecutor(1) as pool:
        refused_by(lambda call: pool.submit(call).result(), left)
    with virtual_gpus(2):
        refused_by(lambda call: call(), left)
    with box:
        before = len(box.events)
        loss.backward()
        assert [e.kind for e in box.events[before:]].count("copy") == 2
    assert w.grad.tolist() == [2, 2, 2]


def test_tensors_that_only_a_graph_holds_are_used_again_when_their_box_is():
    seen = []

    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, gradient):
            (x,) = ctx.saved_tensors
            seen.append((type(x), str(x.device)))
            return 2 * x * gradient

    box = virtual_gpus(1)
    with box:
        w = torch.ones(3, device="vgpu:0", requires_grad=True)
        loss = Square.apply(w * 3).sum()
    gc.collect()
    with box:
        loss.backward()
        assert seen == [(torch.Tensor, "vgpu:0")] and w.grad.tolist() == [18, 18, 18]


@pytest.mark.parametrize(
    "layer", [nn.LSTM(3, 4), nn.RMSNorm(3), nn.GRUCell(3, 4), nn.MultiheadAttention(3, 1, dropout=0.1)]
)
def test_a_backward_takes_the_same_time_in_a_box_that_was_left_in_between(layer):
    def run(leave):
        with contextlib.ExitStack() as stack:
            box = stack.enter_context(virtual_gpus(1))
            made, x = copy.deepcopy(layer).to("vgpu:0"), torch.ones(5, 3, device="vgpu:0")
            loss = made(*[x] * (3 if isinstance(layer, nn.MultiheadAttention) else 1))[0].sum()
            box.reset()
            if leave:
                stack.close()
                stack.enter_context(box)
            loss.backward()
            return [(e.lane, e.name, e.end - e.start) for e in box.events]

    assert run(True) == run(False) != []


def test_a_box_that_holds_no_tensors_is_left_without_a_search_for_them(monkeypatch):
    with virtual_gpus(1) as box:
        x = torch.ones(3, 3, device="vgpu:0")
        x @ x  # its workspace stays
        del x
        monkeypatch.setattr(gc, "get_objects", lambda: pytest.fail("all objects are looked through"))
        assert box.workspaces


def test_what_was_moved_to_the_cpu_outlives_its_box():
    with virtual_gpus(1):
        model, x = leaves("vgpu:0")
        y, model = x.cpu(), model.cpu()
    assert (y + 1).tolist() == [2, 2, 2] and model(y).shape == (3,) and type(model.weight) is nn.Parameter


def test_threads_that_enter_the_box_work_side_by_side(box):
    """Backward, hooks and moves in each, at the same time."""
    barrier = threading.Barrier(2)

    def train(device):
        with box.here():
            w = torch.ones(4, 4, device=device, requires_grad=True)
            seen = []
            for _ in range(20):
                barrier.wait(30)
                a, _b = (w * 2).chunk(2, 1)
                a.register_hook(lambda g: seen.append(g.device))
                (a.to("cpu").sum() + F.one_hot(input=torch.zeros(2, dtype=torch.long, device=device)).sum()).backward()
            return w.grad.device, set(seen), w.grad.tolist()

    with ThreadPoolExecutor(2) as pool:
        for device, (where, seen, values) in zip(
            ("vgpu:0", "vgpu:1"), pool.map(train, ("vgpu:0", "vgpu:1")), strict=True
        ):
            assert where == torch.device(device) and seen == {where} and values == [[40, 40, 0, 0]] * 4


def test_a_thread_enters_a_box_once(box, elsewhere):
    def twice():
        with box.here(), box.here():
            pass

    with pytest.raises(RuntimeError, match="this thread has a box already"):
        elsewhere(twice)


def test_threads_are_as_they_were_after_a_box():
    start = threading.Thread.start
    with virtual_gpus(1):
        assert threading.Thread.start is not start
    assert threading.Thread.start is start and torch.Generator is type(torch.Generator())


def steps(box, n):
    model = nn.Linear(4, 2).to("vgpu:0")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def run():
        for _ in range(n):
            optimizer.zero_grad()
            a, _b = model(torch.randn(3, 4).to("vgpu:0")).chunk(2, 1)
            a.to("vgpu:1").square().mean().backward()
            optimizer.step()

    return run


def test_a_thousand_steps_without_a_record_leave_no_objects_behind():
    def counted():
        gc.collect()
        return collections.Counter(type(o).__name__ for o in gc.get_objects())

    with virtual_gpus(2, record=False) as box:
        few, many = steps(box, 20), steps(box, 1000)
        few()

        def growth():
            few()
            before = counted()
            many()
            few()
            return counted() - before

        for _ in range(3):  # what else goes on in this process may make objects, too, but not each time
            grown = growth()
            if grown.total() < 100:  # of which a step makes as many
                break
        else:
            pytest.fail(f"{grown.total()} objects more, and each time too many: {grown.most_common(5)}")
        assert not box.events and not box.ledger.log
    with virtual_gpus(2) as box:  # so that the count is known to see growth
        run = steps(box, 20)
        run()
        before = len(box.events), len(box.ledger.log)
        run()
        assert len(box.events) > before[0] + 20 and len(box.ledger.log) > before[1] + 20
        box.reset()
        assert not box.events and len(box.ledger.log) == len(box.ledger.live)


ACCELERATOR = """
import torch, torch.distributed as dist
from torch.distributed.fsdp import fully_shard
def found():
    return torch._C._get_accelerator(), torch.accelerator.current_accelerator(), torch.accelerator.is_available()
before = found()
from mpcourse.virtual import virtual_gpus
with virtual_gpus(1):
    pass
assert found() == before
with virtual_gpus(2):
    assert torch._C._get_accelerator() == torch.accelerator.current_accelerator() == torch.device("vgpu")
dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
dist.barrier()
layer = torch.nn.Linear(3, 2)
want = layer(torch.ones(3))
print(torch.equal(fully_shard(layer)(torch.ones(3)), want))
dist.destroy_process_group()
"""


def test_outside_of_a_box_torch_distributed_finds_the_accelerator_that_there_is():
    done = subprocess.run([sys.executable, "-c", ACCELERATOR], capture_output=True, text=True, timeout=100, cwd=ROOT)
    assert done.stdout == "True\n", done.stderr[-2000:]


REAL_GPU = """
import torch
torch._C._get_accelerator = lambda: torch.device("cuda")  # as on a machine with a real GPU
named = torch._C._get_privateuse1_backend_name
from mpcourse.virtual import devices, virtual_gpus
import mpcourse.plan, mpcourse.predict, mpcourse.split
assert named() == "privateuseone" and torch.accelerator.current_accelerator() is None
with virtual_gpus(2):
    assert torch.ones(2, device="vgpu:1").vgpu(0).device == torch.device("vgpu:0")
print(named())
"""


def test_beside_a_real_gpu_the_backend_gets_its_name_with_the_first_box():
    """From then on, torch computes no gradients on the real one."""
    done = subprocess.run([sys.executable, "-c", REAL_GPU], capture_output=True, text=True, timeout=100, cwd=ROOT)
    assert done.stdout == "vgpu\n", done.stderr[-2000:]


def test_what_is_computed_outside_takes_no_time_of_the_box_and_lies_on_the_cpu(box):
    before, seen = box.now, len(box.events)
    with outside():
        x = torch.ones(3, requires_grad=True)
        (2 * x).sum().backward()
    assert (box.now, len(box.events)) == (before, seen)
    assert str(x.device) == "cpu" and x.grad.tolist() == [2.0] * 3
    assert (x.to("vgpu:1") + x.grad.to("vgpu:1")).tolist() == [3.0] * 3
    assert box.now > before and len(box.events) > seen


def test_without_a_box_outside_changes_nothing():
    with outside():
        assert torch.ones(2).sum() == 2
