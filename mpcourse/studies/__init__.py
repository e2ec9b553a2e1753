"""Studies: grids of training runs, those that lessons show, and how two sets of runs are compared.

`mpirun -np N python -m mpcourse.studies.run STUDY.toml FOLDER` trains a grid of runs. `shipped/` holds those of lesson
09, `staleness/` those of lesson 07; lessons/studies/README.md says how all of them were made.
"""

from mpcourse.studies.stacked_mlps import StackedMLPs, StackedSGD
from mpcourse.studies.stacked_runs import StackedRuns

__all__ = ["StackedMLPs", "StackedRuns", "StackedSGD"]
