# says: A worker's own earlier push counts, too
# thinks: "other pushes" are pushes of other workers.
"""Exercise e07: staleness."""


def staleness(history):
    result = []
    for i, (kind, worker) in enumerate(history):
        if kind == "push":
            start = max([j for j in range(i) if history[j] == ("pull", worker)], default=None)
            if start is None:
                raise ValueError(f"worker {worker} never pulled")
            result.append(sum(k == "push" and w != worker for k, w in history[start:i]))
    return result
