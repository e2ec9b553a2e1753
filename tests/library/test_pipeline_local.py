"""A pipeline in one process equals the whole model, whatever the schedule, and its box agrees with the replay."""

import copy

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

from mpcourse.course.check.cases import e04_pipeline_step
from mpcourse.course.check.facts import steps
from mpcourse.pipeline import (
    Costs,
    IllegalAction,
    defer_batch_norm,
    gpipe,
    interleaved_one_f_one_b,
    naive,
    one_f_one_b,
    pipeline_step,
    replay,
    zero_bubble_h1,
)
from mpcourse.pipeline.stage import draw_from
from mpcourse.split import split
from mpcourse.virtual import virtual_gpus

MAKERS = {
    "naive": naive,
    "gpipe": gpipe,
    "1f1b": one_f_one_b,
    "interleaved": lambda p, m: interleaved_one_f_one_b(p, m, 2),
    "zb-h1": zero_bubble_h1,
}


def parts_on(model, stages, chunks=1, kind="vgpu"):
    """`model` in stages * chunks parts of equally many layers, on devices of their own."""
    parts = stages * chunks
    names = [f"{kind}:{i}" if kind == "vgpu" else kind for i in range(stages)]
    return split(model, [len(model) // parts] * parts, names * chunks)


def chunks(name):
    return 2 if name == "interleaved" else 1


def layers(n=8, width=6):
    return nn.Sequential(*[nn.Sequential(nn.Linear(width, width), nn.Tanh()) for _ in range(n)]).double()


def assert_same_training(
    model, name, p, m, batch, x, target, loss=F.mse_loss, steps=3, kind="vgpu", tolerance=1e-12, **how
):
    """Assert that some steps of training the pipeline equal those of a plain copy of `model`."""
    plain = copy.deepcopy(model)
    pipeline = parts_on(model, p, chunks(name), kind)
    one = torch.optim.SGD([q for q in plain.parameters() if q.requires_grad], lr=0.1, momentum=0.9)
    other = torch.optim.SGD([q for q in model.parameters() if q.requires_grad], lr=0.1, momentum=0.9)
    for _ in range(steps):
        inputs, targets = x(batch), target(batch)
        one.zero_grad()
        want = loss(plain(inputs), targets)
        want.backward()
        other.zero_grad()
        got = pipeline_step(pipeline, MAKERS[name](p, m), inputs, targets, loss, **how)
        torch.testing.assert_close(got.loss.cpu(), want.detach(), rtol=tolerance, atol=tolerance)
        for (label, q), r in zip(plain.named_parameters(), model.parameters(), strict=True):
            assert (q.grad is None) == (r.grad is None), label
            if q.grad is not None:
                torch.testing.assert_close(r.grad.cpu(), q.grad, rtol=tolerance, atol=tolerance, msg=label)
        one.step()
        other.step()


def numbers(*shape):
    return lambda batch: torch.randn(batch, *shape, dtype=torch.float64)


@pytest.mark.parametrize("checkpoint", [False, True])
@pytest.mark.parametrize("name", MAKERS)
def test_training_equals_the_whole_models_also_with_micro_batches_of_two_sizes(name, checkpoint):
    for p in (1, 2, 4):
        for m in (1, 3, 7):  # 7 examples make micro-batches of 2 and 3
            with virtual_gpus(p):
                assert_same_training(layers(), name, p, m, 7, numbers(6), numbers(6), checkpoint=checkpoint)


def test_it_runs_on_the_cpu_alone():
    for name in MAKERS:
        assert_same_training(layers(), name, 4, 5, 9, numbers(6), numbers(6), kind="cpu")


@pytest.mark.parametrize("name", MAKERS)
def test_frozen_layers_stay_frozen_and_let_gradients_pass(name):
    for frozen in ([0, 1, 2, 3], [2], [0, 7], list(range(7))):
        model = layers()
        for i in frozen:
            model[i].requires_grad_(False)
        with virtual_gpus(2):
            assert_same_training(model, name, 2, 3, 6, numbers(6), numbers(6))


@pytest.mark.parametrize("name", ["gpipe", "zb-h1", "interleaved"])
def test_tied_weights_get_the_sum_of_their_gradients(name):
    """Within one part, and between two chunks of one stage."""
    model = layers()
    model[1][0].weight = model[0][0].weight
    if name == "interleaved":
        model[4][0].weight = model[0][0].weight  # part 2 is stage 0's second chunk
    with virtual_gpus(2):
        assert_same_training(model, name, 2, 3, 6, numbers(6), numbers(6))


class Two(nn.Module):
    """Takes and returns two tensors, one of which skips the layer."""

    def __init__(self, first=False, last=False):
        super().__init__()
        self.linear, self.first, self.last = nn.Linear(6, 6), first, last

    def forward(self, x, skipped=None):
        y = torch.tanh(self.linear(x))
        if self.first:
            return y, x
        return y + skipped if self.last else (y, skipped)


@pytest.mark.parametrize("name", ["gpipe", "1f1b", "zb-h1"])
def test_parts_may_pass_several_tensors(name):
    class Whole(nn.Sequential):
        def forward(self, x):
            return self[3](*self[2](*self[1](*self[0](x))))

        def __getitem__(self, i):
            return nn.Sequential.__getitem__(self, i) if isinstance(i, int) else Whole(*list(self)[i])

    class One(nn.Sequential):
        def forward(self, *given):
            return super().__getitem__(0)(*given)

    made = Whole(Two(first=True), Two(), Two(), Two(last=True)).double()
    plain = copy.deepcopy(made)
    with virtual_gpus(4):
        pipeline = split(nn.Sequential(*map(One, made)), [1] * 4, [f"vgpu:{i}" for i in range(4)])
        for i in range(4):
            pipeline[i] = pipeline[i][0]
        x, target = torch.randn(5, 6).double(), torch.randn(5, 6).double()
        F.mse_loss(plain(x), target).backward()
        pipeline_step(pipeline, MAKERS[name](4, 3), x, target, F.mse_loss)
        for q, r in zip(plain.parameters(), made.parameters(), strict=True):
            torch.testing.assert_close(r.grad.cpu(), q.grad, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", MAKERS)
def test_a_transformer_on_tokens_equals_the_whole_one(name):
    """Integers go in; attention is a layer that is called with three tensors and returns a pair."""
    block = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    blocks = [copy.deepcopy(block) for _ in range(2)]
    model = nn.Sequential(nn.Embedding(11, 8), *blocks, nn.Linear(8, 11)).double()
    tokens = torch.randint(11, (6, 5))

    def loss(y, t):
        return F.cross_entropy(y.transpose(1, 2), t)

    with virtual_gpus(2):
        assert_same_training(model, name, 2, 4, 6, lambda b: tokens, lambda b: tokens, loss, tolerance=1e-10)


def test_the_input_gets_its_gradient():
    x, target = torch.randn(5, 6).double().requires_grad_(), torch.randn(5, 6).double()
    model = layers()
    F.mse_loss(model(x), target).backward()
    want, x.grad = x.grad, None
    with virtual_gpus(2):
        pipeline_step(parts_on(model, 2), one_f_one_b(2, 3), x, target, F.mse_loss)
    torch.testing.assert_close(x.grad, want, rtol=1e-12, atol=1e-12)


def test_gradients_are_added_to_what_is_there():
    model = layers()
    with virtual_gpus(2):
        pipeline = parts_on(model, 2)
        x, target = torch.randn(5, 6).double(), torch.randn(5, 6).double()
        pipeline_step(pipeline, gpipe(2, 2), x, target, F.mse_loss)
        once = [q.grad.clone() for q in model.parameters()]
        pipeline_step(pipeline, gpipe(2, 2), x, target, F.mse_loss)
        for g, q in zip(once, model.parameters(), strict=True):
            torch.testing.assert_close(q.grad, 2 * g, rtol=1e-12, atol=1e-12)


# -- batch norm and dropout --


def normed():
    def block():
        return nn.Sequential(nn.Conv2d(3, 3, 3, padding=1), nn.BatchNorm2d(3), nn.ReLU(inplace=True))

    return nn.Sequential(*[block() for _ in range(4)]).double()


@pytest.mark.parametrize("checkpoint", [False, True])
@pytest.mark.parametrize("name", MAKERS)
def test_batch_norm_sees_micro_batches_as_gradient_accumulation_does(name, checkpoint):
    model = normed()
    plain = copy.deepcopy(model)
    x, target = torch.randn(9, 3, 4, 4).double(), torch.randn(9, 3, 4, 4).double()
    for xs, ts in zip(x.tensor_split(4), target.tensor_split(4), strict=True):
        (F.mse_loss(plain(xs), ts) * (len(xs) / 9)).backward()
    with virtual_gpus(2):
        pipeline_step(
            parts_on(model, 2, chunks(name)), MAKERS[name](2, 4), x, target, F.mse_loss, checkpoint=checkpoint
        )
        model.cpu()
    for q, r in zip(plain.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(r.grad, q.grad, rtol=1e-10, atol=1e-12)
    for q, r in zip(plain.buffers(), model.buffers(), strict=True):
        torch.testing.assert_close(r, q, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("momentum", [0.1, None])
@pytest.mark.parametrize("checkpoint", [False, True])
def test_deferred_batch_norm_ends_with_the_whole_batchs_statistics(checkpoint, momentum):
    plain = nn.Sequential(nn.BatchNorm2d(3, momentum=momentum), nn.Flatten(), nn.Linear(48, 2)).double()
    model = defer_batch_norm(copy.deepcopy(plain))
    assert list(model.state_dict()) == list(plain.state_dict())
    with virtual_gpus(3):
        pipeline = parts_on(model, 3)
        for _ in range(3):
            x, target = torch.randn(7, 3, 4, 4).double() + 5, torch.randn(7, 2).double()
            plain(x)
            pipeline_step(pipeline, gpipe(3, 3), x, target, F.mse_loss, checkpoint=checkpoint)
        for name in ("running_mean", "running_var", "num_batches_tracked"):
            torch.testing.assert_close(getattr(model[0], name).cpu(), getattr(plain[0], name), rtol=1e-12, atol=1e-12)
        model.eval()
        plain[0].eval()
        torch.testing.assert_close(model[0](x.to("vgpu:0")).cpu(), plain[0](x), rtol=1e-12, atol=1e-12)


def test_without_deferring_the_running_statistics_move_once_for_each_micro_batch():
    model = nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 3))
    pipeline_step(parts_on(model, 2, kind="cpu"), gpipe(2, 4), torch.randn(8, 3), torch.randn(8, 3), F.mse_loss)
    assert int(model[0].num_batches_tracked) == 4
    model = defer_batch_norm(nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 3)))
    pipeline_step(parts_on(model, 2, kind="cpu"), gpipe(2, 4), torch.randn(8, 3), torch.randn(8, 3), F.mse_loss)
    assert int(model[0].num_batches_tracked) == 1


def dropping():
    return nn.Sequential(*[nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.4)) for _ in range(4)]).double()


def test_dropout_draws_by_micro_batch_and_part_whatever_the_schedule():
    model = dropping()
    plain = copy.deepcopy(model)
    x, target = torch.randn(6, 6).double(), torch.randn(6, 6).double()
    for k, (xs, ts) in enumerate(zip(x.tensor_split(3), target.tensor_split(3), strict=True)):
        for i in range(2):
            draw_from(hash((42, k, i)), torch.device("cpu"))
            xs = plain[2 * i : 2 * i + 2](xs)
        (F.mse_loss(xs, ts) / 3).backward()
    with virtual_gpus(2):
        pipeline = parts_on(model, 2)
        for name in ("naive", "gpipe", "1f1b", "zb-h1"):
            for checkpoint in (False, True):
                model.zero_grad()
                pipeline_step(pipeline, MAKERS[name](2, 3), x, target, F.mse_loss, checkpoint=checkpoint, seed=42)
                for q, r in zip(plain.parameters(), model.parameters(), strict=True):
                    torch.testing.assert_close(r.grad.cpu(), q.grad, rtol=1e-12, atol=1e-12)


def test_dropout_without_a_seed_follows_torchs_generator():
    pipeline = parts_on(dropping(), 2, kind="cpu")
    x, target = torch.randn(6, 6).double(), torch.randn(6, 6).double()

    def losses():
        return [pipeline_step(pipeline, gpipe(2, 3), x, target, F.mse_loss).loss.item() for _ in range(2)]

    torch.manual_seed(7)
    first = losses()
    assert first[0] != first[1]
    torch.manual_seed(7)
    assert losses() == first


# -- time and memory --


def measured(name, p, m, checkpoint=False, wide=8192, rows=2048):
    """Return what a dry box says of stages that cost the same."""
    with virtual_gpus(p, "A100-SXM4", "NVLink 4", dry=True, overlap=True) as box:
        model = nn.Sequential(*[nn.Linear(wide, wide, bias=False, device="vgpu:0") for _ in range(2 * p)])
        pipeline = parts_on(model, p, chunks(name))
        for q in model.parameters():
            q.grad = torch.empty_like(q)
        # With an input that asks for its gradient the first stage does as much as the others.
        x = torch.empty(m * rows, wide, device="vgpu:0", requires_grad=True)
        target = torch.empty(m * rows, wide, device=f"vgpu:{p - 1}")
        box.reset()
        done = pipeline_step(pipeline, MAKERS[name](p, m), x, target, lambda y, t: y.sum(), checkpoint=checkpoint)
        return done.execution, box


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("p, m", [(1, 1), (2, 1), (2, 8), (4, 2), (4, 8), (3, 5)])
def test_the_boxs_clock_agrees_with_the_replay_within_2_percent(name, p, m):
    done, _box = measured(name, p, m)
    one, _ = measured("naive", 1, 1)
    unit = one.busy[0] / 3
    want = replay(MAKERS[name](p, m), Costs(unit, 2 * unit))
    assert done.makespan == pytest.approx(want.makespan, rel=0.02)
    for got, planned in zip(done.stages, want.stages, strict=True):
        assert [t.action for t in got] == [t.action for t in planned]
        for t, u in zip(got, planned, strict=True):
            assert t.start - done.start == pytest.approx(u.start, abs=0.02 * want.makespan)
    assert done.bubble == pytest.approx(want.bubble, abs=0.02)


def test_on_the_boxs_clock_1f1b_takes_as_long_as_gpipe():
    """The check of e04_pipeline_step makes one of them, and holds an answer's steps by both to that."""
    with virtual_gpus(4, e04_pipeline_step.SLOW, overlap=True) as box:
        gpipes, other = (steps.par(box, schedule(4, 8)) for schedule in (gpipe, one_f_one_b))
    assert gpipes == pytest.approx(other)


def test_a_stage_holds_as_many_activations_as_the_replay_says():
    """By the box's ledger: from naive's one micro-batch to GPipe's eight, in equal steps of bytes."""
    highest = {}
    for name in ("naive", "gpipe", "1f1b", "zb-h1"):
        with virtual_gpus(4, dry=True) as box:
            model = nn.Sequential(*[nn.Sequential(nn.Linear(64, 64), nn.Tanh()) for _ in range(4)])
            pipeline = parts_on(model, 4)
            box.reset()
            x = torch.empty(8192, 64)
            pipeline_step(pipeline, MAKERS[name](4, 8), x, x, lambda y, t: y.sum())
            highest[name] = [max(held["activations"] for _, held in box.ledger.history(s)) for s in range(4)]
    for name in ("1f1b", "zb-h1"):
        for s, held in enumerate(replay(MAKERS[name](4, 8)).peak):
            low, high = highest["naive"][s], highest["gpipe"][s]
            step = (high - low) / 7
            # At its peak a stage may also hold a gradient that has just arrived or is about to leave. And what weight
            # parts still need is less than what forward has left: here a layer's input, but not its tanh.
            want = low + (held - 1) * step
            assert highest[name][s] < want + 0.8 * step, (name, s)
            assert name == "zb-h1" or highest[name][s] > want - 0.8 * step, (name, s)


def test_what_a_stage_hands_on_is_not_kept_by_it():
    with virtual_gpus(2, dry=True) as box:
        pipeline = split(nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64)), [1, 1], ["vgpu:0", "vgpu:1"])
        x = torch.empty(8 * 1024, 64)
        pipeline_step(pipeline, gpipe(2, 8), x, x, lambda y, t: y.sum())
        outputs = max(held["activations"] for _, held in box.ledger.history(0)) / (1024 * 64 * 4)
    assert outputs <= 2  # a linear layer keeps its input for backward; of what it returns, at most what is on its way


def flops_by_stage_and_kind(done, box):
    found = {}
    for s, row in enumerate(done.stages):
        for t in row:
            inside = [e for e in box.events if e.lane == f"vgpu:{s}" and t.start <= e.start < t.end]
            found.setdefault((s, t.action.kind), []).append(sum(e.flops for e in inside if e.kind == "compute"))
    return found


def test_each_part_of_a_split_backward_computes_its_half_alone():
    found = flops_by_stage_and_kind(*measured("zb-h1", 2, 3))
    assert len({n for counts in found.values() for n in counts}) == 1 and len(found) == 6


def test_checkpoints_cost_a_forward_but_not_where_backward_follows_at_once():
    found = flops_by_stage_and_kind(*measured("1f1b", 2, 4, checkpoint=True))
    forward = found[0, "F"][0]
    assert found[0, "B"] == [3 * forward] * 4
    assert found[1, "B"] == [2 * forward] * 4  # the last stage of 1F1B: each backward comes right after its forward
    found = flops_by_stage_and_kind(*measured("gpipe", 2, 4, checkpoint=True))
    assert found[0, "B"] == found[1, "B"] == [2 * forward] + [3 * forward] * 3


def test_checkpoints_hold_only_what_parts_are_given():
    highest = []
    for checkpoint in (False, True):
        with virtual_gpus(2, dry=True) as box:
            parts = [nn.Sequential(*[nn.Sequential(nn.Linear(64, 64), nn.Tanh()) for _ in range(9)]) for _ in range(2)]
            pipeline = parts_on(nn.Sequential(*parts), 2)
            box.reset()
            x = torch.empty(8192, 64)
            pipeline_step(pipeline, gpipe(2, 8), x, x, lambda y, t: y.sum(), checkpoint=checkpoint)
            highest.append(max(held["activations"] for _, held in box.ledger.history(1)))
    # 8 micro-batches of 9 layers' activations, or 8 inputs and the activations of one micro-batch
    assert highest[1] < 0.3 * highest[0]


# -- bad input --


def error(model, schedule, x=None, target=None, kind=ValueError):
    x = torch.randn(6, 6).double() if x is None else x
    target = torch.randn(6, 6).double() if target is None else target
    with pytest.raises(kind) as caught:
        pipeline_step(model, schedule, x, target, F.mse_loss)
    return str(caught.value)


def test_bad_input_is_refused_with_what_is_wrong():
    with virtual_gpus(4):
        two = parts_on(layers(), 2)
        assert "a schedule for 3 stages needs a model of 3 parts, not 2" in error(two, gpipe(3, 2))
        of_chunks = error(two, interleaved_one_f_one_b(2, 2, 2))
        assert "2 stages of 2 chunks needs a model of 4 parts, not 2" in of_chunks
        assert "a batch of 6 examples cannot make 7 micro-batches" in error(two, gpipe(2, 7))
        assert "x has 6 examples, target has 5" in error(two, gpipe(2, 2), target=torch.randn(5, 6))
        same = split(layers(), [4, 4], ["vgpu:1", "vgpu:1"])
        assert "stages 0 and 1 are both on vgpu:1" in error(same, gpipe(2, 2))
        mixed = split(layers(), [4, 4], ["cpu", "vgpu:1"])
        assert "put all on devices of one kind" in error(mixed, gpipe(2, 2))
        astray = split(layers(), [2] * 4, ["vgpu:0", "vgpu:1", "vgpu:2", "vgpu:1"])
        assert "part 2 is on vgpu:2: it is a chunk of stage 0, which is on vgpu:0" in error(
            astray, interleaved_one_f_one_b(2, 2, 2)
        )
        two[1][0][0].to("vgpu:3")
        assert "part 1 is to be on vgpu:1, but its 4.0.weight is on vgpu:3" in error(two, gpipe(2, 2))
        illegal = [[("F", 0), ("B", 0)], [("B", 0), ("F", 0)]]
        assert "the gradient before its forward" in error(parts_on(layers(), 2), illegal, kind=IllegalAction)


@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_part_that_begins_in_place_is_named(checkpoint):
    model = nn.Sequential(nn.Linear(6, 6), nn.ReLU(inplace=True), nn.Linear(6, 6))
    pipeline = split(model, [1, 2], ["cpu", "cpu"])
    with pytest.raises(RuntimeError, match="part 1 of the model begins with a layer that works in place"):
        pipeline_step(pipeline, gpipe(2, 3), torch.randn(6, 6), torch.randn(6, 6), F.mse_loss, checkpoint=checkpoint)
