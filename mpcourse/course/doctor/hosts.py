"""Whether ranks can run on several hosts: log in to each, compare its versions with ours, send a message round."""

import contextlib
import json
import re
import shlex
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from mpcourse.common import launch
from mpcourse.common.errors import WHEEL, UserError
from mpcourse.course.doctor import machine, ranks
from mpcourse.course.doctor.finding import Finding
from mpcourse.course.doctor.subprocesses import CompletedCommand, run

CONNECT = 5  # seconds
DEADLINE = 20.0  # seconds; a healthy start of ranks takes 1 to 2
SET_UP = "" if WHEEL else f"ssh {{host}} 'cd {Path(__file__).parents[3]} && make setup'"
SAME_PATH = (
    f"mpirun starts {sys.executable} on all hosts: share the folder of the course (NFS), or set it up there at the "
    "same path with the same MPI"
)

# What ssh or the shell on the host prints, what that means, and what to do: the command and an advice.
LOGIN_FAILURES = (
    (
        "Could not resolve hostname",
        "this machine knows no address of {host}",
        "echo ADDRESS {host} | sudo tee -a /etc/hosts",
        "on every host; `hostname -I` on {host} prints the address",
    ),
    (
        "Connection refused",
        "no sshd runs on {host}",
        "sudo apt-get install openssh-server && sudo systemctl enable --now ssh",
        "on {host}",
    ),
    (
        "timed out|No route to host|Network is unreachable",
        "{host} does not answer",
        "ping {host}",
        "is it on, in this network, and does its firewall let in port 22?",
    ),
    (
        "Host key verification failed",
        "ssh does not know the host key of {host}, or knows another one",
        "ssh {host} true",
        "compare the fingerprint, answer yes; do this on each host where you type mpirun",
    ),
    (
        "Permission denied",
        "{host} asks for a password or does not accept your key",
        "ssh-copy-id {host}",
        "if you have no key yet, `ssh-keygen -t ed25519` before",
    ),
    (
        "(?i)no such file or directory|not found|No module named|cannot import name",
        "the course of this machine is not at the same path on {host}: {reason}",
        SET_UP,
        SAME_PATH,
    ),
    ("", "login failed: {reason}", "ssh {host} true", "in a terminal, to see where it stops"),
)

# How ranks keep to one network interface, and which ports MPI listens on; the first range is the launcher's.
INTERFACE = {"Open MPI": "OMPI_MCA_btl_tcp_if_include", "MPICH": "UCX_NET_DEVICES"}
PORTS = {
    "Open MPI": "PRTE_MCA_oob_tcp_dynamic_ipv4_ports=50000-50099 "
    "OMPI_MCA_btl_tcp_port_min_v4=50100 OMPI_MCA_btl_tcp_port_range_v4=200",
    "MPICH": "MPIEXEC_PORT_RANGE=50000:50099 UCX_TCP_PORT_RANGE=50100-50299",
}


def examine_hosts(hosts: str, ssh: str = "ssh") -> list[Finding]:
    """Return a Finding for each host and, if there is no problem yet, one for ranks on all of them.

    hosts: names, as in "a,b"; this machine may be one of them.
    ssh: the program with its options, as a user types it.
    Raises UserError for impossible arguments and where there is no mpirun.
    """
    names = host_names(hosts)
    here = machine.facts_here()
    findings, interfaces = [], set()
    with _batch_ssh(ssh) as program:
        for name in names:
            if _is_here(name):
                findings.append(_this_machine(name, here))
                continue
            done = run([program, name, shlex.join(machine.FACTS_COMMAND)], CONNECT + machine.FACTS_DEADLINE)
            if done.status == 0:
                there = json.loads(done.output.splitlines()[-1])
                interfaces.add(there["interface"])
                findings.append(_compare(name, there, here))
            else:
                findings.append(_login_failed(name, done))
        if all(finding.status != "problem" for finding in findings):
            findings.append(_ranks(names, program, ",".join(sorted(interfaces - {""}))))
    return findings


def host_names(hosts: str) -> list[str]:
    """Return the names in "a,b". Raises UserError where these are not two or more names, all different."""
    names = [name.strip() for name in hosts.split(",")]
    for name in names:
        if not re.fullmatch(r"\w[\w.-]*", name):
            raise UserError(f"--hosts {hosts}: {name!r} is not the name of a host; separate names by commas, as in a,b")
    if len(set(names)) < max(2, len(names)):
        raise UserError(f"--hosts {hosts}: name two different hosts or more; this machine may be one of them")
    return names


@contextlib.contextmanager
def _batch_ssh(ssh: str) -> Iterator[str]:
    """Yield the path of a program that is `ssh` with its options and never asks: mpirun takes a path alone."""
    if not shutil.which((ssh.split() or [""])[0]):
        raise UserError(f"--ssh {ssh!r} is not a program that is installed here: `sudo apt-get install openssh-client`")
    with tempfile.TemporaryDirectory(prefix="mpcourse-doctor-") as folder:
        program = Path(folder) / "ssh"
        program.write_text(f'#!/bin/sh\nexec {ssh} -o BatchMode=yes -o ConnectTimeout={CONNECT} "$@"\n')
        program.chmod(0o700)
        yield str(program)


def _is_here(name: str) -> bool:
    """Return whether the name leads to an address of this machine: then neither we nor mpirun use ssh."""
    try:
        with socket.socket() as found:
            found.bind((name, 0))
            return True
    except OSError:
        return False


def _this_machine(name: str, here: dict[str, str]) -> Finding:
    value = "this machine: " + ", ".join(f"{key} {here[key]}" for key in machine.VERSIONS)
    if machine.BROKEN in value:
        return Finding(name, value, "problem", "mpcourse doctor", "which examines this machine alone")
    return Finding(name, value)


def _login_failed(host: str, done: CompletedCommand) -> Finding:
    _, *texts = next(failure for failure in LOGIN_FAILURES if re.search(failure[0], done.output))
    value, command, advice = (text.format(host=host, reason=done.reason) for text in texts)
    return Finding(host, value, "problem", command, advice)


def _compare(host: str, there: dict[str, str], here: dict[str, str]) -> Finding:
    apart = [key for key in machine.VERSIONS if machine.release(there[key]) != machine.release(here[key])]
    if apart:
        value = "; ".join(f"{key} {there[key]}, here {here[key]}" for key in apart)
        return Finding(host, value, "problem", SET_UP.format(host=host), SAME_PATH)
    same = "lets us in; versions are as here"
    if Path(there["python"]).parent != Path(sys.executable).parent:
        advice = (
            f"type full paths, or put `PATH={Path(sys.executable).parent}:$PATH` at the top of ~/.bashrc on {host}, "
            "above the line that ends it for shells without a terminal"
        )
        return Finding(host, f"{same}; but by ssh `python` is {there['python']}", "note", advice=advice)
    return Finding(host, same)


def _ranks(names: list[str], ssh: str, interface: str) -> Finding:
    """Start a rank on each host, and have them send a message round.

    ssh: the path of the program by which mpirun logs in.
    interface: the network interface by which ssh reached the hosts.
    """
    done, facts = _start(names, ssh)
    if done.status == 0 and any("latency" in fact for fact in facts):
        return Finding("ranks", f"a message went round {', '.join(names)}; {ranks.speed(facts)} between the first two")
    hosts = {fact["launched"]: fact["host"] for fact in facts if "launched" in fact}
    if len(hosts) < len(names):
        value = f"mpirun started {len(hosts)} of {len(names)} ranks: {done.reason}"
        by_hand = shlex.join(launch.hosts_command(names, ["hostname"]))
        if done.status is None:
            return _behind_firewall(value)
        return Finding("ranks", value, "problem", by_hand, f"each host must know the name {socket.gethostname()}, too")
    received = {fact["received"] for fact in facts if "received" in fact}
    waiting = next((rank for rank in [*range(1, len(names)), 0] if rank not in received), 1)
    value = f"{hosts[waiting]} waits for a message from {hosts[(waiting - 1) % len(names)]}: {done.reason}"
    setting = _for_this_mpi(INTERFACE)
    if interface and _start(names, ssh, {setting: interface})[0].status == 0:
        advice = "MPI tried a network that does not join the hosts, such as docker0 or a VPN; `ip -br addr` lists them"
        return Finding("ranks", value, "problem", f"export {setting}={interface}", advice)
    return _behind_firewall(value)


def _start(names: list[str], ssh: str, more: Mapping[str, str] = {}) -> tuple[CompletedCommand, list[dict[str, Any]]]:
    environment = {**launch.rank_environment(one_machine=False), **launch.with_ssh(ssh), **more}
    done = run(launch.hosts_command(names, ranks.COMMAND), DEADLINE, environment)
    return done, ranks.read_facts(done.output)


def _behind_firewall(value: str) -> Finding:
    advice = (
        "a firewall is in the way: MPI listens on any port, so keep it to these and open them on each host, as with "
        "`sudo ufw allow proto tcp from ADDRESS to any port 50000:50299`"
    )
    return Finding("ranks", value, "problem", f"export {_for_this_mpi(PORTS)}", advice)


def _for_this_mpi(settings: dict[str, str]) -> str:
    return settings.get(launch.mpirun().implementation, settings["MPICH"])
