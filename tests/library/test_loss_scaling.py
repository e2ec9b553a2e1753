"""torch's GradScaler over ranks: all skip the same steps, have one scale, and learn what one process learns."""

import json
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from mpcourse.data_parallel import (
    COMMUNICATORS,
    DoubleBufferedOptimizer,
    LocalOptimizer,
    MultiNodeOptimizer,
    create_communicator,
)
from mpcourse.grid import Grid, GridTrainer, Shape, stage, transformer
from mpcourse.pipeline import one_f_one_b
from mpcourse.virtual import run
from tests.programs import loss_scaling_truth
from tests.programs.loss_scaling_truth import STAGES, differing

PROGRAM = Path(loss_scaling_truth.__file__)
KINDS = [*COMMUNICATORS, *STAGES]
EVERY = pytest.mark.parametrize("kind", COMMUNICATORS)
SHARDED = pytest.mark.parametrize("kind", STAGES)
FREED = "asks for whole gradients, and ZeRO has freed them.*step\\(clip=...\\)"


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_scales_skipped_steps_and_weights_are_those_of_one_process(size):
    """With clipping, accumulation, and infinities on the first, the last or every other rank."""
    kinds = KINDS[size % 2 :: 2]
    assert run(lambda comm: differing(comm, kinds), size).results == [[]] * size


def test_on_real_ranks_too(mpirun):
    done = mpirun(3, "-m", "mpi4py", PROGRAM, timeout=110)
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout) == [[]] * 3


def scaled(comm, optimizer, model, *, steps=1, bad=(1,), before=lambda scaler: None, scaler=None):
    """Train so many steps, in which bad ranks have infinite losses; the scale."""
    scaler = scaler or torch.amp.GradScaler("cpu", init_scale=8.0)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model(torch.ones(2, 3)).square().mean()
        scaler.scale(loss * float("inf") if comm.rank in bad else loss).backward()
        before(scaler)
        scaler.step(optimizer)
        scaler.update()
    return scaler.get_scale()


def linear(comm, kind, make=torch.optim.SGD, **options):
    model = nn.Linear(3, 2)
    return model, MultiNodeOptimizer(make(model.parameters(), 0.1, **options), create_communicator(kind, comm))


@EVERY
def test_a_communicator_averages_what_is_not_finite_if_it_is_asked_to(kind):
    """For a program that steps by itself, with torch's own optimizer."""

    def program(comm):
        model = nn.Linear(3, 2)
        communicator = create_communicator(kind, comm)
        communicator.broadcast_parameters(model)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        return scaled(
            comm, optimizer, model, before=lambda _: communicator.mean_gradients(model, finite=False)
        ), model.weight.tolist()

    results = run(program, 3).results
    assert results == [results[0]] * 3 and results[0][0] == 4


@EVERY
def test_without_a_scaler_the_step_still_refuses_what_is_not_finite(kind):
    def program(comm):
        model, optimizer = linear(comm, kind)
        model(torch.full((2, 3), float("nan") if comm.rank else 1.0)).sum().backward()
        optimizer.mean_gradients()
        assert not model.weight.grad.isfinite().any()
        with pytest.raises(FloatingPointError, match=r"rank 1: the gradient of 'parameter [01]' is not finite"):
            optimizer.step()
        optimizer.zero_grad()
        model(torch.ones(2, 3)).sum().backward()
        optimizer.step()
        return model.weight.isfinite().all().item()

    assert run(program, 3).results == [True] * 3


@EVERY
def test_a_gradient_that_the_program_has_repaired_is_applied(kind):
    def program(comm):
        model, optimizer = linear(comm, kind)
        before = model.weight.detach().clone()
        model(torch.full((2, 3), float("nan") if comm.rank else 1.0)).sum().backward()
        optimizer.mean_gradients()
        for p in model.parameters():
            p.grad.nan_to_num_(1.0, 1.0, 1.0)
        optimizer.step()
        return torch.allclose(model.weight, before - 0.1)

    assert run(program, 2).results == [True] * 2


@EVERY
def test_what_is_unscaled_before_the_mean_is_refused_on_the_first_step(kind):
    """Each rank would look for infinities in its own gradients, and a bucket's mean would not be unscaled at all."""

    def program(comm):
        model, optimizer = linear(comm, kind)
        scaled(comm, optimizer, model, bad=(), before=lambda scaler: scaler.unscale_(optimizer))

    with pytest.raises(RuntimeError, match=r"rank [01]: .*(unscaled|changed while).*mean_gradients\(\)"):
        run(program, 2)


def test_an_optimizer_that_is_fused_gets_unscaled_gradients():
    """Use torch's fused optimizers: they say that they unscale, but the scaler sees the one around them."""

    def program(comm, fused):
        torch.manual_seed(0)
        model, optimizer = linear(comm, "flat", torch.optim.SGD, fused=fused)
        scaled(comm, optimizer, model, steps=3, bad=())
        return model.weight.tolist()

    fused, plain = (run(lambda comm, f=fused: program(comm, f), 2).results for fused in (True, False))
    torch.testing.assert_close(torch.tensor(fused), torch.tensor(plain))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda inner, communicator: DoubleBufferedOptimizer(inner, communicator), "may have had another scale"),
        (lambda inner, communicator: LocalOptimizer(inner, communicator, every=2), "would skip different steps"),
    ],
)
def test_optimizers_that_cannot_be_scaled_say_so(make, said):
    def program(comm):
        model = nn.Linear(3, 2)
        optimizer = make(torch.optim.SGD(model.parameters(), 0.1), create_communicator("flat", comm))
        scaled(comm, optimizer, model)

    with pytest.raises(ValueError, match=said):
        run(program, 2)


def sharded(comm, kind):
    model = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2))
    return model, STAGES[kind](lambda groups: torch.optim.SGD(groups, 0.1), model, comm)


@SHARDED
def test_zero_says_which_call_comes_before_unscale(kind):
    def program(comm):
        model, optimizer = sharded(comm, kind)
        scaled(comm, optimizer, model, before=lambda scaler: scaler.unscale_(optimizer))

    with pytest.raises(RuntimeError, match=r"before unscale_ call the sharded optimizer's mean_gradients\(\)"):
        run(program, 2)


@SHARDED
def test_zero_without_a_scaler_still_refuses_a_mean_that_is_not_finite(kind):
    def program(comm):
        model, optimizer = sharded(comm, kind)
        optimizer.zero_grad()
        model(torch.full((2, 3), float("nan") if comm.rank else 1.0)).sum().backward()
        optimizer.mean_gradients()
        with pytest.raises(FloatingPointError, match=r"'0.weight' is not finite"):
            optimizer.step()
        return True

    assert run(program, 3).results == [True] * 3


def test_after_a_skipped_step_stage_1_averages_anew_whoever_forgets_the_gradients():
    """`zero_grad` of the module, and not of the optimizer."""

    def program(comm):
        model, optimizer = sharded(comm, "ShardedOptimizer")
        scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
        for bad in ((0,), ()):
            model.zero_grad()
            loss = model(torch.ones(2, 3)).square().mean()
            scaler.scale(loss * float("inf") if comm.rank in bad else loss).backward()
            scaler.step(optimizer)
            scaler.update()
        return scaler.state_dict()["_growth_tracker"], scaler.get_scale()

    assert run(program, 2).results == [(1, 4.0)] * 2


@pytest.mark.parametrize("clip", [nn.utils.clip_grad_norm_, nn.utils.clip_grad_value_])
@pytest.mark.parametrize("kind", [kind for kind in STAGES if kind != "ShardedOptimizer"])
def test_clipping_gradients_that_were_freed_names_what_clips_them(kind, clip):
    def program(comm):
        model, optimizer = sharded(comm, kind)
        model(torch.ones(2, 3)).sum().backward()
        with pytest.raises(RuntimeError, match=FREED):
            clip(model.parameters(), 0.1)
        for use in (lambda g: g.norm(), lambda g: g + 1, lambda g: g.mul_(2), torch.sum, lambda g: float(g.max())):
            with pytest.raises(RuntimeError, match=FREED):
                use(model[0].weight.grad)
        assert repr(model[0].weight.grad) == "<a gradient that was freed>"
        model.zero_grad(set_to_none=False)  # which is harmless
        norm = optimizer.step(clip=0.1)
        model.zero_grad()
        return norm, model[0].weight.grad

    results = run(program, 2).results
    assert results[0] == results[1] and results[0][0] > 0 and results[0][1] is None


def test_after_the_mean_stage_1_has_no_gradients_to_clip_either():
    def program(comm):
        model, optimizer = sharded(comm, "ShardedOptimizer")
        model(torch.ones(2, 3)).sum().backward()
        optimizer.mean_gradients()
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)

    with pytest.raises(RuntimeError, match=FREED):
        run(program, 2)


SHAPE = Shape(vocabulary=11, length=3, width=8, heads=2, layers=2)
GRID_STEPS, BAD_STEP, BATCH = 6, 2, 8


def token_loss(output, target):
    return F.cross_entropy(output.flatten(0, 1), target.flatten())


def token_batches():
    draw = torch.Generator().manual_seed(3)
    shape = (BATCH, SHAPE.length)
    return [[torch.randint(SHAPE.vocabulary, shape, generator=draw) for _ in range(2)] for _ in range(GRID_STEPS)]


def grid_scaler():
    return torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2)


def one_grid(clip):
    """One process: scales, and all weights."""
    model, scaler, scales = transformer(SHAPE), grid_scaler(), []
    optimizer = torch.optim.SGD(model.parameters(), 0.3, momentum=0.9)
    for step, (x, target) in enumerate(token_batches()):
        optimizer.zero_grad()
        scaler.scale(token_loss(model(x), target) * (float("inf") if step == BAD_STEP else 1)).backward()
        scaler.unscale_(optimizer)
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        scaler.step(optimizer)
        scaler.update()
        scales.append(scaler.get_scale())
    return scales, model


@pytest.mark.parametrize(("sizes", "clip"), [((2, 2, 1), None), ((1, 2, 2), 0.3), ((2, 2, 2), 0.3)])
def test_on_a_grid_whose_ranks_hold_different_gradients_all_decide_alike(sizes, clip):
    """In one step the loss of one replica is infinite, which only its last stage computes."""
    data, pipeline, tensor = sizes

    def program(comm):
        grid = Grid(comm, data=data, pipeline=pipeline, tensor=tensor)
        part, tied = stage(transformer(SHAPE, grid.tensor), pipeline, grid.pipeline.rank)
        scaler, scales, bad = grid_scaler(), [], False

        def loss(output, target):
            return token_loss(output, target) * (float("inf") if bad and grid.data.rank == data - 1 else 1)

        def sgd(parameters):
            return torch.optim.SGD(parameters, 0.3, momentum=0.9)

        trainer = GridTrainer(grid, part, one_f_one_b(pipeline, 2), loss, sgd, tied=tied, clip=clip, scaler=scaler)
        own = slice(grid.data.rank * BATCH // data, (grid.data.rank + 1) * BATCH // data)
        for step, (x, target) in enumerate(token_batches()):
            bad = step == BAD_STEP
            told = trainer.step(x[own], target[own])
            scales.append(scaler.get_scale())
            assert bad or told.loss is None or 0 < told.loss < 5  # not scaled
        return scales, part[0].weight.detach() if grid.pipeline.rank == 0 else None

    scales, model = one_grid(clip)
    assert scales == [8, 16, 8, 8, 16, 16]
    for found, weight in run(program, data * pipeline * tensor).results:
        assert found == scales
        assert weight is None or (weight - model[0].weight).abs().max() < 1e-5
