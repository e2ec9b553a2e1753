"""Collectives by hand: sums, bits, bytes and messages, at any number of ranks and any length."""

import itertools
import math

import numpy as np
import pytest
import torch

from mpcourse.collectives import (
    ALGORITHMS,
    Cost,
    allreduce,
    barrier,
    broadcast,
    fit,
    hierarchical_allreduce,
    reduce,
    ring_allgather,
    ring_allreduce,
    ring_reduce_scatter,
    rounds,
)
from mpcourse.collectives.buffers import chunks, offsets
from mpcourse.collectives.cost import FORMULAS, best, crossovers, seconds
from mpcourse.collectives.fast.segmented import segmented_rabenseifner_allreduce, segmented_ring_allreduce
from mpcourse.virtual import ClusterError, Link, Topology, run

SIZES = [1, 2, 3, 4, 5, 7, 8, 13]
ALL = {**ALGORITHMS, "hierarchical": hierarchical_allreduce, "chosen": allreduce}
SEGMENTED = {"ring": segmented_ring_allreduce, "rabenseifner": segmented_rabenseifner_allreduce}


def two_a_node(size):
    return Topology(nodes=tuple(r // 2 for r in range(size)))


def inputs(size, length, seed):
    return [np.random.default_rng((seed, r)).standard_normal(length) for r in range(size)]


def summed(function, data, link="10 GbE", **kwargs):
    def program(comm):
        x = data[comm.rank].copy() if isinstance(data[0], np.ndarray) else data[comm.rank].clone()
        function(comm, x, **kwargs)
        return x

    return run(program, len(data), link)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("size", SIZES)
def test_sums_of_any_length_with_the_same_bits_on_every_rank(name, size):
    seed = int(np.random.default_rng().integers(2**31))
    for length in sorted({0, 1, size - 1, size, size + 1, 100}):
        data = inputs(size, length, seed)
        results = summed(ALL[name], data, two_a_node(size)).results
        # Higham 2002, section 4.2: in any order |error| <= (p - 1) u sum |x|, to first order.
        bound = 1.01 * (size - 1) * np.finfo(float).eps / 2 * np.sum(np.abs(data), axis=0)
        exact = [math.fsum(column) for column in zip(*data, strict=True)]
        for x in results:
            assert (np.abs(x - exact) <= bound).all(), f"seed {seed}"
            assert x.tobytes() == results[0].tobytes()


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize(
    "dtype",
    [torch.bfloat16, torch.float16, torch.float32, torch.float64, torch.int64, torch.uint8, torch.complex64],
    ids=str,
)
def test_any_dtype_that_adds_and_any_shape(name, dtype):
    results = summed(ALL[name], [torch.full((3, 2), r + 1).to(dtype) for r in range(3)]).results
    assert all(x.dtype == dtype and torch.equal(x, torch.full((3, 2), 6).to(dtype)) for x in results)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("stride", [1, 2])
def test_no_half_precision_numbers_are_summed_wherever_they_came_from(name, stride):
    for dtype in (torch.float16, torch.bfloat16):
        nothing = torch.from_numpy(np.empty(4, np.int16)[::stride][:0]).view(dtype)
        assert nothing.stride() != (1,) or stride == 1
        run(lambda comm, x=nothing: ALL[name](comm, x), 3)


@pytest.mark.parametrize("name", ALL)
def test_another_operation(name):
    data = [np.array([r, -r, r % 2]) for r in range(5)]
    assert all((x == [4, 0, 1]).all() for x in summed(ALL[name], data, op=np.maximum).results)


def ring_bytes(size, length):
    """Each rank's: all chunks but one, twice. Which are left out depends on the rank."""
    edge = offsets(length, size)
    chunk = [8 * (b - a) for a, b in itertools.pairwise(edge)]
    return [2 * 8 * length - chunk[(r + 1) % size] - chunk[(r + 2) % size] for r in range(size)]


@pytest.mark.parametrize("size", SIZES)
def test_bytes_and_messages_are_those_of_the_closed_forms(size):
    for length in (0, 1, size, 96, 101):
        data, n, p = inputs(size, length, 0), 8 * length, size
        power = 1 << (p.bit_length() - 1)
        rounds, extra = power.bit_length() - 1, p - power
        ranks = range(p)
        folded = [r < 2 * extra and r % 2 == 0 for r in ranks]  # gives all it has, once
        helper = [r < 2 * extra and r % 2 == 1 for r in ranks]  # and gives the sum back

        done = summed(ALGORITHMS["naive"], data)
        sends = [p - 1] + [1] * (p - 1)
        assert done.messages.sum(1).tolist() == sends and done.traffic.sum(1).tolist() == [n * s for s in sends]

        done = summed(ALGORITHMS["ring"], data)
        assert done.messages.sum(1).tolist() == [2 * (p - 1)] * p
        assert done.traffic.sum(1).tolist() == (ring_bytes(p, length) if p > 1 else [0])

        done = summed(ALGORITHMS["doubling"], data)
        sends = [1 if f else rounds + h for f, h in zip(folded, helper, strict=True)]
        assert done.messages.sum(1).tolist() == sends and done.traffic.sum(1).tolist() == [n * s for s in sends]

        done = summed(ALGORITHMS["rabenseifner"], data)
        sends = [1 if f else 2 * rounds + h for f, h in zip(folded, helper, strict=True)]
        assert done.messages.sum(1).tolist() == sends
        if length % power == 0:
            share = 2 * n * (power - 1) // power
            wanted = [n if f else share + h * n for f, h in zip(folded, helper, strict=True)]
            assert done.traffic.sum(1).tolist() == wanted

        done = summed(ALGORITHMS["tree"], data)
        assert done.messages.sum() == 2 * (p - 1) and done.traffic.sum() == 2 * (p - 1) * n


@pytest.mark.parametrize("far_first", [False, True])
def test_rabenseifners_longest_messages_go_to_the_nearest_rank_or_to_the_farthest(far_first):
    done = summed(ALGORITHMS["rabenseifner"], inputs(8, 64, 1), far_first=far_first)
    longest, shortest = (4, 1) if far_first else (1, 4)
    for rank in range(8):
        there_and_back = {rank ^ longest: 2 * 32 * 8, rank ^ 2: 2 * 16 * 8, rank ^ shortest: 2 * 8 * 8}
        assert {other: n for other, n in enumerate(done.traffic[rank]) if n} == there_and_back


@pytest.mark.parametrize("size", [2, 3, 4, 5, 8])
def test_time_is_that_of_the_closed_forms(size):
    cost, length = Cost(2e-6, 1e-9), 240_000
    data, link = inputs(size, length, 1), Link("test", 1 / cost.beta, cost.alpha)
    for name in FORMULAS:
        if name == "tree" and size & (size - 1):
            continue  # the formula counts a full last round
        wanted = seconds(name, size, 8 * length, cost)
        assert summed(ALGORITHMS[name], data, link).seconds == pytest.approx(wanted, rel=1e-9), name


def test_formulas_are_the_published_ones():
    p, n, c = 6, 1000.0, Cost(2.0, 3.0, 5.0)
    assert seconds("ring", p, n, c) == pytest.approx(2 * 5 * 2 + 2 * n * 5 / 6 * 3 + n * 5 / 6 * 5)
    assert seconds("doubling", 8, n, c) == pytest.approx(3 * 2 + n * 3 * 3 + n * 3 * 5)
    assert seconds("rabenseifner", 8, n, c) == pytest.approx(2 * 3 * 2 + 2 * n * 7 / 8 * 3 + n * 7 / 8 * 5)
    # Not a power of two: (2 floor(lg p) + 2) alpha + (2 (p' - 1) / p' + 2) n beta + (1 + (p' - 1) / p') n gamma.
    assert seconds("rabenseifner", p, n, c) == pytest.approx(6 * 2 + (2 * 3 / 4 + 2) * n * 3 + (1 + 3 / 4) * n * 5)
    assert seconds("tree", p, n, c) == pytest.approx(2 * 3 * 2 + 2 * 3 * n * 3 + 3 * n * 5)
    with pytest.raises(ValueError, match="no formula for 'star': choose one of naive, tree, ring"):
        seconds("star", p, n, c)
    with pytest.raises(ValueError, match="1 rank and 0 bytes are the least"):
        seconds("ring", 0, n, c)


@pytest.mark.parametrize("size", [2, 3, 4, 7, 16, 100])
def test_crossovers_are_where_the_best_changes(size):
    cost = Cost(5e-6, 2e-10, 1e-10)
    found = crossovers(size, cost)
    assert found[0][0] == 0 and len({name for _, name in found}) == len(found)
    for (_, before), (nbytes, after) in itertools.pairwise(found):
        assert best(size, nbytes - 1, cost) == before and best(size, nbytes, cost) == after
    for nbytes in (0, 100, 10**4, 10**6, 10**8):
        assert best(size, nbytes, cost) == [name for begin, name in found if begin <= nbytes][-1]


def test_a_fit_finds_the_links_alpha_and_beta():
    costs = run(lambda comm: fit(comm, runs=3), 4, Link("test", 2e9, 7e-6)).results
    assert len(set(costs)) == 1
    assert costs[0].alpha == pytest.approx(7e-6) and costs[0].beta == pytest.approx(5e-10) and costs[0].gamma == 0
    with pytest.raises(ValueError, match="a message needs two ranks"):
        run(fit, 1)


def test_allreduce_takes_the_algorithm_that_its_cost_tells():
    slow_start, slow_link = Cost(1.0, 1e-9), Cost(1e-9, 1.0)
    data = inputs(8, 64, 4)
    assert (summed(allreduce, data, cost=slow_start).messages.sum(1) == 3).all()  # recursive doubling
    done = summed(allreduce, data, cost=slow_link)
    assert (done.traffic.sum(1) == 2 * 64 * 8 * 7 // 8).all()  # Rabenseifner or the ring


def test_two_levels_send_one_sum_a_node_over_the_slow_link():
    nodes = Topology(nodes=(0, 0, 0, 0, 1, 1, 1, 1), inside=Link("in", 1e11, 1e-7), between=Link("out", 1e9, 1e-5))
    data = inputs(8, 100_000, 2)
    two, one = (summed(ALL[name], data, nodes) for name in ("hierarchical", "ring"))
    between = two.traffic[:4, 4:].sum() + two.traffic[4:, :4].sum()
    assert between == 2 * 8 * 100_000  # the leaders exchange n bytes, each its half twice
    assert between < one.traffic[:4, 4:].sum() + one.traffic[4:, :4].sum()
    assert two.seconds < 0.7 * one.seconds


@pytest.mark.parametrize("size", SIZES)
def test_the_parts(size):
    data = inputs(size, 20, 3)
    edge = offsets(20, size)

    def program(comm):
        found = {}
        for root in range(comm.size):
            x = data[comm.rank].copy()
            broadcast(comm, x, root)
            assert (x == data[root]).all()
            x = data[comm.rank].copy()
            reduce(comm, x, root=root)
            if comm.rank == root:
                np.testing.assert_allclose(x, np.sum(data, axis=0), atol=1e-12)
        x = data[comm.rank].copy()
        ring_reduce_scatter(comm, chunks(x, comm.size))
        own = slice(edge[(comm.rank + 1) % comm.size], edge[(comm.rank + 1) % comm.size + 1])
        np.testing.assert_allclose(x[own], np.sum(data, axis=0)[own], atol=1e-12)
        ring_allgather(comm, chunks(x, comm.size))
        np.testing.assert_allclose(x, np.sum(data, axis=0), atol=1e-12)
        comm.compute(float(comm.rank))
        barrier(comm)
        return found

    done = run(program, size)
    assert min(done.clock) >= size - 1  # nobody leaves the barrier before the last has come


def test_what_cannot_be_summed_in_place_is_refused():
    x = np.zeros((4, 4))
    for bad, error, said in (
        (x[:, 1], ValueError, "not contiguous"),
        ([1.0, 2.0], TypeError, "x is a list: a numpy array or a CPU tensor"),
        (torch.zeros(4, 4).t(), ValueError, "not contiguous"),
        (torch.zeros(2, device="meta"), ValueError, "x is on meta"),
        (np.broadcast_to(1.0, 3).reshape(3)[:0].copy(), None, ""),
    ):
        for function in ALL.values():
            if error is None:
                summed(function, [bad, bad])
            else:
                with pytest.raises(error, match=said):
                    run(lambda comm, function=function, bad=bad: function(comm, bad), 2)
    frozen = np.zeros(2)
    frozen.setflags(write=False)
    with pytest.raises(ValueError, match="read-only"):
        run(lambda comm: ALGORITHMS["ring"](comm, frozen), 2)
    with pytest.raises(ValueError, match="root is one of the ranks 0 to 1, not 2"):
        run(lambda comm: broadcast(comm, np.zeros(1), 2), 2)


@pytest.mark.parametrize("name", ["naive", "tree", "doubling", "rabenseifner"])
def test_ranks_with_other_lengths_are_told(name):
    with pytest.raises(ClusterError, match="truncated"):
        run(lambda comm: ALGORITHMS[name](comm, np.zeros(8 - 4 * comm.rank)), 2)


def test_the_benchmark_checks_sums_and_measures_all_sides(mpirun):
    from mpcourse.course import forkserver
    from mpcourse.course.bench.allreduce import SIDES, AllreduceCase, _records
    from mpcourse.course.bench.over_ranks import measured

    case = AllreduceCase(4_000, 2, 3)
    (found,) = measured("mpcourse.course.bench.allreduce_ranks", [case], 3, starter=forkserver.python())
    assert set(found["seconds"]) == {*SIDES, "copying"} and all(len(runs) == 2 for runs in found["seconds"].values())
    assert 0 < found["difference"] < 1e-6
    rows = {r.what: r for r in _records(case, found, 3)}
    assert rows["4 kB: allreduce, of the best"].promise == 0.5
    large = {r.what: r.promise for r in _records(AllreduceCase(40_000_000, 2, 3), found, 3)}
    assert large["40 MB: ours against MPI's"] == 2.0 and large["40 MB: ours against gloo's"] == 3.0


def test_rounds_tell_who_is_in_which_sum():
    counts = rounds(ring_allreduce, 3)
    assert counts.shape == (5, 3, 3, 3)
    assert (counts[0] == np.eye(3, dtype=int)[:, None, :]).all()  # everybody has his own
    assert [(counts[t] == 1).all(axis=-1).sum() for t in range(5)] == [0, 0, 3, 6, 9]  # a chunk a rank is complete
    assert counts[1, 1, 0].tolist() == [1, 1, 0]  # rank 0 has handed its chunk 0 on


@pytest.mark.parametrize("p", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("name", ALGORITHMS)
def test_in_the_end_each_rank_is_once_in_each_sum(name, p):
    assert (rounds(ALGORITHMS[name], p)[-1] == 1).all()


def test_rounds_show_a_mistake():
    def twice(comm, x):
        ring_allreduce(comm, x)
        x += 16.0**comm.rank

    assert rounds(twice, 2)[-1, 0, 0].tolist() == [2, 1]
    with pytest.raises(ValueError, match="1 to 13"):
        rounds(ring_allreduce, 14)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("name", SEGMENTED)
def test_segments_change_messages_and_neither_bytes_nor_bits(name, size):
    for length in (0, 1, size, 37, 101):
        data = inputs(size, length, 3)
        whole, pieces = summed(ALGORITHMS[name], data), summed(SEGMENTED[name], data, segment=40)
        assert [x.tobytes() for x in whole.results] == [x.tobytes() for x in pieces.results]
        assert (whole.traffic == pieces.traffic).all()
        if name == "ring":
            cut = max(1, math.ceil(math.ceil(length / size) / 5))  # of the longest chunk, in segments of five elements
            assert pieces.messages.sum(1).tolist() == [(size - 1) * (cut + 1)] * size
    with pytest.raises(ValueError, match="7 bytes holds no element of 8"):
        summed(SEGMENTED[name], inputs(2, 4, 0), segment=7)
