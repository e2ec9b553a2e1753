"""What a measured figure depends on: versions, and the processor."""

import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


def versions(*packages: str) -> dict[str, str]:
    """Return Python's version, and those of the packages that are installed."""
    by_package = {"python": platform.python_version()}
    for package in packages:
        try:
            by_package[package] = version(package)
        except PackageNotFoundError:
            continue
    return by_package


def processor() -> str:
    """Return the instruction set, and the processor's name where the system shows one."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    name = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    return f"{platform.machine()} {name}".strip()
