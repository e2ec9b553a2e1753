"""Hosts for a test: Linux namespaces with an address, a name, an sshd and a 1 Gbit/s link each, on this machine.

    with hosts(2) as (a, b):
        a.run("ssh", "b", "hostname")

A host is a process, and all that it is made of (network, name, processes, mounts) ends with that process: nothing of it
is in the machine's own tables or files. The hosts share the file system, as a cluster's nodes share home folders; but
root's home folder, /etc/hosts, /run, /dev/shm and the boot's id, by which MPI knows shared memory, are each host's own.
"""

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import psutil

NAMES = "abcdefgh"
SUBNET = "10.77.0"
LINK = "rate 1gbit burst 128kb latency 50ms"
PASSWORD = "four words in a row"  # root's, on all hosts
HASHED = "$6$mpcourse$R0iEl/K10SA9dg6MAmT2/jBL5yTkHSUUiHw8thAW3uOCkHIPYqa1oCUx03ODeiP5kioq4bnwf7Ae/ofsgTPZV/"
NAMESPACES = ("--net", "--uts", "--ipc", "--pid", "--mount")
TOOLS = ("unshare", "nsenter", "mount", "ip", "tc", "ssh", "ssh-keygen")
os.environ["PATH"] = os.pathsep.join(
    (os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin")
)  # where tc and sshd are
SSHD = shutil.which("sshd")

# The first process of a host. It ends with the test, whatever becomes of that: its standard input is closed then.
INIT = """
set -e
hostname "$1"
mount -t tmpfs tmpfs /run
mkdir /run/sshd
mount -t tmpfs tmpfs /dev/shm
mount --bind "$2/boot_id" /proc/sys/kernel/random/boot_id
mount --bind "$2/hosts" /etc/hosts
mount --bind "$2/passwd" /etc/passwd
mount --bind "$2/shadow" /etc/shadow
ip link set lo up
trap '' CHLD  # let no zombie stay
echo ready
exec cat
"""


class NotMade(Exception):
    """A host could not be made; the message is what the system said."""


@cache
def not_allowed() -> str:
    """Why hosts cannot be made here; empty where they can."""
    if sys.platform != "linux":
        return "namespaces are Linux's"
    if missing := [tool for tool in TOOLS if not shutil.which(tool)] + ([] if SSHD else ["sshd"]):
        return f"{', '.join(missing)} not found: apt-get install iproute2 openssh-server"
    if os.geteuid() != 0:
        return "only root may make namespaces with addresses of their own"
    try:
        with hosts(1):
            return ""
    except NotMade as error:
        return f"this machine lets us make no hosts: {error}"


@contextlib.contextmanager
def hosts(count: int) -> Iterator[list["Host"]]:
    """`count` hosts on one switch: a, b, ... Each may log in to each by ssh, with a key and no question."""
    with tempfile.TemporaryDirectory(prefix="mpcourse-hosts-") as name, contextlib.ExitStack() as made:
        folder = Path(name)
        for key in ("user", "host"):
            _do(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / key)])
        switch, *found = (Host(NAMES[i - 1] if i else "switch", i, folder) for i in range(count + 1))
        names = "127.0.0.1 localhost\n" + "".join(f"{host.address} {host.name}\n" for host in found)
        for host in (switch, *found):
            made.callback(host.end)
            host.start(names)
        switch.do("ip link add br0 type bridge && ip link set br0 up")
        for host in found:
            port = f"to-{host.name}"
            _do(["nsenter", f"--net=/proc/{switch.init}/ns/net", "ip", "link", "add", port, "type", "veth"]
                + ["peer", "name", "eth0", "netns", str(host.init)])  # fmt: skip
            switch.do(f"ip link set {port} master br0 up && tc qdisc add dev {port} root tbf {LINK}")
            host.do(f"ip addr add {host.address}/24 dev eth0 && ip link set eth0 up")
            host.do(f"tc qdisc add dev eth0 root tbf {LINK}")
            host.start_sshd()
        yield found


class Host:
    """One host. name, address; folder: its files; home: root's home folder there, with the key that opens all hosts.

    tmp: for temporary files, as /tmp of a real one. MPI names its own by process ids, which are each host's own.
    """

    def __init__(self, name: str, number: int, keys: Path) -> None:
        self.name, self.address, self.keys = name, f"{SUBNET}.{number}", keys
        self.folder = keys / name
        self.home, self.tmp = self.folder / "home", self.folder / "tmp"
        self.process: subprocess.Popen[bytes] | None = None
        self.init = 0
        self.own: set[int] = set()

    def start(self, names: str) -> None:
        """Start the first process, with the files that this host has for itself. names: its /etc/hosts."""
        ssh = self.home / ".ssh"
        ssh.mkdir(parents=True, mode=0o700)
        self.tmp.mkdir()
        shutil.copy(self.keys / "user", ssh / "id_ed25519")
        shutil.copy(self.keys / "user.pub", ssh / "authorized_keys")
        key = (self.keys / "host.pub").read_text()
        (ssh / "known_hosts").write_text("".join(f"{line.split()[1]} {key}" for line in names.splitlines()))
        (self.folder / "hosts").write_text(names)
        passwd = re.sub(r"(?m)^(\w+:[^:]*:0:\d+:[^:]*:)[^:]*", rf"\1{self.home}", Path("/etc/passwd").read_text())
        (self.folder / "passwd").write_text(passwd)
        (self.folder / "shadow").write_text(f"root:{HASHED}:1::::::\n")
        (self.folder / "boot_id").write_text(f"00000000-0000-0000-0000-{os.urandom(6).hex()}\n")
        self.process = subprocess.Popen(
            ["unshare", *NAMESPACES, "--fork", "--kill-child", "--mount-proc"]
            + ["sh", "-c", INIT, "init", self.name, str(self.folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        assert self.process.stdout
        if (said := self.process.stdout.readline().decode()) != "ready\n":
            raise NotMade(said.strip() or "unshare says nothing")
        (init,) = psutil.Process(self.process.pid).children()
        self.init = init.pid

    def start_sshd(self, **settings: str) -> None:
        """Start sshd. settings: of sshd_config, such as PermitRootLogin="no"."""
        log, config = self.folder / "sshd.log", self.folder / "sshd_config"
        given = {"HostKey": self.keys / "host", "StrictModes": "no", "UsePAM": "no", "PidFile": "none"}
        # A course that is not installed is found there as it is here.
        variables = {"TMPDIR": str(self.tmp)} | {k: v for k, v in os.environ.items() if k == "PYTHONPATH"}
        given |= {"PermitRootLogin": "yes", "SetEnv": " ".join(f"{name}={value}" for name, value in variables.items())}
        config.write_text("".join(f"{name} {value}\n" for name, value in (given | settings).items()))
        log.unlink(missing_ok=True)
        self.do(f"{SSHD} -f {config} -E {log}")
        deadline = time.monotonic() + 10
        while "listening" not in (log.read_text() if log.exists() else ""):
            if time.monotonic() > deadline:
                raise NotMade(f"sshd does not listen: {log.read_text() if log.exists() else 'it says nothing'}")
            time.sleep(0.01)
        self.own = {one.pid for one in self.processes()}

    def stop_sshd(self) -> None:
        for one in self._inside():
            if one.pid in self.own:
                one.kill()

    def command(self, *command: object) -> list[str]:
        """Return the command line that runs `command` on this host, in the current folder."""
        enter = ["nsenter", "--target", str(self.init), *NAMESPACES, f"--wd={os.getcwd()}"]
        return [*enter, "env", f"HOME={self.home}", f"TMPDIR={self.tmp}", *map(str, command)]

    def run(self, *command: object, timeout: float = 60, **more) -> subprocess.CompletedProcess[str]:
        """Run `command` on this host, and wait for it until the deadline.

        It has an input without end, as in a terminal. At its end MPICH's mpirun may die of SIGPIPE: see doctor.
        """
        reading, writing = os.pipe()
        with open(reading) as silent, open(writing, "w"):
            return subprocess.run(
                self.command(*command), capture_output=True, text=True, stdin=silent, timeout=timeout, **more
            )

    def do(self, script: str) -> str:
        """Run a shell script on this host; what it printed. Raises NotMade where it fails."""
        return _do(self.command("sh", "-ec", script))

    def processes(self) -> list[psutil.Process]:
        """Return what runs on this host, except what makes it a host."""
        return [one for one in self._inside() if one.pid != self.init and one.pid not in self.own]

    def _inside(self) -> list[psutil.Process]:
        found = []
        space = os.readlink(f"/proc/{self.init}/ns/pid")
        for one in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                if os.readlink(f"/proc/{one.pid}/ns/pid") == space and one.status() != psutil.STATUS_ZOMBIE:
                    found.append(one)
        return found

    def end(self) -> None:
        """End the host, and with its first process all others of it, as the kernel has it."""
        if self.process:
            try:
                self.process.communicate(timeout=10)  # closes its standard input
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


def _do(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=30)
    if done.returncode:
        raise NotMade(f"{' '.join(command[-3:])}: {(done.stderr or done.stdout).strip()}")
    return done.stdout
