"""Linear layers that compute their weight's gradient where it will be summed: the same bits, and never over others'."""

import copy
import gc
import io
import weakref

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from mpcourse.data_parallel import FusedLinear, MultiNodeOptimizer, create_communicator, fuse_weight_gradients
from mpcourse.data_parallel.overlap.gradient_fusion import offer, withdraw
from mpcourse.virtual import run


class Places:
    """Gives every parameter the place that was made for it, each time."""

    def __init__(self, *parameters):
        self.places = {p: torch.full_like(p, 7, requires_grad=False) for p in parameters}
        self.given = 0
        for p in parameters:
            offer(p, self.give)

    def give(self, p):
        self.given += 1
        return self.places[p].data

    def __contains__(self, gradient):
        return gradient.data_ptr() in {place.data_ptr() for place in self.places.values()}


def pair(bias=True, dtype=torch.float32):
    """Return a layer, and one in place with the same numbers."""
    torch.manual_seed(1)
    plain = nn.Linear(7, 5, bias, dtype=dtype)
    layer = copy.deepcopy(plain)
    assert fuse_weight_gradients(layer, 0) == [""]
    return plain, layer


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(7,), (0, 7), (4, 7), (2, 3, 7), (2, 1, 3, 7)])
@pytest.mark.parametrize("which", ["as it comes", "transposed", "expanded", "written over"])
def test_numbers_are_those_of_torchs_layer_bit_by_bit(shape, bias, dtype, which):
    plain, layer = pair(bias, dtype)
    places = Places(layer.weight)
    found = []
    for net in (plain, layer):
        torch.manual_seed(2)
        x = torch.randn(shape, dtype=dtype)
        if which == "transposed":
            x = torch.randn(shape[::-1], dtype=dtype).permute(*reversed(range(len(shape))))
        x.requires_grad_()
        y = net(x)
        if which == "written over":
            y.relu_()
        y.backward(torch.ones((), dtype=dtype).expand(y.shape) if which == "expanded" else torch.randn_like(y))
        found.append([y, x.grad, *(p.grad for p in net.parameters())])
    assert all(map(torch.equal, *found))
    placed = which != "transposed" or len(shape) < 3
    assert (layer.weight.grad in places) == placed and places.given == placed


def test_where_nobody_gives_a_place_the_layer_is_torchs():
    plain, layer = pair()
    x = torch.randn(4, 7)
    assert torch.equal(plain(x), layer(x)) and layer(x).grad_fn.name() == plain(x).grad_fn.name()
    places = Places(layer.weight)
    assert layer(x).grad_fn.name() != plain(x).grad_fn.name()
    withdraw(layer.weight, Places(plain.weight).give)  # which it was not
    assert layer(x).grad_fn.name() != plain(x).grad_fn.name()
    withdraw(layer.weight, places.give)
    withdraw(layer.weight, places.give)  # it may be told twice
    layer(x).sum().backward()
    assert places.given == 0 and layer.weight.grad not in places


def test_what_autograd_grad_returns_stays_the_callers():
    _, layer = pair()
    places = Places(layer.weight)
    x = torch.randn(4, 7, requires_grad=True)
    (kept,) = torch.autograd.grad(layer(x).sum(), layer.weight)
    assert kept not in places
    other = pair()[1]
    others = Places(other.weight)
    _between, kept_too = torch.autograd.grad(other(layer(x)[:, :1].expand(4, 7)).sum(), (x, layer.weight))
    assert kept_too not in places and others.given == 0
    torch.autograd.grad(layer(x).sum(), x)
    layer(x).sum().backward(inputs=[x])
    assert places.given == 0 and layer.weight.grad is None
    layer(x).sum().backward(inputs=[layer.weight])
    assert layer.weight.grad in places and torch.equal(layer.weight.grad, kept)


@pytest.mark.filterwarnings("ignore:Using backward")
def test_gradients_of_gradients():
    _, layer = pair(dtype=torch.float64)
    places = Places(layer.weight)
    x = torch.randn(3, 7, dtype=torch.float64, requires_grad=True)

    def function(x):
        return layer(x).tanh()

    assert torch.autograd.gradcheck(function, x) and torch.autograd.gradgradcheck(function, x)
    loss = layer(x).tanh().square().sum()
    (first,) = torch.autograd.grad(loss, layer.weight, create_graph=True)
    first.square().sum().backward()
    plain = nn.Linear(7, 5, dtype=torch.float64)
    plain.load_state_dict(layer.state_dict())
    (wanted,) = torch.autograd.grad(plain(x).tanh().square().sum(), plain.weight, create_graph=True)
    wanted.square().sum().backward()
    torch.testing.assert_close(layer.weight.grad, plain.weight.grad)
    layer(x).sum().backward(create_graph=True)
    assert layer.weight.grad not in places


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_is_torchs(dtype):
    plain, layer = pair()
    places = Places(layer.weight)
    for net in (plain, layer):
        with torch.autocast("cpu", dtype):
            y = net(torch.ones(4, 7))
        assert y.dtype == dtype
        y.float().square().sum().backward()
    assert torch.equal(plain.weight.grad, layer.weight.grad) and places.given == 0


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointing(reentrant):
    plain, layer = pair()
    places = Places(layer.weight)
    x = torch.randn(4, 7, requires_grad=True)
    for net in (plain, layer):
        checkpoint(lambda x, net=net: net(x).tanh(), x, use_reentrant=reentrant).square().sum().backward()
    assert torch.equal(plain.weight.grad, layer.weight.grad) and layer.weight.grad in places


def test_which_layers():
    class Own(nn.Linear):
        pass

    model = nn.Sequential(nn.Linear(8, 8), Own(8, 8), nn.Linear(2, 2), nn.Sequential(nn.ReLU(), nn.Linear(8, 8)))
    model.append(model[0])
    before = dict(model.named_parameters())
    assert fuse_weight_gradients(model, 8 * 8 * 4) == ["0", "3.1"]
    assert [type(model[i]) for i in (0, 1, 2)] == [FusedLinear, Own, nn.Linear]
    assert all(p is before[name] for name, p in model.named_parameters())
    assert fuse_weight_gradients(model, 8 * 8 * 4) == ["0", "3.1"]  # once more
    assert fuse_weight_gradients(nn.Conv2d(2, 2, 2), 0) == []
    assert fuse_weight_gradients(nn.Sequential(nn.Linear(511, 512), nn.Linear(512, 512))) == ["1"]  # 1 MiB


def test_complex_layers_stay_torchs():
    assert fuse_weight_gradients(nn.Linear(3, 3, dtype=torch.complex64), 0) == []


def test_a_weight_that_is_computed_is_computed_once():
    calls = []

    class Doubled(nn.Module):
        def forward(self, weight):
            calls.append(1)
            return 2 * weight

    _, layer = pair()
    places = Places(layer.weight)
    nn.utils.parametrize.register_parametrization(layer, "weight", Doubled())
    calls.clear()
    layer(torch.ones(4, 7)).sum().backward()
    assert len(calls) == 1 and places.given == 0


def test_torch_func_sees_torchs_layer():
    plain, layer = pair()
    Places(layer.weight)
    x = torch.randn(4, 7)
    for net in (plain, layer):
        net.found = [torch.func.vmap(net)(x), torch.func.jacrev(net)(x)]
    assert all(map(torch.equal, plain.found, layer.found))


def test_copies_have_no_place():
    _, layer = pair()
    places = Places(layer.weight)
    file = io.BytesIO()
    torch.save(layer, file)
    file.seek(0)
    for other in (copy.deepcopy(layer), torch.load(file, weights_only=False)):
        assert type(other) is FusedLinear and torch.equal(other.weight, layer.weight)
        other(torch.ones(4, 7)).sum().backward()
        assert other.weight.grad not in places
    assert places.given == 0


def test_who_gives_places_is_not_kept_alive_and_parameters_are_not_either():
    _, layer = pair()
    places = Places(layer.weight)
    gone = weakref.ref(places), weakref.ref(layer.weight)
    del places
    gc.collect()
    assert gone[0]() is None
    layer(torch.ones(4, 7)).sum().backward()
    assert layer.weight.grad is not None
    del layer
    gc.collect()
    assert gone[1]() is None


class Twice(nn.Module):
    """One weight, used by two layers."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.first, self.last = nn.Linear(6, 6), nn.Linear(6, 6)
        self.last.weight = self.first.weight

    def forward(self, x):
        return self.last(self.first(x).tanh())


def net():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 4))


def on_ranks(program, make=net, size=2):
    """`program(model, plain, optimizer, at_home)` on virtual ranks, all with the same batches: means are their own."""

    def rank(comm):
        model, plain = make(), make()
        fuse_weight_gradients(model, 0)
        communicator = create_communicator("bucketed", comm)
        optimizer = MultiNodeOptimizer(torch.optim.SGD(model.parameters(), 0.1), communicator)

        def at_home():
            """Return the weights whose gradients lie where they will be summed."""
            views = {p: view for bucket in communicator.buckets for p, view in bucket.views.items()}
            grads = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
            held = dict(model.named_parameters())
            return [name for name, g in grads.items() if g.data_ptr() == views[held[name]].data_ptr()]

        return program(model, plain, optimizer, at_home)

    run(rank, size)


def assert_same_gradients(model, plain):
    for p, q in zip(model.parameters(), plain.parameters(), strict=True):
        assert torch.equal(p.grad, q.grad)


X = torch.arange(24.0).reshape(4, 6) / 10


def test_backward_writes_weights_gradients_into_their_buckets():
    def program(model, plain, optimizer, at_home):
        for _ in range(3):
            optimizer.zero_grad()
            plain.zero_grad()
            with optimizer.no_sync():  # so that they can be looked at
                model(X).square().sum().backward()
            plain(X).square().sum().backward()
            assert at_home() == ["0.weight", "2.weight"]
            assert_same_gradients(model, plain)
            optimizer.mean_gradients()
            assert_same_gradients(model, plain)
            assert len(at_home()) == 4
            optimizer.step()
            torch.optim.SGD(plain.parameters(), 0.1).step()

    on_ranks(program)


def test_later_passes_add_to_what_lies_there():
    def program(model, plain, optimizer, at_home):
        for factor in (1, 2, 3):
            (factor * plain(X).square().sum()).backward()
        with optimizer.no_sync():
            model(X).square().sum().backward()
            (2 * model(X).square().sum()).backward()
        (3 * model(X).square().sum()).backward()
        optimizer.mean_gradients()
        assert_same_gradients(model, plain)

    on_ranks(program)


def test_gradients_that_are_zeroed_and_not_dropped_are_not_written_over():
    def program(model, plain, optimizer, at_home):
        for _ in range(2):
            optimizer.zero_grad(set_to_none=False)
            plain.zero_grad()
            plain(X).square().sum().backward()
            model(X).square().sum().backward()
            optimizer.mean_gradients()
            assert_same_gradients(model, plain)

    on_ranks(program)


def test_one_weight_used_twice_has_one_place():
    def program(model, plain, optimizer, at_home):
        for _ in range(2):
            optimizer.zero_grad()
            plain.zero_grad()
            plain(X).square().sum().backward()
            with optimizer.no_sync():
                model(X).square().sum().backward()
            assert_same_gradients(model, plain)
            optimizer.mean_gradients()
            assert_same_gradients(model, plain)

    on_ranks(program, Twice)


def test_a_pass_that_breaks_off_leaves_nothing_behind():
    def program(model, plain, optimizer, at_home):
        def breaks(_):
            raise ZeroDivisionError

        handle = model[0].weight.register_hook(breaks)
        with optimizer.no_sync(), pytest.raises(ZeroDivisionError):
            model(X).square().sum().backward()
        handle.remove()
        for times in range(3):
            optimizer.zero_grad()
            plain.zero_grad()
            plain(X).square().sum().backward()
            with optimizer.no_sync():
                model(X).square().sum().backward()
            assert "2.weight" not in at_home() if times == 0 else at_home() == ["0.weight", "2.weight"]
            optimizer.mean_gradients()
            assert_same_gradients(model, plain)

    on_ranks(program)


def test_a_pass_while_the_sum_is_under_way_does_not_touch_it():
    def program(model, plain, optimizer, at_home):
        with optimizer.no_sync():
            model(X).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)  # so that the next pass needs no places
        model(X).square().sum().backward()
        for p in model.parameters():
            p.grad = None  # as zero_grad does: the mean does not need it any more
        with optimizer.no_sync(), pytest.raises(RuntimeError, match=r"a second backward pass within no_sync.. reached"):
            (5 * model(X).square().sum()).backward()
        assert at_home() == []
        optimizer.mean_gradients()

    with pytest.raises(RuntimeError, match="'parameter 3' was set to None while it was being averaged"):
        on_ranks(program)


def test_without_communicator_there_is_no_place_any_more():
    def program(model, plain, optimizer, at_home):
        optimizer.communicator.detach()
        model(X).square().sum().backward()
        assert at_home() == []

    on_ranks(program)
