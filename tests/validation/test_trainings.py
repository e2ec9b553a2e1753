"""Check trainings.toml: each row is complete, and publications are divided by the rule at the file's head."""

import random
import re
import tomllib
from collections import Counter

import pytest

from mpcourse.plan.misses import MISSES
from mpcourse.virtual import GPUS
from tests.conftest import ROOT
from tests.validation.trainings import SPEEDS, misses, outcome, publications, written

DATA = tomllib.loads((ROOT / "tests/validation/trainings.toml").read_text(encoding="utf-8"))
PUBLICATIONS = DATA["publication"]
NAMES = [publication["name"] for publication in PUBLICATIONS]
KINDS = ("small", "memory", "many nodes", "one node")
MEASURED = ("tokens_s_gpu", "tokens_s", "samples_s", "step_s", "tflops_gpu", "mfu", "memory_gib")
# Owners and repositories that the project used before: MPT, Megatron-LM, BLOOM, OPT, GPT-NeoX, MT-NLG, Llama.
USED = "llm-foundry Megatron-LM bigscience metaseq gpt-neox Megatron-DeepSpeed meta-llama DeepLearningExamples".split()


def rows_of(publication):
    return [{**publication.get("all", {}), **row} for row in publication["row"]]


@pytest.mark.parametrize("publication", PUBLICATIONS, ids=NAMES)
def test_a_publication_says_where_it_can_be_read(publication):
    assert {"name", "title", "authors", "year", "address", "kind", "role", "row"} <= set(publication)
    assert publication["address"].startswith("https://") and publication["row"]
    assert publication["kind"] in KINDS and publication["role"] in ("look", "judge")
    for part in publication.get("left_out", []):
        assert part["rows"] > 0 and part["table"] and part["why"]


@pytest.mark.parametrize("publication", PUBLICATIONS, ids=NAMES)
def test_a_row_has_a_model_a_known_gpu_and_a_measurement(publication):
    for row in rows_of(publication):
        assert row["model"] in DATA["model"] and row["gpu"] in GPUS, row
        assert row["gpus"] >= 1 and row["trained"], row
        assert "length" in row or "image" in row or {"memory_gib", "fits"} & set(row), row
        assert any(row.get(name, 0) > 0 for name in MEASURED) or row["fits"] is False, row
        assert 0 < row.get("mfu", 0.5) < 1 and row.get("zero", 0) in range(4), row


@pytest.mark.parametrize("publication", PUBLICATIONS, ids=NAMES)
def test_a_rows_groups_and_batches_agree(publication):
    for row in rows_of(publication):
        model_parallel = row.get("tensor", 1) * row.get("pipeline", 1) * row.get("context", 1)
        data = row.get("data", row["gpus"] // model_parallel)
        assert data * model_parallel == row["gpus"], row
        if {"batch", "microbatch"} <= set(row):
            assert row["batch"] % (data * row["microbatch"]) == 0, row
        if {"batch", "samples_s", "step_s"} <= set(row):
            assert row["samples_s"] * row["step_s"] == pytest.approx(row["batch"], rel=0.02), row


def test_there_are_enough_rows_and_no_name_twice():
    assert len(PUBLICATIONS) >= 16 and sum(len(p["row"]) for p in PUBLICATIONS) >= 120
    assert [name for name, times in Counter(NAMES).items() if times > 1] == []


@pytest.mark.parametrize("kind", KINDS)
def test_unused_publications_of_a_kind_alternate_between_judge_and_look(kind):
    free = sorted((p for p in PUBLICATIONS if p["kind"] == kind and "why" not in p), key=lambda p: p["name"].lower())
    assert [p["role"] for p in free] == [("judge", "look")[i % 2] for i in range(len(free))]


def test_no_publication_that_was_used_before_judges():
    assert all(p["role"] == "look" for p in PUBLICATIONS if "why" in p or p.get("named"))
    judges = [p["name"] for p in PUBLICATIONS if p["role"] == "judge"]
    assert 2 * sum(not set(re.split("[/,]", name)) & set(USED) for name in judges) >= len(judges)


def rows(name):
    return next(p["rows"] for p in publications("look") if p["name"] == name)


def test_a_row_that_can_be_priced_has_a_ratio_and_any_other_says_why():
    (small,) = rows("lb-off/gpt-simple")
    found = outcome(small)
    assert 0.5 < found.ratio < 2 and found.plan.microbatches >= 1 and not found.why
    faster = outcome({**small, **{name: 2 * small[name] for name in SPEEDS if name in small}})
    assert faster.ratio == pytest.approx(found.ratio / 2)
    assert outcome(rows("NVIDIA/JAX-Toolbox, vit")[0]).why == "a model of kind vision transformer"
    assert outcome({**small, "offload": "activations"}).why == "offload activations"
    assert outcome({**small, "trained": "lora"}).why == "trained lora"
    adapted, offloaded = (
        outcome({**small, **of}) for of in ({"trained": "lora rank 8 on q, v"}, {"offload": "parameters"})
    )
    assert adapted.plan.nbytes < found.plan.nbytes and offloaded.plan.seconds.host > 0
    without = {name: value for name, value in small.items() if name != "batch"}
    assert outcome(without).why == "batch is not stated"
    assert "does not fit" in outcome({**small, "gpu": "Tesla T4"}).why


def test_the_shipped_misses_are_those_of_all_rows():
    assert misses() == MISSES
    rows = {
        (p["name"], str(i)) for role in ("look", "judge") for p in publications(role) for i in range(len(p["rows"]))
    }
    assert {(row["publication"], row["row"]) for row in written()} == rows and len(written()) == len(rows)
    assert all(row["ratio"] or row["why"] or {"memory_gib", "fits"} & set(row_of(row)) for row in written())


def both():
    return [*publications("look"), *publications("judge")]


def row_of(found):
    every = {p["name"]: p["rows"] for p in both()}
    return every[found["publication"]][int(found["row"])]


def test_a_random_part_of_the_ratios_is_predicted_anew():
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    for found in random.Random(seed).sample(written(), len(written()) // 32):
        made = outcome(row_of(found))
        ratio = "" if made.ratio is None else f"{made.ratio:.3f}"
        assert (ratio, made.why.replace(",", ";")) == (found["ratio"], found["why"]), (seed, found)
