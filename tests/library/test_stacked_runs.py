"""Many small models trained at once: each as the plain loop trains it alone."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from mpcourse.data import Dataset, Examples
from mpcourse.large_batch import LARS, Schedule, scheduler
from mpcourse.models import conv_net, mlp
from mpcourse.models.training import train
from mpcourse.studies import StackedMLPs, StackedRuns, StackedSGD

WIDTHS = [16, 9, 7, 3]
SEEDS = [3, 1, 4, 1, 5]
F64 = torch.float64


def drawn(n, dtype):
    return Examples(torch.rand(n, 1, 4, 4).to(dtype), torch.randint(3, (n,)))


@pytest.fixture(params=[torch.float64, torch.float32], ids=["float64", "float32"])
def data(request):
    return Dataset("drawn", drawn(43, request.param), drawn(19, request.param), classes=3)


def schedules(steps):
    """Return a rate of its own for each run: constant, warmed up, decaying."""
    return [
        Schedule(peak=0.3),
        Schedule(peak=0.1),
        Schedule(peak=0.5, start=0.1, warmup_steps=7),
        Schedule(peak=0.2, decay="cosine", steps=steps),
        Schedule(peak=0.4, decay="step", milestones=(5, 11)),
    ]


def plain(data, seed, schedule, batch_size, epochs, make, record_every=None):
    """Return the run that one of many should equal: model and curve."""
    torch.manual_seed(seed)
    model = mlp(WIDTHS).to(data.train.images.dtype)
    optimizer = make(model.parameters(), schedule.peak)
    rates = scheduler(optimizer, schedule)
    optimizer.register_step_post_hook(lambda *_: rates.step())
    return model, train(model, data, optimizer, epochs, batch_size, seed, record_every=record_every, progress=False)


OPTIMIZERS = {
    "sgd": ({}, lambda p, lr: torch.optim.SGD(p, lr=lr)),
    "momentum": (
        {"momentum": 0.8, "weight_decay": 0.01},
        lambda p, lr: torch.optim.SGD(p, lr=lr, momentum=0.8, weight_decay=0.01),
    ),
    "lars": (
        {"momentum": 0.9, "weight_decay": 0.02, "trust_coefficient": 0.05},
        lambda p, lr: LARS(p, lr=lr, momentum=0.9, weight_decay=0.02, trust_coefficient=0.05),
    ),
}


@pytest.mark.parametrize(("options", "make"), OPTIMIZERS.values(), ids=OPTIMIZERS)
@pytest.mark.parametrize(("batch_size", "record_every"), [(8, None), (5, 4), (43, None)])
def test_each_of_many_runs_equals_the_plain_loop(data, options, make, batch_size, record_every):
    epochs = 4
    steps = epochs * -(-43 // batch_size)
    rates = torch.tensor([[schedule(step) for schedule in schedules(steps)] for step in range(steps)], dtype=F64)
    runs = StackedRuns(WIDTHS, data, batch_size, SEEDS, rates, record_every=record_every, **options)
    curves = runs.finish()
    bound = 1e-10 if data.train.images.dtype == torch.float64 else 1e-4
    for i, (seed, schedule) in enumerate(zip(SEEDS, schedules(steps), strict=True)):
        model, curve = plain(data, seed, schedule, batch_size, epochs, make, record_every)
        for p, q in zip(runs.models.model(i).parameters(), model.parameters(), strict=True):
            assert p.dtype == q.dtype and torch.allclose(p, q, rtol=bound, atol=bound), (p - q).abs().max()
        assert curves[i].step == curve.step and curves[i].epoch == pytest.approx(curve.epoch)
        assert curves[i].train_loss == pytest.approx(curve.train_loss, rel=10 * bound)
        assert len(curves[i].seconds) == len(curve.step)
        if bound < 1e-9:
            assert curves[i].test_accuracy == curve.test_accuracy


def test_gradients_are_those_of_autograd():
    models = [mlp(WIDTHS).double() for _ in range(4)]
    x, labels = torch.randn(4, 6, 16, dtype=torch.float64), torch.randint(3, (4, 6))
    many = StackedMLPs(models)
    losses, gradients = many.gradients(x, labels)
    assert [g.shape for g in gradients] == [p.shape for p in many.parameters]
    for i, model in enumerate(models):
        loss = F.cross_entropy(model(x[i]), labels[i])
        loss.backward()
        assert losses[i].item() == pytest.approx(loss.item(), rel=1e-13)
        for p, g in zip(model.parameters(), gradients, strict=True):
            assert torch.allclose(p.grad, g[i].T if p.dim() == 2 else g[i, 0], rtol=0, atol=1e-14)
        assert torch.allclose(many.logits(x)[i], model(x[i]), rtol=0, atol=1e-13)
        assert torch.allclose(many.logits(x[0])[i], model(x[0]), rtol=0, atol=1e-13)


def test_networks_are_those_of_their_seeds_and_the_random_generator_is_left_alone():
    torch.manual_seed(11)
    before = torch.get_rng_state()
    many = StackedMLPs.from_seeds(WIDTHS, [7, 8])
    found = [many.model(i) for i in range(2)]
    assert torch.equal(before, torch.get_rng_state())
    for i, seed in enumerate([7, 8]):
        torch.manual_seed(seed)
        want = mlp(WIDTHS)
        assert all(torch.equal(p, q) for p, q in zip(found[i].parameters(), want.parameters(), strict=True))


@pytest.mark.parametrize("stopped_after", [1, 3, 5])
def test_a_run_goes_on_from_its_state_to_the_same_bits(data, stopped_after, tmp_path):
    def made():
        rates = torch.full((22, 2), 0.2)
        return StackedRuns(WIDTHS, data, 8, [1, 2], rates, momentum=0.9, record_every=4)

    whole, first, second = made(), made(), made()
    whole.finish()
    for _ in range(stopped_after):
        first.advance()
    torch.save(first.state_dict(), tmp_path / "state.pt")
    second.load_state_dict(torch.load(tmp_path / "state.pt"))
    assert second.step == first.step and not second.done
    second.finish()
    for p, q in zip(whole.models.parameters, second.models.parameters, strict=True):
        assert torch.equal(p, q)
    for a, b in zip(whole.curves, second.curves, strict=True):
        assert (a.step, a.train_loss, a.test_accuracy) == (b.step, b.train_loss, b.test_accuracy)


def test_one_that_diverges_leaves_the_others_alone(data):
    rates = torch.tensor([0.2, 1e30]).expand(20, 2)
    both = StackedRuns(WIDTHS, data, 8, [1, 2], rates, momentum=0.9)
    alone = StackedRuns(WIDTHS, data, 8, [1, 9], torch.full((20, 2), 0.2), momentum=0.9)
    found, want = both.finish(), alone.finish()
    assert not found[1].train_loss[-1] < 1e20  # infinite, or NaN, in float32
    assert found[0].train_loss == pytest.approx(want[0].train_loss, rel=1e-6)


def test_one_run_may_be_all_there_is(data):
    (curve,) = StackedRuns(WIDTHS, data, 8, [1], torch.full((6, 1), 0.2)).finish()
    assert curve.step == [6]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"batch_size": 44}, "batch size from 1 to 43"),
        ({"batch_size": 0}, "batch size from 1 to 43"),
        ({"record_every": 0}, "record_every >= 1"),
        ({"rates": torch.ones(5, 3)}, r"rates are \(updates, 2\)"),
        ({"seeds": [], "rates": torch.ones(5, 0)}, "for as many seeds"),
    ],
)
def test_runs_that_make_no_sense_are_refused(data, change, said):
    options = {"batch_size": 8, "seeds": [1, 2], "rates": torch.ones(5, 2)} | change
    with pytest.raises(ValueError, match=said):
        StackedRuns(WIDTHS, data, **options)


@pytest.mark.parametrize(
    "models", [[], [mlp([4, 3]), mlp([4, 2])], [conv_net(8)], [nn.Sequential(nn.Linear(4, 3), nn.ReLU())]]
)
def test_what_cannot_be_stacked_is_refused(models):
    with pytest.raises(ValueError, match="stacked"):
        StackedMLPs(models)


def test_a_bias_of_one_number_and_a_weight_of_one_row_are_told_apart():
    """LARS trusts weights by their norm, whatever their shape, and biases with 1."""
    model = mlp([1, 1, 2]).double()
    many = StackedMLPs([model])
    x, labels = torch.randn(1, 4, 1, dtype=torch.float64), torch.tensor([[0, 1, 1, 0]])
    _, gradients = many.gradients(x, labels)
    StackedSGD(many, trust_coefficient=0.01).step(gradients, torch.tensor([2.0], dtype=torch.float64))
    optimizer = LARS(model.parameters(), lr=2.0, momentum=0.0, trust_coefficient=0.01)
    F.cross_entropy(model(x[0]), labels[0]).backward()
    optimizer.step()
    for p, q in zip(many.model(0).parameters(), model.parameters(), strict=True):
        assert torch.allclose(p, q, rtol=0, atol=1e-13)


def test_the_benchmark_compares_results_and_measures_both_sides():
    from tests.validation.stacked_runs import StackedRunsCase, _measured, _records

    case = StackedRunsCase(batch=200, together=3, epochs=2, plain=2)
    found = _measured(case, runs=2)
    assert found.exactly < 1e-12 and 0 < found.apart < 1e-4 and 0 < found.reordered < 1e-4 and found.examples == 0
    records = list(_records(case, found))
    assert [r.what.split(": ")[1] for r in records] == [
        "plain loop", "3 at once", "3 at once / plain loop", "parameters apart, float64", "parameters apart, float32",
        "plain loop, units reordered", "tests judged differently",
    ]  # fmt: skip
    assert all(len(r.runs) == 2 and min(r.runs) > 0 for r in records[:3])
    assert [r.promise for r in records] == [None, None, None, 1e-3, None, None, 0]
    assert list(_records(StackedRunsCase(), found))[2].promise == 5.0
