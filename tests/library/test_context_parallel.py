"""Ranks that share the tokens of a sequence compute what one process computes, and send what closed forms say."""

import itertools
import json
import math
from functools import partial
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from mpcourse.collectives.tensors import all_to_all
from mpcourse.context_parallel import (
    LAYOUTS,
    ContextGPT,
    SharedSequence,
    block,
    block_backward,
    blockwise_attention,
    gathered_attention,
    mean_token_loss,
    merge,
    ring_attention,
    ulysses_attention,
)
from mpcourse.context_parallel.costs import causal_share, sent_by_attention
from mpcourse.context_parallel.tokens import seen
from mpcourse.models.gpt import SMALL, gpt, token_loss
from mpcourse.tensor_parallel import over_devices
from mpcourse.virtual import run, virtual_gpus
from tests.programs.context_truth import WAYS, over_ranks

PROGRAM = Path(__file__).parents[1] / "programs" / "context_truth.py"
ROUNDING = 1e-10  # of float64
BATCH, HEADS, HEAD = 2, 8, 4
FUNCTIONS = (ring_attention, gathered_attention, ulysses_attention)


# -- online softmax --


def draw(length, groups=HEADS, seed=0):
    """Return q, k, v and a gradient, float64."""
    made = torch.Generator().manual_seed(seed)
    heads = (HEADS, groups, groups, HEADS)
    return [torch.randn(BATCH, h, length, HEAD, dtype=torch.float64, generator=made) for h in heads]


@pytest.mark.parametrize("size", [1, 3, 7, 20])
def test_attention_by_blocks_of_keys_equals_torchs(size):
    q, k, v, _ = draw(20)
    assert torch.allclose(
        blockwise_attention(q, k, v, size), F.scaled_dot_product_attention(q, k, v, is_causal=True), atol=1e-14
    )


def test_scores_that_would_overflow_are_merged():
    q, k, v, _ = draw(6)
    q = 1000 * q
    out, lse = block(q, k[:, :, :3], v[:, :, :3])
    merge(out, lse, *block(q, k[:, :, 3:], v[:, :, 3:]))
    assert torch.allclose(out, F.scaled_dot_product_attention(q, k, v), atol=1e-12)


def test_a_query_without_a_key_gets_zero_and_does_not_change_other_blocks():
    q, k, v, _ = draw(4)
    mask = torch.tensor([[False] * 4, [True] * 4, [True] * 4, [True] * 4])
    out, lse = block(q, k, v, mask)
    assert (out[:, :, 0] == 0).all() and (lse[:, :, 0] == -math.inf).all()
    nothing, of_nothing = torch.zeros_like(out), torch.full_like(lse, -math.inf)
    merge(nothing, of_nothing, out, lse)
    assert torch.equal(nothing, out) and torch.equal(of_nothing, lse)
    assert all(torch.isfinite(each).all() for each in block_backward(q, q, k, v, out, lse, mask))


# -- attention over ranks --


def documents_of(kind, length):
    made = torch.Generator().manual_seed(length)
    return {
        "one document": None,
        "documents": torch.randint(0, 3, (length,), generator=made).sort().values,
        "padding": torch.randint(-1, 2, (BATCH, length), generator=made),
    }[kind]


def in_one_process(q, k, v, w, documents, causal):
    """Return the result and the gradients of q, k and v, by autograd."""
    length = q.shape[2]
    q, k, v = (x.clone().requires_grad_() for x in (q, k, v))
    at = torch.arange(length)
    mask = (at <= at[:, None]) if causal else torch.ones(length, length, dtype=torch.bool)
    if documents is not None:
        of = documents.reshape(-1, length)
        mask = (mask & (of[:, :, None] == of[:, None]) & (of >= 0)[:, None])[:, None]
    k_each, v_each = (x.repeat_interleave(HEADS // x.shape[1], 1) for x in (k, v))
    scores = (q @ k_each.transpose(-1, -2) / math.sqrt(HEAD)).masked_fill(~mask, -1e300)
    out = scores.softmax(-1).masked_fill(~mask, 0) @ v_each
    (out * w).sum().backward()
    return [out.detach(), q.grad, k.grad, v.grad]


def over(comm, attend, given, layout="zigzag", documents=None, device="cpu", **options):
    q, k, v, w = given
    tokens = SharedSequence(comm, q.shape[2], layout, documents)
    own = [tokens.own(x, 2).to(device).requires_grad_() for x in (q, k, v)]
    out = attend(tokens, *own, **options)
    (out * tokens.own(w, 2).to(device)).sum().backward()
    return [tokens.whole(x, 2) for x in (out, *(x.grad for x in own))]


def furthest(found, wanted):
    return max((a - b).abs().max().item() for a, b in zip(found, wanted, strict=True))


@pytest.mark.parametrize("size", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kind", ["one document", "documents", "padding"])
def test_attention_and_its_gradients_equal_one_process(size, layout, kind):
    for length, groups, causal in itertools.product((16, 23), (2, HEADS), (True, False)):
        q, k, v, w = draw(length, groups)
        documents = documents_of(kind, length)
        wanted = in_one_process(q, k, v, w, documents, causal)
        for attend, options in (*((f, {}) for f in FUNCTIONS), (ring_attention, {"fused": False})):
            if attend is ulysses_attention and HEADS % size:
                continue
            asked = partial(over, attend=attend, layout=layout, documents=documents, causal=causal, **options)
            found = run(partial(asked, given=(q, k, v, w)), size).results[-1]
            assert furthest(found, wanted) < ROUNDING, (attend.__name__, length, groups, causal)


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("attend", FUNCTIONS, ids=lambda f: f.__name__)
def test_attention_on_virtual_gpus_equals_one_process(size, attend):
    q, k, v, w = draw(17, 4)
    wanted = in_one_process(q, k, v, w, None, True)
    with virtual_gpus(size):
        found = over_devices(lambda comm: over(comm, attend, (q, k, v, w), device=comm.device))[0]
    assert furthest(found, wanted) < ROUNDING


def test_16_bits_are_computed_and_added_up_in_float32():
    q, k, v, w = (x.bfloat16() for x in draw(32, 4))
    wanted = in_one_process(*(x.double() for x in (q, k, v, w)), None, True)
    for attend in FUNCTIONS:
        found = run(partial(over, attend=attend, given=(q, k, v, w)), 4).results[0]
        assert all(x.dtype == torch.bfloat16 for x in found)
        assert furthest(found, wanted) < 0.05, attend.__name__


# -- training --


@pytest.mark.parametrize("size", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("way", WAYS, ids=str)
def test_training_on_virtual_ranks_equals_one_process(size, way):
    assert run(lambda comm: over_ranks(comm, *way, tied=size == 3, frozen=size == 2), size).results[0] < ROUNDING


@pytest.mark.ranks
@pytest.mark.parametrize("size", [2, 4])
def test_training_on_real_ranks_equals_one_process(mpirun, size):
    done = mpirun(size, "-m", "mpi4py", PROGRAM, timeout=150)
    assert done.returncode == 0, done.stderr[-3000:]
    assert max(json.loads(done.stdout).values()) < ROUNDING


def test_one_rank_is_the_plain_gpt():
    torch.manual_seed(0)
    plain = gpt(SMALL).double()
    model = ContextGPT(SMALL).double()
    model.layers.load_state_dict(plain.state_dict())
    text = torch.randint(SMALL.vocabulary, (2, SMALL.length + 1))
    tokens, targets = text[:, :-1], text[:, 1:]
    loss = mean_token_loss(None, model(tokens, SharedSequence(None, SMALL.length)), targets)
    assert abs(loss - token_loss(plain(tokens), targets)) < 1e-14


def test_the_mean_is_over_all_tokens_and_not_of_the_ranks_means():
    logits, targets = torch.randn(1, 8, 5), torch.tensor([[0, 1, 2, 3, 4, -100, -100, -100]])

    def program(comm):
        own = slice(4 * comm.rank, 4 * comm.rank + 4)
        return mean_token_loss(comm, logits[:, own], targets[:, own]).item()

    whole = F.cross_entropy(logits[0], targets[0]).item()
    means = [F.cross_entropy(logits[0, own], targets[0, own]).item() for own in (slice(0, 4), slice(4, 8))]
    assert run(program, 2).results == pytest.approx([whole] * 2, rel=1e-6)
    assert abs(sum(means) / 2 - whole) > 0.01


# -- what it costs --


@pytest.mark.parametrize("size", [2, 3, 4, 8])
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize("groups", [2, HEADS])
def test_a_rank_sends_the_bytes_of_the_closed_form(size, dtype, groups):
    length = 16 * 3
    for way, attend in zip(("ring", "gather", "ulysses"), FUNCTIONS, strict=True):
        if way == "ulysses" and HEADS % size:
            continue
        q, k, v, w = (x.to(dtype) for x in draw(length, groups))
        sent = run(partial(over_without_whole, attend=attend, given=(q, k, v, w)), size).traffic.sum(1)
        wanted = sent_by_attention(way, size, length, BATCH, HEADS, groups, HEAD, dtype.itemsize)
        assert sent.tolist() == [sum(wanted)] * size, way


def over_without_whole(comm, attend, given):
    q, k, v, w = given
    tokens = SharedSequence(comm, q.shape[2])
    own = [tokens.own(x, 2).requires_grad_() for x in (q, k, v)]
    (attend(tokens, *own) * tokens.own(w, 2)).sum().backward()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("size,length", [(1, 9), (2, 16), (3, 23), (4, 32), (8, 48)])
def test_every_query_sees_each_key_that_it_may_see_exactly_once(layout, size, length):
    tokens = [SharedSequence(type("Comm", (), {"size": size, "rank": rank}), length, layout) for rank in range(size)]
    times = torch.zeros(length, length, dtype=torch.int64)
    for mine, source in itertools.product(range(size), repeat=2):
        for part in seen(tokens[mine].parts[mine], tokens[mine].parts[source]):
            rows, columns = tokens[mine].positions[part.queries], tokens[source].positions[part.keys]
            if part.causal:
                assert len(rows) == len(columns)
            times[rows[:, None], columns] += torch.ones(len(rows), len(columns)).tril().long() if part.causal else 1
    assert torch.equal(times, torch.ones(length, length).tril().long())
    assert sorted(torch.cat([t.positions for t in tokens]).tolist()) == list(range(length))


def test_the_contiguous_ring_reaches_p_over_2p_minus_1_and_zigzag_all():
    for size in (2, 4, 8):
        assert causal_share("contiguous", size, 4096 * size) == pytest.approx(size / (2 * size - 1), rel=1e-3)
        assert causal_share("zigzag", size, 4096 * size) == pytest.approx(1, rel=1e-3)
        assert causal_share("striped", size, 4096 * size) == pytest.approx(1, rel=2e-3)


def test_keys_and_values_travel_behind_long_blocks():
    def seconds(link, length):
        def program(comm):
            tokens = SharedSequence(comm, 4 * length)
            q, k, v = (torch.empty(1, 8, length, 128, dtype=torch.bfloat16, device=comm.device) for _ in range(3))
            begin = comm.synchronize()
            ring_attention(tokens, q, k, v)
            return comm.synchronize() - begin

        with virtual_gpus(4, "A100-SXM4", link, dry=True, record=False):
            return over_devices(program)[0]

    assert seconds("NVLink 3", 16384) < 1.02 * seconds("NVLink 5", 16384)  # hidden
    assert seconds("10 GbE", 16384) > 2 * seconds("NVLink 5", 16384)


# -- messages, and what is refused --


@pytest.mark.parametrize("size", [1, 2, 3, 4, 8])
def test_an_all_to_all_of_uneven_parts(size):
    def program(comm):
        parts = [torch.full((comm.rank + to + 1, 2), 10.0 * comm.rank + to) for to in range(size)]
        return all_to_all(comm, parts, [(source + comm.rank + 1, 2) for source in range(size)])

    for rank, arrived in enumerate(run(program, size).results):
        for source, part in enumerate(arrived):
            assert torch.equal(part, torch.full((source + rank + 1, 2), 10.0 * source + rank))


@pytest.mark.parametrize(
    "wrong, says",
    [
        (lambda comm: SharedSequence(comm, 16, "spiral"), "layout is 'contiguous', 'zigzag', 'striped', not 'spiral'"),
        (lambda comm: SharedSequence(comm, 3), "3 tokens cannot be shared by 2 ranks: zigzag needs 4 at least"),
        (lambda comm: SharedSequence(comm, 8, documents=torch.zeros(7)), "documents has 7 tokens, and the sequence 8"),
        (lambda comm: SharedSequence(comm, 8).own(torch.zeros(1, 7)), "dimension 1 has 7 tokens, and the sequence 8"),
        (lambda comm: ContextGPT(SMALL, "star"), "way is 'ring', 'gather', 'ulysses', not 'star'"),
    ],
)
def test_what_does_not_fit_is_refused(wrong, says):
    with pytest.raises(Exception, match=says):
        run(wrong, 2)


@pytest.mark.parametrize("attend", FUNCTIONS, ids=lambda f: f.__name__)
def test_tensors_of_another_length_or_other_heads_are_refused(attend):
    def program(comm, queries, groups, own):
        tokens = SharedSequence(comm, 16)
        q, k = torch.zeros(1, queries, own, 4), torch.zeros(1, groups, own, 4)
        attend(tokens, q, k, k)

    with pytest.raises(Exception, match=r"q is \(1, 4, 7, 4\): rank 0 has 8 of 16 tokens"):
        run(lambda comm: program(comm, 4, 4, 7), 2)
    with pytest.raises(Exception, match="4 heads of queries cannot be shared alike by 3 heads of keys"):
        run(lambda comm: program(comm, 4, 3, 8), 2)


def test_ulysses_refuses_heads_that_ranks_cannot_share():
    def program(comm, heads, groups):
        tokens = SharedSequence(comm, 12)
        q, k = torch.zeros(1, heads, 4, 4), torch.zeros(1, groups, 4, 4)
        ulysses_attention(tokens, q, k, k)

    with pytest.raises(Exception, match="4 heads cannot be shared alike by 3 ranks"):
        run(lambda comm: program(comm, 4, 4), 3)
    with pytest.raises(Exception, match="2 heads of keys and values cannot be shared alike by 3 ranks"):
        run(lambda comm: program(comm, 6, 2), 3)
