"""Mistakes on one rank, and the class of error that MPI gives them: run as a script it prints the classes' names."""

import json

import numpy as np
from mpi4py import MPI

X, Y = np.zeros(4), np.ones(4)


def truncated(comm):
    """Send a message that is longer than what it is received into."""
    request = comm.Isend(X, 0, 0)
    try:
        comm.Recv(Y[:1], 0, 0)
    finally:
        request.Wait()


def object_truncated(comm, *buffer):
    """Send a pickled object that is longer than the buffer of `irecv`, which without one has room for 32768 bytes."""
    request = comm.isend(bytes(40_000), 0)
    try:
        comm.irecv(*buffer, source=0).wait()
    finally:
        request.wait()


MISTAKES = {
    "rank": lambda c: c.Send(X, 5),
    "source": lambda c: c.recv(source=3),
    "tag": lambda c: c.Send(X, 0, -7),
    "root": lambda c: c.Bcast(X, 5),
    "root of an object": lambda c: c.gather(1, root=-5),
    "truncated": truncated,
    "truncated at once": lambda c: c.Sendrecv(X, 0, 0, Y[:1], 0, 0),
    "object truncated": object_truncated,
    "object truncated by its buffer": lambda c: object_truncated(c, bytearray(39_000)),
    "object truncated by a number": lambda c: object_truncated(c, 39_000),
    "same memory gathered": lambda c: c.Allgather(X, X),
    "same memory gathered at the root": lambda c: c.Gather(X, X),
    "same memory scattered": lambda c: c.Scatter(X, X),
    "same memory exchanged": lambda c: c.Alltoall(X, X),
    "same memory reduced and scattered": lambda c: c.Reduce_scatter_block(X, X),
    "operation": lambda c: c.Allreduce(X, Y, MPI.BAND),
    "no operation": lambda c: c.Allreduce(X, Y, MPI.OP_NULL),
    "no communicator": lambda c: MPI.COMM_NULL.Barrier(),
}


def class_of(mistake, comm):
    """Return the name of its class of error."""
    try:
        mistake(comm)
    except MPI.Exception as error:
        return name_of(error)
    return "none"


def name_of(error):
    number = error.Get_error_class()
    return next(name for name in dir(MPI) if name.startswith("ERR_") and getattr(MPI, name) == number)


if __name__ == "__main__":
    found = {name: class_of(mistake, MPI.COMM_SELF) for name, mistake in MISTAKES.items()}
    numbers = {name: getattr(MPI, name) for name in dir(MPI) if name.startswith("ERR_")}
    print(json.dumps([found, numbers, MPI.get_vendor()[0]]))
