"""Exercise e07: staleness, the age of a gradient.

Where nobody waits, a gradient is late: it was computed at the weights that its worker took, and while it was being
computed, the server applied gradients of others. How many these were is the staleness of the gradient. With 0 it is as
in training on one device. The larger it is, the older the weights that the gradient speaks of.

The server saw a list of events, one after the other: "pull" is a worker that takes the weights, "push" is a worker
whose gradient is applied. Every push is one update of the weights. So this is not about synchronous steps, which add up
the gradients of all workers and update once.

Check it with `mpcourse check e07_staleness`. Stuck? `mpcourse hint e07_staleness`.
"""

from mpcourse import check_this_file

if __name__ == "__main__":  # up here, so that all code below runs under the checker's watch
    check_this_file(__file__)


def staleness(history):
    """For each push, how many other pushes were applied since its worker took the weights.

    history: a list of (kind, worker), in the order in which the server saw them. kind is "pull" or "push", worker a
    whole number, not negative. It is not changed.
    Returns a list or tuple of ints, one for each push, in the order of the pushes. An empty history gives [].

    What counts is the last pull of the worker that pushes: it may pull twice. It may also push twice after one pull.
    Then its own earlier push counts as one, for that changed the weights, too.
    Of the pushes of p workers that all pull, and then all push, these are 0, 1, ..., p - 1.
    Raises ValueError, with the worker's number in its text, where a worker pushes that has never pulled.
    """
    # solution: count pushes; note for each worker how many there were at its last pull
    pushes, seen, counts = 0, {}, []
    for kind, worker in history:
        if kind == "pull":
            seen[worker] = pushes
        elif worker not in seen:
            raise ValueError(f"worker {worker} pushes a gradient and has never pulled the weights")
        else:
            counts.append(pushes - seen[worker])
            pushes += 1
    return counts
    # end of solution
