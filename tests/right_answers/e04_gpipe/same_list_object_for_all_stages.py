# right: all stages share one and the same list object; backward numbers by ~k, indices of a range
"""Exercise e04: GPipe's schedule."""


def gpipe(stages, microbatches):
    numbers = range(microbatches)
    one = [("F", k) for k in numbers] + [("B", numbers[~k]) for k in numbers]
    return [one] * stages
