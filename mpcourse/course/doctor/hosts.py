"""`mpcourse doctor --hosts a,b`: whether ranks can run on several hosts, in stages that stand on one another.

For each host: its name, ssh without a question, PATH in a shell without a terminal, versions, paths, a rank that mpirun
starts there. Then, for each two hosts, messages between a rank on the one and a rank on the other.
"""

import itertools
import re
from collections.abc import Callable
from dataclasses import replace

from mpcourse.common.errors import UserError
from mpcourse.course.doctor import hosts_login, hosts_mpi, hosts_python
from mpcourse.course.doctor.finding import Finding, guarded
from mpcourse.course.doctor.hosts_python import Facts
from mpcourse.course.doctor.remote import Remote, remote

HERE = "here"


def examine_hosts(hosts: str, ssh: str = "ssh") -> list[Finding]:
    """Return a Finding for this machine, for each stage of each of `hosts` ("a,b"), and for each two of them.

    ssh: the program with its options, as a user types it. What depends on a stage that failed is not examined. Each
    stage has a deadline, and nothing that was started stays on any host. Raises UserError for impossible arguments.
    """
    names = host_names(hosts)
    with remote(ssh) as way:
        finding, here = hosts_python.facts_here(HERE)
        findings, ready = [finding], []
        for name in names:
            host = hosts_login.Host(name, way)
            findings += _host(host, here)
            if findings[-1].status != "problem":
                ready.append(host)
        for one, other in itertools.combinations(names, 2):
            findings.append(_pair(one, other, {host.name: host for host in ready}, way))
    return findings


def host_names(hosts: str) -> list[str]:
    """Return the names in "a,b". Raises UserError where these are not two or more names, all different."""
    names = [name.strip() for name in hosts.split(",")]
    for name in names:
        if not re.fullmatch(r"\w[\w.-]*", name):
            raise UserError(f"--hosts {hosts}: {name!r} is not the name of a host; names are separated by commas: a,b")
    if len(set(names)) < max(2, len(names)):
        raise UserError(f"--hosts {hosts}: name two different hosts or more; this machine counts if ranks run on it")
    return names


def _host(host: hosts_login.Host, here: Facts | None) -> list[Finding]:
    def there(look: Callable[[hosts_login.Host, Facts], Finding]) -> Callable[[], Finding]:
        return lambda: look(host, here or {})

    stages = {
        "name": lambda: hosts_login.name(host),
        "ssh": lambda: hosts_login.ssh(host),
        "PATH": there(hosts_python.path_of_shell),
        "versions": there(hosts_python.versions),
        "path": there(hosts_python.path),
        "launcher": lambda: hosts_mpi.launcher(host),
    }
    findings: list[Finding] = []
    failed = "" if here else HERE
    for stage, look in stages.items():
        topic = f"{host.name}: {stage}"
        if host.local and stage in ("ssh", "PATH", "versions", "path"):
            continue
        findings.append(_not_examined(topic, failed) if failed else _examined(topic, look))
        if findings[-1].status == "problem":
            failed = failed or topic
    return findings


def _pair(one: str, other: str, ready: dict[str, hosts_login.Host], way: Remote) -> Finding:
    topic = f"{one} to {other}: message"
    for name in (one, other):
        if name not in ready:
            return _not_examined(topic, f"{name}: launcher")
    return _examined(topic, lambda: hosts_mpi.message(topic, ready[one], ready[other]))


def _examined(topic: str, look: Callable[[], Finding]) -> Finding:
    finding = guarded(topic, look)
    return replace(finding, fatal=finding.status == "problem")  # all that follows depends on it


def _not_examined(topic: str, failed: str) -> Finding:
    return Finding(topic, f"not examined, because {failed} failed", "problem", f"first mend `{failed}`")
