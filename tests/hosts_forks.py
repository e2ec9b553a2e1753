"""Fork servers on the hosts of a test: ranks begin on them at once, as on this machine, and import no torch anew."""

import contextlib
import subprocess
from collections.abc import Iterator, Sequence

from mpcourse.course.forkserver import ADDRESS, Forks
from tests.conftest import ROOT, python
from tests.hosts import Host, NotMade

PROGRAM = ROOT / "tests" / "programs" / "host_forks.py"
SOCKET = "/run/mpcourse-forks"  # on each host its own
STARTER = Forks(SOCKET)  # its commands are the same on all hosts


@contextlib.contextmanager
def forks(nodes: Sequence[Host]) -> Iterator[dict[str, str]]:
    """Start them; the environment in which commands of the course find them. They end with the hosts, or before."""
    with contextlib.ExitStack() as started:
        for node in nodes:
            server = started.enter_context(
                subprocess.Popen(python("-P", PROGRAM, node.init, SOCKET), stdout=subprocess.PIPE, text=True)
            )
            started.callback(server.kill)
            assert server.stdout
            if server.stdout.readline() != "ready\n":
                raise NotMade(f"{node.name} has no fork server")
        yield {ADDRESS: SOCKET}
