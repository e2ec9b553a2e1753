"""What ranks say to what is wrong on one of them, under mpirun. Rank 0 prints, as JSON, what every rank said.

`mpirun -np 3 python data_parallel_refused.py all`: mistakes that all ranks are told of, one after the other. With the
name of another mistake: one after which a rank is gone, and nobody goes on. With "messages" behind it ranks meet as
those of several machines do.
"""

import json
import os
import sys

import torch
import torch.nn.functional as F
from mpi4py import MPI
from torch import nn

from mpcourse.data_parallel import (
    create_communicator,
    create_multi_node_optimizer,
    evaluate,
    fuse_weight_gradients,
)
from mpcourse.data_parallel.checked import control_channel
from mpcourse.data_parallel.nodes import RANKS_PER_NODE

comm = MPI.COMM_WORLD
odd = comm.rank == 1
NOT_A_NUMBER = float("nan")
MADE = []  # all optimizers
# Of communicators: "double" is double buffering; "fused" is with layers that write their gradients into the buckets.
NAMES = {"double": "flat", "fused": "bucketed"}
SHORT = {"bucket_bytes": 1, "first_bucket_bytes": 1}  # a bucket for each parameter


def model(width=5):
    return nn.Sequential(nn.Linear(6, width), nn.Linear(width, 2))


def step(optimizer, net, x=None, examples=None):
    x = torch.randn(4, 6) if x is None else x
    optimizer.zero_grad()
    F.mse_loss(net(x), torch.zeros(len(x), 2)).backward()
    optimizer.step(examples=examples)


def made(kind, net=None):
    """Every parameter has a bucket of its own, if there are buckets."""
    net = net or model()
    if kind == "fused":
        fuse_weight_gradients(net, 0)
    name = NAMES.get(kind, kind)
    communicator = create_communicator(name, **({} if name != "bucketed" else SHORT))
    sgd = torch.optim.SGD(net.named_parameters(), 0.1)
    MADE.append(create_multi_node_optimizer(sgd, communicator, kind == "double"))
    return MADE[-1], net


def layers(kind):
    made(kind, nn.Sequential(*model(), nn.Linear(2, 2)) if odd else None)


def shape(kind):
    made(kind, model(7 if odd else 5))


def frozen(kind):
    net = model()
    net[1].bias.requires_grad_(not odd)
    made(kind, net)


def changed(kind):
    optimizer, net = made(kind)
    if odd:
        net[1].weight.data += 1e-6
    step(optimizer, net)


def batches(kind):
    optimizer, net = made(kind)
    step(optimizer, net, torch.randn(5 if odd else 4, 6), examples=5 if odd else 4)


def not_finite(kind):
    optimizer, net = made(kind)
    step(optimizer, net)
    spoilt = net[0].bias.register_hook(lambda gradient: gradient * NOT_A_NUMBER if odd else gradient)
    try:
        step(optimizer, net)
    except FloatingPointError:
        spoilt.remove()
        step(optimizer, net)  # that batch can be left out
        raise


def clipped(kind):
    optimizer, net = made(kind)
    F.mse_loss(net(torch.randn(4, 6)), torch.zeros(4, 2)).backward()
    if odd:
        nn.utils.clip_grad_norm_(net.parameters(), 1e-3)
    optimizer.step()


def kept(kind):
    """Gradients that are added to where they lie, in their bucket: no mistake."""
    optimizer, net = made(kind)
    for _ in range(3):
        optimizer.zero_grad(set_to_none=False)
        F.mse_loss(net(torch.randn(4, 6)), torch.zeros(4, 2)).backward()
        optimizer.step()


def another_kind(kind):
    create_communicator("two_dimensional" if odd else NAMES.get(kind, kind))


def another_call(kind):
    optimizer, net = made(kind)
    if odd:
        evaluate(optimizer.communicator, 1, 2)
    step(optimizer, net)


def steps_alone(kind):
    optimizer, net = made(kind)
    step(optimizer, net)
    if odd:
        step(optimizer, net)
    evaluate(optimizer.communicator, 1, 2)


ALL = (layers, shape, frozen, changed, batches, not_finite, clipped, kept, another_kind, another_call, steps_alone)


def too_few_steps(kind):
    optimizer, net = made(kind)
    for _ in range(2 if odd else 3):
        step(optimizer, net)


def raises(kind):
    optimizer, net = made(kind)
    step(optimizer, net)
    if odd:
        cannot()
    step(optimizer, net)


def raises_in_backward(kind):
    """Where the sums of the last layer's gradients are under way."""
    optimizer, net = made(kind)
    step(optimizer, net)
    if odd:
        net[0].weight.register_hook(lambda _: cannot())
    step(optimizer, net)


def cannot():
    raise ZeroDivisionError("this rank cannot")


def finishes_alone(kind):
    optimizer, net = made("double")
    step(optimizer, net)
    if odd:
        cannot()
    optimizer.finish()


def evaluates_alone(kind):
    optimizer, _ = made(kind)
    if not odd:
        evaluate(optimizer.communicator, 1, 2)


def main():
    torch.manual_seed(comm.rank)
    torch.set_num_threads(1)
    kind, what, *by = sys.argv[1:]
    if by == ["messages"]:  # as between machines
        os.environ[RANKS_PER_NODE] = "1"
        control_channel.on_one_machine = lambda comm: False
    if what != "all":
        globals()[what](kind)
        return
    said = {}
    for case in ALL:
        try:
            case(kind)
            told = "nothing"
        except Exception as error:
            told = f"{type(error).__name__}: {error}"
        said[case.__name__] = comm.gather(told)
        for optimizer in MADE:
            optimizer.finish()  # what is under way
    if comm.rank == 0:
        print(json.dumps(said), flush=True)


main()
