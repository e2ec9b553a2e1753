"""Run a command with a deadline, and leave no process of it behind."""

import os
import re
import subprocess
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mpcourse.course.processes import MARK, end_all


@dataclass(frozen=True)
class CompletedCommand:
    """How a command ended: its exit status (None: the deadline passed), and what it printed on both streams."""

    status: int | None
    output: str

    @property
    def reason(self) -> str:
        """Return the line of the output that says what went wrong."""
        if self.status is None:
            return "no end within the deadline"
        lines = [line.strip() for line in self.output.splitlines() if line.strip(" =-\t")]
        errors = [line for line in lines if re.match(r"[\w.]*(Error|Exception)\b", line)]
        # A Python traceback ends with its error, but launchers go on talking; their own complaint comes first.
        return errors[-1] if errors else lines[0] if lines else f"exit status {self.status}"


def run(command: Sequence[str], seconds: float, environment: Mapping[str, str] | None = None) -> CompletedCommand:
    """Run a command, and kill all that is left of it after `seconds`, or when it ends by itself.

    environment: as in this process, unless given.
    """
    mark = uuid.uuid4().hex
    # A file and not a pipe: a process that outlives the command would hold a pipe open, and reading it would hang.
    with (
        tempfile.TemporaryFile() as output,
        subprocess.Popen(
            command,
            # An input that stays open: at its end MPICH's mpirun dies of SIGPIPE if the first ranks have ended already.
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**(os.environ if environment is None else environment), MARK: mark},
            start_new_session=True,  # Ctrl-C comes to us alone, and we end the rest
        ) as process,
    ):
        status: int | None = None
        try:
            status = process.wait(seconds)
        except subprocess.TimeoutExpired:
            pass
        finally:
            end_all(mark)
            process.kill()
        output.seek(0)
        return CompletedCommand(status, output.read().decode(errors="replace"))
