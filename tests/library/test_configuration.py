"""Transformers by their configuration: as many parameters as published, and errors for files that are none."""

import json
import re
import tomllib

import pytest
import torch

from mpcourse.common.errors import UserError
from mpcourse.plan import CountingComm, Input, Layers
from mpcourse.plan.configuration import Configuration, configured, parsed, read
from mpcourse.plan.layers import Indivisible
from mpcourse.plan.losses import LOSSES
from mpcourse.plan.misses import MISSES
from mpcourse.virtual import GPUS
from tests.conftest import ROOT
from tests.library.test_predict import assert_one_line_error

MODELS = tomllib.loads((ROOT / "mpcourse/plan/models.toml").read_text())
TINY = {"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 8, "vocab_size": 101}


@pytest.mark.parametrize("name", MODELS)
def test_a_model_has_as_many_parameters_as_published(name):
    with torch.device("meta"):
        model = configured(name)(None)
    count = sum(p.numel() for p in model.parameters())
    assert count / 1e6 == pytest.approx(MODELS[name]["parameters"], rel=5e-4)


@pytest.mark.parametrize("name", ["gpt2", "llama-3.1-8b", "bert-base"])
def test_ranks_of_the_tensor_axis_share_blocks_and_a_padded_vocabulary(name):
    with torch.device("meta"):
        whole, rank = configured(name)(None), configured(name)(CountingComm(2))
    share, all_of_it = (sum(p.numel() for p in m[1].parameters() if p.dim() > 1) for m in (rank, whole))
    assert share == all_of_it / 2
    assert rank[0].weight.shape[0] == (read(name).vocabulary + 1) // 2


def test_a_layer_computes_what_its_products_need():
    sizes = TINY | {"num_key_value_heads": 2, "intermediate_size": 96, "head_dim": 16}
    layers = Layers(parsed(sizes, "tiny").make, Input((32,), True), GPUS["A100-SXM4"])
    _, block, *_ = layers.costs(1, 4)
    products = 64 * (8 + 2 * 2) * 16 + 8 * 16 * 64 + 3 * 64 * 96
    attention = 2 * 8 * 16 * 32
    assert block.flops == pytest.approx(4 * 32 * 6 * (products + attention), rel=0.1)
    twice = layers.costs(2, 4)[1]
    assert twice.forward_sums == twice.backward_sums == (4 * 32 * 64 * 2,) * 2


def test_a_config_json_is_read_as_the_library_writes_it(tmp_path):
    file = tmp_path / "config.json"
    file.write_text(json.dumps(TINY | {"intermediate_size": None, "rope_theta": 1e4, "tie_word_embeddings": True}))
    found = read(str(file))
    assert (found.groups, found.head, found.hidden, found.tied, found.gated) == (8, 8, 256, True, True)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"model_type": "mamba"}, ["model_type 'mamba'", "llama"]),
        ({"model_type": "llama"}, ["lacks num_hidden_layers, hidden_size, num_attention_heads, vocab_size"]),
        (TINY | {"num_local_experts": 8}, ["mixture of experts"]),
        (TINY | {"hidden_size": 0}, ["hidden_size must be a whole number from 1 on"]),
        (TINY | {"num_hidden_layers": "2"}, ["num_hidden_layers must be"]),
        (TINY | {"num_attention_heads": 7}, ["7 heads do not divide a width of 64"]),
        ([], ["holds a list"]),
        ("{", ["no readable config.json"]),
    ],
)
def test_a_file_that_is_no_configuration_says_why_in_one_line(tmp_path, fields, words):
    file = tmp_path / "config.json"
    file.write_text(fields if isinstance(fields, str) else json.dumps(fields))
    with pytest.raises(UserError) as caught:
        read(str(file))
    assert "\n" not in str(caught.value)
    for word in words:
        assert word in str(caught.value)


def test_the_command_plans_a_model_by_its_name(cli):
    asked = ("--gpus", 8, "--batch", 64)
    shown = cli("plan", "--model", "gpt2", *asked).stdout
    assert shown.startswith("124.4 million parameters on 8 A100-SXM4")
    assert "Not tried: tensor 8 (12 heads of keys and values cannot be shared alike by 8 ranks)." in shown
    for arguments, words in (
        (("--model", "gpt3"), ("no model 'gpt3'", "gpt2", "config.json")),
        (("--model", "bert-base", "--length", 1024), ("--length 1024", "512 positions")),
        (("--model", "gpt2", "--input", 3), ("--model takes tokens",)),
        (("--model", "gpt2", "--loss", "hinge"), ("--loss hinge", "float32, fused, chunked")),
        (("model.py:f", "--loss", "fused"), ("--loss is for --model",)),
        (("--model", "gpt2", "--lora", "8", "z"), ("--lora 8 z", "q k v out gate up down")),
        (("--model", "gpt2", "--lora", "q"), ("--lora q", "whole number")),
        (("model.py:f", "--lora", "8"), ("--lora is for --model",)),
        (("--model", "gpt2", "--gradients", "fp8"), ("--gradients fp8", "half or float32")),
        (("--model", "gpt2", "--zero", 4), ("--zero 4", "0 to 3")),
        (("--model", "gpt2", "--recompute", "some"), ("--recompute some", "none, selective, full")),
        (("--model", "gpt2", "--microbatch", 0), ("--microbatch 0", "1 example")),
        (("--model", "gpt2", "--microbatch", 7), ("--microbatch 7 does not divide a batch of 64",)),
        ((), ("give FILE:FUNCTION",)),
        (("model.py:f", "--model", "gpt2"), ("give FILE:FUNCTION",)),
    ):
        assert_one_line_error(cli("plan", *arguments, *asked), *words)


def test_the_command_says_how_far_published_trainings_were_from_their_predictions(cli):
    asked = ("plan", "--model", "gpt2", "--batch", 64)
    shown = cli(*asked, "--gpus", 8).stdout
    (row,) = (line.split() for line in shown.splitlines() if line.startswith("8x1x1"))
    step = float(row[5])  # after the grid, the micro-batch, recomputation, ZeRO and GiB
    least, most = re.search(r"Error: .* here ([\d.]+) to ([\d.]+) milliseconds a step", shown).groups()
    miss = MISSES["small"]
    assert float(least) == pytest.approx(miss.least * step, rel=0.01)
    assert float(most) == pytest.approx(miss.most * step, rel=0.01) and f"the median {miss.median}" in shown
    assert "Its fullest GPU holds activations" in shown
    found = json.loads(cli("plan", "--model", "llama-3.1-8b", "--gpus", 16, "--batch", 64, "--json").stdout)
    assert found["published / predicted"] == vars(MISSES["many nodes"])


def test_a_choice_that_is_given_is_that_of_all_plans(cli):
    given = ("--recompute", "full", "--zero", 2, "--microbatch", 2, "--data", 8, "--json")
    (best,) = json.loads(cli("plan", "--model", "gpt2", "--gpus", 8, "--batch", 64, *given).stdout)["best"]
    assert [best["candidate"][name] for name in ("recompute", "zero", "microbatch")] == ["full", 2, 2]
    (wider,) = json.loads(
        cli("plan", "--model", "gpt2", "--gpus", 8, "--batch", 64, *given, "--gradients", "float32").stdout
    )["best"]
    assert (
        wider["memory"]["gradients"] == 2 * best["memory"]["gradients"]
        and wider["seconds"]["data"] > best["seconds"]["data"]
    )


def test_a_layer_holds_what_korthikanti_counts_with_and_without_sequence_parallelism():
    s, b, h, t = 2048, 1, 4096, 4
    for parallel in (True, False):
        sizes = Configuration(2, h, 32, 32, h // 32, 4 * h, 1000, s, sequence_parallel=parallel)
        block = Layers(sizes.make, Input((s,), True), GPUS["A100-SXM4"]).costs(t, b)[1]
        # Korthikanti et al. have 34 / t, and 10 + 24 / t without: 2 of the 10 are dropout's masks. Attention in one
        # kernel keeps no scores.
        expected = 32 / t if parallel else 8 + 24 / t
        assert block.held == pytest.approx(s * b * h * expected, rel=0.003)
        assert block.forward_sums == block.backward_sums == (2 * s * b * h,) * 2


def test_a_loss_holds_all_logits_twice_once_or_never():
    n, width, vocabulary = 4096, 512, 50_000
    logits, of_weight, x = 2 * n * vocabulary, 2 * vocabulary * width, 2 * n * width
    found = {}
    for loss in LOSSES:
        sizes = Configuration(2, width, 8, 8, 64, 4 * width, vocabulary, n, loss=loss)
        found[loss] = Layers(sizes.make, Input((n,), True), GPUS["A100-SXM4"]).costs(1, 1)[-1]
    # The product's input stays, or its gradient. In float32 the logarithms of probabilities are saved.
    saved = {"float32": 2 * logits, "fused": logits, "chunked": of_weight}
    for loss, cost in found.items():
        assert cost.held == pytest.approx(x + saved[loss], rel=0.002), loss
        assert cost.flops == pytest.approx(6 * n * width * vocabulary, rel=0.001)
    # Backward: two gradients in float32 beside the logarithms, or one in half precision; the weight's; the input's.
    assert found["float32"].working == pytest.approx(6 * logits, rel=0.05)
    assert found["fused"].working == pytest.approx(logits + of_weight + 4 * x, rel=0.05)
    assert found["chunked"].working == pytest.approx(logits / 8 + of_weight + 4 * x, rel=0.1)
    with pytest.raises(Indivisible, match="chunked"):
        Layers(sizes.make, Input((n,), True), GPUS["A100-SXM4"]).parts(2, 1)


@pytest.mark.parametrize(("adapted", "shapes"), [((), 4 + 3), (("q", "v"), 2)])
def test_adapters_alone_are_trained(adapted, shapes):
    """Trained parameters by hand: rank (in + out) for each adapted layer. All else has its weights alone."""
    of = {"q": (4096, 4096), "k": (4096, 1024), "v": (4096, 1024), "out": (4096, 4096)}
    of |= {"gate": (4096, 14336), "up": (4096, 14336), "down": (14336, 4096)}
    chosen = {name: of[name] for name in adapted or of}
    make = configured("llama-3.1-8b", "fused", 16, adapted)
    layers = Layers(make, Input((2048,), True), GPUS["A100-SXM4"])
    assert len(chosen) == shapes and layers.count() == 32 * 16 * sum(map(sum, chosen.values()))
    assert layers.frozen() == 8_030_261_248
    _, whole, *_, head = Layers(configured("llama-3.1-8b", "fused"), Input((2048,), True), GPUS["A100-SXM4"]).costs(
        1, 1
    )
    _, block, *_, frozen_head = layers.costs(1, 1)
    # No weight of 16 bits gets a gradient: two thirds of the products are left, and the adapters' are small.
    assert 0.6 < block.flops / whole.flops < 0.75 and frozen_head.flops == pytest.approx(head.flops * 2 / 3)
    with pytest.raises(Indivisible, match="adapters"):
        layers.parts(2, 1)
