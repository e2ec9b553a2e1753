"""Studies: many training runs that lessons show, the programs that made them, and their results.

`mpirun -np N python -m mpcourse.studies.run STUDY.toml FOLDER` trains a grid of runs (lesson 09; `shipped/` holds the
lesson's). `python -m mpcourse.studies.staleness.study FILE` runs trainings with slow workers (lesson 07).
"""

from mpcourse.studies.stacked_mlps import StackedMLPs, StackedSGD
from mpcourse.studies.stacked_runs import StackedRuns

__all__ = ["StackedMLPs", "StackedRuns", "StackedSGD"]
