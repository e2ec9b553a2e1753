"""The small GPT and its text: it learns, it does not look ahead, and it is as large as the closed form says."""

import math

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from mpcourse.common.errors import UserError
from mpcourse.data.text import CHARACTERS, course_text, decode, draw_batch, encode
from mpcourse.grid import transformer
from mpcourse.models.gpt import GPT2, SMALL, Shape, gpt, token_loss
from mpcourse.virtual import virtual_gpus


def test_the_text_is_frozen_ascii_in_two_parts_and_its_tokens_are_its_characters():
    text = course_text()
    assert (len(text.train), len(text.validation), text.vocabulary) == (120763, 13418, 96) and len(CHARACTERS) == 96
    whole = decode(torch.cat([text.train, text.validation]))
    assert whole.startswith("00 Start here\n") and whole.isascii()
    assert torch.equal(encode(whole), torch.cat([text.train, text.validation]))
    assert len(course_text(held_out=0.2).validation) == len(whole) // 5


def test_a_character_without_a_token_and_a_text_without_a_batch_are_refused():
    with pytest.raises(UserError, match="not 'é'"):
        encode("café")
    with pytest.raises(UserError, match="held_out"):
        course_text(held_out=1)
    with pytest.raises(UserError, match="5 tokens has no pieces of 5"):
        draw_batch(encode("12345"), 1, 5, torch.Generator())


def test_a_batch_is_pieces_and_what_follows_them_and_a_seed_repeats_it():
    text = encode("abcdefghij")
    inputs, targets = draw_batch(text, 200, 4, torch.Generator().manual_seed(3))
    assert inputs.shape == targets.shape == (200, 4)
    assert {decode(row) for row in inputs} == {"abcdefghij"[i : i + 4] for i in range(6)}
    assert torch.equal(targets, inputs + 1)
    again, _ = draw_batch(text, 200, 4, torch.Generator().manual_seed(3))
    assert torch.equal(again, inputs)


@pytest.mark.parametrize("shape", [SMALL, Shape(vocabulary=11, length=7, width=12, heads=3, layers=2)])
def test_parameters_are_those_of_the_closed_form(shape):
    v, n, d, layers = shape.vocabulary, shape.length, shape.width, shape.layers
    want = (2 * v + n) * d + layers * (12 * d * d + 13 * d) + 2 * d
    assert sum(p.numel() for p in gpt(shape).parameters()) == want
    assert sum(p.numel() for p in transformer(shape).parameters()) == want - v * d  # with a tied head
    assert sum(p.numel() for p in gpt(SMALL).parameters()) == 216448


def test_a_later_token_does_not_change_an_earlier_logit():
    torch.manual_seed(0)
    model = gpt()
    tokens = torch.randint(96, (2, SMALL.length))
    changed = tokens.clone()
    changed[:, 40:] = (changed[:, 40:] + 1) % 96
    before, after = model(tokens), model(changed)
    assert torch.allclose(before[:, :40], after[:, :40], atol=1e-6)
    assert ((before - after).abs().amax(2)[:, 40:] > 1e-3).all()


def test_training_brings_the_loss_well_below_that_of_a_guess():
    torch.manual_seed(0)
    text, model, generator = course_text(), gpt(), torch.Generator().manual_seed(0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    losses = []
    for _ in range(40):
        inputs, targets = draw_batch(text.train, 8, SMALL.length, generator)
        optimizer.zero_grad()
        loss = token_loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[0] == pytest.approx(math.log(96), abs=0.3)
    assert sum(losses[-5:]) / 5 < 0.75 * math.log(96)
    with torch.no_grad():
        inputs, targets = draw_batch(text.validation, 64, SMALL.length, generator)
        assert token_loss(model(inputs), targets) < 0.75 * math.log(96)


def test_a_step_does_six_flops_for_each_parameter_and_token_and_attention_adds_the_rest():
    shape, batch = Shape(vocabulary=96, length=32, width=64, heads=4, layers=2), 4
    model, tokens = gpt(shape), torch.randint(96, (batch, shape.length))
    multiplied = sum(p.numel() for name, p in model.named_parameters() if p.dim() == 2 and not name.startswith("0."))
    with FlopCounterMode(display=False) as counted:  # of products alone: torch does not count attention on a CPU
        token_loss(model(tokens), tokens).backward()
    assert counted.get_total_flops() == 6 * multiplied * tokens.numel()
    assert 0.97 < multiplied / sum(p.numel() for p in model[1:].parameters()) < 1
    with virtual_gpus(1, dry=True) as box, torch.no_grad():
        model.to("vgpu:0")(tokens.to("vgpu:0"))
    products = sum(e.flops for e in box.events if e.name in ("mm", "addmm"))
    attention = sum(e.flops for e in box.events if "attention" in e.name)
    assert products == 2 * multiplied * tokens.numel()
    assert attention == 2 * (shape.length + 1) * shape.width * shape.layers * tokens.numel()  # causal


def test_the_smallest_gpt_2_has_124_million_parameters_if_its_head_is_tied():
    with torch.device("meta"):
        model = gpt(GPT2)
    assert sum(p.numel() for p in model.parameters()) - 50257 * 768 == 124_439_808


def test_heads_that_cannot_share_the_width_are_refused():
    with pytest.raises(ValueError, match="3 heads cannot share a width of 64"):
        gpt(Shape(96, 64, 64, 3, 1))
