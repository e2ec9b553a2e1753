# says: earlier cuts stay
# thinks: Cutting the dearest stage at its best place, again and again, gives the best cut.
"""Exercise e03: where to cut."""


def balance(costs, stages):
    parts = [(0, len(costs))]
    while len(parts) < stages:
        cuttable = [p for p in parts if p[1] - p[0] > 1]
        start, end = max(cuttable, key=lambda p: sum(costs[p[0] : p[1]]))
        middle = min(range(start + 1, end), key=lambda m: max(sum(costs[start:m]), sum(costs[m:end])))
        i = parts.index((start, end))
        parts[i : i + 1] = [(start, middle), (middle, end)]
    return [end - start for start, end in parts]
