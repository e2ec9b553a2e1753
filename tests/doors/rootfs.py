"""Root file systems of a test's own, as of an image and its containers: layers over this machine's, in namespaces.

Of this machine only the operating system is seen, /etc, /usr and /var, without /usr/local, and with this Python in its
place, as Docker's image of Python has it. What is written goes to a folder. All mounts are made in a mount namespace of
a process's own, and end with it.
"""

import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

SYSTEM = ("bin", "sbin", "lib", "lib32", "lib64", "libx32", "usr", "etc", "var")
TOOLS = ("unshare", "setpriv", "mount", "chroot", "ip")
ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}
SHM = "size=64m"  # of shared memory, which is what Docker gives a container by default
UNWANTED = ("site-packages", "test", "idlelib", "__pycache__", "config-*")  # of the Python that is copied
# For each overlay its options and where it is mounted, and "--"; the last of them becomes the root file system.
ENTER = """
export PATH="$PATH:/usr/sbin:/sbin"
mount --make-rprivate /
while [ "$1" != -- ]; do
    mount -t overlay overlay -o "$1" "$2"
    cd "$2"
    shift 2
done
shift
hostname container
ip link set lo up
mount -t proc proc proc
mount --bind proc/sys proc/sys
mount --rbind /sys sys
for name in proc/sys sys; do mount -o remount,bind,ro $name; done # there root could change the machine
mount -t tmpfs -o mode=755 tmpfs dev
for name in null zero full random urandom tty; do : >dev/$name; mount --bind /dev/$name dev/$name; done
ln -s /proc/self/fd dev/fd; ln -s fd/0 dev/stdin; ln -s fd/1 dev/stdout; ln -s fd/2 dev/stderr
mkdir dev/pts dev/shm
mount -t devpts -o newinstance,ptmxmode=0666 devpts dev/pts
ln -s pts/ptmx dev/ptmx
mount -t tmpfs -o "$1,mode=1777" tmpfs dev/shm
shift
"""
# Folders of this machine that are to be seen, up to "--"; user:group; working folder; the command.
INSIDE = """
while [ "$1" != -- ]; do
    if [ -d "$1" ]; then mkdir -p "./$1"; else mkdir -p "./$(dirname "$1")"; : >>"./$1"; fi
    mount --bind -o ro "$1" "./$1"
    shift
done
who=$2 folder=$3
shift 3
exec chroot --userspec="$who" . sh -c 'cd "$0" && exec "$@"' "$folder" "$@"
"""


class NotMade(Exception):
    """A root file system could not be made; the message is what the system said."""


@cache
def not_allowed(folder: Path) -> str:
    """Why root file systems cannot be made in `folder`; empty where they can."""
    if sys.platform != "linux":
        return "namespaces are Linux's"
    if os.geteuid() != 0:
        return "only root may mount what a root file system is made of"
    path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    if missing := [tool for tool in TOOLS if not shutil.which(tool, path=path)]:
        return f"{', '.join(missing)} not found: apt-get install util-linux iproute2"
    trial = folder / "trial"
    try:
        done = Layer(trial).run("true")
        return "" if done.returncode == 0 else f"this machine lets us make no root file system: {done.stdout.strip()}"
    except OSError as error:
        return f"this machine lets us make no root file system: {error}"
    finally:
        shutil.rmtree(trial, ignore_errors=True)


class Layer:
    """What differs from the layers below it, in `folder`/files. below: the one under it; None for this machine."""

    def __init__(self, folder: Path, below: "Layer | None" = None) -> None:
        self.folder, self.below = folder, below
        self.files, self.work, self.root = folder / "files", folder / "work", folder / "root"
        for path in (self.files, self.work, self.root):
            path.mkdir(parents=True)
        if below is None:
            self._hide_this_machine()

    def _hide_this_machine(self) -> None:
        """Only the operating system is seen, and of its users no person."""
        shown = [*SYSTEM, "proc", "sys", "dev", "tmp", "run", "root", "home"]
        for path in Path("/").iterdir():
            if path.name not in SYSTEM and not path.is_symlink() and path.is_dir():
                self._empty(path.name)
        for name in shown[len(SYSTEM) :]:
            (self.files / name).mkdir(exist_ok=True)
        (self.files / "tmp").chmod(0o1777)
        (self.files / "root").chmod(0o700)
        for name in ("usr/local", "etc/xdg", "var/tmp"):
            self._empty(name)
        (self.files / "var/tmp").chmod(0o1777)
        (self.files / "etc/pip.conf").write_text("")
        for name in ("passwd", "group", "shadow", "gshadow"):
            lines = Path("/etc", name).read_text().splitlines(keepends=True) if Path("/etc", name).exists() else []
            users = {line.split(":")[0] for line in Path("/etc/passwd").read_text().splitlines() if _is_person(line)}
            (self.files / "etc" / name).write_text("".join(line for line in lines if line.split(":")[0] not in users))

    def _empty(self, name: str) -> None:
        """Make a folder that shows nothing of the one below it."""
        (self.files / name).mkdir(parents=True, exist_ok=True)
        os.setxattr(self.files / name, "trusted.overlay.opaque", b"y")

    def layers(self) -> list["Layer"]:
        """Itself and all layers below, the upper ones first."""
        return [self, *(self.below.layers() if self.below else [])]

    def overlays(self) -> list[str]:
        """Options of the overlays that make this root file system, each with where it is mounted.

        The kernel refuses layers of which one lies in another, as all do in this machine's files. So the lowest layer
        is mounted over these, and the others over that. Nobody writes into the lowest then, and several may use it.
        """
        *above, base = self.layers()
        shared = ",index=off" if above else ""
        told = [f"lowerdir=/,upperdir={base.files},workdir={base.work}{shared}", str(base.root)]
        if above:
            lower = ":".join(str(path) for path in [*(layer.files for layer in above[1:]), base.root])
            told += [f"lowerdir={lower},upperdir={self.files},workdir={self.work}", str(self.root)]
        return told

    def home_of(self, user: str) -> str:
        """Return the home folder of a user, by name or number; / for one without a name."""
        for layer in self.layers():
            if (users := layer.files / "etc/passwd").is_file():
                rows = [line.split(":") for line in users.read_text().splitlines()]
                return next((row[5] for row in rows if user.split(":")[0] in (row[0], row[2])), "/")
        return "/"

    def command(
        self,
        *command: str,
        user: str = "root",
        folder: str = "/",
        environment: dict[str, str] | None = None,
        network: bool = False,
        shown: tuple[str, ...] = (),
        script: str = INSIDE,
    ) -> list[str]:
        """Return the command line that runs `command` in this root file system, as the first of its processes.

        network: this machine's; otherwise there is none but that of the container with itself.
        shown: files and folders of this machine that are there, too, and cannot be written. script: instead of INSIDE.
        """
        variables = ENVIRONMENT | {"HOME": self.home_of(user)} | (environment or {})
        spaces = ["--mount", "--pid", "--ipc", "--uts", *([] if network else ["--net"])]
        inside = ["env", "-i", *(f"{name}={value}" for name, value in variables.items()), *command]
        return [
            *["setpriv", "--pdeathsig", "KILL", "unshare", *spaces, "--fork", "--kill-child"],
            *["sh", "-ec", ENTER + script, "enter"],
            *[*self.overlays(), "--", SHM],
            *([*shown, "--", user, folder, *inside] if script is INSIDE else command),
        ]

    def run(self, *command: str, timeout: float = 240, **options) -> subprocess.CompletedProcess[str]:
        """Run `command`, as `command(...)` has it, until the deadline. Its output and its errors are in `stdout`."""
        return subprocess.run(
            self.command(*command, **options),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            timeout=timeout,
        )

    def do(self, *command: str, **options) -> str:
        """Return what `command` printed. Raises NotMade where it fails."""
        done = self.run(*command, **options)
        if done.returncode:
            raise NotMade(f"{' '.join(command)}: exit status {done.returncode}\n{done.stdout}")
        return done.stdout

    def copy(self, source: Path, target: str) -> None:
        """Copy a file or a folder of this machine, as root's, to the path `target`; one that ends with / is a folder.

        Of a folder its contents are copied.
        """
        script = 'if [ -d "$1" ]; then mkdir -p ".$2"; cp -R "$1/." ".$2"; else\n'
        script += 'case $2 in */) mkdir -p ".$2";; *) mkdir -p ".$(dirname "$2")";; esac; cp "$1" ".$2"; fi'
        self.do(str(source), target, script=script, network=True)


def _is_person(line: str) -> bool:
    return 1000 <= int(line.split(":")[2]) < 65000


def with_python(folder: Path) -> Layer:
    """Make a root file system with this Python, and pip, in /usr/local, to replace Docker's image of Python."""
    layer = Layer(folder)
    prefix, local = Path(sys.base_prefix), layer.files / "usr/local"
    if prefix in (Path("/usr"), Path("/usr/local")):  # Debian's own, which is there
        if prefix == Path("/usr/local"):
            shutil.copytree(prefix, local, symlinks=True, dirs_exist_ok=True)
        else:
            layer.do("/usr/bin/python3", "-m", "venv", "/usr/local")
        return layer
    (local / "bin").mkdir()
    for name in (f"python3.{sys.version_info.minor}", "python3", "python"):
        shutil.copy2(prefix / "bin" / name, local / "bin" / name, follow_symlinks=False)
    shutil.copytree(prefix / "lib", local / "lib", symlinks=True, ignore=shutil.ignore_patterns(*UNWANTED))
    (local / "lib" / f"python3.{sys.version_info.minor}" / "site-packages").mkdir()
    layer.do("ldconfig")
    layer.do("python3", "-m", "ensurepip", "--default-pip")
    return layer
