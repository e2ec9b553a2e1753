# says: A stage without a layer
# thinks: Fewer stages than asked are as good, so the rest stays empty.
"""Exercise e03: where to cut."""


def balance(costs, stages):
    for cap in sorted({sum(costs[i:j]) for i in range(len(costs)) for j in range(i + 1, len(costs) + 1)}):
        if cap < max(costs):
            continue
        sizes, total = [0], 0
        for cost in costs:
            if total + cost > cap and sizes[-1]:
                sizes.append(0)
                total = 0
            sizes[-1] += 1
            total += cost
        if len(sizes) <= stages:
            return sizes + [0] * (stages - len(sizes))
