"""Experts on several ranks compute what one process computes, drop what has no room, and send what they must."""

import json
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from mpcourse.experts import Mixture, average_gradients, balance_loss, exchange, exchange_counts, room_for, route
from mpcourse.experts.costs import chosen_nodes, sent_by_dispatch
from mpcourse.virtual import run
from tests.programs.experts_truth import WAYS, over_ranks

PROGRAM = Path(__file__).parents[1] / "programs" / "experts_truth.py"
ROUNDING = 1e-10  # of float64
WIDTH, HIDDEN, EXPERTS = 6, 10, 8


def layer(comm, **options):
    torch.manual_seed(3)
    return Mixture(comm, WIDTH, HIDDEN, EXPERTS, **options).double()


def draw(tokens, seed=0):
    return torch.randn(tokens, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


# -- routing --


def test_a_token_goes_to_its_most_probable_experts():
    logits = torch.tensor([[0.0, 2.0, 1.0], [3.0, 0.0, 1.0]])
    routing = route(logits, 2)
    assert routing.chosen.tolist() == [[1, 2], [0, 2]] and routing.kept.all()
    assert torch.equal(routing.weights, logits.softmax(-1).gather(1, routing.chosen))
    assert torch.allclose(route(logits, 2, renormalise=True).weights.sum(1), torch.ones(2))


def test_first_choices_and_earlier_tokens_find_room():
    logits = torch.tensor([[5.0, 4.0, 0.0], [4.0, 5.0, 0.0], [5.0, 4.0, 0.0], [5.0, 0.0, 4.0]])
    routing = route(logits, 2, room=2)
    assert routing.chosen.tolist() == [[0, 1], [1, 0], [0, 1], [0, 2]]
    # expert 0: tokens 0 and 2 come first; expert 1: token 1's first choice, then token 0's second one
    assert routing.kept.tolist() == [[True, True], [True, False], [True, False], [False, True]]


def test_the_balance_loss_is_1_if_all_experts_have_equally_many_tokens_and_grows_with_imbalance():
    even = 9 * torch.eye(4).repeat(3, 1)
    one = torch.tensor([[9.0, 0, 0, 0]]).repeat(12, 1)
    assert balance_loss(route(even)).item() == pytest.approx(1, abs=1e-6)
    assert balance_loss(route(one)).item() == pytest.approx(4, rel=1e-2)
    logits = torch.tensor([[1.0, 0.5, 0.0], [1.0, 0.0, 0.5], [0.0, 1.0, 0.0]], requires_grad=True)
    balance_loss(route(logits)).backward()
    assert (logits.grad[:, 0] > 0).all()  # a step downhill makes the expert with most tokens less probable


def test_the_mean_of_the_ranks_balance_losses_and_gradients_is_that_of_all_tokens():
    logits = torch.randn(12, EXPERTS, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    whole = logits.clone().requires_grad_()
    loss = balance_loss(route(whole, 2))
    loss.backward()

    def program(comm):
        own = logits.chunk(comm.size)[comm.rank].clone().requires_grad_()
        part = balance_loss(route(own, 2), comm)
        part.backward()
        return part.item(), own.grad / comm.size

    for size in (2, 3, 4):
        losses, gradients = zip(*run(program, size).results, strict=True)
        assert sum(losses) / size == pytest.approx(loss.item(), rel=1e-12)
        assert torch.allclose(torch.cat(gradients), whole.grad, atol=1e-14)


# -- one process --


@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize("factor", [None, 0.5, 1.25])
def test_a_layer_is_the_weighted_sum_of_its_experts(k, factor):
    made, x = layer(None, k=k, factor=factor), draw(20)
    mixed = made(x)
    wanted = torch.zeros_like(x)
    for token, row in enumerate(x):
        for choice, weight, kept in zip(*(part[token] for part in mixed.routing[:3]), strict=True):
            e = made.experts
            hidden = F.gelu(e.first[choice] @ row + e.first_bias[choice])
            wanted[token] += weight * kept * (e.second[choice] @ hidden + e.second_bias[choice])
    assert torch.allclose(mixed.out, wanted, atol=1e-12)
    assert mixed.routing.kept.all() == (factor is None)


def test_capacity_is_rounded_up():
    assert room_for(20, 8, 1, 1.25) == 4 and room_for(16, 8, 2, 1.0) == 4


# -- over ranks --


@pytest.mark.parametrize("size", [1, 2, 4, 8])
@pytest.mark.parametrize("k", [1, 2])
def test_each_ranks_tokens_are_dropped_as_if_it_were_alone(size, k):
    x, made = draw(24), layer(None, k=k, factor=0.75)
    wanted = torch.cat([made(part).out for part in x.chunk(size)])
    found = run(lambda comm: layer(comm, k=k, factor=0.75)(x.chunk(size)[comm.rank]).out, size).results
    assert torch.allclose(torch.cat(found), wanted, atol=1e-13)


@pytest.mark.parametrize("size, experts", [(1, 1), (2, 2), (3, 3), (4, 4), (8, 8), (2, 1), (4, 2), (6, 3), (8, 2)])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("changed", [{}, {"tied": True, "frozen": True}], ids=str)
def test_training_on_virtual_ranks_equals_one_process(size, experts, way, changed):
    assert run(lambda comm: over_ranks(comm, way, experts, **changed), size).results[0] < ROUNDING


@pytest.mark.ranks
@pytest.mark.parametrize("size", [2, 4])
def test_training_on_real_ranks_equals_one_process(mpirun, size):
    done = mpirun(size, "-m", "mpi4py", PROGRAM, timeout=150)
    assert done.returncode == 0, done.stderr[-3000:]
    assert max(json.loads(done.stdout).values()) < ROUNDING


def test_an_expert_without_tokens_has_a_gradient_of_zeros_and_a_rank_without_rows_takes_part():
    def program(comm):
        made = layer(comm)
        torch.nn.init.zeros_(made.router.weight)
        made.router.weight.data[0] = 1  # all tokens go to expert 0, on rank 0
        made(draw(5, comm.rank).abs()).out.sum().backward()
        average_gradients(comm, None, made)
        return made.experts.first.grad.abs().sum((1, 2)).tolist()

    first, second = run(program, 2).results
    assert first[0] > 0 and not any(first[1:]) and not any(second)


def test_rows_go_out_and_come_back_and_gradients_take_the_other_way():
    def program(comm):
        counts = torch.tensor([(comm.rank + to) % 3 for to in range(comm.size)])
        arriving = exchange_counts(comm, counts)[:, 0].tolist()
        rows = torch.arange(1.0, 1 + counts.sum())[:, None] + 100 * comm.rank
        rows.requires_grad_()
        there = exchange(comm, rows, counts.tolist(), arriving)
        (there * (1 + comm.rank)).sum().backward()
        back = exchange(comm, there, arriving, counts.tolist())
        owners = torch.arange(comm.size).repeat_interleave(counts)
        return torch.equal(back, rows), torch.equal(rows.grad[:, 0], 1.0 + owners)

    for size in (1, 2, 3, 4, 8):
        assert all(all(each) for each in run(program, size).results)


def test_bytes_of_dispatch_and_combine():
    size, tokens, k = 4, 16, 2

    def program(comm):
        made = layer(comm, k=k)
        made.router.weight.data.zero_()
        logits = torch.zeros(tokens, EXPERTS, dtype=torch.float64)
        for token in range(tokens):  # an equal share for each expert
            logits[token, (2 * token) % EXPERTS], logits[token, (2 * token + 1) % EXPERTS] = 5, 4
        made.router.register_forward_hook(lambda *_: logits)
        made(draw(tokens).requires_grad_()).out.sum().backward()

    sent = run(program, size).traffic.sum(1)
    messages_of_counts = (size - 1) * EXPERTS // size * 8
    of_balance = 2 * EXPERTS * 8  # two rounds of recursive doubling
    rows = sent_by_dispatch(tokens, k, size, WIDTH, 8)
    assert sent.tolist() == [4 * rows + messages_of_counts + of_balance] * size


# -- closed forms --


def test_the_mean_number_of_nodes_of_8_experts_on_8_nodes():
    assert chosen_nodes(8, 256, 8) == pytest.approx(8 * (1 - (7 / 8) ** 8), rel=0.02)
    assert chosen_nodes(1, 256, 8) == 1 and chosen_nodes(8, 8, 8) == 8


@pytest.mark.parametrize(
    "wrong, says",
    [
        (lambda comm: Mixture(comm, 4, 8, 3), "3 experts cannot be shared alike by 2 ranks"),
        (lambda comm: route(torch.zeros(2, 3), 4), "a token goes to 4 experts, and there are 3"),
        (lambda comm: exchange(comm, torch.zeros(3, 1), [1, 1], [1, 1]), r"3 rows cannot be sent as \[1, 1\]"),
    ],
)
def test_what_does_not_fit_is_refused(wrong, says):
    with pytest.raises(Exception, match=says):
        run(wrong, 2)
