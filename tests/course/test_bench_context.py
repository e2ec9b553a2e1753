"""`mpcourse bench context`: all sides compute the same. No time is asserted."""

from mpcourse.course import forkserver
from mpcourse.course.bench.context import CLOSE, SIDES, ContextCase
from mpcourse.course.bench.over_ranks import measured


def test_attention_of_all_sides_is_that_of_one_process(mpirun):
    case = ContextCase(96, 4, 8, 1, 1)
    (found,) = measured("mpcourse.course.bench.context_ranks", [case], 4, starter=forkserver.python())
    assert found["difference"] < CLOSE and found["seconds"].keys() == set(SIDES)
    assert 0 < found["kernel"] < 1
