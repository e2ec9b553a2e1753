"""Published training steps: the rows, the networks that make them, and the page that shows them all."""

import re
import statistics

import pytest
import torch

from mpcourse.common.errors import UserError
from mpcourse.virtual import GPUS
from tests.conftest import ROOT
from tests.validation.step_models import GNMT, SSD300, BertLarge, NNUNet
from tests.validation.step_times import DOUBTS, MARKS, WITHIN, Row, Setting, predicted, rows, step_times, table

PAGE = (ROOT / "docs/virtual_gpus.md").read_text()
LINES = PAGE.split(MARKS[0])[1].split(MARKS[1])[0].strip().splitlines()
CELLS = [[cell.strip(" *") for cell in line.strip("|").split("|")] for line in LINES[2:] if line.startswith("|")]


def test_the_page_shows_every_row_and_the_steps_are_of_known_networks_and_gpus():
    found = list(rows())
    assert [(r.network, r.gpu.removeprefix("Tesla "), f"{r.batch}", r.precision, f"{r.rate:g}") for r in found] == [
        tuple(cells[:5]) for cells in CELLS
    ]
    assert len(found) == 117 and {r.gpu for r in found} < set(GPUS)
    assert DOUBTS.keys() <= {(r.network, r.gpu) for r in found}


@pytest.mark.parametrize(
    ("network", "gpu", "precision"),
    [
        ("ResNet-50", "A100-SXM4", "mixed"),
        ("SSD300", "Tesla V100-SXM2-16GB", "float32"),
        ("BERT-large, SQuAD", "A100-SXM4", "TF32"),
        ("nnU-Net 3-D", "Tesla V100-SXM2", "mixed"),
        ("GNMT", "Tesla V100-SXM2", "mixed"),
    ],
)
def test_the_page_says_what_the_command_finds(network, gpu, precision):
    row = next(r for r in rows() if (r.network, r.gpu, r.precision) == (network, gpu, precision))
    line = list(table([(row, predicted(row) / row.rate)]))[2]
    assert line in LINES


@pytest.mark.parametrize(
    ("what", "counts"), [("All", lambda cell: True), ("Without the rows", lambda cell: "(" not in cell)]
)
def test_the_page_says_what_its_rows_come_to(what, counts):
    ratios = [float(re.match(r"[\d.]+", cells[6].replace("*", ""))[0]) for cells in CELLS if counts(cells[6])]
    near = sum(abs(r - 1) <= WITHIN for r in ratios) / len(ratios)
    said = next(line for line in LINES if line.startswith(what))
    rows, median, percent = re.search(r": (\d+) rows, median ([\d.]+), (\d+)% of them within 25%", said).groups()
    assert int(rows) == len(ratios)
    assert float(median) == pytest.approx(statistics.median(ratios), abs=0.011)  # of ratios that the page rounds
    assert int(percent) == pytest.approx(100 * near, abs=2)


def test_by_the_page_the_median_is_within_a_twentieth_and_four_of_five_rows_are_within_a_quarter():
    """Rows that their own tables contradict do not count."""
    ratios = [float(re.match(r"[\d.]+", cells[6].replace("*", ""))[0]) for cells in CELLS if "(" not in cells[6]]
    assert len(ratios) == 107
    assert round(abs(statistics.median(ratios) - 1), 2) <= 0.05
    assert sum(abs(r - 1) <= WITHIN for r in ratios) >= 0.8 * len(ratios)


@pytest.mark.parametrize(
    ("make", "shape", "millions"),
    [
        (lambda: BertLarge(True), (2, 16), 335),
        (SSD300, (2, 3, 300, 300), 22.9),
        (lambda: NNUNet(3), (1, 4, 64, 64, 64), 31.2),
        (lambda: NNUNet(2), (1, 4, 64, 64), 20.6),
        (GNMT, (2, 5), 159.6),
    ],
)
def test_a_network_of_our_own_has_its_size_and_learns(make, shape, millions):
    with torch.device("meta"):
        net = make()
        x = torch.zeros(shape, dtype=torch.int64 if len(shape) == 2 else torch.float32)
        net(x).backward()
    assert sum(p.numel() for p in net.parameters()) / 1e6 == pytest.approx(millions, rel=0.01)
    assert all(p.grad is not None for p in net.parameters())


def test_gradients_that_are_added_up_share_an_update():
    def rate(every):
        setting = Setting(lambda: torch.nn.Linear(4096, 4096), (4096,), optimizer="Adam", every=every)
        return predicted(Row("linear", setting, "A100-SXM4", 8, 1.0, True))

    assert rate(64) > 1.5 * rate(1)


def test_without_the_library_the_command_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "timm", None)
    with pytest.raises(UserError, match=r"\[models\]"):
        list(step_times())
