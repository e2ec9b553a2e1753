"""The first two stages of a host: its name leads to an address, and ssh lets us in and asks nothing."""

import re
from dataclasses import dataclass, field

from mpcourse.course.doctor.finding import Finding, fatal
from mpcourse.course.doctor.remote import CONNECT, Remote
from mpcourse.course.doctor.subprocesses import CompletedCommand, Unanswered, ask, run

DEADLINE = 15.0  # seconds
RESOLVE = """
import json, socket
try:
    address = socket.getaddrinfo(%r, None, type=socket.SOCK_STREAM)[0][4][0]
except OSError as error:
    print(json.dumps({"error": str(error)}))
else:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        socket.socket(family).bind((address, 0))
        local = True
    except OSError:
        local = False
    print(json.dumps({"address": address, "local": local}))
"""


@dataclass
class Host:
    """What the stages have found out of a host so far. python, mpirun: those there that later stages ask."""

    name: str
    way: Remote
    address: str = ""
    local: bool = False
    python: str = ""
    mpirun: str = ""
    facts: dict[str, str] = field(default_factory=dict)

    def run(self, command: list[str], seconds: float) -> CompletedCommand:
        """Run a command on this host, by ssh unless it is this machine."""
        return run(command, seconds) if self.local else self.way.run(self.name, command, seconds)


def name(host: Host) -> Finding:
    """Whether this machine knows an address for the host, or ssh's configuration does."""
    topic = f"{host.name}: name"
    try:
        settings = host.way.settings(host.name)
    except FileNotFoundError as error:
        return fatal(topic, f"{error.filename} was not found here", "`sudo apt-get install openssh-client`")
    jump = settings.get("proxyjump", settings.get("proxycommand", "none"))
    if jump != "none":
        advice = "ranks reach each other directly, not by way of ssh: if `message` fails, here is why"
        return Finding(topic, f"reached through {jump}, by ssh's configuration", "note", advice)
    alias = settings.get("hostname", host.name)
    try:
        answer = ask(RESOLVE % alias, DEADLINE)
    except Unanswered as error:
        answer = {"error": str(error)}
    if "error" in answer:
        value = f"{alias} leads to no address: {answer['error']}"
        advice = f"on every host: `echo ADDRESS {alias} | sudo tee -a /etc/hosts`, with the address of {host.name}"
        return fatal(topic, value, f"{advice} (`hostname -I` there tells it)")
    host.address, host.local = answer["address"], answer["local"]
    return Finding(topic, host.address + (", this machine: no ssh is needed" if host.local else ""))


def ssh(host: Host) -> Finding:
    """Whether ssh gets in without a question: mpirun cannot answer one."""
    topic = f"{host.name}: ssh"
    done = host.run(["true"], DEADLINE)
    if done.status == 0:
        return Finding(topic, "lets us in without a question")
    value, advice = _refused(host, done)
    return fatal(topic, value, advice)


def _refused(host: Host, done: CompletedCommand) -> tuple[str, str]:
    """Return which of the usual reasons it was, and the cure."""
    said, by_hand = done.output, f"`ssh {host.name} true`"
    if done.status is None:
        advice = f"{by_hand} in a terminal shows where it stops: often a start-up file of the shell there that waits"
        return f"no answer within {DEADLINE:g} s", advice
    if "Connection refused" in said:
        advice = "on that host: `sudo apt-get install openssh-server`, `sudo systemctl enable --now ssh`"
        return "refused: the host is there, but no sshd listens", advice
    if re.search(r"timed out|No route to host|Network is unreachable", said):
        advice = f"`ping {host.address or host.name}`: is it on, and in this network? its firewall must let in port 22"
        return f"unreachable: nothing came back within {CONNECT} s", advice
    if "IDENTIFICATION HAS CHANGED" in said:
        advice = f"if the host was installed anew: `ssh-keygen -R {host.name}`, then {by_hand}; else ask who did it"
        return "the host's key is another one than the one we know", advice
    if "Host key verification failed" in said:
        advice = f"{by_hand} once in a terminal: compare the fingerprint, answer yes; from each host that runs mpirun"
        return "the host's key is not known here, so ssh would ask", advice
    if methods := re.search(r"Permission denied \((.*?)\)", said):
        if {"password", "keyboard-interactive"} & set(methods[1].split(",")):
            advice = f"`ssh-copy-id {host.name}`; if you have no key yet, `ssh-keygen -t ed25519` before"
            return "asks for a password: the host does not know our key", advice
        advice = "append ~/.ssh/id_ed25519.pub of here to ~/.ssh/authorized_keys there (the host takes no password)"
        return "the host does not know our key", advice
    return f"failed (exit status {done.status}): {done.reason}", f"{by_hand} in a terminal, and mend what it says"
