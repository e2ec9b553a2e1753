"""Exercise e15: how often should a job save?

A job computes for some time, then writes a checkpoint, and so on. If a machine dies, the job starts again and
continues from its last checkpoint. With few checkpoints, each failure loses much work. Many checkpoints take much
time themselves.

Failures come at random. A node is a machine, with several GPUs. If one node fails, the whole job stops.

Check it with `mpcourse check e15_interval`. Stuck? `mpcourse hint e15_interval`.
"""

import math

from mpcourse import check_this_file

if __name__ == "__main__":  # up here, so that all code below runs under the checker's watch
    check_this_file(__file__)


def best_interval(save, nodes, failures_per_1000_node_days):
    """Return how many seconds the job should compute between two checkpoints, by Young's formula.

    save: seconds to write a checkpoint, above 0. Meanwhile the job does not compute.
    nodes: how many machines the job has, 1 or more.
    failures_per_1000_node_days: how many failures 1000 machines have in one day, on average. It is above 0, and need
    not be an int. Machines fail independently of each other.

    With an interval t and a mean time M between two failures of the job, all in seconds, the share of the time that
    is lost is about save / t + t / (2 M). Return the t for which this is smallest, as a float, right to six digits.
    """
    # solution: the job's mean time between failures, and the best t
    between = 1000 * 24 * 3600 / failures_per_1000_node_days / nodes
    return math.sqrt(2 * save * between)
    # end of solution


def finish(work, interval, save, restart, failures):
    """Return when the job is done: how many seconds after its start.

    The job computes for `interval` seconds, writes a checkpoint, computes again, and so on. It also writes one at the
    end of its work, even if it has computed for less than `interval` seconds since the checkpoint before. The job is
    done when this last checkpoint is finished.

    work: seconds of computing that the job needs, above 0. What is lost has to be computed once more.
    interval: seconds of computing between two checkpoints, above 0.
    save: seconds to write a checkpoint, 0 or more. Meanwhile the job does not compute.
    restart: seconds from a failure until the job computes again, 0 or more. It then goes on from its last checkpoint,
    or from the beginning if there is none.
    failures: list of the times at which a machine fails, in seconds after the start, in ascending order. It may be
    empty. It is not changed.

    All times are ints or floats. Every failure before the job is done stops it, whatever it does at that time:

    - A checkpoint counts if it is finished before the failure comes, or exactly then. If it is the last one, the job
      is done.
    - A failure may also come during a restart. Then the restart begins again at the time of that failure.
    - Failures after the end do not matter.
    """
    # solution: go from one checkpoint or failure to the next
    now = kept = 0
    for failure in [*failures, math.inf]:
        while kept < work:
            part = min(interval, work - kept)
            if now + part + save > failure:
                break
            now, kept = now + part + save, kept + part
        if kept >= work:
            break
        now = failure + restart
    return now
    # end of solution
