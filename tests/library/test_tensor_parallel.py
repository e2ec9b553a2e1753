"""A transformer over the ranks of a tensor axis equals one process, in bytes, messages and random numbers, too."""

import json
from collections import Counter
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from mpcourse.collectives.tensors import all_gather, all_reduce, reduce_scatter
from mpcourse.models.gpt import SMALL, Block, Shape
from mpcourse.plan import Input, Layers
from mpcourse.tensor_parallel import (
    ColumnParallelLinear,
    Generators,
    Options,
    ParallelAttention,
    ParallelBlock,
    ParallelMLP,
    RowParallelLinear,
    VocabularyEmbedding,
    copy_in,
    dropout,
    gather_in,
    layers,
    load_whole_state,
    over_devices,
    parallel_gpt,
    recompute,
    scatter_out,
    sum_out,
    sum_partial_gradients,
    transformer,
    vocabulary_loss,
    whole_state,
)
from mpcourse.tensor_parallel.costs import collectives_of_layer, kept_by_layer, sent_by_layer
from mpcourse.virtual import GPUS, run, virtual_gpus
from tests.programs.tensor_truth import SHAPE, WAYS, over_ranks

PROGRAM = Path(__file__).parents[1] / "programs" / "tensor_truth.py"
ROUNDING = 1e-10  # of float64, after three steps
SIZES = [1, 2, 3, 4, 8]
PHASES = "forward", "backward"


# -- training --


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("way", WAYS)
def test_training_on_virtual_ranks_equals_one_process(size, way):
    assert max(run(lambda comm: over_ranks(comm, WAYS[way]), size).results) < ROUNDING


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("changed", [{"tied": True}, {"frozen": True}, {"tied": True, "frozen": True}], ids=str)
def test_tied_and_frozen_parameters_are_trained_as_in_one_process(size, way, changed):
    assert max(run(lambda comm: over_ranks(comm, WAYS[way], **changed), size).results) < ROUNDING


@pytest.mark.ranks
@pytest.mark.parametrize("size", [2, 4])
def test_training_on_real_ranks_equals_one_process(mpirun, size):
    done = mpirun(size, "-m", "mpi4py", PROGRAM, timeout=150)
    assert done.returncode == 0, done.stderr[-3000:]
    assert max(json.loads(done.stdout).values()) < ROUNDING


@pytest.mark.parametrize("size", [1, 2, 3, 8])
@pytest.mark.parametrize("way", ["plain", "sequence, selective", "sequence, full", "sequence, overlap", "overlap"])
def test_training_on_virtual_gpus_equals_one_process(size, way):
    with virtual_gpus(size):
        assert max(over_devices(lambda comm: over_ranks(comm, WAYS[way], device=comm.device))) < ROUNDING


def test_the_whole_model_does_not_depend_on_the_number_of_ranks():
    states = [run(lambda comm: whole_state(comm, parallel_gpt(SHAPE, comm)), size).results[0] for size in (1, 3, 4)]
    for state in states[1:]:
        assert all(torch.equal(state[name], whole) for name, whole in states[0].items())


def test_a_whole_state_is_loaded_on_another_number_of_ranks():
    options = Options(sequence=True)
    saved = run(lambda comm: whole_state(comm, parallel_gpt(SHAPE, comm, options, seed=5)), 2).results[0]

    def load(comm):
        model = parallel_gpt(SHAPE, comm, options, seed=6)
        load_whole_state(model, saved)
        return whole_state(comm, model)

    again = run(load, 3).results[0]
    assert again.keys() == saved.keys() and all(torch.equal(again[name], saved[name]) for name in saved)


# -- the functions of mappings.py --


def one_loss(f, comm, x):
    """Return f(x), and x's gradient if all ranks compute one loss, the sum of w times the result."""
    x = x.clone().requires_grad_()
    y = f(x)
    w = torch.arange(1.0, 1 + y.numel(), dtype=y.dtype).view_as(y)
    (y * w).sum().backward()
    return y.detach(), x.grad


@pytest.mark.parametrize("size", [1, 2, 3])
def test_each_function_of_a_layers_border_and_its_backward(size):
    whole = torch.randn(2, 6, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))

    def program(comm):
        alike, own = whole[0], whole[1] * (comm.rank + 1)
        every = sum(whole[1] * (r + 1) for r in range(comm.size))
        each = 6 // comm.size
        mine = slice(comm.rank * each, (comm.rank + 1) * each)
        w = torch.arange(1.0, 31, dtype=torch.float64).view(6, 5)
        part = torch.arange(1.0, 1 + 5 * each, dtype=torch.float64).view(each, 5)
        y, grad = one_loss(lambda x: copy_in(comm, x), comm, alike)
        assert torch.equal(y, alike) and torch.equal(grad, comm.size * w)
        y, grad = one_loss(lambda x: sum_out(comm, x), comm, own)
        assert torch.allclose(y, every) and torch.equal(grad, w)
        y, grad = one_loss(lambda x: gather_in(comm, x), comm, alike[mine])
        assert torch.equal(y, alike) and torch.equal(grad, comm.size * w[mine])
        y, grad = one_loss(lambda x: scatter_out(comm, x), comm, own)
        assert torch.allclose(y, every[mine]) and torch.equal(grad, part.repeat(comm.size, 1))

    run(program, size)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.int64])
def test_collective_calls_leave_their_argument_as_it_is(dtype):
    def program(comm):
        x = torch.arange(12, dtype=dtype).view(4, 3)
        kept = x.clone()
        assert torch.equal(all_reduce(comm, x), 2 * kept)
        assert torch.equal(all_reduce(comm, x + comm.rank, torch.maximum), kept + 1)
        assert torch.equal(all_gather(comm, x), torch.cat([kept, kept]))
        assert torch.equal(reduce_scatter(comm, x.T.contiguous().T), 2 * kept[2 * comm.rank : 2 * comm.rank + 2])
        assert torch.equal(x, kept)

    run(program, 2)


# -- layers --


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("sequence", [False, True])
@pytest.mark.parametrize("size", [2, 3, 4])
def test_an_mlp_whose_units_ranks_do_not_divide_equals_the_whole_one(size, sequence, overlap):
    def program(comm):
        torch.manual_seed(0)
        first, second = (nn.Linear(*sizes, dtype=torch.float64) for sizes in ((5, 11), (11, 5)))
        whole = torch.randn(12, 2, 5, dtype=torch.float64, requires_grad=True)
        wanted = second(F.gelu(first(whole)))
        wanted.square().sum().backward()
        each = 12 // comm.size if sequence else 12
        mine = slice(comm.rank * each, (comm.rank + 1) * each) if sequence else slice(0, 12)
        x = whole.detach()[mine].clone().requires_grad_()
        layer = ParallelMLP(comm, first, second, sequence, overlap)
        y = layer(x)
        y.square().sum().backward()
        sum_partial_gradients(comm, layer)
        assert torch.allclose(y, wanted[mine], atol=1e-12) and torch.allclose(x.grad, whole.grad[mine], atol=1e-12)
        held = torch.tensor_split(torch.arange(11), [11 * r // comm.size for r in range(1, comm.size)])[comm.rank]
        assert torch.allclose(layer.first.weight.grad, first.weight.grad[held], atol=1e-12)
        assert torch.allclose(layer.second.weight.grad, second.weight.grad[:, held], atol=1e-12)
        assert torch.allclose(layer.first.bias.grad, first.bias.grad[held], atol=1e-12)
        assert torch.allclose(layer.second.bias.grad, second.bias.grad, atol=1e-12)

    run(program, size)


def attention_of(q, k, v, out, heads, groups, x):
    """Return attention by torch alone, of (length, batch, width), with the weights of one Linear each."""

    def by_head(t, n):
        return t.unflatten(-1, (n, -1)).permute(1, 2, 0, 3)

    mixed = F.scaled_dot_product_attention(
        by_head(q(x), heads), by_head(k(x), groups), by_head(v(x), groups), is_causal=True, enable_gqa=True
    )
    return out(mixed.permute(2, 0, 1, 3).flatten(2))


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("sequence", [False, True])
@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize(("size", "groups"), [(2, 8), (2, 4), (2, 1), (4, 2), (8, 2), (4, 4), (1, 2)])
def test_attention_with_grouped_queries_equals_the_whole_one(size, groups, sequence, fused, overlap):
    heads, head, width, length = 8, 3, 10, 8

    def program(comm):
        torch.manual_seed(0)
        q, k, v = (nn.Linear(width, n * head, dtype=torch.float64) for n in (heads, groups, groups))
        out = nn.Linear(heads * head, width, dtype=torch.float64)
        qkv = nn.Linear(width, (heads + 2 * groups) * head, dtype=torch.float64)
        qkv.weight.data, qkv.bias.data = (torch.cat([getattr(m, n) for m in (q, k, v)]) for n in ("weight", "bias"))
        whole = torch.randn(length, 3, width, dtype=torch.float64, requires_grad=True)
        wanted = attention_of(q, k, v, out, heads, groups, whole)
        wanted.square().sum().backward()
        each = length // comm.size if sequence else length
        mine = slice(comm.rank * each, (comm.rank + 1) * each) if sequence else slice(0, length)
        x = whole.detach()[mine].clone().requires_grad_()
        layer = ParallelAttention(
            comm, qkv, out, heads, groups, sequence=sequence, fused=fused, overlap=overlap, again=not fused
        )
        y = layer(x)
        y.square().sum().backward()
        sum_partial_gradients(comm, layer)
        assert torch.allclose(y, wanted[mine], atol=1e-12) and torch.allclose(x.grad, whole.grad[mine], atol=1e-12)
        for name in ("weight", "bias"):
            whole_grad = torch.cat([getattr(m, name).grad for m in (q, k, v)])
            own = layer.qkv.cuts[name].own
            assert torch.allclose(getattr(layer.qkv, name).grad, whole_grad[own], atol=1e-12)
        assert torch.allclose(layer.out.weight.grad, out.weight.grad[:, layer.out.cuts["weight"].own], atol=1e-12)
        assert torch.allclose(layer.out.bias.grad, out.bias.grad, atol=1e-12)

    run(program, size)


def test_a_layer_copies_all_that_it_is_made_of():
    block = Block(SHAPE)
    held = [p.data_ptr() for p in block.parameters()]

    def program(comm):
        return [p.data_ptr() for p in ParallelBlock(comm, block).parameters()]

    places = [*held, *(place for of_rank in run(program, 2).results for place in of_rank)]
    assert len(set(places)) == len(places)


@pytest.mark.parametrize("bias", [True, False])
def test_a_layer_keeps_no_bias_that_the_whole_one_lacks(bias):
    def program(comm):
        torch.manual_seed(0)
        whole = nn.Linear(4, 6, bias)
        x = torch.randn(3, 4)
        made = ColumnParallelLinear(comm, whole), RowParallelLinear(comm, whole)
        assert all((layer.bias is None) != bias for layer in made)
        assert torch.allclose(made[0](x), whole(x)[:, 3 * comm.rank : 3 * comm.rank + 3], atol=1e-6)
        assert torch.allclose(made[1](x[:, 2 * comm.rank : 2 * comm.rank + 2]), whole(x), atol=1e-6)

    run(program, 2)


# -- vocabulary --


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("vocabulary", [13, 16, 8])
def test_embedding_and_loss_of_a_split_vocabulary_equal_the_whole_ones(size, vocabulary):
    def program(comm):
        draw = torch.Generator().manual_seed(0)
        weight = torch.randn(vocabulary, 6, dtype=torch.float64, generator=draw, requires_grad=True)
        tokens, targets = (torch.randint(vocabulary, (4, 3), generator=draw) for _ in range(2))
        targets[1, 2] = -100
        x = F.embedding(tokens, weight)
        wanted = F.cross_entropy((30 * x @ weight.T).flatten(0, 1), targets.flatten())
        wanted.backward()
        layer = VocabularyEmbedding(comm, weight)
        x = layer(tokens)
        assert torch.allclose(x, F.embedding(tokens, weight))
        loss = vocabulary_loss(comm, 30 * copy_in(comm, x) @ layer.weight.T, targets, vocabulary)
        loss.backward()
        assert abs(loss.item() - wanted.item()) < 1e-12
        assert torch.allclose(layer.weight.grad, weight.grad[layer.cuts["weight"].own], atol=1e-12)

    run(program, size)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_the_loss_is_computed_in_float32(dtype):
    logits = torch.randn(64, 1000, generator=torch.Generator().manual_seed(0)).mul(8).to(dtype)
    targets = torch.arange(64)
    wanted = F.cross_entropy(logits.float(), targets)
    done = run(lambda comm: vocabulary_loss(comm, logits.chunk(2, 1)[comm.rank], targets, 1000).item(), 2)
    assert max(abs(loss - wanted.item()) for loss in done.results) < 1e-5


def test_large_logits_do_not_overflow_whichever_rank_has_the_largest():
    logits = torch.tensor([[1000.0, -1000.0, 0.0, 500.0], [-1000.0, 0.0, 900.0, 1000.0]])
    wanted = F.cross_entropy(logits, torch.tensor([0, 2]))
    done = run(lambda comm: vocabulary_loss(comm, logits.chunk(2, 1)[comm.rank], torch.tensor([0, 2]), 4), 2)
    assert all(torch.equal(loss, wanted) for loss in done.results)


# -- messages --


class Counted:
    """A communicator that counts the collective calls of tensor parallelism."""

    def __init__(self, comm):
        self.comm, self.rank, self.size, self.calls = comm, comm.rank, comm.size, Counter()

    def _count(self, name):
        self.calls[name, "backward" if torch._C._current_graph_task_id() != -1 else "forward"] += 1

    def all_reduce(self, x, op=None, wait=True):
        self._count("all-reduce")
        return all_reduce(self.comm, x, op)

    def all_gather(self, x):
        self._count("all-gather")
        return all_gather(self.comm, x)

    def reduce_scatter(self, x):
        self._count("reduce-scatter")
        return reduce_scatter(self.comm, x)


def layer_step(comm, options, length=8, batch=2):
    torch.manual_seed(0)
    block = ParallelBlock(comm, Block(Shape(53, length, 48, 24, 1)), options)
    each = length // comm.size if options.sequence else length
    block(torch.randn(each, batch, 48, requires_grad=True)).sum().backward()


@pytest.mark.parametrize("sequence", [False, True])
def test_a_layer_makes_as_many_collective_calls_as_it_must_and_no_more(sequence):
    def program(comm):
        counted = Counted(comm)
        layer_step(counted, Options(sequence=sequence))
        return counted.calls

    wanted = collectives_of_layer(sequence)
    assert wanted == ({"all-gather": (2, 4), "reduce-scatter": (2, 2)} if sequence else {"all-reduce": (2, 2)})
    of_phase = {(kind, phase): n for kind, both in wanted.items() for phase, n in zip(PHASES, both, strict=True)}
    assert all(calls == of_phase for calls in run(program, 2).results)


@pytest.mark.parametrize("sequence", [False, True])
@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("size", [2, 4])
def test_a_rank_sends_the_bytes_of_the_closed_form(size, sequence, overlap):
    done = run(lambda comm: layer_step(comm, Options(sequence=sequence, overlap=overlap), 64, 64), size)
    assert done.traffic.sum(1).tolist() == [sent_by_layer(64, 64, 48, size, 4, sequence)] * size


def test_full_recomputation_repeats_the_collective_calls_of_forward():
    def program(comm):
        counted = Counted(comm)
        layer_step(counted, Options(recompute="full", fused=False, dropout=0.1))
        return counted.calls

    wanted = {("all-reduce", "forward"): 2, ("all-reduce", "backward"): 4}
    assert all(calls == wanted for calls in run(program, 2).results)


# -- memory --


@pytest.mark.parametrize("size", [1, 2, 8])
@pytest.mark.parametrize("sequence", [False, True])
@pytest.mark.parametrize("kind", ["none", "selective", "full"])
@pytest.mark.parametrize("shape", [(2048, 4, 6144, 64), (1024, 1, 1024, 16)], ids=["22B", "small"])
def test_a_layer_keeps_the_bytes_of_the_paper(size, sequence, kind, shape):
    length, batch, width, heads = shape
    options = Options(sequence=sequence, dropout=0.1, fused=False, recompute=kind)

    def program(comm):
        with torch.device(comm.device):
            draw = Generators(comm, 0, comm.device)
            block = ParallelBlock(comm, Block(Shape(99, length, width, heads, 1)), options, draw).half()
            rows = length // comm.size if sequence else length
            x = torch.empty(rows, batch, width, dtype=torch.half, requires_grad=True)
        torch.ones(8, 8, device=comm.device) @ torch.ones(8, 8, device=comm.device)  # cuBLAS takes its workspace
        before = box.ledger.used[comm.index]
        y = block(x)
        return box.ledger.used[comm.index] - before - y.nbytes + x.nbytes

    with virtual_gpus(size, "H100-SXM", dry=True) as box:
        kept = over_devices(program)
    wanted = sum(
        row.nbytes for row in kept_by_layer(length, batch, width, heads, size, sequence=sequence, recompute=kind)
    )
    assert all(abs(nbytes / wanted - 1) < 0.02 for nbytes in kept)
    s, b, h, a, t = length, batch, width, heads, size
    paper = {
        ("none", False): 10 + 24 / t + 5 * a * s / (h * t),
        ("none", True): (34 + 5 * a * s / h) / t,
        ("selective", False): 10 + 24 / t,
        ("selective", True): 34 / t,
        ("full", False): 2,
        ("full", True): 2 / t,
    }
    assert wanted == pytest.approx(s * b * h * paper[kind, sequence])


# -- random numbers --


def masks_of_all(size, batch, heads, generators):
    """Return a dropout for one process that drops what `size` ranks drop, each with its own generator."""

    def drop(x, p, generator):
        if p == 0:
            return x
        if generator is generators[0].own and x.dim() == 3 and x.shape[1] == x.shape[2]:  # weights of heads
            of_ranks = [torch.empty(batch, heads // size, *x.shape[1:], dtype=torch.bool) for _ in range(size)]
            drawn = [
                m.flatten(0, 1).bernoulli_(1 - p, generator=g.own) for m, g in zip(of_ranks, generators, strict=True)
            ]
            kept = torch.cat([m.unflatten(0, (batch, -1)) for m in drawn], 1).flatten(0, 1)
        elif generator is generators[0].own:  # rows
            parts = x.chunk(size)
            kept = torch.cat([
                torch.empty(part.shape, dtype=torch.bool).bernoulli_(1 - p, generator=g.own)
                for part, g in zip(parts, generators, strict=True)
            ])  # fmt: skip
        else:
            kept = torch.empty(x.shape, dtype=torch.bool).bernoulli_(1 - p, generator=generator)
        return (x * kept).div_(1 - p)

    return drop


@pytest.mark.parametrize("kind", ["none", "selective", "full"])
@pytest.mark.parametrize("sequence", [False, True])
@pytest.mark.parametrize("size", [2, 4])
def test_dropout_is_that_of_one_process_which_draws_each_ranks_numbers(size, sequence, kind, monkeypatch):
    shape, options = Shape(53, 8, 32, 8, 1), Options(sequence=sequence, dropout=0.3, fused=False, recompute=kind)
    x = torch.randn(8, 2, 32, dtype=torch.float64, generator=torch.Generator().manual_seed(3))

    def program(comm):
        torch.manual_seed(0)
        block = ParallelBlock(comm, Block(shape), options, Generators(comm, 7)).double()
        each = 8 // comm.size if sequence else 8
        mine = slice(comm.rank * each, (comm.rank + 1) * each) if sequence else slice(0, 8)
        found = []
        for _ in range(2):  # the second step draws other numbers
            own = x[mine].clone().requires_grad_()
            y = block(own)
            y.square().sum().backward()
            found.append((y.detach(), own.grad))
        return mine, found

    parts = run(program, size).results

    class Rank:
        def __init__(self, rank):
            self.rank = rank

    generators = [Generators(Rank(rank), 7) for rank in range(size)]
    for module in (layers, transformer):
        monkeypatch.setattr(module, "dropout", masks_of_all(size, 2, 8, generators))
    torch.manual_seed(0)
    plain = Options(sequence=sequence, dropout=0.3, fused=False)
    block = ParallelBlock(None, Block(shape), plain, generators[0]).double()
    for step in range(2):
        whole = x.clone().requires_grad_()
        y = block(whole)
        y.square().sum().backward()
        for mine, found in parts:
            assert torch.allclose(found[step][0], y[mine], atol=1e-12)
            assert torch.allclose(found[step][1], whole.grad[mine], atol=1e-12)


def test_ranks_draw_the_same_numbers_alike_and_others_of_their_own():
    def program(comm):
        draw = Generators(comm, 3)
        return [torch.rand(4, generator=g).tolist() for g in (draw.alike, draw.own)]

    alike, own = zip(*run(program, 3).results, strict=True)
    assert alike[0] == alike[1] == alike[2] and len({tuple(numbers) for numbers in (*own, alike[0])}) == 4


def test_recomputation_draws_the_numbers_of_forward_and_leaves_later_ones_alone():
    found = []
    for again in (False, True):
        draw, x = Generators(None, 5), torch.ones(1000, requires_grad=True)

        def half(x, draw=draw):
            return dropout(x, 0.5, draw.own) * dropout(x, 0.5, draw.alike)

        y = recompute(half, x, generators=draw) if again else half(x)
        later = torch.rand(3, generator=draw.own)
        y.sum().backward()
        found.append((y.detach(), x.grad, later, torch.rand(3, generator=draw.own)))
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


# -- time on virtual GPUs --


def seconds_of_layer(options, size=8, link="NVLink 3"):
    def program(comm):
        with torch.device(comm.device):
            block = ParallelBlock(comm, Block(Shape(99, 2048, 6144, 64, 1)), options).half()
            rows = 2048 // comm.size if options.sequence else 2048
            x = torch.empty(rows, 4, 6144, dtype=torch.half, requires_grad=True)
        start = comm.synchronize()
        y = block(x)
        middle = comm.synchronize()
        y.backward(torch.empty_like(y))
        return middle - start, comm.synchronize() - middle

    with virtual_gpus(size, "A100-SXM4", link, dry=True):
        of_ranks = over_devices(program)
    assert len(set(of_ranks)) == 1
    return of_ranks[0]


def test_messages_behind_computation_take_less_time_and_never_less_than_computation_alone():
    plain = seconds_of_layer(Options(sequence=True))
    hidden = seconds_of_layer(Options(sequence=True, overlap=True))
    free = seconds_of_layer(Options(sequence=True), link="NVLink 5")
    assert hidden[0] < plain[0] and hidden[1] < plain[1]
    assert sum(seconds_of_layer(Options(overlap=True))) < sum(seconds_of_layer(Options()))
    assert 0.9 * sum(free) < sum(hidden)


def test_a_collective_call_waits_for_the_last_gpu_and_a_communicator_can_be_split():
    def program(comm):
        x = torch.ones(4096, 4096, device=comm.device)
        if comm.rank == 3:
            x = x @ x
        half = comm.Split(comm.rank % 2, comm.rank)
        total = half.all_reduce(x)
        return half.size, half.rank, comm.box.free_at[comm.index], total.mean().item()

    with virtual_gpus(4, "A100-SXM4", "NVLink 3"):
        found = over_devices(program)
    assert [each[:2] for each in found] == [(2, 0), (2, 0), (2, 1), (2, 1)]
    times = [each[2] for each in found]
    assert times[0] == times[2] < times[1] == times[3]
    assert [each[3] for each in found] == [2.0, 4097.0, 2.0, 4097.0]


def test_an_error_of_one_rank_ends_all_and_the_box_stays_usable():
    def program(comm):
        if comm.rank == 1:
            raise KeyError("one rank")
        comm.all_reduce(torch.ones(3, device=comm.device))

    with virtual_gpus(2) as box:
        with pytest.raises(KeyError, match="one rank"):
            over_devices(program)
        assert over_devices(lambda comm: comm.all_reduce(torch.ones(3, device=comm.device)).tolist()) == [[2.0] * 3] * 2
    assert box.now > 0


# -- bad input --


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda comm: ParallelAttention(comm, nn.Linear(8, 24), nn.Linear(8, 8), 4), "4 heads cannot be shared"),
        (
            lambda comm: ParallelAttention(comm, nn.Linear(12, 20), nn.Linear(12, 12), 6, 2),
            "2 heads of keys and values cannot be shared alike by 3 ranks",
        ),
        (
            lambda comm: ParallelAttention(comm, nn.Linear(12, 20), nn.Linear(12, 12), 6, 4),
            "6 heads of queries cannot be shared alike by 4 heads of keys and values",
        ),
        (lambda comm: scatter_out(comm, torch.ones(7, 2)), "7 rows cannot be shared alike by 3 ranks"),
        (
            lambda comm: parallel_gpt(Shape(9, 8, 6, 3, 1), comm, Options(sequence=True))(torch.zeros(1, 8).long()),
            "8 tokens cannot be shared alike by 3 ranks",
        ),
        (lambda comm: VocabularyEmbedding(comm, torch.ones(2, 2)), "2 rows or columns cannot be shared"),
        (lambda comm: ParallelMLP(comm, nn.Linear(2, 2), nn.Linear(2, 2)), "2 rows or columns cannot"),
        (lambda comm: Options(recompute="some"), 'recompute is "none", "selective" or "full"'),
        (lambda comm: Options(dropout=0.1), "need fused=False"),
        (lambda comm: vocabulary_loss(comm, torch.ones(2, 4), torch.zeros(2).long(), 9), "3 tokens .* logits for 4"),
    ],
)  # fmt: skip
def test_what_ranks_cannot_share_is_told_by_name(make, said):
    def program(comm):
        with pytest.raises(ValueError, match=said):
            make(comm)

    run(program, 3)


@pytest.mark.parametrize("token", [13, -1])
def test_a_token_outside_of_the_vocabulary_is_told_on_all_ranks(token):
    def program(comm):
        tokens = torch.tensor([[1, token]])
        with pytest.raises(IndexError, match=f"token {token} is not in a vocabulary of 13"):
            VocabularyEmbedding(comm, torch.ones(13, 2))(tokens)
        with pytest.raises(IndexError, match=f"token {token} is not in a vocabulary of 13"):
            vocabulary_loss(comm, torch.ones(1, 2, (7, 6)[comm.rank == 0]), tokens, 13)

    run(program, 2)


def test_virtual_gpus_are_needed_for_a_program_over_devices():
    with pytest.raises(RuntimeError, match="there is no box"):
        over_devices(lambda comm: comm.rank)


# -- plans --


def test_a_plan_takes_layers_with_sequence_parallelism():
    def costs(sequence):
        def make_model(comm=None):
            return parallel_gpt(SMALL, comm, Options(sequence=sequence))

        of_layers = Layers(make_model, Input((64,), True), GPUS["A100-SXM4"]).costs(4, 1)
        return sum(c.held for c in of_layers), [c.forward_sums + c.backward_sums for c in of_layers]

    (plain, sums), (sequence, of_sequence) = costs(False), costs(True)
    assert sequence < 0.8 * plain
    assert sums == of_sequence  # an all-gather and a reduce-scatter take as long as an all-reduce
