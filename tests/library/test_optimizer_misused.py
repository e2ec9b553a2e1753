"""What users of MultiNodeOptimizer do at unexpected moments: it is refused, or nothing goes wrong."""

import contextlib
import functools
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from mpcourse.collectives.fast.nonblocking import NonblockingRing
from mpcourse.data_parallel import (
    COMMUNICATORS,
    DoubleBufferedOptimizer,
    LocalOptimizer,
    MultiNodeOptimizer,
    create_communicator,
    create_multi_node_optimizer,
)
from mpcourse.data_parallel.overlap.requests import BufferAllreduces
from mpcourse.virtual import RankFailed, compute, run

FAREWELL = Path(__file__).parents[1] / "programs" / "farewell_twice.py"
BOTH = pytest.mark.parametrize("kind", ["flat", "bucketed"])


def backward(comm, parameters, factor=1.0):
    """Gradients of rank r are (r + 1) * factor."""
    sum((p * (1 + comm.rank) * factor).sum() for p in parameters).backward()


def sgd(parameters, rate=1.0):
    return torch.optim.SGD(parameters, rate)


@pytest.mark.parametrize("double_buffering", [False, True])
def test_sums_in_a_copy_come_back(monkeypatch, double_buffering):
    """As for gradients on a GPU, which travel through the host's memory."""

    def begin(self, comm, buffers, tag=0):
        self._buffers = [(buffer, buffer.clone()) for buffer in buffers]
        self._sums = [NonblockingRing(comm, host, tag + i) for i, (_, host) in enumerate(self._buffers)]

    def program(comm):
        weight = nn.Parameter(torch.zeros(6))
        kind = "flat" if double_buffering else "bucketed"
        communicator = create_communicator(kind, comm)
        optimizer = create_multi_node_optimizer(sgd([weight]), communicator, double_buffering)
        for _ in range(2):
            optimizer.zero_grad()
            backward(comm, [weight])
            for _ in range(4):  # until the sum is made, if it is under way
                compute(comm, 1.0)
                communicator.progress()
            optimizer.step()
        if double_buffering:
            optimizer.finish()
        return weight.detach()

    monkeypatch.setattr(BufferAllreduces, "__init__", begin)
    assert all(torch.equal(weight, torch.full((6,), -3.0)) for weight in run(program, 2).results)


def test_two_optimizers_of_one_communicator_are_not_mixed_up():
    """Rank 0 moves on only the sums of the second, rank 1 only those of the first."""

    def program(comm):
        communicator = create_communicator("flat", comm)
        weights = [nn.Parameter(torch.zeros(4)) for _ in range(2)]
        optimizers = [DoubleBufferedOptimizer(sgd([weight]), communicator) for weight in weights]
        for _ in range(3):
            for i, (weight, optimizer) in enumerate(zip(weights, optimizers, strict=True)):
                optimizer.zero_grad()
                backward(comm, [weight], 10**i)
                optimizer.step()
            compute(comm, 1.0)
            moved = optimizers[1 - comm.rank]._request
            while not moved._sums._sums[0]._step:
                moved.test()
        for optimizer in optimizers:
            optimizer.finish()
        return [weight.unique().tolist() for weight in weights]

    assert run(program, 2).results == [[[-4.5], [-45.0]]] * 2


def test_double_buffering_leaves_a_batch_out_that_is_not_finite():
    def program(comm):
        weight = nn.Parameter(torch.zeros(4))
        optimizer = DoubleBufferedOptimizer(sgd([weight]), create_communicator("flat", comm))
        nan = float("nan") if comm.rank else 1.0
        for factor, bad in (1.0, False), (10.0, False), (nan, True), (100.0, False), (1000.0, False):
            optimizer.zero_grad()
            backward(comm, [weight], factor)
            with pytest.raises(FloatingPointError) if bad else contextlib.nullcontext():
                optimizer.step()
        optimizer.finish()
        return weight.unique().tolist()

    assert run(program, 2).results == [[-1666.5]] * 2


def test_gradients_of_a_backward_pass_are_not_lost_where_parameters_change_before_the_step():
    def program(comm):
        weight = nn.Parameter(torch.zeros(4))
        communicator = create_communicator("bucketed", comm)
        optimizer = MultiNodeOptimizer(sgd([weight]), communicator)
        backward(comm, [weight])
        for change in (
            lambda: communicator.attach([weight]),
            lambda: optimizer.add_param_group({"params": [nn.Parameter(torch.ones(3))]}),
        ):
            with pytest.raises(RuntimeError, match="are being averaged: step first"):
                change()
        assert len(optimizer.param_groups) == 1
        optimizer.step()
        optimizer.add_param_group({"params": [nn.Parameter(torch.ones(3))]})
        return weight.unique().tolist()

    assert run(program, 2).results == [[-1.5]] * 2


@BOTH
def test_parameters_with_equal_names_are_all_averaged(kind):
    def program(comm):
        torch.manual_seed(comm.rank)
        models = nn.Linear(2, 2), nn.Linear(2, 2)
        groups = [{"params": list(model.named_parameters())} for model in models]
        optimizer = MultiNodeOptimizer(sgd(groups), create_communicator(kind, comm))
        for _ in range(2):
            optimizer.zero_grad()
            (models[0](torch.randn(3, 2)) * models[1](torch.randn(3, 2))).sum().backward()
            optimizer.step()
        return torch.cat([p.detach().flatten() for model in models for p in model.parameters()])

    a, b = run(program, 2).results
    assert len(a) == 12 and torch.equal(a, b)


def test_gradients_that_are_clipped_too_early_in_their_bucket_are_refused():
    """From the second step on they lie there, where a caller only fills them with zeros."""

    def program(comm):
        weight = nn.Parameter(torch.zeros(4))
        optimizer = MultiNodeOptimizer(sgd([weight]), create_communicator("bucketed", comm))
        for step in range(3):
            optimizer.zero_grad(set_to_none=False)
            backward(comm, [weight])
            if step == 2:
                nn.utils.clip_grad_norm_([weight], 0.1)
            optimizer.step()

    with pytest.raises(
        RuntimeError, match="rank 0: the gradient of 'parameter 0' was changed while it was being averaged"
    ):
        run(program, 2)


@BOTH
@pytest.mark.parametrize("set_to_none", [True, False])
def test_a_mean_that_was_not_used_does_not_stand_for_the_next_one(kind, set_to_none):
    def program(comm):
        weight = nn.Parameter(torch.zeros(4))
        optimizer = MultiNodeOptimizer(sgd([weight]), create_communicator(kind, comm))
        backward(comm, [weight])
        optimizer.mean_gradients()
        nn.ParameterList([weight]).zero_grad(set_to_none)  # not by the optimizer's
        backward(comm, [weight], 10)
        optimizer.step()
        return weight.unique().tolist()

    assert run(program, 2).results == [[-15.0]] * 2


def test_local_steps_are_averaged_even_where_more_were_made_than_asked():
    def program(comm):
        weight = nn.Parameter(torch.zeros(2))
        optimizer = LocalOptimizer(sgd([weight]), create_communicator("flat", comm), every=2)
        optimizer.load_state_dict(optimizer.state_dict() | {"alone": 5})
        backward(comm, [weight])
        optimizer.step()
        return weight.unique().tolist()

    assert run(program, 2).results == [[-1.5]] * 2


def test_parameters_that_are_added_leave_what_ranks_have_become():
    def program(comm):
        weight, added = nn.Parameter(torch.zeros(2)), nn.Parameter(torch.full((3,), comm.rank + 7.0))
        optimizer = LocalOptimizer(sgd([weight]), create_communicator("flat", comm), every=2)
        backward(comm, [weight])
        optimizer.step()
        optimizer.add_param_group({"params": [added]})
        alone = weight.unique().tolist()
        optimizer.finish()
        return alone, added.unique().tolist(), weight.unique().tolist()

    assert run(program, 2).results == [([-1.0], [7.0], [-1.5]), ([-2.0], [7.0], [-1.5])]


def test_a_batch_that_is_refused_where_ranks_part_leaves_them_parted():
    def program(comm):
        weight = nn.Parameter(torch.zeros(2))
        optimizer = LocalOptimizer(sgd([weight]), create_communicator("bucketed", comm), every=2, begin=1)
        backward(comm, [weight], float("nan"))
        with pytest.raises(FloatingPointError):
            optimizer.step()
        for _ in range(2):
            optimizer.zero_grad()
            backward(comm, [weight])
            optimizer.step()
        return weight.unique().tolist()

    assert run(program, 2).results == [[-3.0]] * 2


def test_who_has_ended_is_told_again(mpirun):
    done = mpirun(2, FAREWELL)
    assert done.stdout.split("; ") == ["rank 1 has ended after 1 calls"] * 2, done.stderr


def test_with_double_buffering_who_is_frozen_meanwhile_is_left_alone():
    def program(comm):
        a, b = (nn.Parameter(torch.zeros(2)) for _ in range(2))
        optimizer = DoubleBufferedOptimizer(sgd([a, b]), create_communicator("flat", comm))
        seen = []
        for step in range(6):
            b.requires_grad_(step not in (0, 3))
            optimizer.zero_grad()
            backward(comm, [p for p in (a, b) if p.requires_grad])
            optimizer.step()
            seen.append((a[0].item(), b[0].item()))
        optimizer.finish()
        return [*seen, (a[0].item(), b[0].item())]

    # A mean comes a step late: b's of steps 1, 4 and 5 are applied; that of 2 when it is frozen, so it is not.
    wanted = [(0, 0), (-1.5, 0), (-3, -1.5), (-4.5, -1.5), (-6, -1.5), (-7.5, -3), (-9, -4.5)]
    assert run(program, 2).results == [wanted] * 2


@BOTH
def test_a_gradient_of_a_parameter_that_was_frozen_since_is_not_applied(kind):
    def program(comm):
        a, b = (nn.Parameter(torch.zeros(2)) for _ in range(2))
        optimizer = MultiNodeOptimizer(sgd([a, b]), create_communicator(kind, comm))
        backward(comm, [a, b])
        b.requires_grad_(False)
        optimizer.step()
        return a.tolist(), b.tolist(), b.grad

    assert run(program, 2).results == [([-1.5, -1.5], [0, 0], None)] * 2


def test_gradients_are_dropped_where_ranks_have_begun_to_sum_different_ones():
    def program(comm):
        a, b = (nn.Parameter(torch.zeros(2)) for _ in range(2))
        communicator = create_communicator("bucketed", comm, bucket_bytes=1, first_bucket_bytes=1)
        optimizer = MultiNodeOptimizer(sgd([a, b]), communicator)
        backward(comm, [b] if comm.rank else [a, b])
        optimizer.zero_grad(set_to_none=False)
        told = [None if p.grad is None else p.grad.tolist() for p in (a, b)]
        backward(comm, [a, b])
        optimizer.step()
        return told, a.tolist(), b.tolist()

    after = [-1.5, -1.5], [-1.5, -1.5]
    assert run(program, 2).results == [([[0, 0], [0, 0]], *after), ([None, [0, 0]], *after)]


LEAVES_OUT = {"early": ({3}, {1}, 1), "late": ({4}, {2}, 2), "one rank alone": (set(), {2}, 2)}


@pytest.mark.parametrize("set_to_none", [True, False])
@pytest.mark.parametrize("double_buffering", [False, True])
@pytest.mark.parametrize("case", LEAVES_OUT)
@pytest.mark.parametrize("kind", COMMUNICATORS)
def test_ranks_that_leave_out_different_batches_are_named(kind, case, double_buffering, set_to_none):
    """Else they would average gradients of different batches, and never notice."""
    *batches, step = LEAVES_OUT[case]

    def program(comm):
        weight = nn.Parameter(torch.zeros(2))
        optimizer = create_multi_node_optimizer(sgd([weight]), create_communicator(kind, comm), double_buffering)
        for batch in range(1, 5):
            optimizer.zero_grad(set_to_none)
            backward(comm, [weight], batch)
            if batch not in batches[comm.rank]:
                optimizer.step()

    said = f"in step {step} ranks average gradients of different batches.*: 0 on rank 0, 1 on rank 1"
    with pytest.raises(RankFailed, match=f"{said}|rank 0 averages gradients, rank 1 drops gradients"):
        run(program, 2)


@pytest.mark.parametrize("twice", [False, True])
@pytest.mark.parametrize("kind", ["naive", "flat", "hierarchical"])
def test_ranks_that_leave_out_the_same_batches_train_on(kind, twice):
    """Also where rank 1 had no gradients of a batch, or forgets twice what is zero or was averaged."""

    def program(comm):
        weight = nn.Parameter(torch.zeros(2))
        optimizer = MultiNodeOptimizer(sgd([weight]), create_communicator(kind, comm))
        for batch in range(1, 6):
            for _ in range(1 + twice * comm.rank):
                optimizer.zero_grad(set_to_none=batch % 2 == 0)
            if twice or not (comm.rank and batch == 2):
                backward(comm, [weight], batch)
            if batch in (2, 4):
                optimizer.zero_grad()
                continue
            optimizer.step()
        return weight.unique().tolist()

    assert run(program, 2).results == [[-1.5 * (1 + 3 + 5)]] * 2


class TwoHeads(nn.Module):
    """Each in a bucket of its own; the last one is summed first."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.trunk, self.b, self.a = (nn.Linear(2, 2, bias=False) for _ in range(3))


def small_buckets(comm):
    communicator = create_communicator("bucketed", comm, bucket_bytes=1, first_bucket_bytes=1)
    return communicator


def everyones(comm, model):
    rows = comm.allgather(torch.cat([p.detach().flatten() for p in model.parameters()]).tolist())
    assert rows == [rows[0]] * comm.size
    return rows[0]


def test_gradients_are_dropped_where_a_bucket_is_full_behind_one_that_is_not():
    """Rank 0 uses head b, rank 1 head a: only rank 1 has begun to sum."""

    def program(comm, kind):
        model = TwoHeads()
        optimizer = MultiNodeOptimizer(
            sgd(model.parameters(), 0.1), small_buckets(comm) if kind else create_communicator("flat", comm)
        )
        for step in range(4):
            optimizer.zero_grad()
            (model.a if comm.rank else model.b)(model.trunk(torch.ones(1, 2))).sum().backward()
            if step != 1:
                optimizer.step()
        return everyones(comm, model)

    flat, bucketed = (run(lambda comm, kind=kind: program(comm, kind), 2).results[0] for kind in (0, 1))
    assert bucketed == pytest.approx(flat, abs=1e-6)


def test_a_rank_without_a_backward_pass_and_a_layer_that_is_frozen_meanwhile():
    def program(comm, kind):
        model = TwoHeads()
        optimizer = MultiNodeOptimizer(
            sgd(model.parameters(), 0.1), small_buckets(comm) if kind else create_communicator("flat", comm)
        )
        for step in range(4):
            model.b.requires_grad_(step != 1)
            optimizer.zero_grad()
            if not (comm.rank and step in (1, 2)):
                model.a(model.b(model.trunk(torch.ones(1, 2)))).sum().backward()
            optimizer.step()
        return everyones(comm, model)

    flat, bucketed = (run(lambda comm, kind=kind: program(comm, kind), 2).results[0] for kind in (0, 1))
    assert bucketed == pytest.approx(flat, abs=1e-6)


@pytest.mark.parametrize("freezes", [False, True])
def test_two_optimizers_share_a_communicator(freezes):
    """The second one's sums go on while the first steps, drops its gradients, and freezes."""

    def program(comm, kind):
        first, model = nn.Sequential(*(nn.Linear(2, 2, bias=False) for _ in range(2))), TwoHeads()
        for i, p in enumerate(first.parameters()):
            nn.init.constant_(p, 0.5 + i)
        communicator = small_buckets(comm) if kind else create_communicator("flat", comm)
        optimizers = [MultiNodeOptimizer(sgd(m.parameters(), 0.1), communicator) for m in (first, model)]
        optimizers[1].zero_grad()
        for step in range(4):
            first[0].requires_grad_(not freezes or step % 2 == 0)
            h = model.trunk(first(torch.full((1, 2), comm.rank + step + 1.0)))
            (model.a if (comm.rank + step) % 2 else model.b)(h).sum().backward()
            optimizers[0].step()
            optimizers[0].zero_grad()
            optimizers[1].step()
            optimizers[1].zero_grad()
        return everyones(comm, first) + everyones(comm, model)

    flat, bucketed = (run(lambda comm, kind=kind: program(comm, kind), 2).results[0] for kind in (0, 1))
    assert bucketed == pytest.approx(flat, rel=1e-5)


def test_without_an_optimizer_a_frozen_parameters_gradient_is_left_as_it_is():
    def program(comm):
        model, communicator = TwoHeads(), small_buckets(comm)
        communicator.attach(model)
        model.b.requires_grad_(False)
        model.a(model.b(model.trunk(torch.ones(1, 2)))).sum().backward()
        communicator.mean_gradients(model)
        return model.b.weight.grad, model.a.weight.grad is None

    assert run(program, 2).results == [(None, False)] * 2


def test_who_is_trained_anew_and_has_no_gradient_is_left_alone():
    def program(comm):
        a, b = (nn.Parameter(torch.ones(2)) for _ in range(2))
        b.requires_grad_(False)
        optimizer = MultiNodeOptimizer(
            torch.optim.SGD([a, b], 1.0, weight_decay=0.5), create_communicator("bucketed", comm)
        )
        b.requires_grad_(True)
        backward(comm, [a])
        optimizer.step()
        left = b.tolist(), b.grad
        optimizer.zero_grad()
        backward(comm, [a, b])
        optimizer.step()
        return *left, b.tolist()

    assert run(program, 2).results == [([1, 1], None, [-1, -1])] * 2


def test_who_alone_drops_gradients_is_told():
    def program(comm):
        weight = nn.Parameter(torch.zeros(2))
        optimizer = MultiNodeOptimizer(sgd([weight]), create_communicator("bucketed", comm))
        backward(comm, [weight])
        optimizer.zero_grad() if comm.rank else optimizer.step()

    with pytest.raises(RankFailed, match="rank 0 averages gradients, rank 1 drops gradients"):
        run(program, 2)


def test_frozen_parameters_are_compared_too_if_the_model_is_given():
    def program(comm):
        model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
        model[0].requires_grad_(False)
        communicator = create_communicator("flat", comm)
        optimizer = MultiNodeOptimizer(sgd(model[1].parameters()), communicator, model=model)
        model[0].bias.add_(comm.rank)
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()

    with pytest.raises(ValueError, match=r"parameter '0.bias' is not the same on rank 1 as on rank 0"):
        run(program, 2)


def test_what_cannot_be_written_to_is_named():
    def program(comm):
        model = nn.Linear(2, 2)
        model.register_buffer("mask", torch.ones(1, 2).expand(3, 2))
        create_communicator("flat", comm).broadcast_parameters(model)

    with pytest.raises(ValueError, match=r"rank 0: 'mask' is expanded.*clone\(\) it"):
        run(program, 2)


@pytest.mark.parametrize("kind", ["naive", "flat", "bucketed"])
def test_a_complex_gradient_that_is_not_finite_is_told(kind):
    def program(comm):
        weight = nn.Parameter(torch.zeros(2, dtype=torch.complex64))
        optimizer = MultiNodeOptimizer(sgd([weight]), create_communicator(kind, comm))
        weight.grad = torch.full_like(weight, complex(1, float("nan") if comm.rank else 1))
        optimizer.step()

    with pytest.raises(FloatingPointError, match="rank 1: the gradient of 'parameter 0' is not finite"):
        run(program, 2)


def test_before_ranks_part_local_sgd_has_what_synchronous_training_has():
    def program(comm):
        weight = nn.Parameter(torch.zeros(2))
        optimizer = LocalOptimizer(sgd([weight]), create_communicator("bucketed", comm), every=2, begin=1)
        seen = []
        for _ in range(2):
            optimizer.zero_grad()
            with optimizer.no_sync():
                backward(comm, [weight])
            backward(comm, [weight])
            optimizer.mean_gradients(examples=3)
            seen.append(weight.grad[0].item())  # the mean; then, alone, one's own
            optimizer.step(examples=3)
        optimizer.finish()
        return seen, weight[0].item()

    assert run(program, 2).results == [([3.0, 2.0], -6.0), ([3.0, 4.0], -6.0)]


def test_who_says_all_it_had_to_say_and_then_leaves_is_not_missed():
    """A farewell may come between the look for a message and the look for farewells."""

    def program(comm):
        control, there = create_communicator("flat", comm).control, []

        def listen(doing):
            there.append(doing)
            raise RankFailed("rank 1 has ended")

        control._listen = listen
        control._wait(lambda: bool(there), "averages gradients")
        with pytest.raises(RankFailed):
            control._wait(lambda: False, "averages gradients")

    run(program, 2)


def gradient_of(model, x):
    model(x).sum().backward()


def synced_first(optimizer, model):
    gradient_of(model, torch.ones(1, 2))
    with optimizer.no_sync():
        gradient_of(model, torch.ones(1, 2))


def synced_twice(optimizer, model):
    gradient_of(model, torch.ones(1, 2))
    gradient_of(model, torch.ones(1, 2))


def checkpointed(use_reentrant, optimizer, model):
    x = torch.ones(1, 2, requires_grad=True)
    for _ in range(2):
        x = checkpoint(model, x, use_reentrant=use_reentrant)
    x.sum().backward()


def cleared(optimizer, model):
    gradient_of(model, torch.ones(1, 2))
    model.zero_grad()


def clipped_early(optimizer, model):
    gradient_of(model, torch.ones(1, 2))
    nn.utils.clip_grad_norm_(model.parameters(), 0.1)


REACHED = "a second backward pass reached 'parameter [01]', whose gradient is being averaged since the first"


@pytest.mark.parametrize(
    ("use", "said"),
    [
        (
            synced_first,
            "pass within no_sync.. reached .* run the last one outside of no_sync.., and all before it within",
        ),
        (synced_twice, f"{REACHED}. Of several passes before one step, run all but the last within no_sync"),
        (
            functools.partial(checkpointed, True),
            f"{REACHED}. It is used in several checkpoints, .* use_reentrant=False",
        ),
        (cleared, "rank 0: the gradient of 'parameter [01]' was set to None while it was being averaged.*zero_grad"),
        (
            clipped_early,
            "rank 0: the gradient of 'parameter [01]' was changed while it was being averaged.*before you clip",
        ),
    ],
)
def test_a_message_about_gradients_in_flight_says_what_has_happened_to_them(use, said):
    def program(comm):
        model = nn.Linear(2, 2)
        optimizer = MultiNodeOptimizer(sgd(model.parameters()), create_communicator("bucketed", comm))
        use(optimizer, model)
        optimizer.step()

    with pytest.raises(RuntimeError, match=said):
        run(program, 2)


def test_a_layer_in_two_checkpoints_that_are_not_reentrant_is_averaged_once():
    def program(comm, kind):
        torch.manual_seed(0)
        model = nn.Linear(2, 2)
        optimizer = MultiNodeOptimizer(sgd(model.parameters()), create_communicator(kind, comm))
        checkpointed(False, optimizer, model)
        optimizer.step()
        return model.weight.tolist()

    flat, bucketed = (run(lambda comm, k=kind: program(comm, k), 2).results[0] for kind in ("flat", "bucketed"))
    assert flat == bucketed
