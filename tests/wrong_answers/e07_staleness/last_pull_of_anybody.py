# says: That counts from the last pull of anybody
# thinks: a pull says that the weights are fresh.
"""Exercise e07: staleness."""


def staleness(history):
    since, pulled, result = 0, set(), []
    for kind, worker in history:
        if kind == "pull":
            since = 0
            pulled.add(worker)
        else:
            if worker not in pulled:
                raise ValueError(f"worker {worker} never pulled")
            result.append(since)
            since += 1
    return result
