# says: An action is a tuple of two: ("F", 0) is the forward of
# thinks: An action is a short label such as F0 or B3, a string will do as well as a tuple.
"""Exercise e04: GPipe's schedule."""


def gpipe(stages, microbatches):
    one = [f"F{k}" for k in range(microbatches)] + [f"B{k}" for k in range(microbatches - 1, -1, -1)]
    return [list(one) for _ in range(stages)]
