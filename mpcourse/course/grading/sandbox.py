"""A sandbox by bubblewrap: a process that sees only some files, no network and no process but its own."""

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

SYSTEM = [Path(f"/{name}") for name in ("usr", "bin", "sbin", "lib", "lib32", "lib64", "sys/devices/system")] + [
    Path(f"/etc/{name}") for name in ("alternatives", "group", "hosts", "ld.so.cache", "localtime", "passwd")
]
ROOM = 512 << 20  # bytes of /tmp and of shared memory, each


def sandboxed(command: Sequence[str], shown: Sequence[Path] = (), hidden: Sequence[Path] = ()) -> list[str]:
    """Return the command that runs `command` in a sandbox, from the same folder and in the same environment.

    shown: files and folders that it may read, under their own paths, beside the system's. hidden: folders that are
    empty there although they lie in one of `shown`. Only /tmp and shared memory can be written, and end with it.

    The command is process 1 there: nothing that it starts can kill it, and all ends when it does, or when the process
    ends that has started it.
    """
    arguments = ["bwrap", "--unshare-all", "--as-pid-1", "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
    arguments += ["--hostname", "localhost", "--proc", "/proc", "--dev", "/dev"]  # MPI looks up the host's name
    arguments += ["--ro-bind", "/proc/sys", "/proc/sys"]  # the kernel's settings, which root could change there
    for folder in ("/tmp", "/dev/shm"):
        arguments += ["--size", str(ROOM), "--tmpfs", folder]
    there: list[Path] = []
    for path in sorted({*SYSTEM, *shown, *map(Path.resolve, shown)}):
        if not any(path.is_relative_to(above) for above in there):
            arguments += ["--ro-bind-try", str(path), str(path)]
            there.append(path)
    for path in map(Path.resolve, hidden):
        if path.is_dir() and any(path.is_relative_to(above) for above in there):
            arguments += ["--tmpfs", str(path), "--remount-ro", str(path)]
    return [*arguments, "--remount-ro", "/", "--", *command]


def why_none() -> str:
    """Return why no sandbox can be made here; an empty text where one can."""
    if sys.platform != "linux":
        return "bubblewrap, which makes it, only exists for Linux"
    if not shutil.which("bwrap"):
        return "bubblewrap is not installed: sudo apt-get install bubblewrap"
    done = subprocess.run(sandboxed(["true"]), capture_output=True, text=True, cwd="/")
    return "" if done.returncode == 0 else (done.stderr.strip() or f"bwrap failed: {done.returncode}").splitlines()[-1]
