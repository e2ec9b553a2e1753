# says: cost that is to be equal, not their number
# thinks: Balanced means that all stages have equally many layers.
"""Exercise e03: where to cut."""


def balance(costs, stages):
    each, rest = divmod(len(costs), stages)
    return [each + (i < rest) for i in range(stages)]
