"""Whatever is split equals its one-device twin, and moves the bytes that it says."""

import copy as copying
import dataclasses
import itertools

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from mpcourse.models import ResNet50, UNet3D, mlp
from mpcourse.split import (
    ColumnParallelLinear,
    HalvedNIN,
    ModelParallelResNet50,
    ParallelMLP,
    ParallelNIN,
    PipelinedResNet50,
    RowParallelLinear,
    TensorParallelMLP,
    all_cuts,
    balance,
    copy,
    layer_costs,
    split,
)
from mpcourse.virtual import GPUS, busy, virtual_gpus


@pytest.fixture
def box():
    with virtual_gpus(4) as made:
        yield made


def names(n):
    return [f"vgpu:{i}" for i in range(n)]


def steps(model, data, optimizer=lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9)):
    """Losses of training on `data`, (inputs, labels) on the CPU, and the parameters afterwards, there too."""
    opt, losses = optimizer(model.parameters()), []
    for x, y in data:
        opt.zero_grad()
        out = model(x.to(next(model.parameters()).device))
        loss = F.cross_entropy(out, y.to(out.device))
        loss.backward()
        opt.step()
        losses.append(loss.item())
    return losses, [p.detach().cpu() for p in model.parameters()]


def batches(n, *shape, classes=10, count=3):
    return [(torch.randn(n, *shape), torch.randint(classes, (n,))) for _ in range(count)]


def equal(a, b):
    return a[0] == b[0] and all(torch.equal(p, q) for p, q in zip(a[1], b[1], strict=True))


# -- copy --


def test_a_copy_moves_there_and_its_gradient_back(box):
    x = torch.randn(3, 4, device="vgpu:0", requires_grad=True)
    box.reset()
    y = copy(x, "vgpu:1")
    (y * torch.arange(4.0, device="vgpu:1")).sum().backward()
    assert y.device.index == 1 and x.grad.device.index == 0
    assert [(e.lane, e.nbytes, e.phase) for e in box.copies] == [
        ("vgpu:0 -> vgpu:1", 48, "forward"),
        ("vgpu:1 -> vgpu:0", 48, "backward"),
    ]
    assert all(e.asked.startswith("test_split.py:") for e in box.copies)
    assert x.grad.cpu().tolist() == [[0, 1, 2, 3]] * 3


def test_no_copy_where_it_already_is(box):
    x = torch.randn(3, device="vgpu:1", requires_grad=True)
    assert copy(x, "vgpu:1") is x and not box.copies


def test_a_copy_of_a_copy_and_a_copy_used_twice(box):
    x = torch.ones(2, device="vgpu:0", requires_grad=True)
    y = copy(copy(x, "vgpu:1"), "vgpu:2")
    (y + y.square()).sum().backward()
    assert x.grad.tolist() == [3, 3]
    assert [e.lane for e in box.copies] == [
        "vgpu:0 -> vgpu:1",
        "vgpu:1 -> vgpu:2",
        "vgpu:2 -> vgpu:1",
        "vgpu:1 -> vgpu:0",
    ]


def test_second_derivatives_pass_through_a_copy(box):
    x = torch.tensor([2.0], device="vgpu:0", requires_grad=True)
    (g,) = torch.autograd.grad(copy(x, "vgpu:1").pow(3).sum(), x, create_graph=True)
    assert torch.autograd.grad(g.sum(), x)[0].item() == 12


# -- ParallelMLP --


def test_parallel_mlp_has_chainers_parameters():
    with virtual_gpus(2, dry=True):
        model = ParallelMLP("vgpu:0", "vgpu:1")
        assert sum(p.numel() for p in model.parameters()) == 3_800_020
        assert {n.split(".")[0]: p.device.index for n, p in model.named_parameters()} == {
            "first0": 0,
            "first1": 1,
            "second0": 0,
            "second1": 1,
        }


@pytest.mark.parametrize("optimizer", [torch.optim.Adam, lambda p: torch.optim.SGD(p, lr=0.1)])
def test_parallel_mlp_on_two_devices_equals_itself_on_one(box, optimizer):
    torch.manual_seed(3)
    data = batches(7, 12)
    found = []
    for places in (("cpu", "cpu"), ("vgpu:0", "vgpu:1"), ("vgpu:2", "vgpu:2")):
        torch.manual_seed(4)
        found.append(steps(ParallelMLP(*places, n_in=12, n_units=10), data, optimizer))
    assert equal(found[0], found[1]) and equal(found[0], found[2])


def test_parallel_mlp_copies_four_times_forward_and_three_or_four_times_back(box):
    model = ParallelMLP("vgpu:0", "vgpu:1", n_in=12, n_units=10)
    for needs, back in ((False, 3), (True, 4)):
        x = torch.randn(7, 12, device="vgpu:0", requires_grad=needs)
        box.reset()
        model(x).sum().backward()
        phases = [e.phase for e in box.copies]
        assert (phases.count("forward"), phases.count("backward")) == (4, back)
        forward = {(e.lane, e.nbytes) for e in box.copies if e.phase == "forward"}
        assert forward == {
            ("vgpu:0 -> vgpu:1", 4 * 7 * 12),
            ("vgpu:1 -> vgpu:0", 4 * 7 * 10),
            ("vgpu:0 -> vgpu:1", 4 * 7 * 10),
        }


def test_an_odd_width_cannot_be_halved():
    with pytest.raises(ValueError, match="even, not 7"):
        ParallelMLP("cpu", "cpu", n_units=7)


# -- NIN --

SMALL = (4, 5, 6, 7)


def test_parallel_nin_trains_two_networks_that_know_nothing_of_each_other(box):
    torch.manual_seed(0)
    model = ParallelNIN("vgpu:0", "vgpu:1", 3, SMALL).eval()
    alone = copying.deepcopy(model.first), copying.deepcopy(model.second)
    x, y = torch.randn(2, 3, 99, 99), torch.tensor([0, 2])
    loss, accuracy = model(x.to("vgpu:0"), y.to("vgpu:0"))
    loss.backward()
    total = 0.0
    for i, net in enumerate(alone):
        single = F.cross_entropy(net(x.to(f"vgpu:{i}")), y.to(f"vgpu:{i}"))
        single.backward()
        total += single.cpu()
        twin = (model.first, model.second)[i]
        pairs = zip(net.parameters(), twin.parameters(), strict=True)
        assert all(torch.equal(a.grad.cpu(), b.grad.cpu()) for a, b in pairs)
    assert torch.equal(loss.detach().cpu(), total.detach())
    assert accuracy.item() == (alone[0](x.to("vgpu:0")).argmax(1).cpu() == y).float().mean().item()


def test_parallel_nin_does_the_work_twice_and_half_batches_do_it_once(box):
    def flops(model):
        x, y = torch.randn(4, 3, 99, 99, device="vgpu:0"), torch.randint(3, (4,), device="vgpu:0")
        box.reset()
        model(x, y)[0].backward()
        return [sum(e.flops for e in box.events if e.lane == f"vgpu:{i}") for i in (0, 1)]

    twice, once = (flops(kind("vgpu:0", "vgpu:1", 3, SMALL)) for kind in (ParallelNIN, HalvedNIN))
    assert twice[0] == twice[1] and once[0] == once[1] and twice[0] == 2 * once[0]


def test_halved_nin_equals_one_network_on_the_whole_batch(box):
    torch.manual_seed(0)
    model = HalvedNIN("vgpu:0", "vgpu:1", 3, SMALL).eval()
    whole = copying.deepcopy(model.network).cpu()
    x, y = torch.randn(4, 3, 99, 99), torch.randint(3, (4,))
    loss, accuracy = model(x.to("vgpu:0"), y.to("vgpu:0"))
    loss.backward()
    wanted = F.cross_entropy(whole(x), y)
    wanted.backward()
    assert loss.item() == pytest.approx(wanted.item(), rel=1e-6)
    for a, b in zip(model.network.parameters(), whole.parameters(), strict=True):
        torch.testing.assert_close(a.grad.cpu(), b.grad)  # two halves are added in another order
    assert accuracy.item() == (whole(x).argmax(1) == y).float().mean().item()
    with pytest.raises(ValueError, match="3 examples cannot be halved"):
        model(x[:3].to("vgpu:0"), y[:3].to("vgpu:0"))


def test_an_ensemble_is_what_two_networks_are_good_for(box):
    model = ParallelNIN("vgpu:0", "vgpu:1", 3, SMALL).eval()
    x, y = torch.randn(4, 3, 99, 99, device="vgpu:0"), torch.randint(3, (4,), device="vgpu:0")
    mean = sum(t.softmax(1) for t in model.logits(x)).argmax(1)
    assert model.ensemble_accuracy(x, y).item() == (mean == y).float().mean().item()


# -- tensor parallelism --


def assert_equal_to_the_whole(whole, parts, x, weights):
    """Compare outputs, and gradients of the input and of all parameters, of `parts` (on virtual GPUs) with `whole`."""
    a, b = x.clone().requires_grad_(), x.to("vgpu:0").requires_grad_()
    wanted, got = whole(a), parts(b)
    torch.testing.assert_close(got.cpu(), wanted)
    probe = torch.randn_like(wanted)
    (wanted * probe).sum().backward()
    (got * probe.to(got.device)).sum().backward()
    torch.testing.assert_close(b.grad.cpu(), a.grad)
    for one, pieces, dim in weights:
        torch.testing.assert_close(torch.cat([p.grad.cpu() for p in pieces], dim), one.grad)


@pytest.mark.parametrize("devices", [1, 2, 3, 4])
@pytest.mark.parametrize("bias", [True, False])
def test_a_tensor_parallel_mlp_equals_the_whole_one(box, devices, bias):
    first, second = nn.Linear(6, 7, bias), nn.Linear(7, 5, bias)  # 7 is no multiple of 2, 3 or 4
    parts = TensorParallelMLP(first, second, names(devices))
    weights = [
        (first.weight, [p.weight for p in parts.first.parts], 0),
        (second.weight, [p.weight for p in parts.second.parts], 1),
    ]
    if bias:
        weights += [(first.bias, [p.bias for p in parts.first.parts], 0), (second.bias, [parts.second.bias], 0)]
    assert_equal_to_the_whole(lambda x: second(F.gelu(first(x))), parts, torch.randn(3, 2, 6), weights)


def test_a_tensor_parallel_mlp_exchanges_the_input_and_one_sum(box):
    parts = TensorParallelMLP(nn.Linear(6, 8), nn.Linear(8, 6), names(2))
    x = torch.randn(3, 6, device="vgpu:0", requires_grad=True)
    box.reset()
    parts(x).sum().backward()
    assert [(e.lane, e.phase, e.nbytes) for e in box.copies] == [
        ("vgpu:0 -> vgpu:1", "forward", 72),
        ("vgpu:1 -> vgpu:0", "forward", 72),
        ("vgpu:0 -> vgpu:1", "backward", 72),
        ("vgpu:1 -> vgpu:0", "backward", 72),
    ]


def test_the_bias_of_a_row_parallel_layer_is_added_once(box):
    whole = nn.Linear(4, 3)
    nn.init.zeros_(whole.weight)
    xs = [torch.zeros(2, 2, device=d) for d in names(2)]
    assert torch.equal(RowParallelLinear(whole, names(2))(xs).cpu(), whole.bias.expand(2, 3))


def test_tensor_parallel_layers_copy_the_weights_that_they_are_made_from(box):
    whole = nn.Linear(4, 4)
    parts = ColumnParallelLinear(whole, names(2))
    before = whole.weight.clone()
    with torch.no_grad():
        parts.parts[0].weight.zero_()
    assert torch.equal(whole.weight, before)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ColumnParallelLinear(nn.Linear(4, 2), ["cpu"] * 3), "2 units over 3 devices"),
        (lambda: TensorParallelMLP(nn.Linear(4, 5), nn.Linear(6, 4), ["cpu"]), "5 outputs do not fit 6 inputs"),
    ],
)
def test_what_cannot_be_split_is_told(make, message):
    with pytest.raises(ValueError, match=message):
        make()


# -- layers --


def test_resnet50_has_the_parameters_and_names_of_torchvisions():
    model = ResNet50()
    assert sum(p.numel() for p in model.parameters()) == 25_557_032
    state = model.state_dict()
    assert len(state) == 320 and sum(v.numel() for v in state.values()) == 25_610_205
    for name, shape in {
        "conv1.weight": (64, 3, 7, 7),
        "layer1.0.downsample.0.weight": (256, 64, 1, 1),
        "layer2.0.conv2.weight": (128, 128, 3, 3),
        "layer3.5.bn3.running_var": (1024,),
        "layer4.2.conv3.weight": (2048, 512, 1, 1),
        "fc.bias": (1000,),
    }.items():
        assert tuple(state[name].shape) == shape


def test_resnet50_over_two_devices_equals_it_on_one(box):
    torch.manual_seed(0)
    whole = ResNet50(5)
    halves = ModelParallelResNet50("vgpu:0", "vgpu:1", 5)
    halves.load_state_dict(whole.state_dict())
    data = batches(2, 3, 32, 32, classes=5, count=2)
    assert equal(steps(whole, data), steps(halves, data))
    places = {n.split(".")[0]: p.device.index for n, p in halves.named_parameters()}
    assert places == {"conv1": 0, "bn1": 0, "layer1": 0, "layer2": 0, "layer3": 1, "layer4": 1, "fc": 1}


def test_resnet50_in_splits_equals_it_in_one_piece_but_for_batch_norm(box):
    torch.manual_seed(0)
    whole = ResNet50(5).double().eval()  # in training each split would be normalised by itself
    pipelined = PipelinedResNet50("vgpu:0", "vgpu:1", 2, 5).double().eval()
    pipelined.load_state_dict(whole.state_dict())
    x, y = torch.randn(5, 3, 32, 32).double(), torch.randint(5, (5,))
    box.reset()
    one, other = whole(x), pipelined(x)
    crossing = [e.nbytes // 512 // 8 // 16 for e in box.copies if e.lane == "vgpu:0 -> vgpu:1"]
    assert crossing == [2, 2, 1]  # examples
    torch.testing.assert_close(other.cpu(), one)
    F.cross_entropy(one, y).backward()
    F.cross_entropy(other, y.to("vgpu:1")).backward()
    for p, q in zip(whole.parameters(), pipelined.parameters(), strict=True):
        torch.testing.assert_close(q.grad.cpu(), p.grad, rtol=1e-3, atol=1e-3 * float(p.grad.abs().max()))


def test_a_unet_cut_between_encoder_and_decoder_equals_the_whole_one(box):
    torch.manual_seed(0)
    whole = UNet3D(widths=(3, 4, 5))
    cut = copying.deepcopy(whole)
    cut.devices = [torch.device(d) for d in names(2)]
    cut.encoder.to("vgpu:0")
    cut.decoder.to("vgpu:1")
    data = [(torch.randn(2, 1, 4, 8, 4), torch.randint(2, (2, 4, 8, 4))) for _ in range(2)]
    box.reset()
    assert equal(steps(whole, data), steps(cut, data))
    forward = [e.nbytes for e in box.copies if e.lane == "vgpu:0 -> vgpu:1" and e.phase == "forward"]
    voxels = 2 * 4 * 8 * 4
    assert forward == 2 * [4 * 3 * voxels, 4 * 4 * voxels // 8, 4 * 5 * voxels // 64]


@pytest.mark.parametrize("sizes", [[7], [3, 4], [1, 6], [2, 1, 4], [1, 1, 1, 4]])
def test_a_split_sequential_equals_the_whole_one(box, sizes):
    torch.manual_seed(0)
    whole = mlp([6, 8, 7, 9, 10])[1:]
    whole[2].bias.requires_grad_(False)
    parts = split(copying.deepcopy(whole), sizes, names(len(sizes)))
    data = batches(5, 6)
    assert equal(steps(whole, data, torch.optim.Adam), steps(parts, data, torch.optim.Adam))
    assert [len(stage) for stage in parts] == sizes
    used = {p.device.index for p in parts.parameters()}
    assert used <= set(range(len(sizes))) and len(parts(data[0][0]).shape) == 2


def test_a_split_copies_once_at_each_cut(box):
    parts = split(mlp([6, 8, 7, 10])[1:], [2, 2, 1], names(3))
    box.reset()
    parts(torch.randn(5, 6, device="vgpu:0")).sum().backward()
    assert [(e.lane, e.nbytes) for e in box.copies] == [
        ("vgpu:0 -> vgpu:1", 4 * 5 * 8),
        ("vgpu:1 -> vgpu:2", 4 * 5 * 7),
        ("vgpu:2 -> vgpu:1", 4 * 5 * 7),
        ("vgpu:1 -> vgpu:0", 4 * 5 * 8),
    ]


def tied():
    layers = [nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)]
    layers[2].weight = layers[0].weight
    return nn.Sequential(*layers)


@pytest.mark.parametrize(
    ("sizes", "devices", "message"),
    [
        ([1, 1], 2, "do not cut a model of 3 layers"),
        ([0, 3], 2, "do not cut a model of 3 layers"),
        ([4, -1], 2, "do not cut a model of 3 layers"),
        ([3], 2, "1 stages need as many devices, not 2"),
        ([1, 2], 2, "stages 0 and 1 share the parameter"),
    ],
)
def test_a_wrong_split_is_told(box, sizes, devices, message):
    with pytest.raises(ValueError, match=message):
        split(tied(), sizes, names(devices))


def test_tied_layers_may_share_a_device(box):
    whole = tied()
    parts = split(copying.deepcopy(whole), [2, 1], ["vgpu:1", "vgpu:1"])
    data = batches(3, 4, classes=4)
    assert equal(steps(whole, data), steps(parts, data)) and parts[0][0].weight is parts[1][0].weight


# -- balance --


def cuts(n, stages):
    for ends in itertools.combinations(range(1, n), stages - 1):
        yield [b - a for a, b in itertools.pairwise((0, *ends, n))]


def dearest(costs, sizes):
    it = iter(costs)
    return max(sum(itertools.islice(it, n)) for n in sizes)


def test_balance_is_the_best_of_all_cuts():
    generator = torch.Generator().manual_seed(seed := torch.seed() % 2**31)
    for n in range(1, 9):
        for stages in range(1, n + 1):
            for high in (2, 100):
                costs = torch.randint(0, high, (n,), generator=generator).tolist()
                found = balance(costs, stages)
                best = min(dearest(costs, sizes) for sizes in cuts(n, stages))
                assert dearest(costs, found) == best, (seed, costs, stages)
                assert len(found) == stages and sum(found) == n and min(found) >= 1


def test_balance_fills_earlier_stages_first():
    assert balance([1, 1, 1, 1], 2) == [2, 2]
    assert balance([0, 0, 5, 0, 0], 2) == [4, 1]
    assert balance([3, 1, 1, 1], 2) == [1, 3]
    assert balance([1e-3, 2e-3, 0.5e-3], 1) == [3]


@pytest.mark.parametrize(
    ("costs", "stages", "message"),
    [
        ([1, 2], 3, "2 layers cannot make 3 stages"),
        ([1, 2], 0, "2 layers cannot make 0 stages"),
        ([], 1, "0 layers cannot make 1 stages"),
        ([1, -2], 1, "0 or more and finite: got -2"),
        ([1, float("nan")], 2, "got nan"),
    ],
)
def test_balance_refuses_what_makes_no_sense(costs, stages, message):
    with pytest.raises(ValueError, match=message):
        balance(costs, stages)


def test_sixty_layers_over_eight_stages_take_no_time():
    costs = list(range(60))
    assert dearest(costs, balance(costs, 8)) <= 1.5 * sum(costs) / 8


@pytest.mark.parametrize(("layers", "stages", "count"), [(1, 1, 1), (5, 1, 1), (5, 5, 1), (18, 2, 17), (7, 3, 15)])
def test_all_cuts_are_all_the_ways_and_each_once(layers, stages, count):
    found = list(all_cuts(layers, stages))
    assert len(found) == len({tuple(sizes) for sizes in found}) == count
    assert all(len(sizes) == stages and min(sizes) >= 1 and sum(sizes) == layers for sizes in found)


@pytest.mark.parametrize(("layers", "stages"), [(3, 0), (3, 4), (0, 1)])
def test_there_is_no_cut_into_no_or_too_many_stages(layers, stages):
    with pytest.raises(ValueError, match="each stage needs a layer at least"):
        list(all_cuts(layers, stages))


def chain_of_layers():
    return nn.Sequential(nn.Linear(8, 32), nn.ReLU(inplace=True), nn.BatchNorm1d(32), nn.Linear(32, 4, bias=False))


def test_the_cost_of_layers_on_a_virtual_gpu_is_the_clocks_and_the_ledgers(box):
    model = chain_of_layers().to("vgpu:1")
    costs = layer_costs(model, torch.randn(5, 8, device="vgpu:1"))
    assert [c.parameters for c in costs] == [4 * (8 * 32 + 32), 0, 4 * 64, 4 * 32 * 4]
    # What a Linear makes; nothing by a ReLU in place; batch norm's result, mean and deviation.
    assert [c.activations for c in costs] == [4 * 5 * 32, 0, 4 * (5 * 32 + 2 * 32), 4 * 5 * 4]
    assert all(c.forward > 0 and c.backward > 0 and c.seconds == c.forward + c.backward for c in costs)
    assert all(p.grad is None for p in model.parameters())
    again = layer_costs(model, torch.randn(5, 8, device="vgpu:1"))
    assert [c.seconds for c in again] == pytest.approx([c.seconds for c in costs])


def test_the_cost_of_layers_on_the_cpu_is_measured():
    model = chain_of_layers()
    costs = layer_costs(model, torch.randn(5, 8))
    # What autograd saves: each Linear's input, the ReLU's result, batch norm's input, mean and deviation.
    assert [c.activations for c in costs] == [4 * 5 * 8, 4 * 5 * 32, 4 * (5 * 32 + 2 * 32), 4 * 5 * 32]
    assert all(c.forward > 0 and c.backward > 0 for c in costs) and all(p.grad is None for p in model.parameters())


def test_tokens_and_frozen_layers_have_a_cost_too(box):
    model = nn.Sequential(nn.Embedding(11, 8), nn.Linear(8, 8)).requires_grad_(False).to("vgpu:0")
    costs = layer_costs(model, torch.randint(11, (3, 4)).to("vgpu:0"))
    assert costs[0].backward == 0 < costs[0].forward and costs[1].backward > 0


def test_resnet50_balanced_by_predicted_time_is_cut_one_block_before_the_article():
    net = ResNet50()
    stem = nn.Sequential(net.conv1, net.bn1, net.relu, net.maxpool)
    head = nn.Sequential(net.avgpool, nn.Flatten(), net.fc)
    layers = nn.Sequential(stem, *net.layer1, *net.layer2, *net.layer3, *net.layer4, head)
    large = dataclasses.replace(GPUS["Tesla P100-SXM2"], memory=2**36)
    with virtual_gpus(1, large, dry=True):
        costs = layer_costs(layers.to("vgpu:0"), torch.empty(10, 3, 1024, 1024, device="vgpu:0"))
    assert balance([c.activations for c in costs], 2) == [4, 14]
    assert balance([c.seconds for c in costs], 2) == [7, 11]


def test_no_gpu_of_a_tensor_parallel_block_waits_for_the_products_of_another():
    """All copies of x are in the queues before the first product, in backward those of the gradient."""
    with virtual_gpus(2, "Tesla V100-SXM2", "NVLink 2", dry=True) as box:
        with torch.device("vgpu:0"):
            block = TensorParallelMLP(nn.Linear(4096, 16384), nn.Linear(16384, 4096), names(2))
        x = torch.empty(2048, 4096, device="vgpu:0").requires_grad_()
        box.reset()
        start = box.synchronize()
        block(x).sum().backward()
        took = box.synchronize() - start
        assert min(busy(box.events, name) for name in box.names) > 0.95 * took
