"""`mpcourse doctor`: look at this machine and say, topic by topic, what the course will find and how to mend it.

With `--hosts a,b` at several machines, stage by stage.
"""

from mpcourse.course.doctor.finding import Finding
from mpcourse.course.doctor.hosts import examine_hosts
from mpcourse.course.doctor.table import report
from mpcourse.course.doctor.topics import examine

__all__ = ["Finding", "examine", "examine_hosts", "report"]
