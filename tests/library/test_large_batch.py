"""Schedules, LARS, LAMB, RMSprop warm-up and ghost batch norm: by hand, and where they are torch's own."""

import copy
import itertools
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from mpcourse.data_parallel import MultiNodeOptimizer, create_communicator
from mpcourse.large_batch import (
    LAMB,
    LARS,
    SCALINGS,
    GhostBatchNorm,
    RMSpropWarmup,
    Schedule,
    scheduler,
    sgd_share,
    trust_ratio,
)
from mpcourse.virtual import run


def test_scaling_rules_give_the_published_rates():
    goyal = SCALINGS["linear"](0.1, 8192, 256)
    assert goyal == pytest.approx(3.2)  # batch 8192 of ImageNet in one hour
    assert SCALINGS["sqrt"](0.1, 4096, 256) == pytest.approx(0.4)
    assert SCALINGS["none"](0.1, 4096, 256) == 0.1
    for rule in SCALINGS.values():
        assert rule(0.3, 96, 96) == 0.3
        with pytest.raises(ValueError, match="1 example or more"):
            rule(0.1, 0, 32)


def test_warm_up_is_a_straight_line_by_the_step_from_start_to_peak():
    schedule = Schedule(peak=3.2, start=0.1, warmup_steps=5)
    found = [schedule(step) for step in range(8)]
    assert found == pytest.approx([0.1, 0.72, 1.34, 1.96, 2.58, 3.2, 3.2, 3.2])
    assert [Schedule(peak=2.0)(step) for step in range(3)] == [2.0] * 3


def test_decays_begin_and_end_where_they_say():
    steps = Schedule(peak=1.0, warmup_steps=2, decay="step", milestones=(3, 5))
    assert [steps(s) for s in range(7)] == pytest.approx([0, 0.5, 1, 0.1, 0.1, 0.01, 0.01])
    cosine = Schedule(peak=2.0, warmup_steps=2, decay="cosine", steps=6)
    want = [0, 1, 2, 1 + math.sqrt(0.5), 1, 1 - math.sqrt(0.5), 0, 0]
    assert [cosine(s) for s in range(8)] == pytest.approx(want, abs=1e-12)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"peak": 0.0}, "positive"),
        ({"peak": float("nan")}, "positive"),
        ({"peak": 1.0, "start": 2.0}, "goes upwards"),
        ({"peak": 1.0, "decay": "linear"}, "none, cosine or step"),
        ({"peak": 1.0, "decay": "cosine", "warmup_steps": 5, "steps": 5}, "begins after the warm-up"),
        ({"peak": 1.0, "milestones": (3,)}, "go together"),
    ],
)
def test_schedules_that_make_no_sense_are_refused(options, said):
    with pytest.raises(ValueError, match=said):
        Schedule(**options)


def test_the_torch_scheduler_gives_every_update_its_rate_and_keeps_ratios_of_groups():
    a, b = nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(2))
    optimizer = LARS([{"params": [a]}, {"params": [b], "lr": 0.8}], lr=3.2)
    schedule = Schedule(peak=3.2, start=0.1, warmup_steps=4, decay="step", milestones=(6,))
    torch_scheduler = scheduler(optimizer, schedule)
    for step in range(8):
        assert [g["lr"] for g in optimizer.param_groups] == pytest.approx([schedule(step), schedule(step) / 4])
        optimizer.step()
        torch_scheduler.step()


# -- optimizers ------------------------------------------------------------------------------------------------------


class Problem:
    """Parameters of these shapes that are drawn towards goals, some strongly: what an optimizer is tried on."""

    def __init__(self, *shapes):
        self.params = [nn.Parameter(torch.randn(shape, dtype=torch.float64)) for shape in shapes]
        self.goals = [torch.randn(shape, dtype=torch.float64) for shape in shapes]

    def loss(self):
        pairs = zip(self.params, self.goals, strict=True)
        return sum(((p - goal) ** 2 * (1 + goal**2)).sum() for p, goal in pairs)

    def train(self, optimizer, steps, change=None):
        """Return the parameters after so many steps; change(step, optimizer) comes before each."""
        for step in range(steps):
            if change:
                change(step, optimizer)
            optimizer.zero_grad()
            self.loss().backward()
            optimizer.step()
        return [p.detach().clone() for p in self.params]


def twins(*shapes):
    problem = Problem(*shapes)
    return problem, copy.deepcopy(problem)


def assert_close(found, want, bound=1e-12):
    for f, w in zip(found, want, strict=True):
        assert torch.allclose(f, w, rtol=bound, atol=bound), (f - w).abs().max()


def test_a_first_step_of_lars_is_as_long_as_the_rule_says():
    """Check that with g parallel to w, ||g|| + wd ||w|| is ||g + wd w||, and the step is lr coefficient ||w|| long."""
    w = nn.Parameter(torch.tensor([[3.0, 4.0]], dtype=torch.float64))
    for size in (1e-6, 1.0, 1e6):
        with torch.no_grad():
            w.copy_(torch.tensor([[3.0, 4.0]]))
        w.grad = size * torch.tensor([[3.0, 4.0]], dtype=torch.float64)
        LARS([w], lr=2.0, weight_decay=0.1, trust_coefficient=0.01).step()
        assert_close([w.detach()], [torch.tensor([[2.94, 3.92]], dtype=torch.float64)])


def test_lars_equals_its_formula_in_numpy_with_a_changing_rate():
    problem, rates = Problem((4, 3), (2, 3, 5)), [0.5, 2.0, 4.0, 4.0, 1.0, 0.1]
    ws, goals = ([t.detach().numpy().copy() for t in ts] for ts in (problem.params, problem.goals))
    vs = [np.zeros_like(w) for w in ws]
    for rate in rates:
        for i, goal in enumerate(goals):
            g = 2 * (ws[i] - goal) * (1 + goal**2)
            trust = 0.02 * np.sqrt((ws[i] ** 2).sum()) / (np.sqrt((g**2).sum()) + 0.3 * np.sqrt((ws[i] ** 2).sum()))
            vs[i] = 0.7 * vs[i] + rate * trust * (g + 0.3 * ws[i])
            ws[i] = ws[i] - vs[i]
    optimizer = LARS(problem.params, lr=1.0, momentum=0.7, weight_decay=0.3, trust_coefficient=0.02)

    def change(step, optimizer):
        optimizer.param_groups[0]["lr"] = rates[step]

    assert_close(problem.train(optimizer, len(rates), change), [torch.from_numpy(w) for w in ws])


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_lars_with_a_trust_of_1_is_torchs_sgd(momentum):
    ours, theirs = twins((5,), (), (1,))
    sgd = torch.optim.SGD(theirs.params, lr=0.01, momentum=momentum, weight_decay=0.2)
    found = ours.train(LARS(ours.params, lr=0.01, momentum=momentum, weight_decay=0.2), 6)
    assert_close(found, theirs.train(sgd, 6))


def test_one_dimensional_parameters_take_part_in_lars_and_lamb_where_asked():
    for kind in (LARS, LAMB):
        ours, theirs = twins((5,))
        own = ours.train(kind(ours.params, lr=0.01, exclude_1d=False), 1)
        usual = theirs.train(kind(theirs.params, lr=0.01), 1)
        assert not torch.allclose(own[0], usual[0])


def test_trust_is_1_where_norms_are_zero_and_no_step_is_nan():
    zero, some = torch.zeros(2, 3), torch.ones(2, 3)
    assert trust_ratio(zero, some) == 1 and trust_ratio(zero, zero) == 1 and trust_ratio(some, zero) == 1
    assert trust_ratio(some, zero, weight_decay=0.5, coefficient=0.1) == pytest.approx(0.2)
    for optimizer in (LARS, LAMB):
        for w0, g in ((zero, some), (zero, zero), (some, zero)):
            w = nn.Parameter(w0.clone())
            w.grad = g.clone()
            optimizer([w], lr=0.5).step()
            assert w.isfinite().all()
            assert torch.equal(w.detach(), w0) == (not g.any())


def test_trust_of_half_precision_weights_does_not_overflow():
    big = torch.full((300, 300), 300.0, dtype=torch.float16)
    assert trust_ratio(big, big, coefficient=0.5) == pytest.approx(0.5, rel=1e-3)
    w = nn.Parameter(big.clone())
    w.grad = big.clone()
    LARS([w], lr=1.0, trust_coefficient=0.01).step()
    assert w.dtype == torch.float16 and torch.allclose(w.detach().float(), torch.tensor(297.0))


def test_a_first_step_of_lamb_is_the_sign_of_the_gradient_as_long_as_the_weights():
    w = nn.Parameter(torch.tensor([[3.0, 4.0]], dtype=torch.float64))
    w.grad = torch.tensor([[5.0, -7.0]], dtype=torch.float64)
    LAMB([w], lr=0.1, eps=0.0).step()
    side = 0.1 * 5 / math.sqrt(2)
    assert_close([w.detach()], [torch.tensor([[3 - side, 4 + side]], dtype=torch.float64)])
    with torch.no_grad():
        w.copy_(torch.tensor([[3.0, 4.0]]))
    LAMB([w], lr=0.1, eps=0.0, bounds=(0.0, 2.0)).step()  # phi cuts the norm of 5 off at 2
    side = 0.1 * 2 / math.sqrt(2)
    assert_close([w.detach()], [torch.tensor([[3 - side, 4 + side]], dtype=torch.float64)])


def test_lamb_with_a_ratio_of_1_is_torchs_adamw():
    ours, theirs = twins((5,), (), (3,))
    options = {"lr": 0.02, "betas": (0.8, 0.95), "eps": 1e-5, "weight_decay": 0.3}
    found = ours.train(LAMB(ours.params, **options), 7)
    assert_close(found, theirs.train(torch.optim.AdamW(theirs.params, **options), 7))


def test_the_ratio_of_lamb_multiplies_the_step_of_adamw():
    """Both are put to the same place before each step, so that their moments are the same."""
    ours, theirs = twins((4, 6))
    options = {"lr": 0.01, "eps": 1e-6, "weight_decay": 0.1}
    lamb, adamw = LAMB(ours.params, **options), torch.optim.AdamW(theirs.params, **options)
    for _ in range(5):
        before = ours.params[0].detach().clone()
        with torch.no_grad():
            theirs.params[0].copy_(before)
        (found,), (adam,) = ours.train(lamb, 1), theirs.train(adamw, 1)
        u = (before - adam) / 0.01
        assert_close([found], [before - 0.01 * before.norm() / u.norm() * u], 1e-10)


def test_the_change_from_rmsprop_to_sgd_has_its_half_its_ends_and_no_jump():
    assert sgd_share(10, 10, 4) == 0.5
    assert sgd_share(0, 10, 4) == pytest.approx(0.5 * math.exp(-5))
    assert [sgd_share(step, 10, 4) for step in (11, 12, 13, 99)] == [0.75, 1.0, 1.0, 1.0]
    assert [sgd_share(step, 3, 0) for step in range(5)] == [0, 0, 0, 1, 1]
    fine = [sgd_share(step / 1000, 10, 4) for step in range(14_000)]
    assert max(b - a for a, b in itertools.pairwise(fine)) < 0.26e-3  # the line's slope is 1/4
    assert fine == sorted(fine)


def test_rmsprop_warm_up_is_torchs_sgd_after_the_change_and_torchs_rmsprop_long_before():
    def change(step, optimizer):
        optimizer.param_groups[0]["lr"] = 0.01 * (1 + step)

    ours, theirs = twins((4, 3), (5,))
    own = RMSpropWarmup(ours.params, lr=0.01, center=0, period=0, momentum=0.8, weight_decay=0.1)
    found = ours.train(own, 6, change)
    sgd = torch.optim.SGD(theirs.params, lr=0.01, momentum=0.8, weight_decay=0.1)
    assert_close(found, theirs.train(sgd, 6, change))
    ours, theirs = twins((4, 3), (5,))
    options = {"momentum": 0.8, "alpha": 0.9, "eps": 1e-6, "weight_decay": 0.1}
    own = RMSpropWarmup(ours.params, lr=0.5, center=10_000, period=2, lr_rmsprop=0.003, **options)
    found = ours.train(own, 6)
    assert_close(found, theirs.train(torch.optim.RMSprop(theirs.params, lr=0.003, **options), 6))


def test_half_way_rmsprop_warm_up_adds_half_of_each():
    w = nn.Parameter(torch.tensor([2.0], dtype=torch.float64))
    w.grad = torch.tensor([4.0], dtype=torch.float64)
    RMSpropWarmup([w], lr=0.1, center=0, period=8, lr_rmsprop=0.01, alpha=0.75, eps=0.0).step()
    # m = 16 / 4, sqrt(m) = 2: 0.5 * 0.1 * 4 from SGD, 0.5 * 0.01 * 4 / 2 from RMSprop
    assert w.item() == pytest.approx(2 - 0.2 - 0.01, rel=1e-14)


MAKERS = {
    "LARS": lambda p: LARS(p, lr=0.5, weight_decay=0.01, trust_coefficient=0.05),
    "LAMB": lambda p: LAMB(p, lr=0.05, weight_decay=0.01),
    "RMSpropWarmup": lambda p: RMSpropWarmup(p, lr=0.02, center=3, period=4, weight_decay=0.01),
}
EACH = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)


class Tied(nn.Module):
    """One weight in two places, a frozen layer between them, and a parameter that no loss depends on."""

    def __init__(self):
        super().__init__()
        self.first, self.frozen, self.last = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 6)
        self.last.weight = self.first.weight
        self.unused = nn.Parameter(torch.ones(3, 3))
        self.frozen.requires_grad_(False)
        self.double()

    def forward(self, x):
        return self.last(torch.tanh(self.frozen(torch.tanh(self.first(x)))))


@EACH
def test_tied_weights_move_once_frozen_and_unused_ones_never(make):
    model = Tied()
    untied = copy.deepcopy(model)  # run below as a function of the first weight alone
    optimizer, other = make(model.parameters()), make(list(untied.parameters()))
    start = copy.deepcopy(model)
    for _ in range(4):
        x = torch.randn(5, 6, dtype=torch.float64)
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        other.zero_grad()
        w, hidden = untied.first.weight, untied.frozen
        y = F.linear(torch.tanh(hidden(torch.tanh(F.linear(x, w, untied.first.bias)))), w, untied.last.bias)
        y.square().mean().backward()
        other.step()
    assert model.last.weight is model.first.weight
    assert_close([p.detach() for p in model.parameters()], [p.detach() for p in untied.parameters()])
    assert not torch.equal(model.first.weight, start.first.weight)
    for name in ("frozen.weight", "frozen.bias", "unused"):
        assert torch.equal(model.get_parameter(name), start.get_parameter(name))


@EACH
def test_training_goes_on_from_a_saved_state_as_if_it_had_not_stopped(make, tmp_path):
    ours, theirs = twins((4, 3), (5,))
    optimizer = make(ours.params)
    ours.train(optimizer, 3)
    torch.save({"optimizer": optimizer.state_dict(), "params": ours.params}, tmp_path / "saved.pt")
    want = ours.train(optimizer, 4)
    saved = torch.load(tmp_path / "saved.pt", weights_only=False)
    again = make(theirs.params)
    again.load_state_dict(saved["optimizer"])
    with torch.no_grad():
        for p, old in zip(theirs.params, saved["params"], strict=True):
            p.copy_(old)
    found = theirs.train(again, 4)
    assert all(torch.equal(f, w) for f, w in zip(found, want, strict=True))


@EACH
def test_a_closure_is_run_with_gradients_and_its_loss_returned(make):
    ours, theirs = twins((4, 3), (5,))
    optimizer, plain = make(ours.params), make(theirs.params)
    for _ in range(3):

        def closure():
            optimizer.zero_grad()
            value = ours.loss()
            value.backward()
            return value

        want = theirs.loss().item()
        with torch.no_grad():
            assert optimizer.step(closure).item() == want
        theirs.train(plain, 1)
    assert all(torch.equal(p, q) for p, q in zip(ours.params, theirs.params, strict=True))


@EACH
def test_groups_have_options_of_their_own_and_more_can_join(make):
    ours, theirs = twins((4, 3), (2, 2))
    optimizer = make([{"params": ours.params[:1]}])
    optimizer.add_param_group({"params": ours.params[1:], "lr": 1e-30, "lr_rmsprop": 0.0})
    found = ours.train(optimizer, 3)
    assert not torch.allclose(found[0], theirs.params[0]) and torch.allclose(found[1], theirs.params[1])


@EACH
def test_ranks_that_average_gradients_equal_one_process(make):
    def program(comm):
        generator = torch.Generator().manual_seed(5)
        torch.manual_seed(5)
        model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)).double()
        alone = copy.deepcopy(model)
        ours = MultiNodeOptimizer(make(model.parameters()), create_communicator("flat", comm), model=model)
        own = make(alone.parameters())
        for _ in range(4):
            x = torch.randn(12, 6, dtype=torch.float64, generator=generator)
            for each, optimizer, part in ((model, ours, x[comm.rank :: comm.size]), (alone, own, x)):
                optimizer.zero_grad()
                each(part).square().mean().backward()
                optimizer.step()
        pairs = zip(model.parameters(), alone.parameters(), strict=True)
        return max((p - q).abs().max().item() for p, q in pairs)

    assert max(run(program, 3).results) < 1e-12


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda p: LARS(p, lr=-1.0), "lr >= 0"),
        (lambda p: LARS(p, lr=1.0, momentum=1.0), "momentum from 0 to below 1"),
        (lambda p: LAMB(p, betas=(0.9, 1.0)), "betas from 0"),
        (lambda p: LAMB(p, bounds=(3.0, 1.0)), "the lower first"),
        (lambda p: RMSpropWarmup(p, lr=0.0, center=1, period=1), "lr > 0"),
        (lambda p: RMSpropWarmup(p, lr=1.0, center=1, period=-1), "0 updates or more"),
    ],
)
def test_options_that_make_no_sense_are_refused(make, said):
    with pytest.raises(ValueError, match=said):
        make([nn.Parameter(torch.ones(2))])


@EACH
def test_sparse_gradients_are_refused_in_one_line(make):
    layer = nn.Embedding(4, 3, sparse=True)
    layer(torch.tensor([1])).sum().backward()
    with pytest.raises(ValueError, match=r"\(4, 3\) is sparse: sparse=False"):
        make(layer.parameters()).step()


def test_a_rate_of_zero_during_rmsprop_warm_up_is_told():
    ours = Problem((2,))
    optimizer = RMSpropWarmup(ours.params, lr=0.1, center=1, period=1)
    optimizer.param_groups[0]["lr"] = 0.0
    ours.loss().backward()
    with pytest.raises(ValueError, match="begin with a positive one"):
        optimizer.step()


# -- ghost batch norm ------------------------------------------------------------------------------------------------


def parts_by_hand(x, sizes, momentum, eps=1e-5):
    """Normalised parts and running statistics, in numpy, written from Hoffer's algorithm 1."""
    mean, var, out = np.zeros(x.shape[1]), np.ones(x.shape[1]), []
    axes = (0, *range(2, x.ndim))
    for part in np.split(x, np.cumsum(sizes)[:-1]):
        m, v = part.mean(axes, keepdims=True), part.var(axes, keepdims=True)
        out.append((part - m) / np.sqrt(v + eps))
        n = part.size / part.shape[1]
        mean = (1 - momentum) * mean + momentum * m.ravel()
        var = (1 - momentum) * var + momentum * v.ravel() * n / (n - 1)
    return np.concatenate(out), mean, var


@pytest.mark.parametrize(
    ("shape", "ghost", "sizes"),
    [
        ((12, 3), 4, [4, 4, 4]),
        ((14, 3), 4, [4, 4, 4, 2]),
        ((13, 3), 4, [4, 4, 5]),  # a last one alone has no variance
        ((13, 3, 2, 2), 4, [4, 4, 4, 1]),  # here it has four values a channel
        ((3, 3), 4, [3]),
        ((4, 3), 4, [4]),
    ],
)
def test_each_ghost_batch_is_normalised_alone_and_all_enter_the_running_statistics(shape, ghost, sizes):
    x = 3 + 2 * torch.randn(shape, dtype=torch.float64)
    norm = GhostBatchNorm(3, ghost, momentum=0.3).double()
    out, mean, var = parts_by_hand(x.numpy(), sizes, 0.3)
    assert_close([norm(x).detach()], [torch.from_numpy(out)])
    assert_close([norm.running_mean, norm.running_var], [torch.from_numpy(mean), torch.from_numpy(var)])
    assert norm.num_batches_tracked == len(sizes)


def test_gradients_of_ghost_batch_norm_are_those_of_separate_batch_norms():
    x = torch.randn(10, 4, dtype=torch.float64, requires_grad=True)
    weights = torch.randn(10, 4, dtype=torch.float64)
    ghost, plain = GhostBatchNorm(4, 4).double(), nn.BatchNorm1d(4).double()
    (got,) = torch.autograd.grad((ghost(x) * weights).sum(), x)
    separate = [(plain(part) * w).sum() for part, w in zip(x.split(4), weights.split(4), strict=True)]
    (want,) = torch.autograd.grad(sum(separate), x)
    assert_close([got], [want])


def test_in_evaluation_ghost_batch_norm_is_torchs_with_the_running_statistics():
    ghost, plain = GhostBatchNorm(4, 3), nn.BatchNorm1d(4)
    for _ in range(3):
        ghost(torch.randn(9, 4))
    plain.load_state_dict(ghost.state_dict())
    before = copy.deepcopy(ghost.state_dict())
    x = torch.randn(9, 4)
    assert torch.equal(ghost.eval()(x), plain.eval()(x))
    assert all(torch.equal(before[k], v) for k, v in ghost.state_dict().items())
    assert "ghost_size=3" in repr(ghost)
    ghost, plain = (norm.eval() for norm in (GhostBatchNorm(4, 3, track_running_stats=False), nn.BatchNorm1d(4)))
    plain.running_mean = plain.running_var = None
    assert torch.equal(ghost(x), plain(x))


def test_ghosts_as_large_as_the_batch_are_torchs_batch_norm():
    ghost, plain = GhostBatchNorm(4, 9), nn.BatchNorm1d(4)
    x = torch.randn(9, 4)
    assert torch.equal(ghost(x), plain(x)) and torch.equal(ghost.running_var, plain.running_var)


def test_ghost_batch_norm_refuses_what_it_cannot_normalise():
    with pytest.raises(ValueError, match="1 example or more"):
        GhostBatchNorm(4, 0)
    with pytest.raises(ValueError, match="batch, channels"):
        GhostBatchNorm(4, 2)(torch.randn(4))
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        GhostBatchNorm(4, 1)(torch.randn(6, 4))
