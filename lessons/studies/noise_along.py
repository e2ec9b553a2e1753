"""`python -m lessons.studies.noise_along STUDY.toml FOLDER`: the noise scale along a study's training runs.

FOLDER gets noise.csv, a row for each record of each run, and manifest.json. It is made in one go, on one core. It holds
no seconds, so a busy machine changes nothing, and the machine's noise is not measured.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

import torch
from tqdm.auto import tqdm

from mpcourse.common.errors import UserError
from mpcourse.data import Examples
from mpcourse.large_batch.noise_scale import estimate
from mpcourse.studies.grid import read_study
from mpcourse.studies.results import Folder
from mpcourse.studies.run import train_task
from mpcourse.studies.stacked_runs import StackedRuns

COLUMNS = ("run", "batch", "rate", "seed", "step", "test_accuracy", "gradient_square", "trace")
SMALL, PARTS = 256, 16  # examples of the small batch; number of small batches that make the big one


def measure(
    runs: StackedRuns, examples: Examples, generator: torch.Generator, small: int = SMALL, parts: int = PARTS
) -> list[tuple[float, float]]:
    """Estimate (|G|^2, tr(Sigma)) of each network in its present state, on `parts` random batches of `small` examples.

    The estimates have no bias. The batches are drawn anew, the same for all networks, because those that a run has just
    trained on are too few.
    """
    images, many = examples.flat(), runs.models.size
    squares, total = torch.zeros(many, dtype=torch.float64), torch.zeros(())
    for _ in range(parts):
        chosen = torch.randint(len(images), (small,), generator=generator)
        batch = images[chosen].expand(many, -1, -1), examples.labels[chosen].expand(many, -1)
        row = torch.cat([g.flatten(1) for g in runs.models.gradients(*batch)[1]], 1).double()
        squares, total = squares + row.square().sum(1) / parts, total + row / parts
    big_squares = total.square().sum(1).tolist()
    return [estimate(s, b, small, small * parts) for s, b in zip(squares.tolist(), big_squares, strict=True)]


def main() -> None:
    """Exit status: 2 for a mistake of the user's."""
    parser = argparse.ArgumentParser(prog="python -m lessons.studies.noise_along", description=__doc__)
    parser.add_argument("study", type=Path, metavar="STUDY.toml", help="fields of mpcourse.studies.grid.Study")
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="for the results")
    options = parser.parse_args()
    torch.set_num_threads(1)
    try:
        study, folder = read_study(options.study), Folder(options.folder)
        data = study.load_data()
        folder.begin(study, 1, "")
    except UserError as error:
        print(f"mpcourse: {error}", file=sys.stderr)
        sys.exit(2)
    chosen, generator = study.runs(), torch.Generator().manual_seed(0)

    def rows() -> Iterator[tuple]:
        for task in tqdm(study.tasks(), unit="task"):
            runs = train_task(study, data, task)
            while not runs.done:
                runs.advance()
                estimates = measure(runs, data.train, generator)
                for number, curve, (square, trace) in zip(task, runs.curves, estimates, strict=True):
                    run = chosen[number]
                    yield (
                        *(number, run.batch, run.rate, run.seed),
                        *(runs.step, curve.test_accuracy[-1], square, trace),
                    )

    folder.write_table("noise.csv", COLUMNS, rows())


if __name__ == "__main__":
    main()
