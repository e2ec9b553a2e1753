"""Find words and phrases that plain English does without, in comments, strings and papers. `make lint` runs it.

Usage: python tools/plain_words.py [FILE ...]; without files, it reads all Python, Markdown and TOML files in git.
"""

import io
import re
import subprocess
import sys
import tokenize
from pathlib import Path

ROOT = Path(__file__).parents[1]

# In place of each, say who does what, in order.
TICS = """
are of, by and by, comes of, for ever, for want of, for which reason, hitherto, in its stead, in vain, is of, lest,
let alone, lets go, makes good, nobody, of its own accord, of which, save for, somebody, stands(?! for), thereby,
thereof, to be had, told(?! apart), unawares, what it is of, which see, whoever
"""

# To be rewritten. Remove a folder from this list when it is done; this file stays in it.
PASSED = ("lessons/src/", "tests/", "tools/plain_words.py")

ENDS = (".py", ".md", ".toml")  # hints of exercises are in a TOML file

# Whole words in lower case, also across the end of a line. What is in backticks or joined to a name is code.
_WORDS = "|".join(tic.replace(" ", r"[\s#]+") for tic in re.split(r",\s+", TICS.strip()))
TIC = re.compile(rf"(?<![\w`.{{-])(?:{_WORDS})(?![\w`(=-])")


def prose(text: str) -> str:
    """Return a Python file's text with a null character for each one outside of its comments and strings."""
    source = text.splitlines(keepends=True)
    kept = [re.sub(r"\S", "\0", line) for line in source]
    prosaic = {tokenize.COMMENT, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        (first, left), (last, right) = token.start, token.end
        for row in range(first - 1, last) if token.type in prosaic else ():
            begin = left if row == first - 1 else 0
            end = right if row == last - 1 else len(source[row])
            kept[row] = kept[row][:begin] + source[row][begin:end] + kept[row][end:]
    return "".join(kept)


def found(file: str, text: str) -> list[str]:
    """Return a line FILE:LINE: PHRASE for each phrase of the list in a file's text."""
    read = prose(text) if file.endswith(".py") else text
    return [f"{file}:{read.count(chr(10), 0, m.start()) + 1}: {' '.join(m[0].split())}" for m in TIC.finditer(read)]


if __name__ == "__main__":
    known = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    files = [file for file in sys.argv[1:] or known.stdout.split() if file.endswith(ENDS)]
    lines = [line for file in files if not file.startswith(PASSED) for line in found(file, (ROOT / file).read_text())]
    print(*lines, sep="\n", end="\n" if lines else "")
    sys.exit("plain-words: say it plainly; tools/plain_words.py lists these" if lines else 0)
