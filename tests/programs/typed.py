"""A command typed in a terminal: python typed.py MODULE [SECONDS]. It prints the process of the terminal's fork server,
and which of some modules that has imported; or "none".
"""

import os
import subprocess
import sys

from mpcourse.course.forkserver import terminal

ASKS = """
import os, sys
print(os.getppid())
print(*[name for name in ("mailbox", "mpcourse.common.errors", "wave") if name in sys.modules])
"""

if __name__ == "__main__":
    module, *idle = sys.argv[1:]
    terminal.IDLE = float(idle[0]) if idle else terminal.IDLE
    server = terminal.of_this_terminal([module], os.environ)
    if server is None:
        print("none")
    else:
        print(subprocess.run(server.command("-c", ASKS), capture_output=True, text=True, check=True).stdout, end="")
