# says: There are as many lists as micro-batches. Each of the 3 stages
# thinks: The outer list has one entry for each micro-batch, and the number in the tuple says which stage it is on.
"""Exercise e04: GPipe's schedule."""


def gpipe(stages, microbatches):
    forwards = [("F", i) for i in range(stages)]
    backwards = [("B", i) for i in reversed(range(stages))]
    return [forwards + backwards for _ in range(microbatches)]
