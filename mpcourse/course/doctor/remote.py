"""Commands on another host, by ssh: with a deadline, no question asked, and no process of theirs left there."""

import contextlib
import json
import shlex
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from mpcourse.common import launch
from mpcourse.common.errors import UserError
from mpcourse.course.doctor.subprocesses import CompletedCommand, Unanswered, run

CONNECT = 5  # seconds
MARK = "MPCOURSE_DOCTOR_REMOTE"

# Instead of ssh, for mpirun: all that it starts on another host carries our mark there. A launcher's daemon that
# cannot connect back would otherwise stay for minutes, and nothing here knows its process id.
AGENT = """#!/bin/sh
options=
while [ "${1#-}" != "$1" ]; do options="$options $1"; shift; done
host=$1
shift
exec %s $options "$host" "export %s; $*"
"""

END = """
for i in 1 2 3; do
  for one in $(grep -lsz '^%s$' /proc/[0-9]*/environ); do one=${one%%/environ}; kill -9 "${one#/proc/}"; done
done
"""


class Remote:
    """A way to hosts. ssh: the program with its options, as a user types it."""

    def __init__(self, ssh: str, agent: Path) -> None:
        try:
            program = shlex.split(ssh)
        except ValueError as error:
            raise UserError(f"--ssh {ssh!r}: {error}") from None
        if not program:
            raise UserError("--ssh names no program: leave it out, or give one as in --ssh 'ssh -F file'")
        self.ssh = [*program, "-o", "BatchMode=yes", "-o", f"ConnectTimeout={CONNECT}"]
        self.mark = f"{MARK}={uuid.uuid4().hex}"
        self.agent = agent
        agent.write_text(AGENT % (shlex.join(self.ssh), self.mark))
        agent.chmod(0o700)

    def run(self, host: str, command: list[str], seconds: float) -> CompletedCommand:
        """Run `command` on `host`, by the shell that ssh gives it there, which is not an interactive one."""
        return self._run([*self.ssh, host, f"export {self.mark}; {shlex.join(command)}"], [host], seconds)

    def ask(self, host: str, python: str, program: str, seconds: float) -> dict[str, Any]:
        """Run the Python source `program` by `python` on `host`, and return the JSON object that it prints last."""
        done = self.run(host, [python, "-P", "-c", program], seconds)
        if done.status is None:
            raise Unanswered(f"no answer within {seconds:g} s")
        if done.status != 0:
            raise Unanswered(done.reason)
        return json.loads(done.output.splitlines()[-1])

    def start_ranks(self, hosts: list[str], command: list[str], seconds: float, each: int = 1) -> CompletedCommand:
        """Start `each` ranks on each of `hosts` by `mpirun`; where it fails, end whatever it left on them."""
        environment = launch.rank_environment(one_machine=False) | launch.with_ssh(str(self.agent))
        done = self._run(launch.hosts_command(hosts, command, each), hosts, seconds, environment)
        if done.status:
            self._end(hosts)
        return done

    def _run(
        self, command: list[str], hosts: list[str], seconds: float, environment: Mapping[str, str] | None = None
    ) -> CompletedCommand:
        done = None
        try:
            done = run(command, seconds, environment)
        finally:
            if done is None or done.status is None:  # Ctrl-C, or the deadline
                self._end(hosts)
        return done

    def _end(self, hosts: list[str]) -> None:
        """End all that was started on `hosts` in our name."""
        for host in hosts:
            run([*self.ssh, host, f"sh -c {shlex.quote(END % self.mark)}"], 2 * CONNECT)

    def settings(self, host: str) -> Mapping[str, str]:
        """Return what ssh's configuration says of `host`: hostname, user, proxyjump, ..."""
        lines = run([*self.ssh, "-G", host], CONNECT).output.splitlines()
        return dict(line.split(" ", 1) for line in lines if " " in line)


@contextlib.contextmanager
def remote(ssh: str) -> Iterator[Remote]:
    """Yield a way to hosts, which exists as long as the `with` lasts."""
    with tempfile.TemporaryDirectory(prefix="mpcourse-doctor-") as folder:
        yield Remote(ssh, Path(folder) / "ssh")
