"""A check draws other numbers in each run, unless a seed says which."""

import json
import subprocess
import sys

import pytest

from mpcourse.course.check.seeding import SEED, drawing, seed_torch
from tests.conftest import python

PROGRAM = """
import json, torch
from mpcourse.course.check.seeding import drawing, seed_torch
torch.manual_seed(5)  # as every process has it that is forked from one parent, whatever that one has drawn
seed_torch()
print(json.dumps([drawing().random(), torch.rand(()).item()]))
"""


def drawn(monkeypatch, seed):
    monkeypatch.delenv(SEED, raising=False)
    if seed is not None:
        monkeypatch.setenv(SEED, seed)
    return json.loads(subprocess.run(python("-c", PROGRAM), check=True, capture_output=True).stdout)


def test_without_a_seed_every_run_draws_other_numbers(monkeypatch):
    one, other = drawn(monkeypatch, None), drawn(monkeypatch, None)
    assert one[0] != other[0] and one[1] != other[1]


def test_a_seed_repeats_a_run_and_another_seed_does_not(monkeypatch):
    one, same, other = drawn(monkeypatch, "7"), drawn(monkeypatch, "7"), drawn(monkeypatch, "8")
    assert one == same
    assert one[0] != other[0] and one[1] != other[1]


@pytest.mark.parametrize("seed", ["", "7", "any words"])
def test_any_text_is_a_seed(monkeypatch, seed):
    monkeypatch.setenv(SEED, seed)
    assert drawing().random() == drawing().random()


def test_torch_is_not_imported_for_its_generator(monkeypatch):
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    seed_torch()
    assert "torch" not in sys.modules
