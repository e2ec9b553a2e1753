"""Ranks that share each batch train as one process does; what one does wrong all are told."""

import copy
import functools
import itertools
import json
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from mpcourse.data_parallel import (
    COMMUNICATORS,
    DoubleBufferedOptimizer,
    MultiNodeOptimizer,
    create_communicator,
    create_multi_node_optimizer,
)
from mpcourse.data_parallel.nodes import RANKS_PER_NODE
from mpcourse.virtual import RankFailed, Topology, compute, run
from tests.conftest import load_script

PROGRAMS = Path(__file__).parents[1] / "programs"
REFUSED = PROGRAMS / "data_parallel_refused.py"
TRUTH = load_script(PROGRAMS / "data_parallel_truth.py")
FEATURES = load_script(PROGRAMS / "data_parallel_features.py")
data, part, state = FEATURES.data, FEATURES.part, FEATURES.state
CASES = 4 * 2 * (3 * 3 + 3)  # models, dtypes, and optimizers of each communicator, and of buckets written in place


@functools.cache
def known():
    return TRUTH.of_one_process()


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_ranks_equal_one_process_on_the_whole_batch(size):
    found = run(functools.partial(TRUTH.check, known=known()), size).results
    assert [len(each) for each in found] == [CASES] * size
    assert {case: off for each in found for case, off in each.items() if off is not None} == {}


@pytest.mark.parametrize("size", [2, 3, 4])  # four make two nodes of two
def test_real_ranks_do_too(mpirun, tmp_path, size):
    torch.save(known(), tmp_path / "known.pt")
    done = mpirun(size, "-m", "mpi4py", TRUTH.__file__, tmp_path / "known.pt", timeout=110)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout)
    assert [len(each) for each in found] == [CASES] * size
    assert {case: off for each in found for case, off in each.items() if off is not None} == {}


SAID = {
    "layers": "ValueError: rank 1 has 6 parameters and rank 0 has 4",
    "shape": "ValueError: parameter '0.weight' is (5, 6) float32 on rank 0, and (7, 6) float32 on rank 1",
    "frozen": "ValueError: parameter '1.bias' is (2,) float32 on rank 0, and (2,) float32, frozen on rank 1",
    "changed": "ValueError: parameter '1.weight' is not the same on rank 1 as on rank 0",
    "batches": "ValueError: ranks have different numbers of examples (rank 0 4, rank 1 5, rank 2 4)",
    "not_finite": "FloatingPointError: rank 1: the gradient of '0.bias' is not finite",
    "clipped": "RuntimeError: rank 1: the gradient of '1.bias' was changed while it was being averaged",
    "kept": "nothing",
    "another_kind": "ValueError: ranks ask for different communicators: ",
    "steps_alone": "RankFailed: ranks do different things: rank 0 evaluates, rank 1 averages gradients",
    "another_call": "RankFailed: ranks do different things: rank 0 averages gradients, rank 1 evaluates",
}


@pytest.mark.parametrize(
    ("kind", "by"),
    [
        ("naive", "messages"),
        ("double", "memory"),
        *itertools.product(("bucketed", "fused"), ("memory", "messages")),
    ],
)
def test_what_is_wrong_on_one_rank_every_rank_says(mpirun, kind, by):
    done = mpirun(3, "-m", "mpi4py", REFUSED, kind, "all", by)
    assert done.returncode == 0, done.stderr[-3000:]
    said = json.loads(done.stdout)
    assert said.keys() == SAID.keys()
    # Only buckets are summed before `step`.
    phrases = SAID | ({} if kind in ("bucketed", "fused") else {"clipped": "nothing"})
    for case, phrase in phrases.items():
        assert [rank.startswith(phrase) for rank in said[case]] == [True] * 3, (case, said[case])


GONE = {
    "too_few_steps": (0, "averages gradients (its call 5), and rank 1 has ended after 4 calls"),
    "raises": (1, "averages gradients (its call 4), and rank 1 has ended after 3 calls"),
    "raises_in_backward": (1, "averages gradients (its call 4), and rank 1 has ended after 3 calls"),
    "finishes_alone": (1, "finishes its training (its call 4), and rank 1 has ended after 3 calls"),
    "evaluates_alone": (0, "evaluates (its call 2), and rank 1 has ended after 1 calls"),
}


@pytest.mark.parametrize(
    ("kind", "by", "case"),
    [
        *(("bucketed", "memory", case) for case in GONE),
        ("fused", "memory", "raises_in_backward"),
        ("bucketed", "messages", "raises_in_backward"),
        ("double", "messages", "too_few_steps"),
        ("double", "messages", "raises"),
    ],
)
def test_where_a_rank_is_gone_the_others_say_so_and_all_end(mpirun, kind, by, case):
    own, told = GONE[case]
    done = mpirun(3, REFUSED, kind, case, by)
    assert done.returncode != 0
    assert done.stderr.count("ZeroDivisionError: this rank cannot") == own
    assert done.stderr.count("RankFailed: ") == 2
    for rank in (0, 2):  # both may speak in the same moment, and what each writes in one go stays together
        assert done.stderr.count(f"rank {rank} {told}") == 1, done.stderr[-3000:]


def mlp(dtype=torch.float64):
    return FEATURES.mlp().to(dtype)


def sgd(parameters):
    return torch.optim.SGD(parameters, 0.2, momentum=0.9)


def both(size, kind, train, **options):
    """Return what `train(model, optimizer, share, communicator)` leaves on each rank, and in one process."""
    whole = mlp()
    train(whole, sgd(whole.parameters()), lambda x: x, None)

    def program(comm):
        model = mlp()
        communicator = create_communicator(kind, comm)
        optimizer = create_multi_node_optimizer(sgd(model.parameters()), communicator, **options)
        train(model, optimizer, lambda x: part(comm, x), communicator)
        return state(model)

    return run(program, size).results, state(whole)


def close(found, wanted):
    return all(torch.allclose(each, wanted, rtol=0, atol=1e-12) for each in found)


@pytest.mark.parametrize("kind", [*COMMUNICATORS, "fused"])
@pytest.mark.parametrize("feature", FEATURES.FEATURES)
@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_what_users_do_beside_plain_steps_equals_one_process(size, feature, kind):
    assert all(off < 1e-12 for off in run(lambda comm: FEATURES.FEATURES[feature](comm, kind), size).results)


@pytest.mark.parametrize("size", [2, 3])
def test_on_real_ranks_too(mpirun, size):
    done = mpirun(size, "-m", "mpi4py", FEATURES.__file__)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout)
    assert [set(each) for each in found] == [{f"{f} {k}" for f in FEATURES.FEATURES for k in FEATURES.KINDS}] * size
    assert {name: off for each in found for name, off in each.items() if not off < 1e-12} == {}


def test_a_second_pass_into_a_bucket_that_is_being_summed_is_refused():
    def program(comm):
        model = mlp()
        optimizer = MultiNodeOptimizer(torch.optim.SGD(model.parameters(), 0.1), create_communicator("bucketed", comm))
        model(torch.ones(2, 6, dtype=torch.float64)).sum().backward()
        model(torch.ones(2, 6, dtype=torch.float64)).sum().backward()
        optimizer.step()

    with pytest.raises(RuntimeError, match=r"a second backward pass reached 'parameter 5'.*no_sync"):
        run(program, 2)


@pytest.mark.parametrize("kind", [kind for kind in COMMUNICATORS if kind != "naive"])
def test_gradients_are_views_of_the_rows_that_are_summed(kind):
    assert run(lambda comm: FEATURES.keeps_gradients_in_their_bucket(comm, kind), 2).results == [0.0] * 2


def test_schedulers_and_state_are_the_optimizers_own():
    def train(model, optimizer, share, communicator):
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
        for i, (x, y) in enumerate(data()):
            optimizer.zero_grad()
            F.cross_entropy(model(share(x)), share(y)).backward()
            optimizer.step()
            scheduler.step()
            if i == 2:
                optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
        assert optimizer.param_groups[0]["lr"] == 0.05
        assert len(optimizer.state) == 6

    assert close(*both(2, "bucketed", train))


def test_double_buffering_is_training_with_the_gradients_of_the_step_before():
    def train(model, optimizer, share, communicator):
        late = None
        for x, y in data():
            optimizer.zero_grad()
            F.cross_entropy(model(share(x)), share(y)).backward()
            if communicator is None:
                now = [p.grad for p in model.parameters()]
                for p, g in zip(model.parameters(), late or [None] * len(now), strict=True):
                    p.grad = g
                late = now
            optimizer.step()
        if communicator:
            optimizer.finish()
        else:
            for p, g in zip(model.parameters(), late, strict=True):
                p.grad = g
            optimizer.step()

    for size in (1, 2, 3):
        assert close(*both(size, "flat", train, double_buffering=True))


@pytest.mark.parametrize("size", [2, 3])
def test_two_sums_under_way_at_once_are_not_mixed_up(size):
    """Rank 0's sum is ahead of the others': nobody but rank 0 moves it on before the next one begins."""

    def program(comm):
        weight = nn.Parameter(torch.zeros(7 * size))
        sgd = torch.optim.SGD([weight], 1.0)
        optimizer = DoubleBufferedOptimizer(sgd, create_communicator("flat", comm))
        seen = []
        for step in range(4):
            optimizer.zero_grad()
            (weight * (1 + comm.rank) * 10**step).sum().backward()
            compute(comm, 1.0)
            while comm.rank == 0 and step and not optimizer._request._sums._sums[0]._step:
                optimizer._request.test()
            optimizer.step()
            seen.append(None if weight.grad is None else set(weight.grad.round(decimals=3).tolist()))
        optimizer.finish()
        return seen

    mean = (size + 1) / 2
    assert run(program, size).results == [[None, {mean}, {10 * mean}, {100 * mean}]] * size


def test_double_buffering_checks_numbers_of_examples_and_refuses_new_parameters_meanwhile():
    def program(comm, mistake):
        model = mlp()
        sgd = torch.optim.SGD(model.parameters(), 0.1)
        optimizer = DoubleBufferedOptimizer(sgd, create_communicator("flat", comm))
        model(torch.ones(2, 6, dtype=torch.float64)).sum().backward()
        optimizer.step(examples=comm.rank if mistake == "examples" else 2)
        if mistake == "state":
            optimizer.state_dict()
        if mistake == "another state":
            optimizer.load_state_dict({})
        optimizer.add_param_group({"params": [nn.Parameter(torch.ones(2))]})

    with pytest.raises(ValueError, match=r"different numbers of examples \(rank 0 0, rank 1 1\)"):
        run(lambda comm: program(comm, "examples"), 2)
    with pytest.raises(RuntimeError, match="call finish\\(\\) before parameters are added"):
        run(lambda comm: program(comm, "parameters"), 2)
    with pytest.raises(RuntimeError, match="call finish\\(\\) before its state is taken"):
        run(lambda comm: program(comm, "state"), 2)
    with pytest.raises(RuntimeError, match="call finish\\(\\) before a state is loaded"):
        run(lambda comm: program(comm, "another state"), 2)


def test_double_buffering_hides_the_sum_behind_the_next_step():
    def seconds(double_buffering):
        def program(comm):
            model = nn.Linear(1000, 250)
            optimizer = create_multi_node_optimizer(
                torch.optim.SGD(model.parameters(), 0.1), create_communicator("flat", comm), double_buffering
            )
            for _ in range(10):
                optimizer.zero_grad()
                compute(comm, 1e-3)  # together longer than a sum takes, which goes on when backward asks it to
                model(torch.ones(1, 1000)).sum().backward()
                compute(comm, 1e-3)
                optimizer.step()
            if double_buffering:
                optimizer.finish()

        return run(program, 2, "10 GbE").seconds

    sum_ = 1001 * 250 * 4 / 1.18e9  # of two ranks: each sends as many bytes as the row has
    latencies = 2e-3  # of messages and roll calls, at most
    # Both begin with a broadcast, which takes as long as a sum; the last sum is hidden by nothing.
    assert 11 * sum_ + 0.02 < seconds(False) < 11 * sum_ + 0.02 + latencies
    assert 2 * sum_ + 0.02 < seconds(True) < 2 * sum_ + 0.02 + latencies


def parameters_traffic(kind, size, topology="10 GbE", ranks_per_node=None):
    """Bytes and messages of one mean of gradients, by pair of ranks."""

    def steps(count):
        def program(comm):
            communicator = create_communicator(kind, comm, ranks_per_node)
            model = mlp(torch.float32)
            for _ in range(count):
                for p in model.parameters():
                    p.grad = torch.ones_like(p)
                communicator.mean_gradients(model)

        return run(program, size, topology)

    one, none = steps(1), steps(0)
    return one.traffic - none.traffic, one.messages - none.messages


def test_naive_sends_a_message_for_each_parameter_and_flat_one_for_all():
    naive, flat = parameters_traffic("naive", 2), parameters_traffic("flat", 2)
    assert naive[1].sum() == 6 * flat[1].sum()
    assert naive[0].sum() == flat[0].sum()


def test_hierarchical_crosses_between_nodes_once_and_two_dimensional_shares_that_out():
    topology = Topology(nodes=(0, 0, 1, 1))
    nbytes = sum(p.nbytes for p in mlp(torch.float32).parameters())
    between = [(a, b) for a in range(4) for b in range(4) if a // 2 != b // 2]
    hierarchical, two, flat = (
        parameters_traffic(kind, 4, topology)[0] for kind in ("hierarchical", "two_dimensional", "flat")
    )
    assert {pair: hierarchical[pair] for pair in between if hierarchical[pair]} == {(0, 2): nbytes, (2, 0): nbytes}
    crossing = {pair: two[pair] for pair in between if two[pair]}
    assert set(crossing) == {(0, 2), (2, 0), (1, 3), (3, 1)}
    assert crossing[0, 2] + crossing[1, 3] == nbytes
    assert sum(flat[pair] for pair in between) >= 2 * nbytes


def test_buckets_are_filled_from_the_last_layer_and_the_first_is_short():
    def program(comm):
        communicator = create_communicator("bucketed", comm, bucket_bytes=4000, first_bucket_bytes=1000)
        model = nn.Sequential(*[nn.Linear(20, 20) for _ in range(6)])  # 1680 bytes each
        communicator.attach(model)
        for bucket in communicator.buckets:  # the largest begins with its row, and so with a cache line
            assert next(iter(bucket.views.values())).shape == (20, 20)
            assert bucket.flat.places[0] == (0, 0)
        return [[p.numel() for p in bucket.parameters] for bucket in communicator.buckets]

    usual = run(lambda comm: create_communicator("bucketed", comm), 1).results[0]
    assert (usual.bucket_bytes, usual.first_bucket_bytes) == (25 * 2**20, 2**20)  # as DDP's
    (found,) = run(program, 1).results
    assert sum(found, []) == [20, 400] * 6  # bias and weight of the last layer first
    nbytes = [4 * sum(bucket) for bucket in found]
    assert nbytes[0] >= 1000 and all(n >= 4000 for n in nbytes[1:-1])
    assert all(4 * sum(bucket[:-1]) < (1000 if i == 0 else 4000) for i, bucket in enumerate(found))


def test_sums_begin_while_backward_goes_on():
    class Slow(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, comm):
            ctx.comm = comm
            return x.clone()

        @staticmethod
        def backward(ctx, dx):
            compute(ctx.comm, 1e-3)
            return dx, None

    def program(comm, kind):
        layers = [nn.Linear(300, 300) for _ in range(4)]
        model = nn.Sequential(*layers)
        short = {"bucket_bytes": 300_000, "first_bucket_bytes": 300_000} if kind == "bucketed" else {}
        communicator = create_communicator(kind, comm, **short)
        optimizer = MultiNodeOptimizer(torch.optim.SGD(model.parameters(), 0.1), communicator)
        for _ in range(3):
            optimizer.zero_grad()
            x = torch.ones(1, 300)
            for layer in layers:
                x = layer(Slow.apply(x, comm))
            x.sum().backward()
            optimizer.step()

    flat, bucketed = (run(lambda comm, kind=kind: program(comm, kind), 2).seconds for kind in ("flat", "bucketed"))
    layer = 300 * 301 * 4 / 1.18e9
    assert flat == pytest.approx(bucketed + 3 * 3 * layer, rel=0.1)


def test_nodes_are_hosts_or_what_one_pretends(monkeypatch):
    def told(comm):
        c = create_communicator("flat", comm)
        return c.rank, c.size, c.intra_rank, c.intra_size, c.inter_rank, c.inter_size

    topology = Topology(nodes=(0, 1, 1, 0, 1))
    assert run(told, 5, topology).results == [
        (0, 5, 0, 2, 0, 2), (1, 5, 0, 3, 1, 2), (2, 5, 1, 3, 1, 2), (3, 5, 1, 2, 0, 2), (4, 5, 2, 3, 1, 2),
    ]  # fmt: skip
    monkeypatch.setenv(RANKS_PER_NODE, "2")
    assert [each[2:] for each in run(told, 3, topology.between).results] == [(0, 2, 0, 2), (1, 2, 0, 2), (0, 1, 1, 2)]
    monkeypatch.setenv(RANKS_PER_NODE, "none")
    with pytest.raises(ValueError, match="is 'none': 1 or more ranks make a node"):
        run(told, 2)


def test_an_unknown_communicator_is_told_with_those_that_there_are():
    with pytest.raises(ValueError, match="no communicator is called 'nccl': there are naive, flat, hierarchical"):
        run(lambda comm: create_communicator("nccl", comm), 2)
    with pytest.raises(ValueError, match="two_dimensional needs nodes with equally many ranks"):
        run(lambda comm: create_communicator("two_dimensional", comm, 2), 3)


def test_a_sparse_gradient_is_refused():
    def program(comm):
        model = nn.Embedding(5, 2, sparse=True)
        optimizer = MultiNodeOptimizer(torch.optim.SGD(model.parameters(), 0.1), create_communicator("flat", comm))
        model(torch.tensor([1, 2])).sum().backward()
        optimizer.step()

    with pytest.raises(ValueError, match="the gradient of 'parameter 0' is sparse"):
        run(program, 2)


def test_ranks_that_do_different_things_are_told_which():
    def program(comm):
        communicator = create_communicator("flat", comm)
        communicator.share(3) if comm.rank else communicator.mean(1.0)

    with pytest.raises(RankFailed, match="rank 0 averages a number, rank 1 tells its examples"):
        run(program, 2)
