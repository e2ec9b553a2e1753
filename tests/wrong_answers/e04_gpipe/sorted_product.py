# says: 
# thinks: All actions are the product of F and B with the micro-batches, and sorting puts them in order.
"""Exercise e04: GPipe's schedule."""

from itertools import product


def gpipe(stages, microbatches):
    return [sorted(product("FB", range(microbatches))) for _ in range(stages)]
