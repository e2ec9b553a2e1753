# right: backwards in the order 0..m-1, from itertools.product
"""Exercise e04: GPipe's schedule."""

from itertools import product


def gpipe(stages, microbatches):
    return [list(product("FB", range(microbatches))) for _ in range(stages)]
