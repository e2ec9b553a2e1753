"""A training on a grid of ranks equals one process; grids that do not fit are told by name."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from mpcourse.grid import Grid, GridTrainer, Shape, global_norm, stage, traffic_by_axis, transformer
from mpcourse.pipeline import one_f_one_b
from mpcourse.virtual import Topology, run
from tests.programs.grid_truth import SHAPE, adamw, batches, loss, momentum, on_a_grid

PROGRAM = Path(__file__).parents[1] / "programs" / "grid_truth.py"
GRIDS = [(1, 1, 1), (2, 1, 1), (1, 2, 1), (1, 1, 2), (3, 1, 1), (1, 3, 1), (1, 1, 4), (2, 2, 1), (1, 3, 2), (2, 2, 2)]
GRIDS += [(1, 1, 1, 2), (1, 1, 1, 3), (2, 1, 2, 2), (1, 2, 2, 2), (1, 1, 1, 1, 1), (1, 1, 1, 1, 2), (1, 1, 1, 1, 4)]
GRIDS += [(2, 1, 1, 1, 2), (1, 2, 1, 1, 2), (1, 1, 2, 1, 2), (1, 1, 1, 2, 2), (1, 2, 2, 2, 2)]
ROUNDING = 1e-12  # of float64, after four steps


@pytest.mark.parametrize("sizes", GRIDS, ids=lambda sizes: "x".join(map(str, sizes)))
@pytest.mark.parametrize("make", [adamw, momentum])
def test_training_on_virtual_ranks_equals_one_process(sizes, make):
    assert max(run(lambda comm: on_a_grid(comm, sizes, make), np.prod(sizes).item()).results) < ROUNDING


@pytest.mark.parametrize(
    "sizes",
    [(2, 2, 1), (1, 2, 2), (2, 1, 2), (1, 1, 2, 2), (1, 1, 1, 2, 2)],
    ids=lambda sizes: "x".join(map(str, sizes)),
)
def test_training_on_real_ranks_equals_one_process(mpirun, sizes):
    done = mpirun(4, "-m", "mpi4py", PROGRAM, *sizes, timeout=100)
    assert done.returncode == 0, done.stderr[-3000:]
    assert max(json.loads(done.stdout)) < ROUNDING


@pytest.mark.parametrize("order", [("tensor", "data", "pipeline"), ("data", "pipeline", "tensor")])
@pytest.mark.parametrize("schedule", ["gpipe", "zb-h1"])
def test_neither_the_order_of_axes_nor_the_schedule_changes_what_is_learnt(order, schedule):
    done = run(lambda comm: on_a_grid(comm, (2, 2, 2), adamw, order=order, schedule=schedule), 8)
    assert max(done.results) < ROUNDING


def test_training_without_clipping_equals_one_process():
    assert max(run(lambda comm: on_a_grid(comm, (2, 1, 2), adamw, clip=None), 4).results) < ROUNDING


def of_grid(size, topology="10 GbE", **arguments):
    """Return the grid of each rank, as far as it can be inspected after the run."""

    def program(comm):
        grid = Grid(comm, **arguments)
        sub = {axis: getattr(grid, axis).allgather(comm.rank) for axis in grid.axes}
        return grid, sub, {axis: getattr(grid, axis).rank for axis in grid.axes}

    return run(program, size, topology).results


def test_a_communicator_of_an_axis_has_the_ranks_that_differ_in_it_alone_numbered_by_their_coordinate():
    for rank, (grid, sub, own) in enumerate(of_grid(12, data=2, pipeline=3, tensor=2)):
        at = grid.coordinates(rank)
        assert own == at and grid.rank_at(**at) == rank
        for axis in grid.axes:
            assert sub[axis] == [grid.rank_at(**at | {axis: i}) for i in range(grid.sizes[axis])]
            assert tuple(sub[axis]) in grid.groups(axis)


def test_the_default_order_has_tensor_on_neighbours_then_data_then_pipeline():
    grid = of_grid(8, data=2, pipeline=2, tensor=2)[0][0]
    assert grid.groups("tensor") == [(0, 1), (2, 3), (4, 5), (6, 7)]
    assert grid.groups("data") == [(0, 2), (1, 3), (4, 6), (5, 7)]
    assert grid.groups("pipeline") == [(0, 4), (1, 5), (2, 6), (3, 7)]
    assert grid.axis_of(0, 1) == "tensor" and grid.axis_of(0, 6) is None and grid.axis_of(3, 3) is None


def test_the_order_of_axes_is_an_argument():
    grid = of_grid(8, data=2, pipeline=2, tensor=2, order=("tensor", "data", "pipeline"))[0][0]
    assert grid.groups("pipeline") == [(0, 1), (2, 3), (4, 5), (6, 7)]


def test_a_group_that_straddles_nodes_is_told_by_its_ranks():
    nodes = Topology([0, 0, 0, 1, 1, 1])
    grid = of_grid(6, nodes, data=3, tensor=2)[0][0]
    assert grid.straddling("tensor") == [(2, 3)] and len(grid.straddling("data")) == 2
    with pytest.raises(
        ValueError, match=r"tensor axis straddles nodes: rank 2 on node 0, rank 3 on node 1. A node has 3"
    ):
        of_grid(6, nodes, data=3, tensor=2, within=["tensor"])
    assert of_grid(6, nodes, data=2, tensor=3, within=["tensor"])[0][0].straddling("tensor") == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"data": 2, "tensor": 2}, r"data 2 x pipeline 1 x tensor 2 is a grid of 4 ranks, and this run has 6"),
        ({"data": 0}, "data must be a whole number, 1 or more: got 0"),
        ({"tensor": 2.0}, "tensor must be a whole number"),
        ({"data": 6, "order": ("data", "tensor")}, "order is data, pipeline, tensor in some order"),
        ({"data": 6, "within": ["expert"]}, "there is no axis 'expert'"),
        ({"data": 6, "ranks_per_node": 0}, "ranks_per_node"),
    ],
)
def test_a_grid_that_does_not_fit_is_told_on_every_rank(arguments, said):
    def program(comm):
        with pytest.raises(ValueError, match=said):
            Grid(comm, **arguments)
        return True

    assert all(run(program, 6).results)


def test_ranks_that_ask_for_different_grids_are_told():
    def program(comm):
        sizes = {"data": 4} if comm.rank != 2 else {"tensor": 4}
        with pytest.raises(ValueError, match="rank 2 asks for another grid than rank 0"):
            Grid(comm, **sizes)
        return True

    assert all(run(program, 4).results)


def test_layers_that_cannot_be_shared_or_cut_are_told():
    def program(comm):
        with pytest.raises(ValueError, match="4 heads cannot be shared alike by 3 ranks"):
            transformer(SHAPE, comm)
        with pytest.raises(ValueError, match="3 layers cannot be cut into 4 stages"):
            stage(transformer(SHAPE), 4, 0)
        return True

    assert all(run(program, 3).results)


def test_the_model_does_not_depend_on_the_number_of_ranks_that_share_it_nor_changes_random_numbers():
    def program(comm):
        torch.manual_seed(comm.rank)
        before = torch.get_rng_state()
        model = transformer(SHAPE, comm)
        assert torch.equal(before, torch.get_rng_state())
        return [p.detach() for p in model.parameters()]

    one, (first, second) = run(program, 1).results[0], run(program, 2).results
    pairs = zip(one, first, second, strict=True)
    assert all(
        torch.equal(whole, a) if a.shape == whole.shape else a.numel() * 2 == whole.numel() for whole, a, b in pairs
    )


def test_a_norm_counts_each_element_of_the_whole_model_once():
    """With a gradient of ones everywhere the square of the norm is the number of parameters."""

    def program(comm):
        grid = Grid(comm, data=2, pipeline=2, tensor=2)
        part, tied = stage(transformer(SHAPE, grid.tensor), 2, grid.pipeline.rank)
        trainer = GridTrainer(grid, part, one_f_one_b(2, 2), loss, adamw, tied=tied, clip=1.0)
        for p in trainer.parameters:
            p.grad = torch.ones_like(p)
        return global_norm(grid, trainer.parameters, trainer.sharded, trainer.counted_elsewhere)

    want = sum(p.numel() for p in transformer(SHAPE).parameters())
    assert {round(norm**2, 6) for norm in run(program, 8).results} == {want}


def traffic_of(sizes, steps, shape=SHAPE, microbatches=2):
    """Bytes along each axis that the ranks of a grid send in so many steps, all of them together."""
    data, pipeline, tensor = sizes

    def program(comm):
        grid = Grid(comm, data=data, pipeline=pipeline, tensor=tensor)
        part, tied = stage(transformer(shape, grid.tensor), pipeline, grid.pipeline.rank)
        schedule = one_f_one_b(pipeline, microbatches)
        trainer = GridTrainer(grid, part, schedule, loss, lambda ps: torch.optim.SGD(ps, 0.1), tied=tied)
        for x, target in batches()[:steps]:
            own = slice(grid.data.rank * len(x) // data, (grid.data.rank + 1) * len(x) // data)
            trainer.step(x[own], target[own])
        return grid

    done = run(program, data * pipeline * tensor)
    return {axis: sent.nbytes for axis, sent in traffic_by_axis(done.results[0], done.traffic).items()}


def test_the_bytes_on_each_axis_are_those_of_the_closed_form():
    data, pipeline, tensor = 2, 2, 2
    shape = Shape(vocabulary=13, length=6, width=12, heads=4, layers=4)
    one, two = (traffic_of((data, pipeline, tensor), steps, shape) for steps in (1, 2))
    sent = {axis: two[axis] - one[axis] for axis in two}
    activations = 4 * 12 * shape.length * shape.width  # of the whole batch, float32, in bytes
    # Four all-reduces a layer, two forward and two backward: 2 (t - 1) / t of the activations, from each of t ranks.
    assert sent["tensor"] == 4 * shape.layers * activations * 2 * (tensor - 1)
    # An all-reduce of each rank's gradients, over the data axis.
    held = sum(
        p.numel()
        for number in range(pipeline)
        for p in run(lambda comm, n=number: stage(transformer(shape, comm), pipeline, n)[0], tensor)
        .results[0]
        .parameters()
    )
    assert sent["data"] == 4 * held * tensor * 2 * (data - 1)
    # What crosses the cut, forward and backward, in each replica and on each tensor rank; its headers are 1 KiB.
    cuts = pipeline - 1
    payload = 2 * cuts * activations * tensor
    headers = sent["pipeline"] - payload
    assert 0 < headers <= 2 * cuts * data * tensor * 2 * 1024


def test_traffic_is_told_by_axis_and_by_what_leaves_a_node():
    grid = of_grid(4, Topology([0, 0, 1, 1]), pipeline=2, tensor=2)[0][0]
    sent = np.zeros((4, 4), np.int64)
    sent[0, 1], sent[2, 3], sent[1, 3] = 5, 7, 100
    found = traffic_by_axis(grid, sent)
    assert (found["tensor"], found["pipeline"], found["data"]) == ((12, 0), (100, 100), (0, 0))
    sent[0, 3] = 1
    with pytest.raises(ValueError, match="rank 0 sent to rank 3, which differs from it in several axes"):
        traffic_by_axis(grid, sent)
