"""`python -m tests.validation`: what docs/commands.md names is there, and options are refused where they do nothing."""

import re
import subprocess

import pytest

from tests.conftest import ROOT, python
from tests.validation.__main__ import COMPARISONS


def test_the_page_of_commands_names_every_comparison():
    page = (ROOT / "docs/commands.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"^python -m tests\.validation (\S+)", page, re.MULTILINE)) == sorted(COMPARISONS)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["plans", "--device", "cuda"], "--device only works with truth"),
        (["truth", "--page", "page.md"], "--page only works with memory and step-times"),
        (["truth", "--device", "nothing"], "--device nothing"),
    ],
)
def test_what_cannot_be_done_is_told_in_the_last_line(arguments, says):
    command = python("-m", "tests.validation", *arguments)
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=ROOT)
    assert done.returncode == 2 and says in done.stderr.splitlines()[-1]
