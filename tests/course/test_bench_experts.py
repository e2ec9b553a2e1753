"""`mpcourse bench experts`: both sides compute the same. No time is asserted."""

import pytest

from mpcourse.course import forkserver
from mpcourse.course.bench.experts import CLOSE, SIDES, ExpertsCase
from mpcourse.course.bench.over_ranks import measured


@pytest.mark.parametrize("size", [1, 2, 4])
def test_both_sides_compute_what_one_process_does(mpirun, size):
    case = ExpertsCase(24, 8, 16, 2, 1, 1)
    (found,) = measured("mpcourse.course.bench.experts_ranks", [case], size, starter=forkserver.python())
    assert found["difference"] < CLOSE and found["seconds"].keys() == set(SIDES)
