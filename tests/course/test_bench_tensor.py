"""`mpcourse bench tensor`: all sides learn the same. No time is asserted."""

from mpcourse.course import forkserver
from mpcourse.course.bench.over_ranks import measured
from mpcourse.course.bench.tensor import CLOSE, SIDES, TensorCase


def test_layers_of_all_sides_learn_the_same(mpirun):
    case = TensorCase(12, 2, 24, 6, 2, 1, 1)
    (found,) = measured("mpcourse.course.bench.tensor_ranks", [case], 3, starter=forkserver.python())
    assert found["difference"] < CLOSE and found["seconds"].keys() == set(SIDES)
    assert 0 < found["products"] < 1
