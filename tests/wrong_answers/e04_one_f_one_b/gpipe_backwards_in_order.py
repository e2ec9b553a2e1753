# says: That is GPipe's list: nothing is let go before all forwards are
# thinks: 1F1B differs from GPipe in that the backwards come in the order of the forwards, so each activation goes sooner.
"""Exercise e04: one forward, one backward (1F1B)."""


def one_f_one_b(stages, microbatches):
    one = [("F", k) for k in range(microbatches)] + [("B", k) for k in range(microbatches)]
    return [list(one) for _ in range(stages)]
