# says: Its gradient never arrives: B0 is not in stage 1's list
# thinks: With fewer micro-batches than stages there is no work for the stages left over, so their lists stay empty.
"""Exercise e04: GPipe's schedule."""


def gpipe(stages, microbatches):
    work = [("F", k) for k in range(microbatches)] + [("B", k) for k in range(microbatches)][::-1]
    used = min(stages, microbatches)
    return [work[:] for _ in range(used)] + [[] for _ in range(stages - used)]
