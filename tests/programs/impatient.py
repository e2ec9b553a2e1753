"""`mpirun -np 2 python impatient.py FILE`: as `python FILE`, an exercise that checks itself, but it has less patience.

For tests that are about something else than that time: ranks that compute in an endless loop take a core until then.
"""

import runpy
import sys

from mpcourse.course.check import monitor

monitor.STILL, monitor.BLOCKED = 1.0, 0.7
sys.argv[:] = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
