"""Flat models equal their nested twins, and may be cut between any two layers."""

import copy
import itertools
import random
from collections import Counter

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

from mpcourse.models import ResNet50
from mpcourse.models.flat import Add, Flat, Join, Keep, Plain, _flat_resnet, flat_resnet101, flat_unet
from mpcourse.pipeline import gpipe, one_f_one_b, pipeline_step
from mpcourse.split import split


@pytest.fixture(autouse=True)
def fresh_numbers():
    seed = random.randrange(2**32)
    print("seed", seed)  # pytest shows it where a test fails
    random.seed(seed)
    torch.manual_seed(seed)


def kinds(model):
    return [type(layer.layer if isinstance(layer, Plain) else layer) for layer in model]


def at(model, kind):
    return [i for i, found in enumerate(kinds(model)) if found is kind]


def parameters(model):
    return sum(p.numel() for p in model.parameters())


@torch.no_grad()
def disturbed(model):
    """`model` in float64, its batch norms no longer the identity that they are in eval mode when new."""
    for module in model.double().modules():
        if isinstance(module, nn.BatchNorm2d):
            for t in (module.weight, module.running_var):
                t.uniform_(0.5, 1.5)
            for t in (module.bias, module.running_mean):
                t.normal_(0, 0.1)
    return model


def of_one_step(model, x, target):
    """Output, and gradients of the input and of all parameters."""
    x = x.clone().requires_grad_()
    model.zero_grad()
    y = model(x)
    F.mse_loss(y, target).backward()
    return [y.detach(), x.grad, *(p.grad for p in model.parameters())]


def assert_close(found, wanted):
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12)


# -- the numbering --


def test_resnet101_is_370_layers_with_its_parameters():
    with torch.device("meta"):
        model = flat_resnet101()
        assert model(torch.empty(2, 3, 224, 224)).shape == (2, 1000)
    assert len(model) == 370 and parameters(model) == 44_549_160
    found = kinds(model)
    assert found[:4] == [nn.Conv2d, nn.BatchNorm2d, nn.ReLU, nn.MaxPool2d]
    three = [nn.Conv2d, nn.BatchNorm2d, nn.ReLU]
    block = [Keep, *three, *three, nn.Conv2d, nn.BatchNorm2d, Add, nn.ReLU]
    assert found[4:367] == block * 33
    assert found[367:] == [nn.AdaptiveAvgPool2d, nn.Flatten, nn.Linear]
    keeps = at(model, Keep)
    assert {4, 15, 26, 37, 48, 59, 70, 81, 334, 345, 356} < set(keeps) and len(keeps) == 33
    stages = {4: (64, 64, 1), 37: (256, 128, 2), 81: (512, 256, 2), 334: (1024, 512, 2)}
    for keep in keeps:
        first, second, third = (model[keep + i].layer for i in (1, 4, 7))
        stage = stages.get(keep)
        width = first.out_channels
        assert (first.in_channels, width, second.stride[0]) == (stage or (4 * width, width, 1)), keep
        assert (first.kernel_size, second.kernel_size, third.kernel_size) == ((1, 1), (3, 3), (1, 1))
        assert (second.in_channels, second.out_channels, third.out_channels) == (width, width, 4 * width)
        assert (model[keep + 9].downsample is not None) == (keep in stages)
    assert model[369].layer.out_features == 1000
    for module in model.modules():
        assert not (isinstance(module, nn.Conv2d) and module.bias is not None)
        assert not (isinstance(module, nn.ReLU) and module.inplace)


def test_the_unet_is_241_layers_with_its_parameters():
    with torch.device("meta"):
        model = flat_unet()
        assert model(torch.empty(2, 3, 192, 192)).shape == (2, 1, 192, 192)
    assert len(model) == 241 and parameters(model) == 232_687_328
    cell = [nn.Conv2d, nn.Dropout2d, nn.InstanceNorm2d, nn.LeakyReLU] * 5
    down, up = [*cell, Keep, nn.MaxPool2d], [nn.Upsample, Join, *cell]
    assert kinds(model) == [*down * 5, *cell, *up * 5, nn.Conv2d]
    assert at(model, Keep) == [20, 42, 64, 86, 108]
    shapes = [(m.in_channels, m.out_channels) for m in model.modules() if isinstance(m, nn.Conv2d)]
    assert shapes[::5] == [
        (3, 64), (64, 128), (128, 256), (256, 512), (512, 1024),
        (1024, 2048),
        (2048, 512), (1024, 256), (512, 128), (256, 64), (128, 32),
        (32, 1),
    ]  # fmt: skip
    assert shapes[29] == (2048, 1024)  # the last of the bottleneck
    _, dropout, norm, leaky = (layer.layer for layer in model[:4])
    assert (dropout.p, leaky.negative_slope, leaky.inplace) == (0.1, 0.01, False)
    assert not list(norm.parameters()) and not list(norm.buffers())
    assert model[110 + 20].layer.mode == "nearest"


@pytest.mark.parametrize("convs, layers", [(11, 505), (24, 1077), (48, 2133)])
def test_unets_are_as_long_as_the_balances_published_for_them(convs, layers):
    """Compare with torchgpipe's unet-memory benchmark: [505], [526, 551], [800, 140, 62, 36, 36, 36, 36, 987]."""
    with torch.device("meta"):
        assert len(flat_unet(5, convs, 160)) == layers


@pytest.mark.parametrize("depth, convs, channels", [(1, 1, 2), (3, 1, 4), (2, 3, 5)])
def test_a_unet_keeps_the_size_of_its_input(depth, convs, channels):
    model = flat_unet(depth, convs, channels, inputs=2, outputs=3)
    assert model(torch.randn(2, 2, 16, 8)).shape == (2, 3, 16, 8)
    assert len(model) == 2 * depth * (4 * convs + 2) + 4 * convs + 1
    assert Counter(kinds(model))[Keep] == Counter(kinds(model))[Join] == depth


def test_a_unet_that_cannot_be_is_refused():
    for wrong in ({"depth": 0}, {"convs": 0}, {"channels": 1}):
        (name, value), *_ = wrong.items()
        with pytest.raises(ValueError, match=f"{name}={value}"):
            flat_unet(**wrong)


def test_resnets_convolutions_begin_as_he_et_al_draw_them():
    for module in _flat_resnet([1, 1], 10).modules():
        if isinstance(module, nn.Conv2d):
            fan_out = module.out_channels * module.kernel_size[0] ** 2
            assert module.weight.std().item() == pytest.approx((2 / fan_out) ** 0.5, rel=0.1)


# -- the nested twins --


@pytest.mark.parametrize("training", [False, True])
def test_a_flat_resnet_equals_the_nested_one(training):
    flat = disturbed(_flat_resnet([2, 1, 2, 1], 10)).train(training)
    with torch.device("meta"):
        nested = ResNet50(10).train(training)
    # All four stages, not all their blocks: as telling, and a quarter of the work.
    for i, blocks in enumerate((2, 1, 2, 1), 1):
        setattr(nested, f"layer{i}", getattr(nested, f"layer{i}")[:blocks])
    values = copy.deepcopy(flat).state_dict().values()
    nested.load_state_dict(dict(zip(nested.state_dict(), values, strict=True)), assign=True)
    x, target = torch.randn(4, 3, 32, 32).double(), torch.randn(4, 10).double()
    assert_close(of_one_step(flat, x, target), of_one_step(nested, x, target))
    assert_close(flat.buffers(), nested.buffers())


class Level(nn.Module):
    """A U-Net's level and all below it, without dropout."""

    def __init__(self, channels, width, depth, convs):
        super().__init__()
        self.down = self.convolutions(channels, width, width, convs)
        if depth > 1:
            self.below = Level(width, 2 * width, depth - 1, convs)
        else:
            self.below = self.convolutions(width, 2 * width, width, convs)
        self.up = self.convolutions(2 * width, width // 2, width // 2, convs)

    @staticmethod
    def convolutions(channels, width, out, convs):
        widths = [channels] + [width] * (convs - 1) + [out]
        return nn.ModuleList(nn.Conv2d(widths[i], widths[i + 1], 3, padding=1, bias=False) for i in range(convs))

    @staticmethod
    def through(convolutions, x):
        for convolution in convolutions:
            x = F.leaky_relu(F.instance_norm(convolution(x)), 0.01)
        return x

    def forward(self, x):
        skip = self.through(self.down, x)
        x = F.max_pool2d(skip, 2)
        x = self.below(x) if isinstance(self.below, Level) else self.through(self.below, x)
        x = x.repeat_interleave(2, 2).repeat_interleave(2, 3)
        return self.through(self.up, torch.cat([x, skip], 1))


@pytest.mark.parametrize("depth, convs", [(1, 1), (2, 2), (3, 3)])
def test_a_flat_unet_equals_the_nested_one(depth, convs):
    nested = nn.Sequential(Level(3, 4, depth, convs), nn.Conv2d(2, 2, 1, bias=False)).double()
    flat = flat_unet(depth, convs, 4, outputs=2).double().eval()
    flat.load_state_dict(dict(zip(flat.state_dict(), nested.state_dict().values(), strict=True)))
    x, target = torch.randn(2, 3, 16, 24).double(), torch.randn(2, 2, 16, 24).double()
    assert_close(of_one_step(flat, x, target), of_one_step(nested, x, target))


# -- the cuts --

SMALL = {
    "resnet": lambda: (_flat_resnet([1, 2], 5, width=2), (5,)),
    "unet": lambda: (flat_unet(2, 2, 2), (1, 16, 16)),
}


def cuts_of(model, parts, count=None):
    """Sizes of `parts` parts, all that there are or `count` of them at random."""
    inner = list(itertools.combinations(range(1, len(model)), parts - 1))
    for chosen in inner if count is None else random.sample(inner, count):
        yield [b - a for a, b in itertools.pairwise([0, *chosen, len(model)])]


def through_parts(model, sizes, x):
    given, start = (x,), 0
    for size in sizes:
        part = model[start : start + size]
        assert type(part) is Flat
        given = part(*given)
        given = (given,) if isinstance(given, torch.Tensor) else given
        start += size
    (y,) = given
    return y


def tried(name):
    model, shape = SMALL[name]()
    return disturbed(model).eval(), torch.randn(3, 3, 16, 16).double(), torch.randn(3, *shape).double()


@pytest.mark.parametrize("name", SMALL)
def test_slices_in_a_row_equal_the_whole_wherever_it_is_cut(name):
    model, x, _ = tried(name)
    with torch.no_grad():
        want = model(x)
        for sizes in [*cuts_of(model, 2), *cuts_of(model, 3, 12), [1] * len(model)]:
            torch.testing.assert_close(through_parts(model, sizes, x), want, rtol=0, atol=0)
        for sizes in cuts_of(model, 3, 3):  # and without a pipeline
            torch.testing.assert_close(split(model, sizes, ["cpu"] * 3)(x), want, rtol=0, atol=0)


@pytest.mark.parametrize("schedule", [gpipe, one_f_one_b])
@pytest.mark.parametrize("name", SMALL)
def test_a_pipeline_equals_the_whole_wherever_it_is_cut(name, schedule):
    model, x, target = tried(name)
    _, *want = of_one_step(copy.deepcopy(model), x, target)
    with torch.no_grad():
        loss = F.mse_loss(model(x), target)
    for sizes in [*cuts_of(model, 2), *cuts_of(model, 3, 12)]:
        model.zero_grad()
        x = x.detach().requires_grad_()
        pipeline = split(model, sizes, ["cpu"] * len(sizes))
        done = pipeline_step(pipeline, schedule(len(sizes), 2), x, target, F.mse_loss)
        assert_close([done.loss, x.grad, *(p.grad for p in model.parameters())], [loss, *want])


def test_skips_are_taken_last_first_by_layers_given_one_argument_or_several():
    a, b, x = (torch.full((1, 1, 2, 2), float(i)) for i in range(3))
    for layer, want in [
        (Plain(nn.AvgPool2d(2)), [a, b, x[..., :1, :1]]),
        (Keep(), [a, b, x, x]),
        (Add(), [a, b + x]),
        (Add(nn.Upsample(scale_factor=1)), [a, b + x]),
        (Join(), [a, torch.cat([x, b], 1)]),
    ]:
        for part in (layer, Flat(layer)):
            for found in (part(a, b, x), part((a, b, x))):
                assert isinstance(found, tuple)
                assert_close(found, want)


def test_a_tensor_alone_comes_out_where_nothing_is_remembered():
    x = torch.ones(1, 2, 2, 2)
    relu = Plain(nn.ReLU())
    for part in (relu, Flat(relu), Flat(Keep(), relu, Add()), Flat(Keep(), Join(), relu)):
        assert isinstance(part(x), torch.Tensor) and torch.equal(part(x), part((x,)))


def test_a_part_without_its_skips_is_refused():
    model, x, _ = tried("unet")
    with pytest.raises(ValueError, match="all that the part before it returns"):
        model[at(model, Join)[0] :](x)
