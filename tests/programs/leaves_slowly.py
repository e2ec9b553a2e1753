"""An exercise that is not written, checked under mpirun by processes of which each leaves later than the one before."""

import sys
import time

from mpcourse.common.launch import launched_rank
from mpcourse.course.check import self_check

self_check._wait = lambda condition: time.sleep(0.4 * launched_rank())
self_check.check_this_file(sys.argv[1])
