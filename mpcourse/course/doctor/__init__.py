"""`mpcourse doctor`: examine this machine, or several hosts, and name the next command for what is wrong."""

from mpcourse.course.doctor import leftovers, machine, mpi
from mpcourse.course.doctor.finding import Finding, show
from mpcourse.course.doctor.hosts import examine_hosts

__all__ = ["Finding", "examine", "examine_hosts", "report"]


def examine() -> list[Finding]:
    """Examine this machine: one Finding for each topic. Takes a few seconds; ranks start only where MPI is there."""
    facts = machine.facts_here()
    findings = [*machine.packages(facts), machine.cores(), machine.threads(), mpi.mpirun()]
    if all(finding.status != "problem" for finding in findings):
        findings += [mpi.ranks(facts["MPI"]), *mpi.restrictions()]
    return [*findings, leftovers.processes(), leftovers.shared_memory_left()]


def report(json: bool = False, hosts: str = "", ssh: str = "ssh") -> int:
    """Examine this machine and print what was found: a table, or with `json` an object of `ok` and `findings`.

    hosts: examine whether ranks can run on these instead, as in "a,b".
    ssh: the command that logs in to them, as in "ssh -F file".
    Returns the exit status: 1 if there is a problem, else 0.
    """
    if hosts:
        return show(examine_hosts(hosts, ssh), json, "Ranks", "on these hosts together")
    return show(examine(), json, "The course", "here")
