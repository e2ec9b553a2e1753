"""Whether this mpirun starts more ranks than there are cores: Open MPI counts, MPICH does not."""

import os

from mpcourse.common import launch
from mpcourse.common.words import counted
from mpcourse.course.doctor.finding import Finding
from mpcourse.course.doctor.machine import usable_cores
from mpcourse.course.doctor.start import DEADLINE, Start
from mpcourse.course.doctor.subprocesses import run


def slots(launcher: launch.Mpirun, started: Start) -> Finding:
    """Whether a plain `mpirun -np` starts more ranks than there are cores."""
    if started.run.status is None:
        return Finding("slots", "not examined: two ranks did not end", "problem", "first mend `match` and `round trip`")
    size = min(max(4, usable_cores() + 1), launch.MAX_RANKS)
    tried = f"{size} ranks on {counted(usable_cores(), 'core')}"
    # As the user's own commands would find it: without what the course sets for its own.
    environment = {
        k: v for k, v in launch.rank_environment().items() if k not in launch.OVERSUBSCRIBE or k in os.environ
    }
    done = run([launcher.path, "-np", str(size), "true"], DEADLINE, environment)
    if done.status == 0:
        return Finding("slots", f"starts {tried}")
    if "not enough slots" in done.output:
        variable = (
            "OMPI_MCA_rmaps_base_oversubscribe=1"
            if launcher.version.startswith(("1", "2", "3", "4"))
            else "PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe"
        )
        advice = f"`export {variable}`, or `mpirun --oversubscribe -np {size} ...`; `mpcourse` sets it itself"
        return Finding("slots", f"refuses {tried}", "note", advice)
    why = "no end within the deadline" if done.status is None else f"exit status {done.status}: {done.reason}"
    return Finding("slots", f"`mpirun -np {size} true` failed: {why}", "problem", "try `mpirun -np 2 hostname` first")
