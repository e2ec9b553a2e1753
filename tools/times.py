"""Print how long each lesson ran, from nbval's report, build/lessons.xml."""

import sys
from collections import defaultdict
from pathlib import Path
from xml.etree import ElementTree


def lesson_seconds(report: str) -> dict[str, float]:
    """Return the seconds of each notebook's cells together, by the notebook's name, from a report in JUnit's format."""
    found: dict[str, float] = defaultdict(float)
    for case in ElementTree.fromstring(report).iter("testcase"):
        name = case.attrib["classname"].removesuffix(".ipynb").split(".")[-1]  # of folder.name
        found[name] += float(case.attrib["time"])
    return dict(sorted(found.items()))


if __name__ == "__main__":
    seconds = lesson_seconds(Path(sys.argv[1]).read_text())
    print("Seconds of each lesson, two lessons at a time:", *(f"{n} {s:.0f}" for n, s in seconds.items()), sep="\n  ")
