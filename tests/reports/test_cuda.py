"""Public reports about CUDA's memory, clocks and devices, rebuilt small on virtual GPUs that answer to "cuda"."""

import itertools

import pytest
import torch
from torch import nn

from mpcourse.virtual import virtual_gpus

KiB, MiB, GiB = 2**10, 2**20, 2**30


def cuda(n=1, spec="Tesla P100-SXM2", **options):
    return virtual_gpus(n, spec, as_cuda=True, **options)


def tower(layers=4, width=256):
    return nn.Sequential(*[nn.Linear(width, width) for _ in range(layers)])


# -- the caching allocator --


def test_reserved_memory_stays_until_the_cache_is_emptied():
    """Is reserved memory what is allocated and what is cached? Yes, and `empty_cache` makes the two alike.

    https://github.com/pytorch/pytorch/issues/40989
    """
    with cuda():
        x = torch.empty(30 * MiB, dtype=torch.uint8, device="cuda")
        assert torch.cuda.memory_allocated() == torch.cuda.memory_reserved() == 30 * MiB
        del x
        assert torch.cuda.memory_allocated() == 0 and torch.cuda.memory_reserved() == 30 * MiB
        torch.cuda.empty_cache()
        assert torch.cuda.memory_reserved() == 0


def test_what_nvidia_smi_shows_is_reserved_memory_and_cudas_own():
    """After `del model`, memory_allocated() says 0, and nvidia-smi 12 GB.

    https://github.com/pytorch/pytorch/issues/37250
    """
    with cuda() as box:
        model = nn.Linear(1000, 1000, device="cuda")
        del model
        free, total = torch.cuda.mem_get_info()
        assert torch.cuda.memory_allocated() == 0 < torch.cuda.memory_reserved()
        assert total - free == torch.cuda.memory_reserved() + box.gpus[0].context
        torch.cuda.empty_cache()
        assert torch.cuda.mem_get_info() == (total - box.gpus[0].context, total)


def test_an_optimizer_keeps_a_model_that_was_deleted():
    """The same question as others ask it: `del model` frees nothing while an optimizer holds its parameters.

    https://github.com/pytorch/pytorch/issues/37250
    """
    with cuda() as box:
        model = nn.Linear(1000, 1000, bias=False, device="cuda")
        optimizer = torch.optim.Adam(model.parameters())
        model(torch.ones(1, 1000, device="cuda")).sum().backward()
        optimizer.step()
        del model
        kinds = box.ledger.kinds(0)
        assert kinds["parameters"] == kinds["gradients"] == 4 * 10**6 and kinds["optimizer state"] == 8 * 10**6
        del optimizer
        assert set(box.ledger.kinds(0)) == {"workspaces"}


@pytest.mark.parametrize("forget", [False, True])
def test_a_name_that_is_given_anew_holds_two_tensors_for_a_moment(forget):
    """Peaks of `a = torch.rand(1000, 1000, i + 1)` in a loop: the old `a` lives until the new one is there.

    https://github.com/facebookresearch/maskrcnn-benchmark/issues/182
    """
    first, second = 4_000_256, 8_000_000  # 4 million bytes are 7812.5 times 512
    with cuda():
        peaks = []
        for i in range(2):
            a = torch.rand(1000, 1000, i + 1, device="cuda")
            peaks.append(torch.cuda.max_memory_allocated())
            if forget:
                del a
    assert peaks == [first, second if forget else first + second]


def test_out_of_memory_tells_what_was_asked_and_what_is_free():
    """Report: "Tried to allocate 16.00 GiB (GPU 0; 11.93 GiB total capacity; 4.00 GiB already allocated; ...)".

    https://github.com/pytorch/pytorch/pull/13751
    """
    with cuda(spec="GTX 1080 Ti", dry=True) as box:
        held = torch.empty(4 * GiB, dtype=torch.uint8, device="cuda")
        with pytest.raises(torch.OutOfMemoryError) as raised:
            torch.empty(16 * GiB, dtype=torch.uint8, device="cuda")
        free = (7 * GiB - box.gpus[0].context) / GiB
        for part in ("cuda:0", "16.00 GiB asked", f"{free:.2f} GiB free", "11.00 GiB", "4.00 GiB"):
            assert part in str(raised.value)
        assert "in pieces" not in str(raised.value)
        del held


def test_memory_that_is_free_in_pieces_is_not_enough_and_the_error_says_so():
    """7.31 GiB did not fit though 4.36 were free and 6.80 cached: freed blocks lay between others.

    https://github.com/fredzzhang/pocket/issues/9 and https://github.com/pytorch/pytorch/issues/29554
    """
    with cuda(dry=True) as box:
        whole = torch.empty(10 * GiB, dtype=torch.uint8, device="cuda")
        del whole  # the segment is kept, and cut
        parts = [torch.empty(2 * GiB, dtype=torch.uint8, device="cuda") for _ in range(5)]
        del parts[::2]
        left = (6 * GiB - box.gpus[0].context) / GiB
        with pytest.raises(torch.OutOfMemoryError) as raised:
            torch.empty(8 * GiB, dtype=torch.uint8, device="cuda")
        text = str(raised.value)
        assert "8.00 GiB asked" in text and f"{left + 6:.2f} GiB free" in text
        assert f"It is in pieces: {left:.2f} GiB that the caching allocator has not reserved, and 6.00 GiB" in text


# -- what holds memory in training and evaluation --


@pytest.mark.parametrize(("how", "growth"), [("loss", 4 * MiB), ("item", 0), ("no_grad", 0)])
def test_adding_up_losses_of_an_evaluation_keeps_their_graphs(how, growth):
    """`total += loss` in a loop filled the memory. `loss.item()` keeps nothing.

    A layer's output of 1 MiB is kept for the backward pass of the next layer, and the last one's for the square.
    https://github.com/pytorch/pytorch/pull/5251 and https://github.com/pytorch/pytorch/pull/6017
    """
    with cuda():
        model, x, total, held = tower().cuda().eval(), torch.randn(1024, 256, device="cuda"), 0, []
        for _ in range(4):
            with torch.set_grad_enabled(how != "no_grad"):
                loss = model(x).pow(2).mean()
            total = total + (loss.item() if how == "item" else loss)
            held.append(torch.cuda.memory_allocated())
    assert [b - a for a, b in itertools.pairwise(held[1:])] == [growth] * 2


def test_adding_up_losses_after_backward_keeps_no_tensor_more():
    """Does `total_loss += loss` hold the history of the whole training? Backward has freed it; no memory is added.

    https://github.com/pytorch/pytorch/pull/5251
    """
    with cuda():
        model, total, held = tower().cuda(), 0, []
        for _ in range(4):
            loss = model(torch.randn(8, 256, device="cuda")).pow(2).mean()
            loss.backward()
            total = total + loss
            held.append(torch.cuda.memory_allocated())
    assert len(set(held[1:])) == 1


def test_a_list_of_losses_grows_by_a_block_each():
    """After every iteration one more tensor without dimensions was alive.

    https://github.com/IBM/mi-prometheus/issues/111
    """
    with cuda():
        model, losses, held = tower().cuda(), [], []
        for _ in range(4):
            losses.append(model(torch.randn(8, 256, device="cuda")).pow(2).mean())
            losses[-1].backward()
            held.append(torch.cuda.memory_allocated())
    assert [b - a for a, b in itertools.pairwise(held[1:])] == [512] * 2


def test_evaluation_mode_keeps_activations_and_no_grad_does_not():
    """Memory grew in validation: `model.eval()` changes layers, and says nothing about gradients.

    https://github.com/pytorch/pytorch/issues/4932 and https://github.com/mindsdb/lightwood/issues/154
    """
    with cuda() as box:
        model, x = tower().cuda().eval(), torch.randn(1024, 256, device="cuda")
        loss = model(x).pow(2).mean()
        assert box.ledger.kinds(0)["activations"] == 4 * MiB + 4
        del loss
        with torch.no_grad():
            loss = model(x).pow(2).mean()
        assert sum(v for k, v in box.ledger.kinds(0).items() if k in ("activations", "temporaries")) == 4
        del loss


def test_gradients_that_are_forgotten_late_are_a_copy_of_the_model_at_the_peak():
    """zero_grad right after the step, and not before backward, took gradients off GPT-2 XL's peak: 6 GB.

    Activations of a layer are as large as its weights here, so that gradients come as activations go.
    https://github.com/karpathy/minGPT/pull/106
    """
    peaks, layers = {}, 16
    for late in (False, True):
        with cuda():
            model = nn.Sequential(*[nn.Linear(512, 512, bias=False) for _ in range(layers)]).cuda()
            optimizer = torch.optim.SGD(model.parameters(), 0.1)
            for _ in range(2):
                torch.cuda.reset_peak_memory_stats()
                loss = model(torch.randn(512, 512, device="cuda")).mean()
                if late:
                    optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                if not late:
                    optimizer.zero_grad()
                del loss
            peaks[late] = torch.cuda.max_memory_allocated() / MiB
    assert layers - 4 <= peaks[True] - peaks[False] <= layers


def test_gradients_set_to_none_free_their_memory_and_zeros_do_not():
    """Why was the default of zero_grad changed? None takes no memory until the next backward pass.

    https://github.com/pytorch/pytorch/pull/92731
    """
    with cuda() as box:
        model = nn.Linear(1000, 1000, bias=False, device="cuda")
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        model(torch.ones(1, 1000, device="cuda")).sum().backward()
        optimizer.zero_grad(set_to_none=False)
        assert box.ledger.kinds(0)["gradients"] == 4 * 10**6
        optimizer.zero_grad()
        assert "gradients" not in box.ledger.kinds(0)


@pytest.mark.parametrize(("make", "states"), [(torch.optim.SGD, 0), (torch.optim.Adam, 2), ("momentum", 1)])
def test_an_optimizers_state_is_allocated_by_its_first_step(make, states):
    """VGG with SGD trained at batch size 8; with Adam it was out of memory, in the second iteration.

    https://github.com/pytorch/pytorch/issues/9439
    """
    with cuda() as box:
        model = nn.Linear(1000, 1000, bias=False, device="cuda")
        sgd = make == "momentum" or make is torch.optim.SGD
        optimizer = (
            torch.optim.SGD(model.parameters(), 0.1, momentum=0.9 if make == "momentum" else 0.0)
            if sgd
            else make(model.parameters())
        )
        model(torch.ones(1, 1000, device="cuda")).sum().backward()
        assert "optimizer state" not in box.ledger.kinds(0)
        for _ in range(2):
            optimizer.step()
            assert box.ledger.kinds(0).get("optimizer state", 0) == states * 4 * 10**6


@pytest.mark.parametrize("trained", [0.1, 1.0])
def test_a_tenth_trained_keeps_a_third_of_the_memory(trained):
    """With Adam a model keeps 4 times its weights; if only 10 % are trained, 1.3 times.

    https://github.com/pytorch/pytorch/issues/104690
    """
    with cuda() as box:
        model = nn.Sequential(*[nn.Linear(400, 400, bias=False) for _ in range(10)]).cuda()
        for layer in model[: round(10 * (1 - trained))]:
            layer.requires_grad_(False)
        optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad])
        model(torch.ones(1, 400, device="cuda")).sum().backward()
        optimizer.step()
        kinds = box.ledger.kinds(0)
        kept = kinds["parameters"] + kinds["gradients"] + kinds["optimizer state"]
    assert kept / kinds["parameters"] == pytest.approx(1 + 3 * trained)


# -- devices --


def test_a_modules_to_moves_it_and_a_tensors_to_returns_another():
    """Report: "Expected all tensors to be on the same device": the model had been moved, the input had not.

    https://github.com/bentrevett/pytorch-pos-tagging/pull/5
    """
    with cuda():
        model, x = nn.Linear(3, 3), torch.ones(1, 3)
        model.to("cuda")
        x.to("cuda")
        assert model.weight.device.type == "cuda" and x.device.type == "cpu"
        with pytest.raises(RuntimeError, match=r"(?s)Expected all tensors to be on the same device.*cuda:0.*cpu"):
            model(x)
        assert model(x.to("cuda")).device == torch.device("cuda:0")


def test_each_process_takes_the_first_gpu_unless_it_sets_its_own():
    """Every rank of a DDP job held 500 MB on GPU 0, until `torch.cuda.set_device(rank)` was called.

    https://github.com/marcoamonteiro/pi-GAN/issues/22
    """
    with cuda(2):
        assert torch.ones(1, device="cuda").device == torch.device("cuda:0")
        torch.cuda.set_device(1)
        assert torch.ones(1, device="cuda").device == torch.ones(1).cuda().device == torch.device("cuda:1")


def test_a_copy_is_no_leaf_and_gets_no_gradient(recwarn):
    """Gradients were None: `torch.ones(..., requires_grad=True).cuda()` is the result of an operation.

    https://github.com/pytorch/pytorch/pull/30531
    """
    with cuda():
        leaf = torch.ones(3, requires_grad=True)
        x = leaf.cuda()
        x.sum().backward()
        assert not x.is_leaf and x.grad is None and leaf.grad.tolist() == [1.0, 1.0, 1.0]


def test_a_stream_that_does_not_wait_has_the_values_of_one_that_does():
    """Results on a side stream kept changing, because it read what the default stream was still computing.

    Virtual GPUs have one queue, which is right for every program; only a real GPU shows the race.
    https://github.com/pytorch/pytorch/issues/2702
    """
    with cuda():
        matrix = torch.full((64, 64), 0.1, device="cuda")
        plain, side = matrix.clone(), matrix.clone()
        for _ in range(3):
            plain -= plain @ plain / 64
        with torch.cuda.stream(torch.cuda.Stream()):
            for _ in range(3):
                side -= side @ side / 64
        assert torch.equal(plain, side)


# -- time --


def test_a_product_is_enqueued_at_once_and_takes_its_time_until_synchronize():
    """`output = model(x)` took 2 ms and `output.cpu()` 3 s: the second waits for the first.

    https://github.com/pytorch/pytorch/issues/24318 and https://github.com/pytorch/pytorch/issues/25915
    """
    with cuda(spec="A100-SXM4", dry=True) as box:
        x = torch.randn(8192, 8192, device="cuda")
        torch.cuda.synchronize()
        times = [box.now]
        for _ in range(10):
            y = x @ x
        times.append(box.now)
        torch.cuda.synchronize()
        times.append(box.now)
        y[0, 0].cpu()
        times.append(box.now)
        enqueued, computed, copied = (b - a for a, b in itertools.pairwise(times))
        least = 10 * 2 * 8192**3 / 19.5e12  # at the peak that NVIDIA states for float32
    assert enqueued < 0.001 and computed > least > 100 * copied


def test_a_number_that_is_asked_for_waits_for_all_that_was_enqueued():
    """A profiler showed `print(loss.cpu())` as the line that takes the time of forward and backward.

    https://github.com/plasma-umass/scalene/issues/634
    """
    with cuda(spec="A100-SXM4") as box:
        x = torch.randn(64, 64, device="cuda")
        torch.cuda.synchronize()
        for _ in range(200):
            x = x @ x / 64
        assert not torch.cuda.current_stream().query()
        before = box.now
        x.sum().item()
        assert torch.cuda.current_stream().query() and box.now > before
        before = box.now
        x.shape  # noqa: B018
        assert box.now == before


def test_events_measure_what_the_gpu_did_and_not_the_host():
    """A benchmark measured batches without waiting, and so how fast they are enqueued.

    https://github.com/KaiyangZhou/deep-person-reid/issues/281
    """
    with cuda(spec="A100-SXM4", dry=True) as box:
        x = torch.randn(8192, 8192, device="cuda")
        torch.cuda.synchronize()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        before = box.now
        begin.record()
        x @ x
        end.record()
        enqueued = box.now - before
        torch.cuda.synchronize()
        assert begin.elapsed_time(end) / 1000 == pytest.approx(box.now - before, rel=0.01)
        assert begin.elapsed_time(end) / 1000 > 1000 * enqueued


# -- loss scaling --


@pytest.mark.parametrize(("unscale", "norm", "step"), [(True, 20.0, 1.0), (False, 20 * 65536, 1 / 65536)])
def test_gradients_are_clipped_after_they_are_unscaled(unscale, norm, step):
    """With clipping before `unscale_` the loss went down very slowly: scaled gradients were cut to 1, then divided.

    https://github.com/Lightning-AI/pytorch-lightning/issues/9599 and https://github.com/milesial/Pytorch-UNet/issues/468
    """
    with cuda():
        weight = nn.Parameter(torch.ones(4, device="cuda"))
        optimizer, scaler = torch.optim.SGD([weight], 1.0), torch.amp.GradScaler("cuda", init_scale=65536.0)
        scaler.scale((weight * 10).sum()).backward()
        if unscale:
            scaler.unscale_(optimizer)
        assert nn.utils.clip_grad_norm_([weight], 1.0).item() == norm
        scaler.step(optimizer)
        assert (weight.detach() - 1).norm().item() == pytest.approx(step, rel=1e-3)
