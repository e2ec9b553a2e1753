"""Measurements, each a row with what was measured on which machine. Timings live here, not in tests."""

from mpcourse.bench.allreduce import allreduce
from mpcourse.bench.course import course
from mpcourse.bench.crossovers import crossovers
from mpcourse.bench.data_parallel import data_parallel
from mpcourse.bench.large_batch import large_batch
from mpcourse.bench.memory import memory
from mpcourse.bench.pipeline import pipeline
from mpcourse.bench.plan import plan
from mpcourse.bench.plan_grids import plan_grids
from mpcourse.bench.record import Record
from mpcourse.bench.scaling import scaling
from mpcourse.bench.setup import setup
from mpcourse.bench.show import show
from mpcourse.bench.tables import tables
from mpcourse.bench.truth import truth
from mpcourse.bench.twins import twins
from mpcourse.bench.two_hosts import two_hosts
from mpcourse.bench.virtual import virtual
from mpcourse.bench.zero import zero

BENCHMARKS = {
    "allreduce": allreduce,
    "course": course,
    "crossovers": crossovers,
    "data-parallel": data_parallel,
    "large-batch": large_batch,
    "memory": memory,
    "pipeline": pipeline,
    "plan": plan,
    "plan-grids": plan_grids,
    "scaling": scaling,
    "setup": setup,
    "tables": tables,
    "truth": truth,
    "twins": twins,
    "two-hosts": two_hosts,
    "virtual": virtual,
    "zero": zero,
}

__all__ = ["BENCHMARKS", "Record", "show"]
