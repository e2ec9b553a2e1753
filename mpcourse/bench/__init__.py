"""Measurements, each a row with what was measured on which machine. Timings live here, not in tests."""

from mpcourse.bench.course import course
from mpcourse.bench.record import Record, show

BENCHMARKS = {"course": course}

__all__ = ["BENCHMARKS", "Record", "show"]
