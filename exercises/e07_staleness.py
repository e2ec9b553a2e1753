"""Exercise e07: staleness, the age of a gradient.

In asynchronous training a gradient is late. A worker takes the weights and computes a gradient with them, and meanwhile
the server applies gradients of other workers. The number of these updates is the staleness of the gradient. It is 0 in
training on one device.

The server saw a list of events, one after the other. In a "pull" a worker takes the weights. In a "push" the server
applies a worker's gradient. Every push is one update of the weights, in contrast to synchronous training, in which one
update needs the gradients of all workers.

Check it with `mpcourse check e07_staleness`. Stuck? `mpcourse hint e07_staleness`.
"""

from mpcourse import check_this_file

if __name__ == "__main__":  # up here, so that all code below runs under the checker's watch
    check_this_file(__file__)


def staleness(history):
    """Return for each push how many other pushes were applied since its worker took the weights.

    history: a list of (kind, worker), in the order in which the server saw them. kind is "pull" or "push", and
    worker is a whole number, 0 or more. The list is not changed.
    Returns a list or tuple of ints, one for each push, in the order of the pushes. An empty history gives [].

    A worker may pull twice before it pushes. Then its last pull counts. A worker may also push twice after one pull.
    Then the second push counts the first one as well, because the first one changed the weights.
    If p workers all pull, and then all push, the result is 0, 1, ..., p - 1.
    Raises ValueError, with the worker's number in its text, if a worker pushes that has never pulled.
    """
    raise NotImplementedError("e07_staleness: count pushes; note for each worker how many there were at its last pull")
