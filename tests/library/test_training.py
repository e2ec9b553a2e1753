"""The plain loop of one device: what it computes, and what it writes down."""

import pytest
import torch
import torch.nn.functional as F

from mpcourse.course.check.cases import e01_memory
from mpcourse.data import Dataset, Examples, digits
from mpcourse.models import conv_net, mlp
from mpcourse.models.step_memory import measure_step
from mpcourse.models.training import batches, evaluate, train


@pytest.fixture
def data():
    generator = torch.Generator().manual_seed(1)

    def draw(n):
        return Examples(torch.rand(n, 1, 4, 4, generator=generator), torch.randint(3, (n,), generator=generator))

    return Dataset("drawn", draw(23), draw(11), classes=3)


def test_an_epoch_sees_every_example_once_and_the_last_batch_is_what_is_left(data):
    seen = list(batches(data.train, 5, torch.Generator().manual_seed(0)))
    assert [len(labels) for _, labels in seen] == [5, 5, 5, 5, 3]
    images = torch.cat([images for images, _ in seen])
    assert torch.equal(images.flatten(1).sum(1).sort().values, data.train.images.flatten(1).sum(1).sort().values)


def test_training_equals_the_same_steps_written_out(data):
    torch.manual_seed(0)
    model, twin = mlp([16, 8, 3]), mlp([16, 8, 3])
    twin.load_state_dict(model.state_dict())
    curve = train(model, data, torch.optim.Adam(model.parameters()), 2, 5, seed=3, record_every=2, progress=False)
    optimizer, generator, losses = torch.optim.Adam(twin.parameters()), torch.Generator().manual_seed(3), []
    for _ in range(2):
        for chosen in torch.randperm(23, generator=generator).split(5):
            optimizer.zero_grad()
            loss = F.cross_entropy(twin(data.train.images[chosen]), data.train.labels[chosen])
            loss.backward()
            optimizer.step()
            losses.append((loss.item(), len(chosen)))
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), twin.parameters(), strict=True))
    pairs = [losses[i : i + 2] for i in range(0, 10, 2)]
    expected = [sum(value * n for value, n in pair) / sum(n for _, n in pair) for pair in pairs]
    assert curve.train_loss == pytest.approx(expected, rel=1e-12)


def test_the_curve_counts_steps_epochs_and_seconds(data):
    model = mlp([16, 3])
    curve = train(model, data, torch.optim.SGD(model.parameters(), lr=0.1), 3, 10, record_every=2, progress=False)
    assert curve.step == [2, 4, 6, 8, 9]  # 3 epochs of 3 steps; the end is recorded too
    assert curve.epoch == pytest.approx([2 / 3, 4 / 3, 2, 8 / 3, 3])
    assert all(b > a > 0 for a, b in zip(curve.seconds, curve.seconds[1:], strict=False))
    assert curve.test_accuracy[-1] == evaluate(model, data.test)


def test_evaluation_counts_every_example_and_puts_the_mode_back(data):
    model = torch.nn.Sequential(mlp([16, 3]), torch.nn.Dropout(0.5)).train()
    accuracy = evaluate(model, data.test, batch_size=4)
    assert model.training
    with torch.no_grad():
        right = (model.eval()(data.test.images).argmax(1) == data.test.labels).sum().item()
    assert accuracy == right / 11


def test_no_epochs_give_an_empty_curve_and_leave_the_model_alone(data):
    model = mlp([16, 3])
    before = [p.clone() for p in model.parameters()]
    curve = train(model, data, torch.optim.SGD(model.parameters(), lr=0.1), 0, 10, progress=False)
    assert curve.step == [] and all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


@pytest.mark.parametrize("wrong", [{"epochs": -1}, {"batch_size": 0}, {"batch_size": 24}, {"record_every": 0}])
def test_numbers_that_make_no_sense_are_refused(data, wrong):
    model = mlp([16, 3])
    options = {"epochs": 1, "batch_size": 5, "record_every": None} | wrong
    with pytest.raises(ValueError, match="batch size from 1 to 23"):
        train(model, data, torch.optim.SGD(model.parameters(), lr=0.1), progress=False, **options)


@pytest.mark.parametrize("build", [lambda: mlp([64, 100, 10]), lambda: conv_net(side=8)])
def test_the_lessons_models_learn_real_digits(build):
    torch.manual_seed(0)
    model, data = build(), digits()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    curve = train(model, data, optimizer, epochs=4, batch_size=32, progress=False)
    assert curve.test_accuracy[-1] > 0.9  # chance is 0.1


def test_chainers_network_has_its_published_number_of_parameters():
    assert sum(p.numel() for p in mlp().parameters()) == 1_796_010


@pytest.mark.parametrize("side", [4, 8, 28, 29])
def test_the_conv_net_takes_any_side_from_four_on(side):
    assert conv_net(side)(torch.zeros(2, 1, side, side)).shape == (2, 10)


@pytest.mark.parametrize("make", [lambda: mlp([5]), lambda: mlp([5, 0]), lambda: conv_net(side=3)])
def test_a_network_that_cannot_be_is_refused(make):
    with pytest.raises(ValueError, match="got"):
        make()


def test_a_tensor_that_two_operations_save_is_counted_once():
    model = mlp([6, 5, 4])
    images, labels = torch.randn(7, 6), torch.randint(4, (7,))
    measured = measure_step(model, images, labels, torch.optim.SGD(model.parameters(), lr=0.1))
    shapes = sorted(saved.shape for saved in measured.saved)
    assert shapes == sorted([(7, 6), (7, 5), (7, 4), (7,), ()])  # input, ReLU's output once, log-probabilities, labels
    assert measured.activations == 4 * 7 * (6 + 5 + 4) + 8 * 7 + 4


def test_tied_weights_are_counted_once_and_frozen_ones_have_no_gradient():
    tied = torch.nn.Linear(5, 5)
    frozen = torch.nn.Linear(5, 5).requires_grad_(False)
    frozen.weight = torch.nn.Parameter(tied.weight.detach(), requires_grad=False)  # another parameter, the same memory
    model = torch.nn.Sequential(tied, torch.nn.ReLU(), tied, frozen)
    images, labels = torch.randn(2, 5), torch.tensor([0, 2])
    measured = measure_step(model, images, labels, torch.optim.SGD(tied.parameters(), lr=0.1, momentum=0.9))
    assert measured.parameters == 4 * (25 + 5 + 5)
    assert measured.gradients == measured.optimizer == 4 * 30


@pytest.mark.parametrize("optimizer", e01_memory.OPTIMIZERS)
@pytest.mark.parametrize(("widths", "batch"), [((784, 100, 10), 10), ((7, 3), 1), ((20, 30, 40, 5), 9)])
def test_the_ledger_of_a_virtual_gpu_holds_what_autograd_saves(widths, batch, optimizer):
    model = mlp(widths)
    images, labels = torch.randn(batch, widths[0]), torch.randint(widths[-1], (batch,))
    real = measure_step(model, images, labels, e01_memory.OPTIMIZERS[optimizer](model.parameters()))
    virtual = e01_memory.measured(widths, batch, optimizer)
    assert virtual.as_dict() == real.as_dict()
    assert sorted(map(str, virtual.saved)) == sorted(map(str, real.saved))
