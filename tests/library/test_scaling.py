"""Steps and epochs over machines: against closed forms, and against published tables."""

import math

import numpy as np
import pytest
import torch

from mpcourse.collectives import ring_allreduce
from mpcourse.collectives.cost import Cost, seconds
from mpcourse.common.errors import UserError
from mpcourse.data.published import CHAINERMN_TUTORIAL, IMAGENET
from mpcourse.models import VGG16, ResNet50, mlp
from mpcourse.predict.overlap import Backward, backward_of, overlapped
from mpcourse.predict.scaling import Machines, StepTime, step, steps_of_epoch, sum_seconds
from mpcourse.predict.tutorial import MPICH_2018, OPEN_MPI_2018, cpu_rows, fitted, gpu_rows, step_of
from mpcourse.virtual import run
from mpcourse.virtual.specs import Link
from tests.conftest import ROOT, load_script

FAST, SLOW = Link("fast", 1e10, 1e-6), Link("slow", 1e8, 1e-4)
N = 1_000_000  # numbers, 4 MB


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize(("nodes", "each"), [(1, 2), (2, 1), (2, 2), (4, 2), (3, 4)])
def test_a_hierarchical_sum_takes_two_trees_inside_and_rabenseifner_between(nodes, each):
    inside = 2 * math.ceil(math.log2(each)) * (FAST.latency + 4 * N / FAST.bandwidth)
    between = seconds("rabenseifner", nodes, 4 * N, Cost(SLOW.latency, 1 / SLOW.bandwidth)) if nodes > 1 else 0.0
    found = sum_seconds("hierarchical", [N], Machines(nodes * each, nodes, FAST, SLOW))
    assert found == pytest.approx(inside + between, rel=1e-9)


def test_so_many_ranks_that_their_gradients_do_not_fit_take_what_the_formula_says():
    """128 times 102 MB are held in less: links with as much less bandwidth carry them in the same time."""
    n, nodes = 25_557_032, 32
    between = seconds("rabenseifner", nodes, 4 * n, Cost(SLOW.latency, 1 / SLOW.bandwidth))
    inside = 4 * (FAST.latency + 4 * n / FAST.bandwidth)
    assert sum_seconds("hierarchical", [n], Machines(128, nodes, FAST, SLOW)) == pytest.approx(
        inside + between, rel=1e-3
    )


def test_more_parameters_cost_the_naive_communicator_latency_and_no_other():
    machines = Machines(4, 4, FAST, SLOW)
    parts = [N // 100] * 100
    assert sum_seconds("naive", parts, machines) > 1.5 * sum_seconds("naive", [N], machines)
    assert sum_seconds("flat", parts, machines) == pytest.approx(sum_seconds("flat", [N], machines), rel=0.01)


def test_one_rank_waits_for_nobody():
    assert step(0.01, [N], Machines(1)) == StepTime(0.01, 0.0, 0.0)
    assert step(0.01, [N], Machines(1)).efficiency == 1


def test_what_leaves_a_node_goes_through_the_host_and_back():
    staged = step(0.01, [N], Machines(2, 2, FAST, SLOW, staging=FAST))
    assert staged.staging == pytest.approx(2 * (FAST.latency + 4 * N / FAST.bandwidth))
    assert staged.sum == step(0.01, [N], Machines(2, 2, FAST, SLOW)).sum
    assert staged.seconds == staged.compute + staged.staging + staged.sum
    assert step(0.01, [N], Machines(2, 1, FAST, SLOW, staging=FAST)).staging == 0


@pytest.mark.parametrize(
    ("examples", "batch", "ranks", "steps"), [(60_000, 100, 4, 150), (100, 32, 3, 2), (1, 5, 8, 1)]
)
def test_an_epoch_has_as_many_steps_as_it_takes_all_ranks_together(examples, batch, ranks, steps):
    assert steps_of_epoch(examples, batch, ranks) == steps


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: Machines(3, 2), "3 ranks on 2 nodes"),
        (lambda: Machines(2, 0), "2 ranks on 0 nodes"),
        (lambda: Machines(2, 2, "PCI"), "unknown link 'PCI'"),
        (lambda: sum_seconds("ring", [N], Machines(2)), "no communicator is called 'ring'"),
        (lambda: sum_seconds("flat", [], Machines(2)), "1 number or more"),
        (lambda: step(-1.0, [N], Machines(2)), "not -1.0"),
        (lambda: steps_of_epoch(10, 0, 1), "batches of 0"),
    ],
)
def test_what_cannot_be_is_refused(call, told):
    with pytest.raises((UserError, ValueError), match=told):
        call()


def test_an_epoch_takes_its_steps():
    assert StepTime(0.006, 0.001, 0.003).epoch(1000, 32, 4) == pytest.approx(8 * 0.010)


@pytest.fixture(scope="module")
def resnet50():
    """Seconds of a step on each GPU of a published run, and the parameters, by name of the GPU."""
    found = {}
    for gpu in ("GTX TITAN X (Maxwell)", "Tesla P100-SXM2"):
        one = backward_of(ResNet50(), (32, 3, 224, 224), gpu)
        found[gpu] = one.seconds, [n for _, n in one.ready]
    return found


def test_128_gpus_are_about_100_times_as_fast_as_one(resnet50):
    seconds, parameters = resnet50["GTX TITAN X (Maxwell)"]
    predicted = step(seconds, parameters, Machines(128, 32, "PCIe 3.0 x16", "InfiniBand FDR"))
    assert 95 < 128 * predicted.efficiency < 105  # published: about 100


def test_1024_gpus_train_90_epochs_in_eleven_minutes_where_fifteen_are_published(resnet50):
    seconds, parameters = resnet50["Tesla P100-SXM2"]
    predicted = step(seconds, parameters, Machines(1024, 128, "NVLink 1", "InfiniBand FDR"))
    assert 10.5 < 90 * predicted.epoch(IMAGENET, 32, 1024) / 60 < 11.5


def test_two_numbers_explain_the_single_node_gpu_rows():
    compute, inside = fitted()
    assert compute == 80.64 / 12_000
    assert inside.bandwidth == pytest.approx(18.50e9, rel=1e-3)
    rows = gpu_rows()
    assert [row.published for row in rows] == list(CHAINERMN_TUTORIAL.gpu)
    assert abs(rows[0].off) < 1e-12 and abs(rows[1].off) < 1e-6


def test_from_them_follow_two_processes_on_two_nodes_within_5_percent_and_four_within_20():
    two, four = gpu_rows()[2:]
    assert two.seconds == pytest.approx(411.2, abs=0.5) and abs(two.off) < 0.05
    assert four.seconds == pytest.approx(208.1, abs=0.5) and abs(four.off) < 0.20
    assert two.step.sum > 0.85 * two.step.seconds  # the Ethernet


def test_no_all_reduce_of_2018_explains_four_processes_on_two_nodes_and_they_bracket_it():
    mpich, open_mpi = (gpu_rows(communicator=way)[3] for way in (MPICH_2018, OPEN_MPI_2018))
    assert mpich.seconds == pytest.approx(210.5, abs=0.5) and open_mpi.seconds == pytest.approx(300.0, abs=0.5)
    assert mpich.off < -0.15 and open_mpi.off > 0.15
    n = 4 * sum(CHAINERMN_TUTORIAL.parameters)
    assert mpich.step.sum == pytest.approx(n / 118e6, rel=0.02)  # each node sends it once
    assert open_mpi.step.sum == pytest.approx(1.5 * n / 118e6, rel=0.02)


def test_two_cpu_processes_on_two_nodes_are_two_on_one_node_and_the_ethernet():
    rows = {(row.published.processes, row.published.nodes): row for row in cpu_rows()}
    assert abs(rows[2, 2].off) < 0.01
    assert rows[2, 2].step.seconds - step_of(CHAINERMN_TUTORIAL.cpu[1]) == pytest.approx(0.061, abs=0.001)
    assert max(abs(rows[k, 1].off) for k in (4, 6, 10)) < 0.02  # a straight line through three points


def test_gradients_come_from_the_last_layer_to_the_first_and_the_last_of_them_ends_backward():
    model = mlp()
    found = backward_of(model, (100, 784), "GTX 1080 Ti")
    layers = [10_010, 1_001_000, 785_000]  # a layer's bias and weight come in either order
    assert [found.ready[i][1] + found.ready[i + 1][1] for i in (0, 2, 4)] == layers
    times = [at for at, _ in found.ready]
    assert times == sorted(times) and times[-1] == found.backward < found.seconds


def test_what_backward_hides_is_not_waited_for():
    backward = Backward([(1.0, 10), (2.0, 10), (3.0, 10)], 3.0, 4.0)
    assert overlapped(backward, 10, lambda n: 0.5).sum == 0.5  # only the last one is left
    assert overlapped(backward, 10, lambda n: 2.0).sum == 1 + 3 * 2 - 3  # they queue behind the first
    assert overlapped(backward, 1000, lambda n: 0.1 * n).sum == 3.0  # one bucket: nothing is hidden
    assert overlapped(backward, 20, lambda n: 0.1 * n).sum == 2 + 2.0 + 1.0 - 3  # of 20, and of the 10 that are left


def test_vgg_16_has_its_published_size():
    with torch.device("meta"):
        assert sum(p.numel() for p in VGG16().parameters()) == 138_357_544


@pytest.mark.parametrize(("ranks", "nodes"), [(1, 1), (2, 1), (2, 2), (4, 2), (6, 3), (3, 3), (6, 2)])
def test_the_exercises_solution_is_what_virtual_ranks_take(ranks, nodes):
    """`epoch_seconds` tells what the course's own ring takes on the virtual cluster, where chunks are equal."""
    n = 12 * 1000
    topology = Machines(ranks, nodes, FAST, SLOW).topology()

    def program(comm):
        ring_allreduce(comm, np.zeros(n))

    one_step = run(program, ranks, topology).seconds
    asked = (100, 100, ranks, nodes, 0.5, 8 * n, (FAST.latency, FAST.bandwidth), (SLOW.latency, SLOW.bandwidth))
    assert load_script(ROOT / "solutions/e08_predict_epoch.py").epoch_seconds(*asked) == pytest.approx(
        0.5 + one_step, rel=1e-9
    )
