"""Several machines, really: hosts with an sshd and a link each. What the doctor says of them, sound and broken."""

import json
import math
import os
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
from mpcourse.course.doctor import hosts_login, hosts_mpi, hosts_ranks
from mpcourse.models import mlp
from mpcourse.studies.compare import mean_of
from tests.conftest import ROOT, started_here
from tests.hosts import Host, hosts, not_allowed
from tests.hosts_forks import STARTER, forks
from tests.lesson_prose import unsaid

on_hosts = pytest.mark.skipif(bool(not_allowed()), reason=not_allowed())
nft = pytest.mark.skipif(not shutil.which("nft"), reason="nft not found: apt-get install nftables")
in_environment = pytest.mark.skipif(sys.prefix == sys.base_prefix, reason="Python is not in a virtual environment")
PATH = f"{Path(sys.executable).parent}:{Path(launch.find_mpirun()).parent}"
STAGES = ("name", "ssh", "PATH", "versions", "path", "launcher")
IMPATIENT = 6 if launch.mpirun().implementation == "MPICH" else 10  # seconds until a run counts as stuck
DOCTOR = """
import sys
from mpcourse.course.doctor import hosts_mpi, remote
from mpcourse.course.cli import main
if deadline := float(sys.argv[1]):
    hosts_mpi.DEADLINE, hosts_mpi.CONNECT, remote.CONNECT = deadline, 2, 2
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
    host: Host, names: str, *more: str, environment: dict[str, str] | None = None, patience: float = 0
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


def not_examined(found: dict[str, dict], name: str, after: str) -> bool:
    """Whether all stages of the host after that one were left out, and say why."""
    later = STAGES[STAGES.index(after) + 1 :]
    return all(found[f"{name}: {stage}"]["advice"] == f"first mend `{name}: {after}`" for stage in later)


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
def test_three_sound_hosts_are_examined_stage_by_stage_and_two_by_two():
    with hosts(3) as (a, b, c), on_path(b, c):
        found = doctor(a, "a,b,c")
        assert found.pop("status") == 0
        topics = ["here", "a: name", "a: launcher"]
        topics += [f"{name}: {stage}" for name in "bc" for stage in STAGES]
        assert list(found) == [*topics, "a to b: message", "a to c: message", "b to c: message"]
        assert {topic: finding["status"] for topic, finding in found.items() if finding["status"] != "ok"} == {}
        assert found["a: name"]["value"] == "10.77.0.1, this machine: no ssh is needed"
        assert found["c: launcher"]["value"].endswith("that machine calls itself c")
        for pair in ("a to b", "a to c", "b to c"):
            told = re.fullmatch(
                r"(\d+) us each way \(8 bytes\), (\d+) MB/s \(4 MB\)", found[f"{pair}: message"]["value"]
            )
            assert told and 0 < int(told[2]) < 131  # over the link, and not in shared memory
        assert quiet(a, b, c)


@on_hosts
def test_what_is_wrong_with_ssh_is_told_apart_and_what_stands_on_it_is_not_examined():
    with hosts(7) as (a, b, c, d, e, f, g):
        b.stop_sshd()
        (c.home / ".ssh/authorized_keys").write_text("")
        lines = (a.home / ".ssh/known_hosts").read_text().splitlines()
        (a.home / ".ssh/known_hosts").write_text("\n".join(line for line in lines if not line.startswith("d ")) + "\n")
        e.do("ip link set eth0 down")
        f.do(f"ssh-keygen -q -t ed25519 -N '' -f {f.folder}/key")
        f.stop_sshd()
        f.start_sshd(HostKey=f"{f.folder}/key")
        g.stop_sshd()
        (g.home / ".ssh/authorized_keys").write_text("")
        g.start_sshd(PasswordAuthentication="no", KbdInteractiveAuthentication="no")
        found = doctor(a, "b,c,d,e,f,g,nowhere")
        assert found["status"] == 1
        told = {
            "b": ("no sshd listens", "systemctl enable --now ssh"),
            "c": ("asks for a password", "`ssh-copy-id c`"),
            "d": ("key is not known", "`ssh d true` once in a terminal"),
            "e": ("unreachable", "`ping 10.77.0.5`"),
            "f": ("another one than the one we know", "`ssh-keygen -R f`"),
            "g": ("does not know our key", "the host takes no password"),
        }
        for name, (value, advice) in told.items():
            finding = found[f"{name}: ssh"]
            assert finding["fatal"] and value in finding["value"] and advice in finding["advice"], finding
            assert not_examined(found, name, "ssh")
        assert found["nowhere: name"]["fatal"] and "leads to no address" in found["nowhere: name"]["value"]
        assert "/etc/hosts" in found["nowhere: name"]["advice"]
        assert not_examined(found, "nowhere", "name")
        assert found["b to nowhere: message"]["advice"] == "first mend `b: launcher`"
        assert quiet(a, b, c, d, e, f, g)


@on_hosts
@in_environment
def test_another_path_other_versions_and_a_path_variable_that_lacks_them_are_told_apart():
    with hosts(5) as (a, b, c, d, e), on_path(d, e):
        bare = f"mount -t tmpfs tmpfs {sys.prefix}"
        (e.folder / "environment").mkdir()
        b.do(bare)  # no such Python
        c.do("")  # it is there, but PATH does not say so
        site = next(path for path in map(Path, sys.path) if (path / "torch").is_dir())
        (metadata,) = site.glob("torch-*.dist-info/METADATA")
        other = re.sub(r"(?m)^Version: .*", "Version: 1.0.0", metadata.read_text())
        (d.folder / "METADATA").write_text(other)
        d.do(f"mount --bind {d.folder}/METADATA {metadata}")
        e.do(f"mount --bind {sys.prefix} {e.folder}/environment && {bare}")  # the same, elsewhere
        (e.home / ".bashrc").write_text(f"PATH={e.folder}/environment/bin:$PATH\n")
        found = doctor(a, "b,c,d,e")
        assert found["status"] == 1
        assert found["b: PATH"]["fatal"] and "python is not found" in found["b: PATH"]["value"]
        assert "the same path on all hosts" in found["b: PATH"]["advice"] and "~/.bashrc" in found["b: PATH"]["advice"]
        assert not_examined(found, "b", "PATH")
        assert found["c: PATH"]["status"] == "note" and "exist there, too" in found["c: PATH"]["value"]
        assert f"`PATH={Path(sys.executable).parent}:$PATH`" in found["c: PATH"]["advice"]
        assert found["c: launcher"]["status"] == "ok"
        assert found["d: PATH"]["status"] == "ok" and found["d: versions"]["fatal"]
        assert found["d: versions"]["value"].startswith("torch 1.0.0, here ")
        assert "make setup" in found["d: versions"]["advice"]
        assert not_examined(found, "d", "versions")
        assert found["e: versions"]["status"] == "ok" and found["e: path"]["fatal"]
        assert f"environment is {e.folder}/environment, here {sys.prefix}" in found["e: path"]["value"]
        assert not_examined(found, "e", "path")
        assert quiet(a, b, c, d, e)


@pytest.mark.ranks
@on_hosts
def test_a_host_that_does_not_know_the_name_of_this_machine_is_told_if_the_launcher_needs_it():
    with hosts(2) as (a, b), on_path(b):
        (b.folder / "hosts").write_text("127.0.0.1 localhost\n")
        finding = doctor(a, "a,b")["b: launcher"]
        if launch.mpirun().implementation == "Open MPI":  # it tells addresses
            assert finding["status"] == "ok"
        else:
            assert finding["fatal"] and "it does not know a, this machine's name" in finding["value"]
            assert "/etc/hosts" in finding["advice"]
        assert quiet(a, b)


@pytest.mark.timeout(400)
@pytest.mark.ranks
@nft
@on_hosts
def test_a_firewall_is_told_between_hosts_and_before_this_one_and_its_cure_works():
    with hosts(3) as (a, b, c), on_path(b, c):
        for host in (b, c):
            host.do(FIREWALL)
        found = doctor(a, "b,c", patience=IMPATIENT)
        assert found["c: launcher"]["status"] == "ok"
        finding = found["b to c: message"]
        assert finding["fatal"] and "b cannot connect to a port of c (timed out), a firewall's work" in finding["value"]
        a.do(FIREWALL)
        found = doctor(a, "a,b", patience=IMPATIENT)
        assert "b: launcher" in found and found["b: launcher"]["fatal"]
        assert "it cannot connect to a port of this machine (timed out)" in found["b: launcher"]["value"]
        assert found["b: launcher"]["advice"] == finding["advice"]
        settings = re.search(r"`export (.*?)`", finding["advice"])[1]
        for host in (a, b, c):
            host.do("nft add rule inet wall in tcp dport 50000-50299 accept")
        cured = doctor(a, "a,b", environment=dict(setting.split("=", 1) for setting in settings.split()))
        assert cured["status"] == 0
        assert quiet(a, b, c)


@pytest.mark.ranks
@on_hosts
def test_a_network_that_does_not_join_the_hosts_is_told_if_mpi_falls_for_it():
    with hosts(2) as (a, b), on_path(b):
        for host in (a, b):
            host.do(
                "ip link add docker0 type bridge && ip addr add 172.17.0.1/16 dev docker0 && ip link set docker0 up"
            )
        found = doctor(a, "a,b")
        if launch.mpirun().implementation == "Open MPI":
            finding = found["a to b: message"]
            assert finding["fatal"] and "docker0" in finding["advice"]
            name, value = re.search(r"`export (\w+)=(\w+)`", finding["advice"]).groups()
            found = doctor(a, "a,b", environment={name: value})
        assert found["status"] == 0
        assert quiet(a, b)


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
    facts = hosts_ranks.read_facts(done.stdout)
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

        def ranks(host: Host) -> list[int]:
            return [one.pid for one in host.processes() if hosts_mpi.RANKS.name in " ".join(asked(one))]

        deadline = time.monotonic() + 30
        while not (ranks(b) and ranks(c)) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert ranks(b) and ranks(c)
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
        assert doctor(a, "a,b")["b: ssh"]["fatal"]
        found = doctor(a, "a,there", "--ssh", f"ssh -F {tmp_path}/config -o StrictHostKeyChecking=accept-new")
        assert found["status"] == 0
        assert found["there: name"]["value"] == "10.77.0.2"


@pytest.mark.parametrize(
    "arguments, says",
    [
        (["--hosts", ""], "names no host"),
        (["--hosts", "a"], "two different hosts"),
        (["--hosts", "a,b,a"], "two different hosts"),
        (["--hosts", "a,,b"], "'' is not the name of a host"),
        (["--hosts", "a,-oProxyCommand=x"], "is not the name of a host"),
        (["--hosts", "a,b", "--ssh", "  "], "--ssh names no program"),
        (["--hosts", "a,b", "--ssh", "ssh '"], "No closing quotation"),
        (["--ssh", "ssh -F x"], "--ssh belongs to `mpcourse doctor --hosts`"),
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


def test_a_machine_without_ssh_is_told_to_get_it(cli):
    done = cli("doctor", "--hosts", "localhost,nowhere.invalid", "--ssh", "no-such-ssh", "--json")
    found = {finding["topic"]: finding for finding in json.loads(done.stdout)["findings"]}
    assert done.returncode == 1
    assert "openssh-client" in found["localhost: name"]["advice"]


def test_a_wall_that_rejects_counts_as_unreachable():
    run = hosts_login.CompletedCommand(255, "ssh: connect to host b port 22: No route to host\r\n")
    assert hosts_login._refused(hosts_login.Host("b", None), run)[0].startswith("unreachable")


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
    assert not unsaid(
        "08_scaling",
        f"{far.mean - near.mean:.1f} ms (standard error {math.hypot(far.error, near.error):.1f}), "
        f"where {1e3 * predicted(2):.1f} were predicted with the bandwidth that we assumed, and {on_this_link:.1f}",
        f"needed {near.mean:.1f} ms a step, and on two hosts {far.mean:.1f}",
    )
