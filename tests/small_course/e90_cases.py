"""What e90_mean is asked. Ranks find this module through PYTHONPATH."""

import numpy as np

from mpcourse.course.check.wrong import same


def check(answer, comm):
    x = np.arange(5.0) + comm.rank
    got = answer.call("mean", comm, x)
    same(got, np.arange(5.0) + (comm.size - 1) / 2, "the mean", rtol=1e-12)
