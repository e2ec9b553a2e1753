# says: layers differ in cost
# thinks: Balanced means that all stages have equally many layers.
"""Exercise e03: where to cut."""


def balance(costs, stages):
    each, rest = divmod(len(costs), stages)
    return [each + (i < rest) for i in range(stages)]
