"""tools/plain_words.py: which phrases it finds, in what, and what it leaves alone."""

import subprocess
import sys

import pytest

from tests.conftest import ROOT, load_script

plain_words = load_script(ROOT / "tools" / "plain_words.py")


@pytest.mark.parametrize(
    "text",
    [
        '"""Send what nobody receives."""\n',
        "x = 1  # a sum of which each rank has a part\n",
        "# a sum of\n# which each rank has a part\n",
        'raise ValueError(f"{x} is of no layer")\n',
    ],
)
def test_a_phrase_in_a_comment_or_a_string_is_found(text):
    assert len(plain_words.found("program.py", text)) == 1


def test_a_phrase_of_a_paper_is_found_at_its_line():
    assert plain_words.found("paper.md", "A program\nwaits for\never.\n") == ["paper.md:2: for ever"]


@pytest.mark.parametrize(
    "text",
    [
        "told = [nobody for nobody in stands]\n",
        '"""Return `told`, what told() returns."""\n',
        '"""The letter n stands for a number that can be told apart."""\n',
        'print(f"ranks do different things: {told}")\n',
        '"""Nobody is a name, and a proof of whichever."""\n',
    ],
)
def test_code_and_what_only_looks_alike_pass(text):
    assert plain_words.found("program.py", text) == []


@pytest.mark.parametrize("name", ["program.py", "paper.md", "manifest.toml"])
def test_the_command_fails_on_a_file_with_a_phrase(tmp_path, name):
    for text, code in ("# Nothing is wrong.\n", 0), ("# whoever is ready is served\n", 1):
        (tmp_path / name).write_text(text)
        command = [sys.executable, ROOT / "tools" / "plain_words.py", tmp_path / name]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == code
        assert done.stdout.endswith(f"{name}:1: whoever\n") == bool(code)
