"""Public reports about models cut over ranks: ChainerMN's functions and tensor parallelism, rebuilt small."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from mpcourse.model_parallel import all_to_all, allgather, allreduce, bcast, pseudo_connect, recv, send
from mpcourse.tensor_parallel import ParallelMLP
from mpcourse.virtual import run


def test_a_send_of_what_needs_no_gradient_ends_in_backward():
    """The receiver's backward waited for ever where no input of `send` needed a gradient.

    https://github.com/chainer/chainermn/pull/214
    """

    def program(comm):
        if comm.rank == 0:
            send(torch.ones(3), comm, 1).sum().backward()
            return None
        weight = nn.Parameter(torch.ones(3))
        (weight * recv(comm, 0)).sum().backward()
        return weight.grad.tolist()

    assert run(program, 2).results == [None, [1.0, 1.0, 1.0]]


def test_a_transposed_tensor_arrives_as_it_is():
    """An array that was not contiguous could not be sent, or its memory was sent in the wrong order.

    https://github.com/chainer/chainermn/pull/213
    """

    def program(comm):
        leaf = torch.arange(6.0).reshape(2, 3).requires_grad_()
        if comm.rank == 0:
            send((leaf * 1).T, comm, 1).sum().backward()
            return leaf.grad.tolist()
        received = recv(comm, 0)
        (received * torch.arange(6.0).reshape(3, 2)).sum().backward()
        return received.tolist()

    assert run(program, 2).results == [[[0.0, 2.0, 4.0], [1.0, 3.0, 5.0]], [[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]]]


def test_a_tuple_is_sent_whole_and_gets_all_its_gradients():
    """One array a message was all that `send` took, so parts of a model could not hand on two.

    https://github.com/chainer/chainermn/pull/139
    """

    def program(comm):
        if comm.rank == 0:
            a, b = torch.ones(2, requires_grad=True), torch.ones(3, requires_grad=True)
            send((a * 2, b * 3), comm, 1).sum().backward()
            return a.grad.tolist(), b.grad.tolist()
        a, b = recv(comm, 0)
        (a.sum() * 5 + b.sum() * 7).backward()
        return a.tolist(), b.tolist()

    assert run(program, 2).results == [([10.0] * 2, [21.0] * 3), ([2.0] * 2, [3.0] * 3)]


def test_gradients_of_all_to_all_go_back_where_pieces_came_from():
    """An all-to-all that autograd sees was asked for, with components of a graph joined by pseudo_connect.

    https://github.com/chainer/chainermn/pull/135
    """

    def program(comm):
        pieces = [torch.full((2,), 10.0 * comm.rank + r, requires_grad=True) for r in range(comm.size)]
        received = all_to_all(comm, pieces)
        sum(piece.sum() * (comm.rank + 1) for piece in received).backward()
        return [piece[0].item() for piece in received], [piece.grad.tolist() for piece in pieces]

    pieces = [[1.0] * 2, [2.0] * 2, [3.0] * 2]
    assert run(program, 3).results == [([rank, 10.0 + rank, 20.0 + rank], pieces) for rank in range(3)]


def test_a_part_that_only_sends_is_run_backward_through_its_delegate():
    """A rank's graph falls into pieces; a delegate connects what it sent with what it receives later.

    https://github.com/chainer/chainermn/pull/98
    """

    def program(comm):
        weight = nn.Parameter(torch.full((1,), comm.rank + 2.0))
        if comm.rank == 0:  # sends x w0, and receives x w0 w1
            sent = send(weight * 5, comm, 1)
            (pseudo_connect(sent, recv(comm, 1, sent))[0] * weight).sum().backward()
        else:
            send(recv(comm, 0) * weight, comm, 0).sum().backward()
        return weight.grad.item()

    # 5 w0 w1 w0, whose derivatives are 10 w0 w1 and 5 w0 w0, at w0 = 2 and w1 = 3.
    assert run(program, 2).results == [60.0, 20.0]


@pytest.mark.parametrize("size", [1, 2, 4])
def test_a_sum_over_ranks_hands_back_the_sum_of_gradients(size):
    """Horovod's allreduce was no operation of autograd, so losses over all ranks had no gradient.

    https://github.com/horovod/horovod/issues/318
    """

    def program(comm):
        weight = nn.Parameter(torch.full((1,), comm.rank + 1.0, dtype=torch.float64))
        total = allreduce(comm, weight)
        (total**2 / comm.size).sum().backward()
        return total.item(), weight.grad.item()

    total = size * (size + 1) / 2
    assert run(program, size).results == [(total, 2 * total)] * size


def test_gathered_pieces_that_all_ranks_use_and_a_broadcast_have_gradients():
    """Gathering, then broadcasting, lost the graphs of ranks that are not the root.

    https://github.com/chainer/chainer/pull/5512
    """

    def program(comm):
        weight = nn.Parameter(torch.ones(1))
        pieces = allgather(comm, weight * (comm.rank + 1))
        total = sum(pieces)
        mine = bcast(comm, total * 2 if comm.rank == 0 else None)
        (mine.sum() + total.sum() * 0).backward()
        return mine.item(), weight.grad.item()

    assert run(program, 2).results == [(6.0, 4.0), (6.0, 8.0)]  # 2 (rank + 1), from the losses of both ranks


# -- tensor parallelism --


@pytest.mark.parametrize("size", [1, 2, 4])
def test_the_bias_of_a_layer_cut_by_rows_is_added_once(size):
    """Each rank added the bias before the sum: with two ranks the output had 100, 200 and 300 too much.

    https://github.com/Wenyueh/MinivLLM/issues/80 and
    https://github.com/huggingface/text-generation-inference/issues/1036
    """

    def program(comm):
        first, second = nn.Linear(4, 8, dtype=torch.float64), nn.Linear(8, 3, dtype=torch.float64)
        for p in (*first.parameters(), *second.parameters()):
            nn.init.constant_(p, 0.1)
        second.bias.data = torch.tensor([100.0, 200.0, 300.0], dtype=torch.float64)
        x = torch.ones(2, 4, dtype=torch.float64)
        wanted = second(F.gelu(first(x)))
        wanted.sum().backward()
        layer = ParallelMLP(comm, first, second)
        layer(x).sum().backward()
        return (layer(x) - wanted).abs().max().item(), layer.second.bias.grad.tolist(), second.bias.grad.tolist()

    for off, bias, wanted in run(program, size).results:
        assert off < 1e-12 and bias == wanted == [2.0, 2.0, 2.0]
