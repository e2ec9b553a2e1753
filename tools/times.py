"""How long each lesson ran, from nbval's report: a table, printed by `make notebooks`, and kept in README.md.

python tools/times.py build/lessons.xml [--readme "where they ran"]
"""

import argparse
import datetime
import re
from collections import defaultdict
from pathlib import Path
from xml.etree import ElementTree

README = Path(__file__).resolve().parents[1] / "README.md"
BEGIN, END = "<!-- times: made by tools/times.py -->", "<!-- end of times -->"


def lesson_seconds(report: str) -> dict[str, float]:
    """Seconds of each notebook's cells together, by the notebook's name, from a report in JUnit's format."""
    found: dict[str, float] = defaultdict(float)
    for case in ElementTree.fromstring(report).iter("testcase"):
        found[case.attrib["classname"].removesuffix(".ipynb").split(".")[-1]] += float(
            case.attrib["time"]
        )  # folder.name
    return dict(sorted(found.items()))


def table(seconds: dict[str, float]) -> str:
    """Lessons side by side, as many as there are."""
    names = [name.split("_")[0] for name in seconds]
    lines = [["lesson", *names], ["---"] * (len(names) + 1), ["seconds", *(f"{s:.0f}" for s in seconds.values())]]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def with_times(text: str, seconds: dict[str, float], where: str) -> str:
    """README's text with the table, and where and when it was measured, between its markers."""
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        raise ValueError(f"README.md needs each of the lines {BEGIN} and {END} once")
    told = f"{table(seconds)}\n\nMeasured on {datetime.date.today().isoformat()}, {where}."
    return re.sub(f"{BEGIN}.*?{END}", lambda _: f"{BEGIN}\n{told}\n{END}", text, flags=re.DOTALL)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("report", type=Path)
    parser.add_argument("--readme", metavar="WHERE", help="write the table to README.md, and where it was measured")
    options = parser.parse_args()
    seconds = lesson_seconds(options.report.read_text())
    print("Seconds of each lesson, two lessons at a time:", *(f"{n} {s:.0f}" for n, s in seconds.items()), sep="\n  ")
    if options.readme:
        README.write_text(with_times(README.read_text(), seconds, options.readme))


if __name__ == "__main__":
    main()
