# says: filled up to the average
# thinks: A stage is full when it has reached the average.
"""Exercise e03: where to cut."""


def balance(costs, stages):
    target = sum(costs) / stages
    sizes, size, total = [], 0, 0
    for i, cost in enumerate(costs):
        size += 1
        total += cost
        left = len(costs) - i - 1
        need = stages - len(sizes) - 1
        if need and left and (total >= target or left == need):
            sizes.append(size)
            size, total = 0, 0
    sizes.append(size)
    while len(sizes) < stages:
        largest = max(range(len(sizes)), key=lambda i: sizes[i])
        sizes[largest : largest + 1] = [sizes[largest] - 1, 1]
    return sizes
