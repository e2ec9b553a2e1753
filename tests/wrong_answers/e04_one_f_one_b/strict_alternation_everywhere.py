# says: No forwards ahead: each micro-batch comes back before the next
# thinks: One forward, one backward means just that: on every stage F 0, B 0, F 1, B 1 and so on.
"""Exercise e04: one forward, one backward (1F1B)."""


def one_f_one_b(stages, microbatches):
    return [[(d, k) for k in range(microbatches) for d in ("F", "B")] for _ in range(stages)]
