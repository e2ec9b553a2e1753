"""Compare predictions of the course with published or independent numbers: `python -m tests.validation NAME`."""

import argparse
import sys
from pathlib import Path

from mpcourse.common.errors import UserError
from mpcourse.course.bench.show import show
from tests.validation import memory, memory_table, pipelines, plans, stacked_runs, step_times, trainings, truth

COMPARISONS = {
    "grids": plans.grids,
    "memory": memory.memory,
    "pipelines": pipelines.pipelines,
    "plans": plans.plans,
    "stacked-runs": stacked_runs.stacked_runs,
    "step-times": step_times.step_times,
    "trainings": trainings.trainings,
    "truth": truth.truth,
}
PAGES = {"memory": memory_table.write, "step-times": step_times.write, "trainings": trainings.write}


def main() -> int:
    """Return 0 if all promises are kept, 1 if one is broken, 2 if the comparison cannot be made."""
    parser = argparse.ArgumentParser(prog="python -m tests.validation", description=__doc__)
    parser.add_argument("name", choices=COMPARISONS)
    parser.add_argument("--runs", type=int, metavar="N", help="truth, stacked-runs: number of measurements (5)")
    parser.add_argument("--device", metavar="NAME", help="truth, memory: a real GPU to compare with, cuda or cuda:1")
    parser.add_argument(
        "--role", choices=["look", "judge", "all"], help="trainings: publications to learn from, to judge by"
    )
    parser.add_argument("--page", type=Path, help="memory, step-times: write the table into it; trainings: ratios")
    parser.add_argument("--json", action="store_true", help="print every run, hardware and versions as JSON")
    options = parser.parse_args()
    if options.device and options.name not in ("truth", "memory"):
        parser.error("--device only works with truth and memory")
    if options.page and options.name not in PAGES:
        parser.error(f"--page only works with {' and '.join(PAGES)}")
    if options.page:
        PAGES[options.name](options.page)
        return 0
    asked = {name: value for name in ("runs", "device", "role") if (value := getattr(options, name)) is not None}
    try:
        return show(list(COMPARISONS[options.name](**asked)), options.json)
    except UserError as error:
        print(error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
