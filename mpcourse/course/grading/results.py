"""In Gradescope's container: check what one student has submitted, and write results.json.

python -m mpcourse.course.grading.results /autograder

Files are in the layout that Gradescope documents: submission/, source/ with what the zip held, results/results.json.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

SECONDS = 900.0  # of one exercise; the check itself ends long before


def results(base: Path) -> dict[str, Any]:
    """Return the results of the submission in `base`. Which exercises count, and how much, is in source/points.json."""
    points: dict[str, float] = json.loads((base / "source" / "points.json").read_text(encoding="utf-8"))
    return {"tests": [_result(base / "submission", name, most) for name, most in points.items()]}


def _result(submission: Path, name: str, most: float) -> dict[str, Any]:
    files = [p for p in sorted(submission.rglob(f"{name}.py")) if p.is_file()]
    test = {"name": name, "score": 0.0, "max_score": most, "status": "failed", "visibility": "visible"}
    if len(files) != 1:
        names = ", ".join(str(p.relative_to(submission)) for p in files)
        return test | {"output": f"several files: {names}: submit one" if files else f"there is no file {name}.py"}
    command = [sys.executable, "-P", "-m", "mpcourse.course.cli", "check", name, "--file", str(files[0]), "--json"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, stdin=subprocess.DEVNULL)
        verdict = json.loads(done.stdout)[0]
    except subprocess.TimeoutExpired:
        return test | {"output": f"the check had not ended after {SECONDS:.0f} s"}
    except (ValueError, IndexError):  # exit status 2: the machine's fault
        return test | {"output": f"the check could not be done: {done.stderr.strip()}"}
    output = "\n".join([verdict["headline"], *verdict["details"], verdict["why"]]).strip()
    if verdict["passed"]:
        return test | {"score": most, "status": "passed", "output": output}
    return test | {"output": f"{verdict['kind']}: {output}"}


def main() -> None:
    """Write the results of the submission in the folder that the first argument names."""
    base = Path(sys.argv[1])
    outcome = results(base)
    (base / "results").mkdir(exist_ok=True)
    (base / "results" / "results.json").write_text(json.dumps(outcome, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
