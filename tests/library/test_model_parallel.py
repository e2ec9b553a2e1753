"""Messages and collective calls that autograd sees: a model over ranks has the gradients of one process."""

import copy
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from mpcourse.course.examples.model_parallel import EXAMPLES
from mpcourse.model_parallel import (
    MultiNodeChainList,
    all_to_all,
    allgather,
    allreduce,
    bcast,
    pseudo_connect,
    recv,
    send,
)
from mpcourse.virtual import RankFailed, run
from mpcourse.virtual.ranks import Deadlock
from tests.programs import collective_gradients
from tests.programs.chain_list_truth import LABELS, Layers, X, equal, made

PROGRAM = Path(__file__).parents[1] / "programs" / "chain_list_truth.py"


def test_an_mlp_over_two_ranks_equals_one_process_for_several_steps():
    first, second = run(lambda comm: Layers.program(comm, 4), 2).results
    assert equal([*first[:2], *second, *first[2:]], Layers.whole(4))


def test_an_mlp_over_two_real_ranks_equals_one_process(mpirun):
    done = mpirun(2, "-m", "mpi4py", PROGRAM)
    assert done.stdout.strip() == "True", done.stderr[-3000:]


@pytest.mark.parametrize(("name", "size"), [*((name, 2) for name in EXAMPLES), ("parallel_convolution", 3)])
def test_chainermns_examples_have_the_gradients_of_one_process(name, size):
    for found, want in run(EXAMPLES[name], size).results:
        assert found and equal(found, want)


def test_chainermns_examples_run_under_mpirun(mpirun):
    done = mpirun(2, "-m", "mpi4py", "-m", "mpcourse.course.examples.model_parallel")
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("gradients of both ranks are those of one process") == len(EXAMPLES)


def test_branches_that_meet_again_equal_one_process():
    class Product(nn.Module):
        def __init__(self, layer):
            super().__init__()
            self.layer = layer

        def forward(self, a, b):
            return self.layer(a * b)

    def parts():
        return made(
            nn.Linear(4, 6), nn.Linear(6, 6), nn.Sequential(nn.Linear(6, 6), nn.Tanh()), Product(nn.Linear(6, 3))
        )

    first, left, right, last = parts()
    F.cross_entropy(last(left(first(X)), right(first(X))), LABELS).backward()
    want = [p.grad for m in (first, left, right, last) for p in m.parameters()]

    def program(comm):
        model = MultiNodeChainList(comm)
        links = [(None, [1, 2]), (0, 3), (0, 3), ([1, 2], None)]
        model.add_link(parts()[comm.rank], *links[comm.rank])
        out = model(X) if comm.rank == 0 else model()
        (F.cross_entropy(out, LABELS) if comm.rank == 3 else out).backward()
        return [p.grad for p in model.parameters()]

    assert equal(sum(run(program, 4).results, []), want)


def test_a_rank_that_sends_to_itself_and_to_others_equals_one_process():
    def parts():
        return made(nn.Linear(4, 5), nn.Linear(5, 5), nn.Bilinear(5, 5, 3))

    first, second, last = parts()
    F.cross_entropy(last(first(X), second(first(X))), LABELS).backward()
    want = [p.grad for m in (first, second, last) for p in m.parameters()]

    def program(comm):
        first, second, last = parts()
        model = MultiNodeChainList(comm)
        if comm.rank == 0:
            model.add_link(first, rank_in=None, rank_out=[0, 1])
            model.add_link(last, rank_in=[0, 1], rank_out=None)
            F.cross_entropy(model(X), LABELS).backward()
        else:
            model.add_link(second, rank_in=0, rank_out=0)
            model().backward()
        return [p.grad for p in model.parameters()]

    first, second = run(program, 2).results
    assert equal([*first[:2], *second, *first[2:]], want)


@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.parametrize("call", ["allreduce", "bcast", "allgather", "all_to_all"])
def test_gradients_of_collective_calls_are_those_of_the_sum_of_all_ranks_losses(size, call):
    """One process holds all ranks' tensors, and computes what they compute."""
    draw = torch.Generator().manual_seed(size)
    xs = torch.randn(size, 3 * size, generator=draw, dtype=torch.float64)
    weights = torch.randn(size, size, 3 * size, generator=draw, dtype=torch.float64)

    def loss(rank, *received):
        return sum((weights[rank, i, : y.numel()] * y**2).sum() for i, y in enumerate(received))

    whole = xs.clone().requires_grad_()
    received = {
        "allreduce": lambda r: [whole.sum(0)],
        "bcast": lambda r: [whole[size - 1]],
        "allgather": lambda r: [whole[i, : 3 * i + 3] for i in range(size)],  # shapes differ
        "all_to_all": lambda r: [whole[i].chunk(size)[r] for i in range(size)],
    }[call]
    sum(loss(rank, *received(rank)) for rank in range(size)).backward()

    def program(comm):
        x = xs[comm.rank].clone().requires_grad_()
        if call == "allreduce":
            got = [allreduce(comm, x)]
        elif call == "bcast":
            got = [bcast(comm, x if comm.rank == size - 1 else None, size - 1)]
        elif call == "allgather":
            got = list(allgather(comm, x[: 3 * comm.rank + 3]))
        else:
            got = list(all_to_all(comm, x.chunk(size)))
        loss(comm.rank, *got).backward()
        return torch.zeros_like(x) if x.grad is None else x.grad

    assert equal(run(program, size).results, list(whole.grad))


def test_a_tensor_that_needs_no_gradient_sends_none_back():
    def program(comm):
        if comm.rank == 0:
            a, b = torch.ones(3, requires_grad=True), torch.arange(4)
            send([a, b], comm, 1).backward()
            return a.grad.tolist()
        a, b = recv(comm, 0)
        assert b.dtype == torch.int64 and not b.requires_grad and a.requires_grad
        (2 * a).sum().backward()
        return None

    done = run(program, 2)
    assert done.results[0] == [2, 2, 2]
    plain = run(lambda comm: send(X, comm, 1).item() if comm.rank == 0 else float(recv(comm, 0).sum()), 2)
    assert plain.results[1] == float(X.sum()) and plain.messages[1, 0] == 0


def test_what_nobody_used_has_no_gradient_at_its_sender():
    def program(comm):
        if comm.rank == 0:
            a, b = torch.ones(3, requires_grad=True), torch.ones(2, requires_grad=True)
            send([a, b], comm, 1).backward()
            return a.grad.tolist(), b.grad
        a, _ = recv(comm, 0)
        a.sum().backward()
        return None

    assert run(program, 2).results[0] == ([1, 1, 1], None)


def test_pseudo_connect_lets_a_delegates_graph_run():
    def program(comm):
        if comm.rank == 0:
            x = torch.ones(3, requires_grad=True)
            own = torch.ones(2, requires_grad=True)
            delegate = send(x, comm, 1)
            (y,) = pseudo_connect(delegate, 5 * own)
            y.sum().backward()
            return x.grad.tolist(), own.grad.tolist()
        (7 * recv(comm, 0)).sum().backward()
        return None

    assert run(program, 2).results[0] == ([7, 7, 7], [5, 5])


def test_without_gradients_nothing_is_sent_back():
    def program(comm):
        with torch.no_grad():
            return Layers.program(comm, 0) and None

    assert run(program, 2).messages.sum() == 0


def test_evaluation_runs_forward_alone():
    def program(comm):
        first, second, third = Layers.parts()
        model = MultiNodeChainList(comm)
        if comm.rank == 0:
            model.add_link(first, None, 1)
            model.add_link(third, 1, None)
        else:
            model.add_link(second, 0, 0)
        with torch.no_grad():
            return model(X) if comm.rank == 0 else model()

    want = nn.Sequential(*Layers.parts())(X).detach()
    assert equal([run(program, 2).results[0]], [want])


def test_two_links_in_the_wrong_order_are_a_deadlock_that_is_named():
    def program(comm):
        first, second, third = Layers.parts()
        model = MultiNodeChainList(comm)
        if comm.rank == 0:
            model.add_link(third, rank_in=1, rank_out=None)
            model.add_link(first, rank_in=None, rank_out=1)
            model(X)
        else:
            model.add_link(second, rank_in=0, rank_out=0)
            model()

    with pytest.raises(Deadlock) as told:
        run(program, 2)
    assert "rank 0 waits in recv(source=1" in str(told.value) and "test_model_parallel.py" in str(told.value)
    assert "rank 0 -> rank 1 -> rank 0" in str(told.value)


def test_a_backward_pass_that_a_rank_leaves_out_is_a_deadlock_that_is_named():
    def program(comm):
        x = torch.ones(3, requires_grad=True)
        if comm.rank == 0:
            send(x, comm, 1).backward()
        else:
            recv(comm, 0)

    with pytest.raises(Deadlock, match="rank 0 waits in recv"):
        run(program, 2)


def test_what_cannot_be_linked_is_told():
    def program(comm):
        model = MultiNodeChainList(comm)
        with pytest.raises(ValueError, match="there is no rank 2: this communicator has ranks 0 to 1"):
            model.add_link(nn.Identity(), rank_in=2)
        with pytest.raises(ValueError, match="there is no rank True"):
            model.add_link(nn.Identity(), rank_out=True)
        with pytest.raises(ValueError, match="an empty list of ranks"):
            model.add_link(nn.Identity(), rank_out=[])
        model.add_link(nn.Identity())
        with pytest.raises(ValueError, match=f"rank {comm.rank} has two parts with rank_out=None"):
            model.add_link(nn.Identity())
        assert model(X) is not X and torch.equal(model(X), X)
        alone = MultiNodeChainList(comm)
        alone.add_link(nn.Identity(), rank_in=comm.rank)
        with pytest.raises(RuntimeError, match="no part before it has rank_out="):
            alone()
        alone = MultiNodeChainList(comm)
        alone.add_link(nn.Identity(), rank_out=comm.rank)
        with pytest.raises(RuntimeError, match="no later part takes"):
            alone(X)
        for rank in (comm.rank, 2, -1):
            with pytest.raises(ValueError, match=r"cannot send to itself|there is no rank"):
                send(X, comm, rank)
            with pytest.raises(ValueError, match=r"cannot send to itself|there is no rank"):
                recv(comm, rank)
        with pytest.raises(ValueError, match="a tensor for each of the 2 ranks, not 1"):
            all_to_all(comm, [X])
        with pytest.raises(ValueError, match="root is one of the ranks 0 to 1, not 2"):
            bcast(comm, X, 2)
        with pytest.raises(ValueError, match="rank 1 is the root of bcast: it needs x"):
            bcast(comm, X if comm.rank == 0 else None, 1)
        return True

    assert all(run(program, 2).results)


def test_a_model_can_be_copied_and_its_parameters_are_listed():
    def program(comm):
        model = MultiNodeChainList(comm)
        model.add_link(nn.Linear(2, 3), None, None)
        return sorted(dict(model.named_parameters())), len(list(copy.deepcopy(model.parts).parameters()))

    assert run(program, 1).results[0] == (["parts.0.bias", "parts.0.weight"], 2)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_whoever_requires_gradients_all_ranks_have_those_of_one_process(size):
    """All combinations of ranks whose x requires a gradient, and of ranks within no_grad."""
    assert run(collective_gradients.differing, size).results == [[]] * size


def test_on_real_ranks_too(mpirun):
    done = mpirun(3, "-m", "mpi4py", collective_gradients.__file__)
    assert done.stdout.strip() == "[[], [], []]", done.stderr[-3000:]


def test_pieces_that_others_drop_have_gradients_if_they_give_them_to_bcast():
    def program(comm):
        x = torch.ones(2, requires_grad=True)
        total = sum(allgather(comm, x)).sum()
        (bcast(comm, total) * (comm.rank + 1)).backward()
        return x.grad.tolist()

    assert run(program, 3).results == [[6.0, 6.0]] * 3


def left_out(comm, x):
    y = allreduce(comm, x)
    if comm.rank == 0:
        y.sum().backward()


def left_out_twice(comm, x):
    left_out(comm, x)
    left_out(comm, x)


def pieces_dropped(comm, x):
    pieces = allgather(comm, x)
    bcast(comm, sum(pieces).sum() if comm.rank == 0 else None).backward()


def other_results(comm, x):
    """Each rank uses another one of two results, which have one shape."""
    results = allreduce(comm, x), allreduce(comm, 2 * x)
    results[comm.rank].sum().backward()


def other_results_beside_no_grad(comm, x):
    with torch.no_grad() if comm.rank == 2 else torch.enable_grad():
        results = allreduce(comm, x), allreduce(comm, 2 * x)
    if comm.rank < 2:
        results[comm.rank].sum().backward()


def other_calls(comm, x):
    allgather(comm, x) if comm.rank else allreduce(comm, x)


@pytest.mark.parametrize(
    ("program", "size", "said"),
    [
        (
            left_out,
            2,
            "rank 0 waits in the backward pass of allreduce. Where a rank's loss does not depend on a result",
        ),
        (left_out_twice, 3, "rank 0 runs the backward pass of allreduce, rank 1 runs allreduce, rank 2 runs allreduce"),
        (pieces_dropped, 3, "rank 0 waits in the backward pass of allgather.*add 0 . result.sum.. to the loss"),
        (other_results, 2, "ranks run the backward pass of allreduce, but of different calls"),
        (other_results_beside_no_grad, 3, "ranks run the backward pass of allreduce, but of different calls"),
        (other_calls, 2, "ranks do different things: rank 0 runs allreduce, rank 1 runs allgather"),
    ],
)
def test_a_backward_pass_that_others_do_not_run_is_named(program, size, said):
    with pytest.raises(Deadlock if " waits in " in said else RankFailed, match=said):
        run(lambda comm: program(comm, torch.ones(2, requires_grad=True)), size)


def test_collective_calls_name_what_differs_between_ranks():
    def shapes(comm):
        allreduce(comm, torch.ones(2 + comm.rank))

    def roots(comm):
        bcast(comm, torch.ones(2), comm.rank)

    with pytest.raises(ValueError, match=r"x is \(2,\) float32 on rank 0, and \(3,\) float32 on rank 1"):
        run(shapes, 2)
    with pytest.raises(ValueError, match="the root of bcast is rank 0 on rank 0, and rank 1 on rank 1"):
        run(roots, 2)


def test_who_receives_within_no_grad_what_wants_a_gradient_says_so():
    def program(comm):
        if comm.rank == 0:
            send(torch.ones(2, requires_grad=True), comm, 1).backward()
        else:
            with torch.no_grad():
                recv(comm, 0)

    with pytest.raises(RuntimeError, match="rank 1 receives within no_grad what rank 0 wants a gradient of"):
        run(program, 2)
