# says: The gradient before its forward: F0 of this stage has not run
# thinks: All actions are the product of F and B with the micro-batches, and sorting puts them in order.
"""Exercise e04: GPipe's schedule."""

from itertools import product


def gpipe(stages, microbatches):
    return [sorted(product("FB", range(microbatches))) for _ in range(stages)]
