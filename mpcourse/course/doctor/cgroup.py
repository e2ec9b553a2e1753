"""What a container or a scheduler leaves this process of the machine: the limits of its control groups (Linux, v2).

A limit holds for a group and all below it, so every group from this process's up to the root is read. Inside a
container the root that one sees is the container's own group. Source: Linux, Documentation/admin-guide/cgroup-v2.rst.
"""

from collections.abc import Iterator
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
OWN = Path("/proc/self/cgroup")


def cpu_quota() -> float | None:
    """Return how many cores' worth of time this process may use, or None where nothing limits it."""
    quotas = []
    for group in _groups():
        quota, period = (_read(group / "cpu.max") or "max 100000").split()
        if quota != "max":
            quotas.append(int(quota) / int(period))
    return min(quotas, default=None)


def memory_left() -> int | None:
    """Return how many bytes this process may still allocate, or None where nothing limits it."""
    left = []
    for group in _groups():
        limit, used = _read(group / "memory.max"), _read(group / "memory.current")
        if limit and used and limit != "max":
            # File pages that have not been touched lately count as used, but are given up when memory is needed.
            statistics = dict(line.split() for line in _read(group / "memory.stat").splitlines())
            left.append(int(limit) - int(used) + int(statistics.get("inactive_file", 0)))
    return min(left, default=None)


def _groups() -> Iterator[Path]:
    for line in _read(OWN).splitlines():
        if line.startswith("0::/"):
            group = ROOT / line.removeprefix("0::/")
            yield from (one for one in (group, *group.parents) if one.is_relative_to(ROOT))


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
