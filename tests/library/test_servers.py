"""Parameter servers and local SGD: equal to one process where they wait, measured where they do not."""

import json
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from mpcourse.data_parallel import LocalOptimizer, MultiNodeOptimizer, create_communicator
from mpcourse.data_parallel.servers import Asynchronous, BoundedStaleness, Shards, Synchronous, train_with_servers
from mpcourse.virtual import LINKS, Deadlock, compute, run
from tests.conftest import load_script

TRUTH = Path(__file__).parents[1] / "programs" / "servers_truth.py"


def sgd(p):
    return torch.optim.SGD(p, 0.1)


@pytest.mark.parametrize("size", [2, 3, 4, 6])
def test_where_all_wait_servers_and_workers_equal_one_process(size):
    found = run(load_script(TRUTH).check, size).results
    assert [len(each) for each in found] == [6 * (size - 1) + 4 * (size > 2)] * size
    assert {case: off for each in found for case, off in each.items() if off is not None} == {}


@pytest.mark.parametrize("size", [2, 4])
def test_real_ranks_do_too(mpirun, size):
    done = mpirun(size, "-m", "mpi4py", TRUTH, timeout=110)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout)
    assert [len(each) for each in found] == [6 * (size - 1) + 4 * (size > 2)] * size
    assert {case: off for each in found for case, off in each.items() if off is not None} == {}


def test_one_worker_is_never_stale_whatever_the_policy():
    trained = load_script(TRUTH).trained
    for policy in (Asynchronous(), BoundedStaleness(0), Synchronous()):
        for found, served, want in run(lambda c, p=policy: trained(c, sgd, p, 1, "even", 6), 2).results:
            assert served.staleness() == [0] * 6
            assert torch.allclose(found, want, rtol=0, atol=1e-12)


def linear(comm, policy, updates, seconds, servers=1, shards="even", n=(40, 30), **options):
    """Workers whose gradients are their rank everywhere, and take `seconds` by rank. What was recorded, and row 0."""
    model = nn.ParameterList([nn.Parameter(torch.zeros(k, dtype=torch.float64)) for k in n])

    def backward(step):
        for p in model:
            p.grad = torch.full_like(p, float(comm.rank))
        compute(comm, seconds[comm.rank])
        return 0.0

    served = train_with_servers(comm, model, sgd, backward, updates, policy, servers, shards, **options)
    return served, torch.cat([p.detach() for p in model])


def test_every_gradient_that_was_applied_is_in_the_weights_once():
    for served, row in run(lambda c: linear(c, Asynchronous(), 20, [0, 1, 2, 5]), 4).results:
        applied = [push.worker for push in served.pushes[0] if push.applied]
        assert len(applied) == 20
        assert torch.allclose(row, torch.full_like(row, -0.1 * sum(applied)), rtol=0, atol=1e-12)


def test_the_staleness_that_is_told_is_that_of_the_order_of_updates():
    served, _ = run(lambda c: linear(c, Asynchronous(), 40, [0, 1, 1.3, 2.9, 7]), 5).results[0]
    last, want = {}, []
    for version, push in enumerate(p for p in served.pushes[0] if p.applied):
        want.append(version - last.get(push.worker, 0))
        last[push.worker] = version + 1
    assert served.staleness() == want
    assert max(want) > 3


@pytest.mark.parametrize("workers", [1, 2, 3, 7])
def test_of_equally_fast_workers_each_waits_for_all_others_to_have_their_turn(workers):
    served, _ = run(lambda c: linear(c, Asynchronous(), 10 * workers, [1] * (workers + 1)), workers + 1).results[0]
    assert served.staleness()[workers:] == [workers - 1] * (9 * workers)


@pytest.mark.parametrize("bound", [0, 1, 3])
def test_nobody_is_further_ahead_than_the_bound(bound):
    served, _ = run(lambda c: linear(c, BoundedStaleness(bound), 60, [0, 1, 2, 9]), 4).results[0]
    steps = dict.fromkeys((1, 2, 3), 0)
    apart = []
    for push in served.pushes[0]:
        if push.applied:
            steps[push.worker] += 1
            apart.append(max(steps.values()) - min(steps.values()))
    assert max(apart) == bound + 1  # the step that it was let begin


def test_who_waits_for_whom_is_seen_on_the_clock():
    seconds = [0, 1, 1, 1, 4]

    def took(policy, updates=12):
        return run(lambda c: linear(c, policy, updates, seconds), 5).results[0][0]

    assert took(Synchronous()).seconds == pytest.approx(12 * 4, abs=0.1)
    assert took(Synchronous(backup=1)).seconds == pytest.approx(12, abs=4.1)  # the last one ends its step
    alone = took(Asynchronous(), 39)  # of 12 rounds three at a time, and three by the slow one
    assert alone.pushes[0][-1].seconds == pytest.approx(12, abs=4.1)
    dropped = [p for p in took(Synchronous(backup=1)).pushes[0] if not p.applied]
    assert {p.worker for p in dropped} == {4}
    assert all(p.staleness > 0 for p in dropped)


def test_the_servers_link_carries_every_byte():
    """A model of n bytes, p workers: each update p n bytes in and p n bytes out, over one link."""
    workers, nbytes = 4, 8 << 18
    served, traffic = [], []
    for updates in (0, 5):
        done = run(lambda c, u=updates: linear(c, Synchronous(), u, [0.0] * 5, n=(1 << 18,)), workers + 1)
        served.append(done.results[0][0].seconds)
        traffic.append(done.traffic)
    more = traffic[1] - traffic[0]
    assert more[0].tolist() == [0] + [5 * nbytes] * workers
    assert more[:, 0].tolist() == [0] + [5 * nbytes] * workers
    assert not more[1:, 1:].any()
    # The first one's gradient comes while the others' answers leave: p + 1 messages' time for each update.
    seconds = 5 * (workers + 1) * LINKS["10 GbE"].seconds(nbytes)
    assert served[1] - served[0] == pytest.approx(seconds, rel=0.05)


def test_an_even_number_of_servers_gets_all_weights_on_half_of_them_if_parameters_are_dealt():
    """Weight, bias, weight, bias: dealt to two, one gets all weights."""
    sizes = [torch.empty(size) for size in (1000, 10, 1000, 10, 1000, 10)]
    assert Shards(sizes, 1, "round_robin").lengths == [3030]
    assert Shards(sizes, 2, "round_robin").lengths == [3000, 30]
    assert Shards(sizes, 3, "round_robin").lengths == [1010, 1010, 1010]
    assert Shards(sizes, 4, "round_robin").lengths == [2000, 20, 1000, 10]
    assert Shards(sizes, 4).lengths == [757, 758, 757, 758]

    def took(servers, how):
        numbers = {"n": (100_000, 1000) * 3, "servers": servers, "shards": how}
        return run(lambda c: linear(c, Synchronous(), 5, [0.0] * 9, **numbers), 6 + servers).results[0][0].seconds

    one, two, three = (took(servers, "round_robin") for servers in (1, 2, 3))
    assert two > 0.9 * one > 1.3 * three
    assert took(2, "even") < 0.75 * one


def test_the_only_server_sees_every_version():
    def program(comm):
        seen = []
        _, _row = linear(comm, Asynchronous(), 4, [0, 1, 1], on_update=seen.append)
        return seen

    assert run(program, 3).results == [[1, 2, 3, 4], [], []]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"servers": 0}, "of 3 ranks, 1 to 2 can serve"),
        ({"servers": 3}, "of 3 ranks, 1 to 2 can serve"),
        ({"updates": -1}, "0 or more"),
        ({"policy": Synchronous(2)}, "of 2 workers, 0 to 1 may come too late"),
        ({"policy": BoundedStaleness(-1)}, "0 or more steps ahead"),
        ({"policy": Synchronous(1), "servers": 2}, "of 1 workers, 0 to 0 may come too late"),
        ({"shards": "odd"}, "shards are even or round_robin, not 'odd'"),
        ({"servers": 2, "on_update": print}, "on_update sees the whole model"),
        ({"dtype": torch.float32}, "of one dtype"),
        ({"updates": lambda rank: 5 + rank}, r"ranks were given different updates: \[5, 6, 7\]"),
        ({"n": lambda rank: (3,) if rank else (4,)}, r"parameter '0' is \(4,\) float64 on rank 0, and \(3,\) float64"),
    ],
)
def test_numbers_that_make_no_sense_are_refused_on_every_rank(options, told):
    def program(comm):
        own = {k: v(comm.rank) if k in ("updates", "n") and callable(v) else v for k, v in options.items()}
        model = nn.ParameterList([nn.Parameter(torch.zeros(k, dtype=torch.float64)) for k in own.pop("n", (3,))])
        if dtype := own.pop("dtype", None):
            model.append(nn.Parameter(torch.zeros(2, dtype=dtype)))
        with pytest.raises(ValueError, match=told):
            train_with_servers(comm, model, sgd, lambda step: 0.0, own.pop("updates", 1), **own)
        return True

    assert run(program, 3).results == [True] * 3


def test_what_is_not_finite_is_named_on_every_rank(mpirun):
    told = "FloatingPointError: rank 2: the gradient of '1.weight' is not finite"
    refused = load_script(TRUTH).refused
    for found in run(lambda comm: refused(comm, "not finite"), 5).results:
        assert found.startswith(told)
    done = mpirun(4, TRUTH, "not finite")
    assert done.returncode == 0, done.stderr[-3000:]
    assert all(found.startswith(told) for found in json.loads(done.stdout))


def test_where_a_worker_is_gone_the_others_say_so_and_all_end(mpirun):
    done = mpirun(4, TRUTH, "raises")
    assert done.returncode != 0
    assert done.stderr.count("ZeroDivisionError: this rank cannot") == 1
    for rank in (0, 1, 3):  # rank 3 may have made all steps that were left
        assert f"RankFailed: rank {rank} " in done.stderr, done.stderr[-3000:]


# -- local SGD --


def local(comm, kind, steps, make=lambda p: torch.optim.SGD(p, 0.2), **options):
    """Do some steps on this rank's own batches; return the parameters after each, one row."""
    torch.manual_seed(comm.rank)
    model = nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 3)).double()
    communicator = create_communicator(kind, comm)
    kept = options.pop("together", False)
    wrapped = make(model.parameters())
    optimizer = MultiNodeOptimizer(wrapped, communicator) if kept else LocalOptimizer(wrapped, communicator, **options)
    generator = torch.Generator().manual_seed(50 + comm.rank)
    rows = []
    for _ in range(steps):
        x = torch.randn(4, 6, generator=generator, dtype=torch.float64)
        optimizer.zero_grad()
        F.cross_entropy(model(x), torch.randint(3, (4,), generator=generator)).backward()
        optimizer.step()
        rows.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
    if not kept:
        optimizer.finish()
    return [*rows, torch.cat([p.detach().flatten() for p in model.parameters()])]


@pytest.mark.parametrize("kind", ["flat", "bucketed"])
def test_averaging_after_every_step_is_averaging_gradients(kind):
    alone, together = (
        run(lambda c, o=o: local(c, kind, 5, **o), 3).results[0][-1] for o in ({"every": 1}, {"together": True})
    )
    assert torch.allclose(alone, together, rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", ["naive", "flat", "bucketed"])
def test_ranks_are_alike_after_every_so_many_steps_and_not_between(kind):
    rows = run(lambda c: local(c, kind, 8, every=3, begin=2), 2).results
    alike = [torch.equal(a, b) for a, b in zip(*rows, strict=True)]
    #        together   3      4     mean    6      7     mean  (8 steps: the last mean is the one of step 8)
    assert alike == [True, True, False, False, True, False, False, True, True]
    rows = run(lambda c: local(c, kind, 7, every=3, begin=2), 2).results
    assert [torch.equal(a, b) for a, b in zip(*rows, strict=True)][-2:] == [False, True]  # finish


def test_the_mean_of_parameters_is_that_of_what_each_would_be_alone():
    def two(comm):
        return local(comm, "flat", 3, every=3, make=lambda p: torch.optim.Adam(p, 0.1))[-1]

    def alone(comm):
        rows = local(comm, "flat", 3, every=4, make=lambda p: torch.optim.Adam(p, 0.1))
        return rows[2]

    means, each = run(two, 2).results, run(alone, 2).results
    assert torch.allclose(means[0], (each[0] + each[1]) / 2, rtol=0, atol=1e-12)


def test_local_sgd_says_what_is_wrong():
    def program(comm, **options):
        return LocalOptimizer(sgd([nn.Parameter(torch.zeros(2))]), create_communicator("flat", comm), **options)

    with pytest.raises(ValueError, match="average every 1 or more steps"):
        run(lambda c: program(c, every=0), 2)
    with pytest.raises(ValueError, match=r"different \(every, begin\): \[\(1, 0\), \(2, 0\)\]"):
        run(lambda c: program(c, every=1 + c.rank), 2)

    def spoilt(comm):
        model = nn.Linear(2, 2)
        optimizer = LocalOptimizer(sgd(model.parameters()), create_communicator("flat", comm), 1, model=model)
        model.bias.grad = torch.full((2,), float("nan") if comm.rank else 0.0)
        with pytest.raises(FloatingPointError, match="rank 1: the parameter 'bias' is not finite"):
            optimizer.step()
        return True

    assert run(spoilt, 2).results == [True, True]


def test_a_rank_that_steps_alone_is_told():
    def program(comm):
        optimizer = LocalOptimizer(sgd([nn.Parameter(torch.zeros(2))]), create_communicator("flat", comm), 2)
        for _ in range(2 + 2 * comm.rank):
            optimizer.step()

    with pytest.raises(Deadlock, match="rank 0 has returned"):
        run(program, 2)
