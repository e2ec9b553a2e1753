"""Exercise e12: a communicator for each axis of a grid.

A training run is cut in three ways at once: data x pipeline x tensor. Each rank has a coordinate in each axis. Along an
axis it communicates with the ranks that differ from it in this coordinate alone. comm.Split(color, key) makes the
communicators. All ranks call it. Ranks that give the same color are in one new communicator, in the order of their
keys.

The order of the axes decides which ranks share a machine, and so what their messages cost. Here tensor is the innermost
axis: its neighbours have consecutive numbers, so a launcher puts them on one machine. Then comes data. Pipeline is
the outermost axis.

The check runs this on 1 to 12 virtual ranks, and then under mpirun.

Check it with `mpcourse check e12_grid`. Stuck? `mpcourse hint e12_grid`.
"""

from mpcourse import check_this_file

if __name__ == "__main__":  # up here, so that all code below runs under the checker's watch
    check_this_file(__file__)


def grid(comm, data, pipeline, tensor):
    """Return this rank's communicators along the three axes: a tuple (data, pipeline, tensor).

    comm: an mpi4py communicator. Every rank calls this function, with the same sizes.
    data, pipeline, tensor: how many ranks each axis has; ints, 1 or more.
    A rank's number in comm is (its pipeline coordinate x data + its data coordinate) x tensor + its tensor coordinate.
    In each of the communicators a rank's number is its coordinate in that axis.
    Raises ValueError, on all ranks and before any rank waits for another, if data x pipeline x tensor is not the number
    of ranks.
    """
    raise NotImplementedError("e12_grid: compute the coordinates from the rank; then Split once for each axis, by what its ranks have in common")
