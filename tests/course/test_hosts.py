"""Several machines, really: hosts with an sshd and a link each. What the doctor says of them, sound and broken."""

import json
import math
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from mpcourse.common import launch
from mpcourse.common.quiet import BUSY, Noise, refuse_if_busy
from mpcourse.course.bench.two_hosts import PARAMETERS, RANKS, as_measured, predicted
from mpcourse.course.doctor import hosts as doctor_hosts
from mpcourse.course.doctor import ranks, subprocesses
from mpcourse.models import mlp
from mpcourse.studies.compare import mean_of
from tests.conftest import ROOT, started_here
from tests.hosts import Host, hosts, not_allowed
from tests.hosts_forks import STARTER, forks
from tests.lesson_prose import unprinted, unsaid

on_hosts = pytest.mark.skipif(bool(not_allowed()), reason=not_allowed())
nft = pytest.mark.skipif(not shutil.which("nft"), reason="nft not found: apt-get install nftables")
in_environment = pytest.mark.skipif(sys.prefix == sys.base_prefix, reason="Python is not in a virtual environment")
PATH = f"{Path(sys.executable).parent}:{Path(launch.find_mpirun()).parent}"
IMPATIENT = 6 if launch.mpirun().implementation == "MPICH" else 10  # seconds until a run counts as stuck
DOCTOR = """
import sys
from mpcourse.course.doctor import hosts
from mpcourse.course.cli import main
hosts.DEADLINE = float(sys.argv[1])
main(["doctor", *sys.argv[2:]])
"""
FIREWALL = """
nft add table inet wall
nft add chain inet wall in '{ type filter hook input priority 0; policy drop; }'
nft add rule inet wall in ct state established,related accept
nft add rule inet wall in iif lo accept
nft add rule inet wall in tcp dport 22 accept
"""


def doctor(
    host: Host, names: str, *more: str, environment: dict[str, str] | None = None, patience: float = 20
) -> dict[str, dict]:
    """`mpcourse doctor --hosts NAMES --json` on `host`, by topic; "status" is its exit status."""
    given = [f"{name}={value}" for name, value in (environment or {}).items()]
    done = host.run("env", *given, sys.executable, "-P", "-c", DOCTOR, patience, "--hosts", names, "--json", *more)
    assert done.returncode in (0, 1), done.stderr
    printed = json.loads(done.stdout)
    assert printed["ok"] == (done.returncode == 0)
    return {"status": done.returncode} | {finding["topic"]: finding for finding in printed["findings"]}


def quiet(*all_hosts: Host) -> bool:
    """Whether nothing runs on the hosts that is not there for ever; an sshd may take a moment to end a session."""
    deadline = time.monotonic() + 5
    while any(host.processes() for host in all_hosts) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not [asked(one) for host in all_hosts for one in host.processes()]


def asked(process: psutil.Process) -> list[str]:
    """Return the command line of a process; empty if it has ended since it was found."""
    try:
        return process.cmdline()
    except psutil.Error:
        return []


@contextmanager
def on_path(*all_hosts: Host):
    """Add the cure of PATH: a line above the one that ends ~/.bashrc for shells without a terminal."""
    for host in all_hosts:
        (host.home / ".bashrc").write_text(f"PATH={PATH}:$PATH\necho welcome\n[ -z $PS1 ] && return\n")
    yield


@on_hosts
def test_a_host_is_a_machine_of_its_own():
    with hosts(2) as (a, _b):
        asked = "hostname; cat /proc/sys/kernel/random/boot_id; ls /proc | grep -c '^[0-9]'"
        here, there = a.do(asked).split(), a.do(f"ssh -o BatchMode=yes b '{asked}'").split()
        assert (here[0], there[0]) == ("a", "b")
        assert here[1] != there[1]
        assert int(here[2]) < 10  # it sees its own processes only


@on_hosts
def test_the_link_lets_no_more_through_than_its_rate():
    send = "import socket; s = socket.create_connection(('b', 5000)); s.sendall(bytes(20_000_000)); s.close()"
    take = (
        "import socket, time; l = socket.create_server(('', 5000)); print(flush=True); s = l.accept()[0]\n"
        "n, t = 0, time.time()\nwhile d := s.recv(1 << 20): n += len(d)\nprint(n / (time.time() - t))"
    )
    with hosts(2) as (a, b):
        taker = subprocess.Popen(b.command(sys.executable, "-c", take), stdout=subprocess.PIPE, text=True)
        assert taker.stdout and taker.stdout.readline() == "\n"
        a.do(f'{sys.executable} -c "{send}"')
        rate = float(taker.communicate(timeout=30)[0])  # bytes/s; a busy machine makes it less
    assert rate < 1.05 * 1e9 / 8


@on_hosts
def test_hosts_leave_nothing_whatever_happens():
    def state() -> tuple:
        files = (Path(name).read_text() for name in ("/proc/self/mountinfo", "/etc/hosts", "/etc/passwd"))
        return *files, sorted(os.listdir("/sys/class/net")), Path("/dev/shm/left by a test").exists()

    before = state()
    with pytest.raises(ZeroDivisionError), hosts(2) as (a, b):
        a.do("ssh b 'sleep 1000 >&- 2>&- & echo x > \"/dev/shm/left by a test\"'")
        end = time.monotonic() + 10  # ssh's own processes on b take a moment to go
        while len(b.processes()) > 1 and time.monotonic() < end:
            time.sleep(0.05)
        pids = [a.init, b.init, *a.own, *b.own, *(one.pid for one in b.processes())]
        assert len(pids) == 5
        1 / 0  # noqa: B018
    assert state() == before
    assert not any(psutil.pid_exists(pid) for pid in pids)
    assert not a.folder.exists()


@on_hosts
def test_hosts_end_with_a_test_that_is_killed():
    program = "from tests.hosts import hosts\nwith hosts(2) as (a, b): print(a.init, b.init, flush=True); input()"
    tests = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT)
    assert tests.stdout
    pids = [int(pid) for pid in tests.stdout.readline().split()]
    folder = Path(f"/proc/{pids[0]}/environ")
    assert folder.exists()
    tests.kill()
    tests.communicate(timeout=10)
    deadline = time.monotonic() + 10
    while (any(map(psutil.pid_exists, pids)) or started_here()) and time.monotonic() < deadline:
        time.sleep(0.01)  # what started them ends a moment after they have
    assert not any(map(psutil.pid_exists, pids))


@pytest.mark.ranks
@on_hosts
def test_a_message_goes_round_three_sound_hosts():
    with hosts(3) as (a, b, c), on_path(b, c):
        found = doctor(a, "a,b,c")
        assert found.pop("status") == 0
        assert list(found) == ["a", "b", "c", "ranks"]
        assert {topic: finding["status"] for topic, finding in found.items() if finding["status"] != "ok"} == {}
        assert found["a"]["value"].startswith(f"this machine: Python {platform.python_version()}, mpcourse ")
        told = re.fullmatch(
            r"a message went round a, b, c; [\d.e+]+ us each way \(8 bytes\), ([\d.]+) GB/s \(4 MB\) .*",
            found["ranks"]["value"],
        )
        assert told and 0 < float(told[1]) <= 0.13  # over the link, and not in shared memory
        assert quiet(a, b, c)


@on_hosts
def test_each_reason_why_ssh_fails_has_a_next_command():
    with hosts(5) as (a, b, c, d, e):
        b.stop_sshd()
        (c.home / ".ssh/authorized_keys").write_text("")
        lines = (a.home / ".ssh/known_hosts").read_text().splitlines()
        (a.home / ".ssh/known_hosts").write_text("\n".join(line for line in lines if not line.startswith("d ")) + "\n")
        e.do("ip link set eth0 down")
        found = doctor(a, "b,c,d,e,nowhere")
        assert found["status"] == 1
        told = {
            "b": ("no sshd runs on b", "sudo apt-get install openssh-server"),
            "c": ("asks for a password", "ssh-copy-id c"),
            "d": ("does not know the host key", "ssh d true"),
            "e": ("e does not answer", "ping e"),
            "nowhere": ("knows no address of nowhere", "echo ADDRESS nowhere | sudo tee -a /etc/hosts"),
        }
        for name, (value, command) in told.items():
            finding = found[name]
            assert finding["status"] == "problem", finding
            assert value in finding["value"] and finding["command"].startswith(command), finding
        assert "ranks" not in found
        assert quiet(a, b, c, d, e)


@on_hosts
@in_environment
def test_another_path_other_versions_and_a_path_variable_that_lacks_them_are_found():
    with hosts(4) as (a, b, c, d), on_path(d):
        b.do(f"mount -t tmpfs tmpfs {sys.prefix}")  # no such Python
        c.do("")  # it is there, but PATH does not say so
        site = next(path for path in map(Path, sys.path) if (path / "torch").is_dir())
        (d.folder / "version.py").write_text((site / "torch/version.py").read_text() + "\n__version__ = '1.0.0'\n")
        d.do(f"mount --bind {d.folder}/version.py {site}/torch/version.py")
        found = doctor(a, "b,c,d")
        assert found["status"] == 1
        assert (
            f"{sys.executable}: No such file" in found["b"]["value"]
            and "share the folder of the course (NFS)" in found["b"]["advice"]
        )
        assert found["c"]["status"] == "note" and "by ssh `python` is " in found["c"]["value"]
        assert f"`PATH={Path(sys.executable).parent}:$PATH`" in found["c"]["advice"]
        assert found["d"]["value"].startswith("torch 1.0.0, here ")
        assert found["d"]["command"] == f"ssh d 'cd {ROOT} && make setup'"
        assert "ranks" not in found
        assert quiet(a, b, c, d)


@pytest.mark.ranks
@on_hosts
def test_a_host_that_does_not_know_the_name_of_this_machine_is_told_if_the_launcher_needs_it():
    with hosts(2) as (a, b), on_path(b):
        (b.folder / "hosts").write_text("127.0.0.1 localhost\n")
        finding = doctor(a, "a,b")["ranks"]
        if launch.mpirun().implementation == "Open MPI":  # it tells addresses
            assert finding["status"] == "ok"
        else:
            assert finding["status"] == "problem" and finding["advice"] == "each host must know the name a, too"


@pytest.mark.timeout(400)
@pytest.mark.ranks
@nft
@on_hosts
def test_a_firewall_is_found_between_hosts_and_before_this_one_and_its_cure_works():
    with hosts(3) as (a, b, c), on_path(b, c):
        for host in (b, c):
            host.do(FIREWALL)
        finding = doctor(a, "b,c", patience=IMPATIENT)["ranks"]
        assert finding["status"] == "problem" and "a firewall is in the way" in finding["advice"]
        assert "c waits for a message from b" in finding["value"]
        a.do(FIREWALL)
        before = doctor(a, "a,b", patience=IMPATIENT)["ranks"]
        assert (before["command"], before["advice"]) == (finding["command"], finding["advice"])
        settings = finding["command"].removeprefix("export ")
        for host in (a, b, c):
            host.do("nft add rule inet wall in tcp dport 50000-50299 accept")
        cured = doctor(a, "a,b", environment=dict(setting.split("=", 1) for setting in settings.split()))
        assert cured["status"] == 0


@pytest.mark.ranks
@on_hosts
def test_a_network_that_does_not_join_the_hosts_is_found_if_mpi_tries_it():
    with hosts(2) as (a, b), on_path(b):
        for host in (a, b):
            host.do(
                "ip link add docker0 type bridge && ip addr add 172.17.0.1/16 dev docker0 && ip link set docker0 up"
            )
        found = doctor(a, "a,b")
        if launch.mpirun().implementation == "Open MPI":
            finding = found["ranks"]
            assert finding["command"] == "export OMPI_MCA_btl_tcp_if_include=eth0" and "docker0" in finding["advice"]
            found = doctor(a, "a,b", environment={"OMPI_MCA_btl_tcp_if_include": "eth0"})
        assert found["status"] == 0


def test_the_interface_by_which_ssh_comes_is_named_if_it_cures_what_fails(monkeypatch):
    facts = [{"launched": rank, "host": "ab"[rank]} for rank in range(2)] + [{"received": 1}]
    given = []

    def start(names, ssh, more=None):
        given.append(more)
        return subprocesses.CompletedCommand(0 if more else None, ""), facts

    monkeypatch.setattr(doctor_hosts, "_start", start)
    finding = doctor_hosts._ranks(["a", "b"], "ssh", "eth7")
    assert finding.command == f"export {doctor_hosts._for_this_mpi(doctor_hosts.INTERFACE)}=eth7"
    assert finding.value.startswith("a waits for a message from b") and len(given) == 2


@pytest.mark.ranks
@on_hosts
def test_what_two_hosts_sum_crosses_the_link_and_takes_what_its_formula_says_or_more():
    command = launch.hosts_command(["a", "b"], STARTER.command("-P", str(RANKS), "2", "1"))
    environment = launch.rank_environment(one_machine=False)
    given = [f"{name}={value}" for name, value in environment.items() if name != "TMPDIR"]
    with hosts(2) as (a, b), forks([a, b]):

        def sent() -> int:
            return json.loads(a.do("ip -json -stats link show eth0"))[0]["stats64"]["tx"]["bytes"]

        before = sent()
        done = a.run("env", *given, *command)
        assert done.returncode == 0, done.stderr
        moved = sent() - before
    facts = ranks.read_facts(done.stdout)
    seconds = {fact["what"]: fact["seconds"] for fact in facts if "what" in fact}
    assert {what: len(runs) for what, runs in seconds.items()} == dict.fromkeys(seconds, 1)
    least = predicted(2, 1e9 / 8)  # at two ranks, each sends what it has, once
    for what in ("flat", "bucketed", "all-reduce", "MPI's all-reduce"):
        assert seconds[what][0] > 0.95 * least, what  # noise only makes it longer
    assert seconds["alone"][0] > 0
    sums = 2 * (2 * 2 + 2)  # two runs of two steps with two communicators, and of two sums alone
    assert moved > sums * 4 * PARAMETERS


@nft
@on_hosts
def test_a_doctor_that_is_ended_leaves_no_process_on_any_host():
    with hosts(3) as (a, b, c), on_path(b, c):
        b.do(FIREWALL)
        c.do(FIREWALL)
        command = a.command(sys.executable, "-P", "-m", "mpcourse.course.cli", "doctor", "--hosts", "b,c")
        running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

        def started(host: Host) -> list[int]:
            return [one.pid for one in host.processes() if ranks.__file__ in asked(one)]

        deadline = time.monotonic() + 60
        while not (started(b) and started(c)) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert started(b) and started(c)
        (here,) = (one for one in a.processes() if "mpcourse.course.cli" in asked(one))
        here.send_signal(signal.SIGTERM)
        running.communicate(timeout=30)
        assert quiet(a, b, c)


@on_hosts
def test_ssh_with_options_reaches_hosts_for_mpirun_too(tmp_path):
    with hosts(2) as (a, b), on_path(b):
        key = a.home / ".ssh/id_ed25519"
        key.rename(a.folder / "key")
        (tmp_path / "config").write_text(f"Host there\n  HostName b\n  IdentityFile {a.folder}/key\n")
        assert doctor(a, "a,b")["b"]["status"] == "problem"
        found = doctor(a, "a,there", "--ssh", f"ssh -F {tmp_path}/config -o StrictHostKeyChecking=accept-new")
        assert found["status"] == 0


@pytest.mark.parametrize(
    "arguments, says",
    [
        (["--hosts", ""], "names no host"),
        (["--hosts", "a"], "two different hosts"),
        (["--hosts", "a,b,a"], "two different hosts"),
        (["--hosts", "a,,b"], "'' is not the name of a host"),
        (["--hosts", "a,-oProxyCommand=x"], "is not the name of a host"),
        (["--hosts", "a,b", "--ssh", "  "], "apt-get install openssh-client"),
        (["--hosts", "a,b", "--ssh", "no-such-ssh -v"], "apt-get install openssh-client"),
        (["--ssh", "ssh -F x"], "--ssh only works with doctor --hosts"),
    ],
)
def test_an_impossible_argument_is_told_in_one_line(cli, arguments, says):
    done = cli("doctor", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "arguments, says",
    [
        (["two-hosts"], "needs to know which"),
        (["virtual", "--hosts", "a,b"], "--hosts only works with two-hosts"),
        (["two-hosts", "--hosts", "a,b,c"], "so name two"),
        (["two-hosts", "--hosts", "localhost,nowhere.invalid", "--runs", "1"], "`mpcourse doctor --hosts"),
    ],
)
def test_bench_two_hosts_tells_what_it_cannot_do_in_one_line(cli, arguments, says):
    done = cli("bench", *arguments)
    assert done.returncode == 2
    assert says in done.stderr and done.stderr.count("\n") == 1


def test_the_prediction_is_the_tutorials():
    assert sum(p.numel() for p in mlp().parameters()) == PARAMETERS
    assert round(1e3 * predicted(2), 1) == 60.9  # 2 (p - 1) / p x 7.18 MB over 118 MB/s
    assert predicted(4) == 1.5 * predicted(2)


def test_what_was_measured_is_there_with_its_machine_and_setting(monkeypatch):
    monkeypatch.delenv(BUSY, raising=False)
    found = as_measured()
    refuse_if_busy(Noise(**found["noise"]))
    assert "1gbit" in found["setting"] and {"date", "cores", "torch", "mpi4py"} <= set(found["machine"])
    median = {record["what"]: record["median"] for record in found["records"]}
    assert median["predicted with 118 MB/s"] == 1e3 * predicted(2)
    for side in ("flat", "bucketed"):
        added = median[f"two hosts: a step, {side}"] - median[f"one host: a step, {side}"]
        assert median[f"the link adds to a step, {side}"] == pytest.approx(added)
        assert added > 0  # two nodes are slower


def test_lesson_08_says_what_two_hosts_took():
    runs = {record["what"]: record["runs"] for record in as_measured()["records"]}
    near, far = (mean_of(runs[f"{place}: a step, flat"]) for place in ("one host", "two hosts"))
    on_this_link = 1e3 * predicted(2, 1e6 * runs["two hosts: bandwidth"][0])
    added, error = far.mean - near.mean, math.hypot(far.error, near.error)
    assert not unsaid("08_scaling", f"the {added:.1f} ms that the link adds")
    assert not unprinted(
        "08_scaling",
        f"a step takes {near.mean:.1f} ms on one host and {far.mean:.1f} ms on two",
        f"the link adds {added:.1f} +- {error:.1f} ms; predicted with 118 MB/s: {1e3 * predicted(2):.1f} ms",
        f"{runs['two hosts: bandwidth'][0]:.1f} MB/s: {on_this_link:.1f} ms",
    )
