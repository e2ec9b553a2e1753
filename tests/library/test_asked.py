"""docs/asked.md: each command still prints what the page states, and ratios are those of the figures beside them."""

import re
import shlex

import pytest

from mpcourse.plan import Asked, Input, Machines, plan
from mpcourse.plan.configuration import configured
from tests.conftest import ROOT

PAGE = (ROOT / "docs/asked.md").read_text()
FILES = dict(re.findall(r"`([\w.]+)`[^`]*:\n\n```\w+\n(.*?)```", PAGE, re.DOTALL))
ROWS, SETTINGS = (
    [[cell.strip() for cell in line[1:-1].split(" |")] for line in table.splitlines() if re.match(r"\| \d", line)]
    for table in PAGE.split("With the askers' choices")
)
A100 = "A100-SXM4"
AS_THERE = {  # row: the model, its GPUs, batch, length and precision; what the asker had chosen
    1: ("gpt2", 8, A100 + "-40GB", 480, 1024, "autocast", Asked(8, 1, 1, zeros=[0], microbatches=[12])),
    6: ("tinyllama.json", 2, "RTX 4090", 24, 2048, "autocast", Asked(2, zeros=[0], microbatches=[3])),
    8: ("llama-2-7b", 2, A100, 2, 4096, "mixed", Asked(2, zeros=[2])),
    9: ("llama-2-7b", 4, A100 + "-40GB", 16, 2048, "mixed", Asked(4, zeros=[3], microbatches=[4])),
    10: ("llama-2-13b", 8, A100, 32, 2048, "mixed", Asked(8, zeros=[3], microbatches=[4])),
    11: ("llama-2-13b", 8, A100, 32, 4096, "mixed", Asked(2, 1, 4, zeros=[1], microbatches=[1])),
    12: ("llama-2-70b", 16, A100, 16, 4096, "mixed", Asked()),
    15: ("llama-2-7b", 4, A100 + "-40GB", 128, 512, "mixed", Asked(4, zeros=[3], offload="parameters")),
}


def number(cell):
    """Return the first number of a cell, "" if there is none."""
    found = re.search(r"\d[\d ]*(\.\d+)?", cell)
    return found[0].strip() if found else ""


@pytest.fixture
def folder(tmp_path):
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def test_the_page_has_fifteen_rows_two_files_and_no_source_more_than_three_times():
    assert [int(number(row[0])) for row in ROWS] == list(range(1, 16))
    assert set(FILES) == {"asked.py", "tinyllama.json"}
    sources = [re.search(r"github\.com/([\w.-]+/[\w.-]+)", row[0])[1] for row in ROWS]
    assert max(map(sources.count, sources)) <= 3


@pytest.mark.parametrize("row", ROWS, ids=lambda row: number(row[0]))
def test_a_command_prints_the_figure_of_its_row(row, cli, folder):
    _, _, command, ours, _ = row
    program, *arguments = shlex.split(command.strip("`"))
    done = cli(*arguments, cwd=folder)
    assert program == "mpcourse" and done.returncode == ours.startswith("no"), done.stderr
    assert re.search(rf"(?<![\d.]){re.escape(number(ours))}(?![\d.])", done.stdout), done.stdout


@pytest.mark.parametrize("row", SETTINGS, ids=lambda row: row[0])
def test_the_library_finds_the_figure_of_the_askers_settings(row, folder, monkeypatch):
    monkeypatch.chdir(folder)
    _, settings, ours, _ = row
    model, gpus, gpu, batch, length, precision, asked = AS_THERE[int(row[0])]
    again = re.search(r"(no|selective|full) recomputation", settings)
    kinds = {"recomputations": [{"no": "none"}.get(again[1], again[1])]} if again else {}
    asked = Asked(**(vars(asked) | kinds))
    best = plan(configured(model), Machines.named(gpus, gpu), batch, Input((length,), True), asked, precision=precision)
    seconds, gib = best.best[0].seconds.total, best.best[0].nbytes / 2**30
    found = {
        "GiB": f"{gib:.1f}",
        "ms": f"{1000 * seconds:.0f}",
        "s a step": f"{seconds:.3f}",
        "tokens/s": f"{batch * length / seconds / gpus:.0f}",
    }
    assert number(ours) == found[re.search("|".join(found), ours)[0]]


def test_ratios_are_ours_by_theirs():
    theirs = {row[0][:2].rstrip("."): row[1] for row in ROWS}
    for name, there, ours, ratio in [
        *((row[0], row[1], row[3], row[4]) for row in ROWS),
        *((row[0], theirs[row[0]], *row[2:]) for row in SETTINGS),
    ]:
        if number(ratio):
            quotient, there = float(number(ours).replace(" ", "")), 21 if "of 21" in ours else float(number(there))
            assert quotient / there == pytest.approx(float(ratio), abs=0.006), name
