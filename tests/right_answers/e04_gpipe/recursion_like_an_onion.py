# right: recursion on both counts: F k, what is inside, B k
"""Exercise e04: GPipe's schedule."""


def gpipe(stages, microbatches):
    def onion(k):
        if k == microbatches:
            return ()
        return (("F", k), *onion(k + 1), ("B", k))

    if stages == 0:
        return []
    return gpipe(stages - 1, microbatches) + [list(onion(0))]
