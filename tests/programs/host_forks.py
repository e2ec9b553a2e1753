"""A fork server on a host of tests/hosts.py: `host_forks.py INIT SOCKET`. It has imported what this process has.

INIT: the id of the host's first process, with which the server ends. SOCKET: where it listens, on that host.
"""

import ctypes
import os
import sys

from mpcourse.course.forkserver.here import serve_here

init, path = sys.argv[1:]
setns = ctypes.CDLL(None, use_errno=True).setns
spaces = [os.open(f"/proc/{init}/ns/{name}", os.O_RDONLY) for name in ("net", "uts", "ipc", "pid", "mnt")]
for space in spaces:
    if setns(space, 0):
        sys.exit(os.strerror(ctypes.get_errno()))
    os.close(space)
server = serve_here(path)  # only what this process forks is in that namespace of processes
print("ready", flush=True)
os.waitpid(server, 0)
