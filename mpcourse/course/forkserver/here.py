"""A fork server that is a fork of this process itself, and so begins at once: inside of a sandbox, for instance."""

import os
import socket
from collections.abc import Sequence

from mpcourse.course.forkserver.descent import subreaper
from mpcourse.course.forkserver.server import Server


def serve_here(path: str, closing: Sequence[int] = ()) -> int:
    """Fork this process, with its imports, into a server that listens at `path`; return the fork's id.

    It ends with this process. closing: open files that it is not to have. Call this with one thread, and outside of any
    `with` or `try`: what a forked process raises leaves by the stack of this call.
    """
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(path)
    listener.listen(64)
    lifeline, held = os.pipe()  # `held` is closed when this process ends
    if pid := os.fork():
        os.close(lifeline)
        listener.close()
        return pid
    for file in (held, *closing):
        os.close(file)
    os.dup2(lifeline, 0)
    subreaper()
    wanted = Server(listener).serve()
    if wanted is not None:
        wanted.run()
    os._exit(0)
