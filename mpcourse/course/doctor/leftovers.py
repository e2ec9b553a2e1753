"""Shared memory of MPI runs that were killed: it stays taken until it is removed."""

from mpcourse.common import shared_memory
from mpcourse.course.doctor.finding import Finding

LITTLE = 100e6  # bytes


def leftovers() -> Finding:
    """Find what this user's runs that ended out of order have left in this machine's shared memory."""
    left = shared_memory.abandoned()
    taken = sum(left.values())
    if not left:
        return Finding("shared memory", "nothing left of dead runs")
    value = f"{taken / 1e6:.0f} MB in {len(left)} files of dead runs"
    if taken < LITTLE:
        return Finding("shared memory", value)
    advice = (
        '`python -c "from mpcourse.common.shared_memory import tidy; tidy()"` gives it back; it spares runs that live'
    )
    return Finding("shared memory", value, "note", advice)
