"""A sandbox of Linux namespaces: a process that sees only some files, no network and no process but its own.

It needs no privileges where the system lets users make user namespaces. What is not shown is not there: the new root is
an empty tmpfs, into which the files that Python and MPI need are bound, read-only.
"""

import ctypes
import fcntl
import os
import platform
import re
import signal
import socket
import struct
import sys
from collections.abc import Sequence
from pathlib import Path

NAMESPACES = 0x00020000 | 0x04000000 | 0x08000000 | 0x10000000 | 0x20000000 | 0x40000000  # mnt uts ipc user pid net
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_BIND, MS_REC, MS_PRIVATE = 1, 2, 4, 4096, 16384, 1 << 18
MNT_DETACH, AT_FDCWD, AT_RECURSIVE, MOUNT_ATTR_RDONLY, MOUNT_ATTR_NOSUID = 2, -100, 0x8000, 1, 2
SYS_MOUNT_SETATTR = 442  # on every architecture
SYS_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 1, 4, 24, 38
SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 1
SYSTEM = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/sys/devices/system"] + [
    f"/etc/{name}"
    for name in ("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "passwd", "group", "localtime", "alternatives")
]
DEVICES = ("null", "zero", "full", "random", "urandom")
MACHINE = ("sys", "sysrq-trigger", "irq", "bus", "fs", "acpi", "scsi")  # of /proc; root could change the machine there
OWN_PID_MAX = (6, 14)  # the first Linux whose pid namespaces have one each; before, it is the machine's
ROOM = "size=512m"  # of /tmp and of shared memory, each

_libc = ctypes.CDLL(None, use_errno=True)


def enter(root: Path, shown: Sequence[Path], hidden: Sequence[Path], files: dict[str, str], most: int) -> bool:
    """Fork a process into namespaces of its own. True in that process; False in this one, once that has ended.

    root: an empty folder; the new root file system is mounted on it, and seen by the new process only.
    shown: files and folders that it may read, under their own paths, beside those of the system.
    hidden: folders that are empty there although they lie in one of `shown`.
    files: path from the root -> text; what else is to be there.
    most: how many processes, and threads, may be there at once. Linux before 6.14 has no such limit.

    The new process is the first of its process namespace: no other can kill it, and when it ends, all end.
    It has no capability, nor can it get one. Raises OSError where the system does not allow this. One thread only.
    """
    if platform.machine() not in SYS_PIVOT_ROOT:
        raise OSError(0, f"no sandbox is known for {platform.machine()}")
    user, group = os.getuid(), os.getgid()
    _do("unshare", _libc.unshare(NAMESPACES))
    for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        Path("/proc/self", name).write_text(text)
    reading, writing = os.pipe()
    if child := os.fork():
        os.close(writing)
        said = os.read(reading, 4096).decode()
        os.waitpid(child, 0)
        if said:
            raise OSError(0, said)
        return False
    os.close(reading)
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    try:
        _only(root, shown, hidden, files)
        _loopback()
        socket.sethostname("localhost")  # which MPI looks up, and there is no name service
        Path("/proc/sys/user/max_user_namespaces").write_text("0")  # in one of its own it would have capabilities
        if tuple(map(int, re.findall(r"\d+", platform.release())[:2])) >= OWN_PID_MAX:
            Path("/proc/sys/kernel/pid_max").write_text(str(most))
        for name in MACHINE:
            if os.path.exists(f"/proc/{name}"):
                _bind(f"/proc/{name}", f"/proc/{name}")
        _drop_capabilities()
    except OSError as error:
        os.write(writing, str(error.strerror or error).encode())
        os._exit(1)
    os.close(writing)
    return True


def keep_secret() -> None:
    """Let no other process of this user look into this one, at its memory or its open files."""
    if sys.platform == "linux":
        _libc.prctl(PR_SET_DUMPABLE, 0)


def _only(root: Path, shown: Sequence[Path], hidden: Sequence[Path], files: dict[str, str]) -> None:
    """Make the new root of what is shown, and go there."""
    _mount(None, "/", None, MS_REC | MS_PRIVATE)
    _mount("tmpfs", str(root), "tmpfs", MS_NOSUID | MS_NODEV, "mode=755,size=64m")
    for path in ("/tmp", "/dev", "/proc"):
        os.makedirs(f"{root}{path}", exist_ok=True)
    _mount("proc", f"{root}/proc", "proc", MS_NOSUID | MS_NODEV)
    _mount("tmpfs", f"{root}/tmp", "tmpfs", MS_NOSUID | MS_NODEV, ROOM)
    wanted = [*SYSTEM, *(str(path) for path in shown), *(os.path.realpath(path) for path in shown)]
    there: list[str] = []
    for path in sorted(set(wanted), key=lambda path: (path.count("/"), path)):
        if os.path.lexists(path) and not any(path.startswith(f"{above}/") for above in there):
            _show(path, f"{root}{path}")
            there.append(path)
    for path in sorted({os.path.realpath(path) for path in hidden}):
        if any(path.startswith(f"{above}/") or path == above for above in there) and os.path.isdir(path):
            _mount("tmpfs", f"{root}{path}", "tmpfs", MS_RDONLY | MS_NOSUID | MS_NODEV, "mode=755")
    for name in DEVICES:
        _show(f"/dev/{name}", f"{root}/dev/{name}", readonly=False)
    os.symlink("/proc/self/fd", f"{root}/dev/fd")
    os.mkdir(f"{root}/dev/shm")
    _mount("tmpfs", f"{root}/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, ROOM)
    for name, text in {"/etc/hosts": "127.0.0.1 localhost\n", **files}.items():
        os.makedirs(os.path.dirname(f"{root}{name}"), exist_ok=True)
        Path(f"{root}{name}").write_text(text, encoding="utf-8", errors="surrogateescape", newline="")
    os.chdir(root)
    _do("pivot_root", _libc.syscall(SYS_PIVOT_ROOT[platform.machine()], b".", b"."))
    _do("umount", _libc.umount2(b".", MNT_DETACH))  # the old root, which was put above the new one
    os.chdir("/")


def _show(path: str, target: str, readonly: bool = True) -> None:
    """Bind one file or folder into the new root; a symbolic link is made anew."""
    os.makedirs(os.path.dirname(target), exist_ok=True)
    if os.path.islink(path):
        os.symlink(os.readlink(path), target)
        return
    if os.path.isdir(path):
        os.makedirs(target, exist_ok=True)
    else:
        Path(target).touch()
    _bind(path, target, readonly)


def _bind(path: str, target: str, readonly: bool = True) -> None:
    _mount(path, target, None, MS_BIND | MS_REC)
    if readonly:
        wanted = struct.pack("QQQQ", MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID, 0, 0, 0)
        done = _libc.syscall(SYS_MOUNT_SETATTR, AT_FDCWD, target.encode(), AT_RECURSIVE, wanted, len(wanted))
        _do(f"mount_setattr {target}", done)


def _mount(source: str | None, target: str, kind: str | None, flags: int, options: str = "") -> None:
    arguments = (
        source and source.encode(),
        target.encode(),
        kind and kind.encode(),
        ctypes.c_ulong(flags),
        options.encode(),
    )
    _do(f"mount {target}", _libc.mount(*arguments))


def _loopback() -> None:
    """Set up the loopback device, over which ranks talk; there is no other device."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        flags = struct.unpack("16xH", fcntl.ioctl(any_socket, SIOCGIFFLAGS, struct.pack("16sH14x", b"lo", 0))[:18])[0]
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", flags | IFF_UP))


def _drop_capabilities() -> None:
    """Drop all capabilities for good: with them a process could undo what hides files."""
    for number in range(int(Path("/proc/sys/kernel/cap_last_cap").read_text()) + 1):
        _do("prctl", _libc.prctl(PR_CAPBSET_DROP, number, 0, 0, 0))
    header, none = struct.pack("Ii", 0x20080522, 0), struct.pack("6I", *[0] * 6)
    _do("capset", _libc.capset(header, none))
    _do("prctl", _libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))


def _do(what: str, result: int) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
