# right: Starts at the lower bound and raises the limit to the next sum that would have fitted.
"""Exercise e03: where to cut."""


def balance(costs, stages):
    limit = max(costs)
    while True:
        sizes, total, nearest = [0], 0, float("inf")
        for i, cost in enumerate(costs):
            forced = len(costs) - i == stages - len(sizes)
            if sizes[-1] and (forced or total + cost > limit):
                if not forced:
                    nearest = min(nearest, total + cost)
                sizes.append(0)
                total = 0
            sizes[-1] += 1
            total += cost
        if len(sizes) == stages:
            return sizes
        limit = nearest
