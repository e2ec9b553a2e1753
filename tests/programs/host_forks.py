"""A fork server on a host of tests/hosts.py: `host_forks.py INIT SOCKET`. It has imported what this process has.

INIT: the id of the host's first process, with which the server ends. SOCKET: where it listens, on that host.
"""

import ctypes
import os
import sys
import time

from mpcourse.course.forkserver import server

init, path = sys.argv[1:]
setns = ctypes.CDLL(None, use_errno=True).setns
spaces = [os.open(f"/proc/{init}/ns/{name}", os.O_RDONLY) for name in ("net", "uts", "ipc", "pid", "mnt")]
for space in spaces:
    if setns(space, 0):
        sys.exit(os.strerror(ctypes.get_errno()))
    os.close(space)
lifeline, held = os.pipe()  # `held` is closed when this process ends
if not (pid := os.fork()):  # only what this process forks is in that namespace of processes
    os.close(held)
    os.dup2(lifeline, 0)
    sys.argv[1:] = [path]
    server.main()
while not os.path.exists(path):
    time.sleep(0.001)
print("ready", flush=True)
os.waitpid(pid, 0)
